"""Pane 1: the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final

from gpumon.efficiency.gpu import worded
from gpumon.readings.format import left, period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Gpu, Kind, Snapshot, Verdict
from gpumon.triage.render import LIMITS
from gpumon.tui import gpu_table
from gpumon.tui.charts.raster import spark
from gpumon.tui.charts.series import Grid, Series, grid
from gpumon.tui.host_line import host_line
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Order
from gpumon.tui.triage_words import urgent_by_key
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import wrapped

_DRIVER: Final = ("nvml", "amdsmi", "gpumon", "prometheus")
"""Sources of faults that say why there is no GPU."""
_SPARKS: Final = ("busy", "mbu")
"""Series of each GPU's history, and their tones: the first where there is room for one."""
_LEAST_SPARK: Final = 20
_WIDE_SPARK: Final = 40
"""Cells that each spark has where there are two."""
_LONG: Final = 6
"""Characters from which a filter may mean a UUID: shorter ones are in too many of them."""


class GpuPane(ListPane[Gpu]):
    """One row per GPU; a very wide screen adds each GPU's own history."""

    KEY: ClassVar[str] = "pane.gpus"
    TITLE: ClassVar[str] = "gpus"
    THING: ClassVar[str] = "gpu"
    TABLE: ClassVar = gpu_table.TABLE

    def __init__(self, palette: Palette, view: View, history: History) -> None:
        super().__init__(palette, view)
        self._history = history
        self._sparks: dict[str, Series] = {}
        self._grid = Grid(0, 1.0)
        self._urgent: dict[str, Verdict] = {}
        """UUID -> worst verdict."""

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._urgent = urgent_by_key(snapshot.verdicts, Kind.GPU)
        super().show(snapshot)

    def read_from(self, history: History) -> None:
        """Sparks of other series."""
        self._history = history
        self._sparks.clear()

    def items(self, snapshot: Snapshot) -> Sequence[Gpu]:
        """The GPUs in the driver's order, MIG slices behind their parent."""
        return snapshot.gpus

    def key_of(self, item: Gpu) -> str:
        """The UUID: indices change when a GPU goes."""
        return item.uuid

    def words(self, item: Gpu) -> str:
        """Index, name, engines and their models, state, what throttles it; the UUID for a long filter."""
        engines = self.snapshot.engines if self.snapshot is not None else ()
        models = [engine.model for engine in engines if engine.name in item.engines]
        uuid = item.uuid if len(self.wanted) >= _LONG else ""
        state = gpu_table.state(item, self.view.levels)[0]
        limit = LIMITS[self._urgent[item.uuid].code] if item.uuid in self._urgent else ""
        known = (f"gpu {item.index}", item.name, *item.engines, *models, state, limit, item.mig_profile)
        return " ".join((*known, *item.throttle, uuid))

    def gpus_of(self, item: Gpu) -> Sequence[int]:
        """Itself; of a MIG slice the whole GPU."""
        return (item.index,)

    def orders(self) -> Sequence[Order[Gpu]]:
        """By every figure, and by what is wasted."""
        return gpu_table.ORDERS

    def trouble(self, item: Gpu) -> str:
        """Its state, where that is a warning."""
        word, tone = gpu_table.judged(item, self.view.levels, self._urgent.get(item.uuid))
        glyph, _, rest = word.partition(" ")
        return f"{glyph} gpu {item.index} {rest}" if tone in ("warn", "critical", "alarm") else ""

    def aside(self, room: int) -> Sequence[Piece]:
        """The host that feeds them."""
        return host_line(self.snapshot.host, self.view, room) if self.snapshot is not None else ()

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is a GPU."""
        if self.snapshot is None or not self.snapshot.gpus:
            return ()
        names, columns = self._places(width)
        heads: list[Piece] = []
        for at, name in enumerate(names):
            said = f"{name}, last {period(self.view.config.screen.span_s)}" if at == 0 else name
            heads += [("  ", "text"), (left(said, columns.columns), name)]
        return ((*gpu_table.TABLE.head(width, self.view, self.shift), *heads),)

    def nothing(self, width: int) -> Sequence[Row]:
        """Why there is no GPU."""
        if self.snapshot is None:
            return wrapped("starting: waiting for the driver's first answer …", width, "muted")
        return wrapped(_no_gpu(self.snapshot), width, "muted", most=2)

    def row(self, item: Gpu, width: int) -> Row:
        """One GPU."""
        engines = () if self.snapshot is None else self.snapshot.engines
        row = gpu_table.row(worded(item, engines), width, self.view, self._urgent.get(item.uuid), self.shift)
        names, columns = self._places(width)
        if not names or self.snapshot is None:
            return row
        sparks: list[Piece] = []
        for name in names:
            sparks += [("  ", "text"), (self._spark(name, item, self.snapshot, columns), name)]
        return (*row, *sparks)

    def _places(self, width: int) -> tuple[Sequence[str], Grid]:
        """Which histories have room behind the columns, and the grid of each."""
        if "gpus.history" in self.view.hidden or self.shift:
            return (), Grid(0, 1.0)
        return _sparks_in(width - gpu_table.TABLE.used(width, self.view) - 1, self.view.config.screen.span_s)

    def _spark(self, name: str, gpu: Gpu, snapshot: Snapshot, columns: Grid) -> str:
        if gpu.parent_uuid:  # the history has the whole GPU only
            return " " * columns.columns
        if self._grid != columns:
            self._grid = columns
            self._sparks.clear()
        key = f"{name}:{gpu.index}"
        series = self._sparks.get(key)
        if series is None:
            series = self._sparks[key] = Series(self._history, key, columns.columns, columns.column_s, 1)
        return spark(series.values(int(snapshot.wall_s // columns.column_s), snapshot.wall_s))


@lru_cache(maxsize=64)
def _sparks_in(room: int, span_s: float) -> tuple[Sequence[str], Grid]:
    count = len(_SPARKS) if room >= len(_SPARKS) * (_WIDE_SPARK + 2) else 1 if room >= _LEAST_SPARK + 2 else 0
    return _SPARKS[:count], grid(room // count - 2, span_s) if count else Grid(0, 1.0)


def _no_gpu(snapshot: Snapshot) -> str:
    """Why there is no GPU, as far as a fault says so."""
    why = next((fault.text for fault in snapshot.faults if fault.source in _DRIVER), "")
    return f"no GPU found: {why}" if why else "no GPU: this host's GPUs are not read"
