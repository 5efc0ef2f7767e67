"""The sizing panel as it stands on the screen, in every state and size, as text; and what a real terminal then shows.

GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.format import cells
from gpumon.tui.layout import BESIDE_WIDTH, LEAST_HEIGHT, LEAST_WIDTH, Counts, pane_heights, panel_width
from tests.terminal import Terminal
from tests.tui.running import running, text_of, until
from tests.tui.sizing_scenes import watched
from tests.tui.test_keys import type_keys

FOLDER = Path(__file__).parent / "sizing_snapshots"
UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))
STATES: dict[str, tuple[tuple[str, ...], tuple[tuple[int, int], ...]]] = {
    "opened": (("s",), ((200, 60), (120, 40), (80, 24))),
    "half_a_number": (("s", *"1e"), ((80, 24),)),
    "fields": (("s", "enter", "down", "down"), ((80, 24),)),
    "gpus": (("s", "v"), ((120, 40),)),
    "simulated": (("s", "v", "v", "v", "v"), ((120, 40),)),
    "ascii": (("s", *"512"), ((120, 40),)),
}


@pytest.mark.parametrize("name", STATES)
async def test_a_state(name: str) -> None:
    wrong = []
    keys, sizes = STATES[name]
    async with running(watched(), *sizes[0], ascii=name == "ascii") as (app, pilot):
        await type_keys(app, pilot, *keys)
        for width, height in sizes:
            await pilot.resize_terminal(width, height)
            await until(lambda height=height: len(text_of(app)) == height, pilot)  # type: ignore[misc]
            await pilot.pause(0.05)
            lines = text_of(app)
            assert all(cells(line) <= width for line in lines)
            assert "failed" not in "\n".join(lines)
            assert name != "ascii" or all(line.isascii() for line in lines)
            path, text = FOLDER / f"{name}-{width}x{height}.txt", "\n".join(lines) + "\n"
            if UPDATE:
                FOLDER.mkdir(exist_ok=True)
                path.write_text(text, "utf-8")
            elif not path.exists() or path.read_text("utf-8") != text:
                wrong.append(f"{path.name}:\n{text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "keys",
    [
        ("s",),
        ("s", "enter"),
        ("s", "v"),
        *(pytest.param(keys, marks=pytest.mark.wide) for keys in (("s", "5"), ("s", "g", "escape"))),
    ],
)
async def test_every_size_has_the_figures_and_the_row_of_the_cursor(keys: tuple[str, ...]) -> None:
    async with running(watched(), 60, 15) as (app, pilot):
        await type_keys(app, pilot, *keys)
        for size in ((60, 15), (61, 16), (90, 18), (141, 15), (300, 80)):
            await pilot.resize_terminal(*size)
            lines = text_of(app)
            assert len(lines) == size[1]
            assert any(" need   " in line for line in lines), size
            assert any("▸" in line for line in lines), size
            assert "failed" not in "\n".join(lines)


@given(st.integers(LEAST_WIDTH, 400), st.integers(LEAST_HEIGHT, 120))
def test_beside_the_panel_the_panes_keep_a_width_in_which_they_live(width: int, height: int) -> None:
    panel = panel_width(width)
    assert (panel > 0) == (width >= BESIDE_WIDTH)
    assert panel in (0, 56, 68, 72, 80)
    assert width - panel >= LEAST_WIDTH
    assert pane_heights(width - panel, height, Counts(8, 4, 9, 1)) == pane_heights(width, height, Counts(8, 4, 9, 1))


def read_until(terminal: Terminal, text: str) -> None:
    """Run until the screen shows it, and a moment more for what is painted with it."""
    end_s = time.monotonic() + 60.0
    while not any(text in line for line in terminal.screen()):
        assert time.monotonic() < end_s, "\n".join(terminal.screen())
        terminal.run(0.2)
    terminal.run(1.0)


@pytest.mark.parametrize("slow", [pytest.param(False, marks=pytest.mark.wide), True])
def test_patches_and_shifts_leave_what_a_full_paint_would(slow: bool) -> None:
    """Charts move beside the panel, figures change, numbers are typed: at the end every cell is where it belongs."""
    environ = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
    environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    with Terminal([sys.executable, "-m", "tests.tui.screen_driver", "busy", "0.25"], environ, 160, 45) as terminal:
        read_until(terminal, "─5─")
        for keys in (b"s", b"6", b"4", b"\r", b"+", b"v", b"\r", b"\x1b[B", b"\x1b[B", b"5"):
            terminal.type(keys)
            terminal.run(0.1 if slow else 0.4)
        read_until(terminal, "─s─ sizing")
        terminal.type(b"\x1b")
        terminal.run(2.0)  # what comes in one read with it would be another key
        terminal.type(b"\t")
        terminal.run(0.3)
        terminal.type(b" ")
        read_until(terminal, "PAUSED")
        terminal.run(1.5)  # the rest of that frame
        patched = without_age(terminal.screen())
        assert any("─s─ sizing" in line for line in patched)
        assert all(line[92] == "│" for line in patched[1:-1])
        terminal.type(b"\x0c")
        terminal.run(1.5)
        painted = without_age(terminal.screen())
    assert patched == painted


def without_age(lines: list[str]) -> list[str]:
    """The lines without the age of the panel's figures, which goes on while the display is paused, and the offer."""
    return [re.sub(r"(│ seen   .*), \w+ old.*", r"\1", line) for line in lines]
