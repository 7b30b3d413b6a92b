"""What people type out of habit from other tools, and the lines that do it here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ngcdl import console
from ngcdl.errors import BadOption

# Options of `docker run`, which ngcdl lacks, with what takes their place.
_DOCKERS = {
    "--ipc": "the container has its own /dev/shm, whose size --shm-size sets (1g)",
    **dict.fromkeys(("--net", "--network"), "the container has the engine's own network, and -p publishes a port"),
    "--name": "a run's name is its id",
    "--user": "the container runs as you, or, with --root, as the image's own user",
    "--env-file": "-e NAME=VALUE sets each variable",
    "--entrypoint": "the image's own entrypoint starts the command after --",
    "--privileged": "the container gets the GPUs that --gpus asks for, and no further rights",
}
# What other tools call a command, with the lines that do it here. {} is what was typed after the word, or _TYPICAL.
_OTHERS = {
    **dict.fromkeys(("ps", "ls", "list"), "    ngcdl runs"),
    **dict.fromkeys(("top", "stats", "smi", "nvidia-smi"), "    ngcdl gpu --watch 1"),
    "version": "    ngcdl --version",
    "help": "    ngcdl --help",
    "train": "    ngcdl run --train {}",
    "start": "    ngcdl run {}",
    "inspect": "    ngcdl show {}",
    "kill": "    ngcdl stop {}",
    **{word: f"    ngcdl runs {word} {{}}" for word in ("rm", "diff", "replay", "import")},
    "exec": "In a run's container, by the run's id:\n    ngcdl runs\n    docker exec -it ngcdl-RUN bash",
    **dict.fromkeys(
        ("jupyter", "notebook"),
        "    ngcdl run pytorch -p 127.0.0.1:8888:8888 -- jupyter lab --ip=0.0.0.0 --no-browser",
    ),
}
_TYPICAL = {
    "train": "cifar10",
    "start": "--train cifar10",
    **dict.fromkeys(("inspect", "kill", "replay"), "last"),
    "rm": "RUN",
    "diff": "last-1 last",
    "import": "FILE.tar",
}
# How `docker login`, and other tools, take a key or a user's name.
_OF_A_KEY = ("-p", "--password", "--key", "--api-key", "--token")
_OF_A_USER = ("-u", "--username", "--user")
_OF_THE_NEWEST = re.compile(r"(?:-n|--tail|--lines)[ =]?(\d{1,9})(?!\S)")
_LISTED = 20  # runs that `ngcdl runs` lists without --all


def advice(said: str, option: str, argv: Sequence[str], has_command: bool) -> BadOption | None:
    """Return an error that leads on, in place of typer's own, which `said` that it knows no such command or `option`;
    None if there is nothing to add."""
    if "No such command" in said:
        words = argv[1:] if argv[0] == "runs" else argv
        lines = _in_our_words(*words)
        typed = " ".join(argv[: len(argv) - len(words) + 1])
        return BadOption(f"{typed}: ngcdl has no such command.", lines) if lines else None
    if "No such option" not in said:
        return None
    if argv[0] == "login":
        return _of_login(option, argv[1:])
    if argv[0] in ("logs", "runs"):
        return _of_the_newest(option, argv)
    return _of_run(said, option, has_command) if argv[0] == "run" else None


def _in_our_words(word: str, *rest: str) -> str:
    """Return the lines that do here what was typed, "" if that is unknown."""
    from ngcdl import trainings
    from ngcdl.catalog import releases
    from ngcdl.spec import redacted_words

    typed = shlex.join(redacted_words(rest))
    if word in _OTHERS:
        typical = _TYPICAL.get(word, "")
        if word == "train" and typed.startswith("-"):
            typed = f"{typical} {typed}"
        return _OTHERS[word].format(typed or typical)
    if word in console.COMMANDS:  # after `runs`
        return f"    ngcdl {word} {typed}".rstrip()
    is_image = word.rpartition("/")[2].partition(":")[0] in releases.frameworks()
    if is_image or word in trainings.names():
        return f"    ngcdl run {'' if is_image else '--train '}{word} {typed}".rstrip()
    return ""


def _of_login(option: str, words: Sequence[str]) -> BadOption | None:
    """Never repeat the key."""
    prompt = "    ngcdl login"
    by_pipe = f"{prompt} --password-stdin"
    typed = next((word[:2] for word in words if re.match(r"-p.", word)), None)
    typed = typed or next((name for word in words if (name := word.partition("=")[0]) in _OF_A_KEY), None)
    if typed and words[-1] not in _OF_A_KEY:
        return BadOption(
            f"{typed}: ngcdl takes no key there; what you typed is in your shell's history now.",
            f"Type this, and paste the key there:\n{prompt}\nIn a script, with the key in a file:\n{by_pipe} < FILE",
        )
    if typed or option in _OF_A_USER:
        what = "ngcdl asks for the key" if typed else "a key needs no user name"
        return BadOption(f"{option}: {what}.", by_pipe if "--password-stdin" in words else prompt)
    return None


def _of_the_newest(option: str, argv: Sequence[str]) -> BadOption | None:
    count = _OF_THE_NEWEST.search(" ".join(argv))
    if count is None or option not in ("-n", "--tail", "--lines"):
        return None
    if argv[0] == "runs":
        shown = int(count[1])
        line = f"    ngcdl runs{' --all' if shown > _LISTED else ''} | head -n {shown + 1}"  # the newest are above
    else:
        names = [word for word in argv[1:] if not word.startswith("-") and word != count[1]]
        line = f"    ngcdl logs {shlex.join(names) or 'last'} | tail -n {count[1]}"
    return BadOption(f"{option}: ngcdl {argv[0]} has no such option.", line)


def _of_run(said: str, option: str, has_command: bool) -> BadOption | None:
    is_dockers = option in _DOCKERS
    if has_command and not is_dockers:
        return None
    return BadOption(
        f"{option}: ngcdl does not have this option of docker's; {_DOCKERS[option]}." if is_dockers else said,
        "A command for the container goes after --, with its options:\n"
        "    ngcdl run IMAGE -- python train.py --epochs 3\nThe options of ngcdl:\n    ngcdl run --help",
    )
