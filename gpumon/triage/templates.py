"""Templates of sentences: how they are read, and how their parameters are written.

A template names parameters with their format: `KV cache {usage:percent} full`. A part in brackets is left out where
one of its parameters is not there; `|` in brackets parts alternatives, of which the first whose parameters are there
stands. `{name=word}` stands for nothing, and asks that the parameter has this value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.readings.change_words import FACT_NAMES
from gpumon.readings.format import age, amount, clock_utc, counted
from gpumon.readings.text import clean
from gpumon.readings.verdict import Parameters
from gpumon.specs.units import GIB
from gpumon.triage.sentences import FAULTS, HOST_PARTS, SIGNALS
from gpumon.triage.xid import xid_of

Clock: TypeAlias = Callable[[float], str]
"""Gives a Unix time as the time of day of a sentence: `13:13:29 UTC`, or `13:13:29` where all times are local."""
_TEMPLATE_TOKEN: Final = re.compile(r"\{(?P<name>\w+)(?:(?P<sign>[:=])(?P<spec>\w+))?\}|(?P<bracket>[\[\]|])")
"""A parameter (`{name:format}`, `{name=word}`), or a sign of alternatives."""
_SECONDS_OF_CLOCK: Final = re.compile(r"(?<=\d\d:\d\d):\d\d")
"""Seconds of a time of day, with their colon."""
_LEAST_TOLD: Final = 0.05
"""Mean number of requests below which there is none: one in a minute, for a moment."""
_NEARLY_ONE: Final = 0.95
"""Mean number of requests from which on it is one."""
_MOST_CHARACTERS: Final = 300
"""Characters of one name in a sentence."""
UNKNOWN_TEXT: Final = "?"
"""Stands in a sentence for what is not known, or is not what may stand there."""
_NUMBERS: Final = re.compile(r"[\d.,+ -]{1,200}", re.ASCII)
"""Several numbers as one text, such as the indices of GPUs."""
_MOST_COMMAND: Final = 2048
"""Characters of a command line in a sentence: whole, as half a command is no command."""


def filled_sentence(table: Mapping[str, str], code: str, parameters: Parameters, clock: Clock = clock_utc) -> str:
    """A sentence by its code; a code of a newer gpumon stands for itself."""
    if code in table:
        return fill_template(table[code], parameters, clock)
    return clean(code, _MOST_CHARACTERS)


def _percent(value: float) -> str:
    """`41%`, `<1%`."""
    if 0.0 < value < 0.005:  # what would round to 0%
        return "<1%"
    return f"{round(min(value, 99.0) * 100.0)}%"


def requests(value: float) -> str:
    """A mean number of requests, as nobody sees half of one: `2,002`, `3`, `under 1`."""
    if _LEAST_TOLD <= value < _NEARLY_ONE:
        return "under 1"
    return f"{min(value, 1e9):,.0f}"


def _wait(value: float) -> str:
    """A mean number of requests that wait: `24 wait`, `1 waits`, `at times 1 waits`."""
    if _LEAST_TOLD <= value < _NEARLY_ONE:
        return "at times 1 waits"
    number = requests(value)
    return f"{number} waits" if number == "1" else f"{number} wait"


def decimal(value: float) -> str:
    """A number of what can be had in parts, such as cores and requests per second: `24`, `3.4`."""
    value = min(value, 1e9)
    # From what rounds to 10.0 on, and where the decimal would be 0, there is none.
    if value >= 9.95 or abs(value - round(value)) < 0.05:
        return f"{value:.0f}"
    return f"{value:.1f}"


def _tokens(value: float) -> str:
    """A number of tokens: `800`, `3.2k`, `1.1M`."""
    for least, unit in ((1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{min(value / least, 99999.0):.3g}{unit}"
    return f"{value:.0f}"


def _latency(value: float) -> str:
    """`40 ms`, `1.2 s`."""
    if value < 0.00995:  # below what rounds to 10 ms
        return f"{value * 1e3:.1f} ms"
    if value < 0.9995:  # below what rounds to 1,000 ms
        return f"{value * 1e3:.0f} ms"
    return f"{min(value, 1e6):.3g} s"


def lasting(seconds: float) -> str:
    """`45 s`, `5 min`, `3 h`."""
    for length, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * length or (length == 60.0 and seconds >= 90.0):
            return f"{min(seconds / length, 9999.0):.0f} {unit}"
    return f"{seconds:.0f} s"


def lasted(seconds: float) -> str:
    """A time that goes on, in steps below 2 min, so that texts of some seconds ago are right: `over 30 s`, `5 min`."""
    if seconds >= 120.0:
        return lasting(seconds)
    for least, step in ((30.0, 30.0), (10.0, 10.0), (2.0, 2.0)):
        if seconds >= least:
            return f"over {seconds // step * step:.0f} s"
    return "a moment"


def gib(size_bytes: float) -> str:
    """`38 GiB`, `0.4 GiB`, `under 0.1 GiB`."""
    size = size_bytes / GIB
    if size >= 9.5:
        return f"{size:.0f} GiB"
    if 0.0 < size < 0.05:  # what would round to 0.0
        return "under 0.1 GiB"
    return f"{size:.1f} GiB"


def price_per_hour_text(per_hour: float) -> str:
    """`14.9 $/h`, in the user's currency."""
    if per_hour >= 0.95:
        return f"{per_hour:,.1f} $/h"
    return f"{per_hour:.2f} $/h"


def _cores(value: float) -> str:
    """`5.6 cores`, `1 core`."""
    if abs(value - 1.0) < 0.05:
        return "1 core"
    return f"{decimal(value)} cores"


def _bytes(value: float) -> str:
    """`14.2 GB`, `1.2 TB`, in decimal units."""
    if value >= 9.995e11:
        return f"{value / 1e12:.3g} TB"
    if value >= 9.995e8:
        return f"{value / 1e9:.3g} GB"
    return f"{value / 1e6:.3g} MB"


def _per_minute(per_s: float) -> str:
    """`about 12`, `less than one`: how many a minute."""
    per_minute = per_s * 60.0
    if per_minute >= 0.5:
        return f"about {min(per_minute, 1e9):.0f}"
    return "less than one"


def _verb_of_others(number: float) -> str:
    """Ending and verb behind `other` in a sentence about so many of them: `s are`, ` is`."""
    if number > 1.0:
        return "s are"
    return " is"


_NUMBER_FORMATS: Final[Mapping[str, Callable[[float], str]]] = {
    "percent": _percent,
    "requests": requests,
    "wait": _wait,
    "of_requests": lambda value: f"{requests(value)} request{'' if requests(value) == '1' else 's'}",
    "decimal": decimal,
    "whole": lambda value: f"{math.ceil(min(value, 1e9))}",
    "tokens": _tokens,
    "thousands": lambda value: f"{min(value, 1e9):,.0f}",
    "latency": _latency,
    "lasting": lasting,
    "lasted": lasted,
    "gib": gib,
    "money": price_per_hour_text,
    "age": age,
    "amount": amount,
    "count": lambda value: f"{value:.0f}",
    "cores": _cores,
    "rate": lambda value: f"{value:,.2f}",
    "factor": lambda value: f"{value:.1f}x",
    "seconds": lambda value: f"{value:.1f} s",
    "ghz": lambda value: f"{value / 1e9:.2f}",
    "bytes": _bytes,
    "gpus": lambda value: counted(round(value), "GPU"),
    "ecc_errors": lambda value: counted(round(value), "uncorrectable ECC error"),
    "per_minute": _per_minute,
    "others": _verb_of_others,
    "xid": lambda value: xid_of(int(value)).text,
    "xid_head": lambda value: xid_of(int(value)).text.partition(":")[0],
}
_TIMES_OF_DAY: Final = frozenset({"clock", "minute"})
"""Formats of Unix times, which a sentence's clock gives: with seconds, and without."""
NUMERIC: Final = frozenset(_NUMBER_FORMATS) | _TIMES_OF_DAY
"""Formats of parameters that are numbers."""
_QUANTITIES: Final[Mapping[str, str]] = {
    "DRAM": GPU["bandwidth_bytes_per_s"].name,
    "SM": GPU["sm_active_ratio"].name,
    "KV": ENGINE["kv_usage_ratio"].name,
}
"""Names in the parameters of verdicts -> the word of the glossary."""


def _host_part(code: str, parameters: Parameters) -> str:
    """A part of the host with its figure: `the CPU (97% of all cores)`."""
    words = HOST_PARTS.get(code, "the host")
    return words.format(_host_figure(code, parameters.get("value", 0.0)))


_WORD_FORMATS: Final[Mapping[str, Callable[[str, Parameters], str]]] = {
    "quantity": lambda code, _: _QUANTITIES.get(code) or clean(code, _MOST_CHARACTERS),
    "fault": lambda code, _: FAULTS.get(code) or clean(code, _MOST_CHARACTERS),
    "fault_began": lambda code, _: (FAULTS.get(code) or clean(code, _MOST_CHARACTERS)).removeprefix("is "),
    "signals": lambda codes, _: ", ".join(filled_sentence(SIGNALS, code, {}) for code in codes.split()),
    "setting": lambda code, _: FACT_NAMES.get(code) or clean(code, _MOST_CHARACTERS),
    "host_part": _host_part,
    "command": lambda command, _: clean(command, _MOST_COMMAND),
}


class TemplateParameter(NamedTuple):
    """A parameter in a template."""

    name: str
    sign: str
    """`:` before a format, `=` before a word, or empty."""
    spec: str
    """The format or the word."""


TemplatePart: TypeAlias = "str | TemplateParameter | list[list[TemplatePart]]"
"""Text, a parameter, or alternatives, each a list of parts."""


def _host_figure(code: str, value: float | str) -> str:
    """A figure of the host: bytes per second of the network, else a share."""
    number = value if isinstance(value, float) else 0.0
    if code == "network_received":
        return f"{_bytes(number)}/s"
    return _percent(number)


@lru_cache(maxsize=1024)
def parse_template(template: str) -> list[TemplatePart]:
    """The parts of a template. Brackets that are not of the language are written as they are: `[[model]]`, `[dcgm]`."""
    plain = template
    if "[[endpoint" in template:  # in the place of these brackets stand characters that no sentence has
        plain = template.replace("[[", "\x01").replace("]]", "\x02")
    parser = _Parser()
    end = 0
    for token in _TEMPLATE_TOKEN.finditer(plain):
        if token.start() > end:
            parser.add(plain[end : token.start()])
        end = token.end()
        if token["bracket"]:
            parser.add_bracket(token["bracket"])
        else:
            parser.add(TemplateParameter(token["name"], sign=token["sign"] or "", spec=token["spec"] or ""))
    parser.add(plain[end:])
    return parser.parts


class _Parser:
    """Puts the parts of a template together; alternatives may stand in alternatives."""

    def __init__(self) -> None:
        self.parts: list[TemplatePart] = []
        self._open = [self.parts]
        """The parts to which the next one is added, the innermost alternative last."""
        self._alternatives: list[list[list[TemplatePart]]] = []
        """Alternatives that are complete, of each bracket that is open."""

    def add(self, part: TemplatePart) -> None:
        """Add a text or a parameter."""
        self._open[-1].append(part)

    def add_bracket(self, sign: str) -> None:
        """Begin, divide or end alternatives. A `|` outside of brackets is a text."""
        if sign == "[":
            self._open.append([])
            self._alternatives.append([])
        elif sign == "]":
            last = self._open.pop()
            self.add([*self._alternatives.pop(), last])
        elif self._alternatives:
            self._alternatives[-1].append(self._open[-1])
            self._open[-1] = []
        else:
            self.add(sign)


def fill_template(template: str, parameters: Parameters, clock: Clock = clock_utc) -> str:
    """The sentence of a template; a parameter that it must have and has not is `?`."""
    if "{" not in template:
        return template
    sentence = "".join(_part_text(part, parameters, clock) or "" for part in parse_template(template))
    return sentence.replace("\x01", "[[").replace("\x02", "]]")


def _part_text(part: TemplatePart, parameters: Parameters, clock: Clock, *, must: bool = False) -> str | None:
    """A part as text.

    None where a word that it asks for is another, or a parameter that it `must` have is not there.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return _first_complete(part, parameters, clock)
    value = parameters.get(part.name)
    if value is None:
        if must:
            return None
        return UNKNOWN_TEXT
    if part.sign == "=":
        if value == part.spec:
            return ""
        return None
    if not isinstance(value, str):
        return _number_text(value, part.spec, clock)
    if part.spec in _WORD_FORMATS:
        return _WORD_FORMATS[part.spec](value, parameters)
    if part.spec in NUMERIC and not _NUMBERS.fullmatch(value):
        return UNKNOWN_TEXT  # text of a peer in the place of a number
    return clean(value, _MOST_CHARACTERS)


def _number_text(value: float, spec: str, clock: Clock) -> str:
    """A number in its format."""
    try:
        if spec in _TIMES_OF_DAY:
            return _time_of_day(value, spec, clock)
        if spec in _NUMBER_FORMATS:
            return _NUMBER_FORMATS[spec](value)
        return f"{value:g}"
    except (ValueError, OverflowError):  # of another gpumon: no such time, no such number
        return UNKNOWN_TEXT


def _time_of_day(wall_s: float, spec: str, clock: Clock) -> str:
    """A Unix time as its clock gives it; as `minute` without the seconds: `13:13 UTC`."""
    time_of_day = clock(wall_s)
    if spec == "minute":
        return _SECONDS_OF_CLOCK.sub("", time_of_day, count=1)
    return time_of_day


def _first_complete(alternatives: list[list[TemplatePart]], parameters: Parameters, clock: Clock) -> str:
    """The first alternative of which all parameters are there; empty where there is none."""
    for alternative in alternatives:
        pieces = [_part_text(part, parameters, clock, must=True) for part in alternative]
        if None not in pieces:
            return "".join([piece for piece in pieces if piece])
    return ""
