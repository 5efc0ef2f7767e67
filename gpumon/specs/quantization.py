"""The `quantization_config` of a Hugging Face checkpoint -> how its weights are stored and multiplied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.fields import FieldError, Fields, RefusedError, json_text
from gpumon.specs.layers import ATTENTION, EXPERTS, HEAD, INDEXER, MLP, SHARED, STATE
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.weight_format import LINEAR, WeightFormat, WeightStorage, integer_bytes, quantised_linear

_LAYER_NUMBER: Final = re.compile(r"(?:layers|blocks|h)\.(\d+)(?:\.|\*|$)")
"""The number of a layer in the name of one of its modules."""
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
)
"""Lists of the modules that stay wide."""
_PART_WORDS: Final = (
    (("norm", "router", "mlp.gate.", "moe.gate", "shared_expert_gate"), ""),
    (("lm_head", "output_layer"), HEAD),
    (("indexer",), INDEXER),
    (("linear_attn", "mamba", "mixer.in_proj", "mixer.out_proj", "mixer.conv"), STATE),
    (("shared_expert", "shared_mlp"), SHARED),
    (("experts",), EXPERTS),
    (("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"), ATTENTION),
    (
        (
            "gate_proj",
            "up_proj",
            "down_proj",
            "(gate|up",
            "gate_up",
            "mlp*",
            "mlp.*",
            ".mlp$",
            "ffn",
            "feed_forward",
            "fc1",
            "fc2",
        ),
        MLP,
    ),
)
"""Substrings of module names, and of patterns for them with `$` behind -> part; the first match counts.

The part "" is never quantised.
"""
_NOT_QUANTISED: Final = ("vision", "visual", "audio", "mtp", "projector", "patch_merge", "embed_tokens", "eh_proj")
"""Words of modules that are no part of the language model's layers."""


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


def weight_format(
    config: Mapping[str, object], base: Precision, layers: Mapping[str, int], expert_format: str = ""
) -> WeightFormat:
    """Storage of the weights that `config` (the `quantization_config` object) describes.

    `base` is the checkpoint's own 16-bit type, `layers` how many layers have each part. Modules that are named one by
    one (`quantized_layers`, targets, lists of what is left out) count by the share of the part's layers that they name.
    `expert_format`: the config's own word for its experts (DeepSeek-V4's `expert_dtype`). RefusedError names a
    method or field that is not known.
    """
    try:
        fields = Fields(config, where="quantization_config")
        read_method = _reader_of_method(fields)
        weights = read_method(fields)
        named_storage = [*_targeted_modules(fields), *_modules_of_table(fields)]
        ignored = fields.items(*_IGNORED_LISTS) or []
        if expert_format:
            experts = _format_of_word(fields, "expert_dtype", expert_format)
            if weights.storage_of(EXPERTS).precision is Precision.FP8:
                # Activations are quantised for the whole checkpoint: FP8 x FP4 in DeepGEMM's kernels.
                experts = experts._replace(activations=Precision.FP8)
            named_storage.append((EXPERTS, experts))
    except ValueError as error:
        raise RefusedError(str(error), getattr(error, "key", "")) from None
    parts = _with_named_modules(dict(weights.parts), named_storage, base, layers)
    wide = WeightStorage(base, BYTES_PER_ELEMENT[base])
    for part, share in _shares_of_parts([str(pattern) for pattern in ignored], layers).items():
        if part in parts:
            parts[part] = _mix_formats({wide: share, parts[part]: 1.0 - share})
    narrow_parts = {part: stored for part, stored in parts.items() if stored != wide}
    return msgspec.structs.replace(weights, base=base, parts=narrow_parts)


def as_saved(config: Mapping[str, object]) -> Mapping[str, object]:
    """`config` with what its files hold beside what an engine reads.

    GPTQ and AutoRound save zero points of symmetric weights too (`qzeros`); kernels leave them out.
    """
    method = str(config.get("quant_method")).lower().replace("_", "-")
    if "gptq" in method or "auto-round" in method:
        return {**config, "zero_point": True}
    return config


def _mix_formats(shares: Mapping[WeightStorage, float]) -> WeightStorage:
    """The format of the largest share, with the mean of the bytes."""
    most = max(shares, key=lambda stored: shares[stored])
    mean = sum(stored.bytes_per_weight * share for stored, share in shares.items())
    return most._replace(bytes_per_weight=mean)


def _with_named_modules(
    parts: dict[str, WeightStorage], named: list[tuple[str, WeightStorage]], base: Precision, layers: Mapping[str, int]
) -> dict[str, WeightStorage]:
    """The parts with what the checkpoint says of single modules."""
    by_format: dict[WeightStorage, list[str]] = {}
    for name, stored in named:
        by_format.setdefault(stored, []).append(name)
    shares: dict[str, dict[WeightStorage, float]] = {}
    for stored, names in by_format.items():
        for part, share in _shares_of_parts(names, layers).items():
            shares.setdefault(part, {})[stored] = share
    wide = WeightStorage(base, BYTES_PER_ELEMENT[base])
    for part, formats in shares.items():
        covered = sum(formats.values())
        scaled = {stored: share / max(1.0, covered) for stored, share in formats.items()}
        rest = parts.get(part, wide)
        scaled[rest] = scaled.get(rest, 0.0) + max(0.0, 1.0 - covered)
        parts[part] = _mix_formats(scaled)
    return parts


def _unnamed_method(fields: Fields) -> str:
    """The method of a file without its name, as ModelOpt and llm-compressor write them; empty where it is neither's."""
    if fields.has("quant_algo"):
        return "modelopt"
    if fields.has("config_groups"):
        return "compressed-tensors"
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
    bits = fields.integer("bits", "w_bit", "wbits", low=2, high=8)
    if bits not in _INTEGER_FORMATS:
        raise fields.error("bits", f"{bits} is not 2, 3, 4, 5, 6 or 8")
    group = fields.integer("group_size", "q_group_size", default=128, low=-1)
    per_weight = integer_bytes(bits, group, fields.flag("zero_point", default=not fields.flag("sym")))
    stored = WeightStorage(_INTEGER_FORMATS[bits], per_weight, weight_only=True)
    parts: Sequence[str] = LINEAR
    if fields.flag("lm_head"):
        parts = (*LINEAR, HEAD)
    return WeightFormat(dict.fromkeys(parts, stored))


def _read_bitsandbytes(fields: Fields) -> WeightFormat:
    """The format of bitsandbytes: 8 bit, or NF4."""
    if fields.flag("load_in_8bit", "_load_in_8bit"):
        return quantised_linear(Precision.INT8)
    # NF4 blocks of 64 with a 4-byte scale each; double quantisation brings that to 0.127 bit per weight.
    if fields.flag("bnb_4bit_use_double_quant"):
        scales = 0.127 / 8.0
    else:
        scales = 4.0 / 64.0
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
    targeted = []
    for group in _read_groups(groups):
        for target in group.targets:
            targeted.append((target, group.stored))
    return targeted


class _Group(NamedTuple):
    """A group of `config_groups`: modules of one format."""

    targets: list[str]
    """Names of its modules; none: all linear layers."""
    stored: WeightStorage


def _read_groups(groups: Mapping[str, object]) -> list[_Group]:
    """The groups of compressed-tensors. Raises FieldError."""
    read_groups = []
    for name, group in groups.items():
        entries = None
        if isinstance(group, dict):
            entries = group.get("targets")
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
            precision = Precision.NVFP4
            if size == 32:  # NVFP4 has groups of 16
                precision = Precision.MXFP4
            activations = {8: Precision.FP8, 4: precision}.get(input_bits)
            return WeightStorage(precision, BYTES_PER_ELEMENT[precision], weight_only, activations)
    elif bits in _INTEGER_FORMATS:
        per_weight = integer_bytes(bits, size, not scheme.flag("symmetric", default=True))
        return WeightStorage(_INTEGER_FORMATS[bits], per_weight, weight_only)
    raise scheme.error("num_bits", f"{bits} of type {json_text(scheme.text('type'))} is not known")


def _shares_of_parts(names: Iterable[str], layers: Mapping[str, int]) -> dict[str, float]:
    """Part -> the share of its layers that these names or patterns speak of. The patterns are never run."""
    layer_count = max(layers.values(), default=0)
    layers_by_part: dict[str, set[str]] = {}
    for name in names:
        if any(word in name for word in _NOT_QUANTISED):
            continue
        layer = _LAYER_NUMBER.search(name)
        # Six digits: the number comes from outside, and no model has so many layers.
        if layer is not None and int(layer[1][:6]) >= layer_count:
            continue  # of a draft head
        number = ""  # all layers
        if layer is not None:
            number = layer[1]
        for part in _parts_named(name, in_layer=layer is not None):
            layers_by_part.setdefault(part, set()).add(number)
    shares = {}
    for part, numbers in layers_by_part.items():
        if "" in numbers:
            shares[part] = 1.0
        else:
            shares[part] = min(1.0, len(numbers) / max(1, layers.get(part, layer_count)))
    return shares


def _parts_named(name: str, *, in_layer: bool) -> Sequence[str]:
    """The parts that a name speaks of: one, or all linear ones where it names a whole layer."""
    part = part_of(name)
    if part:
        return (part,)
    if in_layer and _is_whole_layer(name):
        return LINEAR
    return ()


def _is_whole_layer(name: str) -> bool:
    """Whether a name ends with the number of a layer, with or without a pattern for all in it."""
    return not name.rstrip(".*").rpartition(".")[2].strip("0123456789")


def part_of(name: str) -> str:
    """The part of a model that a module's name speaks of; empty where it is none that is quantised."""
    name_with_end = f"{name}$"
    for words, part in _PART_WORDS:
        if any(word in name_with_end for word in words):
            return part
    return ""


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
}
"""Name of a method -> what reads its section of a config."""
