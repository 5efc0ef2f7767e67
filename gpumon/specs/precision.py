"""Number formats: bytes per stored element, and which peak their arithmetic runs at."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Precision(str, Enum):
    """A number format of weights, KV cache or arithmetic."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"


FP4: Final = (Precision.MXFP4, Precision.NVFP4)
"""Formats with 4 bits of floating point."""
BYTES_PER_ELEMENT: dict[Precision, float] = {
    Precision.FP32: 4.0,
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.INT4: 0.52,
    Precision.MXFP4: 0.53125,
    Precision.NVFP4: 0.5625,
}
"""Bytes of one stored weight, scales included: INT4 in groups of 128 (2-byte scale and zero point), MXFP4 one byte
per 32, NVFP4 one byte per 16: 4.25 and 4.5 bit."""
