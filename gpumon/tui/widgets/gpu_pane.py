"""The GPUs of one machine, as rows or as a wall of tiles, with the host that feeds them on the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.gpu import with_clearer_reasons
from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.readings.snapshot import Gpu
from gpumon.tui.gpu_sparks import GpuSparks
from gpumon.tui.gpu_table import GPU_LISTING, TABLE, gpu_row, quiet_state_of_all, trouble_text
from gpumon.tui.host_line import host_line
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.rows import ListScene, are_same_objects
from gpumon.tui.table import Table
from gpumon.tui.view import View
from gpumon.tui.wall.gpus import judged_tile
from gpumon.tui.wall.tiles import Tile
from gpumon.tui.widgets.wall_pane import WallPane

_GPU_SOURCES: Final = ("nvml", "amdsmi", "sysfs", "gpumon", "prometheus")
"""Sources of faults that say why there is no GPU."""
_WORDS_GAP: Final = " · "
"""Between the state of all GPUs and the figures of the host on the rule."""


class GpuPane(WallPane[Gpu]):
    """One row per GPU, in the driver's order, MIG slices behind their parent; or one tile."""

    def __init__(self, palette: Palette, view: View, history: History | None = None) -> None:
        super().__init__(palette, view, GPU_LISTING, history)
        self._sparks = GpuSparks()
        self._state_of_all = ""
        """The state that the rule names for all GPUs, so that no row does; empty where they differ or are trouble."""
        self._state_inputs: tuple[object, ...] = ()
        """All that it was made of."""

    def all_items(self) -> Sequence[Gpu]:
        """The GPUs, and their slices."""
        return self.snapshot.gpus if self.snapshot is not None else ()

    def lines_without_rows(self, width: int) -> Sequence[Row]:
        """Why there is no GPU, as far as a fault says so."""
        if self.snapshot is None:
            return wrap_line("starting: waiting for the driver's first answer …", width, "muted")
        why = next((fault.text for fault in self.snapshot.faults if fault.source in _GPU_SOURCES), "")
        text = f"no GPU found: {why}" if why else "no GPU: this host's GPUs are not read"
        return wrap_line(text, width, "muted", most=2)

    def header(self, table: Table[Gpu], width: int, scene: ListScene) -> Row:
        """The header of the table, and the titles of the sparks behind it."""
        titles = self._sparks.titles(_room_behind(width, scene), scene)
        return (*super().header(table, width, scene), *titles)

    def row(self, item: Gpu, width: int, scene: ListScene) -> Row:
        """The figures of a GPU, and its sparks."""
        figures = gpu_row(
            self._with_clearer_reasons(item),
            width,
            scene.view,
            verdict=self.urgent.get(item.reading.uuid),
            shift=scene.shift,
            of_state=self.states.get(item.reading.uuid),
            gpus=self.all_items(),
            hides_state=bool(self._quiet_state_of_all()),
        )
        return (*figures, *self._sparks.sparks(item, _room_behind(width, scene), scene, self.history))

    def tile_of(self, item: Gpu) -> Tile:
        """The tile of a GPU, with its verdicts."""
        uuid = item.reading.uuid
        return judged_tile(self._with_clearer_reasons(item), self.view, self.urgent.get(uuid), self.states.get(uuid))

    def _with_clearer_reasons(self, gpu: Gpu) -> Gpu:
        """The GPU with what its engines tell of why a figure is missing."""
        return with_clearer_reasons(gpu, self.snapshot.engines if self.snapshot is not None else ())

    def trouble(self, item: Gpu) -> str:
        """The state and name of a GPU, where that is a warning."""
        uuid = item.reading.uuid
        return trouble_text(item, self.all_items(), self.view.levels, self.urgent.get(uuid), self.states.get(uuid))

    def further_aside(self, room: int) -> Sequence[Piece]:
        """The state of all GPUs, and the figures of the host."""
        if self.snapshot is None:
            return ()
        state = self._quiet_state_of_all()
        if not state:
            return host_line(self.snapshot.host, self.view, room)
        words = f"all {state}"
        if cells(words) > room:
            return ()
        figures = host_line(self.snapshot.host, self.view, room - cells(words) - len(_WORDS_GAP))
        if not figures:
            return ((words, "hint"),)
        return ((words + _WORDS_GAP, "hint"), *figures)

    def _quiet_state_of_all(self) -> str:
        """The state that the rule names for all GPUs, worked out once for each snapshot."""
        inputs = (self.snapshot, self.view.levels, self.states, self.urgent)
        if not are_same_objects(inputs, self._state_inputs):
            self._state_inputs = inputs
            if self.states or self.urgent:
                self._state_of_all = ""
            else:
                self._state_of_all = quiet_state_of_all(self.all_items(), self.view.levels)
        return self._state_of_all


def _room_behind(width: int, scene: ListScene) -> int:
    """Cells that the columns leave of `width`, but for a blank at the right edge."""
    return width - TABLE.cells_used(width, scene.view) - 1
