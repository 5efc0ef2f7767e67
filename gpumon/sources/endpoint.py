"""Polls one serving engine's endpoint at its own cadence and keeps the newest reading."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Fault
from gpumon.readings.quantities import DECODE_TOKENS
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.endpoint_url import parse_url as parse_url
from gpumon.sources.engines.adapter import MOST_RANKS, Adapter, EnginePage
from gpumon.sources.engines.detect import Refusal, by_content, by_status
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scan, Scanner
from gpumon.sources.fetch import Answer, Fetcher, Limits
from gpumon.sources.http_faults import FetchError
from gpumon.sources.identity import UNASKED, Identity, ask
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
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) if failures else 0.0


KINDS: Final = {"auto": EngineKind.UNKNOWN, "vllm": EngineKind.VLLM}
"""What `engine` in the config says before the first page does."""

LIMITS: Final = Limits()
BACK_OFF: Final = BackOff()


class EndpointSource:
    """One configured endpoint. `reading` is its newest reading, there from the start (as `starting`).

    After a failure the last good figures stay in the reading, with the moment that they stand for; its state and
    fault say what is wrong. `limits`, `back_off`, `clock` (monotonic) and `wall` (Unix time) are there for tests.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the endpoint's URL is malformed."""
        self.endpoint = endpoint
        self.interval_s = interval_s
        self.url: EndpointUrl = parse_url(endpoint.url)
        self._clock = clock
        self._wall = wall
        self._back_off = back_off
        self._fetcher = Fetcher(
            self.url, tls_ca=endpoint.tls_ca, tls_verify=endpoint.tls_verify, limits=limits, clock=clock
        )
        self._failures = 0
        self._notices: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._identity: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._fresh()
        kind = KINDS[endpoint.engine]
        self.reading = EngineReading(
            name=endpoint.name or f"{_word(kind)}:{self.url.port}",
            url=self.url.base,
            state=EndpointState.STARTING,
            monotonic_s=clock(),
            kind=kind,
            interval_s=interval_s,
        )

    def __repr__(self) -> str:
        return f"EndpointSource({self.url.base!r}, {self.reading.state.value})"

    async def start(self) -> None:
        """Begin polling in the running event loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first poll came to an answer or a failure, with the model's name if it was an answer."""
        end_s = time.monotonic() + timeout_s
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._answered.wait(), timeout_s)
        if self._identity is not None:
            await asyncio.wait({self._identity}, timeout=max(0.0, end_s - time.monotonic()))

    async def poll(self, monotonic_s: float) -> Contribution:  # noqa: ARG002
        """The newest reading, at once."""
        faults = tuple(Fault(self.reading.name, text, since) for text, since in self._notices.items())
        return Contribution(engines=(self.reading,), faults=faults)

    def set_interval(self, seconds: float) -> None:
        """Engines are polled at a cadence of their own."""

    async def close(self) -> None:
        """Stop polling and hang up."""
        tasks = [task for task in (self._task, self._identity) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = self._identity = None
        await self._fetcher.close()

    async def _run(self) -> None:
        anchor_s = self._clock()
        while True:
            await self._scrape()
            self._answered.set()
            now_s = self._clock()
            due_s = anchor_s + (math.floor((now_s - anchor_s) / self.interval_s) + 1) * self.interval_s
            if (pause_s := self._back_off.pause_s(self._failures)) > due_s - now_s:
                anchor_s = due_s = now_s + pause_s
            await asyncio.sleep(due_s - now_s)

    async def _scrape(self) -> None:
        """One poll. Nothing that the server sends ends the polling."""
        try:
            answer = await self._fetcher.get(self.url.metrics)
            refusal = by_status(answer.status, answer.location) or await self._take(answer)
        except FetchError as fault:
            refusal = Refusal(fault.state, fault.text)
        except Exception as error:  # a fault of gpumon's own costs this row only
            refusal = Refusal(
                EndpointState.ERROR, f"gpumon failed on this answer ({type(error).__name__}): please report"
            )
        if refusal is not None:
            self._fail(refusal)

    def _fail(self, refusal: Refusal) -> None:
        """What was learnt from earlier pages stays: after a time-out or a 500 the same process may go on counting."""
        self._failures += 1
        self._notices = {}
        if refusal.state is EndpointState.REFUSED:
            self._fresh()
        self.reading = msgspec.structs.replace(
            self.reading, state=refusal.state, fault=refusal.text, interval_s=self.interval_s
        )

    def _fresh(self) -> None:
        """Forget what was known of the server's process: the next one may be another."""
        self._adapter: Adapter = VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted)
        self._known: Identity | None = None
        self._ask_again_s = 0.0

    async def _take(self, answer: Answer) -> Refusal | None:
        """Read a page into `reading`; a refusal where it is not one of an engine."""
        scan = self._scanner.scan
        small = len(answer.body) <= SCANNED_IN_LOOP_BYTES
        found = scan(answer.body) if small and self._scanner.warm else await asyncio.to_thread(scan, answer.body)
        page = self._adapter.read(found)
        if not page.ranks:
            content = (answer.body, answer.content_type, self.endpoint.engine == "vllm")
            return by_content(*content) if small else await asyncio.to_thread(by_content, *content)
        if _restarted(self.reading, page):
            self._fresh()
            page = self._adapter.read(found)
        self._failures = 0
        self._notice(found, page)
        kind, known = self._adapter.kind, self._known or UNASKED
        self.reading = msgspec.structs.replace(
            self.reading,
            name=self.endpoint.name or f"{_word(kind)}:{self.url.port}",
            state=EndpointState.OK,
            monotonic_s=(answer.sent_s + answer.ended_s) / 2,
            kind=kind,
            fault="",
            interval_s=self.interval_s,
            latency_s=answer.ended_s - answer.sent_s,
            version=known.version,
            model=known.model or page.model,
            model_root=known.root,
            started_wall_s=page.started_wall_s,
            exact_steps=page.exact_steps,
            live=dict(page.live),
            info={**page.info, **_flags(found), **known.info},
            ranks=page.ranks,
        )
        self._identify()
        return None

    def _notice(self, scan: Scan, page: EnginePage) -> None:
        """Keep the flags of the newest page, each with the time since when it holds."""
        texts = []
        if scan.duplicates:
            texts.append(f"{scan.duplicates} series stand twice in the metrics page: the last value counts")
        if scan.cut:
            texts.append("the metrics page has more series than gpumon reads: figures may be too low")
        if page.cut:
            texts.append(f"the metrics page has more than {MOST_RANKS} data-parallel ranks: figures may be too low")
        if self._known is not None and self._known.notice:
            texts.append(self._known.notice)
        self._notices = {text: self._notices.get(text, self._wall()) for text in texts}

    def _identify(self) -> None:
        """Ask for model and version once a process, beside the polling."""
        if self._identity is not None and not self._identity.done():
            return
        if (self._known is None or not self._known.complete) and self._clock() >= self._ask_again_s:
            self._ask_again_s = self._clock() + ASK_AGAIN_S
            self._identity = asyncio.create_task(self._ask(self._adapter))

    async def _ask(self, adapter: Adapter) -> None:
        try:
            known = await ask(self._fetcher, self.url, self.endpoint, self.reading.model)
        except Exception as error:  # a fault of gpumon's own costs the model's path only
            text = f"gpumon failed on this server's identity ({type(error).__name__}): please report"
            known = Identity(notice=text, complete=False)
        if adapter is not self._adapter:
            return
        self._known = known
        self.reading = msgspec.structs.replace(
            self.reading,
            version=known.version,
            model=known.model or self.reading.model,
            model_root=known.root,
            info={**self.reading.info, **known.info},
        )
        if known.notice:
            self._notices.setdefault(known.notice, self._wall())


def _word(kind: EngineKind) -> str:
    return "engine" if kind is EngineKind.UNKNOWN else kind.value


def _flags(scan: Scan) -> dict[str, str]:
    flags = {"skipped_lines": scan.skipped, "duplicate_series": scan.duplicates}
    return {name: str(count) for name, count in flags.items() if count}


def _restarted(old: EngineReading, page: EnginePage) -> bool:
    """Whether this page is of another process than the last one."""
    if old.started_wall_s and page.started_wall_s:
        return abs(old.started_wall_s - page.started_wall_s) > 1.0
    before = {rank.rank: rank.counters.get(DECODE_TOKENS, 0.0) for rank in old.ranks}
    return any(rank.counters.get(DECODE_TOKENS, math.inf) < before.get(rank.rank, 0.0) for rank in page.ranks)
