name=ngcdl-$SLURM_JOB_ID-$SLURM_PROCID
mark=$NGCDL_RUN/.task-$NGCDL_ATTEMPT-$SLURMD_NODENAME
said=$NGCDL_RUN/.code-$NGCDL_ATTEMPT-$SLURMD_NODENAME
export NGCDL_NODE=$SLURM_NODEID
is_told=
## A container can put a link or a pipe in the run's folder (as in job.sh), and nothing else than a file is read there.
## A SIGTERM to this shell's group cuts rm and mv short, too.
anew() {
    set -o noclobber
    for _ in 1 2 3 4 5; do
        rm -rf "$1"
        { echo "$2" >"$1"; } 2>/dev/null && break
    done
    set +o noclobber
}
marked() {
    for _ in 1 2 3; do
        anew "$NGCDL_RUN/.marked-$SLURMD_NODENAME" "$1"
        mv -fT "$NGCDL_RUN/.marked-$SLURMD_NODENAME" "$mark" && break
    done
}
## Once Slurm asks a task to end, it kills the task, and this shell with it, after KillWait seconds. So the kill is
## recorded before that; otherwise the node would be taken for a lost one. A stop by ngcdl sets no such deadline, nor
## does the first SIGTERM of a preemption with GraceTime (https://slurm.schedmd.com/preempt.html). But a second SIGTERM
## is Slurm's: the end of that time, the time limit, or a user who waits no longer. The job is RUNNING, too, while Slurm
## kills tasks because another one failed: only a preempted one is known to have time, not one that a preemption
## suspended once, whose SuspendTime is not earlier (as in job.sh).
ended() {
    if [ -z "$is_told" ]; then
        is_told=yes
        [ ! -e "$NGCDL_RUN/.stopping" ] || return
        told=$(SLURM_TIME_FORMAT=standard timeout 2 scontrol show job "$SLURM_JOB_ID" -o 2>/dev/null)
        [[ ! ($told =~ \ JobState=RUNNING\ .*\ PreemptTime=([0-9][^ ]*)\ SuspendTime=([^ ]*) &&
            ${BASH_REMATCH[1]} > ${BASH_REMATCH[2]#None}) ]] || return
    fi
    {
        trap "" TERM
        sleep "$NGCDL_KILL_SECONDS"
        { [ -f "$mark" ] && [ ! -L "$mark" ] && read -r told <"$mark"; }
        [ "$told" != began ] || marked 137
        ## A container's first process gets SIGTERM through its client. A second SIGTERM would cut a checkpoint short: a
        ## container that ignores the first is removed just before Slurm kills the client, which would leave the
        ## container behind.
        @REMOVE@
    } >/dev/null 2>&1 &
}
trap ended TERM
marked began
@RUN@
marked "$code"
[ -z "$is_told" ] || exit 0 # otherwise srun ends the others at once, and one may be saving a checkpoint
exit "$code"
