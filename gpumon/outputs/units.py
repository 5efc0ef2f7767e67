"""Readings as ASCII words with their unit: what the plain lines and the text report are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Quantiles
from gpumon.readings.text import clean

NONE: Final = "-"
"""Stands for a value that is not there: one word, so that columns can be counted."""


def _with(unit: str, formatted: Callable[[Reading], str]) -> Callable[[Reading], str]:
    def text(value: Reading) -> str:
        if isinstance(value, Missing):
            return NONE
        shown = formatted(value)
        if shown in (NONE, human.DASH):
            return NONE
        return shown + unit

    return text


def latency_text(of: Quantiles) -> str:
    """The p95; `~` the mean where there is no quantile, `<` where it fell in the first bucket."""
    shown = human.quantile(of)
    if (isinstance(of.p95, Missing) and not shown.startswith("~")) or shown == human.DASH:
        return NONE
    return shown


def _binary(value: Reading) -> str:
    if not isinstance(value, Missing) and 0.0 <= value < human.GIB:
        if value >= 1 << 20 or not value:
            return f"{value / (1 << 20):.0f} MiB"
        return f"{value / 1024:.0f} KiB"
    size = human.memory(value)
    if size == human.DASH:
        return size
    return f"{size} GiB"


milliseconds: Final = _with("", human.seconds)
"""A latency: `24ms`, `1.2s`; below a millisecond `0.4ms`."""
quantities: Final[dict[str, Callable[[Reading], str]]] = {
    "ratio": _with("", human.ratio),
    "count": _with("", human.whole),
    "number": _with("", human.count),
    "rate": _with("", human.rate),
    "figure": _with("", human.figure),
    "per_s": _with("/s", human.rate),
    "tokens_per_s": _with(" tok/s", human.rate),
    "bytes_per_s": _with("B/s", human.amount),
    "flops_per_s": _with("FLOP/s", human.amount),
    "flops_per_j": _with("FLOP/J", human.amount),
    "tokens_per_j": _with(" tok/J", human.figure),
    "gib": _with("", human.memory),
    "bytes": _with("", _binary),
    "bytes_of_model": _with("B", human.amount),
    "w": _with("", human.watts),
    "j": _with("J", human.amount),
    "c": _with("C", human.celsius),
    "hz": _with("Hz", human.amount),
    "s": milliseconds,
}
"""By unit: a reading as text with its unit. A missing one is NONE."""


def token(text: str, spaces: bool = False) -> str:
    """Text from outside as one word, or one line: cut and escaped; NONE where it is empty."""
    if spaces:
        return clean(text, 1000) or NONE
    words = clean(text, 256).split()
    return "_".join(words) or NONE


def join_known(parts: Iterable[str], between: str = ", ") -> str:
    """The parts that say something, with `between` them: none that is empty or NONE."""
    known = []
    for part in parts:
        if part not in ("", NONE):
            known.append(part)
    return between.join(known)
