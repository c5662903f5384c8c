#!/usr/bin/env bash
# Runs the benchmarks of a staged folder on a machine with an NVIDIA driver; closes with "N passed, N failed".
#
# usage: run-bench [--device cuda:0] [--grid NAME|FILE]... [--seconds S] [--programs REGEX]
#
# `tilewise bench` for each grid (default: quick), then each program of bin/ whose name ends in _bench. Tables are kept in
# results/.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

device=cuda:0 grids=() options=() programs=.
while (($#)); do
    case $1 in
        --device) device=$2; shift ;;
        --grid) grids+=("$2"); shift ;;
        --seconds) options+=(--seconds "$2"); shift ;;
        --programs) programs=$2; shift ;;
        *) sed -n '4p' "$0" | cut -c3-; exit 2 ;;
    esac
    shift
done
if ((${#grids[@]} == 0)); then grids=(quick); fi
mkdir -p results
passed=0 failed=0

run_one() {
    local name=$1
    shift
    echo "== $name"
    if "$@" 2>&1 | tee "results/$name.txt"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

for grid in "${grids[@]}"; do
    name=$(basename "$grid" .toml)
    run_one "$name" bin/tilewise bench "$grid" --device "$device" --csv "results/$name.csv" --force "${options[@]}"
done
for program in bin/*_bench; do
    if [[ -x $program && $(basename "$program") =~ $programs ]]; then run_one "$(basename "$program")" "$program"; fi
done
echo "$passed passed, $failed failed"
((failed == 0))
