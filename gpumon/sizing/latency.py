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
_RESOLUTION: Final = 1e-12
"""Share of a load to which the largest one is searched."""


def largest_load(is_met: Callable[[float], bool]) -> float:
    """The largest load from 1 to `MOST_SEQUENCES` at which `is_met`, which has to be met at all smaller ones, too.

    0: it is met at none; infinite: at all.
    """
    if not is_met(1.0):
        return 0.0
    if is_met(MOST_SEQUENCES):
        return math.inf
    low = 1.0
    high = MOST_SEQUENCES
    while high - low > _RESOLUTION * low:
        # Over powers of ten the geometric mean is faster.
        middle = math.sqrt(low * high) if high > 2.0 * low else (low + high) / 2.0
        if is_met(middle):
            low = middle
        else:
            high = middle
    return low


class Mix(msgspec.Struct, frozen=True):
    """Mean lengths of one workload's requests.

    Raises ValueError for a negative prompt, an answer that is not positive, a share outside 0..1.
    """

    prompt_tokens: float
    """Cached ones included."""
    answer_tokens: float
    prefix_hit_ratio: float = 0.0
    """Share of the prompt's tokens that is cached."""

    def __post_init__(self) -> None:
        require_not_negative("prompt_tokens", self.prompt_tokens)
        require_positive("answer_tokens", self.answer_tokens)
        _require_share("prefix_hit_ratio", self.prefix_hit_ratio)

    @property
    def new_tokens(self) -> float:
        """Mean tokens of a prompt that are computed, not cached."""
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
    """Mean number of drafted tokens that are kept: a step yields `1 + accepted` tokens."""

    @property
    def problem(self) -> str:
        """Why there can be no such speculation; empty where there can."""
        if self.accepted > self.tokens:
            return f"accepted {self.accepted:g} is more than the {self.tokens:g} tokens that are drafted"
        return ""

    @property
    def per_step(self) -> float:
        """Tokens that a step yields per sequence."""
        return 1.0 + self.accepted

    @property
    def verified(self) -> float:
        """Tokens that a step computes per sequence."""
        return 1.0 + self.tokens


NO_SPECULATION: Final = Speculation(0.0, 0.0)


class Curve(msgspec.Struct, frozen=True):
    """Mean ITL of one instance with b sequences running: base_s*w(b) + slope_s*b, seconds.

    A line fits real serving up to the KV knee: base is the read of the weights, slope what each sequence adds (its KV,
    its share of prefill, its overhead). In a MoE a step reads only the experts that its tokens are routed to, so
    w(b) = resident + (1 - resident)*(1 - (1 - k/E)^b), which is 1 with all of them; dense models have w = 1. Raises
    ValueError for a base that is not positive, a negative slope, a share outside 0..1.
    """

    base_s: float
    """Seconds per output token beside what each sequence adds, with all experts read."""
    slope_s: float
    """Seconds that each running sequence adds."""
    resident_ratio: float = 1.0
    """Share of the weights' bytes that every step reads: all but the routed experts."""
    experts: int = 0
    """Routed experts of one layer; 0 is dense."""
    experts_per_token: float = 0
    """Experts that a step reads for one sequence; not whole where it verifies several tokens of it."""
    stages: int = 1
    """Pipeline stages: each works on a micro-batch of its share of the sequences, at least one."""

    def __post_init__(self) -> None:
        require_positive("base_s", self.base_s)
        require_not_negative("slope_s", self.slope_s)
        _require_share("resident_ratio", self.resident_ratio)
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"experts_per_token {self.experts_per_token!r} is not from 1 to {self.experts} experts")

    def weight_ratio(self, running: float) -> float:
        """w(b): share of all weight bytes that a step of `running` sequences reads."""
        require_not_negative("running", running)
        if not self.experts or self.resident_ratio == 1.0:
            return 1.0
        micro_batch = max(1.0, running / self.stages) if self.stages > 1 else running
        read_ratio = distinct_experts(self.experts, self.experts_per_token, micro_batch) / self.experts
        return self.resident_ratio + (1.0 - self.resident_ratio) * read_ratio

    def itl_s(self, running: float) -> float:
        """Mean seconds per output token with `running` sequences. Raises ValueError for a negative or infinite load."""
        # A sequence passes all stages: with fewer sequences than stages some of these are idle.
        loaded = max(running, float(self.stages)) if self.stages > 1 else running
        return self.base_s * self.weight_ratio(running) + self.slope_s * loaded

    def tokens_per_s(self, running: float) -> float:
        """Output tokens per second of `running` sequences: b / ITL(b)."""
        if require_not_negative("running", running):
            return running / self.itl_s(running)
        return 0.0


class TtftLine(msgspec.Struct, frozen=True):
    """Mean TTFT with b in flight: fixed + crowd*sqrt(b) + growth*b, seconds.

    A first token waits for the prompts that came in with it: of b requests that end independently about sqrt(b) do so
    together. Where a client sends all at once it waits for all of them, which only a measurement tells. Waiting for
    admission past the knee is not in it (`queued_ttft_s`). Raises ValueError for terms that are negative or infinite.
    """

    fixed_s: float
    crowd_s: float
    """Seconds per root of the requests in flight."""
    growth_s: float = 0.0
    """Seconds per request in flight."""
    rising_power: float = 0.5
    """Power of a factor between measured and predicted TTFT that the part which rises with the load follows."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            require_not_negative(name, getattr(self, name))

    def ttft_s(self, running: float) -> float:
        """Mean seconds to the first token beside `running` sequences."""
        load = max(1.0, require_not_negative("running", running))  # the request itself is in flight
        return self.fixed_s + self.crowd_s * math.sqrt(load) + self.growth_s * load

    def scaled(self, factor: float) -> TtftLine:
        """The line with its TTFT times `factor` at any load."""
        return TtftLine(self.fixed_s * factor, self.crowd_s * factor, self.growth_s * factor, self.rising_power)

    def moved_to(self, samples: Sequence[tuple[float, float]]) -> TtftLine:
        """The line moved to at least one measured pair (requests in flight, TTFT), for too few to fit a line to.

        One load does not tell whether all of TTFT differs by the factor between both or only its fixed part. So the
        part that rises with the load is multiplied with a power of the factor, and the fixed part is the rest; the
        power is the one that is nearest on measured sweeps of the engine (docs/sizing-accuracy.md).
        """
        factor = median(ttft_s / self.ttft_s(running) for running, ttft_s in samples)
        rising = msgspec.structs.replace(self, fixed_s=0.0).scaled(factor**self.rising_power)
        fixed_s = median(ttft_s - rising.ttft_s(running) for running, ttft_s in samples)
        if fixed_s >= 0.0:
            return msgspec.structs.replace(rising, fixed_s=fixed_s)
        # The part that rises is more than was measured: it alone, scaled to the samples.
        return rising.scaled(median(ttft_s / rising.ttft_s(running) for running, ttft_s in samples))


class Tail(NamedTuple):
    """p95 / mean of a latency over the requests in flight.

    It is no constant: at low load the mean falls while p95 is held up by the prefills of others. With a line, p95 is
    base_s + slope_s*b, over the mean that was fitted to the same points; a re-scaled latency keeps the ratio at each b.
    Beyond the measured loads the two lines may cross, so there the ratio is at least that of the highest one.
    """

    ratio: float = 1.0
    """At any load, where there is no line."""
    known: bool = False
    """Whether it was typed or measured; else p95 is taken to be the mean."""
    base_s: float = 0.0
    """Seconds of the line of p95 at no load."""
    slope_s: float = 0.0
    """Seconds that each request in flight adds to p95."""
    high: float = MOST_SEQUENCES
    """Highest load that the line was measured at, at least 1."""
    mean_s: Callable[[float], float] | None = None
    """Fitted mean over b; None: the ratio is constant."""

    def ratio_at(self, running: float) -> float:
        """p95 / mean with `running` in flight, at least 1 where it follows the load."""
        if self.mean_s is None:
            return self.ratio
        running = max(1.0, running)
        mean_s = self.mean_s(running)
        if mean_s <= 0.0:
            return self.ratio
        least = self.ratio_at(self.high) if running > self.high else 1.0
        return max(least, (self.base_s + self.slope_s * running) / mean_s)


def queued_ttft_s(offered: float, requests_per_s: float, answer_tokens: float, itl_s: float) -> float:
    """Mean TTFT in seconds where more requests are in flight than may run: C/X - (OSL - 1)*ITL.

    Little's law: a request is in the system for C/X and decodes for (OSL - 1)*ITL of it. Raises ValueError where
    decoding alone takes longer than C/X: then the figures are not of one run.
    """
    total_s = require_positive("offered", offered) / require_positive("requests_per_s", requests_per_s)
    decode_s = max(0.0, require_positive("answer_tokens", answer_tokens) - 1.0) * require_positive("itl_s", itl_s)
    if decode_s > total_s:
        raise ValueError(f"decoding takes {decode_s:g} s of the {total_s:g} s that offered / requests_per_s leaves")
    return total_s - decode_s


def response_s(ttft_s: float, itl_s: float, answer_tokens: float) -> float:
    """Seconds from a request to its last token: TTFT + ITL * (tokens - 1), with the mean ITL after the first token."""
    require_not_negative("ttft_s", ttft_s)
    require_not_negative("itl_s", itl_s)
    require_not_negative("answer_tokens", answer_tokens)
    return ttft_s + itl_s * max(0.0, answer_tokens - 1.0)


def _require_share(name: str, value: float) -> None:
    """Raises ValueError for a share outside 0..1."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value!r} is not from 0 to 1")
