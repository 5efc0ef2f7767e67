"""Pane 1: the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gpumon.readings.format import period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui import gpu_table
from gpumon.tui.charts.raster import spark
from gpumon.tui.charts.series import Series, column_seconds
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import fitting, unseen
from gpumon.tui.widgets.pane import Pane, wrapped

_DRIVER: Final = ("nvml", "gpumon")
"""Sources of faults that say why there is no GPU."""
_LEAST_SPARK: Final = 20


class GpuPane(Pane):
    """One row per GPU; a very wide screen adds each GPU's own busy history."""

    KEY: ClassVar[str] = "1"
    TITLE: ClassVar[str] = "gpus"

    def __init__(self, palette: Palette, history: History) -> None:
        super().__init__(palette)
        self._history = history
        self._snapshot: Snapshot | None = None
        self._sparks: dict[int, Series] = {}
        self._spark_size = (0, 0.0)

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._snapshot = snapshot
        self.update()

    def note(self) -> str:
        """Columns that need a wider screen."""
        if self._snapshot is None or not self._snapshot.gpus:
            return ""
        return unseen(gpu_table.left_out(self.size.width), self.note_room)

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is a GPU."""
        if self._snapshot is None or not self._snapshot.gpus:
            return ()
        head = gpu_table.head(width)
        room = self._spark_room(width)
        if room >= _LEAST_SPARK:
            head = (*head, (f"  busy, last {period(room * column_seconds(room, self._snapshot.interval_s))}", "muted"))
        return (head,)

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """A row per GPU, or why there is none."""
        snapshot = self._snapshot
        if snapshot is None:
            return wrapped("starting: waiting for the driver's first answer …", width, "muted")
        if not snapshot.gpus:
            return wrapped(_no_gpu(snapshot), width, "muted", most=2)
        room = self._spark_room(width)
        rows = [gpu_table.row(gpu, width) for gpu in snapshot.gpus]
        if room < _LEAST_SPARK:
            return rows
        return [
            (*row, ("  ", "text"), (self._spark(gpu, snapshot, room), "busy"))
            for row, gpu in zip(rows, snapshot.gpus, strict=True)
        ]

    def _spark_room(self, width: int) -> int:
        return (
            width - gpu_table.BASE - sum(c.gap + c.width for c in fitting(gpu_table.EXTRA, width - gpu_table.BASE)) - 3
        )

    def _spark(self, gpu: Gpu, snapshot: Snapshot, room: int) -> str:
        if gpu.parent_uuid:  # the history has the whole GPU only
            return ""
        column_s = column_seconds(room, snapshot.interval_s)
        if self._spark_size != (room, column_s):
            self._spark_size = (room, column_s)
            self._sparks.clear()
        series = self._sparks.get(gpu.index)
        if series is None:
            series = self._sparks[gpu.index] = Series(self._history, f"busy:{gpu.index}", room, column_s, 1)
        return spark(series.values(int(snapshot.wall_s // column_s), snapshot.wall_s))


def _no_gpu(snapshot: Snapshot) -> str:
    """Why there is no GPU, as far as a fault says so."""
    why = next((fault.text for fault in snapshot.faults if fault.source in _DRIVER), "")
    return f"no GPU found: {why}" if why else "no GPU: this host's GPUs are not read"
