"""The least program of its kind: Textual that repaints lines, httpx that fetches pages, the driver's worker; no more.

python -m tests.perf.floor_program [--lines 22] [--worker] [--endpoint URL]... [--modules FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Final

# The worker is started before all that takes long to import, as gpumon does.
from gpumon.sources.driver.source import NVIDIA, Child, start_and_ask_worker

TICK_S: Final = 1.0
POLL_S: Final = 2.0
TEXT_CELLS: Final = 8
"""Cells of a line that change at each tick: a figure of the GPUs' table, or the newest columns of a chart."""


async def _fetch(url: str) -> None:
    """Fetch a page every two seconds over one connection, by httpx's transport alone."""
    import ssl

    import httpx

    transport = httpx.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)
    no_timeouts = {"timeout": {"connect": POLL_S, "read": None, "write": None, "pool": None}}
    request = httpx.Request("GET", f"{url}/metrics", extensions=no_timeouts)
    while True:
        response = await transport.handle_async_request(request)
        await response.aread()
        await response.aclose()
        await asyncio.sleep(POLL_S)


def _show(worker: Popen[bytes] | None, urls: Sequence[str], lines: int) -> None:
    """Run a Textual program of one widget, which repaints so many of its lines at each tick."""
    from rich.segment import Segment
    from textual.app import App, ComposeResult
    from textual.geometry import Region
    from textual.strip import Strip
    from textual.widget import Widget

    class Lines(Widget):
        """Lines of digits; the last one says whether the GPUs were read."""

        ticks = 0
        figures = "quit"

        def render_line(self, y: int) -> Strip:
            text = str(self.ticks % 10) * TEXT_CELLS
            if y == self.size.height - 1:
                text = self.figures
            return Strip([Segment(text.ljust(self.size.width))], self.size.width)

        def tick(self) -> None:
            self.ticks += 1
            self.refresh(*(Region(0, y, TEXT_CELLS, 1) for y in range(lines)))

    class Floor(App[None]):
        """The program."""

        def compose(self) -> ComposeResult:
            yield Lines()

        def on_mount(self) -> None:
            self.call_after_refresh(self.begin)

        def begin(self) -> None:
            """Start what repeats, after the first paint."""
            self.child: Child | None = None
            if worker is not None:
                self.child = Child(worker, self.take, 0.0)
                self.child.asked_s = 0.0
            self.set_interval(TICK_S, self.tick)
            self.fetching = [asyncio.create_task(_fetch(url)) for url in urls]

        def tick(self) -> None:
            """Ask the worker, and repaint."""
            if self.child is not None:
                self.child.ask(0.0, frozenset())
            self.query_one(Lines).tick()

        def take(self) -> None:
            """Show that the GPUs were read for the first time."""
            painted = self.query_one(Lines)
            report = self.child.report if self.child is not None else None
            if report is not None and report.gpus and painted.figures == "quit":
                painted.figures = f"quit, {len(report.gpus)} GPUs"
                painted.refresh()

    Floor().run()


def _import_all(names: Sequence[str]) -> None:
    """Import these modules and use none of them, so that their code and their tables are in memory."""
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run it until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=22, help="lines that are repainted each second")
    parser.add_argument("--worker", action="store_true", help="read the GPUs in gpumon's worker")
    parser.add_argument("--endpoint", action="append", default=[], help="fetch this server's /metrics every 2 s")
    parser.add_argument("--modules", type=Path, help="also import the modules that this file names, one a line")
    chosen = parser.parse_args()
    worker = start_and_ask_worker(NVIDIA) if chosen.worker else None
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as gpumon: httpx without its command line
    if chosen.modules is not None:
        _import_all(chosen.modules.read_text(encoding="utf-8").split())
    _show(worker, chosen.endpoint, chosen.lines)


if __name__ == "__main__":
    main()
