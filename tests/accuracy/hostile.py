"""Recorded and hand-made pages of every engine as polls 2 s apart, and the ways in which they are broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from gpumon.sources.engines.registry import ENGINE_ROWS
from tests.accuracy.pages import WALL_S
from tests.fakes.engine import CAPTURES, Capture, other_pages
from tests.fakes.http_server import Reply
from tests.sources.engines.contract import PAGES, Case, cases

Poll = Mapping[str, Reply]
"""Path -> what the server answers there now; status 0 is no answer at all."""
Lines = list[bytes]
Draw = Callable[..., Any]

NOTHING: Final = Reply(404)
EVERY_S: Final = 2
MOST_POLLS: Final = 6
MOST_TOLD: Final = 8
"""Lines of a difference that are shown."""
WANTED: Final = frozenset(name for row in ENGINE_ROWS for name in row.adapter().wanted_names)
"""Sample names that some adapter reads."""
GROWTH: Final = 0.01
"""By this share the counters of a page that stands alone grow from poll to poll."""

NUMBERS: Final = (
    b"NaN", b"-nan(ind)", b"-1", b"-0.0", b"0", b"+Inf", b"-Inf", b"1e308", b"1.7976931348623157e308", b"1e-320",
    b"1e30", b"1e16", b"1e12", b"1e9", b"9007199254740993", b"1e400", b"", b"x", b"0x10", b"1_000", b"12 13 14",
    b"\xd9\xa3", b"\x1b[2J7", b"7 # {", b"\xff\xfe\x00",
)  # fmt: skip
TEXTS: Final = (
    b"", b"\x1b[31mred\x1b[0m", b"\x1b]0;title\x07", b"\xe2\x80\xae\xe2\x80\x8b", b"[bold red]x[/]", b"a\\nb\\\\c\\\"d",
    b"\x00\x7f\xc2\x9b2J", b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"n" * 5000, b"\xe6\xa8\xa1" * 60,
    b"../../etc/passwd", b"1e308", b"-1", b"NaN", b"99999999999999999999", b"\r\n", b"/dev/zero\x00", b"%s{0}",
)  # fmt: skip
VALUES: Final = (
    b"null", b"true", b"-1", b"-0.5", b"0", b"1", b"1e308", b"1e400", b"NaN", b"18446744073709551616", b'""', b'"x"',
    b'"\\u001b[31m\\u0000"', b'"\\u202e\\u200b"', b'"\\ud800"', b"[]", b"{}", b"[[]]", b'{"":null}', b"9" * 400, b",",
)  # fmt: skip
"""What stands where a JSON scalar was."""
_LABEL: Final = re.compile(rb'="((?:[^"\\]|\\.)*)"')
_SCALAR: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\btrue\b|\bfalse\b|\bnull\b')
_PAIR: Final = re.compile(rb'"[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s\[\]{},"]+)\s*,?')
_CUMULATIVE: Final = re.compile(rb"(?:_total|_sum|_count|_bucket)$")


class Span(NamedTuple):
    """How long a recording is, and when it was made."""

    length_s: int
    wall_s: float
    """Unix time of its second 0."""


class Recording(NamedTuple):
    """What a server answered over time; `name` is that of the capture, the case or the page."""

    name: str
    span: Callable[[], Span]
    """Read when it is played: to list the tests, names are enough."""
    at: Callable[[int], Poll]
    """The answers at a second."""

    def __repr__(self) -> str:
        return self.name

    @property
    def length_s(self) -> int:
        """Its last second."""
        return self.span().length_s

    @property
    def wall_s(self) -> float:
        """Unix time of its second 0."""
        return self.span().wall_s

    def polls(self, start_s: int, count: int) -> list[Poll]:
        """So many polls from a second on."""
        return [self.at(start_s + at * EVERY_S) for at in range(count)]


def recordings() -> list[Recording]:
    """All captures, all cases of the engines' contract, and the pages that are of no engine."""
    return [*map(_captured, captures()), *map(_made, cases()), *_others()]


def captures() -> list[str]:
    """The names of all captures."""
    return sorted(file.parent.name for file in CAPTURES.glob("*/metrics.jsonl.gz"))


def _told(where: str, whole: Reply, broken: Reply) -> list[str]:
    if whole == broken:
        return []
    texts = [bytes(one.body).decode("utf-8", "backslashreplace").splitlines() for one in (whole, broken)]
    lines = [line for line in unified_diff(*texts, lineterm="", n=0) if line[:3] not in ("---", "+++", "@@ ")]
    shown = [f"  {ascii(line)[1:161]}" for line in lines[:MOST_TOLD]]
    return [f"{where}: {whole.status} -> {broken.status}, {len(lines)} lines differ", *shown]


def _captured(name: str) -> Recording:
    capture = Capture(name)
    still = other_pages(capture.engine)

    def at(second: int) -> Poll:
        met = {"/metrics": "metrics", **capture.others}
        answers = ((path, capture.answer(of, second)) for path, of in met.items())
        return {**still, **{path: Reply(one.status, one.body, one.content_type) for path, one in answers}}

    def span() -> Span:
        return Span(round(capture.scrapes[-1].t), float(capture.meta["t0_unix"]))

    return Recording(name, span, at)


def _made(case: Case) -> Recording:
    def at(second: int) -> Poll:
        number = second // EVERY_S
        bodies = case.polls[min(number, len(case.polls) - 1)]
        factor = 1.0 + GROWTH * number
        return {path: reply(body if is_json(body) else grown(body, factor)) for path, body in bodies.items()}

    return Recording(case.name, lambda: Span(2 * MOST_POLLS * EVERY_S, WALL_S), at)


def _others() -> Iterator[Recording]:
    for file in sorted((*PAGES.glob("not_engines/*.prom"), *PAGES.glob("dcgm/*.prom"))):
        page = {"/metrics": reply(file.read_bytes())}
        yield Recording(f"{file.parent.name}/{file.stem}", lambda: Span(0, WALL_S), lambda _, page=page: page)


def reply(body: bytes) -> Reply:
    """A body as its server sends it."""
    return Reply(200, body, "application/json") if is_json(body) else Reply(200, body)


def is_json(body: bytes) -> bool:
    """Whether a body begins as JSON does."""
    return body.lstrip()[:1] in (b"{", b"[")


def grown(page: bytes, factor: float) -> bytes:
    """A page whose counters have grown."""
    if factor == 1.0:
        return page
    lines = page.splitlines(keepends=True)
    names = [name_of(line) for line in lines]
    # Ray writes each counter a second time as a gauge without its ending.
    grow = {name for name in names if _CUMULATIVE.search(name) or name + b"_total" in names}
    return b"".join(_times(line, factor) if name in grow else line for line, name in zip(lines, names, strict=True))


def name_of(line: bytes) -> bytes:
    """The sample name of a line; empty where it is a comment."""
    return b"" if line.startswith(b"#") else re.split(rb"[{\s]", line, maxsplit=1)[0]


def _times(line: bytes, factor: float) -> bytes:
    head, _, value = line.rstrip(b"\n").rpartition(b" ")
    try:
        return b"%s %r\n" % (head, float(value) * factor)
    except ValueError:
        return line


class Page:
    """The lines of a page while it is broken, with those that some adapter reads."""

    def __init__(self, body: bytes) -> None:
        self.lines = body.splitlines(keepends=True)
        self.wanted = [at for at, line in enumerate(self.lines) if name_of(line).decode("ascii", "replace") in WANTED]

    def pick(self, draw: Draw) -> int:
        """The place of a line: mostly of one that is read."""
        places = self.wanted if self.wanted and draw(st.integers(0, 5)) else range(len(self.lines))
        return draw(st.sampled_from(places))

    def value(self, at: int) -> bytes:
        """The value of a line's sample."""
        return self.lines[at].rstrip(b"\n").rpartition(b" ")[2]

    def put(self, at: int, value: bytes) -> None:
        """Another value for it."""
        self.lines[at] = self.lines[at].rstrip(b"\n").rpartition(b" ")[0] + b" " + value + b"\n"


def _drop(draw: Draw, page: Page) -> None:
    del page.lines[page.pick(draw)]


def _drop_family(draw: Draw, page: Page) -> None:
    name = name_of(page.lines[page.pick(draw)])
    page.lines = [line for line in page.lines if name_of(line) != name]


def _double(draw: Draw, page: Page) -> None:
    page.lines.append(page.lines[page.pick(draw)])


def _move(draw: Draw, page: Page) -> None:
    page.lines.insert(draw(st.integers(0, len(page.lines) - 1)), page.lines.pop(page.pick(draw)))


def _turn(draw: Draw, page: Page) -> None:
    at = draw(st.integers(0, len(page.lines)))
    page.lines = [*reversed(page.lines[at:]), *page.lines[:at]]


def _garbage(draw: Draw, page: Page) -> None:
    page.lines[page.pick(draw)] = draw(st.sampled_from(TEXTS) | st.binary(max_size=40)) + b"\n"


def _cut_between(draw: Draw, page: Page) -> None:
    page.lines = page.lines[: draw(st.integers(0, len(page.lines)))]


def _double_other(draw: Draw, page: Page) -> None:
    page.lines.append(page.lines[page.pick(draw)])
    page.put(-1, draw(st.sampled_from(NUMBERS)))


def _value(draw: Draw, page: Page) -> None:
    page.put(page.pick(draw), draw(st.sampled_from(NUMBERS)))


def _multiply(draw: Draw, page: Page) -> None:
    at = page.pick(draw)
    page.lines[at] = _times(page.lines[at], draw(st.sampled_from((0.0, 0.5, 0.999, 1.001, 2.0, 10.0, 1e6))))


def _multiply_family(draw: Draw, page: Page) -> None:
    name, factor = name_of(page.lines[page.pick(draw)]), draw(st.sampled_from((0.5, 1.5, 10.0, 1e6, 1e9, 1e200)))
    page.lines = [_times(line, factor) if name_of(line) == name else line for line in page.lines]


def _swap(draw: Draw, page: Page) -> None:
    one, other = page.pick(draw), page.pick(draw)
    first, second = page.value(one), page.value(other)
    page.put(one, second)
    page.put(other, first)


def _label(draw: Draw, page: Page) -> None:
    at = page.pick(draw)
    if found := list(_LABEL.finditer(page.lines[at])):
        start, end = draw(st.sampled_from(found)).span(1)
        page.lines[at] = page.lines[at][:start] + draw(st.sampled_from(TEXTS)) + page.lines[at][end:]


def _label_everywhere(draw: Draw, page: Page) -> None:
    """One label's value, wherever it stands: a model with another name, a rank that is another."""
    if found := list(_LABEL.finditer(page.lines[page.pick(draw)])):
        old, new = draw(st.sampled_from(found))[0], b'="' + draw(st.sampled_from(TEXTS)) + b'"'
        page.lines = [line.replace(old, new) for line in page.lines]


def _cut(draw: Draw, page: Page) -> None:
    body = b"".join(page.lines)
    page.lines = body[: draw(st.integers(0, len(body)))].splitlines(keepends=True)


Change = Callable[[Draw, Page], None]
HARMLESS: Final[Sequence[Change]] = (_drop, _drop_family, _double, _move, _turn, _garbage, _cut_between)
"""They take away or repeat, and make no line say anything that it did not."""
CHANGES: Final[Sequence[Change]] = (
    *HARMLESS, _double_other, _value, _value, _multiply, _multiply_family, _swap, _label, _label_everywhere, _cut,
)  # fmt: skip


def broken_text(draw: Draw, body: bytes, changes: Sequence[Change]) -> bytes:
    """A page with up to three changes."""
    for change in draw(st.lists(st.sampled_from(changes), min_size=1, max_size=3)):
        page = Page(body)
        if page.lines:
            change(draw, page)
        body = b"".join(page.lines)
    return body


def broken_json(draw: Draw, body: bytes, *, harmless: bool) -> bytes:
    """A JSON answer with scalars replaced or left out, or cut."""
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.integers(0, 4))
        found = list((_PAIR if how == 0 else _SCALAR).finditer(body))
        if how == 1 or not found:
            body = body[: draw(st.integers(0, len(body)))]
        elif how == 0 or not harmless:
            start, end = draw(st.sampled_from(found)).span()
            body = body[:start] + (b"" if how == 0 else draw(st.sampled_from(VALUES))) + body[end:]
    return body


def _of_body(draw: Draw, one: Reply, changes: Sequence[Change]) -> Reply:
    body = one.body
    assert isinstance(body, bytes)
    if is_json(body):
        return one._replace(body=broken_json(draw, body, harmless=changes is HARMLESS))
    return one._replace(body=broken_text(draw, body, changes))


def _broken(draw: Draw, poll: Poll, changes: Sequence[Change]) -> Poll:
    answered = sorted(path for path, one in poll.items() if one.status == 200 and one.body)
    if not answered:
        return poll
    metrics = [path for path in answered if path.endswith(("/metrics", "/slots", "/models", "/api/ps"))]
    paths = draw(st.lists(st.sampled_from([*metrics, *metrics, *answered]), min_size=1, max_size=2, unique=True))
    return {**poll, **{path: _of_body(draw, poll[path], changes) for path in paths}}


class Pair(NamedTuple):
    """Polls as they were recorded, and the same with something missing."""

    whole: list[Poll]
    broken: list[Poll]
    late: bool = False
    """An older answer came again."""

    def __repr__(self) -> str:
        """What is broken, for the report of a test that failed."""
        told = [f"{len(self.whole)} polls" + (", late" if self.late else "")]
        for at, (whole, broken) in enumerate(zip(self.whole, self.broken, strict=True)):
            for path in sorted({*whole, *broken}):
                told += _told(f"poll {at} {path}", whole.get(path, NOTHING), broken.get(path, NOTHING))
        return "\n".join(told)


@st.composite
def harmless(draw: Draw, recording: Recording) -> Pair:
    """Lines left out, repeated or moved, answers missing, older ones again."""
    whole = _whole(draw, recording)
    polls, late = list(whole), False
    for at in draw(st.lists(st.integers(0, len(polls) - 1), min_size=1, max_size=3, unique=True)):
        how = draw(st.integers(0, 9))
        if how == 0:
            polls[at] = {path: Reply(draw(st.sampled_from((0, 503, 404)))) for path in polls[at]}
        elif how == 1:
            polls[at], late = whole[draw(st.integers(0, at))], True
        elif how == 2:
            _for_good(draw, polls, at)
        else:
            polls[at] = _broken(draw, polls[at], HARMLESS)
    return Pair(whole, polls, late)


def _for_good(draw: Draw, polls: list[Poll], at: int) -> None:
    """One family is gone from a poll on."""
    for path in [path for path, one in polls[at].items() if one.status == 200 and path.endswith("/metrics")][:1]:
        page = Page(bytes(polls[at][path].body))
        if not page.lines:
            return
        gone = name_of(page.lines[page.pick(draw)])
        for later in range(at, len(polls)):
            one = polls[later].get(path)
            if one is not None and isinstance(one.body, bytes):
                lines = [line for line in one.body.splitlines(keepends=True) if name_of(line) != gone]
                polls[later] = {**polls[later], path: one._replace(body=b"".join(lines))}


@st.composite
def hostile(draw: Draw, recording: Recording, others: Sequence[Recording]) -> Pair:
    """Polls of which one or several are broken in any way, or give way to those of another engine."""
    whole = _whole(draw, recording)
    polls = list(whole)
    for at in draw(st.lists(st.integers(0, len(polls) - 1), min_size=1, max_size=4, unique=True)):
        how = draw(st.integers(0, 11))
        if how == 0:
            polls[at] = {path: Reply(draw(st.sampled_from((0, 503, 404, 500, 302)))) for path in polls[at]}
        elif how == 1:
            polls[at] = whole[draw(st.integers(0, at))]
        elif how == 2:
            _for_good(draw, polls, at)
        elif how == 3:
            polls[at] = _spliced(draw, polls[at], draw(st.sampled_from(others)))
        else:
            polls[at] = _broken(draw, polls[at], CHANGES)
    return Pair(whole, polls)


def _spliced(draw: Draw, poll: Poll, other: Recording) -> Poll:
    """Another engine's answers instead, beside, or after the first part of this one's page."""
    strange = other.at(draw(st.integers(0, other.length_s)))
    how, path = draw(st.integers(0, 2)), "/metrics"
    if how == 0 or path not in poll or path not in strange:
        return strange if how == 0 else {**poll, **strange}
    page, more = bytes(poll[path].body), bytes(strange[path].body)
    at = draw(st.integers(0, len(page))) if how == 1 else len(page)
    return {**poll, path: poll[path]._replace(body=page[:at] + more)}


def _whole(draw: Draw, recording: Recording) -> list[Poll]:
    count = draw(st.integers(3, MOST_POLLS))
    return recording.polls(draw(st.integers(0, max(0, recording.length_s - count * EVERY_S))), count)
