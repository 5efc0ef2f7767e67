"""The filter of all panes: which engines match it, and with them their GPUs, processes, verdicts and events."""

from __future__ import annotations

from collections.abc import Collection

from gpumon.readings.snapshot import Kind, Snapshot
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.engine_table import row_words
from gpumon.tui.rows import matches
from gpumon.tui.triage_words import urgent_in


def engines_that_match(snapshot: Snapshot, wanted: str) -> frozenset[str]:
    """Names of the engines whose own row the filter lets through."""
    urgent = urgent_in(snapshot, Kind.ENGINE)
    limits = {key: LIMIT_NAMES[verdict.code] for key, verdict in urgent.items()}
    match = set()
    for engine in snapshot.engines:
        if matches(row_words(engine, limits.get(engine.key, "")), wanted, engine.hardware.gpus):
            match.add(engine.name)
    return frozenset(match)


def engines_on(snapshot: Snapshot | None, gpus: Collection[int]) -> frozenset[str]:
    """Names of the engines that run on one of these GPUs."""
    engines = snapshot.engines if snapshot is not None else ()
    on = set()
    for engine in engines:
        if set(engine.hardware.gpus).intersection(gpus):
            on.add(engine.name)
    return frozenset(on)
