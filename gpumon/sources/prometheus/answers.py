"""Answers of Prometheus' HTTP API decoded: the series of an instant or range query, each series one object for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.text import clean
from gpumon.sources.exposition import MOST_LABEL_CHARS, MOST_LABELS, Series

MOST_SERIES: Final = 1_000_000
"""Series taken from one answer."""
_MOST_KNOWN: Final = 2_000_000
"""Series remembered from one answer to the next."""
_LONGEST_HOLD_S: Final = 0.01
"""Seconds after which work in a thread lets the event loop in."""
VALUE: Final = b',"value":['
"""Between the labels and the value of an item of an instant query."""
VALUES: Final = b',"values":['
"""Between the labels and the points of an item of a range query."""
BEGIN: Final = b'"result":['
"""Before the first item."""
ITEM: Final = b'{"metric":{'
"""Beginning of an item. No text in JSON holds it: a quotation mark in one has a backslash before it."""
PIECE_BYTES: Final = 512 * 1024
"""Bytes that are decoded at once: the decoder lets no other thread in."""
_ITEMS_BETWEEN_PAUSES: Final = 256
"""Items of a vector between two looks at the clock: one is decoded in a microsecond."""
_MOST_WARNINGS: Final = 8
"""Warnings of one answer that are shown."""
_PARTIAL: Final = (
    "its answer is partial (isPartial): some of its storage nodes do not answer, so figures may be missing"
)
_MOST_TEXT: Final = 200
"""Characters of a server's own text that are shown."""


class Vector(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One series of an instant query. The value may be NaN or infinite; labels are text from outside."""

    series: Series
    at_s: float
    """Unix time of the evaluation, not of the scrape."""
    value: float


class Matrix(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One series of a range query: Unix time and value of each point, in order."""

    series: Series
    points: list[tuple[float, float]]


class QueryResult(NamedTuple):
    """The data of an answer."""

    type: str
    items: list[msgspec.Raw]
    """Series of a vector or matrix, not yet decoded."""
    warnings: tuple[str, ...]
    """The server's words on a partial answer, safe to show."""
    error: str
    """Why there is none, safe to show."""
    cut: bool
    """It has more than `MOST_SERIES`."""


class _Data(msgspec.Struct):
    """`data` of an answer."""

    resultType: str = ""  # noqa: N815 (Prometheus spells it so)
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Body(msgspec.Struct):
    """An answer."""

    status: str
    data: _Data | None = None
    errorType: str = ""  # noqa: N815 (Prometheus spells it so)
    error: str = ""
    warnings: list[str] | None = None
    isPartial: bool = False  # noqa: N815 (VictoriaMetrics spells it so)


class _Item(msgspec.Struct):
    """A series in an answer: labels, and a point or several."""

    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] | None = None


class _Head(msgspec.Struct):
    """The begin of an item: its labels."""

    metric: dict[str, str] = {}


_BODY: Final = msgspec.json.Decoder(_Body)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ITEM: Final = msgspec.json.Decoder(_Item)
_HEAD: Final = msgspec.json.Decoder(_Head)
_PAIR: Final = msgspec.json.Decoder(tuple[float, str])
_PAIRS: Final = msgspec.json.Decoder(list[tuple[float, str]])


def envelope_of(body: bytes) -> QueryResult | None:
    """The envelope of an answer, with its items not yet decoded; None where it is none of Prometheus' API.

    The items of a long list are decoded in pieces: at one go they would hold the interpreter for too long.
    """
    begin = body.find(BEGIN) + len(BEGIN)
    last = _last_item(body, begin)
    try:
        envelope = _BODY.decode(body[:begin] + body[last:])
        result = envelope.data or _Data()
        items = [result.result]
        if result.resultType in ("vector", "matrix"):
            items = [*_items(body, begin, last), *_ITEMS.decode(result.result)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    warnings = [clean(text, _MOST_TEXT) for text in (envelope.warnings or ())[:_MOST_WARNINGS]]
    if envelope.isPartial:
        warnings.append(_PARTIAL)
    is_cut = len(items) > MOST_SERIES
    return QueryResult(result.resultType, items[:MOST_SERIES], tuple(warnings), _error_of(envelope), is_cut)


def _last_item(body: bytes, begin: int) -> int:
    """Position of the last item of a long list that begins at `begin`; for a short list, or another one, `begin`."""
    last = body.rfind(ITEM)
    if last - begin < PIECE_BYTES or not body.startswith(ITEM, begin):
        return begin
    return last


def _error_of(envelope: _Body) -> str:
    """The server's reason why there are no data; empty where there are."""
    if envelope.status == "success":
        return ""
    return clean(envelope.error or envelope.errorType or "it gives no reason", _MOST_TEXT)


def _items(body: bytes, begin: int, end: int) -> Iterator[msgspec.Raw]:
    """The items between these positions, each with a comma after it, decoded in pieces. Raises DecodeError."""
    pause = _Pause()
    while begin < end:
        after = body.find(ITEM, min(begin + PIECE_BYTES, end))
        piece = body[begin:after].rstrip()
        if not piece.endswith(b","):
            raise msgspec.DecodeError("items have a comma between them")
        yield from _ITEMS.decode(b"[" + piece[:-1] + b"]")
        begin = after
        pause()


class AnswerDecoder:
    """Decodes answer after answer. A series keeps its object, so that identity is equality, as with a `Scanner`.

    It remembers the start of every item (all before the value) with the series that it stands for: an answer that
    repeats them costs one dictionary look-up a series. Items in another form are decoded as any JSON. Threads may
    share it.
    """

    def __init__(self) -> None:
        self._earlier: dict[bytes, Series] = {}
        """Start of an item -> its series, of answers before the last `forget`."""
        self._used: dict[bytes, Series] = {}
        """Start of an item -> its series, of answers since then."""
        self._texts: dict[str, str] = {}
        """Labels' names and values, so that equal ones are one object."""
        self._lock = threading.Lock()

    def vectors(self, result: QueryResult) -> list[Vector]:
        """The series of an instant query; a scalar is one without labels. Native histograms are left out."""
        if result.type == "scalar":
            try:
                pair = _PAIR.decode(result.items[0])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return []
            return [Vector(Series("", {}), *_time_and_value(pair))]
        with self._lock:
            decoded: list[Vector] = []
            pause = _Pause()
            for number, raw in enumerate(result.items):
                if not number % _ITEMS_BETWEEN_PAUSES:
                    pause()
                vector = self._vector(bytes(raw))
                if vector is not None:
                    decoded.append(vector)
            return decoded

    def matrices(self, result: QueryResult) -> list[Matrix]:
        """The series of a range query."""
        with self._lock:
            pause = _Pause()
            decoded: list[Matrix] = []
            for raw in result.items:
                pause()
                matrix = self._matrix(bytes(raw))
                if matrix is not None:
                    decoded.append(matrix)
            return decoded

    def forget(self) -> None:
        """Leave out of the memory what no answer had since the last call."""
        with self._lock:
            self._earlier = self._used
            self._used = {}
            self._texts = {}

    def _vector(self, raw: bytes) -> Vector | None:
        """An item of an instant query; None where it has no value."""
        head, _, tail = raw.rpartition(VALUE)
        series = self._used.get(head) or self._series(head)
        if series is not None and tail.endswith(b'"]}'):
            at_text, _, text = tail.partition(b',"')
            try:
                return Vector(series, float(at_text), float(text[:-3]))
            except ValueError:
                pass
        item = _decode_item(raw)
        if item is None or item.value is None:
            return None
        at_s, value = _time_and_value(item.value)
        return Vector(self._series_of_labels(item.metric), at_s, value)

    def _matrix(self, raw: bytes) -> Matrix | None:
        """An item of a range query; None where it has no points."""
        head, _, tail = raw.rpartition(VALUES)
        series = self._used.get(head) or self._series(head)
        if series is not None:
            try:
                return Matrix(series, [_time_and_value(pair) for pair in _PAIRS.decode(b"[" + tail[:-1])])
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        item = _decode_item(raw)
        if item is None or not item.values:
            return None
        return Matrix(self._series_of_labels(item.metric), [_time_and_value(pair) for pair in item.values])

    def _series(self, head: bytes) -> Series | None:
        """The series of an item's start; None where that is no start of one."""
        series = self._earlier.get(head)
        if series is None:
            if not head:
                return None
            try:
                labels = _HEAD.decode(head + b"}").metric
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None
            series = self._new_series(labels)
        if len(self._used) < _MOST_KNOWN:
            self._used[head] = series
        return series

    def _series_of_labels(self, metric: dict[str, str]) -> Series:
        """The series with these labels, of an item in another form."""
        head = repr(sorted(metric.items())).encode("utf-8", "replace")
        series = self._used.get(head) or self._earlier.get(head) or self._new_series(metric)
        if len(self._used) < _MOST_KNOWN:
            self._used[head] = series
        return series

    def _new_series(self, metric: dict[str, str]) -> Series:
        """A series with these labels, its name among them, within the bounds of a page."""
        shared_text = self._texts.setdefault
        labels: dict[str, str] = {}
        for name, value in list(metric.items())[:MOST_LABELS]:
            text = value[:MOST_LABEL_CHARS]
            if text:
                labels[shared_text(name, name)] = shared_text(text, text)
        name = labels.pop("__name__", "")
        return Series(name, labels)


class _Pause:
    """Lets other threads in when it is called and some time has passed: decoding holds the interpreter."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def __call__(self) -> None:
        """Let other threads in, if the last time is longer ago than `_LONGEST_HOLD_S`."""
        if time.perf_counter() - self._since_s > _LONGEST_HOLD_S:
            time.sleep(0)
            self._since_s = time.perf_counter()


def _decode_item(raw: bytes) -> _Item | None:
    """An item as any JSON; None where it is none."""
    try:
        return _ITEM.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _time_and_value(pair: tuple[float, str]) -> tuple[float, float]:
    """A point as Unix time and value; NaN where its text is no number."""
    try:
        return pair[0], float(pair[1])
    except ValueError:
        return pair[0], float("nan")
