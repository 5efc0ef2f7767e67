"""A group of many replicas rests between two looks at it; who answers is seen at once, and few never rest."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.replicas import MANY
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.readings.snapshot import Replicas
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.test_deriver import frame
from tests.efficiency.test_replicas import replica

EVERY_S = 5


def polled(number: int, at_s: int, *, down: bool = False) -> EngineReading:
    """One of many that are polled in turn, each every 5 s; one of them may be down at the end."""
    latest_s = at_s - (at_s - number) % EVERY_S
    reading = msgspec.structs.replace(replica(f"r{number}")(float(latest_s)), interval_s=float(EVERY_S))
    return msgspec.structs.replace(reading, state=EndpointState.REFUSED) if down else reading


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


def test_one_of_many_that_goes_down_is_missed_at_once() -> None:
    found = groups(MANY + 4, 12, down_from=27)
    assert [each.answering for each in found] == [MANY + 4] * 7 + [MANY + 3] * 5
