"""The help of a command with many options: under headings, the options of a heading in their order."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Sectioned(TyperCommand):
    """A command whose options name their headings by typer's `rich_help_panel`; those that name none come last."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # typer's own click
        """Write what typer writes without rich, which would double the time of --help, and knows headings alone."""
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
