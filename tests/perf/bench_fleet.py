"""What 128 engines at 5 s cost the screen: CPU of a core, and the longest that a key waited for its answer.

python -m tests.perf.bench_fleet [--engines 128] [--seconds 40]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from tests.fakes.engine import Capture
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.nvml.driver import FakeDriver
from tests.perf.contestants import BIN
from tests.terminal import Terminal

ENGINES = 128
INTERVAL_S = 5
CAPTURE, FIRST_S = "prometheus-api", 15.0
SETTLE_S = 70.0
"""Until every engine was asked for its model and version, and its replicas are held against it: from 54 s on."""
CPU_LIMIT, KEY_LIMIT_S = 0.08, 0.1
KEYS = (b"j", b"k")
KEY_EVERY_S = 0.4


def serve(count: int) -> None:
    """That many servers in this process, each replaying one capture from its own second on; prints their URLs."""
    scrapes = [scrape for scrape in Capture(CAPTURE).scrapes if scrape.t >= FIRST_S and scrape.status == 200]
    began_s = time.monotonic()

    def answer(number: int, request: Request) -> Reply:
        if request.path != "/metrics":
            return Reply(404, b"")
        at = min(int(time.monotonic() - began_s) + number % 8, len(scrapes) - 1)
        return Reply(200, scrapes[at].body, scrapes[at].content_type)

    servers = [LoopbackServer(partial(answer, number)) for number in range(count)]
    for server in servers:
        server.listen()
        print(server.url, flush=True)
    threading.Event().wait()


def measure(count: int, seconds: float) -> tuple[float, float, list[float]]:
    """CPU as a share of a core (screen and driver worker), bytes/s to the terminal, and the wait of each key."""
    servers = subprocess.Popen(
        [sys.executable, "-m", "tests.perf.bench_fleet", "--serve", str(count)], stdout=subprocess.PIPE, text=True
    )
    assert servers.stdout is not None
    urls = [servers.stdout.readline().strip() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder))
        driver.write(driver.busy_h100s(8))
        env = driver.env(
            TERM="xterm-256color",
            LANG="C.UTF-8",
            XDG_CONFIG_HOME=folder,
            GPUMON_ENGINE_INTERVAL=str(INTERVAL_S),
            GPUMON_ENDPOINTS=" ".join(urls),
        )
        try:
            with Terminal([str(BIN / "gpumon")], env, 120, 40) as terminal:
                terminal.run(SETTLE_S)
                cpu_s, written, at_s = terminal.cpu_s(), terminal.written(), time.monotonic()
                terminal.run(seconds)
                elapsed_s = time.monotonic() - at_s
                cpu = (terminal.cpu_s() - cpu_s) / elapsed_s
                bytes_per_s = (terminal.written() - written) / elapsed_s
                terminal.type(b"2z")
                terminal.run(1.0)
                return cpu, bytes_per_s, [key_wait_s(terminal, KEYS[n % 2]) for n in range(int(seconds / KEY_EVERY_S))]
        finally:
            servers.kill()
            servers.wait()


def key_wait_s(terminal: Terminal, key: bytes) -> float:
    """Seconds from a key to the first byte that the screen writes."""
    chunks = len(terminal.chunks)
    pressed_s = time.monotonic()
    terminal.type(key)
    while len(terminal.chunks) == chunks and time.monotonic() - pressed_s < 5.0:
        terminal.run(0.002)
    waited_s = time.monotonic() - pressed_s
    terminal.run(KEY_EVERY_S)
    return waited_s


def main() -> None:
    """Print the figures; ends with 1 where one is above its limit."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--engines", type=int, default=ENGINES)
    arguments.add_argument("--seconds", type=float, default=40.0)
    arguments.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(given.serve)
    cpu, bytes_per_s, waits = measure(given.engines, given.seconds)
    slowest, middle = max(waits), statistics.median(waits)
    print(f"{given.engines} engines at {INTERVAL_S} s, 120x40: CPU {cpu * 100:.2f}% of a core (limit 8%)")
    print(f"{bytes_per_s:,.0f} bytes/s to the terminal")
    print(f"key to first byte: median {middle * 1e3:.0f} ms, longest {slowest * 1e3:.0f} ms (limit 100 ms)")
    sys.exit(cpu > CPU_LIMIT or slowest > KEY_LIMIT_S)


if __name__ == "__main__":
    main()
