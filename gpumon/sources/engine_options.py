"""Options of an engine, put together: its page first, then its command line, then the defaults of its release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from gpumon.readings.engine_options import ASSUMED, NO_OPTIONS, UNSEEN_COMMAND, EngineOptions, is_told
from gpumon.readings.frame import OPTIONS_UNREAD, SERVER_COMMAND, SIMULATED, EngineKind, EngineReading, GpuReading
from gpumon.readings.missing import number
from gpumon.readings.quantities import MOST_RUNNING
from gpumon.readings.text import clean
from gpumon.sources.discovery.command_line import Launch, launch
from gpumon.sources.discovery.launch_options import MOST_WORD, NO_WORDS, count_of, switch_of, with_place
from gpumon.specs import hints
from gpumon.specs.engine_defaults import SMALL_GPU, default_bounds
from gpumon.specs.llm_hints import CAST_WORDS

_COUNTS_OF_PAGE: Final = {
    "context_tokens": (hints.CONTEXT_LEN, "max_model_len"),
    "memory_share_ratio": ("gpu_memory_utilization",),
    "slots": ("slots", "max_batch_size"),
    "step_tokens": ("chunked_prefill_size", "max_prefill_tokens"),
    "draft_tokens": ("speculative_num_draft_tokens",),
    "lora_slots": ("max_loras_per_batch",),
}
"""Option -> keys of `EngineReading.info` that hold its number, as the engine's pages tell it."""
_SWITCHES_OF_PAGE: Final = {
    "prefix_caching": ("enable_prefix_caching", "enable_block_reuse"),
    "eager": ("disable_cuda_graph",),
}
"""Option -> keys that tell whether it is on."""
_WORDS_OF_PAGE: Final = {
    "kv_dtype": (hints.KV_DTYPE, "cache_dtype"),
    "quantization": (hints.QUANTIZATION,),
    "speculation": (hints.SPECULATION,),
}
"""Option -> keys that hold its word. A command line stands above it: what it says of these is in `info`, too."""
_NEVER_BY_ITSELF: Final = ("eager", "expert_parallel", "lora_slots", "draft_tokens")
"""Options that vLLM and SGLang have off unless their command line says otherwise, in every release."""
_WITH_SWITCHES: Final = frozenset({EngineKind.VLLM, EngineKind.SGLANG})


def with_options(reading: EngineReading, gpus: Sequence[GpuReading] = ()) -> EngineReading:
    """The reading with all options that are known of its engine. `reading.options`: those of its server's command line.

    `gpus`: the GPUs that it runs on. Without a server that was found, the command line is that of its process there.
    """
    is_command_known = SERVER_COMMAND in reading.info and OPTIONS_UNREAD not in reading.info
    if SERVER_COMMAND not in reading.info and not reading.options.sources:
        options, is_command_known = _options_of_process(reading, gpus)
        reading = msgspec.structs.replace(reading, options=options)
    page = _options_of_page(reading)
    defaults = _defaults(reading, gpus, is_command_known=is_command_known)
    return msgspec.structs.replace(reading, options=page.completed_by(reading.options).completed_by(defaults))


def _options_of_process(reading: EngineReading, gpus: Sequence[GpuReading]) -> tuple[EngineOptions, bool]:
    """Options by the command line of an engine's process on a GPU, and whether that is one of an engine at all."""
    for gpu in gpus:
        for process in gpu.processes:
            if process.engine == reading.server_name:
                launched = _launch_of(process.command)
                if launched is not None:
                    return with_place(launched.options, f"pid {process.pid}"), not launched.file
    return NO_OPTIONS, False


@lru_cache(maxsize=256)
def _launch_of(command: str) -> Launch | None:
    """The engine that a shown command line starts; None where it starts none, or is a title such as `VLLM::Worker`."""
    launched = launch(command.removeprefix(SIMULATED).split())
    if launched is None or launched.part:
        return None
    return launched


def _options_of_page(reading: EngineReading) -> EngineOptions:
    """Options that the engine's own pages tell."""
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, source in (*_slots_gauge(reading), *_info_options(reading)):
        # Where the command line says the same, that is the source, as it names what to change.
        if name not in fields and getattr(reading.options, name) != value:
            fields[name] = value
            sources[name] = source
    return EngineOptions(**fields, sources=sources)


def _slots_gauge(reading: EngineReading) -> Iterator[tuple[str, float | str, str]]:
    """Requests that one rank runs at once, where all ranks export it and agree."""
    slots = {rank.gauges.get(MOST_RUNNING, 0.0) for rank in reading.ranks}
    if len(slots) == 1 and slots != {0.0}:
        yield "slots", slots.pop(), reading.live.get(MOST_RUNNING, MOST_RUNNING)


def _info_options(reading: EngineReading) -> Iterator[tuple[str, float | str, str]]:
    """Options by the static settings that the engine's pages have."""
    info = reading.info
    for name, keys in _COUNTS_OF_PAGE.items():
        for key in keys:
            count = count_of([info.get(key, "")])
            if count:
                yield name, count, f"{key} of its page"
    for name, keys in _SWITCHES_OF_PAGE.items():
        for key in keys:
            state = switch_of([info[key]]) if info.get(key) else None
            if state is not None:
                yield name, state, f"{key} of its page"
    yield from _sizes_of_info(reading)
    yield from _words_of_info(reading)
    dtype = info.get(hints.WEIGHT_PRECISION, "").lower().removeprefix("torch.")
    if dtype in CAST_WORDS:  # others name a quantisation
        yield "dtype", dtype, f"{hints.WEIGHT_PRECISION} of its page"


def _words_of_info(reading: EngineReading) -> Iterator[tuple[str, float | str, str]]:
    """Options that are words, where the command line does not tell them."""
    for name, keys in _WORDS_OF_PAGE.items():
        for key in keys:
            word = reading.info.get(key, "auto").lower().removeprefix("torch.")
            if word not in NO_WORDS and not is_told(getattr(reading.options, name)):
                yield name, clean(reading.info[key], MOST_WORD), f"{key} of its page"


def _sizes_of_info(reading: EngineReading) -> Iterator[tuple[str, float | str, str]]:
    """Switches that a size tells, and the sizes of parallelism."""
    info = reading.info
    if info.get("chunked_prefill_size"):
        yield "chunked_prefill", float(info["chunked_prefill_size"] != "-1"), "chunked_prefill_size of its page"
    ep_size = count_of([info.get("ep_size", "")])
    if ep_size:
        yield "expert_parallel", float(ep_size > 1.0), "ep_size of its page"
    for name in ("tp", "pp", "dp"):
        size = getattr(reading, name)
        if size:
            yield name, float(size), "its page or its processes"


def _defaults(reading: EngineReading, gpus: Sequence[GpuReading], *, is_command_known: bool) -> EngineOptions:
    """Defaults of the engine's release, for what nobody tells; the sources say that they are assumed."""
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if reading.kind in _WITH_SWITCHES and is_command_known:
        for name in _NEVER_BY_ITSELF:
            fields[name] = 0.0
            sources[name] = "not on its command line"
    if reading.kind is EngineKind.VLLM:
        where = "not on its command line" if is_command_known else UNSEEN_COMMAND
        for name, value in _vllm_defaults(reading, gpus).items():
            fields[name] = value
            sources[name] = f"vLLM's default, {ASSUMED}: {where}"
    return EngineOptions(**fields, sources=sources)


def _vllm_defaults(reading: EngineReading, gpus: Sequence[GpuReading]) -> Mapping[str, float]:
    """vLLM's limits for an API server: they depend on its release and on its GPUs."""
    bounds = SMALL_GPU
    if gpus:
        smallest = min(gpus, key=lambda gpu: number(gpu.vram_total_bytes) or 0.0)
        bounds = default_bounds(number(smallest.vram_total_bytes) or 0.0, smallest.name, reading.version)
    return {"slots": float(bounds.max_num_seqs), "step_tokens": float(bounds.max_num_batched_tokens)}
