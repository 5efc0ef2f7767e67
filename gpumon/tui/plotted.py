"""Pictures with a list of what is plotted: the map of GPUs and the roofline of engines have the same frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from gpumon.efficiency.activity import trail
from gpumon.readings.history import History
from gpumon.tui.fold import cut_to_lines
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import Canvas, to_width

Cell: TypeAlias = tuple[int, int]
"""Line and column of a cell of a picture."""
LEAST_HEIGHT: Final = 9
"""Lines from which they say something."""
TRAIL_S: Final = 300.0
"""Seconds that a trail goes back."""
TRAIL_TEXT: Final = f"last {TRAIL_S / 60:.0f} min"
"""The trails in the legend."""
TRAIL_MARKS: Final[dict[Glyphs, str]] = {"braille": "•", "blocks": "•", "ascii": "*"}
"""Mark of the trail of what is chosen; the others have the dot of their charts."""
TONES: Final = ("tokens", "mfu", "mbu", "sm", "accent", "busy")
"""Tones of the things, in turn; their marks tell them apart without colour."""
CHOSEN: Final = "badge_paused"
"""Tone of the mark of what is chosen."""
_STEP_S: Final = 5.0
"""Seconds between two places of a trail: the history has sums of 5 s."""
_LIST_WIDTH: Final = 46
"""Cells of the list beside the picture, with the gap before it."""
_GAP: Final = "  "
"""Blanks between the picture and the list."""
_BESIDE_WIDTH: Final = 110
"""Cells from which the list stands beside the picture, and not below."""
_BELOW_SHARE: Final = 0.3
"""Share of the lines that the list has below the picture."""
FEW_LINES: Final = 7
"""Lines of a list up to which it has what is chosen alone."""
_LEAST_SENTENCE: Final = 9
"""Lines that the sentence on what is chosen may take, at least, beside the picture."""
_FEWEST_BELOW: Final = 3
_MOST_BELOW: Final = FEW_LINES


def read_trail(history: History | None, x_series: str, y_series: str, wall_s: float) -> list[tuple[float, float]]:
    """The places of the last minutes before a Unix time, oldest first, by two series of the history."""
    if history is None:
        return []
    newest = int(wall_s // _STEP_S)
    count = int(TRAIL_S / _STEP_S)
    xs = history.buckets(x_series, newest, count, _STEP_S, wall_s)
    ys = history.buckets(y_series, newest, count, _STEP_S, wall_s)
    return trail(xs, ys)


def with_list(
    size: tuple[int, int],
    picture: Callable[[int, int], Sequence[Row]],
    listed: Callable[[int, int], Sequence[Row]],
) -> list[Row]:
    """A picture with its list beside it, or on a narrow screen below, in `size` (cells and lines). Both functions get
    the cells and lines that they have."""
    width, height = size
    if width < _BESIDE_WIDTH:
        list_rows = listed(width, max(_FEWEST_BELOW, min(_MOST_BELOW, int(height * _BELOW_SHARE))))
        return [*picture(width, height - len(list_rows)), *list_rows]
    picture_rows = picture(width - _LIST_WIDTH, height)
    list_rows = listed(_LIST_WIDTH - len(_GAP), height)
    rows: list[Row] = []
    for number in range(height):
        picture_row = to_width(_row_at(picture_rows, number), width - _LIST_WIDTH)
        rows.append((*picture_row, (_GAP, "text"), *_row_at(list_rows, number)))
    return rows


def _row_at(rows: Sequence[Row], number: int) -> Row:
    """The row of that number; an empty one behind the last."""
    if number < len(rows):
        return rows[number]
    return ()


def entries_and_sentence(entries: Sequence[Row], chosen: int, sentence: str, width: int, height: int) -> list[Row]:
    """As many entries as fit around the chosen one, how many there are besides, and the sentence on the chosen one."""
    said = sentence_rows(sentence, width, max(_LEAST_SENTENCE, height - len(entries) - 1))
    room = max(1, height - len(said) - 1)
    if len(entries) <= room:
        return [*entries, (), *said]
    shown = max(1, room - 1)
    first = max(0, min(len(entries) - shown, chosen - shown // 2))
    rest: Row = ((f"  +{len(entries) - shown} more", "muted"),)
    return [*entries[first : first + shown], rest, (), *said]


def sentence_rows(text: str, width: int, most: int, tone: str = "text") -> list[Row]:
    """A sentence in at most so many lines."""
    if most < 1:
        return []
    return [((line, tone),) for line in cut_to_lines(text, width, most)]


def write_word(canvas: Canvas, line: int, column: int, text: str, tone: str = "hint") -> None:
    """Write words into a line of a picture from a column on, as far as the picture goes; above it nothing."""
    if not 0 <= line < canvas.lines:
        return
    for number, character in enumerate(text):
        if 0 <= column + number < canvas.columns:
            canvas.set_cell(line, column + number, character, tone)


def write_label(canvas: Canvas, places: Iterable[Cell], text: str, taken: set[Cell]) -> None:
    """Write words at the first of some places where nothing is drawn, else over a trail or a line; nowhere if there is
    no such place. `taken`: cells of marks that are drawn later, and of words, to which these are added."""
    over_lines: Sequence[Cell] = ()
    for line, column in places:
        if line < 0 or line >= canvas.lines or column < 0 or column + len(text) > canvas.columns:
            continue
        cells = [(line, column + number) for number in range(len(text) + 1)]  # and a blank behind
        if not taken.isdisjoint([(line, column - 1), *cells]):
            continue
        if all(map(canvas.is_blank, cells)):
            over_lines = cells
            break
        over_lines = over_lines or cells
    if over_lines:
        taken.update(over_lines)
        write_word(canvas, *over_lines[0], text)
