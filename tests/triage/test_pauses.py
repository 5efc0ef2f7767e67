"""Pauses of an engine at even distances: three periods make a rhythm, and GPUs that work in them have a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gpumon.readings.frame import EndpointState, EngineReading, RankReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING
from gpumon.readings.snapshot import Family, Level, Limit, Snapshot
from gpumon.triage.pauses import Pauses
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, limits, of_engine, scene
from tests.triage.stage import Of, Stage


def polls(stands_still: Callable[[int], bool], seconds: int, running: float = 4.0) -> Iterator[EngineReading]:
    """Polls each two seconds of an engine whose tokens stand still at times."""
    tokens = 0.0
    for at_s in range(0, seconds, 2):
        if not stands_still(at_s):
            tokens += 50.0
        rank = RankReading("0", {DECODE_TOKENS: tokens}, {RUNNING: running}, {})
        yield EngineReading("e", "http://h:1", EndpointState.OK, float(at_s), ranks=(rank,))


def every(period_s: int, pause_s: int) -> Callable[[int], bool]:
    """The end of each period is a pause."""
    return lambda at_s: at_s % period_s >= period_s - pause_s


def watched(stands_still: Callable[[int], bool], seconds: int, **load: float) -> Pauses:
    pauses = Pauses()
    for reading in polls(stands_still, seconds, **load):
        pauses.add(reading)
    return pauses


@each_row(("period_s", "pause_s"), [(45, 12), (30, 8), (240, 20)])
def test_three_periods_make_a_rhythm(period_s: int, pause_s: int) -> None:
    still = every(period_s, pause_s)
    assert watched(still, 3 * period_s + 4).rhythm(3.0 * period_s) is None, "three pauses are two periods"
    rhythm = watched(still, 4 * period_s + 4).rhythm(4.0 * period_s + 2.0)
    assert rhythm is not None
    assert rhythm.period_s == pytest.approx(period_s, abs=1.0)
    assert rhythm.pause_s == pytest.approx(pause_s, abs=2.1)
    assert watched(still, 4 * period_s + 4).rhythm(6.0 * period_s) is None, "it is over"


def test_a_page_that_does_not_answer_in_the_pauses_hides_none() -> None:
    still = every(45, 12)
    pauses = Pauses()
    for reading in polls(still, 184):
        if not still(int(reading.monotonic_s)):
            pauses.add(replace(reading, interval_s=2.0))
    rhythm = pauses.rhythm(182.0)
    assert rhythm is not None
    assert (rhythm.period_s, rhythm.pause_s) == pytest.approx((45.0, 13.0), abs=1.0)


def test_pauses_at_uneven_distances_are_none() -> None:
    begins = (20, 50, 110, 130, 200)
    assert watched(lambda at_s: any(begin <= at_s < begin + 10 for begin in begins), 220).rhythm(215.0) is None


@each_row(("pause_s", "load"), [(2, {}), (12, {"running": 0.0})])
def test_a_moment_or_an_engine_without_requests_is_no_pause(pause_s: int, load: dict[str, float]) -> None:
    assert watched(every(30, pause_s), 200, **load).rhythm(198.0) is None


def played(gpu_in_pauses: Mapping[str, Any]) -> Snapshot:
    """An engine that stands still for 12 s of every 45, and what its GPU does meanwhile."""
    stage = Stage()
    stands_still = every(45, 12)
    readings = {int(reading.monotonic_s): reading for reading in polls(stands_still, 240)}
    last: Snapshot | None = None
    for at_s in range(240):
        card = gpu_in_pauses if stands_still(at_s) else BUSY
        *cards, one = scene(gpus=card)(at_s)
        poll = readings[at_s - at_s % 2]
        read = replace(one.read, ranks=poll.ranks, monotonic_s=1000.0 + poll.monotonic_s)
        last = stage.tick(*cards, Of(read, one.shown))
    assert last is not None
    return last


def test_an_engine_that_rests_in_a_rhythm_is_stopped_by_something() -> None:
    found = of_engine(played(IDLE), Family.LIMIT)
    assert found is not None
    assert (found.code, found.level) == (Limit.PERIODIC_STALLS, Level.WARN)
    assert verdict_text(found).startswith("no token for about 14 s every 45 s (4 times in a row)")
    assert "(py-spy dump --pid 4711)" in actions_text(found)


@each_row(
    "gpu",
    [
        BUSY,  # long prompts
        {**IDLE, "nvlink_bytes_per_s": 3e10},  # new weights
        {"busy_ratio": 1.0, "sm_active_ratio": NOT_SUPPORTED, "tensor_active_ratio": NOT_SUPPORTED},
        dict.fromkeys(("busy_ratio", "sm_active_ratio", "tensor_active_ratio"), NOT_SUPPORTED),
    ],
)
def test_pauses_with_a_reason_or_without_a_sign_are_not_called_so(gpu: dict[str, Any]) -> None:
    assert Limit.PERIODIC_STALLS not in limits(played(gpu))
