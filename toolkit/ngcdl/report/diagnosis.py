"""Why a run failed, as far as what it wrote tells: a famous failure in its log, with cause and remedy, on its record.

Nothing of the log itself is taken over: a line of it may hold anything, a password too. What is kept is the table's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ngcdl.catalog import failures
from ngcdl.catalog.failures import Failure, Recognised
from ngcdl.folder import opened
from ngcdl.record import Diagnosis, Run

# A banner and the start are in the head, a traceback is in the tail.
HEAD_BYTES, TAIL_BYTES = 256 << 10, 64 << 10


def diagnosed(run: Run, log: Path, error: str = "") -> Run:
    """Give `run`, which has ended, with what is recognised in `log` or in `error`, the message that ended it.

    Of a run that ended well only what it should be told all the same. A log that can't be read tells nothing.
    """
    text = f"{_ends(log)}\n{error}"
    if run.exit_code in (0, None) and not text.strip():
        return run
    among = [failure for failure in failures.table() if _counts(failure, run)]
    found = failures.recognise(text, among) or _by_exit_code(run.exit_code, among)
    if not found:
        return run
    failure = found.failure
    known = Diagnosis(failure.name, found.text, failure.cause, failure.remedy, failure.source, failure.confidence)
    return replace(run, diagnosis=known)


def told(diagnosis: Diagnosis) -> str:
    """Say it: the words, the cause, and the remedy below them, two blanks in."""
    doubt = " (from memory; it was read nowhere)" if diagnosis.confidence == "recalled" else ""
    head = f'recognised "{diagnosis.text}"{doubt}: {diagnosis.cause}'
    return "\n".join([head, *(f"  {line}" for line in (diagnosis.remedy or "").splitlines())])


def _counts(failure: Failure, run: Run) -> bool:
    has_asked = run.gpu_way not in (None, "none") or bool(run.gpus)
    if run.status == "finished":
        return failure.matters_at_exit_0 and has_asked
    return failure.rank != "harmless" and (has_asked or not failure.needs_gpu)


def _by_exit_code(code: int | None, among: list[Failure]) -> Recognised | None:
    for failure in among:
        if code is not None and failure.exit_code == code:
            return Recognised(failure, f"exit code {code}")
    return None


def _ends(log: Path) -> str:
    """Give head and tail of `log` as text; "" where it is none."""
    try:
        with opened(log) as file:
            head = file.read(HEAD_BYTES)
            tail_at = max(HEAD_BYTES, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(tail_at)
            between = b"\n" if tail_at > HEAD_BYTES else b""
            return (head + between + file.read(TAIL_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
