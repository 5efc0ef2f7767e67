"""What the simulator behind `gpumon demo` costs: run `python tests/perf/bench_demo.py [SECONDS]`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from gpumon.demo.scenarios import DEMO
from gpumon.demo.source import SimulatedServer
from tests.records import replace

BUDGET_RATIO = 0.03
"""Of one core, engines scraped every 2 s and GPUs read every second."""

CLIENT = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while True:
    for url in sys.argv[1:]:
        opener.open(url + "/metrics", timeout=30).read()
    time.sleep(2.0)
"""


async def live_ratio(seconds: float) -> tuple[float, float]:
    """Seconds until the server is warm, and its CPU as a share of a core afterwards; the scraper is another process."""
    began = time.perf_counter()
    server = SimulatedServer()
    await server.start()
    client = subprocess.Popen([sys.executable, "-c", CLIENT, *(each.url for each in server.endpoints)])
    try:
        while not server.warm:
            await asyncio.sleep(0.01)
        warm_s = time.perf_counter() - began
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        while time.perf_counter() - wall_s < seconds:
            await server.poll(time.monotonic())
            await asyncio.sleep(1.0)
        return warm_s, (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    finally:
        client.terminate()
        client.wait()
        await server.close()


def fast_ratio(simulated_s: int = 3600) -> float:
    """CPU seconds per simulated second, advanced second by second, nothing scraped."""
    server = SimulatedServer(replace(DEMO, warm_s=60.0))
    began = time.process_time()
    for second in range(-60, simulated_s - 60):
        server.advance(float(second))
    asyncio.run(server.close())
    return (time.process_time() - began) / simulated_s


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    warm_s, live = asyncio.run(live_ratio(seconds))
    print(f"physics alone            {fast_ratio():8.3%} of a core")
    print(f"live, 3 scrapes per 2 s  {live:8.3%} of a core (budget {BUDGET_RATIO:.0%})")
    print(f"warm after               {warm_s:8.2f} s")
    return 0 if live <= BUDGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
