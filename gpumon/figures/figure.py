"""The row of a figure, and what the rows of all things share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpumon.figures.merge import Merge
from gpumon.figures.unit import Unit

HIGHER: Final = "higher"
LOWER: Final = "lower"
MOMENT: Final = "at the refresh"
NOW: Final = "last refresh"
NOW_OR_TEN: Final = "last refresh; in rows beside an MBU mean of 10 s"
TEN: Final = "mean of 10 s"
MINUTE: Final = "last 60 s"
MINUTES: Final = "last 2 min"
ROOM_OF_HISTORY: Final = 62
"""Cells that the chart in a GPU's row keeps before there is a column more."""
ROOM_OF_COMMAND: Final = 32
"""Cells that the command of a process keeps before there is a column more."""
ON_EVERY_SCREEN: Final = 100
"""Place before which a column is on every screen, and in every printed table of these things."""


class Exported(msgspec.Struct, frozen=True):
    """The series of a figure for Prometheus."""

    sample: str
    """Name on the wire, without the prefix of all."""
    help: str = ""
    """Empty where a row before it has the same name."""
    labels: dict[str, str] = {}
    """Labels with the same value at all times, which tell it from other figures of that name."""
    zero_is_unknown: bool = False
    """Whether it is an int whose 0 says that it is not known."""
    with_reason: bool = False
    """Whether the reason is exported where it is missing."""


class Column(msgspec.Struct, frozen=True):
    """The column of a figure in the table of its things."""

    name: str
    """Name that hides it, behind that of its pane: `gpus.limit`."""
    place: int
    """Place among the columns of its table, from left to right; see `ON_EVERY_SCREEN`."""
    width: int = 0
    """Cells of its text behind a blank, without the mark of its level; 0: the table draws it, as it has a bar or a mark
    of its own."""
    keep: int = 0
    """Cells that must stay free to its right for it to be shown."""
    sorts: bool = False
    """Whether rows can be sorted by it."""
    sum_of: tuple[str, ...] = ()
    """Fields on the page of a thing that it is the sum of."""


class Charted(msgspec.Struct, frozen=True):
    """The series of a figure in the history, as charts draw it."""

    series: str
    """Name of the series: `kv`; that of one engine is `kv@KEY`, and that of one GPU `sm:3`."""
    tone: str
    """Tone of its curve; `ok`: its level colours it, and this is calm."""
    name: str = ""
    """Name on charts, where it is not the figure's."""
    of_all: str = ""
    """Which thing the chart of all of them shows, behind the name: `, worst`."""
    alone: str = ""
    """Name on the chart of one thing, where it is another one."""
    share_of: str = ""
    """Field of all there is, which the series is the share of; empty: it is the figure as it is."""
    mean_s: float = 0.0
    """The figure beside the chart is the mean of so many seconds, as in rows; 0: the newest one."""


class Figure(msgspec.Struct, frozen=True):
    """One figure: a field of a thing's record, and all that is known of it."""

    field: str
    """Path of the field as it is flat in JSON, with a dot for one of an object in it: `ttft_s.p95`."""
    unit: Unit
    short: str = ""
    """Header of a narrow column; empty where no table has it."""
    name: str = ""
    """Name on charts and detail pages, and in sentences."""
    window: str = ""
    """Time that a value covers."""
    meaning: str = ""
    """Meaning in a sentence, for the glossary."""
    listed: bool = False
    """Whether the glossary has it; of the quantiles it has the p95 alone."""
    shown_with: tuple[str, ...] = ()
    """Fields that are shown under the same name."""
    derived: bool = False
    """Whether it is worked out where it is shown: no record has such a field."""
    most: float | None = None
    """The largest number that can be true, in the field's unit; None: that of the unit. The smallest is 0."""
    within: str = ""
    """Another field: `times` its number is a bound, too. The margin is for a mean over another moment than the limit's.
    """
    times: float = 1.0
    digits: int = 3
    """Digits that say something."""
    column: Column | None = None
    """None: the table of its things has no column of it."""
    in_rows: str = ""
    """Field with its mean over the window of MBU, which rows show in its place where there is one; empty: they show it
    as it is."""
    level: str = ""
    """Name of the level that colours it on the screen; empty where it has none. That of power is for a share of its
    limit, that of VRAM for a share of all."""
    charted: Charted | None = None
    """None: the history has no series of it."""
    counts: str = ""
    """Counter of an engine (`readings.quantities`) whose growth per second it is; empty for any other figure."""
    gauge: str = ""
    """Gauge of an engine (`readings.quantities`) whose newest value it is, all ranks together; empty for any other
    figure."""
    merge: Merge = Merge.OWN
    """How it is made of the figures of this name of several things: GPUs, engines, replicas of a model."""
    weight: str = ""
    """Field of the same thing that it is weighted with in a mean; empty: all weigh the same."""
    quotient_of: tuple[str, str] = ("", "")
    """The figures whose sums it is the quotient of, with `Merge.QUOTIENT`."""
    better: str = ""
    """Direction that is an improvement: `higher`, `lower`; empty where neither is."""
    compared: int = 0
    """Place among the figures that `gpumon compare` shows of its thing; 0: it has none there."""
    in_csv: bool = False
    """Whether `gpumon export` has it."""
    exported: Exported | None = None

    @property
    def flat_name(self) -> str:
        """Its name in CSV and in `gpumon compare`, which have no objects: `ttft_p95_s` is `ttft_s.p95`."""
        head, dot, part = self.field.partition(".")
        if head.endswith("_s"):
            return f"{head.removesuffix('_s')}_{part}_s" if dot else head
        return f"{head}_{part.removeprefix('low_')}" if dot else head

    @property
    def full_name(self) -> str:
        """Its name where no column tells its unit: `decode tok/s`."""
        return f"{self.name}{self.unit.per_name}"

    @property
    def text(self) -> str:
        """The words of the glossary for it, else of the exporter; empty if neither has any for it alone."""
        exported = self.exported
        alone = exported.help if exported is not None and not exported.labels else ""
        return self.meaning or alone

    @property
    def largest(self) -> float:
        """The largest number that can be true by itself."""
        return self.unit.most if self.most is None else self.most


def _by_column(rows: Iterable[Figure]) -> dict[str, Figure]:
    """Name of a column -> its row, from left to right."""
    columns = sorted((row.column.place, row.column.name, row) for row in rows if row.column is not None)
    return {name: row for _, name, row in columns}


class Figures(dict[str, Figure]):
    """The rows of a thing by their fields."""

    def __init__(self, *rows: Figure) -> None:
        super().__init__((row.field, row) for row in rows)
        if len(self) != len(rows):
            raise ValueError(f"two rows of one field: {sorted(row.field for row in rows)}")
        self.by_column: Final = _by_column(rows)
        """Name of a column -> its row, from left to right."""
        self.on_every_screen: Final = {
            name: row for name, row in self.by_column.items() if row.column and row.column.place < ON_EVERY_SCREEN
        }
        """The columns of them that every screen and every printed table of these things has."""
        self.compared: Final = tuple(sorted((row for row in rows if row.compared), key=lambda row: row.compared))
        """The rows of `gpumon compare`, in its order."""
        self.exported: Final = tuple((row.field, row.exported) for row in rows if row.exported is not None)
        """Path of each field that is exported, and its series."""
        self.with_reason: Final = tuple(field for field, exported in self.exported if exported.with_reason)
        """Paths of the fields whose reason is exported where they are missing."""
