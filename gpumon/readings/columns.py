"""Columns of the tables of GPUs, engines and processes: the one place that has them all, from left to right.

Those of figures are in the rows of these (`figures`); here are the others, in their places among them. One with a bar
or a mark of its own is drawn by the table of its pane (`tui/gpu_table.py`, `tui/engine_table.py`,
`tui/process_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, Generic, TypeVar

import msgspec

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import ON_EVERY_SCREEN, ROOM_OF_COMMAND, ROOM_OF_HISTORY, Column, Figure, Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.process import PROCESS
from gpumon.figures.unit import SECONDS
from gpumon.readings.flat import getter
from gpumon.readings.format import engine_name, is_in_last_bucket, quantile, short, spans
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NO_UPPER_BOUND, NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu, Quantiles
from gpumon.readings.written import writer

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=msgspec.Struct)
_NAME_CELLS: Final = 12
"""Cells of the name of an engine."""


class TextColumn(msgspec.Struct, Generic[T], frozen=True):
    """A column of plain text in `width` cells, behind `gap` blanks."""

    name: str
    """Name that hides it, behind that of its pane: `engines.url`."""
    title: str
    width: int
    text: Callable[[T], str]
    is_left: bool = False
    """Whether it is flush left, as words are; figures are flush right."""
    gap: int = 1
    keep: int = 0
    """Cells that must stay free to its right for it to be shown."""
    fixed: bool = False
    """It cannot be hidden: a row is known by it."""
    value: Callable[[T], object] | None = None
    """The reading that `text` writes, where it is a figure: a column without one in any row is left out."""
    level: str = ""
    """Name of the level of that figure, whose mark takes a cell more; empty where it has none."""


class DrawnColumn(msgspec.Struct, frozen=True):
    """A column that the table of its pane draws."""

    name: str
    fixed: bool = False
    """It cannot be hidden: a row is known by it, or it is the state of a GPU."""


class PaneColumns(msgspec.Struct, Generic[T], frozen=True):
    """All columns of a pane."""

    pane: str
    base: Sequence[TextColumn[T] | DrawnColumn]
    """Columns of every screen."""
    extra: Sequence[TextColumn[T] | DrawnColumn]
    """Columns that a wider screen adds, in this order."""
    behind: Sequence[str] = ()
    """Names of what the pane adds to the right of them, which can be hidden, too."""

    def can_be_hidden(self) -> Iterator[str]:
        """The names of the columns that can be hidden, from left to right."""
        for column in (*self.base, *self.extra):
            if not column.fixed:
                yield column.name
        yield from self.behind


def _link(gpu: Gpu) -> str:
    """Generation and lanes of the PCIe link, as trained now: `5x16`."""
    generation = gpu.reading.pcie_generation
    lanes = gpu.reading.pcie_width
    if isinstance(generation, Missing):
        return short(generation)
    if isinstance(lanes, Missing):
        return short(lanes)
    return f"{generation:.0f}x{lanes:.0f}"


def other_quantile(quantiles: Quantiles, part: str) -> str:
    """Text of another quantile than the p95: `p50`, `p90` or `p99`."""
    high = NO_UPPER_BOUND if is_in_last_bucket(quantiles, part) else NOT_EXPOSED
    value: Reading = getattr(quantiles, part)
    return quantile(Quantiles(p95=value, p95_high=high, first_bound_s=quantiles.first_bound_s))


def _text_of(kind: type[RecordT], row: Figure) -> Callable[[RecordT], str]:
    """The text of a figure of a record; that of a p95 may be the mean, or the end of the first bucket."""
    if row.unit is not SECONDS:
        value_of = getter(kind, row.field)
        write = writer(row)
        return lambda record: write(value_of(record))
    latency, _, part = row.field.partition(".")
    quantiles_of = getter(kind, latency)
    if part == "p95":
        return lambda record: quantile(quantiles_of(record))
    return lambda record: other_quantile(quantiles_of(record), part)


def _column_of(kind: type[RecordT], row: Figure, column: Column) -> TextColumn[RecordT] | DrawnColumn:
    """The column of a figure; one without a width is drawn by the table."""
    if not column.width:
        return DrawnColumn(column.name)
    return TextColumn(
        column.name,
        row.short,
        column.width,
        _text_of(kind, row),
        keep=column.keep,
        value=getter(kind, row.field),
        level=row.level,
    )


def pane_columns(
    pane: str,
    kind: type[RecordT],
    rows: Figures,
    others: Mapping[int, TextColumn[RecordT] | DrawnColumn],
    behind: Sequence[str] = (),
) -> PaneColumns[RecordT]:
    """The columns of the figures of a thing, and others by their places among them.

    Raises ValueError where two columns have one place: one of them would not be shown.
    """
    placed = dict(others)
    for row in rows.values():
        if row.column is None:
            continue
        place = row.column.place
        if place in placed:
            taken = sorted({*others, *(other.column.place for other in rows.values() if other.column is not None)})
            columns = f"{placed[place].name} and {row.column.name}"
            raise ValueError(f"{pane}: columns {columns} have one place, {place}; taken are {taken}")
        placed[place] = _column_of(kind, row, row.column)
    in_order = sorted(placed.items(), key=itemgetter(0))
    return PaneColumns(
        pane,
        base=[column for place, column in in_order if place < ON_EVERY_SCREEN],
        extra=[column for place, column in in_order if place >= ON_EVERY_SCREEN],
        behind=behind,
    )


GPU_COLUMNS: Final = pane_columns(
    "gpus",
    Gpu,
    GPU,
    others={
        0: DrawnColumn("index", fixed=True),
        90: DrawnColumn("state", fixed=True),
        165: TextColumn(
            "engines",
            "engines",
            24,
            lambda gpu: " ".join(gpu.engines),
            is_left=True,
            gap=2,
            value=lambda gpu: gpu.engines or Missing(Reason.NO_ENGINE),
        ),
        220: TextColumn("link", "link", 5, _link, keep=ROOM_OF_HISTORY, value=lambda gpu: gpu.reading.pcie_generation),
        240: TextColumn(
            "name",
            "name",
            24,
            lambda gpu: gpu.reading.name.removeprefix("NVIDIA "),
            is_left=True,
            gap=2,
            keep=ROOM_OF_HISTORY,
        ),
    },
    behind=("history",),
)
"""Columns of the table of GPUs."""
ENGINE_COLUMNS: Final = pane_columns(
    "engines",
    Engine,
    ENGINE,
    others={
        0: TextColumn(
            "engine",
            "engine",
            _NAME_CELLS,
            lambda engine: engine_name(engine.name, _NAME_CELLS),
            is_left=True,
            fixed=True,
        ),
        10: DrawnColumn("model"),
        200: TextColumn(
            "gpus",
            "gpus",
            8,
            lambda engine: spans(engine.hardware.gpus) or engine.hardware.gpu_type,
            is_left=True,
            gap=2,
        ),
        220: TextColumn("precision", "runs in", 7, lambda engine: engine.efficiency.precision, is_left=True),
        230: DrawnColumn("full_model"),
        240: TextColumn("version", "version", 8, lambda engine: engine.version, is_left=True, gap=2),
        370: TextColumn("url", "url", 21, lambda engine: engine.url, is_left=True, gap=2),
    },
)
"""Columns of the table of engines."""


def _container(process: GpuProcess) -> str:
    """The container by its name, else its id; the start of its pod's uid where only that is known."""
    if process.container_name:
        return process.container_name
    if process.container or not process.pod:
        return process.container
    return f"pod {process.pod[:8]}"


def _pod(process: GpuProcess) -> str:
    """The pod by its name, else its uid; the Slurm job."""
    if process.job:
        return f"job {process.job}"
    return process.pod_name or process.pod


PROCESS_COLUMNS: Final = pane_columns(
    "processes",
    GpuProcess,
    PROCESS,
    others={
        0: TextColumn("pid", "pid", 7, lambda process: str(process.pid), fixed=True),
        10: TextColumn("user", "user", 9, lambda process: process.user, is_left=True),
        20: DrawnColumn("gpus"),
        50: TextColumn(
            "engine", "engine", _NAME_CELLS, lambda process: engine_name(process.engine, _NAME_CELLS), is_left=True
        ),
        130: DrawnColumn("time"),
        140: TextColumn("container", "container", 12, _container, is_left=True, keep=ROOM_OF_COMMAND),
        150: TextColumn("pod", "pod or job", 24, _pod, is_left=True, keep=ROOM_OF_COMMAND),
        160: TextColumn("type", "type", 8, lambda process: process.type, is_left=True, keep=ROOM_OF_COMMAND),
    },
    behind=("command",),
)
"""Columns of the table of processes."""
