#!/usr/bin/env bash
# Runs the tests of a staged folder on a machine with an NVIDIA driver; closes with "N passed, N failed".
#
# usage: run-tests [--all] [--filter REGEX] [--device cuda:0|cpu] [--jobs N]
#
# First every kernel of the device against the oracle (`tilewise verify`, shared out among N processes), then the test programs. Those that
# sweep the CPU's kernels only, which the machine that built them has run, take part with --all. Logs are kept in logs/.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

with_cpu=0 filter=. device=cuda:0 jobs=1
while (($#)); do
    case $1 in
        --all) with_cpu=1 ;;
        --filter) filter=$2; shift ;;
        --device) device=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        *) sed -n '4p' "$0" | cut -c3-; exit 2 ;;
    esac
    shift
done
rm -rf logs
mkdir logs

# Counts the cases of a log into the three variables passed, failed, skipped: of GoogleTest, of verify's table, else one.
count() {
    local log=$1 code=$2
    passed=0 failed=0 skipped=0
    if grep -q '^\[=*\] Running' "$log"; then
        passed=$(grep -c '^\[       OK \] ' "$log")
        failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | tail -n 1)
        skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | tail -n 1)
    elif [[ $log == logs/verify*.log ]]; then
        passed=$(awk '$2 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ { n += $2 } END { print n + 0 }' "$log")
        failed=$(awk '$2 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ { n += $3 } END { print n + 0 }' "$log")
    elif ((code == 0)); then
        passed=1
    fi
    failed=${failed:-0} skipped=${skipped:-0}
    if ((code != 0 && failed == 0)) || ((passed + failed + skipped == 0)); then failed=1; fi
}

# The lines of its input at once, so that those of jobs that run side by side do not mix.
show() {
    local text
    text=$(cat)
    printf '%s\n' "$text"
}

# Runs one test: name, seconds that it may take, then the command. Its line and, if it failed, the end of its log.
run_one() {
    local name=$1 limit=$2 log=logs/$1.log start=$SECONDS code
    shift 2
    timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null
    code=$?
    count "$log" "$code"
    echo "$passed $failed $skipped" >"logs/$name.count"
    local line="$name: $passed passed, $failed failed"
    if ((skipped)); then line+=", $skipped skipped"; fi
    if ((code == 124 || code == 137)); then line+=" (stopped after $limit s)"; fi
    if ((failed)); then
        {
            echo "  FAILED  $line in $((SECONDS - start)) s"
            grep -E 'FAILED|Failure|rror' "$log" | head -n 40 | sed 's/^/      /'
            tail -n 15 "$log" | sed 's/^/      /'
        } | show
    else
        echo "  passed  $line in $((SECONDS - start)) s"
    fi
}

start_one() {
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
    run_one "$@" &
}

# The kernels of the device, a line each.
kernels_of_device() {
    bin/tilewise info --json | awk -v kind="\"${device%%:*}\"," \
        '/"name":/ { gsub(/[",]/, ""); name = $2 } /"device":/ && $2 == kind { print name }'
}
# Neighbours in the list take about as long: they go to different processes.
start_verify() {
    local i=0 kernel lists=()
    while ((jobs > 1)) && read -r kernel; do lists[i++ % jobs]+=",=$kernel"; done < <(kernels_of_device)
    if ((${#lists[@]} == 0)); then start_one verify 3000 bin/tilewise verify --device "$device"; fi
    for i in "${!lists[@]}"; do
        start_one "verify$i" 3000 bin/tilewise verify --device "$device" --kernel "${lists[i]#,}"
    done
}

bin/tilewise doctor 2>&1 | tee logs/doctor.txt | grep -v '^  ' || true
echo
if [[ verify =~ $filter ]]; then start_verify; fi
while IFS=$'\t' read -r name limit cpu_only environment program; do
    if [[ ! $name =~ $filter ]] || ((cpu_only && !with_cpu)); then continue; fi
    # shellcheck disable=SC2086  # words on purpose: NAME=VALUE..., and a program with arguments
    start_one "$name" "$limit" env $environment $program
done <tests.tsv
wait

total=$(cat logs/*.count 2>/dev/null | awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
read -r passed failed skipped <<<"$total"
if ((skipped)); then echo "$skipped skipped"; fi
if ((passed + failed == 0)); then
    echo "no test matches \"$filter\""
    failed=1
fi
echo "$passed passed, $failed failed"
((failed == 0))
