"""A snapshot as another gpumon prints it (`watch --json`, /snapshot.json: docs/json.md), read back. It is untrusted.

What it may hold at all is bounded in `gpumon.triage.peers`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from gpumon.readings.flat import flat_fields, nested
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
_UNKNOWN: Final[dict[type[Enum], Enum]] = {
    GpuState: GpuState.ERROR,
    EndpointState: EndpointState.ERROR,
    EngineKind: EngineKind.UNKNOWN,
    Reason: Reason.NOT_EXPOSED,
}
"""What stands for a code of a newer gpumon; without an entry the whole object can not be read."""

StructT = TypeVar("StructT", bound=msgspec.Struct)
_JSON: Final = msgspec.json.Decoder(dict[str, Any])


def decoded(line: bytes, wall_s: float) -> Snapshot:
    """The snapshot that was received at `wall_s` (Unix time). Raises ValueError, one line with the fix."""
    return read(parsed(line), wall_s)


def parsed(line: bytes) -> dict[str, Any]:
    """The JSON object of a line, unless it is larger than a snapshot can be. Raises ValueError."""
    peers.check_size(line)
    try:
        return _JSON.decode(line)
    except RecursionError:
        raise peers.PeerError("its snapshot has lists in lists without an end: it is not read") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("its answer is no snapshot of gpumon: is the address right?") from None


def read(told: dict[str, Any], wall_s: float) -> Snapshot:
    """The snapshot that an object received at `wall_s` (Unix time) is. Raises ValueError, one line with the fix."""
    if told.get("schema") != SCHEMA:
        schema = clean(str(told.get("schema"))[:40], 20)
        raise ValueError(f"its JSON has schema {schema}, this gpumon reads {SCHEMA}: update the older of the two")
    try:
        return msgspec.structs.replace(_struct(Snapshot, told, {"wall_s": wall_s}), wall_s=wall_s)
    except peers.PeerError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError("its JSON is not as this gpumon knows it: update the older of the two") from None


def _struct(kind: type[StructT], told: Any, more: Mapping[str, Any] = {}) -> StructT:
    if not isinstance(told, dict):
        raise TypeError("no object")
    reasons = told.get("missing", {})
    values: dict[str, Any] = dict(more)
    readings: dict[str, Any] = {}
    for key, name, is_reading, read in _readers(kind):
        value = told.get(key)
        if value is not None:
            (readings if is_reading else values)[name] = read(value)
        elif is_reading and isinstance(reasons, dict):
            values[name] = Missing(_member(Reason, reasons.get(key)))
    if kind is Gpu:
        peers.bounded_gpu(readings)
    elif kind is not Evidence:  # the unit of its figures depends on what was measured
        peers.bounded_figures(readings)
    return _within_bounds(nested(kind, values | readings))


def _within_bounds(record: StructT) -> StructT:
    """The record, as far as its texts and numbers mean something together."""
    bound = _BOUNDED.get(type(record))
    return record if bound is None else bound(record)


_BOUNDED: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    Action: peers.vetted,
    Evidence: peers.bounded_evidence,
    Signal: peers.bounded_signal,
    Event: peers.bounded_event,
    Verdict: peers.bounded_verdict,
}


@lru_cache(maxsize=64)
def _readers(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool, Callable[[Any], Any]], ...]:
    """JSON key and flat name of each field, whether it is a `Reading`, and what makes its value of JSON's."""
    return tuple(
        (_KEYS.get(name, name), name, field.type == Reading, _reader(name, field.type))
        for name, (_, field) in flat_fields(kind).items()
        if f"{kind.__name__}.{name}" not in _NOT_PRINTED
    )


def _reader(field: str, kind: Any) -> Callable[[Any], Any]:
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
        return lambda value: _struct(kind, value)
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
        return lambda value: peers.bounded_whole(field, _of(int, value))
    return lambda value: _of(kind, value)


def _table(field: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reads an object whose keys are names."""

    def table(value: Any) -> dict[str, Any]:
        peers.check_count(field, len(_of(dict, value)))
        return {_text(key): read(item) for key, item in value.items()}

    return table


def _items(field: str, kind: Any) -> Callable[[Any], Any]:
    read = _reader(field, kind)

    def items(value: Any) -> tuple[Any, ...]:
        peers.check_count(field, len(_of(list, value)))
        return tuple(read(item) for item in value)

    def records(value: Any) -> tuple[Any, ...]:
        peers.check_count(field, len(_of(list, value)))
        found = []
        for number, item in enumerate(value, start=1):
            if number % GIVE_WAY_EVERY == 0:
                time.sleep(GIVE_WAY_S)
            try:
                found.append(read(item))
            except peers.PeerError:
                raise
            except (KeyError, TypeError, ValueError):
                if kind not in _LEFT_OUT:
                    raise
        return tuple(found)

    return records if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else items


def _of(kind: type[Any], value: Any) -> Any:
    """The value, if it is just that; a whole number is none of more than 63 bits."""
    if type(value) is not kind or (kind is int and abs(value) >= 1 << 63):
        raise TypeError("another type")
    return value


def _text(value: Any) -> str:
    return clean(_of(str, value), peers.MOST_CHARACTERS)


def _number(value: Any) -> float:
    """JSON knows neither NaN nor infinity, and a text is no number."""
    number = value if type(value) is float else float(_of(int, value))
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _member(kind: type[Enum], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        if kind in _UNKNOWN:
            return _UNKNOWN[kind]
        raise
