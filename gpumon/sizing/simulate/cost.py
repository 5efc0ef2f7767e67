"""Seconds that one step of an engine takes, by what the scheduler put into it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency.ratio import require_not_negative, require_positive
from gpumon.efficiency.traffic import distinct_experts

_MOST_LISTED_TOKENS = 4096
"""Tokens of a step up to which the time of its experts is listed; a step of more tokens reads them all."""


class StepTime(NamedTuple):
    """Seconds of a step: a base, and a term for each thing that the step works on."""

    base_s: float
    """For reading all weights, and for what each layer costs whatever it works on."""
    sequence_s: float
    """Per sequence that decodes."""
    prompt_token_s: float
    """Per prompt token that is computed."""
    kv_token_s: float = 0.0
    """Per token of context that a decoding sequence looks at."""
    pair_s: float = 0.0
    """Per pair of a prompt token and a token before it."""
    resident_ratio: float = 1.0
    """Share of `base_s` that every step takes, whatever its tokens are routed to."""
    experts: int = 0
    """Routed experts of one layer; 0 is dense."""
    experts_per_token: float = 0.0

    def checked(self) -> StepTime:
        """Itself. Raises ValueError for a base that is not positive, or a negative term."""
        require_positive("base_s", self.base_s)
        for name in ("sequence_s", "prompt_token_s", "kv_token_s", "pair_s"):
            require_not_negative(name, getattr(self, name))
        return self

    def base_at(self, tokens: int) -> float:
        """Seconds of the base of a step of so many tokens."""
        if not self.experts or self.resident_ratio >= 1.0:
            return self.base_s
        read = distinct_experts(self.experts, self.experts_per_token, min(tokens, _MOST_LISTED_TOKENS))
        return self.base_s * (self.resident_ratio + (1.0 - self.resident_ratio) * read / self.experts)

    def base_by_tokens(self) -> tuple[float, ...]:
        """Seconds of the base of a step of 0, 1, 2 ... tokens, which reads the experts that these are routed to.

        A step of more tokens than are listed takes the last value.
        """
        if not self.experts or self.resident_ratio >= 1.0:
            return (self.base_s,)
        return tuple(self.base_at(tokens) for tokens in range(_MOST_LISTED_TOKENS + 1))
