"""Figures from lines: medians after warm-up, means over the training, None for what was not measured."""

from __future__ import annotations

from typing import Any

import pytest
from made_summaries import summary

from ngcdl.record import Run, Summary
from ngcdl.report.shown.columns import read_story
from ngcdl.spec import RUN_UNREAD


def step(number: int, t: float, loss: float | None = 4.0, rate: float | None = None) -> dict[str, Any]:
    seconds = None if rate is None else 128 / rate
    return {
        "event": "step", "step": number, "t": t, "loss": loss, "examples_per_second": rate, "seconds_per_batch": seconds
    }  # fmt: skip


def sample(t: float, cpu: float | None = None, **more: Any) -> dict[str, Any]:
    return {"t": t, "host_cpu_percent": cpu} | more


def card(uuid: str | None, percent: float | None = None, used: int | None = None) -> dict[str, Any]:
    return {"uuid": uuid, "name": "a card", "gpu_percent": percent, "memory_used_bytes": used}


def test_nothing_measured_is_unknown_and_never_zero() -> None:
    assert summary([], []) == Summary()


def test_rates_are_medians_without_the_start_up() -> None:
    found = summary([step(0, 0), step(10, 1, rate=64), step(20, 2, rate=128), step(30, 3, rate=256)], [])
    assert found.examples_per_second == 128
    assert found.seconds_per_batch == 1.0


def test_a_latency_is_that_of_single_batches_and_none_of_too_few_is_told() -> None:
    def found(latencies: list[float]) -> tuple[float | None, float | None]:
        halves = latencies[: len(latencies) // 2], latencies[len(latencies) // 2 :]
        told = [step(at, at) | {"latency_seconds": half} for at, half in enumerate(halves)]
        summed = summary([*told, step(2, 2) | {"latency_seconds": None}, step(3, 3)], [])
        return summed.latency_p50_seconds, summed.latency_p95_seconds

    assert found([float(at) for at in range(100, 0, -1)]) == (50.0, 95.0)
    assert found([float(at) for at in range(1, 21)]) == (10.0, 19.0)
    assert found([float(at) for at in range(1, 20)]) == (None, None)


def test_a_teacher_s_time_leaves_out_the_start_up_and_is_unknown_without_one() -> None:
    told = [step(at, at, rate=rate) | {"teacher_seconds_per_batch": seconds} for at, (rate, seconds) in enumerate(
        [(None, 9.0), (10, 0.02), (10, 0.04), (10, None)])]  # fmt: skip
    assert summary(told, []).teacher_seconds_per_batch == pytest.approx(0.03)
    assert summary([step(0, 0), step(1, 1, rate=10)], []).teacher_seconds_per_batch is None


def test_of_a_step_that_a_resumed_training_tells_again_the_later_counts() -> None:
    told = [step(0, 0), step(10, 1, rate=10), step(20, 2, rate=10), step(10, 3), step(20, 4, rate=70)]
    assert summary(told, []).examples_per_second == 70


@pytest.mark.parametrize(("resumed", "figures"), [(20, (31, 4.8, 3.0, 10)), (None, (11, 4.0, 3.0, 70))])
def test_what_a_lost_attempt_did_beyond_its_checkpoint_was_not_reached(
    resumed: int | None, figures: tuple[float, ...]
) -> None:
    lost = [step(at, at, 4.8 - at / 100, rate=10) for at in range(0, 61, 10)]
    lost += [{"event": name, "step": 60, "precision_at_1": 0.9} for name in ("checkpoint", "eval")]
    begun = resumed or 0
    again = [step(begun, 100, 4.0), step(begun + 10, 102, 3.0, rate=70), {"event": "checkpoint", "step": begun + 11}]
    events = [{"event": "start"}, *lost, {"event": "start", "resumed_from_step": resumed}, *again]
    found = summary(events, [sample(49), sample(50, 10.0), sample(101, 30.0), sample(200, 99.0)])
    assert (found.steps, found.loss_first, found.loss_last, found.examples_per_second) == figures
    assert found.precision_at_1 is None
    assert found.cpu_percent_mean == 20.0, "of both attempts"
    losses = read_story(Run("x", "lost", 0.0), events, []).training.losses
    assert (losses.ys[0], losses.ys[-1]) == figures[1:3], "the curves show what the table says"


def test_a_clock_that_is_put_back_leaves_the_time_in_which_it_trained() -> None:
    samples = [sample(0, 99.0), sample(10, 10.0), sample(14, 20.0), sample(90, 99.0)]
    put_back = [step(0, 10), step(10, 20), step(20, 5)]
    assert summary(put_back, samples).cpu_percent_mean == 15.0
    assert read_story(Run("x", "finished", 0.0), put_back, []).training.spans == [(5, 20)]


def test_one_rate_alone_counts() -> None:
    assert summary([step(0, 0), step(10, 1, rate=64)], []).examples_per_second == 64


def test_the_steps_are_the_most_that_were_done_and_an_error_counts_none() -> None:
    events = [step(20, 1), {"event": "checkpoint", "step": 21}, {"event": "error", "step": 30}]
    assert summary(events, []).steps == 21


def test_losses_are_the_first_and_the_last_that_were_numbers() -> None:
    found = summary([step(0, 0, 4.68), step(10, 1, 4.0), step(20, 2, None)], [])
    assert (found.loss_first, found.loss_last) == (4.68, 4.0)


def test_precision_is_the_last_evaluation_s() -> None:
    events = [{"event": "eval", "step": 1, "precision_at_1": value} for value in (0.1, 0.2)]
    assert summary(events, []).precision_at_1 == 0.2


def test_means_are_of_the_time_between_the_first_and_the_last_step() -> None:
    samples = [sample(0, 100.0), sample(2, 10.0), sample(3, 20.0), sample(9, 100.0)]
    assert summary([step(0, 1), step(10, 4)], samples).cpu_percent_mean == 15


def test_a_run_without_steps_counts_whole() -> None:
    assert summary([], [sample(0, 10.0), sample(9, 30.0)]).cpu_percent_mean == 20


def test_memory_is_the_most_of_the_whole_run() -> None:
    samples = [sample(0, memory_bytes=5), sample(2, memory_bytes=3)]
    assert summary([step(0, 1), step(10, 4)], samples).memory_bytes_max == 5
    assert summary([], samples[:1]).memory_bytes_max is None  # a single sample, at the start, is no maximum


def test_cards_are_summed_up_one_by_one_and_together() -> None:
    samples = [
        sample(1, gpus=[card("GPU-1", 50, 10), card("GPU-2", 10, 30)]),
        sample(2, gpus=[card("GPU-1", 100, 20), card("GPU-2", None, None)], gap="GPUs: lost"),
    ]
    found = summary([], samples)
    assert [(gpu.uuid, gpu.gpu_percent_mean, gpu.memory_bytes_max) for gpu in found.gpus] == [
        ("GPU-1", 75, 20),
        ("GPU-2", 10, 30),
    ]
    assert (found.gpu_percent_mean, found.gpu_memory_bytes_max) == (42.5, 30)
    assert (found.samples, found.gaps) == (2, 1)


def test_a_last_sample_that_came_after_the_runs_end_is_no_gap() -> None:
    def gaps(*found: str | None) -> int | None:
        return summary([], [sample(at, gap=gap) for at, gap in enumerate(found)]).gaps

    assert gaps(None, RUN_UNREAD) == gaps(None, RUN_UNREAD, RUN_UNREAD) == gaps(RUN_UNREAD) == 0
    assert gaps(None, RUN_UNREAD, None, "GPUs: lost", RUN_UNREAD) == 2
    assert gaps(RUN_UNREAD, RUN_UNREAD, RUN_UNREAD) == 2, "it was never read"


def test_the_most_frequent_reason_for_a_gap_is_kept_whatever_numbers_are_in_it() -> None:
    def reason(*found: object) -> str | None:
        return summary([], [sample(at, gap=gap) for at, gap in enumerate(found)]).gap_reason

    missed, slow = "12 ticks before this one were missed", "GPUs: NVML gave no answer for {} s".format
    host = f"{missed}; host CPU: it can't be read"
    assert reason(missed, None, host, f"{missed}; {slow(1.5)}", slow(2.5), missed) == slow(1.5)
    assert reason(missed, 7) is reason(None) is None


def test_a_card_that_was_never_read_is_unknown() -> None:
    found = summary([], [sample(1, gpus=[card("GPU-1")])])
    assert (found.gpu_percent_mean, found.gpus[0].gpu_percent_mean) == (None, None)


STEPS = [step(0, 1), step(10, 4, rate=64)]


def cards(*readings: dict[str, Any], start: int = 1) -> list[dict[str, Any]]:
    """Samples a second apart, each with a reading of the only card."""
    return [sample(start + place, gpus=[card("GPU-1") | reading]) for place, reading in enumerate(readings)]


def test_the_busiest_core_is_whichever_was_at_each_moment() -> None:
    samples = [sample(1, 25.0, cpu_percents=[100, 0, 0, 0]), sample(2, 25.0, cpu_percents=[0, 0, 80, 20]), sample(3)]
    found = summary(STEPS, samples, cores=4)
    assert (found.cpu_busiest_core_percent_mean, found.cores_busy) == (90, 1.0)
    assert summary(STEPS, samples).cores_busy is None, "nobody said how many cores there are"


def test_samples_are_counted_apart_where_it_trained() -> None:
    found = summary(STEPS, [sample(0), sample(1), sample(4), sample(5)])
    assert (found.samples, found.training_samples) == (4, 2)
    assert summary([], [sample(0)]).training_samples is None
    assert summary(STEPS, [sample(9)]).training_samples == 0


def test_cards_stand_as_in_the_first_sample_that_counts_and_a_sample_without_one_of_them_is_not_complete() -> None:
    one, two = card("GPU-1", 1.0), card("GPU-2", 2.0)
    samples = [sample(0, 1.0, gpus=[one, two]), sample(1, 1.0, gpus=[two, one]), sample(2, 1.0, gpus=[two])]
    assert [gpu.uuid for gpu in summary([step(1, 1), step(2, 2)], samples).gpus] == ["GPU-2", "GPU-1"]
    assert summary([], samples, is_command=True).training_samples == 2


def test_samples_of_the_cards_alone_are_in_no_mean_of_the_host_and_no_evidence_of_their_own() -> None:
    between = [{"t": 1 + n / 10, "gpus": [card("GPU-1", 80)], "gap": None} for n in range(1, 20)]
    samples = [sample(1, 20.0, gpus=[card("GPU-1", 60)]), *between, sample(3, 40.0, gpus=[card("GPU-1", 79)])]
    found = summary(STEPS, samples, cores=4)
    assert (found.cpu_percent_mean, found.gpu_percent_mean) == (30.0, 79.0)
    assert (found.samples, found.training_samples, found.gaps) == (21, 2, 0)


def test_energy_is_that_of_the_time_in_which_it_trained_and_says_where_it_is_from() -> None:
    counted = [{"watts": 9.0, "energy_joules": joules} for joules in (0, 100, 132, 164, 196, 900)]
    found = summary(STEPS, cards(*counted, start=0))
    assert (found.energy_joules, found.energy_from, found.energy_seconds, found.energy_gap_seconds) == (
        96, "counter", 3, 0,
    )  # fmt: skip
    assert found.examples_per_joule == 2.0, "64 examples/s at 32 W"
    assert (found.gpus[0].joules, found.gpus[0].energy_from) == (96, "counter")


def test_a_training_without_a_sample_has_no_energy_while_a_command_has_that_of_its_whole_time() -> None:
    idle = cards(*({"watts": 75.0, "energy_joules": 75.0 * at} for at in range(13)), start=0)
    start = {"event": "start", "device": "gpu"}
    for events in ([start, step(0, 5.2), step(100, 5.7, rate=25_600)], [start, step(0, 5.2)], [start]):
        found = summary(events, idle)
        assert (found.energy_joules, found.energy_seconds, found.examples_per_joule) == (None, None, None)
        assert (found.gpus[0].joules, found.gpus[0].watts_mean) == (None, 75.0)
    assert summary([], idle).energy_joules == 900


def test_power_is_integrated_without_the_gaps_and_they_are_said() -> None:
    found = summary(STEPS, cards({"watts": 32.0}, {"watts": 32.0}, {"watts": None}, {"watts": 32.0}))
    assert (found.energy_joules, found.energy_from, found.energy_seconds, found.energy_gap_seconds) == (
        32, "power integrated", 1, 2,
    )  # fmt: skip
    assert found.examples_per_joule == 2.0, "of the mean power, not of a part of the energy"


def test_a_sample_in_which_the_card_is_missing_is_a_gap_of_its_power() -> None:
    samples = cards({"watts": 10.0}, {"watts": 10.0}, {}, {"watts": 10.0})
    samples[2]["gpus"] = []
    assert summary(STEPS, samples).energy_gap_seconds == 2


def test_a_sample_for_which_the_counter_was_not_asked_is_no_gap_of_it() -> None:
    whole = [{"watts": 9.0, "energy_joules": joules, "sm_mhz": 1500, "throttle_reasons": []} for joules in (0, 64)]
    found = summary(STEPS, cards(whole[0], {"watts": 9.0}, whole[1], {"watts": 9.0}))
    assert (found.energy_joules, found.energy_from, found.energy_seconds, found.energy_gap_seconds) == (
        64, "counter", 2, 0,
    )  # fmt: skip
    assert (found.sm_mhz_mean, found.throttled_share) == (1500, {})


def test_energy_of_several_cards_is_their_sum_and_unknown_where_one_s_is() -> None:
    both = [
        sample(t, gpus=[card("GPU-1") | {"energy_joules": 10 * t}, card("GPU-2") | {"watts": 30.0}]) for t in (1, 2)
    ]
    found = summary(STEPS, both)
    assert (found.energy_joules, found.energy_from) == (40, "power integrated")
    assert [gpu.energy_from for gpu in found.gpus] == ["counter", "power integrated"]
    assert found.examples_per_joule == 64 / 40
    for one in both:
        one["gpus"][1]["watts"] = None
    assert (summary(STEPS, both).energy_joules, summary(STEPS, both).examples_per_joule) == (None, None)


def test_energy_and_clocks_of_a_training_are_those_of_the_cards_that_it_computed_on() -> None:
    def one(t: int, *percents: float | None) -> dict[str, Any]:
        readings = [
            {"watts": 100.0 * (at + 1), "sm_mhz": 1000 + at, "throttle_reasons": [f"0x{at}"]} for at in range(3)
        ]
        gpus = [card(f"GPU-{at}", percent) | readings[at] for at, percent in enumerate(percents)]
        return sample(t, gpus=gpus)

    start = {"event": "start", "device": "gpu", "replicas": 1}
    busy = [one(t, 3.0, 97.0, 40.0) for t in (1, 2)]
    found = summary([start, *STEPS], busy)
    assert (found.energy_joules, found.sm_mhz_mean, found.throttled_share) == (200, 1001, {"0x1": 1.0})
    assert found.examples_per_joule == 64 / 200
    assert [gpu.joules for gpu in found.gpus] == [100, 200, 300], "each has its own"
    assert summary([start | {"replicas": 2}, *STEPS], busy).energy_joules == 500
    assert summary([start | {"device": "cpu"}, *STEPS], busy).energy_joules == 600, "it computed on none of them"
    for unknown in (None, 97.0, 40.0), (3.0, 3.0, 3.0):
        assert summary([start, *STEPS], [one(t, *unknown) for t in (1, 2)]).energy_joules == 600


def test_of_a_command_count_the_cards_on_which_its_processes_were_seen() -> None:
    def one(t: int, *own: int | None) -> dict[str, Any]:
        return sample(
            t,
            gpus=[
                card(f"GPU-{at}", percent, 10 * at)
                | {"watts": watts, "sm_mhz": 1000 + at, "throttle_reasons": [hex(1 << at)], "foreign_processes": at}
                | ({} if own[at] is None else {"own_processes": own[at]})
                for at, (percent, watts) in enumerate([(40.0, 100), (97.0, 200), (3.0, 300)])
            ],
        )

    found = summary(STEPS, [one(1, 0, 0, 0), one(2, 1, 0, 0)])
    assert (found.energy_joules, found.sm_mhz_mean, found.throttled_share) == (100, 1000, {"0x1": 1.0})
    assert (found.gpu_percent_mean, found.gpu_memory_bytes_max, found.shared_gpu) == (40, 0, False)
    assert [(gpu.is_used, gpu.joules) for gpu in found.gpus] == [(True, 100), (False, 200), (False, 300)]
    for own, shared in ((None, None, None), None), ((0, 0, 0), True):
        found = summary(STEPS, [one(t, *own) for t in (1, 2)])
        assert (found.energy_joules, found.sm_mhz_mean, found.throttled_share) == (None, None, None)
        assert (found.gpu_percent_mean, found.shared_gpu) == (140 / 3, shared), "not known, or others' work"
        assert [gpu.joules for gpu in found.gpus] == [100, 200, 300]


def test_a_command_that_kept_all_its_cards_busy_is_taken_to_have_computed_on_all() -> None:
    busy = [sample(t, gpus=[card(f"GPU-{at}", 50.0) | {"watts": 100} for at in range(2)]) for t in (1, 2)]
    assert summary(STEPS, busy).energy_joules == 200


def test_unlike_cards_have_no_mean_clock() -> None:
    def clock(*names: str) -> float | None:
        gpus = [card(f"GPU-{at}", 97.0) | {"name": name, "sm_mhz": 200 + 1400 * at} for at, name in enumerate(names)]
        return summary(STEPS, [sample(t, gpus=gpus) for t in (1, 2)]).sm_mhz_mean

    assert (clock("T4", "T4"), clock("T4", "A100")) == (900, None)


def test_a_run_on_the_cpu_has_no_examples_of_the_joules_of_an_idle_gpu() -> None:
    samples = cards({"watts": 32.0}, {"watts": 32.0})
    assert summary([{"event": "start", "device": "cpu"}, *STEPS], samples).examples_per_joule is None
    assert summary([{"event": "start", "device": "cpu"}, *STEPS], samples).energy_joules == 32
    assert summary([{"event": "start", "device": "gpu"}, *STEPS], samples).examples_per_joule == 2.0


def test_throttling_is_told_by_reason_as_the_share_of_the_samples_and_idling_is_none() -> None:
    reasons: list[Any] = [["sw_power_cap"], ["sw_power_cap", "sw_thermal_slowdown"], ["gpu_idle"], []]
    found = summary(STEPS, cards(*({"throttle_reasons": one} for one in reasons)))
    assert found.throttled_share == {"sw_power_cap": 0.5, "sw_thermal_slowdown": 0.25}
    assert found.gpus[0].throttled_share == found.throttled_share


def test_clocks_that_were_never_held_down_and_those_that_nobody_asked_for_differ() -> None:
    assert summary(STEPS, cards({"throttle_reasons": ["gpu_idle"]}, {"throttle_reasons": []})).throttled_share == {}
    assert summary(STEPS, cards({}, {})).throttled_share is None
    unknown_once = cards({"throttle_reasons": ["hw_slowdown"]}, {"throttle_reasons": None})
    assert summary(STEPS, unknown_once).throttled_share == {"hw_slowdown": 1.0}


def test_clocks_of_any_of_the_cards_count_once() -> None:
    first, second = {"throttle_reasons": ["hw_slowdown"]}, {"throttle_reasons": ["hw_slowdown"]}
    samples = [sample(1, gpus=[card("GPU-1") | first, card("GPU-2") | second]), sample(2, gpus=[card("GPU-1")])]
    assert summary(STEPS, samples).throttled_share == {"hw_slowdown": 1.0}


@pytest.mark.parametrize(("counts", "shared"), [
    ((0, 1, 0), True), ((None, 1), True), ((0, 0), False), ((None, None), None), ((), None),
    ((0, None), None), ((0, *[None] * 100), None), ((None, *[0] * 9), False), ((None, *[0] * 8), None),
])  # fmt: skip
def test_a_gpu_is_shared_if_another_process_was_there_at_any_time_and_alone_if_nearly_every_look_tells(
    counts: tuple[Any, ...], shared: bool | None
) -> None:
    lasting = [*STEPS, STEPS[-1] | {"t": 200}]
    assert summary(lasting, cards(*({"foreign_processes": count} for count in counts))).shared_gpu is shared


def test_a_brief_look_which_does_not_count_others_leaves_nothing_unknown() -> None:
    looks = [{"foreign_processes": 0}, *[{}] * 9]
    assert summary(STEPS, cards(*looks)).shared_gpu is False


def test_a_gpu_of_several_that_tells_nothing_leaves_it_unknown_whether_they_are_shared() -> None:
    samples = [sample(1, gpus=[card("GPU-1") | {"foreign_processes": 0}, card("GPU-2")])]
    assert summary(STEPS, samples).shared_gpu is None


def test_the_memory_s_limit_pressure_and_kills_are_the_container_s() -> None:
    pressed = [
        sample(t, memory_limit_bytes=100, memory_pressure_percent=pressure, memory_oom_kills=kills)
        for t, pressure, kills in ((0, 99.0, 3), (2, 1.5, 3), (3, 7.5, 4), (9, 99.0, 5))
    ]
    found = summary(STEPS, pressed)
    assert (found.memory_limit_bytes, found.memory_pressure_percent, found.memory_oom_kills) == (100, 7.5, 2)


def test_clocks_and_threads_are_means() -> None:
    samples = cards({"sm_mhz": 1500}, {"sm_mhz": 1700}, {"sm_mhz": None})
    for one, threads in zip(samples, (2, 6, None), strict=True):
        one["threads_running"] = threads
    found = summary(STEPS, samples)
    assert (found.sm_mhz_mean, found.gpus[0].sm_mhz_mean, found.threads_running_mean) == (1600, 1600, 4)


def test_how_much_of_the_cards_worked_is_a_mean_of_what_was_read_while_it_trained() -> None:
    names = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")

    def one(t: int, *percents: float | None) -> dict[str, Any]:
        known = [dict(zip(names, [percent, 8.0, None, 3.0], strict=True)) for percent in percents]
        return sample(t, gpus=[card(f"GPU-{at}", 97) | each for at, each in enumerate(known)])

    brief = {"t": 1.5, "gpus": [card("GPU-0", 97), card("GPU-1", 97)]}
    found = summary(STEPS, [one(0, 99.0, 99.0), one(1, 10.0, None), brief, one(2, 20.0, None), one(3, None, 45.0)])
    assert [gpu.sm_active_percent_mean for gpu in found.gpus] == [15.0, 45.0]
    assert (found.sm_active_percent_mean, found.sm_occupancy_percent_mean) == (30.0, 8.0)
    assert (found.tensor_active_percent_mean, found.dram_bandwidth_percent_mean) == (None, 3.0)


def test_the_steps_of_several_trainings_from_nothing_are_those_of_all_of_them() -> None:
    one = [step(0, 1), step(190, 2), {"event": "eval", "step": 200, "precision_at_1": 0.9}, {"event": "raced"}]
    finish = {"event": "finish", "step": 200}
    assert summary([*one, finish], []).steps == 200
    assert summary([*one, *one, *one, finish], []).steps == 600
    assert summary([*one, *one, step(0, 5), step(60, 6), {"event": "error", "step": 70}], []).steps == 460
    assert summary([{"event": "start"}, *one, {"event": "start"}, *one, finish], []).steps == 200, "it was taken back"


def test_a_process_that_was_killed_on_a_node_that_fell_silent_is_counted() -> None:
    kills = [sample(t, memory_oom_kills=kills) for t, kills in enumerate([2, 3, 1])]
    assert summary([], kills).memory_oom_kills == 1
