#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What `vllm-nnrp doctor` says on machines where something is missing, for real (`make test-doctor`): as installed here,
# in a new environment with the wheel and no vLLM, without libnuma, and with a transformers that vLLM does not take.
# Shows each table, and fails where a problem, its remedy or the exit code is not the expected one. Uses a network.
#
#   VENV           the environment with vLLM (default .venv)
#   TRANSFORMERS   a version that its vLLM does not take (default 4.57.6)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/uv.sh

venv=$(realpath "${VENV:-.venv}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export COLUMNS=120
failed=0

doctor() { # TITLE EXIT_CODE EXPECTED COMMAND...
    local title=$1 code=$2 expected=$3 found=0 started
    shift 3
    started=$(date +%s%N)
    printf '\n== %s\n' "$title"
    "$@" doctor --addr 127.0.0.1:0 >"$work/told" 2>&1 || found=$?
    cat "$work/told"
    printf '(exit code %d, %d ms)\n' "$found" $((($(date +%s%N) - started) / 1000000))
    # The table folds long lines: words are compared without what stands between them.
    if ((found != code)) || ! tr -s ' \n' ' ' <"$work/told" | grep -qE -- "$expected"; then
        echo "test-doctor: expected exit code $code and: $expected" >&2
        failed=1
    fi
}

bootstrap_uv "${PYTHON:-python3}" "$work/uv"
"$venv/bin/python" -m build --no-isolation --wheel --outdir "$work/dist" . >"$work/build.log" || {
    cat "$work/build.log" >&2
    exit 1
}
"$UV" venv --quiet --python "$venv/bin/python" "$work/bare"
"$UV" pip install --quiet --python "$work/bare/bin/python" "$work"/dist/*.whl
"$UV" pip install --quiet --python "$venv/bin/python" --no-deps --target "$work/other" \
    "transformers==${TRANSFORMERS:-4.57.6}"
mkdir "$work/libraries"
: >"$work/libraries/libnuma.so.1" # found first, and no library

doctor "as installed here" 0 ' usable' "$venv/bin/vllm-nnrp"
doctor "the wheel alone, no vLLM" 1 'problem vLLM +vLLM is not installed → for a CPU pip install .* not usable: 1 problem' \
    "$work/bare/bin/vllm-nnrp"
doctor "no libnuma" 1 'problem machine +libnuma.so.1 is not found → install libnuma1 .* not usable: 1 problem' \
    env LD_LIBRARY_PATH="$work/libraries" "$venv/bin/vllm-nnrp"
doctor "another transformers" 1 'problem transformers +[0-9.]+ → vLLM [0-9.]+ wants transformers.* not usable: 1 problem' \
    env PYTHONPATH="$work/other" "$venv/bin/vllm-nnrp"

exit "$failed"
