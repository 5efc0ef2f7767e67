"""The widget that all panes are made of: rows in, changed lines out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual.geometry import Offset, Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from gpumon.readings.text import clean
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.output import is_busy
from gpumon.tui.palette import Palette

_NO_OFFSET = Offset(0, 0)
_RETRIES_S = (0.01, 0.02, 0.04, 0.1)
"""Seconds until a terminal that is still taking the last frame is tried again, the first time, the second time, and so
on; the last repeats. A quick terminal shows a key at once, a slow one is not asked often."""
_MOST_REGIONS: Final = 2000
"""Changed regions after which a board is painted as a whole once: Textual keeps each that it was ever asked for."""


class Board(Widget, inherit_bindings=False):
    """Paints the rows that its subclass gives; at each update only the lines that changed, and of those the cells."""

    ALLOW_SELECT = False
    AWAITS_LAYOUT: ClassVar = False
    """Whether no rows are made for a size that a layout is about to change: for those that cost much. Never for lists,
    whose cursor follows what is shown."""
    virtual_size = Reactive(Size(0, 0), layout=False, repaint=False)
    """Nothing scrolls as Textual does: a new size needs no second layout and paint."""

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.asks_for_all: Board | None = None
        """The board that asks Textual to paint changed lines, for all boards of a screen; None: each for itself."""
        self._regions_asked = 0
        """Regions that Textual was asked to paint since it was asked for the whole board."""
        self._rows: list[Row] = []
        """The rows that were drawn last."""
        self._lines: list[Line] = []
        """The lines on the screen, of the same rows."""
        self._slots: list[LineSlot] = []
        """Their places on the terminal."""
        self._drawn_size = Size(0, 0)
        """Size for which the rows were drawn; 0x0: all must be drawn anew."""
        self._given_space = (0, 0)
        """Lines and columns that the board was given last (0 columns: all)."""
        self._layout_comes = False
        """Whether a layout follows that changes the size."""
        self._update_pending = False
        """Whether an update waits for the terminal."""
        self._retries = 0
        """How often in a row the terminal was still busy."""

    @property
    def size(self) -> Size:
        """Columns and lines of the board: it has neither border nor padding, which Textual asks its styles for."""
        return self.region.size

    @property
    def content_offset(self) -> Offset:
        """Place of what is painted within the board: there is neither border nor padding before it."""
        return _NO_OFFSET

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rows to show, at most `height`; a short row is filled up with background."""
        raise NotImplementedError

    def update(self) -> int:
        """Bring the screen up to date with what `rows` gives; returns the number of lines that changed.

        While the terminal is still taking the last frame this waits: what changes meanwhile is painted once. So it does
        for a layout, if this board awaits one; below another screen none comes.
        """
        size = self.size
        if not self.is_mounted or not all(size) or not self.display:
            return 0
        if self.AWAITS_LAYOUT and self._layout_comes and self.screen.is_current:
            return 0
        if is_busy():
            self._update_soon()
            return 0
        self._retries = 0
        if self._drawn_size != size:
            self._draw()
            self.refresh()
            return size.height
        regions = self._take_rows(*size)
        if regions:
            self._ask_to_paint(regions)
        return len(regions)

    def give(self, lines: int, columns: int = 0) -> None:
        """Take other lines (0 hides it) and columns (0: all that there are) at the layout that follows."""
        if not lines:
            self.display = False
            return
        if self.display and self._given_space == (lines, columns):
            return
        if not self.display:
            self.forget()  # hidden boards are not kept up to date
        self._layout_comes = True
        self._given_space = (lines, columns)
        self.display = True
        self.styles.height = lines
        self.styles.width = columns or "100%"

    def settle(self) -> None:
        """Paint what changed, after a layout."""
        self._layout_comes = False
        self.update()

    def _take_rows(self, width: int, height: int) -> list[Region]:
        """Take the rows as they are now; returns a region for each line that differs, from its first cell that does to
        its last one."""
        regions = []
        for y, row in enumerate(self._full_rows(width, height)):
            if row == self._rows[y]:
                continue
            self._rows[y] = row
            line = Line(row, width, self.palette, self._slots[y])
            ranges = line.replaces(self._lines[y])
            if ranges:
                self._lines[y] = line
                start, _ = ranges[0]
                _, end = ranges[-1]
                regions.append(Region(start, y, end - start, 1))
        return regions

    def _ask_to_paint(self, regions: Sequence[Region]) -> None:
        """Ask Textual to paint parts of this board.

        Each board that asks is a task that wakes, and two messages: where five boards change, one asks for all.
        """
        painter = self.asks_for_all
        if painter is None or not painter.is_mounted or not painter.display:
            painter = self
        offset = self.region.offset - painter.region.offset
        painter.ask_for([region.translate(offset) for region in regions])

    def ask_for(self, regions: Sequence[Region]) -> None:
        """Ask Textual to paint regions, which lie anywhere on the screen, relative to this board."""
        self._regions_asked += len(regions)
        if self._regions_asked > _MOST_REGIONS:
            self._regions_asked = len(regions)
            self.refresh()
        self.refresh(*regions)

    def _update_soon(self) -> None:
        """Update once the terminal may have taken the last frame, unless that is under way."""
        if self._update_pending:
            return
        self._update_pending = True
        wait_s = _RETRIES_S[min(self._retries, len(_RETRIES_S) - 1)]
        self.set_timer(wait_s, self._update_after_wait)
        self._retries += 1

    def _update_after_wait(self) -> None:
        """Update now; what is busy still waits again."""
        self._update_pending = False
        self.update()

    @property
    def painted(self) -> Sequence[Line]:
        """The lines on the screen."""
        return self._lines

    def forget(self) -> None:
        """Draw everything anew at the next paint: colours or units are others now."""
        self._drawn_size = Size(0, 0)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they are: what Textual's style cache would add (borders, filters) is not wanted here."""
        size = self.size
        if self._drawn_size != size:
            self._draw()
        lines = self._lines[crop.y : crop.bottom]
        if crop.column_span == (0, size.width):
            return list(lines)
        # Parts of lines: what the terminal shows of them is not known afterwards.
        for line in lines:
            line.slot.shown = None
        return [Strip(line).crop(*crop.column_span) for line in lines]

    def render_line(self, y: int) -> Strip:
        """One line, for whoever asks for it alone."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _draw(self) -> None:
        """Make all lines anew, for the size of now; the terminal is not known to show any of them."""
        self._layout_comes = False
        self._drawn_size = self.size
        width, height = self._drawn_size
        self._rows = self._full_rows(width, height)
        self._slots = [LineSlot() for _ in range(height)]
        self._lines = [Line(row, width, self.palette, slot) for row, slot in zip(self._rows, self._slots, strict=True)]

    def _full_rows(self, width: int, height: int) -> list[Row]:
        """The rows that the subclass gives, filled up to `height`; one that says so where it fails."""
        try:
            rows = list(self.rows(width, height))[:height]
        except Exception as error:  # a bug in painting costs one pane, not the screen
            rows = [((f" this pane failed: {clean(f'{type(error).__name__}: {error}')}", "critical"),)]
        return rows + [()] * (height - len(rows))


class Painted(Board):
    """Paints what a function gives for its columns and lines."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._rows_of: Callable[[int, int], Sequence[Row]] = lambda _width, _height: ()

    def paint(self, rows_of: Callable[[int, int], Sequence[Row]]) -> None:
        """Take another function, and paint what it gives now."""
        self._rows_of = rows_of
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The lines that the function returns."""
        return self._rows_of(width, height)
