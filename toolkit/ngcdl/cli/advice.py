"""Adds to errors the line that was typed, changed so that it works: lower floors don't know what was typed."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from ngcdl.cli.typed import Typed, again, own_end, words_of
from ngcdl.errors import BadOption, CannotInvoke, CommandNotFound, EngineAbsent, UnknownTag
from ngcdl.planning.asked import (
    Asked,
    card_variables,
    container_options,
    why_no_card_variables,
    why_no_container_options,
)
from ngcdl.planning.validation import check_place
from ngcdl.preflight.meant import is_open
from ngcdl.spec import KINDS, Workload, kind_of

# Shell builtins whose work no program can do, each with the simplest shell that has it.
_OF_SHELLS = {
    **dict.fromkeys(("cd", "export", "alias", "unset", "set", ".", "eval", "exec", "ulimit", "umask"), "sh"),
    **dict.fromkeys(("source", "pushd", "shopt"), "bash"),
}

_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


@contextlib.contextmanager
def advised(typed: Typed, asked: Asked) -> Iterator[None]:
    """Raise BadOption if a command on this host has an option for containers. If the command's program is not found or
    can't be invoked, or there is no Docker, add the line to type to that error."""
    is_here = asked.own is not None and not asked.image
    is_one = sys.argv[1:2] != ["compare"]  # whose images may be several
    if is_here:
        _check(typed, asked)
    try:
        yield
    except (CannotInvoke, CommandNotFound) as error:
        if is_here and (hint := _instead(typed.command)):
            error.hint = hint
        raise
    except EngineAbsent as error:
        if not (kind_of(typed.engine).is_cluster or container_options(asked) or card_variables(asked)):
            if typed.command and typed.image:
                error.leads_on(_on_this_host(typed))
            elif asked.workload and is_one and _trains_here(asked.workload):
                less = f"  # without {typed.image}" if typed.image else ""
                error.leads_on(f"    ngcdl ... --engine local{less}")
        raise
    except UnknownTag as error:
        if error.nearest and is_one and (asked.image is None or is_open(asked.image)):
            error.leads_on(_with_tag(typed, error.nearest[0], error.name))
        raise


def _trains_here(workload: Workload) -> bool:
    """Return whether this host's own Python, which has TensorFlow, can run a training."""
    with contextlib.suppress(BadOption):
        check_place(workload, None, workload.device)
        return True
    return False


def _check(typed: Typed, asked: Asked) -> None:
    """Raise BadOption if the command has an option for containers, or sets a variable that --gpus sets."""
    words = words_of(typed)
    if stray := container_options(asked):
        said = why_no_container_options(stray)
        if stray == ["-w"] and typed.workdir:
            line = again(_without(words, ("-w", "--workdir"), typed.workdir)).strip()
            raise BadOption(said, f"    cd {shlex.quote(typed.workdir)} && {line}")
        name, *more = _without(words, ("--engine", "--engine"), typed.engine)
        raise BadOption(said, f"In an image:\n{again([name, 'pytorch', *more])}")
    if names := card_variables(asked):
        chosen = dict(asked.extra.environment if asked.extra else ()).get("CUDA_VISIBLE_DEVICES")
        for text in typed.environment:
            if text.partition("=")[0] in names:
                words = _without(words, ("-e", "--env"), text)
        if chosen is not None and typed.gpus == "auto":
            words[1:1] = _gpus(chosen, words[0])
        raise BadOption(why_no_card_variables(names), again(words))


def _gpus(visible: str, command: str) -> list[str]:
    """Return the --gpus option that has the same effect as CUDA_VISIBLE_DEVICES=`visible`."""
    if visible.strip() in ("", "-1"):
        return [] if command == "compare" else ["--gpus", "none"]  # its CPU arm has no GPU anyway
    return ["--gpus", f"{visible}," if visible.isdecimal() else visible]


def _without(words: Sequence[str], names: tuple[str, str], value: str) -> list[str]:
    """Return `words` without the option `names` that has `value`, in whatever form it was typed."""
    short, long = names
    at = words.index("--")
    for index, word in enumerate(words[:at]):
        if word in names and words[index + 1] == value:
            return [*words[:index], *words[index + 2 :]]
        if word in (f"{short}{value}", f"{short}={value}", f"{long}={value}"):
            return [*words[:index], *words[index + 1 :]]
    return list(words)


def _on_this_host(typed: Typed) -> str:
    """Return the line that was typed, without its image."""
    words = _without(words_of(typed), ("--engine", "--engine"), typed.engine)
    if typed.image in words[: words.index("--")]:
        words.remove(typed.image)
    else:  # a project's settings name the image
        words[1:1] = ["--engine", next(name for name, kind in KINDS.items() if not kind.has_containers)]
    return again(words)


def _with_tag(typed: Typed, tag: str, name: str) -> str:
    """Return the line that was typed, with the image `name` and its `tag` where the tag was left to ngcdl."""
    words = sys.argv[1:]
    if typed.image in words[: own_end(words)]:
        words[words.index(typed.image)] = f"{typed.image}:{tag}"
    else:  # the image is a project's, or the default one
        words[1:1] = [f"{name}:{tag}"]
    return again(words)


def _instead(command: Sequence[str]) -> str:
    """Return what to type instead of a command whose program can't be started; "" if that is unknown."""
    word, *rest = command
    words = words_of(Typed(command=tuple(command)))
    head = words[: words.index("--") + 1]
    if not rest and any(letter.isspace() for letter in word.strip()):
        return f"A whole line is for a shell:\n{again([*head, 'sh', '-c', word])}"
    if shell := _OF_SHELLS.get(word):
        line = again([*head, shell, "-c", shlex.join(command)])
        return f"{word} is a word of the shell's own, so a shell must run it:\n{line}"
    variables = list(takewhile(_VARIABLE.match, command))
    if variables and (rest := list(command[len(variables) :])):
        options = [text for variable in variables for text in ("-e", variable)]
        return f"A variable for the command goes before --:\n{again([*head[:-1], *options, '--', *rest])}"
    runner = {".py": ["python3"], ".sh": ["sh"]}.get(Path(word).suffix, [])
    if os.sep in word and runner and _is_file(word) and not os.access(word, os.X_OK):
        return f"{word} is not executable:\n{again([*head, *runner, word, *rest])}"
    if word == "python" and not shutil.which(word) and shutil.which("python3"):  # as on Debian
        return f"python3 is here:\n{again([*head, 'python3', *rest])}"
    if os.sep not in word and not shutil.which(word) and _is_file(word):
        words = [f"./{word}"] if os.access(word, os.X_OK) or not runner else [*runner, word]
        return f"{word} is in this folder, where programs are not looked for by name:\n{again([*head, *words, *rest])}"
    return ""


def _is_file(word: str) -> bool:
    """Return whether this folder has a file of that name; False if it may not be entered, or the name is too long."""
    return os.access(word, os.F_OK) and Path(word).is_file()
