"""Then and now on the screen: a moment of the past is marked, and another one is held against it."""

from __future__ import annotations

import time

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.history.memory import MemoryStore
from gpumon.history.timeline import DerivedTimeline
from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.triage.triage import Triage
from gpumon.tui.screens.travel import go_to_time
from gpumon.tui.table import clock
from tests.accuracy.triage import WALL_S, frames
from tests.history.changed import MORE_SLOTS
from tests.history.pasts import lived, make
from tests.records import replace
from tests.tui.feed import Still
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import type_keys
from tests.tui.test_pages import page_of

Lived = tuple[MemoryStore, list[Snapshot]]


@pytest.fixture(scope="module")
def past() -> Lived:
    store = MemoryStore(3600.0, 1e9)
    shown = lived((frame for _, frame in frames(MORE_SLOTS, 240.0, every_s=2)), store)
    return store, shown


def feed_of(past: Lived) -> Still:
    store, shown = past
    feed = Still(shown[-1], History())
    feed.timeline = DerivedTimeline(store, make, lambda _: None, feed.history)
    return feed


async def test_a_marked_moment_of_the_past_is_held_against_now(past: Lived) -> None:
    async with running(feed_of(past), 80, 24) as (app, pilot):
        go_to_time(app.monitor, "-145s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M")
        assert "D compares with it" in foot(app)
        await type_keys(app, pilot, "end", "2", "D")
        await until(lambda: "TTFT p95" in "\n".join(text_of(app)), pilot)
        assert page_of(app) == "compare"
        for width, height in ((80, 24), (120, 40), (200, 60)):
            await pilot.resize_terminal(width, height)
            await until(lambda height=height: len(text_of(app)) == height, pilot)  # type: ignore[misc]
            text = "\n".join(text_of(app))
            assert "then and now: engine llama-8b" in text
            assert "at the same load (requests/s)" in text
            assert "--max-num-seqs 12 -> 64" in text
            assert all(cells(line) <= width for line in text_of(app))
            (row,) = (line for line in text_of(app) if line.startswith(" TTFT p95"))
            then, now, change = row.split()[2:5]
            assert (then[-1], now[-2:]) == ("s", "ms")
            assert change in ("-98%", "-99%")
        await type_keys(app, pilot, "right")
        assert "then and now: gpu 0" in "\n".join(text_of(app))
        await type_keys(app, pilot, "left", "left")
        await until(lambda: "then and now: test" in "\n".join(text_of(app)), pilot)
        assert "engine llama-8b: --max-num-seqs 12 -> 64" in "\n".join(text_of(app)), "the host names all changes"
        await type_keys(app, pilot, "escape")
        assert page_of(app) == ""


async def test_going_on_in_time_compares_again(past: Lived) -> None:
    """From where the options are still the old ones to where they are the new ones."""
    async with running(feed_of(past), 120, 40) as (app, pilot):
        go_to_time(app.monitor, "-200s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M")
        go_to_time(app.monitor, "-150s")
        await until(lambda: app.monitor.shown is not None and app.monitor.shown.wall_s == WALL_S + 90.0, pilot)
        await type_keys(app, pilot, "2", "D")
        await until(lambda: "nothing known was set differently" in "\n".join(text_of(app)), pilot)
        await type_keys(app, pilot, "}", "}")
        await until(lambda: "--max-num-seqs 12 -> 64" in "\n".join(text_of(app)), pilot)


async def test_the_page_of_the_present_goes_on_by_itself(past: Lived) -> None:
    """From where the options are still the old ones to where they are the new ones, without a key."""
    store, shown = past
    snapshots = {snapshot.wall_s - WALL_S: snapshot for snapshot in shown}
    feed = feed_of((store, [snapshots[90.0]]))
    async with running(feed, 120, 40) as (app, pilot):
        go_to_time(app.monitor, "-200s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M", "end", "2", "D")
        await until(lambda: "nothing known was set differently" in "\n".join(text_of(app)), pilot)
        for at_s in (92.0, 160.0, 238.0):
            feed.give(snapshots[at_s])
            await until(lambda at_s=at_s: clock(WALL_S + at_s) in "\n".join(text_of(app)[2:6]), pilot)  # type: ignore[misc]
        await until(lambda: "--max-num-seqs 12 -> 64" in "\n".join(text_of(app)), pilot)


async def test_the_page_of_the_present_goes_on_after_the_clock_was_set_back(past: Lived) -> None:
    store, shown = past
    snapshots = {snapshot.wall_s - WALL_S: snapshot for snapshot in shown}
    feed = feed_of((store, [snapshots[238.0]]))
    async with running(feed, 120, 40) as (app, pilot):
        go_to_time(app.monitor, "-200s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M", "end", "2", "D")
        for at_s in (238.0, 160.0):
            feed.give(snapshots[at_s])
            await until(lambda at_s=at_s: clock(WALL_S + at_s) in "\n".join(text_of(app)[2:6]), pilot)  # type: ignore[misc]


async def test_a_comparison_that_fails_again_and_again_is_not_tried_at_each_tick(past: Lived) -> None:
    """Each try takes 0.2 s: for nine times as long there is no other."""
    store, shown = past
    snapshots = {snapshot.wall_s - WALL_S: snapshot for snapshot in shown}
    feed = feed_of((store, [snapshots[90.0]]))
    tries_s = []

    def failing() -> tuple[Deriver, Triage]:
        tries_s.append(time.monotonic())
        time.sleep(0.2)
        raise RuntimeError("a bug")

    async with running(feed, 120, 40) as (app, pilot):
        go_to_time(app.monitor, "-200s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M", "end", "2")
        feed.timeline = DerivedTimeline(store, failing, lambda _: None, feed.history)
        await type_keys(app, pilot, "D")
        await until(lambda: "this cannot be compared: RuntimeError: a bug" in "\n".join(text_of(app)), pilot)
        for at_s in (90.5, 91.0, 160.0):
            feed.give(replace(snapshots[90.0], wall_s=WALL_S + at_s))
            await until(lambda at_s=at_s: app.monitor.latest.wall_s == WALL_S + at_s, pilot)  # type: ignore[misc, union-attr]
            await pilot.pause()
        await until(lambda: len(tries_s) > 1, pilot)
        assert len(tries_s) == 2


async def test_after_an_upgrade_it_asks_to_be_started_again(past: Lived) -> None:
    store, shown = past
    feed = feed_of((store, [snapshot for snapshot in shown if snapshot.wall_s == WALL_S + 90.0]))

    def upgraded() -> tuple[Deriver, Triage]:
        from gpumon.efficiency import deriver

        raise ImportError(f"cannot import name 'gone' from {deriver.__name__!r}")

    async with running(feed, 120, 40) as (app, pilot):
        go_to_time(app.monitor, "-200s")
        await until(lambda: app.monitor.gone_back, pilot)
        await type_keys(app, pilot, "M", "end", "2")
        feed.timeline = DerivedTimeline(store, upgraded, lambda _: None, feed.history)
        await type_keys(app, pilot, "D")
        await until(lambda: "files were changed while it runs: start it again" in "\n".join(text_of(app)), pilot)


async def test_what_is_missing_is_said(past: Lived) -> None:
    feed = feed_of(past)
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "D")
        assert "no moment is marked: M marks the one that is shown" in foot(app)
        await type_keys(app, pilot, "M", "D")
        await until(lambda: "wait 20 s: then and now take 10 s each" in "\n".join(text_of(app)), pilot)
        await type_keys(app, pilot, "escape")
        feed.timeline = None
        await type_keys(app, pilot, "D")
        assert "no past is kept" in foot(app)
