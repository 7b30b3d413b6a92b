from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngcdl.telemetry.host import Cpu
from ngcdl.telemetry.sampler import Gap, Sampler, Sources, sources
from ngcdl.telemetry.usage import Usage

from .stand_in import ROOT


class HandClock:
    """Time that passes only in waits and slow readings. The sampler ends after `ticks` waits."""

    def __init__(self, ticks: int) -> None:
        self.now, self.left = 1000.0, ticks
        self.waits: list[float] = []

    def time(self) -> float:
        return 1_700_000_000 + self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        self.left -= 1
        return event.is_set() or self.left == 0


class Gpus:
    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[bool] = []

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        self.asked.append(is_brief)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer]


class Fixed:
    def __init__(self, usage: Usage) -> None:
        self.usage = usage

    def read(self) -> Usage:
        return self.usage

    def told(self) -> dict[str, Any]:
        return {}


def card(index: int, error: str | None = None) -> dict[str, Any]:
    return {"index": index, "uuid": None, "gpu_percent": 50, "error": error}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ticks_do_not_drift_however_long_a_reading_takes(tmp_path: Path) -> None:
    clock = HandClock(5)

    def slow() -> Cpu:
        clock.now += 0.3
        return Cpu(1.0)

    Sampler(tmp_path / "s.jsonl", Sources(slow), 1.0, clock).run()
    assert [sample["seconds"] for sample in lines(tmp_path / "s.jsonl")] == pytest.approx([0, 1, 2, 3, 4])
    assert clock.waits == pytest.approx([0.7] * 5)


def test_ticks_that_were_missed_are_named_and_the_beat_is_kept(tmp_path: Path) -> None:
    clock = HandClock(4)
    delays = iter([0.1, 3.5, 0.1, 0.1])

    def late() -> Cpu:
        clock.now += next(delays)
        return Cpu(1.0)

    Sampler(tmp_path / "s.jsonl", Sources(late), 1.0, clock).run()
    taken = lines(tmp_path / "s.jsonl")
    assert [sample["seconds"] for sample in taken] == pytest.approx([0, 1, 4.5, 5])
    assert [sample["gap"] for sample in taken] == [None, None, "2 ticks before this one were missed", None]


def test_one_that_is_woken_late_takes_one_sample_for_all_the_ticks_that_have_passed(tmp_path: Path) -> None:
    clock = HandClock(4)
    wait, late = clock.wait, iter([0.0, 2.25, 0.0, 0.0])
    clock.wait = lambda event, seconds: wait(event, seconds + next(late))  # type: ignore[method-assign]
    Sampler(tmp_path / "s.jsonl", Sources(), 1.0, clock).run()
    taken = lines(tmp_path / "s.jsonl")
    assert [sample["seconds"] for sample in taken] == pytest.approx([0, 1, 4.25, 5])
    assert [sample["gap"] for sample in taken] == [None, None, "2 ticks before this one were missed", None]


@pytest.mark.parametrize(
    ("interval", "due"), [(0.1, [0, 5, 10]), (0.2, [0, 3, 6, 9]), (0.25, [0, 2, 4, 6, 8, 10]), (0.5, [*range(11)])]
)
def test_closer_than_half_a_second_only_gpus_are_read_in_brief(tmp_path: Path, interval: float, due: list[int]) -> None:
    cards, read = Gpus(*map(card, range(11))), Sources(lambda: Cpu(1.0), lambda: 2, Fixed(Usage(3.0, 4)))
    Sampler(tmp_path / "s.jsonl", replace(read, gpus=cards), interval, HandClock(11)).run()
    taken = lines(tmp_path / "s.jsonl")
    assert [row["gpus"][0]["index"] for row in taken] == [*range(11)]
    for name, value in {"host_memory_bytes": 2, "memory_bytes": 4}.items():
        assert {n: row[name] for n, row in enumerate(taken) if name in row} == dict.fromkeys(due, value)
    assert [n for n, row in enumerate(taken) if "host_cpu_percent" in row] == due
    assert {tuple(row) for n, row in enumerate(taken) if n not in due} <= {("t", "seconds", "gpus", "gap")}
    assert {row["gap"] for row in taken} == {None}
    assert [n for n, is_brief in enumerate(cards.asked) if not is_brief] == due


def test_ticks_that_were_missed_count_until_the_host_is_due(tmp_path: Path) -> None:
    clock = HandClock(7)
    delays = iter([0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0])

    class Late:
        def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
            clock.now += next(delays)
            return []

    Sampler(tmp_path / "s.jsonl", Sources(lambda: Cpu(1.0), gpus=Late()), 0.1, clock).run()
    rows = lines(tmp_path / "s.jsonl")
    assert [row["seconds"] for row in rows if "host_cpu_percent" in row] == pytest.approx([0, 0.5])


def test_a_reading_that_fails_is_a_gap_and_the_others_are_kept(tmp_path: Path) -> None:
    gpus = Gpus(card(0), card(0), Gap("NVML gave no answer for 1.0 s"), card(0, "GPU is lost"))
    broken: list[Callable[[], Any]] = [Cpu, lambda: Cpu(7.5, (15.0, 0.0), 3), lambda: 1 / 0, lambda: Cpu()]

    sampler = Sampler(
        tmp_path / "s.jsonl",
        Sources(lambda: broken.pop(0)(), lambda: 2**30, Fixed(Usage(150.0, 5, 50, 1.5, 0)), gpus),
        clock=HandClock(4),
    )
    sampler.run()
    _, first, second, third = lines(tmp_path / "s.jsonl")
    limits = ("memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills")
    assert (first["gap"], first["host_cpu_percent"], first["gpus"]) == (None, 7.5, [card(0)])
    assert (first["cpu_percents"], first["threads_running"]) == ([15.0, 0.0], 3)
    assert [first[name] for name in limits] == [50, 1.5, 0]
    assert (second["cpu_percents"], second["threads_running"]) == (None, None)
    assert second["gap"] == "host CPU: ZeroDivisionError: division by zero; GPUs: NVML gave no answer for 1.0 s"
    assert (second["host_memory_bytes"], second["container_cpu_percent"], second["gpus"]) == (2**30, 150.0, [])
    assert (third["gap"], third["host_cpu_percent"]) == ("GPU 0: GPU is lost", None)
    assert third["gpus"][0]["error"] == "GPU is lost"
    assert sampler.problems == ()


def test_the_first_sample_has_no_rate_because_it_is_of_the_milliseconds_before_it(tmp_path: Path) -> None:
    read = Sources(lambda: Cpu(100.0, (100.0, 100.0), 3), lambda: 2, Fixed(Usage(180.0, 4)))
    Sampler(tmp_path / "s.jsonl", read, clock=HandClock(2)).run()
    rates = ("host_cpu_percent", "cpu_percents", "container_cpu_percent")
    first, second = lines(tmp_path / "s.jsonl")
    assert [first[name] for name in rates] == [None, None, None]
    assert (first["threads_running"], first["memory_bytes"], first["gap"]) == (3, 4, None)
    assert [second[name] for name in rates] == [100.0, [100.0, 100.0], 180.0]


def test_a_run_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    Sampler(tmp_path / "s.jsonl", Sources(usage=Fixed(Usage())), clock=HandClock(1)).run()
    assert lines(tmp_path / "s.jsonl")[0]["gap"] == "run: its processes can't be read (any more)"


def test_a_line_has_each_field_of_a_sample_in_its_order(tmp_path: Path) -> None:
    Sampler(tmp_path / "s.jsonl", sources(gpus=Gpus(card(0))), clock=HandClock(1)).run()
    assert list(*lines(tmp_path / "s.jsonl")) == [
        *("t", "seconds", "host_cpu_percent", "cpu_percents", "threads_running", "host_memory_bytes"),
        *("container_cpu_percent", "memory_bytes", "memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills"),
        *("gpus", "gap"),
    ]


def test_a_host_without_gpus_has_no_gap(tmp_path: Path) -> None:
    Sampler(tmp_path / "s.jsonl", sources(), clock=HandClock(2)).run()
    assert [(sample["gap"], sample["gpus"]) for sample in lines(tmp_path / "s.jsonl")] == [(None, [])] * 2


def test_a_line_cut_by_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"t": 1}\n{"t": 2, "sec')
    Sampler(path, Sources(), clock=HandClock(1)).run()
    assert [line[:8] for line in path.read_text().splitlines()] == ['{"t": 1}', '{"t": 2,', '{"t":170']


FULL = """
import json, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from telemetry.test_sampler import HandClock
from ngcdl.telemetry.host import Cpu
from ngcdl.telemetry.sampler import Sampler, Sources
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
clock = HandClock(20)
sampler = Sampler(Path(sys.argv[1]), Sources(lambda: Cpu(1.0)), clock=clock)
sampler.run()
print(json.dumps([len(clock.waits), *sampler.problems]))
"""


def test_a_full_disk_ends_the_file_whole_and_the_sampling(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(ROOT / "tests")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "toolkit")},
    )
    assert done.returncode == 0, done.stderr
    ticks, problem = json.loads(done.stdout)
    written = len(lines(path))
    assert 0 < written == ticks - 1 < 19
    assert path.read_bytes().endswith(b"\n")
    assert problem.startswith(str(path))
    assert problem.endswith(f"; no samples are written from here on ({written} were)")


def test_a_device_without_room_is_one_problem() -> None:
    clock = HandClock(3)
    sampler = Sampler(Path("/dev/full"), Sources(), clock=clock)
    sampler.run()
    assert len(clock.waits) == 1
    assert sampler.problems == ("/dev/full: No space left on device; no samples are written from here on (0 were)",)


def test_a_link_or_a_pipe_that_the_run_put_there_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    """The run's container can write to its folder."""
    precious, link, pipe = tmp_path / "precious", tmp_path / "link", tmp_path / "pipe"
    precious.write_text("mine\n")
    link.symlink_to(precious)
    os.mkfifo(pipe)
    through = Sampler(link, Sources(), clock=HandClock(3))
    through.run()
    assert precious.read_text() == "mine\n"
    assert "no samples are written" in through.problems[0]
    Sampler(pipe, Sources(), clock=HandClock(3)).run()


def test_a_folder_that_is_missing_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    clock = HandClock(2)
    sampler = Sampler(tmp_path / "no/s.jsonl", Sources(), clock=clock)
    sampler.run()
    assert clock.waits == []
    assert "No such file or directory" in sampler.problems[0]


def test_it_stops_at_once_twice_and_before_it_began(tmp_path: Path) -> None:
    Sampler(tmp_path / "s.jsonl", Sources(), 3600.0).stop()
    with Sampler(tmp_path / "s.jsonl", Sources(gpus=Gpus(card(0))), 3600.0) as sampler:
        sampler.start()
    sampler.stop()
    assert sampler._thread
    sampler._thread.join(240)
    assert not sampler._thread.is_alive()


def test_a_reading_that_never_returns_does_not_hold_up_the_end(tmp_path: Path) -> None:
    never, inside = threading.Event(), threading.Event()

    def stuck() -> Cpu:
        inside.set()
        never.wait()
        return Cpu(1.0)

    sampler = Sampler(tmp_path / "s.jsonl", Sources(stuck))
    sampler.start()
    inside.wait()
    sampler.stop()  # it returns, though the reading has not
    assert "did not return" in sampler.problems[0]
    never.set()
