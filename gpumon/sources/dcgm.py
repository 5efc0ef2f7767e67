"""Polls a dcgm-exporter: GPUs that NVML does not measure, or does not see, and how old their figures are."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpumon.config.schema import Dcgm, Endpoint
from gpumon.readings.dcgm import DCGM, PROFILED, RATIOS, XID
from gpumon.readings.frame import EndpointState, Fault, GpuReading, GpuState, XidEvent
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.text import clean
from gpumon.sources.dcgm_page import ABSENT, MOST_GPUS, WANTED, Key, Page, figures, read
from gpumon.sources.endpoint import BACK_OFF, LIMITS, SCANNED_IN_LOOP_BYTES, BackOff
from gpumon.sources.endpoint_url import EndpointUrl, parse_url
from gpumon.sources.exposition import Scanner
from gpumon.sources.fetch import Answer, Fetcher, Limits
from gpumon.sources.http_faults import FetchError
from gpumon.sources.probe import api_key
from gpumon.sources.source import Contribution

EXPORTER_S: Final = 30.0
"""Between two measurements of a dcgm-exporter whose interval nobody changed (30 000 ms)."""
GAPS: Final = 5
"""So many of the newest intervals are looked at."""
IDLE: Final = 0.001
"""Activity below this share may well stay the same for minutes."""
GONE_S: Final = 600.0
"""A GPU that is not on the page any more is shown as stale for so long."""
XID_MOST: Final = 16

NO_GPU: Final = (
    "the answer has no GPU of a dcgm-exporter: check port (9400 by default) and path; one that has just started has "
    "nothing to tell for up to 30 s"
)
CUT: Final = "the page of the dcgm-exporter has more GPUs or series than gpumon reads: some are not shown"
KEY_REFUSED: Final = "the dcgm-exporter refuses the configured API key"
NO_PAGE: Final = "the dcgm-exporter does not give its page: check URL and its log"
BY_STATUS: Final = {
    401: "401: the page wants a login: set api_key_env or api_key_file in [dcgm] (sent as bearer token)",
    403: "403: the page is forbidden from here: let gpumon's host through, or set api_key_env in [dcgm]",
    404: "404: no metrics page here: a dcgm-exporter has it at /metrics, port 9400 by default",
}


class Pace:
    """When values last changed, and how far apart their changes come.

    The page repeats what was measured last until the next measurement: only a change says that there was one. What
    the first page shows may be older than the look at it.
    """

    def __init__(self, shortest_s: float) -> None:
        self.changed_s = 0.0
        self._shortest_s = shortest_s
        self._values: object = None
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self._dated = self._unbroken = False

    @property
    def interval_s(self) -> float:
        """Between two changes, by the upper quartile of the last ones: a look in the middle of a measurement makes two
        changes of one, which are too close, and a pause too long is rare. The exporter's default before there were any.
        """
        gaps = sorted(self._gaps)
        return max(self._shortest_s, gaps[3 * len(gaps) // 4] if gaps else EXPORTER_S)

    def see(self, values: object, now_s: float) -> None:
        """The values of an answer at `now_s`."""
        if values != self._values:
            if self._dated:
                self._gaps.append(now_s - self.changed_s)
            self._dated = self._unbroken  # only a change since the answer before this one has a known moment
            self._values, self.changed_s = values, now_s
        self._unbroken = True

    def miss(self) -> None:
        """There was no answer: a change in the meantime goes unseen."""
        self._dated = self._unbroken = False


class DcgmSource:
    """A Source. After a failure the last readings stay, with the moment that they stand for.

    `limits`, `back_off`, `clock` (monotonic) and `wall` (Unix time) are there for tests.
    """

    def __init__(
        self,
        config: Dcgm,
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the URL is malformed."""
        self.interval_s = config.interval_s
        self.url: EndpointUrl = parse_url(config.url)
        self.page: Page | None = None
        """The newest page; None before the first."""
        self._key_place = Endpoint(url=config.url, api_key_env=config.api_key_env, api_key_file=config.api_key_file)
        self._key = ""
        self._clock = clock
        self._wall = wall
        self._back_off = back_off
        self._fetcher = Fetcher(
            self.url, tls_ca=config.tls_ca, tls_verify=config.tls_verify, limits=limits, clock=clock
        )
        self._scanner = Scanner(WANTED)
        self._hosts: dict[str, Pace] = {}
        self._active: dict[str, Pace] = {}
        self._readings: dict[str, GpuReading] = {}
        """By UUID, in the order of the pages."""
        self._seen_s: dict[str, float] = {}
        self._xid: dict[str, float] = {}
        self._failures = 0
        self._faults: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    def __repr__(self) -> str:
        return f"DcgmSource({self.url.base!r})"

    async def start(self) -> None:
        """Begin polling in the running event loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first poll came to an answer or a failure."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._answered.wait(), timeout_s)

    async def poll(self, monotonic_s: float) -> Contribution:  # noqa: ARG002
        """The newest readings, at once."""
        drivers = {(key.host, found.driver) for key, found in self.page.found.items()} if self.page else set()
        return Contribution(
            gpus=tuple(self._readings.values()),
            faults=tuple(Fault(DCGM, text, since) for text, since in self._faults.items()),
            driver=next(iter(drivers))[1] if len(drivers) == 1 else "",
        )

    def set_interval(self, seconds: float) -> None:
        """The exporter is polled at a cadence of its own."""

    async def close(self) -> None:
        """Stop polling and hang up."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=0.1)
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
        """One poll. Nothing that the exporter sends ends the polling."""
        try:
            wrong = await self._take(await self._get())
        except FetchError as fault:
            wrong = self._refused() if fault.state is EndpointState.REFUSED else fault.text
        except Exception as error:  # a fault of gpumon's own costs these GPUs only
            wrong = f"gpumon failed on this answer ({type(error).__name__}): please report"
        self._failures = self._failures + 1 if wrong else 0
        texts = [wrong] if wrong else [CUT] if self.page is not None and self.page.cut else []
        if wrong:
            for pace in self._hosts.values():
                pace.miss()
        self._faults = {text: self._faults.get(text, self._wall()) for text in texts}

    def _refused(self) -> str:
        at = clean(f"{self.url.host}:{self.url.port}", 90)
        return f"nothing listens on {at}: is the dcgm-exporter up? Its port is 9400 unless it was told another"

    async def _get(self) -> Answer:
        """The page; the API key goes out only where it is asked for."""
        answer = await self._fetcher.get(self.url.metrics, self._key)
        if answer.status in (401, 403):
            key, wrong = await api_key(self._key_place)
            if wrong:
                raise FetchError(EndpointState.UNAUTHORIZED, wrong)
            if key and key != self._key:
                answer = await self._fetcher.get(self.url.metrics, key)
            self._key = key if answer.status == 200 else ""
            if key and not self._key:
                raise FetchError(EndpointState.UNAUTHORIZED, f"{answer.status}: {KEY_REFUSED}")
        return answer

    async def _take(self, answer: Answer) -> str:
        """Read an answer into readings; what is wrong with it, if it is no page of a dcgm-exporter."""
        if answer.status != 200:
            return BY_STATUS.get(answer.status, f"{answer.status}: {NO_PAGE}")
        scan = self._scanner.scan
        small = len(answer.body) <= SCANNED_IN_LOOP_BYTES and self._scanner.warm
        page = read(scan(answer.body) if small else await asyncio.to_thread(scan, answer.body))
        if not page.found:
            return NO_GPU
        self._follow(page, (answer.sent_s + answer.ended_s) / 2)
        self.page = page
        return ""

    def _follow(self, page: Page, now_s: float) -> None:
        """Date the page's figures by what has changed, and make the readings."""
        hosts: dict[str, list[Mapping[str, Reading]]] = {}
        for key, found in page.found.items():
            hosts.setdefault(key.host, []).append(found.values)
        for host, values in hosts.items():
            self._hosts.setdefault(host, Pace(self.interval_s)).see(values, now_s)
        fresh: dict[str, GpuReading] = {}
        for key in page.found:
            uuid = f"MIG-{key.uuid}/{key.instance}" if key.instance else key.uuid
            if uuid not in fresh:  # an exporter that was started anew may stand there under both its names
                fresh[uuid] = self._reading(page, key, uuid, now_s)
        self._seen_s.update(dict.fromkeys(fresh, now_s))
        kept = {uuid: one for uuid, one in self._readings.items() if now_s - self._seen_s[uuid] <= GONE_S} | fresh
        kept = kept if len(kept) <= MOST_GPUS else fresh
        self._readings = dict(sorted(kept.items(), key=_place))
        for memory in (self._seen_s, self._xid, self._active):
            for uuid in memory.keys() - kept.keys():
                del memory[uuid]
        for host in self._hosts.keys() - {one.host for one in kept.values()}:
            del self._hosts[host]

    def _reading(self, page: Page, key: Key, uuid: str, now_s: float) -> GpuReading:
        found = page.found[key]
        host = self._hosts[key.host]
        pace = self._active.setdefault(uuid, Pace(self.interval_s))
        pace.see({field: value for field, value in found.values.items() if field in PROFILED}, now_s)
        filled: dict[str, Any] = figures(page, key)
        measured = tuple(field for field in filled if field in PROFILED and not isinstance(filled[field], Missing))
        # A busy GPU whose counters stand still while the rest of the page moves is no GPU that does the same for ever.
        idle = all((number(filled[field]) or 0.0) < IDLE for field in RATIOS)
        return GpuReading(
            index=found.gpu_index,
            uuid=uuid,
            name=found.name,
            state=GpuState.OK,
            monotonic_s=host.changed_s,
            mig=key in page.sliced,
            parent_uuid=key.uuid if key.instance else "",
            mig_profile=found.profile,
            mig_instance=key.instance,
            xid=self._xids(uuid, found.values),
            source=DCGM,
            host=key.host,
            activity_source=DCGM if any(field in RATIOS for field in measured) else "",
            activity_monotonic_s=host.changed_s if idle else pace.changed_s,
            activity_interval_s=host.interval_s,
            from_dcgm=measured,
            **filled,
        )

    def _xids(self, uuid: str, values: Mapping[str, Reading]) -> tuple[XidEvent, ...]:
        """The Xid errors seen to come: the page has the last one only, and one on the first page is old."""
        code = number(values.get(XID, ABSENT)) or 0.0
        known = self._readings.get(uuid)
        events = known.xid if known is not None else ()
        if code and code != self._xid.get(uuid, code):
            events = (*events, XidEvent(int(code), self._wall()))
        self._xid[uuid] = code
        return events[-XID_MOST:]


def _place(item: tuple[str, GpuReading]) -> tuple[Any, ...]:
    one = item[1]
    return one.host, one.index, one.parent_uuid or one.uuid, len(one.mig_instance), one.mig_instance
