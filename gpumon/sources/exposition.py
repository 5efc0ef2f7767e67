"""Scanner of Prometheus text: finds the wanted series in a page, within bounds, at a hundredth of a full parse."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import compress
from operator import ne
from typing import Final, NamedTuple

import msgspec

MOST_LINES: Final = 200_000
"""Lines looked at in one page."""
MOST_LINE_BYTES: Final = 64 * 1024
"""A longer line is skipped."""
MOST_SAMPLES: Final = 20_000
"""Wanted samples taken from one page."""
MOST_LABELS: Final = 128
"""Labels of a series; a line with more is skipped."""
MOST_LABEL_CHARS: Final = 1024
"""Characters kept of one label value; the rest is cut."""
_MOST_REPEATED_BYTES: Final = 256 * 1024
"""Size up to which a page is kept, to look at what is new in the next one."""
MOST_KNOWN_BYTES: Final = 1024 * 1024
"""Size of the line starts and labels that are remembered from page to page; beyond it all are forgotten."""


class Series(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One time series. A scanner makes one object per series, so identity is equality.

    Many live for long and none is in a cycle: the garbage collector need not look at them.
    """

    name: str
    labels: dict[str, str]


class Scan(NamedTuple):
    """The samples of one page. A value may be NaN or infinite where the page says so."""

    values: dict[Series, float]
    """The wanted series in page order; of one that stands there twice, the last value."""
    duplicates: int
    """Samples that another one of the same series in this page replaced."""
    skipped: int
    """Lines that are no sample, comment or blank."""
    cut: bool
    """A bound was met: the rest of the page was not looked at."""
    open_metrics: bool = False
    """The page ends as OpenMetrics does."""


class _Sample(NamedTuple):
    """One line of a wanted series."""

    name: str
    labels: dict[str, str]
    value: float
    head: bytes
    """The line up to its value, with the space before it; empty where the line is not in that plain form."""


_UNSEEN: Final = Series("", {})
"""Stands for a line start that is not remembered; None for one of a series that is not wanted."""
_HASH: Final = ord("#")
"""Begins a comment."""
_CLOSE_ENOUGH_BYTES: Final = 64
"""Precision of the halving in `_shared_ends`: about a line, as what is shared is cut back to whole lines anyway."""
_END_BYTES: Final = 16
"""Bytes at the end of a page in which OpenMetrics' `# EOF` stands, with some blanks behind it."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=[ \t{])")
"""A metric name, which ends before a blank or a brace."""
_QUOTED = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
"""A text in quotes with escapes; its group is what stands between the quotes."""
_TERM = re.compile(rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_:]*)|{_QUOTED})\s*(?:=\s*{_QUOTED}\s*)?(,|(?=\}}))")
"""A label with its value, or a name in quotes alone, up to the comma behind it or to the closing brace."""
_ESCAPE = re.compile(r"\\([\\n\"])")
_ESCAPED = {"\\": "\\", "n": "\n", '"': '"'}


class Scanner:
    """Reads page after page of one endpoint and keeps only the samples named in `names` (full sample names).

    It remembers the start of every line of earlier pages (everything before the value) together with the series that
    it stands for. A page that repeats them, in whatever order, costs one dictionary look-up a line; every line is
    checked against its whole remembered start, so a page that changes is never misread. Of a page whose lines are those
    of the one before, in that order, only the lines are looked at of which the value is another, and all at once.
    Whatever a page holds, `scan` raises nothing.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._known: dict[bytes, Series | None] = {}
        """Line start -> its series; None where it is not a wanted one."""
        self._known_bytes = 0
        self._series: dict[str, Series] = {}
        """By name and labels as one text, which the garbage collector need not look into."""
        self._texts: dict[str, str] = {}
        """Each name and label value once, however many series have it."""
        self._last: tuple[bytes, Scan] | None = None
        """The last page and its samples, if it was whole and without duplicates."""
        self._heads: list[bytes] = []
        """The text before the value in each of its lines; empty until the first time that the line changes."""
        self._wanted: list[Series | None] = []
        """The series of each of these lines, where it is a wanted one."""

    @property
    def warm(self) -> bool:
        """Whether it has read a page before: the first takes ten times as long."""
        return bool(self._known)

    def scan(self, body: bytes) -> Scan:
        """The wanted samples of a page (text format 0.0.4 or 1.0.0, or OpenMetrics)."""
        if self._known_bytes >= MOST_KNOWN_BYTES:
            self._forget()
        repeated = self._scan_repeated(body)
        if repeated is not None:
            return repeated
        lines = body.split(b"\n", MOST_LINES)
        is_too_long = len(lines) > MOST_LINES
        if is_too_long:
            lines.pop()  # the rest of the page in one piece
        scan = self._read_lines(lines)
        is_open_metrics = body[-_END_BYTES:].rstrip().endswith(b"# EOF")
        scan = scan._replace(cut=scan.cut or is_too_long, open_metrics=is_open_metrics)
        self._keep_page(body, scan, len(lines))
        return scan

    def _read_lines(self, lines: Sequence[bytes]) -> Scan:
        """The wanted samples of these lines, up to the bound.

        A remembered line start and a plain number need no parsing. float() would take `1_0`, which the format does not.
        """
        values: dict[Series, float] = {}
        samples = 0
        skipped = 0
        known = self._known.get
        for line in lines:
            if not line or line[0] == _HASH:
                continue
            begin = line.rfind(b" ") + 1
            series = known(line[:begin], _UNSEEN)
            if series is None:
                continue
            tail = line[begin:]
            if series is not _UNSEEN and b"_" not in tail:
                try:
                    values[series] = float(tail)
                    samples += 1
                    continue
                except ValueError:
                    pass  # more than a plain number: read as a new line
            try:
                new_sample = self._new_sample(line)
            except ValueError:
                skipped += 1
                continue
            if new_sample is not None:
                new_series, value = new_sample
                values[new_series] = value
                samples += 1
            # After new lines only: one that is remembered costs a look-up, and `MOST_LINES` bounds those.
            if samples >= MOST_SAMPLES:
                return Scan(values, samples - len(values), skipped, cut=True)
        return Scan(values, samples - len(values), skipped, cut=False)

    def _keep_page(self, body: bytes, scan: Scan, line_count: int) -> None:
        """Keep a page to compare the next one with, if it was whole and without duplicates."""
        self._last = None
        self._heads = []
        self._wanted = []
        if scan.cut or scan.skipped or scan.duplicates or len(body) > _MOST_REPEATED_BYTES:
            return
        self._last = (body, scan)
        self._heads = [b""] * line_count
        self._wanted = [None] * line_count

    def _scan_repeated(self, body: bytes) -> Scan | None:
        """The samples of a page that differs from the last one in values only; None where it does not."""
        if self._last is None:
            return None
        last, scan = self._last
        same_begin, same_end = _shared_ends(last, body)
        old_lines = _split_lines(last[same_begin : len(last) - same_end])
        lines = _split_lines(body[same_begin : len(body) - same_end])
        if len(old_lines) != len(lines):
            return None
        changed = [*map(ne, old_lines, lines)]
        first = body.count(b"\n", 0, same_begin)
        if not self._learn_heads(first, old_lines, changed):
            return None
        new_values = self._new_values(first, lines, changed)
        if new_values is None:
            return None
        values = scan.values.copy()
        values.update(new_values)
        repeated = scan._replace(values=values, duplicates=0, skipped=0, cut=False)
        self._last = (body, repeated)
        return repeated

    def _learn_heads(self, first: int, old_lines: Sequence[bytes], changed: Sequence[bool]) -> bool:
        """Note the heads of the changed lines of the last page, whose number `first` is that of `old_lines[0]`.

        Returns whether all of them are plain samples.
        """
        heads = self._heads[first : first + len(old_lines)]
        if all(compress(heads, changed)):
            return True
        for offset in compress(range(len(old_lines)), changed):
            if not heads[offset] and not self._learn_head(first + offset, old_lines[offset]):
                return False
        return True

    def _new_values(self, first: int, lines: Sequence[bytes], changed: Sequence[bool]) -> dict[Series, float] | None:
        """The values of the changed lines of a page, from its line `first` on.

        None where one differs from its old line in more than a plain value.
        """
        here = slice(first, first + len(lines))
        changed_lines = [*compress(lines, changed)]
        heads = [*compress(self._heads[here], changed)]
        if not all(map(bytes.startswith, changed_lines, heads)):
            return None
        if max(map(len, changed_lines), default=0) > MOST_LINE_BYTES:
            return None
        wanted = []
        tails = []
        for line, head, series in zip(changed_lines, heads, compress(self._wanted[here], changed), strict=True):
            if series is not None:
                wanted.append(series)
                tails.append(line[len(head) :])
        if b"_" in b"".join(tails):  # float() would take `1_0`
            return None
        try:
            return dict(zip(wanted, map(float, tails), strict=True))
        except ValueError:
            return None

    def _learn_head(self, index: int, line: bytes) -> bool:
        """Note head and series of a line, if it is a plain sample: from then on its value may be read as it stands.

        Returns whether it is one.
        """
        begin = line.rfind(b" ") + 1
        head = line[:begin]
        series = self._known.pop(head, _UNSEEN)
        if series is _UNSEEN:
            return False
        self._known[head] = series  # under the new bytes, which _heads keeps: not the same text twice
        if series is not None:
            try:
                _parse_number(_decode(line[begin:]))
            except ValueError:
                return False
        self._heads[index] = head
        self._wanted[index] = series
        return True

    def _new_sample(self, line: bytes) -> tuple[Series, float] | None:
        """The wanted sample of a line that is not remembered, which it is from now on; None where it has none.

        Raises ValueError where the line is nothing that the format knows.
        """
        sample = _parse_line(line, self._names)
        if sample is not None:
            series = self._series_of(sample)
            if sample.head:
                self._remember(sample.head, series)
            return series, sample.value
        head = line[: line.rfind(b" ") + 1]
        # Only a head with the whole name in it: else a wanted series could begin the same.
        if _NAME.match(_decode(head)):
            self._remember(head, None)
        return None

    def _series_of(self, sample: _Sample) -> Series:
        """The one object of a sample's series."""
        key = f"{sample.name} {sorted(sample.labels.items())!r}"
        series = self._series.get(key)
        if series is None:
            intern = self._texts.setdefault
            labels = {intern(name, name): intern(value, value) for name, value in sample.labels.items()}
            series = Series(intern(sample.name, sample.name), labels)
            # Kept beyond the bound too: within one page, duplicates must meet the same object.
            self._series[key] = series
            self._known_bytes += sum(map(len, labels.values()))
        return series

    def _remember(self, head: bytes, series: Series | None) -> None:
        """Remember the series of a line start, if there is room."""
        if self._known_bytes < MOST_KNOWN_BYTES:
            self._known[head] = series
            self._known_bytes += len(head)

    def _forget(self) -> None:
        """Remember nothing of earlier pages."""
        self._known.clear()
        self._series.clear()
        self._texts.clear()
        self._known_bytes = 0
        self._last = None


def _shared_ends(old: bytes, new: bytes) -> tuple[int, int]:
    """How many bytes two pages share at their start, in whole lines, and how many at their end, from a line's end on.

    In the page of an engine that does nothing, a line or two change. Both are found by halving: a comparison of bytes
    costs far less than one of lines.
    """
    begin = 0
    most = min(len(old), len(new))
    while most - begin > _CLOSE_ENOUGH_BYTES:
        middle = (begin + most + 1) // 2
        if old.startswith(new[begin:middle], begin):
            begin = middle
        else:
            most = middle
    begin = new.rfind(b"\n", 0, begin) + 1
    end = 0
    most = min(len(old), len(new)) - begin
    while most - end > _CLOSE_ENOUGH_BYTES:
        middle = (end + most + 1) // 2
        if old.endswith(new[len(new) - middle : len(new) - end], 0, len(old) - end):
            end = middle
        else:
            most = middle
    line_end = new.find(b"\n", len(new) - end)
    if line_end < 0:
        return begin, 0
    return begin, len(new) - line_end


def _split_lines(text: bytes) -> list[bytes]:
    """The lines of a text with their ends, in half the time of `split`, which looks at each byte by itself."""
    return BytesIO(text).readlines()


def _parse_line(line: bytes, names: frozenset[str]) -> _Sample | None:
    """The sample of a line; None where it has no wanted one. Raises ValueError where the format does not know it."""
    if len(line) > MOST_LINE_BYTES:
        raise ValueError("too long")
    text = _decode(line).strip()
    if not text or text[0] == "#":
        return None
    match = _NAME.match(text)
    if match is None:
        name, labels, rest = _parse_labels(text)
        if not name:
            raise ValueError("no name")
    else:
        name = match[0]
        if name not in names:
            return None
        labels = {}
        rest = text[match.end() :].lstrip()
        if rest.startswith("{"):
            second_name, labels, rest = _parse_labels(rest)
            if second_name:
                raise ValueError("two names")
    if name not in names:
        return None
    return _Sample(name, labels, _parse_value(rest), _plain_head(line, rest))


def _plain_head(line: bytes, rest: str) -> bytes:
    """The line up to its value; empty where more than a value stands behind the labels."""
    begin = line.rfind(b" ") + 1
    if begin == 0 or len(rest.split()) != 1:
        return b""
    if _decode(line[begin:]).strip() != rest.strip():
        return b""
    return line[:begin]


def _decode(line: bytes) -> str:
    """Text of a line; what is no UTF-8 is a replacement character."""
    return line.decode("utf-8", "replace")


def _parse_labels(text: str) -> tuple[str, dict[str, str], str]:
    """The metric name inside the braces (or empty), the labels, and the text after the braces. Raises ValueError."""
    if not text.startswith("{"):
        raise ValueError("no labels")
    labels: dict[str, str] = {}
    metric_name = ""
    position = 1
    while position < len(text):
        rest = text[position:].lstrip()
        if rest.startswith("}"):
            return metric_name, labels, rest[1:]
        if len(labels) >= MOST_LABELS:
            raise ValueError("too many labels")
        name, value, position = _parse_term(text, position)
        if value is not None:
            if name in labels:
                raise ValueError("a label twice")
            labels[name] = value[:MOST_LABEL_CHARS]
        elif metric_name:
            raise ValueError("two names")
        else:
            metric_name = name
    raise ValueError("no end of the labels")


def _parse_term(text: str, position: int) -> tuple[str, str | None, int]:
    """One term inside the braces, and the position behind it. Raises ValueError.

    It is a label with its value, or the metric's name in quotes, whose value is None.
    """
    term = _TERM.match(text, position)
    if term is None:
        raise ValueError("malformed labels")
    plain_name, quoted_name, value, _ = term.groups()
    if value is not None:
        value = _unescape(value)
    elif plain_name is not None:
        raise ValueError("a label without a value")
    if plain_name is not None:
        return plain_name, value, term.end()
    return _unescape(quoted_name), value, term.end()


def _unescape(text: str) -> str:
    """A label value or name in quotes without its escapes."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)


def _parse_value(rest: str) -> float:
    """The value of `value [timestamp] [# exemplar]`. Raises ValueError."""
    first, *behind = rest.split(None, 3) or [""]
    value = _parse_number(first)
    if behind and not behind[0].startswith("#"):
        _parse_number(behind.pop(0))  # the timestamp
    if behind and not behind[0].startswith("#"):
        raise ValueError("more than a value and a time")
    return value


def _parse_number(token: str) -> float:
    """A number as exporters spell it: `1.0`, `1e+06`, `+Inf`, `NaN`, and C's `-nan(ind)`. Raises ValueError."""
    if "_" in token:
        raise ValueError("no number")
    try:
        return float(token)
    except ValueError:
        if token.lower().lstrip("+-").startswith("nan"):
            return math.nan
        raise
