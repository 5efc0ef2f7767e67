"""Going back in time: how long a moment of a day's recording takes, and whether the flight recorder's memory is flat.

python -m tests.perf.bench_recording --file day.sqlite && python -m tests.perf.bench_replay day.sqlite
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from array import array
from pathlib import Path
from typing import Final

import psutil

from gpumon.history.memory import MemoryStore
from gpumon.history.reader import Recording
from gpumon.history.timeline import DerivedTimeline
from tests.history.pasts import make
from tests.perf.bench_recording import HOUR_S, day

SEEKS, STEPS = 20, 100
LIMIT_SEEK_S, LIMIT_STEPS_PER_S, LIMIT_KEEP_MS = 0.3, 20.0, 0.5
LIMIT_GROWN_MB: Final = 8.0
MADE_S: Final = 300
QUIET_S: Final = 1.5
"""After a moment was shown, what may be asked for next is worked out: the next seek waits for that here."""


async def seeks(path: Path, *, minutes: bool) -> list[float]:
    """Seconds to the first moment that a timeline shows, from opening the file on; at minutes, or anywhere."""
    chance, took = random.Random(3), []
    span = Recording(path).span()
    assert span is not None
    for _ in range(SEEKS):
        at_s = chance.uniform(span[0] + 300.0, span[1])
        at_s = at_s // 60.0 * 60.0 if minutes else at_s
        began_s = time.perf_counter()
        recording = Recording(path)
        moment = await DerivedTimeline(recording, make, lambda _: None).at(at_s + 0.01)
        took.append(time.perf_counter() - began_s)
        assert moment is not None
        await asyncio.sleep(QUIET_S)
        recording.close()
    return took


async def steps(path: Path, step: int) -> float:
    """Moments per second, one after another, from the middle of the recording on."""
    recording = Recording(path)
    span = recording.span()
    assert span is not None
    timeline = DerivedTimeline(recording, make, lambda _: None)
    moment = await timeline.at((span[0] + span[1]) / 2)
    began_s = time.perf_counter()
    for _ in range(STEPS):
        assert moment is not None
        moment = await timeline.step(moment.snapshot.wall_s, step)
    return STEPS / (time.perf_counter() - began_s)


def flat(hours: int) -> tuple[float, float, float]:
    """Median ms of keeping a tick, and MB of this process after two hours and at the end.

    Five minutes of frames, over and over at later times: to make more of them takes memory that is not the ring's.
    """
    process, ring, took, early = psutil.Process(), MemoryStore(1800.0, 24e6), array("f"), 0.0
    for at, kept in enumerate(day(hours, MADE_S)):
        began_s = time.perf_counter()
        ring.keep(kept)
        took.append(time.perf_counter() - began_s)
        if at % 60 == 0:
            ring.settle()  # a minute is packed long before the next one is over
        if at == 2 * HOUR_S - 1:
            early = process.memory_info().rss / 1e6
    ring.settle()
    return statistics.median(took) * 1e3, early, process.memory_info().rss / 1e6


def main() -> None:
    """Print the figures; ends with 1 where one is beyond its limit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path)
    arguments.add_argument("--hours", type=int, default=24, help="simulated hours through the flight recorder")
    given = arguments.parse_args()
    bad = False
    for minutes, where in ((True, "at a minute"), (False, "anywhere")):
        took = asyncio.run(seeks(given.file, minutes=minutes))
        bad |= max(took) > LIMIT_SEEK_S
        middle_ms, longest_ms = statistics.median(took) * 1e3, max(took) * 1e3
        print(f"opened {where}: median {middle_ms:.0f} ms, longest {longest_ms:.0f} ms (limit {LIMIT_SEEK_S:.1f} s)")
    for step in (1, -1):
        per_s = asyncio.run(steps(given.file, step))
        bad |= per_s < LIMIT_STEPS_PER_S
        print(f"steps {'forward' if step > 0 else 'back'}: {per_s:.0f} moments/s (limit {LIMIT_STEPS_PER_S:.0f})")
    keep_ms, early_mb, late_mb = flat(given.hours)
    bad |= keep_ms > LIMIT_KEEP_MS or late_mb - early_mb > LIMIT_GROWN_MB
    print(f"flight recorder: {keep_ms:.2f} ms per tick (limit {LIMIT_KEEP_MS} ms)")
    print(
        f"memory over {given.hours} h: {early_mb:.0f} MB, then {late_mb:.0f} MB (may grow by {LIMIT_GROWN_MB:.0f} MB)"
    )
    sys.exit(bad)


if __name__ == "__main__":
    main()
