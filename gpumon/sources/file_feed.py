"""A [[feed]] with a file, to which a training loop appends a line of JSON at every step.

Its last lines are read in a thread, bounded, and only when the file changed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.config.feed_rules import FEED_QUANTITIES, MetricType
from gpumon.config.opener import open_checked
from gpumon.config.schema import Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineReading, Fault, RankReading
from gpumon.readings.text import clean
from gpumon.sources.checked_open import check_regular
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.feed_readings import advance_of, as_feed, endpoint_of, url_of
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.probe import IDENTITY
from gpumon.sources.source import Contribution

_SILENT_S: Final = 5.0
"""Seconds after which a read of the file is said to hang."""
_GAPS_OF_USUAL: Final = 8
"""Newest gaps between lines whose median is the usual gap."""
_LATE_GAPS: Final = 3.0
"""Usual gaps without a line after which the figures are stale, as those of an endpoint after as many intervals."""
FIRST_GAP_S: Final = 100.0
"""Seconds that stand for the usual gap while there was only one line."""
_GAP_SHARE: Final = 0.95
"""Share of the interval that lines of the start are apart at least: one that comes each interval may be a bit early."""
_BACKLOG_LINES: Final = 5
"""Lines before the newest that are taken at the start if they tell their moment: rates need not wait for new ones."""
BACKLOG_S: Final = 60.0
"""Seconds before the newest line from which lines are taken, too, if they are more than `_BACKLOG_LINES`."""
WINDOW_BYTES: Final = 64 * 1024
"""Bytes that are read from the end of the file: a line that is longer is no step of a training loop."""
_MOST_LINES: Final = 256
"""Lines of a read that are looked at, the newest."""
FINER_FROM: Final = 1e11
"""Unix seconds are below this until the year 5138: what is above is milliseconds, microseconds or nanoseconds."""
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


class TooLongError(ValueError):
    """The last line is longer than the window."""


class FeedTail:
    """The end of one file; what lies at its path may be replaced, truncated, or not be there yet."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._last_state: tuple[int, ...] = ()
        """Device, inode, size and mtime at the last read."""

    def read(self) -> tuple[tuple[bytes, ...], float] | None:
        """Its last complete lines that are not blank, the oldest first, and when it changed (Unix time).

        None if it has not changed since the last call that returned lines. Blocks as files do. Raises OSError,
        TooLongError.
        """
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{self._path.name} is no regular file")
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state == self._last_state:
            return None
        with open_checked(self._path, check_regular) as file:
            begin = max(0, os.fstat(file.fileno()).st_size - WINDOW_BYTES)
            file.seek(begin)
            window = file.read(WINDOW_BYTES)
        lines = window[: window.rfind(b"\n") + 1].splitlines()
        if begin:
            lines = lines[1:]  # the first one has lost its beginning
            if not lines:
                raise TooLongError(f"its last line is longer than {WINDOW_BYTES // 1024} KiB")
        self._last_state = state
        return tuple(line for line in lines if line.strip())[-_MOST_LINES:], status.st_mtime


class TrainingLine(NamedTuple):
    """A step as its line tells it."""

    values: dict[str, float]
    """Quantity -> its value."""
    wall_s: float | None
    """Unix time of the step; None where the line does not tell it."""


def parse_step(line: bytes, feed: Feed) -> TrainingLine | None:
    """The step that a line tells of; None where it is no JSON object, or has none of the feed's keys."""
    record = parse_object(line)
    numbers = {name: _number(_value_at(record, key)) for name, key in feed.quantities.items()}
    values = {name: value for name, value in numbers.items() if value is not None}
    if not values:
        return None
    wall_s = None
    if feed.time:
        wall_s = parse_time(_value_at(record, feed.time))
    return TrainingLine(values, wall_s)


def parse_time(value: Any) -> float | None:
    """Unix seconds of a moment in seconds to nanoseconds, or ISO 8601 (local time where it names no zone)."""
    number = _number(value)
    if number is not None:
        for unit in (1.0, 1e3, 1e6, 1e9):
            if number / unit < FINER_FROM:
                return number / unit
        return None
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def parse_object(line: bytes) -> dict[str, Any]:
    """The object of a line; empty where it is none."""
    try:
        # Not msgspec: a loss of NaN, which no JSON has and every training loop writes, must not cost the line.
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if isinstance(record, dict):
        return record
    return {}


def _value_at(record: dict[str, Any], path: str) -> Any:
    """The value of a key; with dots, of a key inside of keys, unless the name itself has the dots."""
    if path in record:
        return record[path]
    value: Any = record
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _number(value: Any) -> float | None:
    """The value, if it is a finite number from 0 on; else None, also for true and false."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if 0.0 <= number < math.inf:
        return number
    return None


class FileFeed:
    """One feed with a file, which never blocks the event loop. `reading` is its newest, at first a blank one."""

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
        self._clock = clock
        self._wall = wall
        url = url_of(feed)
        path = url.partition(":")[2]
        self._tail = FeedTail(path)
        blank = EngineReading(feed.name or Path(path).stem, url, EndpointState.STARTING, clock(), found_by="config")
        self._blank = msgspec.structs.replace(
            as_feed(blank, feed, part), interval_s=feed.interval_s, info={IDENTITY: "none"}
        )
        self.reading = self._blank
        self._good_reading = self._blank
        """The newest reading without a fault."""
        self._refusal: Refusal | None = None
        """Fault of the lines that were read last; None: they have a step."""
        self._step_times: deque[float] = deque(maxlen=_GAPS_OF_USUAL + 1)
        """Monotonic times of the newest steps."""
        self._notices: dict[str, float] = {}
        """Text -> since when it holds (Unix time)."""
        self._file_read: asyncio.Task[tuple[tuple[bytes, ...], float] | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    @property
    def readings(self) -> tuple[EngineReading, ...]:
        """The newest reading; several, as endpoints may have them."""
        return (self.reading,)

    async def start(self) -> None:
        """Begin reading in the running event loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first read came to something."""
        if self._task is not None:
            waiting = asyncio.ensure_future(self._answered.wait())
            await asyncio.wait({waiting}, timeout=timeout_s)
            waiting.cancel()

    async def poll(self, monotonic_s: float) -> Contribution:
        """The newest reading, at once; after the start, with those of the lines before it."""
        texts: list[str] = []
        if self.reading.state is EndpointState.OK:
            texts += self._absent_texts()
            texts += self._late_texts(monotonic_s)
        self._notices = {text: self._notices.get(text, self._wall()) for text in texts}
        faults = tuple(Fault(self.reading.name, text, since) for text, since in self._notices.items())
        return Contribution(engines=(self.reading,), faults=faults)

    def _absent_texts(self) -> list[str]:
        """The notice on quantities without a number in the newest line; none where all have one."""
        absent = [f"{name} = {key}" for name, key in self.feed.quantities.items() if name not in self.reading.live]
        if absent:
            return [clean(f"no number in the newest line for {', '.join(absent)}", 200)]
        return []

    def _late_texts(self, now_s: float) -> list[str]:
        """The notice that no line comes any more; none while they come, and before there were two."""
        usual_s = self._usual_s
        longest_s = _LATE_GAPS * max(usual_s, self.feed.interval_s)
        if not usual_s or now_s - self._step_times[-1] <= longest_s:
            return []
        return [f"no new line for more than {longest_s:.0f} s, where one came each {usual_s:.0f} s: has the run ended?"]

    def set_interval(self, seconds: float) -> None:
        """A feed has a cadence of its own."""

    async def close(self) -> None:
        """Stop reading; a thread that hangs is left behind."""
        tasks = [task for task in (self._task, self._file_read) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = None
        self._file_read = None

    async def _run(self) -> None:
        """Read the file at each interval, until this task is cancelled."""
        while True:
            refusal = await self._read_file()
            if refusal is not None:
                self.reading = msgspec.structs.replace(self.reading, state=refusal.state, fault=refusal.text)
            self._answered.set()
            await asyncio.sleep(self.feed.interval_s)

    async def _read_file(self) -> Refusal | None:
        """Read the file into `reading`; returns what is wrong with it. It is never read twice at once.

        Nothing that it holds ends the reading.
        """
        if self._file_read is None:
            self._file_read = asyncio.create_task(in_daemon_thread(self._tail.read))
        done, _ = await asyncio.wait({self._file_read}, timeout=_SILENT_S)
        if not done:
            return Refusal(EndpointState.TIMEOUT, "its file system does not answer: is that a mount that hangs?")
        file_read = self._file_read
        self._file_read = None
        try:
            changed = file_read.result()
            if changed is not None:
                self._refusal = self._take_lines(*changed)
        except TooLongError as error:
            return Refusal(EndpointState.TOO_LARGE, f"{error}: is this a file of one JSON object a line?")
        except OSError as error:
            state, text = FAULTS.get(type(error), (EndpointState.ERROR, error.strerror or str(error)))
            return Refusal(state, clean(text, 120))
        except Exception as error:  # a fault of gpumon's own costs this row only
            return Refusal(EndpointState.ERROR, f"gpumon failed on this file ({type(error).__name__}): please report")
        if self._refusal is None:
            self.reading = self._good_reading
        return self._refusal

    def _take_lines(self, lines: tuple[bytes, ...], changed_wall_s: float) -> Refusal | None:
        """Make a reading of the newest step in changed lines; returns a refusal where there is none.

        At the start, that reading has those of the steps before it (`_backlog`) as its `earlier`.
        """
        parsed = [parse_step(line, self.feed) for line in lines]
        steps = [step for step in parsed if step is not None]
        if not steps:
            return self._unread_refusal(lines)
        new_steps = steps[-1:] if self._step_times else self._backlog(steps)
        dated_steps = []
        for new_step in new_steps:
            step_s = self._step_time(new_step, changed_wall_s)
            self._step_times.append(step_s)
            dated_steps.append((step_s, new_step))
        # Readings are made after all times are known: the usual gap between lines is in each.
        *earlier, newest = [self._step_reading(step_s, step) for step_s, step in dated_steps]
        self._good_reading = msgspec.structs.replace(newest, earlier=tuple(earlier))
        return None

    def _backlog(self, steps: Sequence[TrainingLine]) -> list[TrainingLine]:
        """The newest step, and those before it that tell their moment, as far apart as the file is read."""
        newest = steps[-1]
        backlog = [newest]
        for earlier in reversed(steps[:-1]):
            after_s = backlog[0].wall_s
            if after_s is None or newest.wall_s is None:
                break
            if len(backlog) > _BACKLOG_LINES and newest.wall_s - after_s >= BACKLOG_S:
                break
            if earlier.wall_s is not None and after_s - earlier.wall_s >= _GAP_SHARE * self.feed.interval_s:
                backlog.insert(0, earlier)
        return backlog

    def _step_time(self, line: TrainingLine, changed_wall_s: float) -> float:
        """The monotonic time of a step: as its line says, else when the file changed (`changed_wall_s`, Unix time).

        It is now where that is not after the step before (clocks of two hosts, a run that was set back).
        """
        now_s = self._clock()
        wall_s = line.wall_s if line.wall_s is not None else changed_wall_s
        step_s = min(now_s, now_s - (self._wall() - wall_s))
        if self._step_times and step_s <= self._step_times[-1]:
            return max(now_s, self._step_times[-1])
        return step_s

    @property
    def _usual_s(self) -> float:
        """Usual seconds between two lines; 0 before there were two."""
        if len(self._step_times) > 1:
            return median(after - before for before, after in pairwise(self._step_times))
        return 0.0

    def _step_reading(self, moment_s: float, line: TrainingLine) -> EngineReading:
        """The reading of a step that was done at a monotonic time."""
        counters = {}
        gauges = {}
        advance = {}
        for name, value in line.values.items():
            if FEED_QUANTITIES[name] is MetricType.COUNTER:
                counters[name] = value
            else:
                gauges[name] = value
            when = advance_of(name, self.feed)
            if when is not Advance.LIVE:
                advance[name] = when
        return msgspec.structs.replace(
            self._blank,
            state=EndpointState.OK,
            monotonic_s=moment_s,
            interval_s=max(self.feed.interval_s, self._usual_s or FIRST_GAP_S),
            exact_steps=q.STEPS in counters,
            live={name: self.feed.quantities[name] for name in line.values},
            advance=advance,
            ranks=(RankReading("0", counters, gauges, {}),),
        )

    def _unread_refusal(self, lines: tuple[bytes, ...]) -> Refusal:
        """The refusal that says why no line is a step."""
        if not lines:
            return Refusal(EndpointState.STARTING, "it is empty: has the run written its first line?")
        newest = _newest_object(lines)
        keys = dict.fromkeys(self.feed.quantities.values())
        values = {key: _value_at(newest, key) for key in keys}
        present = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
        if present:
            text = f"no number from 0 on in its newest line: {', '.join(present)}"
        elif newest:
            text = f"none of the keys {', '.join(keys)} is in its lines; the newest has {_key_paths(newest)}"
        else:
            text = "its last lines are no JSON objects: one object a line is read"
        return Refusal(EndpointState.NOT_METRICS, clean(text, 200))


def _newest_object(lines: Sequence[bytes]) -> dict[str, Any]:
    """The last line that is a JSON object with a key; empty if there is none."""
    for line in reversed(lines):
        record = parse_object(line)
        if record:
            return record
    return {}


def _key_paths(record: Mapping[str, Any]) -> str:
    """The keys of an object, and those inside of keys as `outer.inner`."""
    keys: list[str] = []
    for key, value in record.items():
        if isinstance(value, dict):
            keys += [f"{key}.{inner}" for inner in value]
        else:
            keys.append(key)
    return ", ".join(keys)
