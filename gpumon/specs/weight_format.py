"""How the weights of an LLM are stored, module by module, and what follows for the bytes that a step reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.gguf_mixture import bits_by_layer
from gpumon.specs.llm import LlmSpec
from gpumon.specs.module_rules import ModuleRule, assign
from gpumon.specs.modules import ATTENTION, EXPERTS, INDEXER, MLP, SHARED, STATE, TABLES, ModuleKind, ModuleList
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

LINEAR: Final = (ATTENTION, STATE, INDEXER, MLP, SHARED, EXPERTS)
"""Parts that weight quantisation usually covers; router, LM head and embeddings stay at 16 bit."""
_MIXERS: Final = (ATTENTION, STATE)
"""Parts that mix tokens of a sequence: a layer has one, or none."""
_FEED_FORWARD: Final = (MLP, SHARED, EXPERTS)
"""Parts that work on each token alone."""

# Most bits per weight of a whole file: the mean is above the format's own by scales, and by tensors kept wider. Each
# bound lies between two of llama.cpp's file types: Q4_K_M (4.89) and Q4_1 (5.11), Q8_0 (8.5) and F16, F16 and F32.
_MOST_BITS_OF_INT4: Final = 5.0
_MOST_BITS_OF_INT8: Final = 15.0
_MOST_BITS_OF_BF16: Final = 24.0
_MXFP4_BITS: Final = 8.0 * BYTES_PER_ELEMENT[Precision.MXFP4]
"""Bits of a weight in MXFP4, which no mean of other types has been seen to be. """


class WeightStorage(NamedTuple):
    """One number format of weights."""

    precision: Precision
    bytes_per_weight: float
    """Scales and zero points included."""
    weight_only: bool = False
    """Widened before the arithmetic."""
    activations: Precision | None = None
    """Format of the activations it is multiplied with, where the checkpoint tells one narrower than 16 bit."""
    bytes_per_matrix: float = 0.0
    """Bytes of each matrix besides its weights: codebooks."""

    @property
    def wide(self) -> bool:
        """Whether it is a 16 or 32 bit format."""
        return self.precision in (Precision.BF16, Precision.FP16, Precision.FP32)


class StorageRule(NamedTuple):
    """The format that a checkpoint gives the modules of a name or a pattern."""

    modules: ModuleRule
    stored: WeightStorage | None
    """None: as the rest of the checkpoint that is not quantised."""


class WeightFormat(msgspec.Struct, frozen=True):
    """Storage of the weights: from a module's name, and the part that it belongs to, to its format."""

    parts: Mapping[str, WeightStorage] = {}
    """Part -> format of its modules that no rule speaks of; parts that are not there are held in `base`."""
    base: Precision = Precision.BF16
    kv_precision: Precision | None = None
    """Format of the KV cache where the checkpoint asks for one; else the engine uses `base`."""
    rules: tuple[StorageRule, ...] = ()
    """Formats of single modules; the last rule that speaks of a module counts."""
    file_type: str = ""
    """Mixture of llama.cpp's (`q4_k_m`) that matrices are stored in; empty: it is no GGUF file."""

    @property
    def wide(self) -> WeightStorage:
        """The format of what is not quantised."""
        return WeightStorage(self.base, BYTES_PER_ELEMENT[self.base])

    def storage_of(self, part: str) -> WeightStorage:
        """The format of the modules of a part that no rule speaks of."""
        return self.parts.get(part) or self.wide

    @property
    def narrowest(self) -> WeightStorage:
        """The format with the fewest bits: what the checkpoint is called by."""
        by_rules = [rule.stored for rule in self.rules if rule.stored is not None]
        return min((*self.parts.values(), *by_rules, self.wide), key=lambda stored: stored.bytes_per_weight)

    def only(self, parts: Iterable[str]) -> WeightFormat:
        """This format for some parts alone; the others are held in `base`."""
        own_parts = {part: stored for part, stored in self.parts.items() if part in parts}
        return msgspec.structs.replace(self, parts=own_parts)

    def formats_of(self, modules: ModuleList) -> list[StoredKind]:
        """How the modules of each kind are stored; of parts that are told as a whole, the mean of a file type."""
        if self.file_type and any(kind.layers for kind in modules.kinds):
            return self._by_file_type(modules)
        rules = [(rule.modules, rule.stored or self.wide) for rule in self.rules]
        assignments = assign(modules, self.parts, self.wide, rules)
        return [
            StoredKind(kind, assignment.counts()) for kind, assignment in zip(modules.kinds, assignments, strict=True)
        ]

    def _by_file_type(self, modules: ModuleList) -> list[StoredKind]:
        """The modules as llama.cpp stores them in a file of this type."""
        stored = []
        for kind, bits_in_layer in zip(modules.kinds, bits_by_layer(self.file_type, modules), strict=True):
            own = self.parts.get(kind.part)
            if own is not None and own.precision is Precision.MXFP4 and kind.part == EXPERTS:
                bits_in_layer = dict.fromkeys(bits_in_layer, 8.0 * own.bytes_per_weight)
            counts = Counter(storage_of_bits(bits) for bits in bits_in_layer.values())
            each = max(1, kind.experts)
            stored.append(StoredKind(kind, {storage: each * count for storage, count in counts.items()}))
        return stored


class StoredKind(NamedTuple):
    """The modules of one kind as they are stored."""

    kind: ModuleKind
    counts: Mapping[WeightStorage, int]
    """Format -> number of modules in it, as they are used, experts counted one by one."""

    @property
    def bytes(self) -> float:
        """Bytes of all of them as they are used: shared weights count as often as layers use them."""
        per_module = [
            count * (self.kind.params * stored.bytes_per_weight + stored.bytes_per_matrix)
            for stored, count in self.counts.items()
        ]
        return sum(per_module)

    @property
    def stored_bytes(self) -> float:
        """Bytes of all of them as they are stored: shared weights once."""
        return self.bytes * self.kind.stored_share


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


def storage_of_bits(bits: float) -> WeightStorage:
    """The format that weights of this mean number of bits are called by."""
    if bits == _MXFP4_BITS:
        return WeightStorage(Precision.MXFP4, BYTES_PER_ELEMENT[Precision.MXFP4])
    if bits < _MOST_BITS_OF_INT4:
        precision = Precision.INT4
    elif bits < _MOST_BITS_OF_INT8:
        precision = Precision.INT8
    elif bits <= _MOST_BITS_OF_BF16:
        precision = Precision.BF16
    else:
        precision = Precision.FP32
    return WeightStorage(precision, bits / 8.0, weight_only=bits < _MOST_BITS_OF_INT8)


class StoredWeights(NamedTuple):
    """A list of modules in one format."""

    kinds: list[StoredKind]

    def read_bytes(self, *parts: str) -> float:
        """Bytes of the modules of these parts, as often as a step uses them and every expert included."""
        return sum(stored.bytes for stored in self.kinds if stored.kind.part in parts)

    @property
    def all_read_bytes(self) -> float:
        """Bytes of all matmul weights, every expert included."""
        return sum(stored.bytes for stored in self.kinds if stored.kind.part != TABLES)

    @property
    def total_bytes(self) -> float:
        """Bytes of all that is stored."""
        return sum(stored.stored_bytes for stored in self.kinds)

    @property
    def whole_bytes(self) -> float:
        """Bytes of what each tensor-parallel rank holds whole."""
        return sum((stored.stored_bytes for stored in self.kinds if stored.kind.is_whole_on_each_rank), 0.0)

    @property
    def kv_matrix_bytes(self) -> float:
        """Bytes of the matrices of keys and values."""
        return sum((stored.stored_bytes for stored in self.kinds if stored.kind.is_of_kv_heads), 0.0)


def stored_weights(modules: ModuleList, weights: WeightFormat) -> StoredWeights:
    """The modules of a model in this format."""
    return StoredWeights(weights.formats_of(modules))


def with_weights(
    spec: LlmSpec, modules: ModuleList, weights: WeightFormat, stored: StoredWeights | None = None
) -> LlmSpec:
    """`spec` with its parameter counts and the bytes that a step reads, for weights stored this way.

    `stored`: the modules as files hold them, where these are known.
    """
    if stored is None:
        stored = stored_weights(modules, weights)
    main = _main_storage(stored, modules, weights)
    return msgspec.structs.replace(
        spec,
        params=modules.total,
        matmul_params=modules.active,
        head_params=modules.head,
        experts=modules.experts,
        experts_per_token=modules.experts_per_token,
        expert_params=modules.expert,
        precision=main.precision,
        weight_only=main.weight_only,
        activations=main.activations,
        kv_precision=weights.kv_precision or weights.base,
        read_bytes=stored.all_read_bytes,
        expert_read_bytes=stored.read_bytes(EXPERTS) / modules.experts if modules.experts else 0.0,
        attention_read_bytes=stored.read_bytes(ATTENTION, STATE, INDEXER),
        stored_bytes=stored.total_bytes,
        whole_bytes=stored.whole_bytes,
        kv_matrix_bytes=stored.kv_matrix_bytes,
        known_blocks=len(modules.layers_with(*_MIXERS)) + len(modules.layers_with(*_FEED_FORWARD)),
        known_moe_layers=len(modules.layers_with(EXPERTS)),
    )


def _main_storage(stored: StoredWeights, modules: ModuleList, weights: WeightFormat) -> WeightStorage:
    """The format of most parameters that a token is multiplied with; those whose scales alone differ are one."""
    used_share = modules.experts_per_token / modules.experts if modules.experts else 0.0
    params_by_format: dict[WeightStorage, float] = {}
    for kind, counts in stored.kinds:
        if kind.part == TABLES:
            continue
        share = used_share if kind.part == EXPERTS else 1.0
        for storage, count in counts.items():
            without_scales = storage._replace(bytes_per_weight=0.0)
            used = share * count * kind.params
            params_by_format[without_scales] = params_by_format.get(without_scales, 0.0) + used
    return max(params_by_format, key=lambda storage: params_by_format[storage], default=weights.wide)
