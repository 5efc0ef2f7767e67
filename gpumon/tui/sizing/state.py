"""The sizing panel without its looks: scenario, cursor, and what is being typed."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.sizing.scenario import Catalogues, Scenario, Server
from gpumon.tui.sizing.calculation import Calculation
from gpumon.tui.sizing.edit import Edit
from gpumon.tui.sizing.effective_values import effective_value
from gpumon.tui.sizing.fields import (
    FIELDS_BY_SECTION,
    GOALS,
    SERVER,
    WORKLOAD,
    FieldPlace,
    Value,
    default_of,
    field_of,
    typed_value,
    with_value,
)
from gpumon.tui.sizing.versions import FrozenFigures, UndoList, Version

_ROW_FIELDS: Final = {
    GOALS: ("tpot_p95_ms", "itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
    SERVER: ("gpus", "gpu", "price_per_gpu_hour"),
    WORKLOAD: ("target",),
}
"""Section -> keys of the fields that can be changed in the row itself; the cursor comes to the first."""
_BEGINS_A_NUMBER: Final = "0123456789.,"
"""Characters with which a number is typed: a letter or a minus may be a command."""


class Stop(NamedTuple):
    """A row that the cursor goes to: the goals, a server or a workload."""

    section: str
    number: int
    """Which of the servers, or of the workloads; 0 for the goals."""

    def places(self, *, all_fields: bool = False) -> list[FieldPlace]:
        """The fields that the row shows, or all fields of its section."""
        fields = FIELDS_BY_SECTION[self.section]
        if not all_fields:
            fields = tuple(field_of(self.section, key) for key in _ROW_FIELDS[self.section])
        return [FieldPlace(self.section, self.number, row_field) for row_field in fields]


def stops_of(scenario: Scenario) -> list[Stop]:
    """Rows of the goals, the servers and the workloads; there is a row for a server even where none is given."""
    servers = [Stop(SERVER, number) for number in range(max(1, len(scenario.server)))]
    workloads = [Stop(WORKLOAD, number) for number in range(len(scenario.workload))]
    return [Stop(GOALS, 0), *servers, *workloads]


class PanelState:
    """The scenario, the cursor and the text that is typed. Every change of the question is answered at once."""

    def __init__(
        self,
        catalogues: Catalogues,
        scenario: Scenario,
        *,
        has_configured_servers: bool = False,
        frozen: FrozenFigures | None = None,
    ) -> None:
        """`has_configured_servers`: the scenario's servers are those of the settings. `frozen`: what `scenario` is of;
        without one nothing but the catalogues is known."""
        self.undo = UndoList(Version.of_what_runs(scenario))
        self.frozen = frozen or FrozenFigures(catalogues)
        """Figures of the engines and GPUs: they stay as they are until `renew`."""
        self.calculation = Calculation(catalogues, has_configured_servers=has_configured_servers)
        self.calculation.use(self.frozen.catalogues, self.frozen.here)
        self.edit: Edit | None = None
        self.opened = False
        """Whether all fields of the row under the cursor are shown, instead of all rows."""
        self.cell = 0
        """Number of the value that the cursor is on in its row; of the field in an opened one."""
        self.version = self.undo.version
        """The question: the present version with the text that is typed, if that is a value."""
        self.stops = stops_of(scenario)
        """The rows that the cursor goes to."""
        self._row = 0
        """Number of the row under the cursor, among `stops`."""
        self._last_workload = 0
        """Number of the workload that the cursor was on last."""
        self._left_row: int | None = None
        """The row that a key left for a goal, and that the cursor comes back to."""
        self.go_to()
        self.answer()

    @property
    def scenario(self) -> Scenario:
        """The scenario that is asked: with the text that is typed, if that is a value."""
        return self.version.scenario

    @property
    def present(self) -> Scenario:
        """The scenario without what is being typed."""
        return self.undo.version.scenario

    @property
    def stale(self) -> bool:
        """Whether the answer is an older one: what is typed is no value yet, or its answer failed."""
        return (self.edit is not None and self.edit.scenario is None) or bool(self.calculation.failure)

    @property
    def row(self) -> int:
        """Number of the row under the cursor, among `stops`."""
        return min(self._row, len(self.stops) - 1)

    @property
    def stop(self) -> Stop:
        """The row under the cursor."""
        return self.stops[self.row]

    @property
    def place(self) -> FieldPlace:
        """The field under the cursor."""
        places = self.stop.places(all_fields=self.opened)
        return places[max(0, min(self.cell, len(places) - 1))]

    @property
    def workload_number(self) -> int:
        """Number of the workload under the cursor; on another row of the one that it was on last."""
        if self.stop.section == WORKLOAD:
            return self.stop.number
        return max(0, min(self._last_workload, len(self.present.workload) - 1))

    def answer(self) -> None:
        """Answer the present scenario with what is being typed."""
        self.version = self.undo.version
        if self.edit is not None and self.edit.scenario is not None:
            self.version = self._version_with(self.edit.place, self.edit.scenario)
        self.stops = stops_of(self.present)
        self.calculation.ask(self.scenario)

    def put(self, change: Scenario | Version, place: FieldPlace | None = None) -> bool:
        """Go on with another version, or another scenario of the same workloads; returns whether it differs from the
        present one. `place`: the only value that changed; None: there may be several."""
        version = change if isinstance(change, Version) else self.undo.version._replace(scenario=change)
        if self.edit is None:  # else the plan before is that before it was typed
            self.calculation.remember_layouts()
        self.edit = None
        changed = self.undo.put(version, place)
        self.answer()
        return changed

    def _version_with(self, place: FieldPlace, scenario: Scenario) -> Version:
        """The version of a scenario with a typed value in one place. A typed target follows no engine, even if it is
        the same."""
        version = self.undo.version._replace(scenario=scenario)
        if place.section == WORKLOAD and place.field.key == "target":
            return version.with_typed_targets({place.number})
        return version

    def renew(self, frozen: FrozenFigures) -> None:
        """Work on newer figures from now on: what was measured by then, and its targets where nobody typed one."""
        self.frozen = frozen
        self.calculation.remember_layouts()
        self.calculation.use(frozen.catalogues, frozen.here)
        self.undo.version = self.undo.version.on_figures(frozen)
        if self.edit is not None:
            self.edit.read(self.present)
        self.answer()

    # The cursor.

    def move(self, lines: int) -> bool:
        """Move the cursor by some rows, or fields of an opened one. What is typed is taken first; returns whether it
        could be."""
        if not self.accept_typing():
            return False
        self.undo.seal()
        if self.opened:
            self.cell = self._nearest_cell(self.cell + lines)
        else:
            self.go_to(self.row + lines)
        return True

    def go_to(self, row: int | None = None) -> None:
        """Put the cursor on a row, by its number among `stops`; by default on the first workload's, or, without one, on
        that of the first server."""
        if row is None:
            first_server = 1
            workloads = (number for number, stop in enumerate(self.stops) if stop.section == WORKLOAD)
            row = next(workloads, first_server)
        self._row = max(0, min(len(self.stops) - 1, row))
        self._left_row = None
        self.cell = 0
        if self.stop.section == WORKLOAD:
            self._last_workload = self.stop.number

    def visit_goal(self, key: str) -> FieldPlace:
        """Put the cursor on a goal for all, until `leave_goal`; returns its place."""
        self.close()
        row_to_return_to = self.row if self._left_row is None else self._left_row
        self.go_to(self.stops.index(Stop(GOALS, 0)))
        self.cell = _ROW_FIELDS[GOALS].index(key)
        self._left_row = row_to_return_to
        return self.place

    def leave_goal(self) -> bool:
        """Put the cursor on the row that it left for a goal; returns whether there is one."""
        if self._left_row is None:
            return False
        self.go_to(self._left_row)
        return True

    def move_sideways(self, step: int) -> None:
        """Move the cursor to the value beside; where there is none, step the value. What is typed is taken, and not
        stepped."""
        was_typing = self.edit is not None
        has_neighbours = not self.opened and len(self.stop.places()) > 1
        if not self.accept_typing():
            return
        if has_neighbours:
            self.cell = self._nearest_cell(self.cell + step)
        elif not was_typing:
            self.step(step)

    def _nearest_cell(self, cell: int) -> int:
        """Number of a value of the row: the first or last one for a number beyond."""
        return max(0, min(len(self.stop.places(all_fields=self.opened)) - 1, cell))

    def open(self) -> None:
        """Show all fields of the row under the cursor, which is not left any more for the row before a goal."""
        self.cell = _position(self.stop.places(all_fields=True), self.place)
        self.opened = True
        self._left_row = None

    def close(self) -> bool:
        """Show all rows again; returns whether fields were shown."""
        if not self.opened:
            return False
        place = self.place
        self.opened = False
        self.cell = _position(self.stop.places(), place)
        return True

    # What is being typed.

    def type(self, key: str, character: str | None) -> bool:
        """Take a key that is part of a number, and begin to edit with it; returns whether it was one."""
        if self.edit is None:
            is_backspace = key == "backspace"
            is_digit = character is not None and character in _BEGINS_A_NUMBER
            if not (is_backspace or is_digit):
                return False
            if not self.begin(empty=not is_backspace):  # backspace edits the number that is there
                return False
        assert self.edit is not None
        if not self.edit.take_key(key, character):
            return False
        self._read_typed()
        return True

    def paste(self, text: str) -> None:
        """Take a pasted text where a number is typed, or begins."""
        if self.edit is None:
            # A pasted text is no command, so that it may begin with a minus.
            is_number = text[:1] != "" and text[0] in f"{_BEGINS_A_NUMBER}-"
            if not is_number or not self.begin(empty=True):
                return
        assert self.edit is not None
        self.edit.add(text)
        self._read_typed()

    def begin(self, *, empty: bool = False) -> bool:
        """Edit the number under the cursor, from an `empty` text or from its value; returns whether there is one."""
        place = self.place
        if place.field.kind is None or not self._exists(place):
            return False
        text = "" if empty else place.field.typed(typed_value(self.scenario, place))
        self.calculation.remember_layouts()
        self.edit = Edit(place, self.present, text)
        self.answer()
        return True

    def _read_typed(self) -> None:
        """Read the text that is typed, and answer with it if it is a value."""
        assert self.edit is not None
        self.edit.read(self.present)
        self.answer()

    def accept_typing(self) -> bool:
        """Take what is typed; returns False where that is no value: it stays until it is one."""
        edit = self.edit
        if edit is None:
            return True
        if edit.scenario is None:
            edit.key_note = "not taken"
            return False
        self.put(self.version, edit.place)
        self.undo.seal()
        return True

    def cancel(self) -> bool:
        """Drop what is typed; returns whether something was."""
        dropped = self.edit is not None
        self.edit = None
        self.answer()
        return dropped

    # Changes of one value.

    def step(self, direction: int) -> None:
        """Step the value under the cursor up (1) or down (-1): a number by about a tenth, a choice to the next one."""
        place = self.place
        if not self.accept_typing() or not self._exists(place):
            return
        if place.field.kind is None:
            self.put_value(place, self._next_choice(place, direction))
        else:
            self.put_value(place, self._next_number(place, direction))

    def _next_choice(self, place: FieldPlace, direction: int) -> Value:
        """The choice after the present one (1) or before it (-1), in a circle."""
        choices = list(place.field.choices(self.calculation.catalogues))
        value = typed_value(self.scenario, place)
        if not choices:
            return value
        if value not in choices:
            return choices[0 if direction > 0 else -1]
        return choices[(choices.index(value) + direction) % len(choices)]

    def _next_number(self, place: FieldPlace, direction: int) -> float:
        """The next round number; the field's first one where no value is in effect."""
        kind = place.field.kind
        assert kind is not None
        value = effective_value(place, self.version, self.calculation).value
        number = place.field.start
        if isinstance(value, (int, float)):
            number = kind.stepped(float(value), direction)
        if kind.whole:
            return int(number)
        return number

    def put_value(self, place: FieldPlace, value: Value) -> bool:
        """Change one value; changes of the same one in a row are undone as one. Returns whether it is another."""
        if place.section == SERVER and place.field.key == "gpu":
            return self.use_gpu(str(value), place)
        return self.put(self._version_with(place, with_value(self.present, place, value)), place)

    def _exists(self, place: FieldPlace) -> bool:
        """Whether the place has a value: a scenario without servers has a row for one."""
        return place.section != SERVER or place.number < len(self.present.server)

    def remove(self) -> bool:
        """Remove the workload or further server under the cursor, else what was typed under the cursor; returns whether
        there was something."""
        if not self.accept_typing():
            return False
        place = self.place
        servers = self.present.server
        if not self.opened and place.section == WORKLOAD:
            return self.put(self.undo.version.without_workload(place.number))
        if not self.opened and place.section == SERVER and len(servers) > 1:
            others = (*servers[: place.number], *servers[place.number + 1 :])
            return self.put(replace(self.present, server=others))
        if not self._exists(place) or place.field.key == "gpu":
            return False
        if place.field.key == "price_per_gpu_hour":
            self.calculation.forget_price(servers[place.number].gpu)
        return self.put(self._version_with(place, with_value(self.present, place, _untyped(place))))

    def use_gpu(self, name: str, place: FieldPlace | None = None) -> bool:
        """Put another type of GPU into the server under the cursor, or, from a row of another kind, into all servers;
        returns whether that changed something. The name of a cloud's server puts that server there.

        Price and power were of the old type; a price that was typed for the new one comes back.
        """
        servers = list(self.present.server)
        if self.stop.section == SERVER:
            numbers = [self.stop.number]
        else:
            # With one type for all, servers of several types become one shape, of which there may be any number.
            types = {server.gpu for server in servers}
            if len(types) >= 2:
                servers = [replace(servers[0], count=0)]
            numbers = list(range(len(servers)))
        for number in numbers:
            if number < len(servers) and servers[number].gpu != name:
                servers[number] = self._with_gpu(servers[number], name)
        if not servers:
            servers = [self.calculation.catalogues.server(Server(name))]
        return self.put(replace(self.present, server=tuple(servers)), place)

    def _with_gpu(self, server: Server, name: str) -> Server:
        """A server with another type of GPU, or that of a cloud; its typed price is kept for the old type."""
        calculation = self.calculation
        catalogues = calculation.catalogues
        if server.price_per_gpu_hour is not None:
            calculation.keep_price(server.gpu, server.price_per_gpu_hour)
        price = calculation.typed_price(name)
        if catalogues.gpus.servers.find(name) is not None:
            return catalogues.server(Server(name, count=server.count, price_per_gpu_hour=price))
        return replace(server, gpu=name, price_per_gpu_hour=price, gpu_power_w=None)

    # Whole scenarios.

    def load(self, version: Version) -> None:
        """Go on with a whole other scenario, of a file or of what runs here."""
        self.opened = False
        self.put(version)
        self.undo.mark_saved()
        self.go_to()

    def undo_or_redo(self, step: int) -> bool:
        """Undo (-1) or redo (1) a change; returns whether there was one. What follows the engines is that of the
        present frozen figures."""
        self.edit = None
        self.calculation.remember_layouts()
        has_moved = self.undo.move(step)
        self.undo.version = self.undo.version.on_figures(self.frozen)
        self.answer()
        return has_moved


def _position(places: list[FieldPlace], place: FieldPlace) -> int:
    """Number of a place among others; 0 for one that is not there."""
    if place in places:
        return places.index(place)
    return 0


def _untyped(place: FieldPlace) -> Value:
    """The value of a place that nobody changed."""
    if not place.field.optional:
        return default_of(place)
    return None if place.field.kind is not None else ""
