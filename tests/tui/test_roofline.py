"""The roofline on the screen: marks, trails, roof and the list of engines, live and in the past."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Glyphs
from gpumon.tui.roofline import roofline_rows
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.fleet_feed import Scrapes, opened, watching
from tests.tui.running import foot, running, text_of, until

SIZE = (120, 30)


def served(**figures: object) -> Snapshot:
    """Three engines, the first of them with other figures."""
    of = scenes.snapshot(8, 3)
    first, *rest = of.engines
    return replace(of, engines=(replace(first, **figures), *rest))


def drawn(snapshot: Snapshot, history: History | None = None, glyphs: Glyphs = "braille") -> list[str]:
    rows = roofline_rows(snapshot.engines, history, snapshot.wall_s, SIZE, glyphs)
    assert len(rows) == SIZE[1]
    return ["".join(text for text, _ in row) for row in rows]


def place_of(lines: list[str], letter: str) -> tuple[int, int]:
    """Line and column of a mark in the picture."""
    for number, line in enumerate(lines[1:], 1):
        column = line[4:74].find(letter)
        if column >= 0 and not line.startswith(("d ", "┄")):
            return number, column
    raise AssertionError(f"no {letter} in the picture")


def test_an_engine_stands_where_its_shares_are_and_moves_with_them() -> None:
    low = place_of(drawn(served(mbu_ratio=0.3, mfu_ratio=0.1)), "A")
    right = place_of(drawn(served(mbu_ratio=0.8, mfu_ratio=0.1)), "A")
    above = place_of(drawn(served(mbu_ratio=0.3, mfu_ratio=0.9)), "A")
    assert low[0] == right[0]
    assert right[1] > low[1] + 20
    assert above[0] < low[0] - 10
    assert above[1] == low[1]


def test_the_roof_does_not_cross_its_label_in_a_low_picture() -> None:
    snapshot = served()
    for height in range(8, 31):
        rows = roofline_rows(snapshot.engines, None, snapshot.wall_s, (120, height), "braille")
        assert any("prefill: compute first" in "".join(text for text, _ in row) for row in rows)


def test_the_headroom_is_explained_by_a_number_that_stands_there() -> None:
    lines = [line[76:].strip() for line in drawn(served(mbu_ratio=0.5, mfu_ratio=0.1))]
    assert any(line.endswith("bandwidth at 2.0x") for line in lines)
    assert "2.0x: at the same FLOP/B A could do 2.0" in lines


def test_the_part_of_decode_has_a_mark_of_its_own_below() -> None:
    lines = drawn(served(mbu_ratio=0.3, mfu_ratio=0.9, mfu_decode_ratio=0.1))
    whole = place_of(lines, "A")
    assert any(line[4 + whole[1]] == "d" for line in lines[whole[0] + 5 :])


def test_a_share_above_100_percent_is_beyond_the_roof_and_not_clamped() -> None:
    lines = drawn(served(mbu_ratio=0.5, mfu_ratio=1.6))
    roof = next(number for number, line in enumerate(lines) if "┄┄┄┄" in line)
    assert place_of(lines, "A")[0] < roof - 4


def test_an_engine_without_a_figure_is_listed_with_the_reason_and_not_drawn() -> None:
    unknown = Missing(Reason.UNKNOWN_MODEL)
    lines = drawn(served(mfu_ratio=unknown, mbu_ratio=unknown))
    number = next(number for number, line in enumerate(lines) if "A vllm:8000" in line)
    assert "MFU unknown LLM, MBU unknown LLM" in lines[number + 1]
    assert "0%" not in lines[number] + lines[number + 1]
    assert not any("A" in line[4:74] for line in lines[1:])
    assert place_of(lines, "B")


def test_the_trail_has_the_last_five_minutes_and_nothing_after_the_moment() -> None:
    snapshot = served(mbu_ratio=0.5, mfu_ratio=0.5)
    key = snapshot.engines[0].key
    history = History()
    for ago_s in range(900, -60, -5):
        share = 0.2 if ago_s >= 0 else 0.9
        share = 0.05 if ago_s > 310 else share
        history.append(snapshot.wall_s - ago_s, {f"mbu@{key}": share, f"mfu@{key}": share}, 5.0)
    without = drawn(replace(snapshot, engines=snapshot.engines[:1]))
    lines = drawn(replace(snapshot, engines=snapshot.engines[:1]), history)
    changed = {
        (number, column)
        for number, (before, after) in enumerate(zip(without, lines, strict=True))
        for column, (one, other) in enumerate(zip(before, after, strict=True))
        if one != other
    }
    columns = {column - 4 for _, column in changed}
    assert len(changed) <= 2
    assert all(8 <= column <= 18 for column in columns)
    assert changed


def test_a_trail_does_not_cross_a_word() -> None:
    snapshot = served(mbu_ratio=0.7, mfu_ratio=0.08)
    key = snapshot.engines[0].key
    history = History()
    for ago_s in range(300, -5, -5):
        history.append(snapshot.wall_s - ago_s, {f"mbu@{key}": 0.6 + ago_s / 1000.0, f"mfu@{key}": 0.08}, 5.0)
    lines = drawn(replace(snapshot, engines=snapshot.engines[:1]), history)
    assert any("first" in line and "bandwidth" in line for line in lines)


def test_engines_at_one_place_stand_side_by_side() -> None:
    lines = drawn(scenes.snapshot(8, 3))
    second = place_of(lines, "B")
    assert place_of(lines, "C") == (second[0], second[1] + 1)


def test_characters_of_terminals_without_unicode() -> None:
    lines = drawn(served(mbu_ratio=0.3, mfu_ratio=0.2), glyphs="ascii")
    assert "".join(lines).isascii()
    assert place_of(lines, "A")


async def press(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


def title(app: MonitorApp) -> str:
    return next(line for line in text_of(app) if line.startswith("─3─"))


async def test_a_key_shows_it_in_the_place_of_the_charts_and_escape_brings_them_back() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await press(pilot, "R")
        assert "history · roofline" in title(app)
        assert sum("FLOP/B" in line for line in text_of(app)) >= 3
        await press(pilot, "escape")
        assert "roofline" not in title(app)


async def test_the_same_key_gives_the_pane_its_size_back() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 24) as (app, pilot):
        await press(pilot, "R")
        assert app.monitor.body.zoomed == "history"
        await press(pilot, "R")
        assert app.monitor.body.zoomed == ""
        await press(pilot, "3", "z", "R", "R")
        assert app.monitor.body.zoomed == "history"


@pytest.mark.parametrize("way_back", ["escape", "q", "up"])
async def test_it_comes_after_the_last_chart_and_every_way_back_gives_the_pane_its_size_back(way_back: str) -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 24) as (app, pilot):
        await press(pilot, "3", "G")
        assert "roofline" not in title(app)
        await press(pilot, "down")
        assert "history · roofline" in title(app)
        assert app.monitor.body.zoomed == "history"
        await press(pilot, "down", "enter")
        assert "history · roofline" in title(app)
        await press(pilot, way_back)
        assert "roofline" not in title(app)
        assert app.monitor.body.zoomed == ""
        await press(pilot, "2", "down", "escape")
        assert "roofline" not in title(app)


async def test_no_roofline_comes_after_the_last_chart_of_a_narrow_screen() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 100, 40) as (app, pilot):
        await press(pilot, "3", "G", "down")
        assert not any("roofline" in line for line in text_of(app)), "nor does the key line offer it"


@each_row(("engines", "shown", "more"), [(3, 3, ""), (9, 9, ""), (16, 11, "+5 more")])
def test_engines_without_room_for_two_lines_have_one_and_those_without_any_are_counted(
    engines: int, shown: int, more: str
) -> None:
    snapshot = scenes.snapshot(8, engines)
    rows = roofline_rows(snapshot.engines, None, snapshot.wall_s, (120, 12), "braille")
    beside = ["".join(text for text, _ in row)[-44:] for row in rows]
    assert sum("vllm:" in line for line in beside) == shown
    assert ([line.strip() for line in beside if "more" in line] or [""])[-1].endswith(more)


async def test_a_narrow_screen_says_how_wide_it_must_be() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot), 100, 30) as (app, pilot):
        await press(pilot, "R")
        assert "120 columns" in foot(app)
        assert not any("roofline" in line for line in text_of(app)[:-1])


async def test_the_page_of_an_engine_ends_with_its_roofline() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 50) as (app, pilot):
        await press(pilot, "2", "enter", "G")
        lines = text_of(app)
        assert " roofline" in lines
        assert any("A vllm:8000" in line for line in lines)


async def test_a_host_of_a_fleet_has_it_too() -> None:
    async with watching(Scrapes(3), 120, 50) as (app, pilot):
        await opened(app, pilot)
        await press(pilot, "R")
        await until(lambda: any("history · roofline" in line for line in text_of(app)), pilot)
        assert sum("FLOP/B" in line for line in text_of(app)) >= 2
