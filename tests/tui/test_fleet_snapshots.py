"""The fleet's screen in its states and sizes, as text. GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tui.fleet_feed import MIXED, Scrapes, watching
from tests.tui.running import text_of, until
from tests.tui.snapshot_files import compare, file_of

FOLDER = Path(__file__).parent / "fleet_snapshots"
SIZES = ((200, 60), (120, 40), (80, 24), (60, 15), (40, 10))


class State(NamedTuple):
    """What is on the screen, and the keys pressed in it."""

    hosts: int = 12
    keys: tuple[str, ...] = ()
    ascii: bool = False
    lacking: str = ""
    sizes: tuple[tuple[int, int], ...] = ((80, 24),)
    back: tuple[str, ...] = ()
    """Keys that lead back to the screen as it began."""


STATES = {
    "hosts": State(keys=("down",), sizes=SIZES),
    "models": State(keys=("m",), back=("m", "m")),
    "filter": State(keys=("slash", *"host=gpu0*"), back=("escape",)),
    "paused": State(keys=("space",), sizes=((80, 24), (40, 10))),
    "help": State(keys=("question_mark",), sizes=((120, 40),), back=("escape",)),
    "settings": State(keys=("f2",), sizes=((120, 40),), back=("escape",)),
    "ascii": State(ascii=True, sizes=((120, 40),)),
    "gone": State(lacking="gpu03", sizes=((120, 40), (80, 24))),
}


WALKS = (("models", "filter", "paused"), ("help", "settings", "hosts"), ("ascii",), ("gone",))
"""States that one application is led through: each of them begins with a dozen hosts, which cost more than the keys."""


@pytest.mark.parametrize("walk", WALKS, ids="-".join)
async def test_states(walk: tuple[str, ...]) -> None:
    first = STATES[walk[0]]
    source = Scrapes(first.hosts, wrong=MIXED)
    async with watching(source, *first.sizes[0], ascii=first.ascii) as (app, pilot):
        for name in walk:
            state = STATES[name]
            if state.lacking:
                source.lacking = {state.lacking}
                await pilot.press("r")
                await until(lambda: any("✗ gone" in line for line in text_of(app)), pilot, 20.0)
            await pilot.press(*state.keys)
            await compare(app, pilot, FOLDER, name, state.sizes)
            await pilot.press(*state.back)


def test_every_state_is_walked_through_once() -> None:
    assert sorted(name for walk in WALKS for name in walk) == sorted(STATES)


def test_no_file_is_left_over() -> None:
    named = {file_of(name, size) for name, state in STATES.items() for size in state.sizes}
    assert {path.name for path in FOLDER.iterdir()} == named
