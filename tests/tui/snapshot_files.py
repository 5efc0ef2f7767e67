"""Screens as text in files, one per state and size. GPUMON_UPDATE_SNAPSHOTS=1 rewrites them: read the difference."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from textual.pilot import Pilot

from gpumon.readings.format import cells
from gpumon.tui.app import MonitorApp
from tests.tui.running import text_of

UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))
REWRITTEN = "where the difference is meant, GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files"
Size = tuple[int, int]


def file_of(name: str, size: Size) -> str:
    """The file of a state at a size of the terminal."""
    return f"{name}-{size[0]}x{size[1]}.txt"


async def settled(app: MonitorApp, pilot: Pilot[int]) -> list[str]:
    """The screen once it stands still, and its reading is new: on a busy machine the only one there is grows old."""
    app.monitor._arrived_s = app.monotonic()
    app.monitor.show_title()
    lines = text_of(app)
    while True:
        await pilot.pause()
        before = lines
        lines = text_of(app)
        if lines == before:
            return lines


async def compare(app: MonitorApp, pilot: Pilot[int], folder: Path, name: str, sizes: Iterable[Size]) -> None:
    """The screen is at each size what its file says."""
    wrong = []
    for size in sizes:
        await pilot.resize_terminal(*size)
        lines = await settled(app, pilot)
        assert len(lines) == size[1]
        assert all(cells(line) <= size[0] for line in lines)
        assert not any("this pane failed" in line for line in lines)
        path = folder / file_of(name, size)
        text = "\n".join(lines) + "\n"
        if UPDATE:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            wrong.append(f"{path.name}:\n{text}")
    assert not wrong, "\n".join([*wrong, REWRITTEN])
