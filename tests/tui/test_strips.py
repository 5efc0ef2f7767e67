"""Heat strips on the wall: the last five minutes of each GPU, and of each host of a fleet."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.readings.fleet import HostFrame
from gpumon.readings.history import CELL_S, History
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Palette, tint
from gpumon.tui.terminal import Depth
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, WallFigure
from gpumon.tui.wall.plan import BOX, CARD, DOT, PAIR, STRIP, TileForm, wall_plan
from gpumon.tui.wall.strips import StripReader, strip_grid, strip_row
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.fleet_feed import Scrapes, bare, watching
from tests.tui.running import running, text_of, until

MFU, _, SM, BUSY, VRAM, POWER, TEMPERATURE = WALL_FIGURES
NAN = math.nan
FELL = re.compile("█[▓▒]?░")
"""A strip of what fell from full to a tenth."""


def strip(figure: WallFigure, shares: list[float], depth: Depth, *, ascii: bool = False) -> list[tuple[str, str]]:  # noqa: A002
    palette = Palette(load_theme("default"), depth, ascii=ascii)
    return list(strip_row(shares, figure, View(Config()), palette))


def test_a_cell_has_the_tint_of_its_tenth_and_a_gap_is_no_zero() -> None:
    pieces = strip(SM, [0.0, 0.34, 0.35, 0.99, NAN], Depth.TRUE)
    assert pieces == [(" ", tint("sm", 0)), ("  ", tint("sm", 3)), (" ", tint("sm", 9)), ("·", "border")]


def test_without_tints_cells_are_shades_and_in_ascii_digits() -> None:
    shares = [0.0, 0.1, 0.5, 0.7, 1.0, NAN]
    assert "".join(text for text, _ in strip(SM, shares, Depth.NONE)) == " ░▒▓█·"
    assert "".join(text for text, _ in strip(SM, shares, Depth.NONE, ascii=True)) == "01579."


@each_row(
    ("figure", "shares", "tones"),
    [
        (VRAM, [0.5, 0.96, 0.999], [tint("mbu", 5), "badge", "alarm"]),
        (POWER, [0.5, 0.98], [tint("sm", 5), "badge"]),
        (TEMPERATURE, [0.5, 1.05], [tint("sm", 5), "alarm"]),
        (SM, [1.0], [tint("sm", 9)]),
    ],
)
def test_what_is_above_its_level_has_the_colour_of_that(
    figure: WallFigure, shares: list[float], tones: list[str]
) -> None:
    assert [tone for _, tone in strip(figure, shares, Depth.TRUE)] == tones


@each_row(("room", "cells", "cell_s"), [(5, 5, 60.0), (11, 10, 30.0), (49, 30, 10.0), (60, 60, 5.0), (180, 60, 5.0)])
def test_a_strip_has_five_minutes_in_whole_sums_of_the_history(room: int, cells: int, cell_s: float) -> None:
    grid = strip_grid(room)
    assert grid == (cells, cell_s)
    assert grid.cells * grid.cell_s >= 300.0
    assert grid.cell_s % CELL_S == 0.0


def test_a_strip_ends_at_the_moment_that_is_shown() -> None:
    history = History()
    for at in range(900):
        history.append(1e9 + at, {"sm:3": 0.9 if at >= 600 else 0.2})
    reader = StripReader()
    past = reader.values(history, "sm:3", 60, 1e9 + 599.0)
    assert [round(value, 1) for value in past] == [0.2] * 60
    later = reader.values(history, "sm:3", 60, 1e9 + 749.0)
    assert [round(value, 1) for value in later] == [0.2] * 30 + [0.9] * 30
    assert list(reader.values(history, "sm:3", 60, 1e9 + 599.0)) == list(past), "and back"
    assert [value == value for value in reader.values(history, "sm:3", 60, 1e9 + 49.0)] == [False] * 50 + [True] * 10


@each_row(
    ("sizes", "label", "width", "room", "form", "across"),
    [
        ((8,), 0, 120, 36, CARD, 0),
        ((64,), 0, 120, 36, STRIP, 2),
        ((64,), 0, 80, 20, STRIP, 4),
        ((64,), 0, 80, 14, BOX, 0),
        ((200,), 0, 200, 57, STRIP, 4),
        ((1000,), 0, 120, 36, PAIR, 0),
    ],
)
def test_gpus_without_a_card_have_a_strip_where_all_of_them_fit(
    sizes: tuple[int, ...], label: int, width: int, room: int, form: TileForm, across: int
) -> None:
    plan = wall_plan(sizes, label, width, room, strips=True)
    if form is not BOX:
        assert plan.form is form
    assert plan.form is not STRIP or form is STRIP
    assert plan.lines <= room
    if across:
        assert sum(place.line == 0 for place in plan.places) == across
    assert wall_plan(sizes, label, width, room).form is not STRIP, "not among other panes"


def test_hosts_of_a_fleet_have_theirs_behind_their_tiles_or_their_name() -> None:
    many = wall_plan((8,) * 125, 6, 120, 35, strips=True)
    assert many.form is DOT
    assert len(many.strips) == 125
    assert many.lines <= 35
    few = wall_plan((8, 8, 8), 6, 120, 35, strips=True)
    assert [strip.line for strip in few.strips] == [label.line for label in few.labels]
    assert not wall_plan((8,) * 125, 6, 120, 35).strips


async def press(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


class Counting(History):
    """Counts how often it is read."""

    reads = 0

    def buckets(self, key: str, *others: float, **named: float) -> list[float]:
        self.reads += key.startswith("sm:")
        return super().buckets(key, *others, **named)  # type: ignore[arg-type]


def sixty_four(straggler: int = 17) -> tuple[Snapshot, Counting]:
    """Sixty-four GPUs that train, of which one has done next to nothing for two minutes."""
    of = scenes.snapshot(64, 0)
    programs = {**scenes.NO_ENGINE, "engines": (), "sm_active_ratio": 0.9}
    snapshot = replace(of, gpus=tuple(replace(gpu, **programs) for gpu in of.gpus))
    history = Counting()
    for ago_s in range(400, -1, -1):
        points = {f"busy:{index}": 1.0 for index in range(64)}
        for index in range(64):
            points[f"sm:{index}"] = 0.1 if index == straggler and ago_s < 120 else 0.9
            points |= {f"power:{index}": 600.0, f"vram:{index}": 0.8, f"temp:{index}": 60.0, f"tensor:{index}": 0.6}
        history.append(snapshot.wall_s - ago_s, points)
    return snapshot, history


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_one_straggler_of_sixty_four_is_seen_without_colours(width: int, height: int) -> None:
    snapshot, history = sixty_four()
    assert len(history.keys()) == 6 * 64, "more than have single ticks"
    async with running(Still(snapshot, history), width, height, theme="mono") as (app, pilot):
        await press(pilot, "z")
        body = text_of(app)[3:-1]
        assert sum(line.count("█" * 6) > 0 for line in body) >= 16
        broken = [line for line in body if FELL.search(line)]
        assert len(broken) == 1
        assert " 17  90%" in broken[0]
        assert "gpus · SM active · last 5 min" in text_of(app)[2]


async def test_strips_are_read_only_while_the_wall_has_its_full_height() -> None:
    snapshot, history = sixty_four()
    feed = Still(snapshot, history)
    async with running(feed, 120, 40) as (_, pilot):
        before = history.reads
        feed.give(replace(snapshot, wall_s=snapshot.wall_s + 1.0))
        await pilot.pause()
        assert history.reads == before
        await press(pilot, "z")
        assert history.reads >= before + 64
        await press(pilot, "escape")
        unzoomed = history.reads
        feed.give(replace(snapshot, wall_s=snapshot.wall_s + 2.0))
        await pilot.pause()
        assert history.reads == unzoomed


async def test_a_strip_at_the_right_edge_ends_where_it_ends() -> None:
    """What a line lacks to its end is filled in its last tone."""
    snapshot, history = sixty_four()
    async with running(Still(snapshot, history), 120, 40) as (app, pilot):
        await press(pilot, "z")
        rows = app.monitor.panes["gpus"].in_view(120, 36).rows
        with_strips = [row for row in rows if sum(tone.startswith("sm/") for _, tone in row) > 1]
        assert len(with_strips) == 32
        assert {row[-1][1] for row in with_strips} == {"text"}
        assert all(sum(len(text) for text, _ in row) <= 120 for row in rows)


async def test_another_figure_has_strips_of_its_own() -> None:
    snapshot, history = sixty_four()
    async with running(Still(snapshot, history), 120, 40, theme="mono") as (app, pilot):
        await press(pilot, "z", "f")
        assert "gpus · busy · last 5 min" in text_of(app)[2]
        assert not any("░" in line for line in text_of(app)[3:-1])


async def test_a_card_without_room_for_a_chart_has_a_strip() -> None:
    snapshot, history = sixty_four()
    few = replace(snapshot, gpus=snapshot.gpus[:20])
    async with running(Still(few, history), 120, 40, theme="mono") as (app, pilot):
        await press(pilot, "z")
        assert any(FELL.search(line) for line in text_of(app)[3:-1])


def slow(change: Callable[[HostFrame], HostFrame]) -> Callable[[HostFrame], HostFrame]:
    """A host of which one GPU does nothing."""

    def slowed(host: HostFrame) -> HostFrame:
        changed = change(host)
        gpus = [replace(gpu, busy_ratio=0.0) if gpu.index == 3 else gpu for gpu in changed.gpus]
        return replace(changed, gpus=tuple(gpus))

    return slowed


def rule(app: MonitorApp) -> str:
    return next(line for line in text_of(app) if " gpus" in line[:12])


def strips_of(lines: list[str], host: str) -> list[str]:
    """What stands behind the tiles of a host."""
    line = next(line for line in lines if f"{host} " in line)
    return line.partition(f"{host} ")[2].split()[1:3]


async def test_a_fleet_of_a_thousand_gpus_has_mean_and_lowest_of_each_host() -> None:
    wrong = {f"gpu{number:02d}": bare for number in range(2, 126)} | {"gpu77": slow(bare)}
    feed = Scrapes(125, wrong=wrong)
    feed.newest = 9
    async with watching(feed, 120, 40, ascii=True) as (app, pilot):
        await press(pilot, "z", "f")
        assert "gpus . busy . last 5 min: mean, lowest" in rule(app)
        before = app.monitor.shown
        feed.newest = 10
        await press(pilot, "r")
        await until(lambda: app.monitor.shown is not before, pilot)
        lines = text_of(app)
        assert sum(line.count("gpu") for line in lines[5:-1]) == 125
        mean, lowest = strips_of(lines, "gpu77")
        assert mean.startswith(".."), "nothing is known of the time before the screen began"
        assert lowest.endswith("0")
        assert not mean.endswith("0")
        rows = app.monitor.body.wall.in_view(120, 35).rows
        assert {row[-1][1] for row in rows if row} == {"text"}
        others = [strips_of(lines, f"gpu{number:02d}")[1] for number in (76, 78, 79)]
        assert not any(other.endswith("0") for other in others)


async def test_moments_of_a_fleet_that_were_gone_back_to_are_none_of_its_last_minutes() -> None:
    feed = Scrapes(3, wrong={})
    async with watching(feed, 120, 40, ascii=True) as (app, pilot):
        await press(pilot, "z")
        wall = app.monitor.body.wall
        kept = wall._past_of_hosts.keys()
        remembered_s = wall._remembered_s
        assert any("busy_ratio/mean/gpu01" in key for key in kept)
        await press(pilot, "left_square_bracket")
        await until(lambda: app.monitor.gone_back, pilot)
        assert wall._remembered_s == remembered_s
        await press(pilot, "end")
        await until(lambda: not app.monitor.gone_back, pilot)
