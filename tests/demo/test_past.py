"""The demo's past: played before the first tick, by the same adapters, figures and rules as what comes after it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from gpumon.collector import Collector
from gpumon.config.options import Options
from gpumon.config.schema import Alert, Config
from gpumon.demo.past import PACES, rounds
from gpumon.demo.scenarios import DEMO
from gpumon.history.memory import MemoryStore
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Level, Limit
from gpumon.session.build import build
from gpumon.session.hardware import open_hardware
from gpumon.session.host import HostSession, ThisHost
from tests.each_row import each_row
from tests.virtual_time import Clock, played

PAST_S = DEMO.past_s
PATIENCE_S = 60.0
COLUMN_S = 8.0
"""Of a chart of five minutes at 120 columns."""
SMALL = "healthy-chat"
"""A scenario of two GPUs and one engine: its past takes a third of the demo's processor time."""
ALWAYS = Alert(when="gpus.busy_ratio >= 0", for_s=0.0)
"""Holds of every GPU at every moment."""


class Relived:
    """A collector of the demo after its past, with what it kept."""

    def __init__(self, collector: Collector, store: MemoryStore, history: History, snapshots: list[Snapshot]) -> None:
        self.collector = collector
        self.store = store
        self.history = history
        self.snapshots = snapshots

    @property
    def newest(self) -> Snapshot:
        """The last moment of the past."""
        return self.snapshots[-1]

    def seconds(self, at: int) -> float:
        """How long before that another moment was."""
        return self.newest.wall_s - self.snapshots[at].wall_s


async def relived(scenario: str = "", config: Config | None = None) -> Relived:
    options = Options(demo=True, scenario=scenario)
    config = config or Config()
    hardware = await open_hardware(config, options, with_past=True)
    history = History()
    store = MemoryStore(1800.0, 64e6)
    collector = build(config, options, hardware, history, [store], with_past=True)
    snapshots: list[Snapshot] = []
    await collector.relive(snapshots.append)
    return Relived(collector, store, history, snapshots)


def in_virtual_time(scenario: str = "", then: Callable[[Relived], None] = lambda _: None) -> Relived:
    """The past of a scenario, while the machine's clock stands still."""

    async def main() -> Relived:
        past = await relived(scenario)
        then(past)
        await past.collector.stop()
        return past

    return played(main(), Clock())


@pytest.fixture(scope="module")
def demo() -> Relived:
    return in_virtual_time()


def test_moments_follow_each_other_up_to_now_and_are_finer_the_nearer_they_are() -> None:
    times = [*rounds(-600.0)]
    assert times[-1].at_s == 0.0
    assert [later.at_s - earlier.at_s for earlier, later in pairwise(times)] == [each.interval_s for each in times[1:]]
    paces = [each.interval_s for each in times]
    assert paces == sorted(paces, reverse=True)
    assert {*paces} == {stretch.every_s for stretch in PACES}


def test_a_short_past_ends_now_too() -> None:
    assert [each.at_s for each in rounds(-7.0)] == [-1.0, 0.0]


def test_it_goes_back_ten_minutes_without_a_gap(demo: Relived) -> None:
    assert demo.seconds(0) >= PAST_S - PACES[0].every_s
    span = demo.store.span()
    assert span is not None
    assert span[1] - span[0] == pytest.approx(demo.seconds(0))
    for series in ("busy", "mbu", "decode"):
        buckets = demo.history.buckets(series, int(demo.newest.wall_s // COLUMN_S), 70, COLUMN_S)
        assert not any(map(math.isnan, buckets)), series


def test_verdicts_stand_when_it_ends(demo: Relived) -> None:
    engines = {engine.name for engine in demo.newest.engines}
    stand = {verdict.scope: verdict.code for verdict in demo.newest.verdicts}
    assert {stand[name] for name in engines} == {Limit.HEALTHY}
    assert Limit.EVALUATING not in stand.values()
    assert demo.store.events(0.0, demo.newest.wall_s)


def test_figures_are_complete_from_its_second_moment_on(demo: Relived) -> None:
    for snapshot in demo.snapshots[1:]:
        for engine in snapshot.engines:
            assert engine.state is EndpointState.OK
            assert not isinstance(engine.efficiency.mfu_ratio, Missing)
        assert not snapshot.faults


def test_what_gpumon_costs_is_not_known_of_a_time_in_which_it_did_not_run(demo: Relived) -> None:
    assert isinstance(demo.newest.self_cost.cpu_ratio, Missing)


@each_row("scenario", ["gpu-off-the-bus", "replica-crash"])
def test_trouble_comes_after_it(scenario: str) -> None:
    past = in_virtual_time(scenario)
    assert past.seconds(0) >= PAST_S - PACES[0].every_s
    for snapshot in past.snapshots:
        assert {gpu.reading.state for gpu in snapshot.gpus} == {GpuState.OK}
        assert not [verdict for verdict in snapshot.verdicts if verdict.level in (Level.WARN, Level.CRITICAL)]


def test_an_engine_that_is_down_all_the_time_is_down_in_it() -> None:
    past = in_virtual_time("dead-endpoint")
    states = {engine.state for snapshot in past.snapshots for engine in snapshot.engines}
    assert EndpointState.REFUSED in states


def test_no_alert_is_raised_of_it() -> None:
    async def main() -> tuple[int, int]:
        past = await relived(SMALL, Config(alert=(ALWAYS,)))
        before = sum(len(snapshot.alerts) for snapshot in past.snapshots)
        await past.collector.open()
        after = len((await past.collector.tick()).alerts)
        await past.collector.stop()
        return before, after

    assert played(main(), Clock()) == (0, 2)


async def test_the_first_frame_of_the_screen_has_it_all() -> None:
    host = ThisHost(Config(), Options(demo=True, scenario=SMALL))
    session = HostSession(Config(), host)
    shown: list[Snapshot] = []
    arrived = asyncio.Event()

    def show(snapshot: Snapshot) -> None:
        shown.append(snapshot)
        arrived.set()

    await session.start(show)
    await asyncio.wait_for(arrived.wait(), PATIENCE_S)
    assert {engine.state for engine in shown[0].engines} == {EndpointState.OK}
    assert {verdict.code for verdict in shown[0].verdicts} == {Limit.HEALTHY, Limit.IDLE}
    timeline = session.timeline
    assert timeline is not None
    then = await timeline.at(shown[0].wall_s - 300.0)
    assert then is not None
    assert then.snapshot.wall_s == pytest.approx(shown[0].wall_s - 300.0, abs=60.0)
    assert session.calibration.observed()
    await session.stop()


async def test_after_it_the_engines_are_polled_by_http() -> None:
    options = Options(demo=True, scenario=SMALL)
    hardware = await open_hardware(Config(), options, with_past=True)
    collector = build(Config(), options, hardware, with_past=True)
    past: list[Snapshot] = []
    await collector.relive(past.append)
    await collector.open()
    before = {engine.name: engine.tokens_total.decode for engine in past[-1].engines}
    end_s = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        snapshot = await collector.tick()
        moved = [engine.name for engine in snapshot.engines if engine.tokens_total.decode > before[engine.name]]
        if len(moved) == len(before):
            break
        assert asyncio.get_running_loop().time() < end_s, moved
        await asyncio.sleep(0.05)
    assert {engine.state for engine in snapshot.engines} == {EndpointState.OK}
    await collector.stop()
