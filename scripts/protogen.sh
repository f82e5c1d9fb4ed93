#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Generate proto/localai_proto/backend_pb2{.py,.pyi} and backend_pb2_grpc.py from proto/backend.proto.
#
#   scripts/protogen.sh [PYTHON]      PYTHON (default .venv/bin/python) is the Python that will import the stubs
#
# Generated code refuses to load on a protobuf or grpcio older than its generator. So the generator is not the newest one: it
# is the newest that is newer neither than what PYTHON has nor than the pair in constraints.txt (the wheel carries the stubs
# to other machines), in a throw-away venv; and PYTHON imports the stubs in the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-.venv/bin/python}
package=proto/localai_proto
stubs=("$package/backend_pb2.py" "$package/backend_pb2.pyi" "$package/backend_pb2_grpc.py")

fail() { echo "protogen: $*" >&2; exit 1; }

# PYTHONPATH: the stubs must load before the project is installed, too.
stubs_import() { PYTHONPATH=proto "$python" -c 'from localai_proto import backend_pb2, backend_pb2_grpc'; }

stubs_current() {
    local stub source
    for stub in "${stubs[@]}"; do
        for source in proto/backend.proto constraints.txt scripts/protogen.sh; do
            [[ -f $stub && $stub -nt $source ]] || return 1
        done
    done
    stubs_import 2>/dev/null
}

# Upper bounds; pip finds the newest generator under them by the protobuf that it requires, which is the one it generates for.
generator_requirements() {
    sed -n 's/^grpcio==/grpcio-tools<=/p; s/^protobuf==/protobuf<=/p' constraints.txt
    "$python" - <<'PY'
from importlib.metadata import version

print(f"grpcio-tools<={version('grpcio')}\nprotobuf<={version('protobuf')}")
PY
}

[[ -x $(command -v "$python") ]] || fail "no Python at $python: run 'make install' first, or name one: $0 PYTHON"
if stubs_current; then exit 0; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
generator_requirements >"$work/requirements.txt" || fail "$python has no grpcio and protobuf to generate for"
"$python" -m venv "$work/venv" || fail "python -m venv failed (on Debian: apt-get install python3-venv)"
"$work/venv/bin/python" -m pip --quiet --disable-pip-version-check install --only-binary :all: -r "$work/requirements.txt" ||
    fail "no generator could be installed for: $(tr '\n' ' ' <"$work/requirements.txt")"

# Mapping proto/ to localai_proto/ makes the generated import read `from localai_proto import backend_pb2`.
"$work/venv/bin/python" -m grpc_tools.protoc -Ilocalai_proto=proto --python_out="$work" --pyi_out="$work" \
    --grpc_python_out="$work" localai_proto/backend.proto || fail "protoc refused proto/backend.proto"
for stub in "${stubs[@]}"; do
    { echo "# SPDX-License-Identifier: MIT"; cat "$work/localai_proto/${stub##*/}"; } >"$stub.new"
    mv "$stub.new" "$stub" # whole or not at all
done
stubs_import || fail "$python cannot import the new stubs (see above)"
echo "protogen: stubs built with $("$work/venv/bin/python" -m pip --disable-pip-version-check freeze |
    grep -E '^(grpcio-tools|protobuf)==' | tr '\n' ' ')"
