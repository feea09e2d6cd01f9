#!/usr/bin/env bash
# Installs what pagesieve is compared with, below CACHE and nowhere else: the Python peers in CACHE/venv, the harness of
# the Rust peer in CACHE/gaoya, compiled for this very processor.
#   setup.sh CACHE
set -euo pipefail
cache=${1:?usage: setup.sh CACHE}
here=$(cd "$(dirname "$0")" && pwd)

# need PACKAGE REASON TEST...: ends with advice unless the command TEST succeeds.
need() {
    local package=$1 reason=$2
    shift 2
    if "$@" >/dev/null 2>&1; then return; fi
    printf 'missing: %s (%s); on Debian 12, as root:\n' "$package" "$reason" >&2
    printf '  apt-get update && apt-get install -y --no-install-recommends %s\n' "$package" >&2
    exit 1
}

# NumPy of requirements.txt needs it, and Debian 12 has it.
python_3_11() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

# Can python3 make an environment of its own? Debian takes ensurepip out into a package.
makes_venvs() { python3 -c 'import ensurepip, venv'; }

need python3 "3.11 or newer: two of the peers, and the comparison" python_3_11
need python3-venv "keeps the Python peers apart from the system" makes_venvs
need util-linux "pins a process to a core" command -v taskset

mkdir -p "$cache"
# A venv remembers what it was made from: another list of versions, or an interrupted installation, makes a new one.
if ! cmp -s "$here/requirements.txt" "$cache/venv/installed.txt"; then
    echo "peers: installing rensa and datasketch below $cache" >&2
    rm -rf "$cache/venv"
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$cache/venv/installed.txt"
fi
echo "peers: building the harness of gaoya" >&2
# Cargo reads configuration and toolchain from where it is started.
cd "$here/gaoya"
RUSTFLAGS="-C target-cpu=native" "${CARGO:-cargo}" build --quiet --release --locked --target-dir "$cache/gaoya"
