"""Polls a dcgm-exporter: GPUs that NVML does not measure, or does not see, and how old their figures are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from gpumon.config.schema import Dcgm, Endpoint
from gpumon.deadline import timeout
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import EndpointState, Fault
from gpumon.readings.text import clean
from gpumon.sources.dcgm_gpus import ExporterGpus
from gpumon.sources.dcgm_page import WANTED, DcgmPage, read_page
from gpumon.sources.endpoint import BACK_OFF, ENDPOINT_LIMITS, SCANNED_IN_LOOP_BYTES, BackOff, PollTimes
from gpumon.sources.endpoint_url import EndpointUrl, parse_url
from gpumon.sources.exposition import Scanner
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer, Limits
from gpumon.sources.probe import get_keyed
from gpumon.sources.source import Contribution

_NO_GPU: Final = (
    "the answer has no GPU of a dcgm-exporter: check port (9400 by default) and path; one that has just started has "
    "nothing to tell for up to 30 s"
)
_CUT: Final = "the page of the dcgm-exporter has more GPUs or series than gpumon reads: some are not shown"
_NO_PAGE: Final = "the dcgm-exporter does not give its page: check URL and its log"
_BY_STATUS: Final = {
    401: "401: the page wants a login: set api_key_env or api_key_file in [dcgm] (sent as bearer token)",
    403: "403: the page is forbidden from here: let gpumon's host through, or set api_key_env in [dcgm]",
    404: "404: no metrics page here: a dcgm-exporter has it at /metrics, port 9400 by default",
}


class DcgmSource:
    """A Source. After a failure the last readings stay, with the moment that they stand for.

    `limits`, `back_off`, `clock` (monotonic) and `wall` (Unix time) are there for tests.
    """

    def __init__(
        self,
        config: Dcgm,
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = ENDPOINT_LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the URL is malformed."""
        self.interval_s = config.interval_s
        self.url: EndpointUrl = parse_url(config.url)
        self.page: DcgmPage | None = None
        """The newest page; None before the first."""
        self._key_place = Endpoint(
            url=config.url,
            api_key_env=config.api_key_env,
            api_key_file=config.api_key_file,
            api_key_user=config.api_key_user,
            tls_verify=config.tls_verify,
            trust_other_namespace=config.trust_other_namespace,
        )
        self._key = ""
        self._clock = clock
        self._wall = wall
        self._back_off = back_off
        self._fetcher = Fetcher(
            self.url,
            tls_ca=config.tls_ca,
            tls_verify=config.tls_verify,
            limits=limits,
            clock=clock,
            secret=self._key_place,
        )
        self._scanner = Scanner(WANTED)
        self._gpus = ExporterGpus(self.interval_s)
        self._failures = 0
        self._faults: dict[str, float] = {}
        """Fault, at most one text -> since when (Unix time)."""
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
            async with timeout(timeout_s):
                await self._answered.wait()

    async def poll(self, monotonic_s: float) -> Contribution:  # noqa: ARG002 - the signature of Source
        """The newest readings, at once."""
        drivers: set[tuple[str, str]] = set()
        if self.page:
            drivers = {(key.host, figures.driver) for key, figures in self.page.gpus.items()}
        driver = ""
        if len(drivers) == 1:  # several hosts may have several versions, and there is room for one
            _, driver = drivers.pop()
        return Contribution(
            gpus=self._gpus.readings,
            faults=tuple(Fault(DCGM, text, since) for text, since in self._faults.items()),
            driver=driver,
        )

    def set_interval(self, seconds: float) -> None:
        """The exporter is polled at a cadence of its own."""

    async def close(self) -> None:
        """Stop polling and hang up."""
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=0.1)
        await self._fetcher.close()

    async def _run(self) -> None:
        """Poll until this task is cancelled, less often after failures."""
        times = PollTimes(self._clock(), self._back_off)
        while True:
            await self._scrape()
            self._answered.set()
            await asyncio.sleep(times.wait_s(self._clock(), self.interval_s, self._failures))

    async def _scrape(self) -> None:
        """One poll. Nothing that the exporter sends ends the polling."""
        try:
            answer = await self._get()
            wrong = await self._read_answer(answer)
        except FetchError as fault:
            wrong = self._nothing_listens() if fault.state is EndpointState.REFUSED else fault.text
        except Exception as error:  # a fault of gpumon's own costs these GPUs only
            wrong = f"gpumon failed on this answer ({type(error).__name__}): please report"
        if wrong:
            self._failures += 1
            self._gpus.miss()
        else:
            self._failures = 0
        if not wrong and self.page is not None and self.page.cut:
            wrong = _CUT
        if wrong:
            self._faults = {wrong: self._faults.get(wrong, self._wall())}
        else:
            self._faults = {}

    def _nothing_listens(self) -> str:
        """The fault of a refused connection."""
        address = clean(f"{self.url.host}:{self.url.port}", 90)
        return f"nothing listens on {address}: is the dcgm-exporter up? Its port is 9400 unless it was told another"

    async def _get(self) -> HttpAnswer:
        """The page; the API key goes out only where it is asked for."""
        if self._key:
            answer = await self._fetcher.get(self.url.metrics, self._key)
            if answer.status not in (401, 403):
                return answer
        keyed = await get_keyed(self._fetcher, self.url.metrics, self._key_place)
        self._key = keyed.key
        if keyed.wrong:
            raise FetchError(EndpointState.UNAUTHORIZED, f"{keyed.answer.status}: {keyed.wrong}")
        return keyed.answer

    async def _read_answer(self, answer: HttpAnswer) -> str:
        """Read an answer into readings. Returns what is wrong with it, or an empty text."""
        if answer.status != 200:
            return _BY_STATUS.get(answer.status, f"{answer.status}: {_NO_PAGE}")
        if len(answer.body) <= SCANNED_IN_LOOP_BYTES and self._scanner.warm:
            scan = self._scanner.scan(answer.body)
        else:
            scan = await asyncio.to_thread(self._scanner.scan, answer.body)
        page = read_page(scan)
        if not page.gpus:
            return _NO_GPU
        measured_s = (answer.sent_s + answer.ended_s) / 2
        self._gpus.follow(page, measured_s, self._wall())
        self.page = page
        return ""
