name=ngcdl-$SLURM_JOB_ID-$SLURM_PROCID
mark=$NGCDL_RUN/.task-$NGCDL_ATTEMPT-$SLURMD_NODENAME
said=$NGCDL_RUN/.code-$NGCDL_ATTEMPT-$SLURMD_NODENAME
export NGCDL_NODE=$SLURM_NODEID
is_told=
## Once Slurm asks a task to end, it kills the task, and this shell with it, after KillWait seconds. So the kill is
## recorded before that; otherwise the node would be taken for a lost one. A stop by ngcdl sets no such deadline, but a
## second SIGTERM is Slurm's: the time limit, or a user who waits no longer.
ended() {
    if [ -z "$is_told" ] && [ -e "$NGCDL_RUN/.stopping" ]; then
        is_told=yes
        return
    fi
    is_told=yes
    {
        trap "" TERM
        sleep "$NGCDL_KILL_SECONDS"
        read -r told <"$mark"
        [ "$told" != began ] || echo 137 >"$mark"
        ## A container's first process gets SIGTERM through its client. A second SIGTERM would cut a checkpoint short: a
        ## container that ignores the first is removed just before Slurm kills the client, which would leave the
        ## container behind.
        @REMOVE@
    } >/dev/null 2>&1 &
}
trap ended TERM
echo began >"$mark"
@RUN@
echo "$code" >"$mark"
[ -z "$is_told" ] || exit 0 # otherwise srun ends the others at once, and one may be saving a checkpoint
exit "$code"
