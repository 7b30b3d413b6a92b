"""Stored comparisons are found by name and loaded as saved; an error names a file that is not a comparison."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ngcdl.errors import NoSuchComparison, RecordBroken
from ngcdl.record import Owner, Run
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store


def test_one_that_was_saved_is_there_and_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    store = Store(tmp_path / "state/ngcdl/runs")
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    assert not comparisons.has(kept.id, store)
    before = os.umask(0)
    try:
        store.ensure_writable()
        comparisons.save(kept, store)
    finally:
        os.umask(before)
    assert comparisons.has(kept.id, store)
    path = comparisons.path(kept.id, store)
    folders = (tmp_path / "state", tmp_path / "state/ngcdl", store.root, path.parent)
    assert [one.stat().st_mode & 0o777 for one in (*folders, path)] == [*[0o700] * 4, 0o600]


def test_a_comparison_is_found_by_its_id_or_a_part_of_it(store: Store) -> None:
    older = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    newer = StoredComparison(
        "20180217-010101-compare-bbb222", "device", 1, (("cpu", "cpu"),), 2.0, 3.0, ("x",), (Trial("cpu", 1, "r"),)
    )
    for kept in (newer, older):
        comparisons.save(kept, store)
    assert comparisons.load("last", store) == newer
    for name in ("aaa111", "20180216", "last-1", older.id):
        assert comparisons.load(name, store) == older
    for name in ("2018", "", "none", "last-2", "../runs"):
        with pytest.raises(NoSuchComparison) as caught:
            comparisons.load(name, store)
        assert caught.value.hint.splitlines()[1:] == [f"    ngcdl compare --show {one.id}" for one in (older, newer)]


def test_a_comparison_is_found_by_its_name_the_newest_of_it(store: Store) -> None:
    for at in range(2):
        kept = StoredComparison(comparisons.new_id("lr3", store), "seed", 1, (("seed=1", None),), 1.0 + at)
        comparisons.save(kept, store)
    assert [comparisons.find(name, store) for name in ("lr3", "compare-lr3")] == [comparisons.ids(store)[-1]] * 2
    assert [comparisons.is_named(name, store) for name in ("lr3", "compare-lr3", "lr4")] == [True, True, False]
    store.create(Run("20180216-010101-run-aaalr3", "running", 1.0))
    assert comparisons.is_named("lr3", store), "a run whose id ends with it is not"
    store.create(Run(store.new_id("lr3"), "running", 1.0))
    assert not comparisons.is_named("lr3", store), "a run of that name is meant"


def test_a_comparison_of_an_ngcdl_that_had_no_scaling_and_no_owner_loads() -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "gpus", 1, (("gpus=1", None),), 1.0)
    older = {key: value for key, value in kept.as_json().items() if key not in ("scaling", "owner", "gpus")}
    assert StoredComparison.from_json(older) == kept


def test_who_runs_one_is_kept_with_its_cards_until_that_process_leaves_it(store: Store) -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0, gpus=("GPU-1",))
    comparisons.save(kept, store)
    assert list(comparisons.owned(store)) == []
    going = replace(kept, owner=Owner(7, 1, "boot"))
    comparisons.save(going, store)
    assert list(comparisons.owned(store)) == [going]
    stopped = comparisons.stop(going, store)
    comparisons.leave(going, store)
    assert list(comparisons.owned(store)) == []
    assert comparisons.load("last", store) == replace(stopped, owner=None), "it stays stopped"


def test_a_run_of_an_image_called_compare_is_no_comparison(store: Store) -> None:
    run = Run("20180216-010101-compare-x-ccc333", "running", 1.0)
    store.create(run)
    assert not any(comparisons.is_named(name, store) for name in (run.id, "compare-x-ccc333", "20180216", "last"))
    assert comparisons.is_named("20180216-010101-compare-aaa111", store)
    assert comparisons.is_named("compare-aaa111", store)


def test_a_stop_waits_until_no_other_ngcdl_changes_a_comparison(store: Store) -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    comparisons.save(kept, store)
    changed = replace(kept, trials=(Trial("cpu", 1, "r"),))
    stop = threading.Thread(target=comparisons.stop, args=(kept, store))
    with comparisons.alone(store):
        stop.start()
        stop.join(0.2)  # without a lock, stop() would end in this time
        comparisons.save(changed, store)
    stop.join(240)
    found = comparisons.load(kept.id, store)
    assert (found.finished is not None, found.trials) == (True, changed.trials)


@pytest.mark.parametrize("is_held", [True, False])
def test_what_can_t_be_locked_is_changed_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    comparisons.save(kept, store)
    monkeypatch.setattr(comparisons, "LOCK_SECONDS", 0.05)
    if not is_held:
        (store.root.with_name(comparisons.FOLDER) / ".lock").mkdir()
    with comparisons.alone(store) if is_held else contextlib.nullcontext():
        assert comparisons.stop(kept, store).remarks == (comparisons.STOPPED,)
    assert comparisons.load(kept.id, store).finished is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": "x"}', "{" * 9])
def test_a_file_that_is_no_comparison_is_named(store: Store, text: str) -> None:
    path = store.root.with_name("comparisons") / "a.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RecordBroken, match="comparisons"):
        comparisons.load("last", store)


@pytest.mark.parametrize("changed", [
    '"repeat": 1e999', '"repeat": 0', '"repeat": 1000000000', '"trials": [{"arm": "cpu", "round": 1e999, "run": "r"}]',
    '"trials": [{"arm": "cpu", "round": 2, "run": "r"}]', '"trials": [{"arm": "cpu", "round": 0, "run": "r"}]',
    '"owner": [7]', '"owner": {"pid": "7"}',
])  # fmt: skip
def test_a_comparison_with_impossible_numbers_is_broken_and_hides_no_other(store: Store, changed: str) -> None:
    kept = StoredComparison("20180216-010101-compare-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    comparisons.save(kept, store)
    broken = replace(kept, id="20180217-010101-compare-bbb222")
    comparisons.save(broken, store)
    path = comparisons.path(broken.id, store)
    path.write_text(f"{path.read_text().rstrip().removesuffix('}')}, {changed}}}")
    with pytest.raises(RecordBroken, match="comparisons"):
        comparisons.load("last", store)
    assert list(comparisons.stored(store)) == [kept]
