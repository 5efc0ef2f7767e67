"""The catalogue of LLMs: `llms.csv` -> LlmSpec by normalised model id."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import SPARSE_TOP_K
from gpumon.specs.llm_names import llm_name
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LlmParts, WeightFormat, narrow, plain, with_weights


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
    unusable: str = ""
    """Why the formulas can not use this row; empty where they can."""

    def stored_as(self, weights: WeightFormat, hint: str) -> LlmSpec:
        """The row's spec with its weights in another format than the published one."""
        if weights.precision is Precision.MXFP4 and self.parts.experts:
            weights = msgspec.structs.replace(weights, covers=("experts",))
        stored = with_weights(self.spec, self.parts, weights)
        return msgspec.structs.replace(
            stored, matmul_params=self.spec.matmul_params, source=f"{self.spec.source}, {hint} by its name"
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
        return row.spec if name.weights is None else row.stored_as(name.weights, name.hint)


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
    expert = 3.0 * cells.number("hidden") * cells.number("moe_intermediate") * sparse if experts else 0.0
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
        not_modelled=tuple(note for part, note in _NOTES if part in attention),
        full_kv_elements=0 if mla or full_elements == per_layer else full_elements,
    )


_NOTES: Final = (
    ("DSA", "indexer of the sparse attention"),
    ("hybrid-GDN", "linear attention"),
    ("hybrid-KDA", "linear attention"),
    ("hybrid-Mamba2", "state-space layers"),
    ("CSA", "compressed attention"),
)

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
