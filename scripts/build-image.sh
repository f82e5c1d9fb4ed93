#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Build the backend's image with what can build one here (`make docker-build-backend`): local-ai-backend:vllm-nnrp.
#
#   CONTAINER_ENGINE   docker, podman, buildah or auto (default: the first that works, not the first that is installed)
#   IMAGE              the image's name
#   MIN_FREE_GIB       free disk space to begin with (40)
#   CA_BUNDLE          a file of certificates for the build's downloads (podman, buildah); it is not in the image
#   BUILD_TYPE, BASE_IMAGE, CUDA_MAJOR_VERSION, FROM_SOURCE and the other arguments of backend/Dockerfile.python, where set;
#   the settings of pip and uv in the environment go into the build, too, and are not in the image either.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SAMPLE_EVERY_S=2
image=${IMAGE:-local-ai-backend:vllm-nnrp}
min_free_gib=${MIN_FREE_GIB:-40}

fail() {
    echo "build-image: $*" >&2
    exit 1
}

works() { # ENGINE: not only installed; a docker client without its daemon is common
    case $1 in
        docker) docker version --format '{{.Server.Version}}' ;;
        podman) podman info ;;
        buildah) buildah info ;;
        *) return 1 ;;
    esac >/dev/null 2>&1
}

choose_engine() {
    local wanted=${CONTAINER_ENGINE:-auto} candidate
    if [[ $wanted == auto ]]; then
        for candidate in docker podman buildah; do
            if works "$candidate"; then
                echo "$candidate"
                return
            fi
        done
        fail "neither docker nor podman nor buildah works here; 'docker version', 'podman info', 'buildah info' say why"
    fi
    works "$wanted" || fail "$wanted does not work here: try '$wanted info', or CONTAINER_ENGINE=auto"
    echo "$wanted"
}

used_mib() { df -BM --output=used "$storage" | tail -n 1 | tr -dc 0-9; }

storage_of() { # ENGINE: where its layers go
    case $1 in
        docker) docker info --format '{{.DockerRootDir}}' ;;
        podman) podman info --format '{{.Store.GraphRoot}}' ;;
        buildah) buildah info --format '{{.store.GraphRoot}}' ;;
    esac
}

existing_folder() { # PATH: itself, or the nearest above it that is on this machine
    local path=$1
    while [[ ! -d $path ]]; do path=$(dirname "$path"); done
    echo "$path"
}

engine=$(choose_engine)
storage=$(existing_folder "$(storage_of "$engine")")
free_gib=$(df -BG --output=avail "$storage" | tail -n 1 | tr -dc 0-9)
((free_gib >= min_free_gib)) || fail "$free_gib GiB free for $engine in $storage, $min_free_gib GiB are needed (MIN_FREE_GIB)"
compgen -G 'dist/vllm_nnrp-*.whl' >/dev/null || fail "no wheel in dist/: run 'make dist'"

arguments=()
for name in BASE_IMAGE BACKEND BUILD_TYPE CUDA_MAJOR_VERSION CUDA_MINOR_VERSION UBUNTU_VERSION APT_MIRROR SKIP_DRIVERS \
    FROM_SOURCE MAX_JOBS DEPS_REFRESH PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_INDEX UV_INDEX_STRATEGY \
    UV_PYTHON_INSTALL_MIRROR TORCH_CPU_INDEX; do
    # An empty one is a value, too: TORCH_CPU_INDEX= means never.
    if [[ -n ${!name+set} ]]; then arguments+=(--build-arg "$name=${!name}"); fi
done
if [[ -n ${CA_BUNDLE:-} ]]; then
    [[ $engine != docker ]] || fail "docker build takes no volume: put the certificates into BASE_IMAGE instead of CA_BUNDLE"
    inside=/run/build-ca.pem
    arguments+=(--volume "$(realpath "$CA_BUNDLE"):$inside:ro")
    for name in PIP_CERT SSL_CERT_FILE CURL_CA_BUNDLE; do arguments+=(--build-arg "$name=$inside"); done
fi

build() {
    case $engine in
        buildah) buildah build --layers=false "$@" ;;
        podman) podman build --layers=false "$@" ;;
        docker) docker build "$@" ;;
    esac
}

started=$SECONDS
before_mib=$(used_mib)
peak=$(mktemp)
echo "$before_mib" >"$peak"
watch_disk() {
    local now
    while sleep "$SAMPLE_EVERY_S"; do
        now=$(used_mib)
        if ((now > $(<"$peak"))); then echo "$now" >"$peak"; fi
    done
}
watch_disk >/dev/null 2>&1 & # it must not hold our output open
watcher=$!
trap 'kill "$watcher" 2>/dev/null || true; rm -f "$peak"' EXIT

echo "build-image: $image with $engine, $free_gib GiB free"
status=0
build "${arguments[@]}" --tag "$image" --file backend/Dockerfile.python . || status=$?
echo "build-image: $((SECONDS - started)) s, peak disk $(($(<"$peak") - before_mib)) MiB above the start, $(($(used_mib) - before_mib)) MiB left behind"
((status == 0)) || fail "the build failed (above)"
