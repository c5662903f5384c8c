#!/usr/bin/env bash
# Runs every CUDA kernel of a staged folder under compute-sanitizer, each on a few small cases; closes with "N passed, N failed".
#
# usage: run-sanitizers [--tools "memcheck racecheck initcheck synccheck"] [--kernels REGEX] [--cases LIST] [--jobs N] [--group N] [--alone] [--device cuda:0]
#
# One process takes a group of kernels, since its start is most of its time; where a group is not clean its kernels run again, each alone.
# --alone: each case of each kernel in a process of its own, for racecheck, which loses track of launches now and then where there are many.
# A line for each tool and kernel; one that serves none of the cases counts as failed. LIST is what `tilewise verify --case` takes.
# compute-sanitizer is looked for on PATH, or is $COMPUTE_SANITIZER. Logs are kept in logs/sanitizers/.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# Every head dimension that some kernel copies whole, ragged, paged and split keys, all modifiers, odd addresses, lse's gradient, a fixed order;
# then appends and merges.
cases="=causal,=dim_64,=dim_96,=dim_128,=R103_dim_192_causal,=R108_dim_192_v_128,=R105_dim_256,=ragged_with_bounds,=everything"
cases+=",=paged_everything,=split_in_2,=R117_decode_split,=decode_pages_of_3,=unaligned,=deterministic"
cases+=",=grad_lse_sink_causal_dropout,=append_paged,=append_ragged_spare_rotary,=append_unaligned"
cases+=",=combine_plain,=combine_ragged,=combine_to_f16_unaligned"
tools="memcheck racecheck initcheck synccheck" kernels=. device=cuda:0 group=6 alone=0
jobs=$(($(nproc) > 1 ? $(nproc) / 2 : 1))
while (($#)); do
    case $1 in
        --tools) tools=$2; shift ;;
        --kernels) kernels=$2; shift ;;
        --cases) cases=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        --group) group=$2; shift ;;
        --alone) alone=1 group=1 ;;
        --device) device=$2; shift ;;
        *) sed -n '4p' "$0" | cut -c3-; exit 2 ;;
    esac
    shift
done
sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
if ! command -v "$sanitizer" >/dev/null; then
    echo "$sanitizer is not installed: it comes with the CUDA toolkit"
    echo "0 passed, 1 failed"
    exit 1
fi
logs=logs/sanitizers
rm -rf $logs
mkdir -p $logs

# check TOOL LOG KERNEL...: the sanitizer's exit status.
check() {
    local tool=$1 log=$2
    shift 2
    local names
    names=$(printf ',=%s' "$@")
    timeout --kill-after=10 280 "$sanitizer" --tool "$tool" --error-exitcode 9 bin/tilewise verify --device "$device" \
        --kernel "${names#,}" --case "$cases" >"$log" 2>&1 </dev/null
}

# The lines of its input at once, so that those of jobs that run side by side do not mix.
show() {
    local text
    text=$(cat)
    printf '%s\n' "$text"
}

# judge TOOL KERNEL LOG CODE: the kernel's line, and a file that says which it was.
judge() {
    local row verdict=failed words
    row=$(row_of "$2" "$3")
    words="${row% *} cases"
    if (($4 == 124 || $4 == 137)); then
        words="stopped after 280 s"
    elif [[ -z $row ]]; then
        words="no result"
    elif [[ $row == "0 0" ]]; then
        words="serves none of the cases"
    elif [[ ${row#* } != 0 ]]; then
        words="${row#* } cases are wrong"
    elif (($4)); then
        words="$(grep -cE '^=+ *(Error|Warning|Invalid|Uninitialized|Barrier|Potential|Race|Program hit)' "$3") reports, see $3"
    else
        verdict=passed
    fi
    touch "$logs/$1.$2.$verdict"
    {
        echo "  $verdict  $1 $2: $words"
        if [[ $verdict == failed ]]; then grep '^=====' "$3" | grep -vE '^=+ *$|COMPUTE-SANITIZER|Host Frame' | head -n 12 | sed 's/^/      /'; fi
    } | show
}

# row_of KERNEL LOG: "passed failed" of the kernel in verify's table.
row_of() { awk -v name="$1" '$1 == name && $2 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ { print $2, $3; exit }' "$2"; }

# The first case that is not clean speaks for the kernel, else the last one that it serves.
run_alone() {
    local tool=$1 kernel=$2 one code log last=
    for one in ${cases//,/ }; do
        log=$logs/$tool.$kernel.${one#=}.log
        cases=$one check "$tool" "$log" "$kernel"
        code=$?
        if ((code)); then
            judge "$tool" "$kernel" "$log" "$code"
            return
        fi
        if [[ -z $last || $(row_of "$kernel" "$log") != "0 0" ]]; then last=$log; fi
    done
    judge "$tool" "$kernel" "$last" 0
}

run_group() {
    local tool=$1 number=$2 code kernel log
    shift 2
    if ((alone)); then
        run_alone "$tool" "$1"
        return
    fi
    log=$logs/$tool.group$number.log
    check "$tool" "$log" "$@"
    code=$?
    for kernel; do
        if ((code == 0 || $# == 1)); then
            judge "$tool" "$kernel" "$log" "$code"
        else
            check "$tool" "$logs/$tool.$kernel.log" "$kernel"
            judge "$tool" "$kernel" "$logs/$tool.$kernel.log" $?
        fi
    done
}

mapfile -t names < <(bin/tilewise info --json | awk '/"name":/ { gsub(/[",]/, ""); name = $2 } /"device": "cuda",/ { print name }' |
    grep -E -- "$kernels")
for tool in $tools; do
    for ((i = 0; i < ${#names[@]}; i += group)); do
        while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
        run_group "$tool" "$i" "${names[@]:i:group}" &
    done
done
wait

passed=$(find $logs -name '*.passed' | wc -l) failed=$(find $logs -name '*.failed' | wc -l)
if ((passed + failed == 0)); then
    echo "no kernel matches \"$kernels\""
    failed=1
fi
echo "$passed passed, $failed failed"
((failed == 0))
