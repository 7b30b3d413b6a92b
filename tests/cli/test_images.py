"""`ngcdl images`: its table, as people read it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from house import House

from ngcdl.cli.images import _judged, _table, _whose
from ngcdl.errors import KeyRejected, LoginNeeded, NgcdlError, RateLimited
from ngcdl.judging.imagefacts import Found, Tags
from ngcdl.judging.judge import Judgement
from ngcdl.preflight.facts import CardVerdict, Gpu, HostFacts, ImageFacts, Verdict
from ngcdl.spec import ImageRef


def test_a_row_of_the_longest_usual_name_fits_an_ordinary_terminal() -> None:
    facts = {"framework_version": "2.17.0", "python": "3.12", "cuda": "12.8.0.038", "recalled": ("python",)}
    why = {"verdict": "caution", "mode": None, "rule": "no-gpu", "found": None, "needed": None, "recalled": False}
    row = {"image": "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "compressed_bytes": 12 << 30, "facts": facts, **why}
    shown = _table([row], "here", 80).splitlines()
    assert len(shown) == 2
    assert shown[1].split() == [
        "tensorflow:25.02-tf2-py3", "2.17.0", "3.12*", "12.8.0", "12.0", "GiB", "caution:", "no", "GPU",
    ]  # fmt: skip
    mixed = {**row, "rule": "mixed", "mode": "forward"}
    assert [line.split()[-2:] for line in _table([mixed], "here", 80).splitlines()[1:]] == [["some", "cards"]]
    (head, unsized) = _table([{**row, "compressed_bytes": None}], "here", 80).splitlines()
    assert head.split() == ["IMAGE", "FRAMEWORK", "PYTHON", "CUDA", "HERE"], "no size is known"
    assert "n/a" not in unsized
    (_, other) = _table([{**row, "image": "mirror.example/ngc/nvidia/cuda:13.0.2"}], "here", None).splitlines()
    assert other.startswith("ngc/nvidia/cuda:13.0.2 "), "of a mirror it is the whole path"


def test_cards_have_the_numbers_that_the_driver_gives_them() -> None:
    ref = ImageRef.parse("pytorch:25.03-py3")
    cards = tuple(CardVerdict(Gpu("8.0", f"card {index}", index=index), "runs", None, ()) for index in (1, None, 3))
    it = Judgement(ref, HostFacts(), Found(ImageFacts(ref), "cache", None, 0, 0), Verdict("runs", None, (), cards))
    shown = _judged(it, "here").splitlines()
    assert [line[:5] for line in shown if line.startswith("GPU ")] == ["GPU 1", "GPU 1", "GPU 3"]
    eight = _judged(replace(it, verdict=Verdict("runs", None, (), cards[:1] * 8)), "here").splitlines()
    assert [line for line in eight if "GPU" in line] == ["GPUs         8 × card 1: runs"]


@pytest.mark.parametrize(("tags", "note"), [
    (Tags(("1",), "registry", None), []),
    (Tags(("1",), "catalogue", None), []),
    (Tags(("1",), "catalogue", RateLimited("nvcr.io", None)), ["These tags are from ngcdl's own catalogue."]),
    (Tags(("1",), "cache", RateLimited("nvcr.io", None), 7500.0), ["These tags are what it listed 2 h ago."]),
    (Tags(("1",), "cache", RateLimited("nvcr.io", None), 86400.0 * 3), ["These tags are what it listed 3 days ago."]),
])  # fmt: skip
def test_whose_tags_they_are_is_said_if_the_registry_was_not_heard(tags: Tags, note: list[str]) -> None:
    assert _whose(tags) == [f"nvcr.io is limiting the rate of requests. {text}" for text in note]


@pytest.mark.parametrize(
    ("trouble", "line"),
    [
        (LoginNeeded("nvcr.io", "nvidia/pytorch"), "    ngcdl login"),
        (LoginNeeded("mirror.example", "x", "docker login mirror.example"), "    docker login mirror.example"),
        (KeyRejected("nvcr.io", variable="NGC_API_KEY"), "    unset NGC_API_KEY && ngcdl login"),
        (RateLimited("nvcr.io", None), None),
    ],
)
@pytest.mark.parametrize("origin", ["catalogue", "cache"])
def test_whoever_has_to_sign_in_first_is_told_how(trouble: NgcdlError, line: str | None, origin: str) -> None:
    ref = ImageRef.parse("pytorch:25.03-py3")
    found = Found(ImageFacts(ref), origin, trouble, 0, 0)
    (note,) = _whose(Tags(("1",), origin, trouble, 7500.0))
    for text in (note, _judged(Judgement(ref, HostFacts(), found, Verdict("runs", None, ())), "here")):
        assert text.count("login") == (line is not None), text
        if line:
            assert text.splitlines()[-1].endswith(line)


@pytest.mark.parametrize(("host", "newest_ten", "is_added"), [
    ("driver=535.104.05,gpu=RTX 3060", {"no"}, True),
    ("driver=535.104.05,gpu=T4", {"runs"}, False),
    ("driver=304.1,cc=2.0,brand=geforce", {"no"}, False),
])  # fmt: skip
def test_where_none_of_the_newest_ten_runs_the_newest_that_does_is_listed_too(
    house: House, host: str, newest_ten: set[str], is_added: bool
) -> None:
    env = {"NGCDL_REGISTRY": "127.0.0.1:1"}  # only the catalogue answers
    rows = json.loads(house.run("images", "pytorch", "--host", host, "--json", env=env).stdout)
    assert {row["verdict"] for row in rows[:10]} == newest_ten
    assert [row["verdict"] for row in rows[10:]] == ["runs"] * is_added
    listed = house.run("images", "pytorch", "--host", host, env=env)
    newest = json.loads(house.run("check", rows[0]["image"], "--host", host, "--json", env=env).stdout)["newest"]
    assert len(listed.stdout.splitlines()) == 1 + len(rows)
    if is_added:
        assert rows[-1]["image"] == newest
        tag = newest.rpartition(":")[2]
        assert f"pytorch: none of the newest 10 runs; {tag} is the newest known to\n" in listed.stderr
    else:
        assert "none of the newest" not in listed.stderr
    every = json.loads(house.run("images", "pytorch", "--host", host, "--json", "--all", env=env).stdout)
    assert f"{len(every) - len(rows)} more:" in listed.stderr
