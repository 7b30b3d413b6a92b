"""Simulated clusters for each test: Slurm's programs, and an API for Debian's kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_api import Api, serving
from kubernetes_jobs import RUN
from lab_parts import packages
from lab_parts.where import Lab

from ngcdl.engines.docker import stream
from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.engines.kubernetes.kubectl import Kubectl


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container whose stream is silent is looked at soon, and not after two seconds."""
    monkeypatch.setattr(stream, "SILENT_SECONDS", 0.05)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of stand-ins, each a line of shell; nothing else of Slurm."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "job.sh").write_text("#!/bin/bash\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture(scope="session")
def kubectl(lab: dict[str, Any]) -> Path:
    return packages.unpacked(Lab(Path(lab["dir"]), Path(lab["cache"])), "kubernetes") / "usr/bin/kubectl"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "config", "vision")))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield api


@pytest.fixture
def engine(api: Api, kubectl: Path, tmp_path: Path) -> KubernetesEngine:
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    return KubernetesEngine(Kubectl(program=str(kubectl)), tmp_path / "runs")
