## Slurm's numbers may count the device files, docker's and podman's the cards on the PCI bus. On some AMD machines these
## differ (https://github.com/PrincetonUniversity/jobstats/issues/34), and only a UUID means the same card to all three.
## Slurm gives UUIDs of MIG devices, and of cards with Flags=env_uuid (https://slurm.schedmd.com/gres.conf.html).
## Otherwise nvidia-smi names them, if it lists as many cards as Slurm assigned: the others are hidden from the task.
cards=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}
[ -n "$cards" ] || { echo "ngcdl: Slurm names no GPU on this node" >&2; marked 125; exit 125; }
case $CUDA_VISIBLE_DEVICES in
*MIG-* | *GPU-*) cards=$CUDA_VISIBLE_DEVICES ;;
*)
    seen=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | paste -sd,)
    [[ $seen != GPU-* || ${seen//[^,]/} != "${cards//[^,]/}" ]] ||@OR_UNLISTED@ cards=$seen
    ;;
esac
