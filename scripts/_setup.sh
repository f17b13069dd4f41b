# Sourced by the other scripts: gets all that headgate needs, once, and says in one line what is missing.
#
# Java 17, a virtualenv in .venv, a private MySQL server, the jars of Delta and of a Kafka broker. Nothing is downloaded
# or built again as long as pyproject.toml and constraints.txt stay as they are. Package indexes, mirrors, proxies and
# certificates are the machine's own (pip, apt and Maven settings and variables pass through). The caches are in
# ${XDG_CACHE_HOME:-~/.cache}/headgate.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
: "${HOME:=$root/.home}"
export HOME
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headgate"
delta_version=$(sed -n 's/^DELTA_VERSION = "\(.*\)"$/\1/p' src/headgate/engine/_settings.py)

fail() {
    echo "headgate: $*" >&2
    exit 3
}

say() {
    echo "headgate: $*" >&2
}

# Run quietly; what the command said is shown only when it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then tail -n 15 "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

apt_install() { # the first of the named packages that this release has; root only
    local package
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    export DEBIAN_FRONTEND=noninteractive
    for package in "$@"; do
        if apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1; then return 0; fi
    done
    quietly apt-get update -q || return 1
    for package in "$@"; do
        if apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1; then return 0; fi
    done
    return 1
}

# --- Java: Spark 4.2 runs on 17 and newer; 17 is what headgate is tested with -----------------------------------------

java_release() { # the major version of a JVM's folder, 0 when it is none
    local version
    version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release" 2>/dev/null) || true
    [ -x "$1/bin/java" ] && echo "${version:-0}" || echo 0
}

find_java() {
    local java home
    java=$(command -v java || true)
    for home in "${JAVA_HOME:-}" /usr/lib/jvm/*17* "${java:+$(dirname "$(dirname "$(readlink -f "$java")")")}" /usr/lib/jvm/*; do
        if [ -n "$home" ] && [ "$(java_release "$home")" -ge 17 ]; then
            export JAVA_HOME="$home"
            return 0
        fi
    done
    return 1
}

if ! find_java; then
    say "installing Java 17 (apt)"
    apt_install openjdk-17-jre-headless openjdk-21-jre-headless && find_java ||
        fail "Java 17 is missing: install it (Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless)"
fi

# --- Python packages --------------------------------------------------------------------------------------------------

# The supported versions, oldest first: the classifiers in pyproject.toml.
pythons=$(sed -n 's/^ *"Programming Language :: Python :: \(3\.[0-9]*\)",$/\1/p' pyproject.toml | paste -sd ' ' -)

is_supported() {
    "$1" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1].split())' "$pythons" 2>/dev/null
}

find_python() { # the first of a supported version
    local name
    for name in ${HEADGATE_PYTHON:-} python3 $(printf 'python%s ' $pythons) python /usr/bin/python3; do
        if is_supported "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

make_venv() {
    local python
    python=$(find_python) || { apt_install $(printf 'python%s-venv ' $pythons) && python=$(find_python); } ||
        fail "no Python of these versions: $pythons: install one (Debian, Ubuntu: sudo apt-get install python3.X-venv)"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        say "installing Python's venv (apt)"
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv" python3-venv ||
            fail "$python cannot make a virtualenv: install python3-venv (sudo apt-get install python3-venv)"
    fi
    "$python" -m venv .venv || fail "$python -m venv .venv failed"
}

# What is installed depends on the project's part of pyproject.toml, not on the tools' settings after it.
wanted=$({ echo "$root"; sed '/^\[tool\.pytest/,$d' pyproject.toml; cat constraints.txt; } | sha256sum | cut -d' ' -f1)

is_done() { # "$wanted" was done: the stamp says so
    [ "$(cat "$1" 2>/dev/null)" = "$wanted" ]
}

install_packages() { # into a virtualenv
    quietly "$1/bin/python" -m pip install -q --upgrade -c constraints.txt pip ||
        fail "pip cannot reach a package index: see the lines above"
    quietly "$1/bin/python" -m pip install -q -c constraints.txt -e ".[all]" --group dev ||
        fail "the Python packages could not be installed: see the lines above"
    echo "$wanted" >"$1/.headgate-stamp"
}

if ! is_done .venv/.headgate-stamp; then
    say "installing the Python packages into .venv (once; a few minutes on a slow line)"
    is_supported .venv/bin/python || { rm -rf .venv && make_venv; }
    install_packages .venv
fi
export PATH="$root/.venv/bin:$PATH"
export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$cache/numba}" # one place for the driver, Spark's workers and the tests

# --- MySQL, Kafka and Delta -------------------------------------------------------------------------------------------

prepared="$cache/prepared-${wanted:0:16}"
if [ ! -e "$prepared" ] || [ ! -d "$cache/mysql" ] || [ ! -d "$cache/kafka" ] || [ ! -d "$cache/jars/delta-$delta_version" ]; then
    say "preparing MySQL, Kafka and Delta (once)"
    .venv/bin/python -m headgate_testing >/dev/null || exit 3
    .venv/bin/python scripts/_delta_jars.py "$cache/jars/delta-$delta_version" || exit 3
    mkdir -p "$cache"
    touch "$prepared"
fi
