"""How often a figure of a GPU is read, in the words of its source."""

from __future__ import annotations

from typing import Final

TICK: Final = ""
"""Read at every tick."""
SLOW: Final = ", each 4 s"
"""Read every few seconds."""
MINUTE: Final = ", each minute"
"""Read once a minute."""
