"""Options that several commands take: what their help says can be typed as it stands there."""

from __future__ import annotations

import re

import pytest
from house import House

from ngcdl.preflight import host
from ngcdl.spec import KINDS


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


def test_the_help_of_export_names_every_cluster_and_both_its_names_are_understood(house: House) -> None:
    clusters = {one.short or name: name for name, one in KINDS.items() if one.is_cluster}
    assert f" {'|'.join(clusters)} " in " ".join(house.run("export", "--help").stdout.split())
    for form in (*clusters, *clusters.values()):
        assert "There is no run" in house.run("export", form, "x").stderr
    refused = house.run("export", "nomad", "x")
    assert (refused.returncode, f"export nomad: must be {' or '.join(clusters)}." in refused.stderr) == (2, True)
