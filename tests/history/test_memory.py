"""The flight recorder: what it gives back, what it lets go, and what it does while others read."""

from __future__ import annotations

import threading

import pytest

from gpumon.demo.scenarios import DEMO
from gpumon.history.frame_store import Tick
from gpumon.history.memory import MemoryStore
from gpumon.readings.frame import Frame
from tests.history.frames import WALL_S, served
from tests.history.pasts import lived
from tests.records import replace


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return list(served(60 * 5 + 10, cast=DEMO.cast[1:2]))


def test_it_gives_back_what_was_kept(frames: list[Frame]):
    frames = frames[:205]
    ring = MemoryStore(3600.0, 1e9)
    shown = lived(frames, ring)
    for settled in (False, True):
        if settled:
            ring.settle()
        assert ring.span() == (frames[0].wall_s, frames[-1].wall_s)
        assert list(ring.frames(WALL_S + 70.0, WALL_S + 130.0)) == [
            frame for frame in frames if 70.0 <= frame.wall_s - WALL_S <= 130.0
        ]
        assert ring.before(frames[61].wall_s) == frames[60].wall_s
        assert ring.after(frames[61].wall_s) == frames[62].wall_s
        assert ring.before(frames[0].wall_s) is None
        assert ring.after(frames[-1].wall_s) is None
    events = [event for snapshot in shown for event in snapshot.events]
    assert events
    assert sorted(ring.events(0.0, 2e9), key=repr) == sorted(events, key=repr)


def test_its_points_are_means_of_five_seconds(frames: list[Frame]):
    ring = MemoryStore(3600.0, 1e9)
    for frame in frames[:121]:
        ring.keep(Tick(frame, {"busy": float(frame.seq)}, ()))
    ring.settle()
    points = ring.points(WALL_S, WALL_S + 200.0)
    assert [point.values["busy"] for point in points[:3]] == [3.0, 8.0, 13.0]
    assert len(points) == 24
    assert [point.seconds for point in points] == [5.0] * 24


def test_old_minutes_go(frames: list[Frame]):
    ring = MemoryStore(120.0, 1e9)
    for frame in frames:
        ring.keep(Tick(frame, {}, ()))
    span = ring.span()
    assert span is not None
    assert 120.0 <= span[1] - span[0] <= 181.0


def test_memory_is_bounded_whatever_the_minutes(frames: list[Frame]):
    ring = MemoryStore(3600.0, 1.2e6)
    deepest = 0
    for frame in frames:
        ring.keep(Tick(frame, {}, ()))
        deepest = max(deepest, ring.bytes)
    ring.settle()
    assert deepest < 2.0e6, "the minute that is being filled comes beside it"
    assert ring.bytes < 1.2e6
    span = ring.span()
    assert span is not None
    assert span[1] - span[0] < 280.0


def test_a_clock_set_back_hides_what_came_again_and_nothing_else(frames: list[Frame]):
    ring = MemoryStore(3600.0, 1e9)
    back = [replace(frame, wall_s=frame.wall_s - 100.0) for frame in frames[150:200]]
    for frame in (*frames[:150], *back):
        ring.keep(Tick(frame, {}, ()))
    ring.settle()
    again = [frame for frame in frames[:150] if back[0].wall_s <= frame.wall_s <= back[-1].wall_s]
    assert len(again) in (49, 50), "frames come some ms early or late"
    kept = ring.frames(WALL_S, WALL_S + 1000.0)
    told = [frame for frame in frames[:150] if frame not in again]
    assert [frame.seq for frame in kept] == [frame.seq for frame in (*told, *back)]
    later = ring.frames(back[20].wall_s - 0.2, WALL_S + 1000.0)
    assert [frame.seq for frame in later][-30:] == [frame.seq for frame in back[20:]]
    assert again[21].seq not in {frame.seq for frame in later}, "a part of it is told as the whole"
    before = ring.before(back[0].wall_s)
    assert before is not None
    assert before < back[0].wall_s


def test_it_is_read_while_it_is_filled(frames: list[Frame]):
    ring = MemoryStore(150.0, 1e9)
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            span = ring.span()
            if span is None:
                continue
            seqs = [frame.seq for frame in ring.frames(*span)]
            if seqs != list(range(seqs[0], seqs[0] + len(seqs))) if seqs else False:
                wrong.append(f"{seqs}")

    reader = threading.Thread(target=read)
    reader.start()
    for frame in frames:
        ring.keep(Tick(frame, {}, ()))
    done.set()
    reader.join()
    assert not wrong
    assert ring.span() is not None
