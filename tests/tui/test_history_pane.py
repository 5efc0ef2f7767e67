"""The history pane at every size: spans, the chosen chart, one chart alone, ASCII, what it costs on the line."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpumon.config.schema import Config, Screen
from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import SinceStart, Snapshot
from gpumon.tui.charts.curves import CHARTS
from gpumon.tui.charts.series import SPANS_S
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.palette import Glyphs, Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.view import View
from gpumon.tui.widgets.history_pane import HistoryPane
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import type_keys

GLYPHS: tuple[Glyphs, ...] = ("braille", "blocks", "ascii")
THEME = load_theme("default")
LIVE = scenes.snapshot()
PAST = scenes.history(LIVE)


def pane(
    snapshot: Snapshot | None = LIVE,
    history: History = PAST,
    *,
    glyphs: Glyphs = "braille",
    focused: bool = False,
    config: Config | None = None,
) -> HistoryPane:
    palette = Palette(THEME, Depth.TRUE, ascii=glyphs == "ascii", glyphs=glyphs)
    made = HistoryPane(palette, View(config or Config()), history)
    made.has_focus = focused
    if snapshot is not None:
        made.show(snapshot)
    return made


def with_span(span_s: float) -> Config:
    """Settings of charts that go back so far."""
    return Config(screen=Screen(span_s=span_s))


def painted(of: HistoryPane, width: int, height: int) -> list[str]:
    return [Line(row, width, of.palette, LineSlot()).characters for row in of.rows(width, height)]


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


@given(
    st.integers(60, 300),
    st.integers(1, 60),
    st.sampled_from(GLYPHS),
    st.sampled_from(SPANS_S),
    st.integers(0, len(CHARTS) - 1),
    st.booleans(),
    st.booleans(),
)
def test_every_size_is_painted(
    width: int, height: int, glyphs: Glyphs, span_s: float, cursor: int, opened: bool, zoomed: bool
) -> None:
    of = pane(glyphs=glyphs, focused=True, config=with_span(span_s))
    of.cursor, of.opened, of.zoomed = cursor, opened, zoomed
    rows = of.rows(width, height)
    assert "failed" not in text(rows[0])
    assert 1 <= len(rows) <= height
    assert all(cells(text(row)) <= width for row in rows)
    if height > 11:
        assert len(rows) == height


@each_row("opened", [False, True])
@each_row("width", [60, 80, 120, 200])
def test_ascii_is_ascii(width: int, opened: bool) -> None:
    of = pane(glyphs="ascii", focused=True)
    of.opened = opened
    for height in (2, 5, 9, 14, 30, 50):
        assert all(line.isascii() and "?" not in line for line in painted(of, width, height))


def test_the_rule_says_the_span_and_its_keys() -> None:
    of = pane()
    for span_s, said in zip(SPANS_S, ("60 s", "2 min", "5 min", "10 min", "30 min", "60 min", "2 h"), strict=True):
        of.view.use(with_span(span_s))
        assert f"last {said} (< >)" in painted(of, 80, 12)[0]


def test_spans_go_step_by_step_and_stop_at_the_ends() -> None:
    of = pane()
    assert of.span_s == 300.0
    seen = []
    for _ in range(9):
        of.step_span(1)
        seen.append(of.span_s)
    assert seen == [600.0, 1800.0, 3600.0, 7200.0, *[7200.0] * 5]
    for _ in range(9):
        of.step_span(-1)
    assert of.span_s == 60.0


def test_a_span_of_the_config_is_taken_and_may_be_any() -> None:
    of = pane(config=with_span(1000.0))
    assert "last 16.7 min" in painted(of, 100, 12)[0]
    of.step_span(1)
    assert of.span_s == 1800.0
    of.view.use(with_span(120.0))
    assert "last 2 min" in painted(of, 100, 12)[0]


async def test_the_first_click_on_the_pane_opens_no_chart() -> None:
    async with running("live", 120, 40) as (app, pilot):
        history = app.monitor.body.history
        place = (20, history.region.y + 2)
        await pilot.click(offset=place)
        await pilot.pause()
        assert history.has_focus
        assert (history.cursor, history.opened) == (0, False)
        await pilot.click(offset=place)
        await pilot.pause()
        assert (history.cursor, history.opened) == (0, True)


@each_row("height", [2, 3, 4])
@each_row("opened", [False, True])
def test_the_smallest_panes_say_figures(height: int, opened: bool) -> None:
    of = pane()
    of.opened = opened
    lines = painted(of, 80, height)[1:]
    first = "sm" if opened else "decode"
    assert re.match(rf" {first} +[\d.]+[%k] +.*[▁-█]", lines[0])


def test_without_the_focus_there_is_no_mark() -> None:
    assert not any("▸" in line for line in painted(pane(), 120, 20))


def test_paused_it_shows_the_same_however_late_and_at_whatever_size_it_is_drawn() -> None:
    history = scenes.history(LIVE)
    of = pane(LIVE, history)
    before = {size: painted(of, *size) for size in ((120, 20), (200, 41), (80, 5))}
    for tick in range(1, 120):
        history.append(LIVE.wall_s + tick, dict.fromkeys(history.keys(), 0.0))
    for size, lines in before.items():
        assert painted(of, *size) == lines


def test_the_first_moments_and_no_readings_at_all() -> None:
    assert "starting" in "".join(painted(pane(None), 80, 5))
    empty = pane(LIVE, History())
    for height in (2, 5, 12, 40):
        said = "".join(painted(empty, 120, height)[1:]).replace("0-100%", "").replace("┄ 90%", "")
        assert not re.search(r"[1-9]\d*%", said)


@each_row(("width", "height", "most"), [(80, 6, 250), (120, 20, 520), (200, 41, 1100)])
def test_bytes_to_the_terminal(width: int, height: int, most: int) -> None:
    """With figures that all move each second; the whole screen has 3 kB/s."""
    history = scenes.history(LIVE)
    of = pane(LIVE, history)
    slots = [LineSlot() for _ in range(height)]
    written, rows, console = 0, [()] * height, Console()
    for tick in range(60):
        snapshot = scenes.snapshot(tick=tick)
        if tick:
            history.append(snapshot.wall_s, scenes.points(snapshot))
        of.show(snapshot)
        for y, row in enumerate(of.rows(width, height)):
            line = Line(row, width, of.palette, slots[y])
            ranges = line.changes(slots[y].shown)
            if row == rows[y] or not ranges:
                continue
            rows[y] = row
            patch = len(line.crop(0, min(ranges[-1][1], width - 1)).render(console).encode()) + len("\x1b[10;1H")
            written += patch if tick > 2 else 0
    assert written / 57 < most


async def test_each_press_changes_how_far_the_charts_go_back_however_fast_they_come() -> None:
    async with running("live", 120, 40) as (app, pilot):
        for key, shown in (("<", "2 min"), ("<", "60 s"), (">", "2 min"), (">", "5 min"), ("<", "2 min")):
            await type_keys(app, pilot, key)
            await until(lambda shown=shown: f"last {shown} (< >)" in "\n".join(text_of(app)), pilot, 5.0)  # type: ignore[misc]


async def test_the_charts_start_at_the_first_one_again_once_another_pane_has_the_focus() -> None:
    async with running("live", 80, 24) as (app, pilot):
        first = text_of(app)
        await pilot.press("3", "G")
        assert any("▸°C" in line for line in text_of(app))
        await pilot.press("question_mark", "escape")
        await pilot.press("colon", "escape")
        assert app.monitor.body.history.cursor > 8
        await pilot.press("1")
        await until(lambda: text_of(app) == first, pilot)


async def test_a_chart_that_is_open_stays_when_the_focus_goes() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("3", "j", "enter", "1")
        assert any("history · MBU, MFU" in line for line in text_of(app))


async def test_the_key_line_names_the_way_back_from_one_chart_only_where_one_is_open() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("3")
        assert "Enter one chart" in foot(app)
        await pilot.press("enter")
        assert "one chart" not in foot(app)
        assert "Esc all charts" in foot(app)
        await pilot.press("escape")
        assert "Enter one chart" in foot(app)
        rule = next(at for at, line in enumerate(text_of(app)) if line.startswith("─3─"))
        await pilot.click(offset=(5, rule + 1))
        await until(lambda: "Esc all charts" in foot(app), pilot)


def fallen(*, silent: int, **gone: object) -> HistoryPane:
    """A pane whose sums have a gap, as the first engines just fell silent."""
    names = ("decode_tokens_per_s", "prefill_tokens_per_s", "running", "waiting")
    why = dict.fromkeys(names, Missing(Reason.UNREACHABLE))
    engines = tuple(scenes.engine(at, **(why if at < silent else {}), **gone) for at in range(3))
    of = scenes.snapshot(engines=3)
    points = scenes.points(of) | dict.fromkeys(("decode", "prefill", "running", "waiting"), math.nan)
    history = History()
    history.append(of.wall_s, points)
    return pane(replace(of, engines=engines), history, glyphs="blocks")


@each_row(("width", "height"), [(80, 2), (80, 5), (80, 12), (120, 20), (200, 41), (200, 9), (300, 4)])
def test_every_chart_can_be_chosen_and_is_in_view_with_a_mark(width: int, height: int) -> None:
    of = pane(focused=True)
    of.rows(width, height)
    of.move(-100_000)
    seen = []
    for _ in range(20):
        assert sum(line.count("▸") for line in painted(of, width, height)) == 1
        seen.append(of.cursor)
        of.move(1)
    assert seen[:12] == list(range(12))
    assert seen[-1] == seen[-2]


def test_a_chart_is_opened_left_for_the_next_and_closed() -> None:
    of = pane(focused=True)
    of.rows(120, 20)
    assert not of.back()
    assert of.open() is None
    lines = painted(of, 120, 20)
    assert "history · busy, SM active" in lines[0]
    assert "Esc: all charts" in lines[0]
    assert sum("⡪ busy" in line for line in lines) == 1
    of.move(2)
    assert "decode tok/s" in painted(of, 120, 20)[0]
    assert of.back()
    assert not of.back()


@each_row("how", ["opened", "zoomed"])
def test_a_chart_of_each_gpu_stands_below(how: str) -> None:
    of = pane(focused=True)
    setattr(of, how, True)
    for gpus, height in ((8, 30), (2, 30), (8, 12)):
        of.show(scenes.snapshot(gpus))
        said = "\n".join(painted(of, 120, height))
        assert [gpu for gpu in range(9) if re.search(rf"\bgpu {gpu}\b", said)] == list(range(gpus))
    slices = tuple(replace(gpu, parent_uuid="GPU-0", mig_profile="1g.10gb") for gpu in LIVE.gpus[:2])
    of.show(replace(LIVE, gpus=(*LIVE.gpus[:1], *slices)))
    assert "\n".join(painted(of, 120, 30)).count("gpu 0 busy") == 1


def names(of: HistoryPane, width: int = 60, height: int = 30) -> list[str]:
    """The charts that are drawn, by the names on their legends."""
    return [name.strip() for name in re.findall("[⣿⡪] ([A-Za-z°][A-Za-z ]*)", "\n".join(painted(of, width, height)))]


def test_engines_keep_the_places_of_late_figures_and_lose_those_that_never_come() -> None:
    history = History()
    known = {"busy": 0.5, "running": 3.0, "decode": 100.0}
    history.append(LIVE.wall_s, known)
    of = pane(LIVE, history)
    assert names(of)[:4] == ["busy", "MBU", "MFU", "decode tok"]
    later = scenes.snapshot(tick=60)
    history.append(later.wall_s, known)
    of.show(later)
    assert names(of) == ["busy", "decode tok", "running"]


def test_a_gpu_without_engines_has_no_chart_without_data() -> None:
    alone = replace(LIVE, gpus=LIVE.gpus[:1], engines=(), verdicts=())
    history = History()
    history.append(alone.wall_s, {"busy": 0.5, "sm": 0.4, "power": 300.0, "temp": 50.0, "vram": 0.1, "mfu": math.nan})
    of = pane(alone, history)
    assert names(of, 80) == ["busy", "SM active", "VRAM", "power", "°C"]
    sparks = "\n".join(painted(of, 80, 5))
    assert re.findall(r"(busy|power|°C|vram|mfu|decode|kv) ", sparks) == ["busy", "vram", "power", "°C"]


def test_a_chart_that_had_data_once_stays_and_keeps_its_place() -> None:
    history = History()
    history.append(LIVE.wall_s, {"busy": 0.5, "decode": 100.0, "power": 300.0})
    of = pane(LIVE, history)
    for tick in range(1, 120):
        history.append(LIVE.wall_s + tick, {"busy": 0.5, "power": 300.0})
        of.show(scenes.snapshot(tick=tick))
    assert names(of) == ["busy", "decode tok", "power"]
    of.read_from(History())
    of.show(scenes.snapshot(tick=120))
    assert names(of) == ["busy", "decode tok", "power"], "a moment of the past has the same charts"


def test_a_chart_that_comes_later_does_not_take_the_place_of_the_chosen_one() -> None:
    history = History()
    history.append(LIVE.wall_s - 60.0, {"busy": 0.5, "power": 300.0})
    of = pane(scenes.snapshot(tick=-60), history, focused=True)
    history.append(LIVE.wall_s, {"busy": 0.5, "power": 300.0})
    of.show(LIVE)
    of.move(1)
    of.open()
    assert "power" in of.title()
    history.append(LIVE.wall_s + 1, {"busy": 0.5, "power": 300.0, "decode": 100.0})
    of.show(scenes.snapshot(tick=1))
    assert "power" in of.title()
    assert of.back()
    assert names(of) == ["busy", "decode tok", "power"]


def test_a_sum_with_a_gap_is_said_of_those_that_answer() -> None:
    rest = sum(engine.load.running for engine in scenes.snapshot().engines[1:])  # type: ignore[misc]
    areas = "\n".join(painted(fallen(silent=1), 120, 40))
    assert re.search(r"█ decode tok/s \d\.\d+k of 2/3 +", areas)
    assert f"{rest:.0f} of 2/3" in "\n".join(painted(fallen(silent=1), 80, 60))
    sparks = painted(fallen(silent=1), 120, 6)
    assert any(re.search(r"decode +\d\.\d+k of 2/3 ", line) for line in sparks)
    assert {len(line) for line in sparks} == {120}
    (one,) = painted(fallen(silent=1), 120, 2)[1:]
    assert re.search(r"deco\S+ +\d\.\d+k of 2/3 ", one)


def test_a_gap_without_a_sum_stays_a_dash() -> None:
    for of in (fallen(silent=3), fallen(silent=0)):
        text = "\n".join(painted(of, 120, 40))
        assert re.search(r"decode tok/s –", text)
        assert " of " not in text.partition("\n")[2]


@each_row(
    ("known_s", "said"),
    [
        (5, "last 30 s"),
        (60, "last 60 s"),
        (61, "last 2 min"),
        (110, "last 2 min"),
        (200, "last 5 min"),
        (999, "last 5 min"),
    ],
)
def test_the_time_axis_grows_with_what_is_known(known_s: int, said: str) -> None:
    history = History()
    for second in range(known_s + 1):
        history.append(LIVE.wall_s - known_s + second, {"busy": 0.5})
    of = pane(history=history)
    drawn = painted(of, 120, 14)
    assert said in drawn[0]


SINCE_START = SinceStart(seconds=9e4, decode_tokens_per_s=800.0, prefill_tokens_per_s=5e3, ttft_s=0.3)


def young(known_s: int, *, engines: int = 2, width: int = 120, height: int = 20, **silent: object) -> list[str]:
    """A pane `known_s` seconds after the start of gpumon, with engines that know their means."""
    own = tuple(scenes.engine(at, since_start=SINCE_START) for at in range(engines))
    if silent:
        own = (*own, scenes.engine(engines, **silent))
    history = History()
    for second in range(known_s + 1):
        history.append(LIVE.wall_s - known_s + second, {"busy": 0.5, "decode": 3e3 + 10.0 * second, "ttft": 0.8})
    return painted(pane(replace(LIVE, engines=own), history), width, height)


def test_at_first_the_mean_since_the_start_stands_in_for_the_past() -> None:
    drawn = "\n".join(young(3))
    assert "mean since start 1.6k" in drawn, "of two engines"
    assert "mean since start 10.0k" in drawn
    assert "mean since start 300ms" in drawn
    assert "decode tok/s 3.0k" in drawn, "the figure is the measured one"


@each_row("glyphs", GLYPHS)
def test_it_is_never_part_of_a_curve(glyphs: Glyphs) -> None:
    own = (scenes.engine(0, since_start=SINCE_START),)
    history = History()
    history.append(LIVE.wall_s, {"busy": 0.5})
    of = pane(replace(LIVE, engines=own), history, glyphs=glyphs)
    tones = {tone for row in of.rows(120, 20)[1:] for piece, tone in row if "mean since start" in piece}
    assert tones == {"hint"}
    assert re.search(r"decode tok/s –", "\n".join("".join(piece for piece, _ in row) for row in of.rows(120, 20)))


def test_after_the_first_minute_it_is_gone() -> None:
    assert "since start" not in "\n".join(young(61))


def test_a_sum_without_the_mean_of_one_engine_is_none() -> None:
    assert "since start" not in "\n".join(young(3, since_start=SinceStart()))


def test_a_long_span_that_was_chosen_is_kept() -> None:
    history = History()
    history.append(LIVE.wall_s, {"busy": 0.5})
    of = pane(history=history, config=with_span(3600.0))
    assert of.charted_s == 3600.0


async def test_the_rule_says_which_gpus_the_means_of_the_charts_are_of() -> None:
    of = scenes.snapshot()
    spare = replace(of.gpus[7], engines=(), processes=(), busy_ratio=0.0)
    for gpus, basis in (((*of.gpus[:7], spare), " · means: 7 of 8 GPUs"), (of.gpus, "")):
        snapshot = replace(of, gpus=gpus)
        async with running(Still(snapshot, scenes.history(snapshot)), 80, 30) as (app, _):
            (rule,) = (line for line in text_of(app) if "─ history ─" in line)
            assert ("means: " in rule) is (basis != "")
            assert basis in rule
