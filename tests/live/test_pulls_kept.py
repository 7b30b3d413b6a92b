"""What arrived is kept: after a cut, after a killed client or engine, and beside a second client only the rest travels.

The 30 MB of busybox:big are one layer; the front's log shows which bytes of it left the registry.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from house import until
from ngcdl_child import Started, User, user_in
from own_engine import KINDS, engine_of_ones_own

pytestmark = pytest.mark.lab

BIG_BYTES = 30_009_333
BLOBS = ".cache/ngcdl/blobs"


@pytest.fixture
def layer(front: Front) -> str:
    return front.biggest_layer("big")


def travelled(front: Front, layer: str) -> int:
    return sum(line["bytes"] for line in front.requests(layer) if line["status"] in (200, 206))


def nothing_is_left(user: User) -> None:
    """Assert that there is no blob in the cache and no relay's image name in the engine."""
    assert [path.name for path in (user.home / BLOBS).glob("*")] == []
    assert "ngcdl-" not in user.docker("images", "-a", "--digests")


def handed_as_tars(user: User) -> set[str]:
    """Return the layers that the engine got as uncompressed tars, by content digest."""
    return {line for path in (user.home / ".cache/ngcdl").glob("unpacked-*") for line in path.read_text().split()}


def stalled(user: User, front: Front, layer: str, at: int, **environment: str) -> Started:
    """Return a pull that has `at` bytes of the layer on disk and gets no more."""
    front.break_down(blob={"stall_after": at, "match": layer})
    child = user.start("pull", "busybox:big", **environment)
    part = user.home / BLOBS / f"{layer.replace(':', '-')}.part"
    until(lambda: part.exists() and part.stat().st_size == at, f"{at} bytes of the layer")
    return child


def test_an_ordinary_pull_fetches_every_layer_once_and_leaves_nothing(puller: User, front: Front) -> None:
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    name = f"{front.host}/nvidia/busybox"
    assert done.out.strip() == f"{name}@{puller.lab['images']['busybox:big']}"
    sent = Counter(line["path"] for line in front.requests("/blobs/") if line["status"] in (200, 206))
    assert len(sent) == 3  # two layers, and the configuration, which the preflight also reads
    assert [count for path, count in sent.items() if count > 1 and front.biggest_layer("big") in path] == []
    image = puller.docker("image", "inspect", f"{name}:big", "--format", "{{.RepoTags}} {{.RepoDigests}}")
    assert image == f"[{name}:big] [{done.out.strip()}]"
    nothing_is_left(puller)


@pytest.mark.parametrize("redirect", [False, True], ids=["registry", "cdn"])
def test_after_a_cut_at_99_percent_less_than_2_percent_travel_again(
    puller: User, front: Front, layer: str, redirect: bool
) -> None:
    at = BIG_BYTES * 99 // 100
    # Two cuts: the first may hit an answer that only asks for a token, and after the second the rest is too short.
    front.break_down(blob={"cut_after": at, "times": 2, "match": layer}, redirect_blobs=redirect)
    done = puller.run("run", "busybox:big", "--", "sh", "-c", "wc -c < /big.bin")
    assert (done.code, done.out) == (0, "30000000\n"), done
    lines = [line for line in front.requests(layer) if line["status"] in (200, 206)]
    assert [(line["range"], line["bytes"]) for line in lines] == [(None, at), (f"bytes={at}-", BIG_BYTES - at)]
    assert {(line["listener"], line["authorization"]) for line in lines} == {
        ("cdn", "none") if redirect else ("registry", "bearer")
    }
    assert puller.record()["image"]["digest"] == puller.lab["images"]["busybox:big"]


@pytest.mark.parametrize("percent", [50, 99])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_next_pull_after_a_dead_client_fetches_only_the_rest(
    puller: User, front: Front, layer: str, percent: int, number: signal.Signals
) -> None:
    at = BIG_BYTES * percent // 100
    child = stalled(puller, front, layer, at)
    child.signal(number)
    assert child.done().code == (130 if number == signal.SIGINT else -9)
    front.break_down()
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    assert travelled(front, layer) == BIG_BYTES
    nothing_is_left(puller)


def test_the_next_pull_after_a_killed_engine_fetches_only_the_rest(
    lab: dict[str, Any], front: Front, layer: str, tmp_path: Path
) -> None:
    with engine_of_ones_own(lab) as engine, user_in(tmp_path, lab, engine.host) as user:
        user.environment["NGCDL_REGISTRY"] = front.host
        child = stalled(user, front, layer, 20_000_000)
        engine.kill9()
        done = child.done()
        assert done.code == 125, done
        assert "went away while ngcdl was pulling the image" in done.err
        engine.start()
        front.break_down()
        done = user.run("pull", "busybox:big")
        assert done.code == 0, done
        assert travelled(front, layer) == BIG_BYTES
        nothing_is_left(user)


def test_two_pulls_at_once_are_one_download(puller: User, front: Front, layer: str) -> None:
    front.break_down(blob={"bytes_per_second": 3_000_000, "match": layer})  # the other has ten seconds to come
    children = [puller.start("pull", "busybox:big") for _ in range(2)]
    for child in children:
        done = child.done()
        assert done.code == 0, done
        assert done.out.strip().endswith(puller.lab["images"]["busybox:big"])
    assert sum("Another ngcdl is pulling this image" in child.err for child in children) == 1
    assert travelled(front, layer) == BIG_BYTES
    nothing_is_left(puller)


def test_when_the_first_of_two_dies_the_second_goes_on_from_its_bytes(puller: User, front: Front, layer: str) -> None:
    first = stalled(puller, front, layer, 7_000_000)  # and again after as many: the other has a minute to come
    second = puller.start("pull", "busybox:big")
    second.until_err("Another ngcdl is pulling this image")
    front.break_down()
    first.signal(signal.SIGKILL)
    done = second.done()
    assert done.code == 0, done
    assert travelled(front, layer) == BIG_BYTES
    nothing_is_left(puller)


def test_a_name_that_a_killed_client_left_at_the_engine_goes_with_the_next_pull(
    puller: User, front: Front, layer: str
) -> None:
    nothing_is_left(puller)
    front.break_down(ping={"hang": True})  # only the engine asks for it, as the first step of its own pull
    child = puller.start("pull", "busybox:big")
    until(lambda: "/ngcdl-" in puller.docker("images", "-a", "--digests"), "the relay's name at the engine")
    child.signal(signal.SIGKILL)
    child.done()
    front.break_down()
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    assert travelled(front, layer) == BIG_BYTES, (front.requests(layer), child.err, done.err)
    nothing_is_left(puller)


def test_a_layer_that_the_engine_has_from_another_image_does_not_travel(puller: User, front: Front, layer: str) -> None:
    assert puller.run("pull", "busybox:1").code == 0
    before = len(front.requests("/blobs/"))
    done = puller.run("pull", "busybox:big")
    assert done.code == 0, done
    sent = {line["path"].rpartition("/")[2] for line in front.requests("/blobs/")[before:] if line["bytes"] > 10_000}
    assert sent == {layer}


def test_a_layer_that_docker_itself_has_brought_does_not_travel(puller: User, front: Front, layer: str) -> None:
    puller.docker("pull", "-q", f"{front.host}/nvidia/busybox:1")
    before = len(front.requests("/blobs/"))
    assert puller.run("pull", "busybox:big").code == 0
    sent = {line["path"].rpartition("/")[2] for line in front.requests("/blobs/")[before:] if line["bytes"] > 10_000}
    assert sent == {layer}
    assert len(handed_as_tars(puller)) == 1


def test_the_image_is_the_one_that_docker_pulls(puller: User, front: Front) -> None:
    name = f"{front.host}/nvidia/busybox:big"
    assert puller.run("pull", "busybox:big").code == 0
    look = ("image", "inspect", name, "--format", "{{.Id}} {{.RootFS}} {{.RepoDigests}} {{.Size}} {{.Architecture}}")
    ours = puller.docker(*look)
    contents = puller.docker("image", "inspect", name, "--format", '{{join .RootFS.Layers " "}}').split()
    assert handed_as_tars(puller) == set(contents), "no layer came as a tar"
    puller.docker("image", "rm", "-f", name)
    puller.docker("pull", "-q", name)
    assert puller.docker(*look) == ours


def test_an_image_that_needs_a_key_comes_the_same_way(puller: User, front: Front) -> None:
    key = puller.lab["registry"]["key"]
    done = puller.run("pull", "tensorflow:18.01-py2", NGC_API_KEY=key, seconds=180)
    assert done.code == 0, done
    sent = Counter(line["path"] for line in front.requests("/blobs/") if line["bytes"] > 100_000)
    assert set(sent.values()) == {1}
    nothing_is_left(puller)


@pytest.mark.parametrize("engine", ["floor", "containerd"])
def test_other_engines_take_the_layers_from_the_relay_too(
    lab: dict[str, Any], front: Front, layer: str, tmp_path: Path, engine: str
) -> None:
    with engine_of_ones_own(lab, **KINDS[engine]) as one, user_in(tmp_path, lab, one.host) as user:
        user.environment["NGCDL_REGISTRY"] = front.host
        front.break_down(blob={"cut_after": 20_000_000, "times": 2, "match": layer})
        done = user.run("pull", "busybox:big")
        assert done.code == 0, done
        assert "pulls by itself" not in done.err
        assert "bytes=20000000-" in [line["range"] for line in front.requests(layer)], "nothing was cut"
        assert travelled(front, layer) == BIG_BYTES
        nothing_is_left(user)
        assert bool(handed_as_tars(user)) == (engine == "floor"), "containerd keeps layers as they came"
        assert user.run("run", "busybox:big", "--", "sh", "-c", "wc -c < /big.bin").out == "30000000\n"


# -- where the relay can't help -------------------------------------------------------------------------------------


def test_the_engine_s_own_pull_can_be_asked_for(puller: User, front: Front) -> None:
    done = puller.run("pull", "busybox:1", NGCDL_PULL="engine")
    assert done.code == 0, done
    assert "The engine pulls by itself: NGCDL_PULL=engine." in done.err
    assert not (puller.home / BLOBS).exists()
    done = puller.run("pull", "busybox:1", NGCDL_PULL="teleport")
    assert (done.code, "one of relay, engine" in done.err) == (2, True), done


@pytest.fixture
def small_cache(tmp_path: Path) -> Iterator[str]:
    """A cache of 10 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting wants root")
    folder = tmp_path / "cache"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(folder)], check=True)
    yield str(folder)
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_without_room_for_the_layers_here_the_engine_pulls_by_itself(
    puller: User, front: Front, layer: str, small_cache: str
) -> None:
    done = puller.run("pull", "busybox:big", XDG_CACHE_HOME=small_cache)
    assert done.code == 0, done
    assert f"The engine pulls by itself: {small_cache}/ngcdl/blobs has no room" in done.err
    assert travelled(front, layer) == BIG_BYTES


def test_a_disk_that_is_surely_too_small_is_told_before_a_layer_is_fetched(
    lab: dict[str, Any], front: Front, layer: str, tmp_path: Path
) -> None:
    with engine_of_ones_own(lab, tmpfs_bytes=20_000_000) as engine, user_in(tmp_path, lab, engine.host) as user:
        done = user.run("pull", "busybox:big", "--force", NGCDL_REGISTRY=front.host)
        assert done.code == 125, done
        assert f"No space left in {engine.folder}/data" in done.err
        assert "needs 29.7 MiB there at least, and about 74.2 MiB in the end" in done.err
        assert front.requests(layer) == []
