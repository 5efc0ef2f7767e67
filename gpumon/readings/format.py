"""Numbers and texts as a person reads them: short, of bounded width, and never a zero for what is not there.

Every figure fits the width that its function names, so that columns stand still while values change.
"""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Quantiles

DASH = "–"
ELLIPSIS = "…"
GIB = float(1 << 30)

_WORDS: dict[Reason, tuple[str, str]] = {
    Reason.NOT_SUPPORTED: (DASH, "no counter"),
    Reason.NO_PERMISSION: ("perm", "no access"),
    Reason.LOST: (DASH, "lost"),
    Reason.WARMING_UP: (ELLIPSIS, "warming up"),
    Reason.UNDER_MIG: ("MIG", "under MIG"),
    Reason.NOT_EXPOSED: (DASH, "not exposed"),
    Reason.STALE: (DASH, "stale"),
    Reason.OFF: ("off", "off"),
    Reason.NO_ENGINE: (DASH, "no engine"),
    Reason.UNMAPPED: (DASH, "unmapped"),
    Reason.NO_GPU: (DASH, "which GPU?"),
    Reason.UNKNOWN_MODEL: ("LLM?", "unknown LLM"),
    Reason.NOT_MODELLED: (DASH, "no formula"),
    Reason.UNKNOWN_GPU: ("GPU?", "unknown GPU"),
    Reason.NO_CONTEXT: ("ctx?", "no context"),
    Reason.IDLE: (DASH, "idle"),
    Reason.FEW: ("few", "too few"),
    Reason.RESET: ("reset", "reset"),
    Reason.UNREACHABLE: (DASH, "unreachable"),
    Reason.INVALID: ("bad", "not valid"),
    Reason.ERROR: ("err", "error"),
}
"""What stands for a missing value in a column of 4 or 5, and in one of 11 cells."""

_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")


def short(missing: Missing) -> str:
    """A missing value in at most 5 cells."""
    return _WORDS[missing.reason][0]


def phrase(missing: Missing) -> str:
    """A missing value in at most 11 cells, as words."""
    return _WORDS[missing.reason][1]


def ratio(value: Reading) -> str:
    """A share as percent in at most 5 cells: `91%`, `<1%`; above 100 % it is marked: `104%!`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    percent = round(value * 100.0)
    if percent == 0 and value > 0.0:
        return "<1%"
    return f"{percent}%" if percent <= 100 else f"{percent}%!" if percent < 1000 else ">10x!"


def count(value: Reading) -> str:
    """A number of things or of tokens per second in at most 5 cells: `0`, `4.2`, `410`, `1.1k`, `12.3k`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    if value < 9.95:
        return "<.1" if 0.0 < value < 0.05 else f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    scaled, suffix = _scaled(value, 999.5)
    return f"{scaled:.0f}{suffix}" if not suffix or scaled >= 99.95 else f"{scaled:.1f}{suffix}"


def whole(value: Reading) -> str:
    """A number that has no fraction by nature (requests in flight) in at most 5 cells: `24`, `1.2k`."""
    return count(value) if isinstance(value, Missing) else count(float(round(value)) if math.isfinite(value) else value)


def amount(value: Reading, unit: str = "") -> str:
    """Three digits and a decimal prefix in at most 5 cells, before `unit`: bytes/s `2.31T`, Hz `1.98G`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    scaled, suffix = _scaled(value, 999.5)
    if not suffix:
        return f"{scaled:.0f}{unit}" if scaled == 0.0 or scaled >= 0.95 else f"<1{unit}"
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{suffix}{unit}"


def round_number(value: float) -> str:
    """A number of one or two digits, for a scale, in at most 4 cells: `500`, `5k`, `20T`."""
    scaled, suffix = _scaled(value, 999.5)
    return f"{scaled:.3g}{suffix}"


def _scaled(value: float, most: float) -> tuple[float, str]:
    for suffix in _SUFFIXES[:-1]:
        if value < most:
            return value, suffix
        value /= 1000.0
    return min(value, 999.0), _SUFFIXES[-1]


def gib(value: Reading) -> str:
    """Bytes as GiB in at most 4 cells: `71.2`, `141`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    size = value / GIB
    return f"{size:.1f}" if size < 99.95 else f"{size:.0f}" if size < 9999.5 else f"{size / 1024:.0f}T"


def seconds(value: Reading, width: int = 5) -> str:
    """A latency in at most `width` (4 or 5) cells: `24m` is 24 milliseconds, then `1.2s`, `12s`, `999s`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    if value < 0.9995:
        text = "0s" if value == 0.0 else f"{value * 1e3:.1f}m" if value < 0.00095 else f"{value * 1e3:.0f}m"
        return text if len(text) <= width else f"{value:.1f}s"[1:]
    text = f"{value:.1f}s" if value < 9.95 else f"{value:.0f}s" if value < 999.5 else ">999s"
    return text if len(text) <= width else ">16m"[:width]


def quantile(of: Quantiles, width: int = 5) -> str:
    """The p95 in at most `width` (4 or 5) cells: `<10m` in the first bucket, `~24m` the mean of too few."""
    if isinstance(of.p95, Missing):
        few = of.p95.reason is Reason.FEW and not isinstance(of.mean, Missing)
        return f"~{_one_less(of.mean, width)}" if few else short(of.p95)
    bound = of.first_bound_s
    if not isinstance(bound, Missing) and of.p95 <= bound:
        return f"<{_one_less(bound, width)}"
    return seconds(of.p95, width)


def _one_less(value: Reading, width: int) -> str:
    text = seconds(value)
    if len(text) < width:
        return text
    return text if isinstance(value, Missing) else f"{value:.1f}s".removeprefix("0")[: width - 1]


def watts(value: Reading) -> str:
    """Power in at most 5 cells: `612W`, `1400W`, `12kW`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    return (
        f"{value:.0f}W" if value < 9999.5 else f"{value / 1e3:.0f}kW" if value < 999_500.0 else f"{value / 1e6:.0f}MW"
    )


def celsius(value: Reading) -> str:
    """A temperature in at most 3 cells, without its unit; a word where it is missing."""
    if isinstance(value, Missing):
        return short(value)
    return f"{value:.0f}" if -99.5 < value < 999.5 else DASH


def age(seconds_: float) -> str:
    """How long ago, in at most 4 cells: `14s`, `3m`, `2h`, `5d`."""
    if not 0.0 <= seconds_ < math.inf:
        return DASH
    for limit, length, unit in ((59.5, 1.0, "s"), (3570.0, 60.0, "m"), (84600.0, 3600.0, "h"), (8.6e7, 86400.0, "d")):
        if seconds_ < limit:
            return f"{seconds_ / length:.0f}{unit}"
    return ">3y"


def period(seconds_: float) -> str:
    """A length of time that someone chose: `0.25s`, `1s`, `30s`, `5 min`, `2 h`."""
    if seconds_ < 120.0:
        return f"{seconds_:g}s"
    return f"{seconds_ / 60.0:.0f} min" if seconds_ < 7200.0 else f"{seconds_ / 3600.0:.0f} h"


@lru_cache(maxsize=4096)
def cells(text: str) -> int:
    """Columns that a text takes in a terminal: wide (CJK, emoji) characters take 2, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me") else 1


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells; what does not fit is marked with an ellipsis."""
    if len(text) * 2 <= width or cells(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, room = [], width - 1
    for character in text:
        room -= _cell(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def left(text: str, width: int) -> str:
    """`text` in exactly `width` cells, flush left."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    text = cut(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """`text` in exactly `width` cells, flush right."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width)
    text = cut(text, width)
    return " " * (width - cells(text)) + text
