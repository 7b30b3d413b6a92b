"""`ngcdl images`: its table, as people read it."""

from __future__ import annotations

from ngcdl.cli.images import _table


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
