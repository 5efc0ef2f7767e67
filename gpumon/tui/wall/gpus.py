"""Tiles of GPUs with the states that their table shows."""

from __future__ import annotations

from gpumon.readings.snapshot import Gpu, Verdict
from gpumon.triage.render import verdict_text
from gpumon.tui.gpu_table import judged_state
from gpumon.tui.table import clock
from gpumon.tui.view import View
from gpumon.tui.wall.tiles import Tile


def judged_tile(gpu: Gpu, view: View, urgent: Verdict | None, state: Verdict | None, host: str = "") -> Tile:
    """A tile with the state that the table of GPUs shows.

    `urgent`: the worst urgent verdict on the GPU; `state`: the verdict on its state.
    """
    word, tone = judged_state(gpu, view.levels, urgent, state)
    reason = verdict_text(urgent, clock) if urgent is not None else ""
    return Tile(gpu, word, tone, host, reason)
