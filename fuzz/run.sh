#!/usr/bin/env bash
# Feeds bad input to what reads bytes of others.
#   run.sh check                       from one seed, in about a minute: part of `make test`
#   run.sh for SECONDS [TARGET]...     new inputs from where fuzz/corpus left off: `make fuzz`
#   run.sh build                       builds only
#
# Not by cargo-fuzz: all that it does without a sanitizer, which takes a nightly compiler, are the flags below, and installing it
# takes longer than a run. What a sanitizer would find in memory, the tests of the few unsafe blocks look for.
#
# Built without the Kafka client and the allocator (src/lib.rs): from nothing in 75 seconds on 2 cores instead of 450. Apart from
# the program's own directory, since with other flags each of the two builds would undo the other.
set -euo pipefail
cd "$(dirname "$0")"

flags=(
    -Cpasses=sancov-module                                   # counters and
    -Cllvm-args=-sanitizer-coverage-level=4                  # in every edge, by which libFuzzer sees what is new,
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares           # and what is compared with what: words of a format
)

# Target and inputs of a check: together about a minute on one core.
checks=(page:15000 html:100000 state_record:1000000 segment:100000 config:20000)

same_places=()
built=../target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

# With --target the flags are not for build scripts, which have no libFuzzer to link with.
build() {
    RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR=$built "${CARGO:-cargo}" build --locked --target "$host"
}

# run TARGET CORPUS ARGUMENT...: a failing input is kept in fuzz/artifacts, and named.
run() {
    local target=$1 corpus=$2
    shift 2
    mkdir -p "$corpus" "artifacts/$target"
    ${same_places[@]+"${same_places[@]}"} "$built/$host/debug/$target" -timeout=20 -rss_limit_mb=1024 -artifact_prefix="artifacts/$target/" "$@" \
        "$corpus" "seeds/$target"
}

case ${1:-} in
    build) build ;;
    check)
        build
        # Where the code lies has a say in what is tried next, and so has a look at the corpus once a second. What is left are the
        # random seeds of hash tables, which change what is tried for markup.
        if setarch -R true 2>/dev/null; then same_places=(setarch -R); fi
        new=$(mktemp -d)
        trap 'rm -rf "$new"' EXIT
        for check in "${checks[@]}"; do
            target=${check%:*}
            if ! run "$target" "$new/$target" -seed=1 -reload=0 -runs="${check#*:}" >"$new/log" 2>&1; then
                cat "$new/log"
                exit 1
            fi
            echo "fuzz $target: $(grep 'DONE' "$new/log")"
        done
        ;;
    for)
        seconds=${2:?seconds}
        shift 2
        build
        if (($# == 0)); then set -- "${checks[@]%:*}"; fi
        for target; do
            echo "== $target"
            run "$target" "corpus/$target" -max_total_time="$seconds" -print_final_stats=1
        done
        ;;
    *)
        echo "usage: run.sh check | for SECONDS [TARGET]... | build" >&2
        exit 64
        ;;
esac
