"""Going to and fro in a past: every moment is the one that was shown then."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gpumon.demo.scenarios import DEMO
from gpumon.history.file import make_recording, open_connection
from gpumon.history.frame_store import Tick
from gpumon.history.memory import MemoryStore
from gpumon.history.reader import Recording
from gpumon.history.recorder import Writer, write_recording
from gpumon.history.timeline import DerivedTimeline
from gpumon.readings.frame import Frame
from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Snapshot
from tests.history.frames import WALL_S, served, silent
from tests.history.pasts import apart, lived, make, without_longer
from tests.records import replace

T = TypeVar("T")


class Writing:
    """Writes each tick at once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.busy: list[float] = []

    def keep(self, kept: Tick) -> None:
        self.busy.append(kept.points["busy"])
        self._writer.write([kept])

    def fault(self, _wall_s: float = 0.0) -> None:
        return None


EVERY_S = 2
"""Seconds between two frames."""


SILENT = slice(80, 88)


class Live:
    """Four minutes of an engine and two GPUs: in memory and in a file. Frame `n` is of second `EVERY_S * n`.

    The engine does not answer in the frames of `SILENT`, so that verdicts change and change back.
    """

    def __init__(self, folder: Path) -> None:
        frames = served(60 * 4 + 10, cast=DEMO.cast[1:2], every=EVERY_S)
        self.frames = [replace(frame, gpus=(frame.gpus[4], frame.gpus[7])) for frame in frames]
        self.frames[SILENT] = map(silent, self.frames[SILENT])
        self.ring = MemoryStore(3600.0, 1e9)
        self.recorded = folder / "recorded.sqlite"
        make_recording(self.recorded, {"host": "box"})
        with contextlib.closing(open_connection(self.recorded, "rw")) as connection:
            writer = Writer(connection)
            written = Writing(writer)
            self.shown = lived(self.frames, self.ring, written)
            self.busy = written.busy
            writer.finish()
        self.ring.settle()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    return Live(tmp_path_factory.mktemp("past"))


@pytest.fixture(params=["memory", "recorded"], scope="module")
def timeline(request: pytest.FixtureRequest, live: Live) -> DerivedTimeline:
    """One for all tests that go to and fro in it, as a user does."""
    past = Recording(live.recorded) if request.param == "recorded" else live.ring
    return DerivedTimeline(past, make, lambda path: None)


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(main(), 60.0)

    return asyncio.run(bounded())


def same(moment: PastMoment | None, snapshot: Snapshot) -> bool:
    assert moment is not None
    return apart(without_longer(moment.snapshot), without_longer(snapshot)) == []


def test_a_moment_is_the_last_one_at_or_before_a_time(live: Live, timeline: DerivedTimeline):
    async def main() -> None:
        for at in (108, 2, 30):
            assert same(await timeline.at(live.frames[at].wall_s), live.shown[at])
            assert same(await timeline.at(live.frames[at].wall_s + 0.5), live.shown[at])
        assert same(await timeline.at(0.0), live.shown[0])
        assert same(await timeline.at(2e9), live.shown[-1])

    run(main)
    assert timeline.span() == (live.frames[0].wall_s, live.frames[-1].wall_s)


def test_once_the_past_is_left_its_moments_are_forgotten_and_can_be_had_again(live: Live, timeline: DerivedTimeline):
    async def main() -> None:
        wall_s = live.frames[30].wall_s
        first, again = await timeline.at(wall_s), await timeline.at(wall_s)
        assert first is not None
        assert again is not None
        assert again.snapshot is first.snapshot, "going to and fro is a look-up"
        timeline.leave()
        anew = await timeline.at(wall_s)
        assert anew is not None
        assert anew.snapshot is not first.snapshot
        assert same(anew, live.shown[30])

    run(main)


def test_a_moment_that_is_worked_out_as_the_past_is_left_is_forgotten_too(live: Live, timeline: DerivedTimeline):
    async def main() -> None:
        wall_s = live.frames[90].wall_s
        asked_for = asyncio.ensure_future(timeline.at(wall_s))
        await asyncio.sleep(0)  # it is the thread's now
        timeline.leave()
        late = await asked_for
        anew = await timeline.at(wall_s)
        assert late is not None
        assert anew is not None
        assert anew.snapshot is not late.snapshot

    run(main)


def test_any_second_of_a_recording_is_as_it_was(live: Live):
    """From a file that is opened anew."""

    async def main() -> None:
        recording = Recording(live.recorded)
        moment = await DerivedTimeline(recording, make, lambda path: None).at(live.frames[102].wall_s)
        assert same(moment, live.shown[102])
        recording.close()

    run(main)


def test_charts_mark_each_event_once(live: Live):
    events = sorted(event.wall_s for shown in live.shown[:105] for event in shown.events)
    assert events

    async def main() -> None:
        timeline = DerivedTimeline(Recording(live.recorded), make, lambda path: None)
        moment = await timeline.at(live.frames[int(events[-1] - WALL_S) // EVERY_S - 3].wall_s)
        while moment is not None and moment.snapshot.wall_s < live.frames[104].wall_s:
            moment = await timeline.step(moment.snapshot.wall_s, 1)
        assert moment is not None
        marked = moment.history.events(0.0, live.frames[104].wall_s)
        assert sorted(event.wall_s for event in marked) == events

    run(main)


def test_steps_go_frame_by_frame_over_the_edges_of_minutes(live: Live, timeline: DerivedTimeline):
    async def main() -> None:
        for begin, step in ((57, 1), (92, -1)):
            moment = await timeline.at(live.frames[begin].wall_s)
            for at in range(begin + step, begin + 6 * step, step):
                assert moment is not None
                moment = await timeline.step(moment.snapshot.wall_s, step)
                assert same(moment, live.shown[at])
        assert same(await timeline.step(live.frames[50].wall_s, 50), live.shown[100])
        assert same(await timeline.step(live.frames[50].wall_s, -1000), live.shown[0])
        assert same(await timeline.step(live.frames[50].wall_s, 1000), live.shown[-1])

    run(main)


def test_it_goes_from_one_change_of_a_verdict_to_the_next(live: Live, timeline: DerivedTimeline):
    changes = sorted({e.wall_s for s in live.shown for e in s.events if e.wall_s == s.wall_s})
    assert len(changes) >= 2

    async def main() -> None:
        found, at_s = [], 0.0
        while (moment := await timeline.change(at_s, 1)) is not None:
            found.append(at_s := moment.snapshot.wall_s)
        assert found == changes
        found, at_s = [], 2e9
        while (moment := await timeline.change(at_s, -1)) is not None:
            found.append(at_s := moment.snapshot.wall_s)
        assert found == changes[::-1]

    run(main)


def test_the_charts_end_at_the_moment_and_go_back_as_far_as_there_are_points(live: Live, timeline: DerivedTimeline):
    async def main() -> None:
        moment = await timeline.at(live.frames[65].wall_s)
        assert moment is not None
        wall_s = moment.snapshot.wall_s
        cells = moment.history.buckets("busy", int(wall_s // 5.0) - 1, 20, 5.0, wall_s)
        assert len(cells) == 20
        assert not any(map(math.isnan, cells))
        assert moment.history.latest("busy", wall_s) == pytest.approx(live.busy[65])

    run(main)


def test_live_charts_are_those_of_the_collector(live: Live):
    history = History()
    timeline = DerivedTimeline(live.ring, make, lambda path: None, history)
    moment = run(lambda: timeline.at(live.frames[50].wall_s))
    assert moment is not None
    assert moment.history is history


def test_a_past_that_goes_on_shows_its_newest_moment(live: Live):
    ring = MemoryStore(3600.0, 1e9)
    timeline = DerivedTimeline(ring, make, lambda path: None, History())

    class Asking:
        """Looks at the newest moment while frames come."""

        seqs: list[int] = []  # noqa: RUF012

        def keep(self, kept: object) -> None:
            frame = kept.frame  # type: ignore[attr-defined]
            if frame.seq in (59, 61, 125):
                moment = run(lambda: timeline.at(frame.wall_s))
                assert moment is not None
                self.seqs.append(frame.seq if moment.snapshot.wall_s == frame.wall_s else -1)

    assert run(lambda: timeline.at(1.0)) is None
    lived(live.frames[:64], ring, Asking())
    assert Asking.seqs == [59, 61, 125]


def test_a_moment_whose_time_came_again_is_the_newer_one(live: Live):
    """It was looked at before the clock went back by 40 s."""
    ring = MemoryStore(3600.0, 1e9)
    timeline = DerivedTimeline(ring, make, lambda path: None, History())
    at_s = live.frames[10].wall_s + 0.5  # frames come some ms early or late

    class Looking:
        """Looks at a moment before and after it came again."""

        seen: list[object] = []  # noqa: RUF012

        def keep(self, kept: object) -> None:
            if kept.frame.seq in (live.frames[24].seq, live.frames[40].seq):  # type: ignore[attr-defined]
                moment = run(lambda: timeline.at(at_s))
                assert moment is not None
                self.seen.append(moment.snapshot.gpus[0].power_w)

    back = [replace(frame, wall_s=frame.wall_s - 40.0) for frame in live.frames[25:45]]
    shown = lived((*live.frames[:25], *back), ring, Looking())
    assert Looking.seen == [shown[10].gpus[0].power_w, shown[30].gpus[0].power_w]
    assert shown[10].gpus[0].power_w != shown[30].gpus[0].power_w


def test_after_a_clock_was_set_back_steps_still_come_to_an_end(live: Live):
    """Also where a frame of before stands a little before the first one of its ten seconds."""
    ring = MemoryStore(3600.0, 1e9)
    back: list[Frame] = [replace(frame, wall_s=frame.wall_s - 39.99) for frame in live.frames[30:45]]
    shown = lived((*live.frames[:30], *back), ring)
    timeline = DerivedTimeline(ring, make, lambda path: None, History())

    async def main() -> None:
        moment = await timeline.at(back[-1].wall_s)
        assert moment is not None
        assert moment.snapshot.wall_s == shown[-1].wall_s
        assert moment.snapshot.engines[0].tokens_total == shown[-1].engines[0].tokens_total
        times: list[float] = []
        while moment is not None and moment.snapshot.wall_s not in times:
            times.append(moment.snapshot.wall_s)
            moment = await timeline.step(times[-1], -1)
        assert times == sorted(times, reverse=True)
        assert times[-1] == live.frames[0].wall_s

    run(main)


def test_what_is_kept_becomes_a_recording(live: Live, tmp_path: Path):
    file = tmp_path / "new.sqlite"
    timeline = DerivedTimeline(live.ring, make, lambda path: write_recording(Path(path), live.ring, {}), History())
    run(lambda: timeline.write(str(file)))
    assert [frame.seq for frame in Recording(file).frames(WALL_S, 2e9)] == [frame.seq for frame in live.frames]
    with pytest.raises(OSError, match=r"exists|there"):
        run(lambda: timeline.write(str(file)))
