"""Accuracy against measured servers: efficiencies that a step reaches, and error bands of predictions."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.measured_errors import BANDS, EFFICIENCY, MEASURED_ARCHITECTURES, TTFT_FITS

CLAIM: Final = 0.8
"""Share of measured rows that a band holds: it runs from their 10th to their 90th percentile."""


class Band(msgspec.Struct, frozen=True):
    """Range of the errors of one kind of prediction, as shares of it: 8 of 10 measured values were inside."""

    low: float
    """Share by which measured values were below the prediction: -0.3 is 30 % below."""
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
        """Both sides and the rows, as `-30 % to +45 % on 412 reference rows`; empty for no band."""
        if not self:
            return ""
        rows = ""
        if self.rows:
            rows = f" on {self.rows:,} reference rows"
        return f"{self.low * 100:+.0f} % to {self.high * 100:+.0f} %{rows}"

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
"""Band of a figure that was typed, or is not known."""


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
    layer_s: float
    """Seconds per layer and step: launches, norms, sampling's share."""
    layer_tp_s: float
    """Further seconds per layer and doubling of the tensor-parallel size: the latency of the all-reduces."""
    layer_moe_s: float
    """Further seconds per layer in a mixture of experts: routing and grouping."""


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
_MOST_RANKS: Final = 8
"""Most data-parallel ranks of a measured server, each on one GPU."""
STEP_TOKENS: Final = {"vllm": 8192.0}
"""Engine -> prompt tokens of one step, for engines whose TTFT rises with the steps of the prompts in flight. 8192 is
the default of vLLM's server on large GPUs (`simulate.setup`)."""


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

    `figure` is a key of `BANDS`: `itl` or `ttft` by the roofline; `itl dp` of an instance with data-parallel ranks;
    `tp`, `gpu`, `precision` or `mix` for a step of re-scaling; `one load` for a roofline scaled to one measured load;
    `measured` between the loads of a fit, `extrapolated` beyond them. A size that was not measured has the band of the
    next smaller one; below the smallest one, of the largest.
    """
    bands = BANDS[figure]
    sizes = [size for size, is_moe in bands if is_moe == moe]
    smaller = [size for size in sizes if size <= tp]
    return Band(*bands[max(smaller or sizes), moe])


def unmeasured_reason(architecture: str, pp: int, dp: int = 1, tp: int = 1, indexed: bool = False) -> str:
    """Why no reference row is like an instance, so that a prediction has no error band; empty where some are.

    `indexed`: an indexer chooses the entries of the model's attention.
    """
    if architecture not in MEASURED_ARCHITECTURES:
        return f"no reference row is of a GPU of the generation {architecture or 'that it has'}"
    if pp > 1:
        return "no reference row has pipeline stages"
    if dp > 1 and (tp > 1 or dp > _MOST_RANKS):
        return f"no reference row has {dp} data-parallel ranks of TP {tp}"
    if indexed:
        return "no reference row is of a model with sparse attention by an indexer"
    return ""
