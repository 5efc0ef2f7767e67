"""The widget that all panes are made of: rows in, changed lines out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpumon.readings.text import clean
from gpumon.tui.line import Line, Row, Slot
from gpumon.tui.pacing import Pacer, bytes_of
from gpumon.tui.palette import Palette


class OneLayout(Widget, inherit_bindings=False):
    """A widget that is laid out once where its size changes: neither a screen nor a board scrolls as Textual does."""

    def _size_updated(
        self,
        size: Size,
        virtual_size: Size,
        container_size: Size,
        layout: bool = True,  # noqa: ARG002
    ) -> bool:
        """As Textual's, but without a second layout and paint for the virtual size."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class Board(OneLayout):
    """Paints the rows that its subclass gives; at each update only the lines that changed, and of those the cells."""

    ALLOW_SELECT = False

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._rows: list[Row] = []
        self._lines: list[Line] = []
        self._slots: list[Slot] = []
        self._drawn = Size(0, 0)
        self._column = 0

    def stand_at(self, column: int) -> None:
        """Its first column on the screen, as far as something stands left of it."""
        if column != self._column:
            self._column = column
            self.forget()

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
                changed.append(y)
        if changed:
            pacer = self._pacer
            if pacer is None or pacer.free():
                self.repaint(changed)
            else:
                pacer.wait(self, changed)
        return len(changed)

    @property
    def _pacer(self) -> Pacer | None:
        """None where there is no terminal of ours."""
        return getattr(self.app._driver, "pacer", None)

    @property
    def visible_now(self) -> bool:
        """Whether its lines are on the screen."""
        if not self.is_attached or not self.display or not self.size:
            return False
        return self.screen is self.app.screen or self.screen in self.app._background_screens

    def repaint(self, lines: Iterable[int]) -> None:
        """Have Textual paint what changed on these lines."""
        width = max(1, self.size.width - 1)
        self.refresh(*[Region(0, y, width, 1) for y in lines])

    def cost(self, y: int) -> int:
        """Bytes that it takes to bring a line up to date."""
        if self._drawn != self.size or y >= len(self._lines) or self._slots[y].shown is self._lines[y]:
            return 0
        return bytes_of(self._lines[y].change())

    def unknown(self, y: int) -> bool:
        """Whether something else may stand in the place of a line."""
        return y < len(self._slots) and self._slots[y].shown is None

    def _admits(self, y: int, text: str, whole: bool) -> bool:
        """Whether the terminal has room for a line's text now; otherwise it is painted as soon as it has."""
        pacer = self._pacer
        if pacer is None:
            return True
        slot, row = self._slots[y], self.region.y + y + (self._column << 16)
        again = whole and pacer.just_painted(row, slot, self.screen._compositor.size) and slot.shown is not None
        if not again and pacer.take(text):
            if whole:
                pacer.painted(row, slot)
            return True
        if whole and not again:
            slot.shown = None
        pacer.refuse(self, y)
        return False

    def forget(self) -> None:
        """Draw everything anew at the next paint: colours or units are others now."""
        self._drawn = Size(0, 0)

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
        self._slots = [Slot(partial(self._admits, y), self._column) for y in range(height)]
        self._rows = self._wanted(width, height)
        self._lines = [Line(row, width, self.palette, slot) for row, slot in zip(self._rows, self._slots, strict=True)]

    def _wanted(self, width: int, height: int) -> list[Row]:
        try:
            rows = list(self.rows(width, height))[:height]
        except Exception as error:  # a bug in painting costs one pane, not the screen
            rows = [((f" this pane failed: {clean(f'{type(error).__name__}: {error}')}", "critical"),)]
        return rows + [()] * (height - len(rows))
