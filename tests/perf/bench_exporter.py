"""What a scrape costs, and the process that serves it: `python -m tests.perf.bench_exporter [--seconds 30]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from gpumon.config.load import load
from gpumon.config.options import Options
from gpumon.outputs.essential import is_essential
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.samples import samples
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.session.build import build
from gpumon.session.hardware import open_hardware
from gpumon.sources.prometheus.own import rebuild_snapshot
from tests.exporter.served import MODERN, Served, get, modern, quiet, ups
from tests.records import replace

SIZES = ((8, 4), (16, 32))
"""GPUs and engines."""
FORMS = (
    ("OpenMetrics", MODERN, ""),
    ("OpenMetrics, gzip", MODERN, "gzip"),
    ("classic text", "text/plain", ""),
)
RATES = (1 / 15, 1, 5)
"""Scrapes per second."""


async def demo(seconds: float) -> Snapshot:
    """A snapshot of the simulated server with verdicts in it."""
    options, config = Options(demo=True), load("", {}, []).config
    collector = build(config, options, await open_hardware(config, options))
    try:
        await collector.open()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or not (shot := await collector.tick()).verdicts:
            await asyncio.sleep(1.0)
            shot = await collector.tick()
        return shot
    finally:
        await collector.stop()


def sized(shot: Snapshot, gpus: int, engines: int) -> Snapshot:
    """The snapshot with so many GPUs and engines: those that it has, again under other names."""

    def gpu(at: int) -> Gpu:
        return replace(shot.gpus[at % len(shot.gpus)], index=at, uuid=f"GPU-{at:032}")

    def engine(at: int) -> Engine:
        like = shot.engines[at % len(shot.engines)]
        return replace(like, name=f"{like.name}-{at}", url=f"{like.url}{at}")

    verdicts = [
        replace(verdict, key=f"{verdict.key}{at}") for at in range(max(1, engines // 4)) for verdict in shot.verdicts
    ]
    return replace(
        shot,
        gpus=tuple(gpu(at) for at in range(gpus)),
        engines=tuple(engine(at) for at in range(engines)),
        verdicts=tuple(verdicts),
    )


def rendering(shot: Snapshot, accept: str, encoding: str, *, detail: bool, rounds: int = 15) -> tuple[float, int]:
    """CPU milliseconds of one page, and its bytes."""
    taken = []
    for _ in range(rounds):
        page = MetricsPage(detail=detail)
        page.take(shot)
        began_s = time.thread_time()
        body = page.page(accept, encoding).body
        taken.append((time.thread_time() - began_s) * 1e3)
    return statistics.median(taken), len(body)


class Load(NamedTuple):
    """A server process in one window."""

    cpu_ratio: float
    pss_mb: float
    middle_ms: float
    """Median deviation of a snapshot's time from its place in the cadence."""
    late_ms: float
    """The worst."""
    ticks: int


def served(seconds: float, rate: float) -> Load:
    """`serve-metrics --demo` scraped at a rate for a while; the simulated engines run in the same process."""
    with tempfile.TemporaryDirectory() as folder, Served(quiet(Path(folder)), "--demo") as server:
        server.until(lambda page: ups(page)["collector", ""] == 1.0)
        time.sleep(8.0)
        process = psutil.Process(server._process.pid)
        times: dict[float, None] = {}
        before, began_s = process.cpu_times(), time.monotonic()
        while (now_s := time.monotonic()) < began_s + seconds:
            body = get(f"{server.url}/metrics", Accept=MODERN).body
            found = re.search(rb"^gpumon_snapshot_timestamp_seconds (\S+)", body, re.MULTILINE)
            assert found is not None
            times[float(found[1])] = None
            time.sleep(max(0.0, now_s + 1.0 / rate - time.monotonic()))
        after, wall_s = process.cpu_times(), time.monotonic() - began_s
        cpu_s = after.user + after.system - before.user - before.system
        pss = process.memory_full_info().pss / 1e6
    taken = sorted(times)
    # Phases of the ticks in their second; the cadence itself is their median.
    phases = [(at - taken[0] + 0.5) % 1.0 for at in taken]
    off = [abs(phase - statistics.median(phases)) * 1e3 for phase in phases]
    return Load(cpu_s / wall_s, pss, statistics.median(off), max(off), len(taken))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    cpus = os.cpu_count()
    print(
        f"{cpus} CPUs, Python {sys.version.split()[0]}, {subprocess.check_output(['uname', '-sr'], text=True).strip()}"
    )
    shot = asyncio.run(demo(20.0))
    for gpus, engines in SIZES:
        large = sized(shot, gpus, engines)
        page_samples = list(samples(large))
        few = sum(map(is_essential, page_samples))
        print(f"\n{gpus} GPUs, {engines} engines, {len(large.verdicts)} verdicts:", end=" ")
        print(f"{few} series, {len(page_samples)} with --detail, beside histograms and those for autoscalers")
        for detail in (False, True):
            for words, accept, encoding in FORMS:
                cpu_ms, size = rendering(large, accept, encoding, detail=detail)
                name = f"{words}, --detail" if detail else words
                print(f"  {name:30} {cpu_ms:7.1f} ms CPU {size / 1e3:9.1f} kB")
        page = MetricsPage()
        page.take(large)
        page.page(MODERN, "")
        began_s = time.thread_time()
        for _ in range(1000):
            page.page(MODERN, "")
        print(f"  {'a further scrape':20} {(time.thread_time() - began_s):7.3f} ms CPU")
        read = modern(page.page(MODERN, "").body)
        began_s = time.thread_time()
        rebuild_snapshot(read, large.wall_s, large.interval_s)
        print(f"  {'rebuild_snapshot':20} {(time.thread_time() - began_s) * 1e3:7.1f} ms CPU")
    print("\nserve-metrics --demo (8 GPUs, 3 engines; the simulated engines are in the same process)")
    for rate in RATES:
        load_ = served(seconds, rate)
        print(
            f"  {rate:6.2f} scrapes/s: {load_.cpu_ratio:6.1%} of a core, {load_.pss_mb:5.1f} MB PSS,"
            f" {load_.ticks} ticks seen, {load_.middle_ms:.1f} ms off the cadence, at most {load_.late_ms:.1f}"
        )


if __name__ == "__main__":
    main()
