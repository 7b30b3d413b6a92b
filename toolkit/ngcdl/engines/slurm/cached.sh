export NGCDL_IMAGE=@SOURCE@
## Nodes that fill a cache together can spoil it: https://apptainer.org/docs/user/latest/build_env.html#cache-folders
## https://docs.sylabs.io/guides/latest/user-guide/build_env.html#cache-folders
[ "$SLURM_JOB_NUM_NODES" = 1 ] ||
    @CLIENT@ exec "$NGCDL_IMAGE" true & # one node fetches it into the user's cache, from which the others take it
wait "$!" || ended 125 # a trap cuts this wait short
