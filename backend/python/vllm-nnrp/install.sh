#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Make ./venv with the vllm-nnrp wheel and vLLM for one build profile. LocalAI's build calls it; for work on the project
# itself it is the install.sh at the repository's top.
#
#   BUILD_TYPE, CUDA_MAJOR_VERSION   choose the profile, none: cpu
#   FROM_SOURCE=true                 compile vLLM for the CPU instead of taking its wheel (from_source.sh)
#   TORCH_CPU_INDEX                  where PyTorch's CPU builds are; empty: take PyPI's build, which brings CUDA along
#
# The wheel comes from ./wheels where that folder is there, else from the package index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# libbackend finds its folder by $0, and its flags are split at blanks: relative paths serve both.
if [[ $0 != install.sh ]]; then exec bash install.sh "$@"; fi

# Before libbackend.sh is sourced: its default, 3.10, is older than what we support.
if [[ -z ${PYTHON_VERSION:-} ]]; then
    export PYTHON_VERSION=3.12 PYTHON_PATCH=12 PY_STANDALONE_TAG=20251120 # there is such a release; it is found by its name
fi

for library in common ../common; do
    if [[ -f $library/libbackend.sh ]]; then
        # shellcheck source=../common/libbackend.sh
        source "$library/libbackend.sh"
        break
    fi
done
declare -F installRequirements >/dev/null || { echo "install.sh: no common/libbackend.sh here or one folder up" >&2 && exit 1; }

runProtogen() { :; } # the stubs are in the wheel

EXTRA_PIP_INSTALL_FLAGS=${EXTRA_PIP_INSTALL_FLAGS:-}
add_flags() { EXTRA_PIP_INSTALL_FLAGS+=" $*"; }

# The versions that the tests run with. In the repository they are one folder further up than in an image.
locks=
for folder in . ../../../requirements; do
    if [[ -f $folder/lock-$BUILD_PROFILE.txt ]]; then
        locks=$folder
        add_flags "--constraint=$locks/lock-$BUILD_PROFILE.txt"
        break
    fi
done
if [[ -d wheels ]]; then add_flags --find-links=wheels; fi

torch_cpu_index=${TORCH_CPU_INDEX-https://download.pytorch.org/whl/cpu}
# It must have the very build: a page that some proxy answers with does not count.
torch_index_answers() {
    local page version
    [[ -n $torch_cpu_index ]] && page=$(curl -fsSL --max-time 20 "$torch_cpu_index/torch/") || return 1
    version=$(sed -n 's/^torch==//p' requirements-cpu.txt)
    [[ $page == *"torch-$version%2Bcpu-"* || $page == *"torch-$version+cpu-"* ]]
}

cpu_flags() {
    if torch_index_answers; then
        add_flags "--extra-index-url=$torch_cpu_index"
        # The best version of any index: torch's CPU build is on PyTorch's index only, all else on PyPI.
        if [[ $USE_PIP != true ]]; then add_flags --index-strategy=unsafe-best-match; fi
    elif [[ ${FROM_SOURCE:-} == true ]]; then
        : # from_source.sh says so, with all else that is missing
    elif [[ $USE_PIP == true || ! -f $locks/overrides-cpu.txt ]]; then
        echo "install.sh: PyTorch's CPU index does not answer; only uv can do without it, with overrides-cpu.txt beside" \
            "lock-cpu.txt. TORCH_CPU_INDEX names another index" >&2
        exit 1
    else
        echo "install.sh: PyTorch's CPU index does not answer; taking PyPI's torch, which works too and brings CUDA along" >&2
        add_flags "--index-strategy=unsafe-best-match --overrides=$locks/overrides-cpu.txt"
    fi
}

case $BUILD_PROFILE in
    cpu) cpu_flags ;;
    cublas* | hipblas | intel)
        if [[ $USE_PIP != true ]]; then add_flags --index-strategy=unsafe-best-match; fi
        ;;
esac

# shellcheck source=from_source.sh
source from_source.sh
put_back # a build may have been killed half-way
if [[ ${FROM_SOURCE:-} != true ]]; then
    installRequirements
elif [[ $BUILD_PROFILE == cpu ]]; then
    install_from_source
else
    echo "install.sh: FROM_SOURCE is for the CPU profile, and this one is $BUILD_PROFILE" >&2
    exit 1
fi
