"""Servers as blocks that light up as a target moves; a place among them is a target, too, for the mouse."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.readings.missing import number
from gpumon.sizing.answer import Answer, Packed, PlacedServer, WorkloadPlan
from gpumon.sizing.document.plan import needed_packing
from gpumon.tui.line import Piece, join_tones
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.placement import workload_tone

_LEAST_CELLS: Final = 12
"""Cells below which there are no blocks."""
_SCALES: Final = (1, 2, 3, 4, 6, 8)
"""Servers that all blocks together stand for, and the same times powers of ten: a target may move a good way before
they stand for more."""
_MOST_BEYOND: Final = 3
"""Servers more than that, as far as they have room with a cell for each GPU."""
_DIGITS: Final = 3
"""Digits of a target that the mouse sets."""


class _Marks(NamedTuple):
    """The characters of blocks."""

    used: str
    unsure: str
    """A GPU that may be needed: within the range of a plan that stands on few loads."""
    spare: str
    """A GPU that is free in a needed server, or one of a spare server."""
    unused: str
    """A GPU of a server that is not needed."""


_MARKS: Final[dict[Glyphs, _Marks]] = {
    "braille": _Marks("█", "▒", "░", "·"),
    "blocks": _Marks("█", "▒", "░", "·"),
    "ascii": _Marks("#", "?", "_", "."),
}


class BlockScale(NamedTuple):
    """Scale of a row of blocks. It stays as it is while the mouse drags, so that blocks stay where they are."""

    servers: int
    """Servers that all blocks together stand for."""
    gpus: int
    """GPUs of a server."""
    servers_per_cell: int
    """Servers of a cell; 0: each server is a block with a cell for each GPU."""
    other_gpus: float
    """GPUs that the other workloads take."""
    target_per_gpu: float
    """Part of the chosen workload's target that a GPU carries; 0 where that is not known."""

    @property
    def cells(self) -> int:
        """Cells of all blocks and of the blanks between them."""
        if self.servers_per_cell:
            return math.ceil(self.servers / self.servers_per_cell)
        return self.servers * (self.gpus + 1) - 1

    def target_at(self, cell: int) -> float | None:
        """The target with which all up to a cell lights up, by so many GPUs; None where it is not known."""
        if not self.target_per_gpu:
            return None
        place = max(0, min(self.cells - 1, cell))
        if self.servers_per_cell:
            gpus = (place + 1) * self.servers_per_cell * self.gpus
        else:
            servers, gpu = divmod(place, self.gpus + 1)
            gpus = servers * self.gpus + min(self.gpus, gpu + 1)
        return _floored(max(1.0, gpus - self.other_gpus) * self.target_per_gpu)


def _floored(value: float) -> float:
    """A value with as many digits as a person sets by the mouse, rounded down."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    floored = math.floor(value / unit + 1e-9) * unit
    return float(f"{math.floor(floored) if floored >= 10.0 else floored:.6g}")


def block_scale(answer: Answer, plan: WorkloadPlan, room: int) -> BlockScale | None:
    """The scale of blocks for an answer in `room` cells; `plan`: that of the workload whose target moves. None where
    there is no room, or nothing is placed."""
    packed = needed_packing(answer)
    servers = number(packed.servers)
    if not packed.layout or servers is None or not math.isfinite(servers) or room < _LEAST_CELLS:
        return None
    gpus = max(len(server.gpus) for server in packed.layout)
    shown = _shown_servers(max(_most_servers(answer, servers), (answer.have.gpus if answer.have else 0) / gpus))
    servers_per_cell = 0
    if shown * (gpus + 1) - 1 > room:
        servers_per_cell = math.ceil(shown / room)
    else:
        shown = min((room + 1) // (gpus + 1), shown + _MOST_BEYOND)
    total_gpus = number(packed.gpus) or 0.0
    gpus_of_plan = number(plan.gpus) or 0.0
    return BlockScale(shown, gpus, servers_per_cell, max(0.0, total_gpus - gpus_of_plan), _target_per_gpu(plan))


def _most_servers(answer: Answer, servers: float) -> float:
    """Servers that are needed at most."""
    if answer.gpus_range is None:
        return servers
    return max(servers, number(answer.gpus_range.servers_high) or 0.0)


def _shown_servers(least: float) -> int:
    """Servers that blocks stand for: more than are needed or here, so that there is somewhere to go."""
    power = 1
    while True:
        for scale in _SCALES:
            if scale * power > least:
                return scale * power
        power *= 10


def _target_per_gpu(plan: WorkloadPlan) -> float:
    """Part of a workload's target that one of its GPUs carries; 0 where that is not known."""
    capacity = number(plan.capacity_per_instance)
    in_flight = number(plan.concurrency)
    instances = number(plan.instances)
    gpus = number(plan.gpus)
    if plan.problem or not capacity or not in_flight or not instances or not gpus:
        return 0.0
    carrying = max(1.0, instances - plan.spares)
    per_gpu = capacity * carrying / gpus * plan.target / in_flight
    return per_gpu if math.isfinite(per_gpu) else 0.0


def block_pieces(answer: Answer, scale: BlockScale, glyphs: Glyphs) -> list[Piece]:
    """The blocks: used GPUs in the tone of what stands on them, those that may be needed, free ones, and the rest."""
    marks = _MARKS[glyphs]
    packed = needed_packing(answer)
    if scale.servers_per_cell:
        return join_tones(_server_cells(answer, packed, scale, marks))
    low, high = _gpu_ends(answer)
    shown: list[Piece] = []
    used = 0
    spare_servers = len(packed.layout) + packed.spare_servers
    for place in range(scale.servers):
        if place:
            shown.append((" ", "muted"))
        server = packed.layout[place] if place < len(packed.layout) else None
        for workloads in _workloads_by_gpu(server, scale.gpus):
            if workloads:
                used += 1
                mark = marks.used if used <= low else marks.unsure
                shown.append((mark, workload_tone(workloads[0])))
            elif place >= spare_servers and used < high:
                used += 1
                shown.append((marks.unsure, "warn"))
            elif place < spare_servers:
                shown.append((marks.spare, "muted"))
            else:
                shown.append((marks.unused, "muted"))
    return join_tones(shown)


def _workloads_by_gpu(server: PlacedServer | None, gpus: int) -> list[tuple[int, ...]]:
    """The workloads on each of so many GPUs of a server, those of free ones last; None: a server that is not needed."""
    slots = [] if server is None else [slot.workloads for slot in server.gpus]
    slots.sort(key=lambda workloads: (not workloads, workloads))
    return [*slots, *[()] * (gpus - len(slots))][:gpus]


def _gpu_ends(answer: Answer) -> tuple[float, float]:
    """GPUs that are needed for certain, and at most."""
    if answer.gpus_range is None:
        return math.inf, 0.0
    low = number(answer.gpus_range.low)
    high = number(answer.gpus_range.high)
    return (math.inf if low is None else low), (math.inf if high is None else high)


def _server_cells(answer: Answer, packed: Packed, scale: BlockScale, marks: _Marks) -> list[Piece]:
    """A cell for so many servers, where they are too many for one for each GPU."""
    servers = number(packed.servers) or 0.0
    low = servers
    high = servers
    if answer.gpus_range is not None:
        low = number(answer.gpus_range.servers_low) or servers
        high = number(answer.gpus_range.servers_high) or float(scale.servers)
    shown: list[Piece] = []
    for cell in range(scale.cells):
        first = cell * scale.servers_per_cell
        if first < low:
            workload = 0
            if first < len(packed.layout):
                workload = next((slot.workloads[0] for slot in packed.layout[first].gpus if slot.workloads), 0)
            shown.append((marks.used, workload_tone(workload)))
        elif first < high:
            shown.append((marks.unsure, "warn"))
        else:
            shown.append((marks.unused, "muted"))
    return shown
