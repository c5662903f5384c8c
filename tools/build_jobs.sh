#!/bin/sh
# Prints how many compiler processes to run at once: one a core, but no more than the free memory holds.
#
# 1.5 GB is the limit that the project sets for one translation unit. MAX_JOBS in the environment overrides the answer.
if [ -n "${MAX_JOBS-}" ]; then
    echo "$MAX_JOBS"
    exit 0
fi
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
free_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo 2>/dev/null)
jobs=$cores
if [ -n "$free_kb" ] && [ "$jobs" -gt $((free_kb / 1500000)) ]; then
    jobs=$((free_kb / 1500000))
fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
echo "$jobs"
