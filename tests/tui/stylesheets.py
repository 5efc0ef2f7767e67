"""Stylesheets are parsed once per test process: each application has the same ones, and parses them twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_parse_rules: Final = Stylesheet._parse_rules
_parsed: Final[dict[tuple[object, ...], list[RuleSet]]] = {}


def _parse_once(stylesheet: Stylesheet, css: str, *where: Any, **origin: Any) -> list[RuleSet]:
    """Take the place of `Stylesheet._parse_rules`; the rules depend on the theme's variables as well."""
    key = (css, where, *origin.values(), *stylesheet._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(stylesheet, css, *where, **origin)
    return _parsed[key]


@pytest.fixture(autouse=True, scope="session")
def parsed_stylesheets() -> Iterator[None]:
    """Keep the rules of a stylesheet for all applications."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Stylesheet, "_parse_rules", _parse_once)
        yield
