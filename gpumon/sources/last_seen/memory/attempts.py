"""Starts of an engine that ended before its first token or soon after it, counted together: one loop with a count, not
an end and a start in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import EndpointState, EngineReading, FailedStarts, Phase
from gpumon.readings.quantities import DECODE_TOKENS, PREFILL_COMPUTED, PROMPT_TOKENS, RUNNING, WAITING
from gpumon.sources.last_seen.causes import NO_CAUSE, Cause, log_command, make_departure
from gpumon.sources.last_seen.memory.seen_engine import AskCause
from gpumon.sources.last_seen.processes.process_state import Tick
from gpumon.sources.last_seen.records import EngineOrigin, KnownEngine, ProcessId
from gpumon.triage.engine_down import ended_text
from gpumon.triage.start_loop import LOOP_STARTS

LOOP_S: Final = 1800.0
"""Seconds for which a start that failed is remembered: a large model loads for ten minutes, and Kubernetes waits for up
to five before it starts a container anew."""
SERVED_S: Final = 60.0
"""Seconds for which an engine must answer, where no token tells it, for its start to have succeeded."""
LASTS_S: Final = 600.0
"""Seconds for which an engine must give tokens for its end to have nothing to do with its start (a choice: triage
counts restarts over as long a time)."""
_OUTLIVES: Final = 1.5
"""Times the length of the starts before it for which one must last until it is believed to serve (a choice)."""
_MOST_STARTS: Final = 64
"""Servers of which starts are followed."""
_TOKENS: Final = (DECODE_TOKENS, PREFILL_COMPUTED, PROMPT_TOKENS)


class _End(NamedTuple):
    """A start that failed. Times are Unix times."""

    began_wall_s: float
    ended_wall_s: float
    has_served: bool
    """It had given tokens, and had requests when it ended."""
    answer: Future[Cause] | None
    """How it ended; None: nobody was asked."""

    @property
    def length_s(self) -> float:
        """How long it took until it ended."""
        return self.ended_wall_s - self.began_wall_s

    @property
    def cause(self) -> Cause:
        """How it ended, as far as that is known by now."""
        if self.answer is None or not self.answer.done() or self.answer.exception() is not None:
            return NO_CAUSE
        return self.answer.result()


class _Attempts:
    """Starts at one URL. Times are monotonic, unless their names say `wall`."""

    def __init__(self, origin: EngineOrigin, wall_s: float, now_s: float) -> None:
        self.origin = origin
        """The process of the newest start."""
        self.began_wall_s = wall_s
        self.began_s = now_s
        """When it was first seen."""
        self.answered_s: float | None = None
        """When it answered first; None: not yet."""
        self.serves_s: float | None = None
        """When it was first seen to have given a token, or to have answered for `SERVED_S`; None: not yet."""
        self.is_running = True
        self.is_drained = False
        """It has closed its port before its end: somebody asked for that."""
        self.is_busy = False
        """Requests ran or waited at its last good answer."""
        self.ends: list[_End] = []
        """The starts that failed, the oldest first."""
        self.reading: EngineReading | None = None
        """The newest reading at that URL."""

    @property
    def failed(self) -> list[_End]:
        """The starts that failed. One that had served and that somebody stopped has not."""
        return [end for end in self.ends if not (end.has_served and end.cause.planned)]

    def begin(self, origin: EngineOrigin, tick: Tick) -> None:
        """Follow another process; those before it do not count where it was started by another command."""
        if origin.command and self.origin.command and origin.command != self.origin.command:
            self.ends.clear()
        self.origin = origin
        self.began_wall_s = tick.wall_s
        self.began_s = tick.now_s
        self.answered_s = None
        self.serves_s = None
        self.is_running = True
        self.is_drained = False
        self.is_busy = False

    def end(self, tick: Tick, ask: AskCause | None) -> None:
        """Note that the newest start has ended. One that served, and had nothing to do or drained, has not failed."""
        self.is_running = False
        has_served = self.serves_s is not None
        if has_served and (self.is_drained or not self.is_busy):
            return
        answer = ask(self.record()) if ask is not None and self.reading is not None else None
        self.ends.append(_End(self.began_wall_s, tick.wall_s, has_served, answer))

    def note_answer(self, reading: EngineReading, now_s: float) -> None:
        """Note a good answer of the newest start: whether it has work, and whether it serves by now."""
        self.is_busy = any(rank.gauges.get(name) for rank in reading.ranks for name in (RUNNING, WAITING))
        if self.answered_s is None:
            self.answered_s = now_s
        has_tokens = any(rank.counters.get(name) for rank in reading.ranks for name in _TOKENS)
        if self.serves_s is None and (has_tokens or now_s - self.answered_s >= SERVED_S):
            self.serves_s = now_s
            # Earlier starts that never served had troubles that this one has not.
            if not any(end.has_served for end in self.ends):
                self.ends.clear()

    def record(self) -> KnownEngine:
        """The newest start as an engine that was seen from its begin on."""
        assert self.reading is not None
        return KnownEngine(self.reading, self.began_wall_s, self.began_wall_s, origin=self.origin)

    def has_failed(self, now_s: float) -> bool:
        """Whether starts have failed, and the newest one is not believed to serve yet.

        A single one that was stopped, or ended with status 0, has not; several are a loop whatever their status:
        scripts around a server hide it.
        """
        failed = self.failed
        if self.serves_s is not None and self.is_running:
            lengths = [end.length_s for end in failed]
            return len(failed) >= LOOP_STARTS and now_s - self.began_s < _OUTLIVES * max(lengths)
        return len(failed) >= LOOP_STARTS or bool(failed and not failed[-1].cause.planned)

    def drop_old(self, wall_s: float) -> None:
        """Forget the starts that failed long ago."""
        self.ends = [end for end in self.ends if wall_s - end.ended_wall_s <= LOOP_S]


class StartsWatch:
    """Follows the starts of servers until their first token. Knows no clock and does no I/O."""

    def __init__(self, ask: AskCause | None = None) -> None:
        self._ask = ask
        self._attempts: dict[str, _Attempts] = {}
        """URL -> its starts since it gave a token last."""
        self._settled: dict[str, ProcessId] = {}
        """URL -> the process there that has given a token, or was there when gpumon came."""
        self._is_begun = False

    @property
    def watched(self) -> Iterable[EngineOrigin]:
        """Processes of which it must be known whether they live."""
        return [attempts.origin for attempts in self._attempts.values() if attempts.is_running]

    def take(self, readings: Sequence[EngineReading], tick: Tick) -> None:
        """Note the processes that begin, end, or give their first token."""
        self._note_servers(tick)
        for url, attempts in list(self._attempts.items()):
            if attempts.is_running and attempts.origin.id in tick.processes.ended:
                attempts.end(tick, self._ask)
            attempts.drop_old(tick.wall_s)
            if not attempts.is_running and not attempts.ends:
                del self._attempts[url]
        for reading in readings:
            if reading.url in self._attempts and reading.phase is Phase.INFERENCE:
                self._note_reading(self._attempts[reading.url], reading, tick)
        self._is_begun = self._is_begun or tick.processes.looks or bool(tick.processes.servers)

    def shown(self, readings: Iterable[EngineReading], tick: Tick) -> list[EngineReading]:
        """The readings, in which servers whose starts failed say so, and those that nobody lists between two starts."""
        shown = []
        urls = set()
        for reading in readings:
            urls.add(reading.url)
            attempts = self._attempts.get(reading.url)
            if attempts is not None and attempts.has_failed(tick.now_s):
                reading = _with_attempts(reading, attempts, tick)
            shown.append(reading)
        for url, attempts in self._attempts.items():
            if url not in urls and attempts.reading is not None and len(attempts.failed) >= LOOP_STARTS:
                shown.append(_with_attempts(attempts.reading, attempts, tick))
        return shown

    def _note_servers(self, tick: Tick) -> None:
        """Note the processes that run at each URL."""
        processes = tick.processes
        for url, origin in processes.servers.items():
            if url in processes.passing or origin.id in processes.ended or self._settled.get(url) == origin.id:
                continue
            attempts = self._attempts.get(url)
            if attempts is not None and attempts.origin.id == origin.id:
                attempts.origin = origin
            elif attempts is not None:
                if attempts.is_running:
                    attempts.end(tick, self._ask)
                attempts.begin(origin, tick)
            elif (self._is_begun or url not in processes.listening) and len(self._attempts) < _MOST_STARTS:
                self._attempts[url] = _Attempts(origin, tick.wall_s, tick.now_s)
            else:
                self._settled[url] = origin.id

    def _note_reading(self, attempts: _Attempts, reading: EngineReading, tick: Tick) -> None:
        """Note what the newest process at a URL says; once it has served for long its starts are forgotten."""
        attempts.reading = reading
        if reading.state is EndpointState.DRAINING:
            attempts.is_drained = True
        is_new = reading.state is EndpointState.OK and reading.monotonic_s > attempts.began_s
        if not is_new or not attempts.is_running or reading.url not in tick.processes.listening:
            return
        attempts.note_answer(reading, tick.now_s)
        if attempts.serves_s is not None and tick.now_s - attempts.serves_s >= LASTS_S:
            self._settled[reading.url] = attempts.origin.id
            del self._attempts[reading.url]


def _with_attempts(reading: EngineReading, attempts: _Attempts, tick: Tick) -> EngineReading:
    """The reading with the starts that failed; between two of them it is down since the end of the last."""
    failed = attempts.failed
    last = failed[-1]
    starts = FailedStarts(
        ended=len(failed),
        first_wall_s=failed[0].began_wall_s,
        length_s=median(end.length_s for end in failed),
        pid=attempts.origin.pid,
        runs=attempts.is_running,
        log=log_command(attempts.origin),
        began_wall_s=attempts.began_wall_s,
        served=any(end.has_served for end in failed),
        cause=last.cause.code,
        number=last.cause.number,
    )
    fields: dict[str, object] = {"failed_starts": starts}
    is_over = not attempts.is_running and reading.state is not EndpointState.STARTING
    has_end = reading.departure is not None or len(failed) >= LOOP_STARTS
    if is_over and has_end and not last.has_served and attempts.reading is not None:
        departure = make_departure(attempts.record(), last.cause, last.ended_wall_s)
        departure = msgspec.structs.replace(departure, served_wall_s=last.began_wall_s)
        fields |= {"state": EndpointState.DOWN, "departure": departure, "fault": ended_text(departure), "ranks": ()}
        fields["monotonic_s"] = tick.now_s - max(0.0, tick.wall_s - last.ended_wall_s)
    return msgspec.structs.replace(reading, **fields)
