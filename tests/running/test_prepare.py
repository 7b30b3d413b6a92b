"""What a run needs is decided, fetched and recorded before anything runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from docker_socket import Daemon
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow
from preparing import DIGEST, NONE, training
from preparing import config as config  # a fixture
from preparing import daemon as daemon  # a fixture
from preparing import store as store  # a fixture
from stand_ins import says, stand_in

from ngcdl import __version__, settings
from ngcdl.choice import NO_GPU, Choice
from ngcdl.cli.changed import written_out
from ngcdl.engines.base import ShowPull
from ngcdl.engines.values import GpuWay
from ngcdl.errors import (
    BadOption,
    DatasetWrong,
    DigestMismatch,
    EngineError,
    EngineLost,
    ImageGone,
    MountMissing,
    NgcdlError,
    NoGpu,
    Several,
    StateNotWritable,
    UnknownRepository,
)
from ngcdl.judging.verdicts import Verdicts
from ngcdl.planning import plan
from ngcdl.planning.asked import Asked
from ngcdl.preflight import meant
from ngcdl.pulling import fetch
from ngcdl.record import Image
from ngcdl.running import prepare, sources
from ngcdl.running.context import Context
from ngcdl.spec import NVCR, GpuRequest, ImageRef, Mount, Placement, RunSpec, Workload
from ngcdl.storing.store import Store
from ngcdl.telemetry.card import Card, Probe

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # docker SDK's socket


def test_a_prepared_run_is_recorded_as_running_and_launched_by_digest(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    ready = prepare.prepare(training(), Context(config, store, FakeShow()))
    run = store.load(ready.run.id)
    assert run == ready.run
    assert (run.status, run.image.digest, run.dataset, run.gpus) == ("running", DIGEST, "synthetic", ())
    assert (run.engine, run.engine_version) == ("docker", "29.1.0")
    assert ready.order.target == IMAGE.pinned(DIGEST)
    assert run.owner is not None
    assert run.machine.cores
    assert run.ngcdl == __version__
    assert not [path for path in daemon.asked if "/containers" in path]


MINE = ImageRef.parse("docker.io/library/mine:latest")
ID = "sha256:" + "1" * 64


@pytest.mark.parametrize("always_pull", [False, True])
def test_an_engine_s_own_image_is_never_pulled_starts_by_its_id_and_has_no_digest_made_up(
    daemon: Daemon, config: settings.Settings, store: Store, always_pull: bool
) -> None:
    daemon.images[str(MINE)] = daemon.images[ID] = {"Id": ID, "RepoDigests": []}
    show = FakeShow()
    asked = training(image=meant.typed("mine", NVCR), always_pull=always_pull)
    ready = prepare.prepare(asked, Context(config, store, show))
    assert ready.run.image == Image(str(MINE), None, ID)
    assert store.load(ready.run.id).image == ready.run.image
    assert ready.order.target == ID
    assert [line for line in show.said if "own image" in line] == [
        "mine: this engine's own image; engine docker: it was named; GPUs: none (no GPU was asked for)"
    ]
    assert not [path for path in daemon.asked if "/images/create" in path]


def test_one_that_came_from_a_registry_keeps_its_digest(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    hub = ImageRef.parse("docker.io/pytorch/pytorch:2.5.0")
    held = {"Id": ID, "RepoDigests": [f"pytorch/pytorch@{DIGEST}"]}
    daemon.images |= dict.fromkeys((str(hub), ID, hub.pinned(DIGEST)), held)
    asked = training(image=meant.typed("pytorch/pytorch:2.5.0", NVCR))
    ready = prepare.prepare(asked, Context(config, store, FakeShow()))
    assert (ready.run.image, ready.order.target) == (Image(str(hub), DIGEST), hub.pinned(DIGEST))


def test_an_own_image_that_is_gone_meanwhile_is_not_looked_for_elsewhere(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    daemon.images[str(MINE)] = {"Id": ID}  # but not under its id
    with pytest.raises(ImageGone, match="no longer has the image mine"):
        prepare.prepare(training(image=meant.typed("mine", NVCR), force=True), Context(config, store, FakeShow()))
    assert not [path for path in daemon.asked if "/images/create" in path]


def test_two_that_begin_in_one_moment_and_draw_one_name_are_two_runs(
    daemon: Daemon, config: settings.Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["20261122-120000-cifar10-abc001"] * 2 + ["20261122-120000-cifar10-abc002"])
    monkeypatch.setattr(Store, "new_id", lambda *_: next(names))
    settled = prepare.settle(training(), Context(config, store, FakeShow()))
    ready = [prepare.begin(settled, store) for _ in range(2)]
    assert [store.load(one.run.id).id for one in ready] == [one.order.run_id for one in ready]
    assert store.ids() == ["20261122-120000-cifar10-abc002", "20261122-120000-cifar10-abc001"]


@pytest.mark.parametrize("shares", [True, False])
def test_a_training_that_shares_a_card_leaves_the_others_their_memory(
    daemon: Daemon, config: settings.Settings, store: Store, shares: bool
) -> None:
    settled = prepare.settle(training(), Context(config, store, FakeShow()))
    settled = replace(settled, picked=replace(settled.picked, shares=shares))
    said = dict(prepare.begin(settled, store).order.spec.environment)
    assert said.get("TF_FORCE_GPU_ALLOW_GROWTH") == ("true" if shares else None)
    typed = replace(settled.asked, extra=RunSpec(None, (), environment=(("TF_FORCE_GPU_ALLOW_GROWTH", "false"),)))
    said = dict(prepare.begin(replace(settled, asked=typed), store).order.spec.environment)
    assert said["TF_FORCE_GPU_ALLOW_GROWTH"] == "false", "as it was typed"


def test_a_command_of_one_s_own_keeps_what_was_typed(daemon: Daemon, config: settings.Settings, store: Store) -> None:
    own = plan.command(IMAGE, ("ls",), NONE, False, False)
    typed = (("PYTHONUNBUFFERED", ""),)
    extra = RunSpec(None, environment=typed, shm_bytes=5, cpu_limit=0.5, memory_bytes=6, workdir="/w")
    extra = replace(extra, sample_seconds=30)
    asked = Asked("docker", IMAGE, NONE, None, own, root=True, extra=extra)
    spec = prepare.prepare(asked, Context(config, store, FakeShow())).order.spec
    assert (spec.command, spec.environment, spec.shm_bytes, spec.workdir) == (("ls",), typed, 5, "/w")
    assert (spec.cpu_limit, spec.memory_bytes, spec.sample_seconds) == (0.5, 6, 30)
    assert spec.user is None, "--root"


@pytest.mark.usefixtures("no_driver")
def test_a_training_that_must_be_on_a_gpu_is_refused_where_none_is_before_anything_is_pulled(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    with pytest.raises(NoGpu, match=r"^--device gpu: this host has no NVIDIA driver") as refused:
        prepare.prepare(training(gpus=GpuRequest(), device="gpu"), Context(config, store, FakeShow()))
    assert "    ngcdl run ... --device cpu\n" in refused.value.hint
    assert "--gpus" not in refused.value.hint
    assert not any("/images/create" in path for path in daemon.asked)
    assert store.ids() == []


def test_that_a_run_computes_on_the_cpu_is_no_warning_where_the_cpu_was_asked_for(
    daemon: Daemon, config: settings.Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = FakeShow()
    asked = training(gpus=GpuRequest(), device="cpu")
    assert prepare.prepare(asked, Context(config, store, show)).run.notes == ()
    assert not [line for line in show.said if "WARNING" in line]
    assert "GPUs: none (this host has no NVIDIA driver)" in show.said[0]
    run = prepare.prepare(replace(asked, device=None), Context(config, store, FakeShow())).run
    assert run.notes == ("WARNING: this host has no NVIDIA driver: this run computes on the CPU.",)
    assert run.machine.gpus == ()
    monkeypatch.setattr("ngcdl.telemetry.driver.has_driver", lambda: True)
    run = prepare.prepare(replace(asked, device=None), Context(config, store, FakeShow())).run
    assert "the NVIDIA driver can't be asked" in run.notes[0]
    assert run.machine.gpus is None, "there may be some"


def test_what_can_t_be_had_is_told_before_the_data_set_is_fetched(
    daemon: Daemon, config: settings.Settings, store: Store, tmp_path: Path
) -> None:
    asked = training(workload=Workload("cifar10", data=str(tmp_path / "no-data")))
    one, two = (Mount(str(tmp_path / name), f"/{name}") for name in ("none", "nor-this"))
    for mounts, kind in (((one,), MountMissing), ((one, Mount(str(tmp_path), "/here"), two), Several)):
        with pytest.raises(kind) as refused:
            prepare.prepare(replace(asked, extra=RunSpec(None, mounts=mounts)), Context(config, store, FakeShow()))
        assert f"-v {one.host}: " in refused.value.message
        assert refused.value.commands == [f"mkdir -p {mount.host}" for mount in mounts if mount.host != str(tmp_path)]
    with registry_without_anything() as host, pytest.raises(UnknownRepository):
        prepare.prepare(replace(asked, image=ImageRef.parse("tensorflow:1", host)), Context(config, store, FakeShow()))
    unreachable = ImageRef.parse("tensorflow:1", "127.0.0.1:1")
    with pytest.raises(DatasetWrong):  # if the registry can't answer, the pull, which comes last, decides
        prepare.prepare(replace(asked, image=unreachable), Context(config, store, FakeShow()))


@pytest.mark.parametrize(("engine", "program"), [("slurm", "sbatch"), ("kubernetes", "kubectl")])
def test_a_cluster_whose_programs_are_missing_is_told_before_registry_and_data_are_asked_for(
    config: settings.Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, program: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    show, no_data = FakeShow(), Workload("cifar10", data=str(tmp_path / "no-data"))
    asked = training(engine=engine, workload=no_data, gpus=GpuRequest.parse("8"), placement=Placement(2))
    with pytest.raises(EngineError, match=f"{program} (is not on this machine|can't be run)"):
        prepare.prepare(asked, Context(config, store, show))
    assert len(show.said) == 1, "which engine it was"
    assert store.ids() == []
    if engine == "slurm":  # a run that is only planned, or exported, is for another machine
        with pytest.raises(DatasetWrong):
            prepare.decide(asked, Context(config, store, show))


def test_data_that_a_pod_can_t_see_is_refused_with_a_line_without_it() -> None:
    with pytest.raises(BadOption) as refused:
        sources.data_of_claim(Workload("cifar10", data="/x"), Placement())
    line = written_out(refused.value.hint, ["run", "pytorch", "--train", "cifar10", "--data", "/x"])
    assert line.endswith("\n    ngcdl run pytorch --train cifar10 --data auto --data-pvc CLAIM")


def test_a_gpu_s_share_of_a_node_s_processors_is_that_of_the_nodes_that_have_enough_gpus(
    config: settings.Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    stand_in(tmp_path, "sinfo", 'case "$*" in *%G*) echo gpu:8;; *) echo "main*";; esac')
    nodes = "NodeName={0} CPUTot={1} Gres=gpu:{2} Partitions=main"
    kinds = [("n1", 128, "8"), ("n2", 40, "4")]
    says(tmp_path, "scontrol", "\n".join(nodes.format(*kind) for kind in kinds))
    for gpus, cpus in (("4", 10), ("8", 16)):
        asked = training(engine="slurm", gpus=GpuRequest.parse(gpus), placement=Placement(container="docker"))
        _, spec = prepare.decide(asked, Context(config, store, FakeShow()))
        assert spec.placement
        assert spec.placement.cpus == cpus


@contextlib.contextmanager
def registry_without_anything() -> Iterator[str]:
    """Serve a registry's 404 on a port of this host; yield its name."""

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # for http.server
            body = b'{"errors": [{"code": "NAME_UNKNOWN"}]}'
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_place_for_records_that_can_t_be_written_comes_first(
    daemon: Daemon, config: settings.Settings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateNotWritable):
        prepare.prepare(training(), Context(config, Store(tmp_path / "file/runs"), FakeShow()))
    assert daemon.asked == []


def test_nothing_to_run_and_unknown_trainings_are_refused(config: settings.Settings, store: Store) -> None:
    for asked in (Asked("auto", None, NONE, None), training(workload=Workload("mnist9"))):
        with pytest.raises(BadOption):
            prepare.decide(asked, Context(config, store, FakeShow()))


def test_a_dry_decision_downloads_nothing_and_plans_the_synthetic_set(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    show = FakeShow()
    _, spec = prepare.decide(training(workload=Workload("cifar10")), Context(config, store, show))
    assert not config.cache.exists()
    assert "--data synthetic" in " ".join(spec.command)
    assert "GPUs: none" in show.said[0]
    assert "ngcdl run downloads it" in show.said[-1]


def test_a_pull_says_whose_key_it_uses_and_gives_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush-hush-hush")
    show, engine = FakeShow(), FakeEngine(FakeJob())
    assert fetch.image(engine, IMAGE, show.pull, show.say) == engine.pulled
    assert "nvapi" not in " ".join(show.said)
    auth = engine.auths[0]
    assert auth is not None
    assert (auth["username"], auth["password"]) == ("$oauthtoken", "nvapi-hush-hush-hush")


def test_a_pull_without_a_key_is_anonymous_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("NGC_API_KEY", "NGC_CLI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    show, engine = FakeShow(), FakeEngine(FakeJob())
    fetch.image(engine, IMAGE, show.pull, show.say)
    assert engine.auths == [None]
    assert "without a key" in show.said[0]


@pytest.mark.parametrize("error", [DigestMismatch("x"), EngineLost("was pulling the image"), NoGpu("all", "none")])
def test_what_is_no_matter_of_the_registry_is_not_asked_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: NgcdlError
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    show = FakeShow()
    with pytest.raises(type(error)):
        fetch.image(FakeEngine(FakeJob(), pulled=error), IMAGE, show.pull, show.say)


class Installer(FakeEngine):
    """An engine that installs what a training needs on this host."""

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        return "with CUDA" if has_gpu else "for the CPU"


BUSY = replace(NO_GPU, why="each card is in use")


@pytest.mark.parametrize(
    ("mode", "way", "installed"),
    [("Prohibited", BUSY, "for the CPU"), ("Default", BUSY, "with CUDA"), ("Default", NO_GPU, "for the CPU")],
)
def test_nothing_is_installed_for_a_card_that_may_not_compute_or_that_nobody_asks_for(
    config: settings.Settings, mode: str, way: GpuWay, installed: str
) -> None:
    probe = Probe((Card(0, "GPU-0", compute_mode=mode),))
    picked = Choice(Installer(FakeJob()), None, way, NONE, "cpu", (), "", probe)
    asked = Asked("local", None, GpuRequest(), Workload("cifar10"))
    assert sources.planned_target(picked, asked) == installed
    assert sources.target(picked, asked, FakeShow(), Verdicts(asked, config)) == (None, None, installed)
