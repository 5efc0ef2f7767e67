"""The screen as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.segment import Segment, Segments
from textual.screen import Screen
from textual.strip import Strip

from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import Pane


def svg_picture(strips: Sequence[Strip], width: int, title: str) -> str:
    """SVG of lines of `width` cells. Takes some 0.1 s: not for the event loop."""
    console = Console(
        width=width,
        height=len(strips),
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        legacy_windows=False,
    )
    segments = [segment for strip in strips for segment in (*strip, Segment.line())]
    console.print(Segments(segments), end="")
    return console.export_svg(title=title)


def painted_lines(screen: Screen[None]) -> list[Strip]:
    """The lines of a screen's boards, top to bottom; what must not be written down is left blank."""
    width, height = screen.app.size
    rows = [Strip.blank(width) for _ in range(height)]
    for board in screen.query(Board):
        if isinstance(board, Pane) and board.PRIVATE:
            continue
        if not board.display:
            continue
        x, y = board.region.offset
        for number, line in enumerate(board.painted, y):
            if 0 <= number < height:
                row = rows[number]
                rows[number] = Strip.join([row.crop(0, x), line, row.crop(x + line.cell_length)])
    return rows
