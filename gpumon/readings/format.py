"""Numbers and texts as a person reads them: short, of bounded width, and never a zero for what is not there.

Every figure fits the width that its function names, so that columns stand still while values change.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Quantiles
from gpumon.specs.units import GIB

DASH = "–"
ELLIPSIS = "…"
_EARLIEST_S: Final = -62_135_596_800.0
_LATEST_S: Final = 253_402_300_799.0
"""Unix times of the beginning of the year 1 and the end of 9999."""
_LOSS: Final = "GPU is lost"
"""NVML's words for a GPU that it does not reach (nvmlErrorString)."""
_LARGEST_SCALED: Final = 999.5
"""A number from here on is written with the next decimal prefix: it would be rounded to four digits."""

_WORDS: dict[Reason, tuple[str, str]] = {
    Reason.NOT_SUPPORTED: (DASH, "no counter"),
    Reason.NO_PERMISSION: ("perm", "no access"),
    Reason.LOST: (DASH, "lost"),
    Reason.WARMING_UP: (ELLIPSIS, "warming up"),
    Reason.UNDER_MIG: (DASH, "under MIG"),
    Reason.NOT_EXPOSED: (DASH, "not exposed"),
    Reason.STALE: (DASH, "stale"),
    Reason.NOT_LIVE: ("n/a", "n/a live"),
    Reason.OFF: ("off", "metrics off"),
    Reason.NO_ENGINE: (DASH, "no engine"),
    Reason.UNMAPPED: (DASH, "unmapped"),
    Reason.NO_GPU: (DASH, "unmapped"),
    Reason.UNKNOWN_MODEL: ("LLM?", "unknown LLM"),
    Reason.NOT_MODELLED: (DASH, "no formula"),
    Reason.UNKNOWN_GPU: ("GPU?", "unknown GPU"),
    Reason.NO_CONTEXT: ("ctx?", "no context"),
    Reason.IDLE: (DASH, "idle"),
    Reason.FEW: ("few", "too few"),
    Reason.RESET: ("reset", "reset"),
    Reason.UNREACHABLE: (DASH, "no figures"),
    Reason.INVALID: ("bad", "not valid"),
    Reason.ERROR: ("err", "error"),
    Reason.NOT_GIVEN: (DASH, "not given"),
    Reason.NOT_MEASURED: (DASH, "unmeasured"),
    Reason.NO_PRICE: (DASH, "no price"),
    Reason.NO_ENERGY_PRICE: (DASH, "no price"),
    Reason.INFEASIBLE: ("none", "no way"),
}
"""Texts of a missing value: in a column of 4 or 5 cells, and in one of 11."""

_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
"""Decimal prefixes, each a thousand times the one before."""
_POWER_UNITS: Final = ((9999.5, 1.0, "W"), (999_500.0, 1e3, "kW"), (999_500_000.0, 1e6, "MW"))
"""Watts below which a unit is written (rounded, they fit its cells), the watts in it, and its letters."""
_AGE_UNITS: Final = ((59.5, 1.0, "s"), (3570.0, 60.0, "m"), (84600.0, 3600.0, "h"), (8.6e7, 86400.0, "d"))
"""Seconds below which a unit is written (rounded, they are below one of the next), the seconds in it, its letter."""
_NARROW_TEXT: Final = re.compile("[ -~·°×–…─-▟⠀-⣿]*")
"""Text of which each character takes one column: ASCII and what tables and charts are drawn with."""
_PORT_AT_END: Final = re.compile(r":[0-9]{1,5}$")
"""The port at the end of an engine's name."""
_LEAST_SERVER_CELLS: Final = 3
"""Fewest cells before the port that still say something."""
_MODEL_SIZE: Final = re.compile(r"(?<![0-9A-Za-z.])\d+(?:\.\d+)?(?:x\d+)?[Bb](?![0-9A-Za-z])")
"""The size in the name of a model: `70B`, `0.6B`, `8x7B`, but not the `A3B` that it has active."""
_LEAST_FAMILY_CHARACTERS: Final = 3
"""Fewest characters before the size that still say something."""


def short(missing: Missing, width: int = 5) -> str:
    """A missing value in at most `width` cells; a word that does not fit is a dash, never half a word."""
    word, _ = _WORDS[missing.reason]
    if len(word) <= width:
        return word
    return DASH


def phrase(missing: Missing) -> str:
    """A missing value in at most 11 cells, as words."""
    _, words = _WORDS[missing.reason]
    return words


def ratio(value: Reading, width: int = 5) -> str:
    """A share as percent in at most `width` (4 or 5) cells: `91%`, `<1%`; above 100% marked: `104%!`, in 4 `104!`."""
    if isinstance(value, Missing):
        return short(value, width)
    if not 0.0 <= value < math.inf:
        return DASH
    percent = round(min(value, 10.0) * 100.0)
    if percent == 0 and value > 0.0:
        return "<1%"
    if percent <= 100:
        return f"{percent}%"
    if percent >= 1000 and width > 4:
        return ">10x!"
    if percent >= 1000:
        return ">9x!"
    if width > 4:
        return f"{percent}%!"
    return f"{percent}!"


def count(value: Reading) -> str:
    """A number of things or of tokens per second in at most 5 cells: `0`, `4.2`, `410`, `1.1k`, `12.3k`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    if 0.0 < value < 0.05:
        return "<.1"
    if value < 9.95:
        if value == round(value):
            return f"{value:.0f}"
        return f"{value:.1f}"
    scaled, suffix = _scaled(value)
    if suffix and scaled < 99.95:
        return f"{scaled:.1f}{suffix}"
    return f"{scaled:.0f}{suffix}"


def rate(value: Reading) -> str:
    """Things per second in at most 5 cells, three digits above 100: `0`, `4.2`, `41.0`, `410`, `1.10k`, `12.3k`.

    A value that is whole by chance keeps its decimal, so that digits stand where they stood.
    """
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    if value == 0.0:
        return "0"
    if value < 0.05:
        return "<.1"
    if value < 99.95:
        return f"{value:.1f}"
    return amount(value)


def figure(value: Reading) -> str:
    """Two decimals below 10, then three digits, in at most 5 cells: `0`, `0.45`, `1.04`, `45.2`, `452`, `4.52k`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    if value == 0.0:
        return "0"
    if value < 0.005:
        return "<.01"
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return amount(value)


def two_digits(value: Reading) -> str:
    """A large amount whose third digit is noise, in at most 4 cells: `0`, `15M`, `1.8G`, `18G`, `180G`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    scaled, suffix = _scaled(value)
    if not suffix:
        if scaled == 0.0 or scaled >= 0.95:
            return f"{scaled:.0f}"
        return "<1"
    if scaled < 9.95:
        return f"{scaled:.1f}{suffix}"
    return f"{scaled:.0f}{suffix}"


def counted(number: int, word: str) -> str:
    """A number with the word for what it counts: `1 host`, `3 hosts`."""
    if number == 1:
        return f"1 {word}"
    return f"{number} {word}s"


def whole(value: Reading) -> str:
    """A number that has no fraction by nature (requests in flight) in at most 4 cells: `24`, `1.2k`, `12k`."""
    if isinstance(value, Missing):
        return short(value, 4)
    if not 0.0 <= value < math.inf:
        return DASH
    scaled, suffix = _scaled(float(round(value)))
    if suffix and scaled < 9.95:
        return f"{scaled:.1f}{suffix}"
    return f"{scaled:.0f}{suffix}"


def amount(value: Reading, unit: str = "") -> str:
    """Three digits and a decimal prefix in at most 5 cells, before `unit`: bytes/s `2.31T`, Hz `1.98G`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    scaled, suffix = _scaled(value)
    if not suffix:
        if scaled == 0.0 or scaled >= 0.95:
            return f"{scaled:.0f}{unit}"
        return f"<1{unit}"
    if scaled < 9.995:
        return f"{scaled:.2f}{suffix}{unit}"
    if scaled < 99.95:
        return f"{scaled:.1f}{suffix}{unit}"
    return f"{scaled:.0f}{suffix}{unit}"


def round_number(value: float) -> str:
    """A number of one or two digits, for a scale, in at most 4 cells: `500`, `5k`, `20T`."""
    scaled, suffix = _scaled(value)
    return f"{scaled:.3g}{suffix}"


def _scaled(value: float) -> tuple[float, str]:
    """A number below 1000, and the decimal prefix that it is of."""
    for suffix in _SUFFIXES[:-1]:
        if value < _LARGEST_SCALED:
            return value, suffix
        value /= 1000.0
    return min(value, 999.0), _SUFFIXES[-1]


def memory(value: Reading, unit: float = GIB) -> str:
    """Bytes in a unit (`GIB` or 1e9) in at most 4 cells: `71.2`, `141`, and `20T` for a thousand times as much."""
    if isinstance(value, Missing):
        return short(value, 4)
    if not 0.0 <= value < math.inf:
        return DASH
    size = value / unit
    step = 1024.0 if unit == GIB else 1000.0
    if size < 99.95:
        return f"{size:.1f}"
    if size < 9999.5:
        return f"{size:.0f}"
    if size < 999.5 * step:
        return f"{size / step:.0f}T"
    return ">1P"


class _TimeForm(NamedTuple):
    """A way to write a time."""

    unit_s: float
    letters: str
    decimals: int
    largest: float
    """Largest number of the unit that is written so."""


_TIME_FORMS: Final = (
    _TimeForm(1e-3, "ms", 1, 0.9),
    _TimeForm(1e-3, "ms", 0, 999.0),
    _TimeForm(1.0, "s", 1, 9.9),
    _TimeForm(1.0, "s", 0, 999.0),
    _TimeForm(60.0, "m", 0, 99.0),
    _TimeForm(3600.0, "h", 1, 9.9),
    _TimeForm(3600.0, "h", 0, 99.0),
)
"""The most precise first."""
_LONGEST_TIME_S: Final = 99.0 * 3600.0
"""Seconds above which no form fits."""


def seconds(value: Reading) -> str:
    """A latency in at most 5 cells: `0.4ms`, `24ms`, `470ms`, `1.2s`, `999s`, `20m`, `3.3h`."""
    if isinstance(value, Missing):
        return short(value)
    return _exact_time(value) or _time_bound(value)


def quantile(quantiles: Quantiles) -> str:
    """The p95 in at most 6 cells: `<10ms` in the first bucket, `>60s` in the last one, which has no upper bound,
    `~240ms` the mean where no quantile is.

    The bound of the first bucket is rounded up and that of the last one down, so that what is said holds.
    """
    p95 = quantiles.p95
    if isinstance(p95, Missing):
        if isinstance(quantiles.mean, Missing):
            return short(p95)
        text = _exact_time(quantiles.mean)
        if text:
            return f"~{text}"
        return _time_bound(quantiles.mean)
    bound = quantiles.first_bound_s
    if not isinstance(bound, Missing) and p95 <= bound and bound > 0.0:
        text = _exact_time(bound, _rounded_up)
        if text:
            return f"<{text}"
        return DASH
    if is_last_bucket(quantiles.p95_high):
        return least_time(p95)
    return seconds(p95)


def least_time(value: Reading) -> str:
    """A latency that is at least so long, in at most 6 cells: `>60s`, rounded down, so that what is said holds."""
    if isinstance(value, Missing):
        return short(value)
    text = _exact_time(value, _rounded_down)
    return f">{text}" if text else _time_bound(value)


def is_last_bucket(high: Reading) -> bool:
    """Whether `high` is the upper bound of the last bucket, which has none: its quantile is a lower bound only."""
    return isinstance(high, Missing) and high.reason is Reason.INVALID


def is_in_last_bucket(quantiles: Quantiles, part: str) -> bool:
    """Whether a quantile (`p50`, `p90`, `p95`, `p99`) lies in the last bucket, which has no upper bound."""
    if part != "p90":
        return is_last_bucket(getattr(quantiles, f"{part}_high"))
    # Where the p90 is in the last bucket the p95 is, too.
    last_s = quantiles.p95_low
    p90_s = quantiles.p90
    if isinstance(last_s, Missing) or isinstance(p90_s, Missing):
        return False
    return is_last_bucket(quantiles.p95_high) and p90_s >= last_s


def bucket_text(low: Reading, high: Reading) -> str:
    """The bounds of a bucket in seconds: `10–25 ms`, `below 10 ms` for the first one, `above 10 s` for the last."""
    if isinstance(low, Missing):
        return ""
    if isinstance(high, Missing):
        if is_last_bucket(high):
            return f"above {bound_text(low)}"
        return ""
    if low <= 0.0:
        return f"below {bound_text(high)}"
    if high < 1.0:
        return f"{low * 1e3:g}–{bound_text(high)}"
    return f"{low:g}–{bound_text(high)}"


def bound_text(bound_s: float) -> str:
    """A bound of a bucket: `25 ms`, `2.5 s`."""
    if bound_s < 1.0:
        return f"{bound_s * 1e3:g} ms"
    return f"{bound_s:g} s"


def _rounded_up(steps: float) -> int:
    """The next whole number; what is but an error of rounding above one is not rounded up."""
    return math.ceil(steps * (1.0 - 1e-9))


def _rounded_down(steps: float) -> int:
    """The whole number before; what is but an error of rounding below one is not rounded down."""
    return math.floor(steps * (1.0 + 1e-9))


def _exact_time(value: float, rounded: Callable[[float], int] = round) -> str:
    """The most precise form of a time; empty where none fits."""
    if not 0.0 <= value < 1e9:
        return ""
    if value == 0.0:
        return "0s"
    for form in _TIME_FORMS:
        steps = value / form.unit_s * 10.0**form.decimals
        number = rounded(steps) / 10.0**form.decimals
        if 0.0 < number <= form.largest:
            return f"{number:.{form.decimals}f}{form.letters}"
    return ""


def _time_bound(value: float) -> str:
    """A bound for a time that is too short or too long to be written."""
    if not 0.0 <= value < math.inf:
        return DASH
    return ">99h" if value > _LONGEST_TIME_S else "<1ms"


def watts(value: Reading) -> str:
    """Power in at most 5 cells: `612W`, `1400W`, `12kW`."""
    if isinstance(value, Missing):
        return short(value)
    if not 0.0 <= value < math.inf:
        return DASH
    for limit_w, unit_w, letters in _POWER_UNITS:
        if value < limit_w:
            return f"{value / unit_w:.0f}{letters}"
    return ">1GW"


def celsius(value: Reading) -> str:
    """A temperature in at most 3 cells, without its unit; a word where it is missing."""
    if isinstance(value, Missing):
        return short(value, 3)
    if -99.5 < value < 999.5:
        return f"{value:.0f}"
    return DASH


def fahrenheit(value: Reading) -> str:
    """A temperature that is given in Celsius, as `celsius` shows it, in Fahrenheit."""
    if isinstance(value, Missing):
        return celsius(value)
    return celsius(value * 1.8 + 32.0)


def age(duration_s: float) -> str:
    """How long ago, in at most 4 cells: `14s`, `3m`, `2h`, `5d`."""
    if not 0.0 <= duration_s < math.inf:
        return DASH
    for limit_s, unit_s, letter in _AGE_UNITS:
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f}{letter}"
    return ">3y"


def period(duration_s: float) -> str:
    """A length of time that someone chose, in words: `0.25 s`, `1 s`, `30 s`, `5 min`, `2.5 h`."""
    if duration_s < 120.0:
        return f"{duration_s:.3g} s"
    length = duration_s / 3600.0
    unit = "h"
    if duration_s < 7200.0:
        length = duration_s / 60.0
        unit = "min"
    if length < 999.5:
        return f"{length:.3g} {unit}"
    return f"{length:.0f} {unit}"


@lru_cache(maxsize=4096)
def cells(text: str) -> int:
    """Columns that a text takes in a terminal: wide (CJK, emoji) characters take 2, combining marks none."""
    if _NARROW_TEXT.fullmatch(text):
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    """Columns that a character takes."""
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 1


def beyond_loss(state_text: str) -> str:
    """The words of a driver on a GPU behind `GPU is lost`, which the state before them says already."""
    return state_text.removeprefix(_LOSS).removeprefix(": ")


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells; what does not fit is marked with an ellipsis."""
    if len(text) * 2 <= width or cells(text) <= width:
        return text
    if width <= 0:
        return ""
    characters = []
    room = width - 1  # the ellipsis takes one
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        characters.append(character)
    return "".join(characters) + ELLIPSIS


def cut_middle(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis in its middle for what does not fit: the end of a name tells
    replicas apart."""
    if cells(text) <= width:
        return text
    room = (width - 1) // 2  # the ellipsis takes one
    start = len(text)
    while start > 0 and cells(text[start - 1 :]) <= room:
        start -= 1
    return cut(text, width - cells(text[start:])) + text[start:]


def engine_name(name: str, width: int) -> str:
    """The name of an engine in at most `width` cells: the port at its end stays, as it tells servers of a kind apart.

    `vllm_router:30001` is `vllm_…:30001` in 12 cells.
    """
    port = _PORT_AT_END.search(name)
    if port is None or cells(name) <= width:
        return cut(name, width)
    room = width - len(port[0])
    if room < _LEAST_SERVER_CELLS:
        return cut(name, width)
    return cut(name[: port.start()], room) + port[0]


def model_name(model: str, width: int) -> str:
    """The name of a model in at most `width` cells: without its organisation, and with its size as long as it fits.

    `Llama-3.3-70B`, in 9 cells `Llama…70B`: of a family the size tells its models apart, and it stands in the middle.
    """
    if cells(model) <= width:
        return model
    name = model.rstrip("/").rpartition("/")[2]
    size = _MODEL_SIZE.search(name)
    if cells(name) <= width or size is None or size.end() < width or not name.isascii():
        return cut(name, width)
    if size.end() == width:
        return name[:width]
    room = width - 1 - len(size[0])
    if room < _LEAST_FAMILY_CHARACTERS:
        return cut(name, width)
    return f"{name[:room].rstrip('-._')}{ELLIPSIS}{size[0]}"


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


def spans(numbers: Sequence[int]) -> str:
    """Sorted numbers with runs joined: `0-3 6`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def rfc3339(wall_s: float) -> str:
    """A Unix time in UTC to the millisecond: `2026-01-02T14:00:00.000Z`; the nearest that there is of years 1 to 9999.

    A damaged recording may have any number in the place of a time.
    """
    if math.isnan(wall_s):
        wall_s = _EARLIEST_S
    wall_s = min(max(wall_s, _EARLIEST_S), _LATEST_S)
    return datetime.fromtimestamp(wall_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wall_of(text: str) -> float:
    """The Unix time of what `rfc3339` gave. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def clock_utc(wall_s: float) -> str:
    """`13:13:29 UTC`: the time of day in a text, which does not know where it is read."""
    return f"{rfc3339(wall_s)[11:19]} UTC"
