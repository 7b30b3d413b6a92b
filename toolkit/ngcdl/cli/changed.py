"""Writes out advice such as `ngcdl run ... --gpus none`, or `ngcdl run docker.io/ubuntu:latest` where ubuntu was typed:
as the whole line that was typed, with that change.

`ngcdl ... --steps 9  # without --epochs N --amp` leaves options out, and stands for the command that was typed; if that
has no such option, nothing is advised.
`ngcdl ... --batch 2  # without --batch 1` also replaces 1 by 2 in `--vary batch=1,8`.
`ngcdl ... pytorch  # without nvcr.io/nvidia/tensorflow:24.05-tf2-py3` replaces the image that was chosen.
`ngcdl run ... -- sh -c x` replaces the command; only `-- COMMAND` stands for the one that was typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ngcdl.cli.typed import again, own_end
from ngcdl.record import Run
from ngcdl.report.measured import retyped

# Options of `compare` that `run` lacks.
OF_COMPARE = ("--vary", "--scaling", "--repeat")
# Options that add up if given twice, so that advice does not say which of the typed ones it replaces; with other names.
_ADD_UP = {"-v": "--volume", "-e": "--env", "-p": "--publish", "--pip": "--pip", "--ulimit": "--ulimit"}
_ADVISED = re.compile(
    r"(?P<before> +(?:(?:\w+=|timeout )\S+ )?)ngcdl (?:(?P<command>\w+) )?\.\.\."
    r"(?P<change>[^#]*)(?:# without (?P<less>.+))?"
)
_VARIED = re.compile(r"--vary[ =](\w+)=(\S*)")
_ELSEWHERE = re.compile(r" +ngcdl run (?P<image>\S+)")


def written_out(hint: str, argv: Sequence[str]) -> str:
    """Return `hint` with each line that abbreviates `argv` by `...`, or names its image in full, written out."""
    lines = [(line, _elsewhere(line, argv) or _line(line, argv)) for line in hint.split("\n")]
    return "\n".join(now for line, now in lines if now or not line)


def as_typed(run: Run, argv: Sequence[str]) -> Run:
    """Return `run` with the advice of its record written out: as `argv`, with the change, if that started the run, else
    as a line that requests the run."""
    if argv[:1] != ["run"]:
        line = retyped.command(replace(run, image=replace(run.image, digest=None)))  # by its tag
        argv = shlex.split(line)[1:] if line else []
    found = tuple(replace(one, advice=one.advice and written_out(one.advice, argv)) for one in run.findings or ())
    known = run.diagnosis and replace(run.diagnosis, remedy=written_out(run.diagnosis.remedy or "", argv))
    return replace(run, findings=run.findings and found, diagnosis=known)


def replaced(
    argv: Sequence[str], name: str, by: Callable[[str], Sequence[str]], *, has_value: bool
) -> list[str] | None:
    """Return `argv` with the option `name` and its value replaced by the words that `by(value)` returns; None if no
    word of `argv` is that option. If not `has_value`, the value is "" unless it was typed after =."""
    end = own_end(argv)
    for at, word in enumerate(argv[:end]):
        own, _, value = word.partition("=")
        if own == name:
            is_apart = has_value and own == word and at + 1 < end and not argv[at + 1].startswith("-")
            return [*argv[:at], *by(argv[at + 1] if is_apart else value), *argv[at + 1 + is_apart :]]
    return None


def positions(command: Any, words: Sequence[str]) -> Iterator[int]:
    """Yield the indices of the words that are neither options of `command`, which is typer's, nor their values."""
    valued = {name for one in command.params if not getattr(one, "is_flag", True) for name in one.opts}
    is_value = False
    for at, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            yield at
        is_value = not is_value and word in valued


def _command(name: str) -> Any:
    """Return typer's command; None if there is none, as in the argv of a program that embeds ngcdl."""
    from typer.main import get_command

    from ngcdl.cli.app import app

    command: Any = get_command(app)
    return command.commands.get(name)


def _elsewhere(line: str, argv: Sequence[str]) -> str | None:
    """Return `argv` with the image that `line` advises in place of the typed one, which had no tag or no registry; None
    if `line` advises something else."""
    advised = _ELSEWHERE.fullmatch(line)
    if not advised or argv[:1] not in (["run"], ["compare"], ["check"], ["pull"]):
        return None
    for at, word in enumerate(argv[: own_end(argv)]):
        if advised["image"] in (f"{word}:latest", f"docker.io/{word}", f"docker.io/{word}:latest"):
            return again([*argv[:at], advised["image"], *argv[at + 1 :]])
    return None


def _line(line: str, argv: Sequence[str]) -> str:
    """Return `line` written out; as it is, or without what it leaves out, if it can't be; "" if the typed command has
    no such option."""
    advised = _ADVISED.fullmatch(line)
    if not advised or not argv:
        return line
    try:
        change, less = (shlex.split(advised[name] or "") for name in ("change", "less"))
    except ValueError:  # the line is part of one: a word in it has a newline
        return line
    has_command, at = change[-2:] == ["--", "COMMAND"], own_end(argv)
    typed, command = argv[1:at], argv[at:]
    name = advised["command"] or argv[0]
    is_alone = (argv[0], name) == ("compare", "run") and has_command and command
    if has_command:
        command, change = command if command[1:] else change[-2:], change[:-2]
    elif "--" in change:
        command, change = change[own_end(change) :], change[: own_end(change)]
    if is_alone:
        for option in OF_COMPARE:
            typed = _without(typed, option, has_value=True)
    varies = "--vary" not in change and _varies(typed, change, less)
    if varies and (others := _with_another_value(argv, change, less)):
        return f"{advised['before']}{again(others).strip()}"
    as_it_is = line.partition("# without ")[0].rstrip()
    adding_up = tuple(part for word in change if word in _ADD_UP for part in (word, _ADD_UP[word]))
    if not (argv[0] == name or is_alone) or any(word.startswith(adding_up) for word in typed):
        return as_it_is
    if varies:
        return as_it_is if change or not less else "Leave it out."
    its = _command(argv[0])
    if its is None:
        return line
    takes = {option for one in its.params for option in (*one.opts, *one.secondary_opts)}
    if not (advised["command"] or takes.issuperset(word for word in change if word.startswith("-"))):
        return ""
    return f"{advised['before']}{again([name, *_merged(its, typed, change, less), *command]).strip()}"


def _merged(its: Any, typed: Sequence[str], change: Sequence[str], less: Sequence[str]) -> list[str]:
    """Return `typed`, the words of typer's command `its`, with the options and the image of `change` in place of its
    own, and without those of `less`."""
    for option, value in pairwise([*less, "-", *change, "-"]):
        if option.startswith("-"):
            typed = _without(typed, option, has_value=not value.startswith("-"))
    new, change = (change[:1], change[1:]) if change and not change[0].startswith("-") else ([], change)
    typed = _with_image(its, typed, new, "" if not less or less[0].startswith("-") else less[0])
    if "--gpus" in change:
        typed = _choosing_no_cards(typed)
    if {"none", "cpu"}.intersection(change):
        typed = _without(typed, "--wait", has_value=False)  # nobody waits for no GPU
    return [*typed, *change]


def _with_image(its: Any, typed: Sequence[str], new: Sequence[str], old: str) -> list[str]:
    """Return `typed`, the words of typer's command `its`, without the image `old`, but with the `new` one, if any."""
    places = list(positions(its, typed))
    left_out = [at for at in places if _means(typed[at], old)]
    words = [word for at, word in enumerate(typed) if at not in left_out]
    if not {typed[at].partition(":")[0] for at in places}.issuperset(new):
        at = left_out[0] if left_out else len(words) if its.name == "suite" else 0  # suite's first word is no image
        words[at:at] = new
    return words


def _means(word: str, image: str) -> bool:
    """Return whether `word` is a short form of the full name of `image`, or that name."""
    return re.search(rf"(^|/){re.escape(word)}(:|@|$)", image) is not None


def _varies(words: Sequence[str], change: Sequence[str], less: Sequence[str]) -> bool:
    """Return whether `words` vary what `change` would set, or what is to be left out."""
    found = _VARIED.search(" ".join(words))
    if not found:
        return False
    sets_image = change and not change[0].startswith("-")
    return found[1] in ("image", "framework") if sets_image else f"--{found[1]}" in (*change, *less)


def _with_another_value(argv: Sequence[str], change: Sequence[str], less: Sequence[str]) -> list[str] | None:
    """Return `argv` with the value in `change` in place of the one in `less` among those that --vary has; None if it
    has no such value, or would have two alike. An image stands for itself, any other value follows its option."""
    found = _VARIED.search(" ".join(argv))
    if not found or not (len(change) == len(less) == (1 if found[1] == "image" else 2)):
        return None
    values, old, new = found[2].split(","), less[-1], change[-1]
    is_old = _means if found[1] == "image" else str.__eq__
    others = [new if is_old(value, old) else value for value in values]
    if others == values or any(one != new and _means(one, new) for one in others) or len({*others}) < len(others):
        return None
    return replaced(argv, "--vary", lambda _: ["--vary", f"{found[1]}={','.join(others)}"], has_value=True)


def _choosing_no_cards(words: Sequence[str]) -> list[str]:
    """Return `words` without --device and CUDA_VISIBLE_DEVICES, which may contradict a new --gpus."""
    kept: list[str] = []
    for word in _without(words, "--device", has_value=True):
        if re.match(r"(-e=?|--env=)?CUDA_VISIBLE_DEVICES=", word):
            if kept and kept[-1] in ("-e", "--env"):
                kept.pop()
        else:
            kept.append(word)
    return kept


def _without(words: Sequence[str], name: str, *, has_value: bool) -> list[str]:
    kept, rest = [], iter(words)
    for word in rest:
        if word == name:
            if has_value:
                next(rest, None)
        elif re.fullmatch("-[dit]+", word) and not has_value and len(name) == 2:  # -it, as docker's users type it
            kept += [word.replace(name[1], "")] if set(word[1:]) != {name[1]} else []
        elif not word.startswith(name if has_value and len(name) == 2 else f"{name}="):
            kept.append(word)
    return kept
