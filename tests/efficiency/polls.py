"""Polls of engines of any kind, and the snapshot that the deriver makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.readings.frame import (
    Advance,
    EndpointState,
    EngineKind,
    EngineReading,
    HistogramReading,
    RankReading,
)
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.small_llm import SMALL
from tests.efficiency.test_deriver import frame
from tests.records import replace

INF = float("inf")
Counters = Mapping[str, float]


def rank(
    counters: Counters,
    gauges: Counters | None = None,
    histograms: Mapping[str, HistogramReading] | None = None,
    name: str = "0",
) -> RankReading:
    """One rank's series."""
    return RankReading(name, dict(counters), dict(gauges or {}), dict(histograms or {}))


def poll(at_s: float, *ranks: RankReading, **facts: Any) -> EngineReading:
    """A poll of an engine on one H100 of another host, so that no GPU readings are needed."""
    base: dict[str, Any] = {
        "name": "engine",
        "url": "http://127.0.0.1:1",
        "kind": EngineKind.SGLANG,
        "interval_s": 2.0,
        "llm": SMALL,
        "gpu_type": "H100 SXM 80GB",
        "gpu_count": 1,
    }
    given = {**base, **facts}
    given.setdefault("live", {name: f"metric:{name}" for one in ranks for name in (*one.counters, *one.gauges)})
    return EngineReading(state=EndpointState.OK, monotonic_s=at_s, ranks=ranks, **given)


def steady(per_s: Counters, gauges: Counters | None = None, **facts: Any) -> Callable[[float], EngineReading]:
    """Polls of one rank whose counters grow evenly."""
    return lambda at_s: poll(at_s, rank({name: at_s * rate for name, rate in per_s.items()}, gauges), **facts)


def after(*engines: Callable[[float], EngineReading], seconds: int = 20, step: int = 2, start: int = 0) -> Snapshot:
    """The snapshot after so many seconds of polls."""
    return tracked(*engines, seconds=seconds, step=step, start=start)[-1].snapshot


def tracked(
    *engines: Callable[[float], EngineReading], seconds: int = 20, step: int = 2, start: int = 0
) -> list[Derived]:
    """What the deriver makes of each poll."""
    deriver = Deriver(gpu_catalogue())
    polls = range(start, start + seconds, step)
    return [deriver.derive(frame(at, (), tuple(engine(float(at)) for engine in engines))) for at in polls]


def only(snapshot: Snapshot) -> Engine:
    """Its one engine."""
    (engine,) = snapshot.engines
    return engine


def there(reading: Reading) -> float:
    """The number."""
    assert not isinstance(reading, Missing), reading
    return reading


def why(reading: Reading) -> Reason | None:
    """Why there is none."""
    return reading.reason if isinstance(reading, Missing) else None


def moving(advance: Advance, *quantities: str) -> dict[str, Advance]:
    """`EngineReading.advance` for these."""
    return dict.fromkeys(quantities, advance)


def renamed(reading: EngineReading, name: str, url: str) -> EngineReading:
    """The same of another engine."""
    return replace(reading, name=name, url=url)


def observed(count: float, mean: float, bounds: tuple[float, ...] = (1.0, 10.0, INF)) -> HistogramReading:
    """So many observations of one value."""
    counts = tuple(count if mean <= bound else 0.0 for bound in bounds)
    return HistogramReading(bounds, counts, count * mean, count)
