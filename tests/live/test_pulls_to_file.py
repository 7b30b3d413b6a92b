"""`ngcdl pull --to FILE`: real engines, old and new, load the file, and ngcdl runs the image without the registry."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from faulty_front import Front
from house import until
from ngcdl_child import User, user_in
from own_engine import KINDS, engine_of_ones_own

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("engine", KINDS)
def test_an_engine_loads_the_file_and_the_image_runs_without_its_registry(
    lab: dict[str, Any], front: Front, tmp_path: Any, engine: str
) -> None:
    with engine_of_ones_own(lab, **KINDS[engine]) as one, user_in(tmp_path, lab, one.host) as user:
        user.environment["NGCDL_REGISTRY"] = front.host
        done = user.run("pull", "busybox:entry", "--to", "image.tar", DOCKER_HOST="unix:///nosuch.sock")
        assert done.code == 0, done
        assert done.out == f"{front.host}/nvidia/busybox@{lab['images']['busybox:entry']}\n"
        assert "docker load -i image.tar" in done.err
        assert [path.name for path in user.here.iterdir()] == ["image.tar"]
        user.docker("load", "-i", str(user.here / "image.tar"))
        before = len(front.requests("/blobs/"))
        ran = user.run("run", "busybox:entry", "--", "echo", "hi")
        assert (ran.code, ran.out) == (0, "lab entrypoint: echo hi\nhi\n"), ran
        assert len(front.requests("/blobs/")) == before


def test_ctrl_c_keeps_what_has_arrived_for_the_next_try(user: User, front: Front) -> None:
    user.environment["NGCDL_REGISTRY"] = front.host
    front.break_down(blob={"stall_after": 400_000})
    child = user.start("pull", "busybox:big", "--to", "image.tar")
    child.until_err("Ctrl-C keeps")
    blobs = user.home / ".cache/ngcdl/blobs"

    def arrived_bytes() -> int:
        try:
            return sum(path.stat().st_size for path in blobs.glob("*.part"))
        except FileNotFoundError:  # whole by now, and renamed
            return 0

    until(lambda: arrived_bytes() > 300_000, "some bytes")
    child.signal(signal.SIGINT)
    assert child.done().code == 130
    assert not (user.here / "image.tar").exists()
    front.break_down()
    done = user.run("pull", "busybox:big", "--to", "image.tar")
    assert done.code == 0, done
    assert "are here already" in done.err


def test_an_image_for_the_other_processor_is_told_with_its_option_and_a_name_without_a_tag_is_refused(
    user: User,
) -> None:
    done = user.run("pull", "busybox:arm64", "--to", "image.tar")
    assert done.code == 125, done
    line = next(line.strip() for line in done.err.splitlines() if "--arch" in line)
    assert user.run(*line.split()[1:]).code == 0
    assert [path.name for path in user.here.iterdir()] == ["image.tar"]
    done = user.run("pull", "pytorch", "--to", "other.tar")
    assert (done.code, "leaves open which image" in done.err) == (2, True), done
