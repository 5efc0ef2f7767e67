"""A deriver and a triage that start three minutes before a moment of a past, beside those that ran all along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumon.demo.scenarios import DEMO, scenario
from gpumon.history.frame_store import SEGMENT_S
from gpumon.history.memory import MemoryStore
from gpumon.history.reader import Recording
from gpumon.readings.format import wall_of
from gpumon.readings.frame import Frame
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot
from tests.history.frames import FOURTH, WALL_S, captured, served, silent
from tests.history.opened import begun, opened
from tests.history.pasts import apart, lived, without_longer
from tests.records import replace

EVERY_S = 4
"""Seconds between two frames."""
FIRST_EDITION = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """Six minutes of two engines and three GPUs, in which an engine is gone for most of two minutes."""
    frames = []
    for served_frame in served(60 * 6 + 5, cast=(DEMO.cast[1], FOURTH), every=EVERY_S):
        frame = replace(served_frame, gpus=(served_frame.gpus[4], *served_frame.gpus[6:]))
        if 130 <= frame.wall_s - WALL_S < 230:
            frame = silent(frame)
        frames.append(frame)
    return frames


@pytest.fixture(scope="module")
def past(frames: list[Frame]) -> tuple[MemoryStore, list[Snapshot]]:
    ring = MemoryStore(3600.0, 1e9)
    shown = lived(frames, ring)
    ring.settle()
    return ring, shown


def same(live: Snapshot, found: Snapshot) -> bool:
    return apart(without_longer(live), without_longer(found)) == []


@pytest.mark.parametrize("minute", [1, 5])
def test_from_a_minute_on_all_is_as_it_was(past: tuple[MemoryStore, list[Snapshot]], minute: int) -> None:
    ring, shown = past
    at_s = WALL_S + 60.0 * minute
    course = begun(ring, at_s)
    after = ring.frames(at_s, at_s + 60.0)
    live = {snapshot.wall_s: snapshot for snapshot in shown}
    assert len(after) >= 60 / EVERY_S
    for frame in after:
        assert same(live[frame.wall_s], course.take(frame).snapshot)


def test_sums_begin_with_the_warm_up_and_say_so(past: tuple[MemoryStore, list[Snapshot]]) -> None:
    ring, shown = past
    at_s = WALL_S + 60.0 * 5
    frame = ring.frames(at_s, at_s + EVERY_S)[0]
    found = begun(ring, at_s).take(frame).snapshot
    live = {snapshot.wall_s: snapshot for snapshot in shown}
    since_s = wall_of(found.counted_since)
    assert at_s - 180.0 - EVERY_S < since_s < at_s - 180.0 + EVERY_S
    began = next(snapshot for snapshot in shown if abs(snapshot.wall_s - since_s) < 0.01)
    made, before = (each.engines[1].tokens_total.decode for each in (live[frame.wall_s], began))
    assert not isinstance(made, Missing)
    assert not isinstance(before, Missing)
    assert found.engines[1].tokens_total.decode == pytest.approx(made - before)
    assert live[frame.wall_s].counted_since == ""


def test_a_real_server_is_as_it_was() -> None:
    ring = MemoryStore(3600.0, 1e9)
    shown = lived(captured("prometheus-api"), ring)
    at_s = shown[len(shown) // 2].wall_s
    course, live = begun(ring, at_s), {snapshot.wall_s: snapshot for snapshot in shown}
    after: Sequence[Frame] = ring.frames(at_s, at_s + 120.0)
    assert after
    for frame in after:
        assert same(live[frame.wall_s], course.take(frame).snapshot)


@pytest.mark.parametrize(
    "name",
    [
        "engine-hang",
        *(pytest.param(name, marks=pytest.mark.wide) for name in ("gpu-off-the-bus", "engine-mute", "thermal")),
    ],
)
def test_wherever_a_past_is_opened_the_verdicts_of_that_moment_stand(name: str) -> None:
    played = scenario(name)
    of = opened(played, every=6, every_s=EVERY_S)
    assert of.apart == []
    assert of.moments >= 3 * int(SEGMENT_S / EVERY_S)
    assert of.limits


def test_a_process_that_began_anew_takes_nothing_from_the_one_before(frames: list[Frame]) -> None:
    ring = MemoryStore(3600.0, 1e9)
    later = [
        replace(frame, wall_s=frame.wall_s + 400.0, monotonic_s=frame.monotonic_s - 100.0) for frame in frames[:23]
    ]
    lived(frames[75:], ring)
    live = {snapshot.wall_s: snapshot for snapshot in lived(later, ring)}
    at_s = later[0].wall_s
    course = begun(ring, at_s - 30.0)
    for frame in ring.frames(at_s - 30.0, at_s + 100.0):
        found = course.take(frame).snapshot
        if frame.wall_s in live:
            assert same(live[frame.wall_s], found)


def test_a_recording_of_the_version_0_1_is_opened_at_its_last_moment() -> None:
    recording = Recording(FIRST_EDITION)
    *_, last = recording.frames(0.0, 4e9)
    found = begun_in(recording, last).engines
    assert len(found) == 4
    assert all(not isinstance(engine.efficiency.mbu_ratio, Missing) for engine in found)


def begun_in(recording: Recording, frame: Frame) -> Snapshot:
    """The moment of a frame of a file."""
    return begun(recording, frame.wall_s).take(frame).snapshot
