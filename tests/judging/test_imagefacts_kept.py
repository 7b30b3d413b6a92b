"""ngcdl.judging.imagefacts: an image's cached facts are used while valid, and then fetched again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from images_asked import ENVIRON, NEW, Clock, files_in, ref
from ngc_server import NgcServer, status

from ngcdl.errors import RateLimited, RegistryError
from ngcdl.judging import imagefacts

ROOT = Path(__file__).resolve().parents[2]


def test_a_tag_that_moved_is_noticed_after_ten_minutes(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    before = imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    ngc.add_image("nvidia/tensorflow", "18.01-py2", environ=(*ENVIRON, "NVIDIA_BUILD_ID=2"))
    clock.seconds += 599
    found = imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    assert (found.origin, found.facts.digest, found.age_seconds) == ("cache", before.facts.digest, 599)
    clock.seconds += 2
    found = imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    assert (found.origin, found.facts.digest) == ("registry", ngc.tags["nvidia/tensorflow"]["18.01-py2"])
    assert found.facts.digest != before.facts.digest
    assert imagefacts.look_up(ref(ngc), cache, "amd64", now=clock).age_seconds == 0
    asked = len(ngc.seen)
    imagefacts.look_up_all([ref(ngc)], cache, "amd64")  # by this host's clock the answer is years old
    assert len(ngc.seen) > asked


def test_a_tag_that_did_not_move_costs_no_configuration_again(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    imagefacts.look_up(ref(ngc, NEW), cache, "amd64", now=clock)
    clock.seconds += 601
    found = imagefacts.look_up(ref(ngc, NEW), cache, "amd64", now=clock)
    assert (found.origin, found.requests) == ("registry", 3)  # challenge, token, index
    assert imagefacts.look_up(ref(ngc, NEW), cache, "amd64", now=clock).origin == "cache"


@pytest.mark.parametrize("offline", [False, True])
def test_an_old_answer_is_better_than_none_and_said_to_be_old(ngc: NgcServer, cache: Path, offline: bool) -> None:
    clock = Clock()
    imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    ngc.fail("/v2/", status(429, Retry_After="60"))
    clock.seconds += 86400
    found = imagefacts.look_up(ref(ngc), cache, "amd64", offline=offline, now=clock)
    assert (found.origin, found.age_seconds, found.facts.compressed_bytes) == ("cache", 86400, 1230)
    assert isinstance(found.trouble, type(None) if offline else RateLimited)


def test_a_clock_that_went_back_makes_an_answer_old_and_not_new(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    clock.seconds -= 86400
    assert imagefacts.look_up(ref(ngc), cache, "amd64", now=clock).origin == "registry"


def test_what_a_digest_is_is_asked_once_and_for_ever(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    pinned = ref(ngc, f"nvidia/tensorflow@{ngc.tags['nvidia/tensorflow']['25.02-tf2-py3']}")
    first = imagefacts.look_up(pinned, cache, "amd64", now=clock)
    asked = len(ngc.seen)
    clock.seconds += 10**8
    again = imagefacts.look_up(pinned, cache, "amd64", now=clock)
    assert (first.origin, again.origin, again.age_seconds) == ("registry", "cache", None)
    assert len(ngc.seen) == asked


def test_another_repository_s_digest_is_not_answered_from_this_one_s(ngc: NgcServer, cache: Path) -> None:
    digest = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    imagefacts.look_up(ref(ngc, f"nvidia/tensorflow@{digest}"), cache, "amd64")
    with pytest.raises(RegistryError):
        imagefacts.look_up(ref(ngc, f"nvidia/other@{digest}"), cache, "amd64")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": 1}', '{"format": 2}', "[" * 100_000, "\0"])
def test_a_broken_file_is_as_none_and_is_written_anew(ngc: NgcServer, cache: Path, text: str) -> None:
    imagefacts.look_up(ref(ngc), cache, "amd64")
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    good = {path: path.read_text() for path in files_in(cache)}
    for path in good:
        path.write_text(text)
    found = imagefacts.look_up(ref(ngc), cache, "amd64")
    assert (found.origin, found.facts.cuda) == ("registry", "9.0.176")
    assert imagefacts.tags(ngc.host, "nvidia/tensorflow", cache).origin == "registry"
    assert files_in(cache) == sorted(good)
    assert all(json.loads(path.read_text()).keys() == json.loads(good[path]).keys() for path in good)


@pytest.mark.parametrize(
    "change",
    [{"digest": 7}, {"config": []}, {"architectures": "amd64"}, {"compressed_bytes": "x"}, {"compressed_bytes": []}],
)
def test_a_kept_image_of_another_shape_is_as_none(ngc: NgcServer, cache: Path, change: dict[str, object]) -> None:
    imagefacts.look_up(ref(ngc), cache, "amd64")
    [path] = [path for path in files_in(cache) if path.name.startswith("sha256")]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert imagefacts.look_up(ref(ngc), cache, "amd64").origin == "registry"
    assert imagefacts.look_up(ref(ngc), cache, "amd64").origin == "cache"


def test_a_cache_that_can_t_be_written_is_no_error(ngc: NgcServer, tmp_path: Path, home: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert imagefacts.look_up(ref(ngc), tmp_path / "file", "amd64").origin == "registry"
        assert imagefacts.tags(ngc.host, "nvidia/tensorflow", tmp_path / "file").origin == "registry"


def test_what_is_kept_is_for_this_user_s_eyes_and_written_whole(ngc: NgcServer, cache: Path) -> None:
    imagefacts.look_up(ref(ngc), cache, "amd64")
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    assert {path.stat().st_mode & 0o777 for path in files_in(cache)} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files_in(cache)} == {0o700}
    assert not [path for path in files_in(cache) if path.name.startswith(".")]


def test_a_kept_answer_loads_neither_requests_nor_a_thread(ngc: NgcServer, cache: Path) -> None:
    imagefacts.look_up(ref(ngc), cache, "amd64")
    code = (
        "import sys\nfrom pathlib import Path\nfrom ngcdl.judging import imagefacts\nfrom ngcdl.spec import ImageRef\n"
        "found = imagefacts.look_up(ImageRef.parse(sys.argv[1]), Path(sys.argv[2]), 'amd64')\n"
        "assert found.origin == 'cache', found\n"
        "print(sorted({'requests', 'urllib3', 'docker', 'concurrent'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ref(ngc)), str(cache)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "toolkit"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[]\n", "")
