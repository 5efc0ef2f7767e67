"""How the weights of an LLM are stored, part by part, and what follows for the bytes that a step reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.layers import ATTENTION, EXPERTS, HEAD, INDEXER, MLP, SHARED, STATE
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

LINEAR: Final = (ATTENTION, STATE, INDEXER, MLP, SHARED, EXPERTS)
"""Parts that weight quantisation usually covers; router, LM head and embeddings stay at 16 bit."""


class WeightStorage(NamedTuple):
    """One number format of weights."""

    precision: Precision
    bytes_per_weight: float
    """Scales and zero points included."""
    weight_only: bool = False
    """Widened before the arithmetic."""
    activations: Precision | None = None
    """Format of the activations it is multiplied with, where the checkpoint tells one narrower than 16 bit."""

    @property
    def wide(self) -> bool:
        """Whether it is a 16 or 32 bit format."""
        return self.precision in (Precision.BF16, Precision.FP16, Precision.FP32)


class WeightFormat(msgspec.Struct, frozen=True):
    """Storage of the weights: the parts that are not held in `base`, each with the mean over its layers."""

    parts: Mapping[str, WeightStorage] = {}
    base: Precision = Precision.BF16
    kv_precision: Precision | None = None
    """Format of the KV cache where the checkpoint asks for one; else the engine uses `base`."""

    def storage_of(self, part: str) -> WeightStorage:
        """The format that a part is stored in."""
        return self.parts.get(part) or WeightStorage(self.base, BYTES_PER_ELEMENT[self.base])

    @property
    def narrowest(self) -> WeightStorage:
        """The format with the fewest bits: what the checkpoint is called by."""
        base = WeightStorage(self.base, BYTES_PER_ELEMENT[self.base])
        return min((*self.parts.values(), base), key=lambda stored: stored.bytes_per_weight)

    def only(self, parts: Iterable[str]) -> WeightFormat:
        """This format for some parts alone; the others are held in `base`."""
        own_parts = {}
        for part, stored in self.parts.items():
            if part in parts:
                own_parts[part] = stored
        return msgspec.structs.replace(self, parts=own_parts)


def unquantised(precision: Precision) -> WeightFormat:
    """A format without quantisation: all parts in one 16 or 32 bit format."""
    return WeightFormat(base=precision)


def quantised_linear(precision: Precision, *, weight_only: bool = False, bytes_per_weight: float = 0.0) -> WeightFormat:
    """A format with the linear layers in `precision`, the rest at 16 bit; 0 bytes per weight: those of `precision`."""
    stored = WeightStorage(precision, bytes_per_weight or BYTES_PER_ELEMENT[precision], weight_only)
    return WeightFormat(dict.fromkeys(LINEAR, stored))


def integer_bytes(bits: int, group: int, zero_point: bool) -> float:
    """Bytes of one integer weight of `bits`: per group a 2-byte scale and, where asymmetric, a zero point.

    `group` <= 0 is one group per output channel, whose scales are negligible. Gives the memory figures of published
    checkpoints: 0.52 for 4 bit in groups of 128, 0.58 in groups of 32.
    """
    per_weight = bits / 8.0
    if group <= 0:
        return per_weight
    per_group = 2.0  # bytes of the scale
    if zero_point:
        per_group += per_weight
    return per_weight + per_group / group


class LlmParts(msgspec.Struct, frozen=True):
    """Parameters of an LLM by part, all layers together."""

    multiplied: Mapping[str, float]
    """Per token, without routed experts and LM head."""
    head: float
    """The LM head: vocabulary x hidden; 0 for a model without one."""
    tables: float = 0.0
    """Look-up tables: the embedding unless it is the LM head (tied), positions, embeddings per layer."""
    expert: float = 0.0
    """Parameters of one routed expert, all layers together."""
    experts: int = 0
    experts_per_token: int = 0
    repeated: Mapping[str, float] = {}
    """Part -> parameters of `multiplied` that are not stored again: blocks that several layers use (Zamba)."""

    @property
    def total(self) -> float:
        """All parameters."""
        stored_once = sum(self.multiplied.values()) - sum(self.repeated.values())
        return stored_once + self.head + self.tables + self.experts * self.expert

    @property
    def active(self) -> float:
        """N_mm: parameters multiplied per token (routed experts, the rest, LM head; no look-up)."""
        return sum(self.multiplied.values()) + self.head + self.experts_per_token * self.expert

    def stored_bytes(self, weights: WeightFormat) -> float:
        """Bytes of all weights in this format."""
        base = BYTES_PER_ELEMENT[weights.base]
        repeated_bytes = sum(count * weights.storage_of(part).bytes_per_weight for part, count in self.repeated.items())
        return self.read_bytes(weights) - repeated_bytes + self.tables * base

    def read_bytes(self, weights: WeightFormat) -> float:
        """Bytes of all matmul weights, every expert included."""
        resident = sum(count * weights.storage_of(part).bytes_per_weight for part, count in self.multiplied.items())
        head = self.head * weights.storage_of(HEAD).bytes_per_weight
        return resident + head + self.experts * self.expert * weights.storage_of(EXPERTS).bytes_per_weight


def with_weights(spec: LlmSpec, parts: LlmParts, weights: WeightFormat) -> LlmSpec:
    """`spec` with its parameter counts and the bytes that a step reads, for weights stored this way."""
    per_token = {**parts.multiplied, HEAD: parts.head, EXPERTS: parts.experts_per_token * parts.expert}
    params_by_format: dict[WeightStorage, float] = {}
    for part, count in per_token.items():
        # Parts whose scales alone differ are of one format.
        stored = weights.storage_of(part)._replace(bytes_per_weight=0.0)
        params_by_format[stored] = params_by_format.get(stored, 0.0) + count
    most = max(params_by_format, key=lambda stored: params_by_format[stored])
    attention_bytes = 0.0
    for part in (ATTENTION, STATE, INDEXER):
        attention_bytes += parts.multiplied.get(part, 0.0) * weights.storage_of(part).bytes_per_weight
    return msgspec.structs.replace(
        spec,
        params=parts.total,
        matmul_params=parts.active,
        head_params=parts.head,
        experts=parts.experts,
        experts_per_token=parts.experts_per_token,
        expert_params=parts.expert,
        precision=most.precision,
        weight_only=most.weight_only,
        activations=most.activations,
        kv_precision=weights.kv_precision or weights.base,
        read_bytes=parts.read_bytes(weights),
        expert_read_bytes=parts.expert * weights.storage_of(EXPERTS).bytes_per_weight,
        attention_read_bytes=attention_bytes,
        stored_bytes=0.0,  # it follows from the rest
    )
