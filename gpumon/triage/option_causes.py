"""Rules on options that cost an engine speed: what its page or its command line says explains what is measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gpumon.readings.option_words import OPTION_LABELS, option_text
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.advice import advice
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.kv_cache import KV_ROOM
from gpumon.triage.saturation import prefill_share
from gpumon.triage.sentences import CAPACITY, MFU_PREFILL, NARROW_DTYPE, PREFIX_CACHING, RAISE_SLOTS, RUNNING, SLOTS
from gpumon.triage.signals import KV_REQUESTS_SOURCE, TOKENS_LATE, Case, finite, kv_requests

_LAUNCH_TIMES: Final = 2.0
"""Times the reads of a decode step from which on the rest of it, in which no kernel reads, is what costs: with CUDA
graphs a step of few requests takes about 1.2 times its reads."""
_REACHED_SHARE: Final = 0.75
"""Share of the peak bandwidth that tuned kernels reach."""
_LEAST_RUNNING: Final = 0.5
"""Mean requests that must run: below it the engine rests more than it works, and its steps cost nobody."""
_LEAST_RUNNING_OF_RANK: Final = 4.0
"""Requests on each rank from which on the experts of a batch are worth spreading."""
_LEAST_EXPERTS: Final = 16
"""Experts from which on whole ones can be spread over the GPUs."""
_FEW_SLOTS_SHARE: Final = 0.25
"""Slots, of the requests that the KV cache holds, below which they are what keeps the GPUs from work."""
_SLOTS_IN_USE: Final = 0.5
"""Share of the slots in use from which on more of them are worth having."""
_PREFILL_AT_WORK: Final = 0.1
"""MFU of prefill from which on prompts that need not be computed save something that is seen."""


OPTION: Final = Quantity("option", "[{name}: {word}|given as {word}|set to {value:count}]")
ITL_MEAN: Final = Quantity("itl_mean", "mean ITL {value:latency}", field="itl_mean_s", chart="itl")
STEP_READS: Final = Quantity("step_reads", "reading its weights and KV cache takes {value:latency} of a step")
CUDA_GRAPHS: Final = Remedy("cuda_graphs", "take {flag} off its command line: CUDA graphs launch a whole step at once")
CHUNK_PROMPTS: Final = Remedy("chunk_prompts", "{flag}: a long prompt then takes turns with the answers")
EXPERT_PARALLEL: Final = Remedy("expert_parallel", "{flag}: whole experts on each GPU")

WIDE_WEIGHTS: Final = Cause(
    "wide_weights",
    Limit.LOW_EFFICIENCY,
    (
        "weights in 32 bits ([{mbu:percent} MBU, ]half of it for nothing): each step reads twice the "
        "bytes that 16 bits take, and computes without tensor cores"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
EAGER_MODE: Final = Cause(
    "eager_mode",
    Limit.LOW_EFFICIENCY,
    (
        "eager mode: a token takes {itl_s:latency}, its reads {reads_s:latency} of that "
        "({running:requests} run): the rest is launching kernels"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
WHOLE_PROMPTS: Final = Cause(
    "whole_prompts",
    Limit.LOW_EFFICIENCY,
    "prompts are computed in one piece[, {tokens:tokens} tokens on average]: all answers stop meanwhile",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
SPLIT_EXPERTS: Final = Cause(
    "split_experts",
    Limit.LOW_EFFICIENCY,
    (
        "each of {experts:count} experts is split over its GPUs[ ({gpus:count})]: many small pieces "
        "of work for {running:requests} requests"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
FEW_SLOTS: Final = Cause(
    "few_slots",
    Limit.LOW_EFFICIENCY,
    (
        "too few slots: {running:requests} of {slots:requests} in use[ on {gpus:gpus}], and its KV "
        "cache holds {kv_requests:requests} requests"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
PREFIXES_NOT_KEPT: Final = Cause(
    "prefixes_not_kept",
    Limit.LOW_EFFICIENCY,
    (
        "prefix caching is off, and {prefill:percent} of its arithmetic is prompts: if these begin "
        "alike (system prompt, history), most of that is computed again"
    ),
    level=Level.NOTE,
    confidence=Confidence.LOW,
)


def slow_option(case: Case) -> Finding | None:
    """Rule: an option that was given makes each step, or each answer, slower than it need be."""
    engine = case.serving_engine()
    if engine is None or engine.asleep or any(limit is not Limit.FAILING for limit in case.found_limits):
        return None
    running = case.mean("running", case.thresholds.under_used_s)
    if running is None or running < _LEAST_RUNNING:
        return None
    has_queue = case.waiting_mean() >= case.thresholds.queue_waiting
    for rule in _RULES_BESIDE_A_QUEUE if has_queue else _RULES:
        finding = rule(case, engine)
        if finding is not None:
            return finding
    return None


def _finding(
    case: Case, cause: Cause, parameters: Parameters, evidence: tuple[Evidence, ...], actions: tuple[Action, ...]
) -> Finding:
    """The finding on an option: a warning where users wait, else a note."""
    late = case.late_latencies()
    return cause.finding(
        parameters=parameters,
        evidence=(*evidence, *late),
        actions=actions,
        level=Level.WARN if late else None,
    )


def _option_evidence(engine: Engine, name: str) -> Evidence:
    """Evidence of an option as it was given, with who tells it."""
    value = getattr(engine.options, name)
    source = engine.options.sources.get(name, "")
    words = params(name=OPTION_LABELS[name], word=option_text(name, value))
    if isinstance(value, str):
        return OPTION.evidence(source=source, parameters=words)
    return OPTION.evidence(value, source=source, parameters=words)


def _wide_weights(case: Case, engine: Engine) -> Finding | None:
    """Weights in 32 bits: twice the bytes of a step, and arithmetic without tensor cores."""
    if engine.dimensions.weight_precision != "fp32" or not engine.options.dtype:
        return None
    evidence = (_option_evidence(engine, "dtype"), *case.work_evidence(case.activity()))
    parameters = params(mbu=case.mean("mbu_ratio"))
    return _finding(case, WIDE_WEIGHTS, parameters, evidence, (NARROW_DTYPE.action(flag=advice(engine.kind).dtype),))


def step_reads_s(case: Case, engine: Engine) -> float | None:
    """Seconds that the reads of a step take at the bandwidth that tuned kernels reach; None where that is not known."""
    mbu = case.mean("mbu_ratio")
    steps_per_s = finite(engine.rates.steps_per_s)
    if not mbu or not steps_per_s:
        return None
    return mbu / steps_per_s / _REACHED_SHARE


def _eager_mode(case: Case, engine: Engine) -> Finding | None:
    """Eager mode, with steps that take far longer than their reads: launching kernels is what takes the time."""
    itl_s = case.mean("itl_mean_s")
    reads_s = step_reads_s(case, engine)
    mfu = case.mean("mfu_ratio") or 0.0
    if not engine.options.is_on("eager") or itl_s is None or reads_s is None:
        return None
    if itl_s < _LAUNCH_TIMES * reads_s or mfu > case.thresholds.under_used_mfu_ratio:
        return None
    running = case.mean("running") or 0.0
    evidence = (
        _option_evidence(engine, "eager"),
        case.evidence(ITL_MEAN, itl_s),
        STEP_READS.evidence(reads_s, source="bytes of a step / bandwidth"),
        case.evidence(RUNNING, running),
    )
    parameters = params(itl_s=itl_s, reads_s=reads_s, running=running)
    return _finding(case, EAGER_MODE, parameters, evidence, (CUDA_GRAPHS.action(flag=advice(engine.kind).eager),))


def _whole_prompts(case: Case, engine: Engine) -> Finding | None:
    """Prompts that are computed in one piece, while the gaps between tokens are late: each prompt stops all answers."""
    are_tokens_late = any(late.quantity in TOKENS_LATE for late in case.late_latencies())
    if not engine.options.is_off("chunked_prefill") or not are_tokens_late or not case.mean("prefill_tokens_per_s"):
        return None
    evidence = (_option_evidence(engine, "chunked_prefill"),)
    parameters = params(tokens=finite(engine.load.prompt_tokens_mean))
    flag = advice(engine.kind).chunked
    return _finding(case, WHOLE_PROMPTS, parameters, evidence, (CHUNK_PROMPTS.action(flag=flag),))


def _does_little(case: Case) -> bool:
    """Whether arithmetic and memory are far from their limits."""
    limits = case.thresholds
    mfu = case.mean("mfu_ratio")
    mbu = case.mean("mbu_ratio")
    if mfu is None or mbu is None:
        return False
    return mfu <= limits.under_used_mfu_ratio and mbu <= limits.under_used_mbu_ratio


def _split_experts(case: Case, engine: Engine) -> Finding | None:
    """A mixture of experts over data-parallel ranks, with each expert split over all GPUs: small pieces of work."""
    llm = engine.dimensions.llm
    ranks = engine.hardware.ranks
    running = case.mean("running") or 0.0
    if llm is None or llm.experts < _LEAST_EXPERTS or ranks < 2 or not engine.options.is_off("expert_parallel"):
        return None
    if running < _LEAST_RUNNING_OF_RANK * ranks or not _does_little(case):
        return None
    evidence = (_option_evidence(engine, "expert_parallel"), *case.work_evidence(case.activity()))
    parameters = params(experts=float(llm.experts), gpus=finite(engine.hardware.gpu_count), running=running)
    action = EXPERT_PARALLEL.action(flag=advice(engine.kind).expert_parallel)
    return _finding(case, SPLIT_EXPERTS, parameters, evidence, (action,))


def _few_slots(case: Case, engine: Engine) -> Finding | None:
    """Few slots on GPUs that do little, beside a KV cache with room for many more requests."""
    slots = case.slots()
    fits = kv_requests(engine)
    running = case.mean("running", case.thresholds.under_used_s) or 0.0
    if slots is None or fits is None or slots.number > _FEW_SLOTS_SHARE * fits or not _does_little(case):
        return None
    if running < _SLOTS_IN_USE * slots.number:
        return None
    evidence = (
        case.evidence(RUNNING, running, limit=slots.number),
        SLOTS.evidence(slots.number, source=slots.source),
        CAPACITY.evidence(fits, source=KV_REQUESTS_SOURCE),
        *case.work_evidence(case.activity()),
    )
    gpus = finite(engine.hardware.gpu_count)
    parameters = params(running=running, slots=slots.number, kv_requests=fits, gpus=gpus)
    ranks = max(1, engine.hardware.ranks)
    wanted = float(math.floor(fits * KV_ROOM / ranks))
    action = RAISE_SLOTS.action(flag=advice(engine.kind).slots, now=slots.number / ranks, wanted=wanted)
    return _finding(case, FEW_SLOTS, parameters, evidence, (action,))


def _prefixes_not_kept(case: Case, engine: Engine) -> Finding | None:
    """Prefix caching off while prompts are most of the arithmetic: a note even where users wait, as nothing tells if
    prompts begin alike."""
    share = prefill_share(case)
    prefill_mfu = case.mean("mfu_prefill_ratio") or 0.0
    if share is None or prefill_mfu < _PREFILL_AT_WORK or not engine.options.is_off("prefix_caching"):
        return None
    evidence = (
        _option_evidence(engine, "prefix_caching"),
        case.evidence(MFU_PREFILL, prefill_mfu),
        *case.late_latencies(),
    )
    return PREFIXES_NOT_KEPT.finding(
        parameters=params(prefill=share),
        evidence=evidence,
        actions=(PREFIX_CACHING.action(flag=advice(engine.kind).prefix),),
    )


_OptionRule = Callable[[Case, Engine], "Finding | None"]
_RULES_BESIDE_A_QUEUE: Final[tuple[_OptionRule, ...]] = (_wide_weights, _eager_mode)
"""Rules on what makes each step slower: requests may well wait for that."""
_RULES: Final[tuple[_OptionRule, ...]] = (
    *_RULES_BESIDE_A_QUEUE,
    _whole_prompts,
    _split_experts,
    _few_slots,
    _prefixes_not_kept,
)
