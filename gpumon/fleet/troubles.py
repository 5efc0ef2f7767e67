"""Troubles of a fleet, counted over the rows of its hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpumon.fleet.row import FleetRow, row_maintenance
from gpumon.fleet.snapshot import HostState
from gpumon.readings.format import counted
from gpumon.readings.snapshot import Level


def worst_level(rows: Sequence[FleetRow]) -> Level:
    """The worst level of the troubles that `count_troubles` counts: critical where a host is, else a warning."""
    for row in rows:
        if _counts(row) and row.level is Level.CRITICAL:
            return Level.CRITICAL
    return Level.WARN


def _counts(row: FleetRow) -> bool:
    """Whether the troubles of a row count: its host is there, and nobody works on it."""
    return row.state is not HostState.GONE and row_maintenance(row) is None


def count_troubles(rows: Sequence[FleetRow]) -> list[str]:
    """The number of each kind of trouble over rows of hosts, the worst first: `2 hosts critical`, `1 exporter down`."""
    levels: Counter[Level | None] = Counter()
    silent = 0
    exporters_down = 0
    for row in rows:
        if _counts(row):
            levels[row.level] += 1
            silent += row.silent
            exporters_down += row.exporters_down
    troubles = []
    if levels[Level.CRITICAL]:
        troubles.append(f"{counted(levels[Level.CRITICAL], 'host')} critical")
    if levels[Level.WARN]:
        troubles.append(f"{counted(levels[Level.WARN], 'host')} with warnings")
    if silent:
        troubles.append(counted(silent, "silent engine"))
    if exporters_down:
        troubles.append(f"{counted(exporters_down, 'exporter')} down")
    return troubles
