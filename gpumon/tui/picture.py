"""The screen as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.segment import Segment, Segments
from textual.strip import Strip


def picture(strips: Sequence[Strip], width: int, title: str) -> str:
    """SVG of the screen's lines. Takes some 0.1 s: not for the event loop."""
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
