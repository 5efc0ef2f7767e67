"""Pane 4: the end of a fault's text, which says what to do, can be read on every screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.readings.format import cells
from gpumon.readings.snapshot import FaultShown, Snapshot
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of

FIX = "the fix: nvidia-smi -pm 1"
LONG = "the driver answers slowly because persistence mode is off, " * 3 + "http://" + "path/" * 20 + " " + FIX


def faulty(*texts: str) -> Snapshot:
    faults = tuple(FaultShown("gpu 3", text, "2025-10-09T08:53:22Z") for text in texts)
    return replace(scenes.snapshot(), faults=faults, verdicts=())


def shown_below(lines: list[str], title: str) -> list[str]:
    return lines[next(at for at, line in enumerate(lines) if title in line) + 1 : -1]


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_a_zoomed_pane_shows_the_whole_text(width: int) -> None:
    async with running(Still(faulty(LONG, "short")), width, 24) as (app, pilot):
        await pilot.press("4", "z")
        body = shown_below(text_of(app), " faults ")
        assert all(cells(line) <= width for line in body)
        assert "".join(LONG.split()) in "".join("".join(body).split())
        assert any(line.endswith(" short") for line in body)
        assert "whole text" not in "".join(text_of(app))


async def test_a_pane_without_spare_lines_cuts_and_says_how_to_read_on() -> None:
    async with running(Still(faulty(LONG)), 80, 24) as (app, pilot):
        before = "\n".join(text_of(app))
        assert FIX not in before
        assert "keys 4 z: whole text" in before
        await pilot.press("4")
        assert " z: whole text" in "\n".join(text_of(app))
        assert "keys 4 z" not in "\n".join(text_of(app))


async def test_spare_lines_are_used() -> None:
    """One GPU leaves the pane of a short screen more lines than it has faults."""
    text = f"the driver answers slowly because persistence mode is off, {FIX}"
    snapshot = replace(faulty(text), gpus=scenes.snapshot().gpus[:1], engines=())
    async with running(Still(snapshot), 60, 17) as (app, _):
        assert "".join(text.split()) in "".join("".join(shown_below(text_of(app), " faults ")).split())
        assert "whole text" not in "".join(text_of(app))


async def test_a_text_that_fits_says_nothing_about_more() -> None:
    async with running(Still(faulty("short")), 80, 24) as (app, _):
        assert "whole text" not in "".join(text_of(app))
