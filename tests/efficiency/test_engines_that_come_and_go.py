"""An engine that is started anew every few seconds, each time at another port: nothing is kept of those before."""

from __future__ import annotations

from typing import Any

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.triage import Triage
from tests.efficiency.polls import engine, frame, gpu
from tests.records import replace

VISIT_S = 6
POLL_S = 3
MOST_BOUNDED = 256
"""Entries that some memories of ended engines have at most."""
EARLIER = MOST_BOUNDED + 60
LATER = EARLIER + 100
"""Engines that have come when the entries are counted: what grows with each of them has a hundred more."""
LEAST_TOLD = 64
"""Entries below which a container is none of many engines."""

BY_TIME = ("._recents[]._columns[]", "._recents[]._times", "._recents[].hour.slots")
"""Values of the last minutes and of the last hour of a thing that is there: more as time passes, up to their span."""


def sizes_of(root: object) -> dict[str, int]:
    """Path from `root` -> entries, of the largest container at that path."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    to_visit: list[tuple[str, Any]] = [("", root)]
    while to_visit:
        path, thing = to_visit.pop()
        if id(thing) in seen or isinstance(thing, int | float | str | bytes | type | None):
            continue
        seen.add(id(thing))
        if isinstance(thing, dict | list | tuple | set | frozenset) or hasattr(thing, "popleft"):
            sizes[path] = max(sizes.get(path, 0), len(thing))
            inside = thing.values() if isinstance(thing, dict) else thing
            to_visit += [(f"{path}[]", one) for one in inside]
            continue
        names = [*getattr(thing, "__dict__", {}), *getattr(thing, "__struct_fields__", ())]
        for kind in type(thing).__mro__:
            slots = getattr(kind, "__slots__", ())
            names += [slots] if isinstance(slots, str) else slots
        to_visit += [(f"{path}.{name}", getattr(thing, name)) for name in names if hasattr(thing, name)]
    return sizes


def test_nothing_is_kept_of_each_engine_that_was_ever_seen() -> None:
    deriver = Deriver(gpu_catalogue())
    triage = Triage()
    sizes: list[dict[str, int]] = []
    for visit in range(LATER + 1):
        for second in range(0, VISIT_S, POLL_S):
            at_s = float(visit * VISIT_S + second)
            polled = engine(at_s, {q.DECODE_TOKENS: 1000.0 * second, q.STEPS: 50.0 * second})
            guest = replace(polled, name=f"vllm:{20_000 + visit}", url=f"http://127.0.0.1:{20_000 + visit}")
            tick = frame(at_s, (gpu(0, at_s), gpu(1, at_s)), (guest,))
            snapshot, _, _ = deriver.derive(tick)
            triage.judge(tick, snapshot)
        if visit in (EARLIER, LATER):
            sizes.append({**sizes_of(deriver), **sizes_of(triage)})
    before, after = sizes
    grown = {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > before.get(path, 0) and path not in BY_TIME
    }
    assert {path: pair for path, pair in grown.items() if pair[1] > LEAST_TOLD} == {}
