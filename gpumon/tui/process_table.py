"""One row per process on the GPUs, however many of them it runs on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpumon.figures.figure import ROOM_OF_COMMAND
from gpumon.figures.process import PROCESS
from gpumon.readings.columns import PROCESS_COLUMNS, DrawnColumn, TextColumn
from gpumon.readings.format import DASH, age, memory, ratio, right, short
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Gpu
from gpumon.tui.line import Row
from gpumon.tui.rows import Listing, ListScene, Order
from gpumon.tui.table import (
    Column,
    Table,
    drawn_column,
    drawn_columns,
    figure_text_column,
    figures_column,
    spans,
    words_column,
)
from gpumon.tui.view import View

_LEAST_COMMAND_CELLS: Final = 20
"""Cells of the command, however narrow the screen: where there are fewer, the user goes first."""
_HOST_PID_SUFFIX: Final = " (host)"
"""End of the name of a process whose pid is the host's, seen from inside a container."""


class RunningProcess(msgspec.Struct, frozen=True):
    """One process, and what it takes of all its GPUs together."""

    process: GpuProcess
    """As the first of its GPUs lists it."""
    gpus: tuple[int, ...]
    vram_bytes: Reading
    """Sum over its GPUs."""
    vram_partial: bool
    """Whether its VRAM is not known on some of its GPUs: `vram_bytes` is the least that it can be."""
    sm_ratio: Reading
    """Mean over those of its GPUs that have a sample of it: 1 is all of all its GPUs."""
    runs_s: float
    """Seconds since it started; below 0 where that is not known."""


def running_processes(gpus: Iterable[Gpu], now_s: float = 0.0) -> list[RunningProcess]:
    """The processes on the GPUs at a Unix time, each once: the most VRAM first, those whose VRAM is not known last."""
    by_pid: dict[int, list[tuple[int, GpuProcess]]] = {}
    for gpu in gpus:
        for process in gpu.reading.processes:
            by_pid.setdefault(process.pid, []).append((gpu.reading.index, process))
    running = [_running_process(listings, now_s) for listings in by_pid.values()]
    return sorted(running, key=_vram_order)


def _vram_order(running: RunningProcess) -> tuple[bool, float, int]:
    """Sort key: most VRAM first, what is not known last."""
    vram = running.vram_bytes
    if isinstance(vram, Missing):
        return True, 0.0, running.process.pid
    return False, -vram, running.process.pid


def _running_process(listings: list[tuple[int, GpuProcess]], now_s: float) -> RunningProcess:
    """One process from the numbers of its GPUs and what each lists of it: the sum of its VRAM, the mean of its shares
    of the SMs; where no GPU has a value, the reason of the first."""
    _, first = listings[0]
    known_vram_bytes = _known_values([process.vram_bytes for _, process in listings])
    known_sm_ratios = _known_values([process.sm_ratio for _, process in listings])
    vram_bytes = sum(known_vram_bytes) if known_vram_bytes else first.vram_bytes
    sm_ratio = sum(known_sm_ratios) / len(known_sm_ratios) if known_sm_ratios else first.sm_ratio
    runs_s = now_s - first.started_s if first.started_s else -1.0
    return RunningProcess(
        process=first,
        gpus=tuple(sorted({index for index, _ in listings})),
        vram_bytes=vram_bytes,
        vram_partial=0 < len(known_vram_bytes) < len(listings),
        sm_ratio=sm_ratio,
        runs_s=runs_s,
    )


def _known_values(readings: Iterable[Reading]) -> list[float]:
    """The readings that have a value."""
    return [reading for reading in readings if not isinstance(reading, Missing)]


def command_text(process: GpuProcess) -> str:
    """The command line without the folder of its program, else the name; why there is neither in a container."""
    if process.command:
        program, blank, rest = process.command.partition(" ")
        return program.rpartition("/")[2] + blank + rest
    if process.name.endswith(_HOST_PID_SUFFIX):
        return "(host's: hidden from this container)"
    return process.name


def sm_share(value: Reading, width: int = 4) -> str:
    """A process's share of the SMs; one that the driver has no sample of did nothing: `idle`, as on its page."""
    if isinstance(value, Missing) and value.reason is Reason.IDLE:
        return "idle"
    return ratio(value, width)


def _vram_cell(running: RunningProcess, view: View, tone: str) -> Row:
    bound = "≥" if running.vram_partial else ""
    return ((f" {right(bound + memory(running.vram_bytes, view.memory_bytes), 5)}", tone),)


def _cpu_text(process: GpuProcess) -> str:
    """CPU in percent of one core, as top has it."""
    value = process.cpu_ratio
    return short(value) if isinstance(value, Missing) else f"{min(value, 99.99) * 100.0:.0f}%"


_DRAWN: Final[tuple[Column[RunningProcess], ...]] = (
    words_column("gpus", "gpus", 5, lambda running: spans(running.gpus)),
    drawn_column(PROCESS["vram_bytes"], 6, _vram_cell, lambda view: ((right(view.memory_unit, 6), "muted"),)),
    figure_text_column(PROCESS["sm_ratio"], 5, lambda running: sm_share(running.sm_ratio)),
    figure_text_column(PROCESS["cpu_ratio"], 6, lambda running: _cpu_text(running.process)),
    drawn_column(
        PROCESS["rss_bytes"],
        8,
        lambda running, view, tone: ((right(memory(running.process.rss_bytes, view.memory_bytes), 8), tone),),
        lambda view: ((right(f"{PROCESS['rss_bytes'].short} {view.memory_unit}", 8), "muted"),),
    ),
    figures_column(
        "time", "time", 5, lambda running: age(running.runs_s) if running.runs_s >= 0.0 else DASH, keep=ROOM_OF_COMMAND
    ),
)
"""Columns that are about more than the process itself, or have a unit that can be chosen, by name."""


def _column_of_running(column: TextColumn[GpuProcess] | DrawnColumn) -> TextColumn[RunningProcess] | DrawnColumn:
    """The column of a process as that of one with all its GPUs."""
    if isinstance(column, DrawnColumn):
        return column
    text = column.text
    return TextColumn(
        name=column.name,
        title=column.title,
        width=column.width,
        text=lambda running: text(running.process),
        is_left=column.is_left,
        gap=column.gap,
        keep=column.keep,
        fixed=column.fixed,
    )


_BASE: Final = drawn_columns(map(_column_of_running, PROCESS_COLUMNS.base), _DRAWN)
"""Columns of every screen; the command has the rest of the line."""
_EXTRA: Final = drawn_columns(map(_column_of_running, PROCESS_COLUMNS.extra), _DRAWN)
"""Columns that a wider screen adds, in this order, before the command."""

TABLE: Final = Table(PROCESS_COLUMNS.pane, _BASE, _EXTRA, drops=("user", "gpus"), room_behind=_LEAST_COMMAND_CELLS)


def process_head(width: int, view: View, shift: int = 0) -> Row:
    """The header of the columns, and of the command behind them."""
    command = "" if "processes.command" in view.hidden else " command"
    return (*TABLE.head(width, view, shift), (command, "muted"))


def process_row(running: RunningProcess, width: int, view: View, shift: int = 0) -> Row:
    """One process in the columns, and its command behind them."""
    text = "" if "processes.command" in view.hidden else f" {command_text(running.process)}"
    return (*TABLE.row(running, width, view, "text", shift=shift), (text, "text"))


ORDERS: Final[tuple[Order[RunningProcess], ...]] = (
    Order(PROCESS["vram_bytes"].name, lambda running: running.vram_bytes, column="vram"),
    Order(PROCESS["sm_ratio"].name, lambda running: running.sm_ratio, means="mean of its GPUs", column="sm"),
    Order(
        "GPU",
        lambda running: tuple(map(float, running.gpus)),
        descending=False,
        means="the first that it is on",
        column="gpus",
    ),
    Order(PROCESS["cpu_ratio"].name, lambda running: running.process.cpu_ratio, means="of the host", column="cpu"),
    Order("pid", lambda running: float(running.process.pid), descending=False),
    Order("user", lambda running: running.process.user.casefold(), descending=False),
)
"""The ways to sort."""


def _filter_text(running: RunningProcess, _: ListScene) -> str:
    """The text that the filter looks into: all of the row, the name and the pod too."""
    process = running.process
    return (
        f"{process.pid} {process.user} {process.name} {process.command} {process.engine} {process.container} "
        f"{process.container_name} {process.pod} {process.pod_name} {process.job} {process.type} "
        f"gpu {spans(running.gpus)}"
    )


PROCESS_LISTING: Final = Listing[RunningProcess](
    thing="process",
    title="processes",
    key=lambda running: str(running.process.pid),
    command="pane.processes",
    words=_filter_text,
    gpus=lambda running, _: running.gpus,
    engines=lambda running, _: (running.process.engine,),
    orders=ORDERS,
    table=TABLE,
)
"""The processes on the GPUs of one machine."""
