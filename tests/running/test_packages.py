"""Packages are installed once for each image and list, and a failed or cancelled installation leaves none."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow, LeftJob
from house import until

from ngcdl import whole
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
    environment=(("PIP_INDEX_URL", "https://mirror.example/simple"), ("EPOCHS", "3")),
    packages=("einops", "tqdm==4.67.1"),
    ports=(Port.parse("8888"),),
    user="1000:1000",
    tty=True,
    stdin=True,
)


def one_package(order: Order) -> None:
    (order.folder / packages.INSTALLED).write_text("einops==1\n")


def nested_deeply(order: Order) -> None:
    """Leave folders that rmtree can't delete, as what a package runs while it is built may do."""
    for depth in range(1, 1001):
        Path(f"{order.folder}{'/d' * depth}").mkdir()


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


def test_a_container_of_the_image_installs_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, show = PipEngine(job := FakeJob([b"Collecting einops\n"])), FakeShow()
    at_sync: list[str] = []
    monkeypatch.setattr(whole, "sync_all", lambda at: at_sync.extend(path.suffix for path in at.parent.iterdir()))
    first = packages.installed(engine, SPEC, TARGET, tmp_path / "cache", tmp_path / "kept", show)
    again = packages.installed(engine, SPEC, TARGET, tmp_path / "cache", tmp_path / "kept", show)
    assert first == again == packages.Packages(first.folder, ("einops==1",))
    (order,) = engine.orders
    spec = order.spec
    assert (spec.gpus.kind, spec.ports, spec.tty, spec.stdin, spec.packages) == ("none", (), False, False, ())
    assert (order.target, order.way, order.cache, spec.user) == (TARGET, "none", tmp_path / "cache", "1000:1000")
    assert [mount.container for mount in spec.mounts] == [inside.PACKAGES], "pip needs no folder of the run's"
    variables = dict(spec.environment)
    assert variables["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert variables["PYTHONUSERBASE"] == inside.PACKAGES
    assert "EPOCHS" not in variables
    kept = first.folder.parent
    assert (kept / packages.RUN / packages.LIST).read_text() == "-c constraints.txt\neinops\ntqdm==4.67.1\n"
    assert (kept / packages.LOG).read_text() == "Collecting einops\n"
    assert job.asked == ["remove"]
    assert sorted(at_sync) == [".lock", ".part"], "they are on the disk before they count as complete"
    assert show.said == ["installing for this image, once: einops, tqdm==4.67.1", "installed: einops==1"]


def with_variables(**more: str) -> RunSpec:
    return replace(SPEC, environment=(*SPEC.environment, *more.items()))


NAMED = replace(SPEC, packages=("--find-links /work/wheels", "einops"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SPEC, replace(SPEC, packages=("einops",))),
        (SPEC, replace(SPEC, environment=())),
        (SPEC, with_variables(TORCH_CUDA_ARCH_LIST="9.0")),
        (NAMED, replace(NAMED, mounts=(Mount("/home/you", "/work"),))),
        (replace(SPEC, packages=("a @ https://${HOST}/a.whl",)), with_variables(HOST="x")),
    ],
)
def test_what_decides_what_pip_installs_is_told_apart(tmp_path: Path, one: RunSpec, other: RunSpec) -> None:
    assert packages.folder_of(tmp_path, one, TARGET) != packages.folder_of(tmp_path, other, TARGET)


def test_so_is_another_image(tmp_path: Path) -> None:
    assert packages.folder_of(tmp_path, SPEC, IMAGE.pinned("sha256:" + "6" * 64)) != packages.folder_of(
        tmp_path, SPEC, TARGET
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, command=("bash",)),
        with_variables(EPOCHS="5", HTTPS_PROXY="http://proxy:3128", MAX_JOBS="4"),
        replace(SPEC, mounts=(Mount("/home/you", "/work"),)),
    ],
)
def test_what_changes_nothing_shares_them(tmp_path: Path, other: RunSpec) -> None:
    assert packages.folder_of(tmp_path, other, TARGET) == packages.folder_of(tmp_path, SPEC, TARGET)


@pytest.mark.parametrize(("where", "is_other"), [("/data", False), ("/work/wheels/more", True), ("/", True)])
def test_only_folders_in_which_pip_is_sent_are_told_apart(tmp_path: Path, where: str, is_other: bool) -> None:
    more = replace(NAMED, mounts=(*NAMED.mounts, Mount("/srv/data", where)))
    assert (packages.folder_of(tmp_path, more, TARGET) != packages.folder_of(tmp_path, NAMED, TARGET)) is is_other
    file = replace(more, packages=("--find-links file:///work/wheels", "einops"))
    less = replace(file, mounts=NAMED.mounts)
    assert (packages.folder_of(tmp_path, file, TARGET) != packages.folder_of(tmp_path, less, TARGET)) is is_other


def test_pip_gets_the_folder_that_the_list_names_a_proxy_and_the_run_s_limits(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob())
    spec = replace(NAMED, environment=(("HTTPS_PROXY", "http://proxy:3128"),), memory_bytes=1 << 30)
    packages.installed(engine, spec, TARGET, None, tmp_path, FakeShow())
    alone = engine.orders[0].spec
    assert alone.mounts[0] == SPEC.mounts[0]
    assert dict(alone.environment)["HTTPS_PROXY"] == "http://proxy:3128"
    assert alone.memory_bytes == 1 << 30


def test_a_user_base_that_was_typed_does_not_lead_pip_astray(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob())
    packages.installed(engine, with_variables(PYTHONUSERBASE="/elsewhere"), TARGET, None, tmp_path, FakeShow())
    assert dict(engine.orders[0].spec.environment)["PYTHONUSERBASE"] == inside.PACKAGES


def test_lines_about_the_image_s_own_builds_are_checked_after_the_installation(tmp_path: Path) -> None:
    lines = (
        "torch>=2",
        "numpy==1.26.4 --hash=sha256:ab",
        "torchmetrics",
        "Torch ; python_version > '3'",
        "jax @ https://x/y",
    )
    engine = PipEngine(FakeJob())
    folder = packages.installed(engine, replace(SPEC, packages=lines), TARGET, None, tmp_path, FakeShow()).folder
    assert (folder.parent / packages.RUN / packages.KEPT).read_text().splitlines() == [
        "torch>=2", "numpy==1.26.4", "Torch ; python_version > '3'",
    ]  # fmt: skip


def test_what_pip_could_not_install_is_told_in_its_words_and_tried_again(tmp_path: Path) -> None:
    said = b"Collecting tqdm==4.67.1\nERROR: No matching distribution found for tqdm==4.67.1\n"
    engine = PipEngine(FakeJob([said], Exit(1)), pip=nested_deeply)
    with pytest.raises(PackagesNotInstalled, match="ERROR: No matching distribution found for tqdm") as told:
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert told.value.exit_code == 125
    assert "Is there such a version" in told.value.hint
    log = next(Path(line.split()[1]) for line in told.value.commands if line.startswith("cat "))
    assert log.read_bytes() == said
    assert [path.name for path in log.parent.iterdir()] == [packages.LOG], "half an installation may fill the disk"
    assert "docker build" in told.value.hint
    assert not engine.left
    better = PipEngine(FakeJob())
    assert packages.installed(better, SPEC, TARGET, None, tmp_path, FakeShow()).installed == ("einops==1",)


def test_an_untrusted_certificate_is_told_from_a_version_that_does_not_exist(tmp_path: Path) -> None:
    said = (
        b"WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: "
        b"CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain'))'\n"
        b"ERROR: No matching distribution found for tqdm==4.67.1\n"
    )
    engine = PipEngine(FakeJob([said], Exit(1)), pip=lambda _: None)
    with pytest.raises(PackagesNotInstalled) as told:
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert "Is there such a version" not in told.value.hint
    assert "-e PIP_CERT=/ca.crt" in told.value.hint


def test_a_signal_leaves_neither_a_container_nor_half_a_folder(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    engine = PipEngine(job := FakeJob([interrupt]))
    with pytest.raises(KeyboardInterrupt):
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert job.asked == ["remove"]
    assert not packages.folder_of(tmp_path, SPEC, TARGET).exists()


def test_a_container_that_docker_does_not_remove_is_named(tmp_path: Path) -> None:
    show = FakeShow()
    assert packages.installed(PipEngine(LeftJob()), SPEC, TARGET, None, tmp_path, show).installed == ("einops==1",)
    assert any(line.endswith("busy):  docker rm -f c0ffee") for line in show.said)


@pytest.mark.parametrize("then", [SPEC.packages, ("another",)])
def test_a_container_that_a_killed_ngcdl_left_is_removed_first(tmp_path: Path, then: tuple[str, ...]) -> None:
    engine = PipEngine(FakeJob())
    folder = packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow()).folder.parent
    left = engine.left[engine.orders[0].run_id] = FakeJob()
    part = folder.rename(folder.with_suffix(".part"))
    packages.installed(engine, replace(SPEC, packages=then), TARGET, None, tmp_path, FakeShow())
    assert left.asked == ["remove"]
    assert not (part / packages.BASE).exists()


def test_another_user_s_container_with_the_same_list_is_another(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob())
    for home in ("mine", "yours"):
        packages.installed(engine, SPEC, TARGET, None, tmp_path / home, FakeShow())
    mine, yours = (order.run_id for order in engine.orders)
    assert mine != yours


def test_two_at_once_install_once(tmp_path: Path) -> None:
    entered, go, show = threading.Event(), threading.Event(), FakeShow()

    def slow(order: Order) -> None:
        entered.set()
        assert go.wait(240)
        (order.folder / packages.INSTALLED).write_text("einops==1\n")

    engine = PipEngine(FakeJob(), pip=slow)
    both = [
        threading.Thread(target=packages.installed, args=(engine, SPEC, TARGET, None, tmp_path, show)) for _ in range(2)
    ]
    both[0].start()
    assert entered.wait(240)
    both[1].start()
    until(lambda: any("another ngcdl" in line for line in show.said), "that the second waits")
    go.set()
    for thread in both:
        thread.join(240)
    assert len(engine.orders) == 1


def test_a_repeated_run_gets_the_versions_that_it_had(tmp_path: Path) -> None:
    engine, show = PipEngine(FakeJob()), FakeShow()

    def latest() -> Path:
        return engine.orders[-1].folder.parent.with_suffix("") / packages.RUN

    def again(*before: str) -> list[str]:
        packages.installed(engine, SPEC, TARGET, None, tmp_path, show, before)
        return (latest() / packages.CONSTRAINTS).read_text().splitlines()

    assert again("einops==0.9", "a @ https://example.com/a.whl") == ["einops==0.9"]
    assert (latest() / packages.LIST).read_text().splitlines()[1:] == list(SPEC.packages)
    packages.installed(engine, SPEC, TARGET, None, tmp_path, show)
    many = len(engine.orders)
    assert packages.installed(engine, SPEC, TARGET, None, tmp_path, show, ("einops==1",)).installed == ("einops==1",)
    assert len(engine.orders) == many, "what the list gave then is still there"


def test_a_list_with_hashes_keeps_them_in_a_repeated_run(tmp_path: Path) -> None:
    engine, spec = PipEngine(FakeJob()), replace(SPEC, packages=("einops==1 --hash=sha256:ab",))
    folder = packages.installed(engine, spec, TARGET, None, tmp_path, FakeShow(), ("einops==1.0",)).folder
    assert (folder.parent / packages.RUN / packages.CONSTRAINTS).read_text() == ""


def test_a_password_in_an_address_is_not_recorded(tmp_path: Path) -> None:
    def frozen(order: Order) -> None:
        (order.folder / packages.INSTALLED).write_text("a @ git+https://me:hunter2hunter2@example.com/a.git@beef\n")

    (said,) = packages.installed(PipEngine(FakeJob(), pip=frozen), SPEC, TARGET, None, tmp_path, FakeShow()).installed
    assert "hunter2" not in said


SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


def a_link(at: Path, key: Path) -> None:
    at.symlink_to(key)


def a_pipe(at: Path, key: Path) -> None:
    os.mkfifo(at)


def an_endless_device(at: Path, key: Path) -> None:
    at.symlink_to("/dev/zero")


def a_file_of_eight_terabytes(at: Path, key: Path) -> None:
    with at.open("wb") as file:
        file.truncate(8 << 40)


def nothing(at: Path, key: Path) -> None:
    pass


@pytest.mark.parametrize("leave", [a_link, a_pipe, an_endless_device, a_file_of_eight_terabytes, nothing])
def test_what_a_package_leaves_instead_of_the_list_is_not_read(
    tmp_path: Path, leave: Callable[[Path, Path], None]
) -> None:
    key = tmp_path / "id_ed25519"
    key.write_text(f"{SECRET}\n")
    engine, show = PipEngine(FakeJob(), pip=lambda order: leave(order.folder / packages.INSTALLED, key)), FakeShow()
    with pytest.raises(PackagesNotInstalled, match="is missing, or is no file that pip writes") as told:
        packages.installed(engine, SPEC, TARGET, None, tmp_path / "kept", show)
    assert SECRET not in "".join([str(told.value), told.value.hint, *show.said])
    assert packages.installed(PipEngine(FakeJob()), SPEC, TARGET, None, tmp_path / "kept", show).installed


def test_a_list_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    engine = PipEngine(FakeJob(), pip=lambda order: (order.folder / packages.INSTALLED).write_bytes(b"caf\xe9==1\n"))
    said = packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow()).installed
    assert said == ("caf\ufffd==1",)
    assert packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow()).installed == said


def test_the_container_sees_neither_the_folder_of_the_packages_as_an_entry_nor_the_log(tmp_path: Path) -> None:
    seen = []
    engine = PipEngine(FakeJob(), pip=lambda order: seen.extend(one.name for one in order.folder.iterdir()))
    with pytest.raises(PackagesNotInstalled):
        packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow())
    assert sorted(seen) == sorted([packages.LIST, packages.CONSTRAINTS, packages.KEPT, "home"])


def test_a_folder_that_an_older_installation_left_as_a_link_is_not_mounted(tmp_path: Path) -> None:
    folder, home = packages.folder_of(tmp_path / "kept", SPEC, TARGET), tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    folder.mkdir(parents=True)
    (folder / packages.BASE).symlink_to(home)
    (folder / packages.INSTALLED).write_text("evil==1\n")
    there = packages.installed(PipEngine(FakeJob()), SPEC, TARGET, None, tmp_path / "kept", FakeShow())
    assert there.installed == ("einops==1",)
    assert not there.folder.is_symlink()
    assert (home / "thesis.tex").exists()


def test_what_an_older_installation_left_is_taken(tmp_path: Path) -> None:
    folder = packages.folder_of(tmp_path, SPEC, TARGET)
    (folder / packages.BASE).mkdir(parents=True)
    (folder / packages.INSTALLED).write_text("einops==0.8\n")
    engine = PipEngine(FakeJob())
    assert packages.installed(engine, SPEC, TARGET, None, tmp_path, FakeShow()).installed == ("einops==0.8",)
    assert engine.orders == []


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
