"""The figures that have a series in the history, by the names of their series."""

from __future__ import annotations

from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Charted, Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.merge import Merge

CHARTED: Final[dict[str, tuple[Figure, Charted]]] = {
    row.charted.series: (row, row.charted) for row in (*GPU.values(), *ENGINE.values()) if row.charted is not None
}
"""Name of a series -> the row of its figure, and the way it is charted."""
MEAN_SERIES: Final = {series: row for series, (row, _) in CHARTED.items() if row.merge is Merge.MEAN}
"""Series of shares, whose chart of all GPUs is the mean of those in use -> its row."""
WORST_SERIES: Final = {series: row for series, (row, charted) in CHARTED.items() if charted.of_all}
"""Series whose chart of all things shows the worst of them -> its row."""
SUM_SERIES: Final = {
    series: row for series, (row, _) in CHARTED.items() if row.merge is Merge.SUM and series not in WORST_SERIES
}
"""Series of amounts, whose chart of all things is their sum -> its row."""
SERIES_OF: Final = {row.field.partition(".")[0]: series for series, (row, _) in CHARTED.items()}
"""Field of a GPU or an engine, without its part (`ttft_s`) -> the series that shows it."""
