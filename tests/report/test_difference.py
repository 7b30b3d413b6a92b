"""Two records' cards are paired and named by their indexes, and their clocks' shares by reason, as far as known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import cast

import pytest

from ngcdl.record import Diagnosis, Gpu, GpuSummary, Image, Machine, Run, Summary
from ngcdl.report.measured.words import written
from ngcdl.report.shown.difference import called, difference
from ngcdl.spec import Placement, RunSpec, Workload


def used(*indexes: int | None, **more: object) -> Run:
    cards = tuple(GpuSummary(f"GPU-{at}", index=index, gpu_percent_mean=90.0) for at, index in enumerate(indexes))
    return Run("x", "finished", 1.0, summary=Summary(gpus=cards, **more))  # type: ignore[arg-type]  # its fields


@pytest.mark.parametrize(("one", "other", "names"), [
    ((3,), (1,), ["GPU 3/1 use"]),
    ((2, 3), (2, 3), ["GPU 2 use", "GPU 3 use"]),
    ((0, 1), (1, 0), ["GPU 0/1 use", "GPU 1/0 use"]),
    ((2,), (1, 2), ["GPU 2/1 use", "GPU 2 use"]),
    ((0, 0), (0, 0), ["GPU 0 use", "GPU 1 use"]),  # one on each of two nodes
    ((None,), (3,), ["GPU 0 use"]),  # an old record
    ((), (5,), ["GPU 5 use"]),
])  # fmt: skip
def test_a_card_is_called_by_its_index_in_each_of_the_runs(
    one: tuple[int | None, ...], other: tuple[int | None, ...], names: list[str]
) -> None:
    figures = difference(used(*one), used(*other)).figures
    assert [name for it in figures if (name := (written(it) or ("",))[0])] == names


def test_a_variable_that_ngcdl_sets_by_itself_is_no_difference() -> None:
    one, other = (
        Run("x", "finished", 1.0, spec={"environment": {"LR": lr, **more}})
        for lr, more in (("1", {}), ("2", {"PYTHONUNBUFFERED": "1"}))
    )
    assert difference(one, other).differs == {"spec.environment.LR": ("1", "2")}


def test_an_option_that_an_older_ngcdl_did_not_have_is_no_difference() -> None:
    asked = RunSpec(None, workload=Workload("cifar10", steps=5)).as_json()
    older = {name: value for name, value in asked.items() if name not in ("packages", "sample_seconds", "workload")}
    older["workload"] = {"name": "cifar10", "steps": 5, "batch": 128, "seed": 3}
    one, other = (Run("x", "finished", 1.0, spec=spec) for spec in (older, asked))
    assert difference(one, other).differs == {"spec.workload.seed": (3, 0)}


def test_a_terminal_is_no_difference_but_what_was_piped_in_is() -> None:
    alone, typed, fed = (
        Run("x", "finished", 1.0, spec={"tty": tty, "stdin": stdin})
        for tty, stdin in ((False, False), (True, True), (False, True))
    )
    assert [difference(one, typed).differs for one in (alone, fed)] == [{}, {"spec.stdin": (True, False)}]


def test_the_energy_of_different_cards_has_no_change_where_the_runs_can_t_be_compared() -> None:
    one, other = (
        Run("x", "finished", 1.0, summary=Summary(steps=9, gpus=(GpuSummary(index=index, joules=5.0),)))
        for index in (3, 1)
    )
    assert difference(one, other).figures["gpus.3/1.joules"].change == 0
    assert difference(one, other, ["why"]).figures["gpus.3/1.joules"].change is None


@pytest.mark.parametrize(("more", "cells"), [
    ({}, [("time from start to end", 12.0, 9.0, -0.25)]),
    ({"status": "failed"}, []),  # what did not get to its end took no time to get there
    ({"engine": "slurm"}, []),  # with the wait in the queue
    ({"spec": {"workload": {"name": "cifar10"}}}, []),  # it has a speed
])  # fmt: skip
def test_how_long_two_commands_took_is_told(more: dict[str, object], cells: list[object]) -> None:
    one = Run("x", "finished", 1.0, 13.0, 0, spec=RunSpec(None, ("ls",)).as_json())
    other = replace(replace(one, finished=10.0), **more)  # type: ignore[arg-type]  # its fields
    found = difference(one, other).figures.items()
    assert [(name[0], it.a, it.b, it.change) for field, it in found if (name := written(field))] == cells


def test_how_long_two_commands_with_a_speed_took_has_a_change_only_where_their_speeds_have_one() -> None:
    one = Run("x", "finished", 1.0, 13.0, 0, spec=RunSpec(None, ("ls",)).as_json(), summary=Summary(steps=5))
    other = replace(one, finished=10.0)
    assert difference(one, other).figures["seconds"].change == -0.25
    assert difference(one, other, ["different command"]).figures["seconds"].change is None


def test_clocks_that_were_never_held_down_were_held_down_for_none_of_the_time() -> None:
    name = "throttled_share.sw_power_cap"
    held, free, unknown = (used(throttled_share=share) for share in ({"sw_power_cap": 0.4}, {}, None))
    figure = difference(held, free).figures[name]
    assert (figure.a, figure.b, figure.change) == (0.4, 0.0, -1.0)
    figure = difference(free, held).figures[name]
    assert (figure.a, figure.b, figure.change) == (0.0, 0.4, None)
    assert difference(held, unknown).figures[name].b is None
    assert "throttled_share" not in difference(held, free).figures
    card, calm = (
        Run("x", "finished", 1.0, summary=Summary(gpus=(GpuSummary(index=0, throttled_share=share),)))
        for share in ({"hw_slowdown": 0.1}, {})
    )
    assert difference(card, calm).figures["gpus.0.throttled_share.hw_slowdown"].b == 0.0


def test_no_name_of_a_field_is_shown_as_it_is_stored_and_no_two_are_called_alike() -> None:
    def other(value: object) -> object:
        return {name: other(one) for name, one in value.items()} if isinstance(value, dict) else "other"

    asked = RunSpec(None, ("ls",), environment=(("LR_MAX", "1"),), workload=Workload("cifar10"), placement=Placement())
    machine = Machine("a", "b", 1, 2, "c", "d", (Gpu(0, "T4", "GPU-0", 1, "7.5"),), 3, 4)
    found = Diagnosis("a", "b", "c", "d", "e", "f")
    spec = asked.as_json()
    one = Run("x", "failed", 1.0, 2.0, 1, True, "a", "b", "c", None, "d", image=Image("a", "b", "c"), dataset="a",
              dataset_note="b", device="cpu", machine=machine, spec=spec, notes=("a",), diagnosis=found, ngcdl="1",
              program="a", packages=("a",))  # fmt: skip
    fields = [*difference(one, Run("y", "finished", 1.0, gpus=(), spec=cast("dict[str, object]", other(spec)))).differs]
    names = {field: called(field) for field in fields}
    assert len(fields) > 70
    assert {"variable LR_MAX", "GPU 0 of the machine: memory", "memory limit", "time limit"} <= {*names.values()}
    plain = [name for name in names.values() if not name.startswith("variable ")]
    assert [name for name in plain if "_" in name or "." in name] == []
    assert [name for name, times in Counter(names.values()).items() if times > 1] == []
