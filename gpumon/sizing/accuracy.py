"""Accuracy against measured servers: efficiencies that a step reaches, and error bands of predictions."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.measured_errors import BANDS, EFFICIENCY, TTFT_FITS

CLAIM: Final = 0.8
"""Share of measured rows that a band holds: it runs from their 10th to their 90th percentile."""


class Band(msgspec.Struct, frozen=True):
    """Range of the errors of one kind of prediction, as shares of it: 8 of 10 measured values were inside."""

    low: float
    """Share by which measured values were below the prediction: -0.3 is 30% below."""
    high: float
    """Share by which measured values were above the prediction."""
    rows: int
    """Rows of published servers behind it, none of them of the engine that is sized; 0: it is the scatter of the fit's
    own points."""

    def __bool__(self) -> bool:
        """Whether there is a band: `NO_BAND` has none."""
        return self.high > self.low

    @property
    def short(self) -> str:
        """Both sides as `-30..+45%`; empty for no band."""
        if self:
            return f"{self.low * 100:+.0f}..{self.high * 100:+.0f}%"
        return ""

    @property
    def text(self) -> str:
        """Both sides and the rows, as `-30% to +45% on 412 reference rows`; empty for no band."""
        if not self:
            return ""
        rows = f" on {self.rows:,} reference rows" if self.rows else ""
        return f"{self.low * 100:+.0f}% to {self.high * 100:+.0f}%{rows}"

    def widest(self) -> float:
        """The larger one of its two sides, as a share without sign."""
        return max(-self.low, self.high)

    def union(self, other: Band) -> Band:
        """A band that is on each side as wide as the wider one of both."""
        if self.rows and other.rows:
            rows = min(self.rows, other.rows)
        else:
            rows = self.rows or other.rows  # one of both has no rows of its own
        return Band(min(self.low, other.low), max(self.high, other.high), rows)


NO_BAND: Final = Band(0.0, 0.0, 0)
"""Band of a figure that was typed, or is not known; or of a class of servers that no reference row is of."""
_ITL: Final = "itl"
NOT_MEASURED: Final = "not measured: 2x either way"
"""Words for the errors of a prediction that no reference row is like."""


class EngineEfficiency(NamedTuple):
    """Shares of a GPU's peaks that serving engines reach, and what each layer costs beside bytes and FLOPs."""

    weights: float
    """Share of the memory bandwidth, reading weights."""
    kv: float
    """Share of the memory bandwidth, reading the KV cache."""
    link: float
    """Share of the link between GPUs, in all-reduces."""
    prefill: float
    """Share of the FLOP/s, computing prompts."""
    block_s: float
    """Seconds per mixer or feed-forward part and step: launches, norms."""
    block_tp_s: float
    """Further seconds per such block and doubling of the tensor-parallel size: the latency of its all-reduce."""
    expert_s: float
    """Further seconds per MoE layer and expert of a token: sorting tokens by expert, gathering what comes back."""
    marlin_s: float
    """Further seconds of the same where the experts' weights are widened in the kernel (Marlin and alike)."""
    sequence_s: float
    """Seconds per running sequence and step: scheduling, sampling, sending."""


class FirstTokenCost(NamedTuple):
    """Factors of an engine's mean TTFT: a fixed part, and an increase per request in flight."""

    layers: float
    """Multiple of the cost of its layers in a step: admission, scheduling, the step under way."""
    layers_each: float
    """Increase of `layers` per request in flight (`steps_each`)."""
    prompt: float
    """Multiple of the time to compute the request's own prompt."""
    prompt_each: float
    """Increase of `prompt` per request in flight: prompts that came in with it."""


REACHED: Final = EngineEfficiency(*EFFICIENCY)
"""Efficiencies as fitted to all measured rows (`python -m tests.accuracy.silicon`)."""
STEP_TOKENS: Final = {"vllm": 8192.0}
"""Engine -> prompt tokens of one step, for engines whose TTFT rises with the steps of the prompts in flight. 8192 is
the default of vLLM's server on large GPUs (`simulate.setup`)."""

RISING_POWER: Final = {"sglang": 1.0, "trtllm": 0.25}
"""Engine -> `TtftLine.rising_power`, where another one than its default gives the capacity at a measured TTFT more
often within a factor of two: SGLang's delays are as many steps at any load, and the first loads of TensorRT-LLM's
sweeps hold its warm-up."""


def steps_each(engine: str, new_tokens: float) -> float:
    """Times that `FirstTokenCost.layers_each` counts for each request in flight: the steps of a prompt of `new_tokens`
    computed tokens, or 1 of an engine whose TTFT does not rise with them."""
    step_tokens = STEP_TOKENS.get(engine)
    if step_tokens is None:
        return 1.0
    return new_tokens / step_tokens


def first_token_cost(engine: str) -> FirstTokenCost:
    """The TTFT factors of an engine, fitted to its measured rows; for an unknown engine, to those of all engines."""
    return FirstTokenCost(*TTFT_FITS.get(engine, TTFT_FITS[""]))


def band_of(figure: str, tp: int, moe: bool) -> Band:
    """Errors of a kind of figure by tensor-parallel size and mixture of experts.

    `figure` is a key of `BANDS`: `itl` (`reference_classes.itl_figure`) or `ttft` by the roofline;
    `tp`, `gpu`, `precision` or `mix` for a step of re-scaling; `one load` for a roofline scaled to one measured load;
    `measured` between the loads of a sweep, `two loads` where it has no more, `extrapolated` beyond them. A size that
    was not measured has the band of the next smaller one; below the smallest one, of the largest. A class of the ITL
    without rows of such models has the band of all.
    """
    bands = BANDS[figure]
    if figure.startswith(_ITL) and not any(is_moe == moe for _, is_moe in bands):
        bands = BANDS[_ITL]
    sizes = [size for size, is_moe in bands if is_moe == moe]
    smaller = [size for size in sizes if size <= tp]
    return Band(*bands[max(smaller or sizes), moe])
