#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Make the backend stand alone: what its Python and its packages load from this machine, but for the C library itself, goes
# to lib/, which run.sh puts on LD_LIBRARY_PATH; lscpu goes to bin/. The image is FROM scratch and is unpacked on machines
# that have none of it.
#
# libnuma and libgomp are asked for by name: vLLM's CPU kernels load them, and without libnuma vLLM only says that some
# operator is missing. lscpu, because vLLM's CPU worker runs it at its start to place its threads.
# No compiler: torch's inductor would want g++, but the backend starts CPU engines with enforce_eager and
# TORCHDYNAMO_DISABLE=1, and then nothing is compiled, at the start or later (tests/real_engine run so; 400 MB saved). Who
# sets either otherwise needs a g++ on the machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lib=$here/lib
mkdir -p "$lib" "$here/bin"

fail() {
    echo "package.sh: $*" >&2
    exit 1
}

# The C library and its loader belong to the machine: two of them in one process do not work.
of_the_machine='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnss_.*|libmvec|libthread_db)\.so'

copy_library() { # PATH FOLDER: the file under the name it is asked for
    cp -Lf "$1" "$2/${1##*/}"
    chmod 755 "$2/${1##*/}"
}

system_libraries() { # FILE...: paths of what they load from outside $here, without the C library
    ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while IFS= read -r path; do
        if [[ $path == "$here"/* || ${path##*/} =~ $of_the_machine ]]; then continue; fi
        echo "$path"
    done
}

by_name() { # SONAME: its path on this machine
    local path
    path=$(ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }')
    [[ -n $path ]] || fail "$1 is not on this machine (on Debian: apt-get install libnuma1 libgomp1)"
    echo "$path"
}

for soname in libnuma.so.1 libgomp.so.1; do
    path=$(by_name "$soname")
    copy_library "$path" "$lib"
done

# CUDA's own libraries come inside the packages; libcuda is the driver's.
mapfile -t objects < <(find "$here/venv" "$here/python" \( -name '*.so' -o -name '*.so.*' \) -type f 2>/dev/null)
if ((${#objects[@]})); then
    system_libraries "${objects[@]}" >"$lib/.needed"
    if [[ -d $here/python ]]; then system_libraries "$(readlink -f "$here/python/bin/python3")" >>"$lib/.needed"; fi
    while IFS= read -r path; do
        if [[ ${path##*/} != libcuda.so* ]]; then copy_library "$path" "$lib"; fi
    done <"$lib/.needed"
    rm "$lib/.needed"
fi

# Its libraries stay out of the way of the machine's own programs, so they are in a folder that only this script names.
lscpu=$(command -v lscpu) || fail "lscpu is not on this machine (on Debian: apt-get install util-linux)"
mkdir -p "$lib/lscpu"
cp -Lf "$lscpu" "$lib/lscpu/lscpu"
while IFS= read -r path; do copy_library "$path" "$lib/lscpu"; done < <(system_libraries "$lscpu")
cat >"$here/bin/lscpu" <<'SH'
#!/bin/sh
lib=$(dirname "$(readlink -f "$0")")/../lib/lscpu
LD_LIBRARY_PATH=$lib exec "$lib/lscpu" "$@"
SH
chmod 755 "$here/bin/lscpu"
"$here/bin/lscpu" >/dev/null || fail "the copy of lscpu does not run"
echo "package.sh: $(find "$lib" -name '*.so*' | wc -l) libraries, $(du -sh "$lib" | cut -f 1)"
