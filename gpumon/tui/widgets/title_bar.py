"""The first line: which machine, whether it is real and live, what gpumon costs, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from gpumon.readings.format import age, cells, cut, left, ratio
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board

_VENDOR: Final = "NVIDIA "
_LATE: Final = 3.0
"""Intervals without a snapshot after which the dot turns into a warning."""
_LEAST_HOST: Final = 12
"""Cells of the host's name that come before the inventory."""
_MOST_ALERT: Final = 20
"""Cells of an alert's name."""
_LEAST_MACHINE: Final = 20
"""Cells that the machine gets before gpumon's own cost."""


class Playing(NamedTuple):
    """A recording that is shown."""

    file: str
    speed: float
    """Seconds of the recording per second."""
    ended: bool = False


class Standing(NamedTuple):
    """How what is shown stands to now."""

    paused: bool = False
    waited_s: float = 0.0
    """How long the newest snapshot has been there."""
    every_s: float = 0.0
    """Seconds between two snapshots, where that is longer than the snapshot says."""
    back: bool = False
    """Whether it is a moment that the user went back to."""
    playing: Playing | None = None


class TitleBar(Board):
    """Repainted by the clock; of the rest only what changed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self.lead = ""
        """What the machine is one of, before its name."""
        self._snapshot: Snapshot | None = None
        self._now_s = 0.0
        self._standing = Standing()

    def show(self, snapshot: Snapshot | None, now_s: float, standing: Standing) -> None:
        """Paint at a moment of wall time."""
        self._snapshot, self._now_s, self._standing = snapshot, now_s, standing
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """One line. The clock and what is out of the ordinary always stand there; the rest as it fits."""
        right = [*self._badges(), *self._clock()]
        name: Piece = (" gpumon ", "bar_title")
        room = width - _size([name, *right])
        cost = self._cost()
        if room - _size(cost) >= _LEAST_MACHINE:
            right = [*cost, *right]
            room -= _size(cost)
        return (
            (name, (left(f" {self.lead}{self._machine(room - 2 - cells(self.lead))}", max(0, room)), "bar"), *right),
        )

    def _badges(self) -> list[Piece]:
        """Alerts that mark the title, and that nothing here is real."""
        if self._snapshot is None:
            return []
        names = dict.fromkeys(alert.name for alert in self._snapshot.alerts if alert.title)
        badges: list[Piece] = []
        if names:
            more = f" +{len(names) - 1}" if len(names) > 1 else ""
            badges += [(" ", "bar"), (f" ! {cut(next(iter(names)), _MOST_ALERT)}{more} ", "badge")]
        return [*badges, (" ", "bar"), (" SIMULATED ", "badge")] if self._snapshot.simulated else badges

    def _cost(self) -> list[Piece]:
        snapshot = self._snapshot
        return [] if snapshot is None else [(f" self {_share(snapshot.self_cost.cpu_ratio)} ", "bar_muted")]

    def _clock(self) -> list[Piece]:
        """The time now, and whether what is shown is of now; of what is of another time, that time."""
        snapshot, standing = self._snapshot, self._standing
        if snapshot is not None and (standing.paused or standing.playing is not None):
            return [(" ", "bar"), _badge(snapshot.wall_s, self._now_s, standing)]
        if snapshot is None or standing.waited_s <= _LATE * max(snapshot.interval_s, standing.every_s):
            dot: Piece = (" ●", "bar_ok" if snapshot is not None else "bar_muted")
        else:
            dot = (f" ! no reading for {age(standing.waited_s)}", "bar_warn")
        return [dot, (f" {_local(self._now_s):%H:%M:%S} " if self._now_s else " --:--:-- ", "bar")]

    def _machine(self, room: int) -> str:
        """Host, GPUs and driver, in the longest form that fits into `room` cells."""
        snapshot = self._snapshot
        if snapshot is None:
            return cut("starting …", room)
        playing = self._standing.playing
        told = _forms(snapshot, room) if playing is None else _replayed(playing.file, snapshot)
        forms = (" · ".join(filter(None, parts)) for parts in told)
        name = snapshot.host.name if playing is None else playing.file
        return next((form for form in forms if cells(form) <= room), cut(name, room))


def _badge(shown_s: float, now_s: float, standing: Standing) -> Piece:
    """When what is shown was: frozen just now, gone back to, or of a recording."""
    shown, now = _local(shown_s), _local(now_s)
    playing = standing.playing
    if playing is not None:
        how = "END" if playing.ended else "PAUSED" if standing.paused else f"×{playing.speed:g}"
        tone = "badge_paused" if standing.paused or playing.ended else "badge"
        return f" REPLAY {shown:%Y-%m-%d %H:%M:%S} {how} ", tone
    if not standing.back:
        return f" PAUSED at {shown:%H:%M:%S} ", "badge_paused"
    date = "" if shown.date() == now.date() else f"{shown:%Y-%m-%d} "
    return f" {ago(now_s - shown_s)} AGO {date}{shown:%H:%M:%S} ", "badge_paused"


def _local(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, timezone.utc).astimezone()


def ago(seconds: float) -> str:
    """Two units: `13s`, `2m 13s`, `1h 02m`, `3d 04h`."""
    whole = max(0, round(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d {hours % 24:02d}h"
    if hours:
        return f"{hours}h {minutes % 60:02d}m"
    return f"{minutes}m {whole % 60:02d}s" if minutes else f"{whole}s"


def _replayed(file: str, snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """Parts that say which recording it is, from the longest to the shortest."""
    host, gpus = snapshot.host.name, inventory(snapshot.gpus)
    yield from ((file, host, gpus), (file, host), (file, host.partition(".")[0]), (file,))


def _forms(snapshot: Snapshot, room: int) -> Iterator[tuple[str, ...]]:
    """Parts that say which machine it is, from the longest to the shortest: the domain goes after the driver."""
    host, gpus, driver = snapshot.host.name, inventory(snapshot.gpus), snapshot.host.driver
    short = host.partition(".")[0]
    yield from ((host, gpus, driver), (host, gpus), (short, gpus))
    if gpus:
        yield cut(short, max(_LEAST_HOST, room - cells(gpus) - 3)), gpus
        number = sum(not gpu.parent_uuid for gpu in snapshot.gpus)
        counted = f"{number} GPU" + ("s" if number > 1 else "")
        yield cut(short, max(_LEAST_HOST, room - cells(counted) - 3)), counted
    yield from ((host,), (short,))


def inventory(gpus: Sequence[Gpu]) -> str:
    """What is in the machine: `8x H100 80GB HBM3`; of several kinds the most frequent two."""
    names = Counter(gpu.name.removeprefix(_VENDOR) for gpu in gpus if not gpu.parent_uuid)
    shown = names.most_common(2)
    others = names.total() - sum(number for _, number in shown)
    parts = [f"{number}x {name}" for name, number in shown] + ([f"{others} others"] if others else [])
    return " + ".join(parts)


def _size(pieces: Sequence[Piece]) -> int:
    return sum(cells(text) for text, _ in pieces)


def _share(cpu: Reading) -> str:
    """A share with one digit after the point, as long as that is short."""
    return f"{cpu * 100:.1f}%" if not isinstance(cpu, Missing) and 0.0 <= cpu < 0.0995 else ratio(cpu)
