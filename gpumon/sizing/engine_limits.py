"""Limits of an engine that bound plans and simulations: typed, told by the engine that runs, or its defaults."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.sizing.first_token import engine_of
from gpumon.sizing.instance import Instance, engine_to_size
from gpumon.sizing.profile import Origin
from gpumon.specs.engine_defaults import SMALL_GPU, DefaultBounds, default_bounds, sglang_slots, sglang_step_tokens

TYPED: Final = "typed"
"""Source of a limit that the user gave."""


class EngineLimit(NamedTuple):
    """One limit of an instance, all its data-parallel ranks together."""

    value: int
    source: str
    """In words: `typed`, `--max-num-seqs of its command line (pid 48)`, `vLLM's default for this GPU`."""
    is_default: bool = False
    """Whether nothing tells it."""


def told_slots(instance: Instance) -> EngineLimit | None:
    """Requests that an instance runs at once, as typed or measured; None where neither tells."""
    if instance.workload.max_num_seqs is not None:
        return EngineLimit(instance.workload.max_num_seqs, TYPED)
    seen = instance.seen
    if seen is None or seen.max_num_seqs is None:
        return None
    return EngineLimit(seen.max_num_seqs, seen.max_num_seqs_source or "measured")


def planned_slots(instance: Instance, pool_tokens: float | None) -> EngineLimit | None:
    """Requests that bound a plan: told, or the default of an engine that runs; None where nothing bounds it.

    A server that is not there yet is started with as many as it is planned with. Engines other than vLLM and SGLang
    have no default that is known here.
    """
    told = told_slots(instance)
    if told is not None or instance.seen is None or instance.seen.origin is not Origin.LIVE:
        return told
    if engine_to_size(instance.workload, instance.seen) in ("vllm", "sglang"):
        return default_slots(instance, pool_tokens)
    return None


def default_slots(instance: Instance, pool_tokens: float | None) -> EngineLimit:
    """Requests that an instance runs at once by the default of its engine, vLLM's for one that is not known.

    `pool_tokens`: size of its KV cache; None or infinite where it is not known.
    """
    pool_tokens = pool_tokens or math.inf
    if engine_to_size(instance.workload, instance.seen) == "sglang" and math.isfinite(pool_tokens):
        longest = longest_request(instance)
        slots = sglang_slots(pool_tokens / instance.dp, longest if math.isfinite(longest) else pool_tokens)
        return EngineLimit(slots * instance.dp, f"SGLang's default for this KV cache{_release(instance)}", True)
    slots = _vllm_bounds(instance).max_num_seqs * instance.dp
    return EngineLimit(slots, f"vLLM's default for this GPU{_release(instance)}", True)


def step_tokens(instance: Instance) -> EngineLimit:
    """Tokens that a step of an instance computes at most: typed, told by the engine, or its default."""
    if instance.workload.max_num_batched_tokens is not None:
        return EngineLimit(instance.workload.max_num_batched_tokens, TYPED)
    seen = instance.seen
    if seen is not None and seen.max_num_batched_tokens is not None:
        return EngineLimit(seen.max_num_batched_tokens, seen.max_num_batched_tokens_source or "measured")
    # Each data-parallel rank is an engine with these defaults.
    if engine_to_size(instance.workload, seen) == "sglang" and instance.gpu is not None:
        tokens = sglang_step_tokens(instance.gpu.memory_bytes) * instance.dp
        return EngineLimit(tokens, f"SGLang's default for this GPU{_release(instance)}", True)
    tokens = _vllm_bounds(instance).max_num_batched_tokens * instance.dp
    return EngineLimit(tokens, f"vLLM's default for this GPU{_release(instance)}", True)


def longest_request(instance: Instance) -> float:
    """Tokens of the longest request, prompt and answer together, that the engine that runs and the model take; infinite
    where neither tells."""
    known = []
    if instance.llm is not None and instance.llm.max_context > 0:
        known.append(float(instance.llm.max_context))
    if instance.seen is not None and instance.seen.max_model_len is not None:
        known.append(float(instance.seen.max_model_len))
    return min(known, default=math.inf)


def _vllm_bounds(instance: Instance) -> DefaultBounds:
    """vLLM's defaults on the GPU of an instance."""
    if instance.gpu is None:
        return SMALL_GPU
    release = instance.seen.tool if instance.seen is not None and engine_of(instance.seen.tool) == "vllm" else ""
    return default_bounds(instance.gpu.memory_bytes, instance.gpu.name, release)


def _release(instance: Instance) -> str:
    """The engine that was seen, in brackets: ` (vllm 0.11.0)`; empty where none was."""
    seen = instance.seen
    if seen is None or seen.origin is not Origin.LIVE or not seen.tool:
        return ""
    return f" ({seen.tool})"
