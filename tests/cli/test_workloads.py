"""`ngcdl workloads`: the bundled trainings, for people and for machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from house import House

from ngcdl import trainings

KEYS = {
    "name", "summary", "source", "data", "data_folder", "unit", "steps", "batch", "input", "parameters", "forward_macs",
    "flops_per_example", "frameworks", "vary", "trains", "classes", "has_replicas", "has_epochs", "least_batch",
    "has_times", "teacher", "refuses", "because", "what", "place", "whole",
}  # fmt: skip


def test_the_bundled_trainings_are_listed_in_the_order_of_use_with_what_each_is_for(house: House) -> None:
    done = house.run("workloads")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split()[:3] == ["NAME", "DATA", "WHAT"]
    listed = [row.split()[0] for row in rows]
    assert sorted(listed) == sorted(trainings.names())
    assert [trainings.bundled(name).place for name in listed] == list(range(1, len(listed) + 1))
    assert rows[0].split(None, 2) == ["cifar10", "CIFAR-10", "TensorFlow's tutorial: 1,000 steps of 128"]
    known = {row.split()[0]: row.split()[1] for row in rows}
    assert (known["catdog"], known["resident"], known["smoke"]) == ("synthetic", "synthetic", "none")
    assert "(PyTorch only)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80, "no line is folded on the narrowest usual terminal"
    assert "in PyTorch, TensorFlow 1 and TensorFlow 2. " in " ".join(done.stderr.split())
    assert "\n    ngcdl workloads --costs\n" in done.stderr, "a line to type has a line of its own"


def test_what_a_training_is_for_has_its_row_in_the_documentation() -> None:
    documented = (Path(__file__).parents[2] / "docs/training.md").read_text()
    rows = re.findall(
        r"^\| (`.*?) \| .*\|$", documented.partition("| `--train` |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert sorted(name for row in rows for name in re.findall(r"`([\w-]+)`", row)) == sorted(trainings.names())


def test_the_costs_of_the_bundled_trainings_are_a_table(house: House) -> None:
    done = house.run("workloads", "--costs")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["NAME", "PARAMETERS"]
    known = {row.split()[0]: row.split()[1:5] for row in rows}
    assert known["cifar10"] == ["1,068,298", "18,470,784", "105,295,104", "128"]
    assert known["lstm"] == ["6,180,624", "115,474,432", "692,846,592", "128"]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "2 per MAC" in " ".join(done.stderr.split())


def test_as_json_they_have_all_their_figures(house: House) -> None:
    listed = json.loads(house.run("workloads", "--json").stdout)
    assert [one["name"] for one in listed] == sorted(one["name"] for one in listed)
    assert all(set(one) == KEYS for one in listed)
    (catdog,) = [one for one in listed if one["name"] == "catdog"]
    assert (catdog["parameters"], catdog["forward_macs"], catdog["batch"]) == (21_463_713, 5_189_928_960, 16)
