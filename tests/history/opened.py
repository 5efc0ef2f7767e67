"""Scenarios of the demo, lived once and then opened at every 10 s: are the verdicts of each moment what was shown then?

python -m tests.history.opened [NAME ...]
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import SCENARIOS, scenario
from gpumon.history.derivation import Derivation
from gpumon.history.frame_store import SEGMENT_S, FrameStore
from gpumon.history.memory import MemoryStore
from gpumon.readings.snapshot import Limit, Snapshot
from tests.accuracy.triage import frames
from tests.history.pasts import lived, make

Standing = frozenset[tuple[str, str, str, str]]


MOST_S = 170.0
"""Of a scenario: what stood before the warm-up of an opened past is not known there."""


class Opened(NamedTuple):
    """What came of it."""

    moments: int
    limits: frozenset[Limit]
    """All that stood live."""
    apart: list[tuple[float, Standing, Standing]]
    """Seconds from the beginning, what stood live, and what stands where the past is opened."""


def begun(ring: FrameStore, at_s: float) -> Derivation:
    """A course that is ready for the first frame at or after a time."""
    course = Derivation(ring, make)
    course.warm_up(at_s)
    return course


def standing(snapshot: Snapshot) -> Standing:
    """Thing, limit, level and since when of each verdict."""
    return frozenset((each.scope, each.code.value, each.level.value, each.since) for each in snapshot.verdicts)


def opened(played: Scenario, every: int = 1, every_s: int = 1) -> Opened:
    """Open a scenario at the beginning of its segments, or of one in `every`, and take the frames of that segment.

    There is a frame every `every_s` seconds.
    """
    ring = MemoryStore(3600.0, 1e9)
    played_frames = (frame for _, frame in frames(played, MOST_S, every_s=every_s))
    shown = {snapshot.wall_s: snapshot for snapshot in lived(played_frames, ring)}
    first_s, last_s = min(shown), max(shown)
    moments, apart = 0, []
    for number in range(int(first_s // SEGMENT_S) + 1, int(last_s // SEGMENT_S), every):
        course = begun(ring, number * SEGMENT_S)
        for frame in ring.frames(number * SEGMENT_S, (number + 1) * SEGMENT_S - 0.5):
            live, found = standing(shown[frame.wall_s]), standing(course.take(frame).snapshot)
            moments += 1
            if live != found:
                apart.append((frame.wall_s - first_s, live, found))
    return Opened(moments, frozenset(verdict.code for each in shown.values() for verdict in each.verdicts), apart)


def main() -> None:
    """Print a line for each scenario; ends with 1 where a moment differs."""
    bad = moments = 0
    for played in map(scenario, sys.argv[1:]) if sys.argv[1:] else SCENARIOS:
        of = opened(played)
        moments, bad = moments + of.moments, bad + len(of.apart)
        print(f"{played.name:26} {of.moments} moments, {len(of.apart)} differ {of.apart[:1] or ''}", flush=True)
    print(f"{moments} moments, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
