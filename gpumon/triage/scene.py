"""What a rule sees: one thing with its figures now and of the last minutes, and what stands around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineReading, Frame, GpuReading
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Gpu, Kind, Snapshot
from gpumon.triage.thresholds import Thresholds

KEPT_S: Final = 180.0
"""How far back `Recent` goes."""
MOST: Final = 200
"""Samples of one thing that are kept."""
LEAST_GAP_S: Final = 0.9
"""Two samples of one thing are at least so far apart."""
SAMPLED: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: (
        *("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s"),
        *("preemptions_per_s", "trained_tokens_per_s", "samples_per_s", "mfu_ratio", "mbu_ratio"),
    ),
    Kind.GPU: (
        *("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "bandwidth_bytes_per_s", "sm_clock_hz"),
        *("power_w", "vram_used_bytes"),
    ),
    Kind.HOST: ("cpu_ratio", "busiest_core_ratio", "iowait_ratio", "io_pressure_ratio", "network_rx_bytes_per_s"),
}
"""Fields of `Engine`, `Gpu` and `Host` that rules look back at."""


class Recent:
    """The last minutes of one thing's sampled fields, on the monotonic clock."""

    def __init__(self, kind: Kind) -> None:
        self._fields = SAMPLED[kind]
        self._samples: deque[tuple[float, tuple[float | None, ...]]] = deque(maxlen=MOST)

    def add(self, now_s: float, thing: object) -> None:
        """Sample the thing, unless it was sampled just before."""
        samples = self._samples
        if samples and now_s - samples[-1][0] < LEAST_GAP_S:
            return
        values = (getattr(thing, field) for field in self._fields)
        samples.append((now_s, tuple(None if isinstance(value, Missing) else value for value in values)))
        while samples[0][0] < now_s - KEPT_S:
            samples.popleft()

    def values(self, field: str, seconds: float) -> list[tuple[float, float]]:
        """(monotonic s, value) of a sampled field over the last seconds, oldest first; what was missing is left out."""
        at = self._fields.index(field)
        if not self._samples:
            return []
        since_s = self._samples[-1][0] - seconds
        pairs = ((at_s, values[at]) for at_s, values in self._samples if at_s >= since_s)
        return [(at_s, value) for at_s, value in pairs if value is not None]

    def mean(self, field: str, seconds: float) -> float | None:
        """Mean of a sampled field over the last seconds; None where nothing was there."""
        values = self.values(field, seconds)
        return sum(value for _, value in values) / len(values) if values else None

    @property
    def seconds(self) -> float:
        """How far the samples go back."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0


class Scene(NamedTuple):
    """One thing under judgement. For an engine `gpus` are those it runs on; for a GPU `engines` are those on it."""

    kind: Kind
    key: str
    name: str
    now_s: float
    """Monotonic."""
    frame: Frame
    snapshot: Snapshot
    recent: Recent
    thresholds: Thresholds
    prices: Mapping[str, float]
    """Catalogue name of a GPU -> price of one hour."""
    engine: Engine | None = None
    reading: EngineReading | None = None
    gpu: Gpu | None = None
    gpu_reading: GpuReading | None = None
    gpus: tuple[Gpu, ...] = ()
    engines: tuple[Engine, ...] = ()
    others: Mapping[str, Recent] = {}
    """`Recent` of every thing, by key ("" is the host): what its GPUs and the host did in the same minutes."""


def scenes(
    frame: Frame,
    snapshot: Snapshot,
    recents: Mapping[str, Recent],
    thresholds: Thresholds,
    prices: Mapping[str, float],
) -> Iterator[Scene]:
    """Every thing of a snapshot: engines, GPUs, the host."""
    now_s = frame.monotonic_s
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    on: dict[str, list[Engine]] = {uuid: [] for uuid in by_uuid}
    around = (now_s, frame, snapshot)
    for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
        gpus = tuple(by_uuid[uuid] for uuid in reading.gpus if uuid in by_uuid)
        for gpu in gpus:
            on[gpu.uuid].append(engine)
        head = (Kind.ENGINE, engine.key, engine.name, *around, recents[engine.key], thresholds, prices)
        yield Scene(*head, engine=engine, reading=reading, gpus=gpus, others=recents)
    for raw, gpu in zip(frame.gpus, snapshot.gpus, strict=True):
        head = (Kind.GPU, gpu.uuid, f"gpu {gpu.index}", *around, recents[gpu.uuid], thresholds, prices)
        yield Scene(*head, gpu=gpu, gpu_reading=raw, gpus=(gpu,), engines=tuple(on[gpu.uuid]), others=recents)
    yield Scene(Kind.HOST, "", "host", *around, recents[""], thresholds, prices, gpus=snapshot.gpus, others=recents)
