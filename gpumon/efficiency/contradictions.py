"""Figures of an engine that cannot be right beside what its own GPUs measure: said once that has held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.engine import plus
from gpumon.efficiency.engine_view import per
from gpumon.efficiency.held import Held
from gpumon.readings.missing import Reading, number
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu

SLACK: Final = 1.25
"""A modelled rate may be that much above the measured one: the two windows are not quite the same."""
MEASURED: Final = frozenset({BandwidthSource.GPM, BandwidthSource.DCGM})
HOLD_WINDOWS: Final = 3.0
"""Windows that it holds before it is said, and before it goes."""
BEYOND_CACHES_BYTES: Final = 0.5e9
"""Weights of a step on one GPU that no cache holds: the largest L2 have some 130 MB."""
WRONG: Final = "the model, its precision or its GPUs are not what they are taken for"


class Run(NamedTuple):
    """Since it holds: the least that the engine must have read, and the most that was measured (bytes/s)."""

    least: float
    most: float

    @property
    def contradicts(self) -> bool:
        """Whether the two cannot both be right, even as seen at different moments: a load that grows is no error."""
        return self.least > SLACK * self.most


class Contradictions:
    """Of all engines, MBU beside the bandwidth that their GPUs measure.

    MFU is not held against the tensor pipes: decoding of few sequences, and attention, may run on the others.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._held: Held[str] = Held()

    def at(
        self, now_s: float, engines: Iterable[tuple[str, Engine, Sequence[Gpu]]], window_s: float
    ) -> dict[str, tuple[str, ...]]:
        """Key -> what contradicts it, in words with both figures. Of each engine its key and all its GPUs of this host.

        `window_s`: the longest window, in seconds, that a figure here is a mean of.
        """
        texts: dict[str, str] = {}
        runs: dict[str, Run] = {}
        for key, engine, gpus in engines:
            read, measured = _read(engine), _measured(gpus)
            share = number(engine.efficiency.mbu_ratio)
            if read is None or measured is None or share is None or any(len(gpu.engines) > 1 for gpu in gpus):
                continue
            last = self._runs.get(key, Run(read, measured[0]))
            runs[key] = Run(min(last.least, read), max(last.most, measured[0]))
            texts[key] = f"MBU {share:.0%}, and its GPUs measure {measured[1]:.0%} of their bandwidth: {WRONG}"
        claims = {key: run.contradicts for key, run in runs.items()}
        self._runs = {key: run for key, run in runs.items() if run.contradicts}
        return {key: (texts[key],) for key in self._held.at(now_s, claims, HOLD_WINDOWS * window_s)}


def _read(engine: Engine) -> float | None:
    """Bytes/s that must come from the memory, at the least; None where that is not known.

    What requests have in common in their KV cache may be read once for all of them, so only the rest of it counts.
    """
    weights, kv = number(engine.efficiency.weight_bytes_per_s), number(engine.efficiency.kv_bytes_per_s)
    step = number(per(engine.efficiency.weight_bytes, engine.hardware.gpu_count))
    if weights is None or kv is None or step is None or step < BEYOND_CACHES_BYTES:
        return None
    cached = number(engine.load.cached_ratio)
    return weights + (0.0 if cached is None else kv * (1.0 - cached))


def _measured(gpus: Sequence[Gpu]) -> tuple[float, float] | None:
    """Bytes/s of all these GPUs and their share of the peaks; None where one does not measure it."""
    if not gpus or any(gpu.bandwidth_source not in MEASURED for gpu in gpus):
        return None
    moved: Reading = plus(*(gpu.bandwidth_bytes_per_s for gpu in gpus))
    share = per(moved, plus(*(gpu.bandwidth_peak_bytes_per_s for gpu in gpus)))
    amount, part = number(moved), number(share)
    return None if amount is None or part is None else (amount, part)
