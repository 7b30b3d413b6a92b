## podman can't work with a folder that is only on the login node (https://github.com/containers/podman/issues/25663).
## Without the variable it finds another one (its pkg/util/utils_supported.go).
[ -w "$XDG_RUNTIME_DIR" ] || unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS # of a session on another machine
more=()
[ ! -e /dev/infiniband ] || more+=(--device=/dev/infiniband)
@MORE@
begin() {
    @CLIENT@ rm -f "$name" >/dev/null 2>&1 # left by an earlier attempt, on a node that was lost
    ## in the background, with its own exit code, as in child.sh
    { trap : TERM; @CLIENT@ run @WORDS@ "$@"@AFTER@; anew "$said" "$?"; } &
    client=$!
    while kill -0 "$client" 2>/dev/null; do wait "$client"; done
    { [ -f "$said" ] && [ ! -L "$said" ] && read -r code <"$said"; } || code=137
}
@BEGIN@
