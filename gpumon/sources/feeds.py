"""Sources of a [[feed]]: a metrics page that the user's selectors map to canonical quantities, or a file to which a
training loop appends a line of JSON at every step.

The series that selectors name are added up. The last lines of a file are read in a thread, bounded, and only when the
file changed.
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
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gpumon.config.feed_rules import FEED_QUANTITIES, HIGHEST, MetricType, feed_server, shared_sources
from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.config.selector import Selector, selector
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, Fault, Phase, RankReading, Training
from gpumon.readings.text import clean
from gpumon.sources.endpoint import BACK_OFF, ENDPOINT_LIMITS, BackOff, EndpointSource, ServerProcess
from gpumon.sources.endpoint_url import FILE
from gpumon.sources.engines.adapter import METRICS_PATH, START_TIME, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.detect import Refusal, refusal_of_content
from gpumon.sources.engines.page_figures import PageFigures, Samples
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule, Tables
from gpumon.sources.exposition import Scan
from gpumon.sources.fetch import HttpAnswer, Limits
from gpumon.sources.model_files import open_regular
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.probe import IDENTITY, ProbedServer, probe_configured
from gpumon.sources.source import Contribution
from gpumon.specs.llm import LlmSpec

_FLOPS_PER_PARAMETER: Final = 6.0
"""FLOPs of one trained token per parameter: 2 forward and 4 backward (Kaplan et al. 2020, section 2.1)."""
PROMPTS: Final = frozenset({q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED})
"""Quantities of prompts, which may be booked when a prompt is done."""
_SILENT_S: Final = 5.0
"""Seconds after which a read of the file is said to hang."""
_USUAL_OF_GAPS: Final = 8
"""Newest gaps between lines; the usual gap is their median."""
_LATE_GAPS: Final = 3.0
"""Usual gaps without a line after which the figures are stale, as those of an endpoint after as many intervals."""
FIRST_GAP_S: Final = 100.0
"""Seconds of the usual gap while there was only one line."""
_BACKLOG_LINES: Final = 5
"""Lines before the newest that are taken at the start if they tell their moment: rates need not wait for new ones."""
BACKLOG_S: Final = 60.0
"""Seconds before the newest line from which lines are taken, too, if they are more than `_BACKLOG_LINES`."""
WINDOW_BYTES: Final = 64 * 1024
"""Read from the end of the file; a longer line is no step of a training loop."""
_MOST_LINES: Final = 256
"""Lines of a read that are looked at, the newest."""
FINER_FROM: Final = 1e11
"""A moment in Unix seconds is below this until the year 5138; above it are thousandths, millionths, billionths."""
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
_HISTOGRAM_ENDS: Final = ("_bucket", "_sum", "_count")
_NO_PAGE: Final = "404: no such page: check the url of this [[feed]]"


def _url_of(feed: Feed) -> str:
    """The feed's url as it stands in the config; for a file, `file:` with the full path."""
    return feed.url or FILE + os.path.abspath(os.path.expanduser(feed.file or ""))  # noqa: PTH100, PTH111 - a path as text, without its links resolved


def endpoint_of(feed: Feed) -> Endpoint:
    """The feed as an endpoint, for all that endpoints and feeds have in common."""
    settings: dict[str, Any] = {"url": _url_of(feed)}
    for name in Endpoint.__struct_fields__:
        if name in Feed.__struct_fields__ and name != "url":
            settings[name] = getattr(feed, name)
    return msgspec.convert(settings, Endpoint)


def as_feed(reading: EngineReading, feed: Feed, part: str) -> EngineReading:
    """A blank reading as one of this feed; `part` is its name where others read the same server or file."""
    training = None
    if feed.phase == "training":
        flops_by_size = _FLOPS_PER_PARAMETER * 1e9 * (feed.params_b or 0.0)
        training = Training(feed.flops_per_token or flops_by_size, feed.tokens_per_sample, feed.precision)
    return msgspec.structs.replace(
        reading, kind=EngineKind.GENERIC, phase=Phase(feed.phase), model=feed.model, part=part, training=training
    )


def advance_of(quantity: str, feed: Feed) -> Advance:
    """When a quantity of a feed moves: counters with the work, unless the user says at the end; gauges as they are.

    A server may book a whole prompt at once, when it is done: no rate of it is shorter than the times to first token
    where these are told.
    """
    if quantity in feed.at_end:
        return Advance.END
    if quantity in PROMPTS and q.TTFT in feed.quantities:
        return Advance.PROMPT
    if quantity.endswith("_per_s"):
        return Advance.SAMPLED
    return Advance.LIVE


def training_with_cost(training: Training, llm: LlmSpec | None) -> Training | None:
    """The training with the FLOPs of a token, by the config or the model; None where nobody said what a token costs."""
    if training.flops_per_token > 0.0:
        return training
    if llm is None:
        return None
    idle_params = 0.0
    if llm.experts:
        idle_params = (llm.experts - llm.experts_per_token) * llm.expert_params
    return msgspec.structs.replace(training, flops_per_token=_FLOPS_PER_PARAMETER * (llm.params - idle_params))


class TooLongError(ValueError):
    """The last line is longer than the window."""


class FeedTail:
    """One file by its path; what lies there may be replaced, truncated, or not be there yet."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._last_state: tuple[int, ...] = ()
        """Device, inode, size and mtime at the last read."""

    def read(self) -> tuple[tuple[bytes, ...], float] | None:
        """Its last complete lines that are not blank, the oldest first, and when it changed (Unix time).

        None where it did not change since the last read that gave some. Blocks as files do.

        Raises OSError, TooLongError.
        """
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{self._path.name} is no regular file")
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if state == self._last_state:
            return None
        with open_regular(self._path) as file:
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
    """The content of one line: values by quantity, and its Unix time, None where it does not tell that."""

    values: dict[str, float]
    wall_s: float | None


def parse_step(line: bytes, feed: Feed) -> TrainingLine | None:
    """The step that a line tells of; None where it is no JSON object, or has none of the feed's keys."""
    record = parse_object(line)
    values: dict[str, float] = {}
    for name, key in feed.quantities.items():
        value = _number(_value_at(record, key))
        if value is not None:
            values[name] = value
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
    """A finite number from 0 on; a truth value is none."""
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
        url = _url_of(feed)
        path = url.partition(":")[2]
        self._tail = FeedTail(path)
        blank = EngineReading(feed.name or Path(path).stem, url, EndpointState.STARTING, clock(), found_by="config")
        self._blank = msgspec.structs.replace(
            as_feed(blank, feed, part), interval_s=feed.interval_s, info={IDENTITY: "none"}
        )
        self.reading = self._blank
        self._good = self._blank
        """The newest reading without a fault."""
        self._refusal: Refusal | None = None
        """Fault of the lines when the file last changed."""
        self._step_times: deque[float] = deque(maxlen=_USUAL_OF_GAPS + 1)
        """Monotonic times of the newest steps."""
        self._notices: dict[str, float] = {}
        self._busy: asyncio.Task[tuple[tuple[bytes, ...], float] | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    @property
    def readings(self) -> tuple[EngineReading, ...]:
        """The newest, as endpoints have them."""
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
        texts = []
        ok = self.reading.state is EndpointState.OK
        absent = []
        for name, key in self.feed.quantities.items():
            if name not in self.reading.live:
                absent.append(f"{name} = {key}")
        if ok and absent:
            texts.append(clean(f"no number in the newest line for {', '.join(absent)}", 200))
        usual_s = self._usual_s
        longest_s = _LATE_GAPS * max(usual_s, self.feed.interval_s)
        if ok and usual_s and monotonic_s - self._step_times[-1] > longest_s:
            texts.append(
                f"no new line for more than {longest_s:.0f} s, where one came each {usual_s:.0f} s: has the run ended?"
            )
        self._notices = {text: self._notices.get(text, self._wall()) for text in texts}
        faults = tuple(Fault(self.reading.name, text, since) for text, since in self._notices.items())
        return Contribution(engines=(self.reading,), faults=faults)

    def set_interval(self, seconds: float) -> None:
        """A feed has a cadence of its own."""

    async def close(self) -> None:
        """Stop reading; a thread that hangs is left behind."""
        tasks = [task for task in (self._task, self._busy) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = None
        self._busy = None

    async def _run(self) -> None:
        """Read the file at each interval, for ever."""
        while True:
            refusal = await self._read_file()
            if refusal is not None:
                self.reading = msgspec.structs.replace(self.reading, state=refusal.state, fault=refusal.text)
            self._answered.set()
            await asyncio.sleep(self.feed.interval_s)

    async def _read_file(self) -> Refusal | None:
        """Read the file, never twice at once; nothing that it holds ends the reading."""
        if self._busy is None:
            self._busy = asyncio.create_task(in_daemon_thread(self._tail.read))
        done, _ = await asyncio.wait({self._busy}, timeout=_SILENT_S)
        if not done:
            return Refusal(EndpointState.TIMEOUT, "its file system does not answer: is that a mount that hangs?")
        read = self._busy
        self._busy = None
        try:
            changed = read.result()
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
            self.reading = self._good
        return self._refusal

    def _take_lines(self, lines: tuple[bytes, ...], changed_wall_s: float) -> Refusal | None:
        """Make the newest step of changed lines the good reading; a refusal where there is none.

        At the start, those before it that tell their moment come with it, as far apart as the file is read.
        """
        steps = []
        for line in lines:
            line_step = parse_step(line, self.feed)
            if line_step is not None:
                steps.append(line_step)
        if not steps:
            return self._unread_refusal(lines)
        new_steps = steps[-1:]
        if not self._step_times:
            new_steps = self._backlog(steps)
        dated = []
        for new_step in new_steps:
            step_s = self._step_time(new_step, changed_wall_s)
            self._step_times.append(step_s)
            dated.append((step_s, new_step))
        *earlier, newest = [self._reading(step_s, new_step) for step_s, new_step in dated]
        self._good = msgspec.structs.replace(newest, earlier=tuple(earlier))
        return None

    def _backlog(self, steps: Sequence[TrainingLine]) -> list[TrainingLine]:
        """The newest step, and those before it that tell their moment, as far apart as the file is read."""
        newest = steps[-1]
        shown = [newest]
        for earlier in reversed(steps[:-1]):
            after_s = shown[0].wall_s
            if after_s is None or newest.wall_s is None:
                break
            if len(shown) > _BACKLOG_LINES and newest.wall_s - after_s >= BACKLOG_S:
                break
            # A little less than the interval: a line each interval is not left out for its jitter.
            if earlier.wall_s is not None and after_s - earlier.wall_s >= 0.95 * self.feed.interval_s:
                shown.insert(0, earlier)
        return shown

    def _step_time(self, line: TrainingLine, changed_wall_s: float) -> float:
        """The monotonic time of a step: as it says, else when the file changed.

        Now, where that is not after the last one (clocks of two hosts, a run that was set back).
        """
        now_s = self._clock()
        wall_s = changed_wall_s
        if line.wall_s is not None:
            wall_s = line.wall_s
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

    def _reading(self, moment_s: float, line: TrainingLine) -> EngineReading:
        """The reading of one step."""
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
        present = []
        for key in keys:
            value = _value_at(newest, key)
            if value is not None:
                present.append(f"{key} = {json.dumps(value)}")
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


class GenericAdapter(Adapter):
    """One feed. Series that match are added, in histograms bucket by bucket; of `HIGHEST` the highest counts."""

    kind = EngineKind.GENERIC
    feed: Feed
    part: str = ""

    def __init__(self) -> None:
        super().__init__()
        feed = self.feed
        self.selectors: dict[str, Selector] = {name: selector(text) for name, text in feed.quantities.items()}
        rules: dict[MetricType, list[Rule]] = {kind: [] for kind in MetricType}
        for name in self.selectors:
            metric = Metric(name, advance=advance_of(name, feed))
            rules[FEED_QUANTITIES[name]].append(Rule(name, (metric,), added=name not in HIGHEST))
        self.tables = Tables(
            rank_label="",
            counters=tuple(rules[MetricType.COUNTER]),
            gauges=tuple(rules[MetricType.GAUGE]),
            histograms=tuple(rules[MetricType.HISTOGRAM]),
        )

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:  # noqa: ARG003 - the signature of Adapter
        """The user says so."""
        return True

    @property
    def wanted_names(self) -> frozenset[str]:
        """The metrics that the selectors name."""
        names = {START_TIME}
        for quantity, chosen in self.selectors.items():
            names.update(chosen.name + end for end in _name_ends(quantity))
        return frozenset(names)

    def collect(self, samples: Samples) -> PageFigures:
        """The figures that the selectors take of a page: they stand under the quantity's name with the ends of a
        histogram."""
        groups = self._selected_series(samples.by_name)
        values = dict(chain.from_iterable(groups.values()))
        figures = super().collect(Samples(values, groups, [*map(len, groups.values())]))
        figures.live.update((quantity, self.feed.quantities[quantity]) for quantity in figures.live)
        figures.exact_steps = q.STEPS in figures.live
        return figures

    def reading(self, figures: PageFigures) -> EngineReading:
        """The page in canonical quantities; no rank where no selector takes a series of it."""
        return as_feed(super().reading(figures), self.feed, self.part)

    def _selected_series(self, page: Mapping[str, FoundSeries]) -> dict[str, FoundSeries]:
        """The series of a page that the selectors take, by the quantity's name with the ends of a histogram."""
        selected: dict[str, FoundSeries] = {}
        for quantity, chosen in self.selectors.items():
            for end in _name_ends(quantity):
                matching = []
                for series, value in page.get(chosen.name + end, ()):
                    if chosen.takes(series.labels):
                        matching.append((series, value))
                if matching:
                    selected[quantity + end] = matching
        return selected


def _name_ends(quantity: str) -> Sequence[str]:
    """The ends of a quantity's sample names: those of a histogram, or none."""
    if FEED_QUANTITIES[quantity] is MetricType.HISTOGRAM:
        return _HISTOGRAM_ENDS
    return ("",)


def engine_row_of(feed: Feed, part: str, *, named_page: bool) -> EngineRow:
    """The feed as a row of the registry: it is read where the user says, and asked for no model and no version."""
    adapter = type("FeedAdapter", (GenericAdapter,), {"feed": feed, "part": part})
    path = METRICS_PATH
    if named_page:  # the URL is the page
        path = ""
    return EngineRow("the feed", adapter, 0, paths=(path,), models_path="", version_path="")


class PageFeed(EndpointSource):
    """One feed with a url. `part` is its name where other feeds or endpoints read the same server."""

    def __init__(
        self,
        feed: Feed,
        part: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = ENDPOINT_LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the feed's URL is malformed."""
        self.feed = feed
        endpoint = endpoint_of(feed)
        super().__init__(endpoint, feed.interval_s, clock, limits=limits, back_off=back_off, wall=wall)
        named_page = bool(urlsplit(endpoint.url).path.strip("/"))
        self._row = engine_row_of(feed, part, named_page=named_page)
        self._blank = as_feed(self._blank, feed, part)
        self.readings = (self._blank,)

    async def _probe(self) -> tuple[ProbedServer, HttpAnswer] | Refusal:
        return await probe_configured(self.fetcher, self.url, self.endpoint, self._row)

    def _fail(self, refusal: Refusal) -> None:
        if refusal.state is EndpointState.METRICS_OFF:  # its advice is for an engine
            refusal = Refusal(EndpointState.HTTP_ERROR, _NO_PAGE)
        super()._fail(refusal)

    def _unread_refusal(self, server: ProbedServer, answer: HttpAnswer) -> Refusal:  # noqa: ARG002 - the signature of EndpointSource
        refusal = refusal_of_content(answer.body, answer.content_type, EngineKind.UNKNOWN)
        if refusal.state is EndpointState.NOT_METRICS:
            return refusal
        text = f"none of its metrics is on this page: {self._with_sources(tuple(self.feed.quantities))}"
        return Refusal(EndpointState.NOT_METRICS, text)

    def _name(self, kind: EngineKind, part: str = "") -> str:  # noqa: ARG002 - the signature of EndpointSource
        return self.feed.name or f"{EngineKind.GENERIC.value}:{self.url.port}"

    def _note_flags(self, scan: Scan, process: ServerProcess) -> None:
        super()._note_flags(scan, process)
        absent = []
        for name in self.feed.quantities:
            if not any(name in reading.live for reading in self.readings):
                absent.append(name)
        if absent:
            text = f"no series on the page for {self._with_sources(absent)}"
            self._notices[text] = self._notices.get(text, self._wall())

    def _with_sources(self, quantities: Sequence[str]) -> str:
        """Quantities with the selectors of their series: `running = name{...}`."""
        return clean(", ".join(f"{name} = {self.feed.quantities[name]}" for name in quantities), 200)


def feeds_of(config: Config) -> tuple[list[PageFeed], list[FileFeed]]:
    """The feeds of the config with a url, and those with a file; not started."""
    several = shared_sources(config)
    pages: list[PageFeed] = []
    files: list[FileFeed] = []
    for feed in config.feed:
        part = ""
        if feed_server(feed) in several:
            part = feed.name
        if feed.url:
            pages.append(PageFeed(feed, part))
        else:
            files.append(FileFeed(feed, part))
    return pages, files
