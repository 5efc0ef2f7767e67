"""The foot of the fleet's screen: what the host, the model, or the owner under the cursor holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.order import sort_fleet_rows
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import rows_of_hosts
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.format import counted, cut, left
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Kind, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.marks import states_by_key, urgent_by_gpu, urgent_by_key
from gpumon.triage.render import NARROW_NAMES
from gpumon.triage.roots import root_text, roots_of
from gpumon.tui import engine_table, gpu_table, line
from gpumon.tui.fleet.columns import gpu_types_text, is_partial
from gpumon.tui.fleet.row_words import NO_SENTENCE, row_sentence, state_or_verdict
from gpumon.tui.fold import folded
from gpumon.tui.line import cells_of
from gpumon.tui.palette import Palette
from gpumon.tui.table import clock
from gpumon.tui.triage_words import root_mark
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import Pane

_MOST_TROUBLES: Final = 4
"""Faults and verdicts that stand before the GPUs."""
_MOST_MORE_LINES: Final = 2
"""Further lines of each of them, where there is room."""
_MOST_SENTENCE_LINES: Final = 6
"""Lines of the sentence on a row, where the screen has no room for this pane."""
_INDENT: Final = 3
"""Blanks before the further lines of a fault or verdict."""
_LEAST_TEXT: Final = 8
"""Least cells of a text, however narrow the screen is."""
_HOST_CELLS: Final = 20
"""Cells of an engine's host in the lines of a model or an owner."""
_HELD_CELLS: Final = 30
"""Cells of what an owner holds on a host."""
_USUAL_WIDTH: Final = 80
"""Cells of the screen that are taken for it before it is laid out."""


class HostPane(Pane):
    """Verdicts and faults first, then GPUs and engines, as their tables on the host's own screen have them."""

    heading: str = "host"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._row: FleetRow | None = None
        self._of_many = False
        """Whether the row is a model's or an owner's, which may have several hosts."""
        self._of_owner = False
        self.can_focus = False

    def look_at(self, row: FleetRow | None, *, of_many: bool, of_owner: bool = False) -> None:
        """Show another row, or the same one at another moment. `of_owner`: it is an owner's, which is one `of_many`."""
        self._row = row
        self._of_many = of_many
        self._of_owner = of_owner
        self.scrolling.top = 0
        self.update()

    @property
    def wanted_lines(self) -> int:
        """Number of lines that it could use, its rule included."""
        row = self._row
        if row is None:
            return 0
        width = self.size.width or _USUAL_WIDTH
        return 1 + len(self._row_lines(row, width, spare=_MOST_TROUBLES * _MOST_MORE_LINES))

    def title(self) -> str:
        """The name of the host, model or owner."""
        if self._row is None:
            return ""
        return clean(self._row.name, 60)

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """Types of GPU, number of hosts and labels, for the rule."""
        row = self._row
        if row is None:
            return ""
        labels = " ".join(f"{clean(name, 30)}={clean(value, 40)}" for name, value in sorted(row.labels.items()))
        mfu = row.mfu_ratio
        coverage = f"MFU of {mfu.gpus} of {mfu.of} GPUs" if is_partial(mfu) else ""
        hosts = counted(len(row.hosts), "host") if self._of_many else ""
        parts = [gpu_types_text(row), coverage, hosts, labels]
        return " · ".join(part for part in parts if part)

    def keys_to_more(self, focused: bool) -> str:  # noqa: ARG002 - the signature of Pane
        """The key that opens the host's own screen."""
        return f"{self.view.keymap.first('open')}: all of it"

    def body(self, width: int, height: int) -> Sequence[line.Row]:
        """All lines there are, even if they are more than `height`."""
        row = self._row
        if row is None:
            return ()
        lines = self._row_lines(row, width, spare=0)
        spare = height - len(lines)
        if spare <= 0:
            return lines
        return self._row_lines(row, width, spare=spare)

    def _row_lines(self, row: FleetRow, width: int, *, spare: int) -> list[line.Row]:
        """The engines of a model, after the hosts of an owner; all of a host, with as many as `spare` further lines of
        its verdicts."""
        if self._of_many:
            hosts = self._owner_hosts(row, width) if self._of_owner else ()
            return [*hosts, *self._engine_lines(row, width)]
        return [row_of_host for host in row.parts.hosts for row_of_host in self._host_lines(host, width, spare)]

    def _host_lines(self, host: HostShown, width: int, spare: int) -> Iterator[line.Row]:
        """Faults and verdicts of a host, then a line for each of its GPUs and of its engines."""
        snapshot = host.snapshot
        yield from _trouble_lines(snapshot, width, spare)
        if snapshot.gpus:
            urgent = urgent_by_gpu(snapshot)
            states = states_by_key(snapshot.verdicts, Kind.GPU)
            yield gpu_table.TABLE.head(width, self.view)
            for gpu in snapshot.gpus:
                worst = urgent.get(gpu.reading.uuid)
                of_state = states.get(gpu.reading.uuid)
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

    def _owner_hosts(self, row: FleetRow, width: int) -> Iterator[line.Row]:
        """A line for each host of an owner, the worst first: what it holds there, and the worst verdict on that."""
        room = max(_LEAST_TEXT, width - _HOST_CELLS - _HELD_CELLS - 2)
        for host_row in sort_fleet_rows(rows_of_hosts(row)):
            busy = host_row.busy_ratio.value
            held = f"{counted(len(host_row.parts.gpus), 'GPU')}, {counted(host_row.engines, 'engine')}"
            if not isinstance(busy, Missing):
                held += f", {busy:.0%} busy"
            name = " " + left(clean(host_row.name, 100), _HOST_CELLS)
            verdict = state_or_verdict(host_row, self._wall_s(row), room)
            yield ((name, "strong"), (" " + left(held, _HELD_CELLS), "text"), *verdict)

    def _wall_s(self, row: FleetRow) -> float:
        """Unix time of the newest host of a row."""
        return max((host.snapshot.wall_s for host in row.parts.hosts), default=0.0)

    def _engine_lines(self, row: FleetRow, width: int) -> Iterator[line.Row]:
        """A line for each engine of a model or an owner, with its host; the names of the hosts where there is none."""
        engine_width = width - _HOST_CELLS - 1
        head = engine_table.TABLE.head(engine_width, self.view)
        if row.parts.engines:
            yield ((" " + left("host", _HOST_CELLS), "muted"), *head)
        else:
            begin = f" {counted(len(row.hosts), 'host')}: "
            names = cut(clean(" ".join(row.hosts), 500), max(_LEAST_TEXT, width - 20))  # 20: `begin`, with any number
            yield ((f"{begin}{names}", "text"),)
        wall_s_by_host = {host.name: host.snapshot.wall_s for host in row.parts.hosts}
        for row_engine in row.parts.engines:
            now_s = wall_s_by_host.get(row_engine.host, 0.0)
            figures = engine_table.engine_row(row_engine.engine, engine_width, self.view, now_s)
            yield ((" " + left(clean(row_engine.host, 100), _HOST_CELLS), "text"), *figures)


class _Trouble(NamedTuple):
    """A fault or a verdict: its mark with its source or thing, and its sentence."""

    head: line.Row
    text: str


def _troubles(snapshot: Snapshot) -> Iterator[_Trouble]:
    """Faults, then verdicts but those that say that all is well."""
    for fault in snapshot.faults:
        source = f"{clean(fault.source, 40)}: "
        yield _Trouble(((" ! ", "warn"), (source, "strong")), clean(fault.text, 300))
    for root in roots_of(snapshot.verdicts):
        glyph, tone, _ = root_mark(root)
        name = f" {glyph} {left(NARROW_NAMES[root.first.code], 13)} "
        scope = f"{clean(root.scope, 30)} "
        yield _Trouble(((name, tone), (scope, "strong")), clean(root_text(root, snapshot, clock), 300))


def _trouble_lines(snapshot: Snapshot, width: int, spare: int) -> Iterator[line.Row]:
    """The first faults and verdicts of a host, and how many more there are.

    Each has one line; a text that is longer than this goes on in further ones, as long as `spare` lines are left.
    """
    troubles = list(_troubles(snapshot))
    next_room = max(_LEAST_TEXT, width - 1 - _INDENT)
    for head, text in troubles[:_MOST_TROUBLES]:
        first_room = max(_LEAST_TEXT, width - 1 - cells_of(head))
        first, *more = _fold_text(text, first_room, next_room, most=1 + min(spare, _MOST_MORE_LINES))
        spare -= len(more)
        yield (*head, (first, "text"))
        for words in more:
            yield ((" " * _INDENT + words, "text"),)
    if len(troubles) > _MOST_TROUBLES:
        yield ((f"   +{len(troubles) - _MOST_TROUBLES} more", "muted"),)


def _fold_text(text: str, first_room: int, next_room: int, most: int) -> list[str]:
    """A text in at most `most` lines, the first of `first_room` cells, the others of `next_room`; the last is cut.

    Unlike `cut_to_lines` it breaks a first word that has no room: the first line is never left empty.
    """
    begin, *rest = folded(text, first_room)
    if not rest or most < 2:
        return [cut(text, first_room)]
    more = folded(" ".join(rest), next_room)
    if len(more) >= most:
        more = (*more[: most - 2], cut(" ".join(more[most - 2 :]), next_room))
    return [begin, *more]


class RowLine(Board):
    """The state of a host, or its worst verdict with what to do, where the screen has no room for `HostPane`.

    It keeps a line where there is nothing to say, so that the table stays where it is as the cursor moves.
    """

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._sentence = NO_SENTENCE

    def look_at(self, row: FleetRow | None, wall_s: float) -> None:
        """Show another row, or the same one at another moment (Unix time)."""
        if row is None:
            self._sentence = NO_SENTENCE
        else:
            self._sentence = row_sentence(row, wall_s)
        self.update()

    def wanted_lines(self, width: int) -> int:
        """Number of lines that it could use."""
        return max(1, len(line.wrap_line(self._sentence.text, width, "text", _MOST_SENTENCE_LINES)))

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """The sentence, its glyph in the three blanks with which a wrapped line begins."""
        glyph, tone, text = self._sentence
        lines = line.wrap_line(text, width, "text", max(1, height))
        if lines:
            (first, _), *_rest = lines[0]
            lines[0] = ((f" {glyph:<2}", tone), (first[3:], "text"))
        return lines
