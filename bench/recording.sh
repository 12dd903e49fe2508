#!/bin/sh
# Measures `toroni record` beside `dd`, and `toroni replay --speed max`, in turn.
#
#   bench/recording.sh DIRECTORY [MEGABYTES, a power of two]
#
# DIRECTORY is where files are written: on the disk, or on a tmpfs. Prints one line for each run.
set -eu
directory=${1:?usage: bench/recording.sh DIRECTORY [MEGABYTES]}
megabytes=${2:-512}
toroni=${TORONI_PROGRAM:-toroni}
work=$(mktemp -d "$directory/toroni-recording-XXXXXX")
TORONI_DIR=$(mktemp -d /dev/shm/toroni-recording-XXXXXX)
export TORONI_DIR
trap 'rm -rf "$work" "$TORONI_DIR"' EXIT
now() { date +%s%N; }
per_second() { awk "BEGIN { printf \"%.0f\", $1 / ($2 / 1e9) }"; }

# Publishes into a ring that holds everything, and records that: size, count.
record() {
    size=$1 count=$2
    "$toroni" create b --capacity "$((megabytes * 2))MiB" > "$work/out"
    "$toroni" -b b pub t --size "$size" --repeat "$count" --batch 64 -q
    start=$(now)
    "$toroni" -b b record "$work/a.mcap" --compress none --from oldest -n "$count" --strict 2> "$work/said"
    took=$(($(now) - start))
    "$toroni" rm b > "$work/out"
    cat "$work/said"
}

for round in 1 2 3; do
    start=$(now)
    dd if=/dev/zero of="$work/dd" bs=1M count="$megabytes" conv=fdatasync 2> "$work/said"
    took=$(($(now) - start))
    dd_rate=$(per_second "$megabytes" "$took")
    echo "round $round: dd $dd_rate MiB/s"
    rm "$work/dd"

    record 1024 $((megabytes * 1024))
    rate=$(per_second "$megabytes" "$took")
    echo "round $round: record 1 KiB $rate MiB/s, $(awk "BEGIN { printf \"%.2f\", $rate / $dd_rate }") of dd"
    rm "$work/a.mcap"

    record 64 $((megabytes * 4096))
    echo "round $round: record 64 B $(per_second $((megabytes * 4096)) "$took") msg/s"
    "$toroni" create copy --capacity 256MiB > "$work/out"
    start=$(now)
    "$toroni" -b copy replay "$work/a.mcap" --speed max 2> "$work/said"
    took=$(($(now) - start))
    echo "round $round: replay 64 B $(per_second $((megabytes * 4096)) "$took") msg/s"
    "$toroni" rm copy > "$work/out"
    rm "$work/a.mcap"
done
