"""Frames of GPUs and polls of engines of any kind, and the snapshot that the deriver makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    Advance,
    EndpointState,
    EngineKind,
    EngineReading,
    Frame,
    GpuReading,
    GpuState,
    HistogramReading,
    HostReading,
    RankReading,
)
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from tests.efficiency.small_llm import SMALL
from tests.records import replace

LLAMA_8B = llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct")
H100 = "NVIDIA H100 80GB HBM3"
H100_FLOPS = 989.4e12
H100_BANDWIDTH = 2619e6 * 2 * 5120 / 8
"""Maximum memory clock 2619 MHz, double data rate, 5120-bit bus."""
INF = float("inf")
AT_FIRST_TOKEN = dict.fromkeys((q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED), Advance.PROMPT)
"""As the vLLM adapter says it."""
Counters = Mapping[str, float]


def gpu(index: int = 0, at_s: float = 0.0, **facts: Any) -> GpuReading:
    """A busy H100 of this host."""
    base: dict[str, Any] = {
        "name": H100,
        "state": GpuState.OK,
        "busy_ratio": 1.0,
        "vram_total_bytes": 81559 * 2.0**20,
        "memory_clock_max_hz": 2619e6,
        "memory_bus_bits": 5120.0,
        "power_w": 500.0,
    }
    return GpuReading(index, f"GPU-{index}", monotonic_s=at_s, **{**base, **facts})


def engine(at_s: float, counters: Counters, *, gpus: tuple[str, ...] = ("GPU-0",), **facts: Any) -> EngineReading:
    """A poll of a vLLM on these GPUs, with one sequence of 1000 tokens in context."""
    gauges = {q.RUNNING: 1.0, q.KV_USAGE: 0.01, q.POOL_TOKENS: 100_000.0}
    ranks = (RankReading("0", dict(counters), gauges, facts.pop("histograms", {})),)
    base: dict[str, Any] = {"interval_s": 2.0, "llm": LLAMA_8B, "exact_steps": True, "kind": EngineKind.VLLM}
    given = {**base, "state": EndpointState.OK, "ranks": ranks, "advance": AT_FIRST_TOKEN, **facts}
    return EngineReading("vllm:8000", "http://127.0.0.1:8000", monotonic_s=at_s, gpus=gpus, **given)


def frame(at_s: float, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...] = (), **facts: Any) -> Frame:
    """A tick of 1 s."""
    return Frame(int(at_s), 1e9 + at_s, at_s, 1.0, HostReading("box"), gpus, engines, **facts)


def served(
    per_s: Counters,
    deriver: Deriver | None = None,
    *,
    seconds: int = 20,
    cards: int = 1,
    card: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Snapshot:
    """After so many seconds in which the counters of an `engine` on all the `cards` grew evenly.

    `histograms` of the facts are those of a moment.
    """
    deriver, seen = deriver or Deriver(gpu_catalogue()), facts.pop("histograms", lambda _: {})
    facts.setdefault("gpus", tuple(f"GPU-{index}" for index in range(cards)))
    for at in range(0, seconds, 2):
        counters = {name: at * rate for name, rate in {q.PREFILL_COMPUTED: 0.0, q.PREFILL_CACHED: 0.0, **per_s}.items()}
        polled = engine(float(at), counters, histograms=seen(float(at)), **facts)
        found = deriver.derive(
            frame(at, tuple(gpu(index, float(at), **(card or {})) for index in range(cards)), (polled,))
        )
    return found.snapshot


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
