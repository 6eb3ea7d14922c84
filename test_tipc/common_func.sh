#!/usr/bin/env bash
# What the chains share: reading a config file, running a step, and the verdict. Sourced, not run.
#
# A config is TIPC's text file: one `key:value` a line, in the standard order, so that other tooling can read it by line;
# here it is read by key. Where a line is missing, complete_config.py takes it from the config of that chain in configs/, and says so;
# it reads the configs of PaddlePaddle/models, too. A value may hold alternatives, `a|b`, or one for each mode,
# `lite_train_lite_infer=2|whole_train_whole_infer=600`; `null` means that a flag is not given.

set -uo pipefail

MODES="lite_train_lite_infer lite_train_whole_infer whole_train_whole_infer whole_infer"
FAILED=0
RAN=0

die() {
    echo "error: $*" >&2
    exit 2
}

# start CONFIG MODE MODES...: checks the arguments, goes to the project's folder, opens the results.
start() {
    [ $# -ge 2 ] && [ -n "$2" ] || die "usage: bash $0 CONFIG MODE; modes: ${*:3}"
    local allowed=" ${*:3} "
    [ -f "$1" ] || die "no such config: $1"
    [[ "$allowed" == *" $2 "* ]] || die "$0 has no mode '$2'; it has:${allowed% }"
    CONFIG=$(realpath "$1") MODE=$2
    # What PaddlePaddle/models calls so is this chain with weights that are there already.
    case "$MODE" in paddle2onnx_infer | serving_infer) LIKE=whole_infer ;; *) LIKE=$MODE ;; esac
    cd "$(dirname "${BASH_SOURCE[0]}")/.." || die "cannot enter the project's folder"
    if [ -z "${PYTHON:-}" ]; then
        PYTHON=python
        has python && PYTHON=$(value python)
        [[ "$PYTHON" == python* ]] && [ -x .venv/bin/python ] && PYTHON=.venv/bin/python # what `make setup` made
    fi
    command -v "$PYTHON" >/dev/null || die "$CONFIG: python: there is no $PYTHON; set PYTHON to another one"
    MODEL=mobilenet_v3_small
    has model_name && MODEL=$(value model_name)
    OUTPUT=test_tipc/output/$MODEL/$MODE
    mkdir -p "$OUTPUT" || die "cannot write in $OUTPUT"
    complete
    RESULTS=$OUTPUT/results_python.log
    [ -n "${KEEP_RESULTS:-}" ] || : >"$RESULTS"
    HAS_GPU=0
    if [ -z "${TIPC_CPU:-}" ] && "$PYTHON" -c 'import paddle, sys
sys.exit(not (paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0))' >/dev/null 2>&1; then
        HAS_GPU=1
    fi
}

# complete: what the config lacks, from the chain's own; CONFIG is then a file with every line.
complete() {
    local defaults key name=${DEFAULT_CONFIG:-train_infer_python.txt}
    [ -d "test_tipc/configs/$MODEL" ] || die "$CONFIG: model_name: there is no $MODEL; there are:$(cd test_tipc/configs && printf ' %s' *)"
    for defaults in "test_tipc/configs/$MODEL/$name" test_tipc/configs/*/"$name"; do
        [ "$(realpath "$defaults")" = "$CONFIG" ] || break # a config that was put in the place of the chain's own
    done
    sed "s/$(basename "$(dirname "$defaults")")/$MODEL/g" "$defaults" >"$OUTPUT/defaults.txt"
    for key in $(sed -n 's/^\([^#=:]*\):.*/\1/p' "$OUTPUT/defaults.txt"); do
        if ! has "$key"; then
            "$PYTHON" test_tipc/complete_config.py "$CONFIG" "$OUTPUT/defaults.txt" >"$OUTPUT/config.txt" || exit 2
            CONFIG=$(realpath "$OUTPUT/config.txt")
            return
        fi
    done
}

# has KEY: whether the config has such a line.
has() { grep -qE "^$(printf '%s' "$1" | sed 's/[][\.*^$]/\\&/g')[[:space:]]*:" "$CONFIG"; }

# value KEY [NTH]: what stands after the key's colon, of its NTH line (the first); the alternative of this mode where it has them.
value() {
    has "$1" || die "$CONFIG has no line '$1:'"
    local text
    text=$(awk -v key="$1" -v nth="${2:-1}" 'index($0, key ":") == 1 && ++seen == nth { print substr($0, length(key) + 2) }' "$CONFIG")
    case "$text" in
    *_infer=*) for_mode "$1" "$text" ;;
    *) printf '%s' "$text" ;;
    esac
}

for_mode() {
    local part
    local IFS='|'
    for part in $2; do
        if [ "${part%%=*}" = "${LIKE:-}" ]; then
            printf '%s' "${part#*=}"
            return
        fi
    done
    die "$CONFIG: $1 has no value for mode ${LIKE:-}"
}

# need KEY...: every one of these lines is there and has a value for this mode.
need() {
    local key
    for key in "$@"; do
        value "$key" >/dev/null || exit 2
    done
}

# flag KEY VALUE: a command-line flag; nothing for null, null keys and False, a switch for True.
flag() {
    case "$1:$2" in
    null:* | *:null | *:False | *:) ;;
    *:True) printf ' %s' "$1" ;;
    *) printf ' %s %s' "$1" "$2" ;;
    esac
}

# flags KEY...: the flags of the lines with these keys.
flags() {
    local key text
    for key in "$@"; do
        text=$(value "$key") || exit 2
        flag "$key" "$text"
    done
}

# run LOG COMMAND: run a step; its verdict goes to the results in TIPC's form. Returns the step's status.
run() {
    local log=$OUTPUT/$1.log status
    echo "+ $2"
    bash -c "$2" >"$log" 2>&1
    status=$?
    RAN=$((RAN + 1))
    if [ $status -eq 0 ]; then
        echo " Run successfully with command - $MODEL - $2 - $log" | tee -a "$RESULTS"
    else
        FAILED=$((FAILED + 1))
        tail -n 5 "$log" | sed 's/^/    /' >&2
        echo " Run failed with command - $MODEL - $2 - $log (exit status $status)" | tee -a "$RESULTS"
    fi
    return $status
}

# finish: the chain's verdict; a chain that ran nothing has not passed.
finish() {
    echo "$MODEL $MODE: $((RAN - FAILED)) of $RAN steps successful; results: $RESULTS"
    [ "$RAN" -gt 0 ] && [ "$FAILED" -eq 0 ]
    exit $?
}
