"""The `quantization_config` of a Hugging Face checkpoint -> how its weights are stored and multiplied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.fields import FieldError, Fields, RefusedError, json_text
from gpumon.specs.further_formats import FURTHER_METHODS
from gpumon.specs.module_rules import module_rule
from gpumon.specs.modules import EXPERTS, HEAD
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.weight_format import LINEAR, StorageRule, WeightFormat, WeightStorage, integer_bytes, quantised_linear

_INTEGER_FORMATS: Final = {
    8: Precision.INT8,
    6: Precision.INT8,
    5: Precision.INT8,
    4: Precision.INT4,
    3: Precision.INT4,
    2: Precision.INT4,
}
"""Bits of integer weights -> format of their arithmetic."""
_IGNORED_LISTS: Final = (
    "ignore",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude_modules",
    "llm_int8_skip_modules",
    "exclude",
    "skip_modules",
    "linear_weights_not_to_quantize",
)
"""Lists of the modules that stay wide."""
_STATE_INPUTS: Final = re.compile(r"(?<=linear_attn)\.in_proj_[a-z]+$")
"""End of the name of one of the input projections of a state layer."""


class _ModelOptWord(NamedTuple):
    """A format in NVIDIA ModelOpt's words."""

    prefix: str
    """Beginning of `quant_algo`."""
    precision: Precision
    bytes_per_weight: float = 0.0
    """Bytes of a weight with its scales; 0: those of the format."""
    weight_only: bool = False
    """Whether activations stay wide."""


_MODELOPT_WORDS: Final = (
    _ModelOptWord("MXFP8", Precision.FP8, bytes_per_weight=1.03125),
    _ModelOptWord("FP8", Precision.FP8),
    _ModelOptWord("NVFP4", Precision.NVFP4),
    _ModelOptWord("W4A16_NVFP4", Precision.NVFP4, weight_only=True),
    _ModelOptWord("MXFP4", Precision.MXFP4),
    _ModelOptWord("FP4", Precision.MXFP4),
    _ModelOptWord("W4A16_AWQ", Precision.INT4, weight_only=True),
    _ModelOptWord("W4A8_AWQ", Precision.INT4),
    _ModelOptWord("W8A8", Precision.INT8),
    _ModelOptWord("W8A16", Precision.INT8, weight_only=True),
)
"""Formats by the beginning of their words; the first that fits counts."""
_KV_WORDS: Final = (("FP8", Precision.FP8), ("NVFP4", Precision.NVFP4), ("INT8", Precision.INT8))
"""Beginning of ModelOpt's word for the KV cache -> its format."""
_KV_FORMATS_BY_BITS: Final = {8: Precision.FP8, 4: Precision.NVFP4}
"""`num_bits` of compressed-tensors' scheme for the KV cache -> its format; 16 bits are the weights' own."""


def weight_format(config: Mapping[str, object], base: Precision, expert_format: str = "") -> WeightFormat:
    """Storage of the weights that `config` (the `quantization_config` object) describes.

    `base` is the checkpoint's own 16-bit type. Modules that are named one by one (`quantized_layers`, targets, lists of
    what is left out) are rules of it. `expert_format`: the config's own word for its experts (DeepSeek-V4's
    `expert_dtype`). RefusedError names a method or field that is not known.
    """
    try:
        fields = Fields(config, where="quantization_config")
        read_method = _reader_of_method(fields)
        weights = read_method(fields)
        overrides = _overridden_modules(fields)
        # Engines take the first group that names a module, and the last rule counts here.
        named_storage = [*reversed(_targeted_modules(fields)), *_modules_of_table(fields)]
        ignored = _ignored_modules(fields)
        rules = [*weights.rules]
        rules += [StorageRule(module_rule(name), stored) for name, stored in named_storage]
        rules += [StorageRule(module_rule(name.removesuffix(".weight")), None) for name in ignored]
        rules += overrides
        parts = dict(weights.parts)
        if expert_format:
            experts = _format_of_word(fields, "expert_dtype", expert_format)
            if weights.storage_of(EXPERTS).precision is Precision.FP8:
                # Activations are quantised for the whole checkpoint: FP8 x FP4 in DeepGEMM's kernels.
                experts = experts._replace(activations=Precision.FP8)
            parts[EXPERTS] = experts
    except ValueError as error:
        raise RefusedError(str(error), getattr(error, "key", "")) from None
    return msgspec.structs.replace(weights, base=base, parts=parts, rules=tuple(rules))


def _ignored_modules(fields: Fields) -> list[str]:
    """Names and patterns of the modules that stay wide.

    AWQ scales the projections that share an input together: where its list keeps one of a state layer, the checkpoints
    that were counted (a 35B-A3B of 21.6 GB) have the layer's others wide, too. The lists of other methods are of single
    modules.
    """
    ignored = [str(pattern) for pattern in fields.items(*_IGNORED_LISTS) or []]
    if not fields.text("quant_method").lower().startswith("awq"):
        return ignored
    return list(dict.fromkeys(_STATE_INPUTS.sub("", name) for name in ignored))


def as_saved(config: Mapping[str, object]) -> Mapping[str, object]:
    """`config` with what its files hold beside what an engine reads.

    GPTQ and AutoRound save zero points of symmetric weights too (`qzeros`); kernels leave them out.
    """
    method = str(config.get("quant_method")).lower().replace("_", "-")
    if "gptq" in method or "auto-round" in method:
        return {**config, "zero_point": True}
    return config


def _unnamed_method(fields: Fields) -> str:
    """The method of a file without its name, as ModelOpt, llm-compressor and MLX write them; else empty."""
    if fields.has("quant_algo"):
        return "modelopt"
    if fields.has("config_groups"):
        return "compressed-tensors"
    if fields.has("bits") and fields.has("group_size"):
        return "mlx"
    return ""


def _reader_of_method(fields: Fields) -> Callable[[Fields], WeightFormat]:
    """The function that reads the tables of a method. Raises FieldError for one that is not known."""
    method = fields.text("quant_method").lower().replace("_", "-")
    if not method:
        method = _unnamed_method(fields)
    reader = _METHODS.get(method)
    if reader is None:
        methods = ", ".join(sorted(_METHODS))
        raise fields.error("quant_method", f"{json_text(method)} is not known (known: {methods})")
    return reader


def _read_fp8(_fields: Fields) -> WeightFormat:
    """The format of FP8 checkpoints: all linear layers."""
    return quantised_linear(Precision.FP8)


def _read_integer_groups(fields: Fields) -> WeightFormat:
    """The format of AWQ, GPTQ and AutoRound: integers in groups, widened before the arithmetic."""
    parts: Sequence[str] = (*LINEAR, HEAD) if fields.flag("lm_head") else LINEAR
    return WeightFormat(dict.fromkeys(parts, _integer_storage(fields)))


def _integer_storage(fields: Fields) -> WeightStorage:
    """Integers in groups, by the fields of AWQ, GPTQ or AutoRound. Raises FieldError."""
    bits = fields.integer("bits", "w_bit", "wbits", low=2, high=8)
    if bits not in _INTEGER_FORMATS:
        raise fields.error("bits", f"{bits} is not 2, 3, 4, 5, 6 or 8")
    group = fields.integer("group_size", "q_group_size", default=128, low=-1)
    per_weight = integer_bytes(bits, group, fields.flag("zero_point", default=not fields.flag("sym")))
    return WeightStorage(_INTEGER_FORMATS[bits], per_weight, weight_only=True)


def _overridden_modules(fields: Fields) -> list[StorageRule]:
    """Rules of GPTQModel's `dynamic` and of AutoRound's `extra_config` for single modules. Raises FieldError.

    The keys of `dynamic` are regular expressions, after `-:` for modules that are left out and after `+:` for others
    (GPTQModel's README, "Dynamic quantization"): the first that matches counts. Those of `extra_config` are names or
    regular expressions: a name counts more.
    """
    overrides = []
    for name, entry in reversed((fields.table("dynamic") or {}).items()):
        expression = f"re:{name.removeprefix('+:').removeprefix('-:')}"
        if name.startswith("-:"):
            overrides.append(StorageRule(module_rule(expression), None))
        else:
            overrides += _override(fields, expression, entry)
    of_names: list[StorageRule] = []
    for name, entry in reversed((fields.table("extra_config") or {}).items()):
        for override in _override(fields, name, entry):
            (of_names if override.modules.expression is None else overrides).append(override)
    return overrides + of_names


def _override(fields: Fields, name: str, entry: object) -> list[StorageRule]:
    """The rule for the modules of a pattern; none without bits or groups of their own. Raises FieldError."""
    if not isinstance(entry, dict):
        raise fields.error("dynamic or extra_config", f"of {json_text(name)}: {json_text(entry)} is not an object")
    own = Fields({**_plain_fields(fields), **entry}, where="quantization_config")
    if "bits" not in entry and "group_size" not in entry:
        return []
    is_wide = "bits" in entry and own.integer("bits", low=2, high=32) >= 16
    return [StorageRule(module_rule(name), None if is_wide else _integer_storage(own))]


def _plain_fields(fields: Fields) -> dict[str, object]:
    """The settings of the whole checkpoint that hold for a module, too, where its own do not say otherwise."""
    plain = {name: fields.raw(name) for name in ("bits", "group_size", "sym", "zero_point")}
    return {name: value for name, value in plain.items() if value is not None}


def _read_bitsandbytes(fields: Fields) -> WeightFormat:
    """The format of bitsandbytes: 8 bit, or NF4."""
    if fields.flag("load_in_8bit", "_load_in_8bit"):
        return quantised_linear(Precision.INT8)
    # NF4 blocks of 64 with a 4-byte scale each; double quantisation brings that to 0.127 bit per weight.
    scales = 0.127 / 8.0 if fields.flag("bnb_4bit_use_double_quant") else 4.0 / 64.0
    return quantised_linear(Precision.INT4, weight_only=True, bytes_per_weight=0.5 + scales)


def _read_modelopt(fields: Fields) -> WeightFormat:
    """The format of NVIDIA ModelOpt, which may name one for each module instead."""
    algorithm = fields.text("quant_algo")
    kv_precision = _kv_precision(fields)
    if algorithm.upper() == "MIXED_PRECISION":
        if not fields.table("quantized_layers"):
            raise fields.error("quantized_layers", "is missing or empty, and quant_algo is MIXED_PRECISION")
        return WeightFormat(kv_precision=kv_precision)
    stored = _format_of_word(fields, "quant_algo", algorithm)
    return WeightFormat(dict.fromkeys(LINEAR, stored), kv_precision=kv_precision)


def _format_of_word(fields: Fields, name: str, word: str) -> WeightStorage:
    """A format in ModelOpt's words, or as DeepSeek's configs say it."""
    for known in _MODELOPT_WORDS:
        if word.upper().startswith(known.prefix):
            bytes_per_weight = known.bytes_per_weight or BYTES_PER_ELEMENT[known.precision]
            return WeightStorage(known.precision, bytes_per_weight, known.weight_only)
    raise fields.error(name, f"{json_text(word)} is not known")


def _modules_of_table(fields: Fields) -> list[tuple[str, WeightStorage]]:
    """ModelOpt's table of modules with a format each."""
    named_words = []
    for name, entry in (fields.table("quantized_layers") or {}).items():
        if not isinstance(entry, dict):
            raise fields.error("quantized_layers", f"of {json_text(name)}: {json_text(entry)} is not an object")
        algorithm = Fields(entry, where=f"quantization_config.quantized_layers.{name}").text("quant_algo")
        if algorithm:
            named_words.append((name, _format_of_word(fields, "quant_algo", algorithm)))
    return named_words


def _read_compressed_tensors(fields: Fields) -> WeightFormat:
    """The format of compressed-tensors: the narrowest of the groups that are of all linear layers."""
    kv_precision = _kv_precision(fields)
    groups = fields.table("config_groups")
    if fields.text("format") == "dense" or (kv_precision is not None and groups == {}):
        return WeightFormat(kv_precision=kv_precision)
    if not groups:
        raise fields.error("config_groups", "is missing or empty")
    everywhere = [group.stored for group in _read_groups(groups) if not group.targets]
    parts = {}
    if everywhere:
        parts = dict.fromkeys(LINEAR, min(everywhere, key=lambda stored: stored.bytes_per_weight))
    return WeightFormat(parts, kv_precision=kv_precision)


def _targeted_modules(fields: Fields) -> list[tuple[str, WeightStorage]]:
    """Modules that a group of compressed-tensors names instead of all linear ones."""
    if fields.has("quantized_layers"):
        return []  # ModelOpt says the same there, once more
    groups = fields.table("config_groups") or {}
    return [(target, group.stored) for group in _read_groups(groups) for target in group.targets]


class _Group(NamedTuple):
    """A group of `config_groups`: modules of one format."""

    targets: list[str]
    """Names of its modules; none: all linear layers."""
    stored: WeightStorage


def _read_groups(groups: Mapping[str, object]) -> list[_Group]:
    """The groups of compressed-tensors. Raises FieldError."""
    read_groups = []
    for name, group in groups.items():
        entries = group.get("targets") if isinstance(group, dict) else None
        targets = []
        if isinstance(entries, list) and "Linear" not in entries:
            targets = [str(entry) for entry in entries]
        read_groups.append(_Group(targets, _format_of_group(name, group)))
    return read_groups


def _kv_precision(fields: Fields) -> Precision | None:
    """Format of the KV cache: by ModelOpt's word, else by the bits of compressed-tensors' scheme.

    None where neither asks for one: then the engine chooses.
    """
    word = fields.text("kv_cache_quant_algo")
    by_bits = None
    scheme = fields.raw("kv_cache_scheme")
    if isinstance(scheme, str):  # some files have ModelOpt's word there
        word = word or scheme
    elif scheme is not None:
        table = fields.table("kv_cache_scheme") or {}
        bits = Fields(table, where="kv_cache_scheme").integer("num_bits", default=16, high=16)
        by_bits = _KV_FORMATS_BY_BITS.get(bits)
    for beginning, precision in _KV_WORDS:
        if word.upper().startswith(beginning):
            return precision
    return by_bits


def _format_of_group(name: str, group: object) -> WeightStorage:
    """The format of one group of compressed-tensors. Raises FieldError."""
    where = f"quantization_config.config_groups.{name}"
    if not isinstance(group, dict):
        raise FieldError(f"{where}: {json_text(group)} is not an object", where)
    fields = Fields(group, where=where)
    weights = fields.table("weights")
    if weights is None:
        raise fields.error("weights", "is missing")
    scheme = Fields(weights, where=f"{where}.weights")
    bits = scheme.integer("num_bits", low=2, high=16)
    inputs = fields.table("input_activations")
    weight_only = inputs is None
    size = scheme.integer("group_size", default=-1, low=-1)
    if scheme.text("type") == "float":
        input_bits = 16
        if inputs:
            input_bits = Fields(inputs, where=f"{where}.input_activations").integer("num_bits", default=16)
        if bits == 8:
            return WeightStorage(Precision.FP8, BYTES_PER_ELEMENT[Precision.FP8], weight_only)
        if bits == 4:
            precision = Precision.MXFP4 if size == 32 else Precision.NVFP4  # NVFP4 has groups of 16
            activations = {8: Precision.FP8, 4: precision}.get(input_bits)
            return WeightStorage(precision, BYTES_PER_ELEMENT[precision], weight_only, activations)
    elif bits in _INTEGER_FORMATS:
        per_weight = integer_bytes(bits, size, not scheme.flag("symmetric", default=True))
        return WeightStorage(_INTEGER_FORMATS[bits], per_weight, weight_only)
    raise scheme.error("num_bits", f"{bits} of type {json_text(scheme.text('type'))} is not known")


_METHODS: Final[dict[str, Callable[[Fields], WeightFormat]]] = {
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fp8,
    "compressed-tensors": _read_compressed_tensors,
    "awq": _read_integer_groups,
    "awq-marlin": _read_integer_groups,
    "gptq": _read_integer_groups,
    "gptq-marlin": _read_integer_groups,
    "auto-round": _read_integer_groups,
    "intel/auto-round": _read_integer_groups,
    # OpenAI's gpt-oss: only the experts are narrow, attention, router, embeddings and head stay BF16.
    "mxfp4": lambda _: quantised_linear(Precision.MXFP4).only((EXPERTS,)),
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
    "bitsandbytes": _read_bitsandbytes,
    **FURTHER_METHODS,
}
"""Name of a method -> what reads its section of a config."""
