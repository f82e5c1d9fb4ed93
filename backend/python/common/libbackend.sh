#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What the scripts of backend/python/vllm-nnrp source, and what stands in for LocalAI's file of the same name where this
# repository is not inside a LocalAI checkout: same function names, same variables, less of it (Linux only).
#
# From outside: BUILD_TYPE, CUDA_MAJOR_VERSION, PYTHON_VERSION, PYTHON_PATCH, PORTABLE_PYTHON, USE_PIP, ENV_DIR (where the venv
# is, default the script's folder), LIMIT_TARGETS, EXTRA_PIP_INSTALL_FLAGS, BACKEND_FILE, TEST_FILE.
# Set by init: BACKEND_NAME, MY_DIR, EDIR, BUILD_PROFILE.
set -euo pipefail

PYTHON_VERSION="${PYTHON_VERSION:-3.10}"
PYTHON_PATCH="${PYTHON_PATCH:-}" # empty: the newest
PORTABLE_PYTHON="${PORTABLE_PYTHON:-false}"
USE_PIP="${USE_PIP:-false}"

_fail() {
    echo "libbackend: $*" >&2
    exit 1
}

function init() {
    MY_DIR=$(realpath "$(dirname "$0")")
    BACKEND_NAME=${MY_DIR##*/}
    EDIR=${ENV_DIR:-$MY_DIR}
    BUILD_PROFILE=$(getBuildProfile)
    if [[ -n ${LIMIT_TARGETS:-} && $(checkTargets) != true ]]; then
        echo "$BACKEND_NAME can only be used on the following targets: $LIMIT_TARGETS"
        exit 0
    fi
}

# Which requirements this machine wants: the build type, with CUDA's major version where there is one.
function getBuildProfile() {
    case ${BUILD_TYPE:-} in
        cublas | l4t) echo "$BUILD_TYPE${CUDA_MAJOR_VERSION:-}" ;;
        *)
            if [[ -d ${INTEL_FOLDER:-/opt/intel} ]]; then
                echo intel
            else
                echo "${BUILD_TYPE:-cpu}"
            fi
            ;;
    esac
}

function checkTargets() {
    local target
    for target in ${LIMIT_TARGETS:-}; do
        if [[ $target == "${BUILD_TYPE:-}" || $target == "$BUILD_PROFILE" ]]; then
            echo true
            return
        fi
    done
    echo false
}

# --- An interpreter that travels with the backend, in $EDIR/python

_portable_dir() { echo "$EDIR/python"; }
_portable_python() { echo "$EDIR/python/bin/python3"; }

# A standalone build by way of uv, which knows where they are and their checksums; where they are out of reach, a copy of
# the machine's own Python, which needs a C library no older than this machine's.
function ensurePortablePython() {
    if [[ -x $(_portable_python) ]]; then return; fi
    local wanted=$PYTHON_VERSION${PYTHON_PATCH:+.$PYTHON_PATCH}
    local staging
    staging=$(mktemp -d "$EDIR/python.XXXXXX")
    if [[ $USE_PIP != true ]] && uv python install --no-bin --install-dir "$staging" "$wanted"; then
        mv "$staging"/cpython-*/ "$(_portable_dir)"
    else
        echo "libbackend: no standalone Python $wanted to be had (above); taking this machine's along"
        _copy_python "$staging/python"
        mv "$staging/python" "$(_portable_dir)"
    fi
    rm -rf "$staging"
    "$(_portable_python)" --version
}

_copy_python() { # FOLDER: this machine's Python with its standard library; package.sh brings what it links to
    local folder=$1 source name stdlib
    source=$(_machine_python) || _fail "no Python 3.11 or newer here to take along"
    { read -r name && read -r stdlib; } < <("$source" -c 'import sys, sysconfig
print("python%d.%d" % sys.version_info[:2])
print(sysconfig.get_path("stdlib"))')
    mkdir -p "$folder/bin" "$folder/lib"
    cp "$(readlink -f "$(command -v "$source")")" "$folder/bin/$name"
    ln -s "$name" "$folder/bin/python3"
    ln -s python3 "$folder/bin/python"
    tar -C "${stdlib%/*}" --exclude=__pycache__ --exclude=site-packages --exclude=dist-packages --exclude="$name/test" \
        --exclude='config-*' --exclude=EXTERNALLY-MANAGED -c "$name" | tar -C "$folder/lib" -x
    _copy_headers "$source" "$folder"
    # Debian keeps some of it elsewhere and links to it.
    mkdir -p "$folder/lib/$name/site-packages"
    "$folder/bin/python3" -I -c 'import ctypes, json, sqlite3, ssl, venv, zlib' ||
        _fail "the copy of $source does not run: install its complete standard library (on Debian: python3-venv)"
}

_copy_headers() { # PYTHON FOLDER: Python.h and its like, where this machine has them: FROM_SOURCE=true compiles against them
    local headers
    headers=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    if [[ ! -f $headers/Python.h ]]; then return; fi
    mkdir -p "$2/include"
    cp -rL "$headers" "$2/include/"
}

_machine_python() {
    local candidate
    for candidate in "python$PYTHON_VERSION" python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# --- The virtual environment, in $EDIR/venv

# It may lie elsewhere than where it was made: the link to its Python is relative, the one absolute path is put right.
_makeVenvPortable() {
    local venv=$EDIR/venv home cfg
    if [[ $(readlink "$venv/bin/python3") != ../../python/bin/python3 ]]; then
        ln -sf ../../python/bin/python3 "$venv/bin/python3"
        ln -sf python3 "$venv/bin/python"
    fi
    home="home = $(_portable_dir)/bin"
    if grep -qxF "$home" "$venv/pyvenv.cfg"; then return; fi
    cfg=$(mktemp "$venv/pyvenv.cfg.XXXXXX")
    sed "s|^home = .*|$home|" "$venv/pyvenv.cfg" >"$cfg"
    chmod 644 "$cfg"
    mv "$cfg" "$venv/pyvenv.cfg" # whole: others may be starting from it just now
}

_activateVenv() {
    export VIRTUAL_ENV=$EDIR/venv PATH=$EDIR/venv/bin:$PATH
    unset PYTHONHOME
}

function ensureVenv() {
    local interpreter
    if [[ ! -d $EDIR/venv ]]; then
        if [[ $PORTABLE_PYTHON == true || -x $(_portable_python) ]]; then
            ensurePortablePython
            interpreter=$(_portable_python)
        else
            interpreter=$(_machine_python) || _fail "needs Python 3.11 or newer (python$PYTHON_VERSION or python3)"
        fi
        if [[ $USE_PIP == true ]]; then
            "$interpreter" -m venv "$EDIR/venv"
        else
            uv venv --relocatable --python "$interpreter" "$EDIR/venv"
        fi
    fi
    if [[ -x $(_portable_python) ]]; then _makeVenvPortable; fi
    if [[ ${VIRTUAL_ENV:-} != "$EDIR/venv" ]]; then _activateVenv; fi
}

# --- What the backend's scripts call

# The requirement files that apply, in order: one path a line.
_requirement_files() {
    local type=${BUILD_TYPE:-} name names=(install "")
    names+=("${type:-$BUILD_PROFILE}")
    if [[ -n $type && $type != "$BUILD_PROFILE" ]]; then names+=("$BUILD_PROFILE"); fi
    names+=(after)
    if [[ $type != "$BUILD_PROFILE" ]]; then names+=("$BUILD_PROFILE-after"); fi
    for name in "${names[@]}"; do
        local file=$EDIR/requirements${name:+-$name}.txt
        if [[ -f $file ]]; then echo "$file"; fi
    done
}

function installRequirements() {
    ensureVenv
    local file flags
    read -ra flags <<<"${EXTRA_PIP_INSTALL_FLAGS:-}"
    while IFS= read -r file; do
        echo "libbackend: installing ${file##*/}"
        if [[ $USE_PIP == true ]]; then
            "$EDIR/venv/bin/python" -m pip install "${flags[@]}" --requirement "$file"
        else
            uv pip install "${flags[@]}" --requirement "$file"
        fi
    done < <(_requirement_files)
    runProtogen
}

# The wheel brings its stubs; a backend without them has none of ours to build.
function runProtogen() {
    ensureVenv
    "$EDIR/venv/bin/python" -c 'from localai_proto import backend_pb2, backend_pb2_grpc' ||
        _fail "the gRPC stubs cannot be imported (above)"
}

_use_libraries() { # package.sh's: the interpreter itself may need them
    if [[ -d $EDIR/lib ]]; then export LD_LIBRARY_PATH=$EDIR/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
}

function startBackend() {
    ensureVenv
    _use_libraries
    local file
    for file in "${BACKEND_FILE:-}" "$MY_DIR/server.py" "$MY_DIR/backend.py" "$MY_DIR/$BACKEND_NAME.py"; do
        if [[ -n $file && -e $file ]]; then exec "$EDIR/venv/bin/python" "$file" "$@"; fi
    done
    _fail "no server.py, backend.py or $BACKEND_NAME.py in $MY_DIR"
}

function runUnittests() {
    ensureVenv
    local file=${TEST_FILE:-$MY_DIR/test.py}
    [[ -f $file ]] || _fail "no tests at $file"
    _use_libraries
    cd "$(dirname "$file")"
    "$EDIR/venv/bin/python" -m unittest "${file##*/}"
}

init
