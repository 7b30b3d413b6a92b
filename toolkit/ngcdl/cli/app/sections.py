"""The help of a command with many options, grouped under headings in the order of declaration."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Sectioned(TyperCommand):
    """A command whose options name their headings in typer's `rich_help_panel`; those without one come last."""

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
