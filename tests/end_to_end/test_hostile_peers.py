"""A host that lies beside two honest ones, over real HTTP on loopback, on the real screen of a fleet.

Everything is timed by the CPU time of this process, which other programs on the machine change little.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest
from textual.pilot import Pilot

from gpumon.config.schema import Config, Host
from gpumon.config.themes import load_theme
from gpumon.fleet.snapshot import HostState
from gpumon.session.fleet import FleetSession
from gpumon.tui.fleet.app import FleetApp
from tests.fakes.lying_host import KINDS, lying
from tests.tui.running import foot, text_of, until

LATER_S = 1.0
"""The liar is looked at until each honest host has told of a moment that is so much later."""
LOOK_S = 1.5
"""Most CPU time of this process meanwhile, keys included: a liar that held the others up would take more."""
PATIENCE_S = 60.0
KEY_S = 0.8
"""Most CPU time of this process while a key is answered.

The largest snapshot that is read takes 0.3 to 0.6 s beside eight busy loops, which take its caches and its core.
"""
QUIT_S = 0.5
MOST_MB = 200.0
REFUSED = "is not read"
REFUSALS = {
    **dict.fromkeys(("40,000 verdicts", "4,000 GPUs", "lists in lists", "empty lists", "numbers", "15 MB"), REFUSED),
    **dict.fromkeys(("no object", "not JSON"), "no snapshot of gpumon"),
}
"""What the row of a liar says; one that is not among them is read."""


WIDE = ("empty lists", "no object")
"""Refused as others are: `numbers` and `not JSON`."""
HONEST = ("alpha", "zeta")


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Two honest hosts and a liar of each kind, by their names."""
    with lying("honest", "honest", *KINDS) as served:
        yield dict(zip((*HONEST, *KINDS), served, strict=True))


@contextlib.asynccontextmanager
async def beside(url: str, urls: dict[str, str]) -> AsyncIterator[tuple[FleetApp, Pilot[int]]]:
    """The screen of a fleet with the liar at `url` between two honest hosts."""
    hosts = {"alpha": urls["alpha"], "liar": url, "zeta": urls["zeta"]}
    config = Config(host=tuple(Host(address=address, name=name) for name, address in hosts.items()))
    app = FleetApp(FleetSession(config), load_theme("default"), config)
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await until(lambda: both_live(app), pilot)
        yield app, pilot


def both_live(app: FleetApp) -> bool:
    shown = app.monitor.shown
    states = {host.name: host.state for host in shown.fleet.hosts} if shown is not None else {}
    return states.get("alpha") is states.get("zeta") is HostState.OK


def resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


def kinds() -> list[object]:
    """The cases: some for `make properties` alone."""
    return [pytest.param(kind, marks=pytest.mark.wide if kind in WIDE else ()) for kind in KINDS]


@pytest.mark.parametrize("kind", kinds())
async def test_a_liar_costs_its_own_row_and_neither_time_nor_memory_of_the_others(
    kind: str, urls: dict[str, str]
) -> None:
    before_mb = resident_mb()
    async with beside(urls[kind], urls) as (app, pilot):
        refusal = REFUSALS.get(kind, "")
        await until(lambda: refusal in said_of_liar(app), pilot)
        longest_s = 0.0
        most_mb = 0.0
        told_s = newest_s(app)
        end_s = time.monotonic() + PATIENCE_S
        look_s = time.process_time()
        while newest_s(app) < told_s + LATER_S:
            assert time.monotonic() < end_s, f"{kind} holds the others up"
            begun_s = time.process_time()
            await pilot.press("j")
            longest_s = max(longest_s, time.process_time() - begun_s)
            await asyncio.sleep(0.1)
            most_mb = max(most_mb, resident_mb() - before_mb)
            assert app.monitor.shown.fleet.answered
        look_s = time.process_time() - look_s
        await until(lambda: both_live(app), pilot)
        notices = [fault for fault in app.monitor.shown.fleet.faults if fault.source == "liar"]
        assert len(notices) == (refusal == REFUSED)
        assert not any("prometheus" in line.lower() for line in text_of(app))
        begun_s = time.process_time()
        await pilot.press("q")
        quit_s = time.process_time() - begun_s
    print(f"{kind}: look {look_s:.2f} s, key {longest_s * 1e3:.0f} ms, {most_mb:.0f} MB, quit {quit_s:.2f} s")
    assert look_s <= LOOK_S
    assert longest_s <= KEY_S
    assert most_mb <= MOST_MB
    assert quit_s <= QUIT_S


def newest_s(app: FleetApp) -> float:
    """Unix time of the older one of the newest snapshots of the honest hosts."""
    hosts = [app.monitor.shown.fleet.host(name) for name in HONEST]
    return min(host.snapshot.wall_s for host in hosts if host is not None)


def said_of_liar(app: FleetApp) -> str:
    host = app.monitor.shown.fleet.host("liar")
    return " ".join(fault.text for fault in host.snapshot.faults) if host is not None else ""


async def test_a_command_in_place_of_an_option_is_neither_shown_nor_copied(urls: dict[str, str]) -> None:
    async with beside(urls["advice"], urls) as (app, pilot):
        app.open_host("liar", None)
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot)
        await until(lambda: any("in that host's own words" in line for line in text_of(app)), pilot)
        assert any("with what is no option" in line for line in text_of(app))
        assert not any("curl" in line for line in text_of(app))
        await pilot.press("5")
        await pilot.press("c")
        await until(lambda: "not copied" in foot(app), pilot)
        assert app.clipboard == ""
