"""Work of engines since a moment that the user marked: sums by their totals, peaks as polls saw them since then."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency.ratio import divide, larger, minus, times
from gpumon.efficiency.sums import CounterGrowth
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Snapshot

_SAME_START_S: Final = 1.0
"""Seconds by which a run may get shorter between two polls: its start is known to a second."""


class Since(msgspec.Struct, frozen=True):
    """Figures of an engine since the moment that the user marked."""

    decode: Reading
    """Tokens."""
    prefill: Reading
    """Prompt tokens that were computed."""
    cached: Reading
    """Prompt tokens from the prefix cache."""
    requests: Reading
    """Requests that ended."""
    failed: Reading
    """Requests that ended with an error."""
    aborted: Reading
    """Requests that their client gave up."""
    rejected: Reading
    """Requests that were turned away, which are not among `requests`."""
    ttft_s: Reading
    """Mean, from the engine's own histogram."""
    itl_s: Reading
    """Mean, from the engine's own histogram."""
    peak_running: Reading
    """Most requests in flight that a poll saw."""
    peak_waiting: Reading
    """Most waiting requests that a poll saw."""
    busy_ratio: Reading
    """Share of the time in which the engine had a request."""


class _WatchedEngine:
    """Most requests of an engine since the mark, and what its process has counted: over restarts, as its tokens."""

    def __init__(self) -> None:
        self.running: Reading = NOT_EXPOSED
        self.waiting: Reading = NOT_EXPOSED
        self._growths: dict[str, CounterGrowth] = {}
        """Counter -> its growth."""
        self._ended = 0.0
        """Requests that had ended at the last poll."""
        self._runs_s = 0.0
        """Seconds that the engine had run at the last poll."""

    def take(self, engine: Engine) -> None:
        """Take in the requests of now."""
        self.running = larger(self.running, engine.load.running)
        self.waiting = larger(self.waiting, engine.load.waiting)
        outcomes = engine.served.outcomes_since_start
        means = engine.since_start
        ended = number(outcomes.ended) or 0.0
        runs_s = number(means.seconds) or 0.0
        if ended < self._ended or runs_s < self._runs_s - _SAME_START_S:
            for growth in self._growths.values():
                growth.last = 0.0
        self._ended = ended
        self._runs_s = runs_s
        self._count("failed", outcomes.failed)
        self._count("aborted", outcomes.aborted)
        self._count("rejected", outcomes.rejected)
        self._count("ttft_s", times(means.ttft_s, means.ttft_count))
        self._count("ttft_count", means.ttft_count)
        self._count("itl_s", times(means.itl_s, means.itl_count))
        self._count("itl_count", means.itl_count)

    def _count(self, name: str, value: Reading) -> None:
        """Take in the newest value of a counter; an answer that lacks it is passed over."""
        if not isinstance(value, Missing):
            self._growths.setdefault(name, CounterGrowth()).add(value, 1.0)

    def growth(self, name: str) -> Reading:
        """Growth of a counter since the mark."""
        if name in self._growths:
            return self._growths[name].reading
        return NOT_EXPOSED

    def mean(self, name: str) -> Reading:
        """Mean of the observations since the mark: growth of their sum over that of their count."""
        return divide(self.growth(f"{name}_s"), self.growth(f"{name}_count"), Missing(Reason.IDLE))


class Marked:
    """A marked moment, and the engines as they were then."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.wall_s = snapshot.wall_s
        self._engines = {engine.key: engine for engine in snapshot.engines}
        """The engines at the marked moment, those alone that are still counted."""
        self._watched: dict[str, _WatchedEngine] = {}
        self.take(snapshot)

    def take(self, snapshot: Snapshot) -> None:
        """Take in the newest snapshot. An engine that came after the mark is not counted, as nobody saw its start; one
        that is not listed any more neither, as its sums begin anew when it comes back."""
        listed = {engine.key: engine for engine in snapshot.engines}
        for key in tuple(self._engines):
            if key in listed:
                self._watched.setdefault(key, _WatchedEngine()).take(listed[key])
            else:
                del self._engines[key]

    def since(self, engine: Engine) -> Since | None:
        """Figures of an engine since the mark; None of one that was not listed all the time."""
        engine_then = self._engines.get(engine.key)
        watched = self._watched.get(engine.key)
        if engine_then is None or watched is None:
            return None
        tokens = engine.tokens_total
        tokens_then = engine_then.tokens_total
        seen = engine.served.seen
        watched_s = minus(seen.seconds, engine_then.served.seen.seconds)
        return Since(
            decode=minus(tokens.decode, tokens_then.decode),
            prefill=minus(tokens.prefill_computed, tokens_then.prefill_computed),
            cached=minus(tokens.prefill_cached, tokens_then.prefill_cached),
            requests=minus(seen.requests, engine_then.served.seen.requests),
            failed=watched.growth("failed"),
            aborted=watched.growth("aborted"),
            rejected=watched.growth("rejected"),
            ttft_s=watched.mean("ttft"),
            itl_s=watched.mean("itl"),
            peak_running=watched.running,
            peak_waiting=watched.waiting,
            busy_ratio=divide(minus(_busy_s(engine), _busy_s(engine_then)), watched_s, NOT_EXPOSED),
        )


def _busy_s(engine: Engine) -> Reading:
    """Seconds in which the engine had a request, of those in which gpumon saw it."""
    seen = engine.served.seen
    if isinstance(seen.seconds, Missing) or isinstance(seen.busy_ratio, Missing):
        return NOT_EXPOSED
    return seen.seconds * seen.busy_ratio
