"""Options that several commands share: what their help says can be typed verbatim."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_type_hints

import pytest
import typer
from house import House

from ngcdl.cli.app import app, running
from ngcdl.cli.app.declared import takes
from ngcdl.cli.app.placed import Placed
from ngcdl.cli.typed import Typed
from ngcdl.command_lines import COMMANDS
from ngcdl.preflight import host
from ngcdl.spec import KINDS, Placement


@pytest.mark.parametrize("command", ["check", "images", "resolve"])
def test_the_help_of_another_machine_names_every_form_and_its_examples_are_understood(
    house: House, command: str
) -> None:
    words = " ".join(house.run(command, "--help").stdout.split())
    machine = re.search(r"--host FACTS For another machine: (\S+); also (.+?)\. --gpu", words)
    card = re.search(r"--gpu FACTS One of its cards: (\S+), or (\S+)\. Repeatable\.", words)
    assert machine, words
    assert card, words
    assert [gpu.name for gpu in host.typed(machine[1]).gpus] == ["T4"]
    assert machine[2] == "cc, brand, arch, avx, free, engine"
    assert [gpu.capability for gpu in host.typed("", card.groups()).gpus] == ["7.5", "8.0"]


@pytest.mark.parametrize("command", ["run", "compare", "suite"])
def test_the_help_names_every_engine(house: House, command: str) -> None:
    assert f"--engine {'|'.join(['auto', *KINDS])} " in " ".join(house.run(command, "--help").stdout.split())


def test_the_help_of_export_names_compose_and_every_cluster_and_both_its_names_are_understood(house: House) -> None:
    clusters = {one.short or name: name for name, one in KINDS.items() if one.is_cluster}
    assert f" {'|'.join(clusters)}|compose " in " ".join(house.run("export", "--help").stdout.split())
    for form in (*clusters, *clusters.values(), "compose"):
        assert "There is no run" in house.run("export", form, "x").stderr
    refused = house.run("export", "nomad", "x")
    assert refused.returncode == 2
    assert f"export nomad: must be {', '.join(clusters)} or compose." in refused.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_80_columns(house: House, command: str) -> None:
    shown = house.run(command, "--help", env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line for line in shown if len(line) > 80] == []


def test_what_a_command_of_runs_does_is_told_whole_on_80_columns(house: House) -> None:
    done = house.run("runs", "--help", env={"COLUMNS": "80"})
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert listed
    assert [line for line in listed.splitlines() if not line.endswith(".") or line.endswith("...")] == []


def test_only_what_was_typed_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    whole = typer.main.get_command_from_info
    monkeypatch.setattr(
        "typer.main.get_command_from_info",
        lambda **how: made.append(how["command_info"].callback.__name__) or whole(**how),
    )
    for words in ("workloads",), ("runs", "rm"), ("--help",):
        with pytest.raises(SystemExit):
            app(args=[*words, "--help"], prog_name="ngcdl")
    assert made[0] == "workloads"
    assert {name.partition("_")[0] for name in made[1:6]} == {"runs"}
    assert sorted({*made[6:]} & {*COMMANDS}) == sorted({*COMMANDS} - {"runs"})


def test_the_list_of_commands_is_the_one_that_their_whole_declarations_make(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in ["--help"], ["--help", "--help"]:
        with pytest.raises(SystemExit):
            app(args=words, prog_name="ngcdl")
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert all(f"  {name} " in shown[0] for name in COMMANDS)


KEPT = {list[str] | None: tuple[str, ...]}  # the option's type: the type of the field that stores it


@pytest.mark.parametrize(
    ("declared", "value", "apart"),
    [
        (running.RunOptions, Typed, {"tty", "rm", "computed", "hosted"}),
        (running.CompareOptions, Typed, {"images", "vary", "scaling", "repeat", "show", "computed", "hosted"}),
        (running.Computed, Typed, set()),
        (running.Hosted, Typed, {"placement"}),
        (Placed, Placement, set()),
    ],
)
def test_every_option_has_the_name_the_type_and_the_default_of_the_field_that_it_sets(
    declared: type, value: type, apart: set[str]
) -> None:
    hints, defaults = get_type_hints(value), {one.name: one.default for one in fields(value)}
    typed = {name: option for name, option in get_type_hints(declared).items() if name not in apart}
    assert {name: KEPT.get(option, option) for name, option in typed.items()} == {name: hints[name] for name in typed}
    assert {name: getattr(declared, name) or None for name in typed} == {name: defaults[name] or None for name in typed}


def test_what_is_typed_reaches_the_command() -> None:
    seen: list[tuple[Typed, bool, bool]] = []
    app = typer.Typer()

    @app.command()
    @takes(running.RunOptions)
    def command(typed: Typed, tty: bool, rm: bool) -> int:
        seen.append((typed, tty, rm))
        return 0

    words = [
        *("x:1", "ls", "--no-eval", "--compile", "-e", "A=1", "-e", "B", "-p", "80:80"),
        *("--nodes", "2", "--sbatch=--exclusive", "--channels-first", "--rm"),
    ]
    app(words, standalone_mode=False, obj=("ls", "-l"))
    placement = Placement(nodes=2, options=("--exclusive",))
    given = frozenset({"image", "stray", "no_eval", "compile", "environment", "ports", "channels_last"})
    expected = Typed(
        given=given, image="x:1", stray=("ls",), command=("ls", "-l"), no_eval=True, compile=True,
        environment=("A=1", "B"), ports=("80:80",), placement=placement, channels_last=False,
    )  # fmt: skip
    assert seen == [(expected, False, True)]
