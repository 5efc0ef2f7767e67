"""The screen in every state and size, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from textual.pilot import Pilot

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.snapshot import FaultShown
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import MONOTONIC_S, running, text_of
from tests.tui.snapshot_files import compare, file_of, settled
from tests.tui.test_keys import type_keys

FOLDER = Path(__file__).parent / "snapshots"
ALL = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 5))
"""The least one is the last: it closes what it cannot show."""
SOME = ((120, 40), (80, 24))
SMALL = ((80, 24),)
LARGEST = (200, 60)
LEAST = (60, 15)
"""The least one with panes."""


class State(NamedTuple):
    """What is on the screen: the keys that lead to it from the state before, and the sizes that have files."""

    keys: str = ""
    sizes: tuple[tuple[int, int], ...] = SMALL


class Scene(NamedTuple):
    """A scene with its states, in the order in which one screen walks through them."""

    name: str
    states: dict[str, State]
    ascii: bool = False


LIVE = {
    "live": State(sizes=ALL),
    "palette": State("colon"),
    "paused": State("escape space"),
    "help": State("space question_mark", SOME),
    "detail_gpu": State("escape down enter", SOME),
    "settings": State("escape up f2"),
    "filtered": State("escape slash 8 0 0 1 enter"),
    "detail_engine": State("escape 2 enter", SOME),
    "zoomed_history": State("escape 3 z", SOME),
    "one_chart": State("z 3 enter", SOME),
    "detail_process": State("escape 4 enter"),
    "detail_verdict": State("escape t enter"),
}
SCENES = [
    Scene("live", LIVE),
    Scene("live", {"ascii_help": State("question_mark")}, ascii=True),
    Scene(
        "triage",
        {
            "triage": State("t", ALL),
            "zoomed_triage": State("z", SOME),
            "detail_critical": State("z enter", SOME),
        },
    ),
    Scene("triage", {"ascii_triage": State("t z")}, ascii=True),
    Scene(
        "crowded",
        {
            "crowded": State(sizes=SOME),
            "zoomed_gpus": State("1 z"),
            "zoomed_processes": State("z 4 z G"),
        },
    ),
    Scene("empty", {"empty": State()}),
    Scene("one_lost", {"one_lost": State(), "detail_lost": State("5 1 down down down down down enter")}),
    Scene("stale", {"stale": State()}),
    Scene("engines_down", {"engines_down": State(), "detail_down": State("2 enter")}),
    Scene("unauthorised", {"unauthorised": State()}),
    Scene("engines_only", {"engines_only": State()}),
    Scene("wasted", {"wasted": State(), "sort": State("o"), "detail_missing": State("escape 2 G enter")}),
    Scene("over_100", {"over_100": State()}),
    Scene("other_kinds", {"other_kinds": State()}),
    Scene("other_kinds", {"ascii": State(sizes=SOME)}, ascii=True),
    Scene("hostile", {"hostile": State()}),
]


@pytest.mark.parametrize("scene", SCENES, ids=[next(iter(scene.states)) for scene in SCENES])
async def test_the_states_of_a_scene(scene: Scene) -> None:
    """They are at some sizes what their files say, and fit into the least one.

    The first state fits into the largest one, too: it has all columns, and pages have widths of their own in the tests
    of pages.
    """
    async with running(scene.name, *SMALL[0], ascii=scene.ascii) as (app, pilot):
        fits = [LEAST, LARGEST]
        for name, state in scene.states.items():
            await pilot.resize_terminal(*state.sizes[0])
            await type_keys(app, pilot, *state.keys.split())
            await compare(app, pilot, FOLDER, name, state.sizes)
            assert not scene.ascii or all(line.isascii() for line in text_of(app))
            for size in fits:
                if size not in state.sizes:
                    await _fits(app, pilot, size)
            fits = [LEAST]


async def _fits(app: MonitorApp, pilot: Pilot[int], size: tuple[int, int]) -> None:
    """The state fits into a terminal of this size, and no pane fails there."""
    await pilot.resize_terminal(*size)
    lines = await settled(app, pilot)
    assert len(lines) == size[1]
    assert all(cells(line) <= size[0] for line in lines)
    assert "this pane failed" not in "\n".join(lines)


async def test_starting() -> None:
    app = MonitorApp(Still(None), load_theme("default"), unix_time=lambda: scenes.WALL_S, monotonic=lambda: MONOTONIC_S)
    async with app.run_test(size=(80, 24)) as pilot:
        await compare(app, pilot, FOLDER, "starting", SMALL)


def test_no_file_is_left_over() -> None:
    named = set()
    for scene in SCENES:
        for name, state in scene.states.items():
            named |= {file_of(name, size) for size in state.sizes}
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
