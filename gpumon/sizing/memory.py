"""GPU memory of one instance: weights, what the engine takes beside them, and the KV cache that is left."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import require_at_least, require_not_negative, require_positive
from gpumon.efficiency.traffic import kv_bytes_per_token, kv_stored_bytes
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.layers import EXPERTS, MLP
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llms import LlmCatalogue, LlmRow
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.weight_format import LlmParts, WeightFormat, quantised_linear, unquantised, with_weights

_GIB: Final = 2.0**30
_DRIVER_BYTES: Final = 0.5 * _GIB
"""Memory that the driver keeps of what it reports: engines see 79.19 of an H100's 79.65 GiB, 79.25 of an A100's 80,
44.4 of an L40S's 45.0, 23.55 of an RTX 4090's 24.0."""
_LOGIT_BYTES: Final = 39.0
"""Peak of a step per sequence and entry of the vocabulary: vLLM samples from as many sequences as it may run while it
measures its peak, and sorts copies of their logits. 38 to 39 in seven of eight logs of one H100 (128,256 to 201,088
entries: 4.8 to 7.4 GiB), 35 to 41 in the logs of smaller GPUs; 17 in some logs of vLLM 0.16 to 0.19."""
_SEQUENCES: Final = 256
_MANY_SEQUENCES: Final = 1024
_LARGE_GPU_BYTES: Final = 70.0 * _GIB
_STEPS_SMALL: Final = "A100"
"""vLLM's defaults of a server: 1,024 sequences from 70 GiB on, else 256; an A100 counts as small whatever it has."""
_NON_TORCH_BYTES: Final = 0.13 * _GIB
_SHARED_NON_TORCH_BYTES: Final = 0.55 * _GIB
"""With NCCL, of an instance on several GPUs."""
_LINKED_NON_TORCH_BYTES: Final = 1.84 * _GIB
"""The same of more than two GPUs on NVLink, as logged of four H100; 1.8 to 2.0 of eight H200."""
_LINKED_GPUS: Final = 3
_NVLINK_BYTES_PER_S: Final = 150e9
"""Links slower than this are PCIe or bridges."""
_OUTSIDE: Final = "sglang"
"""Engine whose share of the memory (`mem_fraction_static`) holds weights and KV cache alone."""
_RULE_BYTES_PER_PARAM: Final = 2.1
_MXFP4_TILE: Final = 256
_SIZES: Final = tuple(1 << power for power in range(11))
_WIDE: Final = (Precision.FP32, Precision.BF16, Precision.FP16)
_WEIGHT_ONLY: Final = (Precision.INT4, Precision.INT8)
W8A8: Final = "w8a8"
"""INT8 weights whose arithmetic is INT8 as well; `int8` alone is weight-only."""
WEIGHTS: Final = (*(precision.value for precision in Precision), W8A8)
"""Precisions that weights can be typed as."""


def weight_bytes(llm: LlmSpec) -> float:
    """Bytes of all stored weights over all GPUs: every expert, and the embedding table where the head has its own.

    That is the checkpoint's size (gpt-oss-120b: 65.2e9 of 65,248,815,744). Draft layers (DeepSeek's MTP) and vision
    encoders are not in it. ValueError on a model without weights.
    """
    if llm.stored_bytes > 0.0:
        return llm.stored_bytes
    if llm.precision in _WIDE:
        return require_positive("params", llm.params) * BYTES_PER_ELEMENT[llm.precision]
    return require_positive("read_bytes", llm.read_bytes) + _embedding(llm) * BYTES_PER_ELEMENT[Precision.BF16]


def loaded_bytes(llm: LlmSpec, dp: int = 1) -> float:
    """`weight_bytes` as an engine holds them: MXFP4 experts are padded to tiles of 256 of the hidden size.

    Each of `dp` data-parallel ranks has all but the routed experts for itself; these are spread over the ranks.

    gpt-oss (2,880 -> 3,072) takes 13.47 and 64.38 GiB in vLLM 0.11 on H100 (llm-d-planner), 5 to 6 % more than its
    files; one padded dimension explains both within 0.3 %.
    """
    loaded = weight_bytes(llm)
    if llm.precision is Precision.MXFP4 and llm.experts:
        tiles = math.ceil(llm.hidden / _MXFP4_TILE)
        loaded += (tiles * _MXFP4_TILE / llm.hidden - 1.0) * llm.experts * llm.expert_read_bytes
    copied = max(0.0, weight_bytes(llm) - llm.experts * llm.expert_read_bytes)
    return loaded + (require_at_least("dp", dp, least=1) - 1) * copied


class Startup(NamedTuple):
    """How an engine divides the memory of a GPU when it starts."""

    sequences: int
    """Sequences that it samples at once while it measures the peak of a step."""
    has_nvlink: bool = False
    """Its GPUs are joined by NVLink: buffers of the all-reduces are larger."""
    peak_outside_share: bool = False
    """The peak of a step comes out of what the usable share leaves, not out of the share."""


def startup_of(gpu: GpuSpec, engine: str = "") -> Startup:
    """How `engine` (vllm, sglang, trtllm; empty: not known, as vllm) divides the memory of such a GPU."""
    small = gpu.memory_bytes < _LARGE_GPU_BYTES or _STEPS_SMALL in gpu.name
    return Startup(
        sequences=_SEQUENCES if small else _MANY_SEQUENCES,
        has_nvlink=gpu.link_bytes_per_s >= _NVLINK_BYTES_PER_S,
        peak_outside_share=engine == _OUTSIDE,
    )


VLLM_STARTUP: Final = Startup(_MANY_SEQUENCES)
"""vLLM on a large GPU without NVLink."""


def overhead_bytes(llm: LlmSpec, gpus: int, startup: Startup = VLLM_STARTUP) -> float:
    """Memory that an engine on `gpus` takes of each beside weights and KV cache: the peak of a step, CUDA and NCCL.

    The encoder of a multimodal model is not in it.
    """
    peak = 0.0 if startup.peak_outside_share else _LOGIT_BYTES * startup.sequences * llm.vocab
    return peak + _non_torch_bytes(gpus, startup)


def _non_torch_bytes(gpus: int, startup: Startup) -> float:
    """Memory of CUDA and NCCL on each of `gpus`."""
    if startup.has_nvlink and gpus >= _LINKED_GPUS:
        return _LINKED_NON_TORCH_BYTES
    return _SHARED_NON_TORCH_BYTES if gpus > 1 else _NON_TORCH_BYTES


def pool_bytes(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, usable_ratio: float, dp: int = 1, startup: Startup = VLLM_STARTUP
) -> float:
    """Bytes of the KV cache of one instance, all its GPUs: usable - weights - peak of a step - CUDA and NCCL.

    0 where the weights leave nothing. ValueError on a negative or impossible size.
    """
    return max(0.0, _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup))


def _left_bytes(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, usable_ratio: float, dp: int, startup: Startup
) -> float:
    """Memory that weights and overhead leave of all GPUs; negative where they do not fit."""
    require_at_least("gpus", gpus, least=1)
    if require_positive("usable_ratio", usable_ratio) > 1.0:
        raise ValueError(f"usable_ratio {usable_ratio!r} is above 1")
    visible = require_positive("gpu_memory_bytes", gpu_memory_bytes) - _DRIVER_BYTES
    usable = visible * usable_ratio
    return gpus * (usable - overhead_bytes(llm, gpus, startup)) - loaded_bytes(llm, dp)


def pool_shift_ratio(
    llm: LlmSpec, tokens: float, gpu_memory_bytes: float, gpus: int, tp: int, usable_ratio: float,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> float:  # fmt: skip
    """Share of each GPU's memory that an engine gives its KV cache of `tokens` beyond the formula; negative: less.

    The engine's own share of the memory, and activations that the constants miss: it stays when precision, TP or GPU
    change, so that a what-if moves the pool that was seen instead of replacing it. ValueError where weights and pool
    are more than the GPUs have: the figures do not belong together.
    """
    held = require_not_negative("tokens", tokens) * kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    if held + weight_bytes(llm) > require_at_least("gpus", gpus, least=1) * gpu_memory_bytes:
        raise ValueError(f"a KV cache of {tokens:,.0f} tokens does not fit beside the weights")
    return (held - _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup)) / (gpus * gpu_memory_bytes)


def pool_tokens(
    llm: LlmSpec, gpu_memory_bytes: float, gpus: int, tp: int, usable_ratio: float, shift_ratio: float = 0.0,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> float:  # fmt: skip
    """Tokens that the KV cache of one instance holds; 0 where its weights leave nothing.

    `gpus` is all of them (TP x PP x DP), and of `dp` data-parallel ranks each holds its share of the tokens; KV heads
    divide over `tp`, the latent of MLA and what has fewer heads than ranks is held by each. math.inf of a model without
    attention layers: divide `pool_bytes` by `kv_stored_bytes` there. Of hybrid models a request takes `request_tokens`
    of these. `shift_ratio` as it was seen (`pool_shift_ratio`).
    """
    per_token = kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    left = _left_bytes(llm, gpu_memory_bytes, gpus, usable_ratio, dp, startup)
    pool = max(0.0, left + gpus * gpu_memory_bytes * shift_ratio)
    if per_token <= 0.0:
        return math.inf if pool > 0.0 else 0.0
    return pool / per_token


def request_tokens(llm: LlmSpec, context_tokens: float, tp: int = 1) -> float:
    """Tokens of the pool that one request takes: its context, and of linear layers the state in tokens' worth.

    math.inf where the model has no attention layers: it holds no tokens at all.
    """
    per_token = kv_bytes_per_token(llm, tp=int(require_at_least("tp", tp, least=1)))
    if per_token > 0.0:
        return kv_stored_bytes(llm, context_tokens, tp) / per_token
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
    held = require_not_negative("running", running) * kv_stored_bytes(llm, context_tokens, tp)
    return loaded_bytes(llm, dp) + gpus * overhead_bytes(llm, gpus, startup) + held


def rule_bytes(params: float) -> float:
    """The design guide's rule of 2.1 GB per 1e9 parameters at 16 bit (Dell H19686). A rule, no more.

    Low by 0 to 15 % above 5e9 parameters and useless below (345M takes 3.1 GB). 2.0 * params + 2.4e9 fits the guide's
    own four NeMo rows within 0.93 GB.
    """
    return _RULE_BYTES_PER_PARAM * require_not_negative("params", params)


def tensor_parallels(
    llm: LlmSpec, gpu_memory_bytes: float, domain: int, usable_ratio: float, context_tokens: float, pp: int = 1,
    dp: int = 1, startup: Startup = VLLM_STARTUP,
) -> tuple[int, ...] | str:  # fmt: skip
    """Sizes of 1, 2, 4, ... GPUs of one NVLink domain that hold the weights and one request of `context_tokens`, in
    each of `pp` pipeline stages, and as often as there are `dp` data-parallel ranks in the domain.

    Sizes that do not divide the heads are left out, as engines refuse them. The str says why none fits.
    """
    require_at_least("domain", domain, least=1)
    sizes = []
    for tp in _SIZES:
        if tp * dp <= domain and not tp_problem(llm, tp):
            sizes.append(tp)
    if not sizes:
        return f"{dp} data-parallel ranks do not stand in one NVLink domain of {domain} GPUs: fewer ranks"
    fitting = tuple(
        tp
        for tp in sizes
        if pool_bytes(llm, gpu_memory_bytes, tp * pp * dp, usable_ratio, dp, startup)
        >= dp * max(kv_stored_bytes(llm, context_tokens, tp), 1)
    )
    if fitting:
        return fitting
    most = sizes[-1]
    gpus = most * pp * dp
    needs = instance_bytes(llm, gpus, most, float(dp), context_tokens, dp, startup) / 1e9
    usable = gpus * (gpu_memory_bytes - _DRIVER_BYTES) * usable_ratio / 1e9
    refused = ""
    if most * dp * 2 <= domain:
        refused = f", its {_undivided(llm, 2 * most)} do not divide over {2 * most}"
    return (
        f"needs {needs:,.0f} GB, {gpus} x {gpu_memory_bytes / 1e9:,.0f} GB holds {usable:,.0f} GB usable"
        f"{refused}: more GPUs per server, a narrower precision or {'more ' if pp > 1 else ''}PP"
    )


def _undivided(llm: LlmSpec, tp: int) -> str:
    """The heads that do not divide over so many GPUs."""
    if llm.heads % tp:
        return f"{llm.heads} heads"
    return f"{llm.kv_heads} KV heads"


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
    """`llm` with its weights or KV cache in another precision; empty leaves one as it is.

    int4 and int8 are weight-only (AWQ, GPTQ), MXFP4 covers only the experts of a MoE, LM head and embeddings stay at
    16 bit. Bytes come from the catalogue's parts where its row has these dimensions, else from the spec's own counts,
    which know no router. ValueError names the precisions that there are.
    """
    if kv_precision:
        llm = msgspec.structs.replace(llm, kv_precision=_precision("kv_precision", kv_precision))
    both = weight_precision == W8A8
    if both:
        wanted = Precision.INT8
    else:
        wanted = _precision("weight_precision", weight_precision or llm.precision.value)
    if not weight_precision or (wanted is llm.precision and not (both and llm.weight_only)):
        return llm
    stored = with_weights(llm, _parts(llms.row(model), llm), _format_of(llm, wanted, both=both))
    return msgspec.structs.replace(
        llm,
        source=f"{llm.source}, as {weight_precision}",
        precision=stored.precision,
        weight_only=stored.weight_only,
        activations=stored.activations,
        read_bytes=stored.read_bytes,
        expert_read_bytes=stored.expert_read_bytes,
    )


def _format_of(llm: LlmSpec, precision: Precision, *, both: bool) -> WeightFormat:
    """Format of the weights at a precision; `both`: activations have it, too."""
    if precision in _WIDE:
        return unquantised(precision)
    weights = quantised_linear(precision, weight_only=precision in _WEIGHT_ONLY and not both)
    if precision is Precision.MXFP4 and llm.experts:
        return weights.only((EXPERTS,))
    return weights


def _parts(row: LlmRow | None, llm: LlmSpec) -> LlmParts:
    sizes = ("vocab", "hidden", "layers", "experts")
    if row is not None and not row.unusable and all(getattr(row.spec, name) == getattr(llm, name) for name in sizes):
        return row.parts
    head = llm.head_params
    rest = llm.matmul_params - llm.experts_per_token * llm.expert_params - head
    return LlmParts(
        {MLP: max(0.0, rest)},
        head,
        _embedding(llm),
        expert=llm.expert_params,
        experts=llm.experts,
        experts_per_token=llm.experts_per_token,
    )


def _precision(field: str, text: str) -> Precision:
    try:
        return Precision(text)
    except ValueError:
        allowed = ", ".join(precision.value for precision in Precision)
        raise ValueError(f"{field} {text!r} is none of {allowed}") from None


def _embedding(llm: LlmSpec) -> float:
    """Parameters of the look-up table where the LM head is another: what no token is multiplied with."""
    spare = llm.params - llm.matmul_params - (llm.experts - llm.experts_per_token) * llm.expert_params
    return min(max(0.0, spare), float(llm.vocab * llm.hidden))
