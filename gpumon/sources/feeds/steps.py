"""A line of JSON that a training loop or a server of the user's appends to a file: its quantities and its moment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from gpumon.config.feed_rules import QUANTITIES, Kind
from gpumon.config.schema import Feed

FINER_FROM: Final = 1e11
"""A moment in Unix seconds is below this until the year 5138; above it are thousandths, millionths, billionths."""
UNITS: Final = (1.0, 1e3, 1e6, 1e9)


class Step(NamedTuple):
    """What one line says."""

    counters: dict[str, float]
    gauges: dict[str, float]
    wall_s: float | None
    """Unix time; None where the line does not tell it."""


def step(line: bytes, feed: Feed) -> Step | None:
    """The step that a line tells of; None where it is no JSON object, or has none of the feed's keys."""
    told = _told(line)
    found = {name: number for name, key in feed.quantities.items() if (number := _number(_at(told, key))) is not None}
    if not found:
        return None
    kinds: Mapping[Kind, dict[str, float]] = {Kind.COUNTER: {}, Kind.GAUGE: {}, Kind.HISTOGRAM: {}}
    for name, number in found.items():
        kinds[QUANTITIES[name]][name] = number
    return Step(kinds[Kind.COUNTER], kinds[Kind.GAUGE], moment(_at(told, feed.time)) if feed.time else None)


def keys_of(line: bytes) -> tuple[str, ...]:
    """The keys of a line, those inside of keys with dots; none where it is no JSON object."""
    told = _told(line)
    inner = ((f"{key}.{each}" for each in value) if isinstance(value, dict) else (key,) for key, value in told.items())
    return tuple(chain.from_iterable(inner))


def text_at(line: bytes, key: str) -> str:
    """What stands under a key, as JSON has it; empty where nothing does."""
    value = _at(_told(line), key)
    return "" if value is None else json.dumps(value)


def moment(value: Any) -> float | None:
    """Unix seconds of a moment in seconds to nanoseconds, or ISO 8601 (local time where it names no zone)."""
    number = _number(value)
    if number is not None:
        return next((found for unit in UNITS if (found := number / unit) < FINER_FROM), None)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _told(line: bytes) -> dict[str, Any]:
    try:
        # Not msgspec: a loss of NaN, which no JSON has and every training loop writes, must not cost the line.
        told: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _at(told: dict[str, Any], path: str) -> Any:
    """What stands under a key; with dots, under a key inside of keys, unless the name itself has the dots."""
    if path in told:
        return told[path]
    found: Any = told
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _number(value: Any) -> float | None:
    """A finite number from 0 on; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0.0 <= number < math.inf else None
