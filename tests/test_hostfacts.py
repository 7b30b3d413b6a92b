"""ngcdl.hostfacts: this host and its cards; its engine, another machine's, none, and one that does not answer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine, FakeJob

from ngcdl import hostfacts
from ngcdl.engines.docker.engine import DockerEngine
from ngcdl.engines.values import architecture
from ngcdl.errors import BadOption, EngineAbsent, EngineHangs, LibraryMissing, NvmlUnavailable
from ngcdl.preflight.facts import Gpu
from ngcdl.record import Machine
from ngcdl.telemetry.card import Card, Driver, Probe

CARDS = (
    Card(0, "GPU-1", "NVIDIA A100-SXM4-80GB", "8.0", 85_899_345_920, brand=14, mig=True),
    Card(1, "GPU-2", "NVIDIA GeForce GTX 1050 Ti", "6.1", 4_294_967_296, brand=5),
    Card(2, "GPU-3", None, None, None, brand=99, error="GPU is lost"),
    Card(3),
)
PROBE = Probe(CARDS, Driver("535.104.05", "12.535.104.05", "12.2"))
NO_DRIVER = Probe(error=NvmlUnavailable("There is no NVIDIA driver on this host.", ""), absent=True)
HERE = os.uname().nodename


@dataclass
class Client:
    """A daemon with only info(), which may be an error."""

    said: dict[str, Any] = field(default_factory=dict)
    base_url: str = "http+docker://localhost"
    asked: int = 0

    def info(self) -> dict[str, Any]:
        self.asked += 1
        if "error" in self.said:
            raise self.said["error"]
        return self.said


def engine(**said: Any) -> DockerEngine:
    base_url = said.pop("base_url", "http+docker://localhost")
    return DockerEngine(Client({"Name": HERE, "Architecture": "x86_64", "ServerVersion": "29.1.0", **said}, base_url))


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(
        "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2\nvmx flags\t: vnmi\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    )
    return path


def test_cards_are_told_with_brand_and_memory_and_what_is_unknown_is_none(cpuinfo: Path) -> None:
    host = hostfacts.gather(None, PROBE, cpuinfo)
    assert host.driver == "535.104.05"
    assert host.gpus == (
        Gpu("8.0", "NVIDIA A100-SXM4-80GB", "nvidia", 0, "GPU-1", 85_899_345_920, True),
        Gpu("6.1", "NVIDIA GeForce GTX 1050 Ti", "geforce", 1, "GPU-2", 4_294_967_296, None),
        Gpu(None, None, None, 2, "GPU-3", None, None),
        Gpu(None, None, None, 3),
    )
    assert (host.gpu_trouble, host.elsewhere) == (None, None)


def test_the_gpu_of_a_jetson_without_nvml_is_not_judged_as_missing(
    cpuinfo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(error=LibraryMissing("This Jetson has no NVML.", ""))
    monkeypatch.setattr("ngcdl.telemetry.driver.TEGRA_RELEASE", tmp_path)
    assert "so it is not judged" in (hostfacts.gather(None, probe, cpuinfo).elsewhere or "")
    monkeypatch.setattr("ngcdl.telemetry.driver.TEGRA_RELEASE", tmp_path / "none")
    assert hostfacts.gather(None, probe, cpuinfo).gpu_trouble == "This Jetson has no NVML."


def test_a_card_that_may_not_compute_is_none_of_the_host_s_and_it_is_said_why_it_has_none(cpuinfo: Path) -> None:
    barred = Card(1, "GPU-1", compute_mode="Prohibited")
    host = hostfacts.gather(None, Probe((Card(0, "GPU-0"), barred)), cpuinfo)
    assert ([gpu.uuid for gpu in host.gpus], host.gpu_trouble) == (["GPU-0"], None)
    host = hostfacts.gather(None, Probe((barred,)), cpuinfo)
    assert (host.gpus, (host.gpu_trouble or "").startswith("GPU 1 may not compute: ")) == ((), True)


def test_a_brand_that_is_newer_than_the_table_is_told_by_the_card_s_name(cpuinfo: Path) -> None:
    card = Card(0, "GPU-1", "NVIDIA GeForce RTX 4090", "8.9", brand=99)
    assert hostfacts.gather(None, Probe((card,)), cpuinfo).gpus[0].brand == "geforce"


@pytest.mark.parametrize("is_wsl", [False, True])
def test_wsl_is_known_by_its_device(
    cpuinfo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wsl: bool
) -> None:
    monkeypatch.setattr("ngcdl.telemetry.driver.DXG", tmp_path if is_wsl else tmp_path / "dxg")
    assert hostfacts.gather(None, PROBE, cpuinfo).is_wsl is is_wsl


def test_without_an_engine_the_rest_is_known(cpuinfo: Path) -> None:
    host = hostfacts.gather(None, NO_DRIVER, cpuinfo)
    assert (host.engine_version, host.gpu_way, host.free_bytes) == (None, None, None)
    assert host.architecture == architecture(os.uname().machine)
    assert (host.driver, host.gpus, host.gpu_trouble) == (None, (), "There is no NVIDIA driver on this host.")
    assert host.avx is True


def test_an_engine_of_this_machine_tells_its_version_way_and_disk(cpuinfo: Path, tmp_path: Path) -> None:
    own = engine(Runtimes={"nvidia": {}}, DockerRootDir=str(tmp_path))
    host = hostfacts.gather(own, PROBE, cpuinfo)
    assert (host.engine_version, host.gpu_way, host.architecture, host.elsewhere) == (
        "29.1.0",
        "runtime",
        "amd64",
        None,
    )
    assert (host.free_bytes or 0) > 0
    assert len(host.gpus) == 4


def test_a_folder_that_can_t_be_looked_at_leaves_the_disk_unknown(cpuinfo: Path, tmp_path: Path) -> None:
    assert hostfacts.gather(engine(DockerRootDir=str(tmp_path / "absent")), PROBE, cpuinfo).free_bytes is None


@pytest.mark.parametrize(("said", "name"), [
    ({"base_url": "http://gpu-box:2375", "Name": "gpu-box"}, "on another machine (gpu-box)"),
    ({"Name": "box", "OperatingSystem": "Docker Desktop"}, "in Docker Desktop's virtual machine (box)"),
    ({"base_url": "http://gpu-box:2375", "Name": ""}, "on another machine"),
])  # fmt: skip
def test_the_gpus_of_another_machine_are_not_judged_by_this_one_s(
    cpuinfo: Path, tmp_path: Path, said: dict[str, str], name: str
) -> None:
    host = hostfacts.gather(engine(Architecture="aarch64", DockerRootDir=str(tmp_path), **said), PROBE, cpuinfo)
    assert host.elsewhere == f"the engine is {name}, so its GPUs are not judged"
    assert (host.architecture, host.engine_version) == ("arm64", "29.1.0")
    assert (host.driver, host.gpus, host.gpu_trouble, host.avx, host.free_bytes) == (None, (), None, None, None)


VM = {"Name": "gpu-box", "NCPU": 4, "MemTotal": 8 << 30, "KernelVersion": "6.10.14-linuxkit"}


@pytest.mark.parametrize(("said", "told"), [
    (VM, Machine("gpu-box", None, 4, 8 << 30, "6.10.14-linuxkit")),
    ({**VM, "OperatingSystem": "Docker Desktop"}, Machine("gpu-box", None, 4, 8 << 30, "6.10.14-linuxkit")),
    ({"Name": "gpu-box", "NCPU": 0, "MemTotal": 0}, Machine("gpu-box")),
])  # fmt: skip
def test_a_run_on_another_machine_s_engine_is_recorded_with_what_that_tells_and_nothing_of_this_one(
    said: dict[str, Any], told: Machine
) -> None:
    assert hostfacts.machine(engine(**said), PROBE) == told


def test_a_run_is_recorded_with_this_machine_also_where_the_engine_shares_its_virtual_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ngcdl.hostfacts.CONTAINER_MARKS", ())
    here = hostfacts.machine(engine(), PROBE)
    assert (here.hostname, here.driver, len(here.gpus or ())) == (HERE, "535.104.05", 4)
    said = {"Name": "gpu-box", "NCPU": here.cores, "MemTotal": here.memory_bytes, "KernelVersion": here.kernel}
    assert hostfacts.machine(engine(**said, OperatingSystem="Docker Desktop"), PROBE) == here
    assert hostfacts.machine(engine(**said), PROBE).hostname == "gpu-box"


def test_a_run_from_a_dev_container_is_recorded_with_the_machine_that_both_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = hostfacts.machine(engine(), PROBE)
    said = {"Name": "gpu-box", "NCPU": here.cores, "MemTotal": here.memory_bytes, "KernelVersion": here.kernel}
    monkeypatch.setattr("ngcdl.hostfacts.CONTAINER_MARKS", (str(tmp_path),))
    assert hostfacts.machine(engine(**said), PROBE) == here
    assert hostfacts.machine(engine(**{**said, "NCPU": 96}), PROBE).cores == 96


@pytest.mark.parametrize("error", [EngineAbsent("unix socket", "refused"), EngineHangs("unix socket", 60)])
def test_an_engine_that_does_not_answer_is_asked_once_and_leaves_its_fields_unknown(
    cpuinfo: Path, error: Exception
) -> None:
    client = Client({"error": error})
    host = hostfacts.gather(DockerEngine(client), PROBE, cpuinfo)
    assert (host.engine_version, host.gpu_way, host.free_bytes, host.elsewhere) == (None, None, None, None)
    assert (len(host.gpus), host.avx, client.asked) == (4, True, 1)


def test_an_engine_of_another_machine_that_does_not_answer_leaves_its_gpus_unjudged(cpuinfo: Path) -> None:
    error = EngineHangs("http://gpu-box:2375", 60)
    host = hostfacts.gather(DockerEngine(Client({"error": error}, "http://gpu-box:2375")), PROBE, cpuinfo)
    assert (host.driver, host.gpus) == (None, ())
    assert "gave no answer" in (host.elsewhere or "")
    assert "on another machine" in (host.elsewhere or "")


def test_docker_desktop_under_wsl_is_judged_by_the_cards_that_are_seen_here(
    cpuinfo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ngcdl.telemetry.driver.DXG", tmp_path)
    host = hostfacts.gather(engine(Name="box", OperatingSystem="Docker Desktop"), PROBE, cpuinfo)
    assert (host.elsewhere, host.driver, len(host.gpus), host.is_wsl) == (None, "535.104.05", 4, True)
    assert hostfacts.gather(engine(Name="box"), PROBE, cpuinfo).elsewhere, "another engine is another machine's"


@pytest.mark.parametrize("address", ["tcp://gpu-box:2375", "ssh://me@gpu-box"])
def test_an_address_of_another_machine_is_never_judged_by_this_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    host = hostfacts.without_engine(EngineAbsent(address, "the connection was refused"))
    assert (host.driver, host.gpus, host.gpu_trouble) == (None, (), None)
    assert address in (host.elsewhere or "")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert hostfacts.without_engine(EngineAbsent("unix:///nowhere.sock", "there is no socket")).elsewhere is None


def test_an_engine_by_ssh_is_another_machine_even_of_the_same_name(cpuinfo: Path) -> None:
    assert not engine(base_url="http+docker://ssh").is_here


def test_an_engine_of_another_kind_tells_what_every_engine_does(cpuinfo: Path) -> None:
    host = hostfacts.gather(FakeEngine(FakeJob()), PROBE, cpuinfo)
    assert (host.engine_version, host.gpu_way, host.free_bytes) == ("29.1.0", "runtime", None)
    assert hostfacts.gather(FakeEngine(FakeJob(), is_here=False), PROBE, cpuinfo).elsewhere


def test_a_gpu_way_that_can_t_be_meant_is_said(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGCDL_GPU_WAY", "magic")
    with pytest.raises(BadOption):
        hostfacts.gather(engine(), PROBE, cpuinfo)


@pytest.mark.parametrize(("text", "avx"), [
    ("flags : fpu sse sse2\n", False),
    ("flags : fpu avx512f\n", False),
    ("Features : fp asimd\n", None),
    ("", None),
    (None, None),
])  # fmt: skip
def test_avx_is_among_the_flags_or_unknown(tmp_path: Path, text: str | None, avx: bool | None) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert hostfacts.gather(None, PROBE, tmp_path / "cpuinfo").avx is avx


def test_this_host_can_be_looked_at_as_it_is() -> None:
    host = hostfacts.gather(None)
    assert host.architecture == architecture(os.uname().machine)
    assert host.gpus or host.gpu_trouble
