"""What holds a GPU run back: each rule for cards and their clocks at, below and above its threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_summaries import GPU_RUN, findings, gpu, only, rules

from ngcdl.record import GpuSummary, Image, Summary
from ngcdl.report.measured import throttling


def test_a_gpu_that_its_framework_did_not_use_is_told_however_busy_others_kept_it() -> None:
    auto = replace(GPU_RUN, device="cpu", spec={"workload": {"device": "auto"}})
    found = only(gpu(87.0, shared_gpu=True, throttled_share={"sw_power_cap": 1.0}), auto)
    assert (found.rule, found.text) == ("gpu-idle", "The run had a GPU, but its framework computed on the CPU.")
    assert found.advice == "Check that the framework sees it:\n    ngcdl doctor", "without a container"
    its = only(gpu(87.0), replace(auto, image=Image("mine:v2"))).advice or ""
    assert its.splitlines()[1:] == ["    ngcdl check mine:v2", "    ngcdl doctor"]


@pytest.mark.parametrize(("percent", "rule"), [(4.9, "gpu-idle"), (5.0, "balanced"), (0.0, "gpu-idle")])
def test_a_gpu_below_5_percent_is_idle(percent: float, rule: str) -> None:
    assert rules(gpu(percent), replace(GPU_RUN, device=None)) == [rule]


def test_an_idle_gpu_is_doubted_only_where_the_framework_does_not_vouch_for_it() -> None:
    full = {"cpu_busiest_core_percent_mean": 100.0}
    doubted = only(gpu(2.0, **full), replace(GPU_RUN, device=None))
    assert "Did it compute on the CPU?" in doubted.text
    sure, why = findings(gpu(2.0, **full))
    assert "CPU?" not in sure.text
    assert why.rule == "full-core"


@pytest.mark.parametrize(("percent", "core", "rule"), [
    (69.9, 90.0, "full-core"), (70.0, 90.0, "balanced"), (69.9, 89.9, "balanced"), (5.0, 100.0, "full-core"),
])  # fmt: skip
def test_a_core_is_full_beside_a_gpu_that_waits(percent: float, core: float, rule: str) -> None:
    assert rules(gpu(percent, cpu_busiest_core_percent_mean=core)) == [rule]


def waited(*pairs: tuple[float | None, float | None]) -> tuple[dict[str, Any], ...]:
    names = ("input_seconds_per_batch", "seconds_per_batch")
    return tuple({"event": "step", **dict(zip(names, pair, strict=True))} for pair in pairs)


def test_what_a_full_core_does_is_not_claimed_where_nobody_measured_it() -> None:
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN)
    assert found.text == (
        "GPU 47 % busy, one CPU core at 100 %: it makes batches, launches work, or waits for the card."
    )
    assert found.numbers == {"gpu_percent": 47.0, "cpu_busiest_core_percent": 100.0}
    assert "num_workers" in (found.advice or "")


def test_a_training_that_waited_for_its_batches_is_held_back_by_them() -> None:
    steps = waited((None, None), (0.06, 0.1), (0.02, 0.1), (None, 0.5))
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN, *steps)
    assert (found.rule, found.text) == (
        "input-bound",
        "GPU 47 % busy, one CPU core at 100 %: 40 % of the time the training waited for its next batch. The input "
        "pipeline holds it back.",
    )
    assert found.numbers == {"gpu_percent": 47.0, "waited_percent": 40.0, "cpu_busiest_core_percent": 100.0}
    assert "num_workers" in (found.advice or "")
    tiny = gpu(47.0, seconds_per_batch=0.001)
    small = only(tiny, GPU_RUN, {"event": "start", "batch": 8}, *steps)
    assert small.rule == "tiny-batch", "which is made and handed out in the same time"
    assert "most of the time goes into making batches and launching work" in small.text
    others = gpu(47.0, cpu_busiest_core_percent_mean=99.0, container_cpu_percent_mean=20.0)
    assert rules(others, GPU_RUN, *steps) == ["input-bound"], "a disk may be what is slow"


@pytest.mark.parametrize(("percent", "share", "rule"), [
    (69.9, 0.30, "input-bound"), (69.9, 0.29, "balanced"), (70.0, 0.9, "balanced"), (90.0, 0.9, "compute-bound"),
])  # fmt: skip
def test_batches_are_named_where_a_card_waits_and_the_training_waited_for_them(
    percent: float, share: float, rule: str
) -> None:
    assert rules(gpu(percent), GPU_RUN, *waited((share, 1.0))) == [rule]


def test_a_full_core_beside_batches_that_came_in_time_does_not_make_them() -> None:
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN, *waited((0.02, 1.0)))
    assert (found.rule, found.text) == (
        "full-core",
        "GPU 47 % busy, one CPU core at 100 %: it launches work, or waits for the card; it waited for batches 2 % of "
        "the time.",
    )
    assert found.advice == "A larger --batch gives the card more to do in each step."


@pytest.mark.parametrize(("own", "rule"), [(89.9, "balanced"), (90.0, "full-core"), (None, "full-core")])
def test_a_core_that_the_run_itself_can_t_have_filled_is_not_laid_at_its_door(own: float | None, rule: str) -> None:
    assert rules(gpu(40.0, cpu_busiest_core_percent_mean=97.0, container_cpu_percent_mean=own)) == [rule]


@pytest.mark.parametrize("feed", ["resident", "constant", "input"])
def test_where_no_batch_is_made_beside_the_training_a_full_core_makes_none(feed: str) -> None:
    full = gpu(40.0, cpu_busiest_core_percent_mean=97.0)
    found = only(full, GPU_RUN, {"event": "start", "feed": feed})
    assert (found.rule, found.text.partition(": ")[2]) == ("balanced", "it waits for something that was not measured.")
    assert rules(full, replace(GPU_RUN, spec={"workload": {"feed": feed}})) == ["balanced"]


@pytest.mark.parametrize(("percent", "rule"), [(89.9, "balanced"), (90.0, "compute-bound"), (100.0, "compute-bound")])
def test_a_gpu_of_90_percent_sets_the_pace(percent: float, rule: str) -> None:
    assert rules(gpu(percent)) == [rule]


@pytest.mark.parametrize(("percent", "batch", "seconds", "is_tiny"), [
    (49.9, 32, 0.0049, True), (50.0, 32, 0.0049, False), (49.9, 33, 0.0049, False), (49.9, 32, 0.005, False),
    (49.9, 32, None, False),
])  # fmt: skip
def test_a_tiny_batch_is_one_whose_steps_are_over_at_once_on_a_gpu_that_waits(
    percent: float, batch: int, seconds: float | None, is_tiny: bool
) -> None:
    summary = gpu(percent, seconds_per_batch=seconds)
    found = only(summary, GPU_RUN, {"event": "start", "batch": batch})
    assert found.rule == ("tiny-batch" if is_tiny else "balanced")
    assert not is_tiny or found.advice == "    ngcdl run ... --batch 128"


def test_what_the_trainer_says_of_its_batch_counts_and_else_what_was_asked() -> None:
    summary, asked = gpu(10.0, seconds_per_batch=0.001), replace(GPU_RUN, spec={"workload": {"batch": 16}})
    assert rules(summary, asked) == ["tiny-batch"]
    assert rules(summary, asked, {"event": "start", "batch": 128}) == ["balanced"]


def test_beside_a_tiny_batch_the_core_that_hands_it_out_is_no_other_cause() -> None:
    summary = gpu(30.0, seconds_per_batch=0.001, cpu_busiest_core_percent_mean=100.0)
    assert rules(summary, GPU_RUN, {"event": "start", "batch": 8}) == ["tiny-batch"]


def test_nobody_need_have_set_the_application_clocks_that_hold_a_card_down() -> None:
    found = only(gpu(80.0, throttled_share={"applications_clocks_setting": 1.0}))
    assert "set by somebody or its default ones (applications_clocks_setting)" in found.text
    assert (found.advice or "").splitlines()[1] == "    nvidia-smi -q -d CLOCK"


@pytest.mark.parametrize(("shared", "expected"), [(True, ["shared-gpu"]), (False, ["balanced"]), (None, ["balanced"])])
def test_a_gpu_that_others_use_too_is_told(shared: bool | None, expected: list[str]) -> None:
    assert rules(gpu(80.0, shared_gpu=shared)) == expected
    paced = ["shared-gpu"] if shared else ["compute-bound"]
    assert rules(gpu(98.0, shared_gpu=shared)) == paced, "the use of a card is that of all who are there"


def test_the_busiest_card_counts_and_one_that_did_nothing_is_named() -> None:
    cards = (GpuSummary(index=0, gpu_percent_mean=95.0), GpuSummary(index=3, gpu_percent_mean=4.9))
    busy, idle = findings(gpu(50.0, gpus=cards))
    assert (busy.rule, idle.rule) == ("compute-bound", "idle-card")
    assert "1 of its 2 GPUs did nothing (3)" in idle.text
    both = (cards[0], replace(cards[1], gpu_percent_mean=5.0))
    assert rules(gpu(50.0, gpus=both)) == ["uneven-cards"]


@pytest.mark.parametrize("known", ["energy_joules", "sm_mhz_mean", None])
def test_whose_energy_and_clocks_are_told_is_said_beside_a_card_that_did_nothing(known: str | None) -> None:
    cards = (GpuSummary(index=0, gpu_percent_mean=95.0), GpuSummary(index=3, gpu_percent_mean=4.9))
    told = gpu(50.0, gpus=cards, **({known: 1000.0} if known else {}))
    *_, idle = findings(told, GPU_RUN, {"event": "start", "device": "gpu", "replicas": 1})
    words = " Energy and clocks are those of the cards it computed on."
    assert idle.text.removesuffix(words) == "1 of its 2 GPUs did nothing (3): few trainings use several."
    assert idle.text.endswith(words) == (known is not None)
    *_, idle = findings(told)
    assert words not in idle.text, "of a run without a start event all count"


def several(*percents: float | None, **more: Any) -> Summary:
    cards = tuple(GpuSummary(index=at, gpu_percent_mean=percent) for at, percent in enumerate(percents))
    return gpu(50.0, gpus=cards, **more)


def test_a_busy_card_beside_one_that_waits_does_not_set_the_pace() -> None:
    found = only(several(40.0, 97.0))
    assert (found.rule, found.text) == (
        "uneven-cards", "GPU 1 97 %, GPU 0 40 % busy: cards wait for the slowest replica.",
    )  # fmt: skip
    assert "NCCL" in (found.advice or "")
    fed = only(several(40.0, 97.0), GPU_RUN, *waited((0.58, 1.0)))
    assert (fed.rule, fed.text) == (
        "uneven-cards",
        "GPU 1 97 %, GPU 0 40 % busy: cards wait for the slowest replica. 58 % of the time the training waited for its "
        "next batch.",
    )
    assert "num_workers" in (fed.advice or "")
    assert rules(several(40.0, 69.9)) == ["balanced"], "both wait"


def test_a_desktop_s_card_beside_the_only_replica_s_is_not_one_that_it_waits_for() -> None:
    assert rules(several(6.0, 97.0), GPU_RUN, {"event": "start", "replicas": 1}) == ["compute-bound"]
    assert rules(several(6.0, 97.0), GPU_RUN, {"event": "start", "replicas": 2}) == ["uneven-cards"]


def test_cards_of_several_nodes_with_the_same_number_are_not_named_by_it() -> None:
    cards = tuple(GpuSummary(index=0, uuid=str(percent), gpu_percent_mean=percent) for percent in (97.0, 40.0))
    assert only(gpu(50.0, gpus=cards)).text.startswith("One GPU 97 %, another 40 % busy: ")
    told = tuple(replace(card, node=f"n{at}") for at, card in enumerate(cards))
    assert only(gpu(50.0, gpus=told)).text.startswith("GPU 0 of n0 97 %, GPU 0 of n1 40 % busy: ")


def test_cards_that_are_all_busy_beside_a_training_that_waited_for_batches_wait_for_each_other() -> None:
    found = only(several(97.0, 96.0), GPU_RUN, *waited((0.3, 1.0)))
    assert (found.rule, found.text) == (
        "input-bound",
        "GPUs up to 97 % busy, but 30 % of the time the training waited for its next batch: a card that waits for "
        "another counts as busy.",
    )
    for steps in (waited((0.29, 1.0)), ()):
        assert only(several(97.0, 96.0), GPU_RUN, *steps).rule == "compute-bound"


@pytest.mark.parametrize(("other", "rule"), [(90.0, "compute-bound"), (89.9, "balanced"), (77.0, "balanced"),
                                             (76.9, "uneven-cards"), (None, "compute-bound")])  # fmt: skip
def test_several_cards_set_the_pace_if_each_is_busy(other: float | None, rule: str) -> None:
    assert rules(several(97.0, other)) == [rule]


def test_others_on_the_machine_may_hold_back_the_slower_of_two_cards() -> None:
    crowded = {"cpu_percent_mean": 95.0, "cores_busy": 7.6, "container_cpu_percent_mean": 100.0}
    assert rules(several(97.0, 40.0, **crowded)) == ["busy-machine", "uneven-cards"]
    assert rules(several(97.0, 40.0, shared_gpu=True)) == ["shared-gpu"]


# ---- how much of a card worked ----


def active(*pairs: tuple[float | None, float | None], **more: Any) -> Summary:
    """Return what a run measured whose cards were so busy, and whose SMs so active."""
    cards = tuple(GpuSummary(index=at, gpu_percent_mean=busy, sm_active_percent_mean=sms)
                  for at, (busy, sms) in enumerate(pairs))  # fmt: skip
    return gpu(50.0, gpus=cards, **more)


def test_a_busy_card_most_of_which_was_idle_is_told_and_does_not_set_the_pace() -> None:
    found = only(active((97.0, 11.64)))
    assert (found.rule, found.text) == (
        "unfilled-gpu",
        "GPU 97 % busy, but its SMs were active for 12 % of that time on average: some kernel ran, and left most of "
        "the card idle.",
    )
    assert found.numbers == {"gpu_percent": 97.0, "sm_active_share": 11.64 / 97.0}
    assert found.advice == (
        "Kernels too small for the card do this. Try a larger --batch, or --compile or --feed resident where this "
        "training has it."
    )


@pytest.mark.parametrize(("busy", "sms", "rule"), [
    (97.0, 48.4, "unfilled-gpu"), (97.0, 48.6, "compute-bound"), (97.0, 97.0, "compute-bound"),
    (70.0, 34.9, "unfilled-gpu"), (70.0, 35.1, "balanced"), (69.9, 3.0, "balanced"), (97.0, 0.0, "unfilled-gpu"),
    (97.0, None, "compute-bound"), (None, 3.0, None),
])  # fmt: skip
def test_a_card_is_unfilled_if_its_sms_were_active_for_less_than_half_of_its_busy_time(
    busy: float | None, sms: float | None, rule: str | None
) -> None:
    assert rules(active((busy, sms))) == ([rule] if rule else [])


def test_beside_an_unfilled_card_only_what_the_training_does_not_do_yet_is_proposed() -> None:
    did = {"event": "start", "compiled": True, "feed": "resident"}
    assert (only(active((97.0, 3.0)), GPU_RUN, did).advice or "").endswith(" Try a larger --batch.")
    asked = replace(GPU_RUN, spec={"workload": {"device": "gpu", "compile": True}})
    assert "--compile" not in (only(active((97.0, 3.0)), asked).advice or "")


def test_of_several_cards_the_one_that_was_filled_most_counts_and_all_must_be_known() -> None:
    found = only(active((97.0, 9.7), (96.0, 28.8)))
    assert found.text.startswith("GPUs up to 97 % busy, but the SMs of each were active for at most 30 % of that time ")
    assert (found.advice or "").endswith("A card that waits for another in NCCL counts as busy, too.")
    assert rules(active((97.0, 9.7), (96.0, 48.1))) == ["compute-bound"]
    assert rules(active((97.0, 9.7), (96.0, None))) == ["compute-bound"]
    assert rules(active((97.0, 9.7), (2.0, None))) == ["unfilled-gpu", "idle-card"], "the idle one did not compute"


def test_a_card_that_others_use_or_that_waits_for_another_has_no_small_kernels_for_that() -> None:
    assert rules(active((97.0, 9.7), shared_gpu=True)) == ["shared-gpu"]
    assert rules(active((97.0, 9.7), (40.0, 4.0))) == ["uneven-cards"]
    assert rules(active((97.0, 9.7), (96.0, 9.6)), GPU_RUN, *waited((0.3, 1.0))) == ["input-bound"]


# ---- clocks ----


@pytest.mark.parametrize("reason", [one.name for one in throttling.REASONS])
def test_each_reason_is_told_from_a_tenth_of_the_samples_on_with_what_to_do(reason: str) -> None:
    found = only(gpu(80.0, throttled_share={reason: 0.1}, sm_mhz_mean=1410.0))
    assert found.rule == "throttled"
    assert found.text.startswith("GPU clocks held down for 10 % of the time, 1,410 MHz on average: ")
    assert found.text.endswith(f" ({reason}).")
    assert "nvidia-smi" in (found.advice or "")
    assert rules(gpu(80.0, throttled_share={reason: 0.099})) == ["balanced"]


@pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "sw_power_cap"])
def test_a_power_limit_is_of_that_card_and_outlives_the_program(reason: str) -> None:
    """The advice names the card by its UUID: another card may have its index by now."""
    held = GpuSummary("GPU-3", gpu_percent_mean=80.0, index=3, throttled_share={reason: 0.5})
    idle = GpuSummary(gpu_percent_mean=0.0, index=0, throttled_share={reason: 1.0})
    advice = findings(gpu(80.0, gpus=(idle, held), throttled_share={reason: 0.5}))[0].advice or ""
    assert "    sudo nvidia-smi -i GPU-3 -pm 1\n    sudo nvidia-smi -i GPU-3 -pl WATTS" in advice
    for cards in (held, replace(held, uuid="GPU-4")), (replace(held, uuid="MIG-4"),), (replace(held, uuid=None),):
        advice = findings(gpu(80.0, gpus=cards, throttled_share={reason: 0.5}))[0].advice or ""
        assert "    sudo nvidia-smi -i INDEX -pm 1\n    sudo nvidia-smi -i INDEX -pl WATTS" in advice


def test_heat_is_decisive_and_a_power_limit_only_comes_beside_what_sets_the_pace() -> None:
    assert rules(gpu(95.0, throttled_share={"sw_thermal_slowdown": 0.9})) == ["throttled", "compute-bound"]
    assert rules(gpu(95.0, throttled_share={"sw_power_cap": 0.9})) == ["compute-bound", "throttled"]


def test_the_more_telling_reason_is_named() -> None:
    found = only(gpu(80.0, throttled_share={"hw_slowdown": 1.0, "hw_thermal_slowdown": 0.5}))
    assert "too hot (hw_thermal_slowdown)" in found.text
    assert found.numbers == {"share": 0.5}


def test_a_reason_of_a_later_driver_is_told_by_its_number() -> None:
    assert "0x1000" in only(gpu(80.0, throttled_share={"0x1000": 0.5})).text


def test_clocks_of_a_card_that_hardly_worked_hold_nothing_back() -> None:
    assert rules(gpu(4.0, throttled_share={"sw_power_cap": 1.0})) == ["gpu-idle"]
