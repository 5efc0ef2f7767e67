"""An engine is judged when it was polled anew, and now and then between."""

from __future__ import annotations

from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Kind, Limit
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, WORKS
from tests.triage.stage import Of, Stage, engine, gpu


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
