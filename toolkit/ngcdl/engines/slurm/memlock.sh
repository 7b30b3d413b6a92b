## If the engine's root lacks CAP_SYS_RESOURCE, no container with this limit starts. docker then exits with 125, podman
## with 126, but these codes also mean much else: so a container with nothing but the limits is tried. The log, which
## gets all output as it comes, has the refusal; by the line below report/measured/diagnosis.py knows that the refusal
## is not why a run failed.
memlock=(--ulimit memlock=@LIMIT@)
begin "$@"
if [[ $code = 12[56] ]] && @CLIENT@ run --rm "${memlock[@]}"@OTHERS@ --entrypoint true @IMAGE@ 2>&1 |
    grep -qE 'rlimit type 8|RLIMIT_MEMLOCK' && [ -z "$is_told" ]; then
    echo "ngcdl: $SLURMD_NODENAME forbids --ulimit memlock=@LIMIT@ (see above); the container now starts without it" >&2
    echo "    ngcdl run ... --ulimit memlock=host    # does not ask for it" >&2
    memlock=()
    begin "$@"
fi
