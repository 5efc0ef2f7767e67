"""Which part of a list that is too long is in view."""

from __future__ import annotations


def window(total: int, across: int, down: int, first: int, *wanted: int) -> tuple[int, int]:
    """The first thing in view and the end, moved as little as possible so that all of `wanted` are in it.

    The things stand in lines of `across`; `down` lines are in view.
    """
    lines = -(-total // across)
    top = max(0, min(first // across, lines - down))
    for place in sorted(wanted, reverse=True):
        top = max(place // across - down + 1, min(top, place // across))
    return top * across, min(total, (top + down) * across)
