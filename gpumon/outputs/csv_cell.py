"""One value as a cell of a CSV table."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, Final

from gpumon.readings.missing import Missing
from gpumon.readings.text import clean

_FORMULA_SIGNS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""First characters of what a spreadsheet takes for a formula; with a Japanese keyboard the wide ones, too."""
_BEHIND_SEMICOLON: Final = re.compile(rf"(; *)(?=[{re.escape(''.join(_FORMULA_SIGNS))}])")
"""Begin of a cell for spreadsheets of countries with a decimal comma, which split lines at semicolons."""
_LONGEST_TEXT: Final = 1000
"""Characters of a text."""


def cell(value: Any) -> str:
    """A value as text: empty where it is missing, never a 0; a text that looks like a formula gets an apostrophe."""
    if isinstance(value, Missing) or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        text = _BEHIND_SEMICOLON.sub(r"\1'", clean(value, _LONGEST_TEXT))
        if text.startswith(_FORMULA_SIGNS):
            return f"'{text}"
        return text
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value)
