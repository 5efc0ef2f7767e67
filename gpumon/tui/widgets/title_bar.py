"""The first line: which machine, whether it is real and live, what gpumon costs, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

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
_LEAST_MACHINE: Final = 20
"""Cells that the machine gets before gpumon's own cost."""


class TitleBar(Board):
    """Repainted by the clock; of the rest only what changed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._snapshot: Snapshot | None = None
        self._now_s = 0.0
        self._paused = False
        self._waited_s = 0.0

    def show(self, snapshot: Snapshot | None, now_s: float, *, paused: bool, waited_s: float) -> None:
        """Paint at a moment of wall time; `waited_s` is how long the newest snapshot has been due."""
        self._snapshot, self._now_s, self._paused, self._waited_s = snapshot, now_s, paused, waited_s
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
        return ((name, (left(f" {self._machine(room - 2)}", max(0, room)), "bar"), *right),)

    def _badges(self) -> list[Piece]:
        simulated = self._snapshot is not None and self._snapshot.simulated
        return [(" ", "bar"), (" SIMULATED ", "badge")] if simulated else []

    def _cost(self) -> list[Piece]:
        snapshot = self._snapshot
        return [] if snapshot is None else [(f" self {_share(snapshot.self_cost.cpu_ratio)} ", "bar_muted")]

    def _clock(self) -> list[Piece]:
        """The time now, and whether what is shown is of now; paused, the time that is shown."""
        snapshot = self._snapshot
        clock = (
            datetime.fromtimestamp(self._now_s, timezone.utc).astimezone().strftime("%H:%M:%S")
            if self._now_s
            else "--:--:--"
        )
        if self._paused:
            return [(" ", "bar"), (f" PAUSED at {clock} ", "badge_paused")]
        if snapshot is None or self._waited_s <= _LATE * snapshot.interval_s:
            dot: Piece = (" ●", "bar_ok" if snapshot is not None else "bar_muted")
        else:
            dot = (f" ! no reading for {age(self._waited_s)}", "bar_warn")
        return [dot, (f" {clock} ", "bar")]

    def _machine(self, room: int) -> str:
        """Host, GPUs and driver, in the longest form that fits into `room` cells."""
        snapshot = self._snapshot
        if snapshot is None:
            return cut("starting …", room)
        forms = (" · ".join(filter(None, parts)) for parts in _forms(snapshot, room))
        return next((form for form in forms if cells(form) <= room), cut(snapshot.host.name, room))


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
