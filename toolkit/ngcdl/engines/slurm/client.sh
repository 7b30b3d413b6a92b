more=()
[ ! -e /dev/infiniband ] || more+=(--device=/dev/infiniband)
@MORE@
begin() {
    @CLIENT@ rm -f "$name" >/dev/null 2>&1 # left by an earlier attempt, on a node that was lost
    ## in the background, with its own exit code, as in child.sh
    { trap : TERM; @CLIENT@ run @WORDS@ "$@"@AFTER@; echo "$?" >"$said"; } &
    client=$!
    while kill -0 "$client" 2>/dev/null; do wait "$client"; done
    read -r code <"$said" || code=137
}
@BEGIN@
