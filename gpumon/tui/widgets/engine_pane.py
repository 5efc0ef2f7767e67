"""Pane 2: the serving engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Engine, Kind, Snapshot, Verdict
from gpumon.triage.render import LIMITS
from gpumon.tui import engine_table
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.replica_rows import SUMS, grouped, is_sums
from gpumon.tui.rows import Order
from gpumon.tui.table import spans
from gpumon.tui.triage_words import urgent_by_key
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import wrapped


class EnginePane(ListPane[Engine]):
    """One row per engine, and one above the replicas of a model where nothing else orders or filters the rows."""

    KEY: ClassVar[str] = "pane.engines"
    TITLE: ClassVar[str] = "engines"
    THING: ClassVar[str] = "engine"
    TABLE: ClassVar = engine_table.TABLE

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._urgent: dict[str, Verdict] = {}
        """`Engine.key` -> worst verdict."""

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self._urgent = urgent_by_key(snapshot.verdicts, Kind.ENGINE)
        super().show(snapshot)

    def items(self, snapshot: Snapshot) -> Sequence[Engine]:
        """The engines in the order of the config, replicas of a model together."""
        return snapshot.engines if self.wanted or self.order is not None else grouped(snapshot)

    def open(self) -> tuple[str, str] | None:
        """The engine under the cursor, or the replicas whose sums are."""
        item = self.selected
        if item is not None and is_sums(item):
            return "replicas", item.url.removeprefix(SUMS)
        return super().open()

    def pages(self) -> Sequence[str]:
        """The engines, without rows of sums."""
        return [key for key in super().pages() if not key.startswith(SUMS)]

    def key_of(self, item: Engine) -> str:
        """The URL that it is polled at."""
        return item.key

    def words(self, item: Engine) -> str:
        """Name, model, URL, kind, version, GPUs, precision, and the state with what is wrong."""
        state = "ok" if item.state is EndpointState.OK else engine_table.STATES[item.state][0]
        limit = LIMITS[self._urgent[item.key].code] if item.key in self._urgent else ""
        gpus = f"gpu {spans(item.hardware.gpus)} {item.hardware.gpu_type}"
        return (
            f"{item.name} {item.model} {item.url} {item.kind.value} {item.version} {gpus} {item.efficiency.precision} "
            + (f"{state} {item.state.value} {item.fault} {limit}")
        )

    def gpus_of(self, item: Engine) -> Sequence[int]:
        """Those that it runs on."""
        return item.hardware.gpus

    def orders(self) -> Sequence[Order[Engine]]:
        """By every figure that all screens show."""
        return engine_table.ORDERS

    def trouble(self, item: Engine) -> str:
        """Its state, where it gives no figures; its name, where it is marked."""
        return engine_table.trouble(item, self._urgent.get(item.key))

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is an engine."""
        if self.snapshot is None or not self.snapshot.engines:
            return ()
        return (engine_table.TABLE.head(width, self.view, self.shift),)

    def nothing(self, width: int) -> Sequence[Row]:
        """How to get one."""
        if self.snapshot is None:
            return wrapped("starting …", width, "muted")
        return wrapped(
            "no engine found: start one, or add --endpoint URL ([[endpoint]] in the config) to see tokens/s and MFU",
            width,
            "muted",
            most=2,
        )

    def row(self, item: Engine, width: int) -> Row:
        """One engine."""
        now_s = self.snapshot.wall_s if self.snapshot is not None else 0.0
        return engine_table.row(item, width, self.view, now_s, self._urgent.get(item.key), self.shift)
