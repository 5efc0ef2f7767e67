"""What a fleet of 1,000 GPUs and 500 engines costs: a refresh from a real Prometheus, and the keys on the screen.

python -m tests.perf.bench_prometheus [--hosts 125] [--engines 500] [--seconds 45] [--whole] [--url URL]

--whole reads every host at every refresh, as a small fleet is read. --url names a Prometheus that already scrapes such
a farm.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from gpumon.config import schema
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.fleet import FleetFrame
from gpumon.session.live_fleet import LiveFleet
from gpumon.sources.prometheus.source import FleetSource
from gpumon.tui.fleet.moment import fleet_moment
from tests.fakes.prometheus import Prometheus
from tests.perf.bench_fleet import KEY_EVERY_S, KEYS, key_wait_s
from tests.perf.contestants import BIN
from tests.perf.farm import ENGINES, HOSTS, running
from tests.terminal import Terminal

SCRAPE_S: Final = 15
REFRESHES: Final = 4
"""Refreshes that are measured after every host was read once."""
TICK_S: Final = 0.005
TIMEOUT_S: Final = 60.0
"""Longest wait for an answer: what is measured on a busy machine is measured, too."""
SENT: Final = 'prometheus_http_response_size_bytes_sum{handler="/api/v1/query"} '
"""Begin of the line of the Prometheus' own metrics with the bytes of its answers to instant queries."""
GC_THRESHOLDS: Final = (5_000, 1_000, 10)
"""Those of the screen (tui.app)."""
FIRST_S: Final = 240.0
"""Longest wait for two scrapes, and for the first rows on the screen."""
REFRESH_LIMIT_S, BLOCK_LIMIT_S, KEY_LIMIT_S, REQUESTS_LIMIT, PSS_LIMIT = 2.0, 0.05, 0.1, 12, 400e6
CPU_LIMIT_S, KEY_P95_LIMIT_S = 0.8, 0.06


class Line(NamedTuple):
    """One figure, and what it may be at most."""

    what: str
    value: float
    limit: float | None
    unit: str

    def __str__(self) -> str:
        mark = "" if self.limit is None else f"{self.limit:,.4g} {self.unit}"
        missed = "  MISSED" if self.missed else ""
        return f"{self.what:<52} {self.value:>10,.4g} {self.unit:<6} {mark:>12}{missed}"

    @property
    def missed(self) -> bool:
        """Whether it is above its limit."""
        return self.limit is not None and self.value > self.limit


@contextmanager
def served(given: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """URL and process (0: not known) of a Prometheus that has scraped the farm twice."""
    if given.url:
        yield given.url, given.pid
        return
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name), given.hosts, engines=given.engines) as farm,
        Prometheus(Path(name), farm.scrapes, interval=f"{SCRAPE_S}s") as prometheus,
    ):
        # All targets that are up: seven of a hundred are down.
        prometheus.until(
            "count_over_time(up[2m]) >= 2", results=int(0.99 * (given.hosts + given.engines)), timeout_s=FIRST_S
        )
        yield prometheus.url, prometheus.pid


class Ticker:
    """Wakes every few milliseconds and notes how late it is: as long was the event loop held up.

    On a machine with other work that is late, too, while nothing holds it up: the CPU time of its thread tells.
    """

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.cpu_s: list[float] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due_s = time.perf_counter() + TICK_S
            cpu_s = time.thread_time()
            await asyncio.sleep(TICK_S)
            self.late_s.append(time.perf_counter() - due_s)
            self.cpu_s.append(time.thread_time() - cpu_s)


class Clocks(NamedTuple):
    """Wall time and processor times in seconds, at one moment."""

    wall_s: float
    own_cpu_s: float
    server_cpu_s: float

    @classmethod
    def now(cls, pid: int) -> Clocks:
        """The clocks of now; `pid` is the Prometheus (0: not known)."""
        times = psutil.Process(pid).cpu_times() if pid else None
        server_cpu_s = times.user + times.system if times else float("nan")
        return cls(time.perf_counter(), time.process_time(), server_cpu_s)


class Refresh(NamedTuple):
    """What one refresh took."""

    usual: bool
    """Whether every host was read once before it."""
    frame_s: float
    derive_s: float
    rows_s: float
    server_cpu_s: float
    own_cpu_s: float
    late_s: float
    held_cpu_s: float
    requests: int
    answer_bytes: float
    gpus: int
    engines: int

    @property
    def whole_s(self) -> float:
        """From the first query to the last row."""
        return self.frame_s + self.derive_s + self.rows_s


class WatchedSource(FleetSource):
    """A source that notes when a refresh begins and when its answers are there, and waits for the last one's rows."""

    def __init__(self, config: schema.Prometheus, pid: int, *, whole: bool) -> None:
        """`pid` is the Prometheus (0: not known); `whole`: every host is read at every refresh."""
        super().__init__(config)
        self.pid = pid
        self.begun = Clocks.now(pid)
        self.answered_s = 0.0
        self.usual = False
        """Whether every host was read once before this refresh."""
        self.counted = asyncio.Event()
        """Set while no refresh waits for its rows."""
        self.counted.set()
        self._whole = whole
        self._all_read = False

    async def frame(self, at_s: float | None = None, hosts: Collection[str] | None = None) -> FleetFrame:
        """As `FleetSource`."""
        await self.counted.wait()
        return await super().frame(at_s, hosts)

    async def next_frame(self) -> FleetFrame:
        """As `FleetSource`."""
        await self.counted.wait()
        self.usual = self._all_read
        self.begun = Clocks.now(self.pid)
        frame = await (super().frame() if self._whole else super().next_frame())
        self.answered_s = time.perf_counter()
        self._all_read = not frame.unread
        return frame


async def refreshes(url: str, pid: int, *, whole: bool) -> list[Refresh]:
    """The refreshes of a fleet as the monitor does them: until every host was read, and `REFRESHES` more."""
    config = schema.Config(prometheus=schema.Prometheus(url=url, timeout_s=TIMEOUT_S, interval_s=SCRAPE_S))
    source = WatchedSource(config.prometheus, pid, whole=whole)
    live = LiveFleet(config, lambda: source)
    ticker = Ticker()
    shown: asyncio.Queue[FleetSnapshot] = asyncio.Queue()

    def show(snapshot: FleetSnapshot) -> None:
        """Have the rows made of an answer. Beside other work one may be late, which is shown, too."""
        if not snapshot.late:
            source.counted.clear()
            shown.put_nowait(snapshot)

    gc.set_threshold(*GC_THRESHOLDS)
    await live.begin(show, lambda _: None)
    tasks = [asyncio.create_task(ticker.run()), asyncio.create_task(live.run())]
    done: list[Refresh] = []
    bytes_before = answer_bytes(url)
    try:
        while sum(refresh.usual for refresh in done) < REFRESHES:
            snapshot = await shown.get()
            refresh = await _with_rows(snapshot, source, ticker)
            sent_bytes = await asyncio.to_thread(answer_bytes, url)
            done.append(refresh._replace(answer_bytes=sent_bytes - bytes_before))
            bytes_before = sent_bytes
            # As the screen does (tui.app): what lives long is not looked at by every collection.
            gc.freeze()
            source.begun = Clocks.now(pid)
            ticker.late_s.clear()
            ticker.cpu_s.clear()
            source.counted.set()
        return done
    finally:
        for task in tasks:
            task.cancel()
        await live.end()


def answer_bytes(url: str) -> float:
    """Bytes of all answers to instant queries so far, as the Prometheus counts them itself."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT_S) as answer:
        page: str = answer.read().decode()
    return sum(float(line.removeprefix(SENT)) for line in page.splitlines() if line.startswith(SENT))


async def _with_rows(snapshot: FleetSnapshot, source: WatchedSource, ticker: Ticker) -> Refresh:
    """Make the rows of a snapshot that was just derived; what the whole refresh took."""
    assert not snapshot.faults, snapshot.faults
    begun = source.begun
    answered_s = max(source.answered_s, begun.wall_s)  # the first answer is shown again, with rates
    derived_s = time.perf_counter()
    await asyncio.to_thread(fleet_moment, snapshot, {})
    end = Clocks.now(source.pid)
    await asyncio.sleep(2 * TICK_S)
    return Refresh(
        source.usual,
        answered_s - begun.wall_s,
        derived_s - answered_s,
        end.wall_s - derived_s,
        end.server_cpu_s - begun.server_cpu_s,
        end.own_cpu_s - begun.own_cpu_s,
        max(ticker.late_s, default=0.0),
        max(ticker.cpu_s, default=0.0),
        snapshot.queries,
        0.0,
        sum(len(host.snapshot.gpus) for host in snapshot.hosts),
        sum(len(host.snapshot.engines) for host in snapshot.hosts),
    )


class Screen(NamedTuple):
    """What the screen took."""

    first_rows_s: float
    waits_s: list[float]
    cpu: float
    """Share of a core."""
    pss_bytes: int
    bytes_per_s: float


def screen(url: str, seconds: float) -> Screen:
    """The fleet's screen in a pty: keys through several refreshes."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CONFIG_HOME": folder}
        with Terminal([str(BIN / "gpumon"), "--prometheus", url], env, 120, 40) as terminal:
            end_s = time.monotonic() + FIRST_S
            while (first_s := terminal.first(lambda text: "gpu-00" in text)) is None and time.monotonic() < end_s:
                terminal.run(0.5)
            assert first_s is not None, "\n".join(terminal.screen())
            cpu_s, written, at_s = terminal.cpu_s(), terminal.written(), time.monotonic()
            waits = [key_wait_s(terminal, KEYS[number % 2]) for number in range(int(seconds / KEY_EVERY_S))]
            elapsed_s = time.monotonic() - at_s
            return Screen(
                first_s,
                waits,
                (terminal.cpu_s() - cpu_s) / elapsed_s,
                terminal.pss_bytes(),
                (terminal.written() - written) / elapsed_s,
            )


def p95(waits_s: list[float]) -> float:
    """The 95th percentile of these."""
    return sorted(waits_s)[int(0.95 * (len(waits_s) - 1))]


def lines(found: list[Refresh], rss_bytes: int, shown: Screen | None) -> list[Line]:
    """The table."""
    warm = [refresh for refresh in found if refresh.usual]
    once = [refresh for refresh in found if not refresh.usual]

    def middle(field: str) -> float:
        return statistics.median(getattr(refresh, field) for refresh in warm)

    rows = [
        Line("refresh, the slowest of " + str(len(warm)), max(each.whole_s for each in warm), REFRESH_LIMIT_S, "s"),
        Line("first rows (all series are new)", found[0].whole_s, 2 * REFRESH_LIMIT_S, "s"),
        Line("  CPU of gpumon", found[0].own_cpu_s, None, "s"),
        Line("  JSON", found[0].answer_bytes / 1e6, None, "MB"),
        Line("every host read once, with rates: CPU of gpumon", sum(each.own_cpu_s for each in once), None, "s"),
        Line("  ask and read (median)", middle("frame_s"), None, "s"),
        Line("  derive", middle("derive_s"), None, "s"),
        Line("  rows by host and by model (beside the event loop)", middle("rows_s"), None, "s"),
        Line("requests of a refresh", middle("requests"), REQUESTS_LIMIT, ""),
        Line("CPU of the Prometheus for a refresh", middle("server_cpu_s"), None, "s"),
        Line("CPU of gpumon for a refresh", middle("own_cpu_s"), CPU_LIMIT_S, "s"),
        Line("  the least", min(each.own_cpu_s for each in warm), None, "s"),
        Line("  the most", max(each.own_cpu_s for each in warm), None, "s"),
        Line("JSON of a refresh", middle("answer_bytes") / 1e6, None, "MB"),
        Line("longest hold of the event loop", max(each.late_s for each in warm) * 1e3, BLOCK_LIMIT_S * 1e3, "ms"),
        Line("  the same in CPU time", max(each.held_cpu_s for each in warm) * 1e3, BLOCK_LIMIT_S * 1e3, "ms"),
        Line("memory after these refreshes (RSS)", rss_bytes / 1e6, PSS_LIMIT / 1e6, "MB"),
    ]
    if shown is not None:
        rows += [
            Line("screen: start to first rows", shown.first_rows_s, 2 * REFRESH_LIMIT_S, "s"),
            Line("screen: key to first byte, median", statistics.median(shown.waits_s) * 1e3, None, "ms"),
            Line("screen: key to first byte, p95", p95(shown.waits_s) * 1e3, KEY_P95_LIMIT_S * 1e3, "ms"),
            Line("screen: key to first byte, longest", max(shown.waits_s) * 1e3, KEY_LIMIT_S * 1e3, "ms"),
            Line("screen: CPU of a core", shown.cpu * 100.0, None, "%"),
            Line("screen: bytes to the terminal", shown.bytes_per_s, None, "B/s"),
            Line("screen: memory (PSS)", shown.pss_bytes / 1e6, PSS_LIMIT / 1e6, "MB"),
        ]
    return rows


def main() -> None:
    """Print the figures; ends with 1 where one is above its limit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hosts", type=int, default=HOSTS)
    arguments.add_argument("--engines", type=int, default=ENGINES)
    arguments.add_argument("--seconds", type=float, default=45.0, help="of keys on the screen; 0: no screen")
    arguments.add_argument("--whole", action="store_true", help="every host is read at every refresh")
    arguments.add_argument("--url", default="")
    arguments.add_argument("--pid", type=int, default=0, help="of the Prometheus at --url, for its CPU time")
    given = arguments.parse_args()
    with served(given) as (url, pid):
        found = asyncio.run(refreshes(url, pid, whole=given.whole))
        rss_bytes = psutil.Process().memory_info().rss
        shown = screen(url, given.seconds) if given.seconds else None
    rows = lines(found, rss_bytes, shown)
    print(f"{given.hosts} hosts: {found[-1].gpus:,} GPUs that answer, {found[-1].engines} engines; every {SCRAPE_S} s")
    print("load of the machine: {:.0f} (1 minute), {:.0f} (5 minutes)".format(*os.getloadavg()))
    print(f"{'':<52} {'':>10} {'':<6} {'at most':>12}")
    print("\n".join(map(str, rows)))
    sys.exit(any(row.missed for row in rows))


if __name__ == "__main__":
    main()
