"""The host in one line: what feeds the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.efficiency.ratio import plus
from gpumon.readings.format import amount, memory, ratio
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Host
from gpumon.tui.levels import is_high, tone_of
from gpumon.tui.line import Piece, cells_of
from gpumon.tui.view import View


def host_line(host: Host, view: View, room: int) -> list[Piece]:
    """CPU and its busiest core, memory, iowait, disk and network, as many as fit into `room` cells; nothing of a host
    whose figures are not read."""
    used = host.memory_used_bytes
    total = host.memory_total_bytes
    taken = f"{memory(used, view.memory_bytes)}/{memory(total, view.memory_bytes)} {view.memory_unit}"
    parts: list[tuple[str, str, str, Reading]] = [
        ("cpu", ratio(host.cpu_ratio, 4), "cpu", host.cpu_ratio),
        ("core", ratio(host.busiest_core_ratio, 4), "core", host.busiest_core_ratio),
        ("ram", taken, "memory", _share(used, total)),
        ("iowait", ratio(host.iowait_ratio, 4), "iowait", host.iowait_ratio),
        ("disk", ratio(host.disk_busy_ratio, 4), "disk", host.disk_busy_ratio),
        ("net", f"{amount(plus(host.network_rx_bytes_per_s, host.network_tx_bytes_per_s))}/s", "", 0.0),
    ]
    pieces: list[Piece] = []
    for name, text, level, value in parts:
        if isinstance(value, Missing) or "–" in text:
            continue
        tone = "hint"
        if level:
            tone = tone_of(level, value, view)
        if is_high(tone):
            figure = f"{text}!"
        else:
            figure = text
        begin = "  " if pieces else "host "
        more: Sequence[Piece] = ((begin, "hint"), (f"{name} ", "hint"), (figure, tone))
        if cells_of((*pieces, *more)) > room:
            break
        pieces += more
    return pieces


def _share(used: Reading, total: Reading) -> Reading:
    """Used memory as a share of all."""
    if isinstance(used, Missing):
        return used
    if isinstance(total, Missing) or not total > 0.0:
        return total
    return used / total
