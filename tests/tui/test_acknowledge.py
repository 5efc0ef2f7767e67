"""Keys that acknowledge verdicts, and what the screen shows of those that are acknowledged."""

from __future__ import annotations

from gpumon.readings.format import rfc3339
from gpumon.readings.snapshot import Level, Limit, Snapshot, Verdict
from gpumon.readings.verdict import Acknowledged, Action
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.feed import Still
from tests.tui.running import foot, question_of, run_named, running, text_of, until
from tests.tui.test_keys import type_keys

HOUR_S = 3600.0
SCENE = scenes.snapshot()
HOT = replace(
    verdicts.of_gpu(SCENE.gpus[3], Limit.THROTTLED, "thermal"), level=Level.CRITICAL, actions=(Action("check_cooling"),)
)
SLOW = replace(verdicts.of_engine(SCENE.engines[0], Limit.QUEUE_LIMIT, "queue_slots"), level=Level.WARN)
MINE = Acknowledged("anna", "fan ordered", until=rfc3339(scenes.WALL_S + HOUR_S), since=rfc3339(scenes.WALL_S - 60.0))


def server(*standing: Verdict, after_s: float = 0.0) -> Snapshot:
    shown: Snapshot = replace(SCENE, verdicts=standing, faults=(), wall_s=SCENE.wall_s + after_s)
    return shown


def screen(app: MonitorApp) -> str:
    return "\n".join(text_of(app))


async def test_a_reason_and_enter_are_eight_hours() -> None:
    feed = Still(server(HOT, SLOW))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "t", "a", *"fan")
        await until(lambda: "acknowledge gpu 3 throttled, why: fan" in question_of(app)[0], pilot)
        assert "8 hours" in question_of(app)[1]
        await type_keys(app, pilot, "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged == [([HOT.id], "fan", 8 * HOUR_S)]
        assert "acknowledged until" in foot(app)


async def test_other_hours_are_chosen_below_and_escape_changes_nothing() -> None:
    feed = Still(server(HOT))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "t", "a", "escape", "a", "down", "down")
        assert not feed.acknowledged
        await type_keys(app, pilot, "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged == [([HOT.id], "", 2 * HOUR_S)]


async def test_the_page_of_a_verdict_has_the_key_and_says_who_knows() -> None:
    feed = Still(server(HOT, SLOW))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "t", "down", "enter", "a", "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged[0][0] == [SLOW.id]
        feed.give(server(HOT, replace(SLOW, acknowledged=MINE), after_s=1.0))
        await until(lambda: "acknowledged by anna until" in screen(app), pilot)


async def test_the_page_of_an_engine_acknowledges_and_copies_what_is_wrong_with_that_engine() -> None:
    """Whatever stands under triage's cursor: it is not on the screen."""
    other = replace(
        verdicts.of_engine(SCENE.engines[1], Limit.KV_CACHE_FULL, "kv_full"),
        level=Level.WARN,
        actions=(Action("raise_slots", {"flag": "--max-num-seqs", "wanted": 96.0}),),
    )
    feed = Still(server(HOT, SLOW, other))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "2", "down", "enter")
        assert foot(app).split("  ")[0] == " c copy"
        await type_keys(app, pilot, "c")
        await until(lambda: app.clipboard == "--max-num-seqs 96", pilot)
        await type_keys(app, pilot, "a", "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged[0][0] == [other.id]
        await type_keys(app, pilot, "right")
        await until(lambda: "c copy" not in foot(app), pilot)
        await type_keys(app, pilot, "a")
        await until(lambda: "nothing to acknowledge" in foot(app), pilot)


async def test_what_is_acknowledged_is_in_no_count_and_below_all_others() -> None:
    known = replace(HOT, acknowledged=MINE)
    feed = Still(server(HOT, SLOW))
    async with running(feed, 110, 36) as (app, pilot):
        assert "✗ 1 ! 1" in text_of(app)[1]
        feed.give(server(known, SLOW, after_s=1.0))
        await until(lambda: text_of(app)[1].startswith(" ! 1  "), pilot)
        rows = [line for line in text_of(app) if "queue limit" in line or "throttled" in line][1:]
        assert "queue limit" in rows[0]
        assert "acknowledged by anna until" in screen(app)
        assert "fan ordered" in screen(app)
        feed.give(server(known, after_s=2.0))
        await until(lambda: "1 verdict acknowledged" in text_of(app)[1], pilot)
        assert "✗" not in text_of(app)[1]
        feed.give(server(HOT, after_s=3.0))
        await until(lambda: "✗ 1" in text_of(app)[1], pilot)


async def test_the_key_again_takes_it_back_but_a_new_reason_keeps_it() -> None:
    feed = Still(server(replace(HOT, acknowledged=MINE)))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "t", "a", *"!", "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged == [([HOT.id], "fan ordered!", 8 * HOUR_S)]
        await type_keys(app, pilot, "a", "enter")
        await until(lambda: bool(feed.lifted), pilot)
        assert feed.lifted == [HOT.id]


async def test_gpus_of_one_row_are_acknowledged_together() -> None:
    alike = [
        replace(HOT, scope=f"gpu {gpu.reading.index}", key=gpu.reading.uuid, actions=(Action("check_cooling"),))
        for gpu in SCENE.gpus[:4]
    ]
    feed = Still(server(*alike))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "t", "a", "enter")
        await until(lambda: bool(feed.acknowledged), pilot)
        assert feed.acknowledged[0][0] == [verdict.id for verdict in alike]


async def test_it_is_in_the_palette() -> None:
    feed = Still(server(HOT))
    async with running(feed, 110, 36) as (app, pilot):
        await run_named(app, pilot, "acknowledge a verdict")
        await until(lambda: app.monitor.question_bar is not None, pilot)


async def test_without_a_verdict_it_says_where_one_is_chosen() -> None:
    feed = Still(server(verdicts.healthy(SCENE.engines[0])))
    async with running(feed, 110, 36) as (app, pilot):
        await type_keys(app, pilot, "a")
        await until(lambda: "nothing to acknowledge" in foot(app), pilot)
        assert feed.acknowledged == []
