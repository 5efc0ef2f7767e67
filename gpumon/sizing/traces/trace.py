"""A trace: requests with their arrivals, lengths and prefix hashes, and how far of a file it is taken."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Final, NamedTuple

from gpumon.readings.format import counted
from gpumon.sizing.imports.files import FilePlace, refusal, to_number

MOST_TRACE_REQUESTS: Final = 2_000_000
"""Requests that one trace may have: more take minutes to play and tell nothing new."""
_MOST_ROWS_AFTER: Final = 10_000
"""Requests one after the other behind the cut, after which a file is read no further."""
_PIECES: Final = (16, 32, 64, 128, 256, 512, 1024)
"""Tokens that one hash may stand for: 512 in Mooncake's traces, 16 in Alibaba's."""
MOST_TRACE_S: Final = 366 * 86400.0
"""Seconds between the first request and any other: more is a wrong unit, or a zero among dates."""
LARGEST_LENGTH: Final = 100_000_000
"""Tokens of a prompt or an answer beyond which a file is no trace."""
_DATED: Final = re.compile(r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})(\.\d+)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?")
"""A date with a time, its fraction of a second, and its zone."""
_TIME_FORMS: Final = "a number of seconds, or a time such as 2023-11-16 18:17:03.97"


class TracedRequest(NamedTuple):
    """One request of a trace."""

    arrival_s: float
    """Seconds, from any moment on; NaN where the file has no times."""
    prompt: int
    """Tokens."""
    answer: int
    """Tokens."""
    prefix: tuple[int, ...] = ()
    """Hashes of the pieces of its prompt: equal ones stand for equal tokens up to and with that piece."""


class Trace(NamedTuple):
    """Requests of a file by rising arrival, of which the first one comes at time 0 or later."""

    requests: tuple[TracedRequest, ...]
    kind: str
    """Format of the file, such as `Azure's LLM inference trace`."""
    piece: int = 0
    """Tokens of one piece of `prefix`; 0 where no request has hashes."""
    notes: tuple[str, ...] = ()
    """Assumptions, and the number of requests that are left out."""

    @property
    def timed(self) -> bool:
        """Whether the file says when requests arrive."""
        return bool(self.requests) and not math.isnan(self.requests[0].arrival_s)


class Cut(NamedTuple):
    """A part of a trace, in seconds from its first request on."""

    begin_s: float = 0.0
    end_s: float = math.inf


def seconds_of(text: object, unit_s: float, place: FilePlace, field: str) -> float:
    """The seconds of a time in a file: a number in a unit, or a date with a time. Raises ImportRefused."""
    number = to_number(text)
    if number is not None and math.isfinite(number):
        return number * unit_s
    match = _DATED.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise refusal(place, field, f"is {str(text)[:40]!a}", _TIME_FORMS)
    zone = "+00:00" if match[3] in (None, "Z", "UTC") else match[3]
    if ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    try:
        whole_s = datetime.fromisoformat(match[1] + zone).timestamp()
    except ValueError:
        raise refusal(place, field, f"is {text!a}", _TIME_FORMS) from None
    return whole_s + float(match[2] or 0.0)


def tokens_of(value: object, place: FilePlace, field: str) -> int:
    """A number of tokens in a file. Raises ImportRefused."""
    number = to_number(value)
    if number is None or not 0.0 <= number <= LARGEST_LENGTH:
        raise refusal(place, field, f"is {str(value)[:40]!a}", f"tokens from 0 to {LARGEST_LENGTH:,}")
    return round(number)


class TraceReader:
    """Takes the requests of a file one after the other, cuts it, and leaves out those without tokens."""

    def __init__(self, place: FilePlace, cut: Cut) -> None:
        self._place = place
        self._cut = cut
        self._requests: list[TracedRequest] = []
        self._first_s: float | None = None
        self._taken = 0
        self._without_tokens = 0
        self._rows_after = 0
        """Requests one after the other that came behind the cut."""

    @property
    def is_past_cut(self) -> bool:
        """Whether so many requests came behind the cut that none before it will follow: traces are nearly sorted."""
        return self._rows_after > _MOST_ROWS_AFTER

    def take(self, request: TracedRequest) -> None:
        """Add a request, unless it is outside the cut or has no tokens. Raises ImportRefused for too many."""
        self._taken += 1
        arrival_s = request.arrival_s
        if self._first_s is None and not math.isnan(arrival_s):
            self._first_s = arrival_s
        if self._first_s is not None:
            arrival_s -= self._first_s
            if abs(arrival_s) > MOST_TRACE_S:
                raise refusal(
                    self._place,
                    "",
                    f"request {self._taken} is {abs(arrival_s):.3g} s from the first one",
                    f"{MOST_TRACE_S:,.0f} s (--trace-unit ms, us or ns where its times are no seconds)",
                )
            if arrival_s >= self._cut.end_s:
                self._rows_after += 1
                return
            self._rows_after = 0
            if self._cut.begin_s and arrival_s < self._cut.begin_s:
                return
            arrival_s -= self._cut.begin_s
        if request.prompt < 1 or request.answer < 1:
            self._without_tokens += 1
            return
        if len(self._requests) >= MOST_TRACE_REQUESTS:
            raise refusal(
                self._place, "", f"has more than {MOST_TRACE_REQUESTS:,} requests", "a part of it, by --trace-to"
            )
        self._requests.append(request._replace(arrival_s=arrival_s))

    def trace(self, kind: str) -> Trace:
        """The requests by rising arrival. Raises ImportRefused where none is left."""
        if not self._taken:
            raise refusal(self._place, "", "has no request")
        if not self._requests:
            why = "no request lies between --trace-from and --trace-to"
            if self._without_tokens:
                why = "all requests are without tokens"
            raise refusal(self._place, "", f"{why}, of {self._taken:,} in it")
        notes = []
        if self._without_tokens:
            left_out = counted(self._without_tokens, "request")
            notes.append(f"{left_out} of the trace without tokens left out: what failed has none")
        requests = sorted(self._requests, key=_arrival_s)
        earliest_s = _arrival_s(requests[0])
        if earliest_s < 0.0:  # before the first one of the file
            requests = [request._replace(arrival_s=request.arrival_s - earliest_s) for request in requests]
        piece, hash_notes = _piece_of(requests)
        return Trace(tuple(requests), kind, piece, (*notes, *hash_notes))


def _arrival_s(request: TracedRequest) -> float:
    """Its arrival in seconds; 0 in a trace without times, which keeps its order."""
    return 0.0 if math.isnan(request.arrival_s) else request.arrival_s


def _piece_of(requests: list[TracedRequest]) -> tuple[int, tuple[str, ...]]:
    """Tokens of one piece, by the number of hashes of each prompt; 0 and a note where no size fits all prompts."""
    hashed = [request for request in requests if request.prefix]
    if not hashed:
        return 0, ()
    for piece in _PIECES:
        if all(request.prompt // piece <= len(request.prefix) <= -(-request.prompt // piece) for request in hashed):
            return piece, (f"prefix hits by the trace's hashes, each of {piece} tokens",)
    allowed = ", ".join(str(piece) for piece in _PIECES)
    return 0, (f"the hashes of the trace are left out: their number fits no piece of {allowed} tokens of a prompt",)
