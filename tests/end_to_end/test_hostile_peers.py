"""A host that lies beside two honest ones, over real HTTP on loopback, on the real screen of a fleet.

Keys are timed by the CPU time of this process, which other programs on the machine do not change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

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

SECONDS = 2.0
"""So long the liar is looked at beside the others."""
OLD_S = 2.0
"""Most that a row of an honest host is older than the interval between its snapshots."""
KEY_S = 0.2
QUIT_S = 0.5
MOST_MB = 200.0
REFUSED = "is not read"
REFUSALS = {
    **dict.fromkeys(("40,000 verdicts", "4,000 GPUs", "lists in lists", "empty lists", "numbers", "15 MB"), REFUSED),
    **dict.fromkeys(("no object", "not JSON"), "no snapshot of gpumon"),
}
"""What the row of a liar says; one that is not among them is read."""


@contextlib.asynccontextmanager
async def beside(kind: str) -> AsyncIterator[tuple[FleetApp, Pilot[int]]]:
    """The screen of a fleet with a liar between two honest hosts."""
    with lying("honest") as first, lying(kind) as liar, lying("honest") as last:
        urls = {"alpha": first, "liar": liar, "zeta": last}
        config = Config(host=tuple(Host(address=url, name=name) for name, url in urls.items()))
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


@pytest.mark.parametrize("kind", KINDS)
async def test_a_liar_costs_its_own_row_and_neither_time_nor_memory_of_the_others(kind: str) -> None:
    before_mb = resident_mb()
    async with beside(kind) as (app, pilot):
        refusal = REFUSALS.get(kind, "")
        await until(lambda: refusal in said_of_liar(app), pilot)
        oldest_s = longest_s = most_mb = 0.0
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            begun_s = time.process_time()
            await pilot.press("j")
            longest_s = max(longest_s, time.process_time() - begun_s)
            await asyncio.sleep(0.1)
            most_mb = max(most_mb, resident_mb() - before_mb)
            oldest_s = max(oldest_s, age_s(app, "alpha"), age_s(app, "zeta"))
            assert app.monitor.shown.fleet.answered
            assert both_live(app)
        notices = [fault for fault in app.monitor.shown.fleet.faults if fault.source == "liar"]
        assert len(notices) == (refusal == REFUSED)
        assert not any("prometheus" in line.lower() for line in text_of(app))
        begun_s = time.process_time()
        await pilot.press("q")
        quit_s = time.process_time() - begun_s
    print(f"{kind}: rows {oldest_s:.2f} s, key {longest_s * 1e3:.0f} ms, {most_mb:.0f} MB, quit {quit_s:.2f} s")
    assert oldest_s <= OLD_S
    assert longest_s <= KEY_S
    assert most_mb <= MOST_MB
    assert quit_s <= QUIT_S


def age_s(app: FleetApp, name: str) -> float:
    """Seconds by which a host's figures are older than they have to be."""
    host = app.monitor.shown.fleet.host(name)
    assert host is not None
    return time.time() - host.snapshot.wall_s - host.snapshot.interval_s


def said_of_liar(app: FleetApp) -> str:
    host = app.monitor.shown.fleet.host("liar")
    return " ".join(fault.text for fault in host.snapshot.faults) if host is not None else ""


async def test_a_command_that_a_host_advises_is_marked_and_not_copied() -> None:
    async with beside("advice") as (app, pilot):
        app.open_host("liar", None)
        await until(lambda: app.host is not None and app.host.shown is not None, pilot)
        await until(lambda: any("curl http" in line for line in text_of(app)), pilot)
        assert any("in that host's own words" in line for line in text_of(app))
        await pilot.press("5")
        await pilot.press("c")
        await until(lambda: "not copied" in foot(app), pilot)
        assert app.clipboard == ""
