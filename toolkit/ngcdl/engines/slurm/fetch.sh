export NGCDL_IMAGE=@KEPT@ # pulled by one node for all
mkdir -p @FOLDER@
part=$NGCDL_IMAGE.part
if [ ! -r "$NGCDL_IMAGE" ]; then # an image that is there needs no lock, which a user who may only read could not take
    ( flock 9 && { [ -e "$NGCDL_IMAGE" ] ||
        { rm -f "$part" && @FETCH@ "$part" @SOURCE@ && mv "$part" "$NGCDL_IMAGE"; }; }
    ) 9>"$NGCDL_IMAGE.lock" &
    wait "$!" || ended 125 # a trap cuts this wait short
fi
