@HOME@
@LOOK@
## A shell handles no signal while it waits for a foreground process, so this runs in the background. It records its own
## exit code: bash 5.2 returns -1 for a process that ended while a signal interrupted `wait`. Bash makes background
## processes ignore Ctrl-C, and their children with them.
{ trap : TERM; (trap - INT QUIT; exec @BEFORE@"$@"@AFTER@); anew "$said" "$?"; } &
client=$!
while kill -0 "$client" 2>/dev/null; do wait "$client"; done
{ [ -f "$said" ] && [ ! -L "$said" ] && read -r code <"$said"; } || code=137
