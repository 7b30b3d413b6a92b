export NGCDL_IMAGE=@KEPT@ # pulled by one node for all
mkdir -p @FOLDER@
part=$NGCDL_IMAGE.part
if [ ! -r "$NGCDL_IMAGE" ]; then # an image that is there needs no lock, which a user who may only read could not take
    [ -e "$NGCDL_IMAGE.lock" ] || (umask 0; : >>"$NGCDL_IMAGE.lock") # somebody else may need it next
    ## NFS locks only what is open for writing (man 2 flock); elsewhere a lock that another user left can just be read
    (
        @RUNTIME@
        { exec 9<>"$NGCDL_IMAGE.lock"; } 2>/dev/null || exec 9<"$NGCDL_IMAGE.lock"
        ## Lustre may be mounted without locks: https://github.com/apptainer/singularity/issues/4844
        flock 9 || {
            echo "ngcdl: no lock in ${NGCDL_IMAGE%/*} (see above): jobs that start together each fetch the image" >&2
            part=$part.$SLURM_JOB_ID
        }
        ## else a power cut may leave the name with an empty image, as file systems write data seconds after names;
        ## `sync FILE` of coreutils before 8.24 waits for every file system, and for one of a network without end
        synced() { dd if=/dev/null of="$1" conv=nocreat,notrunc,fsync 2>/dev/null || ! echo "ngcdl: can't sync $1" >&2; }
        [ -e "$NGCDL_IMAGE" ] ||
            { rm -f "$part" && @FETCH@ "$part" @SOURCE@ && synced "$part" && mv "$part" "$NGCDL_IMAGE"; } || ! rm -f "$part"
    ) &
    wait "$!" || ended 125 # a trap cuts this wait short
fi
