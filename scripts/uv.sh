# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by install.sh and scripts/lock.sh: `bootstrap_uv PYTHON DIR` puts uv into a throw-away venv at DIR and sets UV.
# uv does not read pip's settings, so a mirror that only pip knows is passed on; nothing here names an index.

UV_REQUIREMENT='uv==0.13.9'

bootstrap_uv() {
    local python=$1 dir=$2
    "$python" -m venv "$dir"
    "$dir/bin/python" -m pip --quiet --disable-pip-version-check install "$UV_REQUIREMENT"
    # shellcheck disable=SC2034  # for the script that sources this
    UV=$dir/bin/uv
    export UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-300}"
    pass_on_pip_settings "$dir/bin/python"
}

# Each UV_* that is set already wins.
pass_on_pip_settings() {
    local settings value
    settings=$("$1" -m pip --disable-pip-version-check config list)
    pip_setting() { # the variable, else the file; one line, a list separated by blanks
        sed -n "s/^\(:env:\|install\|global\)\.$1='\(.*\)'\$/\2/p" <<<"$settings" | head -n 1 | sed 's/\\n/ /g; s/^ *//'
    }
    value=$(pip_setting index-url)
    if [[ -n $value && -z ${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-} ]]; then export UV_DEFAULT_INDEX=$value; fi
    value=$(pip_setting extra-index-url)
    if [[ -n $value && -z ${UV_INDEX:-}${UV_EXTRA_INDEX_URL:-} ]]; then
        # pip takes the best version from any index; so must uv when it stands in for pip.
        export UV_INDEX=$value UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
    fi
    value=$(pip_setting find-links)
    if [[ -n $value && -z ${UV_FIND_LINKS:-} ]]; then export_find_links "$value"; fi
    value=$(pip_setting cert)
    if [[ -n $value && -z ${SSL_CERT_FILE:-} ]]; then export SSL_CERT_FILE=$value; fi
}

# pip overlooks a folder that is not there, uv does not.
export_find_links() {
    local place places=()
    for place in $1; do
        if [[ $place == *://* || -e $place ]]; then places+=("$place"); fi
    done
    if ((${#places[@]})); then
        UV_FIND_LINKS=$(IFS=,; echo "${places[*]}")
        export UV_FIND_LINKS
    fi
}
