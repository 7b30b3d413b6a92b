"""The batch script that an Order becomes: one task per node, one container per task, and its outcome recorded. Pure.

Its files in the run's folder: log.txt, its output; exit.json {code, t, restarts, why}, how it ended;
.task-ATTEMPT-NODE, "began" and then the exit code of a node's task; .code-ATTEMPT-NODE, the exit code of the task's
command; .stopping, once it was asked to save a checkpoint and end; .lost-ATTEMPT, if an earlier one lost a node.
"""

from __future__ import annotations

import re
import shlex

from ngcdl.engines.slurm import options, runners
from ngcdl.engines.slurm.bash import bash
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption, PathUnfit
from ngcdl.folder import LOG, SCRIPT
from ngcdl.spec import Mount, inside, is_secret, whole_cpus

NO_OUTPUT = 53  # Slurm's own exit code for a job if a node can't open the job's output file
RESTARTS = 3
# Before the time limit: a training finishes its step and saves a checkpoint.
WARNING_SECONDS = 60
# Both: srun prefers a larger SLURM_NTASKS, as of a --ntasks-per-node=8 that was typed for sbatch, to --ntasks-per-node.
# https://github.com/SchedMD/slurm/blob/master/src/srun/opt.c ("can't honor --ntasks-per-node")
_ONE_EACH = '--ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What needs no quoting in those options of sbatch, srun, apptainer and singularity that join several paths.
_PATH = re.compile(r"[\w@%+=./~-]+", re.ASCII)


def script(order: Order, is_kept: bool = False) -> str:
    """Return the script. If `is_kept`, it is for users to keep and submit: it creates a new folder for each run, in
    which the trainer writes the whole record. Raise PathUnfit or BadOption."""
    task, is_training = _task(order, is_kept), order.spec.workload is not None
    words = [" ".join(found)] if (found := runners.environment(task)) else []
    words += [f"srun --export=ALL --kill-on-bad-exit=1 {_ONE_EACH}", *runners.srun(task)]
    words += [f'bash -c "$task" task {_command(order)}' + (' "${resume[@]}"' if is_training else "")]
    text = bash(
        "job",
        OPTIONS="\n".join(f"#SBATCH {word}" for word in _options(order, task, is_kept)),
        FOLDER="\n".join(_folder(order, runners.unfit(task), is_kept)),
        SECRETS="\n".join(_secrets(task)),
        RESUME="\n" + bash("resume") if is_training else "",
        IMAGE=runners.image(task),
        TASK=shlex.quote(runners.task(task)),
        SRUN=" \\\n    ".join(words),
        RESTARTS=str(RESTARTS),
    )
    return text + "\n"


def _options(order: Order, task: runners.Task, is_kept: bool) -> list[str]:
    """Return the words for sbatch. Options that were typed come last, and win: none of ours that means the same or
    excludes them stays beside them."""
    placement, gpus = order.spec.placed, task.gpus
    words = [f"--job-name={job_name(order.run_id)}", f"--nodes={placement.nodes}", "--ntasks-per-node=1"]
    words += [f"--gres=gpu:{f'{placement.gpu_type}:' if placement.gpu_type else ''}{gpus}"] if gpus else []
    given = {
        "cpus-per-task": task.cpus or (placement.cpus and placement.cpus * (gpus or 1)),
        "mem": _mebibytes(task.memory_bytes),
        "partition": placement.partition,
        "account": placement.account,
        "qos": placement.qos,
        "time": placement.time_limit,
        "exclude": ",".join(placement.avoid) or None,
    }
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    log = "ngcdl-%j.txt" if is_kept else str(_fit(order.folder / LOG)).replace("%", "%%")
    words += [f"--output={log}", "--open-mode=append", "--requeue", f"--signal=B:USR1@{WARNING_SECONDS}"]
    words += ["--export=ALL"] if task.secrets else []  # some sites set SBATCH_EXPORT=NONE: secrets would stay behind
    typed = {name for word in placement.options for name in options.alike(word)}
    return [word for word in words if not typed & {*options.alike(word)}] + [*map(options.quoted, placement.options)]


def _mebibytes(size: int | None) -> str | None:
    """Write a size as Slurm counts memory, rounded up."""
    return None if size is None else f"{-(-size // (1 << 20))}M"


def job_name(run_id: str) -> str:
    return f"ngcdl-{run_id}"


def _folder(order: Order, unfit: str, is_kept: bool) -> list[str]:
    if not is_kept:
        there = f'cd "$RUN" && [ -e {SCRIPT} ] || exit {NO_OUTPUT} # not shared: Slurm 24.11 creates the log\'s folder'
        return [f"RUN={_fit(order.folder)}", there]
    lines = ["RUN=${NGCDL_RUN:-$PWD/ngcdl-$SLURM_JOB_ID}"]
    shown = unfit.replace("[:space:]", " and no space")
    says = f"ngcdl: $RUN: the run's folder may have none of {shown} in its path: export NGCDL_RUN=FOLDER, then sbatch"
    lines += [
        f'case $RUN in *[{unfit}]*) echo "{says}" >&2; exit 1 ;; esac',
        'mkdir -p "$RUN/home" && cd "$RUN" || exit 1',
    ]
    trainer = next((mount.host for mount in order.spec.mounts if mount.container == inside.TRAINER), None)
    if trainer:
        lines += [f'[ -e trainer ] || cp -r "${{NGCDL_TRAINER:-{_fit(trainer)}}}" trainer || exit 1']
    return lines


def _secrets(task: runners.Task) -> list[str]:
    """Return lines that end the job if a variable that looks like a secret is not set: no file has its value, which
    comes from the submitter's environment."""
    return [f': "${{{name}:?a secret, kept out of scripts: export {name}, then sbatch}}"' for name in task.secrets]


def _travels(name: str, value: str) -> bool:
    """Whether the variable looks like a secret, and so comes with the job, not in its script. Raise BadOption if Slurm
    can't pass it under that name."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"-e {name}: on Slurm a variable's name has only letters, digits and _, and no digit first.")
    if not is_secret(name, value):
        return False
    if runners.READ_OUTSIDE.fullmatch(name):
        raise BadOption(
            f"-e {name}: its value looks like a secret and comes with the job, where other programs read {name}.",
            "Use another name:\n    ngcdl run ... -e MY_SECRET -- COMMAND",
        )
    return True


def _task(order: Order, is_kept: bool) -> runners.Task:
    spec, placement = order.spec, order.spec.placed
    for mount in spec.mounts:
        if mount.is_volume:
            raise PathUnfit(mount.host, "a Docker volume is on one machine only")
    # ngcdl's own folders have the same path inside and outside, so that a task is the same under any runner
    ours = [m for m in spec.mounts if inside.is_ours(m.container)]
    mounts = [Mount(_fit(m.host), _fit(m.host), m.writable) for m in ours if m.container != inside.TRAINER]
    mounts += [Mount(_fit(m.host), _fit(m.container), m.writable) for m in spec.mounts if m not in ours]
    secrets = tuple(name for name, value in spec.environment if _travels(name, value))
    after = ""
    if spec.workload:
        after = ' --samples "$SLURMD_NODENAME"' + (" --record" if is_kept else "")
    return runners.Task(
        runner=placement.container or "pyxis",
        image=order.target,
        mounts=tuple(mounts),
        gpus=spec.gpus.per_node,
        gpus_typed=any(options.asks_for_gpus(word) for word in placement.options),
        variables=tuple((name, value) for name, value in spec.environment if name not in secrets),
        secrets=secrets,
        user=spec.user,
        workdir=None if spec.workload else spec.workdir,
        shm_bytes=spec.shm_bytes,
        ulimits=spec.ulimits,
        cpus=None if spec.cpu_limit is None else whole_cpus(spec.cpu_limit),
        memory_bytes=spec.memory_bytes,
        images=placement.images and _fit(placement.images),
        after=after,
        is_training=spec.workload is not None,
    )


def _command(order: Order) -> str:
    """Return the command's words for a shell, with ngcdl's own folders by their paths on the nodes."""
    known = {m.container: _fit(m.host) for m in order.spec.mounts if inside.is_ours(m.container)}
    return " ".join(
        '"$RUN"' if word == inside.RUN else shlex.quote(known.get(word, word)) for word in order.spec.command
    )


def _fit(path: object) -> str:
    """Return a path unchanged. Raise PathUnfit if an option would misread a part of it."""
    text = str(path)
    if not _PATH.fullmatch(text):
        raise PathUnfit(text, "it may have only letters, digits and @ % + = . / ~ _ -")
    return text
