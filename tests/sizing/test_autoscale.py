"""What an autoscaler is told: replicas by the planner's capacity, headroom, and the nearest limit."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing, number
from gpumon.session.autoscaler import forecast_loads
from gpumon.sizing.autoscale import ModelNeed, ReplicaCapacity, model_needs, replica_capacities
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.live import from_live
from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario
from tests.records import replace
from tests.sizing.live_scenes import at, engine, gone, gpu
from tests.sizing.questions import KNOWN

CAPACITY = {"llama": ReplicaCapacity(planned=20.0, kv=50.0, slots=40.0)}
PAST = {"llama": PeakLoad(peak=61.0, mean=35.0, seconds=300.0)}


def need(*engines, capacities=CAPACITY, loads=PAST, forecasts=None) -> ModelNeed:
    (found,) = model_needs(at(0, *engines), capacities, loads, forecasts or {})
    return found


def test_replicas_are_those_of_the_mean_the_peak_and_the_forecast():
    found = need(engine(15.0, mfu_ratio=0.3), engine(12.0, "b", waiting=3.0, mbu_ratio=0.5), forecasts={"llama": 81.0})
    assert (found.replicas, found.load, found.capacity) == (2, 30.0, 20.0)
    assert (found.needed_for_mean, found.needed_for_peak, found.needed_for_forecast) == (2.0, 4.0, 5.0)
    assert number(found.headroom_ratio) == pytest.approx(1.0 - 61.0 / 40.0)
    assert found.saturations == {"kv": 0.3, "slots": 0.375, "compute": 0.3, "bandwidth": 0.5}
    assert found.saturation_ratio == 0.5


def test_nothing_is_said_without_a_capacity_or_a_past():
    untold = need(engine(15.0), capacities={})
    assert isinstance(untold.needed_for_peak, Missing)
    assert isinstance(untold.headroom_ratio, Missing)
    assert isinstance(untold.saturation_ratio, Missing)
    assert untold.load == 15.0
    new = need(engine(15.0), loads={})
    assert isinstance(new.needed_for_mean, Missing)
    assert new.capacity == 20.0


def test_a_model_at_rest_keeps_one_and_an_engine_that_is_gone_is_no_replica():
    idle = need(engine(0.0), gone("b"), loads={"llama": PeakLoad(0.0, 0.0, 300.0)})
    assert (idle.replicas, idle.needed_for_peak, idle.needed_for_forecast) == (1, 1.0, 1.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_capacity_is_the_planners(ranks: int):
    """For the same engines, goals and load as `gpumon size` would plan; a replica has all its ranks."""
    calibration = Calibration()
    for second, running in enumerate((4.0, 12.0, 24.0, 32.0)):
        for tick in range(11):
            shot = at(second * 11 + tick, engine(running * ranks, ranks=ranks), gpus=(gpu(),))
            calibration.take(shot)
    base = Scenario(itl_mean_ms=30.0)
    found = replica_capacities(shot, calibration.observed(), base, KNOWN)["llama"]
    (workload,) = plan(from_live(shot, calibration.observed(), base), KNOWN).workloads
    assert found.planned == number(workload.capacity_per_instance) * ranks
    if ranks == 1:
        assert found.planned == 32.0  # 10 ms + 0.5 ms a request: 30 ms at 40, planned with 0.8 of that
    unseen = replica_capacities(shot, (), base, KNOWN)
    assert unseen == {}
    without_lengths = [replace(seen, prompt_tokens=None) for seen in calibration.observed()]
    assert replica_capacities(shot, without_lengths, base, KNOWN) == {}


def test_a_load_is_carried_on_only_where_it_moves_for_certain():
    rising = [(10.0 * step, 20.0 + step) for step in range(1, 31)]
    level = [(10.0 * step, 20.0 + (step % 3)) for step in range(1, 31)]
    short = rising[:5]
    found = forecast_loads({"rising": rising, "level": level, "short": short})
    assert found == {"rising": pytest.approx(50.0 + 29.0)}  # no further than it has been seen to rise
    falling = forecast_loads({"falling": [(time_s, 100.0 - load) for time_s, load in rising]})
    assert falling == {"falling": pytest.approx(50.0 - 29.0)}
