"""Draws the pictures of the README and the docs: the demo in virtual time, the same bytes every time.

python -m tests.tui.screenshot [--folder docs]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from textual.pilot import Pilot
from textual.strip import Strip

from gpumon.collector import Collector
from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.demo.scenario import EngineEffect, GpuEffect, Scenario
from gpumon.demo.scenarios import DEMO
from gpumon.demo.source import SimulatedServer
from gpumon.history.memory import MemoryStore
from gpumon.history.timeline import DerivedTimeline
from gpumon.readings.frame import GpuState
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.session.build import build, deriver_maker
from gpumon.session.hardware import simulated_hardware
from gpumon.session.host import HostSession
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui.moving_picture import Scene, moving_picture
from tests.tui.running import text_of, until
from tests.virtual_time import Clock, played

WALL_S: Final = 1_795_687_800.0
"""Unix time at which the pictures are taken."""
ZERO_S: Final = 5000.0
HOST: Final = "gpu-07"
FIRST_PORT: Final = 48001
"""In place of the ports that the system chose for the simulated engines."""
SIZE: Final = (120, 40)
WIDE: Final = (160, 46)
MOVING: Final = (112, 34)
PICTURES: Final = (
    ("screen", "default", SIZE, ()),
    ("detail", "default", SIZE, ("2", "enter")),
    ("light", "light", SIZE, ("escape", "1")),
    ("sizing", "default", WIDE, ("s", *"400", "enter")),
    ("simulate", "default", WIDE, ("v", "v", "v")),
)
"""Name, theme, size, and the keys that lead there from the picture before."""
ENVIRONMENT: Final = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "TZ": "UTC"}
FAULT_S: Final = 5.0
FOUND_S: Final = 75.0
"""Simulated times at which a GPU of the moving picture falls off the bus, and of the picture of that."""
TROUBLE: Final = replace(
    DEMO,
    gpu_effects=(
        GpuEffect(
            gpus=(2,),
            state=GpuState.LOST,
            state_text="GPU is lost: it has fallen off the bus",
            xid=79,
            from_s=FAULT_S,
        ),
    ),
    engine_effects=(EngineEffect(engine="llama-70b", spinning=True, from_s=FAULT_S),),
)


class Played:
    """A `SnapshotSource`: a scenario up to a moment, at which time then stands still."""

    playback = None
    filling = False
    interval_s = 1.0

    def __init__(self, scenario: Scenario, to_s: float) -> None:
        self.history = History()
        self._store = MemoryStore(1800.0, 64e6)
        server = SimulatedServer(
            replace(scenario, warm_s=scenario.past_s), clock=lambda: ZERO_S + to_s, wall_clock=lambda: WALL_S
        )
        server.past_to_s = to_s
        self.ports = tuple(endpoint.url.rpartition(":")[2] for endpoint in server.endpoints)
        config = Config()
        hardware = simulated_hardware(server, config)
        self._collector: Collector = build(
            config, Options(demo=True), hardware, self.history, [self._store], with_past=True
        )
        self.timeline = DerivedTimeline(self._store, deriver_maker(config, hardware), lambda _: None, self.history)

    def set_interval(self, seconds: float) -> None:
        """It stands still."""

    def refresh(self) -> None:
        """It stands still."""

    async def begin(self, show: Callable[[Snapshot], None], learn: Callable[[Snapshot], None]) -> None:
        """Play it, and show the last moment."""
        newest: list[Snapshot] = []

        def take(snapshot: Snapshot) -> None:
            learn(snapshot)
            newest[:] = [snapshot]

        await self._collector.relive(take)
        show(newest[0])

    async def run(self) -> None:
        """Nothing happens any more."""
        await asyncio.Event().wait()

    async def end(self) -> None:
        """Close what is open."""
        await self._collector.stop()

    def masked(self, text: str) -> str:
        """The text with the same ports every time."""
        for number, port in enumerate(self.ports, FIRST_PORT):
            text = text.replace(port, str(number))
        return text


class Studio(NamedTuple):
    """A screen that pictures are taken of."""

    app: MonitorApp
    pilot: Pilot[int]
    source: Played

    async def go(self, *keys: str) -> None:
        """Press keys, and wait until the screen stands still."""
        await self.pilot.press(*keys)
        lines = text_of(self.app)
        while True:
            await self.pilot.pause(0.02)
            before, lines = lines, text_of(self.app)
            if lines == before:
                return

    def strips(self) -> list[Strip]:
        """The lines of the screen."""
        return list(self.app.screen._compositor.render_strips())


async def _with_studio(
    scenario: Scenario, to_s: float, size: tuple[int, int], take: Callable[[Studio], Awaitable[None]]
) -> None:
    source = Played(scenario, to_s)
    session = HostSession(Config(), source)
    app = MonitorApp(session, load_theme("default"), unix_time=lambda: WALL_S + to_s, monotonic=lambda: ZERO_S + to_s)
    async with app.run_test(size=size) as pilot:
        await until(lambda: app.monitor.shown is not None and bool(session.catalogues().profiles), pilot)
        await take(Studio(app, pilot, source))


async def _healthy() -> tuple[dict[str, str], Scene]:
    """The stills, and the first scene of the moving picture: half of the work of each is to play the demo."""
    stills: dict[str, str] = {}
    scenes: list[Scene] = []

    async def take(studio: Studio) -> None:
        await studio.go()
        scenes.append(Scene(studio.strips(), "gpumon: three engines on eight GPUs, all well", 3.0))
        for name, theme, size, keys in PICTURES:
            await studio.pilot.resize_terminal(*size)
            studio.app.palette.use(load_theme(theme))
            studio.app.monitor.redraw()
            await studio.go(*keys)
            drawing = studio.app.export_screenshot(title="gpumon demo")
            # Rich names its styles by a checksum of the text, ports included.
            stills[f"{name}.svg"] = re.sub(r"terminal-\d+", f"terminal-{name}", studio.source.masked(drawing))

    await _with_studio(DEMO, 0.0, MOVING, take)
    return stills, scenes[0]


async def _trouble() -> list[Scene]:
    """The other scenes of the moving picture."""
    scenes: list[Scene] = []

    async def take(studio: Studio) -> None:
        await studio.go()
        scenes.append(Scene(studio.strips(), "a GPU falls off the bus: what is wrong, and what to do first", 5.0))
        await studio.go("5", "down", "enter")
        scenes.append(Scene(studio.strips(), "Enter: why, with the figures it rests on", 5.0))
        await studio.go("escape", "s")
        for typed in ("4", "0", "0"):
            await studio.go(typed)
            scenes.append(Scene(studio.strips(), "s: how many GPUs for 400 users? It answers as you type", 0.6))
        scenes[-1] = scenes[-1]._replace(seconds=5.0)

    await _with_studio(TROUBLE, FOUND_S, MOVING, take)
    return scenes


@contextmanager
def the_same_everywhere() -> Iterator[None]:
    """A terminal, a time zone, a host's name and no profiles of a user: whoever draws, it is the same picture."""
    with tempfile.TemporaryDirectory() as folder:
        names = {**ENVIRONMENT, "GPUMON_PROFILES": folder}
        gone = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
        with (
            mock.patch.dict(os.environ, {**gone, **names}, clear=True),
            mock.patch("socket.gethostname", return_value=HOST),
        ):
            time.tzset()
            yield
    time.tzset()


def drawn() -> dict[str, str]:
    """All pictures by their file's name."""
    with the_same_everywhere():
        stills, first = played(_healthy(), Clock())
        scenes = played(_trouble(), Clock())
    return {**stills, "demo.svg": moving_picture((first, *scenes))}


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    folder = parser.parse_args().folder
    for name, picture in drawn().items():
        (folder / name).write_text(picture, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
