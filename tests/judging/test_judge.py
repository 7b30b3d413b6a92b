"""An image is judged before a pull or a run: what stops it, what is only warned about, and what can't stop it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine, FakeJob, FakeShow
from ngc_server import NgcServer, serving

from ngcdl import settings
from ngcdl.choice import NO_GPU, Choice
from ngcdl.cli.changed import written_out
from ngcdl.engines.values import Held
from ngcdl.errors import (
    ImageUnfit,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
)
from ngcdl.judging import judge
from ngcdl.judging.imagefacts import Found
from ngcdl.judging.verdicts import Verdicts
from ngcdl.planning.asked import Asked
from ngcdl.preflight.facts import Gpu, HostFacts
from ngcdl.preflight.verdict import judge_host as verdict
from ngcdl.spec import GpuRequest, ImageRef, Workload
from ngcdl.telemetry.card import Card, Probe

# Nothing listens on port 1: an unreachable registry.
NOWHERE = "127.0.0.1:1"
GTX_1050_TI = Gpu("6.1", "GTX 1050 Ti", "geforce", 0, "GPU-0")
A100 = Gpu("8.0", "A100", "nvidia", 1, "GPU-1")
SEED = HostFacts(driver="390.12", gpus=(GTX_1050_TI,))
TODAY = HostFacts(driver="615.61", gpus=(A100,))
TORCH = {
    "architecture": "amd64",
    "config": {
        "Env": [
            "CUDA_VERSION=13.3.1.008", "CUDA_DRIVER_VERSION=610.43.02", "NVIDIA_PYTORCH_VERSION=26.07",
            "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX",
        ]
    },
}  # fmt: skip

ARM = {"architecture": "arm64", "config": {"Env": []}}
# newer than any table, made for one card
CUDA_14 = {
    "architecture": "amd64",
    "config": {
        "Env": ["CUDA_VERSION=14.0.0", "CUDA_DRIVER_VERSION=700.10", "TORCH_CUDA_ARCH_LIST=8.0"],
    },
}


@dataclass
class Engine(FakeEngine):
    """An engine that has the images in `configs` and those in `digests`."""

    job: Any = field(default_factory=FakeJob)
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    digests: Collection[str | None] = ()

    def has(self, image: ImageRef) -> Held | None:
        return Held("sha256:1d", image.digest) if image.digest in self.digests else None

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        return self.configs.get(str(image))


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    return settings.load({"HOME": str(tmp_path), "NGCDL_REGISTRY": NOWHERE})


def ref(name: str) -> ImageRef:
    return ImageRef.parse(name, NOWHERE)


def before(
    image: ImageRef,
    host: HostFacts,
    config: settings.Settings,
    engine: Engine | None,
    on_cpu: bool | None = None,
    command: str = "run",
) -> tuple[str, ...]:
    return judge.cautions(image, host, config, judge.facts_of(image, host, config, engine), command, on_cpu=on_cpu)


def test_an_image_that_is_here_is_judged_by_its_own_configuration_without_a_registry(
    config: settings.Settings,
) -> None:
    image = ref("pytorch:my-own")
    engine = Engine(configs={str(image): TORCH})
    assert before(image, TODAY, config, engine, on_cpu=False) == ()
    with pytest.raises(ImageUnfit, match=r"26\.07|6\.1") as caught:
        before(image, SEED, config, engine, on_cpu=False)
    assert caught.value.newest == f"{NOWHERE}/nvidia/pytorch:18.08-py3"
    assert "--force" in caught.value.hint
    assert caught.value.exit_code == 125


def test_the_same_image_computes_on_the_cpu_of_a_host_whose_card_can_t_use_it(config: settings.Settings) -> None:
    image = ref("pytorch:my-own")
    engine = Engine(configs={str(image): TORCH})
    assert before(image, SEED, config, engine, on_cpu=True) == ()


def test_the_seed_s_card_runs_the_seed_s_image_and_today_s_is_refused_with_the_newest_that_runs(
    config: settings.Settings,
) -> None:
    assert before(ref("tensorflow:18.01-py2"), SEED, config, None) == ()
    with pytest.raises(ImageUnfit) as caught:
        before(ref("tensorflow:25.02-tf2-py3"), SEED, config, None)
    assert caught.value.newest == f"{NOWHERE}/nvidia/tensorflow:18.08-py3"


def test_a_refusal_offers_only_what_would_do(config: settings.Settings) -> None:
    def hint(image: str, host: HostFacts, on_cpu: bool | None = None, command: str = "run") -> str:
        with pytest.raises(ImageUnfit) as caught:
            before(ref(image), host, config, Engine(configs={str(ref("busybox:1")): ARM}), on_cpu, command)
        return caught.value.hint

    pulled, run = hint("pytorch:26.07-py3", SEED, None, "pull"), hint("pytorch:26.07-py3", SEED, on_cpu=False)
    compared = hint("pytorch:26.07-py3", SEED, False, "compare")
    assert "how to compare it anyway" in compared
    assert "ngcdl compare ... --force\nOn the CPU:\n    ngcdl compare ... --gpus none" in compared
    assert "ngcdl pull ... --force" in pulled
    assert "ngcdl run ... --force" in run
    assert "--gpus none" in run
    foreign = hint("busybox:1", SEED, on_cpu=False)
    assert "--gpus none" not in foreign, "another processor's image runs on no CPU of this host"
    assert f"ngcdl images {NOWHERE}/nvidia/busybox --all" in foreign, "nobody looked for another tag"
    there = HostFacts(architecture="arm64", elsewhere="another machine's")
    assert "No tag of it is known" in hint("tensorflow:18.01-py2", there), "its cards are not known"


def test_all_that_speaks_against_a_pull_is_said_before_it(config: settings.Settings) -> None:
    image = ref("pytorch:24.05-py3")  # no kernels for Blackwell, but PTX
    found = judge.facts_of(image, TODAY, config, None)
    assert isinstance(found, Found)
    found = replace(found, facts=replace(found.facts, compressed_bytes=15 << 30, is_schema_1=True))
    host = HostFacts(driver="615.61", gpus=(Gpu("12.0", "RTX 5090"),), free_bytes=20 << 30, engine_version="25.0")
    lines = judge.cautions(image, host, config, found, "pull")
    assert ["driver compiles them" in lines[0], "schema 1" in lines[1], "are free" in lines[2]] == [True] * 3
    full = replace(host, free_bytes=1 << 30, engine_version="29.1", gpu_way="none")
    with pytest.raises(ImageUnfit, match=r"which Docker 29\.1 refuses.*\. Besides, 1\.0 GiB are free"):
        judge.cautions(image, full, config, found, "pull")
    refused, *cautions = judge.cautions(image, full, config, found, "pull", force=True)
    assert refused.endswith("Going on because of --force.")
    assert len(cautions) == 2, "the card, and no way to hand it on"


def test_of_two_cards_that_can_t_run_it_the_one_that_a_driver_would_mend_gives_the_reason(
    config: settings.Settings,
) -> None:
    host = HostFacts(driver="545.23.08", gpus=(GTX_1050_TI, A100))
    with pytest.raises(ImageUnfit, match=r"driver 545\.23\.08 is too old"):
        before(ref("pytorch:my-own"), host, config, Engine(configs={str(ref("pytorch:my-own")): CUDA_14}))


def test_an_offer_for_several_cards_runs_on_each_of_them(config: settings.Settings) -> None:
    host = HostFacts(driver="580.65.06", gpus=(GTX_1050_TI, A100))
    offered = ref("tensorflow:18.01-py2")  # runs on the older card only; the newest image runs on the newer card only
    with pytest.raises(ImageUnfit) as caught:
        judge.cautions(offered, host, config, judge.facts_of(offered, host, config, None), on_cpu=False, on_each=True)
    assert caught.value.newest == f"{NOWHERE}/nvidia/tensorflow:24.12-tf2-py3"
    offered = ImageRef.parse(caught.value.newest)
    judge.cautions(offered, host, config, judge.facts_of(offered, host, config, None), on_cpu=False, on_each=True)


@pytest.mark.parametrize(("name", "meant"), [
    ("tensorfow:18.01-py2", "tensorflow:18.01-py2"), ("pytoch:24.05-py3", "pytorch:24.05-py3"),
    ("tensorrt:24.05-py3", None), ("elsewhere/tensorfow:1", None),
])  # fmt: skip
def test_a_misspelt_framework_is_told_the_name_that_was_meant(
    config: settings.Settings, name: str, meant: str | None
) -> None:
    failed = judge.facts_of(ref(name), TODAY, config, None)
    assert isinstance(failed, NgcdlError)
    assert failed.hint.startswith("Did you mean") == (meant is not None)
    if meant:
        assert written_out(failed.hint, ["check", name]).startswith(f"Did you mean {meant}?\n    ngcdl check {meant}\n")


@pytest.mark.parametrize(
    ("error", "is_offered"),
    [
        (UnknownRepository("nvcr.io", "pytorch/pytorch"), True),
        (LoginNeeded("nvcr.io", "pytorch/pytorch"), True),
        (KeyWithoutRights("nvcr.io", "pytorch/pytorch"), True),
        (UnknownTag("nvcr.io/pytorch/pytorch:2.5.0", ()), True),
        (UnknownTag("nvcr.io/pytorch/pytorch:2.5.0", ("2.5.1",)), False),
        (RegistryUnreachable("nvcr.io", "no route"), False),
    ],
)
def test_who_asks_the_registry_for_docker_hub_s_image_is_told_its_name(error: NgcdlError, is_offered: bool) -> None:
    said = error.hint
    with pytest.raises(type(error)), judge.spelt(ImageRef.parse("pytorch/pytorch:2.5.0")):
        raise error
    offer = "\nOn Docker Hub?\n    ngcdl run docker.io/pytorch/pytorch:2.5.0"
    assert error.hint == said + (offer if is_offered else "")


def test_a_framework_s_version_typed_for_a_tag_is_told_the_tags_that_have_it() -> None:
    error = UnknownTag("nvcr.io/nvidia/tensorflow:2.11.0-gpu", ())
    with pytest.raises(UnknownTag), judge.spelt(ImageRef.parse("tensorflow:2.11.0-gpu")):
        raise error
    tags = ("23.03-tf2-py3", "23.02-tf2-py3", "23.01-tf2-py3")
    lines = "".join(f"    nvcr.io/nvidia/tensorflow:{tag}\n" for tag in tags)
    assert f"by year and month. With tensorflow 2.11, for example:\n{lines}All" in error.hint


def test_a_registry_that_can_t_be_asked_leaves_an_unknown_image_to_the_pull(config: settings.Settings) -> None:
    (line,) = before(ref("nosuch:1"), TODAY, config, None)
    assert line.startswith(f"it is not known whether {NOWHERE}/nvidia/nosuch:1 can run here: ")
    assert "can't be reached" in line


def test_a_pull_on_a_host_without_a_card_is_one_line_and_a_run_there_is_none(config: settings.Settings) -> None:
    image, bare = ref("tensorflow:18.01-py2"), HostFacts()
    (line,) = before(image, bare, config, None)
    assert "no GPU was found on this host" in line
    assert before(image, bare, config, None, on_cpu=True) == (), "the choice of the engine has said it"


@pytest.mark.parametrize(("picked", "refused"), [
    ((GTX_1050_TI.uuid, A100.uuid), True), ((A100.uuid,), False), (("MIG-1",), False), (("MIG-GPU-0/1/0",), True),
    (("0:1",), True), (("1:0",), False), (("MIG-of-0",), True), (("MIG-of-1",), False),
])  # fmt: skip
def test_of_cards_that_each_train_the_one_that_does_worst_decides_and_a_slice_is_its_card_s(
    config: settings.Settings, picked: tuple[str, ...], refused: bool
) -> None:
    image = ref("pytorch:my-own")
    engine = Engine(configs={str(image): TORCH})
    both_mig = any(uuid.startswith("MIG-of-") for uuid in picked)
    host = HostFacts(driver="580.65.06", gpus=(replace(GTX_1050_TI, mig=both_mig), replace(A100, mig=True)))
    asked = Asked("docker", image, GpuRequest("devices", devices=picked), Workload("cifar10"))
    verdicts = Verdicts(asked, config, (host, judge.facts_of(image, host, config, engine)))
    seen = tuple(Card(i, f"GPU-{i}", mig=True, mig_devices=(Card(0, f"MIG-of-{i}"),)) for i in range(2))
    chosen = Choice(engine, image, NO_GPU, asked.gpus, "gpu", picked, "", Probe(seen))
    why = r"6\.1.*; it runs best on 1 of 2 cards.*: use --gpus '1,'" if len(picked) > 1 else r"6\.1"
    with pytest.raises(ImageUnfit, match=why) if refused else contextlib.nullcontext():
        verdicts.tell(chosen, FakeShow())


def test_only_the_cards_that_can_t_use_an_image_are_named(config: settings.Settings) -> None:
    host = HostFacts(driver="580.65.06", gpus=(GTX_1050_TI, A100))
    found = judge.facts_of(ref("pytorch:26.07-py3"), host, config, None)
    assert isinstance(found, Found)
    cards = verdict(found.facts, host).cards
    assert [card.verdict for card in cards] == ["no", "runs"]


def test_if_an_image_can_use_none_of_the_cards_that_may_compute_none_is_left_out(config: settings.Settings) -> None:
    image = ref("pytorch:26.07-py3")
    host = HostFacts(driver="580.65.06", gpus=(GTX_1050_TI,))
    asked = Asked("docker", image, GpuRequest("auto"), Workload("cifar10"))
    verdicts = Verdicts(asked, config, (host, judge.facts_of(image, host, config, None)))
    barred = Card(1, "GPU-1", compute_mode="Prohibited")
    assert verdicts.unfit(Engine(), image, Probe((Card(0, "GPU-0"), barred))) == ()


def test_the_whole_verdict_as_json_says_what_it_rests_on(config: settings.Settings) -> None:
    told = judge.as_json(judge.judge_image(ref("tensorflow:18.01-py2"), SEED, config, None))
    assert (told["verdict"], told["mode"], told["known_from"]) == ("runs", "native", "catalogue")
    assert told["newest"] == f"{NOWHERE}/nvidia/tensorflow:18.08-py2", "of the kind that was asked about"
    assert told["compressed_bytes"] is None
    assert "can't be reached" in told["trouble"]
    assert {"rule", "found", "needed", "source"} <= set(told["reasons"][0])
    assert "sass" in told["facts"]["recalled"]
    by_rule = {reason["rule"]: reason for reason in told["reasons"]}
    assert (by_rule["capability"]["recalled"], by_rule["capability"]["source"]) == (True, None)


def test_an_image_that_the_engine_has_by_its_digest_needs_no_room_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    config = settings.load({"HOME": str(tmp_path)})
    ngc, full = NgcServer(), replace(TODAY, free_bytes=1)
    tags = ("25.03-py3", "98.01-py3")  # one known to the tables, one not
    for tag in tags:
        environ = ("CUDA_VERSION=12.8.1", "CUDA_DRIVER_VERSION=570.124.06", "TORCH_CUDA_ARCH_LIST=8.0 9.0", f"IT={tag}")
        ngc.add_image("nvidia/pytorch", tag, environ=environ)
    with serving(ngc):
        for tag in tags:
            image = ImageRef.parse(f"{ngc.host}/nvidia/pytorch:{tag}")
            here = Engine(digests={ngc.tags["nvidia/pytorch"][tag]})
            assert "disk" not in _refused(judge.judge_image(image, full, config, here))
            assert "disk" in _refused(judge.judge_image(image, full, config, Engine()))
            assert judge.judge_image(image, full, config, here).facts.compressed_bytes == 1230, (
                "its size is told all the same"
            )
            found = judge.newest_of(replace(image, tag=None), full, config, here)
            assert found, "it is the newest that runs"
            assert found.image == image
            judge.cautions(image, full, config, judge.facts_of(image, full, config, here, anew=True), "pull")
            with pytest.raises(ImageUnfit, match="are free where the engine keeps images"):
                judge.cautions(image, full, config, judge.facts_of(image, full, config, Engine(), anew=True), "pull")
        assert judge.newest_of(replace(image, tag=None), full, config, Engine()) is None


def _refused(judged: judge.Judgement) -> list[str]:
    return [reason.rule for reason in judged.verdict.reasons if reason.level == "no"]
