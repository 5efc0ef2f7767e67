"""A profile: measurements of one instance of a model, live or from an imported load test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from statistics import median
from typing import Final

import msgspec

from gpumon.sizing.length_tail import Lengths

MOST_POINTS: Final = 64
"""Operating points of one instance that are kept."""
_LAST_WHOLE_LEVEL: Final = 15
"""Highest number of sequences that is a level of its own."""
_STEPS_FROM: Final = _LAST_WHOLE_LEVEL + 0.5
"""Sequences from which levels are steps of 10%; below it they round to 15 at most."""
_LOG_STEP: Final = math.log(1.1)
"""Natural logarithm of the factor between two levels above."""


def load_level(running: float) -> int:
    """Number of the level of a load: one per sequence below 16, steps of 10% above."""
    if running < _STEPS_FROM:
        return round(running)
    return _LAST_WHOLE_LEVEL + 1 + int(math.log(running / _STEPS_FROM) / _LOG_STEP)


class Origin(str, Enum):
    """Source of a profile."""

    LIVE = "live"
    """gpumon itself, on a running engine."""
    SWEEP = "sweep"
    """A load test whose result was imported."""
    TABLE = "table"
    """A published table of memory and best concurrency."""


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operating point. Seconds, tokens/s, requests/s; None where it was not measured."""

    running: float
    """Mean sequences that decoded together. For a sweep: tokens/s x ITL where both are known, else the offered load."""
    itl_s: float | None = None
    """Mean time per output token after the first (TPOT-like, not the gap between chunks)."""
    offered: float | None = None
    """Requests in flight that the client held open; more than `running` past the knee."""
    ttft_s: float | None = None
    """Mean time to the first token."""
    e2e_s: float | None = None
    """Mean from the request to its last token."""
    tpot_p95_s: float | None = None
    """p95 over requests of the mean time between the tokens of each."""
    itl_p95_s: float | None = None
    """p95 over the gaps between two tokens."""
    ttft_p95_s: float | None = None
    e2e_p95_s: float | None = None
    tokens_per_s: float | None = None
    """Output tokens."""
    requests_per_s: float | None = None
    power_w: float | None = None
    """Watts of all GPUs of the instance."""
    busy_ratio: float | None = None
    """Mean busy share of its GPUs."""
    overload: bool = False
    """Whether fewer requests per second were served than were sent: its latencies grow with the length of the test."""
    weight: int = 1
    """Number of windows (live) or runs (sweep) behind the point."""


class Observed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Measurements of one instance. None: not measured. Precisions are values of `specs.Precision`."""

    origin: Origin
    name: str
    """Name of the engine, or of the imported profile. Text from outside."""
    model: str
    points: tuple[Point, ...] = ()
    """By rising `running`, at most 64."""
    time: str = ""
    """RFC 3339: when it was last seen, or the sweep's date."""
    tool: str = ""
    """Program and version that measured it."""
    gpu: str = ""
    """Catalogue name (`H100 SXM 80GB`); empty: not known."""
    gpus: int = 0
    """GPUs of the instance; 0: not known."""
    tp: int = 0
    """Tensor parallel size; 0: not known."""
    pp: int = 1
    """Pipeline parallel size."""
    weight_precision: str = ""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    """Mean input length (ISL), cached tokens included."""
    answer_tokens: float | None = None
    """Mean output length (OSL)."""
    prefix_hit_ratio: float | None = None
    """Share of the prompt's tokens that came from the prefix cache."""
    lengths: Lengths | None = None
    """Distribution of these lengths."""
    of_medians: bool = False
    """Whether the latencies of its points are medians of requests, as the file has no means."""
    tpot_tail_ratio: float | None = None
    """p95 / mean over requests of the mean time between the tokens of each."""
    itl_tail_ratio: float | None = None
    """p95 / mean of the ITL."""
    ttft_tail_ratio: float | None = None
    """p95 / mean of the TTFT."""
    kv_pool_tokens: float | None = None
    """Tokens that the KV cache of the instance holds."""
    max_num_seqs: int | None = None
    """Most sequences that the engine lets run together."""
    max_num_seqs_source: str = ""
    """Who tells it: `--max-num-seqs of its command line`, a metric, or that more waited, yet none were let in."""
    max_num_batched_tokens: int | None = None
    """Most tokens of a step."""
    max_num_batched_tokens_source: str = ""
    """Who tells it, as for `max_num_seqs`."""
    max_model_len: int | None = None
    """Tokens of the longest request that the engine takes, prompt and answer together."""
    memory_bytes: float | None = None
    """GPU memory that the instance takes, all its GPUs."""
    busy_ratio: float | None = None
    """Busy share of its GPUs at the operating point."""
    power_w: float | None = None
    """Power of its GPUs, at the operating point."""
    tokens_per_step: float | None = None
    """Tokens per step and sequence in the measurements: above 1 its points include speculative decoding."""
    drafted_per_step: float | None = None
    """Tokens that speculation drafts per step and sequence."""
    prefill_tokens_per_s: float | None = None
    """Highest rate of computed prefill that lasted: a lower bound of the instance's own."""
    concurrency: float | None = None
    """The operating point: the knee of a sweep, or what a table calls the best concurrency."""

    @property
    def parallel(self) -> tuple[int, int]:
        """TP and PP of the instance. GPUs beyond TP x PP count as further stages, so that all its GPUs are counted."""
        pp = max(1, self.pp)
        tp = self.tp or max(1, self.gpus // pp)
        return tp, max(pp, self.gpus // tp)

    @property
    def most_running(self) -> float | None:
        """Most sequences that ran at a point; None without points."""
        return max((point.running for point in self.points), default=None)


_MEASURED_FIELDS: Final = tuple(
    name for name in Point.__struct_fields__ if name not in ("running", "overload", "weight")
)
"""Fields of a point that may not have been measured."""


def merge_points(points: Sequence[Point]) -> Point:
    """Several measurements of one load as one point: the median of each figure over those that have it."""
    figures: dict[str, float] = {}
    for name in _MEASURED_FIELDS:
        values = [getattr(point, name) for point in points]
        known = [value for value in values if value is not None]
        if known:
            figures[name] = median(known)
    running = median(point.running for point in points)
    weight = sum(point.weight for point in points)
    overload = any(point.overload for point in points)
    return Point(running=running, overload=overload, weight=weight, **figures)


def best_profile(model: str, observed: Sequence[Observed], last_used: Observed | None = None) -> Observed | None:
    """The best profile of a model among `observed`; None if there is none of this model.

    One whose number of GPUs is known goes before others, as without it the memory of an instance is not known; then one
    that has points; then the one `last_used`; then the first.
    """

    def rank(profile: Observed) -> tuple[bool, bool, bool]:
        was_used = last_used is not None and profile.name == last_used.name
        return not profile.gpus, not profile.points, not was_used  # False sorts first

    return min((profile for profile in observed if profile.model == model), key=rank, default=None)
