"""Memory of the engines that served, and of those that have ended: knows no clock and does no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from gpumon.readings.frame import EndpointState, EngineReading, GpuReading, Phase
from gpumon.sources.last_seen.causes import NO_CAUSE, Cause, is_over, make_departure
from gpumon.sources.last_seen.memory.attempts import StartsWatch
from gpumon.sources.last_seen.memory.parts import PartsWatch
from gpumon.sources.last_seen.memory.seen_engine import AskCause, SeenEngine
from gpumon.sources.last_seen.memory.silent import (
    StartingServers,
    draining_reading,
    long_gone_reading,
    never_served_reading,
    reading_without_answer,
    without_taken_gpus,
)
from gpumon.sources.last_seen.processes.process_state import ProcessState, Tick
from gpumon.sources.last_seen.processes.tree import merge_parts
from gpumon.sources.last_seen.records import (
    MOST_REMEMBERED_ENGINES,
    NO_ORIGIN,
    EngineOrigin,
    KnownEngine,
    ProcessId,
    without_bulk,
)

SUCCEEDS_S: Final = 5.0
"""Seconds between the last answer of an engine and the first one of another that may stand in its place.

One that answered earlier is a replica. Where the start of its process is known, that decides instead."""


class LastSeen:
    """Remembers engines that served, and puts those that ended into the readings of each tick."""

    def __init__(self, ask: AskCause | None = None) -> None:
        """`ask` looks up how a process ended, in a thread; without it no cause is known."""
        self._ask = ask
        self._engines: dict[str, SeenEngine] = {}
        self._dropped: dict[str, float] = {}
        """Keys that were forgotten on purpose, and when (Unix time)."""
        self._starting = StartingServers()
        self._parts = PartsWatch()
        self._starts = StartsWatch(ask)
        self.refusing: set[ProcessId] = set()
        """Processes of engines that served, and whose port refused connections at the last tick."""
        self.version = 0
        """Grows when an engine comes, ends or is forgotten."""

    def load(self, records: Iterable[KnownEngine]) -> None:
        """Take what an earlier run remembered; what this run has seen itself is newer."""
        for record in records:
            key = record.reading.key
            if key not in self._engines and len(self._engines) < MOST_REMEMBERED_ENGINES:
                self._engines[key] = SeenEngine(record)

    def records(self) -> list[KnownEngine]:
        """The records of all engines that are remembered."""
        return [engine.record for engine in self._engines.values()]

    def watched(self) -> list[EngineOrigin]:
        """Processes of which it must be known whether they live."""
        origins = [record.origin for record in self.records()]
        return [*origins, *self._starts.watched]

    def origin(self, key: str) -> EngineOrigin:
        """The process of an engine when it answered last; an empty one where that is not known."""
        engine = self._engines.get(key)
        if engine is None:
            return NO_ORIGIN
        return engine.record.origin

    @property
    def dropped(self) -> Mapping[str, float]:
        """Keys of engines that were forgotten on purpose, and when (Unix time)."""
        return self._dropped

    def take(
        self,
        readings: Sequence[EngineReading],
        gpus: Sequence[GpuReading],
        processes: ProcessState,
        wall_s: float,
        now_s: float,
    ) -> tuple[EngineReading, ...]:
        """The readings of a tick as they are shown: engines that have ended or start say so.

        `wall_s` is Unix time, `now_s` monotonic time.
        """
        processes = self._with_restarts(Tick(processes, wall_s, now_s))
        tick = Tick(processes, wall_s, now_s)
        self.refusing.clear()
        self._take_successors(processes, wall_s)
        for reading in readings:
            if reading.state is EndpointState.OK and _is_remembered(reading, tick.processes):
                self._take_answer(reading, tick)
        shown: list[EngineReading] = []
        listed_keys = {reading.key for reading in readings}
        for reading in readings:
            shown += self._shown_readings(reading, listed_keys, gpus, tick)
        urls = {reading.url for reading in readings}
        for engine in list(self._engines.values()):
            if engine.record.reading.url not in urls:
                shown += self._absent_readings(engine, tick)
        self._starting.keep_only(urls)
        shown = [self._with_parts(reading, tick) for reading in shown]
        self._starts.take(shown, tick)
        shown = self._starts.shown(shown, tick)
        self._parts.end_tick()
        return without_taken_gpus(shown)

    def _with_restarts(self, tick: Tick) -> ProcessState:
        """Surroundings of the engines, with the processes that start again what has ended among the servers.

        They are on no GPU yet and do not listen, so that nothing else leads to them. One that began before the last
        answer, or that is known at another URL, is a replica.
        """
        processes = tick.processes
        known_ids = {origin.id for origin in processes.servers.values()}
        begun = {}
        for engine in self._engines.values():
            record = engine.record
            origin = processes.restarts.get(record.origin.id)
            if origin is None or origin.id in known_ids:
                continue
            before = processes.servers.get(record.reading.url)
            is_free = before is None or before.id in processes.ended
            began_wall_s = tick.wall_s - (tick.now_s + processes.slept_s - origin.started_s)
            if is_free and began_wall_s > record.served_wall_s:
                begun[record.reading.url] = origin
        # The socket that an older look saw there was that of the process which has ended.
        return processes._replace(servers={**processes.servers, **begun}, listening=processes.listening - begun.keys())

    def _with_parts(self, reading: EngineReading, tick: Tick) -> EngineReading:
        """The reading with the processes of its engine, if one of them is gone or stands still."""
        origin = tick.processes.servers.get(reading.url, NO_ORIGIN)
        gpus: tuple[str, ...] = ()
        engine = self._engines.get(reading.key)
        if engine is not None:
            gpus = engine.record.reading.gpus
            if origin.id in (NO_ORIGIN.id, engine.record.origin.id):
                origin = engine.record.origin
        return self._parts.with_parts(reading, origin, gpus, tick)

    def ask_causes(self, processes: ProcessState, now_s: float, wall_s: float) -> list[Future[Cause]]:
        """Begin to ask for the causes of all ends that are known already.

        Returns the answers to come: the first tick waits for them, so that a stop is not first called a crash.
        """
        tick = Tick(processes, wall_s, now_s)
        self._take_successors(processes, wall_s)
        if processes.rebooted:
            return []
        answers = []
        for engine in self._engines.values():
            if engine.record.departure is None and self._note_end(engine, None, tick):
                self._begin_asking(engine)
                if engine.cause_answer is not None:
                    answers.append(engine.cause_answer)
        return answers

    def _take_successors(self, processes: ProcessState, wall_s: float) -> None:
        """Take engines that were restarted before their end was shown: the new process at the URL is the same one."""
        for engine in list(self._engines.values()):
            record = engine.record
            if not record.origin.pid or record.departure is not None:
                continue
            if not _has_successor(record, processes):
                continue
            record.origin = processes.servers[record.reading.url]
            record.begun_wall_s = wall_s
            engine.ended_s = None
            engine.cause_answer = None
            engine.has_replaced = True
            engine.token_counts.clear()
            self.version += 1
            self._forget_moved(engine, wall_s)

    def _take_answer(self, reading: EngineReading, tick: Tick) -> None:
        """Take the good reading of an engine, which is remembered from now on."""
        engine = self._engines.get(reading.key)
        if engine is not None and engine.is_old(reading):
            return
        answered_wall_s = tick.wall_s - max(0.0, tick.now_s - reading.monotonic_s)
        is_new = engine is None
        if engine is None:
            if len(self._engines) >= MOST_REMEMBERED_ENGINES and not self._forget_oldest():
                return
            engine = SeenEngine(KnownEngine(without_bulk(reading), answered_wall_s, answered_wall_s))
            self._engines[reading.key] = engine
        if is_new or engine.record.departure is not None or engine.ended_s is not None:
            self._begin(engine, answered_wall_s, is_new=is_new)
        self._take_origin(engine, tick.processes, answered_wall_s)
        if is_new:
            self._forget_replaced(engine)
        engine.take_figures(reading, answered_wall_s)

    def _begin(self, engine: SeenEngine, begun_wall_s: float, *, is_new: bool) -> None:
        """Note that the engine serves, for the first time or again (`begun_wall_s`: Unix time)."""
        engine.ended_s = None
        engine.cause_answer = None
        engine.last_end_reading = None
        engine.token_counts.clear()
        engine.has_replaced = not is_new
        engine.record.departure = None
        engine.record.begun_wall_s = begun_wall_s
        engine.record.origin = NO_ORIGIN
        self._dropped.pop(engine.key, None)
        self.version += 1

    def _take_origin(self, engine: SeenEngine, processes: ProcessState, wall_s: float) -> None:
        """Note the process that serves, if it is known and runs."""
        origin = processes.servers.get(engine.record.reading.url, NO_ORIGIN)
        runs = bool(origin.pid) and origin.id not in processes.ended
        remembered = engine.record.origin
        if runs and remembered.id == origin.id:
            # What is gone of it stays known, until another process has its place.
            parts = merge_parts(remembered.parts, origin.parts or remembered.parts, processes.ended)
            origin = msgspec.structs.replace(origin, parts=parts)
        if runs and remembered != origin:
            if origin.command and not remembered.command:
                self.version += 1  # what starts it again is worth keeping at once
            engine.record.origin = origin
            self._forget_moved(engine, wall_s)

    def _forget_replaced(self, fresh: SeenEngine) -> None:
        """Forget the engine that this one replaces: one of the same command or model that has ended."""
        ended_engines = [
            engine for engine in self._engines.values() if engine is not fresh and engine.record.departure is not None
        ]
        # The same command tells more than the same model: all are compared by command before any is by model.
        for is_same in (_have_same_command, _have_same_model):
            for engine in ended_engines:
                if is_same(engine.record, fresh.record):
                    fresh.has_replaced = True
                    self._drop(engine, fresh.record.begun_wall_s)
                    return

    def _is_replaced(self, ended_engine: SeenEngine, processes: ProcessState) -> bool:
        """Whether another engine took its place before its end was seen: one that began after its last answer."""
        for engine in self._engines.values():
            record = engine.record
            if engine is ended_engine or engine.has_replaced or record.departure is not None:
                continue
            if not _began_after(engine, ended_engine, processes):
                continue
            old_record = ended_engine.record
            if _have_same_command(old_record, record) or _have_same_model(old_record, record):
                engine.has_replaced = True
                return True
        return False

    def _forget_moved(self, server: SeenEngine, wall_s: float) -> None:
        """Forget the URL at which a server was that answers at another one now."""
        origin = server.record.origin
        url = server.record.reading.url
        for engine in list(self._engines.values()):
            if engine.record.origin.id == origin.id and engine.record.reading.url != url:
                self._drop(engine, wall_s)

    def _drop(self, engine: SeenEngine, wall_s: float) -> None:
        """Forget an engine, and note when: another gpumon's older record does not bring it back."""
        del self._engines[engine.key]
        self._dropped[engine.key] = wall_s
        while len(self._dropped) > MOST_REMEMBERED_ENGINES:
            del self._dropped[next(iter(self._dropped))]
        self.version += 1

    def _forget_oldest(self) -> bool:
        """Make room for an engine. Returns whether there was one to forget: those that serve are not forgotten."""
        departed = [engine for engine in self._engines.values() if engine.record.departure is not None]
        if not departed:
            return False
        oldest = min(departed, key=lambda engine: engine.record.changed_wall_s)
        self._drop(oldest, oldest.record.changed_wall_s)
        return True

    def _shown_readings(
        self,
        reading: EngineReading,
        listed_keys: set[str],
        gpus: Sequence[GpuReading],
        tick: Tick,
    ) -> list[EngineReading]:
        """A reading as it is shown; several where a server of several models has ended before this run."""
        if reading.phase is not Phase.INFERENCE:
            return [reading]
        engines = self._engines_of(reading, listed_keys)
        # Those of one server end together: the first stands for all.
        has_ended = bool(engines) and self._note_end(engines[0], reading, tick)
        if reading.state is EndpointState.OK and not has_ended:
            return [reading]
        records = [engine.record for engine in engines]
        starting = self._starting.starting_reading(reading, records, gpus, tick)
        if starting is not None:
            return [starting]
        if not engines:
            return [never_served_reading(reading)]
        return [self._silent_reading(engine, reading, tick) for engine in engines]

    def _engines_of(self, reading: EngineReading, listed_keys: set[str]) -> list[SeenEngine]:
        """The remembered engines that this reading is of.

        A server of several models that does not answer has one reading for all those models that have no reading of
        their own (`listed_keys`: keys of all readings).
        """
        engine = self._engines.get(reading.key)
        if engine is not None:
            return [engine]
        if reading.part or reading.state is EndpointState.OK:
            return []
        at_url = [engine for engine in self._engines.values() if engine.record.reading.url == reading.url]
        return [engine for engine in at_url if engine.key not in listed_keys]

    def _silent_reading(self, engine: SeenEngine, reading: EngineReading, tick: Tick) -> EngineReading:
        """The reading of an engine that served and does not answer: it has ended, or nobody knows."""
        record = engine.record
        if reading.state is not EndpointState.REFUSED:
            engine.refused_s = None
        elif engine.refused_s is None:
            engine.refused_s = tick.now_s
        answers = reading.state not in (EndpointState.OK, EndpointState.REFUSED)
        if answers and _has_successor(record, tick.processes):
            return reading_without_answer(record, reading)
        if reading.state is EndpointState.REFUSED and self._drains(engine, tick):
            return draining_reading(record, reading, tick)
        if self._note_departure(engine, reading, tick):
            assert record.departure is not None, "it was just noted"
            if not is_over(record.departure, tick.wall_s):
                return engine.end_reading(reading, tick)
            # The config still lists it: it keeps a row, without a verdict.
            return long_gone_reading(reading_without_answer(record, reading), record.departure)
        if reading.state is EndpointState.OK:
            return reading
        return reading_without_answer(record, reading)

    def _drains(self, engine: SeenEngine, tick: Tick) -> bool:
        """Whether it has closed its port and its process goes on: then nothing new comes, and it ends what runs."""
        record = engine.record
        origin = record.origin
        if not origin.pid or record.departure is not None or engine.is_process_gone(None, tick):
            return False
        self.refusing.add(origin.id)
        if origin.id not in tick.processes.closed:
            # One that drained a moment ago and has not ended is being taken down by the kernel.
            return record.closed_wall_s > 0.0
        record.closed_wall_s = record.closed_wall_s or tick.wall_s
        return True

    def _absent_readings(self, engine: SeenEngine, tick: Tick) -> list[EngineReading]:
        """The reading of an engine of this host that nobody lists any more: one if its end is shown, else none."""
        record = engine.record
        is_here = record.reading.found_by == "discovery" or bool(record.origin.pid)
        if not is_here or not tick.processes.looks:
            return []
        refused = msgspec.structs.replace(record.reading, state=EndpointState.REFUSED, ranks=())
        starting = self._starting.starting_reading(refused, [record], (), tick)
        if starting is not None:
            return [starting]
        if not self._note_departure(engine, None, tick):
            return []
        assert record.departure is not None, "it was just noted"
        if is_over(record.departure, tick.wall_s):
            self._drop(engine, tick.wall_s)
            return []
        return [engine.end_reading(None, tick)]

    def _note_end(self, engine: SeenEngine, reading: EngineReading | None, tick: Tick) -> bool:
        """Note the end of an engine whose process is gone, or whose port has refused for long enough.

        Returns whether it has ended, now or before.
        """
        record = engine.record
        if engine.ended_s is not None or record.departure is not None:
            answers = reading is not None and reading.state is EndpointState.OK
            # An answer from before the end may still be the newest one.
            return not answers or engine.answered_s <= (engine.ended_s or 0.0)
        if not engine.is_process_gone(reading, tick):
            return False
        engine.ended_s = tick.now_s
        return True

    def _note_departure(self, engine: SeenEngine, reading: EngineReading | None, tick: Tick) -> bool:
        """Note the end of an engine once its cause is known, or did not come in time. Returns whether it is noted."""
        record = engine.record
        if record.departure is not None and not engine.has_cause:
            return True
        if not self._note_end(engine, reading, tick):
            return False
        if record.departure is None and self._is_replaced(engine, tick.processes):
            self._drop(engine, tick.wall_s)
            return False
        if not tick.processes.rebooted:
            self._begin_asking(engine)
        if engine.awaits_cause(tick.now_s):
            return False
        cause = engine.take_cause(tick.processes)
        if record.departure is None or cause is not NO_CAUSE:
            self._depart(engine, cause, tick.wall_s)
        return True

    def _depart(self, engine: SeenEngine, cause: Cause, wall_s: float) -> None:
        """Note how it ended; the time of an end that is noted already stays."""
        record = engine.record
        ended_wall_s = record.departure.wall_s if record.departure is not None else wall_s
        record.departure = make_departure(record, cause, ended_wall_s)
        engine.last_end_reading = None
        self.version += 1

    def _begin_asking(self, engine: SeenEngine) -> None:
        """Ask for the cause of an end, unless that was done, or its process is not known."""
        if self._ask is not None and engine.cause_answer is None and engine.record.origin.pid:
            engine.cause_answer = self._ask(engine.record)


def _is_remembered(reading: EngineReading, processes: ProcessState) -> bool:
    """Whether the end of this engine would be an event: a training run ends by itself, as does Ollama's runner."""
    return reading.phase is Phase.INFERENCE and reading.url not in processes.passing


def _began_after(engine: SeenEngine, ended_engine: SeenEngine, processes: ProcessState) -> bool:
    """Whether an engine began after the last answer of one that has ended."""
    if engine.record.begun_wall_s > ended_engine.record.served_wall_s + SUCCEEDS_S:
        return True
    origin = engine.record.origin
    if not origin.pid or ended_engine.answered_s == -math.inf:
        return False
    return origin.started_s - processes.slept_s > ended_engine.answered_s


def _has_successor(record: KnownEngine, processes: ProcessState) -> bool:
    """Whether a new process listens at its URL, which may want a key by now, or hang: what ended is the old one."""
    url = record.reading.url
    origin = processes.servers.get(url)
    if origin is None or origin.id == record.origin.id or origin.id in processes.ended:
        return False
    return url in processes.listening


def _have_same_command(old: KnownEngine, new: KnownEngine) -> bool:
    """Whether both were started by the same command, as far as that is known."""
    return bool(new.origin.command) and old.origin.command == new.origin.command


def _have_same_model(old: KnownEngine, new: KnownEngine) -> bool:
    """Whether both serve the same model, as far as that is known."""
    return bool(new.reading.model) and old.reading.model == new.reading.model
