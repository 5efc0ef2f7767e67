"""The fleet from frame to frame: rates, unchanged readings, hosts that go, and what their own gpumon worked out."""

from __future__ import annotations

from typing import Any

from gpumon.fleet.fleet import GONE_HOST_S, Fleet
from gpumon.fleet.rows import by_host, total_row
from gpumon.fleet.snapshot import HostShown, HostState
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import EndpointState, Fault, XidEvent
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Limit, Snapshot
from tests.fleet.fleets import EVERY_S, fed, fleet_frame, make
from tests.records import replace


def later(frame: FleetFrame, seconds: float, **changes: Any) -> FleetFrame:
    return replace(frame, wall_s=frame.wall_s + seconds, **changes)


def without(frame: FleetFrame, *names: str) -> FleetFrame:
    return replace(frame, hosts=tuple(host for host in frame.hosts if host.name not in names))


def shown(fleet: Fleet, name: str) -> HostShown:
    found = fleet.snapshot.host(name)
    assert found is not None
    return found


def decodes(snapshot: Snapshot) -> list[object]:
    return [engine.rates.decode_tokens_per_s for engine in snapshot.engines]


def test_two_scrapes_give_rates():
    first = fed(fleet_frame(0)).hosts[0].snapshot
    assert all(isinstance(rate, Missing) for rate in decodes(first))
    second = fed(fleet_frame(2), fleet_frame(3)).hosts[0].snapshot
    assert all(isinstance(rate, float) and rate > 0.0 for rate in decodes(second))


def test_a_frame_without_new_readings_keeps_the_rates_and_makes_no_zero():
    fleet = Fleet(make())
    before = fed(*(fleet_frame(at) for at in range(5)), fleet=fleet)
    again = fed(*(later(fleet_frame(4), seconds) for seconds in (1.0, 5.0, 14.0)), fleet=fleet)
    for old, new in zip(before.hosts, again.hosts, strict=True):
        assert decodes(new.snapshot) == decodes(old.snapshot)
        assert [gpu.reading.busy_ratio for gpu in new.snapshot.gpus] == [
            gpu.reading.busy_ratio for gpu in old.snapshot.gpus
        ]


def test_the_rates_are_right_whatever_the_refreshes_are():
    """Refreshes every 5 s, every 15 s and every 60 s see the same counters of scrapes every 15 s."""
    every = fed(*(fleet_frame(at) for at in range(9)))
    often = fed(*(later(fleet_frame(at), wait) for at in range(9) for wait in (0.0, 5.0, 10.0)))
    assert decodes(often.hosts[0].snapshot) == decodes(every.hosts[0].snapshot)
    seldom = fed(*(fleet_frame(at) for at in (0, 4, 8)), fleet=Fleet(make(), 60.0))
    assert all(isinstance(rate, float) and rate > 0.0 for rate in decodes(seldom.hosts[0].snapshot))


def test_what_is_older_than_three_scrapes_has_no_figures():
    fleet = Fleet(make())
    fed(*(fleet_frame(at) for at in range(4)), fleet=fleet)
    fed(later(fleet_frame(3), 3 * EVERY_S + 1), fleet=fleet)
    host = shown(fleet, "gpu01")
    assert host.state is HostState.STALE
    assert {rate.reason for rate in decodes(host.snapshot) if isinstance(rate, Missing)} == {Reason.STALE}
    assert all(gpu.reading.busy_ratio == Missing(Reason.STALE) for gpu in host.snapshot.gpus)


def test_a_host_that_vanished_is_gone_with_its_last_moment_and_then_dropped():
    fleet = Fleet(make())
    before = fed(fleet_frame(0), fleet_frame(1), fleet=fleet).hosts[1].snapshot
    fed(without(fleet_frame(2), "gpu02"), fleet=fleet)
    gone = shown(fleet, "gpu02")
    assert (gone.state, gone.seen_wall_s, gone.snapshot) == (HostState.GONE, fleet_frame(1).wall_s, before)
    fed(later(without(fleet_frame(2), "gpu02"), GONE_HOST_S), fleet=fleet)
    assert [host.name for host in fleet.snapshot.hosts] == ["gpu01", "gpu03"]


def test_a_host_that_comes_back_is_ok_again():
    fleet = Fleet(make())
    fed(fleet_frame(0), without(fleet_frame(1), "gpu02"), fleet_frame(2), fleet_frame(3), fleet=fleet)
    host = shown(fleet, "gpu02")
    assert host.state is HostState.OK
    assert all(isinstance(rate, float) for rate in decodes(host.snapshot))


def test_an_answer_that_is_none_leaves_the_hosts_and_their_time():
    fleet = Fleet(make())
    before = fed(fleet_frame(0), fleet_frame(1), fleet=fleet)
    failed = FleetFrame(
        fleet_frame(2).wall_s, 15.0, faults=(Fault("prometheus", "refused\x1b", 1.8e9),), answered=False
    )
    after = fed(failed, fleet=fleet)
    assert (after.hosts, after.wall_s, after.time) == (before.hosts, before.wall_s, before.time)
    assert after.faults[0].text == "refused\\x1b"
    assert not after.answered
    assert not after.late
    nothing = fed(failed)
    assert (nothing.hosts, nothing.wall_s) == ((), 0.0)


def test_what_was_not_answered_for_too_long_has_no_figures():
    fleet = Fleet(make())
    before = fed(fleet_frame(0), fleet_frame(1), without(fleet_frame(2), "gpu02"), fleet=fleet)
    why = Fault("prometheus", "no answer since\x1b", before.wall_s)
    fleet.mark_late(why)
    late = fleet.snapshot
    assert (late.answered, late.late, late.wall_s) == (False, True, before.wall_s)
    assert [fault.text for fault in late.faults] == ["no answer since\\x1b"]
    assert [host.state for host in late.hosts] == [HostState.STALE, HostState.GONE, HostState.STALE]
    assert {rate for host in late.hosts for rate in decodes(host.snapshot)} == {Missing(Reason.STALE)}
    assert isinstance(total_row(by_host(late, {})).decode_tokens_per_s, Missing)
    assert isinstance(total_row(by_host(late, {})).busy_ratio.value, Missing)
    fleet.mark_late(why)
    assert len(fleet.snapshot.faults) == 1
    again = fed(fleet_frame(3), fleet=fleet)
    assert (again.answered, again.late, again.faults) == (True, False, ())
    assert all(isinstance(rate, float) for rate in decodes(again.hosts[0].snapshot))


def test_a_host_of_which_no_engine_answers_is_unreachable():
    frame = fleet_frame(0)
    down = tuple(replace(one, state=EndpointState.REFUSED, ranks=()) for one in frame.hosts[0].engines)
    only = HostFrame("gpu01", engines=down)
    assert fed(replace(frame, hosts=(only,))).hosts[0].state is HostState.UNREACHABLE


def test_what_a_hosts_own_gpumon_worked_out_is_shown_as_it_is():
    ready = fed(fleet_frame(2), fleet_frame(3)).hosts[0].snapshot
    own = HostFrame("gpu01", exported_snapshot=ready, interval_s=15.0)
    host = fed(FleetFrame(ready.wall_s + 10.0, 15.0, (own,))).hosts[0]
    assert (host.snapshot, host.state, host.own_gpumon) == (ready, HostState.OK, True)


def test_a_gpumon_that_is_silent_is_not_shown_as_fresh():
    ready = fed(fleet_frame(2), fleet_frame(3)).hosts[0].snapshot
    machine = replace(ready.host, cpu_ratio=0.5, memory_used_bytes=1e9, memory_total_bytes=2e9)
    ready = replace(ready, host=machine)
    own = HostFrame("gpu01", exported_snapshot=ready, interval_s=15.0, faults=(Fault("gpumon", "old", ready.wall_s),))
    host = fed(FleetFrame(ready.wall_s + 46.0, 15.0, (own,))).hosts[0]
    assert host.state is HostState.STALE
    assert all(gpu.reading.busy_ratio == Missing(Reason.STALE) for gpu in host.snapshot.gpus)
    assert all(engine.latency.ttft_s.p95 == Missing(Reason.STALE) for engine in host.snapshot.engines)
    assert host.snapshot.verdicts == ()
    assert [fault.text[:14] for fault in host.snapshot.faults] == ["old", "no new figures"]
    assert host.snapshot.gpus[0].flops_peak_per_s == ready.gpus[0].flops_peak_per_s
    assert host.snapshot.host.cpu_ratio == Missing(Reason.STALE)
    assert host.snapshot.host.memory_used_bytes == Missing(Reason.STALE)
    assert host.snapshot.host.memory_total_bytes == 2e9


def test_a_host_whose_gpumon_answers_is_there_though_its_only_engine_is_down():
    ready = fed(fleet_frame(2), fleet_frame(3)).hosts[0].snapshot
    down = replace(ready.engines[0], state=EndpointState.REFUSED, fault="connection refused")
    ready = replace(ready, gpus=(), engines=(down,))
    row = by_host(
        fed(FleetFrame(ready.wall_s + 1.0, 15.0, (HostFrame("gpu01", exported_snapshot=ready, interval_s=15.0),))), {}
    )[0]
    assert (row.state, row.silent, row.engines) == (HostState.OK, 1, 1)


def test_verdicts_come_with_frames_every_15_s():
    """Hysteresis holds a verdict for 30 s: three scrapes."""
    found = [fed(*(fleet_frame(at) for at in range(4, 4 + count))) for count in (1, 7)]
    assert not any(verdict.code is Limit.HEALTHY for verdict in found[0].hosts[0].snapshot.verdicts)
    assert any(verdict.code is Limit.HEALTHY for verdict in found[1].hosts[0].snapshot.verdicts)


def test_readings_that_break_the_deriver_cost_their_own_host():
    frame = fleet_frame(1)
    broken = replace(frame.hosts[0], gpus=(*frame.hosts[0].gpus, "no GPU"))  # type: ignore[arg-type]
    snapshot = fed(replace(frame, hosts=(broken, *frame.hosts[1:])))
    assert "please report" in snapshot.hosts[0].snapshot.faults[-1].text
    assert len(snapshot.hosts[1].snapshot.gpus) == 8


def test_a_clock_that_was_set_back_begins_anew():
    fleet = Fleet(make())
    fed(fleet_frame(5), fleet_frame(6), fleet_frame(1), fleet_frame(2), fleet_frame(3), fleet=fleet)
    assert all(isinstance(rate, float) for rate in decodes(fleet.snapshot.hosts[0].snapshot))


def test_a_gpu_that_was_idle_for_a_day_and_an_xid_that_stands_are_told_at_once():
    frames = []
    for at in range(4):
        frame = fleet_frame(at)
        first, second, *_ = frame.hosts[0].gpus
        quiet = {"vram_used_bytes": 0.0, "processes": (), "sm_active_ratio": 0.0, "busy_ratio": 0.0, "source": "dcgm"}
        gpus = (
            replace(first, **quiet, idle_since_wall_s=frame.wall_s - 86400.0),
            replace(second, source="dcgm", xid=(XidEvent(79, frame.wall_s - 80000.0),), standing_xid=79),
        )
        frames.append(replace(frame, hosts=(replace(frame.hosts[0], gpus=gpus, engines=()),)))
    found = {verdict.scope: verdict.code for verdict in fed(*frames).hosts[0].snapshot.verdicts}
    assert found["gpu 0"] is Limit.IDLE
    assert found["gpu 1"] is Limit.HARDWARE_FAULT
