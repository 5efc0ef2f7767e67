"""Pauses of an engine that has requests and gives no token for some seconds, over the last quarter of an hour."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineReading
from gpumon.readings.quantities import DECODE_TOKENS, PREFILL_CACHED, PREFILL_COMPUTED, RUNNING

LEAST_S: Final = 4.0
"""Shortest pause that polls of 2 s show for sure, and that whoever reads along notices."""
_LEAST_POLLS: Final = 2
"""Polls without a new token that make a pause: one may have come a moment before the next token."""
_MUTE_INTERVALS: Final = 2.5
"""Intervals between polls without an answer that are a pause, too: what stops a server stops its page."""
_KEPT_S: Final = 900.0
"""How far back pauses are kept: three periods of five minutes."""
_PERIODS: Final = 3
"""Periods that make a rhythm: two pauses, or three, come at like distances by chance."""
_UNEVEN: Final = 0.2
"""Most that a period may differ from the middle one, as a share of it: a timer is exact, polls are not."""
_TOKENS: Final = (DECODE_TOKENS, PREFILL_COMPUTED, PREFILL_CACHED)


class Pause(NamedTuple):
    """A time without a token while requests ran, by the polls around it (monotonic)."""

    began_s: float
    ended_s: float


class PauseRhythm(NamedTuple):
    """Pauses at even distances, the newest last."""

    period_s: float
    pause_s: float
    """Their middle length."""
    pauses: tuple[Pause, ...]


class _Poll(NamedTuple):
    """The figures of one poll, all ranks together."""

    at_s: float
    """Monotonic."""
    tokens: float
    running: float


class Pauses:
    """The pauses of one engine."""

    def __init__(self) -> None:
        self._pauses: deque[Pause] = deque()
        self._last: _Poll | None = None
        self._moved_s = 0.0
        """When a poll last saw new tokens, or nothing running."""
        self._still_polls = 0
        """Polls since then."""

    def add(self, reading: EngineReading) -> None:
        """Take in one poll; the same one again changes nothing."""
        last = self._last
        if last is not None and last.at_s == reading.monotonic_s:
            return
        poll = _poll_of(reading)
        self._last = poll
        if last is not None and poll.tokens == last.tokens and poll.running > 0.0:
            self._still_polls += 1
            return
        if last is not None and poll.tokens > last.tokens:
            self._note_pause(last, poll, reading.interval_s)
        self._moved_s = poll.at_s
        self._still_polls = 0
        while self._pauses and self._pauses[0].began_s < poll.at_s - _KEPT_S:
            self._pauses.popleft()

    def _note_pause(self, last: _Poll, poll: _Poll, interval_s: float) -> None:
        """Note the pause that ends with this poll, if one does: without a token, or without an answer."""
        if self._still_polls >= _LEAST_POLLS and poll.at_s - self._moved_s >= LEAST_S:
            self._pauses.append(Pause(self._moved_s, poll.at_s))
        elif last.running and poll.running and poll.at_s - last.at_s >= max(LEAST_S, _MUTE_INTERVALS * interval_s):
            self._pauses.append(Pause(last.at_s, poll.at_s))

    def rhythm(self, now_s: float) -> PauseRhythm | None:
        """The rhythm of the newest pauses, as far back as it goes; None without one, or where it has ended."""
        newest = [*self._pauses][-_PERIODS - 1 :]
        if len(newest) <= _PERIODS:
            return None
        periods = [after.began_s - before.began_s for before, after in pairwise(newest)]
        period_s = median(periods)
        if any(abs(period - period_s) > _UNEVEN * period_s for period in periods):
            return None
        if now_s - newest[-1].began_s > (1.0 + 2.0 * _UNEVEN) * period_s:
            return None
        mean_period_s = (newest[-1].began_s - newest[0].began_s) / _PERIODS
        pause_s = median(pause.ended_s - pause.began_s for pause in newest)
        return PauseRhythm(mean_period_s, pause_s, tuple(newest))


def _poll_of(reading: EngineReading) -> _Poll:
    """The tokens and the requests of one poll."""
    tokens = 0.0
    running = 0.0
    for rank in reading.ranks:
        tokens += sum(rank.counters.get(name, 0.0) for name in _TOKENS)
        running += rank.gauges.get(RUNNING, 0.0)
    return _Poll(reading.monotonic_s, tokens, running)
