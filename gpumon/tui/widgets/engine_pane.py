"""Pane 2: the serving engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.tui import engine_table
from gpumon.tui.line import Row
from gpumon.tui.replica_rows import SUMS, grouped, is_sums
from gpumon.tui.rows import Order
from gpumon.tui.table import spans
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import wrapped


class EnginePane(ListPane[Engine]):
    """One row per engine, and one above the replicas of a model where nothing else orders or filters the rows."""

    KEY: ClassVar[str] = "pane.engines"
    TITLE: ClassVar[str] = "engines"
    THING: ClassVar[str] = "engine"

    def items(self, snapshot: Snapshot) -> Sequence[Engine]:
        """The engines in the order of the config, replicas of a model together."""
        return snapshot.engines if self.wanted or self.order is not None else grouped(snapshot)

    def open(self) -> tuple[str, str] | None:
        """The engine under the cursor, or the replicas whose sums are."""
        item = self.selected
        if item is not None and is_sums(item):
            return "replicas", item.url.removeprefix(SUMS)
        return super().open()

    def key_of(self, item: Engine) -> str:
        """The URL that it is polled at."""
        return item.key

    def words(self, item: Engine) -> str:
        """Name, model, URL, kind, version, GPUs, precision, and the state with what is wrong."""
        state = "ok" if item.state is EndpointState.OK else engine_table.STATES[item.state][0]
        gpus = f"gpu {spans(item.gpus)} {item.gpu_type}"
        return f"{item.name} {item.model} {item.url} {item.kind.value} {item.version} {gpus} {item.precision} " + (
            f"{state} {item.state.value} {item.fault}"
        )

    def gpus_of(self, item: Engine) -> Sequence[int]:
        """Those that it runs on."""
        return item.gpus

    def orders(self) -> Sequence[Order[Engine]]:
        """By every figure that all screens show."""
        return engine_table.ORDERS

    def trouble(self, item: Engine) -> str:
        """Its state, where it gives no figures; its name, where it is marked."""
        return engine_table.trouble(item)

    def more(self) -> str:
        """Columns that need a wider screen."""
        if self.snapshot is None or not self.snapshot.engines:
            return ""
        return engine_table.TABLE.note(self.size.width, self.view, self.note_room)

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is an engine."""
        if self.snapshot is None or not self.snapshot.engines:
            return ()
        return (engine_table.head(width, self.view),)

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
        return engine_table.row(item, width, self.view, now_s)
