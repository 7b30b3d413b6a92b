"""Several nodes' samples become one machine's: each moment once, each reading combined as its meaning allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ngcdl.nodesamples import samples


def test_what_several_nodes_measured_in_the_same_second_is_one_with_the_gpus_of_all(tmp_path: Path) -> None:
    def measured(node: str, *times: float) -> None:
        lines = [{"t": t, "cpu": node, "gpus": [{"uuid": f"GPU-{node}"}]} for t in times]
        (tmp_path / f"samples-{node}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    measured("n1", 10.0, 11.0, 12.0)
    assert [sample["t"] for sample in samples(tmp_path)] == [10.0, 11.0, 12.0]
    measured("n2", 10.3, 11.3, 12.9, 13.9)  # n1 was lost, and the run moved on
    found = [(sample["t"], sample["cpu"], [gpu["uuid"] for gpu in sample["gpus"]]) for sample in samples(tmp_path)]
    both = ["GPU-n1", "GPU-n2"]
    assert found == [
        (10.0, "n1", both), (11.0, "n1", both), (12.0, "n1", both[:1]), (12.9, "n2", both[1:]), (13.9, "n2", both[1:]),
    ]  # fmt: skip


def _of_two_nodes(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    for node, told in (("n1", one), ("n2", other)):
        (folder / f"samples-{node}.jsonl").write_text(json.dumps({"t": 10.0, "gpus": []} | told) + "\n")
    (found,) = samples(folder)
    return found


def test_the_processors_and_the_memory_of_several_nodes_are_those_of_all_of_them(tmp_path: Path) -> None:
    one = {"host_cpu_percent": 5.0, "cpu_percents": [4.0, 6.0], "threads_running": 1, "host_memory_bytes": 2,
           "container_cpu_percent": 20.0, "memory_bytes": 1, "memory_limit_bytes": 64, "memory_pressure_percent": 0.0,
           "memory_oom_kills": 1, "gap": None}  # fmt: skip
    other = {"host_cpu_percent": 95.0, "cpu_percents": [90.0, 100.0], "threads_running": 4, "host_memory_bytes": 62,
             "container_cpu_percent": 380.0, "memory_bytes": 60, "memory_limit_bytes": 62,
             "memory_pressure_percent": 7.5, "memory_oom_kills": 2, "gap": "it was late"}  # fmt: skip
    assert _of_two_nodes(tmp_path, one, other) == {
        "t": 10.0, "gpus": [], "host_cpu_percent": 50.0, "cpu_percents": [4.0, 6.0, 90.0, 100.0],
        "threads_running": 2.5, "host_memory_bytes": 62, "container_cpu_percent": 400.0, "memory_bytes": 60,
        "memory_limit_bytes": 62, "memory_pressure_percent": 7.5, "memory_oom_kills": 3, "gap": "it was late",
    }  # fmt: skip


def test_what_one_of_several_nodes_does_not_know_is_unknown_and_what_it_leaves_out_is_left_out(tmp_path: Path) -> None:
    one = {"host_cpu_percent": None, "cpu_percents": [1.0], "memory_bytes": 5, "container_cpu_percent": 1.0}
    other = {"host_cpu_percent": 9.0, "cpu_percents": None, "memory_bytes": "5"}
    unknown = dict.fromkeys(("host_cpu_percent", "cpu_percents", "memory_bytes"))
    assert _of_two_nodes(tmp_path, one, other) == {"t": 10.0, "gpus": [], **unknown}
