"""The first line of the fleet's screen: which Prometheus, how much there is, how old it is, and the time in UTC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from gpumon.fleet.rows import Row
from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.readings.format import cells, counted, cut, left
from gpumon.readings.text import clean
from gpumon.tui.line import Piece
from gpumon.tui.line import Row as Line
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.title_bar import ago

_LATE: Final = 3.0
"""Intervals without an answer after which what is shown is not of now."""


class When(NamedTuple):
    """How what is shown stands to now."""

    now_s: float = 0.0
    paused: bool = False
    back: bool = False
    """Whether it is a moment that was gone back to."""
    asked_s: float | None = None
    """The moment that is being asked for."""
    asking: bool = False
    """Whether a refresh is under way."""
    every_s: float = 0.0
    """Seconds between two refreshes."""


class FleetTitle(Board):
    """Repainted by the clock; of the rest only what changed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self.place = ""
        self._shown: FleetSnapshot | None = None
        self._when = When()
        self._chosen: Row | None = None

    def narrow(self, chosen: Row | None) -> None:
        """The sum of the rows that a filter lets through; None: there is no filter."""
        if chosen is not self._chosen:
            self._chosen = chosen
            self.update()

    def show(self, shown: FleetSnapshot | None, when: When) -> None:
        """Paint at a moment of wall time."""
        self._shown, self._when = shown, when
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        """One line. The clock and what is out of the ordinary always stand there; the rest as it fits."""
        name: Piece = (" gpumon ", "bar_title")
        right = [*_simulated(self._shown), *self._clock()]
        room = width - sum(cells(text) for text, _ in (name, *right))
        return ((name, (left(f" {self._fleet(room - 2)}", max(0, room)), "bar"), *right),)

    def _clock(self) -> list[Piece]:
        """The time now, and of when what is shown is."""
        shown, when = self._shown, self._when
        now: Piece = (f" {utc(when.now_s)}Z " if when.now_s else " --:--:--Z ", "bar")
        if when.asked_s is not None:
            return [(" ", "bar"), (f" ASKING FOR {dated(when.asked_s, when.now_s)} … ", "badge")]
        if shown is not None and when.back:
            said = f" {ago(when.now_s - shown.wall_s)} AGO {dated(shown.wall_s, when.now_s)}Z "
            return [(" ", "bar"), (said, "badge_paused")]
        if shown is not None and when.paused:
            return [(" ", "bar"), (f" PAUSED at {dated(shown.wall_s, when.now_s)}Z ", "badge_paused")]
        if shown is None or not shown.wall_s:
            failed = shown is not None and bool(shown.faults) and not when.asking
            return [(" ! no answer", "bar_warn") if failed else (" asking …", "bar_muted"), now]
        old_s = max(0.0, when.now_s - shown.wall_s)
        if not shown.answered or old_s > _LATE * max(when.every_s, shown.interval_s):
            return [(f" ! {ago(old_s)} old", "bar_warn"), now]
        return [(f" {'↓' if when.asking else '●'} {ago(old_s)} ago", "bar_ok"), now]

    def _fleet(self, room: int) -> str:
        """The Prometheus and what it knows of, in the longest form that fits into `room` cells."""
        forms = (" · ".join(filter(None, parts)) for parts in _forms(clean(self.place, 60), self._shown, self._chosen))
        return next((form for form in forms if cells(form) <= room), cut("fleet", max(0, room)))


def _forms(place: str, shown: FleetSnapshot | None, chosen: Row | None) -> Iterator[tuple[str, ...]]:
    """Parts from the longest form to the shortest."""
    if shown is None or not shown.wall_s:
        said = "starting …" if shown is None or not shown.faults else "no answer yet"
        yield from (("fleet", place, said), ("fleet", place), ("fleet",))
        return
    hosts, gpus, engines = (counted(number, word) for number, word in _counts(shown))
    if chosen is not None:
        here = (len(chosen.hosts), len(chosen.parts.gpus), chosen.engines)
        pairs = zip(here, _counts(shown), strict=True)
        hosts, gpus, engines = (f"{number} of {counted(whole, word)}" for number, (whole, word) in pairs)
    yield "fleet", place, hosts, gpus, engines
    yield "fleet", place, hosts, gpus
    yield "fleet", hosts, gpus, engines
    yield "fleet", hosts, gpus
    yield "fleet", hosts


def _counts(shown: FleetSnapshot) -> tuple[tuple[int, str], ...]:
    """Hosts, GPUs and engines."""
    return (
        (len(shown.hosts), "host"),
        (sum(not gpu.parent_uuid for host in shown.hosts for gpu in host.snapshot.gpus), "GPU"),
        (sum(len(host.snapshot.engines) for host in shown.hosts), "engine"),
    )


def _simulated(shown: FleetSnapshot | None) -> list[Piece]:
    real = shown is None or not any(host.snapshot.simulated for host in shown.hosts)
    return [] if real else [(" ", "bar"), (" SIM ", "badge")]


def utc(wall_s: float) -> str:
    """The time of day in UTC."""
    return f"{datetime.fromtimestamp(wall_s, timezone.utc):%H:%M:%S}"


def dated(wall_s: float, now_s: float) -> str:
    """The same, with its date where that is not today's."""
    at, now = (datetime.fromtimestamp(each, timezone.utc) for each in (wall_s, now_s))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


STATES: Final[dict[HostState, tuple[str, str]]] = {
    HostState.STALE: ("! STALE", "warn"),
    HostState.UNREACHABLE: ("✗ UNREACHABLE", "critical"),
    HostState.GONE: ("✗ GONE", "critical"),
}
"""Word and tone of a host that is not well known."""
