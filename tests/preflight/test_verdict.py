"""The order of a verdict's reasons, verdicts on several cards, and an image's own requirements."""

from __future__ import annotations

from dataclasses import replace

from made_facts import GTX_750, GTX_980, HOST, IMAGE, ON_470, RTX_2080, T4, reason, rules

from ngcdl.preflight.facts import Gpu, ImageFacts
from ngcdl.preflight.verdict import judge_host


def test_an_image_of_which_nothing_is_known_is_neither_refused_nor_praised() -> None:
    verdict = judge_host(ImageFacts("example.com/x:1"), HOST)
    assert (verdict.verdict, verdict.mode, rules(verdict)) == ("caution", None, ["unknown", "unknown"])


def test_of_a_card_and_a_driver_that_are_both_too_old_the_card_is_told_first() -> None:
    verdict = judge_host(IMAGE, replace(HOST, driver="390.12", gpus=(GTX_750,)))
    assert rules(verdict) == ["capability", "driver"]


# -- several cards ----------------------------------------------------------------------------------------------------


def test_the_best_card_decides_and_the_others_are_a_caution_with_the_words_for_gpus() -> None:
    verdict = judge_host(IMAGE, replace(HOST, gpus=(T4, GTX_750, replace(T4, index=2))))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "mixed")
    assert verdict.reasons[0].text.endswith("and GTX 750 Ti can't run it: use --gpus 0,2")
    assert [card.verdict for card in verdict.cards] == ["runs", "no", "runs"]


def test_one_good_card_is_named_by_its_index_and_not_as_a_count() -> None:
    verdict = judge_host(IMAGE, replace(HOST, gpus=(GTX_980, replace(T4, index=0))))
    assert verdict.reasons[0].text.endswith("and GTX 980 does worse: use --gpus '0,'")
    verdict = judge_host(IMAGE, replace(HOST, gpus=(Gpu("5.2"), replace(T4, index=1))))  # --host cc=5.2 --gpu T4
    assert verdict.reasons[0].text.endswith("and card 0 does worse: use --gpus '1,'")


def test_a_card_without_an_index_is_named_by_its_uuid() -> None:
    verdict = judge_host(IMAGE, replace(HOST, gpus=(GTX_980, replace(T4, index=None, uuid="GPU-aaaa"))))
    assert verdict.reasons[0].text.endswith("use --gpus GPU-aaaa")


def test_cards_that_are_all_good_or_all_bad_are_not_mixed() -> None:
    both = judge_host(IMAGE, replace(HOST, gpus=(T4, replace(RTX_2080, index=1))))
    none = judge_host(IMAGE, replace(HOST, gpus=(replace(GTX_750, index=0), GTX_750)))
    assert (both.verdict, none.verdict) == ("runs", "no")
    assert "mixed" not in rules(both) + rules(none)


def test_of_cards_that_cant_run_it_the_one_that_needs_only_another_driver_is_told() -> None:
    for gpus in ((GTX_750, RTX_2080), (RTX_2080, GTX_750)):
        assert judge_host(IMAGE, replace(ON_470, gpus=gpus)).reasons[0].rule == "driver"


def test_a_geforce_among_teslas_is_the_card_that_forward_compatibility_leaves_out() -> None:
    verdict = judge_host(IMAGE, replace(ON_470, gpus=(T4, replace(RTX_2080, index=1))))
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].found) == ("caution", "forward", "RTX 2080")


# -- NVIDIA_REQUIRE_* -------------------------------------------------------------------------------------------------


def test_a_requirement_that_is_not_met_is_a_caution_that_names_the_hook_and_the_switch() -> None:
    image = replace(IMAGE, require=("cuda>=12.8",))
    verdict = judge_host(image, HOST)
    assert (verdict.verdict, verdict.mode, verdict.reasons[0].rule) == ("caution", "native", "require")
    assert (verdict.reasons[0].found, verdict.reasons[0].needed) == (
        "cuda 12.2, driver 535.104.05, arch 7.5, brand tesla",
        "cuda>=12.8",
    )
    assert verdict.reasons[0].text.startswith("NVIDIA_REQUIRE_CUDA (cuda>=12.8) is not met: ")
    assert "NVIDIA_DISABLE_REQUIRE=1" in verdict.reasons[0].text
    assert "pyxis" in verdict.reasons[0].text


def test_a_long_requirement_is_shown_in_part_and_kept_whole_beside_what_is_known_of_the_card() -> None:
    text = "cuda>=12.8 brand=grid,driver>=550,driver<551 brand=tesla,driver>=580,driver<581"
    why = judge_host(replace(IMAGE, require=(text,)), replace(HOST, gpus=(Gpu("7.5", brand="geforce"),))).reasons[0]
    assert f"NVIDIA_REQUIRE_CUDA ({text[:57]}...) is not met" in why.text
    assert why.needed == text
    nameless = judge_host(replace(IMAGE, require=("driver>=550",)), replace(HOST, gpus=(Gpu("7.5"),))).reasons
    assert [one.found for one in nameless if one.rule == "require"] == ["cuda 12.2, driver 535.104.05, arch 7.5"]


def test_a_requirement_that_is_met_is_not_spoken_of() -> None:
    assert rules(judge_host(replace(IMAGE, require=("cuda>=9.0",)), HOST)) == ["native", "capability"]


def test_a_driver_newer_than_the_catalogue_may_meet_any_requirement_for_cuda() -> None:
    verdict = judge_host(replace(IMAGE, require=("cuda>=99.1",)), replace(HOST, driver="990.10.01"))
    assert rules(verdict) == ["native", "capability"]


def test_a_card_that_cant_run_it_has_no_mode_and_no_requirement_to_meet() -> None:
    card = judge_host(replace(IMAGE, require=("cuda>=12.8",)), replace(HOST, gpus=(GTX_750,))).cards[0]
    assert (card.verdict, card.mode, [one.rule for one in card.reasons]) == ("no", None, ["capability", "native"])


def test_cdi_asks_for_no_requirement() -> None:
    verdict = judge_host(replace(IMAGE, require=("cuda>=12.8",)), replace(HOST, gpu_way="cdi"))
    assert (verdict.verdict, reason(verdict, "require").level) == ("runs", "runs")
