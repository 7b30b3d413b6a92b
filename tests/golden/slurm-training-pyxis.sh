#!/bin/bash
#SBATCH --job-name=ngcdl-20180216-182126-cifar10-beef
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=112
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --time=1:00:00
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

export NGCDL_IMAGE='nvcr.io#nvidia/pytorch:sha256:5555555555555555555555555555555555555555555555555555555555555555'
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
    } >/dev/null 2>&1 &
}
trap ended TERM
marked began
export HOME=$NGCDL_RUN/home
{ trap : TERM; (trap - INT QUIT; exec "$@" --samples "$SLURMD_NODENAME"); anew "$said" "$?"; } &
client=$!
while kill -0 "$client" 2>/dev/null; do wait "$client"; done
{ [ -f "$said" ] && [ ! -L "$said" ] && read -r code <"$said"; } || code=137
marked "$code"
[ -z "$is_told" ] || exit 0 # otherwise srun ends the others at once, and one may be saving a checkpoint
exit "$code"
'
env NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=all PYTHONUNBUFFERED=1 WORDS='a '"'"'b'"'"'' \
    srun --export=ALL --kill-on-bad-exit=1 --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    --container-image="$NGCDL_IMAGE" \
    --container-mounts="$RUN:$RUN",/scratch/cifar10:/scratch/cifar10:ro,/home/me/.local/state/ngcdl/runs/older:/home/me/.local/state/ngcdl/runs/older:ro \
    --container-workdir="$RUN" \
    --no-container-mount-home \
    --container-entrypoint \
    --container-env=MASTER_ADDR,MASTER_PORT,PYTHONUNBUFFERED,WORDS \
    bash -c "$task" task python -m trainer cifar10 --out "$RUN" --data /scratch/cifar10 --resume /home/me/.local/state/ngcdl/runs/older "${resume[@]}" &
srun=$!
