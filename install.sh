#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Make .venv with everything this project needs; a second run finds it done and says nothing.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/uv.sh

usage() {
    cat <<'TEXT'
usage: ./install.sh [--profile cpu] [--no-dev | --dev-only] [--venv DIR]

  --profile NAME  what to run vLLM on (default: $BUILD_PROFILE, else cpu; cpu-0.22 and cpu-0.18 have an older vLLM)
  --no-dev        leave out the dev tools
  --dev-only      the dev tools and no vLLM, no torch: enough for `make check`
  --venv DIR      where (default .venv)

PYTHON names the Python to use. Index settings of pip and of uv (variables and files) are honoured.
PyTorch's index for CPU builds is used if it answers, which saves gigabytes of CUDA libraries; TORCH_CPU_INDEX
names another place for it, empty means never.
TEXT
}

say() { echo "install: $*"; }
fail() {
    trap - ERR
    echo "install: $*" >&2
    exit 1
}

profile=${BUILD_PROFILE:-cpu}
dev=with # with | without | only
venv=.venv
while (($#)); do
    case $1 in
        --profile) profile=${2:?--profile needs a name} && shift ;;
        --profile=*) profile=${1#*=} ;;
        --venv) venv=${2:?--venv needs a folder} && shift ;;
        --venv=*) venv=${1#*=} ;;
        --dev) dev=with ;;
        --no-dev) dev=without ;;
        --dev-only) dev=only ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && fail "unknown argument: $1" ;;
    esac
    shift
done

locks=()
if [[ $dev != without ]]; then locks+=(requirements/lock-dev.txt); fi
if [[ $dev != only ]]; then locks+=("requirements/lock-$profile.txt"); fi # last: an older vLLM may need older packages
for lock in "${locks[@]}"; do
    if [[ ! -f $lock ]]; then
        known=$(cd requirements && echo lock-*.txt | sed 's/lock-dev.txt//; s/lock-//g; s/\.txt//g')
        fail "no profile '$profile'; there is: $known"
    fi
done

# --- Done already?

fingerprint() { # of all that decides what is in the venv
    { echo "$profile $dev" && cat "${locks[@]}" pyproject.toml proto/backend.proto scripts/protogen.sh scripts/uv.sh install.sh; } |
        sha256sum | cut -d ' ' -f 1
}

stamp=$venv/.vllm-nnrp-install
if [[ -x $venv/bin/python && -f $stamp && $(<"$stamp") == "$(fingerprint)" ]]; then
    exec scripts/protogen.sh "$venv/bin/python" # at once when the stubs are there
fi

started=$SECONDS
step="checking the machine"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "install: failed while $step (the reason stands above); run it again to go on" >&2' ERR

# --- Python

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }

find_python() { # sets python
    local candidate found
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if supported "$candidate"; then
            python=$("$candidate" -c 'import sys; print(sys.executable)')
            return
        fi
    done
    found=$("${PYTHON:-python3}" --version 2>&1) || found="none"
    fail "needs Python 3.11, 3.12 or 3.13 (found: $found); install one or name it: PYTHON=/path/to/python3 $0"
}

# --- System libraries. No compiler: the engine starts with enforce_eager and TORCHDYNAMO_DISABLE=1, so nothing is
# compiled (torch's inductor would want g++).

missing=()   # Debian's package names
missing_what=()
need() { # PACKAGE WHAT TEST...
    local package=$1 what=$2
    shift 2
    if "$@" 2>/dev/null; then return; fi
    missing+=("$package")
    missing_what+=("$what")
}

# Debian splits venv off its own Python; any other Python is complete.
venv_package() { "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'; }

find_missing() {
    missing=()
    missing_what=()
    need "$(venv_package)" "Python's venv and ensurepip" "$python" -c 'import ensurepip, venv'
    if [[ $dev != only ]]; then need libnuma1 "libnuma.so.1" "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")'; fi
}

name_missing() {
    fail "missing on this machine: $(printf '%s; ' "${missing_what[@]}")on Debian and Ubuntu: sudo apt-get install ${missing[*]}"
}

install_system_libraries() {
    find_missing
    if ! ((${#missing[@]})); then return; fi
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then name_missing; fi
    step="installing ${missing[*]} with apt-get"
    say "$step"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2 && false; }
    find_missing
    if ((${#missing[@]})); then name_missing; fi
}

# --- Packages

torch_packages='^(torch|torchaudio|torchvision)=='
cuda_packages='^(nvidia-|cuda-)' # needed by PyPI's build of torch and by nothing else; triton is xgrammar's, too
torch_index=${TORCH_CPU_INDEX-https://download.pytorch.org/whl/cpu}

# Ask for the very build that would be installed, so that a page of a proxy does not count as an answer.
torch_index_answers() {
    [[ -n $torch_index ]] || return 1
    "$python" - "$torch_index/torch/" "$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$1")+cpu" 2>/dev/null <<'PY'
import sys
from urllib.parse import unquote
from urllib.request import urlopen

with urlopen(sys.argv[1], timeout=4) as page:
    sys.exit(f"torch-{sys.argv[2]}-" not in unquote(page.read().decode()))
PY
}

# The locks are complete: nothing is resolved. Without bytecode each process that imports vLLM would compile it first, ten
# seconds of CPU, wherever Python is told not to write any (PYTHONDONTWRITEBYTECODE) or may not.
uv_install() {
    "$UV" pip install "${quiet[@]}" --python "$venv/bin/python" --no-deps --compile-bytecode "$@"
}

install_lock() {
    local lock=$1
    if grep -qE "$torch_packages" "$lock" && torch_index_answers "$lock"; then
        say "$lock, with torch's CPU build from PyTorch's index"
        grep -E "$torch_packages" "$lock" | sed -E 's/==([0-9.]+)/==\1+cpu/' >"$work/torch.txt"
        grep -vE "$torch_packages|$cuda_packages" "$lock" >"$work/rest.txt"
        (unset UV_INDEX UV_EXTRA_INDEX_URL && uv_install --default-index "$torch_index" -r "$work/torch.txt")
        uv_install -r "$work/rest.txt"
    else
        say "$lock"
        uv_install -r "$lock"
    fi
}

if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then fail "$venv is there and is no virtual environment: remove it, or choose another --venv"; fi
find_python
install_system_libraries

step="getting uv"
say "$step (thrown away afterwards)"
bootstrap_uv "$python" "$work/uv"
quiet=(--quiet)
if [[ -t 2 ]]; then quiet=(); fi # on a terminal it shows its progress

step="making $venv"
if ! supported "$venv/bin/python"; then
    say "$step with $("$python" --version)"
    "$UV" venv --quiet --clear --python "$python" "$venv"
fi
rm -f "$stamp"
for lock in "${locks[@]}"; do
    step="installing $lock"
    install_lock "$lock"
done

step="installing the project"
say "$step"
uv_install --editable .

step="building the gRPC stubs"
say "$step"
scripts/protogen.sh "$venv/bin/python"

fingerprint >"$stamp"
say "done in $((SECONDS - started)) s"
