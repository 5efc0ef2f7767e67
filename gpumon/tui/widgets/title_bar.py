"""The first line: which machine, whether it is real and live, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

import msgspec

from gpumon.readings.format import age, cells, counted, cut, left
from gpumon.readings.snapshot import Gpu, Snapshot, physical_gpus
from gpumon.tui.line import Piece, Row, cells_of, first_that_fits
from gpumon.tui.palette import Palette
from gpumon.tui.table import clock
from gpumon.tui.widgets.board import Board

_VENDOR_PREFIX: Final = "NVIDIA "
"""Begin of the names of GPUs that is left out: it says nothing to those who have them."""
_LATE_INTERVALS: Final = 3.0
"""Intervals without a snapshot after which the dot turns into a warning."""
_LEAST_HOST: Final = 12
"""Cells of the host's name that come before the inventory."""
_MOST_ALERT: Final = 20
"""Cells of an alert's name."""
_MOST_FILTER: Final = 20
"""Cells of the filter of all panes."""
_MOST_NAMED_TYPES: Final = 2
"""Types of GPUs that are named where there are several."""
_DIVIDER: Final = " · "
"""Between two parts of the title."""


class Playing(msgspec.Struct, frozen=True):
    """A recording that is shown."""

    file: str
    speed: float
    """Seconds of the recording per second."""
    ended: bool = False
    """Whether its last moment is shown."""


class Heading(msgspec.Struct, frozen=True):
    """Name and state of a machine, or of a fleet, for the title."""

    forms: Callable[[int], Iterable[str]] = lambda _room: ("starting …",)
    """Texts for that many cells, from the longest to the shortest; of the last one what fits is shown."""
    badges: Sequence[str] = ()
    """Alerts."""
    filter: str = ""
    """The filter of all panes."""
    simulated: str = ""
    """`SIMULATED`, or shorter, where no hardware was read."""


class Freshness(msgspec.Struct, frozen=True):
    """How old what is shown is, and why."""

    shown_s: float | None = None
    """The Unix time of what is shown; None: nothing yet."""
    paused: bool = False
    """Whether the display is frozen."""
    waited_s: float = 0.0
    """Seconds for which the newest snapshot has been there."""
    every_s: float = 0.0
    """Seconds between two snapshots."""
    back: bool = False
    """Whether it is a moment that the user went back to."""
    playing: Playing | None = None
    """The recording that is shown; None where this is no replay."""
    asked_s: float | None = None
    """Unix time of the moment that is being asked for; None: none is."""
    failed: bool = False
    """Whether the source does not answer."""
    asking: bool | None = None
    """Whether the source is being asked; None: it is read all the time, and no age is worth saying."""


class TitleBar(Board):
    """The first line of a screen: its name, what it shows, and the time; painted anew each second."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._heading = Heading()
        self._now_s = 0.0
        """Unix time that the clock shows."""
        self._freshness = Freshness()

    def show(self, heading: Heading, now_s: float, freshness: Freshness) -> None:
        """Paint at a moment of wall time."""
        self._heading = heading
        self._now_s = now_s
        self._freshness = freshness
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Board
        """One line. Clock, alerts and `SIMULATED` always, then the host and what it has, last the driver."""
        name: Piece = (" gpumon ", "bar_title")
        right: list[Piece] = []
        for badge in self._heading.badges:
            right += [(" ", "bar"), (f" {badge} ", "badge")]
        if self._heading.filter:
            right += [(" ", "bar"), (f' filter "{cut(self._heading.filter, _MOST_FILTER)}" ', "badge_paused")]
        if self._heading.simulated:
            right.append((f"  {self._heading.simulated} ", "bar_warn"))
        right += self._clock_pieces()
        room = width - cells_of([name, *right])
        room_of_text = room - 2  # the blanks around it
        text = first_that_fits(list(self._heading.forms(room_of_text)), room_of_text)
        return ((name, (left(f" {text}", max(0, room)), "bar"), *right),)

    def _clock_pieces(self) -> list[Piece]:
        """The time now, and how fresh what is shown is; of what is of another time, that time."""
        freshness = self._freshness
        now_s = self._now_s
        shown_s = freshness.shown_s
        if freshness.asked_s is not None:
            return [(" ", "bar"), (f" ASKING FOR {date_text(freshness.asked_s, now_s)} … ", "badge")]
        if shown_s is not None and (freshness.paused or freshness.playing is not None):
            return [(" ", "bar"), _time_badge(shown_s, now_s, freshness)]
        time = clock(now_s) if now_s else "--:--:--"
        dot = _dot_before_first(freshness) if shown_s is None else _dot_of_live(freshness)
        return [dot, (f" {time} ", "bar")]


def _dot_before_first(freshness: Freshness) -> Piece:
    """The dot before the first snapshot: asked, or no answer."""
    if freshness.failed:
        return " ! no answer", "bar_warn"
    if freshness.asking is None:
        return " ●", "bar_muted"
    return " asking …", "bar_muted"


def _dot_of_live(freshness: Freshness) -> Piece:
    """The dot of what is shown live; a warning if the next snapshot is late."""
    if freshness.failed or freshness.waited_s > _LATE_INTERVALS * freshness.every_s:
        return f" ! no reading for {age(freshness.waited_s)}", "bar_warn"
    if freshness.asking is None:
        return " ●", "bar_ok"
    glyph = "↓" if freshness.asking else "●"
    return f" {glyph} {ago(freshness.waited_s)} ago", "bar_ok"


def _time_badge(shown_s: float, now_s: float, freshness: Freshness) -> Piece:
    """The badge with the time of what is shown: frozen just now, gone back to, or of a recording."""
    playing = freshness.playing
    if playing is not None:
        pace = f"×{playing.speed:g}"
        tone = "badge"
        if playing.ended:
            pace = "END"
            tone = "badge_paused"
        elif freshness.paused:
            pace = "PAUSED"
            tone = "badge_paused"
        return f" REPLAY {_local_time(shown_s):%Y-%m-%d %H:%M:%S} {pace} ", tone
    if not freshness.back:
        return f" PAUSED at {date_text(shown_s, now_s)} ", "badge_paused"
    return f" {ago(now_s - shown_s)} AGO {date_text(shown_s, now_s)} ", "badge_paused"


def _local_time(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, timezone.utc).astimezone()


def date_text(wall_s: float, now_s: float) -> str:
    """The local time of day of a Unix time, with its date where that is not the date of `now_s`."""
    time = _local_time(wall_s)
    if time.date() == _local_time(now_s).date():
        return f"{time:%H:%M:%S}"
    return f"{time:%Y-%m-%d %H:%M:%S}"


def ago(seconds: float) -> str:
    """How long ago something was, in the two largest units: `13s`, `2m 13s`, `1h 02m`, `3d 04h`."""
    whole = max(0, round(seconds))
    minutes = whole // 60
    hours = minutes // 60
    days = hours // 24
    if days:
        return f"{days}d {hours % 24:02d}h"
    if hours:
        return f"{hours}h {minutes % 60:02d}m"
    if minutes:
        return f"{minutes}m {whole % 60:02d}s"
    return f"{whole}s"


def machine_heading(snapshot: Snapshot | None, lead: str, playing: Playing | None) -> Heading:
    """Host, GPUs and driver; of a replay the host, and the file. `lead`: words before it, that say what the machine is
    one of."""
    if snapshot is None:
        return Heading()
    names = list(dict.fromkeys(alert.name for alert in snapshot.alerts if alert.title))
    badges = []
    if len(names) > 1:
        badges.append(f"! {cut(names[0], _MOST_ALERT)} +{len(names) - 1}")
    elif names:
        badges.append(f"! {cut(names[0], _MOST_ALERT)}")
    simulated = "SIMULATED" if snapshot.simulated else ""

    def forms(room: int) -> Iterator[str]:
        for parts in _machine_forms(snapshot, room - cells(lead), playing):
            yield lead + _DIVIDER.join(filter(None, parts))

    return Heading(forms, badges, simulated=simulated)


def _machine_forms(snapshot: Snapshot, room: int, playing: Playing | None) -> Iterator[tuple[str, ...]]:
    """Parts that say which machine it is, from the longest to the shortest: the domain goes after the driver."""
    host = snapshot.host.name
    gpus = inventory(snapshot.gpus)
    driver = snapshot.host.driver
    short = host.partition(".")[0]
    if playing is not None:
        yield from ((host, playing.file, gpus), (host, playing.file), (short, playing.file))
        yield _cut_before(short, playing.file, room), playing.file
        yield (short,)
        return
    yield from ((host, gpus, driver), (host, gpus), (short, gpus))
    if gpus:
        yield _cut_before(short, gpus, room), gpus
        number = len(physical_gpus(snapshot.gpus))
        gpu_count = counted(number, "GPU")
        yield _cut_before(short, gpu_count, room), gpu_count
    yield from ((host,), (short,))


def _cut_before(host: str, text: str, room: int) -> str:
    """The name of a host, cut so that another part fits behind it; down to its least cells."""
    return cut(host, max(_LEAST_HOST, room - len(_DIVIDER) - cells(text)))


def inventory(gpus: Sequence[Gpu]) -> str:
    """GPUs of the machine: `8x H100 80GB HBM3`; of several kinds the most frequent two."""
    names = Counter(gpu.reading.name.removeprefix(_VENDOR_PREFIX) for gpu in physical_gpus(gpus))
    most_common_names = names.most_common(_MOST_NAMED_TYPES)
    others = names.total() - sum(number for _, number in most_common_names)
    parts = [f"{number}x {name}" for name, number in most_common_names]
    if others:
        parts.append(f"{others} others")
    return " + ".join(parts)
