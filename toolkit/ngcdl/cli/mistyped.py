"""Turns typer's usage errors into errors in ngcdl's own words, with the line to type next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Self

from ngcdl.cli import LONG_DASHES, habits, misplaced
from ngcdl.cli.changed import OF_COMPARE, positions, replaced
from ngcdl.cli.typed import again, own_end, start_of
from ngcdl.errors import BadOption, NgcdlError, UsageError
from ngcdl.frozen import dataclass
from ngcdl.spec import redacted, redacted_words

# Example arguments for commands that were typed without the arguments that they need.
_EXAMPLES = {
    **dict.fromkeys(("check", "pull", "resolve"), "pytorch"),
    "suite": "articles",
    "export": "slurm last",
    "runs diff": "last-1 last",
    "runs replay": "last",
    "runs export": "last last-1 both.tar",
    "runs import": "both.tar",
}
_OF_THE_COMMAND = "If it belongs to your command, that goes after --, with its options:"
_WATCH = "--watch"
_OF_AN_IMAGE = ("run", "compare", "check", "pull", "images", "resolve")
_OF_ONE_RUN = ("show", "logs", "stop")
_KINDS = {"int": "a whole number", "integer": "a whole number", "float": "a number"}


@dataclass(frozen=True)
class _Line:
    """`argv`, with the typer `command` that it names and the `path` to it: "run", "runs diff"; "" for ngcdl itself."""

    argv: Sequence[str]
    command: Any
    path: str

    @classmethod
    def of(cls, argv: Sequence[str]) -> Self:
        """Find the command in `argv`: not all of typer's errors name the command."""
        from typer.main import get_command

        from ngcdl.cli.app import app

        command: Any = get_command(app)
        path: list[str] = []
        for word in argv:
            if word not in getattr(command, "commands", ()):
                break
            command = command.commands[word]
            path.append(word)
        return cls(argv, command, " ".join(path))

    @property
    def help(self) -> str:
        """The line that shows the command's help."""
        return " ".join(filter(None, ("    ngcdl", self.path, "--help")))


def help_of(argv: Sequence[str]) -> str:
    """Return the line that shows the help of the command in `argv`."""
    return _Line.of(argv).help


def told(error: Any, argv: Sequence[str]) -> NgcdlError:
    """Return what to raise instead of typer's usage error, with its exit code."""
    typed = _Line.of(argv)
    match type(error).__name__:
        case "NoSuchOption":
            ours = _no_such_option(error.option_name, typed)
        case "BadOptionUsage":
            ours = _bad_usage(error.option_name, typed)
        case "MissingParameter":
            ours = _missing(error.param.metavar or error.param.name, typed)
        case "BadParameter":
            ours = _bad_value(error, typed)
        case "NoArgsIsHelpError":  # only -- and a command of the user's were typed
            ours = BadOption("--: no command of ngcdl's comes before it.", again(["run", *argv]))
        case _:
            ours = _bad_words(error.message, typed)
    if error.exit_code == UsageError.exit_code:
        return ours
    return NgcdlError(ours.message, ours.hint)  # `check` exits with 125


def long_dash(argv: Sequence[str], at: int) -> NgcdlError:
    """Return the error for the word `at`, which begins with a dash that web pages and documents make of hyphens."""
    word = argv[at]
    name = word.lstrip("-" + "".join(LONG_DASHES))
    meant = f"{'-' if len(name.partition('=')[0]) == 1 else '--'}{name}"
    typed, option = _Line.of([*argv[:at], meant, *argv[at + 1 :]]), meant.partition("=")[0]
    line = again(["login", meant] if argv[0] == "login" else typed.argv)  # what else was typed may be a key
    if name and option not in _names(typed.command):
        line = _no_such_option(option, typed).hint
    kind = NgcdlError if argv[0] == "check" else BadOption  # `check` exits with 125
    return kind(f"{redacted('', word)} begins with a long dash, which pages and documents make of hyphens.", line)


def of_a_shell(argv: Sequence[str]) -> BadOption:
    """Return the error for the name of a shell after an option that is about the shell that it is typed in."""
    option, shell = argv[:2]
    # bash and zsh become the last command of a line: without exit, the caller's shell would be found
    line = f"{shell} -c 'ngcdl {option}; exit'" if shell in ("bash", "zsh", "fish") else f"ngcdl {option}"
    return BadOption(f"{option} {shell}: it is for the shell that it is typed in.", f"    {line}")


# -- an option that is not there -------------------------------------------------------------------------------------


def _no_such_option(option: str, typed: _Line) -> BadOption:
    argv, path = typed.argv, typed.path
    if path == "login" and (advice := habits.login(option, argv[1:])):
        return advice
    said = f"{option}: {' '.join(filter(None, ('ngcdl', path)))} has no such option."
    if path == "runs" and (line := habits.newest(option, argv)):
        return BadOption(said, line)
    if path == "logs" and (advice := habits.of_times(option, argv)):
        return advice
    if path == "run" and option in OF_COMPARE:
        return BadOption(said, again(["compare", *argv[1:]]))
    if path == "run" and (line := _command_apart(option, typed)):
        return BadOption(said, f"{_OF_THE_COMMAND}\n{line}")
    if path in ("run", "compare") and (line := habits.in_time(option, argv)):
        return BadOption(said, line)
    if path in ("run", "compare") and (advice := habits.dockers(option, argv)):
        return advice
    if option == "--image" and path in _OF_AN_IMAGE:
        words = replaced(argv, option, lambda image: [image], has_value=True) or [""]
        return BadOption(f"{option}: an image needs no option before it.", again(words) if all(words) else typed.help)
    if path == "compare" and option not in habits.SAME and option in _names(_Line.of(["run"]).command):
        return BadOption(said, f"A run alone has it:\n{again(['run', *_without_compares(argv[1:])])}")
    return BadOption(said, _nearest(option, typed) or typed.help)


def _without_compares(words: Sequence[str]) -> list[str]:
    """Return `words` without the options that `run` lacks."""
    for name in OF_COMPARE:
        words = replaced(words, name, lambda _: [], has_value=True) or words
    return list(words)


def _nearest(option: str, typed: _Line) -> str:
    """Return the line that was typed, with the option that was probably meant; "" if none is near."""
    if not typed.path and (line := _command_first(typed)):
        return line
    near = habits.meant(option, list(_names(typed.command)))
    if not near and not typed.path and option in _names(typed.command.commands["run"]):
        return again(["run", *typed.argv])
    word = next((one for one in typed.argv if one.startswith(option)), option)
    if not near and f"-{word}" in _names(typed.command):  # -gpus is -g to typer
        option, near = word, f"-{word}"
    if not near:
        return ""
    if typed.path == "login":  # what else was typed may be a key
        return f"Did you mean {near}?\n    ngcdl login {near}"
    words = replaced(typed.argv, option, lambda value: _valued(near, value), has_value=False)
    if words and words[-1] == _WATCH:
        words.append("1")
    return f"Did you mean {near}?\n{again(words) if words else typed.help}"


def _command_first(typed: _Line) -> str:
    """Return the line that was typed, with the options before its command behind it, if the command has them, else its
    help; "" if no command was typed."""
    argv, commands = typed.argv, typed.command.commands
    at = next((at for at, word in enumerate(argv[: own_end(argv)]) if word in commands), None)
    if at is None:
        return ""
    meant = _Line.of(argv[at:])
    names, to = set(_names(meant.command)), at + len(meant.path.split())  # runs rm is two words
    if all(word.partition("=")[0] in names for word in argv[:at] if word.startswith("-")):
        return again([*argv[at:to], *argv[:at], *argv[to:]])
    return meant.help


def _valued(option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if value and " " not in option else option.split()


def _names(command: Any) -> Iterator[str]:
    """Yield the options of a command, except those that its --help does not show."""
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            yield from (*one.opts, *one.secondary_opts)
    yield "--help"


def _command_apart(option: str, typed: _Line) -> str:
    """Return the line that was typed, with -- before the command that `option` probably belongs to; "" if no command
    precedes `option`. The first word is taken for an image, unless it is a script of this folder or a program."""
    argv = typed.argv
    if "--" in argv:
        return ""
    before = next((at for at, word in enumerate(argv) if word.partition("=")[0] == option), 0)
    words = [at for at in positions(typed.command, argv[:before]) if at]
    if not words:
        return ""
    first, begins = argv[words[0]], words[1:2]
    if start := start_of(first) or ([first] if misplaced.is_program(first) else None):
        return misplaced.either(argv[: words[0]], (), [*start, *argv[words[0] + 1 :]])
    return again([*argv[: begins[0]], "--", *argv[begins[0] :]]) if begins else ""


# -- a value or a word that is not there, or makes no sense ----------------------------------------------------------


def _bad_usage(option: str, typed: _Line) -> BadOption:
    """Say that an option lacks its value, or that a switch has one."""
    found = next((one for one in typed.command.params if option in one.opts), None)
    if found is None or getattr(found, "is_flag", False):
        return BadOption(f"{option}: it takes no value.", _as_switch(option, typed) or typed.help)
    if option == "--train":
        from ngcdl.cli.workloads import in_order

        names = ", ".join(one.name for one in in_order())
        return BadOption(f"--train: which training? {names}.", "    ngcdl workloads")
    if option == "--resume" and typed.argv[-1] == option:
        return BadOption("--resume: which run?", f"{again([*typed.argv, 'last'])}\n    ngcdl runs")
    if option == "--show" and typed.argv[-1] == option:
        return BadOption("--show: which comparison?", again([*typed.argv, "last"]))
    if option == _WATCH and typed.argv[-1] == option:
        return BadOption("--watch: how often?", again([*typed.argv, "1"]))
    said = f"{option}: its value is missing: {found.metavar or found.type.name.upper()}."
    if typed.path == "run" and (line := _command_apart(option, typed)):
        return BadOption(said, f"{_OF_THE_COMMAND}\n{line}")
    return BadOption(said, typed.help)


def _as_switch(option: str, typed: _Line) -> str:
    """Return the line that was typed with docker's --rm=true or --rm=false as a switch; "" if it has no such word."""
    for word, ours in ((f"{option}=true", [option]), (f"{option}=false", [])):
        if word in typed.argv:
            at = typed.argv.index(word)
            return again([*typed.argv[:at], *ours, *typed.argv[at + 1 :]])
    return ""


def _missing(argument: str, typed: _Line) -> BadOption:
    example = f"    ngcdl {typed.path} {_EXAMPLES[typed.path]}\n" if typed.path in _EXAMPLES else ""
    return BadOption(f"{typed.path}: {argument} is missing.", example + typed.help)


def _bad_value(error: Any, typed: _Line) -> BadOption:
    found = re.fullmatch(r"'(.*)' is not a valid (\w+)\.?", error.message, re.DOTALL)
    name = error.param.opts[-1] if error.param is not None and error.param.param_type_name == "option" else typed.path
    if found is None or found[2] not in _KINDS:
        return BadOption(f"{name}: {error.message}", typed.help)
    return BadOption(f"{name} {redacted('', found[1])}: must be {_KINDS[found[2]]}.", typed.help)


def _bad_words(said: str, typed: _Line) -> BadOption:
    """Say that there is no such command, or that the command takes fewer words."""
    if "No such command" in said:
        word, *rest = typed.argv[1:] if typed.path == "runs" else typed.argv
        name = " ".join(filter(None, (typed.path, *redacted_words((word,)))))
        lines = habits.lines_for(word, rest, list(typed.command.commands))
        return BadOption(f"{name}: ngcdl has no such command.", lines or typed.help)
    extra = re.search(r"unexpected extra arguments? ?(?:\(s\) )?\((.*)\)", said, re.DOTALL)
    if extra is None:
        return BadOption(f"{typed.path}: {said}", typed.help)
    words = () if typed.path == "login" else redacted_words(tuple(extra[1].split()))  # perhaps a key
    if typed.path in _OF_ONE_RUN:
        return _one_run(words, typed)
    return BadOption(f"{' '.join((typed.path, *words))}: more words than it takes.", typed.help)


def _one_run(extra: Sequence[str], typed: _Line) -> BadOption:
    """Say that the command takes one run, and what takes all that were typed."""
    runs = [typed.argv[at] for at in positions(typed.command, typed.argv) if at]
    hint = "\n".join(again([typed.path, run]) for run in dict.fromkeys(runs))
    if typed.path == "show":
        hint = f"What differs, or all on one page:\n{again(['runs', 'diff', *runs[:2]])}\n{again(['report', *runs])}"
    many = f"{' '.join(extra)} {'is one' if len(extra) == 1 else 'are'} too many"
    return BadOption(f"{typed.path} takes one run; {many}.", hint)
