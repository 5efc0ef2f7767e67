"""The figures that have a series in the history, by the names of their series."""

from __future__ import annotations

from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Charted, Figure
from gpumon.figures.gpu import GPU

CHARTED: Final[dict[str, tuple[Figure, Charted]]] = {
    row.charted.series: (row, row.charted) for row in (*GPU.values(), *ENGINE.values()) if row.charted is not None
}
"""Name of a series -> the row of its figure, and the way it is charted."""
