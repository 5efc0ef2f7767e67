"""The engines, with one row above the replicas of a model; rows of engines that have ended can be hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.readings.format import cells, counted
from gpumon.readings.snapshot import Engine
from gpumon.tui.engine_table import ENGINE_LISTING, ended_at, engine_row, trouble_text
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.replica_rows import REPLICAS_PREFIX, is_sums, with_replica_rows
from gpumon.tui.rows import ListScene
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane

_WINDOWS_NOTE: Final = f"tok/s: {ENGINE['decode_tokens_per_s'].window} · p95: {ENGINE['ttft_s.p95'].window}"
"""Units and windows of the figures, for the rule."""


class EnginePane(ListPane[Engine]):
    """One row per engine, and one above the replicas of a model."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view, ENGINE_LISTING)
        self.hidden: frozenset[tuple[str, str]] = frozenset()
        """Rows that the user hid: their keys, and since when their engines are as they were then."""

    def all_items(self) -> Sequence[Engine]:
        """The engines in the order of the config; replicas together below their sums, where nothing orders or filters
        the rows; without those that the user hid."""
        if self.snapshot is None:
            return ()
        as_they_come = self.filter.order is None and not self.filter.narrows
        rows: Sequence[Engine] = with_replica_rows(self.snapshot) if as_they_come else self.snapshot.engines
        if self.hidden:
            return [engine for engine in rows if ended_at(engine) not in self.hidden]
        return rows

    def hide(self, rows: frozenset[tuple[str, str]]) -> None:
        """Leave out these rows."""
        self.hidden = rows
        self.list_anew()
        self.update()

    def lines_without_rows(self, width: int) -> Sequence[Row]:
        """How to get an engine, or how to get hidden ones back."""
        if self.snapshot is None:
            return wrap_line("starting …", width, "muted")
        if self.hidden and self.snapshot.engines:
            palette = self.view.keymap.first("palette")
            count = counted(len(self.snapshot.engines), "engine")
            text = f"{count} hidden: `show hidden rows again` in the palette ({palette})"
        else:
            text = "no engine found: start one, or add --endpoint URL"
        return wrap_line(text, width, "muted", most=2)

    def row(self, item: Engine, width: int, scene: ListScene) -> Row:
        """The figures of an engine, or why there are none, with its verdicts."""
        return engine_row(
            item,
            width,
            scene.view,
            self.snapshot.wall_s if self.snapshot is not None else 0.0,
            verdict=self.urgent.get(item.key),
            shift=scene.shift,
            of_state=self.states.get(item.key),
        )

    def trouble(self, item: Engine) -> str:
        """The state and name of an engine in trouble."""
        return trouble_text(item, self.urgent.get(item.key), self.states.get(item.key))

    def page_of(self, item: Engine) -> tuple[str, str]:
        """The engine's page, or that of the replicas whose sums the row has."""
        if is_sums(item):
            return ("replicas", item.url.removeprefix(REPLICAS_PREFIX))
        return ("engine", item.key)

    def further_aside(self, room: int) -> Sequence[Piece]:
        """Windows of the figures below, if there is room and an engine."""
        if self.snapshot is None or not self.snapshot.engines or cells(_WINDOWS_NOTE) > room:
            return ()
        return ((_WINDOWS_NOTE, "hint"),)
