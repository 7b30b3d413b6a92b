"""Pulls over a bad line, onto an empty engine: resumed, retried or given up; never the wrong bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from ngcdl_child import User, user_in
from own_engine import engine_of_ones_own

pytestmark = pytest.mark.lab

HTML = {"content_type": "text/html", "body": "<html><body>Sign in to the hotel's network</body></html>"}


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 502, **HTML}, {"status": 429}], ids=["500", "502", "429"]
)
def test_a_registry_that_stumbles_once_is_asked_again(puller: User, front: Front, fault: dict[str, object]) -> None:
    front.break_down(manifest={**fault, "times": 1})
    done = puller.run("pull", "busybox:1")
    assert done.code == 0, done
    assert f"/nvidia/busybox@{puller.lab['images']['busybox:1']}" in done.out
    assert next(line["status"] for line in front.requests("/manifests/")) == fault["status"]


def test_a_registry_that_limits_for_ever_is_given_up(puller: User, front: Front) -> None:
    front.break_down(manifest={"status": 429, "headers": {"Retry-After": "1"}})
    done = puller.run("run", "busybox:1", "--", "true")
    assert done.code == 125, done
    assert "is limiting the rate of requests" in done.err
    assert done.err.count("Trying again in") == 3
    assert not puller.ids()


def test_a_page_instead_of_a_token_is_no_registry(puller: User, front: Front) -> None:
    front.break_down(token={"status": 200, **HTML})
    done = puller.run("pull", "busybox:1")
    assert done.code == 125, done
    assert f"{front.host} did not answer like a registry" in done.err


def test_a_slow_token_is_waited_for(puller: User, front: Front) -> None:
    front.break_down(token={"delay": 3})
    done = puller.run("pull", "busybox:1")
    assert done.code == 0, done


def test_a_token_that_expires_in_mid_pull_is_fetched_anew(puller: User, front: Front) -> None:
    # Two cuts: the first may hit an answer that only asks for a token, and after the second the rest is too short.
    slow = {"bytes_per_second": 10_000_000, "cut_after": 16_000_000, "times": 2}
    layer = front.biggest_layer("big")
    front.break_down(token_lifetime=1, realm_moves=True, blob={**slow, "match": layer})
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    resumed = [(line["range"], line["status"]) for line in front.requests(layer) if line["range"]]
    assert resumed == [("bytes=16000000-", 401), ("bytes=16000000-", 206)], "no token expired"
    assert "Trying again" not in done.err


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "1"}}, {"reset": True}])
def test_a_blob_that_is_refused_for_a_while_is_asked_for_again(
    puller: User, front: Front, fault: dict[str, object]
) -> None:
    front.break_down(blob={**fault, "times": 2, "match": front.biggest_layer("big")})
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    assert "Trying again" not in done.err  # only the engine's own pull prints that


def test_a_layer_that_is_cut_every_time_is_given_up(puller: User, front: Front) -> None:
    front.break_down(blob={"cut_after": 1000})
    done = puller.run("run", "busybox:big", "--", "true", seconds=240)
    assert done.code == 125, done
    assert f"{front.host} can't be reached: the connection was cut" in done.err
    assert "What arrived is kept" in done.err
    assert not puller.ids()


def _has_an_old_image(puller: User, front: Front) -> None:
    """Pull an image with other content under the tag that is pulled next."""
    name = f"{front.host}/nvidia/busybox"
    puller.docker("pull", "-q", f"{name}:entry")
    puller.docker("tag", f"{name}:entry", f"{name}:big")
    puller.docker("rmi", f"{name}:entry")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"blob": {"corrupt": True, "skip": 1}}, "What arrived does not match its digest"),
        ({"blob": {"status": 404}}, "nvidia/busybox"),
    ],
    ids=["corrupt", "404"],
)
def test_the_old_image_of_a_tag_is_never_run_for_a_broken_new_one(
    puller: User, front: Front, fault: dict[str, dict[str, object]], text: str
) -> None:
    _has_an_old_image(puller, front)
    front.break_down(**fault)
    done = puller.run("run", "busybox:big", "--pull", "always", "--", "echo", "ran", seconds=240)
    assert done.code == 125, done
    assert text in done.err, done
    assert "ran" not in done.out
    assert not puller.ids()
    assert not list(puller.home.glob(".cache/ngcdl/blobs/*" + front.biggest_layer("big").partition(":")[2]))


def test_the_old_image_of_a_tag_is_never_run_for_a_broken_manifest(
    lab: dict[str, Any], front: Front, tmp_path: Path
) -> None:
    # An engine of its own: an engine that has ever seen the new manifest would not fetch it again.
    with engine_of_ones_own(lab) as engine, user_in(tmp_path, lab, engine.host) as user:
        _has_an_old_image(user, front)
        front.break_down(manifest={"corrupt": True})
        words = ("run", "busybox:big", "--pull", "always", "--", "echo", "ran")
        done = user.run(*words, seconds=240, NGCDL_REGISTRY=front.host)
        assert done.code == 125, done
        assert "ran" not in done.out
        assert not user.ids()


def test_a_manifest_that_is_not_its_digest_is_refused(puller: User, front: Front) -> None:
    front.break_down(manifest={"corrupt": True})
    done = puller.run("run", f"busybox@{puller.lab['images']['busybox:1']}", "--", "echo", "ran")
    assert done.code == 125, done
    assert f"{front.host} did not answer like a registry" in done.err, done.err
    assert done.out == ""
