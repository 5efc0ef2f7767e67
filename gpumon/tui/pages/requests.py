"""The newest requests of an engine, from its own log: errors first, and how many ended how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from gpumon.readings.format import cells, counted, cut, left, right, seconds
from gpumon.readings.request_feed import RequestView
from gpumon.readings.request_lines import LoggedRequest, TimeOrigin
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.pages.followed import FollowedPage, fault_rows, place_row
from gpumon.tui.palette import Palette
from gpumon.tui.view import View

_PRIVACY_NOTE: Final = "requests are kept nowhere"
_TIME_PREFIXES: Final = {TimeOrigin.READ: "read ", TimeOrigin.AFTER: "after "}
"""Before a time that is not the request's own: gpumon read the line then, or an earlier line of the log has
that time."""
_STATUS_CELLS: Final = 6
_METHOD_CELLS: Final = 7
_TOOK_CELLS: Final = 6
_IPV4_CELLS: Final = 15
_IPV6_CELLS: Final = 39
_IPV6_WIDTH: Final = 110
"""Cells of a screen from which the column of clients has room for IPv6 addresses."""
_LEAST_PATH_CELLS: Final = 12
_GAP: Final = 1
"""Blanks before the time and each column up to the path."""
_WIDE_GAP: Final = 2
"""Blanks before each column behind the path."""
_TONES_BY_URGENCY: Final = ("critical", "warn", "text")
"""Tones of outcomes, the most urgent first."""
_NO_VALUE: Final = "–"
_NO_STATUS: Final = "no status"
_NO_TIME: Final = "no time"


class RequestColumns(NamedTuple):
    """Widths in cells of the columns that depend on the requests and on the width of the page."""

    time: int
    path: int
    took: int
    """0 where no request has it: then there is no such column."""
    client: int
    """0 where no request has it, or the config hides it."""


class RowChoice(NamedTuple):
    """The choices that rows of requests depend on, beside the requests."""

    width: int
    """Cells of the page."""
    errors_first: bool
    hides_clients: bool


class MadeRows(NamedTuple):
    """Rows, with the requests that they were made of: rows are made anew only where one of these is another."""

    newest: Sequence[LoggedRequest]
    errors: Sequence[LoggedRequest]
    choice: RowChoice
    columns: RequestColumns
    rows: Sequence[Row]

    def still_hold(self, requests: RequestView, choice: RowChoice) -> bool:
        """Whether these are the rows of the same requests, made in the same way."""
        return self.newest is requests.newest and self.errors is requests.errors and self.choice == choice


class RequestsPage(FollowedPage[RequestView]):
    """The newest requests at the top, as they come; while the page is scrolled its rows stay.

    `reading`, of `FollowedPage`, is the newest reading of the log; `_held` is what stays on the page.
    """

    SCOPE: ClassVar[str] = "requests"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._held: RequestView | None = None
        """Requests that stay on the page while it is scrolled or searched; None while it shows the newest."""
        self.errors_first = True
        """Whether errors stand above all others; else the requests stand by time."""
        self._made_rows: MadeRows | None = None
        """The rows as they were made last; None before the first."""

    def reset(self) -> None:
        """Forget the requests that are held and the rows: the newest requests are shown again."""
        self._held = None
        self._made_rows = None

    def failed_reading(self, fault: str) -> RequestView:
        """The reading of a log that cannot be read, with no request."""
        return RequestView(fault=fault)

    def take_reading(self, reading: RequestView) -> None:
        """Let go of the requests that are held where the reading is of another log, or of one that began anew."""
        if self._held is not None and self._held.generation != reading.generation:
            self._held = None
            self.scrolling.top = 0

    def title(self) -> str:
        """The name on the rule: `requests of engine vllm:8000`."""
        return f"requests of {self.engine_name}"

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """The text behind the title: keys for another log, the order of the rows, and whether new ones come in."""
        key = self.view.keymap.first
        parts = []
        if self.reading is not None and self.reading.logs > 1:
            parts.append(f"{key('left')} {key('right')}: its other log")
        if self.errors_first:
            parts.append("errors first")
        else:
            parts.append("by time")
        if self._held is not None:
            parts.append(f"{key('top')}: newest")
        else:
            parts.append("follows")
        return " · ".join(parts)

    def head(self, width: int) -> Sequence[Row]:
        """The rows that do not scroll: place of the log, how many requests ended how, and the names of the columns."""
        shown = self.reading
        if shown is None or not shown.place:
            return ()
        rows = [place_row(shown.place, _PRIVACY_NOTE, width)]
        if shown.lines:
            rows.append(_counts_row(shown, width))
        if shown.counts:
            columns = self._make_rows(self._held or shown, width).columns
            rows.append(((_column_titles(columns), "muted"),))
        return rows

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """The rows that scroll: the requests, or why there are none or no new ones."""
        shown = self.reading
        if shown is None:
            return (((" reading …", "muted"),),)
        requests = self._held or shown
        if shown.fault and not requests.counts:
            return fault_rows(shown, width)
        if not requests.counts:
            return _no_request_rows(requests, width)
        rows = self._make_rows(requests, width).rows
        if shown.fault:
            return [*fault_rows(shown, width), (), *rows]
        return rows

    def _make_rows(self, requests: RequestView, width: int) -> MadeRows:
        """The rows of requests; those made before, unless a request came or the width or the order is another."""
        choice = RowChoice(width, self.errors_first, self.view.config.screen.hide_clients)
        made = self._made_rows
        if made is not None and made.still_hold(requests, choice):
            return made
        columns = _columns_for((*requests.newest, *requests.errors), choice)
        if self.errors_first and requests.errors:
            rows = _rows_with_errors_first(requests, columns)
        else:
            rows = [_request_row(request, columns) for request in requests.newest]
        self._made_rows = MadeRows(requests.newest, requests.errors, choice, columns, rows)
        return self._made_rows

    def move(self, lines: int) -> None:
        """Move the view; away from its top the rows stay as they are."""
        super().move(lines)
        self._hold()

    def find(self, text: str) -> None:
        """Search in the rows as they are now."""
        super().find(text)
        self._hold()

    def step_match(self, step: int) -> None:
        """Go to another match in the rows as they are now."""
        super().step_match(step)
        self._hold()

    def _hold(self) -> None:
        """Hold the requests that are shown while the page is scrolled or searched, and only then."""
        if not self.scrolling.top and not self.search.text:
            self._held = None
        elif self._held is None:
            self._held = self.reading
        self.update()

    def run(self, command: str) -> None:
        """Run the command of the page: errors first, or all by time."""
        if command == "requests.errors":
            self.errors_first = not self.errors_first
            self.scrolling.top = 0
            self._hold()


def _columns_for(requests: Sequence[LoggedRequest], choice: RowChoice) -> RequestColumns:
    """The columns that have something to show; the path gets what the others leave, as far as it needs it."""
    client_cells = 0 if choice.hides_clients else _client_cells(requests, choice.width)
    took_cells = _TOOK_CELLS if any(request.took_s is not None for request in requests) else 0
    time_cells = max([cells(_NO_TIME), *(cells(_time_text(request)) for request in requests)])
    used = _GAP + time_cells + _GAP + _STATUS_CELLS + _GAP + _METHOD_CELLS + _GAP
    for column in (took_cells, client_cells):
        if column:
            used += _WIDE_GAP + column
    longest_path = max([_LEAST_PATH_CELLS, *(cells(request.path) for request in requests)])
    room = choice.width - used - 1  # a blank stays free at the right edge
    path_cells = max(_LEAST_PATH_CELLS, min(longest_path, room))
    return RequestColumns(time=time_cells, path=path_cells, took=took_cells, client=client_cells)


def _client_cells(requests: Sequence[LoggedRequest], width: int) -> int:
    """Cells of the clients' addresses; 0 where there are none."""
    if not any(request.client for request in requests):
        return 0
    if width >= _IPV6_WIDTH:
        return _IPV6_CELLS
    return _IPV4_CELLS


def _rows_with_errors_first(requests: RequestView, columns: RequestColumns) -> list[Row]:
    """The rows of the errors under a heading, and below them those of all others under theirs."""
    rows: list[Row] = [((f" errors: {len(requests.errors)}, the newest first", "strong"),)]
    rows += [_request_row(request, columns) for request in requests.errors]
    rows.append(((" others, the newest first", "strong"),))
    for request in requests.newest:
        if not request.is_error:
            rows.append(_request_row(request, columns))
    return rows


def _counts_row(requests: RequestView, width: int) -> Row:
    """The line that counts requests by their outcomes, as far as there is room, and health checks and scrapes (`polls`)
    apart."""
    total = f" {counted(sum(requests.counts.values()), 'request')}"
    polls = f"  {counted(requests.polls, 'poll')} not listed" if requests.polls else ""
    if requests.failed_polls:
        polls += f" ({requests.failed_polls} failed)"
    pieces: list[Piece] = [(total, "text")]
    room = width - cells(total) - cells(polls) - 1
    separator = ": "
    for outcome, count in _counts_by_urgency(requests):
        text = f"{separator}{outcome or _NO_STATUS} ×{count}"
        room -= cells(text)
        if room < 0:
            break
        pieces.append((text, _outcome_tone(outcome)))
        separator = "  "
    return (*pieces, (polls, "muted"))


def _counts_by_urgency(requests: RequestView) -> list[tuple[str, int]]:
    """Outcomes with their counts: errors of the server, then those of clients, then all others."""

    def urgency(count_of_outcome: tuple[str, int]) -> tuple[int, str]:
        outcome, _ = count_of_outcome
        return _TONES_BY_URGENCY.index(_outcome_tone(outcome)), outcome

    return sorted(requests.counts.items(), key=urgency)


def _outcome_tone(outcome: str) -> str:
    """Tone of an outcome (an HTTP status, `ok` or `error`): the server failed, the request was refused, or neither."""
    if outcome == "error" or outcome[:1] == "5":
        return "critical"
    if outcome[:1] == "4":
        return "warn"
    return "text"


def _column_titles(columns: RequestColumns) -> str:
    """The line over the requests: the titles of their columns."""
    titles = (
        left("time", columns.time),
        left("status", _STATUS_CELLS),
        left("method", _METHOD_CELLS),
        left("path", columns.path),
    )
    text = " " + " ".join(titles)
    if columns.took:
        text += "  " + right("took", columns.took)
    if columns.client:
        text += "  " + left("client", columns.client)
    return text


def _request_row(request: LoggedRequest, columns: RequestColumns) -> Row:
    """The row of a request: time, status, method and path, then what `columns` have room for."""
    pieces: list[Piece] = [
        (f" {left(_time_text(request), columns.time)} ", "muted"),
        (left(request.outcome or _NO_VALUE, _STATUS_CELLS), _outcome_tone(request.outcome)),
        (f" {left(cut(request.method, _METHOD_CELLS), _METHOD_CELLS)} ", "muted"),
        (left(cut(request.path, columns.path), columns.path), "text"),
    ]
    if columns.took:
        took = seconds(request.took_s) if request.took_s is not None else _NO_VALUE
        pieces.append((f"  {right(took, columns.took)}", "text"))
    if columns.client:
        client = cut(request.client or _NO_VALUE, columns.client)
        pieces.append((f"  {left(client, columns.client)}", "muted"))
    return tuple(pieces)


def _time_text(request: LoggedRequest) -> str:
    """The time of a request, with a word before it where it is not the request's own."""
    if request.clock is TimeOrigin.NONE:
        return _NO_TIME
    return _TIME_PREFIXES.get(request.clock, "") + request.time


def _no_request_rows(requests: RequestView, width: int) -> list[Row]:
    """The rows that say why no request is listed, and why this log names none, where that is known (`silence`)."""
    text = " nothing was logged yet"
    if requests.lines:
        verb = "was" if requests.lines == 1 else "were"
        text = f" no request among {counted(requests.lines, 'line')} that {verb} read"
    rows: list[Row] = [((text, "muted"),)]
    if requests.silence:
        rows += wrap_line(requests.silence, width, "text")
    return rows
