"""One pull at a time, and the image names that are left in an engine."""

from __future__ import annotations

from pathlib import Path

from ngcdl.pulling.pull_lock import PullLock, left_behind
from ngcdl.spec import ImageRef

IMAGE = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
NAME = ImageRef("127.0.0.1:40001", f"ngcdl-{'0' * 32}/nvidia/tensorflow", None, IMAGE)


def test_one_at_a_time_pulls_an_image_onto_an_engine(tmp_path: Path) -> None:
    with PullLock(tmp_path, IMAGE, "one") as first:
        assert first.take()
        assert first.take()
        for digest, engine, is_free in ((IMAGE, "one", False), (OTHER, "one", True), (IMAGE, "two", True)):
            with PullLock(tmp_path, digest, engine) as second:
                assert second.take() is is_free
    with PullLock(tmp_path, IMAGE, "one") as third:
        assert third.take()


def test_a_turn_that_was_forgotten_can_be_taken_again(tmp_path: Path) -> None:
    with PullLock(tmp_path, IMAGE, None) as first:
        assert first.take()
        first.forget()
        with PullLock(tmp_path, IMAGE, None) as second:
            assert second.take()


def test_the_next_one_hears_the_names_of_one_that_died(tmp_path: Path) -> None:
    with PullLock(tmp_path, IMAGE, "one") as dead:
        assert dead.take()
        dead.note(NAME)
        assert list(left_behind(tmp_path, "one")) == [], "it lives"
    with PullLock(tmp_path, IMAGE, "one") as turn:
        assert turn.take()
        assert turn.names() == [NAME]
    assert list(left_behind(tmp_path, "two")) == []
    assert list(left_behind(tmp_path, "one")) == [NAME]
    assert list(left_behind(tmp_path, "one")) == []


def test_nothing_but_a_relay_s_name_is_ever_given(tmp_path: Path) -> None:
    with PullLock(tmp_path, IMAGE, "one") as turn:
        assert turn.take()
        turn.note(ImageRef.parse("nvcr.io/nvidia/tensorflow:18.01-py2"))
        turn.note(ImageRef("127.0.0.1:5000", "nvidia/tensorflow", "1"))
    (file,) = tmp_path.iterdir()
    with file.open("ab") as more:
        more.write(b"\xff\0 half a li")
    assert list(left_behind(tmp_path, "one")) == []
