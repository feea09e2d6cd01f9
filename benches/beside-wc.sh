#!/usr/bin/env bash
# How fast is `filter` beside `wc -w` on the same file, each on one core, and with two threads on two?
#
# Prints one table: the least of several runs of each, taken in turn, and the ratio to wc; then what the second thread
# brings. The file is a generated crawl of 50,000 pages, 4.6 KB each. Ratios within one run carry over to other machines,
# times do not.
#
# Conclusion (2 cores of an AMD EPYC, AVX-512, 2026-11): see CHANGELOG.md for the figures of each version.
set -euo pipefail
sieve=${1:?usage: beside-wc.sh PAGESIEVE [RUNS]}
runs=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$sieve" generate 50000 -o "$work/pages.jsonl"
bytes=$(stat -c %s "$work/pages.jsonl")

seconds() { # seconds CORES COMMAND…: wall time of one run, on these cores only
  local cores=$1 start end
  shift
  # ext4 writes a file that takes the place of another to disk at its end; new ones are what a filter writes.
  rm -f "$work/survivors.jsonl" "$work/d.jsonl"
  start=$(date +%s%N)
  LC_ALL=C.UTF-8 taskset -c "$cores" "$@" > /dev/null
  end=$(date +%s%N)
  awk -v ns=$((end - start)) 'BEGIN { printf "%.3f", ns / 1e9 }'
}
least() { printf '%s\n' "$@" | sort -n | head -1; }

words=() one=() two=()
for _ in $(seq "$runs"); do
  words+=("$(seconds 0 wc -w "$work/pages.jsonl")")
  one+=("$(seconds 0 "$sieve" filter -q --threads 1 "$work/pages.jsonl" -o "$work/survivors.jsonl" --duplicates "$work/d.jsonl")")
  two+=("$(seconds 0,1 "$sieve" filter -q --threads 2 "$work/pages.jsonl" -o "$work/survivors.jsonl" --duplicates "$work/d.jsonl")")
done
row() { awk -v name="$1" -v s="$2" -v b="$bytes" -v w="$3" 'BEGIN { printf "%-26s %8.3f s %8.0f MB/s %10.0f pages/s %8.2f\n", name, s, b / s / 1e6, 50000 / s, w / s }'; }
base=$(least "${words[@]}")
single=$(least "${one[@]}")
double=$(least "${two[@]}")
printf '%-26s %10s %13s %18s %8s\n' command least speed '' 'of wc'
row 'wc -w, one core' "$base" "$base"
row 'filter, one core' "$single" "$base"
row 'filter, two threads' "$double" "$base"
awk -v one="$single" -v two="$double" 'BEGIN {
  ratio = one / two
  printf "two threads on two cores are %.2f times as fast as one, %s\n", ratio, (ratio < 1.7 ? "less than the 1.7 wanted" : "at least the 1.7 wanted")
}'
