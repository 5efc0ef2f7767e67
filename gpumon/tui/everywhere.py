"""The filter of all panes: which engines match it, and with them their GPUs, processes, verdicts and events."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from gpumon.readings.snapshot import Kind, Snapshot
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.engine_table import FIGURE_NAMED, row_words
from gpumon.tui.rows import matches
from gpumon.tui.triage_words import urgent_in


def engines_that_match(snapshot: Snapshot, filter_text: str, memory_unit: str) -> frozenset[str]:
    """Names of the engines whose own row the filter lets through."""
    urgent = urgent_in(snapshot, Kind.ENGINE)
    limits = {key: LIMIT_NAMES[verdict.code] for key, verdict in urgent.items()}
    names = set()
    for engine in snapshot.engines:
        words = row_words(engine, limits.get(engine.key, ""))
        if matches(words, filter_text, engine.hardware.gpus, partial(FIGURE_NAMED, engine), memory_unit):
            names.add(engine.name)
    return frozenset(names)


def engines_on(snapshot: Snapshot | None, gpus: Collection[int]) -> frozenset[str]:
    """Names of the engines that run on one of these GPUs."""
    names = set()
    if snapshot is not None:
        for engine in snapshot.engines:
            if set(engine.hardware.gpus).intersection(gpus):
                names.add(engine.name)
    return frozenset(names)
