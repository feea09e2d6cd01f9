#!/usr/bin/env bash
# Installs the system packages that are missing on Debian 12, and nothing else.
#   setup.sh build    what compiling pagesieve needs
#   setup.sh test     the same, and what tests/kafka/broker.sh needs
# A package counts as present when its command or its header is there, however it was installed.
set -euo pipefail

missing=()

# want PACKAGE REASON TEST...: notes PACKAGE as missing unless the command TEST succeeds.
want() {
    local package=$1 reason=$2
    shift 2
    if "$@" >/dev/null 2>&1; then return; fi
    printf 'missing: %s (%s)\n' "$package" "$reason"
    missing+=("$package")
}

# Is there a C compiler with the C library's headers, a C++ compiler and make?
compiles() { command -v cc && command -v c++ && command -v make && echo '#include <stdlib.h>' | cc -E - ; }

# Does the C compiler find this header?
header() { echo "#include <$1>" | cc -E -; }

# Is the java on PATH a Java 17 or newer? Kafka 4.x brokers need it.
java_17() { [[ $(java -version 2>&1) =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)); }

build() {
    want build-essential "compiles librdkafka, libFuzzer and other C sources" compiles
    want pkg-config "finds the C libraries below" command -v pkg-config
    want libssl-dev "TLS and SASL of the Kafka client" header openssl/ssl.h
    want zlib1g-dev "gzip compression of the Kafka client" header zlib.h
}

case ${1:-} in
    build) build ;;
    test)
        build
        want openjdk-17-jre-headless "runs the Kafka broker" java_17
        want maven "downloads the Kafka broker" command -v mvn
        ;;
    *)
        echo "usage: setup.sh build|test" >&2
        exit 64
        ;;
esac

if ((${#missing[@]} == 0)); then
    echo "nothing is missing"
    exit
fi

install="apt-get install -y --no-install-recommends ${missing[*]}"
as_root=()
if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
        printf 'not root, and sudo is not installed; as root run:\n  apt-get update && %s\n' "$install" >&2
        exit 1
    fi
    as_root=(sudo)
fi
"${as_root[@]}" apt-get update
# shellcheck disable=SC2086 # a list of words
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install
