"""The host in one line: what feeds the GPUs."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency.ratio import plus
from gpumon.readings.format import DASH, amount, memory, ratio
from gpumon.readings.frame import HostReading
from gpumon.readings.missing import Missing, Reading
from gpumon.tui.levels import is_high, tone_of
from gpumon.tui.line import Piece, cells_of
from gpumon.tui.view import View


class _HostFigure(NamedTuple):
    """One figure of the host."""

    name: str
    text: str
    """The figure with its unit."""
    level: str
    """Key of its level in `levels.LEVEL_BOUNDS`; empty where it has none."""
    value: Reading
    """The value that the level is of."""


def host_line(host: HostReading, view: View, room: int) -> list[Piece]:
    """CPU and its busiest core, memory, iowait, disk and network, as many as fit into `room` cells; nothing of a host
    whose figures are not read."""
    pieces: list[Piece] = []
    for figure in _figures(host, view):
        # A text of several readings has a dash in the place of one that is missing.
        if isinstance(figure.value, Missing) or DASH in figure.text:
            continue
        tone = tone_of(figure.level, figure.value, view) if figure.level else "hint"
        text = f"{figure.text}!" if is_high(tone) else figure.text
        lead = "  " if pieces else "host "
        pieces_of_figure = [(lead, "hint"), (f"{figure.name} ", "hint"), (text, tone)]
        if cells_of((*pieces, *pieces_of_figure)) > room:
            break
        pieces += pieces_of_figure
    return pieces


def _figures(host: HostReading, view: View) -> list[_HostFigure]:
    """The figures of a host, those that explain slow GPUs most often first."""
    used = host.memory_used_bytes
    total = host.memory_total_bytes
    memory_text = f"{memory(used, view.memory_bytes)}/{memory(total, view.memory_bytes)} {view.memory_unit}"
    network = plus(host.network_rx_bytes_per_s, host.network_tx_bytes_per_s)
    return [
        _HostFigure("cpu", ratio(host.cpu_ratio, 4), "cpu", host.cpu_ratio),
        _HostFigure("core", ratio(host.busiest_core_ratio, 4), "core", host.busiest_core_ratio),
        _HostFigure("ram", memory_text, "memory", _share(used, total)),
        _HostFigure("iowait", ratio(host.iowait_ratio, 4), "iowait", host.iowait_ratio),
        _HostFigure("disk", ratio(host.disk_busy_ratio, 4), "disk", host.disk_busy_ratio),
        _HostFigure("net", f"{amount(network)}/s", "", network),
    ]


def _share(used: Reading, total: Reading) -> Reading:
    """Used memory as a share of all."""
    if isinstance(used, Missing):
        return used
    if isinstance(total, Missing) or not total > 0.0:
        return total
    return used / total
