"""A framework's name without a tag means its newest image that is known to run; every command says so on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from house import House
from ngc_server import NgcServer
from ngc_server import serving as serving_ngc

from ngcdl.catalog import releases

NEWEST = releases.tags("pytorch")[0]
UNREACHABLE = {"NGCDL_REGISTRY": "127.0.0.1:1"}
HOST = ("--host", "driver=575.57.08,gpu=H100")


@pytest.mark.parametrize("name", ["pytorch", "nvidia/pytorch"])
def test_check_judges_the_newest_for_the_host_that_it_is_told(house: House, name: str) -> None:
    done = house.run("check", name, *HOST, env=UNREACHABLE)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1:1/nvidia/pytorch:26.02-py3\n" in done.stdout
    assert "ngcdl: pytorch: 26.02-py3, the newest known to run there\n" in done.stderr


def test_check_s_document_is_alone_on_stdout(house: House) -> None:
    done = house.run("check", "pytorch", *HOST, "--json", env=UNREACHABLE)
    assert json.loads(done.stdout)["image"] == "127.0.0.1:1/nvidia/pytorch:26.02-py3"


def test_a_name_that_neither_the_catalogue_nor_the_engine_has_needs_its_tag(house: House, tmp_path: Path) -> None:
    for argv in (("check", "cuda"), ("pull", "cuda"), ("run", "me/pytorch", "--train", "cifar10")):
        with serving(Daemon(tmp_path / "d.sock")) as daemon:
            done = house.run(*argv, env={"DOCKER_HOST": daemon.host})
        (tmp_path / "d.sock").unlink(missing_ok=True)
        assert "which release? NGC has no 'latest'" in done.stderr
        assert done.returncode == (125 if argv[0] == "check" else 2)


def test_run_plans_with_the_tag_that_it_took(house: House, tmp_path: Path) -> None:
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        for more in (("--", "python", "train.py"), ("--train", "cifar10", "--data", "synthetic")):
            done = house.run("run", "pytorch", "--dry-run", *more, env={"DOCKER_HOST": daemon.host})
            assert done.returncode == 0, done.stderr
            assert f"nvcr.io/nvidia/pytorch:{NEWEST}" in done.stdout
            assert f"pytorch: {NEWEST}, the newest known to run here; engine docker: an image was named" in done.stderr


def test_a_training_that_only_pytorch_has_needs_no_image_named(house: House, tmp_path: Path) -> None:
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        argv = ("run", "--train", "cifar10-94", "--engine", "docker", "--dry-run", "--data", "synthetic")
        done = house.run(*argv, env={"DOCKER_HOST": daemon.host})
    assert done.returncode == 0, done.stderr
    assert f"nvcr.io/nvidia/pytorch:{NEWEST}" in done.stdout


@pytest.mark.parametrize(("words", "line"), [
    (("run", "pytorch", "--", "python", "train.py"), "run pytorch:26.01-py3 -- python train.py"),
    (("run", "--train", "cifar10-94", "--engine", "docker"),
     "run HOST/nvidia/pytorch:26.01-py3 --train cifar10-94 --engine docker"),
])  # fmt: skip
def test_where_a_mirror_lacks_that_tag_the_whole_line_has_the_nearest_one(
    house: House, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    ngc = NgcServer()
    ngc.add_image("nvidia/pytorch", "26.01-py3")
    with serving(Daemon(tmp_path / "d.sock")) as daemon, serving_ngc(ngc):
        done = house.run(*words, env={"DOCKER_HOST": daemon.host, "NGCDL_REGISTRY": ngc.host})
    assert f"{ngc.host}/nvidia/pytorch:{NEWEST} does not exist." in done.stderr
    assert (
        f"this registry lacks it. The nearest that it has:\n      ngcdl {line.replace('HOST', ngc.host)}\n"
        in done.stderr
    )


def test_pull_and_check_take_the_newest_that_runs_of_those_that_a_mirror_has(house: House, tmp_path: Path) -> None:
    ngc, unfit = NgcServer(), NgcServer()
    for tag in ("24.01-py3", "25.04-py3"):
        ngc.add_image("nvidia/pytorch", tag)
    unfit.add_image("nvidia/pytorch", "25.04-py3", ("linux/ppc64le",))
    with serving(Daemon(tmp_path / "d.sock")) as daemon, serving_ngc(ngc), serving_ngc(unfit):
        to = {"DOCKER_HOST": daemon.host, "NGCDL_REGISTRY": ngc.host}
        forced = house.run("pull", "pytorch", "--force", env=to | {"NGCDL_REGISTRY": unfit.host})
        pulled = house.run("pull", "pytorch", env=to)
        old = house.run("check", "pytorch", "--host", "driver=545.23.08,gpu=GTX1050Ti", env=to)
        none = house.run("check", "pytorch", "--host", "driver=384.81,gpu=K80", env=to)
    said = f"ngcdl: {ngc.host} lacks that; of its tags the newest that runs"
    assert f"{said} here: 25.04-py3\n" in pulled.stderr
    assert [path for path in daemon.asked if "/images/create?" in path and "tag=25.04-py3" in path], pulled.stderr
    assert f"{said} there: 24.01-py3\n" in old.stderr
    assert f"{ngc.host}/nvidia/pytorch:24.01-py3\n" in old.stdout
    assert (none.returncode, none.stdout) == (125, "")
    assert f"The nearest ones:\n      {unfit.host}/nvidia/pytorch:25.04-py3\n" in forced.stderr


def test_pull_fetches_the_tag_that_it_took(house: House, tmp_path: Path) -> None:
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        done = house.run("pull", "pytorch", env=UNREACHABLE | {"DOCKER_HOST": daemon.host})
        asked = [path for path in daemon.asked if "/images/create?" in path]
    assert f"pytorch: {NEWEST}, the newest known to run here\n" in done.stderr
    assert [f"tag={NEWEST}" in path for path in asked] == [True], done.stderr


def test_an_image_is_not_compared_with_the_release_that_its_bare_name_means(house: House, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "d.sock")
    name, digest = "nvcr.io/nvidia/pytorch", "sha256:" + "5" * 64
    for image in (f"{name}:{NEWEST}", f"{name}@{digest}"):
        daemon.images[image] = {"Id": "sha256:" + "1" * 64, "RepoDigests": [f"{name}@{digest}"]}
    with serving(daemon):
        words = (
            "compare",
            "pytorch",
            f"pytorch:{NEWEST}",
            "--train",
            "cifar10",
            "--data",
            "synthetic",
            "--gpus",
            "none",
        )
        done = house.run(*words, env={"DOCKER_HOST": daemon.host})
    assert (done.returncode, house.store.ids()) == (2, []), done.stderr
    assert f"{name}:{NEWEST} would be compared with itself" in done.stderr
