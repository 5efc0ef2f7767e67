"""The tick: cadence, sources that break their promises, names of engines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

import msgspec
import pytest

from gpumon.collector import Collector
from gpumon.efficiency.deriver import Deriver
from gpumon.history.frame_store import Tick
from gpumon.readings.frame import EndpointState, EngineReading, Fault, GpuReading, GpuState, HostReading, RankReading
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING, WAITING
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution, Source
from tests.virtual_time import Clock, played


class Still:
    """A source with one GPU that is always there."""

    def __init__(self) -> None:
        self.polls: list[float] = []
        self.closed = False

    async def start(self) -> None:
        pass

    async def ready(self, timeout_s: float) -> None:
        pass

    async def poll(self, monotonic_s: float) -> Contribution:
        self.polls.append(monotonic_s)
        reading = GpuReading(0, "GPU-0", "NVIDIA L4", GpuState.OK, monotonic_s, busy_ratio=0.5)
        return Contribution(gpus=(reading,), driver="580")

    def set_interval(self, seconds: float) -> None:
        self.interval_s = seconds

    async def close(self) -> None:
        self.closed = True


class Hanging(Still):
    """A source that never answers, not even to `close`."""

    async def poll(self, monotonic_s: float) -> Contribution:
        await asyncio.sleep(3600)
        return Contribution()


class Broken(Still):
    """A source with a bug."""

    async def poll(self, monotonic_s: float) -> Contribution:
        raise RuntimeError("oops\x1b[31m")


class Ready(Still):
    """A source that has its readings at hand."""

    def __init__(self, index: int, *, broken: bool = False) -> None:
        super().__init__()
        self._index, self._broken = index, broken

    async def poll(self, monotonic_s: float) -> Contribution:
        raise AssertionError("nobody has to wait for it")

    def newest(self) -> Contribution:
        if self._broken:
            raise RuntimeError("oops")
        return Contribution(gpus=(GpuReading(self._index, f"GPU-{self._index}", "NVIDIA L4", GpuState.OK, 0.0),))


class Serves(Still):
    """A GPU with an engine that gives tokens but for a minute, and what is asked of its PCIe traffic at each tick."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[frozenset[str]] = [frozenset()]
        self._tokens = 0.0

    async def poll(self, monotonic_s: float) -> Contribution:
        found = await super().poll(monotonic_s)
        if not 20 < len(self.polls) <= 80:
            self._tokens += 900.0
        rank = RankReading("0", {DECODE_TOKENS: self._tokens}, {RUNNING: 14.0, WAITING: 0.0}, {})
        engine = EngineReading(
            "vllm:8000",
            "http://127.0.0.1:8000",
            EndpointState.OK,
            monotonic_s,
            live={DECODE_TOKENS: "t", RUNNING: "r", WAITING: "w"},
            ranks=(rank,),
            gpus=("GPU-0",),
        )
        return msgspec.structs.replace(found, engines=(engine,))

    def watch_pcie(self, uuids: frozenset[str]) -> None:
        self.watched.append(uuids)


class Meter:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading("box")


class Nothing:
    def attach(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        return reading

    def label(self, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...]) -> tuple[GpuReading, ...]:
        return gpus


class Keeps:
    """Keeps what it can."""

    def __init__(self, *, fails: bool = False) -> None:
        self.kept: list[int] = []
        self._fails = fails

    def keep(self, kept: Tick) -> None:
        if self._fails:
            raise ValueError("oops\x1b[31m")
        self.kept.append(kept.frame.seq)


def collector(*sources: Source, interval_s: float = 0.25) -> Collector:
    return Collector(sources, Deriver(gpu_catalogue()), Meter(), Nothing(), interval_s=interval_s)


def collect(made: Collector, seconds: float) -> list[Snapshot]:
    snapshots: list[Snapshot] = []
    collecting(made, snapshots.append, lambda: asyncio.sleep(seconds), Clock())
    return snapshots


def collecting(
    made: Collector,
    sink: Callable[[Snapshot], None],
    then: Callable[[], Awaitable[None]],
    clock: Clock,
    *,
    early: bool = False,
) -> None:
    """Runs it in virtual time for as long as `then` takes."""

    async def main() -> None:
        await made.start(sink, early=early)
        await then()
        await made.stop()

    played(main(), clock)


def test_ticks_keep_their_slots():
    source, clock = Still(), Clock()
    # A front end that takes a while, and never the same.
    busy_s = iter([0.01, 0.2, 0.1, 0.03, 0.24, 0.0])
    collecting(collector(source), lambda _: clock.pass_by(next(busy_s)), lambda: asyncio.sleep(1.4), clock)
    assert [at - source.polls[0] for at in source.polls] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.25])
    assert source.closed


def test_a_missed_slot_is_skipped_and_never_queued():
    source, clock = Still(), Clock()

    def slow(_: Snapshot) -> None:
        if len(source.polls) == 2:
            clock.pass_by(0.9)  # a blocked front end

    collecting(collector(source), slow, lambda: asyncio.sleep(1.9), clock)
    assert [at - source.polls[0] for at in source.polls] == pytest.approx([0.0, 0.25, 1.25, 1.5, 1.75])


def test_a_hanging_or_broken_source_costs_its_own_part_only():
    snapshots = collect(collector(Hanging(), Broken(), Still()), 1.3)
    last = snapshots[-1]
    assert last.gpus[0].reading.busy_ratio == 0.5
    texts = [fault.text for fault in last.faults]
    assert any(text.startswith("Hanging failed") for text in texts)
    assert any(text == "Broken failed: RuntimeError: oops\\x1b[31m" for text in texts)


async def test_readings_at_hand_are_taken_without_waiting_and_stand_in_the_order_of_the_sources():
    made = collector(Ready(7), Still(), Ready(3, broken=True), Ready(5))
    snapshots = [await made.tick() for _ in range(2)]
    assert [gpu.reading.index for gpu in snapshots[-1].gpus] == [7, 0, 5]
    texts = {(fault.text, fault.since) for snapshot in snapshots for fault in snapshot.faults}
    assert [text for text, _ in texts] == ["Ready failed: RuntimeError: oops"]


def test_pcie_is_watched_only_while_a_stall_is_suspected():
    source = Serves()
    collecting(collector(Still(), source, interval_s=1.0), lambda _: None, lambda: asyncio.sleep(100.5), Clock())
    ticks = [at for at, uuids in enumerate(source.watched) if uuids]
    assert set(source.watched) == {frozenset(), frozenset({"GPU-0"})}
    assert (ticks[0], ticks[-1]) == (pytest.approx(30, abs=3), pytest.approx(81, abs=3))
    assert ticks == list(range(ticks[0], ticks[-1] + 1))


class Forgets:
    """A memory that fails."""

    unseen_gpus = ()

    async def start(self) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def gpus(self, *_: object) -> NoReturn:
        raise ValueError("oops")

    def engines(self, *_: object) -> NoReturn:
        raise KeyError("oops")


def test_a_memory_that_fails_costs_no_tick():
    made = Collector([Still()], Deriver(gpu_catalogue()), Meter(), Nothing(), interval_s=0.25, memory=Forgets())
    snapshots = collect(made, 0.8)
    assert len(snapshots) >= 3
    assert [gpu.reading.index for gpu in snapshots[-1].gpus] == [0]
    assert [fault.text for fault in snapshots[-1].faults] == [
        "gpumon failed on the GPUs of before, please report: ValueError: oops",
        "gpumon failed on the engines of before, please report: KeyError: 'oops'",
    ]


def test_what_can_not_be_kept_is_named_and_costs_nothing_else():
    good = Keeps()
    made = Collector(
        [Still()], Deriver(gpu_catalogue()), Meter(), Nothing(), interval_s=0.25, keepers=(Keeps(fails=True), good)
    )
    snapshots = collect(made, 0.8)
    assert len(snapshots) >= 3
    assert good.kept[: len(snapshots)] == [*range(1, len(snapshots) + 1)]
    text = "gpumon failed on keeping this tick, please report: ValueError: oops\\x1b[31m"
    assert all([fault.text for fault in snapshot.faults].count(text) == 1 for snapshot in snapshots)


def test_the_same_fault_keeps_its_time():
    snapshots = collect(collector(Broken()), 0.8)
    assert len({fault.since for snapshot in snapshots for fault in snapshot.faults}) == 1


def test_a_refresh_ticks_at_once_and_an_interval_has_a_floor():
    source = Still()
    made = collector(source, interval_s=60.0)

    async def then() -> None:
        await asyncio.sleep(0.1)
        made.refresh()
        await asyncio.sleep(0.1)
        assert len(source.polls) == 2
        made.set_interval(0.01)
        assert made.interval_s == source.interval_s == 0.25

    collecting(made, lambda _: None, then, Clock())


def test_history_has_a_point_a_tick():
    made = collector(Still())
    collect(made, 0.6)
    now = int(time.time())
    assert any(value == 0.5 for value in made.history.buckets("busy", now, 4, 1.0))


def test_a_fault_bears_the_name_that_its_engine_is_shown_under():
    class Serving(Still):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

        async def poll(self, monotonic_s: float) -> Contribution:
            reading = EngineReading("vllm:8000", self.url, EndpointState.OK, monotonic_s)
            return Contribution(engines=(reading,), faults=(Fault("vllm:8000", f"of {self.url}", 5.0),))

    (snapshot, *_) = collect(collector(Serving("http://a:8000"), Serving("http://b:8000")), 0.1)
    shown = {engine.name: engine.url for engine in snapshot.engines}
    assert shown == {"vllm:a:8000": "http://a:8000", "vllm:b:8000": "http://b:8000"}
    faults = {fault.source: fault.text for fault in snapshot.faults if fault.text.startswith("of ")}
    assert faults == {name: f"of {url}" for name, url in shown.items()}


def test_faults_of_sources_are_passed_on():
    class Complaining(Still):
        async def poll(self, monotonic_s: float) -> Contribution:
            return Contribution(faults=(Fault("nvml", "no driver", 5.0),))

    snapshots = collect(collector(Complaining()), 0.1)
    assert snapshots[0].faults[0].text == "no driver"
    assert snapshots[0].faults[0].since == "1970-01-01T00:00:05.000Z"


@pytest.mark.parametrize(("early", "shown"), [(True, 3), (False, 1)])
def test_a_long_interval_starts_with_early_ticks(early: bool, shown: int):
    source, snapshots = Still(), []
    made = collector(source, interval_s=60.0)

    async def then() -> None:
        await asyncio.sleep(3.3)
        made.set_interval(30.0)
        await asyncio.sleep(0.3)

    collecting(made, snapshots.append, then, Clock(), early=early)
    assert [at_s - source.polls[0] for at_s in source.polls] == pytest.approx([0.0, 1.0, 3.0, 3.3])
    assert len(snapshots) == shown + 1


def test_a_shorter_interval_ends_the_early_ticks():
    source = Still()
    made = collector(source, interval_s=60.0)

    async def then() -> None:
        await asyncio.sleep(0.2)
        made.set_interval(1.0)
        await asyncio.sleep(1.4)
        made.set_interval(60.0)
        await asyncio.sleep(0.2)

    collecting(made, lambda _: None, then, Clock())
    assert [at_s - source.polls[0] for at_s in source.polls] == pytest.approx([0.0, 0.2, 1.2, 1.6])
