#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ $0 != test.sh ]]; then exec bash test.sh "$@"; fi # libbackend finds its folder by $0
for library in common ../common; do
    if [[ -f $library/libbackend.sh ]]; then
        # shellcheck source=../common/libbackend.sh
        source "$library/libbackend.sh"
        break
    fi
done
runUnittests
