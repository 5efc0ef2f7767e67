"""Latency over the sequences that run together: ITL, TTFT, p95 over the mean, and the load at which a goal is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import require_not_negative, require_positive
from gpumon.efficiency.traffic import distinct_experts

MOST_SEQUENCES: Final = 1e6
"""Requests in flight beyond which no single instance is believed."""


def largest(holds: Callable[[float], bool]) -> float:
    """Largest load from 1 to `MOST_SEQUENCES` for which `holds` (it holds up to one load); 0: none, infinite: all."""
    if not holds(1.0):
        return 0.0
    if holds(MOST_SEQUENCES):
        return math.inf
    low = 1.0
    high = MOST_SEQUENCES
    while high - low > 1e-12 * low:
        if high > 2.0 * low:
            middle = math.sqrt(low * high)
        else:
            middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class Mix(msgspec.Struct, frozen=True):
    """Traffic of one workload: mean tokens of prompt (cached ones included) and answer, share of the prompt cached.

    ValueError on a negative prompt, an answer that is not positive, a share outside 0..1.
    """

    prompt_tokens: float
    answer_tokens: float
    prefix_hit_ratio: float = 0.0

    def __post_init__(self) -> None:
        require_not_negative("prompt_tokens", self.prompt_tokens)
        require_positive("answer_tokens", self.answer_tokens)
        _share("prefix_hit_ratio", self.prefix_hit_ratio)

    @property
    def new_tokens(self) -> float:
        """Tokens of a prompt that are computed, not cached."""
        return self.prompt_tokens * (1.0 - self.prefix_hit_ratio)

    @property
    def context_tokens(self) -> float:
        """Mean tokens that a decode step sees: the prompt and half of the answer."""
        return self.prompt_tokens + self.answer_tokens / 2.0


class Speculation(msgspec.Struct, frozen=True):
    """Speculative decoding of one sequence and step."""

    tokens: float
    """Tokens that are drafted, and verified beside the one that the model itself adds."""
    accepted: float
    """Mean of those that are kept: a step yields `1 + accepted` tokens."""

    @property
    def problem(self) -> str:
        """Why there is no such speculation; empty where there may be."""
        if self.accepted > self.tokens:
            return f"accepted {self.accepted:g} is more than the {self.tokens:g} tokens that are drafted"
        return ""

    @property
    def per_step(self) -> float:
        """Tokens that a step yields."""
        return 1.0 + self.accepted

    @property
    def verified(self) -> float:
        """Tokens that a step computes."""
        return 1.0 + self.tokens


NO_SPECULATION: Final = Speculation(0.0, 0.0)


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
        require_positive("base_s", self.base_s)
        require_not_negative("slope_s", self.slope_s)
        _share("resident_ratio", self.resident_ratio)
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"experts_per_token {self.experts_per_token!r} is not from 1 to {self.experts} experts")

    def weight_ratio(self, running: float) -> float:
        """w(b): share of all weight bytes that a step of `running` sequences reads."""
        require_not_negative("running", running)
        if not self.experts or self.resident_ratio == 1.0:
            return 1.0
        touched = distinct_experts(self.experts, self.experts_per_token, running) / self.experts
        return self.resident_ratio + (1.0 - self.resident_ratio) * touched

    def itl_s(self, running: float) -> float:
        """Mean seconds per output token with `running` sequences; ValueError where that is negative or not finite."""
        return self.base_s * self.weight_ratio(running) + self.slope_s * running

    def running_at(self, itl_s: float) -> float:
        """Most sequences whose ITL is at most `itl_s`: 0 where one alone is slower, infinite where none ever is."""
        require_positive("itl_s", itl_s)
        return largest(lambda running: self.itl_s(running) <= itl_s)

    def tokens_per_s(self, running: float) -> float:
        """Output tokens per second of `running` sequences: b / ITL(b)."""
        if require_not_negative("running", running):
            return running / self.itl_s(running)
        return 0.0


class TtftLine(msgspec.Struct, frozen=True):
    """Mean TTFT with b in flight: fixed + crowd*sqrt(b) + growth*b, seconds.

    A first token waits for the prompts that came in with it: of b requests that end independently about sqrt(b) do so
    together. Where a client sends all at once it waits for all of them, which only a measurement tells. Waiting for
    admission past the knee is not in it (`queued_ttft_s`). ValueError on terms that are negative or not finite.
    """

    fixed_s: float
    crowd_s: float
    growth_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            require_not_negative(name, getattr(self, name))

    def ttft_s(self, running: float) -> float:
        """Mean seconds to the first token beside `running` sequences."""
        beside = max(1.0, require_not_negative("running", running))
        return self.fixed_s + self.crowd_s * math.sqrt(beside) + self.growth_s * beside

    def running_at(self, ttft_s: float) -> float:
        """Most sequences whose TTFT is at most `ttft_s`: 0 where one alone is slower, infinite where none ever is."""
        require_positive("ttft_s", ttft_s)
        return largest(lambda running: self.ttft_s(running) <= ttft_s)

    def scaled(self, factor: float) -> TtftLine:
        """So many times as long at any load."""
        return TtftLine(self.fixed_s * factor, self.crowd_s * factor, self.growth_s * factor)

    def through(self, seen: Sequence[tuple[float, float]]) -> TtftLine:
        """The line moved to measured pairs of requests in flight and TTFT, at least one, too few for a line of theirs.

        One load does not tell whether all of TTFT differs by the factor between both or only its fixed part: what
        rises with the load is taken by the square root of the factor, and the fixed part by what is left. On measured
        sweeps that is nearer at other loads than either (docs/sizing-accuracy.md).
        """
        factor = median(ttft_s / self.ttft_s(running) for running, ttft_s in seen)
        rising = TtftLine(0.0, self.crowd_s, self.growth_s).scaled(math.sqrt(factor))
        fixed_s = median(ttft_s - rising.ttft_s(running) for running, ttft_s in seen)
        if fixed_s >= 0.0:
            return msgspec.structs.replace(rising, fixed_s=fixed_s)
        return rising.scaled(median(ttft_s / rising.ttft_s(running) for running, ttft_s in seen))


class Tail(NamedTuple):
    """p95 / mean of a latency over the requests in flight.

    It is no constant: at low load the mean falls while p95 is held up by the prefills of others. With a line, p95 =
    base_s + slope_s*b beside the mean that was fitted to the same points; what is re-scaled keeps the ratio at that b.
    Beyond the loads that were seen the two lines may cross, so that the ratio stays at least what it was at the last.
    """

    ratio: float = 1.0
    """At any load, where there is no line."""
    known: bool = False
    """Typed or seen; else p95 is taken to be the mean."""
    base_s: float = 0.0
    slope_s: float = 0.0
    high: float = MOST_SEQUENCES
    """Highest load that the line was seen at, at least 1."""
    mean_s: Callable[[float], float] | None = None
    """Mean over b that the line stands beside; None: the ratio is constant."""

    def at(self, running: float) -> float:
        """p95 / mean with so many in flight, at least 1 where it follows the load."""
        if self.mean_s is None:
            return self.ratio
        running = max(1.0, running)
        mean_s = self.mean_s(running)
        if running > self.high:
            last = self.at(self.high)
        else:
            last = 1.0
        if mean_s > 0.0:
            return max(last, (self.base_s + self.slope_s * running) / mean_s)
        return self.ratio


def largest_within(goal_s: float, mean_s: Callable[[float], float], tail: Tail) -> float:
    """Largest load whose p95 is within the goal; 0 if not even 1, infinite if all."""
    return largest(lambda running: mean_s(running) * tail.at(running) <= goal_s)


def queued_ttft_s(offered: float, requests_per_s: float, answer_tokens: float, itl_s: float) -> float:
    """Mean TTFT where `offered` requests in flight are more than are let run: C/X - (OSL - 1)*ITL, seconds.

    Little's law: a request is in the system for C/X and decodes for (OSL - 1)*ITL of it. ValueError where decoding
    alone takes longer than C/X: the figures do not belong together.
    """
    whole = require_positive("offered", offered) / require_positive("requests_per_s", requests_per_s)
    decode = max(0.0, require_positive("answer_tokens", answer_tokens) - 1.0) * require_positive("itl_s", itl_s)
    if decode > whole:
        raise ValueError(f"decoding takes {decode:g} s of the {whole:g} s that offered / requests_per_s leaves")
    return whole - decode


def response_s(ttft_s: float, itl_s: float, answer_tokens: float) -> float:
    """Seconds from question to last token: TTFT + ITL * (tokens - 1), ITL being the mean after the first token."""
    require_not_negative("ttft_s", ttft_s)
    require_not_negative("itl_s", itl_s)
    require_not_negative("answer_tokens", answer_tokens)
    return ttft_s + itl_s * max(0.0, answer_tokens - 1.0)


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value!r} is not from 0 to 1")
    return value
