"""Pane 5: the end of a fault's text, which says what to do, can be read on every screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.snapshot import Confidence, Evidence, FaultShown, Limit, Snapshot, Verdict
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.widgets.fault_pane import FaultPane
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.painted import PLAIN, text
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
        await pilot.press("5", "z")
        body = shown_below(text_of(app), " faults ")
        assert all(cells(line) <= width for line in body)
        assert "".join(LONG.split()) in "".join("".join(body).split())
        assert any(line.endswith(" short") for line in body)
        assert "whole text" not in "".join(text_of(app))


async def test_a_pane_without_spare_lines_cuts_and_says_how_to_read_on() -> None:
    async with running(Still(faulty(LONG)), 80, 24) as (app, pilot):
        before = "\n".join(text_of(app))
        assert FIX not in before
        assert "keys 5 z: whole text" in before
        await pilot.press("5")
        assert " z: whole text" in "\n".join(text_of(app))
        assert "keys 5 z" not in "\n".join(text_of(app))


def body(snapshot: Snapshot, width: int, height: int) -> list[str]:
    """The lines of the pane, in as many as it is given."""
    pane = FaultPane(Palette(load_theme("default"), Depth.TRUE), PLAIN)
    pane.snapshot = snapshot
    return [text(row) for row in pane.body(width, height)]


def test_spare_lines_are_used() -> None:
    said = f"the driver answers slowly because persistence mode is off, {FIX}"
    assert "".join(said.split()) in "".join("".join(body(faulty(said), 60, 4)).split())
    assert len(body(faulty(said, "short"), 60, 3)) == 3
    assert len(body(faulty(said, "short"), 60, 2)) == 2


@pytest.mark.parametrize(
    ("sources", "width", "column"),
    [
        (("nvml",), 80, 4),
        (("nvml", "vllm:8000"), 80, 9),
        (("host-with-a-name.example:8000",), 80, 20),
        (("host-with-a-name.example:8000",), 60, 15),
        (("host-with-a-name.example:8000",), 120, 24),
        (("日本語のとても長いエンジン名:8000",), 120, 24),
    ],
)
def test_the_column_of_sources_is_as_wide_as_the_longest(sources: tuple[str, ...], width: int, column: int) -> None:
    faults = tuple(FaultShown(source, "text", "2025-10-09T08:53:22Z") for source in sources)
    lines = body(replace(scenes.snapshot(), faults=faults), width, 10)
    assert {cells(line[: line.index("08:53:22")]) for line in lines} == {3 + column + 1}
    assert all(line.endswith("08:53:22 text") for line in lines)
    assert all(line.startswith(" ! ") for line in lines)


def test_verdicts_stand_in_the_same_column() -> None:
    verdict = Verdict(
        "vllm:8000",
        Limit.BANDWIDTH,
        (Evidence("reads 69% of HBM"),),
        "raise the batch",
        Confidence.HIGH,
        "2025-10-09T08:53:22Z",
    )
    fault = FaultShown("vllm:8000", "timeout", "not a time")
    lines = body(replace(scenes.snapshot(), faults=(fault,), verdicts=(verdict,)), 80, 4)
    assert lines == [
        " ! vllm:8000 not a t… timeout",
        " ! bandwidth vllm:8000: reads 69% of HBM: raise the batch",
    ]


def test_no_fault_is_said() -> None:
    assert [line.strip() for line in body(scenes.snapshot(), 80, 4)] == ["no faults"]


async def test_a_text_that_fits_says_nothing_about_more() -> None:
    async with running(Still(faulty("short")), 80, 24) as (app, _):
        assert "whole text" not in "".join(text_of(app))
