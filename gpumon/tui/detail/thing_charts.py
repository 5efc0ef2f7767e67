"""Charts on the page of a thing: the series that a verdict rests on, and those of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.points import AT
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.charts.curves import CurveTexts, chart_of
from gpumon.tui.charts.grid import Charts, Style
from gpumon.tui.line import Row

MOST_CHARTS: Final = 6
_OF_ENGINE: Final = ("waiting", "kv", "ttft", "decode")
"""Series of an engine's page: what waits, whether there is room, what users feel, and what it gives."""
_SPARKS_BELOW: Final = 32
"""Lines of a page below which its charts are sparks of one line each, so that what limits the engine is in view."""
_LINES_OF_CHART: Final = 4
_TWO_ACROSS_WIDTH: Final = 76
"""Cells from which two charts stand side by side."""


class ChartPlan(NamedTuple):
    """How charts share their lines."""

    height: int
    """Lines of all of them, and of their axis."""
    least: int
    """Lines of each."""
    across: int
    """Charts side by side."""
    axis: bool = True


class ThingCharts:
    """Charts of some series, made anew only where they or their place are others."""

    def __init__(self) -> None:
        self._request: tuple[object, ...] = ()
        """All that the charts were made of."""
        self._charts: Charts | None = None

    def rows(
        self,
        keys: Sequence[str],
        history: History,
        snapshot: Snapshot,
        moment: str,
        width: int,
        style: Style,
        plan_of: Callable[[int], ChartPlan],
    ) -> Sequence[Row]:
        """The charts up to a snapshot, whose time the axis calls `moment`; none where no series has points. `plan_of`:
        the plan for a number of charts."""
        known_keys = set(history.keys())
        known = tuple(key for key in keys if key in known_keys)
        made = [chart_of(key) for key in known]
        charts = [chart for chart in made if chart is not None][:MOST_CHARTS]
        if not charts:
            return ()
        plan = plan_of(len(charts))
        request = (known, width, style, plan, history)
        if self._charts is None or request != self._request:
            self._request = request
            self._charts = Charts(
                history, charts, width, plan.height, style, least=plan.least, across=plan.across, axis=plan.axis
            )
        texts = CurveTexts(history)
        texts.read(snapshot)
        return [(), *self._charts.rows(snapshot.wall_s, texts, edge=moment)]


def engine_keys(key: str) -> list[str]:
    """Keys of the series on the page of an engine."""
    return [f"{series}{AT}{key}" for series in _OF_ENGINE]


def engine_plan(width: int, page_lines: int) -> Callable[[int], ChartPlan]:
    """The plan of an engine's charts on a page of so many cells and lines."""
    across = 2 if width >= _TWO_ACROSS_WIDTH else 1

    def plan(number: int) -> ChartPlan:
        lines = -(-number // across)
        if page_lines < _SPARKS_BELOW:
            return ChartPlan(height=lines, least=1, across=across, axis=False)
        return ChartPlan(height=lines * _LINES_OF_CHART + 1, least=_LINES_OF_CHART, across=across)

    return plan
