"""GPU memory of one instance: weights, what the engine takes beside them, and the KV cache that is left."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import require_at_least, require_not_negative, require_positive
from gpumon.efficiency.traffic import kv_bytes_per_token, kv_stored_bytes
from gpumon.efficiency.weights import embedding_params, loaded_bytes, weight_bytes
from gpumon.specs.engine_defaults import LARGE_GPU, default_bounds
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llms import LlmCatalogue, LlmRow
from gpumon.specs.modules import EXPERTS, HEAD, MLP, NUMBER, TABLES, ModuleKind, ModuleList, counted_parts
from gpumon.specs.precision import Precision
from gpumon.specs.units import GIB
from gpumon.specs.weight_format import WeightFormat, quantised_linear, unquantised, with_weights

_DRIVER_BYTES: Final = 0.5 * GIB
"""Memory that the driver keeps of what it reports: engines see 79.19 of an H100's 79.65 GiB, 79.25 of an A100's 80,
44.4 of an L40S's 45.0, 23.55 of an RTX 4090's 24.0."""
_LOGIT_BYTES: Final = 39.0
"""Peak of a step per sequence and entry of the vocabulary: vLLM samples from as many sequences as it may run while it
measures its peak, and sorts copies of their logits. 38 to 39 in seven of eight logs of one H100 (128,256 to 201,088
entries: 4.8 to 7.4 GiB), 35 to 41 in the logs of smaller GPUs; 17 in some logs of vLLM 0.16 to 0.19."""
_SINGLE_GPU_OVERHEAD_BYTES: Final = 0.13 * GIB
"""CUDA and what else is not PyTorch's, of an instance on one GPU: 0.13 to 0.14 in vLLM's logs of one H100
(`tests/data/engine_memory.csv`)."""
_SEVERAL_GPUS_OVERHEAD_BYTES: Final = 0.55 * GIB
"""CUDA and NCCL on each GPU, of an instance on several: 0.54 and 0.55 in logs of two H100 (the same file)."""
_NVLINK_OVERHEAD_BYTES: Final = 1.84 * GIB
"""CUDA and NCCL on each of more than two GPUs on NVLink, as logged of four H100; 1.8 to 2.0 of eight H200."""
_LEAST_NVLINK_GPUS: Final = 3
"""GPUs from which on NVLink's buffers are that large."""
_NVLINK_BYTES_PER_S: Final = 150e9
"""Links slower than this are PCIe or bridges: PCIe 6 has 121 GB/s in one direction."""
_PEAK_OUTSIDE_SHARE: Final = "sglang"
"""Engine whose share of the memory (`mem_fraction_static`) holds weights and KV cache alone."""
_RULE_BYTES_PER_PARAM: Final = 2.1
"""Bytes per parameter of the design guide's rule (`rule_bytes`)."""
_TP_SIZES: Final = tuple(1 << power for power in range(11))
"""Tensor-parallel sizes that are tried: 1 to 1,024."""
_UNQUANTISED: Final = (Precision.FP32, Precision.BF16, Precision.FP16)
_WEIGHT_ONLY: Final = (Precision.INT4, Precision.INT8)
"""Precisions of weights whose arithmetic is 16 bit (AWQ, GPTQ)."""
W8A8: Final = "w8a8"
"""INT8 weights whose arithmetic is INT8 as well; `int8` alone is weight-only."""
WEIGHTS: Final = (*(precision.value for precision in Precision), W8A8)
"""Precisions that weights can be typed as."""


class Startup(NamedTuple):
    """How an engine divides the memory of a GPU when it starts."""

    sequences: int
    """Sequences that it samples at once while it measures the peak of a step."""
    has_nvlink: bool = False
    """Whether its GPUs are joined by NVLink: buffers of the all-reduces are larger then."""
    peak_outside_share: bool = False
    """Whether the peak of a step comes out of what the usable share leaves, not out of the share."""


def startup_of(gpu: GpuSpec, engine: str = "") -> Startup:
    """How `engine` (vllm, sglang, trtllm; empty: not known, as vllm) divides the memory of such a GPU."""
    return Startup(
        sequences=default_bounds(gpu.memory_bytes, gpu.name).max_num_seqs,
        has_nvlink=gpu.link_bytes_per_s >= _NVLINK_BYTES_PER_S,
        peak_outside_share=engine == _PEAK_OUTSIDE_SHARE,
    )


VLLM_STARTUP: Final = Startup(LARGE_GPU.max_num_seqs)
"""vLLM on a large GPU without NVLink."""


def overhead_bytes(llm: LlmSpec, gpus: int, startup: Startup = VLLM_STARTUP) -> float:
    """Memory that an engine on `gpus` takes of each beside weights and KV cache: the peak of a step, CUDA and NCCL.

    The encoder of a multimodal model is not in it.
    """
    peak_bytes = 0.0 if startup.peak_outside_share else _LOGIT_BYTES * startup.sequences * llm.vocab
    return peak_bytes + _non_torch_bytes(gpus, startup)


def _non_torch_bytes(gpus: int, startup: Startup) -> float:
    """Memory of CUDA and NCCL on each of `gpus`."""
    if startup.has_nvlink and gpus >= _LEAST_NVLINK_GPUS:
        return _NVLINK_OVERHEAD_BYTES
    if gpus > 1:
        return _SEVERAL_GPUS_OVERHEAD_BYTES
    return _SINGLE_GPU_OVERHEAD_BYTES


def pool_bytes(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, usable_ratio: float,
    dp: int = 1, startup: Startup = VLLM_STARTUP, tp: int = 1,
) -> float:  # fmt: skip
    """Bytes of the KV cache of one instance, all its GPUs: usable - weights - peak of a step - CUDA and NCCL.

    0 where the weights leave nothing. ValueError on a negative or impossible size.
    """
    return max(0.0, _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup, tp))


def _left_bytes(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, usable_ratio: float, dp: int, startup: Startup, tp: int
) -> float:
    """Memory that weights and overhead leave of all GPUs; negative where they do not fit."""
    require_at_least("gpus", gpus, least=1)
    if require_positive("usable_ratio", usable_ratio) > 1.0:
        raise ValueError(f"usable_ratio {usable_ratio!r} is above 1")
    visible_bytes = require_positive("gpu_memory_bytes", gpu_memory_bytes) - _DRIVER_BYTES
    usable_bytes = visible_bytes * usable_ratio
    return gpus * (usable_bytes - overhead_bytes(llm, gpus, startup)) - loaded_bytes(llm, dp, tp)


def pool_shift_ratio(
    llm: LlmSpec, tokens: float, gpu_memory_bytes: float, gpus: int, tp: int, usable_ratio: float,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> float:  # fmt: skip
    """Share of each GPU's memory that an engine gives its KV cache of `tokens` beyond the formula; negative: less.

    The engine's own share of the memory, and activations that the constants miss: it stays when precision, TP or GPU
    change, so that a what-if moves the pool that was seen instead of replacing it. ValueError where weights and pool
    are more than the GPUs have: the figures do not belong together.
    """
    per_token_bytes = kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    held_bytes = require_not_negative("tokens", tokens) * per_token_bytes
    if held_bytes + weight_bytes(llm) > require_at_least("gpus", gpus, least=1) * gpu_memory_bytes:
        raise ValueError(f"a KV cache of {tokens:,.0f} tokens does not fit beside the weights")
    left_bytes = _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup, tp)
    return (held_bytes - left_bytes) / (gpus * gpu_memory_bytes)


def pool_tokens(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, tp: int, usable_ratio: float, shift_ratio: float = 0.0,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> float:  # fmt: skip
    """Tokens that the KV cache of one instance holds; 0 where its weights leave nothing.

    `gpus`: all of them (TP x PP x DP); of `dp` data-parallel ranks each holds its share of the tokens. KV heads divide
    over `tp`; the latent of MLA, and what has fewer heads than ranks, is held by each rank. Infinite where the model
    has no attention layers: divide `pool_bytes` by `kv_stored_bytes` there. In hybrid models a request takes
    `request_tokens` of these. `shift_ratio`: that of the pool that was seen (`pool_shift_ratio`).
    """
    per_token_bytes = kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    left_bytes = _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup, tp)
    shifted_bytes = max(0.0, left_bytes + gpus * gpu_memory_bytes * shift_ratio)
    if per_token_bytes > 0.0:
        return shifted_bytes / per_token_bytes
    if shifted_bytes > 0.0:
        return math.inf
    return 0.0


def request_tokens(llm: LlmSpec, context_tokens: float, tp: int = 1) -> float:
    """Tokens of the pool that one request takes: its context, and of linear layers the state in tokens' worth.

    math.inf where the model has no attention layers: it holds no tokens at all.
    """
    per_token_bytes = kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    if per_token_bytes > 0.0:
        return kv_stored_bytes(llm, context_tokens, tp) / per_token_bytes
    return math.inf


def instance_bytes(
    llm: LlmSpec,
    gpus: int,
    tp: int,
    running: float,
    context_tokens: float,
    dp: int = 1,
    startup: Startup = VLLM_STARTUP,
) -> float:
    """GPU memory that one instance needs for `running` requests of `context_tokens`, over all its GPUs.

    What it needs, not what an engine reserves: vLLM and SGLang take `usable_ratio` of each GPU whatever they need.
    ValueError on a negative count.
    """
    require_at_least("gpus", gpus, least=1)
    kv_bytes = require_not_negative("running", running) * kv_stored_bytes(llm, context_tokens, tp)
    return loaded_bytes(llm, dp, tp) + gpus * overhead_bytes(llm, gpus, startup) + kv_bytes


def rule_bytes(params: float) -> float:
    """The design guide's rule of 2.1 GB per 1e9 parameters at 16 bit (Dell H19686). A rule, no more.

    Low by 0 to 15% above 5e9 parameters and useless below (345M takes 3.1 GB). 2.0 * params + 2.4e9 fits the guide's
    own four NeMo rows within 0.93 GB.
    """
    return _RULE_BYTES_PER_PARAM * require_not_negative("params", params)


def tensor_parallels(
    llm: LlmSpec, gpu_memory_bytes: float, domain: int, usable_ratio: float, context_tokens: float, pp: int = 1,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> tuple[int, ...] | str:  # fmt: skip
    """Tensor-parallel sizes of 1, 2, 4, ... GPUs of one NVLink domain with which an instance holds its weights and one
    request of `context_tokens` per data-parallel rank, or why there is none.

    `domain`: GPUs of the NVLink domain, which all `dp` ranks of a pipeline stage stand in; `pp`: pipeline stages. Sizes
    that do not divide the heads are left out, as engines refuse them.
    """
    require_at_least("domain", domain, least=1)
    sizes = [tp for tp in _TP_SIZES if tp * dp <= domain and not tp_problem(llm, tp)]
    if not sizes:
        return f"{dp} data-parallel ranks do not stand in one NVLink domain of {domain} GPUs: fewer ranks"
    fitting = []
    for tp in sizes:
        held_bytes = pool_bytes(llm, gpu_memory_bytes, tp * pp * dp, usable_ratio, dp, startup, tp)
        # At least one byte: a model without attention layers needs none for a request, but room all the same.
        if held_bytes >= dp * max(kv_stored_bytes(llm, context_tokens, tp), 1):
            fitting.append(tp)
    if fitting:
        return tuple(fitting)
    largest = sizes[-1]
    gpus = largest * pp * dp
    needed_gb = instance_bytes(llm, gpus, largest, float(dp), context_tokens, dp, startup) / 1e9
    usable_gb = gpus * (gpu_memory_bytes - _DRIVER_BYTES) * usable_ratio / 1e9
    refused = ""
    if largest * dp * 2 <= domain:
        heads = f"{llm.heads} heads" if llm.heads % (2 * largest) else f"{llm.kv_heads} KV heads"
        refused = f", its {heads} do not divide over {2 * largest}"
    more_pp = "more PP" if pp > 1 else "PP"
    return (
        f"needs {needed_gb:,.0f} GB, {gpus} x {gpu_memory_bytes / 1e9:,.0f} GB holds {usable_gb:,.0f} GB usable"
        f"{refused}: more GPUs per server, a narrower precision or {more_pp}"
    )


def tp_problem(llm: LlmSpec, tp: int) -> str:
    """Why engines refuse this TP; empty where they do not.

    Query heads have to divide over the ranks, and KV heads to divide over them or be copied whole (vLLM's rule).
    """
    if llm.heads % tp:
        return f"TP {tp} does not divide the {llm.heads} heads: engines refuse it"
    if llm.kv_heads % tp and tp % max(1, llm.kv_heads):
        return f"TP {tp} does not divide the {llm.kv_heads} KV heads: engines refuse it"
    return ""


def variant(llms: LlmCatalogue, model: str, llm: LlmSpec, weight_precision: str, kv_precision: str) -> LlmSpec:
    """`llm` with its weights or KV cache in another precision; an empty one leaves them as they are.

    int4 and int8 are weight-only (AWQ, GPTQ), MXFP4 covers only the experts of a MoE, LM head and embeddings stay at
    16 bit. Bytes come from the catalogue's parts where its row has these dimensions, else from the spec's own counts,
    which know no router. ValueError names the precisions that there are.
    """
    if kv_precision:
        llm = msgspec.structs.replace(llm, kv_precision=_parse_precision("kv_precision", kv_precision))
    if not weight_precision:
        return llm
    is_w8a8 = weight_precision == W8A8
    precision = Precision.INT8 if is_w8a8 else _parse_precision("weight_precision", weight_precision)
    turns_w8a8 = is_w8a8 and llm.weight_only
    if precision is llm.precision and not turns_w8a8:
        return llm
    weight_format = _format_of(llm, precision, quantised_activations=is_w8a8)
    stored = with_weights(llm, _modules_of(llms.row(model), llm), weight_format)
    return msgspec.structs.replace(
        llm,
        source=f"{llm.source}, as {weight_precision}",
        precision=stored.precision,
        weight_only=stored.weight_only,
        activations=stored.activations,
        read_bytes=stored.read_bytes,
        expert_read_bytes=stored.expert_read_bytes,
        attention_read_bytes=stored.attention_read_bytes,
        whole_bytes=stored.whole_bytes,
        kv_matrix_bytes=stored.kv_matrix_bytes,
        stored_bytes=stored.stored_bytes,
    )


def _format_of(llm: LlmSpec, precision: Precision, *, quantised_activations: bool) -> WeightFormat:
    """Format of the weights at a precision; `quantised_activations`: activations have it, too."""
    if precision in _UNQUANTISED:
        return unquantised(precision)
    weight_only = precision in _WEIGHT_ONLY and not quantised_activations
    weights = quantised_linear(precision, weight_only=weight_only)
    if precision is Precision.MXFP4 and llm.experts:
        return weights.only((EXPERTS,))
    return weights


def _modules_of(row: LlmRow | None, llm: LlmSpec) -> ModuleList:
    """The matrices of a model: of its row in the catalogue where that has the same dimensions, else by its own counts,
    with all that is neither expert nor head as one."""
    if row is not None and not row.unusable and _has_dimensions_of(row.spec, llm):
        return row.modules
    rest = max(0.0, llm.matmul_params - llm.experts_per_token * llm.expert_params - llm.head_params)
    kinds = counted_parts({MLP: rest, HEAD: llm.head_params, TABLES: embedding_params(llm)})
    if llm.experts:
        experts = ModuleKind(f"mlp.experts.{NUMBER}", EXPERTS, (round(llm.expert_params),), experts=llm.experts)
        kinds = (*kinds, experts)
    return ModuleList(kinds, experts=llm.experts, experts_per_token=llm.experts_per_token)


def _has_dimensions_of(spec: LlmSpec, llm: LlmSpec) -> bool:
    """Whether two specs are of models of the same size."""
    return all(getattr(spec, name) == getattr(llm, name) for name in ("vocab", "hidden", "layers", "experts"))


def _parse_precision(field: str, text: str) -> Precision:
    """The precision of that name. ValueError, which names `field`, where there is none."""
    try:
        return Precision(text)
    except ValueError:
        allowed = ", ".join(precision.value for precision in Precision)
        raise ValueError(f"{field} {text!r} is none of {allowed}") from None
