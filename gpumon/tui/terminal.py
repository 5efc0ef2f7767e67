"""What the terminal can do, from its environment alone: whether the screen may start, its colours, its characters.

Nothing here imports textual: a refusal must cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from gpumon.config.schema import Config
from gpumon.config.terminals import NO_SCREEN

INSTEAD: Final = "use `gpumon watch --plain` (a line per GPU and engine) or `gpumon watch --json`"


class Depth(str, Enum):
    """How many colours the terminal shows."""

    NONE = "none"
    ANSI = "16"
    PALETTE = "256"
    TRUE = "truecolor"


def refusal(environ: Mapping[str, str], isatty: bool) -> str | None:
    """Why the screen cannot be shown, in one line with what to use instead; None where it can.

    `isatty`: both stdin (keys) and stdout (screen) are terminals. The exit code of a refusal is 2.
    """
    if not isatty:
        return f"the screen needs a terminal for input and output: {INSTEAD}"
    terminal = environ.get("TERM", "")
    if terminal.lower() in NO_SCREEN:
        return f"TERM={_shown(terminal)} cannot show a screen: {INSTEAD}"
    return None


def wants_ascii(environ: Mapping[str, str]) -> bool:
    """Whether to draw with ASCII only: the Linux console's fonts, and locales that are not UTF-8.

    The first of LC_ALL, LC_CTYPE and LANG that is set decides. Where none is (containers), UTF-8 is taken for granted.
    """
    if environ.get("TERM", "") in ("linux", "vt100", "vt102", "vt220"):
        return True
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environ.get(name))), "")
    return bool(locale) and "utf8" not in locale.lower().replace("-", "")


def drawn_with(config: Config, environ: Mapping[str, str]) -> Literal["braille", "blocks", "ascii"]:
    """The characters of charts; `ascii` is for everything else, too, and the terminal's needs stand above wishes."""
    wanted = config.screen.glyphs
    if config.general.ascii or wanted == "ascii" or wants_ascii(environ):
        return "ascii"
    return "braille" if wanted == "auto" else wanted


def depth(environ: Mapping[str, str]) -> Depth:
    """Colours of the terminal. NO_COLOR (set and not empty) means none at all: https://no-color.org."""
    if environ.get("NO_COLOR"):
        return Depth.NONE
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return Depth.TRUE
    terminal = environ.get("TERM", "").lower()
    if terminal.endswith(("-direct", "-truecolor")) or terminal in ("xterm-kitty", "xterm-ghostty", "alacritty"):
        return Depth.TRUE
    return Depth.PALETTE if "256" in terminal else Depth.ANSI


def _shown(terminal: str) -> str:
    """The value of TERM, safe to print."""
    return "".join(character if character.isprintable() else "?" for character in terminal[:40]) or "(not set)"
