#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The README's two commands on a fresh machine (`make test-fresh`; as root, with debootstrap): a minimal Debian with
# git, make and python3 and nothing else, a clone of what is committed here, `make demo` and `make test`.
#
#   SUITE          Debian's release: bookworm (Python 3.11, default) or trixie (3.13)
#   COMMANDS       what is run, one a line (default: the two)
#   WORK           where the machine goes (default: a new folder below /var/tmp); one that is there already is used
#   DEBIAN_MIRROR, CA_BUNDLE (default: this machine's), and pip's and uv's own variables
#   KEEP=true      leave WORK behind
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=${SUITE:-bookworm}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
commands=${COMMANDS:-$'make demo\nmake test'}
system_ca=/etc/ssl/certs/ca-certificates.crt

fail() {
    echo "test-fresh: $*" >&2
    exit 1
}
say() { echo "test-fresh: $*"; }

((EUID == 0)) || fail "chroot, mount and debootstrap need root"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"

work=${WORK:-$(mktemp -d /var/tmp/vllm-nnrp-fresh.XXXXXX)}
mkdir -p "$work"
machine=$(realpath "$work")/machine
checkout=/srv/vllm-nnrp # on that machine
mounted=()

clean_up() {
    local place
    for place in "${mounted[@]}"; do umount -l "$place"; done
    if [[ ${KEEP:-} == true || -n ${WORK:-} ]]; then return; fi
    if grep -qF " $machine/" /proc/mounts; then fail "something is mounted below $machine: unmount it first"; fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

make_machine() {
    if [[ -f $machine/made ]]; then return; fi
    say "debootstrap $suite"
    debootstrap --variant=minbase --include=ca-certificates,git,make,python3 "$suite" "$machine" "$mirror" \
        >"$work/debootstrap.log" || { tail -n 20 "$work/debootstrap.log" >&2 && exit 1; }
    touch "$machine/made"
}

connect() { # to the devices, and to the network as this machine does
    local name
    for name in proc sys dev; do
        mount --rbind "/$name" "$machine/$name"
        mount --make-rslave "$machine/$name"
        mounted+=("$machine/$name")
    done
    cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
    cp -L /etc/hosts "$machine/etc/hosts"
    if [[ -d /etc/apt/apt.conf.d ]]; then cp -n /etc/apt/apt.conf.d/*prox* "$machine/etc/apt/apt.conf.d/" 2>/dev/null || true; fi
    local ca=${CA_BUNDLE-$system_ca}
    if [[ -f $ca ]]; then install -D "$ca" "$machine$system_ca"; fi
    if [[ -f /etc/pip.conf ]]; then cp /etc/pip.conf "$machine/etc/pip.conf"; fi
}

clone() {
    rm -rf "$machine$checkout"
    git clone --quiet --no-local . "$machine$checkout"
    say "at $(git -C "$machine$checkout" log --oneline -1)"
}

inside() { # COMMAND
    local settings=() name
    for name in $(compgen -e | grep -E '^(PIP|UV)_' | grep -vE '^PIP_FIND_LINKS$|^UV_FIND_LINKS$'); do settings+=("$name=${!name}"); done
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY TORCH_CPU_INDEX SSL_CERT_FILE; do
        if [[ -n ${!name:-} ]]; then settings+=("$name=${!name}"); fi
    done
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${settings[@]}" \
        chroot "$machine" /bin/bash -c "cd $checkout && $1"
}

make_machine
connect
clone
for program in pip3 gcc g++ uv; do
    if inside "command -v $program" >/dev/null; then fail "the fresh machine has $program"; fi
done
while IFS= read -r command; do
    started=$SECONDS
    say "\$ $command"
    inside "$command" || fail "'$command' failed after $((SECONDS - started)) s"
    say "'$command' took $((SECONDS - started)) s"
done <<<"$commands"
say "passed"
