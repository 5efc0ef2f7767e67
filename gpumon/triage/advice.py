"""Names of the settings that an action means, by engine, and a version's defaults: a table."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Parameters
from gpumon.specs.engine_defaults import release_number
from gpumon.triage.sentences import NARROW_DTYPE, PREFIX_CACHING, QUANTISE_WEIGHTS, SMALLER_CHUNKS


class Advice(NamedTuple):
    """Options of an engine; a plain word where it has no such option, or none is known. Empty: it cannot do that."""

    slots: str = "the limit of requests that run at once"
    """Requests that run at once."""
    longest_context: str = "the longest context"
    """Most tokens of a request."""
    fp8_kv: str = "an 8-bit KV cache"
    """KV cache with elements of 8 bit."""
    memory: str = "the KV cache's share of the memory"
    is_memory_of_all: bool = False
    """Whether `memory` is a share of all of a GPU's memory: not of what the weights leave free."""
    budget: str = "the tokens of a step"
    """Tokens that a step computes at most."""
    chunked: str = "chunked prefill"
    prefix: str = "prefix caching"
    fp8_weights: str = "8-bit weights"
    tp: str = "tensor parallelism"
    pp: str = "pipeline parallelism"
    prefix_since: tuple[int, int] | None = None
    """First release in which prefix caching is on by itself; None: in none."""
    chunked_since: tuple[int, int] | None = None
    """First release in which chunked prefill is on by itself; None: in none."""
    loras: str = "the number of LoRA adapters at once"
    """LoRA adapters that are served at once."""
    dtype: str = "16-bit weights"
    """Weights in 16 bits, as most checkpoints have them."""
    eager: str = "eager mode"
    """The option that keeps it from CUDA graphs."""
    expert_parallel: str = "expert parallelism"
    front_end: str = ""
    """More processes or threads of the front end: those that tokenise and stream."""


_VLLM: Final = Advice(
    slots="--max-num-seqs",
    longest_context="--max-model-len",
    fp8_kv="--kv-cache-dtype fp8",
    memory="--gpu-memory-utilization",
    is_memory_of_all=True,
    budget="--max-num-batched-tokens",
    chunked="--enable-chunked-prefill",
    prefix="--enable-prefix-caching",
    fp8_weights="--quantization fp8",
    tp="--tensor-parallel-size",
    pp="--pipeline-parallel-size",
    prefix_since=(0, 8),
    chunked_since=(0, 8),
    loras="--max-loras",
    dtype="--dtype bfloat16",
    eager="--enforce-eager",
    expert_parallel="--enable-expert-parallel",
    front_end="--api-server-count 4",
)
_TRTLLM: Final = Advice(
    slots="--max_batch_size",
    longest_context="--max_seq_len",
    fp8_kv="kv_cache_config.dtype: fp8",
    memory="--kv_cache_free_gpu_memory_fraction",
    budget="--max_num_tokens",
    chunked="enable_chunked_prefill: true",
    prefix="kv_cache_config.enable_block_reuse: true",
    fp8_weights="an FP8 checkpoint",
    tp="--tp_size",
    pp="--pp_size",
    prefix_since=(1, 0),
)
_GENERIC: Final = Advice()
_ADVICE: Final = {
    EngineKind.VLLM: _VLLM,
    EngineKind.APHRODITE: _VLLM,
    EngineKind.RAY: Advice(
        slots="engine_kwargs.max_num_seqs",
        longest_context="engine_kwargs.max_model_len",
        fp8_kv="engine_kwargs.kv_cache_dtype: fp8",
        memory="engine_kwargs.gpu_memory_utilization",
        is_memory_of_all=True,
        budget="engine_kwargs.max_num_batched_tokens",
        fp8_weights="engine_kwargs.quantization: fp8",
        tp="engine_kwargs.tensor_parallel_size",
        pp="engine_kwargs.pipeline_parallel_size",
        loras="engine_kwargs.max_loras",
    ),
    EngineKind.SGLANG: Advice(
        slots="--max-running-requests",
        longest_context="--context-length",
        fp8_kv="--kv-cache-dtype fp8_e5m2",
        memory="--mem-fraction-static",
        is_memory_of_all=True,
        budget="--max-prefill-tokens",
        chunked="--chunked-prefill-size",
        prefix="the radix cache (no --disable-radix-cache)",
        fp8_weights="--quantization fp8",
        tp="--tp",
        pp="--pp-size",
        prefix_since=(0, 0),
        chunked_since=(0, 3),
        loras="--max-loras-per-batch",
        dtype="--dtype bfloat16",
        eager="--disable-cuda-graph",
        expert_parallel="--ep-size",
        front_end="--tokenizer-worker-num 4",
    ),
    EngineKind.LLAMA_CPP: Advice(
        slots="-np",
        longest_context="-c",
        fp8_kv="-ctk q8_0 -ctv q8_0",
        memory="",
        budget="-ub",
        chunked="",
        prefix="--cache-reuse",
        fp8_weights="a GGUF of fewer bits",
    ),
    EngineKind.TGI: Advice(
        slots="--max-batch-size",
        longest_context="--max-total-tokens",
        fp8_kv="--kv-cache-dtype fp8_e4m3fn",
        memory="--cuda-memory-fraction",
        budget="--max-batch-prefill-tokens",
        chunked="",
        fp8_weights="--quantize fp8",
        tp="--num-shard",
        prefix_since=(3, 0),
        front_end="--validation-workers 8",
    ),
    EngineKind.TENSORRT_LLM: _TRTLLM,
    EngineKind.TRITON: Advice(
        slots="max_batch_size in config.pbtxt",
        longest_context="--max_seq_len of trtllm-build",
        fp8_kv="--use_fp8_context_fmha with an FP8 KV checkpoint",
        memory="kv_cache_free_gpu_mem_fraction",
        budget="--max_num_tokens of trtllm-build",
        chunked="enable_chunked_context",
        prefix="enable_kv_cache_reuse",
    ),
    EngineKind.LMDEPLOY: Advice(
        slots="--max-batch-size",
        longest_context="--session-len",
        fp8_kv="--quant-policy 8",
        memory="--cache-max-entry-count",
        budget="--max-prefill-token-num",
        prefix="--enable-prefix-caching",
        tp="--tp",
    ),
    EngineKind.NIM: Advice(
        longest_context="NIM_MAX_MODEL_LEN",
        memory="NIM_KVCACHE_PERCENT",
        prefix="NIM_ENABLE_KV_CACHE_REUSE=1",
        fp8_weights="an FP8 profile (NIM_MODEL_PROFILE)",
        tp="a profile of another tp (NIM_MODEL_PROFILE)",
    ),
    EngineKind.OLLAMA: Advice(
        slots="OLLAMA_NUM_PARALLEL",
        longest_context="OLLAMA_CONTEXT_LENGTH",
        fp8_kv="OLLAMA_KV_CACHE_TYPE=q8_0",
        chunked="",
        fp8_weights="a model of fewer bits",
    ),
    EngineKind.TEI: Advice(
        slots="--max-concurrent-requests",
        budget="--max-batch-tokens",
        chunked="",
        prefix="",
    ),
}

SWITCHES: Final = frozenset({"--enable-chunked-prefill", "--enable-prefix-caching", "--enable-expert-parallel"})
"""Options of these that take no value."""
ADVISED_OPTIONS: Final = frozenset(
    option for options in (*_ADVICE.values(), _GENERIC) for option in options if isinstance(option, str) and option
)
"""All words that actions name as an option: what a peer advises is held against them."""


def advice(kind: EngineKind) -> Advice:
    """The options of a kind of engine."""
    return _ADVICE.get(kind, _GENERIC)


_WIDE: Final = frozenset({"bf16", "fp16", "fp32"})
"""Formats of weights that can be halved."""


def _is_default(engine: Engine, first_release: tuple[int, int] | None) -> bool:
    """Whether an engine's release has a setting on by itself; where its version is not known, whether any release
    has."""
    if first_release is None:
        return False
    release = release_number(engine.version)
    return release is None or release >= first_release


def fewer_prompt_tokens(engine: Engine) -> list[Action]:
    """Prefix caching and chunked prefill, where they are not on already: by what it tells, else by its version."""
    words = advice(engine.kind)
    actions = []
    if words.prefix and not _is_at_work(engine, "prefix_caching", words.prefix_since):
        actions.append(PREFIX_CACHING.action(flag=words.prefix))
    if words.chunked:
        parameters: Parameters = {"flag": words.budget}
        if not _is_at_work(engine, "chunked_prefill", words.chunked_since):
            parameters["chunked"] = words.chunked
        actions.append(SMALLER_CHUNKS.action(**parameters))
    return actions


def _is_at_work(engine: Engine, switch: str, since: tuple[int, int] | None) -> bool:
    """Whether a switch is on, as the engine tells it; where it does not, by its version."""
    options = engine.options
    if options.is_on(switch) or options.is_off(switch):
        return options.is_on(switch)
    return _is_default(engine, since)


def quantise(engine: Engine) -> tuple[Action, ...]:
    """Smaller weights, where they are of 16 bit or more and the engine can; of 32 bit without losing anything."""
    words = advice(engine.kind)
    if engine.dimensions.weight_precision == "fp32" and engine.options.dtype:
        return (NARROW_DTYPE.action(flag=words.dtype),)
    if engine.dimensions.weight_precision in _WIDE and words.fp8_weights:
        return (QUANTISE_WEIGHTS.action(flag=words.fp8_weights),)
    return ()
