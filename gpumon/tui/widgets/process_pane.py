"""Pane 4: the processes on the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Snapshot
from gpumon.tui import process_table
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.process_table import Running
from gpumon.tui.rows import Order
from gpumon.tui.table import spans
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import wrapped

AFAR: Final = "a Prometheus has no processes: run gpumon on the host"
_HELD: Final = 2.0 * (1 << 30)
"""Bytes of VRAM in use from which a GPU without a process has one that is not visible from here."""


class ProcessPane(ListPane[Running]):
    """One row per process, the one with the most VRAM first."""

    KEY: ClassVar[str] = "pane.processes"
    TITLE: ClassVar[str] = "processes"
    THING: ClassVar[str] = "process"
    TABLE: ClassVar = process_table.TABLE

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._of: Snapshot | None = None
        self._merged: list[Running] = []
        self.afar = False
        """Whether another machine is shown, as a Prometheus tells of it."""

    def items(self, snapshot: Snapshot) -> Sequence[Running]:
        """The processes of all GPUs, each once."""
        if snapshot is not self._of:
            self._of, self._merged = snapshot, process_table.merged(snapshot.gpus, snapshot.wall_s)
        return self._merged

    def key_of(self, item: Running) -> str:
        """The pid."""
        return str(item.process.pid)

    def words(self, item: Running) -> str:
        """All texts of the row, the name and the pod too."""
        process = item.process
        return (
            f"{process.pid} {process.user} {process.name} {process.command} {process.engine} {process.container} "
            f"{process.pod} {process.pod_name} {process.job} {process.type} gpu {spans(item.gpus)}"
        )

    def gpus_of(self, item: Running) -> Sequence[int]:
        """Those that it is on."""
        return item.gpus

    def orders(self) -> Sequence[Order[Running]]:
        """By what it takes, and by whose it is."""
        return process_table.ORDERS

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is a process."""
        return (process_table.head(width, self.view, self.shift),) if self.chosen() else ()

    def nothing(self, width: int) -> Sequence[Row]:
        """Why there is none."""
        if self.snapshot is None:
            return wrapped("starting …", width, "muted")
        if self.afar:
            return wrapped(AFAR, width, "muted", most=2)
        return wrapped(_no_process(self.snapshot), width, "muted", most=2)

    def row(self, item: Running, width: int) -> Row:
        """One process."""
        return process_table.row(item, width, self.view, self.shift)


def _no_process(snapshot: Snapshot) -> str:
    """Why there is no process, as far as the GPUs tell."""
    live = [gpu for gpu in snapshot.gpus if gpu.state is GpuState.OK]
    if not snapshot.gpus:
        return "no process: this host's GPUs are not read"
    if not live:
        return "no process: no GPU answers"
    held = [gpu.index for gpu in live if isinstance(gpu.vram_used_bytes, float) and gpu.vram_used_bytes > _HELD]
    if held:
        return f"GPUs {spans(held)}: memory in use by processes not visible here: start with --pid=host or hostPID"
    return "no process on the GPUs"
