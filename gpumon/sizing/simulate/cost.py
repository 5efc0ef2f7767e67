"""Seconds that one step of an engine takes, by what the scheduler put into it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency.ratio import require_not_negative, require_positive
from gpumon.efficiency.traffic import distinct_experts

_MOST_LISTED = 4096
"""Tokens of a step up to which the share of the experts is looked up; beyond them a step reads all."""


class StepTime(NamedTuple):
    """Terms of a step: one for the weights, and one for each thing that the step works on. Seconds."""

    base_s: float
    """Reading all weights, and what each layer costs whatever it works on."""
    sequence_s: float
    """Each sequence that decodes."""
    prompt_token_s: float
    """Each prompt token that is computed."""
    kv_token_s: float = 0.0
    """Each token of context that a decoding sequence looks at."""
    pair_s: float = 0.0
    """Each pair of a prompt token and a token before it."""
    resident_ratio: float = 1.0
    """Share of `base_s` that every step takes, whatever its tokens are routed to."""
    experts: int = 0
    """Routed experts of one layer; 0 is dense."""
    experts_per_token: float = 0.0

    def checked(self) -> StepTime:
        """Itself; ValueError on a base that is not positive, or on a negative term."""
        require_positive("base_s", self.base_s)
        for name in ("sequence_s", "prompt_token_s", "kv_token_s", "pair_s"):
            require_not_negative(name, getattr(self, name))
        return self

    def base_by_tokens(self) -> tuple[float, ...]:
        """`base_s` of steps of 0, 1, 2 ... tokens; a step of more tokens takes the last one."""
        if not self.experts or self.resident_ratio >= 1.0:
            return (self.base_s,)
        routed_s = self.base_s * (1.0 - self.resident_ratio)
        resident_s = self.base_s * self.resident_ratio
        steps = []
        for tokens in range(_MOST_LISTED + 1):
            touched = distinct_experts(self.experts, self.experts_per_token, tokens) / self.experts
            steps.append(resident_s + routed_s * touched)
        return tuple(steps)
