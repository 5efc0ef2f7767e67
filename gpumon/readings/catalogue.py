"""Which rows of the catalogue are those of a record's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpumon.figures.engine import BACKEND, ENGINE, RANK
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, HOST_COSTS, SELF
from gpumon.figures.model import MODEL
from gpumon.figures.process import PROCESS
from gpumon.readings.flat import flat_fields
from gpumon.readings.frame import GpuProcess, HostReading
from gpumon.readings.snapshot import Backend, Engine, Gpu, HostCosts, RankLoad, Replicas, Self

NO_FIGURES: Final = Figures()
"""For an object without rows: the unit of its fields is all that is known, by the end of their names."""


def _figures_of_parts(record: type[msgspec.Struct], figures: Figures) -> dict[type[Any], Figures]:
    """The rows of the objects in a record by their type, with the fields as these objects have them: `p95`."""
    by_part: dict[type[Any], Figures] = {}
    for name, (_, field) in flat_fields(record).items():
        rows = [row for path, row in figures.items() if path.startswith(f"{name}.")]
        if rows and field.type not in by_part:
            own = (msgspec.structs.replace(row, field=row.field.partition(".")[2]) for row in rows)
            by_part[field.type] = Figures(*own)
    return by_part


FIGURES_OF_THINGS: Final[Mapping[type[Any], Figures]] = {
    Gpu: GPU,
    GpuProcess: PROCESS,
    Engine: ENGINE,
    RankLoad: RANK,
    Backend: BACKEND,
    Replicas: MODEL,
    HostReading: HOST,
    HostCosts: HOST_COSTS,
    Self: SELF,
}
"""Record of a thing -> the rows of its fields."""
FIGURES_BY_RECORD: Final[Mapping[type[Any], Figures]] = {**_figures_of_parts(Engine, ENGINE), **FIGURES_OF_THINGS}
"""The same, and that of each object in an engine: of objects of one type, such as quantiles, the rows of the first."""
