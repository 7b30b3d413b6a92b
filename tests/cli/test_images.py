"""`ngcdl images`: its table, as people read it."""

from __future__ import annotations

import pytest

from ngcdl.cli.images import _table, _whose
from ngcdl.errors import RateLimited
from ngcdl.imagefacts import Tags


def test_a_row_of_the_longest_usual_name_fits_an_ordinary_terminal() -> None:
    facts = {"framework_version": "2.17.0", "python": "3.12", "cuda": "12.8.0.038", "recalled": ("python",)}
    why = {"verdict": "caution", "mode": None, "rule": "no-gpu", "found": None, "needed": None, "recalled": False}
    row = {"image": "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "compressed_bytes": 12 << 30, "facts": facts, **why}
    shown = _table([row], "here", 80).splitlines()
    assert len(shown) == 2
    assert shown[1].split() == [
        "tensorflow:25.02-tf2-py3", "2.17.0", "3.12*", "12.8.0", "12.0", "GiB", "caution:", "no", "GPU",
    ]  # fmt: skip
    (_, other) = _table([{**row, "image": "mirror.example/ngc/nvidia/cuda:13.0.2"}], "here", None).splitlines()
    assert other.startswith("ngc/nvidia/cuda:13.0.2 "), "of a mirror it is the whole path"


@pytest.mark.parametrize(("tags", "note"), [
    (Tags(("1",), "registry", None), []),
    (Tags(("1",), "catalogue", None), []),
    (Tags(("1",), "catalogue", RateLimited("nvcr.io", None)), ["These tags are from ngcdl's own catalogue."]),
    (Tags(("1",), "cache", RateLimited("nvcr.io", None), 7500.0), ["These tags are what it listed 2 h ago."]),
    (Tags(("1",), "cache", RateLimited("nvcr.io", None), 86400.0 * 3), ["These tags are what it listed 3 days ago."]),
])  # fmt: skip
def test_whose_tags_they_are_is_said_if_the_registry_was_not_heard(tags: Tags, note: list[str]) -> None:
    assert _whose(tags) == [f"nvcr.io is limiting the rate of requests. {text}" for text in note]
