"""What SGLang's counters leave to be worked out: the first token of each request, and whether passes are steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.sources.engines.adapter import MOST_RANKS
from gpumon.sources.engines.plan import Rank

REMEMBERED_RANKS: Final = 2 * MOST_RANKS
UNMOVED: Final = 2
"""Polls in a row with new tokens and no new pass, after which the passes are no step counter."""


class FirstTokens:
    """The first token of each request, which `realtime_tokens_total` leaves out: shared among the ranks.

    They are counted for the whole server. Each new one goes to the ranks in proportion to their new tokens.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._untold = False
        """Tokens were there before it was known how many of them are first ones: those are never added."""
        self._decoded: dict[str, float] = {}
        self._shares: dict[str, float] = {}

    def add(self, ranks: Mapping[str, Rank], count: float | None) -> None:
        """Add to each rank's decode tokens what is its own of `count` first tokens; None: the page does not say."""
        if len(self._shares) > REMEMBERED_RANKS:
            self._shares.clear()
            self._decoded.clear()
            self._count = 0.0
        counted = {name: rank for name, rank in ranks.items() if q.DECODE_TOKENS in rank.counters}
        if count is None:
            self._untold = self._untold or any(rank.counters[q.DECODE_TOKENS] for rank in counted.values())
            count = self._count
        elif self._untold and not self._count:
            self._count = count
        new = {
            name: max(0.0, rank.counters[q.DECODE_TOKENS] - self._decoded.get(name, 0.0))
            for name, rank in counted.items()
        }
        total, firsts = sum(new.values()), max(0.0, count - self._count)
        for name, rank in counted.items():
            part = new[name] / total if total else 1.0 / len(counted)
            self._shares[name] = self._shares.get(name, 0.0) + firsts * part
            self._decoded[name] = rank.counters[q.DECODE_TOKENS]
            rank.counters[q.DECODE_TOKENS] += self._shares[name]
        if counted:
            self._count = max(count, self._count)


class Passes:
    """Whether the counted forward passes are all steps: not where tokens come without them."""

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._unmoved = 0

    def are_steps(self, ranks: Mapping[str, Rank]) -> bool:
        """Judge one more page."""
        counted = [rank.counters for rank in ranks.values() if q.STEPS in rank.counters]
        others = [rank.counters for rank in ranks.values() if q.STEPS not in rank.counters]
        steps, tokens = (sum(each.get(name, 0.0) for each in counted) for name in (q.STEPS, q.DECODE_TOKENS))
        last_tokens, last_steps = self._last
        self._last = (tokens, steps)
        if self._unmoved < UNMOVED:
            self._unmoved = self._unmoved + 1 if last_tokens < tokens and last_steps == steps else 0
        missing = any(each.get(q.DECODE_TOKENS) for each in others)
        return bool(counted) and not missing and self._unmoved < UNMOVED
