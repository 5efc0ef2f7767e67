"""Time on the screen: frozen, back and forth, replayed; every part shows the moment that the title names."""

from __future__ import annotations

import pytest

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Action, Confidence, Event, EventKind, Evidence, Level, Limit, Verdict
from gpumon.tui.app import MonitorApp
from gpumon.tui.control import SPEEDS
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import colour_depth
from gpumon.tui.widgets.title_bar import Freshness, Playing, TitleBar, machine_heading
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.past import Kept, Player, recorded
from tests.tui.running import foot, run_named, running, text_of, until
from tests.tui.test_keys import type_fast, type_keys

NOW_S = scenes.WALL_S  # 2025-10-09 08:53:22 UTC


def verdict(level: Level = Level.WARN, text: str = "KV cache is full", limit: Limit = Limit.KV_CACHE_FULL) -> Verdict:
    return Verdict(
        scope="vllm:8000",
        code=limit,
        cause=text,
        since="2025-10-09T08:52:00Z",
        actions=(Action("more instances"),),
        evidence=(Evidence("KV cache 97%"),),
        confidence=Confidence.HIGH,
        level=level,
    )


def marked(tick: int, snapshot: Snapshot) -> Snapshot:
    """GPU 0's power tells which second it is; a verdict from second -60 to second -31."""
    gpus = (replace(snapshot.gpus[0], power_w=500.0 + tick), *snapshot.gpus[1:])
    return replace(snapshot, gpus=gpus, verdicts=(verdict(),) if -60 <= tick <= -31 else ())


def ago(app: MonitorApp) -> float:
    assert app.monitor.shown is not None
    return NOW_S - app.monitor.shown.wall_s


def title(app: MonitorApp) -> str:
    return text_of(app)[0] + " "


async def test_out_of_the_past_a_step_back_leads_to_what_is_live() -> None:
    async with running(recorded(120, marked), 120, 40) as (app, pilot):
        for key in ("q", "f10", "escape"):
            await type_keys(app, pilot, "left_square_bracket")
            await until(lambda: app.monitor.gone_back, pilot)
            assert "ctrl+c quit" in foot(app)
            await type_keys(app, pilot, key)
            assert not app.monitor.gone_back
            assert not app.monitor.paused
            assert not app._exit
            assert " q quit" in foot(app)


async def test_the_keys_lead_to_the_moments_that_they_say() -> None:
    async with running(recorded(120, marked), 120, 40) as (app, pilot):

        async def press(*keys: str, seconds: float) -> str:
            await type_keys(app, pilot, *keys)
            await until(lambda: abs(ago(app) - seconds) < 0.01, pilot)
            await pilot.pause()
            assert f" {500 - seconds:.0f}W" in text_of(app)[4]
            return title(app)

        await type_keys(app, pilot, "space")
        assert " PAUSED at 08:53:22 " in title(app)
        assert " 1s AGO 08:53:21 " in await press("left", seconds=1)
        assert " 11s AGO 08:53:11 " in await press("[", seconds=11)
        assert " 1m 11s AGO 08:52:11 " in await press("{", seconds=71)
        await press("comma", seconds=72)
        await press(".", seconds=71)
        await press("right", seconds=70)
        await press("n", seconds=60)
        assert "KV cache is full" in "\n".join(text_of(app))
        await press("n", seconds=30)
        assert "KV cache is full" not in "\n".join(text_of(app))
        await press("N", "N", seconds=60)
        await press("]", seconds=50)
        await press("home", seconds=119)
        assert "the oldest moment kept: 08:51:23; [recorder] minutes" in foot(app)
        await press("}", seconds=59)
        assert "AGO" in await press("}", seconds=0)
        assert "the newest moment; End: live again" in foot(app)
        await type_keys(app, pilot, "end")
        assert not app.monitor.travel.paused
        assert "AGO" not in title(app)
        assert "PAUSED" not in title(app)


async def test_what_happened_just_now_is_one_key_away() -> None:
    async with running(recorded(120, marked)) as (app, pilot):
        for key, seconds in (("[", 10), ("{", 60), ("N", 30), ("comma", 1)):
            await type_keys(app, pilot, key)
            await until(lambda seconds=seconds: abs(ago(app) - seconds) < 0.01, pilot)  # type: ignore[misc]
            assert app.monitor.travel.paused
            await type_keys(app, pilot, "escape")
            assert not app.monitor.travel.paused


async def test_there_is_nothing_after_now() -> None:
    async with running(recorded()) as (app, pilot):
        for key in ("]", "}", "n", "."):
            await type_keys(app, pilot, key)
            assert "this is live: [ goes back" in foot(app), key
            assert not app.monitor.travel.paused
            await type_keys(app, pilot, "escape")
            assert "this is live" not in foot(app)


async def test_not_paused_the_keys_of_the_lists_keep_their_meaning() -> None:
    async with running(recorded()) as (app, pilot):
        await type_keys(app, pilot, "end")
        assert app.monitor.panes["gpus"].selected.reading.index == 7  # type: ignore[attr-defined]
        await type_keys(app, pilot, "home", "left", "right")
        assert app.monitor.panes["gpus"].selected.reading.index == 0  # type: ignore[attr-defined]
        assert not app.monitor.travel.paused


async def test_paused_the_pages_keep_the_keys_that_they_need() -> None:
    async with running(recorded(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "space", "enter", "right")
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        assert page.thing == ("gpu", "GPU-00000001")
        await type_keys(app, pilot, "comma")
        await until(lambda: abs(ago(app) - 1) < 0.01, pilot)
        await type_keys(app, pilot, "escape", "f2", "right", "home", "left")
        await pilot.pause()
        assert abs(ago(app) - 1) < 0.01


async def test_a_change_names_what_happened_and_the_triage_pane_points_at_it() -> None:
    feed = recorded(120, marked)
    told = ("vllm:8000", "verdict_began", Level.WARN)
    given = Event(NOW_S - 60.0, EventKind.VERDICT, *told, since_s=NOW_S - 82.0, verdict=verdict())
    over = Event(NOW_S - 30.0, EventKind.VERDICT, "vllm:8000", "verdict_over", Level.OK, verdict=verdict())
    for event in (Event(NOW_S - 61.0, EventKind.XID, "gpu 3", "Xid 31", level=Level.NOTE), given, over):
        feed.history.add_event(event)
    assert feed.timeline is not None
    feed.timeline.history = feed.history  # type: ignore[attr-defined]
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "t", "G", "space", "N")
        await until(lambda: abs(ago(app) - 30) < 0.01, pilot)
        assert "08:52:52 vllm:8000: KV cache full is over" in foot(app)
        (row,) = (line for line in text_of(app) if line.startswith("▸"))
        assert row.startswith("▸◆ verdict vllm:8000 08:52:52 KV cache full is over")
        await type_keys(app, pilot, "N")
        await until(lambda: abs(ago(app) - 60) < 0.01, pilot)
        await pilot.pause()
        assert "08:52:22 vllm:8000: since 08:52:00: KV cache full: KV cache is full" in foot(app)
        assert next(line for line in text_of(app) if line.startswith("▸")).startswith("▸! KV cache full vllm:8000")


async def test_a_verdict_that_never_changed_has_no_next_one() -> None:
    async with running(recorded(20)) as (app, pilot):
        await type_keys(app, pilot, "N")
        await until(lambda: "nothing happened before this in what is kept" in foot(app), pilot)


async def test_without_a_past_a_notice_says_so() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "[")
        assert "no past is kept: [recorder] minutes is 0" in foot(app)
        assert not app.monitor.travel.paused
        await type_keys(app, pilot, "space", "end")
        assert app.monitor.travel.paused


async def test_an_empty_past_and_one_that_can_not_be_read_are_notices() -> None:
    feed = recorded()
    async with running(feed) as (app, pilot):
        feed.timeline = Kept(())
        await type_keys(app, pilot, "[")
        await until(lambda: "nothing is kept yet" in foot(app), pilot)

        class Torn(Kept):
            async def at(self, wall_s: float) -> None:  # type: ignore[override]
                raise OSError(5, "Input/output error")

        feed.timeline = Torn([scenes.snapshot()])
        await type_keys(app, pilot, "[")
        await until(lambda: "cannot be read: OSError: [Errno 5] Input/output error" in foot(app), pilot)
        feed.timeline = Kept([scenes.snapshot(tick=-5), scenes.snapshot()])
        await type_keys(app, pilot, "comma")
        await until(lambda: "AGO" in title(app), pilot)


async def test_held_keys_add_up_and_never_pile_up() -> None:
    feed = recorded(200)
    assert isinstance(feed.timeline, Kept)
    feed.timeline.delay_s = 0.2
    async with running(feed) as (app, pilot):
        await type_fast(app, "space", *["left"] * 40)
        await until(lambda: abs(ago(app) - 40) < 0.01, pilot)
        assert feed.timeline.at_once == 1
        assert feed.timeline.asked <= 3
        await type_fast(app, "[", "left", "[", "home", "right")
        await until(lambda: abs(ago(app) - 198) < 0.01, pilot)


async def test_live_again_wins_over_what_was_still_looked_up() -> None:
    feed = recorded(120, marked)
    assert isinstance(feed.timeline, Kept)
    feed.timeline.delay_s = 0.2
    async with running(feed) as (app, pilot):
        await type_fast(app, "[", "end")
        assert not app.monitor.travel.paused
        await pilot.pause(0.4)
        assert ago(app) == 0
        assert "●" in title(app)


async def test_jumps_there_and_back_lead_to_the_same_frame() -> None:
    feed = recorded(1)
    late = [0.0, 0.004, -0.003, 0.001]
    feed.timeline = Kept([replace(scenes.snapshot(), wall_s=NOW_S - 100 + n + late[n % 4]) for n in range(101)])
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "{")
        await until(lambda: ago(app) > 50, pilot)
        there = app.monitor.shown
        for _ in range(5):
            await type_keys(app, pilot, "]", "]", "[", "[")
        await until(lambda: not app.monitor.travel.seeking, pilot)
        assert app.monitor.shown is there


async def test_the_charts_show_the_moment_and_then_now_again() -> None:
    feed = recorded()
    async with running(feed, 200, 60) as (app, pilot):
        live = text_of(app)
        await type_keys(app, pilot, "{", "{")
        await until(lambda: abs(ago(app) - 119) < 0.01, pilot)
        await pilot.pause()
        past = text_of(app)
        assert app.monitor.body.history._history is not feed.history
        chart = next(at for at, line in enumerate(past) if line.startswith("─3─"))
        assert past[chart + 1 : chart + 8] != live[chart + 1 : chart + 8]
        assert any(line.endswith("─now") for line in live)
        assert any(line.endswith("─08:51:23") for line in past)
        assert not any(line.endswith("─now") for line in past)
        await type_keys(app, pilot, "end")
        assert app.monitor.body.history._history is feed.history
        await until(lambda: text_of(app)[chart + 1 : chart + 8] == live[chart + 1 : chart + 8], pilot)


async def test_a_thing_that_was_not_there_yet_is_said_so() -> None:
    def later(tick: int, snapshot: Snapshot) -> Snapshot:
        return snapshot if tick > -20 else replace(snapshot, engines=snapshot.engines[1:])

    async with running(recorded(60, later), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", "enter")
        assert "engine vllm:8000" in text_of(app)[2]
        await type_keys(app, pilot, "[", "[")
        await until(lambda: "not there at 08:53:02" in text_of(app)[3], pilot)
        assert "engine vllm:8000" in text_of(app)[2]
        assert "GONE" not in "\n".join(text_of(app))
        await type_keys(app, pilot, ".")
        await until(lambda: "not there" not in text_of(app)[3], pilot)
        assert "ago" in text_of(app)[3]
        await type_keys(app, pilot, "end")
        await until(lambda: "AGO" not in title(app), pilot)
        assert "not there" not in "\n".join(text_of(app))


async def test_the_sizing_panel_says_that_it_is_of_another_time() -> None:
    feed = recorded()
    async with running(feed, 160, 50) as (app, pilot):
        await type_keys(app, pilot, "s", "[")
        await until(lambda: "sizing as of 08:53:22" in text_of(app)[1], pilot)
        assert "space: live again" in text_of(app)[1]
        feed.give(scenes.snapshot(tick=3))
        await pilot.pause()
        assert "sizing as of 08:53:22" in text_of(app)[1]
        await type_keys(app, pilot, "tab", "end")
        await until(lambda: "as of" not in text_of(app)[1], pilot)


async def test_collecting_goes_on_and_what_becomes_critical_is_said() -> None:
    feed = recorded()
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "space")
        worse = replace(scenes.snapshot(tick=1), verdicts=(verdict(Level.CRITICAL, "Xid 79", Limit.HARDWARE_FAULT),))
        feed.give(worse)
        await until(lambda: "! now, live: vllm:8000: hardware fault: Xid 79" in foot(app), pilot)
        assert " PAUSED at 08:53:22 " in title(app)
        await type_keys(app, pilot, "r")
        feed.give(replace(worse, wall_s=NOW_S + 2))
        await until(lambda: app.monitor.latest is not worse, pilot)
        await pilot.pause()
        assert "now, live" not in foot(app)


async def test_the_key_line_names_the_keys_of_time() -> None:
    async with running(recorded(), 120, 40) as (app, pilot):
        assert "changes" not in foot(app)
        await type_keys(app, pilot, "space")
        assert "resume  ← → frame  [ ] 10 s  n N events  End live" in foot(app)
        await type_keys(app, pilot, "enter")
        assert ", . frame  [ ] 10 s" in foot(app)
        await type_keys(app, pilot, "escape", "f2")
        assert "frame" not in foot(app)


async def test_another_day_has_its_date_and_the_age_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = recorded(1)
    feed.timeline = Kept([replace(scenes.snapshot(), wall_s=NOW_S - 93600.0), scenes.snapshot()])
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "comma")
        await until(lambda: " 1d 02h AGO 2025-10-08 06:53:22 " in title(app), pilot)
        monkeypatch.setattr(app.monitor.context, "unix_time", lambda: NOW_S + 3600.0)
        await until(lambda: " 1d 03h AGO " in title(app), pilot)


async def test_a_screen_too_small_for_tables_says_when_it_was() -> None:
    async with running(recorded(), 40, 5) as (app, pilot):
        await type_keys(app, pilot, "[")
        await until(lambda: "AT 2025-10-09 08:53:12" in title(app), pilot)


async def test_a_replay_plays_and_says_so() -> None:
    feed = Player([scenes.snapshot(tick=tick) for tick in range(60)])
    async with running(feed, 120, 40) as (app, pilot):
        assert title(app).startswith(" gpumon  gpu-07 · night.gpumon · 8x H100")
        assert " REPLAY 2025-10-09 08:53:22 ×1 " in title(app)
        app.monitor._arrived_s -= 500.0
        feed.give(scenes.snapshot(tick=5))
        await until(lambda: " REPLAY 2025-10-09 08:53:27 ×1 " in title(app), pilot)
        assert "no reading" not in title(app)
        assert any(line.endswith("─08:53:27") for line in text_of(app))
        assert not any(line.endswith("─now") for line in text_of(app))
        await type_keys(app, pilot, "space")
        assert feed.held
        assert " REPLAY 2025-10-09 08:53:27 PAUSED " in title(app)
        assert "space play" in foot(app)
        assert "Home End first, last" in foot(app)
        await type_keys(app, pilot, "right", "right")
        await until(lambda: "08:53:29 PAUSED" in title(app), pilot)
        await type_keys(app, pilot, "space")
        assert feed.from_s == NOW_S + 7
        assert not feed.held
        assert "08:53:29 ×1" in title(app)
        await type_keys(app, pilot, "end")
        await until(lambda: " REPLAY 2025-10-09 08:54:21 END " in title(app), pilot)
        assert feed.held
        assert "the recording ends: 08:54:21" in foot(app)
        await type_keys(app, pilot, "home")
        await until(lambda: "08:53:22 PAUSED" in title(app), pilot)
        assert "the recording begins: 08:53:22" in foot(app)


async def test_the_keys_of_the_interval_are_those_of_the_speed() -> None:
    feed = Player([scenes.snapshot(tick=tick) for tick in range(60)])
    async with running(feed, 160, 40) as (app, pilot):
        for speed in SPEEDS[3:]:
            await type_keys(app, pilot, "+")
            assert feed.speed == speed
            await until(lambda speed=speed: f" ×{speed:g} " in title(app), pilot)  # type: ignore[misc]
            assert f"+ - ×{speed:g}" in foot(app)
        await type_keys(app, pilot, "+")
        assert feed.speed == SPEEDS[-1]
        await type_keys(app, pilot, *["-"] * 20)
        assert feed.speed == SPEEDS[0]
        assert feed.interval_s == 1.0


async def test_a_replay_in_ascii() -> None:
    async with running(Player([scenes.snapshot(tick=tick) for tick in range(9)]), ascii=True) as (app, _):
        assert " 2025-10-09 08:53:22 x1 " in title(app)
        assert foot(app).isascii()


async def test_a_simulated_recording_stays_simulated() -> None:
    feed = Player([replace(scenes.snapshot(), simulated=True)])
    async with running(feed) as (app, _):
        assert " SIMULATED   REPLAY 2025-10-09 08:53:22 END " in title(app)


TITLES = {
    "live": Freshness(),
    "late": Freshness(waited_s=12.0),
    "paused": Freshness(paused=True),
    "back": Freshness(paused=True, back=True),
    "playing": Freshness(playing=Playing("night.gpumon", 10.0)),
    "slow": Freshness(playing=Playing("night.gpumon", 0.2)),
    "held": Freshness(paused=True, back=True, playing=Playing("night.gpumon", 10.0)),
    "ended": Freshness(playing=Playing("night.gpumon", 10.0, ended=True)),
}
LINES = {
    "live": " gpumon  gpu-07 · 8x H100 80GB HBM3 · 580.95.05                      ● 08:55:35",
    "late": " gpumon  gpu-07 · 8x H100 80GB HBM3 · 580.95.05   ! no reading for 12s 08:55:35",
    "paused": " gpumon  gpu-07 · 8x H100 80GB HBM3 · 580.95.05              PAUSED at 08:53:22",
    "back": " gpumon  gpu-07 · 8x H100 80GB HBM3 · 580.95.05             2m 13s AGO 08:53:22",
    "playing": " gpumon  gpu-07 · night.gpumon                   REPLAY 2025-10-09 08:53:22 ×10",
    "slow": " gpumon  gpu-07 · night.gpumon                  REPLAY 2025-10-09 08:53:22 ×0.2",
    "held": " gpumon  gpu-07 · night.gpumon                REPLAY 2025-10-09 08:53:22 PAUSED",
    "ended": " gpumon  gpu-07 · night.gpumon                   REPLAY 2025-10-09 08:53:22 END",
}


@each_row("name", TITLES)
def test_the_title_of_each_state(name: str) -> None:
    bar = TitleBar(Palette(load_theme("default"), colour_depth({"TERM": "xterm-256color"})))
    snapshot, standing = scenes.snapshot(), replace(TITLES[name], shown_s=NOW_S, every_s=1.0)
    bar.show(machine_heading(snapshot, "", standing.playing), NOW_S + 133.0, standing)
    (row,) = bar.rows(80, 1)
    line = "".join(text for text, _ in row)
    assert cells(line) == 80
    assert line.rstrip() == LINES[name]
    tones = {tone for text, tone in row if "08:5" in text}
    assert tones == {"bar" if name in ("live", "late") else "badge" if name in ("playing", "slow") else "badge_paused"}


async def test_a_time_that_is_typed_leads_to_its_moment() -> None:
    async with running(recorded(120, marked), 120, 40) as (app, pilot):
        for typed, seconds in (("08:52", 82), ("08:52:30", 52), ("-1m", 60), ("-90s", 90)):
            await run_named(app, pilot, typed)
            await until(lambda seconds=seconds: abs(ago(app) - seconds) < 0.01, pilot)  # type: ignore[misc]
            assert app.monitor.paused
            await type_keys(app, pilot, "end")
            await until(lambda: ago(app) == 0, pilot)


SPARSE = (("08:52:18", 62, ""), ("08:52:12", 62, "08:52:20"), ("08:52:09", 82, "08:52:00"), ("08:52:02", 82, ""))
"""A time that is typed, how many seconds back its nearest moment is, and which one the notice names, if it does."""


async def test_where_few_moments_are_kept_a_time_leads_to_the_nearest_one_and_that_is_said() -> None:
    """One moment in 20 s, as far back in a past that was made up; two seconds off are not worth a word."""
    feed = recorded(1)
    feed.timeline = Kept([marked(tick, scenes.snapshot(tick=tick)) for tick in range(-102, 0, 20)])
    async with running(feed, 120, 40) as (app, pilot):
        for typed, seconds, shown in SPARSE:
            await run_named(app, pilot, typed)
            await until(lambda seconds=seconds: abs(ago(app) - seconds) < 0.01, pilot)  # type: ignore[misc]
            await until(lambda: title(app).strip().endswith(("08:52:20", "08:52:00")), pilot)
            if shown:
                notice = f"nothing is kept at {typed}: shown is {shown}, the nearest"
                await until(lambda notice=notice: notice in foot(app), pilot)  # type: ignore[misc]
            else:
                assert "nothing is kept" not in foot(app)
            await type_keys(app, pilot, "end")
            await until(lambda: ago(app) == 0, pilot)


async def test_a_time_that_is_not_kept_names_the_command_for_recordings() -> None:
    async with running(recorded(120, marked), 120, 40) as (app, pilot):
        await run_named(app, pilot, "-2h")
        await until(lambda: "-2h is not kept here" in foot(app), pilot)
        assert "to 08:53:22 is; a recording may have it: gpumon replay --at -2h" in foot(app)
        assert not app.monitor.paused
