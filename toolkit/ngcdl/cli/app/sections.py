"""The help of ngcdl itself and of a command with many options, grouped under headings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

from ngcdl.cli import completed
from ngcdl.command_lines import COMMANDS, typable

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FIRST = (
    ("doctor", "what is missing here, and what to type"),
    ("run --train cifar10", "train, and see how fast it was"),
    ("compare --train cifar10", "what does the GPU buy?"),
)
_LINE = 44  # columns for the line to type: enough for `./scripts/ngcdl compare --train cifar10`


class Front(TyperGroup):
    """ngcdl itself: how to start, then the commands in the order of `command_lines.COMMANDS`, under the headings that
    they name in typer's `rich_help_panel`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's own click
        del ctx
        return list(COMMANDS)

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write all that follows the description."""
        with formatter.section("Start here"):
            formatter.write_dl([(f"{ctx.command_path} {words}", what) for words, what in _FIRST], col_max=_LINE)
        widest = max(map(len, COMMANDS))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            row = (name.ljust(widest), command.get_short_help_str(limit=999))
            sections.setdefault(command.rich_help_panel, []).append(row)
        options = [record for one in self.get_params(ctx) if (record := one.get_help_record(ctx))]
        for heading, rows in [*sections.items(), ("Options", options)]:
            with formatter.section(heading):
                formatter.write_dl(rows)


class Application(typer.Typer):
    """All of its commands are Sectioned, or of a class of their own."""

    def command(self, *words: Any, **options: Any) -> Callable[[_Function], _Function]:
        return super().command(*words, **{"cls": Sectioned} | options)

    def __call__(self, *, args: Sequence[str], **how: Any) -> Any:
        """Run `args`. If they begin with a command, typer makes only that one of its declaration, and for the help of
        ngcdl itself each without its options: to make them all takes a fifth of a short command's time."""
        declared = self.registered_commands, self.registered_groups
        if args and args[0] in COMMANDS:
            self.registered_commands = [one for one in declared[0] if one.callback.__name__ == args[0]]  # type: ignore[union-attr]
            self.registered_groups = [one for one in declared[1] if one.name == args[0]]
        elif list(args) in (["--help"], ["-h"]):
            self.registered_commands = list(map(_without_options, declared[0]))
        try:
            with completed.apostrophes():
                return super().__call__(args=args, **how)
        finally:
            self.registered_commands, self.registered_groups = declared


def _without_options(info: CommandInfo) -> CommandInfo:
    """Return a command as ngcdl's own help lists it."""

    def bare() -> None: ...

    assert info.callback is not None  # it was declared by decorating it
    bare.__name__, bare.__doc__ = info.callback.__name__, info.callback.__doc__
    listed = copy.copy(info)
    listed.callback = bare
    return listed


class Sectioned(TyperCommand):
    """A command whose options name their headings in typer's `rich_help_panel`; those without one come last."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's own click
        """Write IMAGE, not {IMAGE}, which looks like something to type; braces stay around a choice of words."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece if piece[1:2].islower() else piece.removeprefix("{").removesuffix("}") for piece in pieces]

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # typer's own click
        """Write the examples with ngcdl as it was typed, so that they can be copied."""
        self.epilog = typable(self.epilog or "")
        super().format_epilog(ctx, formatter)

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # typer's own click
        """Write typer's help without rich, which alone supports headings but would double the time of --help."""
        sections: dict[str, list[tuple[str, str]]] = {}
        last: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            heading = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None)
            (sections.setdefault(heading, []) if heading else last).append(record)
        for heading, records in [*sections.items(), ("Options", last)]:
            with formatter.section(heading):
                formatter.write_dl(records)
