"""How urgent overload is: by what users feel of it, and not at all where nobody waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpumon.readings.frame import RankReading
from gpumon.readings.goals import Goals
from gpumon.readings.quantities import MOST_RUNNING, REQUESTS, RUNNING, WAITING
from gpumon.readings.snapshot import Family, Kind, Level, Limit, Quantiles, Snapshot, TokensTotal, Verdict
from gpumon.triage.render import verdict_text
from gpumon.triage.triage import Triage
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, PEAK, judged, scene
from tests.triage.stage import Of, Stage, verdict

QUEUED = {"waiting": 12.0, "queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0, p95=3.0)}
FULL = {**QUEUED, "kv_usage_ratio": 0.97, "running": 48.0, "kv_pool_tokens": 100_000.0, "context_tokens": 2000.0}
COMPUTES = {**BUSY, "tensor_active_ratio": 0.78}
READS = {**BUSY, "bandwidth_bytes_per_s": 0.81 * PEAK}
KINDS = [
    (Limit.QUEUE_LIMIT, QUEUED, BUSY, 24.0),
    (Limit.KV_CACHE_FULL, FULL, BUSY, 0.0),
    (Limit.COMPUTE_BOUND, QUEUED, COMPUTES, 24.0),
    (Limit.BANDWIDTH_BOUND, QUEUED, READS, 64.0),
    (Limit.UNKNOWN, {}, BUSY, 0.0),
]
LATE = {"ttft_s": Quantiles(mean=15.0, p95=38.0, p95_low=20.0), "queue_s": Quantiles(mean=14.0)}


def limit_of(changes: dict[str, Any], gpus: Any = BUSY, slots: float = 0.0, goals: Goals | None = None) -> Verdict:
    found = verdict(judged(scene(changes, gpus, slots=slots), goals=goals), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    return found


@each_row(("code", "changes", "gpus", "slots"), KINDS)
def test_any_overload_is_critical_at_tens_of_seconds_to_the_first_token(
    code: Limit, changes: dict[str, Any], gpus: Any, slots: float
) -> None:
    found = limit_of({**changes, **LATE}, gpus, slots)
    assert (found.code, found.level) == (code, Level.CRITICAL)
    assert found.actions, "and says what to do"


@each_row(
    ("latencies", "level"),
    [
        ({"ttft_s": Quantiles(mean=8.0, p95=19.0), "queue_s": Quantiles(mean=7.0)}, Level.WARN),
        ({"ttft_s": Quantiles(mean=8.0, p95=21.0), "queue_s": Quantiles(mean=7.0)}, Level.CRITICAL),
        ({"ttft_s": Quantiles(mean=8.0, p95=21.0, p95_low=10.0), "queue_s": Quantiles(mean=7.0)}, Level.WARN),
        ({"ttft_s": Quantiles(mean=22.0, p95=26.0, p95_low=10.0), "queue_s": Quantiles(mean=19.0)}, Level.CRITICAL),
        ({"ttft_s": Quantiles(), "queue_s": Quantiles(mean=25.0)}, Level.CRITICAL),
    ],
)
def test_only_what_is_sure_counts(latencies: dict[str, Any], level: Level) -> None:
    """The p95 lies in a bucket from its lower end on; the mean is exact."""
    assert limit_of({**FULL, **latencies}).level is level


@each_row(
    ("goals", "level"),
    [
        (Goals(ttft_s=1.0), Level.WARN),
        (Goals(ttft_s=0.7), Level.CRITICAL),
        (Goals(itl_s=0.02), Level.WARN),
        (Goals(itl_s=0.005), Level.CRITICAL),
        (Goals(e2e_s=2.0), Level.CRITICAL),
    ],
)
def test_a_goal_missed_fourfold_is_critical(goals: Goals, level: Level) -> None:
    changes = {**FULL, "ttft_s": Quantiles(mean=1.0, p95=3.0), "e2e_s": Quantiles(mean=5.0, p95=9.0)}
    assert limit_of(changes, goals=goals).level is level


def test_a_goal_that_allows_half_a_minute_is_not_missed_by_20_s() -> None:
    assert limit_of({**FULL, **LATE}, goals=Goals(ttft_s=60.0)).level is Level.WARN


def play(seconds: int, of: Callable[[int], tuple[Of, ...]]) -> Verdict:
    found = verdict(Stage().play(seconds, of), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    return found


@each_row(("a_second", "level"), [(0.5, Level.CRITICAL), (0.05, Level.WARN), (0.0, Level.WARN)])
def test_a_queue_that_grows_for_minutes_is_critical(a_second: float, level: Level) -> None:
    """By 90, 9 and no requests in 3 min, beside 24 that run."""
    found = play(200, lambda tick: scene({**QUEUED, "waiting": 12.0 + a_second * tick}, slots=24.0)(tick))
    assert (found.code, found.level) == (Limit.QUEUE_LIMIT, level)


def test_a_level_rises_at_once_and_falls_after_half_a_minute() -> None:
    stage = Stage()
    stage.play(60, scene(QUEUED, slots=24.0))

    def level(seconds: int, changes: dict[str, Any]) -> Level:
        found = verdict(stage.play(seconds, scene(changes, slots=24.0)), Family.LIMIT, Kind.ENGINE)
        assert found is not None
        return found.level

    assert level(3, {**QUEUED, **LATE}) is Level.CRITICAL
    assert level(20, QUEUED) is Level.CRITICAL
    assert level(20, QUEUED) is Level.WARN


BATCH = {
    "ttft_s": Quantiles(mean=300.0, p95=560.0),
    "queue_s": Quantiles(mean=290.0),
    "running": 24.0,
    "requests_per_s": 12.0,
    "aborts_per_s": 0.0,
}


def batch(
    queue: float = 6000.0, finish: float = 12.0, arrive: float = 0.0, **changes: Any
) -> Callable[[int], tuple[Of, ...]]:
    """An engine that works on a queue at `finish` requests/s, while `arrive` requests/s come."""

    def at(tick: int) -> tuple[Of, ...]:
        waiting = queue + (arrive - finish) * tick
        *cards, made = scene({**BATCH, "waiting": waiting, **changes}, slots=24.0)(tick)
        gauges = {MOST_RUNNING: 24.0, RUNNING: 24.0, WAITING: waiting}
        rank = RankReading("0", {REQUESTS: 100.0 + finish * tick}, gauges, {})
        return (*cards, Of(replace(made.read, ranks=(rank,)), made.shown))

    return at


def test_a_queue_to_which_nothing_is_added_is_an_offline_batch() -> None:
    found = play(60, batch())
    assert (found.code, found.cause, found.level) == (Limit.QUEUE_LIMIT, "offline_batch", Level.NOTE)
    assert not [one for one in found.actions if one.code.startswith("more_instances")]
    assert verdict_text(found).startswith("offline batch: 5,3")
    assert "none arrived in 56 s; done in about 7 min at 12 requests/s" in verdict_text(found)


@each_row(
    "of",
    [
        batch(arrive=2.0),  # 600 in 5 min
        batch(aborts_per_s=0.5),
        batch(queue=150.0, finish=0.0),  # it does not get shorter
        batch(queue=90.0, finish=0.2),  # too few to be a batch for sure
    ],
)
def test_where_requests_come_or_clients_give_up_it_is_overload(of: Callable[[int], tuple[Of, ...]]) -> None:
    found = play(60, of)
    assert (found.cause, found.level) == ("queue_slots", Level.CRITICAL)


@each_row(("queue", "cause"), [(900.0, "offline_batch"), (200.0, "offline_batch"), (60.0, "queue_slots")])
def test_a_batch_has_more_requests_than_users_send_by_hand(queue: float, cause: str) -> None:
    assert play(60, batch(queue=queue, finish=0.5)).cause == cause


@each_row("first_answer", [0, 15])
def test_a_batch_that_was_there_before_is_critical_at_no_moment(first_answer: int) -> None:
    """A verdict may be due before its queue was watched for half a minute."""
    stage = Stage()
    bare = scene({**BATCH, "waiting": 6000.0}, slots=24.0)
    levels = []
    for tick in range(100):
        last = stage.play(1, batch() if tick >= first_answer else bare)
        found = verdict(last, Family.LIMIT, Kind.ENGINE)
        if found is not None:
            levels.append(found.level)
    assert levels[-1] is Level.NOTE
    assert Level.CRITICAL not in levels


def test_with_a_goal_somebody_waits() -> None:
    stage = Stage()
    stage.triage = Triage(goals=Goals(ttft_s=2.0))
    found = verdict(stage.play(60, batch()), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    assert (found.cause, found.level) == ("queue_slots", Level.CRITICAL)


def test_a_batch_that_was_watched_as_it_came_is_one_after_half_a_minute() -> None:
    def at(tick: int) -> tuple[Of, ...]:
        return batch(queue=6000.0 if tick >= 20 else 1.0, finish=12.0 if tick >= 20 else 0.0)(tick)

    found = play(120, at)
    assert (found.cause, found.level) == ("offline_batch", Level.NOTE)


def test_the_second_batch_within_5_minutes_is_overload() -> None:
    """More may follow."""

    def at(tick: int) -> tuple[Of, ...]:
        return batch(queue=6000.0 if tick >= 80 else 3000.0 if tick >= 20 else 300.0)(tick)

    found = play(160, at)
    assert (found.cause, found.level) == ("queue_slots", Level.CRITICAL)


def test_its_last_requests_are_no_overload() -> None:
    """A hundred and less of it are left."""
    assert play(150, batch(queue=1_000.0, finish=6.2)).cause == "offline_batch"


def test_a_queue_that_grows_all_the_time_is_no_burst() -> None:
    """It has twice its mean at its end all the same."""
    late = {"ttft_s": Quantiles(mean=3.0, p95=5.0), "queue_s": Quantiles(mean=2.5)}
    found = play(100, lambda tick: scene({**late, "waiting": 0.01 * tick**2}, slots=24.0)(tick))
    assert (found.code, found.cause) == (Limit.QUEUE_LIMIT, "queue_slots")


def test_new_arrivals_make_it_overload_again() -> None:
    stage = Stage()
    stage.play(60, batch())
    found = verdict(stage.play(60, batch(queue=5400.0, arrive=12.5)), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    assert (found.cause, found.level) == ("queue_slots", Level.CRITICAL)


def test_an_engine_that_counts_no_finished_requests_is_overloaded() -> None:
    found = play(60, scene({**BATCH, "waiting": 6000.0}, slots=24.0))
    assert (found.cause, found.level) == ("queue_slots", Level.CRITICAL)


LOWERED_LIMIT = {
    "throttle": ("sw_power_cap",),
    "power_w": 298.0,
    "power_limit_w": 300.0,
    "power_default_w": 700.0,
    "sm_clock_max_hz": 1.98e9,
}
"""A GPU at 300 of its 700 W."""


def held_down(clock_hz: float, latencies: dict[str, Any]) -> Snapshot:
    """An engine whose tensor cores are full on a GPU at 300 of its 700 W, after a minute and a half."""
    card = {**COMPUTES, **LOWERED_LIMIT, "sm_clock_hz": clock_hz}
    return judged(scene({**QUEUED, **latencies}, card, slots=24.0), 90)


@each_row(
    ("changes", "slots", "code", "fix"),
    [(QUEUED, 24.0, Limit.QUEUE_LIMIT, "raise_slots"), (FULL, 0.0, Limit.KV_CACHE_FULL, "more_instances")],
)
def test_what_has_no_room_is_critical_itself_beside_a_lowered_power_limit(
    changes: dict[str, Any], slots: float, code: Limit, fix: str
) -> None:
    """The arithmetic has room: a faster GPU would not shorten the queue."""
    card = {**BUSY, **LOWERED_LIMIT, "sm_clock_hz": 1.29e9}
    snapshot = judged(scene({**changes, **LATE}, card, slots=slots), 90)
    found = verdict(snapshot, Family.LIMIT, Kind.ENGINE)
    assert found is not None
    assert (found.code, found.level) == (code, Level.CRITICAL)
    assert found.actions[0].code == fix
    of_gpu = verdict(snapshot, Family.STATE, Kind.GPU)
    assert of_gpu is not None
    assert (of_gpu.cause, of_gpu.level) == ("power_cap", Level.WARN)


def test_one_of_several_slow_gpus_is_not_waited_for() -> None:
    """The other one is as slow: nothing would be better after its own fix alone."""
    card = {**COMPUTES, **LOWERED_LIMIT, "sm_clock_hz": 1.29e9}
    snapshot = judged(scene({**QUEUED, **LATE, "tp": 2}, (card, card), slots=24.0), 90)
    degraded = [each for each in snapshot.verdicts if each.cause == "gpu_degraded"]
    assert [each.parameters["bad"] for each in degraded] == [2.0]
    assert "waits" not in degraded[0].parameters


def test_full_arithmetic_with_long_prompts_one_after_the_other_is_told_in_half_a_minute() -> None:
    """Each is too short to be a verdict of its own, and the arithmetic is full between them."""
    long_prompts = scene({**QUEUED, **LATE}, COMPUTES, slots=64.0)

    def at(second: int) -> tuple[Of, ...]:
        rounds, seconds = divmod(second, 28)
        moved = float(rounds * 12 + max(0, seconds - 16))
        *gpus, one = long_prompts(second)
        totals = TokensTotal(8200.0 * moved, 0.0, 1100.0 * moved)
        return (*gpus, Of(one.read, replace(one.shown, tokens_total=totals)))

    stage = Stage()
    found = [verdict(stage.tick(*at(stage.at)), Family.LIMIT, Kind.ENGINE) for _ in range(200)]
    codes = [each.code for each in found[40:] if each is not None]
    assert codes == [Limit.COMPUTE_BOUND] * 160


def test_a_lowered_power_limit_comes_before_the_overload_that_it_makes() -> None:
    """At 65% of the highest clock, and with tens of seconds to the first token, its fix is the first to be read."""
    snapshot = held_down(1.29e9, LATE)
    first = snapshot.verdicts[0]
    assert (first.code, first.level) == (Limit.THROTTLED, Level.CRITICAL)
    assert first.actions[0].code == "restore_power_limit"
    of_gpu = verdict(snapshot, Family.STATE, Kind.GPU)
    assert of_gpu is not None
    assert (of_gpu.cause, of_gpu.level) == ("power_cap", Level.CRITICAL)
    overloads = [each for each in snapshot.verdicts if each.code is Limit.COMPUTE_BOUND]
    assert [each.level for each in overloads if each.level is Level.CRITICAL] == []


@each_row(("clock_hz", "latencies"), [(1.7e9, LATE), (1.29e9, {})])
def test_a_lowered_power_limit_that_costs_little_is_a_warning(clock_hz: float, latencies: dict[str, Any]) -> None:
    of_gpu = verdict(held_down(clock_hz, latencies), Family.STATE, Kind.GPU)
    assert of_gpu is not None
    assert (of_gpu.cause, of_gpu.level) == ("power_cap", Level.WARN)


def test_an_overload_is_critical_itself_where_the_clock_is_hardly_lower() -> None:
    found = verdict(held_down(1.7e9, LATE), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    assert (found.code, found.level) == (Limit.COMPUTE_BOUND, Level.CRITICAL)
