"""The screen in every state and size, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.snapshot import FaultShown
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of
from tests.tui.snapshot_files import compare, file_of, settled

FOLDER = Path(__file__).parent / "snapshots"
ALL = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 5))
"""The least one is the last: it closes what it cannot show."""
SOME = ((120, 40), (80, 24))
FITS = ((200, 60), (60, 15))
"""The largest and the least one with panes: what fits into both fits between them."""
SMALL = ((80, 24),)


class State(NamedTuple):
    """What is on the screen: a scene, and the keys pressed in it."""

    scene: str
    keys: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = SMALL
    ascii: bool = False


STATES = {
    "live": State("live", sizes=ALL),
    "triage": State("triage", ("t",), ALL),
    "crowded": State("crowded", sizes=SOME),
    "empty": State("empty"),
    "one_lost": State("one_lost"),
    "stale": State("stale"),
    "engines_down": State("engines_down"),
    "unauthorised": State("unauthorised"),
    "paused": State("live", ("space",)),
    "help": State("live", ("question_mark",), SOME),
    "detail_gpu": State("live", ("down", "enter"), SOME),
    "detail_engine": State("live", ("2", "enter"), SOME),
    "detail_process": State("live", ("4", "enter")),
    "settings": State("live", ("f2",)),
    "engines_only": State("engines_only"),
    "wasted": State("wasted"),
    "over_100": State("over_100"),
    "other_kinds": State("other_kinds"),
    "hostile": State("hostile"),
    "ascii": State("other_kinds", sizes=SOME, ascii=True),
    "ascii_help": State("live", ("question_mark",), ascii=True),
    "filtered": State("live", ("slash", *"8001", "enter")),
    "sort": State("wasted", ("o",)),
    "palette": State("live", ("colon",)),
    "detail_lost": State("one_lost", ("5", "1", *["down"] * 5, "enter")),
    "detail_missing": State("wasted", ("2", "G", "enter")),
    "detail_down": State("engines_down", ("2", "enter")),
    "zoomed_gpus": State("crowded", ("1", "z")),
    "zoomed_history": State("live", ("3", "z"), SOME),
    "zoomed_processes": State("crowded", ("4", "z", "G")),
    "zoomed_triage": State("triage", ("5", "z"), SOME),
    "detail_verdict": State("live", ("t", "enter")),
    "detail_critical": State("triage", ("t", "enter"), SOME),
    "one_chart": State("live", ("3", "enter"), SOME),
    "ascii_triage": State("triage", ("t", "z"), ascii=True),
}


@pytest.mark.parametrize("name", STATES)
async def test_a_state(name: str) -> None:
    """It is at some sizes what its files say, and fits into the others."""
    state = STATES[name]
    async with running(state.scene, *state.sizes[0], ascii=state.ascii) as (app, pilot):
        await pilot.press(*state.keys)
        await compare(app, pilot, FOLDER, name, state.sizes)
        assert not state.ascii or all(line.isascii() for line in text_of(app))
        for width, height in FITS:
            if (width, height) in state.sizes:
                continue
            await pilot.resize_terminal(width, height)
            lines = await settled(app, pilot)
            assert len(lines) == height
            assert all(cells(line) <= width for line in lines)
            assert "this pane failed" not in "\n".join(lines)


async def test_starting() -> None:
    app = MonitorApp(Still(None), load_theme("default"), wall=lambda: scenes.WALL_S)
    async with app.run_test(size=(80, 24)) as pilot:
        await compare(app, pilot, FOLDER, "starting", SMALL)


def test_no_file_is_left_over() -> None:
    named = {file_of(name, size) for name, state in STATES.items() for size in state.sizes}
    named |= {file_of("starting", size) for size in SMALL}
    assert {path.name for path in FOLDER.iterdir()} == named


async def test_a_painting_bug_costs_one_pane() -> None:
    snapshot = scenes.SCENES["live"]()
    bad = replace(snapshot, engines=(*snapshot.engines[:2], replace(snapshot.engines[2], prefill_tokens_per_s="")))
    async with running(Still(bad, scenes.history(snapshot))) as (app, _):
        lines = text_of(app)
    assert sum(line.startswith(" this pane failed: ") for line in lines) == 1
    assert any(line.startswith("▸ 0 ▇▇▇") for line in lines)


async def test_why_there_is_no_gpu_is_not_taken_from_an_engine() -> None:
    fault = FaultShown("gpu-server:8000", "connection refused", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[3] == "   no GPU: this host's GPUs are not read"
    fault = FaultShown("nvml", "no driver", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[3] == "   no GPU found: no driver"
