"""YAML as a reader likes it: nested blocks, and each text that could be anything else in quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z/](?:[\w./-]|:(?=\w))*")
"""A text that stands without quotes: it is no number, and has no sign that YAML knows."""
_OTHER_VALUES: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
"""Texts, in lower case, that readers of YAML take for a value of another kind."""


def yaml_text(document: Mapping[str, Any]) -> str:
    """One document of mappings, lists, texts, numbers and booleans. A text of several lines is a literal block."""
    return "".join(f"{line}\n" for line in _mapping_lines(document))


def _mapping_lines(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a mapping, which has an entry."""
    for key, value in mapping.items():
        yield from _entry_lines(f"{_scalar(key)}:", value)


def _entry_lines(begin: str, value: Any) -> Iterator[str]:
    """The lines of a key with its value."""
    if isinstance(value, Mapping) and value:
        yield begin
        yield from _indented(_mapping_lines(value))
    elif _is_list(value) and value:
        yield begin
        yield from _indented(_list_lines(value))
    elif isinstance(value, str) and _is_block(value):
        yield f"{begin} |"
        yield from _indented(iter(value.removesuffix("\n").split("\n")))
    else:
        yield f"{begin} {_scalar(value)}"


def _list_lines(values: Sequence[Any]) -> Iterator[str]:
    """The lines of a list, which has an entry."""
    for value in values:
        if isinstance(value, Mapping) and value:
            first, *others = _mapping_lines(value)
            yield f"- {first}"
            yield from _indented(iter(others))
        else:
            yield from _entry_lines("-", value)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    """Lines two columns further; empty ones stay empty."""
    for line in lines:
        yield f"  {line}" if line else ""


def _is_block(text: str) -> bool:
    """Whether a text reads back from a literal block: printable lines, the last one ended, the first not indented."""
    lines = text.removesuffix("\n").split("\n")
    is_whole = text.endswith("\n") and not text.startswith(" ")
    return is_whole and bool(lines[0] and lines[-1]) and all(line.isprintable() for line in lines)


def _is_list(value: Any) -> bool:
    """Whether a value is a list of YAML."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: Any) -> str:
    """A single value, or an empty list or mapping."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.casefold() not in _OTHER_VALUES:
        return value
    return '"' + "".join(map(_quoted, value)) + '"'


def _quoted(letter: str) -> str:
    """A letter between double quotes. JSON's pairs of surrogates are not YAML's, and its DEL is not escaped."""
    if letter in ('"', "\\"):
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code_point = ord(letter)
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"
