"""From a plan to a start: how each engine of a plan is started, as options of vLLM, SGLang or TensorRT-LLM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.efficiency.weights import weight_bytes
from gpumon.readings.missing import Missing
from gpumon.sizing import memory
from gpumon.sizing.answer import OnGpu, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_of
from gpumon.sizing.engine_limits import TYPED, EngineLimit, default_slots, step_tokens, told_slots
from gpumon.sizing.instance import Instance, engine_to_size
from gpumon.sizing.latency import NO_SPECULATION
from gpumon.sizing.plan import DetailedPlan
from gpumon.sizing.scenario import Catalogues, Scenario, Server
from gpumon.sizing.search import Demand
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.precision import Precision

ENGINE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"vllm": "vLLM 0.33", "sglang": "SGLang 0.5.23", "trtllm": "TensorRT-LLM 1.2"}
)
"""Engine -> its name with the version whose options are written."""
_POOL_ROUTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vllm": "a proxy for its NixlConnector (llm-d's, Dynamo's)",
        "sglang": "sglang_router with --pd-disaggregation",
        "trtllm": "trtllm-serve disaggregated",
    }
)
"""Engine -> the program in front of its prefill and decode pools."""
DRAFTER: Final = "DRAFTER"
"""Stands for the model that drafts, which a plan does not name."""
_WITH_DRAFT_LAYERS: Final = (
    *("deepseek-v3", "deepseek-r1", "glm-4.5", "glm-4.6", "glm-4.7", "glm-5", "qwen3-next", "qwen3.5", "mimo-7b"),
)
"""Parts of the names of models with `num_nextn_predict_layers` or `mtp_num_hidden_layers` in their configs."""
_CONTEXT_STEP: Final = 1024
"""Tokens to whose multiples a context that is cut is rounded down."""
_OPTIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        # vllm/engine/arg_utils.py; bounds are of each data-parallel rank.
        "vllm": (
            ("tp", "--tensor-parallel-size"),
            ("pp", "--pipeline-parallel-size"),
            ("dp", "--data-parallel-size"),
            ("spreads_experts", "--enable-expert-parallel"),
            ("memory_ratio", "--gpu-memory-utilization"),
            ("rank_seqs", "--max-num-seqs"),
            ("rank_tokens", "--max-num-batched-tokens"),
            ("context", "--max-model-len"),
            ("quantization", "--quantization"),
            ("kv_dtype", "--kv-cache-dtype"),
        ),
        # sglang/srt/server_args.py; TP counts the GPUs of all data-parallel ranks, bounds are of all of them.
        "sglang": (
            ("all_tp", "--tp-size"),
            ("pp", "--pp-size"),
            ("dp", "--dp-size"),
            ("spreads_experts", "--enable-dp-attention"),
            ("expert_gpus", "--ep-size"),
            ("memory_ratio", "--mem-fraction-static"),
            ("max_seqs", "--max-running-requests"),
            ("max_tokens", "--chunked-prefill-size"),
            ("context", "--context-length"),
            ("quantization", "--quantization"),
            ("e4m3_dtype", "--kv-cache-dtype"),
        ),
        # tensorrt_llm/commands/serve.py; the rest is in its file of further options.
        "trtllm": (
            ("all_tp", "--tp_size"),
            ("pp", "--pp_size"),
            ("expert_gpus", "--ep_size"),
            ("free_ratio", "--kv_cache_free_gpu_memory_fraction"),
            ("rank_seqs", "--max_batch_size"),
            ("rank_tokens", "--max_num_tokens"),
            ("context", "--max_seq_len"),
        ),
    }
)
"""Engine -> value of `_Settings` and the option that takes it, in the order in which they are written."""


class EngineOption(NamedTuple):
    """One option of an engine."""

    name: str
    value: str = ""
    """Empty: it takes none."""


class Launch(NamedTuple):
    """Instances of a workload on one type of GPU that are started alike."""

    name: str
    model: str
    engine: str
    """A key of `ENGINE_NAMES`."""
    gpu: str
    is_amd: bool
    instances: int
    """Spares included."""
    gpus: int
    """GPUs of one instance."""
    server_gpus: int
    """GPUs of a server."""
    dp: int
    options: tuple[EngineOption, ...]
    pool: str = ""
    """prefill or decode; empty where instances do both."""
    config: Mapping[str, Any] = MappingProxyType({})
    """Settings that TensorRT-LLM takes from a file."""
    weights_bytes: float = 0.0
    """Bytes of the weights on the disk; 0: not known."""
    notes: tuple[str, ...] = ()
    """Assumptions that a plan does not say by itself."""

    @property
    def servers(self) -> int:
        """Servers that one instance stands on."""
        return max(1, -(-self.gpus // self.server_gpus))

    @property
    def gpus_per_server(self) -> int:
        """GPUs of one instance on each of its servers."""
        return -(-self.gpus // self.servers)

    @property
    def instances_per_server(self) -> int:
        """Most instances that one server holds."""
        return max(1, self.server_gpus // self.gpus_per_server)


class _Settings(NamedTuple):
    """Values of the options of one instance; None: the option is left out."""

    tp: int
    pp: int | None
    dp: int | None
    all_tp: int
    """TP x DP."""
    expert_gpus: int | None
    """GPUs that the routed experts are spread over."""
    spreads_experts: bool | None
    memory_ratio: float
    """Share of a GPU's memory for weights, steps and KV cache."""
    free_ratio: float | None
    """Share of the memory that weights leave for the KV cache."""
    max_seqs: int
    rank_seqs: int
    """Requests of one data-parallel rank, as `rank_tokens` are tokens of one."""
    max_tokens: int
    rank_tokens: int
    context: int | None
    quantization: str | None
    kv_dtype: str | None
    e4m3_dtype: str | None


def launches(plan: DetailedPlan) -> tuple[Launch, ...]:
    """The starts of all engines of a plan, by workload and type of GPU; nothing for a workload without an answer."""
    found = []
    for workload_plan, demand in zip(plan.answer.workloads, plan.demands, strict=True):
        if workload_plan.problem:
            continue
        for place in workload_plan.on:
            server = next(server for server in plan.scenario.server if server.gpu == place.gpu)
            found.append(_launch(workload_plan, demand, place, server, plan.scenario, plan.catalogues))
    return tuple(found)


def _launch(
    workload_plan: WorkloadPlan,
    demand: Demand,
    place: OnGpu,
    server: Server,
    scenario: Scenario,
    catalogues: Catalogues,
) -> Launch:
    """The start of the instances of a workload on one type of GPU."""
    instance = demand.instance
    gpu = catalogues.gpus.find(place.gpu)
    engine = engine_to_size(demand.workload, instance.seen) or "vllm"
    own = instance.gpu is not None and instance.gpu.name == gpu.name
    notes: list[str] = []
    if not engine_to_size(demand.workload, instance.seen):
        notes.append("no engine is given: vLLM (engine = sglang or trtllm in the file)")
    settings = _settings(workload_plan, demand, place, gpu, scenario, catalogues, notes, is_main_type=own)
    notes += _weight_notes(instance, catalogues, engine)
    pool = workload_plan.pool
    options = [
        *_plain_options(engine, settings),
        *_speculation_options(instance, engine, notes),
        *_pool_options(engine, pool),
    ]
    if pool:
        notes.append(
            f"a {pool} pool: {_POOL_ROUTERS[engine]} sends each request to a prefill, then to a decode instance"
        )
    if instance.hit_ratio > 0.0:
        notes.append(f"{instance.hit_ratio:.0%} prefix hits are planned with: prefix caching stays on, as by default")
    if demand.workload.disaggregated is not None:
        notes.append("prefill and decode together: pools of their own are compared with the plan, not started")
    return Launch(
        name=workload_plan.name,
        model=workload_plan.model,
        engine=engine,
        gpu=gpu.name,
        is_amd=gpu.architecture.startswith(("CDNA", "RDNA")),
        instances=place.instances,
        gpus=place.gpus_per_instance,
        server_gpus=server.gpus,
        dp=place.dp,
        options=tuple(options),
        pool=pool,
        config=_config(instance, engine, settings, pool),
        weights_bytes=weight_bytes(instance.llm) if instance.llm is not None else 0.0,
        notes=tuple(notes),
    )


def _settings(
    workload_plan: WorkloadPlan,
    demand: Demand,
    place: OnGpu,
    gpu: GpuSpec,
    scenario: Scenario,
    catalogues: Catalogues,
    notes: list[str],
    *,
    is_main_type: bool,
) -> _Settings:
    """Values of the options of an instance; notes are added about what was assumed."""
    instance = demand.instance
    dp = place.dp
    pool_tokens = _pool_tokens(instance, scenario) if is_main_type else None
    slots, tokens = _bounds(instance, place, pool_tokens and pool_tokens * dp, notes)
    quantization = "fp8" if _is_quantised_at_start(instance, catalogues) else None
    fp8_cache = instance.llm is not None and instance.llm.kv_precision is Precision.FP8
    spreads_experts = dp > 1 or None
    return _Settings(
        tp=place.tp,
        pp=place.pp if place.pp > 1 else None,
        dp=dp if dp > 1 else None,
        all_tp=place.tp * dp,
        expert_gpus=place.tp * dp if spreads_experts else None,
        spreads_experts=spreads_experts,
        memory_ratio=_memory_ratio(workload_plan, place, gpu, scenario),
        free_ratio=_free_ratio(instance, gpu, scenario) if is_main_type else None,
        max_seqs=slots.value,
        rank_seqs=-(-slots.value // dp),
        max_tokens=tokens.value,
        rank_tokens=-(-tokens.value // dp),
        context=_context(instance, pool_tokens, notes),
        quantization=quantization,
        kv_dtype="fp8" if fp8_cache else None,
        e4m3_dtype="fp8_e4m3" if fp8_cache else None,
    )


def _bounds(
    instance: Instance, place: OnGpu, pool_tokens: float | None, notes: list[str]
) -> tuple[EngineLimit, EngineLimit]:
    """Most requests at once and most tokens of a step of an instance: typed, told by the engine that runs, or defaults.

    An engine whose default is fewer requests than are planned with is started with those.
    """
    slots = told_slots(instance)
    if slots is None:
        slots = default_slots(instance, pool_tokens)
        planned = math.ceil(place.capacity_per_instance)
        if slots.value < planned:
            slots = EngineLimit(planned, "as planned; the engine's default is less")
    tokens = step_tokens(instance)
    for what, limit in (("requests at once", slots), ("tokens of a step", tokens)):
        if limit.source != TYPED:
            notes.append(f"at most {limit.value:,} {what}: {limit.source}")
    return slots, tokens


def _memory_ratio(workload_plan: WorkloadPlan, place: OnGpu, gpu: GpuSpec, scenario: Scenario) -> float:
    """Share of a GPU's memory that an instance may take: its typed memory, else the usable share of the scenario."""
    memory_bytes = workload_plan.memory_bytes
    if workload_plan.memory_source != "typed" or isinstance(memory_bytes, Missing):
        return scenario.usable_memory_ratio
    share = memory_bytes / place.gpus_per_instance / gpu.memory_bytes
    return min(scenario.usable_memory_ratio, math.ceil(share * 100.0) / 100.0)


def _pool_tokens(instance: Instance, scenario: Scenario) -> float | None:
    """Tokens of the KV cache of one data-parallel rank; None where they are not known."""
    pool = kv_pool_of(instance, scenario)
    if pool is None or not math.isfinite(pool.tokens):
        return None
    return pool.tokens / instance.dp


def _free_ratio(instance: Instance, gpu: GpuSpec, scenario: Scenario) -> float | None:
    """Share of the memory beside weights and buffers that the KV cache takes; None where it is not known."""
    if instance.llm is None:
        return None
    pool_bytes = memory.pool_bytes(
        instance.llm,
        gpu.memory_bytes,
        instance.gpus,
        scenario.usable_memory_ratio,
        instance.dp,
        instance.startup,
        instance.tp,
    )
    kept_free_bytes = instance.gpus * gpu.memory_bytes * (1.0 - scenario.usable_memory_ratio)
    return round(pool_bytes / (pool_bytes + kept_free_bytes), 2)


def _context(instance: Instance, pool_tokens: float | None, notes: list[str]) -> int | None:
    """Tokens of the longest request: the model's context, or what one fits into the KV cache; None: as the engine has
    it."""
    llm = instance.llm
    if llm is None or llm.max_context <= 0:
        notes.append("the model's context is not known: the engine takes what the model says")
        return None
    if pool_tokens is None:
        return llm.max_context
    taken_tokens = memory.request_tokens(llm, float(llm.max_context), instance.tp)
    if not math.isfinite(taken_tokens) or taken_tokens <= pool_tokens:
        return llm.max_context
    fitting = int(llm.max_context * pool_tokens / taken_tokens)
    context = fitting // _CONTEXT_STEP * _CONTEXT_STEP or fitting
    notes.append(f"context {context:,} of the model's {llm.max_context:,}: a longer request does not fit the KV cache")
    return context


def _is_quantised_at_start(instance: Instance, catalogues: Catalogues) -> bool:
    """Whether the engine makes FP8 weights of wider ones when it loads them."""
    base = catalogues.llm(instance.workload.model)
    asked = instance.workload.weight_precision == Precision.FP8.value
    return asked and (base is None or base.precision is not Precision.FP8)


def _weight_notes(instance: Instance, catalogues: Catalogues, engine: str) -> Iterator[str]:
    """Notes on weights that are planned in another format than the model has."""
    typed = instance.workload.weight_precision
    base = catalogues.llm(instance.workload.model)
    if not typed or base is None or base.precision.value == typed:
        return
    if typed == Precision.FP8.value and engine != "trtllm":
        yield "weights are made FP8 as they are loaded; a checkpoint in FP8 is more accurate"
    else:
        yield f"a checkpoint with {typed} weights is needed: its name in the place of the model's"


def _plain_options(engine: str, settings: _Settings) -> Iterator[EngineOption]:
    """The options that have a value, in the engine's own words."""
    for field, name in _OPTIONS[engine]:
        value = getattr(settings, field)
        if value is True:
            yield EngineOption(name)
        elif isinstance(value, float):
            yield EngineOption(name, f"{value:g}")
        elif value is not None:
            yield EngineOption(name, str(value))


def _has_draft_layers(model: str) -> bool:
    """Whether the files of a model bring layers that draft (MTP)."""
    name = model.casefold()
    return any(family in name for family in _WITH_DRAFT_LAYERS)


def _speculation_options(instance: Instance, engine: str, notes: list[str]) -> Iterator[EngineOption]:
    """Options of speculative decoding; nothing without it."""
    if instance.speculation == NO_SPECULATION:
        return
    drafted = max(1, round(instance.speculation.tokens))
    own_layers = _has_draft_layers(instance.workload.model)
    drafter = "the model's own layers draft" if own_layers else f"{DRAFTER} stands for the model that drafts"
    notes.append(f"of {drafted} drafted tokens {instance.speculation.accepted:g} are kept in the plan: {drafter}")
    if engine == "vllm" and own_layers:
        yield EngineOption("--speculative-config", f'{{"method": "mtp", "num_speculative_tokens": {drafted}}}')
    elif engine == "vllm":
        config = f'{{"method": "eagle3", "model": "{DRAFTER}", "num_speculative_tokens": {drafted}}}'
        yield EngineOption("--speculative-config", config)
    elif engine == "sglang":
        yield EngineOption("--speculative-algorithm", "EAGLE" if own_layers else "EAGLE3")
        if not own_layers:
            yield EngineOption("--speculative-draft-model-path", DRAFTER)
        yield EngineOption("--speculative-num-steps", str(drafted))
        yield EngineOption("--speculative-eagle-topk", "1")
        yield EngineOption("--speculative-num-draft-tokens", str(drafted + 1))


def _pool_options(engine: str, pool: str) -> Iterator[EngineOption]:
    """Options of an instance of a prefill or a decode pool; TensorRT-LLM has them in its file."""
    if pool and engine == "vllm":
        yield EngineOption("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}')
    elif pool and engine == "sglang":
        yield EngineOption("--disaggregation-mode", pool)
        yield EngineOption("--disaggregation-transfer-backend", "nixl")


def _config(instance: Instance, engine: str, settings: _Settings, pool: str) -> Mapping[str, Any]:
    """The settings that TensorRT-LLM takes from a file; empty for other engines, and where there is none."""
    if engine != "trtllm":
        return {}
    config: dict[str, Any] = {}
    if settings.spreads_experts:
        config["enable_attention_dp"] = True
    if pool:
        config["cache_transceiver_config"] = {"backend": "DEFAULT"}
    if settings.kv_dtype:
        config["kv_cache_config"] = {"dtype": settings.kv_dtype}
    if instance.speculation != NO_SPECULATION:
        drafted = max(1, round(instance.speculation.tokens))
        if _has_draft_layers(instance.workload.model):
            config["speculative_config"] = {"decoding_type": "MTP", "num_nextn_predict_layers": drafted}
        else:
            config["speculative_config"] = {
                "decoding_type": "Eagle",
                "speculative_model_dir": DRAFTER,
                "max_draft_len": drafted,
            }
    return config
