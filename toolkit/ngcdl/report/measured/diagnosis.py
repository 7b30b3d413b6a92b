"""Why a run failed, as far as its output shows: a well-known failure in its log, recorded with cause and remedy.

Nothing of the log itself is copied, as a line may contain anything, even a password. Only the table's texts are kept.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ngcdl.catalog import failures
from ngcdl.catalog.failures import Failure, Recognised
from ngcdl.folder import opened
from ngcdl.record import Diagnosis, Run
from ngcdl.report.measured.case import shares_memory

# The banner and the start are in the head, a traceback is in the tail.
HEAD_BYTES, TAIL_BYTES = 256 << 10, 64 << 10
# The line of a node that goes on without a limit it refused (engines/slurm/memlock.sh), and the words of the refusals
# that this line settles.
_SETTLED = "forbids --ulimit memlock="
_REFUSED = ("rlimit type 8", "RLIMIT_MEMLOCK")


def diagnosed(run: Run, log: Path, error: str = "") -> Run:
    """Return `run`, which has ended, with what is recognised in `log`, in `error`, the message that ended it, or in a
    command's own reason. A training's findings say what its reason means.

    For a run that succeeded, only failures that matter even then count. An unreadable log counts as empty.
    """
    text = "\n".join([_unsettled(_ends(log)), error, "" if run.workload else run.reason or ""])
    if run.exit_code in (0, None) and not text.strip():
        return run
    among = [failure for failure in failures.table() if _counts(failure, run)]
    found = failures.recognise(text, among) or _by_exit_code(run.exit_code, among)
    if not found:
        return run
    failure = found.failure.about(words_about(run))
    known = Diagnosis(failure.name, found.text, failure.cause, failure.remedy, failure.source, failure.confidence)
    return replace(run, diagnosis=known)


def as_text(diagnosis: Diagnosis) -> str:
    """Return the recognised words and the cause, and below them the remedy, indented by two spaces."""
    doubt = " (from memory, not from a source)" if diagnosis.confidence == "recalled" else ""
    head = f'recognised "{diagnosis.text}"{doubt}: {diagnosis.cause}'
    return "\n".join([head, *(f"  {line}" for line in (diagnosis.remedy or "").splitlines())])


def words_about(run: Run) -> frozenset[str]:
    """Describe `run` in the catalogue's words (failures.WORDS)."""
    words = {
        "training" if run.workload else "command",
        "image" if run.kind.has_containers else "host",
        "cluster" if run.kind.is_cluster else "here",
        "folders" if run.kind.shares_files else "claims",
    }
    has_asked = run.gpu_way not in (None, "none") or bool(run.gpus)
    words |= {"unified"} if shares_memory(run) else set()
    return frozenset(words | ({"gpu" if has_asked else "cpu"}))


def _counts(failure: Failure, run: Run) -> bool:
    about = words_about(run)
    matters = failure.matters_at_exit_0 and "gpu" in about if run.status == "finished" else failure.rank != "harmless"
    return matters and about.issuperset(failure.needs)


def _by_exit_code(code: int | None, among: list[Failure]) -> Recognised | None:
    known = (failure for failure in among if code is not None and failure.exit_code == code)
    return next((Recognised(failure, f"exit code {code}") for failure in known), None)


def _unsettled(text: str) -> str:
    """Return `text` without the refusals of a limit, if the container then ran without this limit."""
    if _SETTLED not in text:
        return text
    return "\n".join(line for line in text.split("\n") if not any(words in line for words in _REFUSED))


def _ends(log: Path) -> str:
    """Return head and tail of `log` as text; "" if it can't be read."""
    try:
        with opened(log) as file:
            head = file.read(HEAD_BYTES)
            tail_at = max(HEAD_BYTES, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(tail_at)
            between = b"\n" if tail_at > HEAD_BYTES else b""
            return (head + between + file.read(TAIL_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
