"""Pane 5: what does not work, and what limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from gpumon.readings.format import cells, left
from gpumon.readings.snapshot import FaultShown, Verdict
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import moment
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_LEAST_TEXT: Final = 20
"""Cells of a text per line, however narrow the pane."""
_MOST_LINES: Final = 2
"""Lines of one text that the pane asks for; what is longer is for the zoomed pane."""
_MOST_SOURCE: Final = 24
_LEAST_SOURCE: Final = 12
"""Cells of the column of sources: as many as the longest needs, but no more than a quarter of the pane."""


class _Entry(NamedTuple):
    """What stands before a text, and the text."""

    before: tuple[Piece, ...]
    text: str


class FaultPane(Pane):
    """Faults first, then verdicts; one line each, and more where the pane has them to spare or is zoomed."""

    KEY: ClassVar[str] = "pane.faults"
    TITLE: ClassVar[str] = "faults"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._cut = False

    def note(self) -> str:
        """How to read what is cut, unless the rule says so by itself."""
        if not self._cut or self.scrolls:
            return ""
        zoom = self.view.keymap.first("zoom")
        pane = self.view.keymap.first(self.KEY)
        keys = zoom if self.has_focus else f"{pane} {zoom}"
        said = f"{keys}: whole text"
        return said if self.has_focus or cells(said) + 5 > self.note_room else f"keys {said}"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The faults and verdicts, each with as many lines as there are for it."""
        self._cut = False
        if self.snapshot is None:
            return ((("   starting …", "muted"),),)
        entries = _entries(self.snapshot.faults, self.snapshot.verdicts, width)
        spare = max(0, height - len(entries))
        rows: list[Row] = []
        for entry in entries:
            indent = sum(cells(text) for text, _ in entry.before)
            lines = _lines(entry, width)
            if not self.zoomed and len(lines) > 1 + spare:
                lines = (*lines[:spare], " ".join(lines[spare:]))
                self._cut = True
            spare -= len(lines) - 1
            rows.append((*entry.before, (lines[0], "text")))
            rows += [((" " * indent + line, "text"),) for line in lines[1:]]
        return rows or ((("   no faults", "muted"),),)


@lru_cache(maxsize=8)
def wanted(faults: tuple[FaultShown, ...], verdicts: tuple[Verdict, ...], width: int) -> int:
    """Lines that it takes to read all of it, but no more than two for each."""
    return sum(min(_MOST_LINES, len(_lines(entry, width))) for entry in _entries(faults, verdicts, width))


def _lines(entry: _Entry, width: int) -> tuple[str, ...]:
    return folded(entry.text, max(_LEAST_TEXT, width - sum(cells(text) for text, _ in entry.before)))


def _entries(faults: Sequence[FaultShown], verdicts: Sequence[Verdict], width: int) -> list[_Entry]:
    sources = [fault.source for fault in faults] + [verdict.limit.value for verdict in verdicts]
    most = min(_MOST_SOURCE, max(_LEAST_SOURCE, width // 4))
    size = min(most, max(map(cells, sources), default=0))
    told = [
        _Entry(
            ((" ! ", "warn"), (f"{left(fault.source, size)} ", "text"), (f"{_clock(fault.since)} ", "muted")),
            fault.text,
        )
        for fault in faults
    ]
    return told + [
        _Entry(
            ((" ! ", "warn"), (f"{left(verdict.limit.value, size)} ", "text")),
            f"{verdict.scope}: {'; '.join(one.text for one in verdict.evidence)}: {verdict.action}",
        )
        for verdict in verdicts
    ]


def _clock(rfc3339: str) -> str:
    """The local time of day of an RFC 3339 time; the text itself where it is none."""
    local = moment(rfc3339)
    return left(rfc3339, 8) if local is None else local.strftime("%H:%M:%S")
