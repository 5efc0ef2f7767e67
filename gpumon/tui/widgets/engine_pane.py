"""Pane 2: the serving engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpumon.readings.snapshot import Snapshot
from gpumon.tui import engine_table
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import unseen
from gpumon.tui.widgets.pane import Pane, wrapped


class EnginePane(Pane):
    """One row per engine."""

    KEY: ClassVar[str] = "2"
    TITLE: ClassVar[str] = "engines"

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._snapshot = snapshot
        self.update()

    def note(self) -> str:
        """Columns that need a wider screen."""
        if self._snapshot is None or not self._snapshot.engines:
            return ""
        return unseen(engine_table.left_out(self.size.width), self.note_room)

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is an engine."""
        return (engine_table.head(width),) if self._snapshot is not None and self._snapshot.engines else ()

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """A row per engine, or how to get one."""
        if self._snapshot is None:
            return wrapped("starting …", width, "muted")
        if not self._snapshot.engines:
            return wrapped(
                "no engine: add --endpoint URL (or [[endpoint]] in the config) to see tokens/s, MFU and MBU",
                width,
                "muted",
                most=2,
            )
        return [engine_table.row(engine, width) for engine in self._snapshot.engines]
