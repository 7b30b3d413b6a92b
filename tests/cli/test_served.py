"""A server for a browser in a container without a published port is answered by the line that publishes one."""

from __future__ import annotations

from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from house import House

from ngcdl.cli.served import reachable


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run pytorch -- jupyter lab",
         "run pytorch -p 127.0.0.1:8888:8888 -- jupyter lab --ip=0.0.0.0 --no-browser"),
        ("run -d pytorch -- jupyter notebook a.ipynb --ip 0.0.0.0",
         "run -d pytorch -p 127.0.0.1:8888:8888 -- jupyter notebook a.ipynb --ip 0.0.0.0 --no-browser"),
        ("run pytorch --pip jupyterlab -- /opt/bin/jupyter-lab --port 9000 --no-browser",
         "run pytorch --pip jupyterlab -p 127.0.0.1:9000:9000 -- /opt/bin/jupyter-lab --port 9000 --no-browser "
         "--ip=0.0.0.0"),
        ("run pytorch -- tensorboard --logdir=runs --port=7007",
         "run pytorch -p 127.0.0.1:7007:7007 -- tensorboard --logdir=runs --port=7007 --bind_all"),
        ("run pytorch -p 8888:8888 -- jupyter lab", None),
        ("run pytorch -dp 8888:8888 -- jupyter lab", None),
        ("run pytorch --publish=8888:8888 -- jupyter lab", None),
        ("run pytorch -- jupyter lab --version", None),
        ("run pytorch -- jupyter notebook list", None),
        ("run pytorch -- jupyter nbconvert --execute a.ipynb", None),
        ("run pytorch -- python jupyter", None),
        ("run pytorch", None),
    ],
)  # fmt: skip
def test_a_server_that_no_browser_could_reach_is_known_by_its_line(typed: str, line: str | None) -> None:
    assert reachable(typed.split()) == (line.split() if line else None)


def test_the_line_is_told_before_it_starts_and_is_itself_in_order(house: House, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        env = {"DOCKER_HOST": daemon.host, "NGCDL_REGISTRY": "127.0.0.1:1"}
        done = house.run("run", "pytorch", "--dry-run", "--", "jupyter", "lab", env=env, cwd=project)
        assert done.returncode == 0, done.stderr
        told, line, *_ = done.stderr.splitlines()
        assert told == "ngcdl: no port is published: no browser reaches jupyter in its container."
        again = house.run(*line.split()[1:], env=env, cwd=project)
    assert "no port is published" not in again.stderr
    assert "-p 127.0.0.1:8888:8888" in again.stdout


@pytest.mark.parametrize("typed", ["run pytorch jupyter lab", "run jupyter lab"])
def test_a_misplaced_one_is_led_to_a_line_that_works(house: House, typed: str) -> None:
    line = "ngcdl run pytorch -p 127.0.0.1:8888:8888 -- jupyter lab --ip=0.0.0.0 --no-browser"
    assert f"      {line}\n" in house.run(*typed.split()).stderr


def test_on_this_host_it_is_reached_as_it_is(house: House) -> None:
    assert "no port is published" not in house.run("run", "--", "jupyter", "lab").stderr
