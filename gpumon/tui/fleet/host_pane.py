"""The foot of the fleet's screen: what the host, the model, or the owner under the cursor holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.format import counted, cut, left
from gpumon.readings.snapshot import Kind, Level, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.marks import states_by_key, urgent_by_gpu, urgent_by_key
from gpumon.triage.render import NARROW, verdict_text
from gpumon.tui import engine_table, gpu_table, line
from gpumon.tui.fleet.columns import in_part, sentence
from gpumon.tui.fold import folded
from gpumon.tui.line import cells_of
from gpumon.tui.palette import Palette
from gpumon.tui.triage_words import mark
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import Pane

_MOST_VERDICTS: Final = 4
"""Lines of what is wrong that stand before the GPUs."""
_MOST_MORE: Final = 2
"""Lines more of each, where there is room."""
_MOST_SENTENCE: Final = 6
"""Lines of what is wrong where the foot has no place."""
_INDENT: Final = 3
_HOST: Final = 20
"""Cells of an engine's host in the lines of a model or an owner."""


class HostPane(Pane):
    """Verdicts and faults first, then GPUs and engines, as their tables on the host's own screen have them."""

    TITLE: str = "host"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._row: FleetRow | None = None
        self._of_many = False
        """Whether the row may be of several hosts."""
        self.can_focus = False

    def look_at(self, row: FleetRow | None, *, of_many: bool) -> None:
        """Another row, or the same one at another moment."""
        self._row = row
        self._of_many = of_many
        self._top = 0
        self.update()

    @property
    def wanted(self) -> int:
        """Lines that it could use, its rule included."""
        row = self._row
        if row is None:
            return 0
        if self._of_many:
            return 1 + sum(1 for _ in self._of_engines(row, self.size.width or 80))
        width = self.size.width or 80
        spare = _MOST_VERDICTS * _MOST_MORE
        return 1 + sum(1 for host in row.parts.hosts for _ in self._of_host(host, width, spare))

    def title(self) -> str:
        """Name of the host."""
        if self._row is None:
            return ""
        return clean(self._row.name, 60)

    def note(self) -> str:
        """GPUs, driver and labels, for the rule."""
        row = self._row
        if row is None:
            return ""
        types = " ".join(f"{number}x {clean(name, 40).removeprefix('NVIDIA ')}" for name, number in row.gpu_types)
        labels = " ".join(f"{clean(name, 30)}={clean(value, 40)}" for name, value in sorted(row.labels.items()))
        known = row.mfu_ratio
        share = ""
        if in_part(known):
            share = f"MFU of {known.gpus} of {known.of} GPUs"
        hosts = ""
        if self._of_many:
            hosts = counted(len(row.hosts), "host")
        parts = [types, share, hosts, labels]
        return " · ".join(part for part in parts if part)

    def _keys_to_more(self, focused: bool) -> str:  # noqa: ARG002 - the signature of Pane
        return f"{self.view.keymap.first('open')}: all of it"

    def body(self, width: int, height: int) -> Sequence[line.Row]:
        """All lines there are."""
        row = self._row
        if row is None:
            return ()
        if self._of_many:
            return list(self._of_engines(row, width))
        rows = [each for host in row.parts.hosts for each in self._of_host(host, width, 0)]
        spare = height - len(rows)
        if spare <= 0:
            return rows
        return [each for host in row.parts.hosts for each in self._of_host(host, width, spare)]

    def _of_host(self, host: HostShown, width: int, spare: int) -> Iterator[line.Row]:
        snapshot = host.snapshot
        yield from _wrong(snapshot, width, spare)
        if snapshot.gpus:
            urgent = urgent_by_gpu(snapshot)
            states = states_by_key(snapshot.verdicts, Kind.GPU)
            yield gpu_table.TABLE.head(width, self.view)
            for gpu in snapshot.gpus:
                worst = urgent.get(gpu.uuid)
                of_state = states.get(gpu.uuid)
                yield gpu_table.gpu_row(gpu, width, self.view, worst, of_state=of_state, gpus=snapshot.gpus)
        if snapshot.engines:
            urgent = urgent_by_key(snapshot.verdicts, Kind.ENGINE)
            states = states_by_key(snapshot.verdicts, Kind.ENGINE)
            yield engine_table.TABLE.head(width, self.view)
            for engine in snapshot.engines:
                worst = urgent.get(engine.key)
                of_state = states.get(engine.key)
                yield engine_table.engine_row(engine, width, self.view, snapshot.wall_s, worst, of_state=of_state)
        if not snapshot.gpus and not snapshot.engines:
            yield ((" no GPU and no engine is known of it", "muted"),)

    def _of_engines(self, row: FleetRow, width: int) -> Iterator[line.Row]:
        """Its engines, each with its host."""
        head = engine_table.TABLE.head(width - _HOST - 1, self.view)
        if row.parts.engines:
            yield ((" " + left("host", _HOST), "muted"), *head)
        else:
            names = cut(clean(" ".join(row.hosts), 500), max(8, width - 20))
            yield ((f" {counted(len(row.hosts), 'host')}: {names}", "text"),)
        walls = {host.name: host.snapshot.wall_s for host in row.parts.hosts}
        for row_engine in row.parts.engines:
            now_s = walls.get(row_engine.host, 0.0)
            figures = engine_table.engine_row(row_engine.engine, width - _HOST - 1, self.view, now_s)
            yield ((" " + left(clean(row_engine.host, 100), _HOST), "text"), *figures)


def _wrong(snapshot: Snapshot, width: int, spare: int) -> Iterator[line.Row]:
    """Faults and verdicts, but those that say that all is well; how many more there are at the last.

    Each has a line; what that cuts is told on the next ones, as far as `spare` lines are left.
    """
    troubles: list[tuple[line.Row, str]] = []
    for fault in snapshot.faults:
        troubles.append((((" ! ", "warn"), (f"{clean(fault.source, 40)} ", "strong")), clean(fault.text, 300)))
    for verdict in snapshot.verdicts:
        if verdict.level is not Level.OK:
            glyph, tone, _ = mark(verdict)
            named = (f" {glyph} {left(NARROW[verdict.code], 13)} ", tone)
            troubles.append(((named, (f"{clean(verdict.scope, 30)} ", "strong")), clean(verdict_text(verdict), 300)))
    for head, text in troubles[:_MOST_VERDICTS]:
        room = width - 1 - cells_of(head)
        first, *more = _lines(text, max(8, room), max(8, width - 1 - _INDENT), 1 + min(spare, _MOST_MORE))
        spare -= len(more)
        yield (*head, (first, "text"))
        yield from (((" " * _INDENT + words, "text"),) for words in more)
    if len(troubles) > _MOST_VERDICTS:
        yield ((f"   +{len(troubles) - _MOST_VERDICTS} more", "muted"),)


def _lines(text: str, first: int, then: int, most: int) -> list[str]:
    """A text in at most `most` lines, the first of `first` cells, the others of `then`; the last one is cut."""
    begin, *rest = folded(text, first)
    if not rest or most < 2:
        return [cut(text, first)]
    more = folded(" ".join(rest), then)
    if len(more) >= most:
        more = (*more[: most - 2], cut(" ".join(more[most - 2 :]), then))
    return [begin, *more]


class RowLine(Board):
    """The state of a host, or its worst verdict with what to do; it keeps a line where there is nothing to say, so
    that the table stays where it is as the cursor moves."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._said = ("", "text", "")

    def look_at(self, row: FleetRow | None, wall_s: float) -> None:
        """Another row, or the same one at another moment (Unix time)."""
        if row is None:
            self._said = ("", "text", "")
        else:
            self._said = sentence(row, wall_s)
        self.update()

    def wanted(self, width: int) -> int:
        """Lines that it could use."""
        return max(1, len(line.wrap_line(self._said[2], width, "text", _MOST_SENTENCE)))

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """The sentence, its glyph before it."""
        glyph, tone, text = self._said
        lines = line.wrap_line(text, width, "text", max(1, height))
        if lines:
            (first, _), *_rest = lines[0]
            lines[0] = ((f" {glyph:<2}", tone), (first[3:], "text"))
        return lines
