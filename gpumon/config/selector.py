"""Which series of a page a quantity is read from: `name{label="value",label!="value"}`, as Prometheus has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

GRAMMAR: Final = 'write name, or name{label="value",label!="value"}'
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MARK: Final = re.compile(r"!=|=~|!~|=")
_VALUE: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"\\": "\\", "n": "\n", '"': '"'}


class Matcher(msgspec.Struct, frozen=True):
    """One condition on a label. A series without the label has it with an empty value."""

    label: str
    value: str
    same: bool = True
    """Whether the label must have the value, or must not."""


class Selector(msgspec.Struct, frozen=True):
    """The series of one metric that all matchers hold for."""

    name: str
    matchers: tuple[Matcher, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is one of them."""
        return all((labels.get(each.label, "") == each.value) is each.same for each in self.matchers)


def selector(text: str) -> Selector:
    """The selector that a text stands for. Raises ValueError: where it goes wrong and what is allowed there."""
    at = _spaces(text, 0)
    name = _NAME.match(text, at)
    if name is None:
        raise ValueError(f"{_place(text, at)} begins no metric name: {GRAMMAR}")
    at = _spaces(text, name.end())
    matchers: tuple[Matcher, ...] = ()
    if text[at : at + 1] == "{":
        matchers, at = _matchers(text, at + 1)
        at = _spaces(text, at)
    if at < len(text):
        raise ValueError(f"{_place(text, at)} is one too many: {GRAMMAR}")
    return Selector(name[0], matchers)


def _matchers(text: str, at: int) -> tuple[tuple[Matcher, ...], int]:
    """The conditions from behind the opening brace on, and the place behind the closing one."""
    found: list[Matcher] = []
    while True:
        at = _spaces(text, at)
        if text[at : at + 1] == "}":
            return tuple(found), at + 1
        matcher, at = _matcher(text, at)
        if any(matcher.label == each.label and (matcher.same or each.same) for each in found):
            raise ValueError(f"label {matcher.label} stands there twice: one series has it once")
        found.append(matcher)
        at = _spaces(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            raise ValueError(f"{_place(text, at)} stands where a comma or }} belongs")


def _matcher(text: str, at: int) -> tuple[Matcher, int]:
    label = _LABEL.match(text, at)
    if label is None:
        raise ValueError(f"{_place(text, at)} begins no label: {GRAMMAR}")
    at = _spaces(text, label.end())
    mark = _MARK.match(text, at)
    if mark is None:
        raise ValueError(f'{_place(text, at)} stands where = or != belongs, as in {label[0]}="value"')
    if "~" in mark[0]:
        raise ValueError(f"{mark[0]} at character {at + 1}: gpumon has no patterns, only = and !=: list values with !=")
    at = _spaces(text, mark.end())
    value = _VALUE.match(text, at)
    if value is None:
        raise ValueError(f'{_place(text, at)} begins no value in double quotes, as in {label[0]}{mark[0]}"value"')
    wrong = next((each[0] for each in _ESCAPE.finditer(value[1]) if each[1] not in _ESCAPED), None)
    if wrong is not None:
        raise ValueError(f'{wrong} is no escape: \\\\, \\" and \\n are')
    plain = _ESCAPE.sub(lambda each: _ESCAPED[each[1]], value[1])
    return Matcher(label[0], plain, same=mark[0] == "="), value.end()


def _spaces(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _place(text: str, at: int) -> str:
    return f"{text[at]!r} at character {at + 1}" if at < len(text) else "the end of the text"
