"""ngcdl.engines: a connection that is made while other work goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ngcdl import choice, engines
from ngcdl.engines import docker
from ngcdl.errors import EngineAbsent, EngineHangs
from ngcdl.spec import GpuRequest, ImageRef
from ngcdl.telemetry import gpu as nvml


@pytest.fixture(autouse=True)
def _nothing_begun() -> Iterator[None]:
    yield
    engines._begun.clear()


def test_the_next_connection_is_the_one_that_was_begun_and_later_ones_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[threading.Thread] = []

    def connect() -> SimpleNamespace:
        by.append(threading.current_thread())
        return SimpleNamespace(version="27")

    monkeypatch.setattr(docker, "connect", connect)
    engines.begin_to_connect()
    first = engines.connect("docker")
    assert engines.connect("docker") is not first
    assert [one is threading.current_thread() for one in by] == [False, True]


def test_an_engine_that_was_not_reached_is_told_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> SimpleNamespace:
        raise EngineAbsent("unix:///there", "nobody listens")

    monkeypatch.setattr(docker, "connect", connect)
    engines.begin_to_connect()
    with pytest.raises(EngineAbsent, match="nobody listens"):
        engines.connect("docker")


def test_an_engine_that_does_not_say_what_it_is_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []

    class Silent:
        @property
        def version(self) -> str:
            asked.append(None)
            raise EngineHangs("unix:///there", 60)

    monkeypatch.setattr(docker, "connect", Silent)
    engines.begin_to_connect()
    with pytest.raises(EngineHangs):
        _ = engines.connect("docker").version  # type: ignore[attr-defined]  # of an Engine
    assert len(asked) == 1


def test_the_driver_is_asked_when_no_other_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked in a forked process, where a lock that another thread holds would stay locked for ever."""
    before = threading.active_count()

    def connect() -> SimpleNamespace:
        time.sleep(0.05)
        raise EngineAbsent("unix:///there", "nobody listens")

    def probe() -> nvml.Probe:
        assert threading.active_count() <= before  # an earlier test's may end
        return nvml.Probe(absent=True)

    monkeypatch.setattr(docker, "connect", connect)
    monkeypatch.setattr(nvml, "probe", probe)
    engines.begin_to_connect()
    image = ImageRef("nvcr.io", "nvidia/pytorch", "26.07-py3")
    with pytest.raises(EngineAbsent):
        choice.choose(choice.Wanted("auto", image, GpuRequest("none"), "nvcr.io"))
