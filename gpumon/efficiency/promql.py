"""The efficiency formulas as PromQL: a model's constants, and what a Prometheus makes of them and an engine's rates.

The constants are worked out by the very functions of `flops` and `traffic`; FLOPs and bytes of a token are a constant
part, a part per token in context of the full layers, and one of the window layers, which see at most their window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_read_bytes
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

FAR: Final = 2.0**20
"""Tokens in context over which the part per token is measured: a power of two, so that nothing is rounded."""
OF_MODEL: Final = "* on (model_name) group_left ()"
"""Times a constant of the engine's model."""


class Constant(NamedTuple):
    """One figure of a model: the series that holds it, and what it is."""

    record: str
    value: float
    meaning: str


def model_constants(llm: LlmSpec, gpus: int) -> tuple[Constant, ...]:
    """What the formulas need of a model on engines of `gpus` GPUs each, those of a rank one tensor-parallel group.

    Without bytes of its weights, their constants are left out, and what is made of them is absent.
    """
    decode = _parts(llm, decode_flops_per_token)
    prefill = _parts(llm, lambda one, tokens: prefill_flops_per_token(one, 0.0, tokens))
    width = BYTES_PER_ELEMENT[Precision.BF16]
    kv = _parts(llm, lambda one, tokens: kv_read_bytes(one, tokens, 1, Precision.BF16))
    missed = 1.0 - llm.experts_per_token / llm.experts if llm.experts else 1.0
    found = [
        Constant(_of("decode_flops_per_token"), decode[0], "2 x parameters multiplied per token"),
        Constant(_of("decode_flops_per_full_position"), decode[1], "attention, per token in context, full layers"),
        Constant(_of("decode_flops_per_window_position"), decode[2], "the same of the window layers"),
        Constant(_of("prefill_flops_per_token"), prefill[0], "2 x parameters less the LM head"),
        Constant(_of("prefill_flops_per_full_position"), prefill[1], "attention, per token in context, full layers"),
        Constant(_of("prefill_flops_per_window_position"), prefill[2], "the same of the window layers"),
        Constant(_of("prompt_flops"), head_flops(llm), "the LM head, once per prompt"),
        Constant(_of("window_tokens"), float(_window(llm)), "tokens that a window layer sees"),
        Constant(_of("kv_elements_per_full_position"), kv[1] / width, "KV read per token in context, one copy"),
        Constant(_of("kv_elements_per_window_position"), kv[2] / width, "the same of the window layers"),
        Constant(_of("kv_copies_per_gpu"), 1.0 / max(1, llm.kv_heads), "by each GPU of a rank"),
        Constant(_of("kv_element_bytes"), BYTES_PER_ELEMENT[llm.kv_precision], "where the engine names no FP8 cache"),
        Constant(_of("state_bytes_per_token"), kv[0], "state of linear layers, read and written"),
        Constant(_of("engine_gpus"), float(gpus), "GPUs of one engine"),
    ]
    if llm.read_bytes > 0.0:
        experts = llm.experts * llm.expert_read_bytes
        found += [
            Constant(_of("weight_bytes"), llm.read_bytes, "all matmul weights, every expert included"),
            Constant(_of("expert_bytes"), experts, "the experts' part of them"),
            Constant(_of("expert_missed_ratio"), missed, "1 - k/E: share of the experts that one token misses"),
        ]
    return tuple(found)


def peak_constants(flops_per_s: float, bandwidth_bytes_per_s: float) -> tuple[Constant, ...]:
    """The peaks of one of a model's GPUs; 0 is not known and left out."""
    found = (
        Constant(_of("gpu_peak_flops"), flops_per_s, "dense FLOP/s of one GPU in the format of this model's matmuls"),
        Constant(_of("gpu_peak_bandwidth"), bandwidth_bytes_per_s, "bytes/s of one GPU's memory"),
    )
    return tuple(one for one in found if one.value > 0.0)


def told_constants(pool_tokens: float, context_tokens: float, ranks: int = 0) -> tuple[Constant, ...]:
    """What no counter tells, 0 where it is not known.

    Tokens of an engine's KV pool, the context where nothing else gives it, and data-parallel ranks of an engine whose
    page shows fewer.
    """
    found = (
        Constant(_of("kv_pool_tokens"), pool_tokens, "tokens of each rank's KV pool, from cache_config_info"),
        Constant(_of("context_tokens"), context_tokens, "mean context where no series tells it (--context)"),
        Constant(_of("engine_ranks"), float(ranks), "data-parallel ranks of one engine, instead of those on its page"),
    )
    return tuple(one for one in found if one.value > 0.0)


def _of(what: str) -> str:
    return f"gpumon:model_{what}:const"


def _parts(llm: LlmSpec, of: Callable[[LlmSpec, float], float]) -> tuple[float, float, float]:
    """The constant part, and the parts per token in context of what sees all of it and of what sees a limited part.

    PromQL has one limit per model: that of the layers which cost most in it. Others are taken as if the context were
    beyond their limit.
    """
    limited = [each for each in llm.attention if each.limit]
    main = _window(llm)
    others = tuple(each for each in limited if each.limit * each.stride != main)
    base = of(msgspec.structs.replace(llm, attention=others), FAR)
    whole = tuple(each for each in llm.attention if not each.limit)
    full = (of(msgspec.structs.replace(llm, attention=whole), FAR) - of(llm, 0.0)) / FAR
    if not main:
        return base, full, 0.0
    same = tuple(each for each in limited if each.limit * each.stride == main)
    window = (of(msgspec.structs.replace(llm, attention=same), float(main)) - of(llm, 0.0)) / main
    return base, full, window


def _window(llm: LlmSpec) -> int:
    """The limit in tokens of the layers that cost most in it; 0: nothing is limited."""
    costs: dict[int, float] = {}
    for each in llm.attention:
        if each.limit:
            tokens = each.limit * each.stride
            costs[tokens] = costs.get(tokens, 0.0) + each.layers * each.decode_flops * each.limit
    return max(costs, key=lambda tokens: costs[tokens], default=0)


def _engine(what: str) -> str:
    return f"gpumon:engine_{what}"


DECODE: Final = _engine("decode_tokens:rate")
PREFILL: Final = _engine("prefill_tokens:rate")
CACHED: Final = _engine("cached_tokens:rate")
PROMPTS: Final = _engine("prompts:rate")
RUNNING: Final = _engine("requests_running:sum")
RANKS: Final = _engine("ranks:count")
STEPS: Final = _engine("steps:rate")
TOGETHER: Final = _engine("steps_together:rate")
PER_STEP: Final = _engine("tokens_per_step:ratio")
HELD: Final = _engine("context_tokens:sum")
CONTEXT: Final = _engine("context_tokens:mean")
PROMPT_MEAN: Final = _engine("prompt_tokens:mean")
ANSWER_MEAN: Final = _engine("answer_tokens:mean")
PROMPT_BIASED: Final = _engine("prompt_tokens:biased")
LONGER: Final = _engine("prompts_longer:rate")
ENDED: Final = _engine("prompts_ended:rate")
FP8_CACHE: Final = _engine("fp8_cache:bool")


def lower(a: str, b: str, on: str = "") -> str:
    """The lower of two vectors: PromQL's own functions take a scalar."""
    return f"({a} - clamp_min({a} - {on} {b}, 0))" if on else f"({a} - clamp_min({a} - {b}, 0))"


def of_context(what: str, tokens: str, inside: str) -> str:
    """Parts per token in context, of vectors per engine: `tokens` of the whole, `inside` the window. FLOPs, or KV
    elements."""
    return (
        f"{tokens} {OF_MODEL} {_of(f'{what}_per_full_position')}\n"
        f"+ {inside} {OF_MODEL} {_of(f'{what}_per_window_position')}"
    )


def _beyond(tokens: str) -> str:
    """What of a context lies before the window."""
    return f"clamp_min({tokens} - on (model_name) group_left () {_of('window_tokens')}, 0)"


_IN_WINDOW: Final = lower(CONTEXT, _of("window_tokens"), "on (model_name) group_left ()")


def _joined(name: str) -> str:
    return f"+ on (model_name) group_left () {_of(name)}"


def _mean_context(window: str) -> str:
    """KV tokens in use / running; else mean prompt + half the mean answer; else the constant (`--context`)."""
    return (
        f"(sum_over_time({HELD}[{window}]) / (sum_over_time({RUNNING}[{window}]) > 0) > 0)\n"
        f"or {PROMPT_MEAN} + {ANSWER_MEAN} / 2\n"
        f"or {RUNNING} * 0 {_joined('context_tokens')}"
    )


def _biased(by: str) -> str:
    """E[n^2]/E[n] of the prompts that ended, from bucket mid-points scaled to the exact mean; never below the mean."""

    def moment(which: str) -> str:
        name = f"gpumon:prompt_bucket_{which}:const"
        rest = f'sum {by} ({LONGER} * on (engine_kind, le) group_left () {name}{{le!="0"}})'
        return f'({rest} + {ENDED} * on (engine_kind) group_left () {name}{{le="0"}})'

    first, second = moment("first"), moment("second")
    known = f"count {by} ({LONGER} and on (engine_kind, le) gpumon:prompt_bucket_first:const)"
    return (
        f"({PROMPT_MEAN} + clamp_min({second} * {PROMPT_MEAN} * {ENDED} / ({first} ^ 2 > 0) - {PROMPT_MEAN}, 0)\n"
        f" and count {by} ({LONGER}) == {known})\n"
        f"or {PROMPT_MEAN}\nor {CONTEXT}"
    )


class Weight(NamedTuple):
    """What one bound of a histogram of lengths adds to its moments."""

    le: str
    """Bound as `le` without `.0`; "0": of all observations, the others: of those above the bound."""
    first: float
    second: float


def bucket_weights(bounds: tuple[float, ...]) -> tuple[Weight, ...]:
    """Weights that make the first two moments of a cumulative histogram from how many observations lie above a bound.

    Each bucket's mid-point is that of the bucket below and what it is higher. What is above the last bound of a page
    counts with the mid-point of the bucket that would follow.
    """
    middles = [(low + high) / 2.0 for low, high in zip((0.0, *bounds), (*bounds, 2.0 * bounds[-1]), strict=True)]
    steps = zip(bounds, middles, middles[1:], strict=False)
    return (
        Weight("0", middles[0], middles[0] ** 2),
        *(Weight(f"{bound:.10g}", high - low, high**2 - low**2) for bound, low, high in steps),
    )


def derived(by: str, window: str) -> tuple[tuple[str, str, str], ...]:
    """Record, expression and meaning of every figure of an engine that follows from its rates. `by`: its labels."""
    return (
        (CONTEXT, _mean_context(window), "mean tokens in context of a running request"),
        (PROMPT_BIASED, _biased(by), "E[n^2]/E[n] of the prompts: the prompt that a random token belongs to"),
        *_flops(),
        *_bytes(),
        *_shares(),
    )


def _flops() -> tuple[tuple[str, str, str], ...]:
    hit = f"({CACHED} / ({CACHED} + {PREFILL} > 0) or {PREFILL} * 0)"
    seen = _engine("prefill_context_tokens:mean")
    inside = _engine("prefill_window_tokens:mean")
    after_first = f"({DECODE} - ({PROMPTS} <= {DECODE} or {DECODE} * 0))"
    per_token = f"{of_context('decode_flops', CONTEXT, _IN_WINDOW)}\n{_joined('decode_flops_per_token')}"
    decode = f"{after_first} * (\n{per_token}\n)"
    prefill = f"{PREFILL} * (\n{of_context('prefill_flops', seen, inside)}\n{_joined('prefill_flops_per_token')}\n)"
    prompts = f"({PROMPTS} {OF_MODEL} {_of('prompt_flops')} or {PREFILL} * 0)"
    return (
        (
            seen,
            f"{PROMPT_BIASED} * (1 + {hit}) / 2",
            "context of a prefilled token: what is cached, and half of the rest",
        ),
        (
            inside,
            f"{seen} - ({_beyond(PROMPT_BIASED)} ^ 2 - {_beyond(f'{PROMPT_BIASED} * {hit}')} ^ 2)\n"
            f"/ (2 * {PROMPT_BIASED} * (1 - {hit}) > 0)",
            "the same in its window: the mean of min(position, window) over what is not cached",
        ),
        (
            _engine("decode_flops:rate"),
            f"{decode}\nor {DECODE} == 0",
            "decode tokens/s after the first of each answer x FLOPs per token",
        ),
        (
            _engine("prefill_flops:rate"),
            f"{prefill} + {prompts}\nor {PREFILL} == 0",
            "prefill tokens/s x FLOPs per token, and the LM head once per prompt",
        ),
        (_engine("flops:rate"), f"{_engine('prefill_flops:rate')} + {_engine('decode_flops:rate')}", "both"),
    )


def _bytes() -> tuple[tuple[str, str, str], ...]:
    missed = f"({_of('expert_missed_ratio')} ^ on (model_name) group_right () ({DECODE} / ({TOGETHER} > 0)))"
    width, copies, kv, weights = (
        _engine(name)
        for name in ("kv_element:bytes", "kv_copies:ratio", "kv_read_bytes:rate", "weight_read_bytes:rate")
    )
    ranks = f"({RUNNING} * 0 {_joined('engine_ranks')} or {RANKS})"
    return (
        (
            weights,
            f"({DECODE} == 0)\n"
            f"or {TOGETHER} * (0 * {TOGETHER} {_joined('weight_bytes')} - {missed} {OF_MODEL} {_of('expert_bytes')})\n"
            f"+ ({STEPS} - {TOGETHER}) {OF_MODEL} ({_of('weight_bytes')} - {_of('expert_bytes')})",
            "steps/s x weights of a step: of a MoE the experts that its tokens touch; 0 where none decodes",
        ),
        (
            width,
            f"{FP8_CACHE}\nor {RUNNING} * 0 {_joined('kv_element_bytes')}",
            "bytes of one element of the KV cache",
        ),
        (
            copies,
            f"clamp_min(({RUNNING} * 0 {_joined('engine_gpus')}) / {ranks} {OF_MODEL} {_of('kv_copies_per_gpu')}, 1)",
            "GPUs of a rank that read the same KV: MLA all of them, else those beyond its KV heads",
        ),
        (
            kv,
            f"({DECODE} == 0)\nor {DECODE} / {PER_STEP} * (\n"
            f"({of_context('kv_elements', CONTEXT, _IN_WINDOW)}) * {width} * {copies}\n"
            f"{_joined('state_bytes_per_token')}\n)",
            "decode tokens/s / tokens per step and request x KV of the context",
        ),
        (_engine("read_bytes:rate"), f"{weights} + {kv}", "weights and KV cache"),
    )


def _shares() -> tuple[tuple[str, str, str], ...]:
    gpus = f"{RUNNING} * 0 + on (model_name) group_left () {_of('engine_gpus')}"
    peaks = {name: _engine(f"peak_{name}:sum") for name in ("flops", "bandwidth")}
    rows = [
        (peaks[name], f"({gpus}) {OF_MODEL} {_of(f'gpu_peak_{name}')}", "of all GPUs of the engine")
        for name in ("flops", "bandwidth")
    ]
    for name, part, whole in (
        ("mfu_prefill", "prefill_flops", "flops"),
        ("mfu_decode", "decode_flops", "flops"),
        ("mfu", "flops", "flops"),
        ("mbu", "read_bytes", "bandwidth"),
    ):
        rows.append((_engine(f"{name}:ratio"), f"{_engine(f'{part}:rate')} / {peaks[whole]}", f"{part} / peak"))
    return tuple(rows)
