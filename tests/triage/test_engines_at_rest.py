"""An engine is judged when it was polled anew, and now and then between."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Family, Kind, Limit
from gpumon.triage.signals import Case, Finding
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, WORKS
from tests.triage.stage import Of, Stage, engine, gpu

EVERY_S = 5
HOLD_S = 10.0


class Asked:
    """A rule that finds something from a moment on, and knows when it was asked about whom."""

    def __init__(self, from_s: float) -> None:
        self.at: dict[str, list[float]] = {}
        self._from_s = from_s

    def find(self, case: Case) -> Finding | None:
        self.at.setdefault(case.key, []).append(case.now_s - 1000.0)
        return Finding(Limit.QUEUE_LIMIT, "found", {}) if case.now_s - 1000.0 >= self._from_s else None


def played(count: int, seconds: int, from_s: float) -> tuple[Asked, list[int]]:
    """What the rule was asked, and how many verdicts stood at each tick; engines are polled in turn, each every 5 s."""
    asked, stage, verdicts = Asked(from_s), Stage(), []
    stage.triage = Triage(Thresholds(hold_s=HOLD_S), rules={(Kind.ENGINE, Family.LIMIT): (asked.find,)})
    things: dict[int, Of] = {}
    for at in range(seconds):
        for number in range(count):
            if number not in things or at % EVERY_S == number % EVERY_S:
                things[number] = engine(url=f"http://e{number}", name=f"e{number}", read_s=float(at))
        verdicts.append(len(stage.tick(*things.values()).verdicts))
    return asked, verdicts


@pytest.mark.parametrize("number", [0, 3])
def test_engines_are_judged_at_each_poll_and_every_other_second(number: int) -> None:
    asked, _ = played(6, 20, 5.0)
    at = asked.at[f"http://e{number}"]
    assert {float(second) for second in range(number, 20, EVERY_S)} <= set(at)
    assert max(b - a for a, b in pairwise(at)) == 2.0
    assert len(at) < 15


def test_verdicts_stand_and_hold_between_two_looks() -> None:
    _, verdicts = played(6, 40, 5.0)
    assert verdicts[:14] == [0] * 14
    assert verdicts[20:] == [6] * 20
    assert verdicts == sorted(verdicts)


def test_an_engine_whose_gpu_is_lost_is_judged_at_once() -> None:
    """Though its next poll is a minute away."""
    stage, healthy = Stage(), ("e0", Limit.HEALTHY)
    read = [engine(name=f"e{at}", url=f"http://e{at}", gpus=(at,), **WORKS) for at in range(6)]
    engines = [Of(replace(one.read, interval_s=60.0), one.shown) for one in read]
    cards = [gpu(at, **{**BUSY, "processes": ()}) for at in range(6)]
    before = stage.play(65, (*cards, *engines))
    assert healthy in [(one.scope, one.code) for one in before.verdicts]
    lost = gpu(0, **{**IDLE, "processes": (), "state": GpuState.LOST})
    told = [(one.scope, one.code) for one in stage.tick(lost, *cards[1:], *engines).verdicts]
    assert ("gpu 0", Limit.HARDWARE_FAULT) in told
    assert healthy not in told


def test_healthy_does_not_fade_beside_a_state_that_is_a_warning() -> None:
    stage = Stage()
    fine = gpu(0, **{**BUSY, "processes": ()})
    braked = gpu(0, **{**BUSY, "processes": (), "throttle": ("hw_power_brake_slowdown",)})
    served = engine(**WORKS)
    assert Limit.HEALTHY in [one.code for one in stage.play(80, (fine, served)).verdicts]
    stood = [[one.code for one in stage.tick(braked, served).verdicts if one.kind is Kind.ENGINE] for _ in range(60)]
    assert Limit.THROTTLED in stood[-1]
    assert not any(Limit.THROTTLED in codes and Limit.HEALTHY in codes for codes in stood)
