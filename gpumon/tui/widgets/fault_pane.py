"""Pane 4: what does not work, and what limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from gpumon.readings.format import cells, left
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.pane import Pane

_LEAST_TEXT: Final = 20
"""Cells of a text per line, however narrow the pane."""


class _Entry(NamedTuple):
    """What stands before a text, and the text."""

    before: tuple[Piece, ...]
    text: str


class FaultPane(Pane):
    """Faults first, then verdicts; one line each, and more where the pane has them to spare or is zoomed."""

    KEY: ClassVar[str] = "4"
    TITLE: ClassVar[str] = "faults"

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._snapshot: Snapshot | None = None
        self._cut = False

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._snapshot = snapshot
        self.update()

    def note(self) -> str:
        """How to read what is cut, unless the rule says so by itself."""
        if not self._cut or self.scrolls:
            return ""
        return "z: whole text" if self.has_focus else f"keys {self.KEY} z: whole text"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The faults and verdicts, each with as many lines as there are for it."""
        self._cut = False
        if self._snapshot is None:
            return ((("   starting …", "muted"),),)
        entries = _entries(self._snapshot)
        spare = max(0, height - len(entries))
        rows: list[Row] = []
        for entry in entries:
            indent = sum(cells(text) for text, _ in entry.before)
            lines = _folded(entry.text, max(_LEAST_TEXT, width - indent))
            if not self.zoomed and len(lines) > 1 + spare:
                lines = [*lines[:spare], " ".join(lines[spare:])]
                self._cut = True
            spare -= len(lines) - 1
            rows.append((*entry.before, (lines[0], "text")))
            rows += [((" " * indent + line, "text"),) for line in lines[1:]]
        return rows or ((("   no faults", "muted"),),)


def _entries(snapshot: Snapshot) -> list[_Entry]:
    faults = [
        _Entry(
            ((" ! ", "warn"), (left(fault.source, 12) + " ", "text"), (f"{_clock(fault.since)} ", "muted")), fault.text
        )
        for fault in snapshot.faults
    ]
    verdicts = [
        _Entry(
            ((" ! ", "warn"), (f"{left(verdict.limit, 12)} ", "text")),
            f"{verdict.scope}: {' '.join(verdict.evidence)}: {verdict.action}",
        )
        for verdict in snapshot.verdicts
    ]
    return faults + verdicts


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken at blanks, and within a word that is longer."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if cells(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return lines


def _clock(rfc3339: str) -> str:
    """The local time of day of an RFC 3339 time; the text itself where it is none."""
    try:
        return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return left(rfc3339, 8)
