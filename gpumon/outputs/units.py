"""Readings as ASCII words with their unit: what the plain lines and the text report are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Quantiles
from gpumon.readings.text import clean
from gpumon.sizing.document.forms import amount_of_money
from gpumon.specs.units import GIB, MIB

NONE: Final = "-"
"""Stands for a value that is not there: one word, so that columns can be counted."""
_LONGEST_WORD: Final = 256
"""Characters of a word from outside."""
_LONGEST_LINE: Final = 1000
"""Characters of a line from outside."""
_KIB: Final = 1024


def with_unit(unit: str, formatted: Callable[[Reading], str]) -> Callable[[Reading], str]:
    """A function that writes a reading: what `formatted` makes of it, then `unit`; NONE for one that is missing."""

    def text(value: Reading) -> str:
        if isinstance(value, Missing):
            return NONE
        written = formatted(value)
        if written in ("", NONE, human.DASH):
            return NONE
        return written + unit

    return text


def latency_text(latency: Quantiles) -> str:
    """The p95; `~` the mean where there is no quantile, `<` where it fell in the first bucket, `>` in the last."""
    text = human.quantile(latency)
    is_mean = text.startswith("~")
    if (isinstance(latency.p95, Missing) and not is_mean) or text == human.DASH:
        return NONE
    return text


def _binary_bytes(value: Reading) -> str:
    """Bytes in GiB, MiB or KiB, with the unit; KiB only for what would be rounded to `0 MiB`."""
    if not isinstance(value, Missing) and 0.0 <= value < GIB:
        if value >= MIB or not value:
            return f"{value / MIB:.0f} MiB"
        return f"{value / _KIB:.0f} KiB"
    size = human.memory(value)
    if size == human.DASH:
        return size
    return f"{size} GiB"


seconds_text: Final = with_unit("", human.seconds)
"""A latency: `24ms`, `1.2s`; below a millisecond `0.4ms`."""
money_text: Final = with_unit("", amount_of_money)
"""A sum in the user's currency: `19.92`, `0.0042`."""
FORMAT_BY_UNIT: Final[dict[str, Callable[[Reading], str]]] = {
    "ratio": with_unit("", human.ratio),
    "count": with_unit("", human.whole),
    "number": with_unit("", human.count),
    "rate": with_unit("", human.rate),
    "figure": with_unit("", human.figure),
    "per_s": with_unit("/s", human.rate),
    "tokens_per_s": with_unit(" tok/s", human.rate),
    "bytes_per_s": with_unit("B/s", human.amount),
    "flops_per_s": with_unit("FLOP/s", human.amount),
    "flops_per_j": with_unit("FLOP/J", human.amount),
    "tokens_per_j": with_unit(" tok/J", human.figure),
    "gib": with_unit("", human.memory),
    "bytes": with_unit("", _binary_bytes),
    "bytes_of_model": with_unit("B", human.amount),
    "w": with_unit("", human.watts),
    "j": with_unit("J", human.amount),
    "c": with_unit("C", human.celsius),
    "hz": with_unit("Hz", human.amount),
    "s": seconds_text,
}
"""Unit, as the ends of field names have it -> the function that writes a reading with it; a missing one is NONE."""


def as_word(text: str) -> str:
    """Text from outside as one word, cut and escaped, with `_` for blanks; NONE where it is empty."""
    words = clean(text, _LONGEST_WORD).split()
    return "_".join(words) or NONE


def as_line(text: str) -> str:
    """Text from outside as one line, cut and escaped; NONE where it is empty."""
    return clean(text, _LONGEST_LINE) or NONE


def join_known(parts: Iterable[str], between: str = ", ") -> str:
    """The parts that say something, with `between` them: none that is empty or NONE."""
    known = [part for part in parts if part not in ("", NONE)]
    return between.join(known)
