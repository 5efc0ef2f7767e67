"""The newest requests of an engine, from its own log: errors first, and how many ended how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

from gpumon.readings.format import cells, counted, cut, left, right, seconds
from gpumon.readings.request_feed import RequestView
from gpumon.readings.request_lines import LoggedRequest, TimeOrigin
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.pages.followed import FollowedPage, fault_rows, place_row
from gpumon.tui.palette import Palette
from gpumon.tui.view import View

_REMARK: Final = "requests are kept nowhere"
_CLOCKS: Final = {TimeOrigin.READ: "read ", TimeOrigin.AFTER: "after "}
"""Before a time that is not the request's own."""
_STATUS: Final = 6
_METHOD: Final = 7
_TOOK: Final = 6
_CLIENT: Final = 15
_WIDE_CLIENT: Final = 39
"""Cells of the columns; an IPv6 address has its place from `_WIDE` columns on."""
_WIDE: Final = 110
_LEAST_PATH: Final = 12
_NO_STATUS: Final = "no status"
_NO_TIME: Final = "no time"


class RequestColumns(NamedTuple):
    """Columns for one width."""

    time: int
    path: int
    took: int
    """0: no request has it."""
    client: int
    """0: no request has it, or the config hides it."""


class Made(NamedTuple):
    """The rows of a view, for one width."""

    newest: Sequence[LoggedRequest]
    errors: Sequence[LoggedRequest]
    choice: tuple[int, bool, bool]
    """Width, whether errors come first, whether clients are hidden."""
    columns: RequestColumns
    rows: Sequence[Row]

    def is_of(self, shown: RequestView, choice: tuple[int, bool, bool]) -> bool:
        """Whether they are the rows of that view: of the same requests, for the same screen."""
        return self.newest is shown.newest and self.errors is shown.errors and self.choice == choice


class RequestsPage(FollowedPage[RequestView]):
    """The newest requests at the top, as they come; while the page is scrolled its rows stay."""

    SCOPE: ClassVar[str] = "requests"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._held: RequestView | None = None
        """Requests that the rows are made of while the page is scrolled."""
        self.errors_first = True
        self._made: Made | None = None

    def begin(self) -> None:
        """Show the newest again."""
        self._held = None
        self._made = None

    def broken(self, fault: str) -> RequestView:
        """A log that cannot be read."""
        return RequestView(fault=fault)

    def arrived(self, reading: RequestView) -> None:
        """Let go of rows of another log."""
        if self._held is not None and self._held.generation != reading.generation:
            self._held = None
            self._top = 0

    def title(self) -> str:
        """Name of the engine."""
        return f"requests of {self._engine_name}"

    def note(self) -> str:
        """The order of the rows, and whether new ones come in."""
        key = self.view.keymap.first
        parts = []
        if self._shown is not None and self._shown.logs > 1:
            parts.append(f"{key('left')} {key('right')}: its other log")
        parts.append("errors first" if self.errors_first else "by time")
        if self._held is not None:
            parts.append(f"{key('top')}: newest")
        else:
            parts.append("follows")
        return " · ".join(parts)

    def head(self, width: int) -> Sequence[Row]:
        """Place of the log, how many requests ended how, and the names of the columns."""
        shown = self._shown
        if shown is None or not shown.place:
            return ()
        rows = [place_row(shown.place, _REMARK, max(8, width - cells(_REMARK) - 3))]
        if shown.lines:
            rows.append(_counts_row(shown, width))
        if shown.counts:
            columns = self._rows_of(self._held or shown, width).columns
            rows.append(((_names(columns), "muted"),))
        return rows

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """The requests; or why there are none, or no new ones."""
        shown = self._shown
        if shown is None:
            return (((" reading …", "muted"),),)
        held = self._held or shown
        if shown.fault and not held.counts:
            return fault_rows(shown, width)
        if not held.counts:
            return _reasons(held, width)
        rows = self._rows_of(held, width).rows
        if shown.fault:
            return [*fault_rows(shown, width), (), *rows]
        return rows

    def _rows_of(self, shown: RequestView, width: int) -> Made:
        """The rows; those of before, unless a request came or the screen is another one."""
        hides_clients = self.view.config.screen.hide_clients
        choice = (width, self.errors_first, hides_clients)
        made = self._made
        if made is not None and made.is_of(shown, choice):
            return made
        columns = _columns((*shown.newest, *shown.errors), width, hides_clients=hides_clients)
        if self.errors_first and shown.errors:
            rows = _errors_first(shown, columns)
        else:
            rows = [_row(request, columns) for request in shown.newest]
        self._made = Made(shown.newest, shown.errors, choice, columns, rows)
        return self._made

    def move(self, lines: int) -> None:
        """Move the view; away from its top the rows stay as they are."""
        super().move(lines)
        self._hold()

    def find(self, text: str) -> None:
        """Search in the rows as they are now."""
        super().find(text)
        self._hold()

    def step_match(self, by: int) -> None:
        """The same for the other places."""
        super().step_match(by)
        self._hold()

    def _hold(self) -> None:
        """Keep the rows while the page is scrolled or searched, and only then."""
        if not self._top and not self.search.text:
            self._held = None
        elif self._held is None:
            self._held = self._shown
        self.update()

    def run(self, command: str) -> None:
        """One of the commands of the page."""
        if command == "requests.errors":
            self.errors_first = not self.errors_first
            self._top = 0
            self._hold()


def _columns(requests: Sequence[LoggedRequest], width: int, *, hides_clients: bool) -> RequestColumns:
    """The columns that have something to show."""
    client = 0
    if not hides_clients:
        client = _client_cells(requests, width)
    took = 0
    if any(request.took_s is not None for request in requests):
        took = _TOOK
    time = max([cells(_NO_TIME), *(cells(_time(request)) for request in requests)])
    used = 1 + time + 1 + _STATUS + 1 + _METHOD + 1
    for size in (took, client):
        if size:
            used += size + 2
    longest = max([_LEAST_PATH, *(cells(request.path) for request in requests)])
    return RequestColumns(time, max(_LEAST_PATH, min(longest, width - used - 1)), took, client)


def _client_cells(requests: Sequence[LoggedRequest], width: int) -> int:
    """Cells of the clients' addresses; 0 where there are none."""
    if not any(request.client for request in requests):
        return 0
    if width >= _WIDE:
        return _WIDE_CLIENT
    return _CLIENT


def _errors_first(shown: RequestView, columns: RequestColumns) -> list[Row]:
    """The errors, and all others below."""
    rows: list[Row] = [((f" errors: {len(shown.errors)}, the newest first", "strong"),)]
    for request in shown.errors:
        rows.append(_row(request, columns))
    rows.append(((" others, the newest first", "strong"),))
    for request in shown.newest:
        if not request.is_error:
            rows.append(_row(request, columns))
    return rows


def _counts_row(shown: RequestView, width: int) -> Row:
    """How many requests ended how, as far as there is room, and the health checks and scrapes apart."""
    total = sum(shown.counts.values())
    pieces: list[Piece] = [(f" {counted(total, 'request')}", "text")]
    polls = ""
    if shown.polls:
        polls = f"  {counted(shown.polls, 'poll')} not listed"
    if shown.failed_polls:
        polls += f" ({shown.failed_polls} failed)"
    room = width - cells(pieces[0][0]) - cells(polls) - 1
    sign = ": "
    for outcome, count in _by_urgency(shown):
        text = f"{sign}{outcome or _NO_STATUS} ×{count}"
        room -= cells(text)
        if room < 0:
            break
        pieces.append((text, _tone(outcome)))
        sign = "  "
    return (*pieces, (polls, "muted"))


def _by_urgency(shown: RequestView) -> Iterator[tuple[str, int]]:
    """Outcomes with their counts: server errors, other errors, all others."""
    urgency = {"critical": 0, "warn": 1}
    ordered = sorted(shown.counts.items(), key=lambda item: (urgency.get(_tone(item[0]), 2), item[0]))
    yield from ordered


def _tone(outcome: str) -> str:
    """Tone of an outcome: a failure of the server, a request that was refused, any other."""
    if outcome == "error" or outcome[:1] == "5":
        return "critical"
    if outcome[:1] == "4":
        return "warn"
    return "text"


def _names(columns: RequestColumns) -> str:
    """Names of the columns."""
    names = [left("time", columns.time), left("status", _STATUS), left("method", _METHOD), left("path", columns.path)]
    text = " " + " ".join(names)
    if columns.took:
        text += "  " + right("took", columns.took)
    if columns.client:
        text += "  " + left("client", columns.client)
    return text


def _row(request: LoggedRequest, columns: RequestColumns) -> Row:
    """A request as a row."""
    pieces: list[Piece] = [
        (f" {left(_time(request), columns.time)} ", "muted"),
        (left(request.outcome or "–", _STATUS), _tone(request.outcome)),
        (f" {left(cut(request.method, _METHOD), _METHOD)} ", "muted"),
        (left(cut(request.path, columns.path), columns.path), "text"),
    ]
    if columns.took:
        took = "–"
        if request.took_s is not None:
            took = seconds(request.took_s)
        pieces.append((f"  {right(took, columns.took)}", "text"))
    if columns.client:
        pieces.append((f"  {left(cut(request.client or '–', columns.client), columns.client)}", "muted"))
    return tuple(pieces)


def _time(request: LoggedRequest) -> str:
    """The time of a request, and in a word where it is not its own."""
    if request.clock is TimeOrigin.NONE:
        return _NO_TIME
    return _CLOCKS.get(request.clock, "") + request.time


def _reasons(shown: RequestView, width: int) -> list[Row]:
    """Why no request is listed."""
    text = " nothing was logged yet"
    if shown.lines:
        read = "was" if shown.lines == 1 else "were"
        text = f" no request among {counted(shown.lines, 'line')} that {read} read"
    rows: list[Row] = [((text, "muted"),)]
    if shown.silence:
        rows += wrap_line(shown.silence, width, "text")
    return rows
