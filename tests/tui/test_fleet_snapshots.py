"""The fleet's screen in its states and sizes, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from textual.pilot import Pilot

from gpumon.readings.format import cells
from gpumon.tui.fleet.app import FleetApp
from tests.tui.fleet_feed import MIXED, Scrapes, watching
from tests.tui.running import text_of, until

FOLDER = Path(__file__).parent / "fleet_snapshots"
SIZES = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 10))
UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))


class State(NamedTuple):
    """What is on the screen, and the keys pressed in it."""

    hosts: int = 12
    keys: tuple[str, ...] = ()
    ascii: bool = False
    lacking: str = ""


STATES = {
    "hosts": State(keys=("down",)),
    "models": State(keys=("m",)),
    "filter": State(keys=("slash", *"host=gpu0*")),
    "refused": State(keys=("slash", *'"open')),
    "sort": State(keys=("o",)),
    "paused": State(keys=("space",)),
    "help": State(keys=("question_mark",)),
    "ascii": State(ascii=True),
    "gone": State(lacking="gpu03"),
    "one": State(hosts=1),
}


async def settled(app: FleetApp, pilot: Pilot[int]) -> list[str]:
    """The screen once it stands still."""
    lines = text_of(app)
    while True:
        await pilot.pause(0.02)
        before, lines = lines, text_of(app)
        if lines == before:
            return lines


@pytest.mark.parametrize("name", STATES)
async def test_a_state(name: str) -> None:
    state = STATES[name]
    source = Scrapes(state.hosts, wrong=MIXED)
    wrong = []
    async with watching(source, *SIZES[0], ascii=state.ascii) as (app, pilot):
        if state.lacking:
            source.lacking = {state.lacking}
            await pilot.press("r")
            await until(lambda: any("GONE" in line for line in text_of(app)), pilot, 20.0)
        await pilot.press(*state.keys)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            lines = await settled(app, pilot)
            assert len(lines) == height
            assert all(cells(line) <= width for line in lines)
            assert not any("this pane failed" in line for line in lines)
            path = FOLDER / f"{name}-{width}x{height}.txt"
            text = "\n".join(lines) + "\n"
            if UPDATE:
                path.write_text(text, "utf-8")
            elif not path.exists() or path.read_text("utf-8") != text:
                wrong.append(f"{path.name}:\n{text}")
    assert not wrong, "\n".join(wrong)


def test_no_file_is_left_over() -> None:
    named = {f"{name}-{width}x{height}.txt" for name in STATES for width, height in SIZES}
    assert {path.name for path in FOLDER.iterdir()} == named
