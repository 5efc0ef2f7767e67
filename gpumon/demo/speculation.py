"""Speculative decoding: a draft model proposes tokens, and one step of the model keeps those that it agrees with."""

from __future__ import annotations

from functools import cached_property

import msgspec

_BISECTIONS = 40
"""Halvings of the range from 0 to 1: they leave 1e-12 of it."""


class DraftSettings(msgspec.Struct, frozen=True, dict=True):
    """Settings of the draft, and how often its tokens are accepted."""

    draft_tokens: int
    """Tokens that the draft proposes for each sequence and step."""
    acceptance: float
    """Share of them that the model accepts."""
    draft_s: float
    """Time that the draft takes for one token of all sequences."""

    @property
    def mean_tokens(self) -> float:
        """Tokens that a step gives each sequence: those accepted, and the model's own."""
        return 1.0 + self.draft_tokens * self.acceptance

    @property
    def overhead_s(self) -> float:
        """Time of the draft in a step."""
        return self.draft_tokens * self.draft_s

    @cached_property
    def by_position(self) -> tuple[float, ...]:
        """Share of the accepted tokens that were the first, second, ... of their draft: each needs the ones before."""
        ratio = self._acceptance_ratio()
        weights = [ratio**position for position in range(1, self.draft_tokens + 1)]
        total = sum(weights) or 1.0  # nothing is accepted: all shares are 0
        return tuple(weight / total for weight in weights)

    def _acceptance_ratio(self) -> float:
        """The chance that a token is accepted whose predecessors were, such that `acceptance` is the mean of all.

        Found by bisection: the mean grows with the chance.
        """
        low = 0.0
        high = 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            mean = sum(middle**position for position in range(1, self.draft_tokens + 1)) / self.draft_tokens
            if mean < self.acceptance:
                low = middle
            else:
                high = middle
        return (low + high) / 2
