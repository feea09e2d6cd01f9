#!/usr/bin/env bash
# How many instructions does each part of the hot path take per page, beside the figures in instructions.txt?
#   instructions.sh            counts and compares; fails if a part takes over 3 % more than is kept
#   instructions.sh --update   keeps what it counts: for a change that is meant, with its reason in the commit
#
# Runs of the same program differ by less than one in a thousand. Another compiler, C library or allocator may move a
# figure by a few per cent: then it is updated in the commit that brings it.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=benches/instructions.txt
limit_percent=3

case ${1:-} in
    '' | --update) ;;
    *)
        echo 'usage: instructions.sh [--update]' >&2
        exit 64
        ;;
esac
if ! command -v valgrind > /dev/null; then
    printf 'missing: valgrind (counts instructions); as root run:\n  apt-get install -y --no-install-recommends valgrind\n' >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo=${CARGO:-cargo}
program=$("$cargo" bench --locked --bench instructions --no-run --message-format=json-render-diagnostics |
    sed -n 's/.*"name":"instructions".*"executable":"\([^"]*\)".*/\1/p')
# jemalloc tidies up by the clock, which is no two times the same.
export _RJEM_MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1,experimental_tcache_gc:false
if ! valgrind --tool=callgrind --toggle-collect=counted --dump-after=counted --callgrind-out-file="$work/out" \
    --log-file="$work/log" "$program" --count > "$work/parts"; then
    cat "$work/log" >&2
    exit 1
fi
if ! grep -q '^processor Avx2' "$work/parts"; then
    echo 'the figures are those of AVX2, which this processor does not have' >&2
    exit 1
fi

# Call number N is part number N, and its sum is in out.N.
number=0
while read -r name pages; do
    number=$((number + 1))
    awk -v name="$name" -v pages="$pages" '$1 == "totals:" { printf "%s %.0f\n", name, $2 / pages }' "$work/out.$number"
done < <(grep -v '^processor' "$work/parts") > "$work/counts"

if [[ ${1:-} == --update ]]; then
    { sed -n '/^#/p' "$kept" && column -t "$work/counts"; } > "$work/kept"
    cp "$work/kept" "$kept"
fi
awk -v limit="$limit_percent" '
    NR == FNR { if ($0 !~ /^#/) kept[$1] = $2; next }
    FNR == 1 { printf "%-24s %18s %10s %9s\n", "", "instructions/page", "kept", "change" }
    !($1 in kept) { printf "%-24s %18d %10s\n", $1, $2, "none"; missing = missing " " $1; next }
    {
        change = 100 * ($2 / kept[$1] - 1)
        printf "%-24s %18d %10d %+8.1f%%\n", $1, $2, kept[$1], change
        if (change > limit) worse = worse " " $1
        if (change < -limit) better = better " " $1
    }
    END {
        if (better) print "less than is kept:" better "; keep the gain with benches/instructions.sh --update"
        if (missing) print "no figure is kept:" missing "; benches/instructions.sh --update keeps one"
        if (worse) print "over " limit " % more instructions than before:" worse
        exit (worse || missing) ? 1 : 0
    }' "$kept" "$work/counts"
