"""Reads a snapshot that another gpumon printed (`watch --json`, /snapshot.json: docs/json.md). It is untrusted.

Its size, and what its values may be, is bounded in `gpumon.triage.peers`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec

from gpumon.readings.bounds import drop_impossible, with_dependents
from gpumon.readings.catalogue import FIGURES_BY_RECORD, NO_FIGURES
from gpumon.readings.flat import flat_fields, make_record
from gpumon.readings.frame import EndpointState, EngineKind, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import SCHEMA, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Event, Evidence, RaisedAlert, Signal, Verdict
from gpumon.triage import peers

_KEYS: Final = {"self_cost": "self"}
"""Fields whose JSON key is not their name."""
_NOT_PRINTED: Final = frozenset({"Snapshot.wall_s", "Engine.llm", "Engine.window", "Event.verdict"})
"""Fields (`TYPE.NAME`) that are not read: the JSON has none, or another form of them."""
_TIMES: Final = frozenset({"time", "since", "until", "counted_since"})
"""Fields that hold a time as RFC 3339."""
_LEFT_OUT_IF_UNKNOWN: Final = (Verdict, Evidence, Action, Signal, Event, RaisedAlert)
"""Types of objects that are left out of their list where they have a code of a newer gpumon; all else is read."""
GIVE_WAY_EVERY: Final = 16
"""Records after which the event loop gets its turn: this runs in a thread beside it."""
GIVE_WAY_S: Final = 1e-4
"""Pause in which the event loop gets its turn."""
_LARGEST_WHOLE: Final = (1 << 63) - 1
"""Whole numbers are held as 64 bits with a sign."""
_REPLACEMENTS: Final[dict[type[Enum], Enum]] = {
    GpuState: GpuState.ERROR,
    EndpointState: EndpointState.ERROR,
    EngineKind: EngineKind.UNKNOWN,
    Reason: Reason.NOT_EXPOSED,
}
"""Enum -> the member that stands for a code of a newer gpumon; without an entry the whole object cannot be read."""

_MISSING: Final = {reason.value: Missing(reason) for reason in Reason}
"""Code of a reason -> the value of a figure that is missing for it."""
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


class _ReadObject(NamedTuple):
    """An object of the JSON, the values read from it, and the record made of these.

    The next snapshot compares its objects with these, and reads only what changed.
    """

    document: dict[str, Any]
    """The object, as JSON's decoder gave it."""
    values: dict[str, Any]
    """Name of a field -> its value, for all fields but the numbers in `readings`."""
    readings: dict[str, float]
    """Name of a figure -> its number in the JSON."""
    figures: dict[str, Any]
    """Name of a figure -> its number, or the reason why that number cannot be."""
    inner: dict[str, tuple[_ReadObject, ...]]
    """Key of a field of objects -> these objects."""
    record: Any
    """The record; None where it cannot be read, and is left out."""


_NOT_READ: Final = _ReadObject(document={}, values={}, readings={}, figures={}, inner={}, record=None)
"""Stands for an object that was not there before, or cannot be read."""


class SnapshotReader:
    """Reads the snapshots that one peer sends one after the other.

    An object or a value that is in two of them as the very same Python object (`readings.difference.apply_difference`
    keeps what did not change) is read once.
    """

    def __init__(self) -> None:
        self._before = _NOT_READ

    def read(self, document: dict[str, Any], wall_s: float) -> Snapshot:
        """The snapshot of a JSON object that was received at `wall_s` (Unix time).

        Raises ValueError, whose text is one line with the fix.
        """
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
    kind: type[msgspec.Struct], document: Any, before: _ReadObject, not_printed: Mapping[str, Any] = {}
) -> _ReadObject:
    """The object, read into a record of type `kind`.

    `before`: the object in its place in the snapshot before. `not_printed`: values of fields that the JSON has not.
    """
    if document is before.document:
        return before
    if not isinstance(document, dict):
        raise TypeError("no object")
    fields = _fields_by_key(kind)
    changed = _changed_keys(document, before.document)
    if changed is None:
        newest = _NOT_READ._replace(document=document, values=dict(not_printed), readings={}, figures={}, inner={})
        _read_fields(fields.values(), newest, before)
        _put_figures(kind, newest, newest.readings)
    else:
        newest = _ReadObject(
            document=document,
            values=dict(before.values),
            readings=dict(before.readings),
            figures=dict(before.figures),
            inner=dict(before.inner),
            record=None,
        )
        newest.values.update(not_printed)
        changed_fields = [fields[key] for key in changed if key in fields]
        _read_fields(changed_fields, newest, before)
        _put_figures(kind, newest, with_dependents(field.name for field in changed_fields if field.is_reading))
    record = make_record(kind, newest.values | newest.figures)
    if kind in _BOUNDS:
        record = _BOUNDS[kind](record)
    return newest._replace(record=record)


def _changed_keys(document: dict[str, Any], before: dict[str, Any]) -> list[str] | None:
    """Keys with other values than before; None where keys or missing figures differ: then all is to be read."""
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


def _read_fields(fields: Iterable[_JsonField], newest: _ReadObject, before: _ReadObject) -> None:
    """Fill in these fields of `newest` from its object. Figures come into `readings`, until `_put_figures`."""
    reasons = newest.document.get("missing", {})
    for field in fields:
        value = newest.document.get(field.key)
        if value is None:
            if field.is_reading and isinstance(reasons, dict):
                newest.values[field.name] = _read_missing(reasons.get(field.key))
        elif field.is_reading:
            newest.readings[field.name] = field.read(value)
        elif field.objects is None:
            newest.values[field.name] = field.read(value)
        else:
            objects = _read_objects(field, value, before.inner.get(field.key, ()))
            newest.inner[field.key] = objects
            newest.values[field.name] = _value_of_objects(field, objects)


def _read_objects(field: _JsonField, value: Any, before: tuple[_ReadObject, ...]) -> tuple[_ReadObject, ...]:
    """The objects of a field, read: one, or those of its list. `before`: those of the snapshot before."""
    assert field.objects is not None
    if not field.is_list:
        return (_read_object(field.objects, value, before[0] if before else _NOT_READ),)
    peers.check_count(field.name, len(_checked_type(list, value)))
    objects: list[_ReadObject] = []
    changed_count = 0
    for number, item in enumerate(value):
        earlier = before[number] if number < len(before) else _NOT_READ
        if item is not earlier.document:
            changed_count += 1
            if changed_count % GIVE_WAY_EVERY == 0:
                time.sleep(GIVE_WAY_S)
        objects.append(_read_item(field.objects, item, earlier))
    return tuple(objects)


def _read_item(kind: type[msgspec.Struct], item: Any, before: _ReadObject) -> _ReadObject:
    """An object of a list, read; `_NOT_READ` where it has a code of a newer gpumon and may be left out."""
    try:
        return _read_object(kind, item, before)
    except peers.PeerError:
        raise
    except (KeyError, TypeError, ValueError):
        if kind not in _LEFT_OUT_IF_UNKNOWN:
            raise
        return _NOT_READ


def _value_of_objects(field: _JsonField, objects: tuple[_ReadObject, ...]) -> Any:
    """The value of a field of objects: a record, or a tuple of those that could be read."""
    if not field.is_list:
        return objects[0].record
    return tuple(item.record for item in objects if item.record is not None)


def _put_figures(kind: type[msgspec.Struct], newest: _ReadObject, names: Iterable[str]) -> None:
    """Put these readings into `figures`, each as a number, or as a reason where that number cannot be."""
    readings = newest.readings
    figures = newest.figures
    present_names = [name for name in names if name in readings]
    for name in present_names:
        figures[name] = readings[name]
    if kind is not Evidence:  # the unit of its figures depends on what was measured
        drop_impossible(FIGURES_BY_RECORD.get(kind, NO_FIGURES), figures, present_names, peers.WHO)


_BOUNDS: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    Action: peers.vetted_action,
    Evidence: peers.bounded_evidence,
    Signal: peers.bounded_signal,
    Event: peers.bounded_event,
    Verdict: peers.bounded_verdict,
}
"""Type of a record -> the function that bounds it as a whole: only texts and numbers that fit each other stay."""


class _JsonField(NamedTuple):
    """A field of a record in the JSON."""

    key: str
    name: str
    """Name in the flat record (`readings.flat`)."""
    is_reading: bool
    """Whether it is a figure, which may be missing with a reason."""
    read: Callable[[Any], Any]
    """Makes its value from JSON's; a field of `objects` is read by `_read_objects` instead."""
    objects: type[msgspec.Struct] | None
    """Type of the records that it holds; None where it holds none."""
    is_list: bool


@lru_cache(maxsize=64)
def _fields_by_key(kind: type[msgspec.Struct]) -> dict[str, _JsonField]:
    """The fields of a record that are printed, by key."""
    return {
        _KEYS.get(name, name): _make_field(name, field.type)
        for name, (_, field) in flat_fields(kind).items()
        if f"{kind.__name__}.{name}" not in _NOT_PRINTED
    }


def _make_field(name: str, kind: Any) -> _JsonField:
    """The field of this name and type."""
    is_list = get_origin(kind) is tuple
    item = get_args(kind)[0] if is_list else kind
    objects = item if isinstance(item, type) and issubclass(item, msgspec.Struct) else None
    return _JsonField(_KEYS.get(name, name), name, kind == Reading, _reader_of_type(name, kind), objects, is_list)


def _reader_of_type(field: str, kind: Any) -> Callable[[Any], Any]:
    """The function that makes a value of this type from JSON's. It raises TypeError or ValueError."""
    if kind == Reading:
        return _read_number
    if get_origin(kind) is tuple:
        return _reader_of_list(field, get_args(kind)[0])
    if get_origin(kind) is UnionType and get_args(kind)[1] is NoneType:
        read = _reader_of_type(field, get_args(kind)[0])
        return lambda value: None if value is None else read(value)
    if get_origin(kind) is dict:
        return _reader_of_table(field, _reader_of_type(field, get_args(kind)[1]))
    if kind == float | str:
        return lambda value: _read_text(value) if isinstance(value, str) else _read_number(value)
    if issubclass(kind, Enum):
        return lambda value: _read_code(kind, value)
    if issubclass(kind, msgspec.Struct):
        return lambda value: _read_object(kind, value, _NOT_READ).record
    return _reader_of_plain_type(field, kind)


def _reader_of_plain_type(field: str, kind: type[Any]) -> Callable[[Any], Any]:
    """The function that reads a text, a number that has to be there, or a bool."""
    if kind is str and field in _TIMES:
        return lambda value: peers.bounded_time(_read_text(value))
    if kind is str:
        return _read_text
    if kind is float:
        return lambda value: peers.bounded_number(field, _read_number(value))
    if kind is int:
        return lambda value: peers.bounded_whole(field, _checked_type(int, value))
    return lambda value: _checked_type(kind, value)


def _reader_of_table(field: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function that reads an object whose keys are names."""

    def read_table(value: Any) -> dict[str, Any]:
        peers.check_count(field, len(_checked_type(dict, value)))
        return {_read_text(key): read(item) for key, item in value.items()}

    return read_table


def _reader_of_list(field: str, kind: Any) -> Callable[[Any], Any]:
    """The function that reads a list."""
    read_item = _reader_of_type(field, kind)

    def read_list(value: Any) -> tuple[Any, ...]:
        peers.check_count(field, len(_checked_type(list, value)))
        return tuple(read_item(item) for item in value)

    return read_list


def _checked_type(kind: type[Any], value: Any) -> Any:
    """The value, if it is of this very type: `True` is no int. Raises TypeError, also for an int beyond 63 bits."""
    if type(value) is not kind:
        raise TypeError("another type")
    if kind is int and abs(value) > _LARGEST_WHOLE:
        raise TypeError("too large")
    return value


def _read_text(value: Any) -> str:
    """A text without control characters, cut to the bound. Raises TypeError."""
    return clean(_checked_type(str, value), peers.MOST_TEXT_CHARACTERS)


def _read_number(value: Any) -> float:
    """A finite number; JSON knows neither NaN nor infinity."""
    if type(value) is float:
        number = value
    else:
        number = float(_checked_type(int, value))
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _read_missing(reason: Any) -> Missing:
    """The value of a figure that is missing for this reason; a reason of a newer gpumon has its replacement."""
    if isinstance(reason, str) and reason in _MISSING:
        return _MISSING[reason]
    return Missing(_read_code(Reason, reason))


def _read_code(kind: type[Enum], value: Any) -> Any:
    """The member of an enum with this code; for an unknown code its replacement. Raises ValueError without one."""
    try:
        return kind(value)
    except ValueError:
        if kind in _REPLACEMENTS:
            return _REPLACEMENTS[kind]
        raise
