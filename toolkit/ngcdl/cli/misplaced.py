"""A command where it does not belong: in an image's place, without --, or beside --train. Names the lines to type."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ngcdl import trainings
from ngcdl.catalog import releases
from ngcdl.cli import served
from ngcdl.cli.typed import STARTERS, Typed, again, of_a_training, own_end, start_of, words_of
from ngcdl.errors import BadOption
from ngcdl.spec import redacted_words

# Programs that a host may lack while an image has them; others are known by being on PATH.
_OF_IMAGES = ("accelerate", "deepspeed", "jupyter", "jupyter-lab", "python")


def error(typed: Typed) -> BadOption:
    """Return the error for a command that is misplaced."""
    if typed.image and (start := start_of(typed.image)):
        return BadOption(_no_image(typed.image), _as_command(typed, start))
    words = " ".join(redacted_words(typed.stray))
    if typed.train and typed.stray and all(one.partition(":")[0] in releases.frameworks() for one in typed.stray):
        known = trainings.find(typed.train)
        hint = f"To compare several:\n{again(['compare', *sys.argv[2:]])}" if known and known.parameters else ""
        return BadOption(f"{words}: a run has one image.", hint)
    if typed.train:
        return _beside_training(typed)
    if typed.image and is_program(typed.image):
        return BadOption(_no_image(typed.image), _as_command(typed, [typed.image]))
    return BadOption(f"{words}: the command goes after --, ngcdl's own options before it.", _reached(_parted(typed)))


def no_image(name: str, start: Sequence[str], command: str) -> BadOption:
    """Return the error for `name`, typed as an image for `command`, which is a file or a program, begun by `start`."""
    return BadOption(_no_image(name), either([command], (), start))


def _no_image(name: str) -> str:
    return f"{name} is a {'file here' if Path(name).is_file() else 'program'}, not an image."


def is_program(word: str) -> bool:
    return word in _OF_IMAGES or bool(shutil.which(word))


def _on_host(command: Sequence[str]) -> list[str]:
    return ["python3" if command[0] == "python" else command[0], *command[1:]]  # Debian has no python


def _as_command(typed: Typed, start: Sequence[str]) -> str:
    """Return the lines that run the file or program that was typed where an image belongs: in an image, and on this
    host."""
    words, name = sys.argv[1:], str(typed.image)
    end = own_end(words)
    rest = [*words[:end], *words[end + 1 :]]
    if name not in words[:end]:  # argv belongs to a program that embeds ngcdl
        rest, end = ["run", name, *typed.stray, *typed.command], 2
    at = rest.index(name)
    first = rest.index(typed.stray[0], at + 1) if typed.stray else end
    options, command = rest[at + 1 : first], [*start, *rest[first:]]
    if Path(name).is_absolute() or ".." in Path(name).parts:  # a container gets only this folder
        return again([*rest[:at], *options, "--", *_on_host(command)])
    return either(rest[:at], options, command)


def either(before: Sequence[str], options: Sequence[str], command: Sequence[str]) -> str:
    """Return the lines that run `command` in an image, which stands between `before` and `options`, and here."""
    in_an_image = _reached([*before, "pytorch", *options, "--", *command])
    return f"{in_an_image}\nOn this host, without an image:\n{again([*before, *options, '--', *_on_host(command)])}"


def _reached(words: list[str]) -> str:
    """Return the line of a run in an image; a server that its command starts can be reached."""
    return again(served.reachable(words) or words)


def _parted(typed: Typed) -> list[str]:
    """Return the line that was typed, with -- where the command begins: after the image, or before a program that was
    taken for an image. A script gets its interpreter."""
    words = sys.argv[1:]
    if "--" in words:
        words.remove("--")
    try:
        at = words.index(typed.stray[0], words.index(typed.image or "") + 1)
    except ValueError:  # argv belongs to a program that embeds ngcdl
        words, at = ["run", typed.image or "IMAGE", *typed.stray, *typed.command], 2
    if typed.image and is_program(typed.image):
        at = words.index(typed.image)
    starter = STARTERS.get(Path(words[at]).suffix)
    return [*words[:at], "--", *([starter] if starter else []), *words[at:]]


def _beside_training(typed: Typed) -> BadOption:
    """Return the error for a command beside --train: either can run, and a training's options need no --."""
    from ngcdl.cli.changed import replaced

    words = _parted(typed) if typed.stray else words_of(typed)
    at = words.index("--")
    own, command = words[:at], words[at + 1 :]
    if command[0].startswith("-"):
        hint = f"Its own options need no --:\n{again([*own, *command])}"
    else:
        hint = f"The training:\n{again(own)}"
        without = replaced(own, "--train", lambda _: (), has_value=True)
        if without and "--vary" not in own and not of_a_training(typed):
            is_in_an_image = typed.image and typed.image not in command
            hint += f"\nThe command:\n{again([*without, '--', *(command if is_in_an_image else _on_host(command))])}"
    return BadOption("--train runs a bundled training: no command can follow --.", hint)
