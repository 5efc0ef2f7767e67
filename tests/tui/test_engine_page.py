"""The page of an engine in the order of questions: what its users got, charts, what limits it, and the rest folded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpumon.config.schema import Config, Goals
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Quantiles, WithinGoal
from gpumon.tui.detail.users import users_sections
from gpumon.tui.view import View
from tests.accuracy.replay import watch
from tests.fakes.engine import Recorded
from tests.records import replace
from tests.tui.detail_scenes import VIEW, full_engine
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import type_keys
from tests.tui.test_on_call import monitor
from tests.virtual_time import Clock, played

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
SIZES = ((80, 24), (120, 40), (200, 60))
NONE = Missing(Reason.IDLE)


def lines_of(view: View = VIEW, **changed: object) -> dict[str, str]:
    """The rows of the table by their names."""
    (section,) = users_sections(full_engine(**changed), view)
    texts = ["".join(text for text, _ in entry.row) for entry in section.entries]
    return {text.split()[0]: " ".join(text.split()[1:]) for text in texts}


def tone_of_bar(goal_ms: float | None, p95_s: float) -> str:
    """The tone of TTFT's bar with a goal."""
    view = View(Config(goals=Goals(ttft_p95_ms=goal_ms)))
    quantiles = Quantiles(0.1, p95_s, p95_s, 0.1, 0.0, p95_s, 0.001, 0.0, 0.2, 0.0, p95_s, 0.1)
    (section,) = users_sections(full_engine(ttft_s=quantiles), view)
    return next(tone for text, tone in section.entries[0].row if "▇" in text or "▏" in text)


def test_a_row_has_four_quantiles_and_says_only_what_the_buckets_tell() -> None:
    lines = lines_of()
    assert lines["TTFT"].split()[:4] == ["140ms", "190ms", "210ms", "400ms"]
    assert lines["E2E"].split()[:4] == ["6.0s", "20s", "25s", ">40s"]
    assert lines["queue"].split()[:4] == ["<300ms"] * 4
    assert "prefill" not in lines, "it has no such histogram"
    beyond = Quantiles(20.0, 40.0, 40.0, 8.0, 40.0, Missing(Reason.INVALID), 0.3, 10.0, 30.0, 40.0, NONE, 40.0)
    beyond = replace(beyond, p99_high=Missing(Reason.INVALID))
    assert lines_of(e2e_s=beyond)["E2E"].split()[:4] == ["20s", ">40s", ">40s", ">40s"]


def test_too_few_observations_are_said_in_place_of_quantiles() -> None:
    few = Missing(Reason.FEW)
    lines = lines_of(ttft_s=Quantiles(few, few, few, 0.15, p90=few), itl_s=Quantiles(NONE, NONE, NONE, NONE, p90=NONE))
    assert lines["TTFT"] == "too few for quantiles in 60 s: mean 150ms"
    assert lines["ITL:"] == "none in 60 s"


@pytest.mark.parametrize(
    ("goal_ms", "p95_s", "tone"),
    [(None, 9.0, "busy"), (500.0, 0.4, "ok"), (500.0, 0.6, "warn"), (500.0, 1.1, "critical")],
)
def test_a_bar_has_the_colour_of_its_goal_or_none(goal_ms: float | None, p95_s: float, tone: str) -> None:
    assert tone_of_bar(goal_ms, p95_s) == tone


@pytest.mark.parametrize(
    ("name", "seconds", "phase", "wanted"),
    [
        ("kv-cache-full", 130, "queue", ["goodput", "turned away", "waiting", "what limits it", "KV cache full", "→"]),
        ("healthy-chat", 120, "decode", ["goodput", "what limits it", "headroom"]),
    ],
)
async def test_the_first_screen_says_whether_it_is_good_and_which_phase_it_is(
    name: str, seconds: int, phase: str, wanted: list[str]
) -> None:
    app = await asyncio.to_thread(monitor, name, seconds)
    async with app.run_test(size=SIZES[0], notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "2", "enter")
        await until(lambda: all(any(words in line for line in text_of(app)) for words in wanted), pilot)
        bars = {line.split()[0]: line.count("▇") for line in text_of(app) if "▁▁" in line or "▇▇" in line}
        assert max(("queue", "prefill", "decode"), key=lambda part: bars.get(part, 0)) == phase
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await until(lambda: any("what users got" in line for line in text_of(app)), pilot)
            assert any("what limits it" in line for line in text_of(app))


async def test_formulas_are_folded_until_a_key_or_a_search_asks_for_them() -> None:
    async with running("live", 120, 60) as (app, pilot):
        await type_keys(app, pilot, "2", "enter")
        await until(lambda: "x more" in foot(app), pilot)
        page = app.monitor.pages.by_name["detail"]

        def body() -> str:
            return "\n".join("".join(text for text, _ in row) for row in page.body(120, 50))

        assert "more: x, each figure" in body()
        assert "MFU: arithmetic, MBU" in body()
        assert "weights of a step" not in body()
        await type_keys(app, pilot, "x")
        assert "weights of a step" in body()
        assert "more: x" not in body()
        await until(lambda: "x less" in foot(app), pilot)
        await type_keys(app, pilot, "x")
        assert "weights of a step" not in body()
        await until(lambda: "x more" in foot(app), pilot)
        await type_keys(app, pilot, "/", *"weights")
        await until(lambda: "weights of a step" in body(), pilot)


@pytest.mark.parametrize("capture", ["vllm-basic", "sglang-basic", "llamacpp-basic"])
def test_recorded_engines_have_the_rows_of_their_histograms(capture: str) -> None:
    """Pages that real engines gave, over HTTP."""
    replay = played(watch(Recorded(CAPTURES / capture), capture, seconds=90.0), Clock())
    engines = [tick.engine for tick in replay.ticks]
    named = set()
    for engine in engines:
        for section in users_sections(engine, VIEW):
            named |= {"".join(text for text, _ in entry.row).split()[0].rstrip(":,") for entry in section.entries}
    expected = {
        "vllm-basic": {"TTFT", "TPOT", "ITL", "E2E", "queue", "prefill", "decode"},
        "sglang-basic": {"TTFT", "ITL", "E2E", "queue"},
        "llamacpp-basic": set(),
    }[capture]
    assert expected <= named
    assert not {"TTFT", "prefill"} & named or expected


@pytest.mark.parametrize("opened", [["2", "enter"], ["question_mark"], ["f2"], ["s"], ["3", "z"]])
async def test_nothing_ends_the_program_while_it_does_not_show_what_is_live(opened: list[str]) -> None:
    """Whatever is open over a paused display or a moment of the past: the key goes back step by step, at last to what
    is live."""
    app = await asyncio.to_thread(monitor, "kv-cache-full", 130)
    async with app.run_test(size=SIZES[1], notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await pilot.press("space")
        await until(lambda: app.monitor.paused, pilot)
        await pilot.press(*opened)
        for _ in range(6):
            await pilot.press("q")
            await pilot.pause()
            assert not app._exit
            if not app.monitor.paused:
                break
        assert not app.monitor.paused


def test_both_shares_within_assumed_goals_fit_into_80_columns() -> None:
    ttft = WithinGoal(0.9641, 0.9912, 1.0, 400.0, 0.9641)
    tpot = WithinGoal(0.9823, 0.9991, 0.05, 400.0, 0.9823)
    engine = full_engine(ttft_goal=ttft, tpot_goal=tpot, ttft_goal_assumed=True, itl_goal_assumed=True)
    (section,) = users_sections(engine, VIEW)
    texts = ["".join(text for text, _ in entry.row) for entry in section.entries]
    line = next(text for text in texts if "goodput" in text)
    assert line.endswith("? assumed")
    assert len(line) <= 80
