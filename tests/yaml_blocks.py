"""A reader of the YAML that gpumon writes (blocks, JSON's scalars, plain and literal texts), and of no other."""

from __future__ import annotations

import json
import re
from typing import Any

PLAIN = re.compile(r"[A-Za-z/][\w./:-]*")


def documents(text: str) -> list[Any]:
    """All documents of a text; comments and the lines between documents are left out."""
    found = []
    for part in re.split(r"(?m)^---$\n", text):
        lines = [line for line in part.split("\n") if not line.startswith("#")]
        while lines and not lines[-1]:
            lines.pop()
        value, rest = block(lines, 0)
        assert rest == [], rest
        found.append(value)
    return found


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def block(lines: list[str], depth: int) -> tuple[Any, list[str]]:
    """The mapping or list that begins at so many columns, and the lines behind it."""
    assert indent(lines[0]) == depth, lines[0]
    if lines[0].lstrip().startswith("- "):
        return sequence(lines, depth)
    return mapping(lines, depth)


def sequence(lines: list[str], depth: int) -> tuple[list[Any], list[str]]:
    values: list[Any] = []
    while lines and indent(lines[0]) == depth and lines[0].lstrip().startswith("- "):
        rest = lines[0][depth + 2 :]
        if rest == "|":
            text, lines = literal(lines[1:], depth + 2)
            values.append(text)
        elif key_of(rest) is not None:
            value, lines = mapping([" " * (depth + 2) + rest, *lines[1:]], depth + 2)
            values.append(value)
        else:
            values.append(scalar(rest))
            lines = lines[1:]
    return values, lines


def mapping(lines: list[str], depth: int) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    while lines and indent(lines[0]) == depth and lines[0].strip():
        found = key_of(lines[0][depth:])
        assert found is not None, lines[0]
        key, rest = found
        assert key not in values, key
        if rest == "|":
            values[key], lines = literal(lines[1:], depth + 2)
        elif rest:
            values[key], lines = scalar(rest), lines[1:]
        else:
            values[key], lines = block(lines[1:], depth + 2)
    return values, lines


def literal(lines: list[str], depth: int) -> tuple[str, list[str]]:
    kept = []
    while lines and (not lines[0] or indent(lines[0]) >= depth):
        kept.append(lines[0][depth:])
        lines = lines[1:]
    return "\n".join(kept) + "\n", lines


def key_of(text: str) -> tuple[str, str] | None:
    match = re.match(r'("(?:[^"\\]|\\.)*"|[A-Za-z/][\w./-]*):(?: (.*))?$', text)
    return (scalar(match[1]), match[2] or "") if match else None


def scalar(text: str) -> Any:
    if PLAIN.fullmatch(text) and text not in ("true", "false", "null"):
        return text
    # YAML's form of what JSON writes as two surrogates
    return json.loads(re.sub(r"(\\\\)|\\U([0-9a-f]{8})", lambda found: found[1] or chr(int(found[2], 16)), text))
