"""How far a simulation is: told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""Takes what is simulated, in words, and the share of it that is done, from 0 to 1."""


def silent(_what: str, _share: float) -> None:
    """Tell nobody."""
