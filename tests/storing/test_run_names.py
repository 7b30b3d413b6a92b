"""The ids of runs, and which run a name means."""

from __future__ import annotations

import re

import pytest

from ngcdl.errors import NoSuchRun
from ngcdl.record import Run
from ngcdl.storing.store import Store


def test_runs_are_listed_newest_first_and_other_files_are_none(store: Store) -> None:
    assert store.ids() == []
    for run_id in ("20180216-1-a-0001", "20180217-1-a-0002"):
        store.create(Run(run_id, "lost", 1.0))
    (store.root / "empty").mkdir()
    (store.root / "file").touch()
    assert store.ids() == ["20180217-1-a-0002", "20180216-1-a-0001"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("last", "20180217-b-0002"), ("last-0", "20180217-b-0002"), ("last-1", "20180216-a-bb01"),
     ("20180216", "20180216-a-bb01"), ("0002", "20180217-b-0002"), ("20180217-b-0002", "20180217-b-0002"),
     ("bb", "20180216-a-bb01"), ("01", "20180216-a-bb01"),
     ("ngcdl-20180216-a-bb01", "20180216-a-bb01")],
)  # fmt: skip
def test_a_run_is_found_by_last_by_the_beginning_or_end_of_its_id_or_of_its_last_word_or_by_its_container(
    store: Store, name: str, found: str
) -> None:
    for run_id in ("20180216-a-bb01", "20180217-b-0002"):
        store.create(Run(run_id, "lost", 1.0))
    assert store.find(name) == found


def test_a_run_s_name_is_meant_also_where_another_s_id_ends_with_it(store: Store) -> None:
    for run_id in ("20180216-010101-b8-aaa111", "20180217-010101-b64-bbb0b8"):
        store.create(Run(run_id, "lost", 1.0))
    assert [store.find(name) for name in ("b8", "0b8")] == ["20180216-010101-b8-aaa111", "20180217-010101-b64-bbb0b8"]


@pytest.mark.parametrize(
    "name", ["", "2018", "last-2", "last-x", "last--1", "last-" + "9" * 5000, "..", "../runs", "x", "ngcdl-"]
)
def test_a_name_that_means_no_run_or_several_is_refused(store: Store, name: str) -> None:
    for run_id in ("20180216-a-0001", "20180217-b-0002"):
        store.create(Run(run_id, "lost", 1.0))
    with pytest.raises(NoSuchRun):
        store.find(name)


def test_a_name_that_fits_several_runs_is_told_with_their_number_and_the_newest(store: Store) -> None:
    for run_id in ("20180216-a-0001", "20180217-b-0002"):
        store.create(Run(run_id, "lost", 1.0))
    with pytest.raises(NoSuchRun) as refused:
        store.find("2018")
    assert refused.value.message == "The name '2018' fits 2 runs; the newest is 20180217-b-0002."
    assert refused.value.hint == "Type more of it:\n    ngcdl runs"


def test_where_there_are_no_runs_at_all_that_is_told(store: Store) -> None:
    with pytest.raises(NoSuchRun) as refused:
        store.find("last")
    assert refused.value.message == f"There is no run 'last': there are none in {store.root} yet."
    assert refused.value.hint == "    ngcdl run --train cifar10"


def test_a_run_that_is_not_there_is_none(store: Store) -> None:
    with pytest.raises(NoSuchRun):
        store.load("x")


def test_ids_begin_with_their_time_and_differ(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1518786000.5)
    ids = {store.new_id("cifar10") for _ in range(200)}
    assert all(re.fullmatch(r"20180216-130000-cifar10-800[0-9a-f]{3}", run_id) for run_id in ids)
    assert len(ids) > 150, "chance gives 195 of 4,096"


def test_runs_of_one_second_keep_their_order_whatever_they_ran(store: Store) -> None:
    made = ("120000-zoo-001aaa", "120000-cifar10-002bbb", "115959-zoo-800ccc", "115958-zoo-fffddd")
    for name in made:
        store.create(Run(f"20261121-{name}", "running", 0.0))
    assert [run_id[-6:] for run_id in store.ids()] == ["002bbb", "001aaa", "800ccc", "fffddd"]
