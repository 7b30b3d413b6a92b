"""Which images are for a Jetson, and what runs on one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_facts import HOST, IMAGE, reason

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts, Reason
from ngcdl.preflight.image import from_config
from ngcdl.preflight.verdict import judge_host
from ngcdl.spec import ImageRef


@pytest.mark.parametrize("name", ["nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3", "dustynv/pytorch:2.1-r36"])
@pytest.mark.parametrize(("capability", "level"), [("8.7", "caution"), ("9.0", "no")])
def test_an_image_for_a_jetson_is_known_by_its_name_or_by_the_jetpack_that_it_asks_for(
    name: str, capability: str, level: str
) -> None:
    asks = [] if "l4t" in name else ["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"]
    config = {"architecture": "arm64", "config": {"Env": ["PATH=/bin", "CUDA_VERSION=11.4.19", *asks]}}
    image = from_config(ImageRef.parse(name), config, architecture="arm64")
    assert judge_host(image, HostFacts("arm64", "540.4.0", (Gpu(capability),))).verdict == level


def test_whether_an_unknown_image_is_for_a_jetson_is_not_known() -> None:
    image = ImageFacts("me/mine:1", cuda="12.2", has_cuda=True, architectures=("arm64",))
    verdict = judge_host(image, HostFacts("arm64", "540.4.0", (Gpu("8.7", "Orin"),)))
    assert (verdict.verdict, verdict.reasons[0].rule) == ("caution", "unknown")


def test_a_kernel_for_a_jetson_runs_on_no_other_card() -> None:
    def decide(*sass: str) -> Reason:
        image = replace(IMAGE, sass=sass, ptx=None, min_capability=None)
        return reason(judge_host(image, replace(HOST, gpus=(Gpu("8.9", "L4"),))), "capability")

    assert (decide("8.6", "8.7").level, decide("8.6", "8.7").needed) == ("runs", "8.6")
    assert decide("7.5", "8.7").level == "no"


def on_orin(**changes: object) -> Reason:
    image = replace(IMAGE, release="26.07", cuda="13.3.1", sass=("8.0", "8.6", "9.0"), min_capability="7.5")
    changed = replace(image, **changes)  # type: ignore[arg-type]
    return judge_host(changed, HostFacts("arm64", "595.78", (Gpu("8.7", "Orin"),))).reasons[0]


def test_an_ordinary_image_of_cuda_13_may_run_on_an_orin_and_what_that_takes_is_said() -> None:
    found = on_orin()
    assert (found.rule, found.level, "JetPack 7.2" in found.text) == ("unknown", "caution", True)
    assert on_orin(sass=None).level == "caution"
    assert on_orin(cuda="12.9.1").level == "no"


def test_an_image_of_cuda_13_without_any_kernel_for_ampere_does_not_run_on_an_orin() -> None:
    found = on_orin(sass=("9.0", "11.0"), ptx="11.0")
    assert (found.rule, found.level) == ("capability", "no")


def test_the_tags_for_jetson_are_named_as_long_as_nvidia_made_some() -> None:
    assert "-igpu" in on_orin(cuda="12.9.1", release="25.06").text
    assert "-igpu" in on_orin(release="26.02").text
    assert "-igpu" not in on_orin(release="26.03").text
