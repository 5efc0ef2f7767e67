"""A snapshot as another gpumon prints it (`watch --json`, /snapshot.json: docs/json.md), read back. It is untrusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from gpumon.readings.flat import flat_fields, nested
from gpumon.readings.frame import EndpointState, EngineKind, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import SCHEMA, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Event, Evidence, RaisedAlert, Signal, Verdict

MOST_CHARACTERS: Final = 1000
_KEYS: Final = {"self_cost": "self"}
"""Fields whose JSON key is not their name."""
_NOT_PRINTED: Final = frozenset({"Snapshot.wall_s", "Engine.llm", "Engine.window", "Event.verdict"})
_LEFT_OUT: Final = (Verdict, Evidence, Action, Signal, Event, RaisedAlert)
"""One of these with a code that is not known (of a newer gpumon) is left out; it costs nothing else."""
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
    try:
        told = _JSON.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("its answer is no snapshot of gpumon: is the address right?") from None
    if told.get("schema") != SCHEMA:
        schema = clean(str(told.get("schema")), 20)
        raise ValueError(f"its JSON has schema {schema}, this gpumon reads {SCHEMA}: update the older of the two")
    try:
        return msgspec.structs.replace(_struct(Snapshot, told, {"wall_s": wall_s}), wall_s=wall_s)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError("its JSON is not as this gpumon knows it: update the older of the two") from None


def _struct(kind: type[StructT], told: Any, more: Mapping[str, Any] = {}) -> StructT:
    if not isinstance(told, dict):
        raise TypeError("no object")
    reasons = told.get("missing", {})
    values: dict[str, Any] = dict(more)
    for key, name, is_reading, read in _readers(kind):
        value = told.get(key)
        if value is not None:
            values[name] = read(value)
        elif is_reading and isinstance(reasons, dict):
            values[name] = Missing(_member(Reason, reasons.get(key)))
    return nested(kind, values)


@lru_cache(maxsize=64)
def _readers(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool, Callable[[Any], Any]], ...]:
    """JSON key and flat name of each field, whether it is a `Reading`, and what makes its value of JSON's."""
    return tuple(
        (_KEYS.get(name, name), name, field.type == Reading, _reader(field.type))
        for name, (_, field) in flat_fields(kind).items()
        if f"{kind.__name__}.{name}" not in _NOT_PRINTED
    )


def _reader(kind: Any) -> Callable[[Any], Any]:
    if kind == Reading or kind is float:
        return _number
    if kind is str:
        return _text
    if kind == float | str:
        return lambda value: _text(value) if isinstance(value, str) else _number(value)
    if get_origin(kind) is tuple:
        return _items(get_args(kind)[0])
    if get_origin(kind) is dict:
        read = _reader(get_args(kind)[1])
        return lambda value: {_text(key): read(item) for key, item in _of(dict, value).items()}
    if issubclass(kind, Enum):
        return lambda value: _member(kind, value)
    if issubclass(kind, msgspec.Struct):
        return lambda value: _struct(kind, value)
    return lambda value: _of(kind, value)  # int or bool


def _items(kind: Any) -> Callable[[Any], Any]:
    read = _reader(kind)
    if kind not in _LEFT_OUT:
        return lambda value: tuple(read(item) for item in _of(list, value))

    def one(item: Any) -> tuple[Any, ...]:
        try:
            return (read(item),)
        except (KeyError, TypeError, ValueError):
            return ()

    return lambda value: tuple(known for item in _of(list, value) for known in one(item))


def _of(kind: type[Any], value: Any) -> Any:
    """The value, if it is just that; a whole number is none of more than 63 bits."""
    if type(value) is not kind or (kind is int and abs(value) >= 1 << 63):
        raise TypeError("another type")
    return value


def _text(value: Any) -> str:
    return clean(_of(str, value), MOST_CHARACTERS)


def _number(value: Any) -> float:
    """JSON knows neither NaN nor infinity, and a text is no number."""
    number = float(_of(int, value) if type(value) is int else _of(float, value))
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
