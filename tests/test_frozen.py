"""A frozen dataclass of ours behaves as the standard library's."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any

import pytest

from ngcdl import frozen

PACKAGE = Path(__file__).resolve().parents[1] / "toolkit/ngcdl"


@frozen.dataclass(frozen=True)
class Pickled:
    number: int
    word: str = ""


def declared(dataclass: Callable[..., Any]) -> tuple[type[Any], type[Any]]:
    @dataclass(frozen=True)
    class Value:
        number: float
        words: tuple[str, ...] = ()
        typed: str | None = field(default=None, compare=False, repr=False)
        known: dict[str, int] = field(default_factory=dict, compare=False)

    @dataclass(frozen=True)
    class Named(Value):
        name: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __repr__(self) -> str:
            return f"<{self.name}>"

    return Value, Named


def seen(value: type[Any], named: type[Any]) -> list[object]:
    """What can be seen of the two classes and of their instances."""
    one, same, other = value(1.5, ("a",), typed="x"), value(1.5, ("a",), typed="y"), value(2.5)
    a, b = named(1, name="a"), named(2, name="a")
    shown = [repr(one), repr(a), value.__doc__, value.__match_args__, [each.name for each in dataclasses.fields(named)]]
    equal = [one == same, one == other, value(1) == named(1), a == b, one == 1.5]
    hashes = [len({one, same, other}), hash(a) == hash(b), hash(one) == hash(same)]
    made = [dataclasses.asdict(a), repr(dataclasses.replace(one, number=3)), other.known is value(2.5).known]
    return [*shown, *equal, *hashes, *made, str(inspect.signature(named)), *(refused(one, *asked) for asked in ASKED)]


ASKED = [(setattr, "number", 2), (setattr, "words", ()), (setattr, "new", 1), (delattr, "number"), (type, "x")]


def refused(value: object, ask: Callable[..., object], *about: object) -> str:
    with pytest.raises((FrozenInstanceError, TypeError)) as error:
        type(value)() if ask is type else ask(value, *about)
    return f"{error.type.__name__}: {error.value}"


def test_it_looks_the_same_compares_the_same_and_refuses_the_same() -> None:
    assert seen(*declared(frozen.dataclass)) == seen(*declared(dataclasses.dataclass))


def test_it_can_be_pickled_as_those_are_that_a_child_process_sends() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, "a"))) == Pickled(1, "a")


def test_it_is_taken_wherever_a_class_is_frozen_and_nothing_else_is_asked_for() -> None:
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "frozen.py"}
    those = {path for path, text in texts.items() if "@dataclass(frozen=True)\n" in text}
    assert those == {path for path, text in texts.items() if "from ngcdl.frozen import dataclass\n" in text}
