"""Which rows of the catalogue are those of a record's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.figures.engine import BACKEND, ENGINE, RANK
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, HOST_COSTS, SELF
from gpumon.figures.model import MODEL
from gpumon.figures.process import PROCESS
from gpumon.readings.snapshot import Backend, Engine, Gpu, Host, HostCosts, Process, RankLoad, Replicas, Self

FIGURES_BY_RECORD: Final[Mapping[type[Any], Figures]] = {
    Gpu: GPU,
    Process: PROCESS,
    Engine: ENGINE,
    RankLoad: RANK,
    Backend: BACKEND,
    Replicas: MODEL,
    Host: HOST,
    HostCosts: HOST_COSTS,
    Self: SELF,
}
"""Record -> the rows of its fields."""
NO_FIGURES: Final = Figures()
"""For an object inside a record: the unit of its fields is all that is known by their names alone."""
