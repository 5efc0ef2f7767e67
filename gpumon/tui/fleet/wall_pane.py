"""The wall of all GPUs of a fleet, those of a host together."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.format import counted, period
from gpumon.readings.history import CELL_S, History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu, Kind, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import states_by_key, urgent_by_gpu
from gpumon.tui import gpu_table
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.fleet.rows_pane import run_fleet_key
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, WallFigure
from gpumon.tui.wall.gpus import judged_tile
from gpumon.tui.wall.strips import MOST_STRIP_CELLS, STRIP_S, StripReader, strip_row
from gpumon.tui.wall.tiles import Tile
from gpumon.tui.widgets.wall_pane import WallPane, WallShape

_KEPT: Final = 96
"""Moments, and cells of 5 s, that the past of hosts keeps: more than strips show."""
_MOST_SERIES: Final = 9000
"""Most series of strips, 1.3 kB each: two of each figure for 600 hosts."""
_MEAN: Final = "mean"
_WORST: Final = "worst"


class HostGpu(NamedTuple):
    """A GPU, and the host that it is in."""

    host: str
    gpu: Gpu


_LISTING: Final = Listing[HostGpu](
    thing="gpu",
    title="gpus",
    key=lambda item: f"{item.host}/{item.gpu.reading.uuid}",
    words=lambda item, _: " ".join(
        (item.host, f"gpu {item.gpu.reading.index}", item.gpu.reading.name, *item.gpu.engines)
    ),
    gpus=lambda item, _: (item.gpu.reading.index,),
    figure_named=lambda item, name: gpu_table.FIGURE_NAMED(item.gpu, name),
)
"""The GPUs of a fleet."""


class _Verdicts(NamedTuple):
    """Verdicts on the GPUs of a host, by UUID."""

    urgent: Mapping[str, Verdict]
    """The worst urgent verdict on each GPU, or on an engine that runs on it."""
    states: Mapping[str, Verdict]
    """The verdict on each GPU's state."""


class FleetWall(WallPane[HostGpu]):
    """All known GPUs of a fleet, by host. It is always a wall of tiles: rows are in the table of hosts."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view, _LISTING)
        self.shape = WallShape.WALL
        self._fleet: FleetSnapshot | None = None
        self._verdicts: dict[str, _Verdicts] = {}
        """Verdicts of the hosts that were painted, by name."""
        self._past_of_hosts = History(ticks=_KEPT, cells=_KEPT, most_series=_MOST_SERIES)
        """Mean and worst share of each figure by host, of the last minutes."""
        self._remembered_s = -math.inf
        """Unix time of the newest moment in it."""
        self._host_strip_values = StripReader()
        self._shown_hosts: Collection[str] | None = None
        """Names of the hosts whose GPUs are shown; None: all."""

    def show_fleet(self, moment: FleetMoment) -> None:
        """Paint a moment of the fleet."""
        self._fleet = moment.fleet
        self._verdicts.clear()
        self._remember(moment.fleet)
        self.show(moment.whole)

    def show_hosts(self, names: Collection[str] | None) -> None:
        """Show the GPUs of these hosts alone; None: those of all."""
        if names != self._shown_hosts:
            self._shown_hosts = names
            self.list_anew()
            self.update()

    def _remember(self, fleet: FleetSnapshot) -> None:
        """Keep mean and worst share of each figure of each host, at most once in a cell of the strips: a fleet has no
        other past on the screen. Moments of the past that the user went back to are not kept."""
        if self.past or 0.0 <= fleet.wall_s - self._remembered_s < CELL_S:
            return
        self._remembered_s = fleet.wall_s
        points: dict[str, float] = {}
        for host in self._present_hosts():
            for figure in WALL_FIGURES:
                shares = [figure.share(gpu, self.view) for gpu in host.snapshot.gpus]
                known = [share for share in shares if not isinstance(share, Missing)]
                if known:
                    worst = max(known) if figure.worst_is_high else min(known)
                    points[_series_of(figure, host.name, _MEAN)] = sum(known) / len(known)
                    points[_series_of(figure, host.name, _WORST)] = worst
        self._past_of_hosts.append(fleet.wall_s, points, fleet.interval_s)

    def host_strips(self, hosts: Sequence[str]) -> Callable[[int, int], Row]:
        """The strips of a host, by its number among these: the mean of its GPUs, and behind it the worst of them."""

        def strips(group: int, room: int) -> Row:
            cells_of_each = min(MOST_STRIP_CELLS, room // 2 - 1)  # a blank behind each
            pieces: list[Piece] = []
            for part in (_MEAN, _WORST):
                key = _series_of(self.figure, hosts[group], part)
                shares = self._host_strip_values.values(self._past_of_hosts, key, cells_of_each, self._shown_s)
                pieces += strip_row(shares, self.figure, self.view, self.palette)
                pieces.append((" ", "text"))
            return tuple(pieces)

        return strips

    @property
    def _shown_s(self) -> float:
        """Unix time of the moment that is shown."""
        return self._fleet.wall_s if self._fleet is not None else 0.0

    def strips_text(self) -> str:
        """The meaning of the strips, behind the name; empty without any."""
        plan = self.painted_plan
        if plan is None or not plan.strips:
            return ""
        worst = "highest" if self.figure.worst_is_high else "lowest"
        return f" · last {period(STRIP_S)}: mean, {worst}"

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Run the command of a key of a fleet's screen; returns whether it has one."""
        return run_fleet_key(self, key)

    def title(self) -> str:
        """The name on the rule, and how many hosts have no tile."""
        without_gpus = [host for host in self._present_hosts() if not host.snapshot.gpus]
        if without_gpus:
            return f"{super().title()} · GPUs of {counted(len(without_gpus), 'host')} unknown"
        return super().title()

    def _present_hosts(self) -> Sequence[HostShown]:
        """The hosts but those that are gone."""
        if self._fleet is None:
            return ()
        return [host for host in self._fleet.hosts if host.state is not HostState.GONE]

    def all_items(self) -> Sequence[HostGpu]:
        """The GPUs of the hosts that are shown, those of a host together."""
        return [
            HostGpu(host.name, gpu)
            for host in self._present_hosts()
            if self._shown_hosts is None or host.name in self._shown_hosts
            for gpu in host.snapshot.gpus
        ]

    def verdicts_of(self, name: str) -> _Verdicts:
        """The verdicts on the GPUs of a host, worked out when a tile of the host is first painted."""
        verdicts = self._verdicts.get(name)
        if verdicts is None:
            host = self._fleet.host(name) if self._fleet is not None else None
            if host is None:
                verdicts = _Verdicts({}, {})
            else:
                snapshot = host.snapshot
                verdicts = _Verdicts(urgent_by_gpu(snapshot), states_by_key(snapshot.verdicts, Kind.GPU))
            self._verdicts[name] = verdicts
        return verdicts

    def tile_of(self, item: HostGpu) -> Tile:
        """The tile of a GPU, with its verdicts."""
        urgent, states = self.verdicts_of(item.host)
        uuid = item.gpu.reading.uuid
        return judged_tile(item.gpu, self.view, urgent=urgent.get(uuid), state=states.get(uuid), host=item.host)

    def host_of(self, item: HostGpu) -> str:
        """The host that a GPU is in."""
        return item.host

    def lines_without_rows(self, width: int) -> Sequence[Row]:
        """The line of a wall without tiles."""
        return wrap_line("no GPU is known of any host", width, "muted")

    def trouble(self, item: HostGpu) -> str:
        """The state of a GPU that is in trouble, with its host; else empty."""
        tile = self.tile_of(item)
        if tile.mark == " ":
            return ""
        return f"{tile.mark} {clean(item.host, 30)} gpu {item.gpu.reading.index} {tile.word}"


def _series_of(figure: WallFigure, host: str, part: str) -> str:
    """Name of the series of a figure of a host."""
    return f"{figure.row.field}/{part}/{host}"
