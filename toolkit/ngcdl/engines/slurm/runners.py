"""How a task runs its image with pyxis, docker, podman or apptainer: words of srun and a few lines of bash. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ngcdl.spec import Mount

_OURS = ("NGCDL_RUN", "NGCDL_NODES", "NGCDL_NODE", "MASTER_ADDR", "MASTER_PORT")
_SLURMS = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NODEID", "SLURM_NNODES", "SLURMD_NODENAME", "SLURM_RESTART_COUNT")
# Names that bash, the loader, Slurm, enroot and the scripts here read from their own environment: a container's
# variable of such a name is kept out of it. https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md
READ_OUTSIDE = re.compile(
    r"PATH|HOME|IFS|ENV|SHELL|SHELLOPTS|SHLVL|POSIXLY_CORRECT|GLOBIGNORE|EXECIGNORE|TMOUT|TMPDIR|OPT(ARG|ERR|IND)|PS4|_"
    r"|E?UID|P?PID|GROUPS|(OLD)?PWD|CDPATH|BASH\w*|GCONV_PATH|LOCPATH|(LD|GLIBC|MALLOC)_\w+"
    r"|(SLURMD?|SBATCH|SRUN|SCONTROL|SCANCEL|SQUEUE|SINFO|SACCT|SPANK|PMI2?|PMIX|PYXIS|ENROOT|XDG|APPTAINER(ENV)?|NGCDL)_\w+"
    r"|DOCKER_(HOST|CONTEXT|CONFIG)"
    r"|RUN|attempt|head|seconds|why|told|resume|file|part|task|srun|code|is_told|is_lost|name|mark|said|client|cards?"
    r"|more|memlock|seen|site"
)


@dataclass(frozen=True)
class Task:
    """One node's part. `mounts` are paths on the nodes, besides the run's folder. `gpus` 0 means none. `variables` are
    the container's; `secrets` names further ones that the job brings. `images` is a folder shared by all nodes where a
    pulled image is kept. `cpus` and `memory_bytes` are None if not asked for. `after` holds words of bash that follow
    the command's."""

    runner: str
    image: str
    mounts: tuple[Mount, ...]
    gpus: int
    variables: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    user: str | None
    workdir: str | None
    shm_bytes: int
    ulimits: tuple[tuple[str, int], ...]
    cpus: int | None
    memory_bytes: int | None
    images: str | None
    after: str
    is_training: bool


def of_enroot(image: str) -> str:
    """Name an image as enroot does: nvcr.io#nvidia/pytorch:25.03-py3. A digest takes the tag's place, which every
    enroot 3 and 4 passes on to the registry: https://github.com/NVIDIA/enroot/blob/master/src/docker.sh (reg_tag)"""
    host, _, rest = image.partition("/")
    name, at, digest = rest.partition("@")
    return f"{host}#{name.partition(':')[0]}:{digest}" if at else f"{host}#{rest}"


def before(task: Task) -> list[str]:
    """Return the lines that pull the image once for all nodes, if they share a folder for that."""
    if task.runner in ("docker", "podman"):
        return []
    is_pyxis = task.runner == "pyxis"
    source = of_enroot(task.image) if is_pyxis else f"docker://{task.image}"
    if task.images is None:
        return [f"export NGCDL_IMAGE={shlex.quote(source)}"]
    end, fetch = ("sqsh", "enroot import -o") if is_pyxis else ("sif", "apptainer pull")
    kept = f"{task.images}/{re.sub(r'[^0-9A-Za-z.-]+', '+', task.image)}.{end}"
    uri = f"docker://{source}" if is_pyxis else source
    return [
        f"export NGCDL_IMAGE={shlex.quote(kept)} # pulled by one node for all",
        f"mkdir -p {shlex.quote(task.images)}",
        "part=$NGCDL_IMAGE.part",
        'if [ ! -r "$NGCDL_IMAGE" ]; then # who only reads it may not be allowed to lock',
        '    ( flock 9 && { [ -e "$NGCDL_IMAGE" ] ||',
        f'        {{ rm -f "$part" && {fetch} "$part" {shlex.quote(uri)} && mv "$part" "$NGCDL_IMAGE"; }}; }}',
        '    ) 9>"$NGCDL_IMAGE.lock" &',
        '    wait "$!" || ended 125 # a trap cuts this wait short',
        "fi",
    ]


def srun(task: Task) -> list[str]:
    """Return srun's words for pyxis; the other runners need none, as their task runs on the node itself."""
    words = ['${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}']
    if task.runner != "pyxis":
        return words
    mounts = ['"$RUN:$RUN"', *(shlex.quote(str(mount)) for mount in task.mounts)]
    words += ['--container-image="$NGCDL_IMAGE"', f"--container-mounts={','.join(mounts)}"]
    words += ["--container-workdir=" + _workdir(task, '"$RUN"'), "--no-container-mount-home"]
    # NVIDIA's entrypoint enables the compatibility libraries; pyxis skips it by default
    words.append("--container-entrypoint")
    names = [*(name for name, _ in _passed(task)), *task.secrets]
    return words + ([f"--container-env={','.join(names)}"] if names else [])


def environment(task: Task) -> list[str]:
    """Return the words before srun that set the container's variables in its environment, where image, entrypoint and
    hooks read them, too. Only pyxis has no other way."""
    found = _assigned(_passed(task)) if task.runner == "pyxis" else []
    return ["env", *found] if found else []


def _passed(task: Task) -> list[tuple[str, str]]:
    return [(name, value) for name, value in task.variables if not READ_OUTSIDE.fullmatch(name)]


def _assigned(variables: Iterable[tuple[str, str]], prefix: str = "") -> list[str]:
    return [f"{prefix}{name}={shlex.quote(value)}" for name, value in variables]


def _workdir(task: Task, otherwise: str) -> str:
    return shlex.quote(task.workdir) if task.workdir else otherwise


# Once Slurm asks a task to end, it has until KillWait, and then this shell is killed with it: record before that that
# it was killed, or the node would be taken for a lost one. A stop by ngcdl lets it take its time.
_MARKED = """name=ngcdl-$SLURM_JOB_ID-$SLURM_PROCID
mark=$NGCDL_RUN/.task-$NGCDL_ATTEMPT-$SLURMD_NODENAME
said=$NGCDL_RUN/.code-$NGCDL_ATTEMPT-$SLURMD_NODENAME
export NGCDL_NODE=$SLURM_NODEID
is_told=
ended() {{
    is_told=yes
    [ ! -e "$NGCDL_RUN/.stopping" ] || return
    {{
        trap "" TERM
        sleep "$NGCDL_KILL_SECONDS"
        read -r told <"$mark"
        [ "$told" != began ] || echo 137 >"$mark"{remove}
    }} >/dev/null 2>&1 &
}}
trap ended TERM
echo began >"$mark"
{run}
echo "$code" >"$mark"
[ -z "$is_told" ] || exit 0 # otherwise srun ends the others at once, and one may be saving a checkpoint
exit "$code"
"""

# A shell handles no signal while it waits for a foreground process, so the client runs in the background. It records
# its own exit code: bash 5.2 returns -1 for a process that ended while a signal interrupted `wait`.
_WAITED = """{{ trap : TERM; {command}; echo "$?" >"$said"; }} &
client=$!
while kill -0 "$client" 2>/dev/null; do wait "$client"; done
read -r code <"$said" || code=137"""

# The container's first process gets SIGTERM through its client. A second SIGTERM would cut a checkpoint short: a
# container that ignores the first is removed just before Slurm kills the client, which would leave the container
# behind.
_REMOVED = """
        {program} rm -f "$name\""""
_CLIENT = """{more}begin() {{
    {program} rm -f "$name" >/dev/null 2>&1 # left by an earlier attempt, on a node that was lost
    {waited}
}}
{limited}"""

# If the engine's root lacks CAP_SYS_RESOURCE, no container with this limit starts. docker exits with 125, podman with
# 126, as for much else: so the limit is tried once more, alone. The log, which gets all output as it
# comes, has the refusal; report/measured/diagnosis.py knows by the line below that it caused nothing.
_LIMITED = """memlock=(--ulimit memlock={limit})
begin "$@"
if [[ $code = 12[56] ]] && {program} run --rm "${{memlock[@]}}" --entrypoint true {image} 2>&1 |
    grep -qE 'rlimit type 8|RLIMIT_MEMLOCK' && [ -z "$is_told" ]; then
    echo "ngcdl: $SLURMD_NODENAME forbids --ulimit memlock={limit} (see above); the container now starts without it" >&2
    echo "    ngcdl run ... --ulimit memlock=host    # does not ask for it" >&2
    memlock=()
    begin "$@"
fi"""


def task(task: Task) -> str:
    """Return the bash that each node runs, with the command as its arguments."""
    if task.runner in ("docker", "podman"):
        return _MARKED.format(run=_client(task), remove=_REMOVED.format(program=task.runner))
    look = "" if task.is_training or not task.gpus else _LOOK
    # the home in the job's variables is not mounted, and the image may be read-only: caches need a place
    home = "export HOME=$NGCDL_RUN/home\n" if task.runner == "pyxis" and "HOME" not in dict(task.variables) else ""
    # bash makes background processes ignore Ctrl-C, and their children with them
    command = f'(trap - INT QUIT; exec {_inside(task)}{_apptainer(task)}"$@"{task.after})'
    return _MARKED.format(run=f"{home}{look}{_WAITED.format(command=command)}", remove="")


def _inside(task: Task) -> str:
    """Return the words before the command that set variables for it alone: for apptainer under the names by which it
    passes any of them into a container (https://apptainer.org/docs/user/main/environment_and_metadata.html)."""
    if task.runner == "apptainer":
        found = _assigned(task.variables, "APPTAINERENV_")
    else:
        passed = _passed(task)
        found = _assigned(pair for pair in task.variables if pair not in passed)
    return " ".join(["env", *found, ""]) if found else ""


# A training checks for itself.
_LOOK = 'nvidia-smi -L >/dev/null || { echo 125 >"$mark"; echo "ngcdl: no GPU is visible here" >&2; exit 125; }\n'


def _apptainer(task: Task) -> str:
    if task.runner != "apptainer":
        return ""
    binds = ["$NGCDL_RUN", *map(str, task.mounts)]
    words = [
        "apptainer run",
        *(["--nv"] if task.gpus else []),
        '--home "$NGCDL_RUN/home"',
        f'--bind "{",".join(binds)}"',
    ]
    return " ".join([*words, "--pwd", _workdir(task, '"$NGCDL_RUN"'), '"$NGCDL_IMAGE"', ""])


def _client(task: Task) -> str:
    typed, image = dict(task.variables), shlex.quote(task.image)
    words = ['--rm --init --name "$name" --network=host', f"--shm-size={task.shm_bytes}"]
    # docker's daemon, and where it can podman, puts a container outside the job, whose own limits it then lacks
    words += [f"--memory={task.memory_bytes}"] if task.memory_bytes is not None else []
    # podman without root mostly may not limit CPUs, and then starts nothing if it is to:
    # https://github.com/containers/podman/blob/main/troubleshooting.md#26-running-containers-with-resource-limits-fails-with-a-permissions-error
    words += [f"--cpus={task.cpus}"] if task.cpus is not None and task.runner == "docker" else []
    limit = dict(task.ulimits).get("memlock")
    words += ['"${memlock[@]}"'] if limit is not None else []
    words += [f"--ulimit {name}={value}" for name, value in task.ulimits if name != "memlock"]
    words += ["--log-driver=none", '"${more[@]}"', "--mount type=bind,source=$NGCDL_RUN,target=$NGCDL_RUN"]
    binds = (f"type=bind,source={m.host},target={m.container}{'' if m.writable else ',readonly'}" for m in task.mounts)
    words += [f"--mount {shlex.quote(bind)}" for bind in binds]
    words += [f"--workdir={_workdir(task, '$NGCDL_RUN')}"]
    words += [f"-e {name}" for name in dict.fromkeys((*_OURS, *_SLURMS, *task.secrets)) if name not in typed]
    mine = {"HOME": '-e HOME="$NGCDL_RUN/home"', "USER": "-e USER"} if task.user else {}
    words += [" ".join(word for name, word in mine.items() if name not in typed), image]
    lines = ["more=()", "[ ! -e /dev/infiniband ] || more+=(--device=/dev/infiniband)"]
    if task.user and task.runner == "docker":
        lines.append('more+=(--user "$(id -u):$(id -g)" --security-opt=no-new-privileges)')
    elif task.user:
        lines.append('[ "$(id -u)" = 0 ] || more+=(--userns=keep-id)')
    lines += _gpus(task)
    # what the site or the user chose for the network of its nodes, which pyxis and apptainer pass on by themselves
    own = "|".join(name for name in typed if name.startswith(("NCCL_", "GLOO_")))
    unless = f"[[ $site =~ ^({own})$ ]] || " if own else ""
    lines.append(f'for site in "${{!NCCL_@}}" "${{!GLOO_@}}"; do {unless}more+=(-e "$site"); done')
    lines += [f"more+=(-e {word})" for word in _assigned(task.variables)]
    command = " \\\n        ".join(word for word in words if word)
    waited = _WAITED.replace("\n", "\n    ").format(command=f'{task.runner} run {command} "$@"{task.after}')
    return _CLIENT.format(
        program=task.runner,
        more="\n".join(lines) + "\n",
        waited=waited,
        limited='begin "$@"' if limit is None else _LIMITED.format(program=task.runner, image=image, limit=limit),
    )


# Slurm's numbers may count the device files, docker's and podman's the cards on the PCI bus. On some AMD machines these
# differ (https://github.com/PrincetonUniversity/jobstats/issues/34), and only a UUID means the same card to all.
# Slurm gives UUIDs of MIG devices, and of cards with Flags=env_uuid (https://slurm.schedmd.com/gres.conf.html).
# Otherwise nvidia-smi names them, if it lists as many cards as Slurm assigned: the others are hidden from the task.
_CARDS = """cards=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}
[ -n "$cards" ] || { echo "ngcdl: Slurm names no GPU on this node" >&2; echo 125 >"$mark"; exit 125; }
case $CUDA_VISIBLE_DEVICES in
*MIG-* | *GPU-*) cards=$CUDA_VISIBLE_DEVICES ;;
*)
    seen=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | paste -sd,)
    [[ $seen != GPU-* || ${seen//[^,]/} != "${cards//[^,]/}" ]]%s || cards=$seen
    ;;
esac"""
# podman refuses a UUID that the node's CDI description lacks: nvidia-ctk writes them by default from 1.15
# (https://github.com/NVIDIA/nvidia-container-toolkit/pull/314).
_UNLISTED = ' ||\n        ! nvidia-ctk cdi list 2>/dev/null | grep -qxF "nvidia.com/gpu=${seen%%,*}"'


def _gpus(task: Task) -> list[str]:
    """Return the lines that pass on the cards that Slurm assigned, by UUID where those are known, else by number.
    CUDA_VISIBLE_DEVICES itself stays outside: inside, its indices start from 0 again."""
    if not task.gpus:
        return ["more+=(-e NVIDIA_VISIBLE_DEVICES=void)"]
    if task.runner == "podman":  # its --gpus and device requests do nothing
        return [_CARDS % _UNLISTED, 'for card in ${cards//,/ }; do more+=(--device "nvidia.com/gpu=$card"); done']
    return [_CARDS % "", 'more+=(--gpus "\\"device=$cards\\"")']
