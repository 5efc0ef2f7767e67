"""What reading one metrics page costs: `python -m tests.perf.bench_exposition [CAPTURE ...]`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.fakes.engine import Capture

CAPTURES = ("vllm-basic", "vllm-mfu-queue-prefix-abort", "vllm-dp2")


def microseconds(work: Callable[[bytes], object], pages: list[bytes], rounds: int) -> tuple[float, float]:
    """Median and least time of one call."""
    taken = []
    for number in range(rounds):
        page = pages[number % len(pages)]
        began = time.perf_counter()
        work(page)
        taken.append((time.perf_counter() - began) * 1e6)
    return statistics.median(taken), min(taken)


def first_scan(page: bytes) -> object:
    """A page that the scanner has never seen."""
    return Scanner(VllmAdapter().wanted_names).scan(page)


def bench(name: str) -> None:
    """Print a line per way to read the pages of one capture: those of its middle, and those of its end."""
    whole = [scrape.body for scrape in Capture(name).scrapes if scrape.status == 200]
    middle = len(whole) // 2
    for when, pages in (("under load", whole[middle - 10 : middle + 10]), ("at rest", whole[-20:])):
        compare(f"{name}, {when}", pages)


def compare(title: str, pages: list[bytes]) -> None:
    """Print a line per way to read these pages one after the other."""
    adapter = VllmAdapter()
    scanner = Scanner(adapter.wanted_names)
    scan = scanner.scan(pages[0])
    print(f"{title}: {len(pages[0]):,} bytes, {pages[0].count(10)} lines, {len(scan.values)} wanted series")
    ways: tuple[tuple[str, Callable[[bytes], object], int], ...] = (
        ("prometheus_client parser", lambda page: list(text_string_to_metric_families(page.decode())), 60),
        ("scan, first time", first_scan, 60),
        ("scan", scanner.scan, 600),
        ("scan + quantities", lambda page: adapter.read(scanner.scan(page)), 600),
    )
    slowest = 0.0
    for words, work, rounds in ways:
        middle, least = microseconds(work, pages, rounds)
        slowest = slowest or middle
        print(f"  {words:26} {middle:9.0f} us median {least:9.0f} us least   1/{slowest / middle:.0f}")


if __name__ == "__main__":
    for capture in sys.argv[1:] or CAPTURES:
        bench(capture)
