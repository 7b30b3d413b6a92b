from __future__ import annotations

import base64
import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ngcdl.dataset import Archive
from ngcdl.errors import DatasetUnavailable, DiskFull

from . import small
from .host import Clock, Host, whole
from .server import Reply, Server

Serve = Callable[..., Server]
PACKED = small.PACKED
HALF = len(PACKED) // 2
OTHER = gzip.compress(random.Random(1).randbytes(len(PACKED)))[: len(PACKED)]


def at(server: Server) -> Archive:
    return small.archive_of(PACKED, server.url)


def test_the_archive_is_downloaded_verified_and_unpacked(host: Host, serve: Serve) -> None:
    server = serve()
    dataset = host.prepare(archive=at(server))
    assert whole(dataset)
    assert (dataset.kind, dataset.sha256) == ("cifar10", small.TRAINING_SHA256)
    assert dataset.note == "the official files, bit for bit"
    assert not host.part.exists()
    assert len(server.seen) == 1


def test_progress_tells_bytes_total_and_rate(host: Host, serve: Serve) -> None:
    host.clock = Clock(step=0.5)
    seen: list[tuple[int, int | None, float | None]] = []
    host.prepare(archive=at(serve(Reply(PACKED, chunk=20_000))), progress=lambda *news: seen.append(news))
    assert [total for _, total, _ in seen] == [len(PACKED)] * len(seen)
    assert seen[-1][0] == len(PACKED)
    assert (seen[-1][2] or 0) > 0
    assert [have for have, _, _ in seen] == sorted(have for have, _, _ in seen)


def test_a_cut_download_goes_on_with_range(host: Host, serve: Serve) -> None:
    server = serve(Reply(PACKED, cut_after=HALF), Reply(PACKED))
    assert whole(host.prepare(archive=at(server)))
    assert server.seen[1]["range"] == f"bytes={HALF}-"
    assert host.clock.slept == [1.0]


def test_a_download_that_is_always_cut_is_given_up_and_the_next_run_goes_on(host: Host, serve: Serve) -> None:
    server = serve(Reply(PACKED, cut_after=10_000))
    with pytest.raises(DatasetUnavailable, match="cut after") as caught:
        host.prepare(archive=at(server))
    assert "What arrived is kept" in caught.value.message
    assert host.part.stat().st_size == 40_000
    assert host.part.read_bytes() == PACKED[:40_000]
    server.replies = [Reply(PACKED)]
    assert whole(host.prepare(archive=at(server)))
    assert server.seen[-1]["range"] == "bytes=40000-"


def test_an_archive_that_changes_half_way_costs_one_clean_try(host: Host, serve: Serve) -> None:
    server = serve(Reply(OTHER, cut_after=HALF), Reply(PACKED))
    assert whole(host.prepare(archive=at(server)))
    assert [seen.get("range") for seen in server.seen] == [None, f"bytes={HALF}-", None]


def test_a_server_without_ranges_begins_from_zero(host: Host, serve: Serve) -> None:
    server = serve(Reply(PACKED, cut_after=HALF, ranges=False), Reply(PACKED, ranges=False))
    assert whole(host.prepare(archive=at(server)))


@pytest.mark.parametrize("reply", [
    Reply(PACKED[:1000]), Reply(PACKED, ranges=False, cut_after=5000), Reply(OTHER, ranges=False, cut_after=50_000),
], ids=["short", "no-ranges", "no-ranges-and-other-bytes"])  # fmt: skip
def test_a_server_that_brings_nothing_new_takes_nothing_away(host: Host, serve: Serve, reply: Reply) -> None:
    host.cache.mkdir()
    host.part.write_bytes(PACKED[:60_000])
    with pytest.raises(DatasetUnavailable, match="What arrived is kept"):
        host.prepare(archive=at(serve(reply)))
    assert host.part.read_bytes() == PACKED[:60_000]


def test_a_server_without_ranges_brings_what_is_missing(host: Host, serve: Serve) -> None:
    host.cache.mkdir()
    host.part.write_bytes(PACKED[:60_000])
    server = serve(Reply(PACKED, ranges=False, cut_after=HALF), Reply(PACKED))
    assert whole(host.prepare(archive=at(server)))
    assert server.seen[1]["range"] == f"bytes={HALF}-"


def test_a_part_that_is_too_long_is_dropped(host: Host, serve: Serve) -> None:
    host.cache.mkdir()
    host.part.write_bytes(PACKED + b"more")
    assert whole(host.prepare(archive=at(serve())))


def test_a_part_that_is_whole_needs_no_request(host: Host, refused: str) -> None:
    host.cache.mkdir()
    host.part.write_bytes(PACKED)
    assert whole(host.prepare(archive=small.archive_of(PACKED, refused)))


def test_busy_answers_are_waited_out(host: Host, serve: Serve) -> None:
    busy = Reply(b"busy", status=503, headers={"Retry-After": "7"})
    server = serve(busy, Reply(b"", status=429), Reply(PACKED))
    assert whole(host.prepare(archive=at(server)))
    assert host.clock.slept == [7.0, 2.0]
    waits = [line.partition(": ")[2] for line in host.said if "trying again" in line]
    assert waits == ["it answers 503; trying again in 7 s", "it answers 429; trying again in 2 s"]


def test_a_server_that_stays_busy_is_given_up(host: Host, serve: Serve) -> None:
    server = serve(Reply(b"busy", status=503))
    with pytest.raises(DatasetUnavailable, match="it answers 503"):
        host.prepare(archive=at(server))
    assert len(server.seen) == 4


def test_an_unknown_page_is_not_asked_for_twice(host: Host, serve: Serve) -> None:
    server = serve(Reply(b"no", status=404))
    with pytest.raises(DatasetUnavailable, match="it answers 404") as caught:
        host.prepare(archive=at(server))
    assert len(server.seen) == 1
    assert "--data DIR" in caught.value.hint
    assert "--data synthetic" in caught.value.hint


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>sign in</html>", kind="text/html; charset=utf-8"),
        Reply(b"<html>sign in</html>"),
        Reply(b"<html>sign in</html>", length=False),
        Reply(PACKED + b"more"),
        Reply(PACKED + b"more", length=False),
        Reply(b"<" * len(PACKED)),
    ],
    ids=["html", "short", "short without length", "long", "long without length", "no gzip"],
)
@pytest.mark.parametrize("have", [0, 50_000])
def test_what_is_not_the_archive_is_called_so_and_a_part_survives(
    host: Host, serve: Serve, reply: Reply, have: int
) -> None:
    reply.ranges = False
    host.cache.mkdir()
    host.part.write_bytes(PACKED[:have])
    with pytest.raises(DatasetUnavailable, match="not the archive") as caught:
        host.prepare(archive=at(serve(reply)))
    assert not (host.cache / "cifar-10").exists()
    assert ("What arrived is kept" in caught.value.message) == (host.part.stat().st_size > 0)
    if reply.body.startswith(b"<"):
        assert host.part.read_bytes() == PACKED[:have]


def test_a_web_page_at_one_mirror_leads_to_the_next(host: Host, serve: Serve) -> None:
    page = serve(Reply(b"<html>", kind="text/html"))
    host.environ["NGCDL_CIFAR10_URLS"] = page.url
    assert whole(host.prepare(archive=at(serve())))
    assert any("not the archive but a web page" in line for line in host.said)


def test_wrong_bytes_are_kept_as_bad_and_refused(host: Host, serve: Serve) -> None:
    server = serve(Reply(OTHER))
    with pytest.raises(DatasetUnavailable, match=r"does not send the official bytes \(kept as .*bad\)\.$"):
        host.prepare(archive=at(server))
    assert (host.cache / "cifar-10-binary.tar.gz.bad").read_bytes() == OTHER
    assert not host.part.exists()
    assert not (host.cache / "cifar-10").exists()
    assert len(server.seen) == 1


def test_wrong_bytes_in_an_old_half_cost_one_clean_try(host: Host, serve: Serve) -> None:
    host.cache.mkdir()
    host.part.write_bytes(OTHER[:HALF])
    server = serve()
    assert whole(host.prepare(archive=at(server)))
    assert [seen.get("range") for seen in server.seen] == [f"bytes={HALF}-", None]


def test_the_half_of_one_mirror_is_finished_by_another(host: Host, serve: Serve) -> None:
    first, second = serve(Reply(PACKED, cut_after=HALF), Reply(b"", status=404)), serve()
    host.environ["NGCDL_CIFAR10_URLS"] = first.url
    assert whole(host.prepare(archive=at(second)))
    assert second.seen[0]["range"] == f"bytes={HALF}-"
    assert sorted(path.name for path in host.cache.iterdir() if path.name.startswith("cifar-10-binary")) == [
        "cifar-10-binary.tar.gz"
    ]


def test_a_stalled_mirror_is_left_for_the_next(host: Host, serve: Serve) -> None:
    host.stall_seconds = 10  # a busy machine may need that long to send the first half
    first, second = serve(Reply(PACKED, stall_after=HALF)), serve()
    host.environ["NGCDL_CIFAR10_URLS"] = first.url
    assert whole(host.prepare(archive=at(second)))
    assert any("no byte came for 10 s" in line for line in host.said)
    assert second.seen[0]["range"] == f"bytes={HALF}-"


def test_a_slow_mirror_is_left_after_its_probation(host: Host, serve: Serve) -> None:
    host.clock = Clock(step=20)
    slow, fast = serve(Reply(PACKED, chunk=1000, pause_seconds=0.005)), serve()
    host.environ |= {"NGCDL_CIFAR10_URLS": slow.url, "NGCDL_DOWNLOAD_MINUTES": "10"}
    assert whole(host.prepare(archive=at(fast)))
    assert any("kB/s" in line and "the limit is NGCDL_DOWNLOAD_MINUTES=10" in line for line in host.said)


def test_a_slow_official_host_is_an_error_and_not_silently_synthetic(host: Host, serve: Serve, refused: str) -> None:
    host.clock = Clock(step=20)
    host.environ["NGCDL_CIFAR10_URLS"] = refused
    with pytest.raises(DatasetUnavailable, match="kB/s, which takes") as caught:
        host.prepare(archive=at(serve(Reply(PACKED, chunk=1000, pause_seconds=0.005))))
    assert "--data synthetic" in caught.value.hint
    have = host.part.read_bytes()
    assert have
    assert PACKED.startswith(have)


def test_a_slow_host_is_waited_for_when_the_user_says_so(host: Host, serve: Serve) -> None:
    host.clock = Clock(step=20)
    host.environ["NGCDL_DOWNLOAD_MINUTES"] = "inf"
    assert whole(host.prepare(archive=at(serve(Reply(PACKED, chunk=10_000, pause_seconds=0.001)))))


def test_a_redirect_is_followed(host: Host, serve: Serve) -> None:
    target = serve()
    moved = serve(Reply(b"", status=302, headers={"Location": target.url}))
    assert whole(host.prepare(archive=at(moved)))


def test_a_password_of_netrc_is_not_sent_and_one_in_the_address_is(
    host: Host, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login me password hush\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server = serve(Reply(b"", status=404), Reply(PACKED))
    official = at(server)
    host.environ["NGCDL_CIFAR10_URLS"] = official.url.replace("://", "://bird:nest@")
    assert whole(host.prepare(archive=official))
    basic = base64.b64encode(b"bird:nest").decode()
    assert [seen.get("authorization") for seen in server.seen] == [f"Basic {basic}", None]


@pytest.mark.parametrize("location", ["http://192.0.2.1/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "https://"])
def test_a_redirect_to_plain_http_is_refused(host: Host, serve: Serve, location: str) -> None:
    with pytest.raises(DatasetUnavailable, match="without https"):
        host.prepare(archive=at(serve(Reply(b"", status=302, headers={"Location": location}))))


def test_a_redirect_to_nonsense_is_a_failure(host: Host, serve: Serve) -> None:
    with pytest.raises(DatasetUnavailable, match="redirects to something that is no address"):
        host.prepare(archive=at(serve(Reply(b"", status=302, headers={"Location": "http://["}))))


def test_a_ring_of_redirects_ends(host: Host, serve: Serve) -> None:
    server = serve(Reply(b"", status=302, headers={"Location": "/again"}))
    with pytest.raises(DatasetUnavailable, match="redirects more than 5 times"):
        host.prepare(archive=at(server))
    assert len(server.seen) == 6


def test_a_full_disk_is_told_as_one_and_keeps_the_part(
    host: Host, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.cache.mkdir()
    host.part.symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="No space left") as caught:
        host.prepare(archive=at(serve()))
    assert host.part.is_symlink()
    assert caught.value.hint.endswith(f"\n    df -i {host.cache}"), "Docker keeps nothing there"


def test_a_cache_that_can_not_be_made_is_told(host: Host, serve: Serve) -> None:
    host.cache.write_text("a file")
    with pytest.raises(DatasetUnavailable, match="can't be used"):
        host.prepare(archive=at(serve()))
