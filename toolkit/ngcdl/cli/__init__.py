"""The entry point: argv -> one call -> console. Decides nothing."""

from __future__ import annotations

from typing import Any

from ngcdl import console
from ngcdl.errors import BadOption

# Options of `docker run` that people type out of habit, which ngcdl lacks, with what takes their place.
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
    "train": "    ngcdl run --train {}",
    "start": "    ngcdl run {}",
    "inspect": "    ngcdl show {}",
    "kill": "    ngcdl stop {}",
    "rm": "    ngcdl runs rm {}",
    "exec": "In a run's container, by the run's id:\n    ngcdl runs\n    docker exec -it ngcdl-RUN bash",
    **dict.fromkeys(
        ("jupyter", "notebook"), "    ngcdl run -p 8888:8888 pytorch -- jupyter lab --ip=0.0.0.0 --no-browser"
    ),
}
_TYPICAL = {"train": "cifar10", "start": "--train cifar10", "inspect": "last", "kill": "last", "rm": "RUN"}


def main(argv: list[str]) -> int:
    """Run one command and return its exit code. Whatever follows the first `--` is the container's, untouched."""
    if argv[:1] == ["_watch"]:
        from ngcdl.cli.watch import watch

        return watch(argv[1:])
    at = argv.index("--") if "--" in argv else len(argv)
    from ngcdl.cli.app import app

    try:
        code = app(args=argv[:at], prog_name=console.program(), standalone_mode=False, obj=tuple(argv[at + 1 :]))
        return code if isinstance(code, int) else 0
    except SystemExit as error:
        # click turns a reader that has gone into a plain 1.
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    except Exception as error:
        return _usage(error, argv, at < len(argv))


def _usage(error: Exception, argv: list[str], has_command: bool) -> int:
    """Show typer's own usage errors as typer does; re-raise anything else."""
    import typer

    if isinstance(error, typer.Abort):
        raise KeyboardInterrupt from error
    usage: Any = typer.BadParameter.__mro__[2]  # ClickException, of the click inside typer
    if not isinstance(error, usage):
        raise error
    return _told(error, argv, has_command)


def _told(error: Any, argv: list[str], has_command: bool) -> int:
    said, option = error.format_message(), getattr(error, "option_name", "")
    if "No such command" in said and argv[0] in _OTHERS:
        raise BadOption(f"{argv[0]}: ngcdl has no such command.", _in_our_words(*argv)) from error
    is_dockers = option in _DOCKERS
    if argv[:1] == ["run"] and (is_dockers or not has_command) and "No such option" in said:
        raise BadOption(
            f"{option}: ngcdl does not have this option of docker's; {_DOCKERS[option]}." if is_dockers else said,
            "A command for the container goes after --, with its options:\n"
            "    ngcdl run IMAGE -- python train.py --epochs 3\nThe options of ngcdl:\n    ngcdl run --help",
        ) from error
    error.show()
    return int(error.exit_code)


def _in_our_words(word: str, *rest: str) -> str:
    """Return the lines that do here what was typed."""
    import shlex

    from ngcdl.spec import redacted_words

    typed = shlex.join(redacted_words(rest))
    typical = _TYPICAL.get(word, "")
    if word == "train" and typed.startswith("-"):
        typed = f"{typical} {typed}"
    return _OTHERS[word].format(typed or typical)
