"""Bars of shares in eighths of a cell: several stages in one line, the largest at the back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpumon.readings.missing import Missing, Reading
from gpumon.tui.line import Piece, Row, join_tones
from gpumon.tui.palette import BODY, HATCH, LEVELS, RAIL, TIPS, TRACK, bar_tone, levelled

Stage = tuple[str, Reading]
"""A stage of `palette.STAGES`, or `palette.VRAM`, and its share."""

_EIGHTHS: Final = 8
_UNKNOWN: Final = -1
"""In place of the end of a stage that is not measured."""
_WHOLE_CELLS: Final = {TRACK: RAIL}
"""Stage -> the character of a cell that it has to itself, where that is not `BODY`."""
_FULL_SHARE: Final = 0.995
"""Shares from here on fill the bar."""


def bar(stages: Sequence[Stage], size: int, level: str = LEVELS[0]) -> Row:
    """A bar of `size` cells in the colour of a level; `stages`: the outermost first.

    A stage that is not measured ends somewhere between its neighbours: there the bar is hatched.
    """
    names = tuple(levelled(name, level) for name, _ in stages)
    ends = tuple(_end_in_eighths(share, size) for _, share in stages)
    return _pieces_of(names, ends, size)


def _end_in_eighths(share: Reading, size: int) -> int:
    """Eighths of a cell that a share fills, of `size` cells: one above 0 fills at least one, and only a full one fills
    all."""
    if isinstance(share, Missing) or math.isnan(share):
        return _UNKNOWN
    if share <= 0.0:
        return 0
    most = size * _EIGHTHS
    if share >= _FULL_SHARE:
        return most
    return max(1, min(most - 1, round(share * most)))


@lru_cache(maxsize=1024)
def _pieces_of(names: tuple[str, ...], ends: tuple[int, ...], size: int) -> Row:
    """The cells of a bar whose stages have these names and end at these eighths; neighbours of one tone are one
    piece."""
    stages = _stage_of_eighths(names, ends, size)
    hatched = _hatched_eighths(ends, size)
    drawn: list[Piece] = []
    for start in range(0, size * _EIGHTHS, _EIGHTHS):
        stop = start + _EIGHTHS
        drawn.append(_draw_cell(stages[start:stop], hatched=all(hatched[start:stop])))
    return tuple(join_tones(drawn))


def _stage_of_eighths(names: Sequence[str], ends: Sequence[int], size: int) -> list[str]:
    """The stage that each eighth shows; of equal ones the inner stage covers the outer."""
    stages = [TRACK] * (size * _EIGHTHS)
    measured = [(end, name) for end, name in zip(ends, names, strict=True) if end != _UNKNOWN]
    measured.sort(key=lambda stage: -stage[0])
    for end, name in measured:
        stages[:end] = [name] * end
    return stages


def _hatched_eighths(ends: Sequence[int], size: int) -> list[bool]:
    """For each eighth of the bar, whether the end of a stage that is not measured may lie in it."""
    hatched = [False] * (size * _EIGHTHS)
    for place, end in enumerate(ends):
        if end != _UNKNOWN:
            continue
        low = max(_measured_ends(ends[place + 1 :]), default=0)
        high = min(_measured_ends(ends[:place]), default=len(hatched))
        for eighth in range(low, high):
            hatched[eighth] = True
    return hatched


def _measured_ends(ends: Sequence[int]) -> list[int]:
    """The ends of the stages that are measured."""
    return [end for end in ends if end != _UNKNOWN]


def _draw_cell(stages: Sequence[str], *, hatched: bool) -> Piece:
    """The character and the tone of one cell by the stages of its eighths. It shows two at most: the one at its left
    edge, and the one that has most of the rest."""
    front = stages[0]
    others = [stage for stage in stages if stage != front]
    if hatched:
        return HATCH, bar_tone(front)
    if not others:
        return _WHOLE_CELLS.get(front, BODY), bar_tone(front)
    behind = max(dict.fromkeys(others), key=others.count)
    filled = _EIGHTHS - len(others)
    return TIPS[filled - 1], bar_tone(front, behind)
