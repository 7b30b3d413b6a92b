"""How a task runs its image with pyxis, docker, podman, apptainer or singularity: srun's words, and its bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from ngcdl.engines.slurm.bash import bash
from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass
from ngcdl.spec import Mount

_OURS = ("NGCDL_RUN", "NGCDL_NODES", "NGCDL_NODE", "MASTER_ADDR", "MASTER_PORT")
_SLURMS = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NODEID", "SLURM_NNODES", "SLURMD_NODENAME", "SLURM_RESTART_COUNT")
# In PyTorch's images an extra hook of enroot's sets these itself, to a name that need not resolve, and pyxis prefers
# what is in the image unless it is told their names.
# https://github.com/NVIDIA/enroot/blob/master/conf/hooks/extra/50-slurm-pytorch.sh
# https://github.com/NVIDIA/pyxis/blob/master/README.md (--container-env, since 0.15)
_SET_BY_A_HOOK = ("MASTER_ADDR", "MASTER_PORT")
# Names of variables that bash, the loader, Slurm, enroot and the scripts here read: a container's variable of such a
# name is kept out of their environment. https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md
READ_OUTSIDE = re.compile(
    r"PATH|HOME|IFS|ENV|SHELL|SHELLOPTS|SHLVL|POSIXLY_CORRECT|GLOBIGNORE|EXECIGNORE|TMOUT|TMPDIR|OPT(ARG|ERR|IND)|PS4|_"
    r"|E?UID|P?PID|GROUPS|(OLD)?PWD|CDPATH|BASH\w*|GCONV_PATH|LOCPATH|(LD|GLIBC|MALLOC)_\w+"
    r"|(SLURMD?|SBATCH|SRUN|SCONTROL|SCANCEL|SQUEUE|SINFO|SACCT|SPANK|PMI2?|PMIX|PYXIS|ENROOT|XDG|NGCDL)_\w+"
    r"|(APPTAINER|SINGULARITY)(ENV)?_\w+"
    r"|DOCKER_(HOST|CONTEXT|CONFIG)"
    r"|RUN|attempt|head|seconds|why|lost|number|told|resume|file|part|task|srun|waited|code|is_told|is_lost"
    r"|name|mark|said|client|cards?|more|memlock|seen|site"
)
# Two programs of one origin, with the prefix by which each passes variables into a container. Apptainer's own
# singularity, a link to it, reads both.
# https://apptainer.org/docs/user/main/environment_and_metadata.html
# https://docs.sylabs.io/guides/latest/user-guide/environment_and_metadata.html
_PREFIXES = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}
# Neither sets these, read-only in the shell that both have within them; older ones only say so in the log.
# https://github.com/sylabs/singularity/issues/1263 https://github.com/apptainer/apptainer/pull/1099
_LEFT_OUT = ("UID", "GID")


@dataclass(frozen=True)
class Task:
    """One node's part of a job. `mounts` are paths on the nodes, besides the run's folder. `gpus` 0 means none, unless
    `gpus_typed`: options of sbatch that were typed may ask for GPUs.
    `variables` are the container's; `secrets` names further variables, whose values come with the job. `images` is a
    folder shared by all nodes where a pulled image is kept. `cpus` and `memory_bytes` are None if not asked for.
    `after` holds words of bash that follow the command's."""

    runner: str
    image: str
    mounts: tuple[Mount, ...]
    gpus: int
    gpus_typed: bool
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
    """Return enroot's name of an image: nvcr.io#nvidia/pytorch:25.03-py3. A digest takes the place of the tag: enroot
    passes on to the registry what stands there, from 3.1.0 on, which is the oldest that pyxis takes.
    It asks the host that is named, and Docker Hub answers on another one than the images' names have.
    https://github.com/NVIDIA/enroot/blob/master/src/docker.sh (reg_tag, docker::_download)"""
    host, _, rest = image.partition("/")
    host = "registry-1.docker.io" if host == "docker.io" else host
    name, at, digest = rest.partition("@")
    return f"{host}#{name.partition(':')[0]}:{digest}" if at else f"{host}#{rest}"


def image(task: Task) -> str:
    """Return the lines that name the image, and pull it once for all nodes if they share a folder for that, or a
    cache."""
    if task.runner in ("docker", "podman"):
        return ""
    is_pyxis = task.runner == "pyxis"
    source = of_enroot(task.image) if is_pyxis else f"docker://{task.image}"
    native = _NATIVE if task.runner == "singularity" else ""
    if task.images is None:
        fetched = shlex.quote(source)
        if is_pyxis:
            return f"export NGCDL_IMAGE={fetched}"
        return native + bash("cached", CLIENT=task.runner, SOURCE=fetched)
    end, fetch = ("sqsh", "enroot import -o") if is_pyxis else ("sif", f"{task.runner} pull")
    return native + bash(
        "fetch",
        KEPT=shlex.quote(f"{task.images}/{re.sub(r'[^0-9A-Za-z.-]+', '+', task.image)}.{end}"),
        FOLDER=shlex.quote(task.images),
        RUNTIME=_ENROOT_S_RUNTIME if is_pyxis else "",
        FETCH=fetch,
        SOURCE=shlex.quote(f"docker://{source}" if is_pyxis else source),
    )


# At every call enroot makes a folder there, by default in /run/user/UID, which is mostly on login nodes only; without
# the variable, in /run. https://github.com/NVIDIA/enroot/blob/master/enroot.in https://github.com/NVIDIA/enroot/issues/13
_ENROOT_S_RUNTIME = '[ -w "$XDG_RUNTIME_DIR" ] || export XDG_RUNTIME_DIR=$RUN/home'

# From 4.0 on a site can choose the OCI mode, as can a user, by the first of these; both of them together are refused.
# Before, and to apptainer, they mean nothing. https://docs.sylabs.io/guides/latest/user-guide/oci_runtime.html
_NATIVE = "unset SINGULARITY_OCI\nexport SINGULARITY_NO_OCI=1 # its OCI mode would keep the job's variables outside\n"


def unfit(task: Task) -> str:
    """Return what would split the path of the run's folder in the option that mounts it, as bash has it in [...]; pyxis
    mounts no path with a space: https://github.com/NVIDIA/pyxis/issues/133"""
    if task.runner == "pyxis":
        return ",:[:space:]"
    return ',\\"' if task.runner in ("docker", "podman") else ",:"


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
    names = dict.fromkeys((*_SET_BY_A_HOOK, *(name for name, _ in _passed(task)), *task.secrets))
    return [*words, f"--container-env={','.join(names)}"]


def environment(task: Task) -> list[str]:
    """Return the words before srun that set the container's variables in srun's environment, from which the image, its
    entrypoint and hooks read them, too. Only pyxis needs this: it has no other way to pass them."""
    if task.runner != "pyxis":
        return []
    typed = dict(task.variables)
    found = _assigned([pair for pair in _wanted(task) if pair[0] not in typed] + _passed(task))
    return ["env", *found] if found else []


def _wanted(task: Task) -> list[tuple[str, str]]:
    """Return what enroot's hook reads before the image's own variables. Without them it gives no GPU to an image that
    sets none; and of an image that asks for GPUs, as NVIDIA's do, it starts none on a node without NVIDIA's programs.
    "all" takes away no capability that an image has. Slurm limits the cards.
    https://github.com/NVIDIA/enroot/blob/master/conf/hooks/98-nvidia.sh https://github.com/NVIDIA/pyxis/issues/101"""
    if task.gpus_typed:
        return []
    if not task.gpus:
        return [("NVIDIA_VISIBLE_DEVICES", "void")]
    return [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "all")]


def _passed(task: Task) -> list[tuple[str, str]]:
    return [(name, value) for name, value in task.variables if not READ_OUTSIDE.fullmatch(name)]


def _assigned(variables: Iterable[tuple[str, str]], prefix: str = "") -> list[str]:
    return [f"{prefix}{name}={shlex.quote(value)}" for name, value in variables]


def _workdir(task: Task, otherwise: str) -> str:
    return shlex.quote(task.workdir) if task.workdir else otherwise


def task(task: Task) -> str:
    """Return the bash that each node runs, with the command as its arguments."""
    if task.runner in ("docker", "podman"):
        return bash("task", RUN=_client(task), REMOVE=f'{task.runner} rm -f "$name"') + "\n"
    return bash("task", RUN=_child(task), REMOVE="") + "\n"


def _child(task: Task) -> str:
    # the home in the job's variables is not mounted, and the image may be read-only: caches need a place
    has_home = task.runner != "pyxis" or "HOME" in dict(task.variables)
    return bash(
        "child",
        HOME="" if has_home else "export HOME=$NGCDL_RUN/home",
        LOOK="" if task.is_training or not task.gpus else _LOOK,
        BEFORE=_inside(task) + _apptainer(task),
        AFTER=task.after,
    )


def _inside(task: Task) -> str:
    """Return the words that set variables for the command alone, with apptainer's or singularity's prefix for those.

    Raise BadOption for those that never get into a container."""
    if task.runner in _PREFIXES:
        if lost := [name for name, _ in task.variables if name in _LEFT_OUT]:
            raise BadOption(f"-e {', '.join(lost)}: {task.runner} gives no container a variable of that name.")
        found = _assigned(((name, value) for name, value in task.variables if name != "HOME"), _PREFIXES[task.runner])
    else:
        passed = _passed(task)
        found = _assigned(pair for pair in task.variables if pair not in passed)
    return " ".join(["env", *found, ""]) if found else ""


# For a command: a training checks for itself.
_LOOK = 'nvidia-smi -L >/dev/null || { marked 125; echo "ngcdl: no GPU is visible here" >&2; exit 125; }'


def _apptainer(task: Task) -> str:
    """Return the words of apptainer, or of singularity, which knows them all from 3.10 on
    (https://github.com/sylabs/singularity/blob/v3.10.0/cmd/internal/cli/action_flags.go)."""
    if task.runner not in _PREFIXES:
        return ""
    binds = ["$NGCDL_RUN", *map(str, task.mounts)]
    words = [
        # else a shell in the image evaluates the command's words ($x, quotes) and the variables' values once more
        # (https://github.com/sylabs/singularity/pull/704)
        f"{task.runner} run --no-eval",
        *(["--nv"] if task.gpus else []),
        '--home "$NGCDL_RUN/home"' + _home(task),
        f'--bind "{",".join(binds)}"',
    ]
    return " ".join([*words, "--pwd", _workdir(task, '"$NGCDL_RUN"'), '"$NGCDL_IMAGE"', ""])


def _home(task: Task) -> str:
    """Return where a HOME that was typed has the home mounted: no prefix sets HOME, and --home takes
    SOURCE:DESTINATION (https://github.com/apptainer/apptainer/blob/main/cmd/internal/cli/action_flags.go).

    Raise BadOption for one that --home would misread."""
    home = dict(task.variables).get("HOME")
    if home is None:
        return ""
    if not re.fullmatch(r"/+[^/:][^:]*", home):
        raise BadOption(
            f"-e HOME={home}: {task.runner} mounts the run's home there; it must be an absolute path without a colon.",
            "    ngcdl run ... -e HOME=/home/me",
        )
    return f":{shlex.quote(home)}"


def _client(task: Task) -> str:
    image, limit = shlex.quote(task.image), dict(task.ulimits).get("memlock")
    tried = {"CLIENT": task.runner, "IMAGE": image, "LIMIT": str(limit)}
    tried["OTHERS"] = "".join(f" {word}" for word in _other_limits(task))
    return bash(
        "client",
        CLIENT=task.runner,
        MORE="\n".join(_more(task)),
        WORDS=" \\\n        ".join([*_words(task), image]),
        AFTER=task.after,
        BEGIN='begin "$@"' if limit is None else bash("memlock", **tried),
    )


def _other_limits(task: Task) -> list[str]:
    return [f"--ulimit {name}={value}" for name, value in task.ulimits if name != "memlock"]


def _words(task: Task) -> list[str]:
    """Return the words of `docker run` that are known before the job runs."""
    typed = dict(task.variables)
    words = ['--rm --init --name "$name" --network=host', f"--shm-size={task.shm_bytes}"]
    # docker's daemon, and podman where it can, puts a container outside the job's cgroup: Slurm does not limit it there
    words += [f"--memory={task.memory_bytes}"] if task.memory_bytes is not None else []
    # rootless podman mostly may not limit CPUs, and then starts no container with such a limit:
    # https://github.com/containers/podman/blob/main/troubleshooting.md#26-running-containers-with-resource-limits-fails-with-a-permissions-error
    words += [f"--cpus={task.cpus}"] if task.cpus is not None and task.runner == "docker" else []
    words += ['"${memlock[@]}"'] if "memlock" in dict(task.ulimits) else []
    words += _other_limits(task)
    words += ["--log-driver=none", '"${more[@]}"', '--mount "type=bind,source=$NGCDL_RUN,target=$NGCDL_RUN"']
    binds = (f"type=bind,source={m.host},target={m.container}{'' if m.writable else ',readonly'}" for m in task.mounts)
    words += [f"--mount {shlex.quote(bind)}" for bind in binds]
    words.append("--workdir=" + _workdir(task, '"$NGCDL_RUN"'))
    words += [f"-e {name}" for name in dict.fromkeys((*_OURS, *_SLURMS, *task.secrets)) if name not in typed]
    mine = {"HOME": '-e HOME="$NGCDL_RUN/home"', "USER": "-e USER"} if task.user else {}
    own = " ".join(word for name, word in mine.items() if name not in typed)
    return words + ([own] if own else [])


def _more(task: Task) -> list[str]:
    """Return the lines that add words known only on the node, and the variables that were typed."""
    lines = []
    if task.user and task.runner == "docker":
        lines.append('more+=(--user "$(id -u):$(id -g)" --security-opt=no-new-privileges)')
    elif task.user:
        lines.append('[ "$(id -u)" = 0 ] || more+=(--userns=keep-id)')
    lines += _gpus(task)
    # what the site or the user chose for the network of its nodes, which the other runners pass on by themselves
    typed = "|".join(name for name, _ in task.variables if name.startswith(("NCCL_", "GLOO_")))
    unless = f"[[ $site =~ ^({typed})$ ]] || " if typed else ""
    lines.append(f'for site in "${{!NCCL_@}}" "${{!GLOO_@}}"; do {unless}more+=(-e "$site"); done')
    return lines + [f"more+=(-e {word})" for word in _assigned(task.variables)]


# podman refuses a UUID that the node's CDI description lacks: nvidia-ctk writes them by default from 1.15
# (https://github.com/NVIDIA/nvidia-container-toolkit/pull/314).
_UNLISTED = '\n        ! nvidia-ctk cdi list 2>/dev/null | grep -qxF "nvidia.com/gpu=${seen%%,*}" ||'


def _gpus(task: Task) -> list[str]:
    """Return the lines that pass on the cards that Slurm assigned, by UUID where those are known, else by number.
    CUDA_VISIBLE_DEVICES itself stays outside: inside, its indices start from 0 again."""
    if not task.gpus:
        return ["more+=(-e NVIDIA_VISIBLE_DEVICES=void)"]
    if task.runner == "podman":  # its --gpus and device requests do nothing
        each = 'for card in ${cards//,/ }; do more+=(--device "nvidia.com/gpu=$card"); done'
        return [bash("cards", OR_UNLISTED=_UNLISTED), each]
    return [bash("cards", OR_UNLISTED=""), 'more+=(--gpus "\\"device=$cards\\"")']
