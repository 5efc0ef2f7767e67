"""Head of a GGUF file, before its weights: metadata and the table of tensors, and the sizes of ggml's types."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec


class Stored(NamedTuple):
    """How ggml stores a type: a block of `elements` takes `bytes`."""

    name: str
    elements: int
    bytes: int


TYPES: Final[dict[int, Stored]] = {
    0: Stored("F32", 1, 4),
    1: Stored("F16", 1, 2),
    2: Stored("Q4_0", 32, 18),
    3: Stored("Q4_1", 32, 20),
    6: Stored("Q5_0", 32, 22),
    7: Stored("Q5_1", 32, 24),
    8: Stored("Q8_0", 32, 34),
    9: Stored("Q8_1", 32, 40),
    10: Stored("Q2_K", 256, 84),
    11: Stored("Q3_K", 256, 110),
    12: Stored("Q4_K", 256, 144),
    13: Stored("Q5_K", 256, 176),
    14: Stored("Q6_K", 256, 210),
    15: Stored("Q8_K", 256, 292),
    16: Stored("IQ2_XXS", 256, 66),
    17: Stored("IQ2_XS", 256, 74),
    18: Stored("IQ3_XXS", 256, 98),
    19: Stored("IQ1_S", 256, 50),
    20: Stored("IQ4_NL", 32, 18),
    21: Stored("IQ3_S", 256, 110),
    22: Stored("IQ2_S", 256, 82),
    23: Stored("IQ4_XS", 256, 136),
    24: Stored("I8", 1, 1),
    25: Stored("I16", 1, 2),
    26: Stored("I32", 1, 4),
    27: Stored("I64", 1, 8),
    28: Stored("F64", 1, 8),
    29: Stored("IQ1_M", 256, 56),
    30: Stored("BF16", 1, 2),
    34: Stored("TQ1_0", 256, 54),
    35: Stored("TQ2_0", 256, 66),
    39: Stored("MXFP4", 32, 17),
    40: Stored("NVFP4", 64, 36),
    41: Stored("Q1_0", 128, 18),
}
"""ggml's number of a type -> its storage (llama.cpp gguf-py/gguf/constants.py, GGML_QUANT_SIZES)."""


class Tensor(NamedTuple):
    """One row of the table; the first dimension of `shape` is the one that lies together in memory."""

    name: str
    shape: tuple[int, ...]
    kind: int

    @property
    def elements(self) -> int:
        """Parameters."""
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
