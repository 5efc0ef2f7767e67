"""The `quantization_config` of a Hugging Face checkpoint -> how its weights are stored and multiplied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpumon.specs.fields import Fields, shown
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LINEAR, WeightFormat, integer_bytes, narrow, plain

_LAYER = re.compile(r"layers\.(\d+)")
_INTEGERS: Final = {
    8: Precision.INT8,
    6: Precision.INT8,
    5: Precision.INT8,
    4: Precision.INT4,
    3: Precision.INT4,
    2: Precision.INT4,
}
_PROJECTIONS: Final = ("gate_proj", "up_proj", "down_proj", "(gate|up", "gate_up")


class UnknownFormatError(ValueError):
    """How the weights are stored is not known, so no other source of the model's dimensions can stand in."""


def weight_format(config: Mapping[str, object], base: Precision, layers: int) -> WeightFormat:
    """Storage of the weights that `config` (the `quantization_config` object) describes.

    `base` is the checkpoint's own 16-bit type, `layers` its layer count. UnknownFormatError names a method or field
    that is not known. Parts that the checkpoint keeps at 16 bit (its ignore list) are left out of `covers`, where the
    list names them for most layers.
    """
    try:
        fields = Fields(config, where="quantization_config")
        weights = _reader(fields)(fields)
        ignored = fields.items("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules") or []
    except ValueError as error:
        raise UnknownFormatError(str(error)) from None
    covers = tuple(part for part in weights.covers if part not in _ignored_parts(ignored, layers))
    return msgspec.structs.replace(weights, base=base, covers=covers)


def _reader(fields: Fields) -> Callable[[Fields], WeightFormat]:
    method = fields.text("quant_method").lower().replace("_", "-")
    reader = _METHODS.get(method)
    if reader is None:
        known = ", ".join(sorted(_METHODS))
        raise fields.error("quant_method", f"{shown(method)} is not known (known: {known})")
    return reader


def _fp8(_fields: Fields) -> WeightFormat:
    return narrow(Precision.FP8)


def _awq_or_gptq(fields: Fields) -> WeightFormat:
    bits = fields.integer("bits", "w_bit", "wbits", default=4, low=2, high=8)
    if bits not in _INTEGERS:
        raise fields.error("bits", f"{bits} is not 2, 3, 4, 5, 6 or 8")
    group = fields.integer("group_size", "q_group_size", default=128, low=-1)
    per_weight = integer_bytes(bits, group, fields.flag("zero_point", default=not fields.flag("sym")))
    covers = (*LINEAR, "head") if fields.flag("lm_head") else LINEAR
    return WeightFormat(_INTEGERS[bits], per_weight, weight_only=True, covers=covers)


def _bitsandbytes(fields: Fields) -> WeightFormat:
    if fields.flag("load_in_8bit", "_load_in_8bit"):
        return narrow(Precision.INT8)
    # NF4 blocks of 64 with a 4-byte scale each; double quantisation brings that to 0.127 bit per weight.
    scales = 0.127 / 8.0 if fields.flag("bnb_4bit_use_double_quant") else 4.0 / 64.0
    return WeightFormat(Precision.INT4, 0.5 + scales, weight_only=True)


def _modelopt(fields: Fields) -> WeightFormat:
    algorithm = fields.text("quant_algo").upper()
    for prefix, precision, weight_only in _MODELOPT:
        if algorithm.startswith(prefix):
            return msgspec.structs.replace(narrow(precision, weight_only=weight_only), kv_precision=_kv_cache(fields))
    raise fields.error("quant_algo", f"{shown(algorithm)} is not known")


def _compressed_tensors(fields: Fields) -> WeightFormat:
    kv, groups = _kv_cache(fields), fields.table("config_groups")
    if fields.text("format") == "dense" or (kv is not None and groups == {}):
        return msgspec.structs.replace(plain(Precision.BF16), kv_precision=kv)
    if not groups:
        raise fields.error("config_groups", "is missing or empty")
    read = [_group(name, group) for name, group in groups.items()]
    # Of a mixed checkpoint the narrowest format is that of the MLP or the experts: most of the weights.
    weights = min(read, key=lambda each: each.bytes_per_weight)
    return msgspec.structs.replace(weights, kv_precision=kv)


def _kv_cache(fields: Fields) -> Precision | None:
    """The KV cache's format, in ModelOpt's words or by the bits of its scheme; None where neither asks for one."""
    word = fields.text("kv_cache_quant_algo").upper()
    scheme = fields.table("kv_cache_scheme")
    bits = Fields(scheme, where="kv_cache_scheme").integer("num_bits", default=16, high=16) if scheme else 16
    named = (precision for begin, precision in _KV_WORDS if word.startswith(begin))
    return next(named, {8: Precision.FP8, 4: Precision.NVFP4}.get(bits))


def _group(name: str, group: object) -> WeightFormat:
    where = f"quantization_config.config_groups.{name}"
    if not isinstance(group, dict):
        raise ValueError(f"{where}: {shown(group)} is not an object")
    fields = Fields(group, where=where)
    weights = fields.table("weights")
    if weights is None:
        raise fields.error("weights", "is missing")
    scheme = Fields(weights, where=f"{where}.weights")
    bits = scheme.integer("num_bits", low=2, high=16)
    weight_only = fields.table("input_activations") is None
    size = scheme.integer("group_size", default=-1, low=-1)
    if scheme.text("type") == "float":
        precision = {8: Precision.FP8, 4: Precision.MXFP4 if size == 32 else Precision.NVFP4}.get(bits)
        if precision is not None:
            return narrow(precision, weight_only=weight_only)
    elif bits in _INTEGERS:
        per_weight = integer_bytes(bits, size, not scheme.flag("symmetric", default=True))
        return WeightFormat(_INTEGERS[bits], per_weight, weight_only)
    raise scheme.error("num_bits", f"{bits} of type {shown(scheme.text('type'))} is not known")


def _ignored_parts(patterns: list[object], layers: int) -> set[str]:
    """Parts that an ignore list names for at least half of the layers. The patterns are never run as regexes."""
    named: dict[str, set[str | None]] = {}
    for pattern in patterns:
        part = _part_of(str(pattern))
        if part:
            layer = _LAYER.search(str(pattern))
            named.setdefault(part, set()).add(layer.group(1) if layer else None)
    return {part for part, where in named.items() if None in where or 2 * len(where) >= layers}


def _part_of(pattern: str) -> str:
    if "attn" in pattern or "attention" in pattern:
        return "" if "norm" in pattern else "attention"
    if "shared_expert" in pattern:
        return "shared"
    if "experts" in pattern:
        return "experts"
    return "mlp" if "mlp" in pattern and any(each in pattern for each in _PROJECTIONS) else ""


_MODELOPT: Final = (
    ("FP8", Precision.FP8, False),
    ("NVFP4_AWQ", Precision.NVFP4, False),
    ("NVFP4", Precision.NVFP4, False),
    ("W4A16_NVFP4", Precision.NVFP4, True),
    ("MXFP4", Precision.MXFP4, False),
    ("W4A16_AWQ", Precision.INT4, True),
    ("W4A8_AWQ", Precision.INT4, False),
    ("W8A8", Precision.INT8, False),
    ("W8A16", Precision.INT8, True),
)
"""NVIDIA ModelOpt's `quant_algo` by prefix -> format and whether activations stay wide."""

_KV_WORDS: Final = (("FP8", Precision.FP8), ("NVFP4", Precision.NVFP4), ("INT8", Precision.INT8))

_METHODS: Final[dict[str, Callable[[Fields], WeightFormat]]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "awq": _awq_or_gptq,
    "awq-marlin": _awq_or_gptq,
    "gptq": _awq_or_gptq,
    "gptq-marlin": _awq_or_gptq,
    "auto-round": _awq_or_gptq,
    "intel/auto-round": _awq_or_gptq,
    # OpenAI's gpt-oss: only the experts are narrow, attention, router, embeddings and head stay BF16.
    "mxfp4": lambda _: msgspec.structs.replace(narrow(Precision.MXFP4), covers=("experts",)),
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "bitsandbytes": _bitsandbytes,
}
