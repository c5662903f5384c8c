#!/bin/sh
# Prints how many compiler processes to run at once: one a core, but no more than the free memory holds.
#
# usage: tools/build_jobs.sh [MEMINFO [CGROUP_LIMIT]]     (the two files that it reads; for its test)
#
# 1.5 GB is the limit that the project sets for one translation unit, CUDA ones included. A container may have less
# memory than its machine shows: its limit counts too. MAX_JOBS in the environment overrides the answer.
meminfo=${1-/proc/meminfo}
limit_file=${2-/sys/fs/cgroup/memory.max}
unit_kb=1500000

case ${MAX_JOBS-} in
    '') ;;
    *[!0-9]* | 0) echo "MAX_JOBS: \"$MAX_JOBS\" is no number of jobs; taking what the memory holds" >&2 ;;
    *) echo "$MAX_JOBS"; exit 0 ;;
esac

jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
at_most() {
    if [ "$jobs" -gt "$1" ]; then jobs=$1; fi
}
free_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' "$meminfo" 2>/dev/null)
if [ -n "$free_kb" ]; then at_most $((free_kb / unit_kb)); fi
limit=$(sed -n 's/^\([0-9]*\)$/\1/p' "$limit_file" 2>/dev/null)
if [ -n "$limit" ]; then at_most $((limit / 1000 / unit_kb)); fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
echo "$jobs"
