"""What a fleet of 1,000 hosts costs: a real Prometheus over a written past, asked as the screen asks it.

python -m tests.perf.bench_thousand [--hosts 1000] [--engines 2000] [--gpus 8]

Nothing scrapes: four scrapes of the simulated hosts are written into the storage of a Prometheus. From a first look to
the moment at which every host was read once, gpumon asks, parses, derives and makes the rows; no screen is painted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.rows import by_host
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.perf.bench_prometheus import SENT
from tests.perf.farm import fleet

SCRAPE_S: Final = 15.0
SCRAPES: Final = 4
TIMEOUT_S: Final = 120.0
"""Longest wait for an answer: what is measured on a busy machine is measured, too."""


class Refresh(NamedTuple):
    """What one refresh took."""

    read: int
    """Hosts whose pages were read."""
    wall_s: float
    cpu_s: float
    """Of gpumon."""
    answer_bytes: float


async def refreshes(url: str, now_s: float) -> tuple[list[Refresh], Fleet]:
    """The refreshes until every host was read once, and two more; all of one moment, as nothing is scraped."""
    settings = Settings(url=url, interval_s=SCRAPE_S, timeout_s=TIMEOUT_S)
    source = FleetSource(settings, wall=lambda: now_s)
    shown = Fleet(deriver_maker(Config(prometheus=settings)))
    done: list[Refresh] = []
    after = 0
    while after < 2:
        begun_s = time.perf_counter()
        cpu_s = time.process_time()
        sent = await asyncio.to_thread(sent_bytes, url)
        frame = await source.next_frame()
        assert frame.hosts, frame.faults
        shown.take(frame)
        by_host(shown.snapshot, {})
        done.append(
            Refresh(
                sum(host.is_read for host in frame.hosts),
                time.perf_counter() - begun_s,
                time.process_time() - cpu_s,
                await asyncio.to_thread(sent_bytes, url) - sent,
            )
        )
        print(done[-1], f"{psutil.Process().memory_info().rss / 1e6:.0f} MB", flush=True)
        after += not frame.unread and len(done) > 1
    await source.close()
    return done, shown


def sent_bytes(url: str) -> float:
    """Bytes of all answers to instant queries so far, as the Prometheus counts them itself."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT_S) as answer:
        page: str = answer.read().decode()
    return sum(float(line.removeprefix(SENT)) for line in page.splitlines() if line.startswith(SENT))


def main() -> None:
    """Write the past, ask, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hosts", type=int, default=1000)
    arguments.add_argument("--engines", type=int, default=2000)
    arguments.add_argument("--gpus", type=int, default=8)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        end_s = time.time() // SCRAPE_S * SCRAPE_S
        begin_s = end_s - SCRAPE_S * (SCRAPES - 1)
        targets = []
        for target in fleet(given.hosts, given.gpus, given.engines):
            labels = {"job": target.job, **target.labels}
            page = (lambda _: b"") if target.down else target.pages.page
            targets.append(Scraped(labels, page, begin_s, end_s))
        store(folder, targets, SCRAPE_S)
        with Prometheus(folder) as prometheus:
            done, shown = asyncio.run(refreshes(prometheus.url, end_s + 5.0))
    first, *turns = done
    gpus = sum(len(host.snapshot.gpus) for host in shown.snapshot.hosts)
    engines = sum(len(host.snapshot.engines) for host in shown.snapshot.hosts)
    print(f"{len(shown.snapshot.hosts)} hosts, {gpus} GPUs, {engines} engines; turns of {turns[-1].read} hosts")
    print(f"first rows: {first.wall_s:.1f} s, {first.cpu_s:.1f} s of CPU, {first.answer_bytes / 1e6:.1f} MB of JSON")
    print(f"every host read once: {sum(turn.cpu_s for turn in done[:-2]):.1f} s of CPU in {len(done) - 2} refreshes")
    print(
        f"a refresh (median): {statistics.median(turn.wall_s for turn in turns):.1f} s, "
        f"{statistics.median(turn.cpu_s for turn in turns):.2f} s of CPU, "
        f"{statistics.median(turn.answer_bytes for turn in turns) / 1e6:.1f} MB of JSON"
    )
    print(f"memory (RSS): {psutil.Process().memory_info().rss / 1e6:.0f} MB; load {psutil.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
