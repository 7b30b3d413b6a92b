"""Options that several commands take: what their help says can be typed as it stands there."""

from __future__ import annotations

import re

import pytest
from house import House

from ngcdl.preflight import host


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
