"""Head of a GGUF file, before its weights: metadata and the table of tensors, and the sizes of ggml's types."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec


class GgmlType(NamedTuple):
    """How ggml stores a type: a block of `elements` takes `bytes`."""

    name: str
    elements: int
    bytes: int


TYPES: Final[dict[int, GgmlType]] = {
    0: GgmlType("F32", 1, 4),
    1: GgmlType("F16", 1, 2),
    2: GgmlType("Q4_0", 32, 18),
    3: GgmlType("Q4_1", 32, 20),
    6: GgmlType("Q5_0", 32, 22),
    7: GgmlType("Q5_1", 32, 24),
    8: GgmlType("Q8_0", 32, 34),
    9: GgmlType("Q8_1", 32, 40),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144),
    13: GgmlType("Q5_K", 256, 176),
    14: GgmlType("Q6_K", 256, 210),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: GgmlType("I32", 1, 4),
    27: GgmlType("I64", 1, 8),
    28: GgmlType("F64", 1, 8),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
}
"""ggml's number of a type -> its storage (llama.cpp gguf-py/gguf/constants.py, GGML_QUANT_SIZES)."""


class Tensor(NamedTuple):
    """One row of the table; the first dimension of `shape` is the one that lies together in memory."""

    name: str
    shape: tuple[int, ...]
    kind: int
    """ggml's number of its type: a key of `TYPES`."""

    @property
    def elements(self) -> int:
        """Number of its parameters."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of its data; ValueError for a type that is not known, or a shape that does not fit it."""
        stored = TYPES.get(self.kind)
        if stored is None:
            raise ValueError(f"GGUF header: tensor {self.name[:80]!a} has type {self.kind}, which is not known")
        if self.shape[0] % stored.elements:
            raise ValueError(
                f"GGUF header: tensor {self.name[:80]!a} has rows of {self.shape[0]}, "
                f"no multiple of the {stored.elements} of a {stored.name} block"
            )
        return self.elements // stored.elements * stored.bytes


class GgufHeader(msgspec.Struct, frozen=True):
    """Header of one file, or of all parts of a split one; long arrays (the vocabulary) are left out of `metadata`."""

    metadata: dict[str, object]
    tensors: tuple[Tensor, ...]
