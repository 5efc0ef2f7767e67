"""The catalogue of LLMs: `llms.csv` -> LlmSpec by normalised model id."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

import msgspec

from gpumon.specs.left_out import COMPRESSED, INDEXER, LINEAR_ATTENTION, STATE_SPACE, STATE_UPDATE
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import SPARSE_TOP_K
from gpumon.specs.llm_names import llm_name
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LlmParts, WeightFormat, narrow, plain, with_weights

_LONGEST = 200
"""Characters of a name that are compared."""
_TELLING = 4
"""A word this long is found across dashes: shorter ones would be found by chance."""
_ALIKE = 0.6
"""From this likeness on a name is near without a word in common."""
_SHARED = 0.2
"""What a word in common adds to the likeness."""


class LlmRow(msgspec.Struct, frozen=True):
    """One row of the catalogue: its spec at the published precision, and its parameters by part."""

    name: str
    hf_id: str
    aliases: tuple[str, ...]
    spec: LlmSpec
    parts: LlmParts
    native: WeightFormat
    verified: bool
    note: str
    layers: int = 0
    """Layers of all kinds, those without attention or state too."""
    max_context: int = 0
    """Tokens, as published."""
    published: str = ""
    """Where its figures are from."""
    unusable: str = ""
    """Why the formulas can not use this row; empty where they can."""

    def stored_as(self, weights: WeightFormat, said: str) -> LlmSpec:
        """The row's spec with its weights in another format than the published one; `said` tells who says so."""
        if weights.precision is Precision.MXFP4 and self.parts.experts:
            weights = msgspec.structs.replace(weights, covers=("experts",))
        stored = with_weights(self.spec, self.parts, weights)
        return msgspec.structs.replace(
            stored, matmul_params=self.spec.matmul_params, source=f"{self.spec.source}, {said}"
        )


class LlmCatalogue(msgspec.Struct, frozen=True):
    """All rows, and the keys (`llm_names`) that lead to them."""

    rows: tuple[LlmRow, ...]
    by_key: dict[tuple[str, ...], int]

    def row(self, model_id: str) -> LlmRow | None:
        """The row of this model, whatever its quantisation; None where there is none. Never another size."""
        index = self.by_key.get(llm_name(model_id).key)
        return None if index is None else self.rows[index]

    def find(self, model_id: str) -> LlmSpec | None:
        """The spec of this model id, path or file name, its stored precision taken from the name where it tells."""
        row = self.row(model_id)
        if row is None or row.unusable:
            return None
        name = llm_name(model_id)
        return row.spec if name.weights is None else row.stored_as(name.weights, f"{name.hint} by its name")

    def search(self, words: Sequence[str]) -> tuple[LlmRow, ...]:
        """Rows in whose names each of the words occurs, whatever the case and the dashes; in catalogue order."""
        return tuple(row for row in self.rows if all(_named(word, row) for word in words))

    def nearest(self, model_id: str, most: int = 5) -> tuple[LlmRow, ...]:
        """Rows whose names are most like this one, the likest first; only those that share something with it."""
        key = llm_name(model_id[:_LONGEST]).key
        letters = " ".join(key)
        scored = []
        for place, row in enumerate(self.rows):
            own = llm_name(row.name).key
            shared = len(set(key) & set(own))
            alike = SequenceMatcher(None, letters, " ".join(own)).ratio()
            if shared or alike > _ALIKE:
                scored.append((-alike - _SHARED * shared, place, row))
        return tuple(row for _, _, row in sorted(scored, key=lambda each: each[:2])[:most])


def _named(word: str, row: LlmRow) -> bool:
    """Whether a name of the row has the word in it; a long one also where dashes stand elsewhere (`gptoss`)."""
    names = "\n".join((row.name, row.hf_id, *row.aliases)).lower()
    wanted = word[:_LONGEST].lower()
    letters = _letters(wanted)
    return wanted in names or (len(letters) >= _TELLING and letters in _letters(names))


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum() or letter in ".\n")


def parse_llms(text: str) -> LlmCatalogue:
    """Reads the catalogue; ValueError names the row and column of a bad cell, or a name that two rows claim."""
    rows: list[LlmRow] = []
    by_key: dict[tuple[str, ...], int] = {}
    for line, cells in enumerate(csv.DictReader(text.splitlines()), start=2):
        row = _row(_Cells(cells, line))
        rows.append(row)
        for name in {llm_name(each).key for each in (row.hf_id, row.name, *row.aliases) if each}:
            if by_key.setdefault(name, len(rows) - 1) != len(rows) - 1:
                raise ValueError(f"llms.csv line {line}: {row.name} has a name of {rows[by_key[name]].name}")
    return LlmCatalogue(tuple(rows), by_key)


class _Cells:
    """The cells of one row, as numbers, with errors that name line and column."""

    def __init__(self, cells: Mapping[str, str | None], line: int) -> None:
        self._cells = cells
        self._line = line

    def text(self, column: str) -> str:
        value = self._cells.get(column)
        if value is None:
            raise ValueError(f"llms.csv line {self._line}: column {column} is missing")
        return value.strip()

    def number(self, column: str) -> float:
        text = self.text(column)
        try:
            value = float(text or 0.0)
        except ValueError:
            value = -1.0
        if not 0.0 <= value < 1e15:
            raise ValueError(f"llms.csv line {self._line}: {column} {text!r} is not a positive number")
        return value

    def count(self, column: str) -> int:
        return int(self.number(column))


def _row(cells: _Cells) -> LlmRow:
    dtype = cells.text("native_dtype")
    native = _NATIVE.get(dtype)
    if native is None:
        raise ValueError(f"llms.csv: native_dtype {dtype!r} of {cells.text('name')} is not known")
    parts = _parts(cells)
    spec = _dimensions(cells)
    active = (cells.number("calc_active_b") or cells.number("params_active_b")) * 1e9
    spec = msgspec.structs.replace(with_weights(spec, parts, native), matmul_params=active)
    impossible = parts.attention < 0.0
    return LlmRow(
        name=cells.text("name"),
        hf_id=cells.text("hf_id"),
        aliases=tuple(each for each in cells.text("aliases").split(";") if each),
        spec=spec,
        parts=parts,
        native=native,
        verified=cells.text("verified") == "yes",
        note=cells.text("note"),
        layers=cells.count("layers"),
        max_context=cells.count("max_ctx"),
        published=cells.text("source"),
        unusable="its active parameters are not known"
        if not active
        else "the layout of its experts is not known"
        if impossible
        else "",
    )


def _parts(cells: _Cells) -> LlmParts:
    """Parameters by part; what is not an expert or a table stands under `attention`: the row has no finer split."""
    total = (cells.number("calc_total_b") or cells.number("params_total_b")) * 1e9
    table = cells.number("vocab") * cells.number("hidden")
    embedding = 0.0 if cells.text("tied_embeddings") == "yes" else table
    sparse = cells.number("layers") - cells.number("dense_layers")
    experts = cells.count("experts")
    matrices = cells.number("mlp_matrices") or 3.0
    expert = matrices * cells.number("hidden") * cells.number("moe_intermediate") * sparse if experts else 0.0
    return LlmParts(
        attention=total - table - embedding - experts * expert,
        mlp=0.0,
        head=table,
        embedding=embedding,
        expert=expert,
        experts=experts,
        experts_per_token=cells.count("top_k"),
    )


def _dimensions(cells: _Cells) -> LlmSpec:
    attention = cells.text("attn")
    verified = cells.text("verified") == "yes"
    full, windowed = cells.count("full_attn_layers"), cells.count("swa_layers")
    window = cells.count("swa_window")
    if attention == "MLA-DSA":
        full, windowed, window = 0, full, SPARSE_TOP_K
    full_elements = cells.count("kv_elems_per_token_full_layer")
    per_layer = 2 * cells.count("kv_heads") * cells.count("head_dim")
    mla = cells.count("kv_lora_rank") > 0
    return LlmSpec(
        name=cells.text("name"),
        source=f"catalogue row {cells.text('name')}" + ("" if verified else " (unverified)"),
        params=0.0,
        matmul_params=0.0,
        vocab=cells.count("vocab"),
        hidden=cells.count("hidden"),
        heads=cells.count("heads"),
        kv_heads=cells.count("kv_heads"),
        head_dim=cells.count("head_dim"),
        full_layers=full,
        window_layers=windowed,
        window=window,
        linear_layers=cells.count("linear_layers"),
        linear_state_elements=cells.number("linear_state_elems_per_seq"),
        kv_lora_rank=cells.count("kv_lora_rank"),
        rope_dim=cells.count("qk_rope_dim"),
        qk_head_dim=cells.count("qk_head_dim"),
        v_head_dim=cells.count("v_head_dim"),
        not_modelled=_left_out(cells, attention),
        full_kv_elements=0 if mla or full_elements == per_layer else full_elements,
    )


def _left_out(cells: _Cells, attention: str) -> tuple[str, ...]:
    """What the row names, and what follows from its kind of layers."""
    named = tuple(each for each in cells.text("left_out").split(";") if each)
    scanned = cells.number("calc_active_b") > 0.0
    return (*named, *(scan if scanned else note for part, note, scan in _NOTES if part in attention))


_NOTES: Final = (
    ("DSA", INDEXER, INDEXER),
    ("hybrid-GDN", LINEAR_ATTENTION, LINEAR_ATTENTION),
    ("hybrid-KDA", LINEAR_ATTENTION, LINEAR_ATTENTION),
    ("hybrid-Mamba2", STATE_SPACE, STATE_UPDATE),
    ("CSA", COMPRESSED, COMPRESSED),
)
"""Part of the kind of attention, what of it is left out where the parameters are not split, and where they are."""

_EXPERTS_ONLY = msgspec.structs.replace(narrow(Precision.MXFP4), covers=("experts",))
_NATIVE: Final[dict[str, WeightFormat]] = {
    "bf16": plain(Precision.BF16),
    "fp16": plain(Precision.FP16),
    "fp16/bf16": plain(Precision.BF16),
    "fp8": narrow(Precision.FP8),
    "fp8-block": narrow(Precision.FP8),
    # DeepSeek-V4: FP4 experts, the rest FP8; a part that is not an expert is a few per cent of it.
    "fp8/fp4": narrow(Precision.MXFP4),
    "mxfp4 experts + bf16": _EXPERTS_ONLY,
}
