"""Pane 4: what does not work, and what limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from gpumon.readings.format import left
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.pane import Pane


class FaultPane(Pane):
    """Faults first, then verdicts; one line each."""

    KEY: ClassVar[str] = "4"
    TITLE: ClassVar[str] = "faults"

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._snapshot = snapshot
        self.update()

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """A line per fault and verdict."""
        snapshot = self._snapshot
        if snapshot is None:
            return ((("   starting …", "muted"),),)
        rows: list[Row] = [
            (
                (" ! ", "warn"),
                (left(fault.source, 12) + " ", "text"),
                (f"{_clock(fault.since)} ", "muted"),
                (fault.text, "text"),
            )
            for fault in snapshot.faults
        ]
        rows += [
            (
                (" ! ", "warn"),
                (f"{left(verdict.limit, 12)} ", "text"),
                (f"{verdict.scope}: {' '.join(verdict.evidence)}: {verdict.action}", "text"),
            )
            for verdict in snapshot.verdicts
        ]
        return rows or ((("   no faults", "muted"),),)


def _clock(rfc3339: str) -> str:
    """The local time of day of an RFC 3339 time; the text itself where it is none."""
    try:
        return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return left(rfc3339, 8)
