"""Which terminals can show the screen, by their TERM."""

from __future__ import annotations

from typing import Final

NO_SCREEN: Final = ("", "dumb", "unknown")
"""Values of TERM, in lower case, that name no terminal that can move its cursor."""

PLAIN_TERMINALS: Final = ("linux", "vt100", "vt102", "vt220")
"""Values of TERM that name terminals without the characters of charts and frames."""

SMALL_TERMINALS: Final = (*PLAIN_TERMINALS, "ansi", "screen")
"""Values of TERM that name terminals of at most 16 colours, whatever COLORTERM was inherited from outside them."""
