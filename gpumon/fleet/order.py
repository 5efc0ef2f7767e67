"""Order of the rows of a fleet: the most urgent first, by a figure, or by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.fleet.row import FleetRow, row_maintenance, row_reader
from gpumon.fleet.snapshot import HostState
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Level, Limit
from gpumon.triage.marks import URGENCY

_STATE_PLACES: Final = {state: place for place, state in enumerate(HostState)}
"""Place of a state among those of a host, the best first."""
_UNDECIDED: Final = URGENCY[Level.NOTE] + 0.5
"""Place of a row without a verdict among the levels: a row that is known to be well comes after it."""
_BROKEN: Final = frozenset({GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED, GpuState.ERROR})
"""States of a GPU that somebody has to repair."""
_FULL_KV: Final = 0.98
"""KV usage from which new requests wait. A choice: there is hardly a block left for them."""
_SORTED_CHARACTERS: Final = 256
"""Characters of a name that rows are sorted by: a name from outside may be of any length."""


def _waste_key(row: FleetRow) -> tuple[Reading, ...]:
    """Price and number of idle GPUs, rounded: hosts of nearly equal waste must not change places at each refresh."""
    cost = row.idle_cost_per_h.value
    if not isinstance(cost, Missing):
        cost = float(f"{cost:.2g}")
    gpus = row.idle_gpus.value
    if not isinstance(gpus, Missing):
        gpus = round(gpus, 1)
    return (cost, gpus)


def _level_key(row: FleetRow) -> tuple[Reading, ...]:
    """Urgency, then waiting requests, then waste: the sort key of the levels."""
    levels = list(_instant_levels(row))
    if row.level is not None and not _is_undecided(row):
        levels.append(row.level)
    urgency = float(len(Level))
    if levels:
        urgency = min(URGENCY[level] for level in levels)
    elif row.parts.gpus or row.parts.engines:
        urgency = _UNDECIDED
    return (-urgency, _rounded_queue(row), *_waste_key(row))


def _is_undecided(row: FleetRow) -> bool:
    """Whether no verdict says how a row does: it has none yet, or signals are missing."""
    return row.worst is None or row.worst.code is Limit.UNKNOWN


def _instant_levels(row: FleetRow) -> Iterator[Level]:
    """Levels of troubles that readings show at once: verdicts take a while, and somebody looks before that."""
    if any(row_gpu.gpu.reading.state in _BROKEN for row_gpu in row.parts.gpus):
        yield Level.CRITICAL
    if row.silent or row.exporters_down:
        yield Level.WARN
    if not _is_undecided(row):
        return
    kv_usage = row.kv_usage_ratio
    is_full = not isinstance(kv_usage, Missing) and kv_usage >= _FULL_KV
    if is_full or _rounded_queue(row) > 0.0:
        yield Level.WARN


def _rounded_queue(row: FleetRow) -> float:
    """Waiting requests to one digit, so that rows keep their places; 0 where they are not known."""
    if isinstance(row.waiting, Missing):
        return 0.0
    return float(f"{row.waiting:.1g}")


def _largest_first(figure: Figure) -> Callable[[FleetRow], tuple[Reading, ...]]:
    """The sort key of a figure."""
    read = row_reader(figure)
    return lambda row: (read(row),)


_SORTED_BY: Final = {
    **{name: GPU.by_column[name] for name in ("busy", "mfu", "mbu")},
    "tokens": ENGINE["decode_tokens_per_s"],
    **{name: GPU.by_column[name] for name in ("power", "vram")},
    **{name: ENGINE.by_column[name] for name in ("waiting", "ttft", "itl", "kv")},
}
"""Name of a sort -> the figure that it goes by."""
SORTS: Final[dict[str, Callable[[FleetRow], tuple[Reading, ...]]]] = {
    "level": _level_key,
    "waste": _waste_key,
    "name": lambda _: (),
    **{name: _largest_first(figure) for name, figure in _SORTED_BY.items()},
}
"""Name of a sort -> the figures of a row that it goes by, the largest first; a missing figure comes last."""


def sort_fleet_rows(rows: Iterable[FleetRow], sort: str = "level") -> list[FleetRow]:
    """The rows in the order of a sort (`SORTS`); equals by name, numbers in names by their value.

    Hosts without figures come first in every order but that by name: somebody has to look there. By level they come
    after critical faults of the hardware: an engine that is alone on its host and silent is less than a broken GPU.
    Those in maintenance come last.
    """
    figures = SORTS[sort]

    def sort_key(row: FleetRow) -> tuple[object, ...]:
        blankness = -_STATE_PLACES[row.state]
        # A partial host has figures; one that starts will have some.
        if sort == "name" or row.state in (HostState.PARTIAL, HostState.STARTING):
            blankness = 0
        is_broken = sort == "level" and row.level is Level.CRITICAL and _is_hardware(row)
        silenced = sort != "name" and row_maintenance(row) is not None
        sort_figures = [_missing_last(figure) for figure in figures(row)]
        return (silenced, not is_broken, blankness, *sort_figures, natural_order(row.name), row.key)

    return sorted(rows, key=sort_key)


def _is_hardware(row: FleetRow) -> bool:
    """Whether the worst verdict of a row is on broken hardware."""
    return row.worst is not None and row.worst.code is Limit.HARDWARE_FAULT


def _missing_last(figure: Reading) -> tuple[bool, float]:
    """Sort key of a figure: the largest first, a missing one last."""
    if isinstance(figure, Missing):
        return (True, 0.0)
    return (False, -figure)


def natural_order(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key of a name, by the values of the numbers in it: `gpu2` comes before `gpu10`."""
    keys: list[tuple[bool, int, str]] = []
    for part in re.split(r"(\d+)", name.lower()[:_SORTED_CHARACTERS]):
        if part.isdecimal():
            keys.append((False, int(part), ""))
        elif part:
            keys.append((True, 0, part))
    return tuple(keys)
