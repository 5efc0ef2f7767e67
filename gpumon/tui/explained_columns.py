"""Columns of the tables whose cells are explained by the page of the row's thing: the cell cursor stands on these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Column, Figure, Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.process import PROCESS
from gpumon.figures.unit import SECONDS

WASTE_FIELD: Final = "wasted_gpus"
"""No field of a page: an engine's wasted GPUs follow from MFU, MBU and the number of its GPUs."""
TOKENS_GOAL_FIELD: Final = "itl_goal"
"""One of two fields: an engine has the share within the ITL goal of its requests or of its tokens."""
GOAL_OF_COLUMN: Final[Mapping[str, str]] = {"ttft_ok": "ttft_p95_ms", "itl_ok": "itl_p95_ms"}
"""Column of a share within a goal -> setting of the goal in `[goals]`."""


def _fields_on_page(row: Figure, column: Column) -> tuple[str, ...]:
    """The fields of a page that explain a column; a quantile or a bound is explained with its latency or goal."""
    if row.in_rows:
        return row.in_rows, row.field
    return column.sum_of or (row.field.partition(".")[0],)


def _fields_by_column(rows: Figures) -> dict[str, tuple[str, ...]]:
    """Column of a table -> the fields that explain it."""
    return {name: _fields_on_page(row, row.column) for name, row in rows.by_column.items() if row.column is not None}


_FIELDS_OF_ENGINES: Final = _fields_by_column(ENGINE)
FIELDS_BY_THING: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "gpu": {**_fields_by_column(GPU), "link": ("pcie_generation", "pcie_width")},
    "engine": _FIELDS_OF_ENGINES,
    "replicas": _FIELDS_OF_ENGINES,
    "process": _fields_by_column(PROCESS),
}
"""Kind of thing -> column of its table -> fields of its page."""
QUANTILES: Final[Mapping[str, str]] = {
    name: row.field.partition(".")[2] for name, row in ENGINE.by_column.items() if row.unit is SECONDS
}
"""Column of a latency -> its quantile."""
SUMMED_COLUMNS: Final = frozenset(
    name for name, row in GPU.by_column.items() if row.column is not None and row.column.sum_of
)
"""Columns that add their fields."""
_ENGINE_FACTS: Final[Mapping[str, str]] = {
    "model": "model",
    "full_model": "model",
    "gpus": "GPUs",
    "precision": "arithmetic in",
    "version": "server",
    "url": "server",
}
FACTS_BY_THING: Final[Mapping[str, Mapping[str, str]]] = {
    "gpu": {"name": "name"},
    "engine": _ENGINE_FACTS,
    "replicas": _ENGINE_FACTS,
    "process": {
        "user": "user",
        "engine": "engine",
        "container": "container",
        "pod": "pod",
        "type": "type",
        "time": "runs for",
    },
}
"""Kind of thing -> column of words in its table -> name of the fact on its page."""
FIRST_FIGURE: Final = "mfu"
"""Column that the cell cursor begins at, where it is in view."""


def explained_columns(kind: str) -> frozenset[str]:
    """The columns of a kind of thing that the cell cursor may stand on."""
    return frozenset((*FIELDS_BY_THING.get(kind, ()), *FACTS_BY_THING.get(kind, ())))
