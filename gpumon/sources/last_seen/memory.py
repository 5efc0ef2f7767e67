"""Memory of the engines that served, and of those that have ended: knows no clock and does no I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import (
    FILE_LOG,
    LAST_ANSWER,
    START_CPU,
    START_PID,
    START_READ,
    START_VRAM,
    STARTS,
    Departure,
    EndpointState,
    EngineReading,
    GpuReading,
    LastFigures,
    Phase,
    RankReading,
    Start,
)
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading, number
from gpumon.readings.quantities import DECODE_TOKENS, KV_USAGE, RUNNING, WAITING
from gpumon.sources.last_seen.records import (
    NO_ORIGIN,
    SHOWN_AFTER_END_S,
    SHOWN_AFTER_STOP_S,
    EngineOrigin,
    KnownEngine,
    ProcessId,
    without_bulk,
)
from gpumon.triage.engine_down import ended_text, starting_text

REFUSES_S: Final = 10.0
"""Seconds after which an engine whose process is not known and whose port refuses has ended: a restart of nginx or of
a container's proxy takes less."""
_IDLE_S: Final = 30.0
"""Seconds without a request before an end that let it be taken for planned."""
_WATCHED_S: Final = 15.0
"""Seconds between the last answer and the end up to which it is taken that no request came in between."""
CAUSE_S: Final = 3.0
"""Longest wait for the cause of an end before the end is shown: a stop by systemd is not first called a crash."""
SUCCEEDS_S: Final = 5.0
"""An engine that answers first this long after another's last answer may stand in its place: one that was there
before is a replica. Where the start of its process is known, that decides."""
MOST_REMEMBERED_ENGINES: Final = 64
"""Engines that are remembered."""
_LOADING_BYTES_PER_S: Final = 20e6
"""Read from disks, or taken of VRAM, from which on an engine loads its weights: a slow network mount gives as much."""
_COMPILING_CORES: Final = 0.5
"""CPU cores that a server keeps busy while it compiles kernels; one that waits for others takes none."""
_RATE_S: Final = 10.0
"""Seconds over which the last rate of tokens of an engine is taken."""
VRAM_S: Final = 10.0
"""Seconds over which the growth of a starting engine's VRAM is taken."""
_MOST_COMMAND: Final = 512
"""Characters of a command line that a departure has."""
NEVER_SERVED: Final = "never seen serving: check that the URL is right and the server was started"


class Cause(NamedTuple):
    """How a process ended, and who says so."""

    code: str = ""
    """Code of the cause, as in `Departure.cause`."""
    number: int = 0
    """Exit status or signal, by the code."""
    planned: bool = False
    """Somebody stopped it on purpose."""
    source: str = ""
    """Who says so, such as `systemd vllm.service`."""
    wall_s: float = 0.0
    """When it ended; 0: nobody tells."""


NO_CAUSE: Final = Cause()


class ServerWork(NamedTuple):
    """Work of a server's processes at a moment. None: not readable by this user."""

    read_bytes_per_s: float | None = None
    cpu_cores: float | None = None


class Around(NamedTuple):
    """Known state of the engines' processes at a tick."""

    servers: Mapping[str, EngineOrigin] = {}
    """Servers that run now, by the URL at which they are polled."""
    listening: frozenset[str] = frozenset()
    """URLs of `servers` at which they listen."""
    ended: frozenset[ProcessId] = frozenset()
    """Processes that are gone."""
    works: Mapping[ProcessId, ServerWork] = {}
    """Work of servers that do not listen yet."""
    passing: frozenset[str] = frozenset()
    """URLs of servers that others start and end at will: the end of such a one is no event."""
    looks: bool = False
    """Servers of this host are looked for: one that is remembered and not found has ended."""
    rebooted: bool = False
    """This host began anew since the memory was written."""
    slept_s: float = 0.0
    """Time for which this host slept since its boot: processes count it in their start, and the monotonic clock does
    not."""


class _Tick(NamedTuple):
    """The moment of a tick, and what was seen around the engines by then."""

    around: Around
    wall_s: float
    """Unix time."""
    now_s: float
    """Monotonic time."""


AskCause = Callable[[KnownEngine], "Future[Cause]"]


class _SeenEngine:
    """One engine that served, with what only this run knows of it. Times are monotonic."""

    def __init__(self, record: KnownEngine) -> None:
        self.record = record
        self.answered_s = -math.inf
        """When it answered last in this run."""
        self.token_counts: deque[tuple[float, float]] = deque()
        """Tokens that its process has counted: monotonic time and number, of the last `_RATE_S`."""
        self.refused_s: float | None = None
        """Since when nothing listens at its URL; None: something does, or nobody knows."""
        self.ended_s: float | None = None
        """When its process was first seen gone, or its port had refused for long enough."""
        self.cause_answer: Future[Cause] | None = None
        """The answer to the question for the cause of its end; None: not asked yet, or taken already."""
        self.end_row: EngineReading | None = None
        """The row of its end; the same object as long as nothing about it changes."""
        self.has_replaced = False
        """It stands for one that has ended, another one or itself: it does so for one only."""

    @property
    def key(self) -> str:
        """Key of the engine, as in `EngineReading.key`."""
        return self.record.reading.key

    @property
    def has_cause(self) -> bool:
        """Whether the question for the cause of its end is answered."""
        return self.cause_answer is not None and self.cause_answer.done()


def _is_process_gone(engine: _SeenEngine, reading: EngineReading | None, tick: _Tick) -> bool:
    """Whether the process of an engine is gone, by its port if the process is not known."""
    origin = engine.record.origin
    if origin.pid:
        return tick.around.rebooted or origin.id in tick.around.ended
    if reading is None or reading.state is not EndpointState.REFUSED:
        return False
    return _refuses_for(engine, tick.wall_s, tick.now_s) >= REFUSES_S


def _is_old(engine: _SeenEngine, reading: EngineReading) -> bool:
    """Whether this answer was taken before, or is the last one of a process that has ended since."""
    if engine.answered_s == reading.monotonic_s:
        return True
    return engine.ended_s is not None and reading.monotonic_s <= engine.ended_s


def _take_figures(engine: _SeenEngine, reading: EngineReading, answered_wall_s: float) -> None:
    """Note the newest answer of an engine."""
    record = engine.record
    engine.answered_s = reading.monotonic_s
    engine.refused_s = None
    record.reading = reading
    record.served_wall_s = answered_wall_s
    record.figures = _last_figures(engine, reading)
    running = number(record.figures.running)
    waiting = number(record.figures.waiting)
    record.tells_load = running is not None or waiting is not None
    if running or waiting:
        record.busy_wall_s = answered_wall_s


def _awaits_cause(engine: _SeenEngine, now_s: float) -> bool:
    """Whether the cause of its end was asked for, and may still come within `CAUSE_S`."""
    if engine.cause_answer is None or engine.cause_answer.done():
        return False
    return now_s - (engine.ended_s or 0.0) < CAUSE_S


def _take_cause(engine: _SeenEngine, around: Around) -> Cause:
    """The cause of its end, if the answer has come (it is taken once); else the reboot, if there was one."""
    cause = NO_CAUSE
    if engine.cause_answer is not None and engine.cause_answer.done():
        if engine.cause_answer.exception() is None:
            cause = engine.cause_answer.result()
        engine.cause_answer = None
    if around.rebooted and not cause.code:
        return Cause("reboot")
    return cause


class LastSeen:
    """Remembers engines that served, and puts those that ended into the readings of each tick."""

    def __init__(self, ask: AskCause | None = None) -> None:
        """`ask` looks up how a process ended, in a thread; without it no cause is known."""
        self._ask = ask
        self._engines: dict[str, _SeenEngine] = {}
        self._dropped: dict[str, float] = {}
        """Keys that were forgotten on purpose, and when (Unix time)."""
        self._vram: dict[str, deque[tuple[float, float]]] = {}
        """VRAM of starting servers by URL: monotonic time and bytes."""
        self.version = 0
        """Grows when an engine comes, ends or is forgotten."""

    def load(self, records: Iterable[KnownEngine]) -> None:
        """Take what an earlier run remembered; what this run has seen itself is newer."""
        for record in records:
            key = record.reading.key
            if key not in self._engines and len(self._engines) < MOST_REMEMBERED_ENGINES:
                self._engines[key] = _SeenEngine(record)

    def records(self) -> list[KnownEngine]:
        """All that is remembered."""
        return [engine.record for engine in self._engines.values()]

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
        around: Around,
        wall_s: float,
        now_s: float,
    ) -> tuple[EngineReading, ...]:
        """The engines of a tick: those that have ended say so, those that start say what they do."""
        tick = _Tick(around, wall_s, now_s)
        self._take_successors(around, wall_s)
        shown: list[EngineReading] = []
        self._take_answers(readings, tick)
        listed_keys = {reading.key for reading in readings}
        for reading in readings:
            shown += self._shown_readings(reading, listed_keys, gpus, tick)
        urls = {reading.url for reading in readings}
        for engine in list(self._engines.values()):
            if engine.record.reading.url not in urls:
                shown += self._absent_rows(engine, tick)
        for url in self._vram.keys() - urls:
            del self._vram[url]
        return _without_taken_gpus(shown)

    def _take_answers(self, readings: Iterable[EngineReading], tick: _Tick) -> None:
        """Take the good readings of engines that are remembered."""
        for reading in readings:
            if reading.state is EndpointState.OK and _is_remembered(reading, tick.around):
                self._take_answer(reading, tick)

    def ask_causes(self, around: Around, now_s: float, wall_s: float) -> list[Future[Cause]]:
        """Begin to ask for the causes of all ends that are known already; returns what a first tick should wait for."""
        tick = _Tick(around, wall_s, now_s)
        self._take_successors(around, wall_s)
        if around.rebooted:
            return []
        answers = []
        for engine in self._engines.values():
            if engine.record.departure is None and self._note_end(engine, None, tick):
                self._begin_asking(engine)
                if engine.cause_answer is not None:
                    answers.append(engine.cause_answer)
        return answers

    def _take_successors(self, around: Around, wall_s: float) -> None:
        """Let a new process that listens where another one served go on as the same engine, if the other's end was not
        shown yet: the engine was restarted."""
        for engine in list(self._engines.values()):
            record = engine.record
            if not record.origin.pid or record.departure is not None:
                continue
            if not _has_successor(record, around):
                continue
            record.origin = around.servers[record.reading.url]
            record.begun_wall_s = wall_s
            engine.ended_s = None
            engine.cause_answer = None
            engine.has_replaced = True
            engine.token_counts.clear()
            self.version += 1
            self._forget_moved(engine, wall_s)

    def _take_answer(self, reading: EngineReading, tick: _Tick) -> None:
        """Take the good reading of an engine, which is remembered from now on."""
        engine = self._engines.get(reading.key)
        if engine is not None and _is_old(engine, reading):
            return
        answered_wall_s = tick.wall_s - max(0.0, tick.now_s - reading.monotonic_s)
        is_new = engine is None
        if engine is None:
            if len(self._engines) >= MOST_REMEMBERED_ENGINES and not self._forget_oldest():
                return
            engine = _SeenEngine(KnownEngine(without_bulk(reading), answered_wall_s, answered_wall_s))
            self._engines[reading.key] = engine
        if is_new or engine.record.departure is not None or engine.ended_s is not None:
            self._begin(engine, answered_wall_s, is_new=is_new)
        self._take_origin(engine, tick.around, answered_wall_s)
        if is_new:
            self._forget_replaced(engine)
        _take_figures(engine, reading, answered_wall_s)

    def _begin(self, engine: _SeenEngine, begun_wall_s: float, *, is_new: bool) -> None:
        """Note that the engine serves, for the first time or again."""
        engine.ended_s = None
        engine.cause_answer = None
        engine.end_row = None
        engine.token_counts.clear()
        engine.has_replaced = not is_new
        engine.record.departure = None
        engine.record.begun_wall_s = begun_wall_s
        engine.record.origin = NO_ORIGIN
        self._dropped.pop(engine.key, None)
        self.version += 1

    def _take_origin(self, engine: _SeenEngine, around: Around, wall_s: float) -> None:
        """Note the process that serves, if it is known and runs."""
        origin = around.servers.get(engine.record.reading.url, NO_ORIGIN)
        runs = bool(origin.pid) and origin.id not in around.ended
        if runs and engine.record.origin != origin:
            engine.record.origin = origin
            self._forget_moved(engine, wall_s)

    def _forget_replaced(self, fresh: _SeenEngine) -> None:
        """Forget the engine that this one replaces: one of the same command or model that has ended."""
        ended_engines = []
        for engine in self._engines.values():
            if engine is not fresh and engine.record.departure is not None:
                ended_engines.append(engine)
        # The same command tells more than the same model: first all are looked at for that.
        for is_same in (_have_same_command, _have_same_model):
            for engine in ended_engines:
                if is_same(engine.record, fresh.record):
                    fresh.has_replaced = True
                    self._drop(engine, fresh.record.begun_wall_s)
                    return

    def _is_replaced(self, ended_engine: _SeenEngine, around: Around) -> bool:
        """Whether another engine took its place before its end was seen: one that began after its last answer."""
        for engine in self._engines.values():
            record = engine.record
            if engine is ended_engine or engine.has_replaced or record.departure is not None:
                continue
            if not _began_after(engine, ended_engine, around):
                continue
            old_record = ended_engine.record
            if _have_same_command(old_record, record) or _have_same_model(old_record, record):
                engine.has_replaced = True
                return True
        return False

    def _forget_moved(self, server: _SeenEngine, wall_s: float) -> None:
        """Forget the URL at which a server was that answers at another one now."""
        origin = server.record.origin
        url = server.record.reading.url
        for engine in list(self._engines.values()):
            if engine.record.origin.id == origin.id and engine.record.reading.url != url:
                self._drop(engine, wall_s)

    def _drop(self, engine: _SeenEngine, wall_s: float) -> None:
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
        tick: _Tick,
    ) -> list[EngineReading]:
        """A reading as it is shown; several where a server of several models has ended before this run."""
        if reading.phase is not Phase.INFERENCE:
            return [reading]
        engines = self._engines_of(reading, listed_keys)
        # Those of one server end together: the first stands for all.
        has_ended = bool(engines) and self._note_end(engines[0], reading, tick)
        if reading.state is EndpointState.OK and not has_ended:
            return [reading]
        starting = self._starting_reading(reading, engines, gpus, tick.around, tick.now_s)
        if starting is not None:
            return [starting]
        if not engines:
            return [_never_served(reading)]
        return [self._silent_reading(engine, reading, tick) for engine in engines]

    def _engines_of(self, reading: EngineReading, listed_keys: set[str]) -> list[_SeenEngine]:
        """The engines that are remembered of this reading: of a server that does not answer, all its models without a
        reading of their own (`listed_keys`)."""
        engine = self._engines.get(reading.key)
        if engine is not None:
            return [engine]
        if reading.part or reading.state is EndpointState.OK:
            return []
        at_url = [engine for engine in self._engines.values() if engine.record.reading.url == reading.url]
        return [engine for engine in at_url if engine.key not in listed_keys]

    def _silent_reading(self, engine: _SeenEngine, reading: EngineReading, tick: _Tick) -> EngineReading:
        """The reading of an engine that served and does not answer: it has ended, or nobody knows."""
        record = engine.record
        if reading.state is not EndpointState.REFUSED:
            engine.refused_s = None
        elif engine.refused_s is None:
            engine.refused_s = tick.now_s
        answers = reading.state not in (EndpointState.OK, EndpointState.REFUSED)
        if answers and _has_successor(record, tick.around):
            return _reading_without_answer(record, reading)
        if self._has_departed(engine, reading, tick):
            assert record.departure is not None, "it was noted"
            if not _is_over(record.departure, tick.wall_s):
                return self._end_row(engine, reading, tick.wall_s, tick.now_s)
            # Somebody lists it still (the config): it keeps a row, which is no event any more.
            return _long_gone_row(_reading_without_answer(record, reading), record.departure)
        if reading.state is EndpointState.OK:
            return reading
        return _reading_without_answer(record, reading)

    def _absent_rows(self, engine: _SeenEngine, tick: _Tick) -> list[EngineReading]:
        """The row of an engine of this host that nobody lists any more, or none where it has not ended, or long ago."""
        record = engine.record
        is_here = record.reading.found_by == "discovery" or bool(record.origin.pid)
        if not is_here or not tick.around.looks:
            return []
        if not self._has_departed(engine, None, tick):
            return []
        assert record.departure is not None
        if _is_over(record.departure, tick.wall_s):
            self._drop(engine, tick.wall_s)
            return []
        return [self._end_row(engine, None, tick.wall_s, tick.now_s)]

    def _note_end(self, engine: _SeenEngine, reading: EngineReading | None, tick: _Tick) -> bool:
        """Note the end of an engine: its process is known to be gone, or its port refuses for so long that it must be.
        Returns whether it has ended."""
        record = engine.record
        if engine.ended_s is not None or record.departure is not None:
            answers = reading is not None and reading.state is EndpointState.OK
            return not answers or engine.answered_s <= (engine.ended_s or 0.0)
        if not _is_process_gone(engine, reading, tick):
            return False
        engine.ended_s = tick.now_s
        return True

    def _has_departed(self, engine: _SeenEngine, reading: EngineReading | None, tick: _Tick) -> bool:
        """Note the end of an engine once its cause is known, or did not come in time. Returns whether it is noted."""
        record = engine.record
        if record.departure is not None and not engine.has_cause:
            return True
        if not self._note_end(engine, reading, tick):
            return False
        if record.departure is None and self._is_replaced(engine, tick.around):
            self._drop(engine, tick.wall_s)
            return False
        if not tick.around.rebooted:
            self._begin_asking(engine)
        if _awaits_cause(engine, tick.now_s):
            return False
        cause = _take_cause(engine, tick.around)
        if record.departure is None or cause is not NO_CAUSE:
            self._depart(engine, cause, tick.wall_s)
        return True

    def _depart(self, engine: _SeenEngine, cause: Cause, wall_s: float) -> None:
        """Note how it ended; the time of an end that is noted already stays."""
        record = engine.record
        ended_wall_s = wall_s
        if record.departure is not None:
            ended_wall_s = record.departure.wall_s
        record.departure = _departure(record, cause, ended_wall_s)
        engine.end_row = None
        self.version += 1

    def _begin_asking(self, engine: _SeenEngine) -> None:
        """Ask for the cause of an end, unless that was done, or its process is not known."""
        if self._ask is not None and engine.cause_answer is None and engine.record.origin.pid:
            engine.cause_answer = self._ask(engine.record)

    def _end_row(
        self, engine: _SeenEngine, reading: EngineReading | None, wall_s: float, now_s: float
    ) -> EngineReading:
        """The row of an engine that has ended: its last figures, and how it ended."""
        record = engine.record
        interval_s = record.reading.interval_s if reading is None else reading.interval_s
        if engine.end_row is None or engine.end_row.interval_s != interval_s:
            assert record.departure is not None, "it has ended"
            monotonic_s = now_s - max(0.0, wall_s - record.served_wall_s)
            ranks: tuple[RankReading, ...] = ()
            if engine.answered_s > -math.inf:  # in this run: the figures are not written to the file
                monotonic_s = engine.answered_s
                ranks = record.reading.ranks
            engine.end_row = msgspec.structs.replace(
                record.reading,
                monotonic_s=monotonic_s,
                ranks=ranks,
                state=EndpointState.DOWN,
                departure=record.departure,
                fault=ended_text(record.departure),
                interval_s=interval_s,
            )
        return engine.end_row

    def _starting_reading(
        self,
        reading: EngineReading,
        engines: Sequence[_SeenEngine],
        gpus: Sequence[GpuReading],
        around: Around,
        now_s: float,
    ) -> EngineReading | None:
        """The reading of a server that runs and does not listen yet; None where there is no such process.

        The very process that served is not starting: it closed its port, or hangs.
        """
        origin = around.servers.get(reading.url)
        if origin is None or origin.id in around.ended or reading.url in around.listening:
            return None
        if reading.state not in (EndpointState.REFUSED, EndpointState.STARTING):
            return None
        if any(engine.record.origin.id == origin.id for engine in engines):
            return None
        info = {**reading.info, **self._start_info(reading.url, origin, gpus, around, now_s)}
        model = reading.model
        if not model and engines:
            model = engines[0].record.reading.model
        return msgspec.structs.replace(
            reading, state=EndpointState.STARTING, info=info, model=model, fault=starting_text(info)
        )

    def _start_info(
        self, url: str, origin: EngineOrigin, gpus: Sequence[GpuReading], around: Around, now_s: float
    ) -> dict[str, str]:
        """Work of a starting server, as `info` of its reading has it."""
        work = around.works.get(origin.id, ServerWork())
        vram_bytes, growth = self._vram_and_growth(url, origin, gpus, now_s)
        info = {STARTS: _start_phase(work, growth).value, START_PID: str(origin.pid)}
        figures = {START_READ: work.read_bytes_per_s, START_CPU: work.cpu_cores, START_VRAM: vram_bytes}
        for name, value in figures.items():
            if value is not None:
                info[name] = f"{value:.3g}"
        return info

    def _vram_and_growth(
        self, url: str, origin: EngineOrigin, gpus: Sequence[GpuReading], now_s: float
    ) -> tuple[float | None, float]:
        """VRAM that its processes hold, and by how many bytes/s that grows."""
        sizes = []
        for gpu in gpus:
            for process in gpu.processes:
                size = number(process.vram_bytes)
                if size is not None and process.pid in origin.gpu_pids and process.type != "graphics":
                    sizes.append(size)
        if not sizes:
            return None, 0.0
        vram_bytes = sum(sizes)
        samples = self._vram.setdefault(url, deque())
        samples.append((now_s, vram_bytes))
        while now_s - samples[0][0] > VRAM_S:
            samples.popleft()
        oldest_s, oldest_bytes = samples[0]
        if now_s > oldest_s:
            return vram_bytes, (vram_bytes - oldest_bytes) / (now_s - oldest_s)
        return vram_bytes, 0.0


def _is_remembered(reading: EngineReading, around: Around) -> bool:
    """Whether the end of this engine would be an event: a training run ends by itself, as does Ollama's runner."""
    return reading.phase is Phase.INFERENCE and reading.url not in around.passing


def _refuses_for(engine: _SeenEngine, wall_s: float, now_s: float) -> float:
    """Seconds for which nothing has listened at its URL; where another run saw it last, those since its last answer."""
    refused_s = 0.0 if engine.refused_s is None else now_s - engine.refused_s
    if engine.answered_s > -math.inf:
        return refused_s
    return max(refused_s, wall_s - engine.record.served_wall_s)


def _began_after(engine: _SeenEngine, ended_engine: _SeenEngine, around: Around) -> bool:
    """Whether an engine began after the last answer of one that has ended."""
    if engine.record.begun_wall_s > ended_engine.record.served_wall_s + SUCCEEDS_S:
        return True
    origin = engine.record.origin
    if not origin.pid or ended_engine.answered_s == -math.inf:
        return False
    return origin.started_s - around.slept_s > ended_engine.answered_s


def _has_successor(record: KnownEngine, around: Around) -> bool:
    """Whether a new process listens at its URL, which may want a key by now, or hang: what ended is the old one."""
    url = record.reading.url
    origin = around.servers.get(url)
    if origin is None or origin.id == record.origin.id or origin.id in around.ended:
        return False
    return url in around.listening


def _last_figures(engine: _SeenEngine, reading: EngineReading) -> LastFigures:
    """Figures of an engine at a good reading, from its own page."""
    usage = _gauges(reading, KV_USAGE)
    mean_usage: Reading = NOT_EXPOSED
    if usage:
        mean_usage = sum(usage) / len(usage)
    return LastFigures(
        running=_sum_of_known(_gauges(reading, RUNNING)),
        waiting=_sum_of_known(_gauges(reading, WAITING)),
        kv_usage_ratio=mean_usage,
        decode_tokens_per_s=_tokens_per_s(engine.token_counts, reading),
    )


def _gauges(reading: EngineReading, name: str) -> list[float]:
    """The values of a gauge, of the ranks that have it."""
    gauges = []
    for rank in reading.ranks:
        if name in rank.gauges:
            gauges.append(rank.gauges[name])
    return gauges


def _sum_of_known(values: Sequence[float]) -> Reading:
    """The sum of some values; missing where there is none."""
    if values:
        return sum(values)
    return NOT_EXPOSED


def _tokens_per_s(token_counts: deque[tuple[float, float]], reading: EngineReading) -> Reading:
    """Rate of tokens over the last `_RATE_S`; warming up before the second answer of a process."""
    counters = [rank.counters[DECODE_TOKENS] for rank in reading.ranks if DECODE_TOKENS in rank.counters]
    total = number(_sum_of_known(counters))
    if total is None:
        token_counts.clear()
        return NOT_EXPOSED
    if token_counts and total < token_counts[-1][1]:  # its counters began anew
        token_counts.clear()
    token_counts.append((reading.monotonic_s, total))
    while len(token_counts) > 2 and token_counts[1][0] <= reading.monotonic_s - _RATE_S:
        token_counts.popleft()
    oldest_s, oldest_total = token_counts[0]
    if reading.monotonic_s > oldest_s:
        return (total - oldest_total) / (reading.monotonic_s - oldest_s)
    return WARMING_UP


def _have_same_command(old: KnownEngine, new: KnownEngine) -> bool:
    """Whether both were started by the same command, as far as that is known."""
    return bool(new.origin.command) and old.origin.command == new.origin.command


def _have_same_model(old: KnownEngine, new: KnownEngine) -> bool:
    """Whether both serve the same model, as far as that is known."""
    return bool(new.reading.model) and old.reading.model == new.reading.model


def _start_phase(work: ServerWork, vram_bytes_per_s: float) -> Start:
    """Phase of a starting server, by its disk reads, VRAM growth and CPU."""
    if max(work.read_bytes_per_s or 0.0, vram_bytes_per_s) >= _LOADING_BYTES_PER_S:
        return Start.LOADING_WEIGHTS
    if (work.cpu_cores or 0.0) >= _COMPILING_CORES:
        return Start.COMPILING
    return Start.STARTING


def _departure(record: KnownEngine, cause: Cause, noted_wall_s: float) -> Departure:
    """The end of an engine, with what is known of its cause; `noted_wall_s`: when it was noted (Unix time)."""
    origin = record.origin
    ended_wall_s = noted_wall_s
    if record.served_wall_s <= cause.wall_s <= noted_wall_s:
        ended_wall_s = cause.wall_s
    return Departure(
        wall_s=ended_wall_s,
        served_wall_s=record.served_wall_s,
        pid=origin.pid,
        cause=cause.code,
        number=cause.number,
        planned=cause.planned or (not cause.code and _was_idle(record, ended_wall_s)),
        source=cause.source,
        unit=origin.unit,
        container=origin.container,
        command=origin.command[:_MOST_COMMAND],
        log=log_command(origin),
        start=start_command(origin),
        figures=record.figures,
    )


def _was_idle(record: KnownEngine, ended_wall_s: float) -> bool:
    """Whether nothing ran or waited in the time before its end, and that was seen."""
    if not record.tells_load or ended_wall_s - record.served_wall_s > _WATCHED_S:
        return False
    idle_since_s = max(record.busy_wall_s, record.begun_wall_s)
    return record.served_wall_s - idle_since_s >= _IDLE_S - _WATCHED_S and ended_wall_s - idle_since_s >= _IDLE_S


def log_command(origin: EngineOrigin) -> str:
    """The command that shows the end of its log; empty where none is known."""
    if origin.output:
        return f"{FILE_LOG}{origin.output}"
    if origin.pod:
        namespace, _, name = origin.pod.rpartition("/")
        option = f" -n {namespace}" if namespace else ""
        return f"kubectl logs{option} {name} --previous --tail=100"
    if origin.container:
        return f"docker logs --tail 100 {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"journalctl{option} -u {origin.unit} -n 100"
    return ""


def start_command(origin: EngineOrigin) -> str:
    """The command that starts it again; empty where none is known, and for pods, which Kubernetes starts itself."""
    if origin.pod:
        return ""
    if origin.container:
        return f"docker start {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"systemctl{option} start {origin.unit}"
    return ""


def _is_over(departure: Departure, wall_s: float) -> bool:
    """Whether an end is old enough to be forgotten; one that lies in the future was dated by a clock that was wrong."""
    shown_s = SHOWN_AFTER_STOP_S if departure.planned else SHOWN_AFTER_END_S
    return abs(wall_s - departure.wall_s) > shown_s


def _reading_without_answer(record: KnownEngine, reading: EngineReading) -> EngineReading:
    """The reading of an engine that served and does not answer: named as it was, with when it answered last."""
    if not reading.ranks:
        reading = msgspec.structs.replace(
            record.reading, state=reading.state, fault=reading.fault, monotonic_s=reading.monotonic_s, ranks=()
        )
    return msgspec.structs.replace(reading, info={**reading.info, LAST_ANSWER: f"{record.served_wall_s:.0f}"})


def _long_gone_row(reading: EngineReading, departure: Departure) -> EngineReading:
    """The row of an endpoint of the config whose end is old: it has no verdict any more."""
    return msgspec.structs.replace(
        reading, fault=f"{ended_text(departure)}; take it out of the config if it does not come back"
    )


def _never_served(reading: EngineReading) -> EngineReading:
    """An endpoint of the config at which nothing listens, and at which no engine was ever seen."""
    if reading.state is not EndpointState.REFUSED or reading.found_by == "discovery":
        return reading
    return msgspec.structs.replace(reading, fault=f"{reading.fault}; {NEVER_SERVED}")


def _without_taken_gpus(readings: Sequence[EngineReading]) -> tuple[EngineReading, ...]:
    """The readings, in which an engine that has ended is not on a GPU any more that another engine took."""
    in_use: set[str] = set()
    for reading in readings:
        if reading.state is not EndpointState.DOWN:
            in_use.update(reading.gpus)
    shown = []
    for reading in readings:
        if reading.state is EndpointState.DOWN and not in_use.isdisjoint(reading.gpus):
            free = tuple(uuid for uuid in reading.gpus if uuid not in in_use)
            reading = msgspec.structs.replace(reading, gpus=free)
        shown.append(reading)
    return tuple(shown)
