"""Memory of a model's weights: as its checkpoint has them, and as an engine holds them over its GPUs."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency.ratio import require_at_least, require_positive
from gpumon.specs.llm import MODEL_FORMAT_BYTES, LlmSpec
from gpumon.specs.precision import Precision

_MXFP4_TILE: Final = 256
"""Elements of the hidden size to which engines pad MXFP4 experts."""


def weight_bytes(llm: LlmSpec) -> float:
    """Bytes of all stored weights over all GPUs: every expert, and the embedding table where the head has its own.

    That is the checkpoint's size (gpt-oss-120b: 65.2e9 of 65,248,815,744). Draft layers (DeepSeek's MTP) and vision
    encoders are not in it. ValueError on a model without weights.
    """
    if llm.stored_bytes > 0.0:
        return llm.stored_bytes
    # Recordings of earlier versions have no stored bytes; what a step does not read is the look-up table.
    return require_positive("read_bytes", llm.read_bytes) + embedding_params(llm) * MODEL_FORMAT_BYTES


def loaded_bytes(llm: LlmSpec, dp: int = 1, tp: int = 1) -> float:
    """`weight_bytes` as an engine holds them: MXFP4 experts are padded to tiles of 256 of the hidden size.

    Each of `dp` data-parallel ranks has all but the routed experts for itself; these are spread over the ranks. Of the
    `tp` GPUs of a rank each has routers, indexers and projections into latents whole, and so many of them as stand for
    one KV head have its matrices of keys and values.

    gpt-oss (2,880 -> 3,072) takes 13.47 and 64.38 GiB in vLLM 0.11 on H100 (llm-d-planner), 5 to 6% more than its
    files; one padded dimension explains both within 0.3%.
    """
    loaded = weight_bytes(llm)
    if llm.precision is Precision.MXFP4 and llm.experts:
        tiles = math.ceil(llm.hidden / _MXFP4_TILE)
        padding_ratio = tiles * _MXFP4_TILE / llm.hidden - 1.0
        loaded += padding_ratio * llm.experts * llm.expert_read_bytes
    bytes_of_each_rank = max(0.0, weight_bytes(llm) - llm.experts * llm.expert_read_bytes)
    copies_bytes = (require_at_least("tp", tp, least=1) - 1) * llm.whole_bytes
    copies_bytes += max(0.0, tp / max(1, llm.kv_heads) - 1.0) * llm.kv_matrix_bytes
    return loaded + (require_at_least("dp", dp, least=1) - 1) * bytes_of_each_rank + dp * copies_bytes


def embedding_params(llm: LlmSpec) -> float:
    """Parameters of the embedding table where the LM head is another one: those that no token is multiplied with."""
    # Below 0 where several layers use the same weights (Zamba).
    unread = llm.params - llm.matmul_params - (llm.experts - llm.experts_per_token) * llm.expert_params
    return min(max(0.0, unread), float(llm.vocab * llm.hidden))
