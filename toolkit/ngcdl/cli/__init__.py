"""The entry point: argv -> one call -> exit code. An error gets the line to type instead."""

from __future__ import annotations

from typing import Any

from ngcdl.command_lines import COMMANDS, program
from ngcdl.errors import BadReference, NgcdlError, UsageError

PARTED = ("run", "compare", "exec")  # the commands after whose -- comes a command of the user's
# Em dash, en dash and minus sign: pages and documents make them of --. Not by their names, after \N: Python imports a
# module to compile that, and a Ctrl-C meanwhile is a SyntaxError.
LONG_DASHES = ("\u2014", "\u2013", "\u2212")


def main(argv: list[str]) -> int:
    """Run one command and return its exit code. What follows the first `--` of a command that runs one of the user's is
    that command, untouched."""
    if argv[:1] == ["_watch"]:
        from ngcdl.cli.watch import watch

        return watch(argv[1:])
    at = _end_of_own(argv)
    for place, word in enumerate(argv[:at]):
        if word.startswith(LONG_DASHES):
            from ngcdl.cli.mistyped import long_dash

            raise long_dash(argv, place)
    if argv[1:] and argv[0] in ("--install-completion", "--show-completion"):  # typer would take the caller's shell
        from ngcdl.cli.mistyped import of_a_shell

        raise of_a_shell(argv)
    from ngcdl.cli.app import app

    try:
        code = app(args=argv[:at], prog_name=program(), standalone_mode=False, obj=tuple(argv[at + 1 :]))
        return code if isinstance(code, int) else 0
    except SystemExit as error:
        # click turns the BrokenPipeError of a reader that has gone into SystemExit(1).
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    except NgcdlError as error:
        _as_meant(error, argv)
        if "..." in error.hint or "ngcdl run " in error.hint:
            from ngcdl.cli.changed import written_out

            error.hint = written_out(error.hint, argv)
        if not error.hint and _is_about_a_word(error, argv):
            from ngcdl.cli.mistyped import help_of

            error.hint = help_of(argv)
        raise
    except Exception as error:
        return _usage(error, argv)


def _end_of_own(argv: list[str]) -> int:
    """Return where ngcdl's own words end. For most commands they are all its own: there, -- only ends the options."""
    is_parted = "--" in argv and (argv[0] in PARTED or argv[0] not in COMMANDS)
    return argv.index("--") if is_parted else len(argv)


def _usage(error: Exception, argv: list[str]) -> int:
    """Show the help if nothing was typed. Raise typer's other usage errors in ngcdl's words, and anything else as it
    is."""
    import typer

    if isinstance(error, typer.Abort):
        raise KeyboardInterrupt from error
    if isinstance(error, OSError) and "--install-completion" in argv and error.filename:
        said = f"{error.filename} can't be changed: {error.strerror}"
        hint = "Add this to what your shell reads at its start:\n    ngcdl --show-completion"
        raise NgcdlError(said, hint) from error
    usage: Any = typer.BadParameter.__mro__[2]  # ClickException, of the click inside typer
    if not isinstance(error, usage):
        raise error
    if not argv:
        error.show()
        return int(error.exit_code)
    from ngcdl.cli.mistyped import told

    raise told(error, argv) from error


def _is_about_a_word(error: NgcdlError, argv: list[str]) -> bool:
    """Return whether the error is about an option or an argument, not about a setting or a variable."""
    wrong = error.__cause__ if argv[:1] == ["check"] else error  # `check` raises it anew, with 125
    return isinstance(wrong, UsageError) and wrong.message.startswith(("-", *(f"{word}:" for word in argv if word)))


def _as_meant(error: NgcdlError, argv: list[str]) -> None:
    """If an image was misspelt, add the typed line to the hint, with the name that was meant."""
    wrong = error if isinstance(error, BadReference) else error.__cause__  # `check` raises it anew, with 125
    if isinstance(wrong, BadReference) and wrong.meant and wrong.typed in argv[: _end_of_own(argv)]:
        from ngcdl.cli.typed import again

        words = argv.copy()
        words[words.index(wrong.typed)] = wrong.meant
        error.hint = f"{wrong.hint}\n{again(words)}"
