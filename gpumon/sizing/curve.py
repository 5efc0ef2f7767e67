"""Inter-token latency over the sequences that decode together: ITL(b) = base*w(b) + slope*b, and its inverses."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gpumon.efficiency.checks import checked, positive
from gpumon.efficiency.traffic import distinct_experts

_STEPS: Final = 100
"""Newton's method needs about 6; the bound only guards the loop."""


class Mix(msgspec.Struct, frozen=True):
    """Traffic of one workload: mean tokens of prompt (cached ones included) and answer, share of the prompt cached.

    ValueError on a negative prompt, an answer that is not positive, a share outside 0..1.
    """

    prompt_tokens: float
    answer_tokens: float
    prefix_hit_ratio: float = 0.0

    def __post_init__(self) -> None:
        checked("prompt_tokens", self.prompt_tokens)
        positive("answer_tokens", self.answer_tokens)
        _share("prefix_hit_ratio", self.prefix_hit_ratio)

    @property
    def new_tokens(self) -> float:
        """Tokens of a prompt that are computed, not cached."""
        return self.prompt_tokens * (1.0 - self.prefix_hit_ratio)

    @property
    def context_tokens(self) -> float:
        """Mean tokens that a decode step sees: the prompt and half of the answer."""
        return self.prompt_tokens + self.answer_tokens / 2.0


class Curve(msgspec.Struct, frozen=True):
    """Mean ITL of one instance with b sequences running: base_s*w(b) + slope_s*b, seconds.

    A line fits real serving up to the KV knee: base is the read of the weights, slope what each sequence adds (its KV,
    its share of prefill, its overhead). Of a MoE a step reads only the experts that its tokens are routed to, so
    w(b) = resident + (1 - resident)*(1 - (1 - k/E)^b), which is 1 with all of them; dense models have w = 1. Sizing
    fact sheet, results 1 and 4. ValueError on a base that is not positive, a negative slope, a share outside 0..1.
    """

    base_s: float
    """With all experts read."""
    slope_s: float
    resident_ratio: float = 1.0
    """Share of the weights' bytes that every step reads: all but the routed experts."""
    experts: int = 0
    """Routed experts of one layer; 0 is dense."""
    experts_per_token: float = 0
    """Per sequence and step; not whole where a step verifies several tokens of a sequence."""

    def __post_init__(self) -> None:
        positive("base_s", self.base_s)
        checked("slope_s", self.slope_s)
        _share("resident_ratio", self.resident_ratio)
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"experts_per_token {self.experts_per_token!r} is not from 1 to {self.experts} experts")

    def weight_ratio(self, running: float) -> float:
        """w(b): share of all weight bytes that a step of `running` sequences reads."""
        checked("running", running)
        if self._untouched is None:
            return 1.0
        touched = distinct_experts(self.experts, self.experts_per_token, running) / self.experts
        return self.resident_ratio + (1.0 - self.resident_ratio) * touched

    def itl_s(self, running: float) -> float:
        """Mean seconds per output token with `running` sequences; ValueError where that is negative or not finite."""
        return self.base_s * self.weight_ratio(running) + self.slope_s * running

    def running_at(self, itl_s: float) -> float:
        """Most sequences whose ITL is at most `itl_s`: 0 where one alone is slower, infinite where none ever is.

        Newton from below: the curve is concave, so that each step stays below the answer.
        """
        positive("itl_s", itl_s)
        if self.itl_s(1.0) > itl_s:
            return 0.0
        if self._untouched is None or self.slope_s == 0.0:
            return self._closed_running_at(itl_s)
        running = max(1.0, (itl_s - self.base_s) / self.slope_s)
        if not math.isfinite(running):
            return math.inf
        for _ in range(_STEPS):
            step = (itl_s - self.itl_s(running)) / self._steepness(running)
            running = max(1.0, running + step)
            if abs(step) <= 1e-12 * running:
                break
        return running

    def tokens_per_s(self, running: float) -> float:
        """Output tokens per second of `running` sequences: b / ITL(b)."""
        itl_s = self.itl_s(running) if checked("running", running) else 0.0
        return running / itl_s if itl_s > 0.0 else 0.0

    def running_at_rate(self, tokens_per_s: float) -> float:
        """Fewest sequences that yield `tokens_per_s`; infinite at and above the 1/slope that is never reached.

        Newton from above, where b - rate*ITL(b) is convex and rises.
        """
        checked("tokens_per_s", tokens_per_s)
        left = 1.0 - self.slope_s * tokens_per_s
        if left <= 0.0:
            return math.inf
        running = tokens_per_s * self.base_s / left
        if self._untouched is None or not math.isfinite(running):
            return running
        for _ in range(_STEPS):
            excess = running - tokens_per_s * self.itl_s(running)
            rise = 1.0 - tokens_per_s * self._steepness(running)
            if rise <= 0.0 or running <= 0.0:
                return max(0.0, running)
            step = excess / rise
            running = max(0.0, running - step)
            if abs(step) <= 1e-12 * running:
                break
        return running

    @property
    def _untouched(self) -> float | None:
        """ln(1 - k/E), the decay of the untouched experts; None where w is 1 throughout."""
        if not self.experts or self.resident_ratio == 1.0 or self.experts_per_token >= self.experts:
            return None
        return math.log1p(-self.experts_per_token / self.experts)

    def _steepness(self, running: float) -> float:
        """d ITL / d b, seconds per sequence."""
        decay = self._untouched
        if decay is None:
            return self.slope_s
        return self.slope_s - self.base_s * (1.0 - self.resident_ratio) * decay * math.exp(decay * running)

    def _closed_running_at(self, itl_s: float) -> float:
        """The inverse where it has a closed form: a line, or a MoE whose sequences add nothing but experts."""
        if self.slope_s > 0.0:
            return max(1.0, (itl_s - self.base_s) / self.slope_s)
        decay = self._untouched
        left = 1.0 - itl_s / self.base_s
        if decay is None or left <= 0.0:
            return math.inf
        return max(1.0, math.log(left / (1.0 - self.resident_ratio)) / decay)


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value!r} is not from 0 to 1")
    return value
