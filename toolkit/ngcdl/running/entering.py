"""Enters a run: starts a command in its container, beside its own."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.engines.base import Enterable, EnteredBy, Visit
from ngcdl.errors import NotEntered
from ngcdl.record import Run
from ngcdl.running.recorded_job import job_of
from ngcdl.spec import redacted_words

# A shell, where none is named: bash, if the image has it.
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


def entered(run: Run, command: Sequence[str], tty: bool) -> Visit:
    """Start `command`, or a shell, in the container of `run`. Raise NotEntered, with what to type instead, RunOnHost,
    RunElsewhere or EngineError."""
    if run.status != "running":
        raise NotEntered(run.id, "it has ended.")
    if run.is_waiting:
        raise NotEntered(run.id, f"it has not started: {run.reason}")
    if not run.kind.has_containers:
        watch = f"    ngcdl show {run.id} --watch 1"
        raise NotEntered(run.id, "it has no container. What looks into it runs on its host, as the run does.", watch)
    if run.owner is None and not run.kind.is_cluster:
        hint = "With Docker Compose, where it was started:\n    docker compose ps\n    docker compose exec SERVICE bash"
        raise NotEntered(run.id, f"{run.engine} started it, not ngcdl.", hint)
    job = job_of(run, "exec")
    if isinstance(job, EnteredBy):
        raise NotEntered(
            run.id,
            "only the cluster's own program starts commands there.",
            job.way_in(redacted_words(tuple(command)) or ("bash",), run.placement),
        )
    if job is None or job.ended() or not isinstance(job, Enterable):
        raise NotEntered(run.id, "its container does not run, or not yet.")
    return job.enter(command or SHELL, tty)
