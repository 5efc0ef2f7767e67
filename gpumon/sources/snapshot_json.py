"""A snapshot as another gpumon prints it (`watch --json`, /snapshot.json: docs/json.md), read back. It is untrusted.

What it may hold at all is bounded in `gpumon.triage.peers`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from gpumon.readings.bounds import with_dependents
from gpumon.readings.flat import flat_fields, make_record
from gpumon.readings.frame import EndpointState, EngineKind, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import SCHEMA, Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Event, Evidence, RaisedAlert, Signal, Verdict
from gpumon.triage import peers

_KEYS: Final = {"self_cost": "self"}
"""Fields whose JSON key is not their name."""
_NOT_PRINTED: Final = frozenset({"Snapshot.wall_s", "Engine.llm", "Engine.window", "Event.verdict"})
_TIMES: Final = frozenset({"time", "since", "until", "counted_since"})
"""Fields that hold a time as RFC 3339."""
_LEFT_OUT: Final = (Verdict, Evidence, Action, Signal, Event, RaisedAlert)
"""One of these with a code that is not known (of a newer gpumon) is left out; it costs nothing else."""
GIVE_WAY_EVERY: Final = 16
"""Records after which the event loop gets its turn: this runs in a thread beside it."""
GIVE_WAY_S: Final = 1e-4
"""Pause in which it does."""
_LARGEST_WHOLE: Final = (1 << 63) - 1
_UNKNOWN: Final[dict[type[Enum], Enum]] = {
    GpuState: GpuState.ERROR,
    EndpointState: EndpointState.ERROR,
    EngineKind: EngineKind.UNKNOWN,
    Reason: Reason.NOT_EXPOSED,
}
"""Replacement for a code of a newer gpumon; without an entry the whole object cannot be read."""

_MISSING: Final = {reason.value: Missing(reason) for reason in Reason}
StructT = TypeVar("StructT", bound=msgspec.Struct)
_JSON: Final = msgspec.json.Decoder(dict[str, Any])


def parse_snapshot(line: bytes) -> dict[str, Any]:
    """The JSON object of a line, unless it is larger than a snapshot can be. Raises ValueError."""
    peers.check_size(line)
    try:
        return _JSON.decode(line)
    except RecursionError:
        raise peers.PeerError("its snapshot has lists in lists without an end: it is not read") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("its answer is no snapshot of gpumon: is the address right?") from None


class _Read(NamedTuple):
    """An object of the JSON and the record that it was read as."""

    document: dict[str, Any]
    """The object."""
    values: dict[str, Any]
    """Values of fields by name, but for `readings`."""
    readings: dict[str, float]
    """Figures by name, as they were told."""
    figures: dict[str, Any]
    """The same, with a reason in the place of each that cannot be."""
    inner: dict[str, tuple[_Read, ...]]
    """Key of a field of objects -> these objects."""
    record: Any
    """None: it cannot be read, and is left out."""


_UNREAD: Final = _Read({}, {}, {}, {}, {}, None)


class SnapshotReader:
    """Reads the snapshots that one peer sends one after the other. An object or a value that is in two of them as the
    very same Python object (`readings.difference.apply_difference` keeps what did not change) is read once."""

    def __init__(self) -> None:
        self._before = _UNREAD

    def read(self, document: dict[str, Any], wall_s: float) -> Snapshot:
        """The snapshot that an object received at `wall_s` (Unix time) is. Raises ValueError, one line with the fix."""
        if document.get("schema") != SCHEMA:
            schema = clean(str(document.get("schema"))[:40], 20)
            raise ValueError(f"its JSON has schema {schema}, this gpumon reads {SCHEMA}: update the older of the two")
        try:
            newest = _read_object(Snapshot, document, self._before, {"wall_s": wall_s})
            snapshot: Snapshot = msgspec.structs.replace(newest.record, wall_s=wall_s)
        except peers.PeerError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("its JSON is not as this gpumon knows it: update the older of the two") from None
        self._before = newest
        return snapshot


def _read_object(
    kind: type[msgspec.Struct], document: Any, before: _Read, not_printed: Mapping[str, Any] = {}
) -> _Read:
    """The object as a record.

    `before`: the object in its place in the snapshot before. `not_printed`: fields that the JSON does not have.
    """
    if document is before.document:
        return before
    if not isinstance(document, dict):
        raise TypeError("no object")
    fields = _fields(kind)
    changed = _changed_keys(document, before.document)
    if changed is None:
        newest = _Read(document, dict(not_printed), {}, {}, {}, None)
        _read_fields(fields.values(), newest, before)
        _hold_against_bounds(kind, newest, newest.readings)
    else:
        newest = _as_before(document, before)
        newest.values.update(not_printed)
        changed_fields = []
        for key in changed:
            if key in fields:
                changed_fields.append(fields[key])
        _read_fields(changed_fields, newest, before)
        _hold_against_bounds(kind, newest, with_dependents(field.name for field in changed_fields if field.is_reading))
    record = make_record(kind, newest.values | newest.figures)
    return newest._replace(record=_within_bounds(record))


def _as_before(document: dict[str, Any], before: _Read) -> _Read:
    """An object by the one before it, until its fields that changed are read."""
    return _Read(document, dict(before.values), dict(before.readings), dict(before.figures), dict(before.inner), None)


def _changed_keys(document: dict[str, Any], before: dict[str, Any]) -> list[str] | None:
    """Keys with other values than before; None where another figure is missing, or a key, so that all is to be read."""
    if document.get("missing") is not before.get("missing") or document.keys() != before.keys():
        return None
    changed: list[str] = []
    for key, value in document.items():
        value_before = before[key]
        if value is value_before:
            continue
        if value is None or value_before is None:
            return None
        changed.append(key)
    return changed


def _read_fields(fields: Iterable[_Field], newest: _Read, before: _Read) -> None:
    """Fill in these fields of `newest` from its object."""
    reasons = newest.document.get("missing", {})
    for field in fields:
        value = newest.document.get(field.key)
        if value is None:
            if field.is_reading and isinstance(reasons, dict):
                newest.values[field.name] = _missing(reasons.get(field.key))
        elif field.is_reading:
            newest.readings[field.name] = field.read(value)
        elif field.objects is None:
            newest.values[field.name] = field.read(value)
        else:
            objects = _read_objects(field, value, before.inner.get(field.key, ()))
            newest.inner[field.key] = objects
            newest.values[field.name] = _records(field, objects)


def _read_objects(field: _Field, value: Any, before: tuple[_Read, ...]) -> tuple[_Read, ...]:
    """The objects of a field: one, or those of its list. `before`: those of the snapshot before."""
    assert field.objects is not None
    if not field.is_list:
        return (_read_object(field.objects, value, before[0] if before else _UNREAD),)
    peers.check_count(field.name, len(_checked_type(list, value)))
    objects: list[_Read] = []
    new = 0
    for number, item in enumerate(value):
        if number < len(before):
            earlier = before[number]
        else:
            earlier = _UNREAD
        if item is not earlier.document:
            new += 1
            if new % GIVE_WAY_EVERY == 0:
                time.sleep(GIVE_WAY_S)
        objects.append(_read_item(field.objects, item, earlier))
    return tuple(objects)


def _read_item(kind: type[msgspec.Struct], item: Any, before: _Read) -> _Read:
    """An object of a list; one with a code of a newer gpumon is left out."""
    try:
        return _read_object(kind, item, before)
    except peers.PeerError:
        raise
    except (KeyError, TypeError, ValueError):
        if kind not in _LEFT_OUT:
            raise
        return _UNREAD


def _records(field: _Field, objects: tuple[_Read, ...]) -> Any:
    """The value of a field of objects."""
    if not field.is_list:
        return objects[0].record
    records = []
    for item in objects:
        if item.record is not None:
            records.append(item.record)
    return tuple(records)


def _hold_against_bounds(kind: type[msgspec.Struct], newest: _Read, names: Iterable[str]) -> None:
    """Take these figures over from the readings, each with a reason in its place where it cannot be."""
    readings = newest.readings
    figures = newest.figures
    present_names = [name for name in names if name in readings]
    for name in present_names:
        figures[name] = readings[name]
    if kind is Gpu:
        peers.drop_impossible_gpu_figures(figures, present_names)
    elif kind is not Evidence:  # the unit of its figures depends on what was measured
        peers.drop_impossible_figures(figures, present_names)


def _within_bounds(record: StructT) -> StructT:
    """The record, as far as its texts and numbers mean something together."""
    bound = _BOUNDED.get(type(record))
    if bound is not None:
        record = bound(record)
    return record


_BOUNDED: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    Action: peers.vetted_action,
    Evidence: peers.bounded_evidence,
    Signal: peers.bounded_signal,
    Event: peers.bounded_event,
    Verdict: peers.bounded_verdict,
}


class _Field(NamedTuple):
    """A field of a record in the JSON."""

    key: str
    name: str
    """As it is flat (`readings.flat`)."""
    is_reading: bool
    read: Callable[[Any], Any]
    """Makes its value of JSON's."""
    objects: type[msgspec.Struct] | None
    """Type of the records that it holds; None where it holds none."""
    is_list: bool


@lru_cache(maxsize=64)
def _fields(kind: type[msgspec.Struct]) -> dict[str, _Field]:
    """The fields of a record that are printed, by key."""
    fields: dict[str, _Field] = {}
    for name, (_, field) in flat_fields(kind).items():
        if f"{kind.__name__}.{name}" not in _NOT_PRINTED:
            fields[_KEYS.get(name, name)] = _field(name, field.type)
    return fields


def _field(name: str, kind: Any) -> _Field:
    """A field of a record, by its type."""
    is_list = get_origin(kind) is tuple
    if is_list:
        item = get_args(kind)[0]
    else:
        item = kind
    objects = None
    if isinstance(item, type) and issubclass(item, msgspec.Struct):
        objects = item
    return _Field(_KEYS.get(name, name), name, kind == Reading, _reader(name, kind), objects, is_list)


def _reader(field: str, kind: Any) -> Callable[[Any], Any]:
    """The function that makes a value of this type of JSON's. It raises TypeError or ValueError."""
    if kind == Reading:
        return _number
    if get_origin(kind) is tuple:
        return _items(field, get_args(kind)[0])
    if get_origin(kind) is dict:
        return _table(field, _reader(field, get_args(kind)[1]))
    if kind == float | str:
        return lambda value: _text(value) if isinstance(value, str) else _number(value)
    if issubclass(kind, Enum):
        return lambda value: _member(kind, value)
    if issubclass(kind, msgspec.Struct):
        return lambda value: _read_object(kind, value, _UNREAD).record
    return _plain(field, kind)


def _plain(field: str, kind: type[Any]) -> Callable[[Any], Any]:
    """Reads a text, a number that has to be there, or a bool."""
    if kind is str and field in _TIMES:
        return lambda value: peers.bounded_time(_text(value))
    if kind is str:
        return _text
    if kind is float:
        return lambda value: peers.bounded_number(field, _number(value))
    if kind is int:
        return lambda value: peers.bounded_whole(field, _checked_type(int, value))
    return lambda value: _checked_type(kind, value)


def _table(field: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reads an object whose keys are names."""

    def table(value: Any) -> dict[str, Any]:
        peers.check_count(field, len(_checked_type(dict, value)))
        return {_text(key): read(item) for key, item in value.items()}

    return table


def _items(field: str, kind: Any) -> Callable[[Any], Any]:
    """Reads a list."""
    read = _reader(field, kind)

    def items(value: Any) -> tuple[Any, ...]:
        peers.check_count(field, len(_checked_type(list, value)))
        return tuple(read(item) for item in value)

    return items


def _checked_type(kind: type[Any], value: Any) -> Any:
    """The value, if it is of this very type: `True` is no int. Raises TypeError, also for an int beyond 63 bits."""
    if type(value) is not kind:
        raise TypeError("another type")
    if kind is int and abs(value) > _LARGEST_WHOLE:
        raise TypeError("too large")
    return value


def _text(value: Any) -> str:
    """A text without control characters, cut to the bound. Raises TypeError."""
    return clean(_checked_type(str, value), peers.MOST_TEXT_CHARACTERS)


def _number(value: Any) -> float:
    """A finite number; JSON knows neither NaN nor infinity."""
    if type(value) is float:
        number = value
    else:
        number = float(_checked_type(int, value))
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _missing(reason: Any) -> Missing:
    """Stands for a figure that is not there; a reason of a newer gpumon is not known."""
    if isinstance(reason, str) and reason in _MISSING:
        return _MISSING[reason]
    return Missing(_member(Reason, reason))


def _member(kind: type[Enum], value: Any) -> Any:
    """The enumerator of a code; of a newer gpumon's the replacement."""
    try:
        return kind(value)
    except ValueError:
        if kind in _UNKNOWN:
            return _UNKNOWN[kind]
        raise
