"""The first line: which machine, whether it is real and live, what gpumon costs, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from gpumon.readings.format import age, cells, left, ratio
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board

_VENDOR: Final = "NVIDIA "
_LATE: Final = 3.0
"""Intervals without a snapshot after which the dot turns into a warning."""


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
        """One line."""
        right = [*self._badges(), *self._status()]
        room = width - sum(cells(text) for text, _ in right)
        name: Piece = (" gpumon ", "bar_title")
        room -= cells(name[0])
        return ((name, (left(f" {self._machine(room - 2)}", max(0, room)), "bar"), *right),)

    def _badges(self) -> list[Piece]:
        badges: list[Piece] = []
        if self._snapshot is not None and self._snapshot.simulated:
            badges += [(" ", "bar"), (" SIMULATED ", "badge")]
        if self._paused:
            badges += [(" ", "bar"), (" PAUSED ", "badge_paused")]
        return badges

    def _status(self) -> list[Piece]:
        snapshot = self._snapshot
        clock = (
            datetime.fromtimestamp(self._now_s, timezone.utc).astimezone().strftime("%H:%M:%S")
            if self._now_s
            else "--:--:--"
        )
        cost = f"  self {_cost(snapshot.self_cost.cpu_ratio)}" if snapshot is not None else ""
        if self._paused:
            dot: Piece = ("  ‖", "bar_warn")
        elif snapshot is None or self._waited_s <= _LATE * snapshot.interval_s:
            dot = ("  ●", "bar_ok" if snapshot is not None else "bar_muted")
        else:
            dot = (f"  ! no reading for {age(self._waited_s)}", "bar_warn")
        return [(cost, "bar_muted"), dot, (f" {clock} ", "bar")]

    def _machine(self, room: int) -> str:
        """Host, GPUs and driver; what does not fit whole is left out from the end."""
        snapshot = self._snapshot
        if snapshot is None:
            return "starting …"
        parts = [part for part in (snapshot.host.name, inventory(snapshot.gpus), snapshot.host.driver) if part]
        while len(parts) > 1 and cells(" · ".join(parts)) > room:
            parts.pop()
        return " · ".join(parts)


def inventory(gpus: Sequence[Gpu]) -> str:
    """What is in the machine: `8x H100 80GB HBM3`; of several kinds the most frequent two."""
    names = Counter(gpu.name.removeprefix(_VENDOR) for gpu in gpus if not gpu.parent_uuid)
    shown = names.most_common(2)
    others = names.total() - sum(number for _, number in shown)
    parts = [f"{number}x {name}" for name, number in shown] + ([f"{others} others"] if others else [])
    return " + ".join(parts)


def _cost(cpu: Reading) -> str:
    """A share with one digit after the point, as long as that is short."""
    return f"{cpu * 100:.1f}%" if not isinstance(cpu, Missing) and 0.0 <= cpu < 0.0995 else ratio(cpu)
