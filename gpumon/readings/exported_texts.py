"""Texts as labels whose values are few: the figures in them go into values of their own, and come back exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpumon.readings.text import clean

MOST_TEXT: Final = 512
"""Characters of a text that is exported."""
MOST_FIGURES: Final = 16
"""Figures of one text that become values; those after them stay in the label."""
_PLAIN: Final = r"\d{1,15}(?:\.\d{1,9})?"
_BEFORE: Final = r"(?:(?<![\w.,$])|(?<=\d[dhm]))(?<![A-Za-z_]-)(?<!:)(?<![Gg][Pp][Uu] )"
"""Not inside a word, nor a port or the number of a GPU; but the parts of `3m12s` are figures, too."""
_AFTER: Final = r"(?=(?:[kMGTPdhmsx]|[mu]s|[dhm]\d+[hms])?(?![\w-]|[.,]\d))"
_FIGURE: Final = re.compile(rf"{_BEFORE}({_PLAIN}){_AFTER}|([{{}}])", re.ASCII)
_PLACE: Final = re.compile(r"\{(?:\.([1-9]))?\}|\{(\{)|\}(\})", re.ASCII)


def parted(text: str) -> tuple[str, list[float]]:
    """A text as a template and its figures: `MBU 69.5 % at batch 24` is `MBU {.1} % at batch {}` and 69.5, 24.

    Figures inside names stay: `llama-3-70b`, `H100`, `v0.11.0`, `127.0.0.1:8000`, `GPU 3`. The text is made
    safe and cut first.
    """
    figures: list[float] = []

    def place(found: re.Match[str]) -> str:
        if found[2]:
            return found[2] * 2
        figure = found[1]
        whole, _, decimals = figure.partition(".")
        if len(figures) == MOST_FIGURES or (len(whole) > 1 and whole[0] == "0") or len(whole) + len(decimals) > 15:
            return figure
        figures.append(float(figure))
        return f"{{.{len(decimals)}}}" if decimals else "{}"

    return _FIGURE.sub(place, clean(text, MOST_TEXT)), figures


def joined(template: str, figures: Sequence[float | None]) -> str:
    """The text that `parted` was given; a figure that did not come is `?`."""
    rest = iter(figures)

    def figure(found: re.Match[str]) -> str:
        if found[2] or found[3]:
            return found[2] or found[3]
        value = next(rest, None)
        return "?" if value is None else f"{value:.{int(found[1] or 0)}f}"

    return _PLACE.sub(figure, template)
