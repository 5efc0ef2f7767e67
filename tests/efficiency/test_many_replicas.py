"""A group of many replicas rests between two looks at it; who answers is seen at once, and few never rest."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.replicas import MANY
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.readings.snapshot import Replicas
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.test_deriver import frame
from tests.efficiency.test_replicas import replica
from tests.records import replace

EVERY_S = 5


def polled(number: int, at_s: int, *, down: bool = False) -> EngineReading:
    """One of many that are polled in turn, each every 5 s; one of them may be down at the end."""
    latest_s = at_s - (at_s - number) % EVERY_S
    reading = replace(replica(f"r{number}")(float(latest_s)), interval_s=float(EVERY_S))
    return replace(reading, state=EndpointState.REFUSED) if down else reading


def groups(count: int, seconds: int, *, down_from: int = 10_000) -> list[Replicas]:
    """The group at every second."""
    deriver, found = Deriver(gpu_catalogue()), []
    for at_s in range(20, 20 + seconds):
        readings = [polled(number, at_s, down=number == 0 and at_s >= down_from) for number in range(count)]
        found += deriver.derive(frame(at_s, (), tuple(readings))).snapshot.replicas
    return found


@pytest.mark.parametrize(("count", "shares"), [(MANY, 1.0), (MANY + 4, 0.25)])
def test_only_many_rest(count: int, shares: float) -> None:
    anew = [a is not b for a, b in pairwise(groups(count, 30))]
    assert sum(anew) <= shares * len(anew)
    assert sum(anew) >= 0.6 * shares * len(anew)


@pytest.mark.parametrize("begun_s", range(37, 57))
def test_many_show_the_same_to_one_who_began_later(begun_s: int) -> None:
    """As a jump in time does it."""
    times = range(begun_s - 90, begun_s + 1)
    frames = [frame(at_s, (), tuple(polled(number, at_s) for number in range(MANY + 4))) for at_s in times]
    live, late = Deriver(gpu_catalogue()), Deriver(gpu_catalogue())
    shown = [live.derive(each).snapshot.replicas for each in frames]
    assert [late.derive(each).snapshot.replicas for each in frames[20:]][-1] == shown[-1]


def test_a_slow_one_holds_nobody_up() -> None:
    readings = [polled(number, 20) for number in range(MANY + 4)]
    deriver, found = Deriver(gpu_catalogue()), []
    for at_s in range(20, 60):
        fresh = [polled(number, at_s) for number in range(1, MANY + 4)]
        slow = replace(readings[0], interval_s=60.0)
        found += deriver.derive(frame(at_s, (), (slow, *fresh))).snapshot.replicas
    assert sum(a is not b for a, b in pairwise(found)) >= 6


def test_one_of_many_that_goes_down_is_missed_at_once() -> None:
    found = groups(MANY + 4, 12, down_from=27)
    assert [each.answering for each in found] == [MANY + 4] * 7 + [MANY + 3] * 5
