#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Build the backend's image and use it as LocalAI does, on a machine that has none of what the backend needs
# (`make test-image`; as root, with buildah and debootstrap, no container daemon):
#
#   1. a Debian base by debootstrap, and the image on it (buildah, isolation chroot, storage vfs)
#   2. the image's layers, unpacked into a backends folder inside a fresh minimal chroot without Python, lscpu and the rest
#   3. run.sh --addr there; from outside: Health, LoadModel of the memorised model, Predict with a tool
#
#   WORK          where all of it goes (default: a new folder below /var/tmp); each step that is there already is left out
#   SUITE         Debian's release for base and machine: bookworm (Python 3.11, default) or trixie (3.13)
#   DEBIAN_MIRROR, MIN_FREE_GIB, CA_BUNDLE (default: this machine's) and what scripts/build-image.sh knows
#   KEEP=true     leave WORK behind
#   STOP_AFTER    base, build, unpack or prepare: go no further
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=${SUITE:-bookworm}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
python=${PYTHON:-.venv/bin/python}
image=localhost/vllm-nnrp-test:$suite
base=localhost/vllm-nnrp-base:$suite
system_ca=/etc/ssl/certs/ca-certificates.crt
START_TO_END_S=900

fail() {
    echo "test-image: $*" >&2
    exit 1
}
say() { echo "test-image: $*"; }

((EUID == 0)) || fail "chroot, mount and debootstrap need root"
for tool in buildah debootstrap; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install buildah debootstrap"
done

work=${WORK:-$(mktemp -d /var/tmp/vllm-nnrp-image.XXXXXX)}
mkdir -p "$work"
work=$(realpath "$work")
machine=$work/machine
backend=/backends/cpu-vllm-nnrp
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs CONTAINERS_STORAGE_CONF=$work/storage.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$work" "$work" >"$CONTAINERS_STORAGE_CONF"
mounted=()
pid=

remove() { # never through a mount into this machine's own /dev
    if grep -qF " $1/" /proc/mounts; then fail "something is mounted below $1: unmount it first"; fi
    rm -rf --one-file-system "$@"
}

clean_up() {
    if [[ -n $pid ]]; then kill -KILL "-$pid" 2>/dev/null || true; fi
    local place
    for place in "${mounted[@]}"; do umount -l "$place"; done
    if [[ ${KEEP:-} != true && -z ${WORK:-} ]]; then remove "$work"; fi
}
trap clean_up EXIT

stop_after() { if [[ ${STOP_AFTER:-} == "$1" ]]; then say "stopped after $1, in $work" && exit 0; fi; }

have_image() { buildah inspect --type image "$1" >/dev/null 2>&1; }

make_base() {
    if [[ ! -f $work/base.tar ]]; then
        say "debootstrap $suite"
        debootstrap --variant=minbase "$suite" "$work/base" "$mirror" >"$work/debootstrap.log" || { tail -n 20 "$work/debootstrap.log" >&2 && exit 1; }
        rm -rf "$work/base/var/cache/apt/archives"/*.deb
        tar -C "$work/base" -cf "$work/base.tar.new" .
        rm -rf "$work/base"
        mv "$work/base.tar.new" "$work/base.tar"
    fi
    if ! have_image "$base"; then
        local container
        container=$(buildah from scratch)
        buildah add --quiet "$container" "$work/base.tar" / >/dev/null
        buildah commit --quiet --rm "$container" "$base" >/dev/null
    fi
}

build_image() {
    if have_image "$image"; then return; fi
    local ca=${CA_BUNDLE-}
    if [[ -z $ca && -f $system_ca ]]; then ca=$system_ca; fi
    BASE_IMAGE=$base IMAGE=$image CONTAINER_ENGINE=buildah CA_BUNDLE=$ca scripts/build-image.sh
}

# As LocalAI installs an OCI image: its layers, in order, into one folder.
unpack_image() {
    if [[ -f $machine$backend/run.sh ]]; then return; fi
    remove "$machine"
    remove "$work/pushed"
    buildah push --quiet --disable-compression "$image" "dir:$work/pushed"
    mkdir -p "$machine"
    tar -C "$machine" -xf "$work/base.tar"
    rm -f "$machine/usr/bin/lscpu" # Debian's smallest system has it, LocalAI's machine may not
    mkdir -p "$machine$backend.staged"
    local digest bytes=0 layers=0
    while IFS= read -r digest; do
        bytes=$((bytes + $(stat -c %s "$work/pushed/$digest")))
        layers=$((layers + 1))
        tar -C "$machine$backend.staged" -xf "$work/pushed/$digest"
    done < <("$python" -c 'import json, sys
for layer in json.load(open(sys.argv[1]))["layers"]:
    print(layer["digest"].removeprefix("sha256:"))' "$work/pushed/manifest.json")
    mv "$machine$backend.staged" "$machine$backend"
    rm -rf "$work/pushed"
    say "image: $((bytes / 1048576)) MiB in $layers layer(s)"
}

prepare_machine() {
    [[ -x $machine$backend/run.sh ]] || fail "the image has no run.sh at its root"
    local name model
    for name in python3 lscpu g++; do
        if chroot "$machine" /bin/sh -c "command -v $name" >/dev/null; then fail "the bare machine has $name"; fi
    done
    for name in proc sys dev; do
        mkdir -p "$machine/$name"
        mount --rbind "/$name" "$machine/$name"
        mount --make-rslave "$machine/$name"
        mounted+=("$machine/$name")
    done
    cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
    if [[ -f $system_ca ]]; then install -D "$system_ca" "$machine$system_ca"; fi
    model=$("$python" -m vllm_nnrp.models memorised)
    rm -rf "$machine/models"
    mkdir -p "$machine/models"
    cp -rL "$model" "$machine/models/memorised"
}

use_backend() {
    local port
    port=$("$python" -c 'import socket
probe = socket.socket()
probe.bind(("127.0.0.1", 0))
print(probe.getsockname()[1])')
    # Its environment is LocalAI's: nothing of ours but the size of the KV cache, for small machines.
    setsid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 \
        chroot "$machine" /bin/sh -c "cd $backend && exec ./run.sh --addr 127.0.0.1:$port" >"$work/backend.log" 2>&1 &
    pid=$!
    if ! timeout "$START_TO_END_S" "$python" -m tests.image "127.0.0.1:$port" /models/memorised; then
        tail -n 40 "$work/backend.log" >&2
        fail "the backend does not work in the bare machine ($work/backend.log)"
    fi
    kill -TERM "$pid"
    wait "$pid" || fail "the backend ended with status $?"
    pid=
}

make_base
stop_after base
build_image
stop_after build
unpack_image
stop_after unpack
prepare_machine
stop_after prepare
use_backend
say "passed"
