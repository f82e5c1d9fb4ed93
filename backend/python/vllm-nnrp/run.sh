#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Start the backend with the Python it was installed into: the venv of install.sh (ENV_DIR/venv, else beside this file),
# else the repository's .venv. `run.sh serve …` starts vLLM's own server instead, for a machine that joins another one's
# engine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

start() { exec "$1" "$here/backend.py" "${@:2}"; }

if [[ ! -d ${ENV_DIR:-$here}/venv ]]; then
    for python in "$here/.venv/bin/python" "$here/../../../.venv/bin/python"; do
        [[ -x $python ]] && start "$python" "$@"
    done
    echo "run.sh: no Python environment found: run 'make install' in the repository, or install.sh in this folder" >&2
    exit 1
fi

# package.sh puts lscpu there, which vLLM runs; the machine's own is better where it has one.
if [[ -d $here/bin ]]; then export PATH=$PATH:$here/bin; fi

for library in "$here/common/libbackend.sh" "$here/../common/libbackend.sh"; do
    if [[ -f $library ]]; then
        # shellcheck source=../common/libbackend.sh
        source "$library" >&2 # LocalAI's says what it does
        export BACKEND_FILE=$here/backend.py
        startBackend "$@" # LocalAI's says so on stdout, too; ours says nothing
    fi
done
start "${ENV_DIR:-$here}/venv/bin/python" "$@"
