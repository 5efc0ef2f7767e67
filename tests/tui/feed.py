"""A collector for the screen's tests: made-up snapshots, at once or at a real cadence."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpumon.config.profile_store import builtin_profiles
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Snapshot, Verdict
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.live import own_models
from gpumon.sizing.scenario import Catalogues
from gpumon.sources.engine_log import log as engine_log
from gpumon.sources.last_seen.records import EngineOrigin
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from gpumon.tui.control import EngineLog, Playback, Timeline
from tests.records import replace
from tests.tui import scenes, verdicts


def file_log(path: Path) -> EngineLog:
    """The log of an engine that wrote this file and has ended."""
    origin = EngineOrigin(output=str(path), uid=os.geteuid())
    return engine_log.EngineLogReader(lambda: origin)


class Still:
    """Gives one snapshot, and another whenever the test says so."""

    def __init__(self, snapshot: Snapshot | None, history: History | None = None) -> None:
        self.history = history if history is not None else History()
        self.interval_s = 1.0
        self.calibration = Calibration()
        self.timeline: Timeline | None = None
        self.playback: Playback | None = None
        self.opening = False
        self.prices: Mapping[str, float] = {}
        self.logs: dict[str, EngineLog] = {}
        self.acknowledged: list[tuple[Sequence[str], str, float]] = []
        """Ids of verdicts, reason and seconds of each time that some were acknowledged."""
        self.lifted: list[str] = []
        self.refreshed = 0
        self.stopped = 0
        self._snapshot = snapshot
        self._sink: Callable[[Snapshot], None] | None = None

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Give the first snapshot."""
        self._sink = sink
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._snapshot is not None:
            sink(self._snapshot)

    async def ended(self) -> None:
        """Wait for what the test says."""
        await asyncio.shield(self.end)

    def show_first(self, snapshot: Snapshot) -> None:
        """What to give at the start."""
        self._snapshot = snapshot

    def give(self, snapshot: Snapshot) -> None:
        """The next snapshot."""
        assert self._sink is not None, "not started"
        self._sink(snapshot)

    def catalogues(self) -> Catalogues:
        """The packaged catalogues, and what runs here."""
        own = own_models(self._snapshot) if self._snapshot is not None else {}
        return Catalogues(
            gpu_catalogue(), llm_catalogue(), own, builtin_profiles(), {"H100 SXM5 80GB": 2.5}, network_catalogue()
        )

    def set_interval(self, seconds: float) -> None:
        """Keep it."""
        self.interval_s = seconds

    def refresh(self) -> None:
        """Count it."""
        self.refreshed += 1

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """What the test says."""
        return self.logs.get(engine.key) or f"{engine.name} has no log"

    def why_no_acknowledging(self, verdict: Verdict) -> str:
        """Nothing stands in the way."""
        return ""

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Keep what was asked for."""
        self.acknowledged.append(([verdict.id for verdict in verdicts], reason, seconds))

    def lift(self, ids: Sequence[str]) -> None:
        """Keep what was asked for."""
        self.lifted += ids

    async def stop(self) -> None:
        """Count it."""
        self.stopped += 1


class Busy(Still):
    """A server whose every figure moves, once per interval, those of a verdict too; `still` keeps all as they are."""

    def __init__(self, gpus: int = 8, engines: int = 3, interval_s: float = 1.0, *, still: bool = False) -> None:
        super().__init__(None, scenes.history(_judged(scenes.snapshot(gpus, engines), 0)))
        self.interval_s = interval_s
        self._size = (gpus, engines)
        self._still = still
        self._task: asyncio.Task[None] | None = None

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Start the cadence."""
        await super().start(sink)
        self._task = asyncio.create_task(self._run(sink))

    async def _run(self, sink: Callable[[Snapshot], None]) -> None:
        tick = 0
        while True:
            at = 0 if self._still else tick
            snapshot = _judged(scenes.snapshot(*self._size, tick=at, interval_s=self.interval_s), at)
            if not self._still:
                self.history.append(snapshot.wall_s, scenes.points(snapshot))
            sink(snapshot)
            await asyncio.sleep(self.interval_s)
            tick += 1

    async def stop(self) -> None:
        """End the cadence."""
        await super().stop()
        if self._task is not None:
            self._task.cancel()


def _judged(snapshot: Snapshot, tick: int) -> Snapshot:
    """With verdicts, one of which has other figures at every tick."""
    if not snapshot.engines:
        return snapshot
    first, *others = snapshot.engines
    moving = replace(verdicts.bandwidth(first), cause=f"reads {60 + tick % 10}% of HBM at batch {20 + tick % 7}")
    return replace(snapshot, verdicts=(moving, *map(verdicts.healthy, (*others, *snapshot.gpus))))


class Slow(Still):
    """Blocks the whole program when it starts."""

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Block for a while."""
        time.sleep(3.0)
        await super().start(sink)


class Broken(Still):
    """Cannot even start."""

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Fail."""
        raise RuntimeError("no such source")


class Failing(Still):
    """Gives one snapshot and ends."""

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Fail soon."""
        await super().start(sink)
        asyncio.get_running_loop().call_later(1.0, self.end.set_exception, RuntimeError("no such source"))


class Faulty(Still):
    """Has a bug where a key asks for a reading at once."""

    def refresh(self) -> None:
        """Fail, with a value of the environment at hand."""
        password = os.environ["FAULTY_PASSWORD"]
        raise RuntimeError(f"no such reading: {len(password)}")
