"""What stands on the terminal after paints of which only a part reaches it: judged by a terminal emulator."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pyte
from rich.console import Console
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from gpumon.config.themes import load_theme
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.widgets.board import Board

WIDTH = 40
CONSOLE = Console()


class Words(Board):
    """One line of text."""

    text = "the first text"

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return [[(self.text, "text")]]


class Alone(App[None]):
    """A board, and nothing else."""

    def compose(self) -> ComposeResult:
        yield Words(Palette(load_theme("default"), Depth.TRUE))


async def shown_after(between: Callable[[Board], object]) -> str:
    """What the terminal shows of a second text, where something else came between its making and its paint."""
    app, glass = Alone(), pyte.Screen(WIDTH, 1)
    stream = pyte.Stream(glass)
    async with app.run_test(size=(WIDTH, 1)):
        board = app.query_one(Words)
        first = painted(board)
        stream.feed(first.render(CONSOLE))
        board.text = "another text"
        board.update()
        between(board)
        stream.feed("\r" + painted(board).crop(0, WIDTH - 1).render(CONSOLE))
    return glass.display[0].rstrip()


def painted(board: Board) -> Strip:
    return board.render_lines(Region(0, 0, WIDTH, 1))[0]


async def test_lines_that_are_made_for_the_paint_of_another_pane_are_not_taken_for_shown() -> None:
    assert await shown_after(painted) == "another text"


async def test_a_line_is_written_whole_after_something_lay_over_a_part_of_it() -> None:
    def covered(board: Board) -> None:
        for part in painted(board).divide([5, 20, WIDTH]):
            part.render(CONSOLE)

    assert await shown_after(covered) == "another text"


async def test_what_was_asked_to_be_painted_is_not_kept_for_ever() -> None:
    """Textual keeps the regions of a widget that paints its own lines until it is painted as a whole."""
    width = 120
    app = Alone()
    async with app.run_test(size=(width, 1)) as pilot:
        board = app.query_one(Words)
        board.text = "." * width
        flipped = str.maketrans(".x", "x.")
        for start in range(width):
            for end in range(start + 1, width + 1):
                text = board.text
                board.text = text[:start] + text[start:end].translate(flipped) + text[end:]
                board.update()
            await pilot.pause()
        kept = [
            len(each) for each in gc.get_objects() if type(each) is set and any(type(one) is Region for one in each)
        ]
    assert 0 < max(kept) < 3000
