"""Label matchers as Prometheus has them: `name{label="value"}` of a feed, and those of `[prometheus].match`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

GRAMMAR: Final = 'write name, or name{label="value",label!="value"}'
"""How a selector is written."""
_NAME: Final = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
"""The name of a metric."""
_CONDITION: Final = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*(!=|=~|!~|=)[ \t]*"((?:[^"\\\n]|\\[\\n"])*)"[ \t]*(?:,|(?=\}))'
)
"""A condition on a label, with its comma."""
_END: Final = re.compile(r"[ \t]*\}[ \t]*")
"""The end of the conditions."""
_ESCAPED: Final = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
"""Escaped characters -> what they stand for."""
_QUOTED: Final = r"""(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'|`[^`\n]*`)"""
"""A string as PromQL quotes it."""
_MATCHER: Final = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)\s*{_QUOTED}\s*(?:,|\Z)")
"""A matcher of PromQL, with its comma."""


class Matcher(msgspec.Struct, frozen=True):
    """One condition on a label. A series without the label has it with an empty value."""

    label: str
    value: str
    must_equal: bool = True
    """True: the label must have the value; False: it must not."""


class Selector(msgspec.Struct, frozen=True):
    """The series of one metric that all matchers hold for."""

    name: str
    matchers: tuple[Matcher, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is one of them."""
        for matcher in self.matchers:
            has_value = labels.get(matcher.label, "") == matcher.value
            if has_value is not matcher.must_equal:
                return False
        return True


def parse_selector(text: str) -> Selector:
    """The selector that a text stands for. Raises ValueError: where it goes wrong and what is allowed there."""
    name = _NAME.match(text)
    if name is None:
        raise ValueError(f"begins with no metric name: {GRAMMAR}")
    end = name.end()
    matchers: tuple[Matcher, ...] = ()
    if text[end : end + 1] == "{":
        matchers, end = _parse_conditions(text, end + 1)
    if end < len(text):
        raise ValueError(f"{text[end]!r} at character {end + 1} is one too many: {GRAMMAR}")
    return Selector(name[1], matchers)


def _parse_conditions(text: str, begin: int) -> tuple[tuple[Matcher, ...], int]:
    """The matchers between braces, and where the text goes on. Raises ValueError."""
    matchers: list[Matcher] = []
    place = begin
    while (condition := _CONDITION.match(text, place)) is not None:
        matcher = _parse_condition(condition)
        for other in matchers:
            if matcher.label == other.label and (matcher.must_equal or other.must_equal):
                raise ValueError(f"label {matcher.label} stands there twice: one series has it once")
        matchers.append(matcher)
        place = condition.end()
    end = _END.match(text, place)
    if end is None:
        raise ValueError(f'no label="value" at character {place + 1}: {GRAMMAR}')
    return tuple(matchers), end.end()


def _parse_condition(condition: re.Match[str]) -> Matcher:
    """The Matcher of a condition that `_CONDITION` found. Raises ValueError for one with a pattern."""
    label, mark, value = condition.groups()
    if "~" in mark:
        raise ValueError(f"{mark} of {label}: gpumon has no patterns, only = and !=: list values with !=")
    plain = re.sub(r"\\.", lambda escape: _ESCAPED[escape[0]], value)
    return Matcher(label, plain, must_equal=mark == "=")


def matched_labels(matchers: str) -> tuple[str, ...]:
    """Names of the labels in `cluster="a",env=~"prod.*"`; what stands behind a part that is no matcher is not read."""
    return tuple(matcher[1] for matcher in _parse_matchers(matchers))


def matchers_problem(matchers: str) -> str:
    """Fault of matchers; empty: none, as with an empty text."""
    if "__name__" in matched_labels(matchers):
        return "must not match __name__, which every query has already"
    end = 0
    for matcher in _parse_matchers(matchers):
        end = matcher.end()
    if matchers[end:].strip():
        return 'must be label matchers, such as cluster="a",env=~"prod.*", without braces'
    return ""


def _parse_matchers(text: str) -> list[re.Match[str]]:
    """The matchers that a text begins with, up to what is none; group 1 is the label."""
    matchers: list[re.Match[str]] = []
    end = 0
    while (matcher := _MATCHER.match(text, end)) is not None:
        matchers.append(matcher)
        end = matcher.end()
    return matchers
