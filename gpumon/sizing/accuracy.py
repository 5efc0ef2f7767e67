"""How far predictions were from measured servers: efficiencies that a step reaches, and error bands with their rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.measured_errors import BANDS, EFFICIENCY, MEASURED_ARCHITECTURES, TTFT_FITS

CLAIM: Final = 0.8
"""Share of measured rows that a band holds: it runs from their 10th to their 90th percentile."""


class Band(msgspec.Struct, frozen=True):
    """Errors of predictions like this one, as shares of the prediction: 8 of 10 measured values lay inside."""

    low: float
    """-0.3: a measured value was 30 % below the prediction."""
    high: float
    rows: int
    """Rows of published servers that it stands on, none of them of the engine that is sized; 0: on the scatter of the
    fit's own points."""

    def __bool__(self) -> bool:
        return self.high > self.low

    @property
    def short(self) -> str:
        """`-30..+45%`; empty where there is none."""
        if self:
            return f"{self.low * 100:+.0f}..{self.high * 100:+.0f}%"
        return ""

    @property
    def text(self) -> str:
        """`-30 % to +45 % on 412 reference rows`; empty where there is none."""
        behind = ""
        if self.rows:
            behind = f" on {self.rows:,} reference rows"
        if self:
            return f"{self.low * 100:+.0f} % to {self.high * 100:+.0f} %{behind}"
        return ""

    def widest(self) -> float:
        """The larger of its two sides."""
        return max(-self.low, self.high)

    def joined(self, other: Band) -> Band:
        """As wide as the wider one on each side."""
        if self.rows and other.rows:
            rows = min(self.rows, other.rows)
        else:
            rows = self.rows or other.rows
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
    """More of them per doubling of the tensor-parallel size: the latency of the all-reduces."""
    layer_moe_s: float
    """More of them in a mixture of experts: routing and grouping."""


class FirstTokenCost(NamedTuple):
    """Terms of an engine's mean TTFT at `b` requests in flight: fixed parts, and an increase per request."""

    layers: float
    """Times the cost of its layers in a step: admission, scheduling, the step under way."""
    layers_each: float
    """Increase of `layers` per request in flight; of an engine of `STEP_TOKENS` per request whose prompt is so long."""
    prompt: float
    """Times the computation of the request's own prompt."""
    prompt_each: float
    """Increase of `prompt` per request in flight: prompts that came in with it."""


REACHED: Final = EngineEfficiency(*EFFICIENCY)
"""As fitted to all measured rows (`python -m tests.accuracy.silicon`)."""


STEP_TOKENS: Final = {"vllm": 8192.0}
"""Engine -> prompt tokens of one step, of engines whose TTFT rises with the steps that the prompts in flight take."""


def steps_each(engine: str, new_tokens: float) -> float:
    """How often `layers_each` counts for one request in flight with a prompt of so many computed tokens."""
    step_tokens = STEP_TOKENS.get(engine)
    return 1.0 if step_tokens is None else new_tokens / step_tokens


def first_token_cost(engine: str) -> FirstTokenCost:
    """The TTFT of an engine, as fitted to its measured rows; of one that is not known, to the rows of all."""
    return FirstTokenCost(*TTFT_FITS.get(engine, TTFT_FITS[""]))


def band_of(figure: str, tp: int, moe: bool) -> Band:
    """Errors of a kind of figure by tensor-parallel size and mixture of experts.

    `figure`: itl or ttft of the roofline; `itl dp`, of an instance with data-parallel ranks; rescaled, from another
    `tp`, `gpu`, `precision` or `mix`; `one load`, a roofline scaled to one measured load; measured,
    between the loads of a fit, or `extrapolated` beyond them. Sizes that were not measured have the band of the next
    smaller one.
    """
    cells = BANDS[figure]
    sizes = [size for size, sparse in cells if sparse == moe and size <= tp] or [
        size for size, sparse in cells if sparse == moe
    ]
    return Band(*cells[max(sizes), moe])


_MOST_RANKS: Final = 8
"""Most data-parallel ranks of a measured server, each on one GPU."""


def unmeasured(architecture: str, pp: int, dp: int = 1, tp: int = 1, indexed: bool = False) -> str:
    """Why no reference row tells how far a prediction may be off; empty where some do.

    `indexed`: the model's attention chooses its entries by an indexer.
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
