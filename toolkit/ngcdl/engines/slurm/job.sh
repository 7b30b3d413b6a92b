#!/bin/bash
@OPTIONS@

# Written by ngcdl: one task per node, one container per task. All nodes share RUN, the run's folder.
@FOLDER@

# The submitter's Python packages, and a library of the site's: pyxis, apptainer and singularity would pass them on.
## Without that library each program in it complains: https://github.com/apptainer/apptainer/issues/2537
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE LD_PRELOAD
attempt=${SLURM_RESTART_COUNT:-0}
export NGCDL_RUN=$RUN NGCDL_ATTEMPT=$attempt NGCDL_NODES=$SLURM_JOB_NUM_NODES
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
## node names need not resolve, and a container has no scontrol
MASTER_ADDR=$(scontrol show node "$head" -o | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
export MASTER_ADDR=${MASTER_ADDR:-$head} MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) NCCL_DEBUG=${NCCL_DEBUG:-WARN}
## After a plain scancel, Slurm itself sends SIGTERM, and tasks live for KillWait more.
seconds=$(scontrol show config | sed -n 's/^KillWait *= \([0-9]*\).*/\1/p')
export NGCDL_KILL_SECONDS=$((${seconds:-30} > 6 ? ${seconds:-30} - 5 : 1))
why=null
## A container can put a link in RUN, through which this shell would write, or a pipe, at which it would wait forever:
## noclobber creates files anew only, but opens pipes. A signal to this shell's programs, too, can cut rm and mv short.
anew() {
    set -o noclobber
    for _ in 1 2 3 4 5; do
        rm -rf "$1"
        { printf '%s' "$2" >"$1"; } 2>/dev/null && break
    done
    set +o noclobber
}
## Slurm counts all restarts together (SLURM_RESTART_COUNT), and while it requeues a preempted job, scontrol no longer says
## that it was preempted. But only a lost node has a task that began and never recorded its end (see below).
lost=0 # earlier attempts that lost one
[ "$attempt" != 0 ] || rm -f "$RUN"/.lost-* # of another job in this folder
for ((number = 0; number < attempt; number++)); do
    for file in "$RUN/.task-$number-"*; do
        told=
        [ ! -f "$file" ] || [ -L "$file" ] || read -r told <"$file"
        [ "$told" != began ] || anew "$RUN/.lost-$number" ""
    done
    [ ! -e "$RUN/.lost-$number" ] || lost=$((lost + 1))
done
rm -f "$RUN/exit.json" "$RUN/.stopping" "$RUN"/.task-* "$RUN"/.code-*
## A requeued job's output is appended to log.txt.
unlinked() { [ -f "$RUN/log.txt" ] && [ ! -L "$RUN/log.txt" ] || rm -rf "$RUN/log.txt"; }
## Some sites have Slurm send USR1 when it preempts a job, too (PreemptParameters=send_user_signal, slurm.conf(5));
## elsewhere only the tasks are told, by SIGTERM. A preemption that suspends a job (PreemptMode=SUSPEND,GANG) sets
## PreemptTime, too, and it stays: SuspendTime, when the job was last suspended or resumed, is not earlier then.
is_preempted() {
    told=$(SLURM_TIME_FORMAT=standard timeout 10 scontrol show job "$SLURM_JOB_ID" -o 2>/dev/null)
    [[ $told =~ \ PreemptTime=([0-9][^ ]*)\ SuspendTime=([^ ]*) && ${BASH_REMATCH[1]} > ${BASH_REMATCH[2]#None} ]]
}
ended() {
    [ "$1" = 0 ] || ! is_preempted || why='"preempted"'
    told='{"code": %s, "t": %s, "restarts": %s, "why": %s}\n'
    # shellcheck disable=SC2059
    printf -v told "$told" "$1" "$(date +%s.%N)" "$attempt" "$why"
    for _ in 1 2 3; do
        anew "$RUN/.exit.json" "$told"
        [ ! -d "$RUN/exit.json" ] || rm -rf "$RUN/exit.json"
        mv -T "$RUN/.exit.json" "$RUN/exit.json" && break
    done
    unlinked
    exit "$1"
}
trap 'why=\"time_limit\"; ended 143' USR1 # until tasks run: an image may be fetched first
@SECRETS@
@RESUME@

@IMAGE@
task=@TASK@
@SRUN@ &
srun=$!
## No trap cuts the wait for srun short.
trap 'why=\"time_limit\"; anew "$RUN/.stopping" ""; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
is_told= # yes once Slurm asks the job to end: whether to requeue it is then up to Slurm
trap is_told=yes TERM
waited=0
while kill -0 "$srun" 2>/dev/null; do
    wait "$srun"
    waited=$?
done
wait "$srun" 2>/dev/null
code=$?
## If a signal came as srun ended, bash 5.2 returns -1, and 5.3 has forgotten srun: the tasks' own codes decide below.
if [ "$code" -lt 0 ] || { [ "$code" = 127 ] && [ "$waited" -gt 128 ]; }; then code=0; fi

# The code of a task that failed on its own counts, not those of the tasks ended after it. A task that began but never
# recorded its end was on a lost node: the job is then requeued, and continues from the last checkpoint.
is_lost=
for file in "$RUN/.task-$attempt-"*; do
    told=
    [ ! -f "$file" ] || [ -L "$file" ] || read -r told <"$file"
    case $told in
    began)
        is_lost=yes
        [ "$code" != 0 ] || code=137 # srun gave up waiting for it, and returns 0 for that
        ;;
    137 | 143) [ "$code" != 0 ] || code=$told ;;
    '') [ "$code" != 0 ] || [ -z "$is_told" ] || code=143 ;; # ended before any task began: not a success
    0) ;;
    *) code=$told ;;
    esac
done
if [ -n "$is_lost" ] && [ -z "$is_told" ] && [ ! -e "$RUN/.stopping" ]; then
    why='"lost"'
    if [ "$lost" -lt @RESTARTS@ ]; then
        echo "ngcdl: a node was lost; requeueing the job" >&2
        unlinked
        scontrol requeue "$SLURM_JOB_ID" && exit "$code"
    else
        echo "ngcdl: a node was lost, as in $lost earlier attempts: the job is not requeued again" >&2
    fi
fi
## Before 24.05 Slurm itself does not requeue a preempted job that ends within its GraceTime.
if [ "$code" != 0 ] && [ ! -e "$RUN/.stopping" ] && is_preempted &&
    scontrol show config | grep -q "^PreemptType *= preempt/partition_prio" &&
    scontrol show partition "$SLURM_JOB_PARTITION" -o | grep -qE " PreemptMode=(GANG,)?REQUEUE"; then
    echo "ngcdl: another job preempted it; requeueing the job" >&2
    unlinked
    scontrol requeue "$SLURM_JOB_ID" && exit "$code"
fi
ended "$code"
