"""A feed from a file: most training loops expose no HTTP, and all can append a line of JSON at every step.

The last lines are read in a thread, bounded, and only when the file changed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.config.feed_rules import QUANTITIES, Kind
from gpumon.config.schema import Feed
from gpumon.readings.frame import Advance, EndpointState, EngineReading, Fault, RankReading
from gpumon.readings.quantities import STEPS
from gpumon.readings.text import clean
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.feeds.described import advance_of, as_feed, endpoint_of, url_of
from gpumon.sources.identity import IDENTITY
from gpumon.sources.model_files import open_regular
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.source import Contribution

SILENT_S: Final = 5.0
"""A look at the file that takes longer is said to hang."""
GAPS: Final = 8
"""Gaps between lines that the usual one is the median of."""
LATE: Final = 3.0
"""So many usual gaps without a line, and the figures are stale (as those of an endpoint after its intervals)."""
FIRST_GAP_S: Final = 100.0
"""The usual gap while there was only one line."""
CLOSE: Final = 0.95
"""Lines that are so much of an interval apart are as far apart as looks are."""
BACKLOG: Final = 5
"""Lines that are there at the start and tell their moment: rates need not wait for new ones. So many at least."""
BACKLOG_S: Final = 60.0
"""Of a loop that writes often, so many seconds of lines."""
FAULTS: Final = {
    FileNotFoundError: (
        EndpointState.STARTING,
        "there is no such file yet: has the run started, and is the path right?",
    ),
    PermissionError: (
        EndpointState.UNAUTHORIZED,
        "it may not be read: give gpumon's user the right to (chmod, groups)",
    ),
}
WINDOW_BYTES: Final = 64 * 1024
"""Read from the end of the file; a longer line is no step of a training loop."""
MOST_LINES: Final = 256
FINER_FROM: Final = 1e11
"""A moment in Unix seconds is below this until the year 5138; above it are thousandths, millionths, billionths."""
UNITS: Final = (1.0, 1e3, 1e6, 1e9)


class TooLongError(ValueError):
    """The last line is longer than the window."""


class Lines(NamedTuple):
    """What a look at the file gave."""

    lines: tuple[bytes, ...]
    """The last complete lines that are not blank, the oldest first; empty for an empty file."""
    changed_wall_s: float
    """When the file last changed, by its file system (Unix time)."""


class Tail:
    """One file by its path; what lies there may be replaced, truncated, or not be there yet."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, ...] = ()

    def look(self) -> Lines | None:
        """Its last lines; None where nothing changed since the last look that gave some. Blocks as files do.

        Raises OSError where it cannot be read or is no regular file, TooLongError.
        """
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{self._path.name} is no regular file")
        if _sign(found) == self._seen:
            return None
        with open_regular(self._path) as file:
            now = os.fstat(file.fileno())
            begin = max(0, now.st_size - WINDOW_BYTES)
            file.seek(begin)
            window = file.read(WINDOW_BYTES)
        complete = window[: window.rfind(b"\n") + 1]
        lines = complete.splitlines()
        if begin:
            # The first one has lost its beginning.
            lines = lines[1:]
            if not lines:
                raise TooLongError(f"its last line is longer than {WINDOW_BYTES // 1024} KiB")
        self._seen = _sign(now)
        return Lines(tuple(line for line in lines if line.strip())[-MOST_LINES:], now.st_mtime)


def _sign(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Step(NamedTuple):
    """What one line says."""

    counters: dict[str, float]
    gauges: dict[str, float]
    wall_s: float | None
    """Unix time; None where the line does not tell it."""


def step(line: bytes, feed: Feed) -> Step | None:
    """The step that a line tells of; None where it is no JSON object, or has none of the feed's keys."""
    told = _told(line)
    found = {name: number for name, key in feed.quantities.items() if (number := _number(_at(told, key))) is not None}
    if not found:
        return None
    kinds: Mapping[Kind, dict[str, float]] = {Kind.COUNTER: {}, Kind.GAUGE: {}, Kind.HISTOGRAM: {}}
    for name, number in found.items():
        kinds[QUANTITIES[name]][name] = number
    return Step(kinds[Kind.COUNTER], kinds[Kind.GAUGE], moment(_at(told, feed.time)) if feed.time else None)


def keys_of(line: bytes) -> tuple[str, ...]:
    """The keys of a line, those inside of keys with dots; none where it is no JSON object."""
    told = _told(line)
    inner = ((f"{key}.{each}" for each in value) if isinstance(value, dict) else (key,) for key, value in told.items())
    return tuple(chain.from_iterable(inner))


def text_at(line: bytes, key: str) -> str:
    """What stands under a key, as JSON has it; empty where nothing does."""
    value = _at(_told(line), key)
    return "" if value is None else json.dumps(value)


def moment(value: Any) -> float | None:
    """Unix seconds of a moment in seconds to nanoseconds, or ISO 8601 (local time where it names no zone)."""
    number = _number(value)
    if number is not None:
        return next((found for unit in UNITS if (found := number / unit) < FINER_FROM), None)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _told(line: bytes) -> dict[str, Any]:
    try:
        # Not msgspec: a loss of NaN, which no JSON has and every training loop writes, must not cost the line.
        told: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _at(told: dict[str, Any], path: str) -> Any:
    """What stands under a key; with dots, under a key inside of keys, unless the name itself has the dots."""
    if path in told:
        return told[path]
    found: Any = told
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _number(value: Any) -> float | None:
    """A finite number from 0 on; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0.0 <= number < math.inf else None


class FileFeed:
    """One feed with a file. `reading` is its newest; there from the start (`starting`). Never blocks the loop."""

    def __init__(
        self,
        feed: Feed,
        part: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`part` is the feed's name where others read the same file. `clock` is monotonic, `wall` is Unix time."""
        self.feed = feed
        self.endpoint = endpoint_of(feed)
        self._clock, self._wall = clock, wall
        url = url_of(feed)
        path = url.partition(":")[2]
        self._tail = Tail(path)
        blank = EngineReading(feed.name or Path(path).stem, url, EndpointState.STARTING, clock(), found_by="config")
        self._blank = msgspec.structs.replace(
            as_feed(blank, feed, part), interval_s=feed.interval_s, info={IDENTITY: "none"}
        )
        self.reading = self._blank
        self._good = self._blank
        self._content: Refusal | None = None
        """What was wrong with the lines when the file last changed."""
        self._moments: deque[float] = deque(maxlen=GAPS + 1)
        self._notices: dict[str, float] = {}
        self._busy: asyncio.Task[Lines | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    @property
    def readings(self) -> tuple[EngineReading, ...]:
        """The newest, as endpoints have them."""
        return (self.reading,)

    async def start(self) -> None:
        """Begin looking in the running event loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first look came to something."""
        if self._task is not None:
            waiting = asyncio.ensure_future(self._answered.wait())
            await asyncio.wait({waiting}, timeout=timeout_s)
            waiting.cancel()

    async def poll(self, monotonic_s: float) -> Contribution:
        """The newest reading, at once; after the start, with those of the lines before it."""
        reading = self.reading
        texts = [*self._said(), *self._late(monotonic_s)]
        self._notices = {text: self._notices.get(text, self._wall()) for text in texts}
        faults = tuple(Fault(reading.name, text, since) for text, since in self._notices.items())
        return Contribution(engines=(reading,), faults=faults)

    def set_interval(self, seconds: float) -> None:
        """A feed has a cadence of its own."""

    async def close(self) -> None:
        """Stop looking; a thread that hangs is left behind."""
        tasks = [task for task in (self._task, self._busy) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = self._busy = None

    async def _run(self) -> None:
        while True:
            refusal = await self._look()
            if refusal is not None:
                self.reading = msgspec.structs.replace(self.reading, state=refusal.state, fault=refusal.text)
            self._answered.set()
            await asyncio.sleep(self.feed.interval_s)

    async def _look(self) -> Refusal | None:
        """One look at the file, never two at once; nothing that it holds ends the looking."""
        self._busy = self._busy or asyncio.create_task(in_daemon_thread(self._tail.look))
        done, _ = await asyncio.wait({self._busy}, timeout=SILENT_S)
        if not done:
            return Refusal(EndpointState.TIMEOUT, "its file system does not answer: is that a mount that hangs?")
        look, self._busy = self._busy, None
        try:
            lines = look.result()
            if lines is not None:
                self._content = self._take(lines)
        except TooLongError as wrong:
            return Refusal(EndpointState.TOO_LARGE, f"{wrong}: is this a file of one JSON object a line?")
        except OSError as error:
            state, text = FAULTS.get(type(error), (EndpointState.ERROR, error.strerror or str(error)))
            return Refusal(state, clean(text, 120))
        except Exception as error:  # a fault of gpumon's own costs this row only
            return Refusal(EndpointState.ERROR, f"gpumon failed on this file ({type(error).__name__}): please report")
        if self._content is None:
            self.reading = self._good
        return self._content

    def _take(self, lines: Lines) -> Refusal | None:
        """The newest step of changed lines into the good reading; a refusal where there is none."""
        if not lines.lines:
            return Refusal(EndpointState.STARTING, "it is empty: has the run written its first line?")
        steps = [found for line in lines.lines if (found := step(line, self.feed)) is not None]
        if not steps:
            return self._unread(lines)
        told = steps[-1:] if self._moments else self._apart(steps)
        dated = [(self._moment(each, lines.changed_wall_s), each) for each in told]
        *before, newest = (self._at(moment_s, each) for moment_s, each in dated)
        self._good = msgspec.structs.replace(newest, earlier=tuple(before))
        return None

    def _apart(self, steps: list[Step]) -> list[Step]:
        """The newest step, and those before it that tell their moment, as far apart as looks at the file are."""
        newest_s, kept = steps[-1].wall_s, steps[-1:]
        after_s = newest_s
        for each in reversed(steps[:-1]):
            if newest_s is None or after_s is None or (len(kept) > BACKLOG and newest_s - after_s >= BACKLOG_S):
                break
            if each.wall_s is not None and after_s - each.wall_s >= CLOSE * self.feed.interval_s:
                kept.append(each)
                after_s = each.wall_s
        return kept[::-1]

    def _moment(self, told: Step, changed_wall_s: float) -> float:
        """The monotonic time of a step: as it says, else when the file changed; now, where that is not after the last
        one (clocks of two hosts, a run that was set back)."""
        now_s = self._clock()
        wall_s = changed_wall_s if told.wall_s is None else told.wall_s
        moment_s = min(now_s, now_s - (self._wall() - wall_s))
        if self._moments and moment_s <= self._moments[-1]:
            moment_s = max(now_s, self._moments[-1])
        self._moments.append(moment_s)
        return moment_s

    @property
    def _usual_s(self) -> float:
        """Usual seconds between two lines; 0 before there were two."""
        return median(after - before for before, after in pairwise(self._moments)) if len(self._moments) > 1 else 0.0

    def _at(self, moment_s: float, told: Step) -> EngineReading:
        found = {**told.counters, **told.gauges}
        advance = {name: advance_of(name, self.feed) for name in found}
        return msgspec.structs.replace(
            self._blank,
            state=EndpointState.OK,
            monotonic_s=moment_s,
            interval_s=max(self.feed.interval_s, self._usual_s or FIRST_GAP_S),
            exact_steps=STEPS in told.counters,
            live={name: self.feed.quantities[name] for name in found},
            advance={name: when for name, when in advance.items() if when is not Advance.LIVE},
            ranks=(RankReading("0", told.counters, told.gauges, {}),),
        )

    def _unread(self, lines: Lines) -> Refusal:
        wanted = dict.fromkeys(self.feed.quantities.values())
        newest = next((line for line in reversed(lines.lines) if keys_of(line)), b"")
        if there := [f"{key} = {text}" for key in wanted if (text := text_at(newest, key))]:
            text = f"no number from 0 on in its newest line: {', '.join(there)}"
            return Refusal(EndpointState.NOT_METRICS, clean(text, 200))
        if newest:
            text = f"none of the keys {', '.join(wanted)} is in its lines; the newest has {', '.join(keys_of(newest))}"
            return Refusal(EndpointState.NOT_METRICS, clean(text, 200))
        return Refusal(EndpointState.NOT_METRICS, "its last lines are no JSON objects: one object a line is read")

    def _said(self) -> list[str]:
        """What the newest line lacks of the feed."""
        if self.reading.state is not EndpointState.OK:
            return []
        absent = [f"{name} = {key}" for name, key in self.feed.quantities.items() if name not in self.reading.live]
        return [clean(f"no number in the newest line for {', '.join(absent)}", 200)] if absent else []

    def _late(self, now_s: float) -> list[str]:
        usual_s = self._usual_s
        longest_s = LATE * max(usual_s, self.feed.interval_s)
        if not usual_s or self.reading.state is not EndpointState.OK or now_s - self._moments[-1] <= longest_s:
            return []
        return [f"no new line for more than {longest_s:.0f} s, where one came each {usual_s:.0f} s: has the run ended?"]
