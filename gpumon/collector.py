"""The tick: polls the sources at an anchored cadence, derives a snapshot and hands it to the front end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from gpumon.deadline import timeout
from gpumon.efficiency.deriver import Deriver, snapshot_without_things
from gpumon.history.frame_store import Tick
from gpumon.readings.frame import EngineReading, Fault, Frame, GpuReading, UnseenGpus
from gpumon.readings.history import History
from gpumon.readings.merge import disambiguate_engines, merge_dcgm
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.source import AtHand, Contribution, HostMeter, PcieMeter, Round, Source
from gpumon.triage.alerts import AlertChange, Alerts
from gpumon.triage.triage import Triage

POLL_DEADLINE_S = 0.5
"""A source that has not answered by then has broken its promise; the tick goes on without it."""

_EARLY_S = (1.0, 3.0)
"""Seconds after the start of ticks that a longer interval gets besides: rates need two readings, models a look-up."""
_SHORTEST_INTERVAL_S = 0.25
"""Seconds between two ticks at least."""

STOP_S = 0.25
"""Longest wait for a tick to end; a program that quits does not wait for it."""


class Attachment(Protocol):
    """Adds to an engine's poll what its endpoint cannot tell: its model's dimensions and its GPUs."""

    def attach(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        """The reading with what is known so far; returns at once."""

    def label(self, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...]) -> tuple[GpuReading, ...]:
        """The GPUs, with the engine's name at each process that belongs to one; returns at once."""


class Remembering(Protocol):
    """Remembers engines and GPUs that were there, and puts those that are gone into each tick."""

    async def start(self) -> None:
        """Begin; returns at once."""

    async def ready(self) -> None:
        """Wait until what an earlier run remembered is there, a few seconds at most."""

    @property
    def unseen_gpus(self) -> tuple[UnseenGpus, ...]:
        """GPUs that were listed before, are not in the last tick, and are not known to be lost."""

    def gpus(self, gpus: tuple[GpuReading, ...], driver: str, wall_s: float, now_s: float) -> tuple[GpuReading, ...]:
        """The GPUs of a tick, with those that are lost; returns at once."""

    def engines(
        self, engines: Sequence[EngineReading], gpus: Sequence[GpuReading], wall_s: float, now_s: float
    ) -> tuple[EngineReading, ...]:
        """The engines of a tick, with those that have ended; returns at once."""

    async def close(self) -> None:
        """Keep what is remembered, within a quarter of a second."""


class TickKeeper(Protocol):
    """Keeps ticks."""

    def keep(self, tick: Tick) -> None:
        """Take one tick; returns at once."""


class Push(Protocol):
    """Sends what happens to other places."""

    def see(self, snapshot: Snapshot) -> None:
        """Take in a snapshot of now, with its alerts; returns at once."""

    @property
    def troubles(self) -> Sequence[Callable[[float], Fault | None]]:
        """Callables that are asked at each tick (Unix time), and answer why nothing arrives there."""

    async def close(self) -> None:
        """Send what waits, within two seconds."""


class Acknowledging(Protocol):
    """Knows which verdicts somebody has acknowledged."""

    async def start(self) -> None:
        """Begin to read what is kept of them."""

    async def ready(self) -> None:
        """Wait a moment for that."""

    def mark(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot whose verdicts say who knows of them. Returns at once."""

    async def close(self) -> None:
        """Write what is to be kept, within a fraction of a second."""


class Collector:
    """Owns the cadence. Everything it calls returns at once or within a deadline, so a tick is never late for long."""

    def __init__(
        self,
        sources: Sequence[Source],
        deriver: Deriver,
        host: HostMeter,
        attachment: Attachment,
        *,
        interval_s: float,
        simulated: bool = False,
        history: History | None = None,
        wall: Callable[[], float] = time.time,
        see_gpus: Callable[[tuple[GpuReading, ...]], None] | None = None,
        triage: Triage | None = None,
        keepers: Sequence[TickKeeper] = (),
        alerts: Alerts | None = None,
        on_alert: Callable[[AlertChange, Snapshot], None] | None = None,
        troubles: Sequence[Callable[[float], Fault | None]] = (),
        memory: Remembering | None = None,
        past: AsyncIterator[Round] | None = None,
        push: Push | None = None,
        acknowledging: Acknowledging | None = None,
    ) -> None:
        """`see_gpus` is told the GPUs of every frame (discovery looks at their processes); it returns at once.

        `keepers` get every tick to keep: the flight recorder, a recording file. `on_alert` is told each alert that is
        raised or over. `troubles` are asked at each tick (Unix time) what does not work beside the sources. All of
        them return at once. `memory` knows what was there before. `past` are rounds before the first tick.
        `push` sees every snapshot of now. `acknowledging` marks the verdicts that somebody knows of.
        """
        self.history = history or History()
        self._sources = tuple(sources)
        # Sources that hand out their newest part without being waited for, by `id()`: a source need not be hashable.
        self._at_hand = {id(source): source for source in self._sources if isinstance(source, AtHand)}
        self._pcie_meters = [source for source in self._sources if isinstance(source, PcieMeter)]
        self._deriver = deriver
        self._host = host
        self._attachment = attachment
        self._interval_s = interval_s
        self._simulated = simulated
        self._wall = wall
        self._see_gpus = see_gpus
        self._triage = triage or Triage()
        self._keepers = tuple(keepers)
        self._alerts = alerts or Alerts()
        self._on_alert = on_alert
        self._troubles = tuple(troubles)
        self._memory = memory
        self._past = past
        self._push = push
        self._acknowledging = acknowledging
        self._seq = 0
        self._opened = False
        self._refresh_asked = False
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._failing_since: dict[int, tuple[str, float]] = {}
        """Source, by its `id()` -> text of its first failure in a row, and the Unix time of that."""

    @property
    def memory(self) -> Remembering | None:
        """The engines and GPUs that were there before."""
        return self._memory

    @property
    def acknowledging(self) -> Acknowledging | None:
        """The keeper of what is acknowledged."""
        return self._acknowledging

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return self._interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the cadence from the next tick on, to `_SHORTEST_INTERVAL_S` at least."""
        self._interval_s = max(_SHORTEST_INTERVAL_S, seconds)
        for source in self._sources:
            source.set_interval(self._interval_s)
        self.refresh()

    def refresh(self) -> None:
        """Tick now."""
        self._refresh_asked = True
        self._wake.set()

    async def start(self, sink: Callable[[Snapshot], None], *, early: bool = False) -> None:
        """Start the sources and the ticking; returns at once. `sink` gets every snapshot, in this event loop.

        `early`: those too that come before a long interval has passed for the first time.
        """
        await self.open()
        self._task = asyncio.create_task(self._run(sink, early=early))

    async def open(self) -> None:
        """Start the sources only, once, for one who calls `tick` himself."""
        if not self._opened:
            self._opened = True
            if self._memory is not None:
                await self._memory.start()
            if self._acknowledging is not None:
                await self._acknowledging.start()
            await asyncio.gather(*(source.start() for source in self._sources))

    async def ready(self, timeout_s: float) -> None:
        """Wait until every source has something to say, good or bad, at most `timeout_s`."""
        await asyncio.gather(*(source.ready(timeout_s) for source in self._sources))
        if self._memory is not None:
            await self._memory.ready()
        if self._acknowledging is not None:
            await self._acknowledging.ready()

    async def any_ready(self, timeout_s: float) -> None:
        """Wait until one source has something to say, good or bad, at most `timeout_s`."""
        waits = [asyncio.create_task(source.ready(timeout_s)) for source in self._sources]
        if waits:
            try:
                await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()

    def ended(self) -> asyncio.Task[None]:
        """The running of ticks: it ends only by `stop` or by an error of the sink."""
        assert self._task is not None, "not started"
        return self._task

    async def stop(self) -> None:
        """Stop ticking and close the sources; takes a fraction of a second whatever they are in, with messages that
        wait for a receiver up to two."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)
            self._task = None
        if self._memory is not None and self._opened:
            await self._memory.close()
        if self._acknowledging is not None:
            await self._acknowledging.close()
        closing = [source.close() for source in self._sources]
        if self._push is not None:
            closing.append(self._push.close())
        await asyncio.gather(*closing, return_exceptions=True)

    async def _run(self, sink: Callable[[Snapshot], None], *, early: bool) -> None:
        """Tick at anchored slots until it is cancelled; a refresh anchors them anew."""
        slot_s = time.monotonic()
        early_s = [slot_s + after_s for after_s in _EARLY_S]
        while True:
            sink(await self.tick())
            slot_s = _next_slot(slot_s, self._interval_s, time.monotonic())
            early_sink = sink if early else None
            refreshed = await self._tick_early(early_s, early_sink)
            if refreshed or await self._sleep(slot_s - time.monotonic()):
                slot_s = time.monotonic()

    async def _tick_early(self, early_s: Sequence[float], sink: Callable[[Snapshot], None] | None) -> bool:
        """Make the early ticks that are still to come; returns whether a refresh ended that.

        Without a sink their snapshots are seen by nobody, but rates and models are there sooner.
        """
        if self._interval_s <= _EARLY_S[-1]:
            return False
        now_s = time.monotonic()
        for slot_s in early_s:
            if slot_s <= now_s:
                continue
            if await self._sleep(slot_s - time.monotonic()):
                return True
            snapshot = await self.tick()
            if sink is not None:
                sink(snapshot)
        return False

    async def _sleep(self, seconds: float) -> bool:
        """Sleep; returns whether a refresh ended it early.

        Not `asyncio.wait_for`, which loses a cancellation that comes together with the wake-up before Python 3.12.
        """
        self._wake.clear()
        self._refresh_asked = False
        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        return self._refresh_asked

    async def relive(self, learn: Callable[[Snapshot], None]) -> None:
        """Take in the rounds of the past, if there are any, as if they were ticks; `learn` gets their snapshots.

        No alert is raised: what it would warn of is over.
        """
        past = self._past
        self._past = None
        if past is None:
            return
        async for past_round in past:
            learn(self._derive_and_judge(self._make_frame(past_round)))
            await asyncio.sleep(0)  # keys are answered meanwhile

    async def tick(self) -> Snapshot:
        """Make one frame of all sources, and its snapshot, with verdicts and alerts."""
        now_s = time.monotonic()
        polled_parts = iter(await self._poll_all(now_s))
        parts = []
        for source in self._sources:  # the order of the sources is that of the GPUs and engines
            if id(source) in self._at_hand:
                parts.append(self._newest_part(source))
            else:
                parts.append(next(polled_parts))
        frame = self._make_frame(Round(parts, self._wall(), time.monotonic(), self._interval_s))
        snapshot, changes = self._alerts.judge(frame, self._mark(self._derive_and_judge(frame), frame))
        if self._on_alert is not None:
            for change in changes:
                self._on_alert(change, snapshot)
        return self._push_on(snapshot, frame)

    def _mark(self, snapshot: Snapshot, frame: Frame) -> Snapshot:
        """The snapshot with what is acknowledged; a bug there costs the marks, not the verdicts."""
        if self._acknowledging is None:
            return snapshot
        try:
            return self._acknowledging.mark(snapshot)
        except Exception as error:  # whatever it is, the screen goes on
            return _with_fault(snapshot, frame, _bug_fault("what is acknowledged", error, frame.wall_s))

    def _push_on(self, snapshot: Snapshot, frame: Frame) -> Snapshot:
        """Hand the snapshot to what sends it on, and return it; a bug there costs a message, not the screen."""
        if self._push is None:
            return snapshot
        try:
            self._push.see(snapshot)
        except Exception as error:  # whatever it is, the screen goes on
            return _with_fault(snapshot, frame, _bug_fault("the webhooks", error, frame.wall_s))
        return snapshot

    def _derive_and_judge(self, frame: Frame) -> Snapshot:
        """Derive and judge the snapshot of a frame, and give the tick to all that keeps it; returns the snapshot."""
        try:
            snapshot, points, vetted = self._deriver.derive(frame)
        except Exception as error:  # a bug costs the figures of this tick, not the screen
            return snapshot_without_things(frame, _bug_fault("these readings", error, frame.wall_s))
        try:
            snapshot = self._triage.judge(vetted, snapshot)
        except Exception as error:  # nor do the verdicts cost the figures
            snapshot = _with_fault(snapshot, frame, _bug_fault("the verdicts", error, frame.wall_s))
        for meter in self._pcie_meters:
            meter.watch_pcie(self._triage.suspects)
        self.history.append(frame.wall_s, points, frame.interval_s)
        for event in snapshot.events:
            self.history.add_event(event)
        tick = Tick(frame, points, snapshot.events, snapshot.verdicts)
        for keeper in self._keepers:
            fault = _keep_tick(keeper, tick)
            if fault is not None:
                snapshot = _with_fault(snapshot, frame, fault)
        return snapshot

    async def _poll_all(self, now_s: float) -> list[Contribution]:
        """Poll the sources that have to be waited for; returns their parts.

        Nearly always that is the driver alone, which needs no task of its own.
        """
        sources = [source for source in self._sources if id(source) not in self._at_hand]
        if len(sources) == 1:
            return [await self._poll(sources[0], now_s)]
        return await asyncio.gather(*(self._poll(source, now_s) for source in sources))

    async def _poll(self, source: Source, now_s: float) -> Contribution:
        """Poll one source; a bug in it costs its own part of the frame and is named as a fault."""
        try:
            async with timeout(POLL_DEADLINE_S):
                part = await source.poll(now_s)
        except Exception as error:  # whatever a source does, the others go on
            return self._source_failure(source, error)
        self._failing_since.pop(id(source), None)
        return part

    def _newest_part(self, source: Source) -> Contribution:
        """The part of a source that has it at hand; a bug in it is named as a fault.

        It is not awaited: a task for each of a hundred endpoints costs more than the rest of the tick.
        """
        try:
            part = self._at_hand[id(source)].newest()
        except Exception as error:  # whatever a source does, the others go on
            return self._source_failure(source, error)
        self._failing_since.pop(id(source), None)
        return part

    def _source_failure(self, source: Source, error: Exception) -> Contribution:
        """The part of a source that failed: a fault, since it began to fail."""
        text = f"{type(source).__name__} failed: {type(error).__name__}: {error}"
        since_s = self._failing_since.setdefault(id(source), (text, self._wall()))[1]
        return Contribution(faults=(Fault("gpumon", text, since_s),))

    def _make_frame(self, polled: Round) -> Frame:
        """The frame of a round: the parts merged, engines with their models and GPUs, and those that are gone."""
        self._seq += 1
        parts = polled.parts
        host = self._host.read(tuple(chain.from_iterable(part.pids for part in parts)))
        gpus = merge_dcgm(list(chain.from_iterable(part.gpus for part in parts)), host.name)
        driver = _first_named(part.driver for part in parts)
        cuda = _first_named(part.cuda for part in parts)
        gpus, gpu_faults = self._with_gone_gpus(gpus, driver, polled)
        if self._see_gpus is not None:
            self._see_gpus(gpus)
        engines, faults = disambiguate_engines(self._attach_engines(parts, gpus))
        engines, engine_faults = self._with_ended_engines(engines, gpus, polled)
        faults += (*gpu_faults, *engine_faults, *self._trouble_faults(polled.wall_s))
        unseen_gpus: tuple[UnseenGpus, ...] = self._memory.unseen_gpus if self._memory is not None else ()
        return Frame(
            seq=self._seq,
            wall_s=polled.wall_s,
            monotonic_s=polled.monotonic_s,
            interval_s=polled.interval_s,
            host=msgspec.structs.replace(host, driver=driver, cuda=cuda, unseen_gpus=unseen_gpus),
            gpus=self._attachment.label(gpus, engines),
            engines=engines,
            faults=faults,
            simulated=self._simulated,
        )

    def _attach_engines(
        self, parts: Iterable[Contribution], gpus: tuple[GpuReading, ...]
    ) -> Iterator[tuple[list[EngineReading], tuple[Fault, ...]]]:
        """The engines of each source with their models and GPUs, and its faults."""
        for part in parts:
            yield [self._attachment.attach(engine, gpus) for engine in part.engines], part.faults

    def _trouble_faults(self, wall_s: float) -> list[Fault]:
        """Faults of what works beside the sources."""
        faults = []
        for trouble in self._troubles:
            fault = trouble(wall_s)
            if fault is not None:
                faults.append(fault)
        return faults

    def _with_gone_gpus(
        self, gpus: tuple[GpuReading, ...], driver: str, polled: Round
    ) -> tuple[tuple[GpuReading, ...], tuple[Fault, ...]]:
        """The GPUs with those that are gone, and faults; a bug in the memory costs only those that are gone."""
        if self._memory is None:
            return gpus, ()
        try:
            return self._memory.gpus(gpus, driver, polled.wall_s, polled.monotonic_s), ()
        except Exception as error:  # what drivers and engines tell now is shown all the same
            return gpus, (_bug_fault("the GPUs of before", error, polled.wall_s),)

    def _with_ended_engines(
        self, engines: tuple[EngineReading, ...], gpus: tuple[GpuReading, ...], polled: Round
    ) -> tuple[tuple[EngineReading, ...], tuple[Fault, ...]]:
        """The engines with those that have ended, and faults; a bug in the memory costs only those that have ended."""
        if self._memory is None:
            return engines, ()
        try:
            return self._memory.engines(engines, gpus, polled.wall_s, polled.monotonic_s), ()
        except Exception as error:  # what drivers and engines tell now is shown all the same
            return engines, (_bug_fault("the engines of before", error, polled.wall_s),)


def _next_slot(slot_s: float, interval_s: float, now_s: float) -> float:
    """Monotonic time of the next tick; slots that are past are left out."""
    next_s = slot_s + interval_s
    if next_s < now_s:
        next_s += interval_s * ((now_s - next_s) // interval_s + 1)
    return next_s


def _first_named(names: Iterable[str]) -> str:
    """The first name that is not empty; empty where there is none."""
    for name in names:
        if name:
            return name
    return ""


def _keep_tick(keeper: TickKeeper, tick: Tick) -> Fault | None:
    """Give a keeper a tick; what it fails on is returned as a fault, and costs neither the screen nor other keepers."""
    try:
        keeper.keep(tick)
    except Exception as error:  # whatever a keeper does, the others go on
        return _bug_fault("keeping this tick", error, tick.frame.wall_s)
    return None


def _with_fault(snapshot: Snapshot, frame: Frame, fault: Fault) -> Snapshot:
    """The snapshot with one more fault."""
    *_, shown = snapshot_without_things(frame, fault).faults
    return msgspec.structs.replace(snapshot, faults=(*snapshot.faults, shown))


def _bug_fault(work: str, error: Exception, wall_s: float) -> Fault:
    """The fault for a bug of gpumon's own; `work`: what it failed on."""
    return Fault("gpumon", f"gpumon failed on {work}, please report: {type(error).__name__}: {error}", wall_s)
