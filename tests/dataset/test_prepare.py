from __future__ import annotations

import hashlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ngcdl
from ngcdl.dataset import CIFAR10, Dataset, pictures, prepare
from ngcdl.errors import BadOption, DatasetUnavailable, DatasetWrong

from . import small
from .host import Host, whole
from .server import Reply, Server

Serve = Callable[..., Server]
PACKED = small.PACKED
TESTS = Path(__file__).parent
CHILD = """
import sys
from pathlib import Path
from {package} import small
from ngcdl.dataset import prepare
dataset = prepare("auto", cache=Path(sys.argv[1]), say=lambda line: print(line, flush=True),
                  environ={{"NGCDL_DOWNLOAD_MINUTES": "inf"}}, archive=small.archive_of(small.PACKED, sys.argv[2]))
print("READY", dataset.sha256, flush=True)
"""


def child(cache: Path, url: str) -> subprocess.Popen[str]:
    """Prepare in another process."""
    path = [str(Path(ngcdl.__file__).parents[1]), str(TESTS.parent)]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path)}
    code = CHILD.format(package=TESTS.name)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(cache), url], env=environ, stdout=subprocess.PIPE, text=True
    )


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_synthetic_is_taken_at_its_word(host: Host) -> None:
    assert host.prepare("synthetic") == Dataset("synthetic", None, None, "synthetic images, as asked for")
    assert not host.cache.exists()
    assert host.said == []


def test_without_a_network_auto_is_synthetic_and_says_so_in_two_lines(host: Host, refused: str) -> None:
    host.environ["NGCDL_CIFAR10_URLS"] = "https://name.invalid/cifar-10-binary.tar.gz"
    dataset = host.prepare(archive=small.archive_of(PACKED, refused))
    assert (dataset.kind, dataset.folder, dataset.sha256) == ("synthetic", None, None)
    assert "Connection refused" in (dataset.note or "")
    why, what = host.said[-2:]
    assert "Connection refused" in why
    assert "name can't be resolved" in why
    assert what.startswith("SYNTHETIC")
    assert what.endswith("--data DIR")
    assert "labelled synthetic" in what
    assert host.clock.slept == []


def test_a_host_that_answers_is_never_replaced_by_synthetic_images(host: Host, serve: Serve, refused: str) -> None:
    host.environ["NGCDL_CIFAR10_URLS"] = serve(Reply(b"", status=404)).url
    with pytest.raises(DatasetUnavailable, match=r"it answers 404.*Connection refused"):
        host.prepare(archive=small.archive_of(PACKED, refused))


def test_a_second_run_asks_no_one_and_is_quick(host: Host, serve: Serve) -> None:
    server = serve()
    archive = small.archive_of(PACKED, server.url)
    first = host.prepare(archive=archive)
    host.said.clear()
    assert host.prepare(archive=archive) == first
    assert len(server.seen) == 1
    assert host.said == []


@pytest.mark.parametrize("dates", ["new", "set back"])
def test_a_flipped_byte_in_the_cache_is_found_said_and_mended(host: Host, serve: Serve, dates: str) -> None:
    server = serve()
    archive = small.archive_of(PACKED, server.url)
    folder = host.prepare(archive=archive).folder
    assert folder is not None
    path = folder / small.FOLDER / "data_batch_3.bin"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    if dates == "set back":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    host.said.clear()
    assert whole(host.prepare(archive=archive))
    assert "data_batch_3.bin has changed" in host.said[0]
    assert len(server.seen) == 1  # from the kept archive


def test_a_damaged_archive_in_the_cache_is_downloaded_again(host: Host, serve: Serve) -> None:
    server = serve()
    archive = small.archive_of(PACKED, server.url)
    folder = host.prepare(archive=archive).folder
    assert folder is not None
    (folder / small.FOLDER / "test_batch.bin").unlink()
    (host.cache / archive.name).write_bytes(PACKED[:-1] + b"x")
    assert whole(host.prepare(archive=archive))
    assert len(server.seen) == 2
    assert any("kept as cifar-10-binary.tar.gz.bad" in line for line in host.said)


def test_the_variable_names_a_folder(host: Host, tmp_path: Path) -> None:
    small.unpacked(tmp_path / "mine")
    host.environ["NGCDL_DATA"] = str(tmp_path / "mine")
    assert host.prepare().folder == tmp_path / "mine"
    assert host.prepare("synthetic").kind == "synthetic"
    host.environ["NGCDL_DATA"] = str(tmp_path / "other")
    with pytest.raises(DatasetWrong, match="no such folder"):
        host.prepare()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NGCDL_DOWNLOAD_MINUTES", "soon"),
        ("NGCDL_DOWNLOAD_MINUTES", "0"),
        ("NGCDL_DOWNLOAD_MINUTES", "nan"),
        ("NGCDL_CIFAR10_URLS", "http://example.org/x"),
        ("NGCDL_CIFAR10_URLS", "/a/path"),
    ],
)
def test_a_variable_that_can_not_be_meant_is_refused(host: Host, name: str, value: str) -> None:
    host.environ[name] = value
    with pytest.raises(BadOption, match=name):
        host.prepare()


def test_a_password_in_an_address_is_shown_nowhere(host: Host, serve: Serve) -> None:
    server = serve(Reply(PACKED, cut_after=1000))
    host.environ["NGCDL_CIFAR10_URLS"] = server.url.replace("//", "//me:canary@")
    with pytest.raises(DatasetUnavailable) as caught:
        host.prepare(archive=small.archive_of(PACKED, serve(Reply(b"", status=404)).url))
    texts = [*host.said, str(caught.value), caught.value.hint]
    texts += [path.read_text("latin-1") for path in host.cache.iterdir()]
    assert not any("canary" in text for text in texts)


def test_of_two_processes_the_second_waits_and_takes_what_the_first_made(tmp_path: Path, serve: Serve) -> None:
    go_on = threading.Event()
    server = serve(Reply(PACKED, go_on=go_on))
    with child(tmp_path / "cache", server.url) as first:
        wait_for(lambda: bool(server.seen))
        with child(tmp_path / "cache", server.url) as second:
            assert first.stdout
            assert second.stdout
            begun = second.stdout.readline()
            go_on.set()
            texts = [first.stdout.read(), second.stdout.read()]
    assert (first.returncode, second.returncode) == (0, 0)
    assert "waiting for another ngcdl, which fills" in begun
    assert all(f"READY {small.TRAINING_SHA256}" in text for text in texts)
    assert len(server.seen) == 1


def test_after_kill_9_the_next_process_goes_on_with_range(host: Host, tmp_path: Path, serve: Serve) -> None:
    server = serve(Reply(PACKED, stall_after=len(PACKED) // 2), Reply(PACKED))
    with child(host.cache, server.url) as process:
        wait_for(lambda: host.part.exists() and host.part.stat().st_size > 30_000)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=240)
    have = host.part.stat().st_size
    assert whole(host.prepare(archive=small.archive_of(PACKED, server.url)))
    assert server.seen[1]["range"] == f"bytes={have}-"


def test_what_a_killed_process_left_is_removed(host: Host, serve: Serve) -> None:
    left = host.cache / ".unpacking-left" / "new"
    left.mkdir(parents=True)
    host.prepare(archive=small.archive_of(PACKED, serve().url))
    assert not left.parent.exists()
    assert {path.name for path in host.cache.iterdir()} == {
        "cifar-10",
        "cifar-10.json",
        "cifar-10.lock",
        "cifar-10-binary.tar.gz",
    }


def test_the_official_facts() -> None:
    assert CIFAR10.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert CIFAR10.bytes == 170_052_171
    assert CIFAR10.sha256 == "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    assert [member.name for member in CIFAR10.batches] == small.NAMES
    assert [member.bytes for member in CIFAR10.batches] == [30_730_000] * 6
    assert inspect.signature(prepare).parameters["archive"].default is CIFAR10


def test_the_small_archive_is_what_it_says() -> None:
    assert small.archive_of(PACKED).sha256 == hashlib.sha256(PACKED).hexdigest()


def test_a_folder_of_pictures_is_taken_as_it_is_and_one_that_is_missing_is_said(tmp_path: Path) -> None:
    assert pictures(str(tmp_path)) == Dataset("pictures", tmp_path, None, f"the images in {tmp_path}")
    with pytest.raises(BadOption, match="no such folder"):
        pictures(str(tmp_path / "nowhere"))
