"""Bindings as a person reads them: `question_mark,f1` is `? F1`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from textual.binding import Binding

_NAMES: Final = {
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "S-Tab",
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "f1": "F1",
}


def shown(binding: Binding) -> str:
    """The keys of a binding."""
    return " ".join(_NAMES.get(key.strip(), key.strip()) for key in binding.key.split(","))


def listed(bindings: Iterable[Binding]) -> list[tuple[str, str]]:
    """Keys and what they do; bindings of the same id (one key with priority, one without) make one entry."""
    entries: dict[str, tuple[str, str]] = {}
    for binding in bindings:
        keys, _ = entries.get(binding.id or "", ("", ""))
        entries[binding.id or ""] = (f"{keys} {shown(binding)}".strip(), binding.description)
    return list(entries.values())
