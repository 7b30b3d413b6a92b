"""`ngcdl resolve` with the registry unreachable: it prints nothing that a script could take for an answer."""

from __future__ import annotations

from house import House

THERE = ("resolve", "tensorflow", "--host", "driver=535.104.05,gpu=GTX1050Ti")


def test_without_the_registry_stdout_stays_empty_and_the_tag_that_is_known_is_told(house: House) -> None:
    done = house.run(*THERE, env={"NGCDL_REGISTRY": "127.0.0.1:1"})
    assert (done.returncode, done.stdout) == (125, "")
    assert "127.0.0.1:1 can't be reached" in done.stderr
    assert "its digest is unknown:\n      127.0.0.1:1/nvidia/tensorflow:24.12-tf2-py3\n" in done.stderr


def test_where_nothing_is_known_no_tag_is_told(house: House) -> None:
    done = house.run("resolve", "busybox", env={"NGCDL_REGISTRY": "127.0.0.1:1"})
    assert (done.returncode, done.stdout) == (125, "")
    assert "can't be reached" in done.stderr
    assert "newest" not in done.stderr
