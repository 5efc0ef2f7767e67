"""A deriver and a triage that start within a past, beside those that were there all the time."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import pytest

from gpumon.efficiency.carry import Carry
from gpumon.readings.frame import EndpointState, Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.recording.ring import FlightRecorder
from gpumon.sources.simulator.scenarios import scenario
from tests.recording.frames import WALL_S, captured, served
from tests.recording.opened import begun, opened
from tests.recording.pasts import apart, lived, make

MINUTES = 6


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """Six minutes and a half, in which an engine is gone for most of two minutes."""
    found = list(served(60 * MINUTES + 30))
    return [_silent(frame) if 130 <= frame.wall_s - WALL_S < 230 else frame for frame in found]


def _silent(frame: Frame) -> Frame:
    last = frame.engines[0]
    gone = msgspec.structs.replace(last, state=EndpointState.REFUSED, fault="refused", ranks=())
    return msgspec.structs.replace(frame, engines=(gone, *frame.engines[1:]))


@pytest.fixture(scope="module")
def past(frames: list[Frame]) -> tuple[FlightRecorder, list[Snapshot]]:
    ring = FlightRecorder(3600.0, 1e9)
    shown = lived(frames, ring)
    ring.settle()
    return ring, shown


def without_long_means(snapshot: Snapshot) -> Snapshot:
    """Evidence may be a mean over 2 minutes, of which the first part is sampled every 10 s."""
    verdicts = tuple(msgspec.structs.replace(each, evidence=(), text="", action="") for each in snapshot.verdicts)
    events = tuple(msgspec.structs.replace(each, text="") for each in snapshot.events)
    return msgspec.structs.replace(snapshot, verdicts=verdicts, events=events)


@pytest.mark.parametrize("minute", [1, 3, 4, 5])
def test_from_a_minute_on_all_is_as_it_was(past: tuple[FlightRecorder, list[Snapshot]], minute: int):
    ring, shown = past
    at_s = WALL_S + 60.0 * minute
    course = begun(ring, at_s)
    after = ring.frames(at_s, at_s + 89.0)
    live = {snapshot.wall_s: snapshot for snapshot in shown}
    assert len(after) >= 60
    for frame in after:
        found = course.take(frame).snapshot
        assert apart(without_long_means(live[frame.wall_s]), without_long_means(found)) == []


def test_counts_since_the_start_are_not_those_of_the_warm_up(past: tuple[FlightRecorder, list[Snapshot]]):
    ring, shown = past
    at_s = WALL_S + 60.0 * 5
    frame = ring.frames(at_s, at_s + 1.5)[0]
    found = begun(ring, at_s).take(frame).snapshot
    live = next(snapshot for snapshot in shown if snapshot.wall_s == frame.wall_s)
    assert found.engines[1].tokens_total == live.engines[1].tokens_total
    assert found.gpus[0].energy_j == live.gpus[0].energy_j
    assert found.engines[0].since == live.engines[0].since
    fresh = make()[0].derive(frame).snapshot
    assert fresh.engines[1].tokens_total != found.engines[1].tokens_total


def test_a_real_server_is_as_it_was():
    ring = FlightRecorder(3600.0, 1e9)
    shown = lived(captured("prometheus-api"), ring)
    at_s = shown[len(shown) // 2].wall_s
    minute_s = at_s // 60.0 * 60.0
    course, live = begun(ring, minute_s), {snapshot.wall_s: snapshot for snapshot in shown}
    after: Sequence[Frame] = ring.frames(minute_s, minute_s + 120.0)
    assert after
    for frame in after:
        found = course.take(frame).snapshot
        assert apart(without_long_means(live[frame.wall_s]), without_long_means(found)) == []


@pytest.mark.parametrize("name", ["gpu-off-the-bus", "engine-hang", "engine-mute", "thermal"])
def test_wherever_a_past_is_opened_the_verdicts_of_that_moment_stand(name: str):
    played = scenario(name)
    of = opened(played)
    assert of.apart == []
    assert of.moments >= 130
    assert played.expected in of.limits


def test_a_carry_is_small_and_comes_back_whole(frames: list[Frame]):
    deriver, triage = make()
    for frame in frames:
        triage.judge(frame, deriver.derive(frame).snapshot)
    carry = triage.carry(deriver.carry())
    data = msgspec.msgpack.encode(carry)
    assert len(zlib.compress(data)) < 4096
    assert msgspec.msgpack.decode(data, type=Carry) == carry
    other_deriver, other_triage = make()
    other_deriver.restore(carry)
    other_triage.restore(carry)
    again = other_triage.carry(other_deriver.carry())
    assert (again.engines, again.gpus, again.faults, again.holds) == (
        carry.engines,
        carry.gpus,
        carry.faults,
        carry.holds,
    )


def test_a_process_that_began_anew_takes_nothing_from_the_one_before(frames: list[Frame]):
    ring = FlightRecorder(3600.0, 1e9)
    later = [
        msgspec.structs.replace(frame, wall_s=frame.wall_s + 400.0, monotonic_s=frame.monotonic_s - 100.0)
        for frame in frames[:90]
    ]
    lived(frames, ring)
    live = {snapshot.wall_s: snapshot for snapshot in lived(later, ring)}
    at_s = later[0].wall_s
    course = begun(ring, at_s - 30.0)
    for frame in ring.frames(at_s - 30.0, at_s + 100.0):
        found = course.take(frame).snapshot
        if frame.wall_s in live:
            assert apart(without_long_means(live[frame.wall_s]), without_long_means(found)) == []
