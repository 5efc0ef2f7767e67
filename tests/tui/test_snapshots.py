"""The screen in every state and size, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.snapshot import FaultShown
from gpumon.tui.app import MonitorApp
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of

FOLDER = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 40), (200, 60), (60, 15), (40, 5))
KEYS = {"paused": ("live", "space"), "help": ("live", "question_mark"), "zoomed": ("live", "3,z")}
UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))


async def _compare(app: MonitorApp, pilot: Pilot[int], name: str) -> list[str]:
    """Names of the sizes at which the screen is not what its file says."""
    wrong = []
    for width, height in SIZES:
        await pilot.resize_terminal(width, height)
        await pilot.pause()
        lines = text_of(app)
        assert len(lines) == height
        assert all(cells(line) <= width for line in lines)
        path = FOLDER / f"{name}-{width}x{height}.txt"
        text = "\n".join(lines) + "\n"
        if UPDATE:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            wrong.append(f"{path.name}:\n{text}")
    return wrong


@pytest.mark.parametrize("scene", scenes.SCENES)
async def test_a_scene(scene: str) -> None:
    async with running(scene) as (app, pilot):
        wrong = await _compare(app, pilot, scene)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", KEYS)
async def test_a_mode(name: str) -> None:
    scene, keys = KEYS[name]
    async with running(scene) as (app, pilot):
        await pilot.press(*keys.split(","))
        wrong = await _compare(app, pilot, name)
    assert not wrong, "\n".join(wrong)


async def test_starting() -> None:
    app = MonitorApp(Still(None), load_theme("default"), wall=lambda: scenes.WALL_S)
    async with app.run_test(size=(80, 24)) as pilot:
        wrong = await _compare(app, pilot, "starting")
    assert not wrong, "\n".join(wrong)


async def test_ascii() -> None:
    async with running("other_kinds", ascii=True) as (app, pilot):
        wrong = await _compare(app, pilot, "ascii")
        assert all(line.isascii() for line in text_of(app))
    assert not wrong, "\n".join(wrong)


async def test_a_painting_bug_costs_one_pane() -> None:
    snapshot = scenes.SCENES["live"]()
    bad = replace(snapshot, engines=(*snapshot.engines, None))
    async with running(Still(bad, scenes.history(snapshot))) as (app, _):
        lines = text_of(app)
    assert sum(line.startswith(" this pane failed: AttributeError:") for line in lines) == 1
    assert any(line.startswith("  0 ███") for line in lines)
    assert any("decode" in line for line in lines)


async def test_why_there_is_no_gpu_is_not_taken_from_an_engine() -> None:
    fault = FaultShown("gpu-server:8000", "connection refused", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[2] == "   no GPU: this host's GPUs are not read"
    fault = FaultShown("nvml", "no driver", "2025-10-09T08:53:08Z")
    async with running(Still(replace(scenes.snapshot(gpus=0), faults=(fault,)))) as (app, _):
        assert text_of(app)[2] == "   no GPU found: no driver"
