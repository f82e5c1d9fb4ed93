#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Start the backend with the Python it was installed into: a venv beside this file, else the repository's .venv.
# `run.sh serve …` starts vLLM's own server instead, for a machine that joins another one's engine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for python in "$here/venv/bin/python" "$here/.venv/bin/python" "$here/../../../.venv/bin/python"; do
    [[ -x $python ]] && exec "$python" "$here/backend.py" "$@"
done
echo "run.sh: no Python environment found: run 'make install' in the repository" >&2
exit 1
