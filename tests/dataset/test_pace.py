from __future__ import annotations

from ngcdl.dataset.pace import Pace, Patience

from .host import Clock

News = tuple[int, int | None, float | None]


def pace(clock: Clock, total: int, seen: list[News] | None = None) -> Pace:

    def show(*news: *News) -> None:
        if seen is not None:
            seen.append(news)

    return Pace(total, 0, Patience(now=clock.now, sleep=clock.sleep), show)


def test_within_its_probation_nothing_is_too_slow() -> None:
    clock = Clock()
    watched = pace(clock, 10**9)
    clock.t += 14
    assert not watched.too_slow(1)


def test_what_the_official_host_sends_since_june_2026_is_too_slow_after_15_seconds() -> None:
    clock = Clock()
    watched = pace(clock, 170_052_171)
    clock.t += 15
    assert watched.too_slow(15 * 60_000)
    assert 40 * 60 < watched.left_seconds(15 * 60_000) < 57 * 60


def test_the_same_speed_is_fine_near_the_end() -> None:
    clock = Clock()
    watched = Pace(170_052_171, 150_000_000, Patience(now=clock.now), None)
    clock.t += 15
    assert not watched.too_slow(150_000_000 + 15 * 60_000)


def test_a_host_that_becomes_slow_later_is_noticed_in_its_next_window() -> None:
    clock = Clock()
    watched = pace(clock, 10**9)
    clock.t += 15
    assert not watched.too_slow(150_000_000)
    clock.t += 15
    assert watched.too_slow(150_000_000 + 15 * 60_000)


def test_there_is_no_limit_on_the_whole_while_it_is_fast() -> None:
    clock, total, have = Clock(), 10**12, 0
    watched = pace(clock, total)
    begin = clock.t
    while clock.t - begin < 3000:
        clock.t += 15
        have += (total - have) * 15 // 600
        assert not watched.too_slow(have)


def test_nothing_at_all_takes_for_ever() -> None:
    clock = Clock()
    watched = pace(clock, 100)
    clock.t += 15
    assert watched.too_slow(0)


def test_a_new_beginning_starts_a_new_window() -> None:
    clock = Clock()
    watched = Pace(1000, 900, Patience(now=clock.now), None)
    clock.t += 15
    assert not watched.too_slow(10)


def test_progress_is_shown_five_times_a_second_and_at_the_end() -> None:
    clock, seen = Clock(), list[News]()
    watched = pace(clock, 1000, seen)
    for have in range(1, 1001):
        clock.t += 0.01
        watched.too_slow(have)
    assert 45 <= len(seen) <= 52
    assert seen[0] == (1, 1000, None)
    have, total, rate = seen[-1]
    assert (have, total) == (1000, 1000)
    assert rate is not None
    assert abs(rate - 100) < 1
