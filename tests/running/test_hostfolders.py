"""This host's folders that a run sees besides its own: caches, choices, mounts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from docker_socket import Daemon
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow
from preparing import NONE, training
from preparing import config as config  # a fixture
from preparing import daemon as daemon  # a fixture
from preparing import store as store  # a fixture

from ngcdl import settings
from ngcdl.errors import MountMissing, StateNotWritable
from ngcdl.planning import plan
from ngcdl.planning.asked import Asked
from ngcdl.running import hostfolders, prepare
from ngcdl.running.context import Context
from ngcdl.spec import GpuRequest, Mount, RunSpec, Workload
from ngcdl.storing.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # docker SDK's socket


def test_no_mount_point_is_made_for_what_can_not_be_looked_at(tmp_path: Path) -> None:
    outer = Mount(str(tmp_path), "/work", writable=True)
    hostfolders.make_mount_points((outer, Mount("/" + "x" * 300, "/work/point")))
    assert list(tmp_path.iterdir()) == [], "whether it is a folder or a file is not known"


def test_what_a_trial_chooses_is_kept_beside_the_runs_in_a_folder_that_no_other_repository_s_images_see(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    asked = training(workload=Workload("cifar10", data="synthetic", autotune=True, feed=None))
    spec = prepare.prepare(asked, Context(config, store, FakeShow())).order.spec
    folder = config.runs.parent / "autotune/nvcr.io+nvidia+tensorflow"
    assert folder.is_dir()
    assert Mount(str(folder), "/ngcdl/choices", writable=True) in spec.mounts
    assert hostfolders.choices_of(asked.workload, None, store) == folder.with_name("+host")


def test_caches_inside_are_kept_in_one_folder_of_the_callers_for_each_repository(
    daemon: Daemon, config: settings.Settings, store: Store, tmp_path: Path
) -> None:
    ready = [prepare.prepare(training(), Context(config, store, FakeShow())) for _ in range(2)]
    folder = tmp_path / ".cache/ngcdl/inside/nvcr.io+nvidia+tensorflow"
    assert {one.order.cache for one in ready} == {folder}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert ready[0].run.notes == ()
    assert str(folder) not in json.dumps(ready[0].run.as_json()), "older records have none, and compare with it"


def test_neither_root_nor_one_who_keeps_no_caches_inside_has_such_a_folder(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    assert config.inside is not None
    asked = Asked("docker", IMAGE, NONE, None, plan.command(IMAGE, ("ls",), NONE, False, False))
    assert prepare.prepare(replace(asked, root=True), Context(config, store, FakeShow())).order.cache is None
    assert prepare.prepare(asked, Context(replace(config, inside=None), store, FakeShow())).order.cache is None
    assert not config.inside.exists()
    assert prepare.prepare(asked, Context(config, store, FakeShow())).order.cache is not None


def test_a_cluster_s_nodes_have_no_such_folder(daemon: Daemon, config: settings.Settings, store: Store) -> None:
    settled = prepare.settle(training(), Context(config, store, FakeShow()))
    cluster = replace(settled.picked, engine=FakeEngine(FakeJob(), is_cluster=True))
    spec = RunSpec(IMAGE, user="1000:1000")
    found = [hostfolders.cache_of(picked, spec, config) for picked in (settled.picked, cluster)]
    assert found == [settled.cache, None]


CAN_T_KEEP = {
    "a file": "Not a directory",
    "a folder of others": "it is not writable",
    "mounted noexec": "its file system is mounted noexec",
}


@pytest.mark.parametrize("found", CAN_T_KEEP)
def test_where_caches_inside_can_t_be_kept_the_run_begins_without_them_and_says_so(
    daemon: Daemon, config: settings.Settings, store: Store, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.inside is not None
    config.cache.mkdir(parents=True)
    if found == "a file":
        config.inside.touch()
    elif found == "mounted noexec":
        monkeypatch.setattr(os, "ST_NOEXEC", ~0)  # whatever flags it has
    else:
        monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith(str(config.inside)))
    ready = prepare.prepare(training(), Context(config, store, FakeShow()))
    folder = config.inside / "nvcr.io+nvidia+tensorflow"
    note = f"What programs in the container cache is lost with the run: {folder} can't be used ({CAN_T_KEEP[found]})."
    assert (ready.order.cache, store.load(ready.run.id).notes) == (None, (note,))


def test_a_mount_that_is_missing_is_told_before_anything_is_recorded(
    daemon: Daemon, config: settings.Settings, store: Store, tmp_path: Path
) -> None:
    extra = RunSpec(None, mounts=(Mount(str(tmp_path / "none"), "/x"),))
    with pytest.raises(MountMissing, match="none"):
        prepare.prepare(training(extra=extra), Context(config, store, FakeShow()))
    assert store.ids() == []


def test_folders_that_docker_from_snap_may_not_see_are_named_before_the_pull(
    daemon: Daemon, config: settings.Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    daemon.info |= {"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}
    (tmp_path / ".data").mkdir()
    asked = training(gpus=GpuRequest("none"), extra=RunSpec(None, mounts=(Mount(str(tmp_path / ".data"), "/x"),)))
    show = FakeShow()
    note = prepare.prepare(asked, Context(config, store, show)).run.notes[-1]
    assert note in show.said
    assert f"{tmp_path}/.data" in note
    assert f"{store.root}, {tmp_path}/.cache/" in note
    monkeypatch.setenv("HOME", "/")
    assert prepare.prepare(asked, Context(config, store, FakeShow())).run.notes == (), "no folder of / is hidden"


def test_a_mount_whose_name_can_t_be_one_is_told_too(daemon: Daemon, config: settings.Settings, store: Store) -> None:
    extra = RunSpec(None, mounts=(Mount("/" + "a" * 300, "/x"),))
    with pytest.raises(MountMissing):
        prepare.prepare(training(extra=extra), Context(config, store, FakeShow()))


def test_a_volume_of_docker_needs_no_folder(daemon: Daemon, config: settings.Settings, store: Store) -> None:
    extra = RunSpec(None, mounts=(Mount("models", "/x"),))
    assert prepare.prepare(training(extra=extra), Context(config, store, FakeShow())).run.status == "running"


def test_what_a_mount_inside_a_folder_of_the_callers_is_mounted_on_is_the_callers_too(
    daemon: Daemon, config: settings.Settings, store: Store, tmp_path: Path
) -> None:
    """Docker would create it, owned by root."""
    project, data, elsewhere, file = tmp_path / "project", tmp_path / "data", tmp_path / "elsewhere", tmp_path / "f"
    for folder in (project, data, elsewhere):
        folder.mkdir()
    file.touch()
    (project / "link").symlink_to(elsewhere)
    (project / "there").write_text("kept")
    mounts = [Mount(str(project), "/work", writable=True), Mount(str(data), "/data")]
    inner = {"deep/er": data, "deep/f": file, "there": file, "link/x": data, "vol": Path("volume")}
    mounts += [Mount(str(host), f"/work/{place}") for place, host in inner.items()]
    mounts.append(Mount(str(file), "/data/read-only"))
    asked = training(extra=RunSpec(None, mounts=tuple(mounts)))
    prepare.prepare(asked, Context(config, store, FakeShow()))
    made = {str(path.relative_to(project)): path.is_dir() for path in project.rglob("*")}
    assert made == {"link": True, "there": False, "deep": True, "deep/er": True, "deep/f": False, "vol": True}
    assert (project / "there").read_text() == "kept"
    assert not [*elsewhere.iterdir(), *data.iterdir()]


def test_a_place_for_what_a_trial_chooses_that_can_t_be_made_is_told(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    config.runs.parent.mkdir(parents=True)
    (config.runs.parent / "autotune").touch()
    asked = training(workload=Workload("cifar10", data="synthetic", autotune=True, feed=None))
    with pytest.raises(StateNotWritable, match=r"What --autotune chose is remembered in .*: Not a directory"):
        prepare.prepare(asked, Context(config, store, FakeShow()))
    assert not [path for path in daemon.asked if "/images/create" in path]
