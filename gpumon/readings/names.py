"""Names that tell engines apart on the screen, and the faults that bear them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from gpumon.readings.frame import EngineReading, Fault
from gpumon.readings.text import clean

MOST_PLACE: Final = 80
"""Characters of a host and path in a name."""


def told_apart(
    parts: Iterable[tuple[Sequence[EngineReading], Sequence[Fault]]],
) -> tuple[tuple[EngineReading, ...], tuple[Fault, ...]]:
    """The engines of all sources, each with a name of its own, and the sources' faults under those names."""
    parts = tuple(parts)
    engines = unique(engine for part, _ in parts for engine in part)
    rest = iter(engines)
    faults = (fault for part, said in parts for fault in _renamed(said, part, [*islice(rest, len(part))]))
    return engines, tuple(faults)


def unique(readings: Iterable[EngineReading]) -> tuple[EngineReading, ...]:
    """The readings, each with a name of its own: those of one name get host and path into theirs, then a number."""
    engines = tuple(readings)
    counts = Counter(engine.name for engine in engines)
    if len(counts) == len(engines):
        return engines
    taken = {name for name, count in counts.items() if count == 1}
    named = []
    for engine in engines:
        if counts[engine.name] > 1:
            name = wanted = _placed(engine)
            number = 1
            while name in taken:
                number += 1
                name = f"{wanted} ({number})"
            taken.add(name)
            engine = msgspec.structs.replace(engine, name=name)
        named.append(engine)
    return tuple(named)


def _renamed(
    faults: Sequence[Fault], before: Sequence[EngineReading], after: Sequence[EngineReading]
) -> tuple[Fault, ...]:
    """One source's faults under the names that its engines have now; a name that became several stays as it was."""
    names: dict[str, set[str]] = {}
    for old, new in zip(before, after, strict=True) if faults else ():
        names.setdefault(old.name, set()).add(new.name)
    return tuple(
        msgspec.structs.replace(fault, source=next(iter(now)))
        if len(now := names.get(fault.source, set())) == 1
        else fault
        for fault in faults
    )


def _placed(engine: EngineReading) -> str:
    word = engine.server_name.partition(":")[0]
    place = engine.url.partition("://")[2] or engine.url.partition(":")[2]
    return f"{word}:{clean(place, MOST_PLACE)}{engine.name.removeprefix(engine.server_name)}"
