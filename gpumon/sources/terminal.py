"""Abilities of the terminal: size, colours, UTF-8; for the doctor."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from gpumon.config.terminals import NO_SCREEN
from gpumon.readings.check import Check, CheckState

LEAST_COLUMNS = 80
LEAST_LINES = 24
"""Size from which on a terminal shows 8 GPUs, 4 engines and charts: what most terminals open with."""
_AREA = "terminal"


def terminal_checks(environ: Mapping[str, str]) -> list[Check]:
    """The terminal that stdout is connected to; a single `off` where it is none."""
    if not (sys.stdout and sys.stdout.isatty()):
        return [
            Check(_AREA, "screen", CheckState.OFF, "stdout is no terminal: `gpumon watch` works, the screen does not")
        ]
    return [_screen_check(environ), _size_check(), _colour_check(environ), _character_check(sys.stdout.encoding or "")]


def _screen_check(environ: Mapping[str, str]) -> Check:
    """Whether the kind of terminal can show a screen."""
    terminal = environ.get("TERM", "")
    if terminal.lower() in NO_SCREEN:
        text = f"TERM={terminal or '(not set)'} cannot show a screen"
        return Check(_AREA, "screen", CheckState.FAIL, text, "set TERM to what your terminal is, e.g. xterm-256color")
    return Check(_AREA, "screen", CheckState.OK, f"TERM={terminal}")


def _size_check() -> Check:
    """Whether it is large enough."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns = 0
        lines = 0
    text = f"{columns}x{lines}"
    if columns >= LEAST_COLUMNS and lines >= LEAST_LINES:
        return Check(_AREA, "size", CheckState.OK, text)
    fix = f"{LEAST_COLUMNS}x{LEAST_LINES} shows 8 GPUs, 4 engines and charts; more shows more"
    return Check(_AREA, "size", CheckState.WARN, text, fix)


def _colour_check(environ: Mapping[str, str]) -> Check:
    """How many colours it has."""
    if environ.get("NO_COLOR"):
        return Check(_AREA, "colour", CheckState.OFF, "NO_COLOR is set")
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return Check(_AREA, "colour", CheckState.OK, "24-bit")
    if "256color" in environ.get("TERM", ""):
        return Check(_AREA, "colour", CheckState.OK, "256 colours (24-bit where COLORTERM=truecolor is set)")
    return Check(_AREA, "colour", CheckState.WARN, "16 colours", "use a terminal with 256 colours: TERM=xterm-256color")


def _character_check(encoding: str) -> Check:
    """Whether it shows UTF-8."""
    if encoding.lower().replace("-", "").replace("_", "") == "utf8":
        return Check(_AREA, "characters", CheckState.OK, "UTF-8")
    text = f"{encoding or 'unknown encoding'}: drawn with ASCII only"
    return Check(_AREA, "characters", CheckState.WARN, text, "use a UTF-8 locale, e.g. LANG=C.UTF-8")
