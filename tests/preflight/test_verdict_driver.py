"""Which drivers run an image, and by which of NVIDIA's compatibility modes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_facts import GTX_750, HOST, IMAGE, ON_470, RTX_2080, T4

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts
from ngcdl.preflight.image import from_catalog
from ngcdl.preflight.verdict import judge_host
from ngcdl.spec import ImageRef


def test_a_patch_level_below_is_native_and_said_to_be_below() -> None:
    verdict = judge_host(IMAGE, replace(HOST, driver="535.54.03"))
    assert (verdict.verdict, verdict.mode) == ("runs", "native")
    assert "patch level" in verdict.reasons[0].text
    assert "patch level" not in judge_host(IMAGE, HOST).reasons[0].text


def test_a_patch_level_below_may_be_too_old_for_geforce_where_the_toolkit_takes_the_image_s_libraries() -> None:
    cuda, below = replace(IMAGE, framework=None), replace(HOST, driver="535.54.03")
    bare = replace(cuda, compat_brands=())  # it has no such libraries
    for image, card, is_told in (
        (cuda, RTX_2080, True), (cuda, T4, False), (bare, RTX_2080, False), (IMAGE, RTX_2080, False),
    ):  # fmt: skip
        verdict = judge_host(image, replace(below, gpus=(card,)))
        assert (verdict.mode, "error 804, the container toolkit" in verdict.reasons[0].text) == ("native", is_told)


def test_geforce_is_refused_where_a_data_centre_card_gets_forward_compatibility() -> None:
    tesla, geforce = judge_host(IMAGE, ON_470), judge_host(IMAGE, replace(ON_470, gpus=(RTX_2080,)))
    assert (tesla.verdict, tesla.mode, tesla.reasons[0].needed) == ("runs", "forward", "470")
    assert (geforce.verdict, geforce.mode, geforce.reasons[0].rule) == ("no", None, "driver")
    assert "804" in geforce.reasons[0].text
    assert "804" not in judge_host(IMAGE, replace(HOST, driver="460.32.03")).reasons[0].text


@pytest.mark.parametrize(
    ("gpu", "driver", "least"),
    [(RTX_2080, "470.57.02", "525.60.13"), (T4, "460.32.03", "470"), (T4, "440.33", "450"), (T4, "520.61.05", "525")],
)
def test_a_refused_driver_is_answered_with_the_least_that_would_do_for_this_card(
    gpu: Gpu, driver: str, least: str
) -> None:
    verdict = judge_host(IMAGE, HostFacts(driver=driver, gpus=(gpu,)))
    assert (verdict.reasons[0].needed, verdict.reasons[0].recalled) == (least, False)
    said = least if "." in least else f"one of branch {least}"
    assert verdict.reasons[0].text.startswith(f"driver {driver} is too old for CUDA 12.2.2.009: {said} would do")
    enough = f"{least}.99" if "." not in least else least
    assert judge_host(IMAGE, HostFacts(driver=enough, gpus=(gpu,))).verdict == "runs"


def test_minor_version_compatibility_says_what_fails_under_it() -> None:
    verdict = judge_host(IMAGE, replace(HOST, driver="530.30.02", gpus=(RTX_2080,)))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].needed) == ("runs", "minor", "525.60.13")
    assert "PTX" in verdict.reasons[0].text
    assert verdict.reasons[0].text.startswith("driver 530.30.02 runs CUDA 12.2.2.009 by minor-version compatibility")


def test_a_brand_that_is_unknown_leaves_open_what_only_the_brand_decides() -> None:
    nameless = replace(T4, brand=None)
    assert judge_host(IMAGE, replace(ON_470, gpus=(nameless,))).reasons[0].rule == "unknown"
    assert judge_host(IMAGE, replace(HOST, gpus=(nameless,))).mode == "native"
    assert judge_host(IMAGE, replace(HOST, driver="460.32.03", gpus=(nameless,))).verdict == "no"


def test_a_driver_that_is_unknown_is_a_caution_and_a_card_that_is_too_old_is_still_refused() -> None:
    verdict = judge_host(IMAGE, replace(HOST, driver=None))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", None, "unknown")
    assert "535.104.05" in verdict.reasons[0].text
    assert judge_host(IMAGE, replace(HOST, driver=None, gpus=(GTX_750,))).verdict == "no"


@pytest.mark.parametrize(("driver", "level"), [("470.57.02", "caution"), ("460.32.03", "no"), ("510.47.03", "caution")])
def test_where_a_compat_list_is_not_known_only_branches_that_the_last_list_had_lost_are_refused(
    driver: str, level: str
) -> None:
    image = replace(IMAGE, compat_branches=None, compat_likely=(450, 470))
    verdict = judge_host(image, replace(HOST, driver=driver))
    assert (verdict.verdict, verdict.reasons[0].rule) == (level, "unknown" if level == "caution" else "driver")
    assert "not known" in verdict.reasons[0].text
    assert verdict.reasons[0].recalled == (level == "no"), "it stands on another release's list"


def test_where_no_compat_list_is_known_at_all_a_data_centre_card_is_not_refused() -> None:
    verdict = judge_host(replace(IMAGE, compat_branches=None), ON_470)
    assert (verdict.verdict, verdict.reasons[0].needed) == ("caution", "535.104.05")
    assert verdict.reasons[0].text.endswith("whether the image's cuda-compat package works on branch 470")
    assert judge_host(replace(IMAGE, compat_branches=None), replace(ON_470, gpus=(RTX_2080,))).verdict == "no"


@pytest.mark.parametrize("brand", ["nvidia", "geforce", None])
def test_a_dgx_spark_runs_by_an_image_s_cuda_compat_package_whatever_its_brand(brand: str | None) -> None:
    image = replace(IMAGE, sass=("12.0",), ptx=None)
    image = replace(image, driver="590.48.01", compat_branches=(580,), minor_floor=None)
    verdict = judge_host(image, replace(HOST, driver="580.95.05", gpus=(Gpu("12.1", "GB10", brand),)))
    assert (verdict.verdict, verdict.mode) == ("runs", "forward")
    assert not verdict.reasons[0].recalled


@pytest.mark.parametrize("branches", [(525,), None])
def test_under_wsl_no_cuda_compat_package_stands_in_for_windows_driver(branches: tuple[int, ...] | None) -> None:
    image = replace(IMAGE, minor_floor=None, compat_branches=branches)
    linux = HostFacts(driver="525.60.13", gpus=(T4,))
    assert judge_host(image, linux).mode == ("forward" if branches else None)
    verdict = judge_host(image, replace(linux, is_wsl=True))
    assert (verdict.verdict, verdict.reasons[0].rule, verdict.reasons[0].needed) == ("no", "driver", "535.104.05")
    assert "compat" not in verdict.reasons[0].text
    assert judge_host(image, replace(linux, driver="537.13", is_wsl=True)).mode == "native"


@pytest.mark.parametrize(("card", "driver", "last"), [
    (Gpu("7.0", "V100", "tesla"), "590.48.01", "580"),
    (Gpu("6.1", "GTX 1080", "geforce"), "595.45.04", "580"),
    (Gpu("3.7", "K80", "tesla"), "495.29.05", "470"),
])  # fmt: skip
def test_a_driver_too_new_for_the_card_is_a_no_that_names_the_last_branch(card: Gpu, driver: str, last: str) -> None:
    image = replace(IMAGE, sass=("3.7", "6.1", "7.0"), min_capability=None)
    verdict = judge_host(image, HostFacts(driver=driver, gpus=(card,)))
    why = verdict.reasons[0]
    assert (verdict.verdict, verdict.mode, why.rule, why.found, why.needed) == ("no", None, "driver", driver, last)
    assert f"branch {last} is the last" in why.text
    assert why.source == (
        "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
    )
    assert judge_host(image, HostFacts(driver=f"{last}.99", gpus=(card,))).verdict == "runs"


@pytest.mark.parametrize(("card", "driver", "said"), [
    (Gpu("12.0", "RTX 5090", "geforce"), "550.54.15", "RTX 5090: branch 570 is the first that drives Blackwell (12.0)"),
    (Gpu("10.3", "B300", "nvidia"), "570.195.03", "B300: branch 575 is the first that drives Blackwell (10.3)"),
    (Gpu("9.0", "H100", "nvidia"), "515.105.01", "H100: branch 520 is the first that drives Hopper (9.0)"),
    (Gpu("8.9", "RTX 4090", "geforce"), "470.82.01", "RTX 4090: branch 520 is the first that drives Ada (8.9)"),
    (Gpu("8.0", "A100", "nvidia"), "440.33.01", "A100: branch 450 is the first that drives Ampere (8.0)"),
    (Gpu("7.5", "T4", "tesla"), "396.37", "T4: branch 410 is the first that drives Turing (7.5)"),
])  # fmt: skip
def test_a_driver_too_old_for_the_card_is_a_no_that_names_the_first_branch(card: Gpu, driver: str, said: str) -> None:
    assert card.capability
    image = replace(IMAGE, sass=(card.capability,), driver=driver, minor_floor=None, min_capability=None)
    verdict = judge_host(image, HostFacts(driver=driver, gpus=(card,)))
    why = verdict.reasons[0]
    assert (verdict.verdict, verdict.mode, why.rule, why.found) == ("no", None, "driver", driver)
    assert why.text == f"driver {driver} is too old for {said}"
    assert (why.source or "").startswith("https://docs.nvidia.com/")
    assert judge_host(image, HostFacts(driver=why.needed, gpus=(card,))).verdict == "runs"
    assert judge_host(image, HostFacts(driver=None, gpus=(card,))).verdict == "caution"


def test_an_older_driver_of_the_same_major_version_can_t_compile_the_ptx_that_a_card_needs() -> None:
    image = replace(IMAGE, sass=("8.0",), ptx="8.0", compat_branches=())
    why = judge_host(image, HostFacts(driver="525.85.12", gpus=(Gpu("9.0", "H100", "nvidia"),))).reasons[0]
    assert (why.rule, why.needed) == ("driver", "535.104.05")
    assert "because this driver can't compile the PTX that H100 needs" in why.text


def test_a_compat_list_that_is_known_in_part_refuses_no_branch_that_the_list_before_it_has() -> None:
    image = replace(IMAGE, compat_branches=(525,), compat_likely=(470, 525))
    assert judge_host(image, replace(HOST, driver="525.60.13")).mode == "forward"
    verdict = judge_host(image, ON_470)
    assert (verdict.verdict, verdict.reasons[0].rule) == ("caution", "unknown")
    refused = judge_host(image, replace(HOST, driver="450.80.02"))
    assert (refused.verdict, refused.reasons[0].recalled) == ("no", True)
    assert "seen to work on branches 525, and the last known list does not have 450" in refused.reasons[0].text


def test_without_a_brand_a_driver_that_a_compat_package_may_carry_is_no_refusal() -> None:
    image = ImageFacts("x", cuda="13.3", has_cuda=True, driver="610.43.02", minor_floor="580.65.06",
                       compat_brands=("tesla",), compat_likely=(550,), sass=("9.0",))  # fmt: skip
    for brand in ("tesla", None):
        verdict = judge_host(image, HostFacts(driver="550.90.07", gpus=(Gpu("9.0", brand=brand),)))
        assert (verdict.verdict, verdict.reasons[0].rule) == ("caution", "unknown")
    assert judge_host(image, HostFacts(driver="550.90.07", gpus=(Gpu("9.0", brand="geforce"),))).verdict == "no"


def test_minor_version_compatibility_names_the_trap_of_a_compat_package_that_is_not_for_this_card() -> None:
    """The toolkit's hook never looks at the card, and before 1.20 not at the list of branches either."""
    image = from_catalog(ImageRef.parse("tensorflow:24.05-tf2-py3"), "amd64")
    assert image is not None
    trap = judge_host(image, HostFacts(driver="535.104.05", gpus=(RTX_2080,)))
    assert trap.mode == "minor"
    assert trap.reasons[0].text.endswith(
        "; if it ends with error 803 or 804, "
        "the container toolkit has loaded the image's cuda-compat package for data-centre cards"
    )
    for card, whom in ((RTX_2080, "data-centre cards"), (T4, "other branches")):
        unlisted = judge_host(image, HostFacts(driver="530.41.03", gpus=(card,)))
        assert (unlisted.mode, "if it is older than 1.20, has" in unlisted.reasons[0].text) == ("minor", True)
        assert unlisted.reasons[0].text.endswith(whom)
    free = judge_host(replace(image, compat_brands=(), compat_branches=None), HostFacts(driver="530.41.03", gpus=(T4,)))
    assert (free.mode, "804" in free.reasons[0].text) == ("minor", False)
