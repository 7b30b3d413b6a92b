"""`ngcdl workloads`: the bundled trainings, for people and for machines."""

from __future__ import annotations

import json

from house import House

KEYS = {
    "name", "summary", "source", "data", "data_folder", "unit", "steps", "batch", "input", "parameters", "forward_macs",
    "flops_per_example", "frameworks", "vary", "trains", "classes", "has_replicas", "has_epochs", "least_batch",
    "has_times", "teacher", "refuses", "because", "whole",
}  # fmt: skip


def test_the_bundled_trainings_are_a_table(house: House) -> None:
    done = house.run("workloads")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["NAME", "PARAMETERS"]
    known = {row.split()[0]: row.split()[1:5] for row in rows}
    assert known["cifar10"] == ["1,068,298", "18,470,784", "105,295,104", "128"]
    assert known["lstm"] == ["6,180,624", "115,474,432", "692,846,592", "128"]
    assert max(map(len, done.stdout.splitlines())) <= 160
    assert "in PyTorch, TensorFlow 1 and TensorFlow 2. " in " ".join(done.stderr.split())
    assert "(PyTorch only)" in done.stdout
    assert "2 per MAC" in " ".join(done.stderr.split())


def test_as_json_they_have_all_their_figures(house: House) -> None:
    listed = json.loads(house.run("workloads", "--json").stdout)
    assert [one["name"] for one in listed] == sorted(one["name"] for one in listed)
    assert all(set(one) == KEYS for one in listed)
    (catdog,) = [one for one in listed if one["name"] == "catdog"]
    assert (catdog["parameters"], catdog["forward_macs"], catdog["batch"]) == (21_463_713, 5_189_928_960, 16)
