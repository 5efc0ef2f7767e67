"""An engine's own count of FLOPs and bytes, and its own table of memory, beside gpumon's figures of the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gpumon.efficiency import traffic
from gpumon.efficiency.rates import Layout, Rates
from gpumon.efficiency.ratio import divide
from gpumon.efficiency.tracks import CounterWindow, Track
from gpumon.efficiency.weights import loaded_bytes
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Efficiency, OwnEstimate, OwnMemory
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

OWN_OFF: Final = Missing(
    Reason.OFF, "the counter stays 0 while tokens are generated: start the engine with --enable-mfu-metrics"
)
OWN_PER_TOKEN: Final = Missing(Reason.INVALID, "SGLang charges all weights to every token instead of every step")
_AGREES: Final = 1.1
"""Quotient up to which two estimates agree."""
_NO_REASON: Final = "no known reason: check the model, its precision and the number of GPUs"
_NOT_UNIFORM: Final = Missing(Reason.NOT_MODELLED, "states, windows and whole contexts share the pools")

_SHARED_LAYERS: Final = Missing(Reason.NOT_MODELLED, "its ranks have only the attention for themselves")


class _Difference(NamedTuple):
    """A way in which an engine counts differently, by its sources (docs/accuracy.md)."""

    text: str
    is_higher: bool
    """Whether its count is higher for that, not lower."""
    applies: Callable[[LlmSpec, Layout], bool]


_FLOPS_OF_SGLANG: Final = (
    _Difference("it counts a mixture of experts by its dense size", True, lambda llm, _: bool(llm.experts)),
    _Difference(
        "it does not divide feed-forward layers by the tensor-parallel GPUs", True, lambda _, layout: layout.tp > 1
    ),
    _Difference("it does not divide by pipeline stages", True, lambda _, layout: layout.pp > 1),
    _Difference("it counts a mixture of experts by its dense size", False, lambda llm, _: bool(llm.experts)),
    _Difference("it leaves out the LM head", False, lambda *_: True),
)
_FLOPS_OF_VLLM: Final = (
    _Difference("it counts states, windows and sparse attention as dense", True, lambda llm, _: not llm.uniform),
    _Difference(
        "it divides a dense model's feed-forward layers by the data-parallel ranks",
        False,
        lambda llm, layout: layout.dp > 1 and not llm.experts,
    ),
    _Difference("it counts MLA's decode as a third of the absorbed form", False, lambda llm, _: llm.latent),
    _Difference(
        "it counts attention inside a chunk in full, refused drafts, and prompts again after a preemption",
        True,
        lambda *_: True,
    ),
)
_BYTES_OF_VLLM: Final = (
    _Difference("each token of a step reaches experts of its own", True, lambda llm, _: bool(llm.experts)),
    _Difference("it counts reads of prefill and of activations, too", True, lambda *_: True),
    _Difference(
        "it counts 8-bit compressed-tensors as 4 bit, and leaves out formats that it does not know",
        False,
        lambda llm, _: BYTES_PER_ELEMENT[llm.precision] < BYTES_PER_ELEMENT[Precision.BF16],
    ),
)


def own_estimate(reading: EngineReading, track: Track, rates: Rates, layout: Layout, ours: Efficiency) -> OwnEstimate:
    """Estimate of vLLM and SGLang themselves, over all GPUs, beside `ours`; docs/accuracy.md says why they differ.

    Both count per GPU of a rank: the mean over the ranks x GPUs is all of them. FLOPs are over the window of the
    prefill, as gpumon's are.
    """
    if not (track.has_counter(q.OWN_FLOPS) or track.has_counter(q.OWN_READ_BYTES)):
        return OwnEstimate()
    # Wrappers pass the counters on under a prefix of their own.
    by_sglang = "sglang" in f"{reading.live.get(q.OWN_FLOPS, '')} {reading.kind.value}"
    flops_window = track.window(max(rates.prefill_window.length_s, track.short.length_s))
    flops_per_s = _own_rate(track, flops_window, q.OWN_FLOPS, layout.gpus)
    read_bytes = OWN_PER_TOKEN if by_sglang else _own_rate(track, track.short, q.OWN_READ_BYTES, layout.gpus)
    flops_ratio = divide(flops_per_s, ours.flops_per_s, Missing(Reason.IDLE))
    read_bytes_ratio = divide(read_bytes, ours.bytes_per_s, Missing(Reason.IDLE))
    flops_differences = _FLOPS_OF_SGLANG if by_sglang else _FLOPS_OF_VLLM
    return OwnEstimate(
        flops_per_s=flops_per_s,
        read_bytes_per_s=read_bytes,
        write_bytes_per_s=_own_rate(track, track.short, q.OWN_WRITE_BYTES, layout.gpus),
        flops_ratio=flops_ratio,
        read_bytes_ratio=read_bytes_ratio,
        flops_reason=_reason(flops_ratio, flops_differences, reading.llm, layout),
        read_bytes_reason=_reason(read_bytes_ratio, _BYTES_OF_VLLM, reading.llm, layout),
    )


def _own_rate(track: Track, window: CounterWindow, counter: str, gpus: int) -> Reading:
    """Rate of a counter of the engine's own estimate over a window, for all its GPUs (0: not known how many)."""
    counted = track.newest_count(counter)
    if counted is None:
        return NOT_EXPOSED
    if counted == 0.0 and track.newest_count(q.DECODE_TOKENS):
        return OWN_OFF
    if counted == 0.0:
        return Missing(Reason.IDLE)
    if not gpus:
        return Missing(Reason.NO_GPU)
    rank_rates = window.rank_rates(counter)
    if rank_rates:
        return sum(rank_rates) / len(rank_rates) * gpus
    return track.why_no_rate_yet


def _reason(ratio: Reading, differences: Iterable[_Difference], llm: LlmSpec | None, layout: Layout) -> str:
    """The first of the differences that explains a quotient; empty where both agree or one is not known."""
    quotient = number(ratio)
    if quotient is None or llm is None or 1.0 / _AGREES <= quotient <= _AGREES:
        return ""
    for difference in differences:
        if difference.is_higher == (quotient > 1.0) and difference.applies(llm, layout):
            return difference.text
    return _NO_REASON


def own_memory(
    reading: EngineReading, track: Track, layout: Layout, kv_bytes_per_token: Reading, kv_precision: Precision | None
) -> OwnMemory:
    """The engine's own table of a GPU's memory, beside what its model needs there; nothing is held against a format of
    the KV cache whose bytes are not known."""
    weights = track.gauge_most(q.OWN_WEIGHT_BYTES)
    kv = track.gauge_most(q.OWN_KV_BYTES)
    needed_kv = _kv_of_gpu(reading, track, layout, kv_precision)
    if isinstance(kv_bytes_per_token, Missing):
        needed_kv = kv_bytes_per_token
    return OwnMemory(
        weight_bytes=weights,
        kv_bytes=kv,
        graph_bytes=track.gauge_most(q.OWN_GRAPH_BYTES),
        weight_ratio=divide(weights, _weights_of_gpu(reading, layout)),
        kv_ratio=divide(kv, needed_kv),
    )


def _weights_of_gpu(reading: EngineReading, layout: Layout) -> Reading:
    """Bytes of the model's weights on one GPU, those of all data-parallel ranks taken together."""
    if reading.llm is None or not layout.tp:
        return NOT_EXPOSED
    if layout.attention_alone:
        return _SHARED_LAYERS
    gpus = layout.dp * layout.tp * max(1, layout.pp)
    return loaded_bytes(reading.llm, dp=layout.dp, tp=layout.tp) / gpus


def _kv_of_gpu(reading: EngineReading, track: Track, layout: Layout, kv_precision: Precision | None) -> Reading:
    """Bytes of the KV pools on one GPU: the tokens that a rank holds x those of a token, over the rank's GPUs."""
    if reading.llm is None or not layout.tp:
        return NOT_EXPOSED
    if not reading.llm.uniform:
        return _NOT_UNIFORM
    tokens = track.gauge_most(q.POOL_TOKENS)
    if isinstance(tokens, Missing):
        return tokens
    token_bytes = traffic.kv_bytes_per_token(reading.llm, kv_precision, layout.tp)
    return tokens * token_bytes / (layout.tp * max(1, layout.pp))
