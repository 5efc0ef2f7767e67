"""Formats of the quantisers beside the large ones: Quark, torchao, HQQ, MLX, AQLM, BitNet and EXL3.

Each function reads the section of a config that its method writes. Bytes are those of the files: packed weights, and
per group a scale and, where there is one, a zero point or bias. What a config leaves open is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpumon.specs.fields import FieldError, Fields, json_text
from gpumon.specs.module_rules import module_rule
from gpumon.specs.modules import HEAD, ROUTER, TABLES
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LINEAR, StorageRule, WeightFormat, WeightStorage, integer_bytes

_HALF: Final = 2.0
"""Bytes of a scale, zero point or bias in the model's 16-bit format."""
_MX_GROUP: Final = 32
"""Weights that share a scale of one byte in the formats of the OCP microscaling standard."""


def _of_bits(bits: float) -> Precision:
    """The format that integers of so many bits are called by."""
    return Precision.INT8 if bits > 4 else Precision.INT4


def _weight_only(bits: float, bytes_per_weight: float, bytes_per_matrix: float = 0.0) -> WeightStorage:
    """Integers that are widened before the arithmetic."""
    return WeightStorage(_of_bits(bits), bytes_per_weight, weight_only=True, bytes_per_matrix=bytes_per_matrix)


def _everywhere(stored: WeightStorage, *more_parts: str) -> WeightFormat:
    """A format of all linear layers, and of further parts."""
    return WeightFormat(dict.fromkeys((*LINEAR, *more_parts), stored))


# Quark (AMD): https://quark.docs.amd.com, and `quantization/quark` of vLLM and SGLang.

_QUARK_FLOATS: Final = {
    "fp8_e4m3": (Precision.FP8, 1.0),
    "fp8_e5m2": (Precision.FP8, 1.0),
    "fp4": (Precision.MXFP4, 0.5),
    "fp4_e2m1": (Precision.MXFP4, 0.5),
    # 6 bit are multiplied as 8 bit are.
    "fp6_e2m3": (Precision.FP8, 0.75),
    "fp6_e3m2": (Precision.FP8, 0.75),
}
"""Word of a floating-point type -> its format, and bytes of a weight without its scale."""
_QUARK_INTEGERS: Final = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "int2": 2, "int3": 3}
"""Word of an integer type -> its bits."""


def read_quark(fields: Fields) -> WeightFormat:
    """The format of Quark checkpoints: one for all linear layers, and others for single modules."""
    overall = _quark_storage(fields.table("global_quant_config"), "global_quant_config")
    rules = []
    for name, entry in (fields.table("layer_quant_config") or {}).items():
        if not isinstance(entry, dict):
            raise fields.error("layer_quant_config", f"of {json_text(name)}: {json_text(entry)} is not an object")
        if "weight" in entry:
            rules.append(StorageRule(module_rule(name), _quark_storage(entry, f"layer_quant_config.{name}")))
    parts = {} if overall is None else dict.fromkeys(LINEAR, overall)
    return WeightFormat(parts, rules=tuple(rules), kv_precision=_quark_kv(fields))


def _quark_storage(table: Mapping[str, object] | None, where: str) -> WeightStorage | None:
    """The format of one entry; None where its weights stay wide. Raises FieldError."""
    weights = (table or {}).get("weight")
    if isinstance(weights, list) and weights:
        weights = weights[-1]  # of several stages the last one is stored
    if weights is None:
        return None
    if not isinstance(weights, dict):
        raise FieldError(f"quantization_config.{where}: weight {json_text(weights)} is not an object", where)
    fields = Fields(weights, where=f"quantization_config.{where}.weight")
    word = fields.text("dtype")
    inputs = (table or {}).get("input_tensors")
    grouped = fields.text("qscheme") == "per_group"
    group = fields.integer("group_size", default=_MX_GROUP) if grouped else 0
    if word in _QUARK_FLOATS:
        precision, per_weight = _QUARK_FLOATS[word]
        if grouped:
            scale = 1.0 if fields.text("scale_format") in ("e8m0", "") else 4.0
            per_weight += scale / group
        return WeightStorage(precision, per_weight, weight_only=not inputs, activations=_quark_inputs(inputs))
    if word in _QUARK_INTEGERS:
        bits = _QUARK_INTEGERS[word]
        per_weight = integer_bytes(bits, group, not fields.flag("symmetric", default=True))
        return WeightStorage(_of_bits(bits), per_weight, weight_only=not inputs)
    raise fields.error("dtype", f"{json_text(word)} is not known")


def _quark_inputs(inputs: object) -> Precision | None:
    """Format of the activations, where they are narrower than 16 bit."""
    word = str(inputs.get("dtype")) if isinstance(inputs, dict) else ""
    return _QUARK_FLOATS[word][0] if word in _QUARK_FLOATS else None


def _quark_kv(fields: Fields) -> Precision | None:
    """Format of the KV cache; None where the checkpoint asks for none."""
    for entry in (fields.table("kv_cache_quant_config") or {}).values():
        outputs = entry.get("output_tensors") if isinstance(entry, dict) else None
        if isinstance(outputs, dict) and str(outputs.get("dtype")).startswith("fp8"):
            return Precision.FP8
    return None


# torchao (PyTorch): the classes of its configs, `torchao/quantization/quant_api.py`.

_TORCHAO_WORDS: Final = {
    "int4_weight_only": "Int4WeightOnlyConfig",
    "int8_weight_only": "Int8WeightOnlyConfig",
    "int8_dynamic_activation_int8_weight": "Int8DynamicActivationInt8WeightConfig",
    "float8_weight_only": "Float8WeightOnlyConfig",
    "float8_dynamic_activation_float8_weight": "Float8DynamicActivationFloat8WeightConfig",
}
"""Older words of `quant_type` -> the classes that took their place."""
_TORCHAO_BY_MODULE: Final = ("ModuleFqnToConfig", "FqnToConfig")
"""Classes that hold a config for each module."""
_TORCHAO_GROUP: Final = 128
"""Weights of a group of `Int4WeightOnlyConfig` where none is told."""


def read_torchao(fields: Fields) -> WeightFormat:
    """The format of torchao checkpoints; look-up table and LM head are narrow where the config says so."""
    kind, data = _torchao_kind(fields)
    more_parts = (HEAD, TABLES) if fields.flag("include_input_output_embeddings") else ()
    if kind not in _TORCHAO_BY_MODULE:
        return _everywhere(_torchao_storage(fields, kind, data), *more_parts)
    by_module = data.get("module_fqn_to_config") or data.get("fqn_to_config")
    if not isinstance(by_module, dict):
        raise fields.error("quant_type", f"{kind} names no modules")
    rules = []
    parts: dict[str, WeightStorage] = {}
    for name, entry in by_module.items():
        stored = None
        if isinstance(entry, dict):
            stored = _torchao_storage(fields, str(entry.get("_type")), entry.get("_data") or {})
        if name == "_default":
            parts = {} if stored is None else dict.fromkeys(LINEAR, stored)
        else:
            rules.append(StorageRule(module_rule(name), stored))
    return WeightFormat(parts, rules=tuple(rules))


def _torchao_kind(fields: Fields) -> tuple[str, Mapping[str, object]]:
    """Name of the config's class, and its settings. Raises FieldError."""
    word = fields.raw("quant_type")
    if isinstance(word, str):
        return _TORCHAO_WORDS.get(word, word), fields.table("quant_type_kwargs") or {}
    entry = (fields.table("quant_type") or {}).get("default")
    if not isinstance(entry, dict):
        raise fields.error("quant_type", f"{json_text(word)} names no config")
    data = entry.get("_data")
    return str(entry.get("_type")), data if isinstance(data, dict) else {}


def _torchao_storage(fields: Fields, kind: str, data: object) -> WeightStorage:
    """The format of one config. Raises FieldError where it is not known."""
    settings = Fields(data if isinstance(data, dict) else {}, where=f"quantization_config.quant_type.{kind}")
    if kind == "Int4WeightOnlyConfig":
        # A scale and a zero point of 16 bit each.
        return _weight_only(4, 0.5 + 2 * _HALF / settings.integer("group_size", default=_TORCHAO_GROUP))
    if kind == "Int8WeightOnlyConfig":
        group = settings.integer("group_size", default=0, low=0)
        return _weight_only(8, 1.0 + (_HALF / group if group else 0.0))
    if kind == "Int8DynamicActivationInt8WeightConfig":
        return WeightStorage(Precision.INT8, 1.0)
    if kind == "Float8WeightOnlyConfig":
        return WeightStorage(Precision.FP8, 1.0, weight_only=True)
    if kind == "Float8DynamicActivationFloat8WeightConfig":
        return WeightStorage(Precision.FP8, 1.0)
    raise fields.error("quant_type", f"{json_text(kind)} is not known: how it packs its weights no config says")


# HQQ: `hqq/core/quantize.py` and `bitpack.py` of mobiusml/hqq, as transformers writes it.


def read_hqq(fields: Fields) -> WeightFormat:
    """The format of HQQ checkpoints: one for all linear layers, or one for each name of a module."""
    table = fields.table("quant_config")
    if not table:
        raise fields.error("quant_config", "is missing or empty")
    if "weight_quant_params" in table:
        return _everywhere(_hqq_storage(table, "quant_config"))
    rules = []
    for name, entry in table.items():
        if not isinstance(entry, dict) or "weight_quant_params" not in entry:
            raise fields.error("quant_config", f"of {json_text(name)} has no weight_quant_params")
        rules.append(StorageRule(module_rule(f"re:.*{name}$"), _hqq_storage(entry, name)))
    return WeightFormat(rules=tuple(rules))


def _hqq_storage(table: Mapping[str, object], where: str) -> WeightStorage:
    """Bits in groups, each with a scale and a zero point of 16 bit. Raises FieldError."""
    params = table.get("weight_quant_params")
    fields = Fields(params if isinstance(params, dict) else {}, where=f"quantization_config.{where}")
    bits = fields.integer("nbits", low=1, high=8)
    if bits not in (1, 2, 3, 4, 8):
        raise fields.error("nbits", f"{bits} is not 1, 2, 3, 4 or 8")
    packed = 4.0 / 10.0 if bits == 3 else bits / 8.0  # ten weights of 3 bit in 32 bits
    group = fields.integer("group_size", default=0, low=0)
    if table.get("scale_quant_params") or table.get("zero_quant_params"):
        raise fields.error("scale_quant_params", "are not null: how scales are packed no config says")
    return _weight_only(bits, packed + (2 * _HALF / group if group else 0.0))


# MLX (Apple): `mlx.nn.quantize` and `mx.quantize`.

_MLX_MODES: Final[dict[str, tuple[Precision, float]]] = {
    "mxfp4": (Precision.MXFP4, 0.5 + 1.0 / 32),
    "mxfp8": (Precision.FP8, 1.0 + 1.0 / 32),
    "nvfp4": (Precision.NVFP4, 0.5 + 1.0 / 16),
}
"""Modes with a group and bits of their own -> format and bytes of a weight; `affine` has any."""


def read_mlx(fields: Fields) -> WeightFormat:
    """The format of MLX checkpoints: routers, look-up table and LM head are narrow, too, unless an entry says no."""
    overall = _mlx_storage(fields)
    rules = []
    for name, entry in fields.tables_and_flags():
        if entry is False:
            rules.append(StorageRule(module_rule(name), None))
        elif isinstance(entry, dict):
            own = Fields(entry, where=f"quantization.{name}").with_last({"mode": fields.raw("mode")})
            rules.append(StorageRule(module_rule(name), _mlx_storage(own)))
    parts = dict.fromkeys((*LINEAR, ROUTER, HEAD, TABLES), overall)
    return WeightFormat(parts, rules=tuple(rules))


def _mlx_storage(fields: Fields) -> WeightStorage:
    """Bits in groups, each with a scale and a bias of 16 bit; or a microscaling format. Raises FieldError."""
    mode = fields.text("mode") or "affine"
    if mode in _MLX_MODES:
        precision, per_weight = _MLX_MODES[mode]
        return WeightStorage(precision, per_weight, weight_only=True)
    if mode != "affine":
        raise fields.error("mode", f"{json_text(mode)} is not known (known: affine, {', '.join(_MLX_MODES)})")
    bits = fields.integer("bits", low=2, high=8)
    return _weight_only(bits, bits / 8.0 + 2 * _HALF / fields.integer("group_size", default=64))


# AQLM (arXiv 2401.06118): `aqlm/inference.py` of Vahe1994/AQLM.


def read_aqlm(fields: Fields) -> WeightFormat:
    """The format of AQLM checkpoints: codes for groups of weights, and codebooks for each matrix."""
    bits = fields.integer("nbits_per_codebook", high=16)
    codebooks = fields.integer("num_codebooks", high=64)
    group = fields.integer("in_group_size", default=8) * fields.integer("out_group_size", default=1)
    code_bytes = 1 if bits <= 8 else 2
    entries = codebooks * 2**bits * group * _HALF
    return _everywhere(_weight_only(2, codebooks * code_bytes / group, bytes_per_matrix=entries))


# BitNet (arXiv 2402.17764): `integrations/bitnet.py` of transformers.


def read_bitnet(fields: Fields) -> WeightFormat:
    """The format of BitNet checkpoints: four ternary weights in a byte, or 16 bit that are rounded at each step."""
    mode = fields.text("quantization_mode") or "offline"
    if mode == "online":
        return WeightFormat()
    if mode != "offline":
        raise fields.error("quantization_mode", f"{json_text(mode)} is neither offline nor online")
    return _everywhere(_weight_only(2, 0.25))


# EXL3: `exllamav3/conversion` of turboderp-org/exllamav3.

_EXL3_OPEN: Final = (
    "scope",
    "non_routed_quantization",
    "dense_format",
    "layer_bits",
    "exl3",
    "base_quantization_config",
)
"""Fields of packs that have other formats beside EXL3, of which the config tells no bits."""


def read_exl3(fields: Fields) -> WeightFormat:
    """The format of EXL3 checkpoints: trellis codes of whole or, on average, other bits.

    Left out are the vectors of signs, below 0.1%.

    `tensor_storage` has the bits of each module where the config holds it; else `bits` is the mean of all linear
    layers but the LM head, which has `head_bits`.
    """
    storage = fields.table("tensor_storage")
    rules = tuple(_exl3_rules(storage or {}))
    if rules:
        return WeightFormat(rules=rules)
    for name in _EXL3_OPEN:
        if fields.has(name):
            raise fields.error(name, "is there, and tensor_storage is not: what is EXL3, and of how many bits, is open")
    bits = _exl3_bits(fields, "bits")
    stored = _weight_only(bits, bits / 8.0)
    included = fields.items("module_include")
    if included is not None:
        return WeightFormat(rules=tuple(StorageRule(module_rule(f"re:{name}"), stored) for name in map(str, included)))
    head_bits = _exl3_bits(fields, "head_bits", 6.0)
    parts = {**dict.fromkeys(LINEAR, stored), HEAD: _weight_only(head_bits, head_bits / 8.0)}
    return WeightFormat(parts)


def _exl3_rules(storage: Mapping[str, object]) -> Iterable[StorageRule]:
    """The modules of `tensor_storage` that are quantised, each with its bits."""
    for name, entry in storage.items():
        if isinstance(entry, dict) and entry.get("quant_format") == "exl3":
            bits = _exl3_bits(Fields(entry, where=f"tensor_storage.{name}"), "bits_per_weight")
            yield StorageRule(module_rule(name), _weight_only(bits, bits / 8.0))


def _exl3_bits(fields: Fields, name: str, default: float | None = None) -> float:
    """A number of bits from 1 to 8, whole or not. Raises FieldError."""
    value = fields.raw(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1.0 <= value <= 8.0:
        raise fields.error(name, f"{json_text(value)} is not a number of bits from 1 to 8")
    return float(value)


FURTHER_METHODS: Final[dict[str, Callable[[Fields], WeightFormat]]] = {
    "quark": read_quark,
    "torchao": read_torchao,
    "hqq": read_hqq,
    "mlx": read_mlx,
    "aqlm": read_aqlm,
    "bitnet": read_bitnet,
    "exl3": read_exl3,
}
"""Name of a method -> what reads its section of a config."""
