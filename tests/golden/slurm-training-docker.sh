#!/bin/bash
#SBATCH --job-name=ngcdl-20180216-182126-cifar10-beef
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --output=/home/me/.local/state/ngcdl/runs/20180216-182126-cifar10-beef/log.txt
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@60

# Written by ngcdl: one task per node, one container per task. All nodes share RUN, the run's folder.
RUN=/home/me/.local/state/ngcdl/runs/20180216-182126-cifar10-beef
cd "$RUN" && [ -e job.sh ] || exit 53 # not shared: Slurm 24.11 creates the log's folder

# The submitter's Python packages, and a library of the site's: pyxis, apptainer and singularity would pass them on.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE LD_PRELOAD
attempt=${SLURM_RESTART_COUNT:-0}
export NGCDL_RUN=$RUN NGCDL_ATTEMPT=$attempt NGCDL_NODES=$SLURM_JOB_NUM_NODES
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(scontrol show node "$head" -o | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
export MASTER_ADDR=${MASTER_ADDR:-$head} MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) NCCL_DEBUG=${NCCL_DEBUG:-WARN}
seconds=$(scontrol show config | sed -n 's/^KillWait *= \([0-9]*\).*/\1/p')
export NGCDL_KILL_SECONDS=$((${seconds:-30} > 6 ? ${seconds:-30} - 5 : 1))
why=null
anew() {
    set -o noclobber
    for _ in 1 2 3 4 5; do
        rm -rf "$1"
        { printf '%s' "$2" >"$1"; } 2>/dev/null && break
    done
    set +o noclobber
}
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
unlinked() { [ -f "$RUN/log.txt" ] && [ ! -L "$RUN/log.txt" ] || rm -rf "$RUN/log.txt"; }
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

resume=() # a restarted job continues from its last checkpoint
for file in "$RUN"/checkpoints/step-*.npz; do
    [ ! -e "$file" ] || resume=(--resume "$RUN")
done

task='name=ngcdl-$SLURM_JOB_ID-$SLURM_PROCID
mark=$NGCDL_RUN/.task-$NGCDL_ATTEMPT-$SLURMD_NODENAME
said=$NGCDL_RUN/.code-$NGCDL_ATTEMPT-$SLURMD_NODENAME
export NGCDL_NODE=$SLURM_NODEID
is_told=
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
        docker rm -f "$name"
    } >/dev/null 2>&1 &
}
trap ended TERM
marked began
[ -w "$XDG_RUNTIME_DIR" ] || unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS # of a session on another machine
more=()
[ ! -e /dev/infiniband ] || more+=(--device=/dev/infiniband)
more+=(--user "$(id -u):$(id -g)" --security-opt=no-new-privileges)
cards=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}
[ -n "$cards" ] || { echo "ngcdl: Slurm names no GPU on this node" >&2; marked 125; exit 125; }
case $CUDA_VISIBLE_DEVICES in
*MIG-* | *GPU-*) cards=$CUDA_VISIBLE_DEVICES ;;
*)
    seen=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | paste -sd,)
    [[ $seen != GPU-* || ${seen//[^,]/} != "${cards//[^,]/}" ]] || cards=$seen
    ;;
esac
more+=(--gpus "\"device=$cards\"")
for site in "${!NCCL_@}" "${!GLOO_@}"; do more+=(-e "$site"); done
more+=(-e PYTHONUNBUFFERED=1)
more+=(-e WORDS='"'"'a '"'"'"'"'"'"'"'"'b'"'"'"'"'"'"'"'"''"'"')
begin() {
    docker rm -f "$name" >/dev/null 2>&1 # left by an earlier attempt, on a node that was lost
    { trap : TERM; docker run --rm --init --name "$name" --network=host \
        --shm-size=1073741824 \
        "${memlock[@]}" \
        --ulimit stack=67108864 \
        --log-driver=none \
        "${more[@]}" \
        --mount "type=bind,source=$NGCDL_RUN,target=$NGCDL_RUN" \
        --mount type=bind,source=/scratch/cifar10,target=/scratch/cifar10,readonly \
        --mount type=bind,source=/home/me/.local/state/ngcdl/runs/older,target=/home/me/.local/state/ngcdl/runs/older,readonly \
        --workdir="$NGCDL_RUN" \
        -e NGCDL_RUN \
        -e NGCDL_NODES \
        -e NGCDL_NODE \
        -e MASTER_ADDR \
        -e MASTER_PORT \
        -e SLURM_JOB_ID \
        -e SLURM_PROCID \
        -e SLURM_NODEID \
        -e SLURM_NNODES \
        -e SLURMD_NODENAME \
        -e SLURM_RESTART_COUNT \
        -e HOME="$NGCDL_RUN/home" -e USER \
        nvcr.io/nvidia/pytorch@sha256:5555555555555555555555555555555555555555555555555555555555555555 "$@" --samples "$SLURMD_NODENAME"; anew "$said" "$?"; } &
    client=$!
    while kill -0 "$client" 2>/dev/null; do wait "$client"; done
    { [ -f "$said" ] && [ ! -L "$said" ] && read -r code <"$said"; } || code=137
}
memlock=(--ulimit memlock=-1)
begin "$@"
if [[ $code = 12[56] ]] && docker run --rm "${memlock[@]}" --ulimit stack=67108864 --entrypoint true nvcr.io/nvidia/pytorch@sha256:5555555555555555555555555555555555555555555555555555555555555555 2>&1 |
    grep -qE '"'"'rlimit type 8|RLIMIT_MEMLOCK'"'"' && [ -z "$is_told" ]; then
    echo "ngcdl: $SLURMD_NODENAME forbids --ulimit memlock=-1 (see above); the container now starts without it" >&2
    echo "    ngcdl run ... --ulimit memlock=host    # does not ask for it" >&2
    memlock=()
    begin "$@"
fi
marked "$code"
[ -z "$is_told" ] || exit 0 # otherwise srun ends the others at once, and one may be saving a checkpoint
exit "$code"
'
srun --export=ALL --kill-on-bad-exit=1 --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    bash -c "$task" task python -m trainer cifar10 --out "$RUN" --data /scratch/cifar10 --resume /home/me/.local/state/ngcdl/runs/older "${resume[@]}" &
srun=$!
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
    if [ "$lost" -lt 3 ]; then
        echo "ngcdl: a node was lost; requeueing the job" >&2
        unlinked
        scontrol requeue "$SLURM_JOB_ID" && exit "$code"
    else
        echo "ngcdl: a node was lost, as in $lost earlier attempts: the job is not requeued again" >&2
    fi
fi
if [ "$code" != 0 ] && [ ! -e "$RUN/.stopping" ] && is_preempted &&
    scontrol show config | grep -q "^PreemptType *= preempt/partition_prio" &&
    scontrol show partition "$SLURM_JOB_PARTITION" -o | grep -qE " PreemptMode=(GANG,)?REQUEUE"; then
    echo "ngcdl: another job preempted it; requeueing the job" >&2
    unlinked
    scontrol requeue "$SLURM_JOB_ID" && exit "$code"
fi
ended "$code"
