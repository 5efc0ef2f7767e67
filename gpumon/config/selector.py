"""Label matchers as Prometheus has them: `name{label="value"}` of a feed, and those of `[prometheus].match`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

GRAMMAR: Final = 'write name, or name{label="value",label!="value"}'
_NAME: Final = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_CONDITION: Final = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*(!=|=~|!~|=)[ \t]*"((?:[^"\\\n]|\\[\\n"])*)"[ \t]*(?:,|(?=\}))'
)
_END: Final = re.compile(r"[ \t]*\}[ \t]*")
_ESCAPED: Final = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
_TEXT: Final = r"""(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'|`[^`\n]*`)"""
_ONE: Final = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)\s*{_TEXT}\s*(?:,|\Z)")


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
    name = _NAME.match(text)
    if name is None:
        raise ValueError(f"begins with no metric name: {GRAMMAR}")
    at = name.end()
    found: list[Matcher] = []
    if text[at : at + 1] == "{":
        at += 1
        while (condition := _CONDITION.match(text, at)) is not None:
            label, mark, value = condition.groups()
            if "~" in mark:
                raise ValueError(f"{mark} of {label}: gpumon has no patterns, only = and !=: list values with !=")
            plain = re.sub(r"\\.", lambda each: _ESCAPED[each[0]], value)
            matcher = Matcher(label, plain, same=mark == "=")
            if any(label == each.label and (matcher.same or each.same) for each in found):
                raise ValueError(f"label {label} stands there twice: one series has it once")
            found.append(matcher)
            at = condition.end()
        if end := _END.match(text, at):
            at = end.end()
        else:
            raise ValueError(f'no label="value" at character {at + 1}: {GRAMMAR}')
    if at < len(text):
        raise ValueError(f"{text[at]!r} at character {at + 1} is one too many: {GRAMMAR}")
    return Selector(name[1], tuple(found))


def matched(matchers: str) -> tuple[str, ...]:
    """The labels of `cluster="a",env=~"prod.*"`, up to what is no matcher."""
    return tuple(one[1] for one in _read(matchers))


def matchers_problem(matchers: str) -> str:
    """Fault of matchers; empty: none, as with an empty text."""
    found = _read(matchers)
    if "__name__" in matched(matchers):
        return "must not match __name__, which every query has already"
    if matchers[found[-1].end() if found else 0 :].strip():
        return 'must be label matchers, such as cluster="a",env=~"prod.*", without braces'
    return ""


def _read(text: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    while (one := _ONE.match(text, found[-1].end() if found else 0)) is not None:
        found.append(one)
    return found
