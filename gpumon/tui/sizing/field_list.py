"""All fields of one workload, of the goals or of a server: value in effect, and where it comes from."""

from __future__ import annotations

from gpumon.readings.format import cells, cut, left
from gpumon.readings.text import clean
from gpumon.sizing.scenario import Workload
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.edits import Edit
from gpumon.tui.sizing.effects import Asked, Effect, effect
from gpumon.tui.sizing.fields import FIELDS, GOALS, SIGNS, TARGETS, Place, holder
from gpumon.tui.sizing.sheet import Stop, short_name

_NAME = 21
_VALUE = 16


def places(stop: Stop) -> list[Place]:
    """The fields of a row, in their order."""
    return [Place(stop.section, stop.at, field) for field in FIELDS[stop.section]]


def title(asked: Asked, stop: Stop) -> str:
    """What the fields are of."""
    of = holder(asked.scenario, stop.section, stop.at)
    if isinstance(of, Workload):
        return short_name(of)
    return "goals and planning" if stop.section == GOALS else f"server {stop.at + 1}" if stop.at else "server"


def line(place: Place, asked: Asked, width: int, *, here: bool, edit: Edit | None, grey: bool = False) -> Row:
    """One field."""
    tone = "@" if here else ""
    name = f"{left(place.field.name, _NAME - 1)}[" if here else left(place.field.name, _NAME)
    begin: Piece = (f"{'▸' if here else ' '}{name}", f"text{tone}")
    if edit is not None and edit.place == place:
        return (begin, *edit.pieces(_VALUE), (f"] {cut(edit.reason, max(0, width - _NAME - _VALUE - 4))}", "warn"))
    found = effect(place, asked)
    value = shown(place, asked, found)
    strong = found.origin == "typed"
    value = f"{cut(value, max(0, width - _NAME - 3))}{']' if here else ''}"
    room = max(_VALUE, cells(value))
    origin = cut(clean(found.origin, 60), max(0, width - _NAME - room - 3))
    return (
        begin,
        (left(value, room), f"{'strong' if strong else 'muted' if grey else 'text'}{tone}"),
        (f" {origin}", f"{'accent' if strong else 'muted'}{tone}"),
    )


def shown(place: Place, asked: Asked, found: Effect) -> str:
    """A value in effect as a person reads it, with what it counts."""
    text = clean(place.field.shown(found.value), 60)
    if place.field.key == "target_kind":
        return TARGETS[text]
    of = holder(asked.scenario, place.section, place.at)
    sign = SIGNS.get(of.target_kind, "") if place.field.per_kind and isinstance(of, Workload) else ""
    return f"{text} {sign}".rstrip()


def means(place: Place) -> str:
    """What the field means, and how it is changed."""
    if place.field.kind is not None:
        return f"{place.field.means} Type a number, {place.field.kind.name}."
    return f"{place.field.means} ← → or Enter for the list."
