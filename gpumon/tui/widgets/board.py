"""The widget that all panes are made of: rows in, changed lines out."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpumon.readings.text import clean
from gpumon.tui.line import Line, Row, Slot
from gpumon.tui.palette import Palette


class Board(Widget):
    """Paints the rows that its subclass gives; at each update only the lines that changed, and of those the cells."""

    ALLOW_SELECT = False

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._rows: list[Row] = []
        self._lines: list[Line] = []
        self._slots: list[Slot] = []
        self._drawn = Size(0, 0)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rows to show, at most `height`; a short row is filled up with background."""
        raise NotImplementedError

    def update(self) -> int:
        """Bring the screen up to date with what `rows` gives; returns the number of lines that changed."""
        width, height = self.size
        if not self._is_mounted or not width or not height or not self.display:
            return 0
        if self._drawn != self.size:
            self._draw()
            self.refresh()
            return height
        changed = []
        for y, row in enumerate(self._wanted(width, height)):
            if row == self._rows[y]:
                continue
            self._rows[y] = row
            line = Line(row, width, self.palette, self._slots[y])
            if not line.same(self._lines[y]):
                self._lines[y] = line
                changed.append(Region(0, y, max(1, width - 1), 1))
        if changed:
            self.refresh(*changed)
        return len(changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they are: what Textual's style cache would add (borders, filters) is not wanted here."""
        if self._drawn != self.size:
            self._draw()
        lines: list[Strip] = list(self._lines[crop.y : crop.bottom])
        if crop.column_span != (0, self.size.width):
            return [line.crop(*crop.column_span) for line in lines]
        return lines

    def render_line(self, y: int) -> Strip:
        """One line, for whoever asks for it alone."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _draw(self) -> None:
        width, height = self._drawn = self.size
        self._slots = [Slot() for _ in range(height)]
        self._rows = self._wanted(width, height)
        self._lines = [Line(row, width, self.palette, slot) for row, slot in zip(self._rows, self._slots, strict=True)]

    def _wanted(self, width: int, height: int) -> list[Row]:
        try:
            rows = list(self.rows(width, height))[:height]
        except Exception as error:  # a bug in painting costs one pane, not the screen
            rows = [((f" this pane failed: {clean(f'{type(error).__name__}: {error}')}", "critical"),)]
        return rows + [()] * (height - len(rows))
