"""Tiles of the GPUs of one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.efficiency.gpu import with_clearer_reasons
from gpumon.readings.snapshot import Gpu, Verdict
from gpumon.triage.render import verdict_text
from gpumon.tui.gpu_table import judged_state
from gpumon.tui.table import clock
from gpumon.tui.view import View
from gpumon.tui.wall.tiles import Tile

if TYPE_CHECKING:
    from gpumon.tui.rows import ListScene


def tile_of_gpu(gpu: Gpu, scene: ListScene) -> Tile:
    """The tile of a GPU of the machine that a pane shows."""
    engines = scene.snapshot.engines if scene.snapshot is not None else ()
    urgent = scene.urgent.get(gpu.reading.uuid)
    return judged_tile(with_clearer_reasons(gpu, engines), scene.view, urgent, scene.states.get(gpu.reading.uuid))


def judged_tile(gpu: Gpu, view: View, urgent: Verdict | None, state: Verdict | None, host: str = "") -> Tile:
    """A tile with the state that the table of GPUs shows.

    `urgent`: the worst urgent verdict on the GPU; `state`: the verdict on its state.
    """
    word, tone = judged_state(gpu, view.levels, urgent, state)
    reason = ""
    if urgent is not None:
        reason = verdict_text(urgent, clock)
    return Tile(gpu, word, tone, host, reason)
