#!/bin/sh
# Runs in a pod, as the arguments of the image's own entrypoint: unpacks the trainer, passes SIGTERM on, and prints the
# record at the end. Checkpoints are too large for a log: they stay in /ngcdl/run.
# Reads NGCDL_TRAINING (yes for a bundled one), JOB_COMPLETION_INDEX, NGCDL_NODES (set if there are several) and
# NGCDL_HOST; with a claim NGCDL_CLAIM, its name, NGCDL_KEPT, the run's folder on it, and NGCDL_BEFORE, a resumed run's.
run=${NGCDL_RUN:-/ngcdl/run}
child= asked=
brought=$(dirname "$0")/trainer.tar.gz

# A working directory in there (-w) was made by the runtime, as root. The run's user can only rename it; ln would put its
# link inside.
case $PWD/ in "$run"/*) mv "$run" "$run.empty" || exit 126 ;; esac

# Not by a subPath, whose folder the node makes as root: https://github.com/kubernetes/kubernetes/issues/95945
if [ -n "$NGCDL_KEPT" ]; then
    runs=${NGCDL_KEPT%/*}
    # whoever may write to the claim may also do so here
    [ -d "$runs" ] || mkdir -m "$(stat -c %a "${runs%/*}")" "$runs" 2>/dev/null
    if ! mkdir -p "$NGCDL_KEPT/home" || ! ln -sfn "$NGCDL_KEPT" "$run"; then
        who="the user $(id -u):$(id -g)"
        echo "ngcdl: on the claim $NGCDL_CLAIM $who can't make $NGCDL_KEPT. Whose folders these are:"
        ls -ldn "${runs%/*}" "$runs"
        exit 2
    fi
    [ -z "$NGCDL_BEFORE" ] || ln -sfn "$NGCDL_BEFORE" "${run%/*}/resume" || exit 126
fi
mkdir -p "$run/home" || exit 126
case $PWD/ in "$run"/*) mkdir -p "$PWD" && cd "$PWD" || exit 126 ;; esac
if [ -e "$brought" ]; then tar -xzf "$brought" || exit 126; fi
export NGCDL_NODE="${JOB_COMPLETION_INDEX:-0}"

# A pod that replaces a lost one continues from the last checkpoint.
if [ "$NGCDL_TRAINING" = yes ] && ls "$run"/checkpoints/step-*.npz >/dev/null 2>&1; then set -- "$@" --resume "$run"; fi

# set before the start: a signal in between would end this shell alone
trap 'asked=yes; [ -z "$child" ] || kill -TERM "$child"' TERM INT
"$@" &
child=$!
[ -z "$asked" ] || kill -TERM "$child"
while :; do # a signal ends the wait, not the child
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
done

print_record() { # FILE...: those that exist
    files=$(ls -d "$@" 2>/dev/null)
    [ -n "$files" ] || return 0
    printf '\nngcdl: the record, for ngcdl to read\n' # the output so far may end in the middle of a line
    tar -czf - $files | base64
    echo "ngcdl: end of the record"
}

cd "$run" || exit "$code"
samples="samples-*.jsonl" # on a claim also those of a lost pod, which was on another machine
[ -z "$NGCDL_NODES" ] || samples=samples-$NGCDL_HOST.jsonl # on a claim the other nodes' grow meanwhile
if [ "$NGCDL_NODE" != 0 ]; then
    print_record $samples
    exit "$code"
fi
printf '{"code": %d, "t": %d, "restarts": null}\n' "$code" "$(date +%s)" >exit.json
print_record $samples trace.json
# Last, and by itself: if the machine rotates the log now, `kubectl logs` has only what comes after that.
print_record events.jsonl exit.json
exit "$code"
