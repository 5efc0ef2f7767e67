"""A moving SVG of screens: lines that several screens share are drawn once, and CSS shows and hides them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from textual.strip import Strip

CELL: Final = (7.2, 15.0)
"""Width and height of a character cell in pixels."""
EDGE: Final = 10.0
CAPTION_PX: Final = 34.0
INK: Final = "#d8d8d8"
PAPER: Final = "#101216"
DIM: Final = 0.55
"""Opacity of dim text."""


class Scene(NamedTuple):
    """One screen, what is said below it, and how long it stands."""

    strips: Sequence[Strip]
    caption: str
    seconds: float


class _Look(NamedTuple):
    """How a run of characters is drawn."""

    ink: str
    paper: str
    bold: bool
    dim: bool


class _Run(NamedTuple):
    """Characters of one look that stand side by side, from a column on."""

    column: int
    text: str
    look: _Look


def moving_picture(scenes: Sequence[Scene]) -> str:
    """The scenes one after another, for ever."""
    columns = max(strip.cell_length for strip in scenes[0].strips)
    rows = len(scenes[0].strips)
    drawing = _Drawing(scenes)
    lines: dict[tuple[int, tuple[_Run, ...]], set[int]] = {}
    captions: dict[str, set[int]] = {}
    for number, scene in enumerate(scenes):
        for row, strip in enumerate(scene.strips):
            lines.setdefault((row, _runs(strip)), set()).add(number)
        captions.setdefault(scene.caption, set()).add(number)
    body: list[str] = []
    for (row, runs), shown in lines.items():
        body.append(drawing.group(shown, "".join(drawing.run(row, run) for run in runs)))
    for caption, shown in captions.items():
        at = f'x="{EDGE + columns * CELL[0] / 2:g}" y="{EDGE * 2 + rows * CELL[1] + 14:g}"'
        body.append(drawing.group(shown, f'<text class="c" {at}>{escape(caption)}</text>'))
    width = EDGE * 2 + columns * CELL[0]
    height = EDGE * 2 + rows * CELL[1] + CAPTION_PX
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
            f"<style>{drawing.style()}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>',
            *body,
            "</svg>\n",
        )
    )


class _Drawing:
    """The classes of one picture: of looks, and of the scenes in which something is shown."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        ends: list[float] = []
        for scene in scenes:
            ends.append(scene.seconds + (ends[-1] if ends else 0.0))
        self._total_s = ends[-1]
        self._begins = [0.0, *(100.0 * end / self._total_s for end in ends[:-1])]
        self._looks: dict[_Look, str] = {}
        self._shown: dict[tuple[bool, ...], str] = {}

    def group(self, shown: set[int], content: str) -> str:
        """What is there in these scenes only."""
        if not content:
            return ""
        when = tuple(number in shown for number in range(len(self._begins)))
        if all(when):
            return f"<g>{content}</g>"
        name = self._shown.setdefault(when, f"s{len(self._shown)}")
        return f'<g class="{name}">{content}</g>'

    def run(self, row: int, run: _Run) -> str:
        """Background and characters of a run."""
        x = EDGE + run.column * CELL[0]
        y = EDGE + row * CELL[1]
        width = cell_len(run.text) * CELL[0]
        parts: list[str] = []
        if run.look.paper:
            parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{CELL[1]:g}" fill="{run.look.paper}"/>')
        if run.text.strip():
            name = self._looks.setdefault(run.look._replace(paper=""), f"l{len(self._looks)}")
            at = f'x="{x:g}" y="{y + 11.5:g}" textLength="{width:g}"'
            parts.append(f'<text class="{name}" {at}>{escape(run.text, quote=False)}</text>')
        return "".join(parts)

    def style(self) -> str:
        """The style sheet of what was drawn."""
        rules = [
            "text{font:12px 'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}",
            f".c{{fill:{INK};text-anchor:middle;font-size:14px}}",
        ]
        for look, name in self._looks.items():
            rules.append(f".{name}{{fill:{look.ink}{';font-weight:bold' * look.bold}{f';opacity:{DIM}' * look.dim}}}")
        for when, name in self._shown.items():
            steps = [f"{begin:.2f}%{{visibility:{_seen(on)}}}" for begin, on in zip(self._begins, when, strict=True)]
            rules.append(f"@keyframes {name}{{{''.join(steps)}}}")
            rules.append(
                f".{name}{{visibility:{_seen(when[0])};animation:{name} {self._total_s:g}s step-end infinite}}"
            )
        return "".join(rules)


def _seen(on: bool) -> str:
    return "visible" if on else "hidden"


def _runs(strip: Strip) -> tuple[_Run, ...]:
    """The line as runs of one look; blanks without a background are left out."""
    runs: list[_Run] = []
    column = 0
    for look, segments in groupby(strip, _look_of):
        text = "".join(segment.text for segment in segments)
        if text.strip() or look.paper:
            runs.append(_Run(column, text, look))
        column += cell_len(text)
    return tuple(runs)


def _look_of(segment: Segment) -> _Look:
    style = segment.style or Style()
    ink = _hex(style.color, INK)
    paper = _hex(style.bgcolor, "")
    if style.reverse:
        ink, paper = paper or PAPER, ink
    return _Look(ink, paper, bool(style.bold), bool(style.dim))


def _hex(color: Color | None, default: str) -> str:
    if color is None or color.is_default:
        return default
    return color.get_truecolor(DIMMED_MONOKAI).hex
