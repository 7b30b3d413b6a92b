"""Before a comparison: what all arms share is chosen, judged and fetched once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from fakes import IMAGE, FakeShow

from ngcdl import choice, settings
from ngcdl.comparing import compare
from ngcdl.comparing.compare import Variant
from ngcdl.errors import ImagesRefused, ImageUnfit, NoGpu, NothingToCompare
from ngcdl.planning.asked import Asked
from ngcdl.preflight import meant
from ngcdl.running.context import Context
from ngcdl.spec import GpuRequest, ImageRef, RunSpec, Workload
from ngcdl.storing.store import Store

NOWHERE = "127.0.0.1:1"  # where nothing listens
OTHER = ImageRef.parse("pytorch:24.05-py3")
no_driver = pytest.mark.usefixtures("no_driver")
docker_s_socket = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A Docker with two images."""
    daemon = Daemon(tmp_path / "d.sock")
    for digit, image in (("1", IMAGE), ("2", OTHER)):
        digest = "sha256:" + digit * 64
        daemon.images[str(image)] = {"Id": digest, "RepoDigests": [f"{image.name}@{digest}"]}
        daemon.images[image.pinned(digest)] = daemon.images[str(image)]
    with serving(daemon):
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        yield daemon


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> settings.Settings:
    """That Docker's host, isolated."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return settings.load({"HOME": str(tmp_path)})


def variants(gpus: str, **changed: Mapping[str, Any]) -> list[Variant]:
    base = Asked("docker", IMAGE, GpuRequest.parse(gpus), Workload("cifar10", data="synthetic"))
    return [Variant(name, replace(base, **change), change.get("device")) for name, change in changed.items()]


@no_driver
@docker_s_socket
def test_where_there_is_no_gpu_the_cpu_is_left_and_it_is_said(config: settings.Settings, store: Store) -> None:
    made = variants("auto", cpu={"device": "cpu"}, gpu={"device": "gpu"})
    ready, remarks = compare.settle(made, Context(config, store, FakeShow()))
    assert [variant.name for variant, _ in ready] == ["cpu"]
    assert remarks == ("the GPU can't be measured here: this host has no NVIDIA driver",)
    assert ready[0][1].picked.loud == (), "the CPU is what this arm is to compute on"


@no_driver
@docker_s_socket
def test_a_gpu_that_must_be_there_and_is_not_ends_it_before_any_run(config: settings.Settings, store: Store) -> None:
    for gpus, device, named in (("all", None, "--gpus all: "), ("auto", "gpu", "--device gpu: ")):
        both = variants(gpus, a={"device": device}, b={"device": device})
        with pytest.raises(NoGpu, match=named):
            compare.settle(both, Context(config, store, FakeShow()))
    assert store.ids() == []


@no_driver
@docker_s_socket
def test_a_command_can_t_be_compared_without_a_gpu_and_cards_that_were_typed_are_named(
    config: settings.Settings, store: Store
) -> None:
    own = {"workload": None, "own": RunSpec(None, ("ls",))}
    for gpus, kind in (("all", NothingToCompare), ("2", NoGpu)):
        cpu, gpu = variants(gpus, cpu={**own, "gpus": GpuRequest("none")}, gpu=own)
        with pytest.raises(kind, match="this host has no NVIDIA driver") as refused:
            compare.settle([replace(cpu, device="cpu"), replace(gpu, device="gpu")], Context(config, store, FakeShow()))
        assert "    ngcdl run ... --gpus none -- COMMAND\n" in refused.value.hint, "compare would refuse --gpus none"


@docker_s_socket
def test_all_arms_of_one_image_begin_from_one_preparation(config: settings.Settings, store: Store) -> None:
    work = [Workload("cifar10", threads=n, data="synthetic") for n in (1, 2)]
    made = variants("none", one={"workload": work[0]}, two={"workload": work[1]})
    ((_, one), (_, two)), _ = compare.settle(made, Context(config, store, FakeShow()))
    assert one.picked is two.picked
    assert (one.data, one.digest) == (two.data, two.digest)
    assert [settled.asked.workload for settled in (one, two)] == work


@docker_s_socket
def test_a_release_that_was_left_open_is_the_same_for_all_arms(
    config: settings.Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cards may need an older release than the newest, which the CPU arm alone would get."""
    releases = iter((IMAGE, OTHER))
    monkeypatch.setattr(choice, "_image", lambda *of, **_: (of[3] if of[3].tag else next(releases), ""))
    asked = {"image": meant.named("tensorflow", "nvcr.io"), "workload": None, "own": RunSpec(None, ("ls",))}
    made = variants("none", cpu=asked)
    made += [replace(made[0], name="gpu", asked=replace(made[0].asked, gpus=GpuRequest.parse("auto")))]
    ready, _ = compare.settle(made, Context(config, store, FakeShow()))
    assert {settled.picked.image for _, settled in ready} == {IMAGE}


@docker_s_socket
def test_the_engine_that_was_chosen_is_said_once_for_all_arms(config: settings.Settings, store: Store) -> None:
    asked = {"image": IMAGE, "workload": None, "own": RunSpec(None, ("ls",))}
    made = variants("none", cpu=asked)
    made += [replace(made[0], name="gpu", asked=replace(made[0].asked, gpus=GpuRequest.parse("auto")))]
    show = FakeShow()
    compare.settle(made, Context(config, store, show))
    first, second = (line for line in show.said if "GPUs: " in line)
    assert first.startswith("engine docker: it was named; GPUs: none")
    assert second.startswith("cpu: GPUs: none")


@docker_s_socket
def test_the_data_is_found_once_for_two_images(config: settings.Settings, store: Store) -> None:
    made = variants("none", one={"image": IMAGE}, two={"image": OTHER})
    ((_, one), (_, two)), _ = compare.settle(made, Context(config, store, FakeShow()))
    assert one.data is two.data
    assert [settled.digest for settled in (one, two)] == ["sha256:" + "1" * 64, "sha256:" + "2" * 64]


@docker_s_socket
@pytest.mark.parametrize("names", [("unfit", "missing"), ("missing", "unfit")])
def test_an_image_that_can_t_run_ends_it_before_another_or_the_data_is_fetched(
    daemon: Daemon, config: settings.Settings, store: Store, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    monkeypatch.setenv("NGCDL_CIFAR10_URLS", f"http://{NOWHERE}/cifar-10-python.tar.gz")
    daemon.images[str(IMAGE)]["Architecture"] = "m68k"
    images = {"unfit": IMAGE, "missing": ImageRef.parse("pytorch:24.06-py3", NOWHERE)}
    show = FakeShow()
    made = variants("none", **{name: {"image": images[name], "workload": Workload("cifar10")} for name in names})
    with pytest.raises(ImagesRefused) as refused:
        compare.settle(made, Context(config, store, show))
    assert str(IMAGE.tag) in refused.value.message
    assert refused.value.message.endswith(" A comparison runs all of its images or none: no run begins.")
    assert not [path for path in daemon.asked if "/images/create" in path]
    assert not [line for line in show.said if "ulling" in line or "CIFAR" in line]


@docker_s_socket
@pytest.mark.parametrize("bad", [(IMAGE, OTHER), (OTHER,), (IMAGE,)])
def test_all_images_that_can_t_run_are_named_at_once(
    daemon: Daemon, config: settings.Settings, store: Store, bad: tuple[ImageRef, ...]
) -> None:
    third = ImageRef.parse("pytorch:24.08-py3")
    daemon.images[str(third)] = {**daemon.images[str(OTHER)]}
    for image in bad:
        daemon.images[str(image)]["Architecture"] = "m68k"
    made = variants("none", **{image.tag: {"image": image} for image in (third, IMAGE, OTHER)})
    with pytest.raises(ImagesRefused) as refused:
        compare.settle(made, Context(config, store, FakeShow()))
    said = refused.value.message
    assert {image for image in (third, IMAGE, OTHER) if f"{image} can't run here: " in said} == {*bad}
    assert said.count("no run begins") == 1
    assert [f"ngcdl check {image}" in refused.value.commands for image in (IMAGE, OTHER)] == [
        IMAGE in bad, OTHER in bad,
    ]  # fmt: skip
    assert refused.value.commands.count("ngcdl run ... --force") == 1


@docker_s_socket
def test_an_image_that_can_t_run_on_any_arm_is_refused_as_for_a_run(
    daemon: Daemon, config: settings.Settings, store: Store
) -> None:
    daemon.images[str(IMAGE)]["Architecture"] = "m68k"
    work = [Workload("cifar10", threads=n, data="synthetic") for n in (1, 2)]
    made = variants("none", one={"workload": work[0]}, two={"workload": work[1]})
    with pytest.raises(ImageUnfit):
        compare.settle(made, Context(config, store, FakeShow()))
