"""The samples of several nodes become those of one machine: one per moment, each reading combined by its meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngcdl.storing.nodesamples import MOST_NODES, samples


def test_what_several_nodes_measured_in_the_same_second_is_one_with_the_gpus_of_all(tmp_path: Path) -> None:
    def measured(node: str, *times: float) -> None:
        lines = [{"t": t, "cpu": node, "gpus": [{"uuid": f"GPU-{node}"}]} for t in times]
        (tmp_path / f"samples-{node}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    measured("n1", 10.0, 11.0, 12.0)
    assert [sample["t"] for sample in samples(tmp_path)] == [10.0, 11.0, 12.0]
    measured("n2", 10.3, 11.3, 12.9, 13.9)  # n1 was lost, and the run moved on
    of_both = [*samples(tmp_path)]
    assert of_both[0]["gpus"] == [{"uuid": "GPU-n1", "node": "n1"}, {"uuid": "GPU-n2", "node": "n2"}]
    found = [(sample["t"], sample["cpu"], [gpu["uuid"] for gpu in sample["gpus"]]) for sample in of_both]
    both = ["GPU-n1", "GPU-n2"]
    assert found == [
        (10.0, "n1", both), (11.0, "n1", both), (12.0, "n1", both), (13.9, "n2", both[1:]),
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


def test_samples_of_several_nodes_have_no_time_by_the_clock_of_one_sampler(tmp_path: Path) -> None:
    assert _of_two_nodes(tmp_path, {"seconds": 5.0}, {"seconds": 900.0}) == {"t": 10.0, "gpus": []}
    (tmp_path / "samples-n2.jsonl").unlink()
    assert list(samples(tmp_path)) == [{"t": 10.0, "gpus": [], "seconds": 5.0}]


def test_what_one_of_several_nodes_does_not_know_is_unknown_and_what_it_leaves_out_is_left_out(tmp_path: Path) -> None:
    one = {"host_cpu_percent": None, "cpu_percents": [1.0], "memory_bytes": 5, "container_cpu_percent": 1.0}
    other = {"host_cpu_percent": 9.0, "cpu_percents": None, "memory_bytes": "5"}
    unknown = dict.fromkeys(("host_cpu_percent", "cpu_percents", "memory_bytes"))
    assert _of_two_nodes(tmp_path, one, other) == {"t": 10.0, "gpus": [], **unknown}


def _nodes(folder: Path, *times: list[float], kills: tuple[int, ...] = (0, 0, 0)) -> list[dict[str, Any]]:
    for node, of_node in enumerate(times):
        told = {"container_cpu_percent": 400.0, "memory_oom_kills": kills[node], "gpus": [{"uuid": f"GPU-{node}"}]}
        written = "".join(json.dumps({"t": t, **told}) + "\n" for t in of_node)
        (folder / f"samples-{node}.jsonl").write_text(written)
    return list(samples(folder))


def _each_second(begin: float, end: float) -> list[float]:
    return [begin + second for second in range(int(end - begin))]


def _sums(found: list[dict[str, Any]]) -> list[float | None]:
    return [sample.get("container_cpu_percent") for sample in found]


@pytest.mark.parametrize("phases", [(0.0, 0.35, 0.7), (0.0, 0.0, 0.999), (0.5, 0.4, 0.3), (0.9, 0.0, 0.45)])
def test_nodes_that_sample_at_any_time_of_the_second_are_summed_up_whole(
    tmp_path: Path, phases: tuple[float, ...]
) -> None:
    found = _nodes(tmp_path, *(_each_second(10 + phase, 31 + phase) for phase in phases))
    assert [len(sample["gpus"]) for sample in found[:20]] == [3] * 20
    assert _sums(found[:20]) == [1200.0] * 20
    assert set(_sums(found[20:])) <= {None, 1200.0}, "the nodes did not end in the same moment"


def test_a_second_in_which_a_node_was_not_read_has_no_sums_and_the_next_ones_have(tmp_path: Path) -> None:
    late = [t for t in _each_second(10.7, 30.7) if t != 15.7]
    found = _nodes(tmp_path, _each_second(10, 30), _each_second(10.35, 30.35), late)
    assert [len(sample["gpus"]) for sample in found] == [3] * 5 + [2] + [3] * 14
    assert _sums(found) == [1200.0] * 5 + [None] + [1200.0] * 14


def test_sums_begin_with_the_last_node_and_go_on_without_one_that_is_gone(tmp_path: Path) -> None:
    found = _nodes(tmp_path, _each_second(10, 30), _each_second(13.3, 20.3), kills=(0, 5))
    assert _sums(found) == [None] * 3 + [800.0] * 7 + [None] * 2 + [400.0] * 8
    kills = [sample["memory_oom_kills"] for sample in found if "memory_oom_kills" in sample]
    assert kills[0] == max(kills) == 5, "nobody was killed meanwhile"


def test_a_node_that_replaced_another_one_after_a_restart_was_not_missing_before(tmp_path: Path) -> None:
    found = _nodes(tmp_path, _each_second(10, 20), _each_second(140, 143))
    assert _sums(found) == [400.0] * 13


def test_what_a_run_wrote_in_the_place_of_its_cards_is_none(tmp_path: Path) -> None:
    assert _of_two_nodes(tmp_path, {"gpus": 5}, {"gpus": True})["gpus"] == []


def test_a_node_that_wrote_nothing_is_not_waited_for(tmp_path: Path) -> None:
    assert _sums(_nodes(tmp_path, _each_second(10, 15), [])) == [400.0] * 5


@pytest.mark.parametrize("t", [10**400, float("nan"), float("inf"), True, "10", None], ids=lambda t: str(t)[:5])
def test_a_sample_whose_time_is_no_number_is_passed_over(tmp_path: Path, t: Any) -> None:
    (tmp_path / "samples-0.jsonl").write_text(json.dumps({"t": t}) + "\n" + json.dumps({"t": 11.0}) + "\n")
    (tmp_path / "samples-1.jsonl").write_text(json.dumps({"t": 11.5}) + "\n")
    assert [sample["t"] for sample in samples(tmp_path)] == [11.0]


def test_of_files_that_a_run_makes_up_only_so_many_are_read(tmp_path: Path) -> None:
    for node in range(MOST_NODES + 1):
        (tmp_path / f"samples-{node:05}.jsonl").touch()
    (tmp_path / f"samples-{MOST_NODES:05}.jsonl").write_text('{"t": 1.0}\n')
    with pytest.warns(UserWarning, match="has samples of 1025 nodes: 1024 of them are read"):
        assert list(samples(tmp_path)) == []
