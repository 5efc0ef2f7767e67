"""JSON that a server sent, read so that nothing in it can raise: what makes no sense is left out."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

MOST_CHARS: Final = 1024
"""Characters of a text that are kept."""
MOST_COUNT: Final = 2**53
"""Larger numbers are no counts."""


def parse_json(body: bytes) -> Any:
    """The body as Python objects; None where it is no JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def mapping(value: Any) -> dict[str, Any]:
    """The object as it is; empty where it is none."""
    if isinstance(value, dict):
        return value
    return {}


def first_items(value: Any, most: int = 4096) -> list[Any]:
    """The first elements of a list; empty where it is none."""
    if isinstance(value, list):
        return value[:most]
    return []


def finite_number(value: Any) -> float | None:
    """A finite number from 0 on, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if 0 <= value <= MOST_COUNT and not math.isnan(value):
        return float(value)
    return None


def positive_count(value: Any) -> int:
    """A whole number from 1 on, else 0."""
    if isinstance(value, int) and finite_number(value) is not None:
        return int(value)
    return 0


def text(value: Any) -> str:
    """A string, or a number in words; empty where it is neither. Text from outside."""
    if isinstance(value, str):
        return value[:MOST_CHARS]
    if finite_number(value) is not None:
        return str(value)[:MOST_CHARS]
    return ""
