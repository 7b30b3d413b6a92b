"""Which cards an image has kernels for, and when the driver compiles some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_facts import GTX_750, GTX_980, HOST, IMAGE, ON_470, RTX_2080, T4, reason, rules

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts
from ngcdl.preflight.kernels import kernels
from ngcdl.preflight.verdict import judge_host


def test_a_card_below_the_documented_floor_is_refused_with_both_numbers_and_the_family() -> None:
    verdict = judge_host(IMAGE, replace(HOST, gpus=(GTX_750,)))
    first = verdict.reasons[0]
    assert (verdict.verdict, first.rule, first.found, first.needed) == ("no", "capability", "5.0", "6.0")
    assert first.source == "https://example/notes"
    assert first.text == (
        "the image is documented for compute capability 6.0 (Pascal) and newer, and GTX 750 Ti has 5.0"
    )


def test_a_card_below_the_oldest_kernel_is_refused_where_nothing_is_documented() -> None:
    verdict = judge_host(replace(IMAGE, min_capability=None), replace(HOST, gpus=(GTX_750,)))
    assert (verdict.reasons[0].rule, verdict.reasons[0].needed) == ("capability", "5.2")
    assert verdict.reasons[0].source == "https://example/sass"


def test_a_recalled_number_makes_a_recalled_reason() -> None:
    host = replace(HOST, gpus=(GTX_980,))
    assert not judge_host(IMAGE, host).reasons[0].recalled
    assert judge_host(replace(IMAGE, recalled=frozenset({"min_capability"})), host).reasons[0].recalled
    assert judge_host(replace(IMAGE, recalled=frozenset({"driver"})), HOST).reasons[0].recalled
    for fact, on in (("minor_floor", replace(HOST, driver="530.30.02", gpus=(RTX_2080,))), ("compat_branches", ON_470)):
        assert not judge_host(IMAGE, on).reasons[0].recalled
        assert judge_host(replace(IMAGE, recalled=frozenset({fact})), on).reasons[0].recalled
    of_brands = replace(IMAGE, compat_brands=("tesla", "quadro"), recalled=frozenset({"compat_brands"}))
    assert not judge_host(of_brands, ON_470).reasons[0].recalled, "NVIDIA documents it for data-centre cards"
    assert judge_host(of_brands, replace(ON_470, gpus=(replace(T4, brand="quadro"),))).reasons[0].recalled


def test_a_kernel_runs_on_the_newer_cards_of_its_own_major_version_only() -> None:
    def decide(capability: str, **changes: object) -> str:
        image = replace(IMAGE, sass=("8.0", "10.0"), ptx=None, min_capability=None, **changes)  # type: ignore[arg-type]
        return judge_host(image, replace(HOST, driver="580.95.05", gpus=(Gpu(capability),))).verdict

    assert [decide(one) for one in ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0")] == [
        "runs", "runs", "no", "runs", "runs", "no",
    ]  # fmt: skip


def test_a_kernel_for_a_newer_card_of_the_same_major_version_does_not_run() -> None:
    image = replace(IMAGE, sass=("7.5", "8.6"), ptx="8.6", min_capability=None)
    assert judge_host(image, replace(HOST, gpus=(Gpu("8.0"),))).reasons[0].rule == "capability"
    assert judge_host(image, replace(HOST, gpus=(Gpu("8.0"),))).verdict == "no"


@pytest.mark.parametrize(("cuda", "capability", "rule"), [
    ("11.3.1", "8.9", "capability"), ("12.8.1", "12.1", "capability"), ("11.0.3", "8.6", "capability"),
    ("12.8.1", "11.0", "ptx"), ("11.3.1", "9.0", "ptx"), ("12.8.1", "13.0", "ptx"),
])  # fmt: skip
def test_where_only_the_toolkit_is_known_its_kernels_run_on_newer_cards_of_the_same_major(
    cuda: str, capability: str, rule: str
) -> None:
    image = ImageFacts("me/mine:1", cuda=cuda, has_cuda=True)
    assert kernels(image, Gpu(capability)).rule == rule


def test_ptx_newer_than_the_card_is_of_no_use_to_it() -> None:
    image = replace(IMAGE, sass=("8.0", "12.0"), ptx="12.0", min_capability=None)
    verdict = judge_host(image, replace(HOST, gpus=(Gpu("11.0"),)))
    assert (verdict.verdict, verdict.reasons[0].rule) == ("no", "capability")


def test_a_card_below_the_documented_ones_that_the_image_has_kernels_for_is_a_caution_with_both_facts() -> None:
    on_m60 = replace(HOST, gpus=(Gpu("5.2", "M60", "tesla"),))
    verdict = judge_host(IMAGE, on_m60)
    why = verdict.reasons[0]
    assert (verdict.verdict, verdict.mode, why.rule, why.needed) == ("caution", "native", "capability", "6.0")
    assert "documented for compute capability 6.0 (Pascal) and newer" in why.text
    assert "kernels for 5.2: it may run" in why.text
    assert not why.recalled
    recalled = judge_host(replace(IMAGE, recalled=frozenset({"sass"})), on_m60)
    assert "kernels for 5.2 (from memory)" in recalled.reasons[0].text
    for sass in (("6.0", "7.5"), (), None):
        assert judge_host(replace(IMAGE, sass=sass), on_m60).verdict == "no"


def test_ptx_is_a_caution_that_says_what_it_means() -> None:
    verdict = judge_host(IMAGE, replace(HOST, driver="580.95.05", gpus=(Gpu("12.0", "RTX 5090"),)))
    assert (verdict.verdict, verdict.mode) == ("caution", "ptx")
    assert "minutes" in verdict.reasons[0].text
    assert (verdict.reasons[0].found, verdict.reasons[0].needed) == ("12.0", "9.0")
    assert rules(verdict) == ["ptx", "native"]


def test_ptx_and_an_older_driver_is_a_no_that_asks_for_the_image_s_own_driver() -> None:
    image = replace(IMAGE, sass=("7.5", "8.0"), ptx="8.0")
    for driver, is_of_the_major in (("525.60.13", True), ("520.61.05", False)):
        verdict = judge_host(image, HostFacts(driver=driver, gpus=(Gpu("9.0", brand="geforce"),)))
        refusal = reason(verdict, "driver")
        assert (verdict.verdict, verdict.mode, refusal.needed) == ("no", None, "535.104.05")
        assert ("because this driver can't compile the PTX" in refusal.text) == is_of_the_major


def test_cuda_10_of_a_framework_is_not_supported_on_ampere_though_its_ptx_would_be_compiled() -> None:
    image = replace(IMAGE, cuda="10.2.89", sass=("7.0", "7.5"), ptx="7.5", driver="440.33")
    on_ampere, on_turing = judge_host(image, replace(HOST, gpus=(Gpu("8.0"),))), judge_host(image, HOST)
    assert (on_ampere.verdict, on_ampere.reasons[0].rule, on_ampere.reasons[0].recalled) == ("no", "cuda10", False)
    assert on_ampere.reasons[0].text.startswith("not supported by this image")
    assert on_turing.verdict == "runs"


@pytest.mark.parametrize("version", ["10.2.89", "9.2.148"])
def test_cuda_10_without_a_framework_has_its_ptx_compiled_on_ampere(version: str) -> None:
    image = ImageFacts("nvidia/cuda:10.2-base", cuda=version, has_cuda=True, driver="440.33")
    verdict = judge_host(image, replace(HOST, gpus=(Gpu("8.0", "A100"),)))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "ptx", "ptx")


@pytest.mark.parametrize(("version", "capability", "framework", "level"), [
    ("9.0.176", "7.5", "tensorflow", "caution"), ("9.2.148", "7.5", "pytorch", "caution"),
    ("10.0.130", "7.5", "pytorch", "runs"), ("9.0.176", "7.0", "pytorch", "runs"), ("9.0.176", "7.5", None, "runs"),
])  # fmt: skip
def test_products_by_the_cublas_of_cuda_9_can_fail_on_turing(
    version: str, capability: str, framework: str | None, level: str
) -> None:
    image = ImageFacts("x", framework=framework, cuda=version, sass=("6.0", "7.0"), ptx="7.0")
    found = kernels(image, Gpu(capability, "T4"))
    assert (found.rule, found.level) == ("capability", level)
    if level == "caution":
        assert "CUBLAS_STATUS_EXECUTION_FAILED" in found.text
        assert (found.needed, found.source) == ("CUDA 10", "https://github.com/pytorch/pytorch/pull/21468")


def test_without_a_list_of_kernels_the_cuda_version_tells_what_can_be_inside() -> None:
    image = replace(IMAGE, sass=None, ptx=None, min_capability=None)
    verdicts = [judge_host(image, replace(HOST, gpus=(Gpu(one, brand="tesla"),))) for one in ("3.7", "7.5", "11.0")]
    assert [one.verdict for one in verdicts] == ["no", "runs", "caution"]
    assert [reason(verdicts[0], "capability").needed, reason(verdicts[2], "ptx").needed] == ["5.0", "9.0"]
    assert "which are inside is not known" in reason(verdicts[1], "capability").text
