"""llama.cpp's tokens and steps: the answers that ended by /metrics, those that run by /slots.

A figure of llama.cpp is printed with six significant digits: a counter moves in steps of 10 from 1e6 on, of 100 from
1e7 on; /slots tells what happened between two printed values. `n_decode_total` x `n_busy_slots_per_decode` counts
tokens only while no prompt is read: a busy slot is counted in each batch of its prompt, too, and in embeddings.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.sources.engines.adapter import PATIENT
from gpumon.sources.engines.llamacpp_slots import Slots, growth

DIGITS: Final = 6


class Printed(NamedTuple):
    """What a metrics page says; None where it does not."""

    steps: float | None = None
    """n_decode_total"""
    ended: float | None = None
    """tokens_predicted_total"""
    product: float | None = None
    """n_decode_total x n_busy_slots_per_decode"""
    prompt: float | None = None
    """prompt_tokens_total"""
    running: float | None = None
    """requests_processing"""
    speculates: bool = False


class Counts(NamedTuple):
    """Tokens and steps so far; None: not known."""

    tokens: float | None = None
    steps: float | None = None


def half_step_of_count(value: float) -> float:
    """How far a count may be from what was printed of it with six digits: it is exact below 1e6."""
    return 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS) / 2.0 if value >= 10.0**DIGITS else 0.0


class LiveCounts:
    """Follows one server. The counts never fall unless the server's own do (a restart)."""

    def __init__(self) -> None:
        self._unanswered = PATIENT
        """Looks in a row without /slots."""
        self._start()

    def _start(self) -> None:
        self._slots: Slots = ()
        self._printed = Printed()
        self._tokens = self._steps = -1.0

    @property
    def has_slots(self) -> bool:
        """Whether /slots answers, but for a few looks."""
        return self._unanswered < PATIENT

    def read(self, printed: Printed, slots: Slots) -> Counts:
        """The counts at one more page. `slots` is empty where /slots does not answer.

        It is asked after /metrics: an answer that ended in between is in neither, but was seen by the look before.
        Where the two disagree on what runs and no prompt was read, the busy slots of all decodes are the tokens.
        """
        self._unanswered = 0 if slots else self._unanswered + 1
        if _fell(self._printed.steps, printed.steps) or _fell(self._printed.ended, printed.ended):
            self._start()
        steps, ended, last = printed.steps, printed.ended, self._printed
        grown = growth(self._slots, slots)
        self._slots, self._printed = slots, printed
        if steps is not None:
            # With speculation a request gets several tokens in one step.
            more = 0.0 if printed.speculates else grown.steps
            self._steps = _between(self._steps, more, steps, self._error(steps))
        if ended is not None:
            unbooked = 0.0 if last.ended is None else max(0.0, grown.ended - (ended - last.ended))
            known = ended + unbooked + sum(slot.generated for slot in slots)
            disagree = bool(slots) and printed.running != sum(slot.busy for slot in slots)
            plain = not printed.speculates and printed.prompt == last.prompt
            if disagree and plain and printed.product and last.product:
                known = max(known, self._tokens + printed.product - last.product)
            self._tokens = _between(self._tokens, grown.tokens, known, self._error(ended))
        return Counts(None if ended is None else self._tokens, None if steps is None else self._steps)

    def _error(self, count: float) -> float:
        """How far the count may be from what was printed; without /slots nothing is known but what was printed."""
        return half_step_of_count(count) if self.has_slots else 0.0


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _between(last: float, grown: float, printed: float, error: float) -> float:
    """The last value and what it grew by, as far as what was printed allows it; never less than the last."""
    if last < 0.0:
        return max(0.0, printed)
    return max(last, min(max(last + grown, printed - error), printed + error))
