"""The batch script that an Order becomes: one task a node, one container a task, and what came of it. Pure.

Its files in the run's folder: log.txt, what it wrote; exit.json {code, t, restarts, why}, how it ended;
.task-ATTEMPT-NODE, "began" and then the exit code of a node's task; .code-ATTEMPT-NODE, that of what it ran; .stopping,
once it was asked to save a checkpoint and end.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

from ngcdl.engines.base import RUN_FOLDER, Order
from ngcdl.engines.slurm import runners
from ngcdl.errors import BadOption, PathUnfit
from ngcdl.folder import LOG, SCRIPT
from ngcdl.spec import REDACTED, Mount, Placement, RunSpec, redacted

UNSEEN = 53  # what Slurm itself ends a job with whose output a node can't open
RESTARTS = 3
# Before the time is over: a training finishes its step and saves a checkpoint.
WARNING_SECONDS = 60
TRAINER = f"{PurePosixPath(RUN_FOLDER).parent}/trainer"
_OWN = f"{PurePosixPath(RUN_FOLDER).parent}/"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What options of sbatch, srun and apptainer that join several paths can hold without a quote.
_PATH = re.compile(r"[\w@%+=./~-]+", re.ASCII)

# MASTER_ADDR: names of nodes need not resolve, and a container has no scontrol. What waits for srun is not cut short by
# a trap. A plain scancel lets tasks live for KillWait after SIGTERM, which is Slurm's to send.
_HEAD = """
attempt=${SLURM_RESTART_COUNT:-0}
export NGCDL_RUN=$RUN NGCDL_ATTEMPT=$attempt NGCDL_NODES=$SLURM_JOB_NUM_NODES
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(scontrol show node "$head" -o | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
export MASTER_ADDR=${MASTER_ADDR:-$head} MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) NCCL_DEBUG=${NCCL_DEBUG:-WARN}
seconds=$(scontrol show config | sed -n 's/^KillWait *= \\([0-9]*\\).*/\\1/p')
export NGCDL_KILL_SECONDS=$((${seconds:-30} > 6 ? ${seconds:-30} - 5 : 1))
rm -f "$RUN/exit.json" "$RUN/.stopping" "$RUN"/.task-* "$RUN"/.code-*
why=null
ended() {
    told='{"code": %s, "t": %s, "restarts": %s, "why": %s}\\n'
    # shellcheck disable=SC2059
    printf "$told" "$1" "$(date +%s.%N)" "$attempt" "$why" >"$RUN/.exit.json"
    mv "$RUN/.exit.json" "$RUN/exit.json"
    exit "$1"
}
"""

_RESUME = """
resume=() # what was begun goes on from its last checkpoint
for file in "$RUN"/checkpoints/step-*; do
    [ ! -e "$file" ] || resume=(--resume "$RUN")
done
"""

_TAIL = """
trap 'why=\\"time_limit\\"; : >"$RUN/.stopping"; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
is_told= # to end, by Slurm: then it is for Slurm to queue the job again, or not
trap is_told=yes TERM
while kill -0 "$srun" 2>/dev/null; do
    wait "$srun"
done
wait "$srun"
code=$?
[ "$code" -ge 0 ] || code=0 # bash 5.2 says -1 where a signal came with its end: the tasks' own are below

# A task that failed by itself speaks for those that were ended after it. One that began and never told its end was on a
# node that is gone: then the job is queued again, and goes on from the last checkpoint.
is_lost=
for file in "$RUN/.task-$attempt-"*; do
    told=
    [ ! -e "$file" ] || read -r told <"$file"
    case $told in
    began)
        is_lost=yes
        [ "$code" != 0 ] || code=137 # srun gave up waiting for it, and calls that 0
        ;;
    137 | 143) [ "$code" != 0 ] || code=$told ;;
    '') [ "$code" != 0 ] || [ -z "$is_told" ] || code=143 ;; # ended before any began: that is no success
    0) ;;
    *) code=$told ;;
    esac
done
if [ -n "$is_lost" ] && [ -z "$is_told" ] && [ ! -e "$RUN/.stopping" ] && [ "$attempt" -lt $RESTARTS ]; then
    echo "ngcdl: a node was lost; the job is queued again" >&2
    scontrol requeue "$SLURM_JOB_ID" && exit "$code"
fi
ended "$code"
"""


def script(order: Order, is_kept: bool = False) -> str:
    """Give the script. One that `is_kept` makes a folder of its own for each run, in which the trainer writes all of
    the record. Raises PathUnfit."""
    spec, placement = order.spec, order.spec.placement or Placement()
    task = _task(order, is_kept)
    resume = ' "${resume[@]}"' if spec.workload else ""
    lines = ["#!/bin/bash", *(f"#SBATCH {word}" for word in _options(order, placement, is_kept)), ""]
    lines += ["# Written by ngcdl: one task a node, one container a task. RUN is the run's folder, seen by all nodes."]
    lines += [*_folder(order, is_kept), _HEAD.rstrip(), *_secrets(task)]
    lines += [_RESUME.rstrip()] if resume else []
    lines += ["", *runners.before(task), "task=" + shlex.quote(runners.task(task))]
    words = [" ".join(found)] if (found := runners.environment(task)) else []
    words += ["srun --export=ALL --kill-on-bad-exit=1 --ntasks-per-node=1", *runners.srun(task)]
    lines += [" \\\n    ".join([*words, f'bash -c "$task" task {_command(order)}{resume} &']), "srun=$!"]
    return "\n".join(lines) + "\n" + _TAIL.replace("$RESTARTS", str(RESTARTS)).lstrip("\n")


def _options(order: Order, placement: Placement, is_kept: bool) -> list[str]:
    """Give the words for sbatch; what was typed comes last, and counts."""
    gpus = _gpus(order.spec)
    words = [f"--job-name={job_name(order.run_id)}", f"--nodes={placement.nodes}", "--ntasks-per-node=1"]
    words += [f"--gres=gpu:{f'{placement.gpu_type}:' if placement.gpu_type else ''}{gpus}"] if gpus else []
    given = {
        "cpus-per-task": placement.cpus and placement.cpus * (gpus or 1),
        "partition": placement.partition,
        "account": placement.account,
        "qos": placement.qos,
        "time": placement.time_limit,
        "exclude": ",".join(placement.avoid) or None,
    }
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    log = "ngcdl-%j.txt" if is_kept else str(_fit(order.folder / LOG)).replace("%", "%%")
    words += [f"--output={log}", "--open-mode=append", "--requeue", f"--signal=B:USR1@{WARNING_SECONDS}"]
    return words + list(placement.options)


def _gpus(spec: RunSpec) -> int:
    """How many of each node; 0: none."""
    return spec.gpus.count or 0 if spec.gpus.kind == "count" else 0


def job_name(run_id: str) -> str:
    return f"ngcdl-{run_id}"


def _folder(order: Order, is_kept: bool) -> list[str]:
    if not is_kept:
        there = f'cd "$RUN" && [ -e {SCRIPT} ] || exit {UNSEEN} # not shared: Slurm 24.11 makes the folder of the log'
        return [f"RUN={_fit(order.folder)}", there]
    lines = ["RUN=${NGCDL_RUN:-$PWD/ngcdl-$SLURM_JOB_ID}", 'mkdir -p "$RUN/home" && cd "$RUN" || exit 1']
    trainer = next((mount.host for mount in order.spec.mounts if mount.container == TRAINER), None)
    if trainer:
        lines += [f'[ -e trainer ] || cp -r "${{NGCDL_TRAINER:-{_fit(trainer)}}}" trainer || exit 1']
    return lines


def _secrets(task: runners.Task) -> list[str]:
    """Ask for what looks like a secret: it is in no file, and comes with the job from who hands it in."""
    return [f': "${{{name}:?it is a secret, and in no script: export {name}, then sbatch}}"' for name in task.secrets]


def _is_secret(name: str, value: str) -> bool:
    """Raises BadOption where a variable can't be had on Slurm under that name."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"-e {name}: on Slurm a variable's name has letters, digits and _ alone, no digit first.")
    if REDACTED not in (value, redacted(name, value)):
        return False
    if runners.READ_OUTSIDE.fullmatch(name):
        raise BadOption(
            f"-e {name}: its value looks like a secret, which comes with the job; but there {name} is read by others.",
            "Under another name:\n    ngcdl run ... -e MY_SECRET -- COMMAND",
        )
    return True


def _task(order: Order, is_kept: bool) -> runners.Task:
    spec, placement = order.spec, order.spec.placement or Placement()
    for mount in spec.mounts:
        if mount.is_volume:
            raise PathUnfit(mount.host, "a volume of Docker is on one machine alone")
    own = [m for m in spec.mounts if _is_own(m) and m.container != TRAINER]
    mounts = [Mount(_own_path(m), _own_path(m), m.writable) for m in own]
    mounts += [Mount(_fit(m.host), _fit(m.container), m.writable) for m in spec.mounts if not _is_own(m)]
    gpus = _gpus(spec)
    secrets = tuple(name for name, value in spec.environment if _is_secret(name, value))
    after = ""
    if spec.workload:
        after = ' --samples "$SLURMD_NODENAME"' + (" --record" if is_kept else "")
    return runners.Task(
        runner=placement.container or "pyxis",
        image=order.target,
        mounts=tuple(mounts),
        gpus=gpus,
        variables=tuple((name, value) for name, value in spec.environment if name not in secrets),
        secrets=secrets,
        user=spec.user,
        workdir=None if spec.workload else spec.workdir,
        shm_bytes=spec.shm_bytes,
        ulimits=spec.ulimits,
        images=placement.images and _fit(placement.images),
        after=after,
        is_training=spec.workload is not None,
    )


def _is_own(mount: Mount) -> bool:
    return mount.container.startswith(_OWN)


def _own_path(mount: Mount) -> str:
    """What ngcdl itself mounts is seen under its own path: then a task is the same, whatever runs the image."""
    return _fit(mount.host)


def _command(order: Order) -> str:
    """Give the command's words for a shell, with ngcdl's own folders by their paths on the nodes."""
    known = {mount.container: _own_path(mount) for mount in order.spec.mounts if _is_own(mount)}
    return " ".join(
        '"$RUN"' if word == RUN_FOLDER else shlex.quote(known.get(word, word)) for word in order.spec.command
    )


def _fit(path: object) -> str:
    """Give a path as it is. Raises PathUnfit where an option would take a part of it for something else."""
    text = str(path)
    if not _PATH.fullmatch(text):
        raise PathUnfit(text, "only letters, digits and @ % + = . / ~ _ - can stand in it")
    return text
