"""The screen in every state and size, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.config.themes import load_theme
from gpumon.readings.snapshot import FaultShown
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of
from tests.tui.snapshot_files import compare, file_of

FOLDER = Path(__file__).parent / "snapshots"
ALL = ((300, 80), (200, 60), (160, 50), (120, 40), (100, 30), (80, 24), (60, 15), (40, 5))
"""The least one is the last: it closes what it can not show."""
SOME = ((200, 60), (120, 40), (80, 24), (60, 15))


class State(NamedTuple):
    """What is on the screen: a scene, and the keys pressed in it."""

    scene: str
    keys: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = SOME
    ascii: bool = False


STATES = {
    "live": State("live", sizes=ALL),
    "empty": State("empty", sizes=ALL),
    "one_lost": State("one_lost", sizes=ALL),
    "stale": State("stale", sizes=ALL),
    "engines_down": State("engines_down", sizes=ALL),
    "unauthorised": State("unauthorised", sizes=ALL),
    "paused": State("live", ("space",), ALL),
    "help": State("live", ("question_mark",), ALL),
    "detail_gpu": State("live", ("down", "enter"), ALL),
    "detail_engine": State("live", ("2", "enter"), ALL),
    "detail_process": State("live", ("4", "enter"), ALL),
    "settings": State("live", ("f2",), ALL),
    "filter": State("live", ("slash", *"8001"), ALL),
    "crowded": State("crowded", sizes=ALL),
    "engines_only": State("engines_only"),
    "one_gpu": State("one_gpu"),
    "wasted": State("wasted"),
    "sixteen_gpus": State("sixteen_gpus"),
    "twelve_engines": State("twelve_engines"),
    "over_100": State("over_100"),
    "other_kinds": State("other_kinds"),
    "hostile": State("hostile"),
    "simulated": State("simulated"),
    "ascii": State("other_kinds", ascii=True),
    "ascii_help": State("live", ("question_mark",), ascii=True),
    "filtered": State("live", ("slash", *"8001", "enter")),
    "nothing_matches": State("live", ("2", "slash", *"llama-4", "enter")),
    "sort": State("wasted", ("o",)),
    "sorted_by_waste": State("wasted", ("o", "end", "enter")),
    "sort_engines": State("wasted", ("2", "o")),
    "palette": State("live", ("colon",)),
    "detail_lost": State("one_lost", ("5", "1", *["down"] * 5, "enter")),
    "detail_missing": State("wasted", ("2", "G", "enter")),
    "detail_down": State("engines_down", ("2", "enter")),
    "zoomed_gpus": State("crowded", ("1", "z")),
    "zoomed_engines": State("crowded", ("2", "z")),
    "zoomed_history": State("live", ("3", "z")),
    "zoomed_processes": State("crowded", ("4", "z", "G")),
    "zoomed_triage": State("triage", ("5", "z")),
    "triage": State("triage", ("t",)),
    "triage_events": State("triage", ("t", "z", "G")),
    "triage_healthy": State("engines_only", ("t", "z")),
    "detail_verdict": State("live", ("t", "enter")),
    "detail_critical": State("triage", ("t", "enter")),
    "detail_unknown": State("triage", ("t", *["down"] * 4, "enter")),
    "detail_judged": State("triage", ("2", "down", "enter")),
    "history_events": State("live", ("3", "enter")),
    "ascii_triage": State("triage", ("t", "z"), ascii=True),
}


@pytest.mark.parametrize("name", STATES)
async def test_a_state(name: str) -> None:
    state = STATES[name]
    async with running(state.scene, *state.sizes[0], ascii=state.ascii) as (app, pilot):
        await pilot.press(*state.keys)
        await compare(app, pilot, FOLDER, name, state.sizes)
        assert not state.ascii or all(line.isascii() for line in text_of(app))


async def test_starting() -> None:
    app = MonitorApp(Still(None), load_theme("default"), wall=lambda: scenes.WALL_S)
    async with app.run_test(size=(80, 24)) as pilot:
        await compare(app, pilot, FOLDER, "starting", SOME)


def test_no_file_is_left_over() -> None:
    named = {file_of(name, size) for name, state in STATES.items() for size in state.sizes}
    named |= {file_of("starting", size) for size in SOME}
    assert {path.name for path in FOLDER.iterdir()} == named


async def test_a_painting_bug_costs_one_pane() -> None:
    snapshot = scenes.SCENES["live"]()
    bad = replace(snapshot, engines=(*snapshot.engines[:2], replace(snapshot.engines[2], decode_tokens_per_s="")))
    async with running(Still(bad, scenes.history(snapshot))) as (app, _):
        lines = text_of(app)
    assert sum(line.startswith(" this pane failed: ") for line in lines) == 1
    assert any(line.startswith("▸ 0 ███") for line in lines)
    assert any("decode" in line for line in lines)


async def test_why_there_is_no_gpu_is_not_taken_from_an_engine() -> None:
    fault = FaultShown("gpu-server:8000", "connection refused", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[2] == "   no GPU: this host's GPUs are not read"
    fault = FaultShown("nvml", "no driver", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[2] == "   no GPU found: no driver"
