"""What must hold how long to stand, also where several take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from gpumon.readings.snapshot import Family, Kind, Level, Limit, Quantiles
from gpumon.triage.hold import Hold
from gpumon.triage.render import event_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import judged, limits, scene
from tests.triage.stage import Of, Stage, said

HOLD_S = 30.0
QUEUED = {"waiting": 20.0, "running": 24.0, "queue_s": Quantiles(mean=1.8), "ttft_s": Quantiles(mean=2.0, p95=4.0)}


def stands(found: Sequence[Limit | None]) -> list[Limit | None]:
    """What stands after each of these, a second apart."""
    hold = Hold(1000.0, 5000.0)
    return [hold.take(one, HOLD_S, 1000.0 + at, 5000.0 + at) for at, one in enumerate(found)]


def turns(*of: tuple[Limit | None, int], seconds: int = 600) -> list[Limit | None]:
    round_ = [limit for limit, count in of for _ in range(count)]
    return [round_[at % len(round_)] for at in range(seconds)]


def flips(seen: Sequence[Limit | None]) -> list[int]:
    return [at for at, (before, after) in enumerate(pairwise(seen), 1) if before is not after]


def test_one_that_holds_comes_and_goes_after_as_long() -> None:
    seen = stands([Limit.QUEUE_LIMIT] * 40 + [None] * 40)
    assert flips(seen) == [30, 70]
    assert seen[30] is Limit.QUEUE_LIMIT


@each_row(
    ("of", "expected"),
    [
        (((Limit.QUEUE_LIMIT, 1), (Limit.KV_CACHE_FULL, 3)), Limit.KV_CACHE_FULL),
        (((Limit.QUEUE_LIMIT, 20), (Limit.KV_CACHE_FULL, 10)), Limit.QUEUE_LIMIT),
        (((Limit.QUEUE_LIMIT, 5), (Limit.KV_CACHE_FULL, 12), (Limit.COMPUTE_BOUND, 6)), Limit.KV_CACHE_FULL),
        (((Limit.QUEUE_LIMIT, 20), (Limit.KV_CACHE_FULL, 20)), Limit.QUEUE_LIMIT),
    ],
)
def test_of_several_that_take_turns_the_one_found_most_stands(
    of: tuple[tuple[Limit, int], ...], expected: Limit
) -> None:
    seen = stands(turns(*of))
    (at,) = flips(seen)
    assert HOLD_S <= at < 2 * HOLD_S
    assert seen[-1] is expected


def test_no_mix_flips_more_often_than_the_time_it_must_hold() -> None:
    for long in (7, 20, 29, 31, 50, 64):
        at = flips(
            stands(
                turns(
                    (Limit.QUEUE_LIMIT, long), (Limit.KV_CACHE_FULL, 31), (None, long // 2), (Limit.COMPUTE_BOUND, 11)
                )
            )
        )
        assert all(after - before >= HOLD_S for before, after in pairwise(at)), long


def waiting(usage: Callable[[int], float]) -> Stage:
    """Ten minutes of an engine at its limit of requests, whose KV cache is as full as this says."""
    late = {"waiting": 20.0, "running": 64.0, "queue_s": Quantiles(mean=1.8), "ttft_s": Quantiles(mean=2.0, p95=4.0)}
    stage = Stage()
    stage.play(600, lambda at: scene({**late, "kv_usage_ratio": usage(at)}, slots=64)(at))
    return stage


def wave(at: int, period: int) -> float:
    """0.9 +- 0.03."""
    half = period / 2
    return 0.87 + 0.06 * abs(at % period - half) / half


@each_row("period", [20, 40, 100])
def test_a_kv_cache_that_breathes_around_its_mark_is_one_verdict(period: int) -> None:
    stage = waiting(lambda at: wave(at, period))
    assert [event_text(event).partition(":")[0] for event in stage.events] == ["KV cache full"]


def levels(found: Sequence[Level]) -> list[Level]:
    """The level of one verdict that is found at these, a second apart."""
    hold, given = Hold(1000.0, 5000.0), []
    for at, level in enumerate(found):
        hold.take(Limit.THROTTLED, 0.0, 1000.0 + at, 5000.0 + at)
        given.append(hold.level(level, HOLD_S, 1000.0 + at))
    return given


EDGE = [Level.WARN] * 3 + ([Level.CRITICAL] * 4 + [Level.WARN] * 9) * 4 + [Level.WARN] * 60


def test_a_level_rises_at_once_and_falls_after_as_long_as_a_verdict() -> None:
    given = levels(EDGE)
    assert [at for at, (before, after) in enumerate(pairwise(given), 1) if before is not after] == [3, 76]
    assert given[2:4] == [Level.WARN, Level.CRITICAL]
    assert given[76] is Level.WARN


def test_a_verdict_on_its_way_out_says_of_when_its_figures_are() -> None:
    stage = waiting(lambda _: 0.97)
    assert stage.last is not None
    rest = scene({"kv_usage_ratio": 0.3})
    gone = [verdict_text(said(stage.play(1, rest), Family.LIMIT, Kind.ENGINE)) for _ in range(15)]
    late = [at for at, text in enumerate(gone) if text.startswith("seen until ")]
    assert late[-1] == 14
    # The first tick of `gone` is that of 00:10:00; it is dated from its sixth second without the finding on.
    assert gone[14] == f"seen until 00:10:{late[0] - 5:02d} UTC: {gone[late[0] - 1]}"
    again = said(stage.play(15, scene({"kv_usage_ratio": 0.97, "waiting": 20.0})), Family.LIMIT, Kind.ENGINE)
    assert verdict_text(again).startswith("20 wait: KV cache 97% full")


def test_the_onset_of_a_verdict_is_fixed_once() -> None:
    hold = Hold(1060.0, 5060.0)
    hold.take(Limit.HUNG, 0.0, 1060.0, 5060.0)
    assert hold.began_wall_s(1010.3, 4000.0) == 5010.0
    assert hold.began_wall_s(1010.3, 4000.3) == 5010.0
    assert hold.began_wall_s(1011.5, 7600.0) == 5010.0
    assert hold.began_wall_s(1020.0, 4000.0) == 5020.0  # another cause


@each_row(("seconds", "said"), [(5, (Limit.HEALTHY,)), (15, ()), (35, (Limit.KV_CACHE_FULL,))])
def test_a_warning_that_is_on_its_way_takes_the_word_healthy_away(seconds: int, said: tuple[Limit, ...]) -> None:
    """It holds after 30 s; from 10 s on nothing good is said."""
    well = scene()
    full = scene({**QUEUED, "kv_usage_ratio": 0.97})

    def at(tick: int) -> tuple[Of, ...]:
        return (well if tick < 90 else full)(tick)

    assert limits(judged(at, 90 + seconds)) == said


def test_what_stands_began_when_it_was_found_first() -> None:
    """It is told after 30 s; since when is what the user asks."""
    hold = Hold(1000.0, 5000.0)
    for at in range(50):
        hold.take(Limit.QUEUE_LIMIT if at >= 10 else None, HOLD_S, 1000.0 + at, 5000.0 + at)
    assert (hold.limit, hold.since_wall_s) == (Limit.QUEUE_LIMIT, 5010.0)
