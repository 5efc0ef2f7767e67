"""The time of a decode step beside what its bytes take at the peak bandwidth: how slow an engine is at any load."""

from __future__ import annotations

from typing import Final

from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine

_PREFILL_MFU: Final = 0.6
"""MFU at which prompts are computed: prefill MFU over this is about the share of time that they take."""
_MOST_PREFILL_SHARE: Final = 0.8
"""Largest share of time that is taken for prefill's: beyond it the time of a decode step is not known well."""


def step_bytes_s(engine: Engine) -> float | None:
    """Seconds that the bytes of a step, weights and KV cache, take at the peak bandwidth; None where not known."""
    steps_per_s = number(engine.rates.steps_per_s)
    weights = number(engine.efficiency.weight_bytes)
    kv_per_s = number(engine.efficiency.kv_bytes_per_s)
    peak = number(engine.efficiency.peak_bandwidth_bytes_per_s)
    if not steps_per_s or not weights or not peak or kv_per_s is None:
        return None
    return (weights + kv_per_s / steps_per_s) / (peak / max(1, engine.hardware.ranks))


def step_excess(engine: Engine) -> float | None:
    """How many times as long as its bytes take a decode step takes, with the time of prefill beside it taken out.

    More requests, longer contexts, longer prompts and other acceptance change it little: 1.4 to 1.5 of one engine
    from 1 to 100 requests. None where its model or its GPUs are not known.
    """
    itl_s = number(engine.latency.itl_mean_s)
    prefill = number(engine.efficiency.mfu_prefill_ratio)
    bytes_s = step_bytes_s(engine)
    if itl_s is None or prefill is None or not bytes_s:
        return None
    step_s = itl_s * (number(engine.rates.tokens_per_step) or 1.0)
    return step_s * (1.0 - min(_MOST_PREFILL_SHARE, prefill / _PREFILL_MFU)) / bytes_s
