"""What vLLM and SGLang say that they computed and read themselves, beside gpumon's own figures, and why they differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.efficiency.rates import Layout, Rates
from gpumon.efficiency.ratio import per
from gpumon.efficiency.tracks import RATE_S, Track, Window
from gpumon.readings.engine_snapshot import Efficiency
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import DECODE_TOKENS, OWN_FLOPS, OWN_READ_BYTES, OWN_WRITE_BYTES
from gpumon.readings.snapshot import OwnEstimate
from gpumon.specs.llm import LlmSpec, Reach
from gpumon.specs.precision import Precision

APART: Final = 0.25
"""Share by which the two may differ before a note says why."""
ABSURD: Final = 10.0
"""Factor that none of the known reasons comes to (the largest: SGLang at 8 tensor-parallel GPUs, 6.8)."""
FULL: Final = 0.8
"""Share of the window that must be there: at the edges of a short one a single prompt makes the difference."""
OFF: Final = Missing(
    Reason.OFF, "the counter stays 0 while tokens are generated: start the engine with --enable-mfu-metrics"
)
PER_TOKEN: Final = Missing(Reason.INVALID, "SGLang charges all weights to every token instead of every step")
LONG_PROMPT: Final = 8192.0
"""Tokens from which the causal half of the attention is a good part of a prompt's FLOPs (8B model: 10 % and more)."""
_NEWEST: Final = (9999,)
_ALWAYS: Final = ((0,), _NEWEST)
_NUMBERS: Final = re.compile(r"\d{1,4}(?:\.\d{1,4})*")
_WORDS: Final = {"flops": "its own FLOPs", "read_bytes": "its own bytes read"}
_VLLM, _SGLANG = "vllm", "sglang"
_FLOPS, _READ = "flops", "read_bytes"
_PLAIN: Final = frozenset({Precision.FP32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.MXFP4})
_EIGHT_BIT: Final = frozenset({Precision.FP8, Precision.INT8})


class _Case(NamedTuple):
    """What a reason depends on."""

    llm: LlmSpec
    split: Layout
    rates: Rates
    prefill_ratio: float
    """Share of prefill in the FLOPs."""
    ratio: float
    """The engine's own figure / gpumon's."""

    @property
    def high(self) -> bool:
        return self.ratio > 1.0

    @property
    def low(self) -> bool:
        return self.ratio < 1.0

    @property
    def dense(self) -> bool:
        return not self.llm.experts

    @property
    def sparse(self) -> bool:
        """Whether its layers look at the tokens that an indexer picks (DeepSeek-V3.2, GLM-5)."""
        return self.llm.attention_layers(Reach.TOP) > 0

    @property
    def speculates(self) -> bool:
        return self.rates.per_step > 1.0

    @property
    def cached_ratio(self) -> float:
        shown = self.rates.shown
        cached, computed = number(shown.cached_tokens_per_s) or 0.0, number(shown.prefill_tokens_per_s) or 0.0
        return cached / (cached + computed) if cached + computed > 0.0 else 0.0


class _Why(NamedTuple):
    """One known reason: whose counter, of what, since and until (before) which version, when, in words."""

    maker: str
    of: str
    since: tuple[int, ...]
    until: tuple[int, ...]
    when: Callable[[_Case], bool]
    text: str


_REASONS: Final = (
    _Why(
        _VLLM, _FLOPS, (0,), _NEWEST,
        lambda case: case.high and case.prefill_ratio > 0.5 and (number(case.rates.prompt_length) or 0.0) > LONG_PROMPT,
        "it counts the attention inside a chunk of prefill in full, not its causal half",
    ),
    _Why(
        _VLLM, _FLOPS, (0,), (0, 24),
        lambda case: case.high and case.llm.attention_layers(Reach.WINDOW, Reach.CHUNK) > 0,
        "before 0.24 it counts sliding-window layers as if they saw the whole context",
    ),
    _Why(
        _VLLM, "", (0,), (0, 24), lambda case: case.llm.latent,
        "before 0.24 it counts MLA as plain multi-head attention",
    ),
    _Why(
        _VLLM, _FLOPS, (0, 24), _NEWEST, lambda case: case.low and case.llm.latent,
        "it counts MLA's decode by the sizes of its prefill: a third of the absorbed form",
    ),
    _Why(
        _VLLM, "", (0,), _NEWEST, lambda case: case.low and case.dense and case.split.dp > 1,
        "it divides the feed-forward layers of a dense model by its data-parallel ranks, though each has all of them",
    ),
    _Why(
        _VLLM, "", (0,), (0, 19), lambda case: case.low and case.llm.precision not in _PLAIN,
        "before 0.19 it leaves out attention and feed-forward layers in this format",
    ),
    _Why(
        _VLLM, "", (0, 19), _NEWEST, lambda case: case.low and case.llm.precision not in _PLAIN,
        "it leaves out what is in a format that it does not know",
    ),
    _Why(
        _VLLM, _READ, (0,), _NEWEST, lambda case: case.low and case.llm.precision in _EIGHT_BIT,
        "it takes every compressed-tensors format for 4 bit: 8-bit weights at half of their bytes",
    ),
    _Why(
        _VLLM, _READ, (0,), _NEWEST, lambda case: case.high and not case.dense,
        "it lets every token of a step reach experts of its own, which reads too many at middle batches",
    ),
    _Why(
        _VLLM, _READ, (0,), _NEWEST, lambda case: case.high and case.prefill_ratio > 0.1,
        "it counts the reads of prefill and the activations, too; MBU is of decode steps",
    ),
    _Why(
        _VLLM, "", (0,), _NEWEST, lambda case: case.high and case.speculates,
        "it counts drafted tokens that were refused, and treats a step of several tokens as prefill",
    ),
    _Why(
        _VLLM, "", (0,), _NEWEST,
        lambda case: case.high and (number(case.rates.shown.preemptions_per_s) or 0.0) > 0.0,
        "it counts prompts again that are computed again after a preemption",
    ),
    _Why(
        _VLLM, _READ, (0,), _NEWEST,
        lambda case: case.rates.advances.get("steps_per_s") == Advance.DERIVED.value,
        "gpumon's own steps are estimated here",
    ),
    _Why(
        _VLLM, "", (0,), _NEWEST, lambda case: bool(case.llm.states),
        "it counts a hybrid's linear-attention and state-space layers as if they were attention",
    ),
    _Why(
        _VLLM, "", (0,), _NEWEST, lambda case: case.high and case.sparse,
        "it counts sparse attention as dense, over the whole context",
    ),
    _Why(
        _SGLANG, _FLOPS, (0,), _NEWEST, lambda case: case.high and case.dense and case.split.tp > 1,
        "it does not divide the feed-forward layers by the tensor-parallel GPUs",
    ),
    _Why(
        _SGLANG, _FLOPS, (0,), _NEWEST, lambda case: case.high and case.split.pp > 1,
        "it does not divide by the pipeline stages",
    ),
    _Why(
        _SGLANG, _FLOPS, (0,), _NEWEST, lambda case: not case.dense,
        "it counts a mixture of experts by its dense feed-forward size",
    ),
    _Why(
        _SGLANG, _FLOPS, (0,), _NEWEST, lambda case: case.low and case.cached_ratio > 0.2,
        "older releases leave out the attention to prompts from the prefix cache",
    ),
    _Why(
        _SGLANG, _FLOPS, (0,), _NEWEST,
        lambda case: case.low and case.llm.head_params > APART / 2 * case.llm.matmul_params,
        "it leaves out the LM head, which is a good part of so small a model",
    ),
)  # fmt: skip
"""Read in the engines' sources: vllm/v1/metrics/perf.py (0.14 to 0.33), SGLang's estimator (0.5.10 to 0.5.23)."""


def own_estimate(
    reading: EngineReading, track: Track, rates: Rates, split: Layout, ours: Efficiency
) -> OwnEstimate | None:
    """The engine's own figures, over all its GPUs, beside `ours`; None where it exports none.

    Both makers count per GPU of a rank: the mean over the ranks x GPUs is all of them. FLOPs are over the window of
    the prefill, as gpumon's are. Without a model there is nothing to compare with.
    """
    if not (track.counts(OWN_FLOPS) or track.counts(OWN_READ_BYTES)):
        return None
    maker = _maker(reading)
    longer = track.window(max(rates.prefill.length_s, track.short.length_s))
    own_flops = _of_all(track, OWN_FLOPS, split, longer)
    read = PER_TOKEN if maker == _SGLANG else _of_all(track, OWN_READ_BYTES, split, track.short)
    idle = Missing(Reason.IDLE)
    ratios = {_FLOPS: per(own_flops, ours.flops_per_s, idle), _READ: per(read, ours.bytes_per_s, idle)}
    notes: tuple[str, ...] = ()
    if reading.llm is not None and track.short.length_s >= FULL * RATE_S:
        prefill, whole = number(ours.prefill_flops_per_s), number(ours.flops_per_s)
        share = prefill / whole if prefill is not None and whole else 0.0
        case = _Case(reading.llm, split, rates, share, 1.0)
        version = _version(reading.version)
        notes = tuple(
            note
            for of, ratio in ratios.items()
            if not isinstance(ratio, Missing) and (note := _note(maker, of, version, case._replace(ratio=ratio)))
        )
    return OwnEstimate(
        flops_per_s=own_flops,
        read_bytes_per_s=read,
        write_bytes_per_s=_of_all(track, OWN_WRITE_BYTES, split, track.short),
        flops_ratio=ratios[_FLOPS],
        read_bytes_ratio=ratios[_READ],
        notes=notes,
    )


def _maker(reading: EngineReading) -> str:
    """Whose counters these are: wrappers pass them on under a prefix of their own."""
    text = f"{reading.live.get(OWN_FLOPS, '')} {reading.kind.value}"
    return next((name for name in (_SGLANG, _VLLM) if name in text), "")


def _of_all(track: Track, counter: str, split: Layout, window: Window) -> Reading:
    counted = track.counted(counter)
    if counted is None:
        return NOT_EXPOSED
    if counted == 0.0:
        return OFF if track.counted(DECODE_TOKENS) else Missing(Reason.IDLE)
    if not split.gpus:
        return Missing(Reason.NO_GPU)
    of_ranks = window.rank_rates(counter)
    return sum(of_ranks) / len(of_ranks) * split.gpus if of_ranks else track.not_yet


def _note(maker: str, of: str, version: tuple[int, ...] | None, case: _Case) -> str:
    """Why the two are apart; empty where they are not. Of an unknown version only reasons hold that all have."""
    if abs(case.ratio - 1.0) <= APART:
        return ""
    reasons = (
        why.text
        for why in _REASONS
        if why.maker == maker
        and why.of in ("", of)
        and ((why.since, why.until) == _ALWAYS if version is None else why.since <= version < why.until)
        and why.when(case)
    )
    told = "; ".join(reasons) or "reason not known"
    if not 1.0 / ABSURD <= case.ratio <= ABSURD:
        told += "; so far apart, the model's dimensions may be wrong"
    return f"{_WORDS[of]}: {case.ratio:.2g} times gpumon's: {told}"


def _version(text: str) -> tuple[int, ...] | None:
    """`v0.24.0rc1+cu128` -> (0, 24, 0); None where it has no number."""
    numbers = _NUMBERS.search(text)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else None
