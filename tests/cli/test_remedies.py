"""Every remedy of a well-known failure can be typed for the kind of run that it is shown after."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from ngcdl import settings
from ngcdl.catalog import failures
from ngcdl.cli.app.declared import takes
from ngcdl.cli.app.running import RunOptions
from ngcdl.cli.typed import Typed, parsed
from ngcdl.engines.kubernetes import limits
from ngcdl.planning.asked import Asked, check_without_container, check_without_packages, check_without_screen
from ngcdl.record import Run
from ngcdl.report.measured.diagnosis import words_about
from ngcdl.spec import RunSpec, kind_of
from ngcdl.storing.store import Store

ENGINES = ("docker", "local", "slurm", "kubernetes")
# A command on this host may itself call docker: what these rows say is then true of that.
OF_DOCKER_ITSELF = {
    *("no-gpu-driver-in-docker", "runtime-unknown", "hook-called-directly", "cdi-off", "cdi-devices-unresolvable"),
    *("docker-init-missing", "podman-init-missing"),
    *("requirement-unsatisfied", "driver-files-in-image", "no-matching-manifest"),
}  # fmt: skip


def run_of(engine: str, is_training: bool) -> Run:
    spec = {"workload": {"name": "cifar10"}} if is_training else {}
    return Run("x", "failed", 1.0, engine=engine, gpus=("GPU-1",), spec=spec)


def line_of(remedy: str, engine: str, is_training: bool) -> list[str]:
    """Return the words after `ngcdl run`, with "..." replaced by what is typed for such a run."""
    typed = remedy.partition("ngcdl run ")[2].replace("IMAGE", "pytorch:25.03-py3").replace("NAME=", "memlock=")
    words = shlex.split(re.sub(r" N\Z", " 32", typed))
    if words[0] != "...":
        return words
    has_command = "--" in words
    image = [] if engine == "local" else ["pytorch:25.03-py3"]
    training = ["--train", "cifar10"] if is_training else []
    command = [] if is_training or has_command else ["--", "python", "train.py"]
    return [*image, "--engine", engine, *training, *words[1:], *command]


def typed(words: list[str]) -> Typed:
    found: list[Typed] = []
    app = typer.Typer()

    @app.command()
    @takes(RunOptions)
    def run(typed: Typed, tty: bool, rm: bool) -> int:
        found.append(typed)
        return 0

    at = words.index("--") if "--" in words else len(words)
    typer.main.get_command(app)(words[:at], obj=tuple(words[at + 1 :]), standalone_mode=False)
    return found[0]


def check(asked: Asked, engine: str) -> None:
    """Raise BadOption as the engine would."""
    if not kind_of(engine).has_containers:
        check_without_container(asked)
    if kind_of(engine).is_cluster:
        check_without_screen(asked, engine)
        check_without_packages(asked, engine)
    if engine == "kubernetes":
        limits.check(RunSpec(None, mounts=asked.extra.mounts if asked.extra else ()))


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "command"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_remedy_names_nothing_that_such_a_run_refuses(
    engine: str, is_training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("einops\n")  # that a remedy names
    about = words_about(run_of(engine, is_training))
    for row in failures.table():
        remedy = row.about(about).remedy if about.issuperset(row.needs) else ""
        for command in (line.strip() for line in remedy.splitlines() if line.startswith("    ")):
            if "ngcdl run " in command:
                asked = parsed(typed(line_of(command, engine, is_training)), settings.load({}), Store(tmp_path))
                check(asked, asked.engine if asked.engine != "auto" else "docker" if asked.image else "local")
            if engine != "docker":
                assert "NGCDL_GPU_WAY" not in command, row.name
            else:  # apt knows it only after lines that doctor prints
                assert "install nvidia-container-toolkit" not in command, row.name
            if kind_of(engine).is_cluster:  # a node has other cards, programs and images than this host
                assert not re.match(r"ngcdl (gpu|doctor)\b|docker (context|image|system)", command), row.name
                assert re.search(r"--host|--all", command) or not re.match(r"ngcdl (images|check)", command), row.name


def test_without_a_container_nothing_is_said_of_one() -> None:
    about = words_about(run_of("local", is_training=False))
    for row in failures.table():
        if about.issuperset(row.needs) and row.name not in OF_DOCKER_ITSELF and row.rank != "harmless":
            told = row.about(about).advice
            assert not re.search(r"\b(the|this) (image|container)\b|--shm-size|--resume|--train", told.lower()), told
