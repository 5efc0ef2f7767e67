"""Scenes of GPUs, engines and a host that play through a real `Triage`, tick by tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.readings.format import rfc3339
from gpumon.readings.frame import (
    EndpointState,
    EngineKind,
    EngineReading,
    Frame,
    GpuProcess,
    GpuReading,
    GpuState,
    HostReading,
    Phase,
    RankReading,
    XidEvent,
)
from gpumon.readings.snapshot import Engine, Event, Family, Gpu, Kind, Limit, Self, Snapshot, Verdict
from gpumon.sources.engine_options import with_options
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from tests.records import replace

GIB = float(1 << 30)
START_S = 1_767_225_600.0
"""Unix time of the first tick."""
URL = "http://127.0.0.1:8000"
CALM = {"cpu_ratio": 0.2, "busiest_core_ratio": 0.4, "iowait_ratio": 0.0, "io_pressure_ratio": 0.0}
"""A host with nothing to do."""


LONG_S = 40
"""Seconds from which a scene has fewer ticks than seconds."""
STEPS_S = (4, 2, 1)
"""Seconds between its ticks: the first that comes to its end."""


class Of(NamedTuple):
    """A thing as it was read, and as it is shown."""

    read: Any
    shown: Any


def process(pid: int = 4711, name: str = "python", gib: float = 38.0, **more: Any) -> GpuProcess:
    """A process that holds memory on a GPU."""
    return GpuProcess(pid, name, vram_bytes=gib * GIB, **more)


def gpu(
    index: int = 0,
    *,
    state: GpuState = GpuState.OK,
    xid: tuple[XidEvent, ...] = (),
    processes: tuple[GpuProcess, ...] = (),
    mig: bool = False,
    uuid: str = "",
    **fields: Any,
) -> Of:
    """A GPU: 80 GiB with nothing in it and nothing to do, unless the fields say otherwise."""
    fields = {"busy_ratio": 0.0, "vram_used_bytes": 0.5 * GIB, "vram_total_bytes": 80.0 * GIB, **fields}
    uuid = uuid or f"GPU-{index}"
    shared = {name: value for name, value in fields.items() if name in GpuReading.__struct_fields__}
    read = GpuReading(index, uuid, "H100", state, 0.0, xid=xid, processes=processes, mig=mig, **shared)
    codes = tuple(event.code for event in xid)
    shown = replace(Gpu(read, fields.pop("age_s", 0.0)), xid=codes, **fields)
    return Of(read, shown)


def engine(
    *,
    url: str = URL,
    name: str = "vllm:8000",
    kind: EngineKind = EngineKind.VLLM,
    phase: Phase = Phase.INFERENCE,
    state: EndpointState = EndpointState.OK,
    gpus: tuple[int, ...] = (0,),
    model: str = "m",
    started_s: float = 0.0,
    counters: Mapping[str, float] | None = None,
    read_s: float = 0.0,
    **fields: Any,
) -> Of:
    """An engine on GPUs, with the shown fields given."""
    ranks = (RankReading("0", dict(counters), {}, {}),) if counters is not None else ()
    read = EngineReading(
        name,
        url,
        state,
        read_s,
        kind=kind,
        phase=phase,
        model=model,
        started_wall_s=started_s,
        gpus=tuple(f"GPU-{at}" for at in gpus),
        ranks=ranks,
    )
    engine = Engine(name, kind, phase, url, state, 0.0, model=model)
    return Of(read, replace(engine, gpus=gpus, **fields))


def _with_options(thing: Of, gpus: Sequence[Of]) -> Of:
    """An engine with the options that its reading tells, as the sources put them together."""
    on = [gpu.read for gpu in gpus if gpu.read.uuid in thing.read.gpus]
    read = with_options(thing.read, on)
    return Of(read, replace(thing.shown, options=read.options))


class Stage:
    """Plays ticks of 1 s; `at` is the number of the tick that comes."""

    def __init__(self, prices: Mapping[str, float] | None = None, **thresholds: Any) -> None:
        self.triage = Triage(Thresholds(**thresholds), prices or {})
        self.at = 0
        self.ahead_s = 0.0
        """How far the wall clock is set forward."""
        self.events: list[Event] = []
        self.last: Snapshot | None = None

    def tick(
        self, *things: Of, seconds: float = 1.0, reading: Mapping[str, Any] | None = None, **host: Any
    ) -> Snapshot:
        """One snapshot of these GPUs and engines, and of a host with these figures; `reading`: what only its reading
        has."""
        wall_s, now_s = START_S + self.at + self.ahead_s, 1000.0 + self.at
        self.at += seconds  # type: ignore[assignment]
        gpus = [thing for thing in things if isinstance(thing.shown, Gpu)]
        engines = [_with_options(thing, gpus) for thing in things if isinstance(thing.shown, Engine)]
        frame = Frame(
            int(self.at),
            wall_s,
            now_s,
            seconds,
            HostReading("box", **host, **(reading or {})),
            gpus=tuple(thing.read for thing in gpus),
            engines=tuple(thing.read for thing in engines),
        )
        shown = {"cpu_ratio": 0.1, "memory_used_bytes": 8 * GIB, "memory_total_bytes": 64 * GIB, **host}
        snapshot = Snapshot(
            rfc3339(wall_s),
            wall_s,
            False,
            seconds,
            HostReading("box", "580", "13.0", **shown),
            Self(0.01, 1e7),
            gpus=tuple(thing.shown for thing in gpus),
            engines=tuple(thing.shown for thing in engines),
        )
        self.last = self.triage.judge(frame, snapshot)
        self.events += self.last.events
        return self.last

    def play(
        self,
        seconds: int,
        scene: Callable[[int], tuple[Of, ...]] | tuple[Of, ...],
        every_s: int | None = None,
        **host: Any,
    ) -> Snapshot:
        """Ticks of one scene, or of a scene by its second; the last snapshot. A scene of `LONG_S` and more has a tick
        every fourth or every other second, if its end is one of them, unless `every_s` is given."""
        if every_s is None:
            every_s = 1
            if seconds >= LONG_S:
                every_s = next(step_s for step_s in STEPS_S if seconds % step_s == 0)
        end = self.at + seconds
        while self.at < end:
            last = self.tick(*(scene(self.at) if callable(scene) else scene), seconds=every_s, **host)
        return last


def verdict(snapshot: Snapshot, family: Family, kind: Kind = Kind.GPU, key: str | None = None) -> Verdict | None:
    """The verdict of a family on the first such thing."""
    found = (each for each in snapshot.verdicts if each.family is family and each.kind is kind)
    return next((each for each in found if key is None or each.key == key), None)


def limit(snapshot: Snapshot, family: Family, kind: Kind = Kind.GPU, key: str | None = None) -> Limit | None:
    """Its limit."""
    found = verdict(snapshot, family, kind, key)
    return None if found is None else found.code


def said(snapshot: Snapshot, family: Family, kind: Kind = Kind.GPU) -> Verdict:
    """The verdict, which must be there."""
    found = verdict(snapshot, family, kind)
    assert found is not None
    assert found.evidence, "every verdict has its evidence"
    return found
