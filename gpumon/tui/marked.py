"""Work of engines since a moment that the user marked: sums by their totals, peaks as polls saw them since then."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency.ratio import divide, larger, minus, times
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Outcomes, SinceStart, Snapshot

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
    """Most requests of an engine since the mark, and whether its counters began anew."""

    def __init__(self) -> None:
        self.running: Reading = NOT_EXPOSED
        self.waiting: Reading = NOT_EXPOSED
        self.began_anew = False
        """Whether its counters began anew: the engine was started again."""
        self._ended = 0.0
        """Requests that had ended at the last poll."""
        self._runs_s = 0.0
        """Seconds that the engine had run at the last poll."""

    def take(self, engine: Engine) -> None:
        """Take in the requests of now."""
        self.running = larger(self.running, engine.load.running)
        self.waiting = larger(self.waiting, engine.load.waiting)
        ended = number(engine.served.outcomes_since_start.ended)
        runs_s = number(engine.since_start.seconds)
        if ended is not None:
            self.began_anew = self.began_anew or ended < self._ended
            self._ended = ended
        if runs_s is not None:
            self.began_anew = self.began_anew or runs_s < self._runs_s - _SAME_START_S
            self._runs_s = runs_s


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
        outcomes = engine.served.outcomes_since_start
        outcomes_then = engine_then.served.outcomes_since_start
        means = engine.since_start
        means_then = engine_then.since_start
        if watched.began_anew:  # what these count is of the new run alone
            outcomes = Outcomes()
            means = SinceStart()
        return Since(
            decode=minus(tokens.decode, tokens_then.decode),
            prefill=minus(tokens.prefill_computed, tokens_then.prefill_computed),
            cached=minus(tokens.prefill_cached, tokens_then.prefill_cached),
            requests=minus(seen.requests, engine_then.served.seen.requests),
            failed=minus(outcomes.failed, outcomes_then.failed),
            aborted=minus(outcomes.aborted, outcomes_then.aborted),
            rejected=minus(outcomes.rejected, outcomes_then.rejected),
            ttft_s=_mean_between(means_then.ttft_s, means_then.ttft_count, means.ttft_s, means.ttft_count),
            itl_s=_mean_between(means_then.itl_s, means_then.itl_count, means.itl_s, means.itl_count),
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


def _mean_between(mean_then: Reading, count_then: Reading, mean: Reading, count: Reading) -> Reading:
    """Mean of the observations between two moments, from the means and counts up to each of them."""
    observed = minus(count, count_then)
    total = minus(times(mean, count), times(mean_then, count_then))
    return divide(total, observed, Missing(Reason.IDLE))
