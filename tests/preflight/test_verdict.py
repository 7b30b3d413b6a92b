"""Each rule of the verdict by itself, on facts that are written out here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts, Reason, Verdict
from ngcdl.preflight.image import from_catalog, from_config
from ngcdl.preflight.kernels import kernels
from ngcdl.preflight.verdict import judge
from ngcdl.spec import ImageRef

# pytorch:23.10-py3 as its row has it
IMAGE = ImageFacts(
    "nvcr.io/nvidia/pytorch:23.10-py3",
    framework="pytorch",
    release="23.10",
    cuda="12.2.2.009",
    has_cuda=True,
    driver="535.104.05",
    minor_floor="525.60.13",
    architectures=("amd64", "arm64"),
    sass=("5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0"),
    ptx="9.0",
    min_capability="6.0",
    compat_branches=(450, 470, 510, 525, 535),
    compat_brands=("tesla", "nvidia"),
    sources={"sass": "https://example/sass", "driver": "registry", "min_capability": "https://example/notes"},
)
T4 = Gpu("7.5", "T4", "tesla", index=0)
RTX_2080 = Gpu("7.5", "RTX 2080", "geforce", index=0)
GTX_980 = Gpu("5.2", "GTX 980", "geforce", index=1)
GTX_750 = Gpu("5.0", "GTX 750 Ti", "geforce", index=1)
HOST = HostFacts(driver="535.104.05", gpus=(T4,))
ON_470 = replace(HOST, driver="470.57.02")


def reason(verdict: Verdict, rule: str) -> Reason:
    return next(one for one in verdict.reasons if one.rule == rule)


def rules(verdict: Verdict) -> list[str]:
    return [one.rule for one in verdict.reasons]


# -- the kernels ------------------------------------------------------------------------------------------------------


def test_a_card_below_the_documented_floor_is_refused_with_both_numbers_and_the_family() -> None:
    verdict = judge(IMAGE, replace(HOST, gpus=(GTX_980,)))
    first = verdict.reasons[0]
    assert (verdict.verdict, first.rule, first.found, first.needed) == ("no", "capability", "5.2", "6.0")
    assert first.source == "https://example/notes"
    assert first.text == "the image is documented for compute capability 6.0 (Pascal) and newer, and GTX 980 has 5.2"


def test_a_card_below_the_oldest_kernel_is_refused_where_nothing_is_documented() -> None:
    verdict = judge(replace(IMAGE, min_capability=None), replace(HOST, gpus=(GTX_750,)))
    assert (verdict.reasons[0].rule, verdict.reasons[0].needed) == ("capability", "5.2")
    assert verdict.reasons[0].source == "https://example/sass"


def test_a_recalled_number_makes_a_recalled_reason() -> None:
    host = replace(HOST, gpus=(GTX_980,))
    assert not judge(IMAGE, host).reasons[0].recalled
    assert judge(replace(IMAGE, recalled=frozenset({"min_capability"})), host).reasons[0].recalled
    assert judge(replace(IMAGE, recalled=frozenset({"driver"})), HOST).reasons[0].recalled


def test_a_kernel_runs_on_the_newer_cards_of_its_own_major_version_only() -> None:
    def decide(capability: str, **changes: object) -> str:
        image = replace(IMAGE, sass=("8.0", "10.0"), ptx=None, min_capability=None, **changes)  # type: ignore[arg-type]
        return judge(image, replace(HOST, gpus=(Gpu(capability),))).verdict

    assert [decide(one) for one in ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0")] == [
        "runs", "runs", "no", "runs", "runs", "no",
    ]  # fmt: skip


def test_a_kernel_for_a_newer_card_of_the_same_major_version_does_not_run() -> None:
    image = replace(IMAGE, sass=("7.5", "8.6"), ptx="8.6", min_capability=None)
    assert judge(image, replace(HOST, gpus=(Gpu("8.0"),))).reasons[0].rule == "capability"
    assert judge(image, replace(HOST, gpus=(Gpu("8.0"),))).verdict == "no"


@pytest.mark.parametrize(("cuda", "capability", "rule"), [
    ("11.3.1", "8.9", "capability"), ("12.8.1", "12.1", "capability"), ("11.0.3", "8.6", "capability"),
    ("12.8.1", "11.0", "ptx"), ("11.3.1", "9.0", "ptx"), ("12.8.1", "13.0", "ptx"),
])  # fmt: skip
def test_where_only_the_toolkit_is_known_its_kernels_run_on_newer_cards_of_the_same_major(
    cuda: str, capability: str, rule: str
) -> None:
    image = ImageFacts("me/mine:1", cuda=cuda, has_cuda=True)
    assert kernels(image, Gpu(capability)).rule == rule


@pytest.mark.parametrize("name", ["nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3", "dustynv/pytorch:2.1-r36"])
@pytest.mark.parametrize(("capability", "level"), [("8.7", "caution"), ("9.0", "no")])
def test_an_image_for_a_jetson_is_known_by_its_name_or_by_the_jetpack_that_it_asks_for(
    name: str, capability: str, level: str
) -> None:
    asks = [] if "l4t" in name else ["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"]
    config = {"architecture": "arm64", "config": {"Env": ["PATH=/bin", "CUDA_VERSION=11.4.19", *asks]}}
    image = from_config(ImageRef.parse(name), config, architecture="arm64")
    assert judge(image, HostFacts("arm64", "540.4.0", (Gpu(capability),))).verdict == level


def test_whether_an_unknown_image_is_for_a_jetson_is_not_known() -> None:
    image = ImageFacts("me/mine:1", cuda="12.2", has_cuda=True, architectures=("arm64",))
    verdict = judge(image, HostFacts("arm64", "540.4.0", (Gpu("8.7", "Orin"),)))
    assert (verdict.verdict, verdict.reasons[0].rule) == ("caution", "unknown")


def test_without_a_brand_a_driver_that_a_compat_package_may_carry_is_no_refusal() -> None:
    image = ImageFacts("x", cuda="13.3", has_cuda=True, driver="610.43.02", minor_floor="580.65.06",
                       compat_brands=("tesla",), compat_likely=(550,), sass=("9.0",))  # fmt: skip
    for brand in ("tesla", None):
        verdict = judge(image, HostFacts(driver="550.90.07", gpus=(Gpu("9.0", brand=brand),)))
        assert (verdict.verdict, verdict.reasons[0].rule) == ("caution", "unknown")
    assert judge(image, HostFacts(driver="550.90.07", gpus=(Gpu("9.0", brand="geforce"),))).verdict == "no"


def test_a_kernel_for_a_jetson_runs_on_no_other_card() -> None:
    def decide(*sass: str) -> Reason:
        image = replace(IMAGE, sass=sass, ptx=None, min_capability=None)
        return reason(judge(image, replace(HOST, gpus=(Gpu("8.9", "L4"),))), "capability")

    assert (decide("8.6", "8.7").level, decide("8.6", "8.7").needed) == ("runs", "8.6")
    assert decide("7.5", "8.7").level == "no"


def test_ptx_newer_than_the_card_is_of_no_use_to_it() -> None:
    image = replace(IMAGE, sass=("8.0", "12.0"), ptx="12.0", min_capability=None)
    verdict = judge(image, replace(HOST, gpus=(Gpu("11.0"),)))
    assert (verdict.verdict, verdict.reasons[0].rule) == ("no", "capability")


def test_ptx_is_a_caution_that_says_what_it_means() -> None:
    verdict = judge(IMAGE, replace(HOST, gpus=(Gpu("12.0", "RTX 5090"),)))
    assert (verdict.verdict, verdict.mode) == ("caution", "ptx")
    assert "minutes" in verdict.reasons[0].text
    assert rules(verdict) == ["ptx", "native"]


def test_ptx_and_an_older_driver_is_a_no_that_asks_for_the_image_s_own_driver() -> None:
    verdict = judge(IMAGE, HostFacts(driver="530.30.02", gpus=(Gpu("12.0", brand="geforce"),)))
    refusal = reason(verdict, "driver")
    assert (verdict.verdict, verdict.mode, refusal.needed) == ("no", None, "535.104.05")
    assert "PTX" in refusal.text


def test_cuda_10_on_ampere_is_not_supported_though_its_ptx_would_be_compiled() -> None:
    image = replace(IMAGE, cuda="10.2.89", sass=("7.0", "7.5"), ptx="7.5", driver="440.33")
    on_ampere, on_turing = judge(image, replace(HOST, gpus=(Gpu("8.0"),))), judge(image, HOST)
    assert (on_ampere.verdict, on_ampere.reasons[0].rule, on_ampere.reasons[0].recalled) == ("no", "cuda10", True)
    assert on_ampere.reasons[0].text.startswith("not supported by this image")
    assert on_turing.verdict == "runs"


def test_without_a_list_of_kernels_the_cuda_version_tells_what_can_be_inside() -> None:
    image = replace(IMAGE, sass=None, ptx=None, min_capability=None)
    verdicts = [judge(image, replace(HOST, gpus=(Gpu(one, brand="tesla"),))) for one in ("3.7", "7.5", "12.0")]
    assert [one.verdict for one in verdicts] == ["no", "runs", "caution"]
    assert [reason(verdicts[0], "capability").needed, reason(verdicts[2], "ptx").needed] == ["5.0", "9.0"]
    assert "which are inside is not known" in reason(verdicts[1], "capability").text


def test_an_image_of_which_nothing_is_known_is_neither_refused_nor_praised() -> None:
    verdict = judge(ImageFacts("example.com/x:1"), HOST)
    assert (verdict.verdict, verdict.mode, rules(verdict)) == ("caution", None, ["unknown", "unknown"])


# -- the driver -------------------------------------------------------------------------------------------------------


def test_a_patch_level_below_is_native_and_said_to_be_below() -> None:
    verdict = judge(IMAGE, replace(HOST, driver="535.54.03"))
    assert (verdict.verdict, verdict.mode) == ("runs", "native")
    assert "patch level" in verdict.reasons[0].text
    assert "patch level" not in judge(IMAGE, HOST).reasons[0].text


def test_geforce_is_refused_where_a_data_centre_card_gets_forward_compatibility() -> None:
    tesla, geforce = judge(IMAGE, ON_470), judge(IMAGE, replace(ON_470, gpus=(RTX_2080,)))
    assert (tesla.verdict, tesla.mode) == ("runs", "forward")
    assert (geforce.verdict, geforce.mode, geforce.reasons[0].rule) == ("no", None, "driver")
    assert "804" in geforce.reasons[0].text
    assert "804" not in judge(IMAGE, replace(HOST, driver="460.32.03")).reasons[0].text


@pytest.mark.parametrize(
    ("gpu", "driver", "least"),
    [(RTX_2080, "470.57.02", "525.60.13"), (T4, "460.32.03", "470"), (T4, "440.33", "450"), (T4, "520.61.05", "525")],
)
def test_a_refused_driver_is_answered_with_the_least_that_would_do_for_this_card(
    gpu: Gpu, driver: str, least: str
) -> None:
    verdict = judge(IMAGE, HostFacts(driver=driver, gpus=(gpu,)))
    assert verdict.reasons[0].needed == least
    assert judge(IMAGE, HostFacts(driver=f"{least}.99" if "." not in least else least, gpus=(gpu,))).verdict == "runs"


def test_minor_version_compatibility_says_what_fails_under_it() -> None:
    verdict = judge(IMAGE, replace(HOST, driver="530.30.02", gpus=(RTX_2080,)))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].needed) == ("runs", "minor", "525.60.13")
    assert "PTX" in verdict.reasons[0].text


def test_a_brand_that_is_unknown_leaves_open_what_only_the_brand_decides() -> None:
    nameless = replace(T4, brand=None)
    assert judge(IMAGE, replace(ON_470, gpus=(nameless,))).reasons[0].rule == "unknown"
    assert judge(IMAGE, replace(HOST, gpus=(nameless,))).mode == "native"
    assert judge(IMAGE, replace(HOST, driver="460.32.03", gpus=(nameless,))).verdict == "no"


def test_a_driver_that_is_unknown_is_a_caution_and_a_card_that_is_too_old_is_still_refused() -> None:
    verdict = judge(IMAGE, replace(HOST, driver=None))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", None, "unknown")
    assert "535.104.05" in verdict.reasons[0].text
    assert judge(IMAGE, replace(HOST, driver=None, gpus=(GTX_980,))).verdict == "no"


@pytest.mark.parametrize(("driver", "level"), [("470.57.02", "caution"), ("460.32.03", "no"), ("510.47.03", "caution")])
def test_where_a_compat_list_is_not_known_only_branches_that_the_last_list_had_lost_are_refused(
    driver: str, level: str
) -> None:
    image = replace(IMAGE, compat_branches=None, compat_likely=(450, 470))
    verdict = judge(image, replace(HOST, driver=driver))
    assert (verdict.verdict, verdict.reasons[0].rule) == (level, "unknown" if level == "caution" else "driver")
    assert "not known" in verdict.reasons[0].text
    assert verdict.reasons[0].recalled == (level == "no"), "it stands on another release's list"


def test_where_no_compat_list_is_known_at_all_a_data_centre_card_is_not_refused() -> None:
    verdict = judge(replace(IMAGE, compat_branches=None), ON_470)
    assert (verdict.verdict, verdict.reasons[0].needed) == ("caution", "535.104.05")
    assert judge(replace(IMAGE, compat_branches=None), replace(ON_470, gpus=(RTX_2080,))).verdict == "no"


def test_a_dgx_spark_is_never_said_to_run_by_an_image_s_cuda_compat_package() -> None:
    image = replace(IMAGE, sass=("12.0",), ptx=None)
    for brand in ("nvidia", None):
        spark = Gpu("12.1", "GB10", brand)
        assert judge(image, HostFacts(driver="525.85.12", gpus=(spark,))).mode == "minor"
        refused = judge(image, replace(ON_470, gpus=(spark,)))
        assert (refused.verdict, refused.reasons[0].needed) == ("no", "525.60.13")
        assert "804" in refused.reasons[0].text


# -- Jetson -----------------------------------------------------------------------------------------------------------


def on_orin(**changes: object) -> Reason:
    image = replace(IMAGE, release="26.07", cuda="13.3.1", sass=("8.0", "8.6", "9.0"), min_capability="7.5")
    changed = replace(image, **changes)  # type: ignore[arg-type]
    return judge(changed, HostFacts("arm64", "595.78", (Gpu("8.7", "Orin"),))).reasons[0]


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


# -- several cards ----------------------------------------------------------------------------------------------------


def test_the_best_card_decides_and_the_others_are_a_caution_with_the_words_for_gpus() -> None:
    verdict = judge(IMAGE, replace(HOST, gpus=(T4, GTX_980, replace(T4, index=2))))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "mixed")
    assert verdict.reasons[0].text.endswith("use --gpus 0,2")
    assert [card.verdict for card in verdict.cards] == ["runs", "no", "runs"]


def test_one_good_card_is_named_by_its_index_and_not_as_a_count() -> None:
    verdict = judge(IMAGE, replace(HOST, gpus=(GTX_980, replace(T4, index=0))))
    assert verdict.reasons[0].text.endswith("use --gpus '0,'")


def test_a_card_without_an_index_is_named_by_its_uuid() -> None:
    verdict = judge(IMAGE, replace(HOST, gpus=(GTX_980, replace(T4, index=None, uuid="GPU-aaaa"))))
    assert verdict.reasons[0].text.endswith("use --gpus GPU-aaaa")


def test_cards_that_are_all_good_or_all_bad_are_not_mixed() -> None:
    both = judge(IMAGE, replace(HOST, gpus=(T4, replace(RTX_2080, index=1))))
    none = judge(IMAGE, replace(HOST, gpus=(GTX_980, GTX_750)))
    assert (both.verdict, none.verdict) == ("runs", "no")
    assert "mixed" not in rules(both) + rules(none)


def test_a_geforce_among_teslas_is_the_card_that_forward_compatibility_leaves_out() -> None:
    verdict = judge(IMAGE, replace(ON_470, gpus=(T4, replace(RTX_2080, index=1))))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].found) == ("caution", "forward", "RTX 2080")


# -- the host ---------------------------------------------------------------------------------------------------------


def test_another_architecture_is_a_no_that_names_what_the_image_is_made_for() -> None:
    verdict = judge(replace(IMAGE, architectures=("amd64",)), replace(HOST, architecture="arm64"))
    assert (verdict.verdict, rules(verdict), verdict.cards) == ("no", ["architecture"], ())
    assert verdict.reasons[0].text == "the image is made for amd64, not for arm64"


def test_an_unknown_architecture_is_a_caution_on_arm64_only() -> None:
    image = replace(IMAGE, architectures=None)
    assert judge(image, HOST).verdict == "runs"
    assert judge(image, replace(HOST, architecture="arm64")).reasons[0].rule == "unknown"


def test_an_image_without_cuda_needs_no_gpu_but_the_right_processor() -> None:
    image = replace(IMAGE, has_cuda=False, cuda=None)
    for host in (HostFacts(), HOST, HostFacts(elsewhere="tcp://there")):
        verdict = judge(image, host)
        assert (verdict.verdict, verdict.mode, rules(verdict)) == ("runs", None, ["no-cuda"])
    assert judge(image, HostFacts(architecture="riscv64")).verdict == "no"


def test_a_host_without_a_gpu_runs_it_on_the_cpu_and_says_why_none_is_found() -> None:
    verdict = judge(IMAGE, HostFacts(gpu_trouble="NVML: driver/library version mismatch"))
    assert (verdict.verdict, verdict.mode, rules(verdict)) == ("caution", None, ["no-gpu"])
    assert "CPU" in verdict.reasons[0].text
    assert "version mismatch" in verdict.reasons[0].text


def test_an_engine_elsewhere_is_not_judged_and_its_architecture_is() -> None:
    there = replace(HOST, elsewhere="DOCKER_HOST is ssh://there", gpus=(GTX_980,))
    verdict = judge(IMAGE, there)
    assert (verdict.verdict, rules(verdict), verdict.cards) == ("caution", ["elsewhere"], ())
    assert "ssh://there" in verdict.reasons[0].text
    assert judge(replace(IMAGE, architectures=("arm64",)), there).verdict == "no"


def test_an_engine_without_a_way_for_gpus_is_a_caution_whatever_the_cards_are() -> None:
    verdict = judge(IMAGE, replace(HOST, gpu_way="none"))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "gpu-way")
    for way in (None, "runtime", "cdi", "device-request"):
        assert judge(IMAGE, replace(HOST, gpu_way=way)).verdict == "runs"


def test_the_disk_must_hold_two_and_a_half_times_what_is_fetched() -> None:
    image = replace(IMAGE, compressed_bytes=10 << 30)
    free = [judge(image, replace(HOST, free_bytes=gib << 30)) for gib in (25, 24, 10, 9)]
    assert [one.verdict for one in free] == ["runs", "caution", "caution", "no"]
    assert (free[1].mode, free[3].mode) == ("native", None)
    assert (free[1].reasons[0].found, free[1].reasons[0].needed) == (str(24 << 30), str(25 << 30))
    assert "24.0 GiB" in free[1].reasons[0].text
    assert "25.0 GiB" in free[1].reasons[0].text


def test_tensorflow_from_1_6_on_wants_avx_of_an_amd64_processor() -> None:
    def is_told(framework: str, version: str | None, release: str, host: HostFacts) -> bool:
        image = replace(IMAGE, framework=framework, framework_version=version, release=release)
        return "avx" in rules(judge(image, host))

    bare = replace(HOST, avx=False)
    assert is_told("tensorflow", "1.12.0-rc2", "18.11", bare)
    assert is_told("tensorflow", "2.17.0", "24.12", bare)
    assert is_told("tensorflow", None, "18.04", bare)
    assert not is_told("tensorflow", None, "18.03", bare)
    assert is_told("tensorflow", "1.6.0", "18.03", bare)
    assert not is_told("tensorflow", "1.5.0", "18.03", bare)
    assert not is_told("pytorch", "2.0", "23.10", bare)
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, avx=True))
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, avx=None))
    assert not is_told("tensorflow", "2.17.0", "24.12", replace(bare, architecture="arm64"))


@pytest.mark.parametrize(
    ("engine", "level"),
    [("25.0.5", "caution"), ("26.0.0", "no"), ("29.2.1", "no"), (None, "caution"), ("dev", "caution")],
)
def test_a_schema_1_manifest_is_refused_by_docker_26_and_newer(engine: str | None, level: str) -> None:
    verdict = judge(replace(IMAGE, is_schema_1=True), replace(HOST, engine_version=engine))
    assert (verdict.verdict, reason(verdict, "schema1").level) == (level, level)


# -- NVIDIA_REQUIRE_* -------------------------------------------------------------------------------------------------


def test_a_requirement_that_is_not_met_is_a_caution_that_names_the_hook_and_the_switch() -> None:
    image = replace(IMAGE, require=("cuda>=12.8",))
    verdict = judge(image, HOST)
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "require")
    assert (verdict.reasons[0].found, verdict.reasons[0].needed) == (
        "cuda 12.2, driver 535.104.05, arch 7.5, brand tesla",
        "cuda>=12.8",
    )
    assert "NVIDIA_DISABLE_REQUIRE=1" in verdict.reasons[0].text


def test_a_requirement_that_is_met_is_not_spoken_of() -> None:
    assert rules(judge(replace(IMAGE, require=("cuda>=9.0",)), HOST)) == ["native", "capability"]


def test_a_card_that_cant_run_it_has_no_mode_and_no_requirement_to_meet() -> None:
    card = judge(replace(IMAGE, require=("cuda>=12.8",)), replace(HOST, gpus=(GTX_980,))).cards[0]
    assert (card.verdict, card.mode, [one.rule for one in card.reasons]) == ("no", None, ["capability", "native"])


def test_cdi_asks_for_no_requirement() -> None:
    verdict = judge(replace(IMAGE, require=("cuda>=12.8",)), replace(HOST, gpu_way="cdi"))
    assert (verdict.verdict, reason(verdict, "require").level) == ("runs", "runs")


# -- what is made of it -----------------------------------------------------------------------------------------------


def test_of_a_card_and_a_driver_that_are_both_too_old_the_card_is_told_first() -> None:
    verdict = judge(IMAGE, replace(HOST, driver="390.12", gpus=(GTX_980,)))
    assert rules(verdict) == ["capability", "driver"]


def test_minor_version_compatibility_names_the_trap_of_a_compat_package_that_is_not_for_this_card() -> None:
    """The toolkit's hook goes by the driver's branch, and a GeForce card refuses what it puts first."""
    image = from_catalog(ImageRef.parse("tensorflow:24.05-tf2-py3"))
    assert image is not None
    trap = judge(image, HostFacts(driver="535.104.05", gpus=(RTX_2080,)))
    assert (trap.mode, "error 804" in trap.reasons[0].text) == ("minor", True)
    free = judge(image, HostFacts(driver="530.41.03", gpus=(RTX_2080,)))
    assert (free.mode, "error 804" in free.reasons[0].text) == ("minor", False)
