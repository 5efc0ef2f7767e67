"""llama.cpp's live tokens and steps: the busy-slots product, and what /slots adds where it is printed too coarsely.

A figure of llama.cpp is printed with six significant digits: a counter moves in steps of 10 from 1e6 on, of 100 from
1e7 on. n_decode_total x n_busy_slots_per_decode counts the busy slots of all decode calls: a token each, exact but for
a prompt of several batches (one too many for each batch after the first) and for speculation (drafted tokens are not
in it). tokens_predicted_total is exact, and moves when a request ends.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

from gpumon.sources.engines.llamacpp_slots import Growth, Slots, Watch

DIGITS: Final = 6
PRODUCT, REQUESTS, ENDED = "product", "requests", "ended"
"""Ways to count tokens: steps x busy slots; ended requests and the running ones; ended requests alone."""
WHOLE: Final = 0.5
"""A count that is known more closely than this is the next whole number."""
COMPARED: Final = 5
"""Looks of which the smallest difference counts: /slots answers later than /metrics, and may miss a request."""


class Printed(NamedTuple):
    """What a metrics page says; None where it does not."""

    steps: float | None = None
    """n_decode_total"""
    busy: float | None = None
    """n_busy_slots_per_decode"""
    ended: float | None = None
    """tokens_predicted_total"""
    running: float | None = None
    waiting: float | None = None
    speculates: bool = False


class Counts(NamedTuple):
    """Tokens and steps so far; None: not known."""

    tokens: float | None = None
    steps: float | None = None
    error: float = 0.0
    """How far the printed product may be from the true one, in tokens."""
    at_end: bool = False
    """The tokens are those of ended requests only."""


def half_step(value: float) -> float:
    """How far a number may be from what was printed of it with six digits."""
    return 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS) / 2.0 if value > 0.0 else 0.0


def half_step_of_count(value: float) -> float:
    """The same of a whole number: exact below 1e6."""
    return half_step(value) if value >= 10.0**DIGITS else 0.0


class LiveCounts:
    """Follows one server. The counts never fall unless the server's own do (a restart)."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._watch = Watch()
        self._way = ""
        self._told = self._stood = 0.0
        """Tokens as they were told last; where they stood when the way to count them changed."""
        self._ahead = math.nan
        """What is told above the count of this way; NaN until it has counted once."""
        self._tokens = -1.0
        self._steps = -1.0
        self._printed_steps = 0.0
        self._apart: deque[float] = deque(maxlen=COMPARED)
        self._first_apart = math.nan
        self._over = 0.0
        """What the product has counted too much since it was first compared."""

    def read(self, printed: Printed, slots: Slots, *, alone: bool = False) -> Counts:
        """The counts at one more page. `slots` is empty where /slots does not answer; `alone`: it is all there is."""
        steps = printed.steps
        if steps is None:
            if not slots or not alone:
                return Counts()
            self._tokens = max(0.0, self._tokens) + self._watch.grown(slots).tokens
            return Counts(self._tokens)
        if steps + 2.0 * half_step_of_count(steps) < self._printed_steps:
            self._start()
        self._printed_steps = steps
        grown = self._watch.grown(slots, waiting=bool(printed.waiting))
        # With speculation a request gets several tokens in one step.
        self._steps = _between(
            self._steps, 0.0 if printed.speculates else grown.steps, steps, half_step_of_count(steps)
        )
        error = half_step_of_count(steps) * (printed.busy or 0.0) + steps * half_step(printed.busy or 0.0)
        way = PRODUCT if not printed.speculates else REQUESTS if slots or self._way == REQUESTS else ENDED
        if way != self._way:
            self._way, self._stood, self._ahead, self._tokens = way, self._told, math.nan, -1.0
        if way == PRODUCT:
            tokens = self._of_product(printed, slots, grown, error)
        else:
            tokens = self._of_requests(printed, slots) if way == REQUESTS else printed.ended
        return Counts(self._joined(tokens), self._steps, error, at_end=way == ENDED)

    def _joined(self, tokens: float | None) -> float | None:
        """What a way of counting gives, going on from where another stood: a change is neither tokens nor a restart."""
        if tokens is None:
            return None
        if math.isnan(self._ahead):
            self._ahead = self._stood - tokens if self._stood else 0.0
        self._told = tokens + self._ahead
        return self._told

    def _of_requests(self, printed: Printed, slots: Slots) -> float | None:
        """Tokens of ended requests and of the ones that run: none of both knows steps."""
        if printed.ended is None:
            return None
        least = printed.ended - half_step_of_count(printed.ended) + sum(slot.generated for slot in slots)
        self._tokens = max(least, self._tokens, 0.0)
        return self._tokens

    def _of_product(self, printed: Printed, slots: Slots, grown: Growth, error: float) -> float | None:
        steps, busy, ended = printed.steps or 0.0, printed.busy, printed.ended
        if busy is None and steps:
            return None
        product = steps * (busy or 0.0)
        if error < WHOLE:
            product, error = float(round(product)), 0.0
        agree = any(slot.busy for slot in slots) == (printed.running != 0.0)
        if ended is not None and agree:
            known = ended + sum(slot.generated for slot in slots)
            self._compare(product - known, error + half_step_of_count(ended), at_rest=printed.running == 0.0)
        self._tokens = _between(self._tokens, grown.tokens, product - self._over, error)
        return self._tokens

    def _compare(self, apart: float, error: float, *, at_rest: bool) -> None:
        """Keep what the product is above the tokens of all requests; at rest these are known for certain."""
        self._apart.append(apart)
        if not at_rest and len(self._apart) < COMPARED:
            return
        least = apart if at_rest else min(self._apart)
        if math.isnan(self._first_apart):
            self._first_apart = least
        self._over = max(self._over, least - self._first_apart - 2.0 * error)


def _between(last: float, grown: float, printed: float, error: float) -> float:
    """The last value and what it grew by, as far as what was printed allows it; never less than the last."""
    if last < 0.0:
        return max(0.0, printed)
    return max(last, min(max(last + grown, printed - error), printed + error))
