"""Abilities of the terminal, from its environment alone: whether the screen may start, its colours, its characters.

Nothing here imports textual: a refusal must cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from gpumon.config.schema import Config
from gpumon.config.terminals import NO_SCREEN, PLAIN_TERMINALS, SMALL_TERMINALS

MOST_CELLS: Final = 500
"""Columns and lines that are painted; what a larger terminal has beyond stays empty."""
_USUAL_SIZE: Final = (80, 24)
"""Columns and lines where the terminal does not tell."""
_USE_INSTEAD: Final = "use `gpumon watch{0} --plain` (a line per GPU and engine) or `gpumon watch{0} --json`"
"""Commands in place of the screen; {0}: ` --demo`, or nothing."""
_USE_INSTEAD_OF_RECORDING: Final = "use `gpumon report FILE` (summed up) or `gpumon export FILE` (its moments)"
"""Commands in place of the screen of a recording."""
_MOST_TERMINAL_NAME: Final = 40
"""Characters of the value of TERM in a refusal."""


def terminal_size() -> tuple[int, int]:
    """Columns and lines by the terminal's own word, not that of COLUMNS and LINES, which some parent exported; at most
    `MOST_CELLS` of each."""
    with contextlib.suppress(OSError, ValueError):
        stream = sys.__stdout__ or sys.__stderr__
        size = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]  # a program without both streams has no terminal
        if size.columns and size.lines:
            return min(size.columns, MOST_CELLS), min(size.lines, MOST_CELLS)
    return _USUAL_SIZE


class Depth(str, Enum):
    """How many colours the terminal shows."""

    NONE = "none"
    ANSI = "16"
    PALETTE = "256"
    TRUE = "truecolor"


def refusal(environ: Mapping[str, str], isatty: bool, *, demo: bool = False, recording: bool = False) -> str | None:
    """Why the screen cannot be shown, in one line with what to use instead; None where it can.

    `isatty`: both stdin (keys) and stdout (screen) are terminals. `demo`: it is the simulated server that would be
    watched, `recording`: a recording that would be replayed. The exit code of a refusal is 2.
    """
    if environ.get("TEXTUAL_DRIVER"):
        return None  # the screen goes elsewhere than to a terminal: to a browser
    if recording:
        instead = _USE_INSTEAD_OF_RECORDING
    else:
        option = " --demo" if demo else ""
        instead = _USE_INSTEAD.format(option)
    if not isatty:
        return f"the screen needs a terminal for input and output: {instead}"
    terminal = environ.get("TERM", "")
    if terminal.lower() in NO_SCREEN:
        return f"TERM={_printable(terminal)} cannot show a screen: {instead}"
    return None


def wants_ascii(environ: Mapping[str, str], *, coerced: bool = bool(sys.flags.utf8_mode)) -> bool:
    """Whether to draw with ASCII only: the Linux console's fonts, and locales that are not UTF-8.

    The first of LC_ALL, LC_CTYPE and LANG that is set decides. Where none is (containers), UTF-8 is taken for granted.
    `coerced`: Python found the locale C, and set LC_CTYPE by itself (PEP 538): that is no word of the user's.
    """
    if environ.get("TERM", "") in PLAIN_TERMINALS:
        return True
    set_by_python = coerced and environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8")
    variables = ["LC_ALL", "LC_CTYPE", "LANG"]
    if set_by_python and not environ.get("PYTHONUTF8"):  # with it, it is the user who wants UTF-8
        variables.remove("LC_CTYPE")
    locale = next(filter(None, map(environ.get, variables)), "")
    return bool(locale) and "utf8" not in locale.lower().replace("-", "")


def chart_glyphs(config: Config, environ: Mapping[str, str]) -> Literal["braille", "blocks", "ascii"]:
    """The characters of charts; `ascii` is for everything else, too, and the terminal's needs stand above wishes."""
    glyphs = config.screen.glyphs
    if config.general.ascii or glyphs == "ascii" or wants_ascii(environ):
        return "ascii"
    if glyphs == "auto":
        return "braille"
    return glyphs


def in_screen(environ: Mapping[str, str]) -> bool:
    """Whether GNU screen is what shows the screen: inside tmux that is tmux, wherever that was started."""
    return bool(environ.get("STY")) and not environ.get("TMUX")


def reports_mouse(environ: Mapping[str, str]) -> bool:
    """Whether mouse reports do no harm: while they are on, GNU screen keeps a lone Escape back until the next key."""
    return not in_screen(environ)


def colour_depth(environ: Mapping[str, str]) -> Depth:
    """Colours of the terminal. NO_COLOR (set and not empty) means none at all: https://no-color.org.

    GNU screen hands on the COLORTERM of the terminal around it, but shows 256 colours at most: version 4
    takes the parts of a 24-bit colour for attributes.
    """
    if environ.get("NO_COLOR"):
        return Depth.NONE
    terminal = environ.get("TERM", "").lower()
    if terminal in SMALL_TERMINALS and not environ.get("TMUX"):
        return Depth.ANSI
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit") and not in_screen(environ):
        return Depth.TRUE
    if terminal.endswith(("-direct", "-truecolor")) or terminal in ("xterm-kitty", "xterm-ghostty", "alacritty"):
        return Depth.TRUE
    if "256" in terminal:
        return Depth.PALETTE
    return Depth.ANSI


def _printable(terminal: str) -> str:
    """The value of TERM, safe to print."""
    printable = ""
    for character in terminal[:_MOST_TERMINAL_NAME]:
        printable += character if character.isprintable() else "?"
    return printable or "(not set)"
