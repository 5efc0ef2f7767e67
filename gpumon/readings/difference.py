"""Difference of two JSON values, as JSON: a fleet's hosts send this instead of whole snapshots.

A difference of two objects, or of two lists of one length, is `[new values by key, differences by key, keys that are
gone]`, without the empty ones at its end; the keys of a list are its indices as text. `gpumon watch --json --fleet`
prints `{"difference": [...]}` (docs/json.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

KEY: Final = "difference"
"""Key of a line of `gpumon watch --json --fleet` that has a difference in place of a snapshot."""
_LONGEST_INDEX: Final = 9
"""Digits of an index of a list: `int` takes long for a long text, which comes from outside."""
DEEPEST: Final = 16
"""Objects and lists within each other that a difference may go into: a snapshot has 6."""


def object_difference(before: Any, now: Any) -> list[Any]:
    """The difference that turns `before` into `now`: both are objects, or lists of one length."""
    old = dict(_items(before))
    changed: dict[str, Any] = {}
    inner: dict[str, list[Any]] = {}
    present: set[str] = set()
    for key, value in _items(now):
        present.add(key)
        if key not in old:
            changed[key] = value
        elif old[key] == value:
            continue
        elif _is_worth_a_difference(old[key], value):
            inner[key] = object_difference(old[key], value)
        else:
            changed[key] = value
    gone = [key for key in old if key not in present]
    if gone:
        return [changed, inner, gone]
    if inner:
        return [changed, inner]
    return [changed]


def _is_worth_a_difference(before: Any, now: Any) -> bool:
    """Whether two values are both objects, or lists of one length: their difference is shorter than the new one."""
    if isinstance(before, dict):
        return isinstance(now, dict)
    return isinstance(before, list) and isinstance(now, list) and len(before) == len(now)


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    """Keys and values of an object, or of a list."""
    if isinstance(value, dict):
        return value.items()
    return ((str(index), item) for index, item in enumerate(value))


def apply_difference(before: Any, changes: Any, depth: int = 0) -> Any:
    """The value after a difference, which comes from outside. `before` stays as it is. Raises ValueError."""
    if depth > DEEPEST:
        raise ValueError("no difference")
    changed, inner, gone = _difference_parts(changes)
    if isinstance(before, list) and not gone:
        return _apply_to_list(before, changed, inner, depth)
    if not isinstance(before, dict):
        raise ValueError("a difference of something else")
    now = before | changed
    for key, further in inner.items():
        if key not in before:
            raise ValueError("a difference of nothing")
        now[key] = apply_difference(before[key], further, depth + 1)
    for key in gone:
        if not isinstance(key, str):
            raise ValueError("no key")
        now.pop(key, None)
    return now


def _difference_parts(changes: Any) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """New values by key, differences by key, and keys that are gone. ValueError where it is no difference."""
    if not isinstance(changes, list) or not 1 <= len(changes) <= 3:
        raise ValueError("no difference")
    empty: list[Any] = [{}, {}, []]
    changed, inner, gone = changes + empty[len(changes) :]
    if not isinstance(changed, dict) or not isinstance(inner, dict) or not isinstance(gone, list):
        raise ValueError("no difference")
    return changed, inner, gone


def _apply_to_list(before: list[Any], changed: dict[str, Any], inner: dict[str, Any], depth: int) -> list[Any]:
    """The list after a difference. Raises ValueError."""
    now = list(before)
    for key, value in changed.items():
        now[_index(key, now)] = value
    for key, further in inner.items():
        index = _index(key, now)
        now[index] = apply_difference(before[index], further, depth + 1)
    return now


def _index(key: str, items: list[Any]) -> int:
    """The index that a key of a difference means. Raises ValueError where the list has none such."""
    if not key.isascii() or not key.isdecimal() or len(key) > _LONGEST_INDEX or int(key) >= len(items):
        raise ValueError("no index")
    return int(key)
