"""A fleet as one machine, and sizing on it."""

from __future__ import annotations

from gpumon.config.schema import Config
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.fleet.whole import whole_fleet
from gpumon.session.calibrator import Calibrator
from gpumon.sizing.live import from_live, instances_here
from gpumon.sizing.live_gpus import gpus_here
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Server
from tests.fleet.fleets import fed, fleet_frame, make
from tests.records import replace

H100 = "H100 SXM5 80GB"


def cut(fleet: FleetSnapshot, at: int, gpus: int) -> FleetSnapshot:
    """The fleet with a host of fewer GPUs, and no engine on them."""
    host = fleet.hosts[at]
    here = tuple(replace(gpu, engines=(), processes=(), vram_used_bytes=0.0)
                 for gpu in host.snapshot.gpus[:gpus])  # fmt: skip
    host = replace(host, snapshot=replace(host.snapshot, gpus=here, engines=()))
    return replace(fleet, hosts=(*fleet.hosts[:at], host, *fleet.hosts[at + 1 :]))


def test_each_gpu_and_engine_is_there_once_under_a_name_of_its_own():
    fleet = fed(fleet_frame(0), fleet_frame(1))
    shot = whole_fleet(fleet)
    assert [gpu.reading.index for gpu in shot.gpus] == [*range(24)]
    assert [gpu.reading.host for gpu in shot.gpus] == [name for name in ("gpu01", "gpu02", "gpu03") for _ in range(8)]
    assert len({engine.key for engine in shot.engines}) == len({engine.name for engine in shot.engines}) == 12
    by_index = {gpu.reading.index: gpu for gpu in shot.gpus}
    for engine in shot.engines:
        assert engine.name.startswith(tuple(f"{by_index[index].reading.host}/" for index in engine.hardware.gpus))
        assert all(engine.name in by_index[index].engines for index in engine.hardware.gpus)


def test_servers_are_grouped_by_type_and_gpus_per_host():
    shot = whole_fleet(cut(fed(fleet_frame(0), fleet_frame(1)), 2, 4))
    scenario = from_live(shot, ())
    assert scenario.server == (Server(H100, gpus=8), Server(H100, gpus=4))
    assert "servers here: 2 of 8 x H100 SXM5 80GB, 1 of 4 x H100 SXM5 80GB" in scenario.note
    assert gpus_here(shot) == ((H100, 20),)
    assert sum(instances_here(shot).values()) >= 8


def test_a_host_that_is_gone_is_not_planned_with():
    fleet = fed(fleet_frame(0), fleet_frame(1))
    gone = replace(fleet.hosts[0], state=HostState.GONE)
    assert len(whole_fleet(replace(fleet, hosts=(gone, *fleet.hosts[1:]))).gpus) == 16


def test_a_plan_stands_on_what_the_whole_fleet_showed():
    fleet, calibrator = Fleet(make()), Calibrator(Config())
    for at in range(12):
        calibrator.take(whole_fleet(fed(fleet_frame(at), fleet=fleet)))
    shot = whole_fleet(fleet.snapshot)
    scenario = from_live(shot, calibrator.calibration.observed(), None, calibrator.calibration.in_flight())
    llama = next(each for each in scenario.workload if "70B" in each.model)
    running = sum(
        engine.load.running
        for engine in shot.engines
        if "70B" in engine.model and isinstance(engine.load.running, float)
    )
    assert llama.seen is not None
    assert llama.target >= running * 0.5
    scenario = replace(scenario, workload=(llama,))
    answer = plan(scenario, calibrator.catalogues(), dict(gpus_here(shot)))
    assert not answer.problem
    assert answer.have is not None
    assert answer.have.gpus == 24
