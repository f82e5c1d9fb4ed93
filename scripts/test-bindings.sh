#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Test each binding with the vLLM that it is tested with (`make test-bindings`).
#
#   scripts/test-bindings.sh [PROFILE...]     default: cpu-0.22 cpu-0.18; `make test` is for the vLLM of the profile cpu
#
# Each profile gets a virtual environment in .venv-bindings/, made by install.sh from its lock; a second run finds it
# done. In it run the chat suite (tests/vllm_engine, the short form of tests/parity), the start with a vLLM that lacks
# something, and a real engine behind both doors with the memorised model. The table in the end says what ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profiles=("$@")
if ((${#profiles[@]} == 0)); then profiles=(cpu-0.22 cpu-0.18); fi
folder=.venv-bindings
suites=(
    "chat tests/vllm_engine tests/parity"
    "start tests/vllm_nnrp/test_compatibility.py"
    "real-engine tests/real_engine/test_answers.py"
)
export HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB

mkdir -p "$folder"
: >"$folder/table"
row() { printf '%-9s %-8s %-12s %7s %7s %7s %6s  %s\n' "$@" >>"$folder/table"; }
row profile vLLM suite passed failed skipped seconds ''

count() { # KIND SUMMARY: pytest's number of them
    sed -nE "s/.*[^0-9]([0-9]+) $1.*/\1/p" <<<" $2" | grep . || echo 0
}

failed=0
for profile in "${profiles[@]}"; do
    venv=$folder/$profile
    started=$SECONDS
    ./install.sh --profile "$profile" --venv "$venv"
    version=$("$venv/bin/python" -c 'from vllm_engine.installation import find_installation as find; print(find().version)')
    row "$profile" "$version" install - - - $((SECONDS - started)) ''
    # A cache of its own for each: they would evict each other's entries.
    export VLLM_CACHE_ROOT=$PWD/$folder/cache-$profile
    for suite in "${suites[@]}"; do
        read -r name paths <<<"$suite"
        started=$SECONDS status=0
        read -ra paths <<<"$paths"
        "$venv/bin/python" -m pytest -p no:cacheprovider --tb=short --durations=5 "${paths[@]}" 2>&1 |
            tee "$folder/$profile-$name.log" || status=$?
        summary=$(tail -n 1 "$folder/$profile-$name.log")
        row "$profile" "$version" "$name" "$(count passed "$summary")" "$(count failed "$summary")" \
            "$(count skipped "$summary")" $((SECONDS - started)) "$( ((status)) && echo FAILED)"
        if ((status)); then failed=1; fi
    done
    "$venv/bin/python" -m tests.parity.left_out >"$folder/$profile-left-out.txt"
done

echo
cat "$folder/table"
for profile in "${profiles[@]}"; do
    echo "left out with $profile, each with its reason ($folder/$profile-left-out.txt): $(wc -l <"$folder/$profile-left-out.txt") entries"
done
exit "$failed"
