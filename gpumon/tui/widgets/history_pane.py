"""Pane 3: the charts of the last minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.charts import Charts
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.pane import Pane, wrapped


class HistoryPane(Pane):
    """Curves under one time axis, or sparks where there are few lines."""

    KEY: ClassVar[str] = "3"
    TITLE: ClassVar[str] = "history"

    def __init__(self, palette: Palette, history: History) -> None:
        super().__init__(palette)
        self._history = history
        self._snapshot: Snapshot | None = None
        self._charts: Charts | None = None
        self._built: tuple[int, int, float, bool] = (0, 0, 0.0, False)

    def show(self, snapshot: Snapshot) -> None:
        """Paint the history up to a snapshot."""
        self._snapshot = snapshot
        self.update()

    def note(self) -> str:
        """The time axis in words, and what found no place."""
        if self._charts is None:
            return ""
        left_out = self._charts.left_out
        how = "heighten" if self.zoomed else f"keys {self.KEY} z"
        return (f"{left_out} more: {how} · " if left_out else "") + self._charts.span

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The charts."""
        if self._snapshot is None:
            return wrapped("starting …", width, "muted")
        if height < 1:
            return ()
        wanted = (width, height, self._snapshot.interval_s, self.zoomed)
        if self._charts is None or self._built != wanted:
            self._built = wanted
            self._charts = Charts(self._history, *wanted, blocks=self.palette.ascii)
        return self._charts.rows(self._snapshot.wall_s)
