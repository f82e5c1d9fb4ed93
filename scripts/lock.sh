#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Write the lock files anew from pyproject.toml, requirements/ and constraints.txt (`make lock`).
#
#   requirements/lock-cpu.txt   the CPU profile: vLLM, the project's dependencies, what building the models needs
#   requirements/lock-cpu-*.txt the same with the other vLLMs that are tested, near to lock-cpu.txt
#   requirements/lock-dev.txt   the project's dependencies, dev tools and the plots of `make bench`: enough for `make check`
#
# Both are complete and agree with each other: they are installed without resolving anything. A pin stays as it is while
# it fits; `scripts/lock.sh --upgrade` takes the newest versions, `--upgrade-package NAME` one of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/uv.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bootstrap_uv "${PYTHON:-python3}" "$work/uv"

compile() { # OUTPUT ARGUMENT...
    local output=$1
    shift
    cp "$output" "$work/lock" 2>/dev/null || : >"$work/lock"
    "$UV" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --constraints constraints.txt \
        --output-file "$work/lock" "$@" pyproject.toml
    {
        printf '# SPDX-License-Identifier: MIT\n'
        printf '# Written by make lock. Installed without dependencies: every package that is needed is named here.\n'
        sed '/^#/d; /^--/d' "$work/lock"
    } >"$output"
}

compile_cpu() { # NAME OVERRIDES ARGUMENT...
    local name=$1 overrides=$2
    shift 2
    compile "requirements/lock-$name.txt" --extra models --extra prometheus --overrides "requirements/$overrides.txt" \
        --excludes requirements/excludes-cpu.txt "$@" "requirements/$name.in"
}

compile_cpu cpu overrides-cpu "$@"
for name in cpu-0.22 cpu-0.18; do
    if [[ ! -f requirements/lock-$name.txt ]]; then cp requirements/lock-cpu.txt "requirements/lock-$name.txt"; fi
done
compile_cpu cpu-0.22 overrides-cpu "$@"
compile_cpu cpu-0.18 overrides-cpu-0.18 "$@"
compile requirements/lock-dev.txt --extra dev --extra bench --constraints requirements/lock-cpu.txt "$@"
