export NGCDL_IMAGE=@KEPT@ # pulled by one node for all
mkdir -p @FOLDER@
part=$NGCDL_IMAGE.part
if [ ! -r "$NGCDL_IMAGE" ]; then # an image that is there needs no lock, which a user who may only read could not take
    [ -e "$NGCDL_IMAGE.lock" ] || (umask 0; : >>"$NGCDL_IMAGE.lock") # somebody else may need it next
    ## NFS locks only what is open for writing (man 2 flock); elsewhere a lock that another user left can just be read
    (
        @RUNTIME@
        { exec 9<>"$NGCDL_IMAGE.lock"; } 2>/dev/null || exec 9<"$NGCDL_IMAGE.lock"
        flock 9 && { [ -e "$NGCDL_IMAGE" ] ||
            { rm -f "$part" && @FETCH@ "$part" @SOURCE@ && mv "$part" "$NGCDL_IMAGE"; }; }
    ) &
    wait "$!" || ended 125 # a trap cuts this wait short
fi
