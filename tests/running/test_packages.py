"""Packages are installed once for each image and list, and a failed or cancelled installation leaves none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow

from ngcdl.engines.base import Job
from ngcdl.engines.values import Exit, Order
from ngcdl.errors import PackagesNotInstalled, PackagesNotKept
from ngcdl.running import packages
from ngcdl.spec import GpuRequest, Mount, Port, RunSpec, inside

TARGET = IMAGE.pinned("sha256:" + "5" * 64)
SPEC = RunSpec(
    IMAGE,
    ("python", "train.py"),
    GpuRequest.parse("all"),
    mounts=(Mount("/home/me", "/work", writable=True),),
    environment=(("PIP_INDEX_URL", "https://mirror.example/simple"),),
    packages=("einops", "tqdm==4.67.1"),
    ports=(Port.parse("8888"),),
    user="1000:1000",
    tty=True,
    stdin=True,
)


def one_package(order: Order) -> None:
    (order.folder / packages.INSTALLED).write_text("einops==1\n")


@dataclass
class PipEngine(FakeEngine):
    """A stand-in for an engine. `pip` does in the order's folder what pip would; `left` are containers by run."""

    pip: Callable[[Order], None] = one_package
    orders: list[Order] = field(default_factory=list)
    left: dict[str, FakeJob] = field(default_factory=dict)

    def start(self, order: Order) -> Job:
        assert isinstance(self.job, FakeJob)
        self.orders.append(order)
        self.left[order.run_id] = self.job
        self.pip(order)
        return self.job

    def find(self, run_id: str) -> Job | None:
        return self.left.pop(run_id, None)


def test_a_container_of_the_image_installs_them_once(tmp_path: Path) -> None:
    engine, show = PipEngine(job := FakeJob([b"Collecting einops\n"])), FakeShow()
    first = packages.installed(engine, SPEC, TARGET, tmp_path / "cache", tmp_path / "kept", show)
    again = packages.installed(engine, SPEC, TARGET, tmp_path / "cache", tmp_path / "kept", show)
    assert first == again == packages.Packages(first.folder, ("einops==1",))
    (order,) = engine.orders
    spec = order.spec
    assert (spec.gpus.kind, spec.ports, spec.tty, spec.stdin, spec.packages) == ("none", (), False, False, ())
    assert (order.target, order.way, order.cache, spec.user) == (TARGET, "none", tmp_path / "cache", "1000:1000")
    assert spec.mounts[0] == SPEC.mounts[0]
    assert dict(spec.environment)["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert dict(spec.environment)["PYTHONUSERBASE"] == inside.PACKAGES == spec.mounts[1].container
    kept = first.folder.parent
    assert (kept / packages.LIST).read_text() == "-c constraints.txt\neinops\ntqdm==4.67.1\n"
    assert (kept / packages.LOG).read_text() == "Collecting einops\n"
    assert job.asked == ["remove"]
    assert show.said == ["installing for this image, once: einops, tqdm==4.67.1", "installed: einops==1"]


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        (replace(SPEC, packages=("einops",)), TARGET),
        (replace(SPEC, environment=()), TARGET),
        (SPEC, IMAGE.pinned("sha256:" + "6" * 64)),
    ],
)
def test_another_list_index_or_image_has_its_own(tmp_path: Path, spec: RunSpec, target: str) -> None:
    assert packages.folder_of(tmp_path, spec, target) != packages.folder_of(tmp_path, SPEC, TARGET)


def test_another_command_or_variable_shares_them(tmp_path: Path) -> None:
    other = replace(SPEC, command=("bash",), environment=(*SPEC.environment, ("EPOCHS", "3")))
    assert packages.folder_of(tmp_path, other, TARGET) == packages.folder_of(tmp_path, SPEC, TARGET)


def test_what_pip_could_not_install_is_told_in_its_words_and_tried_again(tmp_path: Path) -> None:
    said = b"Collecting tqdm==4.67.1\nERROR: No matching distribution found for tqdm==4.67.1\n"
    engine = PipEngine(FakeJob([said], Exit(1)), pip=lambda _: None)
    with pytest.raises(PackagesNotInstalled, match="ERROR: No matching distribution found for tqdm") as told:
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert told.value.exit_code == 125
    assert "Is there such a version" in told.value.hint
    log = next(Path(line.split()[1]) for line in told.value.commands if line.startswith("cat "))
    assert log.read_bytes() == said
    assert "docker build" in told.value.hint
    assert not engine.left
    better = PipEngine(FakeJob())
    assert packages.installed(better, SPEC, TARGET, None, tmp_path, FakeShow()).installed == ("einops==1",)


def test_a_signal_leaves_neither_a_container_nor_half_a_folder(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    engine = PipEngine(job := FakeJob([interrupt]))
    with pytest.raises(KeyboardInterrupt):
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert job.asked == ["remove"]
    assert not packages.folder_of(tmp_path, SPEC, TARGET).exists()


def test_a_container_that_a_killed_ngcdl_left_is_removed_first(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob())
    left = engine.left[f"packages-{packages.folder_of(tmp_path, SPEC, TARGET).name}"] = FakeJob()
    packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert left.asked == ["remove"]


def test_two_at_once_install_once(tmp_path: Path) -> None:
    entered, go, show = threading.Event(), threading.Event(), FakeShow()

    def slow(order: Order) -> None:
        entered.set()
        assert go.wait(20)
        (order.folder / packages.INSTALLED).write_text("einops==1\n")

    engine = PipEngine(FakeJob(), pip=slow)
    both = [
        threading.Thread(target=packages.installed, args=(engine, SPEC, TARGET, None, tmp_path, show)) for _ in range(2)
    ]
    both[0].start()
    assert entered.wait(20)
    both[1].start()
    while not any("another ngcdl" in line for line in show.said):
        assert both[1].is_alive()
    go.set()
    for thread in both:
        thread.join(20)
    assert len(engine.orders) == 1


def test_a_repeated_run_gets_the_versions_that_it_had(tmp_path: Path) -> None:
    spec = replace(SPEC, packages=("--no-index", "einops"))
    pinned = packages.as_before(spec, TARGET, tmp_path, ("einops==1", "numpy==2"))
    assert pinned.packages == ("--no-index", "einops==1", "numpy==2")
    assert packages.as_before(spec, TARGET, tmp_path, None) is spec
    packages.installed(PipEngine(FakeJob()), spec, TARGET, None, tmp_path, FakeShow())
    assert packages.as_before(spec, TARGET, tmp_path, ("einops==1",)) is spec
    assert packages.as_before(spec, TARGET, tmp_path, ("einops==0.9",)).packages[1:] == ("einops==0.9",)


def test_a_container_that_was_killed_for_memory_says_so(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob(exit=Exit(137, True, "out of memory: the kernel killed it")), pip=lambda _: None)
    with pytest.raises(PackagesNotInstalled, match="out of memory"):
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())


def test_a_place_that_can_t_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PackagesNotKept, match="file/kept, which can't be used: Not a directory"):
        packages.installed(PipEngine(FakeJob()), SPEC, TARGET, None, tmp_path / "file/kept", FakeShow())


def test_a_record_keeps_the_list_and_reads_it_back() -> None:
    assert RunSpec.from_json(json.loads(json.dumps(SPEC.as_json()))).packages == SPEC.packages
