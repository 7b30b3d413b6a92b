from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from ngcdl.telemetry.memory import Limits, Pressure

TOTAL = psutil.virtual_memory().total


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("inner", "outer", "limit"),
    [("1000", "2000", 1000), ("2000", "1000", 1000), ("max", "max", TOTAL), ("max", "7", 7)],
)
def test_the_limit_is_the_lowest_of_the_group_and_those_around_it(
    tmp_path: Path, inner: str, outer: str, limit: int
) -> None:
    group = tmp_path / "pod/container"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{inner}\n")
    (group.parent / "memory.max").write_text(f"{outer}\n")
    assert Limits({"": group}).limit_bytes == limit


def test_a_limit_that_is_changed_meanwhile_is_seen(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "memory.max").write_text("2000\n")
    limits = Limits({"": tmp_path}, clock)
    assert limits.limit_bytes == 2000
    (tmp_path / "memory.max").write_text("1000\n")
    clock.seconds += 1
    assert limits.limit_bytes == 1000


def test_a_group_that_tells_nothing_leaves_all_unknown(tmp_path: Path) -> None:
    for folders in ({"": tmp_path}, {"memory": tmp_path}, {}):
        limits = Limits(folders)
        assert (limits.limit_bytes, limits.pressure()) == (None, Pressure())


def test_the_pressure_is_read_once_a_second_and_kept_in_between(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "memory.pressure"
    limits = Limits({"": tmp_path}, clock)
    found = []
    for percent, later in ((1, 0.0), (2, 0.9), (3, 0.1), (4, 5.0)):
        file.write_text(f"some avg10={percent}.00 avg60=9.00 avg300=9.00 total=9\nfull avg10=9.00 avg60=9.00\n")
        clock.seconds += later
        found.append(limits.pressure().percent)
    assert found == [1.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize("text", ["", "some avg10=", "some", "avg10=x y", "\xff"])
def test_a_pressure_that_is_none_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory.pressure").write_text(text)
    (tmp_path / "memory.events").write_text("oom_kill many\n")
    assert Limits({"": tmp_path}).pressure() == Pressure()
