"""How the weights of an LLM are stored: bytes per weight of each part, and what the arithmetic runs in."""

from __future__ import annotations

import msgspec

from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

LINEAR = ("attention", "mlp", "shared", "experts")
"""Parts that weight quantisation usually covers; router, LM head and embeddings stay at 16 bit."""


class WeightFormat(msgspec.Struct, frozen=True):
    """Storage of the weights: `covers` names the parts held in `precision`, the others stay in `base`."""

    precision: Precision
    bytes_per_weight: float
    """Scales and zero points included."""
    weight_only: bool = False
    covers: tuple[str, ...] = LINEAR
    base: Precision = Precision.BF16
    kv_precision: Precision | None = None
    """Format of the KV cache where the checkpoint asks for one; else the engine uses `base`."""

    def part_bytes(self, part: str) -> float:
        """Bytes per weight of one part."""
        return self.bytes_per_weight if part in self.covers else BYTES_PER_ELEMENT[self.base]


def plain(precision: Precision) -> WeightFormat:
    """Nothing quantised: all parts in one 16 or 32 bit format."""
    return WeightFormat(precision, BYTES_PER_ELEMENT[precision], base=precision)


def narrow(precision: Precision, *, weight_only: bool = False) -> WeightFormat:
    """The linear layers in `precision`, the rest at 16 bit."""
    return WeightFormat(precision, BYTES_PER_ELEMENT[precision], weight_only)


def integer_bytes(bits: int, group: int, zero_point: bool) -> float:
    """Bytes of one integer weight of `bits`: per group a 2-byte scale and, where asymmetric, a zero point.

    `group` <= 0 is one group per output channel, whose scales are negligible. Gives the sizing fact sheet's memory
    figures: 0.52 for 4 bit in groups of 128, 0.58 in groups of 32.
    """
    scales = (2.0 + (bits / 8.0 if zero_point else 0.0)) / group if group > 0 else 0.0
    return bits / 8.0 + scales


class LlmParts(msgspec.Struct, frozen=True):
    """Matmul parameters of an LLM by part, all layers together; `expert` is one routed expert index."""

    attention: float
    mlp: float
    head: float
    """The LM head: vocabulary x hidden."""
    embedding: float
    """The look-up table, 0 where it is the LM head (tied)."""
    router: float = 0.0
    shared: float = 0.0
    expert: float = 0.0
    experts: int = 0
    experts_per_token: int = 0

    @property
    def total(self) -> float:
        """All parameters."""
        return self._resident + self.experts * self.expert + self.embedding

    @property
    def active(self) -> float:
        """N_mm: parameters multiplied per token (routed experts, the rest, LM head; no look-up)."""
        return self._resident + self.experts_per_token * self.expert

    @property
    def _resident(self) -> float:
        return self.attention + self.mlp + self.shared + self.router + self.head


def with_weights(spec: LlmSpec, parts: LlmParts, weights: WeightFormat) -> LlmSpec:
    """`spec` with its parameter counts and the bytes that a step reads, for weights stored this way."""
    parts_read = {"attention": parts.attention, "mlp": parts.mlp, "shared": parts.shared, "head": parts.head}
    resident = sum(count * weights.part_bytes(part) for part, count in parts_read.items())
    resident += parts.router * BYTES_PER_ELEMENT[weights.base]
    expert = parts.expert * weights.part_bytes("experts")
    return msgspec.structs.replace(
        spec,
        params=parts.total,
        matmul_params=parts.active,
        experts=parts.experts,
        experts_per_token=parts.experts_per_token,
        expert_params=parts.expert,
        precision=weights.precision,
        weight_only=weights.weight_only,
        kv_precision=weights.kv_precision or weights.base,
        read_bytes=resident + parts.experts * expert,
        expert_read_bytes=expert,
        stored_bytes=0.0,
    )
