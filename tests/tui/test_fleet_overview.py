"""A fleet's screen with room to spare: triage and charts of all hosts, what is free, and nothing told twice above."""

from __future__ import annotations

import re
from itertools import product

import pytest
from textual.pilot import Pilot

from gpumon.fleet.rows import by_host
from gpumon.readings.fleet import HostFrame
from gpumon.readings.frame import Fault
from gpumon.tui.app import MonitorApp
from gpumon.tui.fleet import columns
from tests.fleet.fleets import fed, fleet_frame
from tests.history.frames import WALL_S
from tests.records import replace
from tests.tui.fleet_feed import LAST, MIXED, Scrapes, bare, watching
from tests.tui.running import text_of, until


def emptied(host: HostFrame) -> HostFrame:
    """Its first six GPUs have no engine and nothing in their memory."""
    gpus = tuple(
        replace(gpu, vram_used_bytes=0.0, busy_ratio=0.0, processes=()) if place < 6 else gpu
        for place, gpu in enumerate(host.gpus)
    )
    return replace(host, gpus=gpus, engines=())


def lines_of(app: MonitorApp) -> list[str]:
    return [text.rstrip() for text in text_of(app)]


def longest_blank(lines: list[str]) -> int:
    """Lines of the longest block in which nothing stands."""
    blocks = re.findall(r"(?:(?<=\n)\n)+", "\n".join(lines))
    return max(map(len, blocks), default=0)


SCREENS = [(80, 24), (120, 40), (200, 60)]
OFTEN = [(2, (80, 24)), (4, (120, 40)), (12, (200, 60)), (2, (200, 60)), (12, (80, 24))]
"""Hosts and screens of every run: each once, and the fewest hosts on the largest screen and the reverse."""


@pytest.mark.parametrize(
    ("hosts", "size"),
    [
        *OFTEN,
        *(pytest.param(*case, marks=pytest.mark.wide) for case in product([2, 4, 12], SCREENS) if case not in OFTEN),
    ],
)
async def test_no_block_of_lines_is_blank_while_something_is_hidden(hosts: int, size: tuple[int, int]) -> None:
    without_engines = {f"gpu{number:02d}": bare for number in range(5, hosts + 1)}
    source = Scrapes(hosts, wrong={**MIXED, **without_engines})
    source.newest = LAST - 4
    async with watching(source, *size) as (app, pilot):
        for _ in range(4):
            source.newest += 1
            asked = len(source.asked)
            await pilot.press("r")
            await until(lambda asked=asked: len(source.asked) > asked and not app.control.fleet.asking, pilot)
        shown = lines_of(app)
        plan = app.monitor.body.plan(app.monitor, *size)
        assert plan.table + plan.foot + plan.troubles + plan.charts + plan.sentence > 0
        above_charts = shown[: 4 + plan.table + plan.foot + plan.troubles]
        assert longest_blank(above_charts) <= 3, "\n".join(shown)
        if plan.charts:
            assert any("── all hosts ──" in line for line in shown)
        if hosts == 4:
            assert any("─── triage ──" in line for line in shown)
            assert any(line.startswith(" ✗ hardware") and "gpu02 gpu 2" in line for line in shown)
            assert any(line.startswith(" ! silent") and "gpu04 vllm:8000" in line for line in shown)
            assert plan.charts


async def test_charts_grow_with_each_answer_and_stay_away_from_the_past() -> None:
    source = Scrapes(2, wrong={})
    source.newest = LAST - 3
    async with watching(source, 120, 40) as (app, pilot):
        charts = app.monitor.body.charts
        first = charts.all_hosts.first_s
        for _ in range(3):
            source.newest += 1
            asked = len(source.asked)
            await pilot.press("r")
            await until(lambda asked=asked: len(source.asked) > asked and not app.control.fleet.asking, pilot)
        assert charts.all_hosts.first_s == first
        assert charts.all_hosts.has_values("decode")
        await pilot.press("[")
        await until(lambda: app.monitor.gone_back, pilot)
        assert app.monitor.body.plan(app.monitor, 120, 40).charts == 0


async def test_free_gpus_and_the_largest_tp_stand_above_the_table_and_in_a_column() -> None:
    source = Scrapes(3, wrong={"gpu01": emptied, "gpu03": bare})
    async with watching(source, 200, 60) as (app, _):
        (totals,) = [line for line in lines_of(app) if line.startswith(" busy ")]
        assert "free 6, TP 4  (C)" in totals
        head = next(line for line in lines_of(app) if line.startswith(" host "))
        row = next(line for line in lines_of(app) if line[1:].startswith("gpu01 "))
        end = head.index(" free") + len(" free")
        assert row[:end].endswith(" 6 TP4")
        other = next(line for line in lines_of(app) if line[1:].startswith("gpu02 "))
        assert other[:end].endswith("  0")


def test_free_gpus_of_a_host_that_does_not_answer_are_not_known() -> None:
    frame = fleet_frame(LAST, 1)
    (row,) = by_host(fed(frame), {})
    assert columns._free_text(row) == "0"
    (host,) = frame.hosts
    (row,) = by_host(fed(replace(frame, hosts=(replace(host, gpus=(), engines=()),))), {})
    assert columns._free_text(row) == "–"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_totals_tell_nothing_that_the_headline_has_told(size: tuple[int, int]) -> None:
    async with watching(Scrapes(5), *size) as (app, _):
        headline = lines_of(app)[1]
        totals = " ".join(line for line in lines_of(app)[2:4] if not line.startswith("─"))
        for told, again in (("MFU ", "mfu "), ("MBU ", "mbu "), (" tok/s", "tok/s ")):
            if told in headline:
                assert not re.search(rf"(^|  ){re.escape(again)}\d", totals), totals
            elif again != "tok/s ":
                assert again in totals
        watts = re.search(r"\b\d+kW", headline)
        assert watts is None or watts[0] not in totals


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_fleet_without_an_engine_has_no_column_and_no_total_of_engines(size: tuple[int, int]) -> None:
    source = Scrapes(4, wrong=dict.fromkeys(("gpu01", "gpu02", "gpu03", "gpu04"), bare))
    async with watching(source, *size, answered=False) as (app, pilot):
        await until(lambda: app.monitor.shown is not None and not app.control.fleet.asking, pilot)
        head = next(line for line in lines_of(app) if line.startswith(" host "))
        assert not {"wait", "ttft", "mfu", "mbu", "decode", "kv"}.intersection(head.split())
        assert {"power", "busy", "vram"} <= {word.strip("░▇") for word in head.split()}
        totals = " ".join(line for line in lines_of(app)[2:4] if not line.startswith("─"))
        assert "–" not in totals
        assert "busy " in totals


async def test_totals_of_hosts_of_which_nothing_is_known_are_no_row_of_dashes() -> None:
    def silent(host: HostFrame) -> HostFrame:
        return replace(host, gpus=(), engines=(), faults=(Fault("ssh", "no route to host", WALL_S),))

    source = Scrapes(2, wrong={"gpu01": silent, "gpu02": silent})
    async with watching(source, 120, 40, answered=False) as (app, pilot):
        await until(lambda: app.monitor.shown is not None and not app.control.fleet.asking, pilot)
        assert " no GPU and no engine is known yet" in lines_of(app)
        assert "gpu01 unreachable: no route to host" in lines_of(app)[1]


def eighty() -> Scrapes:
    """80 hosts, of which the first nine have engines."""
    return Scrapes(80, wrong={f"gpu{number:02d}": bare for number in range(10, 81)})


async def narrowed(app: MonitorApp, pilot: Pilot[int]) -> None:
    """Leave the hosts `gpu01` to `gpu09` of 80."""
    await pilot.press("slash", *"gpu0", "enter")
    await until(lambda: any("─── gpus · " in line for line in lines_of(app)), pilot)


async def test_a_short_table_of_many_hosts_has_the_wall_of_their_gpus_below() -> None:
    async with watching(eighty(), 200, 60) as (app, pilot):
        assert not app.monitor.body.wall.display, "rows fill the screen"
        await narrowed(app, pilot)
        shown = lines_of(app)
        assert not any("── all hosts ──" in line for line in shown)
        wall = next(number for number, line in enumerate(shown) if "─── gpus · " in line)
        assert any("gpu09" in line for line in shown[wall:])
        assert not any("gpu10" in line for line in shown[wall:])
        assert app.monitor.current is app.monitor.body.table
        await pilot.press("f")
        await until(lambda: any("─── gpus · MBU" in line for line in lines_of(app)), pilot)
        await pilot.press("tab")
        assert app.monitor.current is app.monitor.body.wall
        assert "z wall alone" in lines_of(app)[-1]
        await pilot.press("question_mark")
        assert " keys of the wall" in lines_of(app)


async def test_in_place_of_the_table_the_wall_has_all_hosts_and_strips() -> None:
    async with watching(eighty(), 200, 60) as (app, pilot):
        await narrowed(app, pilot)
        for way_back in ("z", "escape"):
            await pilot.press("z")
            await until(lambda: any("last 5 min: mean" in line for line in lines_of(app)), pilot)
            assert any("gpu80" in line for line in lines_of(app))
            await pilot.press(way_back)
            await until(lambda: any(line.startswith(" host ") for line in lines_of(app)), pilot)
            assert app.monitor.body.wall.display
            assert not any("last 5 min" in line or "gpu80" in line for line in lines_of(app)), way_back
