"""Which engines served, and which of them have ended: knows no clock and does no I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import (
    FILE_LOG,
    SERVED,
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
"""An engine whose process is not known has ended once its port refused for so long: a restart of nginx or of a
container's proxy takes less."""
_IDLE_S: Final = 30.0
"""Without a request for so long before its port closed, its end is taken for planned."""
_WATCHED_S: Final = 15.0
"""An answer is older than this: what the engine did in between was not seen."""
CAUSE_S: Final = 3.0
"""The cause of an end is waited for so long before the end is shown: a stop by systemd is not first called a crash."""
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
"""Over so long the last rate of tokens of an engine is taken."""
VRAM_S: Final = 10.0
"""Over so long the VRAM of a starting engine is compared."""
NEVER_SERVED: Final = "never seen serving: check that the URL is right and the server was started"


class Cause(NamedTuple):
    """How a process ended, and who says so."""

    code: str = ""
    """Code of the cause, as in `Departure.cause`."""
    number: int = 0
    planned: bool = False
    source: str = ""
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


AskCause = Callable[[KnownEngine], "Future[Cause]"]


class _Kept:
    """One engine that served, with what only this run knows of it. Times are monotonic."""

    def __init__(self, served: KnownEngine) -> None:
        self.served = served
        self.answered_s = -math.inf
        """When it answered last in this run."""
        self.counted: deque[tuple[float, float]] = deque()
        """Tokens that its process has counted: monotonic time and number, of the last `_RATE_S`."""
        self.refused_s: float | None = None
        """Since when nothing listens at its URL; None: something does, or nobody knows."""
        self.ended_s: float | None = None
        """When its process was first seen gone, or its port had refused for long enough."""
        self.asked: Future[Cause] | None = None
        self.shown: EngineReading | None = None
        """The row of its end; the same object as long as nothing about it changes."""
        self.has_replaced = False
        """It stands for one that has ended, another one or itself: it does so for one only."""

    @property
    def key(self) -> str:
        """Key of the engine, as in `EngineReading.key`."""
        return self.served.reading.key

    @property
    def has_cause(self) -> bool:
        """Whether the question for the cause of its end is answered."""
        return self.asked is not None and self.asked.done()


def _is_process_gone(kept: _Kept, reading: EngineReading | None, around: Around, wall_s: float, now_s: float) -> bool:
    """Whether the process of an engine is gone, by its port if the process is not known."""
    origin = kept.served.origin
    if origin.pid:
        return around.rebooted or origin.id in around.ended
    if reading is None or reading.state is not EndpointState.REFUSED:
        return False
    return _refuses_for(kept, wall_s, now_s) >= REFUSES_S


def _is_old(kept: _Kept, reading: EngineReading) -> bool:
    """Whether this answer was taken before, or is the last one of a process that has ended since."""
    if kept.answered_s == reading.monotonic_s:
        return True
    return kept.ended_s is not None and reading.monotonic_s <= kept.ended_s


def _take_figures(kept: _Kept, reading: EngineReading, answered_wall_s: float) -> None:
    """Note the newest answer of an engine."""
    served = kept.served
    kept.answered_s = reading.monotonic_s
    kept.refused_s = None
    served.reading = reading
    served.served_wall_s = answered_wall_s
    served.figures = _figures(kept, reading)
    running = number(served.figures.running)
    waiting = number(served.figures.waiting)
    served.tells_load = running is not None or waiting is not None
    if running or waiting:
        served.busy_wall_s = answered_wall_s


def _awaits_cause(kept: _Kept, now_s: float) -> bool:
    """Whether the cause of its end was asked for, and may still come in time."""
    if kept.asked is None or kept.asked.done():
        return False
    return now_s - (kept.ended_s or 0.0) < CAUSE_S


def _take_cause(kept: _Kept, around: Around) -> Cause:
    """The cause of its end, if the answer has come (it is taken once); else the reboot, if there was one."""
    cause = NO_CAUSE
    if kept.asked is not None and kept.asked.done():
        if kept.asked.exception() is None:
            cause = kept.asked.result()
        kept.asked = None
    if around.rebooted and not cause.code:
        return Cause("reboot")
    return cause


class LastSeen:
    """Remembers engines that served, and puts those that ended into the readings of each tick."""

    def __init__(self, ask: AskCause | None = None) -> None:
        """`ask` looks up how a process ended, in a thread; without it no cause is known."""
        self._ask = ask
        self._kept: dict[str, _Kept] = {}
        self._dropped: dict[str, float] = {}
        """Keys that were forgotten on purpose, and when (Unix time)."""
        self._vram: dict[str, deque[tuple[float, float]]] = {}
        """VRAM of starting servers by URL: monotonic time and bytes."""
        self.version = 0
        """Grows when an engine comes, ends or is forgotten."""

    def load(self, remembered: Iterable[KnownEngine]) -> None:
        """Take what an earlier run remembered; what this run has seen itself is newer."""
        for served in remembered:
            key = served.reading.key
            if key not in self._kept and len(self._kept) < MOST_REMEMBERED_ENGINES:
                self._kept[key] = _Kept(served)

    def records(self) -> list[KnownEngine]:
        """All that is remembered."""
        return [kept.served for kept in self._kept.values()]

    def origin(self, key: str) -> EngineOrigin:
        """The process of an engine when it answered last; an empty one where that is not known."""
        kept = self._kept.get(key)
        return kept.served.origin if kept is not None else NO_ORIGIN

    @property
    def dropped(self) -> Mapping[str, float]:
        """Keys that were forgotten on purpose, and when (Unix time)."""
        return self._dropped

    def take(
        self,
        engines: Sequence[EngineReading],
        gpus: Sequence[GpuReading],
        around: Around,
        wall_s: float,
        now_s: float,
    ) -> tuple[EngineReading, ...]:
        """The engines of a tick: those that have ended say so, those that start say what they do."""
        self._take_successors(around, wall_s)
        shown: list[EngineReading] = []
        self._take_answers(engines, around, wall_s, now_s)
        listed = {reading.key for reading in engines}
        for reading in engines:
            shown += self._shown(reading, listed, gpus, around, wall_s, now_s)
        urls = {reading.url for reading in engines}
        for kept in list(self._kept.values()):
            if kept.served.reading.url not in urls:
                shown += self._absent(kept, around, wall_s, now_s)
        for url in self._vram.keys() - urls:
            del self._vram[url]
        return _without_taken_gpus(shown)

    def _take_answers(self, engines: Iterable[EngineReading], around: Around, wall_s: float, now_s: float) -> None:
        """Take the good readings of engines that are remembered."""
        for reading in engines:
            if reading.state is EndpointState.OK and _is_remembered(reading, around):
                self._answered(reading, around, wall_s, now_s)

    def expected(self, around: Around, now_s: float, wall_s: float) -> list[Future[Cause]]:
        """Begin to ask for the causes of all ends that are known already: what a first tick should wait for."""
        self._take_successors(around, wall_s)
        if around.rebooted:
            return []
        asked = []
        for kept in self._kept.values():
            if kept.served.departure is None and self._note_end(kept, None, around, wall_s, now_s):
                self._begin_asking(kept)
                if kept.asked is not None:
                    asked.append(kept.asked)
        return asked

    def _take_successors(self, around: Around, wall_s: float) -> None:
        """A new process that listens where one served whose end was not told yet: it was restarted, and is no end."""
        for kept in list(self._kept.values()):
            served = kept.served
            if not served.origin.pid or served.departure is not None:
                continue
            if not _has_successor(served, around):
                continue
            served.origin = around.servers[served.reading.url]
            served.begun_wall_s = wall_s
            kept.ended_s = None
            kept.asked = None
            kept.has_replaced = True
            kept.counted.clear()
            self.version += 1
            self._forget_moved(kept, wall_s)

    def _answered(self, reading: EngineReading, around: Around, wall_s: float, now_s: float) -> None:
        """Take a good reading."""
        kept = self._kept.get(reading.key)
        if kept is not None and _is_old(kept, reading):
            return
        answered_wall_s = wall_s - max(0.0, now_s - reading.monotonic_s)
        is_new = kept is None
        if kept is None:
            if len(self._kept) >= MOST_REMEMBERED_ENGINES and not self._forget_oldest():
                return
            kept = _Kept(KnownEngine(without_bulk(reading), answered_wall_s, answered_wall_s))
            self._kept[reading.key] = kept
        if is_new or kept.served.departure is not None or kept.ended_s is not None:
            self._begin(kept, answered_wall_s, is_new=is_new)
        self._take_origin(kept, around, answered_wall_s)
        if is_new:
            self._take_the_place(kept)
        _take_figures(kept, reading, answered_wall_s)

    def _begin(self, kept: _Kept, begun_wall_s: float, *, is_new: bool) -> None:
        """Note that the engine serves, for the first time or again."""
        kept.ended_s = None
        kept.asked = None
        kept.shown = None
        kept.counted.clear()
        kept.has_replaced = not is_new
        kept.served.departure = None
        kept.served.begun_wall_s = begun_wall_s
        kept.served.origin = NO_ORIGIN
        self._dropped.pop(kept.key, None)
        self.version += 1

    def _take_origin(self, kept: _Kept, around: Around, wall_s: float) -> None:
        """Note the process that serves, if it is known and runs."""
        origin = around.servers.get(kept.served.reading.url, NO_ORIGIN)
        runs = bool(origin.pid) and origin.id not in around.ended
        if runs and kept.served.origin != origin:
            kept.served.origin = origin
            self._forget_moved(kept, wall_s)

    def _take_the_place(self, fresh: _Kept) -> None:
        """Forget the engine that this one replaces: one of the same command or model that has ended."""
        ended = [kept for kept in self._kept.values() if kept is not fresh and kept.served.departure is not None]
        for is_same in (_same_command, _same_model):
            for kept in ended:
                if is_same(kept.served, fresh.served):
                    fresh.has_replaced = True
                    self._drop(kept, fresh.served.begun_wall_s)
                    return

    def _is_replaced(self, ended: _Kept, around: Around) -> bool:
        """Whether another engine took its place before its end was seen: one that began after its last answer."""
        for kept in self._kept.values():
            served = kept.served
            if kept is ended or kept.has_replaced or served.departure is not None:
                continue
            if not _began_after(kept, ended, around):
                continue
            if _same_command(ended.served, served) or _same_model(ended.served, served):
                kept.has_replaced = True
                return True
        return False

    def _forget_moved(self, moved: _Kept, wall_s: float) -> None:
        """Forget the URL at which a server was that answers at another one now."""
        origin = moved.served.origin
        url = moved.served.reading.url
        for kept in list(self._kept.values()):
            if kept.served.origin.id == origin.id and kept.served.reading.url != url:
                self._drop(kept, wall_s)

    def _drop(self, kept: _Kept, wall_s: float) -> None:
        del self._kept[kept.key]
        self._dropped[kept.key] = wall_s
        while len(self._dropped) > MOST_REMEMBERED_ENGINES:
            del self._dropped[next(iter(self._dropped))]
        self.version += 1

    def _forget_oldest(self) -> bool:
        """Make room for an engine; those that serve are not forgotten."""
        gone = [kept for kept in self._kept.values() if kept.served.departure is not None]
        if not gone:
            return False
        oldest = min(gone, key=lambda kept: kept.served.changed_wall_s)
        self._drop(oldest, oldest.served.changed_wall_s)
        return True

    def _shown(
        self,
        reading: EngineReading,
        listed: set[str],
        gpus: Sequence[GpuReading],
        around: Around,
        wall_s: float,
        now_s: float,
    ) -> list[EngineReading]:
        """A reading as it is shown: several where a server of several models has ended before this run."""
        if reading.phase is not Phase.INFERENCE:
            return [reading]
        known = self._known_of(reading, listed)
        ended = bool(known) and self._note_end(known[0], reading, around, wall_s, now_s)
        if reading.state is EndpointState.OK and not ended:
            return [reading]
        starting = self._starting(reading, known, gpus, around, now_s)
        if starting is not None:
            return [starting]
        if not known:
            return [_never_served(reading)]
        return [self._silent(kept, reading, around, wall_s, now_s) for kept in known]

    def _known_of(self, reading: EngineReading, listed: set[str]) -> list[_Kept]:
        """The engines that are remembered of this reading: of a server that does not answer all its models, but those
        that are listed themselves."""
        kept = self._kept.get(reading.key)
        if kept is not None:
            return [kept]
        if reading.part or reading.state is EndpointState.OK:
            return []
        parts = [kept for kept in self._kept.values() if kept.served.reading.url == reading.url]
        return [kept for kept in parts if kept.key not in listed]

    def _silent(
        self, kept: _Kept, reading: EngineReading, around: Around, wall_s: float, now_s: float
    ) -> EngineReading:
        """The reading of an engine that served and does not answer: it has ended, or nobody knows."""
        served = kept.served
        if reading.state is not EndpointState.REFUSED:
            kept.refused_s = None
        elif kept.refused_s is None:
            kept.refused_s = now_s
        answers = reading.state not in (EndpointState.OK, EndpointState.REFUSED)
        if answers and _has_successor(served, around):
            return _last(served, reading)
        if self._departed(kept, reading, around, wall_s, now_s):
            assert served.departure is not None
            if not _is_over(served.departure, wall_s):
                return self._down(kept, reading, wall_s, now_s)
            return _long_gone(_last(served, reading), served.departure)
        if reading.state is EndpointState.OK:
            return reading
        return _last(served, reading)

    def _absent(self, kept: _Kept, around: Around, wall_s: float, now_s: float) -> list[EngineReading]:
        """The row of an engine of this host that is not listed any more, however it was found."""
        served = kept.served
        is_here = served.reading.found_by == "discovery" or bool(served.origin.pid)
        if not is_here or not around.looks:
            return []
        if not self._departed(kept, None, around, wall_s, now_s):
            return []
        assert served.departure is not None
        if _is_over(served.departure, wall_s):
            self._drop(kept, wall_s)
            return []
        return [self._down(kept, None, wall_s, now_s)]

    def _note_end(
        self, kept: _Kept, reading: EngineReading | None, around: Around, wall_s: float, now_s: float
    ) -> bool:
        """Note the end of an engine: its process is known to be gone, or its port refuses for so long that it must be.
        Returns whether it has ended."""
        served = kept.served
        if kept.ended_s is not None or served.departure is not None:
            answers = reading is not None and reading.state is EndpointState.OK
            return not answers or kept.answered_s <= (kept.ended_s or 0.0)
        if not _is_process_gone(kept, reading, around, wall_s, now_s):
            return False
        kept.ended_s = now_s
        return True

    def _departed(
        self, kept: _Kept, reading: EngineReading | None, around: Around, wall_s: float, now_s: float
    ) -> bool:
        """Whether it has ended, and it is known how, or that was waited for long enough."""
        served = kept.served
        if served.departure is not None and not kept.has_cause:
            return True
        if not self._note_end(kept, reading, around, wall_s, now_s):
            return False
        if served.departure is None and self._is_replaced(kept, around):
            self._drop(kept, wall_s)
            return False
        if not around.rebooted:
            self._begin_asking(kept)
        if _awaits_cause(kept, now_s):
            return False
        cause = _take_cause(kept, around)
        if served.departure is None or cause is not NO_CAUSE:
            self._depart(kept, cause, wall_s)
        return True

    def _depart(self, kept: _Kept, cause: Cause, wall_s: float) -> None:
        """Note how it ended; the time of an end that is noted already stays."""
        served = kept.served
        ended_wall_s = wall_s
        if served.departure is not None:
            ended_wall_s = served.departure.wall_s
        served.departure = _departure(served, cause, ended_wall_s)
        kept.shown = None
        self.version += 1

    def _begin_asking(self, kept: _Kept) -> None:
        if self._ask is not None and kept.asked is None and kept.served.origin.pid:
            kept.asked = self._ask(kept.served)

    def _down(self, kept: _Kept, reading: EngineReading | None, wall_s: float, now_s: float) -> EngineReading:
        """The row of an engine that has ended: its last figures, and how it ended."""
        served = kept.served
        interval_s = served.reading.interval_s if reading is None else reading.interval_s
        if kept.shown is None or kept.shown.interval_s != interval_s:
            assert served.departure is not None
            seen_here = kept.answered_s > -math.inf
            kept.shown = msgspec.structs.replace(
                served.reading,
                monotonic_s=kept.answered_s if seen_here else now_s - max(0.0, wall_s - served.served_wall_s),
                ranks=served.reading.ranks if seen_here else (),
                state=EndpointState.DOWN,
                departure=served.departure,
                fault=ended_text(served.departure),
                interval_s=interval_s,
            )
        return kept.shown

    def _starting(
        self,
        reading: EngineReading,
        known: Sequence[_Kept],
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
        if any(kept.served.origin.id == origin.id for kept in known):
            return None
        info = {**reading.info, **self._start_info(reading.url, origin, gpus, around, now_s)}
        model = reading.model
        if not model and known:
            model = known[0].served.reading.model
        return msgspec.structs.replace(
            reading, state=EndpointState.STARTING, info=info, model=model, fault=starting_text(info)
        )

    def _start_info(
        self, url: str, origin: EngineOrigin, gpus: Sequence[GpuReading], around: Around, now_s: float
    ) -> dict[str, str]:
        """Work of a starting server, as `info` of its reading has it."""
        work = around.works.get(origin.id, ServerWork())
        vram_bytes, growth = self._vram_of(url, origin, gpus, now_s)
        info = {STARTS: _start_of(work, growth).value, START_PID: str(origin.pid)}
        figures = {START_READ: work.read_bytes_per_s, START_CPU: work.cpu_cores, START_VRAM: vram_bytes}
        for name, value in figures.items():
            if value is not None:
                info[name] = f"{value:.3g}"
        return info

    def _vram_of(
        self, url: str, origin: EngineOrigin, gpus: Sequence[GpuReading], now_s: float
    ) -> tuple[float | None, float]:
        """VRAM that its processes hold, and by how many bytes/s that grows."""
        known = []
        for gpu in gpus:
            for process in gpu.processes:
                if process.pid in origin.gpu_pids and process.type != "graphics":
                    known.append(number(process.vram_bytes))
        held = [value for value in known if value is not None]
        if not held:
            return None, 0.0
        samples = self._vram.setdefault(url, deque())
        samples.append((now_s, sum(held)))
        while now_s - samples[0][0] > VRAM_S:
            samples.popleft()
        seconds = now_s - samples[0][0]
        if seconds > 0.0:
            growth = (sum(held) - samples[0][1]) / seconds
        else:
            growth = 0.0
        return sum(held), growth


def _is_remembered(reading: EngineReading, around: Around) -> bool:
    """Whether the end of this engine would be an event: a training run ends by itself, as does Ollama's runner."""
    return reading.phase is Phase.INFERENCE and reading.url not in around.passing


def _refuses_for(kept: _Kept, wall_s: float, now_s: float) -> float:
    """Seconds for which nothing listens at its URL; where another run saw it last, since its last answer."""
    refused_s = 0.0 if kept.refused_s is None else now_s - kept.refused_s
    if kept.answered_s > -math.inf:
        return refused_s
    return max(refused_s, wall_s - kept.served.served_wall_s)


def _began_after(kept: _Kept, ended: _Kept, around: Around) -> bool:
    """Whether an engine began after the last answer of one that has ended."""
    if kept.served.begun_wall_s > ended.served.served_wall_s + SUCCEEDS_S:
        return True
    origin = kept.served.origin
    if not origin.pid or ended.answered_s == -math.inf:
        return False
    return origin.started_s - around.slept_s > ended.answered_s


def _has_successor(served: KnownEngine, around: Around) -> bool:
    """Whether a new process listens at its URL, which may want a key by now, or hang: what ended is the old one."""
    url = served.reading.url
    origin = around.servers.get(url)
    if origin is None or origin.id == served.origin.id or origin.id in around.ended:
        return False
    return url in around.listening


def _figures(kept: _Kept, reading: EngineReading) -> LastFigures:
    """Figures of an engine at a good reading, from its own page."""
    usage = _gauges(reading, KV_USAGE)
    return LastFigures(
        running=_sum(_gauges(reading, RUNNING)),
        waiting=_sum(_gauges(reading, WAITING)),
        kv_usage_ratio=sum(usage) / len(usage) if usage else NOT_EXPOSED,
        decode_tokens_per_s=_tokens_per_s(kept.counted, reading),
    )


def _gauges(reading: EngineReading, name: str) -> list[float]:
    gauges = []
    for rank in reading.ranks:
        if name in rank.gauges:
            gauges.append(rank.gauges[name])
    return gauges


def _sum(values: Sequence[float]) -> Reading:
    if values:
        return sum(values)
    return NOT_EXPOSED


def _tokens_per_s(counted: deque[tuple[float, float]], reading: EngineReading) -> Reading:
    """Rate of tokens over the last `_RATE_S`; warming up before the second answer of a process."""
    counters = [rank.counters[DECODE_TOKENS] for rank in reading.ranks if DECODE_TOKENS in rank.counters]
    total = number(_sum(counters))
    if total is None:
        counted.clear()
        return NOT_EXPOSED
    if counted and total < counted[-1][1]:  # its counters began anew
        counted.clear()
    counted.append((reading.monotonic_s, total))
    while len(counted) > 2 and counted[1][0] <= reading.monotonic_s - _RATE_S:
        counted.popleft()
    seconds = reading.monotonic_s - counted[0][0]
    return (total - counted[0][1]) / seconds if seconds > 0.0 else WARMING_UP


def _same_command(old: KnownEngine, new: KnownEngine) -> bool:
    return bool(new.origin.command) and old.origin.command == new.origin.command


def _same_model(old: KnownEngine, new: KnownEngine) -> bool:
    return bool(new.reading.model) and old.reading.model == new.reading.model


def _start_of(work: ServerWork, vram_bytes_per_s: float) -> Start:
    """Phase of a starting server, by its disk reads, VRAM growth and CPU."""
    if max(work.read_bytes_per_s or 0.0, vram_bytes_per_s) >= _LOADING_BYTES_PER_S:
        return Start.LOADING_WEIGHTS
    if (work.cpu_cores or 0.0) >= _COMPILING_CORES:
        return Start.COMPILING
    return Start.STARTING


def _departure(served: KnownEngine, cause: Cause, found_wall_s: float) -> Departure:
    """The end of an engine, with what is known of its cause."""
    origin = served.origin
    ended_wall_s = cause.wall_s if served.served_wall_s <= cause.wall_s <= found_wall_s else found_wall_s
    return Departure(
        wall_s=ended_wall_s,
        served_wall_s=served.served_wall_s,
        pid=origin.pid,
        cause=cause.code,
        number=cause.number,
        planned=cause.planned or (not cause.code and _was_idle(served, ended_wall_s)),
        source=cause.source,
        unit=origin.unit,
        container=origin.container,
        command=origin.command[:512],
        log=log_command(origin),
        start=start_command(origin),
        figures=served.figures,
    )


def _was_idle(served: KnownEngine, ended_wall_s: float) -> bool:
    """Whether nothing ran or waited in the time before its end, and that was seen."""
    if not served.tells_load or ended_wall_s - served.served_wall_s > _WATCHED_S:
        return False
    idle_since_s = max(served.busy_wall_s, served.begun_wall_s)
    return served.served_wall_s - idle_since_s >= _IDLE_S - _WATCHED_S and ended_wall_s - idle_since_s >= _IDLE_S


def log_command(origin: EngineOrigin) -> str:
    """The command that shows the end of its log."""
    if origin.output:
        return f"{FILE_LOG}{origin.output}"
    if origin.pod:
        namespace, _, name = origin.pod.rpartition("/")
        return f"kubectl logs{f' -n {namespace}' if namespace else ''} {name} --previous --tail=100"
    if origin.container:
        return f"docker logs --tail 100 {origin.container[:12]}"
    if origin.unit:
        return f"journalctl{' --user' if origin.is_user_unit else ''} -u {origin.unit} -n 100"
    return ""


def start_command(origin: EngineOrigin) -> str:
    """The command that starts it again."""
    if origin.pod:
        return ""
    if origin.container:
        return f"docker start {origin.container[:12]}"
    if origin.unit:
        return f"systemctl{' --user' if origin.is_user_unit else ''} start {origin.unit}"
    return ""


def _is_over(departure: Departure, wall_s: float) -> bool:
    """Whether an end is old enough to be forgotten; one that lies in the future was dated by a clock that was wrong."""
    return abs(wall_s - departure.wall_s) > (SHOWN_AFTER_STOP_S if departure.planned else SHOWN_AFTER_END_S)


def _last(served: KnownEngine, reading: EngineReading) -> EngineReading:
    """A reading without figures of an engine that served: named as it was, with when it answered last."""
    last = served.reading
    kept = reading if reading.ranks else msgspec.structs.replace(
        last, state=reading.state, fault=reading.fault, monotonic_s=reading.monotonic_s, ranks=()
    )  # fmt: skip
    return msgspec.structs.replace(kept, info={**kept.info, SERVED: f"{served.served_wall_s:.0f}"})


def _long_gone(reading: EngineReading, departure: Departure) -> EngineReading:
    """The row of an endpoint of the config whose end is old: it has no verdict any more."""
    return msgspec.structs.replace(
        reading, fault=f"{ended_text(departure)}; take it out of the config if it does not come back"
    )


def _never_served(reading: EngineReading) -> EngineReading:
    """An endpoint of the config at which nothing listens, and at which no engine was ever seen."""
    if reading.state is not EndpointState.REFUSED or reading.found_by == "discovery":
        return reading
    return msgspec.structs.replace(reading, fault=f"{reading.fault}; {NEVER_SERVED}")


def _without_taken_gpus(engines: Sequence[EngineReading]) -> tuple[EngineReading, ...]:
    """The engines; one that has ended is not on a GPU any more that another engine took."""
    taken: set[str] = set()
    for reading in engines:
        if reading.state is not EndpointState.DOWN:
            taken.update(reading.gpus)
    shown = []
    for reading in engines:
        if reading.state is EndpointState.DOWN and not taken.isdisjoint(reading.gpus):
            free = tuple(uuid for uuid in reading.gpus if uuid not in taken)
            reading = msgspec.structs.replace(reading, gpus=free)
        shown.append(reading)
    return tuple(shown)
