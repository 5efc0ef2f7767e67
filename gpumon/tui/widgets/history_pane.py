"""Pane 3: the charts of the last minutes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from gpumon.readings.format import period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.charts.areas import Areas
from gpumon.tui.charts.curves import SPARKS
from gpumon.tui.charts.sparks import Sparks
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.pane import Pane, wrapped

_AREAS_FROM: Final = 10
"""Lines from which there are areas and not sparks."""
_KEYS: Final = frozenset(curve.key for curve in SPARKS)
_SETTLED_S: Final = 30.0
"""Seconds after which a series without a value is not just late."""


class HistoryPane(Pane):
    """Areas under one time axis, or sparks where there are few lines."""

    KEY: ClassVar[str] = "3"
    TITLE: ClassVar[str] = "history"

    def __init__(self, palette: Palette, history: History) -> None:
        super().__init__(palette)
        self._history = history
        self._snapshot: Snapshot | None = None
        self._charts: Areas | Sparks | None = None
        self._built: tuple[int, int, float, bool, frozenset[str]] = (0, 0, 0.0, False, frozenset())
        self._seen: set[str] = set()
        self._first_s = math.inf

    def show(self, snapshot: Snapshot) -> None:
        """Paint the history up to a snapshot."""
        self._snapshot = snapshot
        self.update()

    def note(self) -> str:
        """The time axis in words, and what found no place."""
        charts = self._charts
        if charts is None:
            return ""
        how = "taller window" if self.zoomed else f"keys {self.KEY} z"
        span = f"last {period(charts.columns * charts.column_s)} · {period(charts.column_s)} a column"
        return f"{charts.left_out} more: {how} · {span}" if charts.left_out else span

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The charts."""
        if self._snapshot is None:
            return wrapped("starting …", width, "muted")
        if height < 1:
            return ()
        empty = self._empty(self._snapshot)
        wanted = (width, height, self._snapshot.interval_s, self.zoomed, empty)
        if self._charts is None or self._built != wanted:
            self._built = wanted
            self._charts = self._fitting(width, height, self._snapshot.interval_s, empty)
        return self._charts.rows(self._snapshot.wall_s)

    def _empty(self, snapshot: Snapshot) -> frozenset[str]:
        """Series that never had a value. With GPUs there is none at first: most figures come within seconds."""
        now_s = snapshot.wall_s
        self._first_s = min(self._first_s, now_s)
        self._seen |= {key for key in _KEYS - self._seen if not math.isnan(self._history.latest(key, now_s))}
        return frozenset() if snapshot.gpus and now_s < self._first_s + _SETTLED_S else _KEYS - self._seen

    def _fitting(self, width: int, height: int, interval_s: float, empty: Collection[str]) -> Areas | Sparks:
        if height < _AREAS_FROM:
            return Sparks(self._history, width, height, interval_s, empty)
        least = 2 if self.zoomed else 3
        return Areas(self._history, width, height, interval_s, blocks=self.palette.ascii, least=least, empty=empty)
