"""The glossary: the figures that have words, of GPUs, then of engines. Help and docs/glossary.md are made from it."""

from __future__ import annotations

from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU

_PAGE: Final = """# Glossary

Every quantity has one name. Table headers use the short form; charts, detail pages and sentences use the name. JSON
fields keep their own names ([json.md](json.md)); the last column maps them. [figures.md](figures.md) has the formulas.

"Last refresh" is the time since the previous refresh (1 s by default); "at the refresh" is a state, not a mean. Windows
are at least two refresh intervals long.

| short | name | unit | window | meaning | JSON |
|---|---|---|---|---|---|
{terms}

## Units

| unit | meaning |
|---|---|
| `GiB` | 2^30 bytes: memory that is in use or installed, as the driver and the engines count it |
| `GB`, `TB` | 10^9 and 10^12 bytes: rates (`B/s`), disks, and sizing, as data sheets count |
| `98%` | a share, without a blank |
| `0.4ms`, `470ms`, `1.2s` | a latency, in ms below a second; with a blank in sentences: `470 ms`, `30 s`, `5 min` |
| `tok/s` | tokens per second: of `decode` where nothing else is said |
| `p50`, `p95`, `p99` | quantiles: 95% of the requests (or tokens) of the window took at most the p95 |
| `k`, `M`, `G`, `T` | 10^3, 10^6, 10^9, 10^12 |

## Other words

| word | meaning |
|---|---|
| engine | one server process of a model, such as vLLM; its `/metrics` page gives its figures |
| replicas | engines that serve the same model |
| rank | one data-parallel or tensor-parallel part of an engine |
| step | one forward pass of an engine |
| verdict | what limits a GPU or an engine, with the evidence and the first thing to do |
| level | how urgent a verdict is: critical, warning, note, ok |
| map of GPUs | each GPU at its measured memory bandwidth and tensor activity (`R`); the region says what limits it |
| ridge | the FLOP/byte at which peak FLOP/s and peak bandwidth are reached at once |
| roofline | the highest rate that peak FLOP/s and peak memory bandwidth allow |
"""


LISTED: Final = (
    *(("gpus", row) for row in GPU.values() if row.listed),
    *(("engines", row) for row in ENGINE.values() if row.listed),
)
"""List in the JSON of a snapshot, and a row with its words."""


def _first_of_each_name() -> tuple[Figure, ...]:
    """The rows without those whose name a row before them has: a GPU's MFU is known by the words of an engine's."""
    rows: dict[str, Figure] = {}
    for _, row in LISTED:
        rows.setdefault(row.name, row)
    return tuple(rows.values())


TERMS: Final = _first_of_each_name()
"""A row for each name."""


def row_of(things: str, field: str) -> Figure | None:
    """The row under whose name a field of `gpus` or `engines` is shown; None where the glossary has none."""
    for listed_things, row in LISTED:
        if listed_things == things and any(path.startswith(field) for path in (row.field, *row.shown_with)):
            return row
    return None


def json_paths(name: str) -> tuple[str, ...]:
    """Paths of the figures of this name in the JSON of a snapshot."""
    paths = []
    for things, row in LISTED:
        if row.name == name and not row.derived:
            paths += [f"{things}[].{field}" for field in (row.field, *row.shown_with)]
    return tuple(paths)


def glossary_page() -> str:
    """The text of docs/glossary.md."""
    lines = []
    for row in TERMS:
        fields = ", ".join(f"`{path}`" for path in json_paths(row.name)) or "-"
        lines.append(f"| `{row.short}` | {row.name} | {row.unit.symbol} | {row.window} | {row.meaning} | {fields} |")
    return _PAGE.format(terms="\n".join(lines))
