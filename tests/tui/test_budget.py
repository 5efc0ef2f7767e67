"""What a tick of the steady screen may write: lines and bytes, counted on a clock that the test moves."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from rich.console import Console

from gpumon.readings.history import History
from gpumon.tui.app import MonitorApp
from gpumon.tui.line import Line
from gpumon.tui.repaint import repainted
from gpumon.tui.terminal import Depth
from gpumon.tui.widgets.board import Board
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, settle

CONSOLE = Console()
TICKS = 40


class Written(NamedTuple):
    """Means of a tick."""

    lines: float
    bytes: float


def changed(app: MonitorApp, shown: dict[Board, list[Line]]) -> list[str]:
    """What each line that changed since the last call writes, with the way of the cursor to it."""
    texts = []
    for board in app.monitor.boards():
        lines = list(board.painted) if board.display else []
        before = shown.get(board, [])
        for place, line in enumerate(lines):
            if place < len(before) and before[place] is line:
                continue
            y = board.region.y + place + 1
            texts.append(f"\x1b[{y};1H{line.crop(0, line.cell_length - 1).render(CONSOLE)}")
        shown[board] = lines
    return texts


async def written(width: int, height: int, known_s: int, engines: int = 3) -> Written:
    """The mean of ticks that follow each other, from `known_s` seconds of charts on."""
    first = scenes.snapshot(8, engines)
    history = History()
    for second in range(-known_s, 1):
        history.append(first.wall_s + second, scenes.points(scenes.snapshot(8, engines, tick=second)))
    feed = Still(first, history)
    lines = 0
    size = 0
    async with running(feed, width, height) as (app, pilot):
        assert app.palette.depth is Depth.TRUE
        shown: dict[Board, list[Line]] = {}
        changed(app, shown)
        for tick in range(1, TICKS + 1):
            snapshot = scenes.snapshot(8, engines, tick=tick)
            history.append(snapshot.wall_s, scenes.points(snapshot))
            app.sink(replace(snapshot, verdicts=first.verdicts))
            await settle(pilot)
            texts = changed(app, shown)
            lines += len(texts)
            size += len(repainted("\r\n".join(texts)).encode())
    return Written(lines / TICKS, size / TICKS)


@pytest.mark.parametrize(
    ("known_s", "engines", "most"),
    [
        (900, 0, Written(12.0, 1000.0)),
        (900, 4, Written(14.5, 1170.0)),
        (16, 0, Written(15.5, 1200.0)),
    ],
)
async def test_a_tick_writes_few_lines_and_bytes(known_s: int, engines: int, most: Written) -> None:
    """In the first half minute charts move on every other tick, later every eighth. The bounds are a tenth above what
    it takes; with a chart that moves on at each tick the last case takes 17 lines and 2,340 bytes."""
    mean = await written(120, 40, known_s, engines)
    assert mean.lines <= most.lines, mean
    assert mean.bytes <= most.bytes, mean
