"""ngcdl.registry.nearest: which tag a mistyped one may have meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.registry.nearest import nearest

TAGS = [
    "17.12", "18.01-py2", "18.01-py3", "18.02-py2", "18.02-py3", "18.12-py2", "19.10-py2", "19.10-py3",
    "19.11-tf1-py3", "19.11-tf2-py3", "23.02-tf1-py3", "23.03-tf1-py3", "23.03-tf2-py3", "25.01-tf2-py3",
    "25.02-tf2-py3", "25.02-tf2-py3-igpu", "latest-tf2", "sha256-0123.sig",
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        ("18.01-py4", ["18.01-py2", "18.01-py3"]),
        ("18.03-py2", ["18.02-py2"]),
        ("18.1-py2", ["18.01-py2"]),
        ("2018.01-py2", ["18.01-py2"]),
        ("18.01", ["18.01-py2", "18.01-py3"]),
        ("23.04-tf1-py3", ["23.03-tf1-py3"]),
        ("25.02-tf1-py3", ["25.02-tf2-py3"]),
        ("25.03-tf2-py3", ["25.02-tf2-py3"]),
        ("latest", ["25.02-tf2-py3", "25.02-tf2-py3-igpu", "25.01-tf2-py3"]),
        ("latest-tf1", ["latest-tf2"]),
    ],
)
def test_the_tag_that_was_meant_comes_first(wanted, first):
    found = nearest(wanted, TAGS)
    assert list(found[: len(first)]) == first
    assert len(found) <= 5


def test_nothing_is_near_where_nothing_is():
    assert nearest("18.01-py2", []) == ()
    assert nearest("zzz", TAGS) == ()


@given(st.text(max_size=40), st.lists(st.text("0123456789.-pytf", max_size=12), max_size=20))
def test_only_tags_that_exist_are_offered(wanted, tags):
    found = nearest(wanted, tags)
    assert set(found) <= set(tags)
    assert len(found) <= 5
