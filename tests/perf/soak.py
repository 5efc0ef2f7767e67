"""A day of use in some minutes: keys, time travel, sizing, engines that come and go, on a virtual clock.

make soak                       # or: python -m tests.perf.soak [--hours 24] [--interval 10] [--visit 420]

The real screen runs without a terminal over the simulated server, beside engines that are seen for some minutes and
never again. Memory, descriptors, threads and children are printed hour by hour; the command fails where the mean of the
last quarter is more than 5% above that of the first quarter after the warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import selectors
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil

WARM_UP_HOURS = 3
"""The longest chart spans two hours; the caches of the screen fill with the first hours of keys."""
GROWTH = 1.05
WALL_S = 1.8e9
SIZE = (120, 40)
THREADS = ("timeline", "flight recorder")
"""Names of threads that are there only while they work: the clock waits for them."""
POOL = ("asyncio_", "_pss_bytes")
"""The event loop's pool, which has a bound of its own, and a look at /proc: how many of them run is chance."""
ROUND = (
    *("[", "[", "left", "left", "N", "N", "right", "]", "n", "]", "end", "f5"),
    *("s", "right", "down", "down", "escape", "escape"),
    *("?", "escape", "j", "j", "enter", "down", "escape", "k", "z", "z", "tab", "p", "p"),
    *(",", "escape", "ctrl+k", "escape", "/", "q", "w", "e", "n", "enter", "/", "escape", "escape", "escape"),
)
"""Keys of one round, some seconds apart."""


class Clock(selectors.DefaultSelector):
    """A monotonic clock that is set forward while nothing is to be done, here or in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.lent = 0
        """Calls that run in the pool's threads."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; where nothing is, the time is over at once."""
        busy = self.lent or any(thread.name in THREADS for thread in threading.enumerate())
        found = super().select(0.001 if busy and timeout != 0 else 0)
        self.now_s += 1e-7  # each turn takes a moment, or a pause that rounding makes zero would never end
        if not found and not busy and timeout is not None:
            self.now_s += timeout
        return found


class Loop(asyncio.SelectorEventLoop):
    """An event loop for which the clock is the time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock = clock

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """As usual, and the clock waits for it."""
        self.clock.lent += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._back)
        return future

    def _back(self, _: object) -> None:
        self.clock.lent -= 1


class Hour(NamedTuple):
    """What the process holds."""

    rss_mb: float
    descriptors: int
    threads: int
    """But for those that come and go."""
    children: int
    objects: int


def hold() -> Hour:
    """The process as it is, after a look for garbage."""
    gc.unfreeze()
    gc.collect()
    me = psutil.Process()
    passing = [each for each in threading.enumerate() if each.name.startswith((*THREADS, *POOL))]
    threads = me.num_threads() - len(passing)
    return Hour(me.memory_info().rss / 1e6, me.num_fds(), threads, len(me.children()), len(gc.get_objects()))


def verdict(hours: list[Hour]) -> list[str]:
    """What has grown."""
    steady = hours[min(WARM_UP_HOURS, len(hours) // 2) :]
    quarter = max(1, len(steady) // 4)
    grown = []
    for at, name in enumerate(Hour._fields):
        first, last = (statistics.fmean(hour[at] for hour in part) for part in (steady[:quarter], steady[-quarter:]))
        print(f"{name}: {first:.1f} after the warm-up, {last:.1f} at the end ({last / first - 1 if first else 0:+.1%})")
        if last > GROWTH * first:
            grown.append(name)
    return grown


def scenario(hours: float) -> Any:
    """The demo's cast, of which one engine is started anew every 20 minutes."""
    import msgspec

    from gpumon.demo.scenario import EngineEffect
    from gpumon.demo.scenarios import DEMO

    name, turns = DEMO.cast[1].name, range(1, int(hours * 3) + 1)
    effects = (EngineEffect(engine=name, from_s=1200.0 * at, to_s=1200.0 * at + 90.0, down=True) for at in turns)
    return msgspec.structs.replace(DEMO, engine_effects=tuple(effects))


def visitors(hours: float, visit_s: float) -> Any:
    """The simulated server, and beside it engines and a GPU's processes that come, stay some minutes, and end."""
    import msgspec

    from gpumon.demo.source import SimulatedServer
    from gpumon.readings.frame import GpuProcess
    from gpumon.sources.source import Contribution
    from tests.perf.bench_memory import engine

    class Visited(SimulatedServer):
        async def poll(self, monotonic_s: float) -> Contribution:
            found = await super().poll(monotonic_s)
            newest = int(monotonic_s / visit_s)
            guests = tuple(engine(number, monotonic_s) for number in (newest - 1, newest))
            process = GpuProcess(newest + 5_000_000, f"guest-{newest}", "guest", 1e9)
            gpus = tuple(
                msgspec.structs.replace(gpu, processes=(*gpu.processes, process)) if gpu.index == 7 else gpu
                for gpu in found.gpus
            )
            return msgspec.structs.replace(found, gpus=gpus, engines=guests)

    return Visited(scenario(hours))


async def play(hours: float, interval_s: float, rounds: int, visit_s: float) -> list[Hour]:
    """The whole day."""
    import gpumon.session.host
    from gpumon.config.options import Options
    from gpumon.config.schema import Config, General
    from gpumon.config.themes import load_theme
    from gpumon.session.hardware import simulated_hardware
    from gpumon.session.host import HostSession, ThisHost
    from gpumon.tui.app import MonitorApp
    from tests.tui.running import text_of

    config = Config(general=General(interval_s=interval_s, engine_interval_s=2 * interval_s))
    server = visitors(hours, visit_s)

    async def hardware(*_: object, **_options: object) -> Any:
        await server.start()
        return simulated_hardware(server, config)

    gpumon.session.host.open_hardware = hardware
    app = MonitorApp(HostSession(config, ThisHost(config, Options(demo=True))), load_theme("default"), config)
    found: list[Hour] = []
    keys: Iterator[str] = itertools.cycle(ROUND)
    pasts = 0
    async with app.run_test(size=SIZE) as pilot:
        pause_s = 3600.0 / (rounds * len(ROUND))
        for _ in range(round(hours)):
            for _ in range(rounds * len(ROUND)):
                key = next(keys)
                await pilot.press(key)
                await asyncio.sleep(pause_s)
                pasts += key == "[" and any(" AGO " in line for line in text_of(app)[:2])
            found.append(hold())
            print(f"hour {len(found)}: {found[-1]._asdict()}, the past was opened {pasts} times", flush=True)
    assert pasts > len(found), "the keys do not open the past"
    return found


def main() -> None:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=25, help="of keys in an hour")
    parser.add_argument(
        "--visit", type=float, default=420.0, help="seconds from a new engine to the next; each is seen twice as long"
    )
    chosen = parser.parse_args()
    clock = Clock()
    began_s = time.monotonic()
    real = time.monotonic
    time.monotonic = lambda: clock.now_s
    time.time = lambda: WALL_S + clock.now_s
    os.environ |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC", "GPUMON_CONFIG": os.devnull}
    hours = Loop(clock).run_until_complete(play(chosen.hours, chosen.interval, chosen.rounds, chosen.visit))
    print(f"{chosen.hours:.0f} hours in {real() - began_s:.0f} s")
    if grown := verdict(hours):
        sys.exit(f"grows: {', '.join(grown)}")


if __name__ == "__main__":
    main()
