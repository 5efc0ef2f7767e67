"""The processes on the GPUs, the one with the most VRAM first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Snapshot
from gpumon.specs.units import GIB
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.process_table import (
    PROCESS_LISTING,
    RunningProcess,
    process_head,
    process_row,
    running_processes,
)
from gpumon.tui.rows import ListScene
from gpumon.tui.table import Table, spans
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane

NO_PROCESSES_AFAR: Final = "a Prometheus has no processes: run gpumon on the host"
"""The line in place of the processes of another machine."""
_LEAST_UNEXPLAINED_BYTES: Final = 2.0 * GIB
"""Bytes of VRAM in use from which a GPU without a process has one that is not visible from here."""


class ProcessPane(ListPane[RunningProcess]):
    """One row per process, however many GPUs it runs on."""

    def __init__(self, palette: Palette, view: View, *, in_fleet: bool) -> None:
        """`in_fleet`: the machine is a host of a fleet, as a Prometheus tells of it."""
        super().__init__(palette, view, PROCESS_LISTING)
        self._in_fleet = in_fleet

    def all_items(self) -> Sequence[RunningProcess]:
        """The processes, the one with the most VRAM first."""
        return running_processes(self.snapshot.gpus, self.snapshot.wall_s) if self.snapshot is not None else ()

    def lines_without_rows(self, width: int) -> Sequence[Row]:
        """Why there is no process."""
        if self.snapshot is None:
            reason = "starting …"
        elif self._in_fleet:
            reason = NO_PROCESSES_AFAR
        else:
            reason = _reason_of_no_process(self.snapshot)
        return wrap_line(reason, width, "muted", most=2)

    def header(self, table: Table[RunningProcess], width: int, scene: ListScene) -> Row:  # noqa: ARG002 - the signature of ListPane
        """The header of the columns, and of the command behind them."""
        return process_head(width, scene.view, scene.shift)

    def row(self, item: RunningProcess, width: int, scene: ListScene) -> Row:
        """The columns of a process, and its command."""
        return process_row(item, width, scene.view, scene.shift)


def _reason_of_no_process(snapshot: Snapshot) -> str:
    """Why there is no process, as far as the GPUs tell."""
    answering = [gpu for gpu in snapshot.gpus if gpu.reading.state is GpuState.OK]
    if not snapshot.gpus:
        return "no process: this host's GPUs are not read"
    if not answering:
        return "no process: no GPU answers"
    gpus_in_use = [
        gpu.reading.index
        for gpu in answering
        if isinstance(gpu.reading.vram_used_bytes, float) and gpu.reading.vram_used_bytes > _LEAST_UNEXPLAINED_BYTES
    ]
    if gpus_in_use:
        return (
            f"GPUs {spans(gpus_in_use)}: memory in use by processes not visible here: start with --pid=host or hostPID"
        )
    return "no process on the GPUs"
