"""Forecasts: figures that rise to their limit for certain, and those that rise and do not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import Family, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.forecast import Window, find_queue_rise_to_limit, find_rise_to_limit, rise_in
from gpumon.triage.render import evidence_text, verdict_text
from gpumon.triage.samples import Recent
from gpumon.triage.triage import Triage
from tests.each_row import each_row
from tests.triage.engines import BUSY, scene
from tests.triage.stage import GIB, Of, Stage, engine, gpu, process

Path = Callable[[float], float]


def recent(path: Path, seconds: int, scatter: float = 0.0, seed: int = 1) -> Recent:
    """An engine whose KV cache use went this way, sampled every 2 s."""
    rng = random.Random(seed)
    samples = Recent(Kind.ENGINE)
    for at_s in range(0, seconds, 2):
        usage = path(float(at_s)) + rng.gauss(0.0, scatter)
        samples.add(float(at_s), engine(kv_usage_ratio=max(0.0, usage)).shown)
    return samples


@each_row("seed", [1, 2, 3])
@each_row("per_s", [0.0006, 0.0015, 0.003])
def test_a_line_is_carried_on_to_its_limit(per_s: float, seed: int) -> None:
    """From 10%, after two thirds of the way: the time that is left is within what is named."""
    seconds = int(0.667 * 0.8 / per_s)
    rise = find_rise_to_limit(recent(lambda at_s: 0.1 + per_s * at_s, seconds, 0.004, seed), "kv_usage_ratio", 0.9)
    left_s = 0.8 / per_s - seconds
    assert rise is not None
    assert 0.9 * rise.low_s <= left_s <= 1.1 * rise.high_s
    assert rise.expected_s == pytest.approx(left_s, rel=0.2)


@each_row(
    ("path", "scatter"),
    [
        (lambda at_s: 0.4, 0.05),  # noise
        (lambda at_s: min(0.7, 0.1 + 0.002 * at_s), 0.005),  # rose, and has stopped
        (lambda at_s: 0.6 * (1.0 - math.exp(-at_s / 90.0)), 0.005),  # fills to where it stays
        (lambda at_s: 0.3 + 0.15 * math.sin(at_s / 95.0), 0.005),  # a day in 10 minutes
        (lambda at_s: 0.2 + 0.0002 * at_s, 0.005),  # far off
        (lambda at_s: 0.8 - 0.001 * at_s, 0.005),  # falls
        (lambda at_s: 0.95, 0.005),  # full already
    ],
    named=["noise", "stopped", "fills", "day", "far", "falls", "full"],
)
def test_what_does_not_rise_to_its_limit_for_certain_is_no_forecast(path: Path, scatter: float) -> None:
    rng = random.Random(1)
    samples = Recent(Kind.ENGINE)
    told = 0
    for at_s in range(0, 600, 2):
        samples.add(float(at_s), engine(kv_usage_ratio=max(0.0, path(float(at_s)) + rng.gauss(0.0, scatter))).shown)
        told += at_s >= 420 and find_rise_to_limit(samples, "kv_usage_ratio", 0.9) is not None
    assert told == 0


@each_row("seed", [1, 2, 3])
@each_row(("per_s", "end_s"), [(0.003, 200), (0.0015, 400), (0.0008, 700)])
def test_a_rise_that_has_ended_is_not_forecast_after_40_s(per_s: float, end_s: int, seed: int) -> None:
    """Whatever the length of the window that it was seen in; while it goes on, it stands but for some seconds."""
    samples = Recent(Kind.ENGINE)
    rng = random.Random(seed)
    told = {}
    for at_s in range(0, end_s + 120, 2):
        usage = 0.1 + per_s * min(at_s, end_s) + rng.gauss(0.0, 0.004)
        samples.add(float(at_s), engine(kv_usage_ratio=usage).shown)
        told[at_s] = find_rise_to_limit(samples, "kv_usage_ratio", 0.9) is not None
    assert not any(is_told for at_s, is_told in told.items() if at_s >= end_s + 40)
    rises = [is_told for at_s, is_told in told.items() if end_s - 60 <= at_s < end_s]
    assert sum(rises) >= 0.8 * len(rises)


@each_row(("share", "is_forecast"), [(0.45, False), (0.6, True)])
def test_a_rise_is_carried_on_that_goes_on_at_half_its_rate_or_more(share: float, is_forecast: bool) -> None:
    """Two thirds of the window at one rate, the last third at this share of it."""
    per_s = 0.005
    bend_s = 80.0
    points = [
        (float(at_s), 0.1 + per_s * (min(at_s, bend_s) + share * max(0.0, at_s - bend_s))) for at_s in range(0, 121, 2)
    ]
    rise = rise_in(points, Window(seconds=120.0, points=8, ahead=1.0), 0.9, points[-1][0])
    assert (rise is not None) is is_forecast


def test_what_fell_a_moment_ago_is_not_forecast() -> None:
    """The medians of its window rise still."""
    samples = recent(lambda at_s: 0.1 + 0.003 * at_s, 180)
    assert find_rise_to_limit(samples, "kv_usage_ratio", 0.9) is not None
    samples.add(180.0, engine(kv_usage_ratio=0.05).shown)
    samples.add(182.0, engine(kv_usage_ratio=0.05).shown)
    assert find_rise_to_limit(samples, "kv_usage_ratio", 0.9) is None


def test_a_queue_that_falls_after_a_long_rise_is_not_forecast_after_40_s() -> None:
    """By then it is below its line by four times what chance alone moves it."""
    rises_s = 2400
    samples = Recent(Kind.ENGINE)
    told = {}
    for at_s in range(0, rises_s + 120, 4):
        waiting = 0.5 * min(at_s, rises_s) - 5.0 * max(0, at_s - rises_s)
        samples.add(float(at_s), engine(waiting=waiting).shown)
        told[at_s] = find_queue_rise_to_limit(samples, "waiting", 2000.0, served_per_s=0.2) is not None
    assert all(is_told for at_s, is_told in told.items() if rises_s - 100 <= at_s < rises_s)
    assert not any(is_told for at_s, is_told in told.items() if at_s >= rises_s + 40)


@each_row(("served_per_s", "per_s", "most_s"), [(0.2, 0.5, 120), (0.2, 0.2, 320)])
def test_a_queue_that_rises_no_more_after_a_long_rise_is_not_forecast_for_ten_minutes(
    served_per_s: float, per_s: float, most_s: int
) -> None:
    """It stays as long as it is: as soon as chance alone no longer explains that, shorter windows tell."""
    rises_s = 2400
    samples = Recent(Kind.ENGINE)
    told = {}
    for at_s in range(0, rises_s + 700, 4):
        samples.add(float(at_s), engine(waiting=per_s * min(at_s, rises_s)).shown)
        if at_s >= rises_s - 100:
            limit = 1.7 * per_s * rises_s
            told[at_s] = find_queue_rise_to_limit(samples, "waiting", limit, served_per_s) is not None
    assert all(is_told for at_s, is_told in told.items() if at_s < rises_s)
    assert max(at_s for at_s, is_told in told.items() if is_told) < rises_s + most_s


def forecasts(snapshot: Snapshot) -> list[Verdict]:
    """The forecasts that stand."""
    return [verdict for verdict in snapshot.verdicts if verdict.family is Family.FORECAST and not verdict.until]


def test_a_kv_cache_that_fills_is_a_note_beside_the_other_verdicts_and_goes_with_its_rise() -> None:
    def fills(tick: int) -> tuple[Of, ...]:
        return scene({"kv_usage_ratio": min(0.6, 0.1 + 0.001 * tick)})(tick)

    stage = Stage()
    (found,) = forecasts(stage.play(440, fills))
    assert (found.code, found.cause, found.level) == (Limit.FORECAST, "kv_full_soon", Level.NOTE)
    assert verdict_text(found).startswith("KV cache full in about 6 min at this rate (6 min to 7 min): 5")
    assert evidence_text(found.evidence[0]).endswith("6% more a minute, full at 90%")
    assert stage.last is not None
    assert any(verdict.family is not Family.FORECAST for verdict in stage.last.verdicts if verdict.kind is Kind.ENGINE)
    stage.play(400, fills)
    assert forecasts(stage.last) == []


def test_a_forecast_of_another_figure_does_not_wait_for_the_one_before() -> None:
    """Notes that come and go are told every ten minutes at most: these are two."""
    stage = Stage()
    stage.triage = Triage(goals=Goals(itl_s=0.05))

    def rise(tick: int) -> tuple[Of, ...]:
        usage = 0.1 + 0.001 * tick if tick < 440 else 0.1
        return scene({"kv_usage_ratio": usage, "itl_mean_s": 0.02 + 0.00013 * max(0, tick - 500)})(tick)

    causes = []
    for _ in range(70):
        for found in forecasts(stage.play(10, rise)):
            if found.cause not in causes:
                causes.append(found.cause)
    assert causes == ["kv_full_soon", "itl_goal_missed_soon"]


def leaking(per_tick_gib: float, **more: object) -> Callable[[int], tuple[Of, ...]]:
    """A GPU on which a program's memory grows."""
    return lambda tick: (
        gpu(
            busy_ratio=more.get("busy", 0.9),
            vram_used_bytes=(20.0 + per_tick_gib * tick) * GIB,
            processes=(process(started_s=more.get("started_s", 1.0)),),
        ),
    )


def test_memory_that_grows_while_a_program_works_is_full_at_some_time() -> None:
    (found,) = forecasts(Stage().play(480, leaking(0.06)))
    assert found.cause == "vram_full_soon"
    assert verdict_text(found).startswith("VRAM full in about 8 min at this rate (8 min to 9 min): 4")
    assert verdict_text(found).endswith("3.6 GiB more a minute; python (pid 4711) holds most")
    assert [fix.code for fix in found.actions] == ["restart_in_time"]


@each_row("more", [{"busy": 0.0}, {"started_s": 1_767_225_500.0}], named=["loads", "began"])
def test_a_program_that_loads_is_no_leak(more: dict[str, object]) -> None:
    stage = Stage()
    for _ in range(18):
        assert forecasts(stage.play(10, leaking(0.4, **more))) == []


def test_a_full_queue_is_told_before_it_takes_too_long() -> None:
    def rises(tick: int) -> tuple[Of, ...]:
        waiting = max(0.0, 2.0 * (tick - 60))
        return scene({"waiting": waiting, "requests_per_s": 10.0, "running": 64.0}, BUSY)(tick)

    (found,) = forecasts(Stage().play(156, rises))
    assert found.cause == "queue_late_soon"
    assert verdict_text(found).startswith("its queue will take 20 s in about 7")


def test_transfers_that_fall_behind_are_told_before_they_take_too_long() -> None:
    def rises(tick: int) -> tuple[Of, ...]:
        waiting = max(0.0, 2.0 * (tick - 60))
        fields = {"waiting": waiting, "waiting_deferred": waiting, "requests_per_s": 10.0, "running": 64.0}
        return scene(fields, BUSY)(tick)

    (found,) = forecasts(Stage().play(156, rises))
    assert found.cause == "kv_transfer_late_soon"
    assert found.actions[0].code == "look_at_transfers"


def test_a_queue_that_wavers_is_not_forecast() -> None:
    """Ten requests a second move a queue by 50 in two minutes by chance alone."""

    def wavers(tick: int) -> tuple[Of, ...]:
        waiting = 20.0 + 0.3 * max(0, tick - 60)
        return scene({"waiting": waiting, "requests_per_s": 10.0, "running": 64.0}, BUSY)(tick)

    stage = Stage()
    for _ in range(8):
        assert forecasts(stage.play(30, wavers)) == []
