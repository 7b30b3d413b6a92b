"""`ngcdl doctor`: shows the chain on the screen, as JSON or in an archive for a report, and runs its remedies."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ngcdl import console, settings
from ngcdl.command_lines import typable
from ngcdl.doctor import chain
from ngcdl.doctor.chain import Finding
from ngcdl.doctor.links import gpu_way
from ngcdl.errors import BadOption
from ngcdl.terminal_text import plain
from ngcdl.there import exists

_MARKS = {"ok": "ok", "warning": "WARN", "broken": "BROKEN", "unchecked": "-"}
# Only what asks for attention, and in colours that can be read on a light terminal too, as yellow and green can't.
_COLOURS = {"warning": "35", "broken": "31", "unchecked": "2"}
# `doctor` starts no container, so only this command shows that GPUs work inside one.
_PROOF = "    ngcdl run --train smoke --gpus 1"
_WIDEST = 120  # longer lines are hard to read


def doctor(fix: bool = False, json: bool = False, bundle: str | None = None) -> int:
    """Check the whole chain; return 1 if a link is broken, else 0. Raise BadOption."""
    from ngcdl.doctor import look

    if fix and json:
        raise BadOption("--fix asks questions, and --json answers a program: use only one.")
    file = settings.expanded(bundle) if bundle is not None else None
    try:
        is_there = file is not None and exists(file)  # checked before the examination, which takes seconds
    except OSError as error:
        raise BadOption(f"--bundle {file}: it can't be written: {error.strerror}.") from error
    if is_there:
        raise BadOption(f"--bundle {file}: it already exists, and is left as it is.")
    findings: Sequence[Finding] = chain.examine(look.gather())
    if json:
        console.result_json(chain.document(findings))
    else:
        in_colour = console.on_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
        width = min(console.columns(sys.stdout) or _WIDEST, _WIDEST)
        console.result(screen(findings, width, in_colour=in_colour), styled=in_colour)
    if file is not None:
        _bundle(file, findings)
    if fix:
        findings = _mend(findings)
    return int(any(finding.state == "broken" for finding in findings))


# -- on the screen ----------------------------------------------------------------------------------------------------


def screen(findings: Sequence[Finding], width: int, *, in_colour: bool = False) -> str:
    """Return a line per link, with the cause, if any, and what to type below it. The summary comes last."""
    lines = [line for finding in findings for line in _lines(finding, width, in_colour=in_colour)]
    return "\n".join([*lines, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    worst = [finding for state in ("broken", "warning") for finding in findings if finding.state == state]
    broken = sum(finding.state == "broken" for finding in findings)
    unchecked = sum(finding.state == "unchecked" for finding in findings)
    more = f", {unchecked} not checked" if unchecked else ""
    passes_gpus = any(finding.name == gpu_way.NAME and finding.state == "ok" for finding in findings)
    proof = f"\nTo see a GPU compute in a container:\n{_PROOF}" if passes_gpus and not broken else ""
    if not worst:
        return f"All is well: {len(findings) - unchecked} ok{more}.{proof}"
    warnings = len(worst) - broken
    said = f"{broken} broken, {warnings} warning{'' if warnings == 1 else 's'}{more}; first: {worst[0].name}"
    steps = sorted(worst[0].remedy, key=lambda step: step.by_hand)  # a step that repairs, before one that only inspects
    step = next((step.command for step in steps), None)
    return said + (f"\n    {plain(step)}" if step else "") + proof


def _lines(finding: Finding, width: int, *, in_colour: bool) -> list[str]:
    mark = f"{_MARKS[finding.state]:<7}"
    found = f"not checked: {finding.found}" if finding.state == "unchecked" else finding.found
    first, *rest = _filled(f"{mark}{finding.name:<14} {plain(found)}", width, 22)
    if in_colour and finding.state in _COLOURS:
        first = f"\x1b[{_COLOURS[finding.state]}m{mark}\x1b[0m{first[len(mark) :]}"
    lines = [first, *rest]
    if finding.cause:
        cause = typable(plain(finding.cause))  # before it is filled: ./scripts/ngcdl is longer
        ended = cause if cause.endswith((".", ":")) else f"{cause}."
        lines += _filled(" " * 7 + ("hint: " if finding.state == "ok" else "") + ended, width, 7)
    lines += [f"{' ' * 11}{plain(step.command)}" for step in finding.remedy]
    if finding.source and finding.state != "ok":
        lines.append(f"{' ' * 7}{finding.source}")
    return lines


def _filled(text: str, width: int, indent: int) -> list[str]:
    """Wrap between words; a single word, such as a path, stays whole."""
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True, replace_whitespace=False,
    ) or [text]  # fmt: skip


# -- the archive and the remedies -------------------------------------------------------------------------------------


def _bundle(file: Path, findings: Sequence[Finding]) -> None:
    from ngcdl.doctor import bundle
    from ngcdl.doctor.hands import Hands

    members = bundle.write(file, chain.document(findings), Hands())
    console.say(f"{file} holds {', '.join(members)}.")
    console.say("Keys, passwords, your name, your home and this host's name were taken out; look before you send it.")


def _mend(findings: Sequence[Finding]) -> Sequence[Finding]:
    from ngcdl.cli import terminal
    from ngcdl.doctor import look
    from ngcdl.doctor.mend import Mender

    if not any(finding.remedy for finding in findings if finding.state in ("broken", "warning")):
        console.say("--fix: there is nothing that a command could fix.")
        return findings
    if not terminal.is_here():
        console.say("--fix asks before each command, and there is no terminal to ask on: nothing was run.")
        return findings

    def ask(command: str) -> bool:
        return terminal.agreed(f"    {plain(command)}\n    Run it?")

    mender = Mender(console.result, ask, _run, lambda: chain.examine(look.gather()))
    findings = mender.mend(findings)
    console.result(summary(findings))
    return findings


def _run(command: str) -> int:
    """Run a remedy as shown, in a shell on this terminal: sudo may ask for a password."""
    return subprocess.run(["sh", "-c", command], check=False).returncode
