"""Tones of the screen to terminal codes: resolved once per theme and colour depth, never while painting."""

from __future__ import annotations

from typing import Final, NamedTuple

from rich.color import Color, ColorSystem
from rich.style import Style

from gpumon.config.themes import Theme
from gpumon.tui.terminal import Depth


class Tone(NamedTuple):
    """How a piece of text looks: theme keys of its colours, and its place among the 16 colours of small terminals."""

    colour: str
    ansi: str = "default"
    ground: str = "background"
    ansi_ground: str = "default"
    bold: bool = False
    reverse: bool = False
    """Reversed where there is no colour to mark it."""


TONES: Final[dict[str, Tone]] = {
    "text": Tone("foreground"),
    "muted": Tone("muted"),
    "border": Tone("border", "blue"),
    "strong": Tone("title", bold=True),
    "accent": Tone("accent", "cyan"),
    "focus": Tone("accent", "cyan", bold=True),
    "ok": Tone("ok", "cyan"),
    "warn": Tone("warn", "yellow"),
    "critical": Tone("critical", "red", bold=True),
    "busy": Tone("busy", "blue"),
    "sm": Tone("sm", "cyan"),
    "mfu": Tone("mfu", "magenta"),
    "mbu": Tone("mbu", "green"),
    "tokens": Tone("tokens", "yellow"),
    "bar": Tone("foreground", ground="selected"),
    "bar_muted": Tone("muted", ground="selected"),
    "bar_title": Tone("title", ground="selected", bold=True),
    "bar_ok": Tone("ok", "cyan", ground="selected"),
    "bar_warn": Tone("warn", "yellow", ground="selected", bold=True),
    "badge": Tone("background", "black", "warn", "yellow", bold=True, reverse=True),
    "badge_paused": Tone("background", "black", "accent", "cyan", bold=True, reverse=True),
}
NEUTRAL: Final = " "
"""Mark of a blank on the plain background: it looks the same in every tone on that ground."""
MARKS: Final[dict[str, str]] = {tone: chr(ord("a") + at) for at, tone in enumerate(TONES)}
_BLANK_IN: Final = frozenset(name for name, tone in TONES.items() if tone.ground == "background")
"""Tones in which a blank is just background."""

_SYSTEMS: Final = {Depth.TRUE: ColorSystem.TRUECOLOR, Depth.PALETTE: ColorSystem.EIGHT_BIT}


class Code(NamedTuple):
    """What selects a tone: the part that only changes with ground or attributes, and the colour."""

    base: str
    colour: str


class Palette:
    """All tones of one theme, for one terminal."""

    def __init__(self, theme: Theme, depth: Depth, *, ascii: bool = False) -> None:  # noqa: A002
        self.ascii = ascii
        self.depth = depth
        self.styles = {name: _style(tone, theme, depth) for name, tone in TONES.items()}
        self.codes = {MARKS[name]: _code(tone, theme, depth) for name, tone in TONES.items()}
        self.codes[NEUTRAL] = self.codes[MARKS["text"]]
        self.ground = self.codes[NEUTRAL].base

    def mark(self, text: str, tone: str) -> str:
        """The mark of every cell of a text in `tone`."""
        return (NEUTRAL if text.isspace() and tone in _BLANK_IN else MARKS[tone]) * len(text)


def _style(tone: Tone, theme: Theme, depth: Depth) -> Style:
    if depth is Depth.NONE:
        return Style(bold=tone.bold or None, reverse=tone.reverse or None)
    if depth is Depth.ANSI:
        return Style(color=tone.ansi, bgcolor=tone.ansi_ground, bold=tone.bold or None)
    return Style(color=getattr(theme, tone.colour), bgcolor=getattr(theme, tone.ground), bold=tone.bold or None)


def _code(tone: Tone, theme: Theme, depth: Depth) -> Code:
    attributes = ["1"] if tone.bold else []
    if depth is Depth.NONE:
        return Code(";".join(attributes + (["7"] if tone.reverse else [])), "")
    if depth is Depth.ANSI:
        colour, ground = Color.parse(tone.ansi), Color.parse(tone.ansi_ground)
    else:
        system = _SYSTEMS[depth]
        colour = Color.parse(getattr(theme, tone.colour)).downgrade(system)
        ground = Color.parse(getattr(theme, tone.ground)).downgrade(system)
    return Code(";".join([*attributes, *ground.get_ansi_codes(foreground=False)]), ";".join(colour.get_ansi_codes()))
