"""What is reported during a wait."""

from __future__ import annotations

import re
import threading

from house import until

from ngcdl import meanwhile


def test_what_is_waited_for_is_said_with_the_time_until_it_is_there() -> None:
    before = threading.enumerate()  # another test's start may still be waiting for its engine
    said: list[str] = []
    waits_for: list[str | None] = ["the engine to make it"]
    with meanwhile.telling(said.append, lambda: waits_for[0], 0.01):
        until(lambda: said, "a word")
        waits_for[0] = "the engine to start it"
        until(lambda: "start" in said[-1], "a later word")
    assert all(
        re.fullmatch(r"waiting for the engine to (make|start) it \(\d+ s so far\); Ctrl-C cancels", one) for one in said
    )
    assert not [one for one in threading.enumerate() if one.name == "ngcdl-telling" and one not in before]


def test_nothing_is_said_of_what_does_not_take_long_or_has_no_name() -> None:
    said: list[str] = []
    asked: list[None] = []
    with meanwhile.telling(said.append, lambda: "the engine to start it", 60):
        pass
    with meanwhile.telling(said.append, lambda: asked.append(None), 0.01):  # type: ignore[func-returns-value]
        until(lambda: len(asked) > 1, "a second look")
    assert said == []
