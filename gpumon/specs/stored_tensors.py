"""The tensors of a checkpoint's files, by the headers of these, beside the list of a model's matrices."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from gpumon.specs.fields import RefusedError
from gpumon.specs.module_rules import NOT_THE_LAYERS
from gpumon.specs.modules import HEAD, NUMBER, TABLES, ModuleKind
from gpumon.specs.weight_format import StoredKind, StoredWeights, WeightFormat, WeightStorage

TOLERANCE: Final = 0.01
"""Share by which the bytes of a module in the files may differ from those of the list. A choice: biases are below."""
_WORTH_SAYING: Final = 0.001
"""Share of all bytes below which a difference is not named. A choice."""
_LEAST_WIDE_BITS: Final = 15.0
"""Bits of a weight from which on it is not quantised: the widest quantised one is Q8 with 8.5."""
_IN_LAYER: Final = re.compile(r"(?P<path>(?:.*?\.)?(?:layers?|blocks|h)\.)(?P<layer>\d{1,6})\.(?P<rest>.+)")
"""Name of a tensor in a layer."""
_EXPERT: Final = re.compile(r"(experts)\.\d{1,6}(?=\.)")
"""The number of an expert in such a name."""
_STACKED_SUFFIX: Final = re.compile(r"_(?:blocks|scales|bias|weight|weight_scale|weight_scale_inv|packed)$")
"""End of the name of a tensor of all experts of a layer (gpt-oss: `gate_up_proj_blocks`)."""
UNPACKED: Final = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1}
"""Type of a tensor that has an element for each weight -> bytes of one."""
TABLE_WORDS: Final = frozenset(
    ("embed_tokens", "wte", "word_embeddings", "embed", "embeddings", "tok_embeddings", "embed_in", "tokens_embed")
)
HEAD_WORDS: Final = frozenset(("lm_head", "output_layer", "embed_out", "head", "output"))
"""Last words of the names of look-up tables and of LM heads."""


NOT_READ: Final = ".g_idx"
"""End of the name of GPTQ's order of the inputs, which kernels leave out unless it is of activations."""


class _Sum:
    """Bytes and weights of some tensors together."""

    def __init__(self) -> None:
        self.bytes = 0.0
        self.weights = 0.0
        """Elements of tensors that have one for each weight; of packed ones the number is not known."""
        self.is_packed = False

    def add(self, other: _Sum) -> None:
        """Count another sum in this one."""
        self.bytes += other.bytes
        self.weights += other.weights
        self.is_packed = self.is_packed or other.is_packed


class TensorKind(NamedTuple):
    """Tensors of one name, type and shape in all layers of a stack, and in all experts of these."""

    path: str
    """Before the number of the layer; empty outside of layers."""
    name: str
    """Below the layer, or the whole name; `{}` stands for the number of an expert."""
    dtype: str
    shape: tuple[int, ...]


class StoredTensors:
    """All tensors of a checkpoint, those that differ in layer or expert alone together."""

    def __init__(self) -> None:
        self._bytes: dict[TensorKind, dict[int, float]] = {}
        self._counts: dict[TensorKind, dict[int, int]] = {}

    def add(self, name: str, dtype: str, shape: tuple[int, ...], size: float) -> None:
        """Count a tensor of so many bytes; a causal mask of tokens x tokens (GPT-2, GPT-NeoX) is none."""
        if len(shape) == 4 and shape[:2] == (1, 1):
            return
        in_layer = _IN_LAYER.match(name)
        if in_layer is None:
            kind = TensorKind("", name, dtype, shape)
            layer = 0
        else:
            rest = _EXPERT.sub(rf"\1.{NUMBER}", in_layer["rest"], count=1)
            kind = TensorKind(in_layer["path"], rest, dtype, shape)
            layer = int(in_layer["layer"])
        sizes = self._bytes.setdefault(kind, {})
        sizes[layer] = sizes.get(layer, 0.0) + size
        counts = self._counts.setdefault(kind, {})
        counts[layer] = counts.get(layer, 0) + 1

    @property
    def kinds(self) -> Iterable[TensorKind]:
        """All kinds of tensors."""
        return self._bytes

    def bytes_in(self, kind: TensorKind, layers: int) -> float:
        """Bytes of a kind in the first so many layers."""
        return sum(size for layer, size in self._bytes[kind].items() if layer < layers)

    def count_in(self, kind: TensorKind, layers: int) -> int:
        """Number of tensors of a kind in the first so many layers."""
        return sum(count for layer, count in self._counts[kind].items() if layer < layers)

    def count_of_layer(self, kind: TensorKind, layer: int) -> int:
        """Number of tensors of a kind in one layer."""
        return self._counts[kind].get(layer, 0)

    def layers_of(self, kind: TensorKind) -> set[int]:
        """Numbers of the layers that have such a tensor."""
        return set(self._bytes[kind])

    def bytes_by_type(self) -> dict[str, float]:
        """Bytes of all tensors by their type."""
        sizes: dict[str, float] = {}
        for kind, by_layer in self._bytes.items():
            sizes[kind.dtype] = sizes.get(kind.dtype, 0.0) + sum(by_layer.values())
        return sizes

    def layer_count(self) -> int:
        """Number of layers of the language model, those behind it that draft tokens included."""
        path = self.main_path()
        layers = [layer for kind, by_layer in self._bytes.items() if path and kind.path == path for layer in by_layer]
        return max(layers, default=-1) + 1

    def has_head(self) -> bool:
        """Whether there is an LM head."""
        return any(not kind.path and _last_word(kind) in HEAD_WORDS for kind in self._bytes)

    def main_path(self) -> str:
        """The path of the language model's layers: that of most bytes whose words are of no encoder or draft.

        Beside a decoder, what is called an encoder is one (ChatGLM has its decoder below such a name).
        """
        sizes: dict[str, float] = {}
        for kind, by_layer in self._bytes.items():
            if kind.path and not is_beside(kind.path):
                sizes[kind.path] = sizes.get(kind.path, 0.0) + sum(by_layer.values())
        decoders = [path for path in sizes if "decoder." in path]
        return max(decoders or sizes, key=lambda path: sizes[path], default="")


def is_beside(name: str) -> bool:
    """Whether a name is of an encoder, a projector or a draft head, and not of the language model."""
    return any(word in name for word in NOT_THE_LAYERS if word != "embed_tokens")


def module_of(kind: TensorKind) -> str:
    """Name of the module that a tensor is of: `self_attn.q_proj` of `self_attn.q_proj.weight_scale`."""
    return _STACKED_SUFFIX.sub("", kind.name) if _STACKED_SUFFIX.search(kind.name) else kind.name.rpartition(".")[0]


def compare(
    read: StoredWeights, saved: StoredWeights, tensors: StoredTensors, layers: int, weights: WeightFormat
) -> tuple[list[StoredKind], tuple[str, ...]]:
    """The modules with the bytes that the files hold of them, where these are not those of the list; and notes on the
    modules that differ, with both figures.

    `read` is what an engine reads in the format `weights`, `saved` what the files should hold for it. Weights of 32 bit
    are cast to the format of what is not quantised. RefusedError names a module of which the files have another number
    of weights, that they lack, or that the list does; and one that is narrow though the config says nothing of it.
    """
    found = _FoundModules(saved, tensors, layers, weights.wide)
    total = saved.total_bytes
    # Where all bytes together agree, what does not is the names: those of a family's own, or of another release.
    agrees = abs(found.total_bytes - total) <= TOLERANCE * total
    if not agrees:
        found.refuse_unknown(total)
    kinds = list(read.kinds)
    notes: dict[str, float] = {}
    for group, held in found.groups():
        expected = sum(saved.kinds[number].stored_bytes for number in group)
        difference = abs(held.bytes - expected)
        if difference <= TOLERANCE * expected:
            continue
        name = saved.kinds[group[0]].kind.name
        params = sum(saved.kinds[number].kind.stored_params for number in group)
        if not held.is_packed and abs(held.weights - params) > TOLERANCE * params:
            if agrees or difference <= _WORTH_SAYING * total:
                continue
            raise _refusal(
                f"{name} has {params / 1e6:,.1f}e6 weights by config.json, {held.weights / 1e6:,.1f}e6 in the files"
            )
        bits = _checked_bits(name, held.bytes, params, weights)
        for number in group:
            kinds[number] = _with_bytes(kinds[number], held.bytes / expected, bits, weights)
        if difference > _WORTH_SAYING * total:
            notes[f"{name} {held.bytes / 1e9:.3f} GB in the files, {expected / 1e9:.3f} by config.json"] = difference
    return kinds, tuple(sorted(notes, key=lambda note: -notes[note]))


def _checked_bits(name: str, held_bytes: float, params: float, weights: WeightFormat) -> float:
    """Bits per weight of a module in the files. RefusedError where it is narrow and the config says nothing of it."""
    bits = 8.0 * held_bytes / params
    if bits < _LEAST_WIDE_BITS and weights.narrowest.wide:
        raise _refusal(f"{name} has {bits:.1f} bits per weight in the files, and no field says how it is quantised")
    return bits


def _with_bytes(stored: StoredKind, factor: float, bits: float, weights: WeightFormat) -> StoredKind:
    """A kind with so many times its bytes, in the format that a weight of so many bits has."""
    counts: dict[WeightStorage, int] = {}
    for storage, count in stored.counts.items():
        scaled = storage._replace(
            bytes_per_weight=storage.bytes_per_weight * factor, bytes_per_matrix=storage.bytes_per_matrix * factor
        )
        if bits >= _LEAST_WIDE_BITS and not storage.wide:
            scaled = weights.wide._replace(bytes_per_weight=bits / 8.0)
        elif bits < _LEAST_WIDE_BITS and storage.wide:
            scaled = weights.narrowest._replace(bytes_per_weight=bits / 8.0, bytes_per_matrix=0.0)
        counts[scaled] = counts.get(scaled, 0) + count
    return StoredKind(stored.kind, counts)


def _refusal(text: str) -> RefusedError:
    """The error that the files speak against the config."""
    return RefusedError(
        f"config.json: {text}: the architecture or the format is not the one that is known here",
        "config.json: the size of the weights",
    )


class _FoundModules:
    """The tensors of the language model, by the modules of a list that they are of."""

    def __init__(self, saved: StoredWeights, tensors: StoredTensors, layers: int, wide: WeightStorage) -> None:
        self._kinds = [stored.kind for stored in saved.kinds]
        self._saved = saved
        self._wide = wide
        self._sums: dict[tuple[int, ...], _Sum] = {}
        self._unknown: dict[str, _Sum] = {}
        self._numbers_by_path = self._index()
        main_path = tensors.main_path()
        has_table = any(_last_word(kind) in TABLE_WORDS for kind in tensors.kinds if not kind.path)
        for kind in tensors.kinds:
            if is_beside(kind.path or kind.name) or kind.name.endswith(NOT_READ):
                continue
            if kind.path and kind.path != main_path:
                continue
            self._put(kind, self._sum_of(kind, tensors, layers), has_table=has_table)

    def _index(self) -> dict[str, tuple[int, ...]]:
        """Path of a module -> places in the list of the kinds that it is, or is made of."""
        numbers: dict[str, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            for path in kind.paths():
                numbers.setdefault(path, []).append(number)
        return {path: tuple(places) for path, places in numbers.items()}

    def _sum_of(self, kind: TensorKind, tensors: StoredTensors, layers: int) -> _Sum:
        """The sum over the tensors of a kind in the layers of the model: those behind them draft tokens."""
        held = _Sum()
        held.bytes = tensors.bytes_in(kind, layers)
        is_weight = kind.name.endswith(".weight") or "." not in kind.name or kind.name.endswith("_proj")
        if kind.dtype not in UNPACKED:
            held.is_packed = True
        elif is_weight and len(kind.shape) > 1:
            held.weights = float(math.prod(kind.shape) * tensors.count_in(kind, layers))
            if kind.dtype == "F32":
                held.bytes = held.weights * self._wide.bytes_per_weight  # cast when it is loaded
        return held

    def _put(self, kind: TensorKind, held: _Sum, *, has_table: bool) -> None:
        """Count a sum where it belongs."""
        numbers = self._numbers_of(kind, has_table=has_table)
        if numbers is None:
            return
        if numbers:
            self._sums.setdefault(numbers, _Sum()).add(held)
        elif len(kind.shape) > 1:
            self._unknown.setdefault(module_of(kind), _Sum()).add(held)

    def _numbers_of(self, kind: TensorKind, *, has_table: bool) -> tuple[int, ...] | None:
        """Places of the kinds that a tensor is of; () where the list has none, None for a copy that is not read."""
        if not kind.path:
            return self._outside_numbers(kind, has_table=has_table)
        path = _STACKED_SUFFIX.sub("", kind.name)
        while path:
            if path in self._numbers_by_path:
                return self._numbers_by_path[path]
            path = path.rpartition(".")[0]
        return ()

    def _outside_numbers(self, kind: TensorKind, *, has_table: bool) -> tuple[int, ...] | None:
        """The same outside of the layers. A tied head is the table, and may be there once more."""
        word = _last_word(kind)
        heads = self._numbers_where(lambda own, _: own.part == HEAD)
        tables = self._numbers_where(lambda own, own_word: own.part == TABLES and own_word in TABLE_WORDS)
        if word in TABLE_WORDS:
            return tables or heads
        if word in HEAD_WORDS:
            return heads if tables or not has_table else None
        return self._numbers_where(lambda own, own_word: not own.layers and own_word == word)

    def _numbers_where(self, is_meant: Callable[[ModuleKind, str], bool]) -> tuple[int, ...]:
        """Places of the kinds that are meant, by the kind and the last word of its name."""
        kinds = enumerate(self._kinds)
        return tuple(number for number, own in kinds if is_meant(own, own.name.rpartition(".")[2]))

    def groups(self) -> Iterator[tuple[tuple[int, ...], _Sum]]:
        """Kinds that the files have together, and their sums: those that share a module are one group."""
        group_of = list(range(len(self._kinds)))
        for numbers in self._sums:
            joined = {group_of[number] for number in numbers}
            least = min(joined)
            group_of = [least if group in joined else group for group in group_of]
        held: dict[int, _Sum] = {}
        for numbers, one in self._sums.items():
            held.setdefault(group_of[numbers[0]], _Sum()).add(one)
        for group, all_held in held.items():
            yield tuple(number for number, own in enumerate(group_of) if own == group), all_held

    @property
    def total_bytes(self) -> float:
        """Bytes of all tensors of the language model that are matrices, or that belong to one."""
        return sum(held.bytes for held in (*self._sums.values(), *self._unknown.values()))

    def refuse_unknown(self, total: float) -> None:
        """Raise RefusedError where list and files have large modules that the other one lacks.

        Where these are of the same size together, only their names differ.
        """
        grouped = {number for group, _ in self.groups() for number in group}
        missing: dict[str, float] = {}
        for number, stored in enumerate(self._saved.kinds):
            if number not in grouped:
                missing[stored.kind.name] = missing.get(stored.kind.name, 0.0) + stored.stored_bytes
        missing_bytes = sum(missing.values())
        unknown_bytes = sum(one.bytes for one in self._unknown.values())
        if abs(missing_bytes - unknown_bytes) <= TOLERANCE * total:
            return
        if unknown_bytes > missing_bytes:
            name = max(self._unknown, key=lambda module: self._unknown[module].bytes)
            size = self._unknown[name].bytes
            raise _refusal(f"the files have {size / 1e9:.3f} GB of {name}, which the config does not speak of")
        name = max(missing, key=lambda module: missing[module])
        raise _refusal(f"{name} has {missing[name] / 1e9:.3f} GB by config.json, and the files have none")


def _last_word(kind: TensorKind) -> str:
    """Last word of the name of a tensor's module."""
    return module_of(kind).rpartition(".")[2]
