"""Polls one serving engine's endpoint at its own cadence and keeps the newest reading."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.deadline import timeout
from gpumon.efficiency.births import SURE_ANSWERS
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Fault, part_of_name
from gpumon.readings.quantities import DECODE_TOKENS
from gpumon.sources.api_key import SENT_UNVERIFIED, refused_key_text
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.endpoint_url import parse_url as parse_url
from gpumon.sources.engines.adapter import MOST_PARTS, Adapter
from gpumon.sources.engines.detect import Refusal, refusal_of_content, refusal_of_status
from gpumon.sources.engines.page_figures import MOST_RANKS, Bodies
from gpumon.sources.exposition import Scan, Scanner
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer, Limits
from gpumon.sources.probe import (
    IDENTITY,
    UNASKED,
    WANTS_KEY,
    Identity,
    ProbedServer,
    ask_engine,
    configured_kind,
    find,
    get_keyed,
)
from gpumon.sources.source import Contribution

SCANNED_IN_LOOP_BYTES: Final = 256 * 1024
"""A larger page, and the first one, is scanned in a thread, so that the screen does not wait for it."""

ASK_AGAIN_S: Final = 30.0
"""Pause before model and version are asked for again, where the server did not answer."""


class BackOff(NamedTuple):
    """Pause after failures in a row: doubled from `first_s` up to `most_s`."""

    first_s: float = 2.0
    most_s: float = 30.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row; 0 after none."""
        if failures:
            return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return 0.0


class PollTimes:
    """When a server is polled: at every interval, and after failures in a row once their pause is over."""

    def __init__(self, begun_s: float, back_off: BackOff) -> None:
        self._anchor_s = begun_s
        """Polls are due whole intervals after this."""
        self._back_off = back_off

    def wait_s(self, now_s: float, interval_s: float, failures: int) -> float:
        """Seconds until the next poll."""
        due_s = self._anchor_s + (math.floor((now_s - self._anchor_s) / interval_s) + 1) * interval_s
        pause_s = self._back_off.pause_s(failures)
        if pause_s > due_s - now_s:
            due_s = now_s + pause_s
            self._anchor_s = due_s
        return due_s - now_s


ENDPOINT_LIMITS: Final = Limits()
BACK_OFF: Final = BackOff()
PROBE_AGAIN_AFTER: Final = frozenset(
    {
        EndpointState.REFUSED,
        EndpointState.WRONG_ENGINE,
        EndpointState.NOT_METRICS,
        EndpointState.METRICS_OFF,
        EndpointState.UNAUTHORIZED,
    }
)
"""States after which the next server there may be another one, or want another key: it is probed again."""

_START_TOLERANCE_S: Final = 1.0
"""Seconds by which two start times that a server tells of one process may differ."""
_MOST_MODELS: Final = 1024
"""Models of one server of which it is remembered when they came."""
NO_SCAN: Final = Scan({}, 0, 0, cut=False)
"""A scan without samples: a page in JSON has none."""


class ServerProcess:
    """Knowledge of one process of a server: another process begins with none."""

    def __init__(self, server: ProbedServer) -> None:
        self.server = server
        self.adapter: Adapter = server.row.adapter()
        self.scanner = Scanner(self.adapter.wanted_names)
        self.identity: Identity | None = None
        self.ask_again_s = 0.0
        """Monotonic time from which its identity may be asked for again."""
        self.absent_s: dict[str, float | None] = {}
        """Model -> monotonic time of the newest whole answer before its first figures; None where there was none."""
        self.bodies: dict[str, bytes] = {}
        """Path of a companion page -> its newest body."""
        self.asked_s: dict[str, float] = {}
        """Path of a companion page -> monotonic time at which it was asked for."""


class EndpointSource:
    """One endpoint. `readings` are its newest, one for each model of the server, there from the start (`starting`).

    After a failure the last good figures stay in the reading, with the moment that they stand for; its state and
    fault say what is wrong. `found_by` says who gave the endpoint: config or discovery. `limits`, `back_off`,
    `clock` (monotonic) and `wall` (Unix time) are there for tests.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = ENDPOINT_LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
        found_by: str = "config",
        unix_socket: str = "",
    ) -> None:
        """Raises ValueError where its URL is malformed. `unix_socket`: as of a `Fetcher`."""
        self.endpoint = endpoint
        self._least_interval_s = interval_s
        self.interval_s = interval_s
        """Seconds between two polls: as many as were asked for, or as the server's page takes to change."""
        self.url: EndpointUrl = parse_url(endpoint.url)
        self._clock = clock
        self._wall = wall
        self._back_off = back_off
        self.fetcher = Fetcher(
            self.url,
            tls_ca=endpoint.tls_ca,
            tls_verify=endpoint.tls_verify,
            limits=limits,
            clock=clock,
            secret=endpoint,
            unix_socket=unix_socket,
        )
        """Client of its server. The simulated server puts its own in this place while it plays its past."""
        self._record_refusals: list[Refusal] = []
        """Refusals of a /metrics that gives each record once, which `find` must not ask again; `find` adds to them."""
        self.join_process: Callable[[EngineReading], EngineReading] | None = None
        """Adds to a reading what the server's process tells. The search for processes sets it (`discovery.source`, and
        `guest.engines` on other hosts) where it knows that process; None: it does not."""
        self._failures = 0
        self._notices: dict[str, float] = {}
        """Text -> since when it holds (Unix time)."""
        self._polling_task: asyncio.Task[None] | None = None
        self._identity_task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._whole_answers_s: list[float] = []
        """Monotonic times of the newest answers of this process that were read to their end, those without figures
        included: at most `SURE_ANSWERS`, in a row."""
        self._process: ServerProcess | None = None
        kind = configured_kind(endpoint)
        self._found_by = found_by
        starting = EngineReading(
            name=self._name(kind),
            url=self.url.base,
            state=EndpointState.STARTING,
            monotonic_s=clock(),
            kind=kind,
            interval_s=interval_s,
            found_by=found_by,
        )
        self.readings: tuple[EngineReading, ...] = (starting,)

    @property
    def reading(self) -> EngineReading:
        """The newest reading; of a server of several models, that of the first."""
        return self.readings[0]

    def __repr__(self) -> str:
        return f"EndpointSource({self.url.base!r}, {self.reading.state.value})"

    async def start(self) -> None:
        """Begin polling in the running event loop."""
        if self._polling_task is None:
            self._polling_task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first poll came to an answer or a failure, with the model's name if it was an answer."""
        end_s = time.monotonic() + timeout_s
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(timeout_s):
                await self._answered.wait()
        if self._identity_task is not None:
            await asyncio.wait({self._identity_task}, timeout=max(0.0, end_s - time.monotonic()))

    async def poll(self, monotonic_s: float) -> Contribution:  # noqa: ARG002 - the signature of Source
        """The newest readings, at once."""
        return self.newest()

    def newest(self) -> Contribution:
        """The newest readings, and the notices of the newest page as faults."""
        faults = tuple(Fault(self.reading.name, text, since) for text, since in self._notices.items())
        if self.join_process is None:
            engines = self.readings
        else:
            engines = tuple(map(self.join_process, self.readings))
        return Contribution(engines=engines, faults=faults)

    def set_interval(self, seconds: float) -> None:
        """Engines are polled at a cadence of their own."""

    async def close(self) -> None:
        """Stop polling and hang up."""
        tasks = [task for task in (self._polling_task, self._identity_task) if task is not None]
        for task in tasks:
            task.cancel()
        self._polling_task = None
        self._identity_task = None
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        await self.fetcher.close()

    async def _run(self) -> None:
        """Poll until this task is cancelled, less often after failures."""
        times = PollTimes(self._clock(), self._back_off)
        while True:
            await self.scrape()
            await asyncio.sleep(times.wait_s(self._clock(), self.interval_s, self._failures))

    async def _probe(self) -> tuple[ProbedServer, HttpAnswer] | Refusal:
        """The server with its first page, or why there is none; a `PageFeed` knows what it is. Raises FetchError."""
        return await find(self.fetcher, self.url, self.endpoint, self._record_refusals)

    async def scrape(self) -> None:
        """One poll, whatever came of it: `readings` are its figures, or say what is wrong.

        Nothing that the server sends ends the polling.
        """
        try:
            refusal = await self._ask_page()
        except FetchError as fault:
            refusal = Refusal(fault.state, fault.text)
        except Exception as error:  # a fault of gpumon's own costs this row only
            refusal = Refusal(
                EndpointState.ERROR, f"gpumon failed on this answer ({type(error).__name__}): please report"
            )
        if refusal is not None:
            self._fail(refusal)
        self._answered.set()

    async def _ask_page(self) -> Refusal | None:
        """Find out what the server is, where that is not known, ask for its page, and read it into `readings`; the
        refusal if it has nothing. Raises FetchError."""
        process = self._process
        if process is None:
            probed = await self._probe()
            if isinstance(probed, Refusal):
                return probed
            server, answer = probed
            process = ServerProcess(server)
            self._process = process
            self.interval_s = max(self._least_interval_s, server.row.changes_each_s)
        else:
            server = process.server
            answer = await self.fetcher.get(server.url, server.key)
        key_fault = refused_key_text(self.endpoint) if server.key else ""
        refusal = refusal_of_status(answer.status, answer.location, server.row.kind, key_fault)
        if refusal is not None:
            return refusal
        return await self._read_answer(process, answer)

    def _unread_refusal(self, server: ProbedServer, answer: HttpAnswer) -> Refusal:
        """The refusal of an answer that the adapter found nothing in; a `PageFeed` has words of its own."""
        return refusal_of_content(answer.body, answer.content_type, server.row.kind)

    def _fail(self, refusal: Refusal) -> None:
        """Note a failed poll, in all readings. What is known of the process stays, unless another may be there now."""
        self._notices = {}
        if refusal.state in PROBE_AGAIN_AFTER:
            self._process = None
            self._whole_answers_s.clear()
        if refusal.nothing_counted:
            # An engine that has served nothing has no figures, and is polled as often as any: its first request counts.
            self._failures = 0
            self._whole_answers_s = [*self._whole_answers_s, self._clock()][-SURE_ANSWERS:]
        else:
            self._failures += 1
        changes = {"state": refusal.state, "fault": refusal.text, "interval_s": self.interval_s}
        self.readings = tuple(msgspec.structs.replace(reading, **changes) for reading in self.readings)

    async def _read_answer(self, process: ServerProcess, answer: HttpAnswer) -> Refusal | None:
        """Read a page into `readings`; a refusal where it is not one of this engine."""
        server = process.server
        bodies = {**await self._get_companions(process), server.path: answer.body}
        scan, pages = await self._parse(process, bodies)
        if not pages:
            if len(answer.body) <= SCANNED_IN_LOOP_BYTES:
                return self._unread_refusal(server, answer)
            return await asyncio.to_thread(self._unread_refusal, server, answer)
        if restarted(self.readings, pages):
            process = ServerProcess(server)
            self._process = process
            self._whole_answers_s.clear()
            scan, pages = await self._parse(process, bodies)
        self._failures = 0
        is_whole = not (scan.cut or scan.skipped or process.adapter.cut)
        self.readings = tuple(self._make_reading(answer, scan, page, process, is_whole=is_whole) for page in pages)
        if is_whole:
            self._whole_answers_s = [*self._whole_answers_s, self.reading.monotonic_s][-SURE_ANSWERS:]
        else:
            self._whole_answers_s = []
        self._keep_notices(scan, process)
        self._identify(process)
        return None

    async def _parse(self, process: ServerProcess, bodies: Bodies) -> tuple[Scan, tuple[EngineReading, ...]]:
        """The scan of a page, and a reading for each model on it, by name: in a thread if the page is large."""
        server = process.server
        adapter = process.adapter
        scanner = process.scanner
        is_json = server.path in server.row.json_paths

        def parse() -> tuple[Scan, tuple[EngineReading, ...]]:
            """Scan the page and read it."""
            scan = NO_SCAN if is_json else scanner.scan(bodies[server.path])
            return scan, tuple(sorted(adapter.read_all(scan, bodies), key=lambda page: page.part))

        is_small = sum(map(len, bodies.values())) <= SCANNED_IN_LOOP_BYTES
        if is_small and (scanner.warm or is_json):
            return parse()
        return await asyncio.to_thread(parse)

    async def _get_companions(self, process: ServerProcess) -> Bodies:
        """The newest bodies of the server's other pages, by path; those that are due are asked for. None is needed."""
        now_s = self._clock()
        for companion in process.adapter.companions:
            # Half an interval early rather than half an interval late: polls do not come to the millisecond.
            if now_s - process.asked_s.get(companion.path, -math.inf) < companion.every_s - self.interval_s / 2:
                continue
            process.asked_s[companion.path] = now_s
            body = await self._get_companion(process.server, companion.path)
            if body is not None:
                process.bodies[companion.path] = body
            elif not companion.every_s:  # a page at a pace of its own has settings: those of the last answer still hold
                process.bodies.pop(companion.path, None)
        return process.bodies

    async def _get_companion(self, server: ProbedServer, path: str) -> bytes | None:
        """The body of another page of the server; None where it gives none."""
        url = f"{self.url.base}{path}"
        try:
            answer = await self.fetcher.get(url, server.key)
            if answer.status in WANTS_KEY and not server.key:  # the metrics were open, this page is not
                keyed = await get_keyed(self.fetcher, url, self.endpoint)
                answer = keyed.answer
        except FetchError:
            return None
        return answer.body if answer.status == 200 else None

    def _make_reading(
        self, answer: HttpAnswer, scan: Scan, page: EngineReading, process: ServerProcess, *, is_whole: bool
    ) -> EngineReading:
        """The adapter's reading with the endpoint's own knowledge; `is_whole`: the page was read to its end."""
        absent_s = process.absent_s
        if page.part not in absent_s and len(absent_s) < _MOST_MODELS:
            # A model that is new on the page: it was not there at the last answer, if enough of them were whole.
            absent_s[page.part] = None
            if is_whole and len(self._whole_answers_s) == SURE_ANSWERS:
                absent_s[page.part] = self._whole_answers_s[-1]
        flaws = {}
        if scan.skipped:
            flaws["skipped_lines"] = str(scan.skipped)
        if scan.duplicates:
            flaws["duplicate_series"] = str(scan.duplicates)
        return msgspec.structs.replace(
            page,
            **_identity_fields(page, flaws, process.identity or UNASKED),
            name=self._name(page.kind, page.part),
            url=self.url.base,
            monotonic_s=(answer.sent_s + answer.ended_s) / 2,
            interval_s=self.interval_s,
            latency_s=answer.ended_s - answer.sent_s,
            found_by=self._found_by,
            whole=is_whole,
            absent_s=absent_s.get(page.part),
        )

    def _name(self, kind: EngineKind, part: str = "") -> str:
        """Name of the endpoint, as in the config or of engine and port, with the model where the server has several."""
        word = "engine" if kind is EngineKind.UNKNOWN else kind.value
        name = self.endpoint.name or f"{word}:{self.url.port}"
        return name + part_of_name(part)

    def _keep_notices(self, scan: Scan, process: ServerProcess) -> None:
        """Keep what is to be told of the newest page, each notice with the time since when it holds."""
        texts = []
        if scan.duplicates:
            texts.append(f"{scan.duplicates} series are on the metrics page twice: the last value counts")
        if scan.cut:
            texts.append("the metrics page has more series than gpumon reads: figures may be too low")
        if process.adapter.cut:
            bounds = f"{MOST_RANKS} data-parallel ranks or {MOST_PARTS} models"
            texts.append(f"the metrics page has more than {bounds}: figures may be too low")
        if process.identity is not None and process.identity.notice:
            texts.append(process.identity.notice)
        if self.fetcher.unverified:
            texts.append(SENT_UNVERIFIED.format(secret="key"))
        self._notices = {text: self._notices.get(text, self._wall()) for text in texts}

    def _identify(self, process: ServerProcess) -> None:
        """Ask for model and version once a process, beside the polling."""
        if self._identity_task is not None and not self._identity_task.done():
            return
        is_complete = process.identity is not None and process.identity.complete
        if not is_complete and self._clock() >= process.ask_again_s:
            process.ask_again_s = self._clock() + ASK_AGAIN_S
            self._identity_task = asyncio.create_task(self._ask_identity(process))

    async def _ask_identity(self, process: ServerProcess) -> None:
        """Ask for model and version, and add them to the readings."""
        try:
            identity = await ask_engine(self.fetcher, self.url, self.endpoint, self.reading.model, process.server.row)
        except Exception as error:  # a fault of gpumon's own costs the model's path only
            text = f"gpumon failed on this server's identity ({type(error).__name__}): please report"
            identity = Identity(notice=text, complete=False)
        if process is not self._process:  # the process before still answers
            return
        process.identity = identity
        self.readings = tuple(
            msgspec.structs.replace(reading, **_identity_fields(reading, {}, identity)) for reading in self.readings
        )
        if identity.notice:
            self._notices.setdefault(identity.notice, self._wall())


def _identity_fields(reading: EngineReading, flaws: Mapping[str, str], identity: Identity) -> Mapping[str, object]:
    """Fields of a reading by what the server says of its model; of several models, none gets that name.

    `flaws`: numbers of wrong lines on the page, for `info`.
    """
    is_only = not reading.part
    fields = {"version": identity.version or reading.version, "model": reading.model, "model_root": reading.model_root}
    info = {**reading.info, **flaws}
    if is_only:
        fields["model"] = identity.model or reading.model
        fields["model_root"] = reading.model_root or identity.root
        info |= identity.info
    elif IDENTITY in identity.info:
        info[IDENTITY] = identity.info[IDENTITY]
    return {**fields, "info": info}


def restarted(old: tuple[EngineReading, ...], pages: tuple[EngineReading, ...]) -> bool:
    """Whether these pages are of another process than the last readings (`old`)."""
    before = {reading.part: reading for reading in old}
    for page in pages:
        if page.part in before and _is_another_process(before[page.part], page):
            return True
    return False


def _is_another_process(old: EngineReading, page: EngineReading) -> bool:
    """Whether a page is of a process that started at another time, or has counted fewer tokens, than the last one."""
    if old.started_wall_s and page.started_wall_s:
        return abs(old.started_wall_s - page.started_wall_s) > _START_TOLERANCE_S
    before = {rank.rank: rank.counters.get(DECODE_TOKENS, 0.0) for rank in old.ranks}
    for rank in page.ranks:
        if rank.counters.get(DECODE_TOKENS, math.inf) < before.get(rank.rank, 0.0):
            return True
    return False
