"""One engine's window with the figures of its newest poll: it is polled less often than the GPUs are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gpumon.efficiency.engine import Peak
from gpumon.efficiency.flow import counter_advance
from gpumon.efficiency.layout import Layout
from gpumon.efficiency.long_mean import LongMean
from gpumon.efficiency.operation import operation
from gpumon.efficiency.quantiles import longest, no_quantiles, quantiles
from gpumon.efficiency.ranks import rank_loads, uneven
from gpumon.efficiency.rates import Rates, rates
from gpumon.efficiency.scheduler_time import scheduler_time
from gpumon.efficiency.service import WITHOUT_DECODE, service_of
from gpumon.efficiency.windows import GAP, Track
from gpumon.readings.frame import Advance, EndpointState, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import DECODE_RATE, DECODE_TOKENS, E2E, ITL, QUEUE, TPOT, TTFT
from gpumon.readings.snapshot import Engine, Quantiles

LATENCIES: Final = {"ttft_s": TTFT, "itl_s": ITL, "queue_s": QUEUE, "e2e_s": E2E}
"""Field of `Engine` and of `Replicas` -> its histogram."""
ALL_LATENCIES: Final = {**LATENCIES, "tpot_s": TPOT}
"""Field of `Engine` -> its histogram."""


class Figures(NamedTuple):
    """What one poll and the window that it ends give, whatever the GPUs do."""

    found: Rates
    latencies: dict[str, Any]
    """`Quantiles` by field of `Engine`."""
    operation: dict[str, Any]
    """Concurrency, its ITL, the lengths of requests and the ranks' parts by field of `Engine`."""


class Shown(NamedTuple):
    """An engine as it was last shown, and what it was made of."""

    reading: EngineReading
    figures: Figures
    made_of: tuple[Sequence[Peak], tuple[int, ...], str]
    """Besides them: the peaks and indices of its GPUs, and since when it is in its state."""
    engine: Engine


class EngineTrack(Track):
    """A window with what was made of its newest poll."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: Shown | None = None
        self._reading: EngineReading | None = None
        self._laid: Layout | None = None
        self._figures: Figures | None = None
        self._mean = LongMean()
        self._added: tuple[EngineReading, float] | None = None
        """The last poll that was taken in, and the frames' interval then: most frames have no newer one."""

    def add(self, reading: EngineReading, wall_s: float, frames_s: float = 0.0) -> bool:
        """Take in one poll (`Track.add`), and its tokens into the mean of the last minutes.

        Before it, what its source had at hand of before: that fills the windows, and was counted before gpumon began.
        """
        if self._added is not None and reading is self._added[0] and frames_s == self._added[1]:
            return False
        self._added = reading, frames_s
        began = False
        for before in reading.earlier if reading.state is EndpointState.OK else ():
            began = super().add(before, wall_s - (reading.monotonic_s - before.monotonic_s), frames_s) or began
        total, last_s = self.totals.get(DECODE_TOKENS, 0.0), self.last_s
        added = super().add(reading, wall_s, frames_s)
        if added:
            self._extend_mean(reading, self.totals.get(DECODE_TOKENS, 0.0) - total, reading.monotonic_s - last_s)
        if began:
            self.totals = dict.fromkeys(self.totals, 0.0)
        return added

    def figures(self, reading: EngineReading, laid: Layout) -> Figures:
        """Rates and latencies up to `reading`, the last one added."""
        if self._figures is None or reading != self._reading or laid != self._laid:
            latencies = {field: _latency(self, quantity) for field, quantity in ALL_LATENCIES.items()}
            found = rates(reading, self, laid)
            loads = rank_loads(reading, self)
            operated = operation(reading, self, found, laid.dp) | scheduler_time(reading, self, laid.pp)
            operated.update(
                rank_loads=loads, uneven=uneven(loads, self), decode_mean_tokens_per_s=self._decode_mean(reading)
            )
            self._reading, self._laid = reading, laid
            self._figures = Figures(found, latencies, operated)
        return self._figures

    def _extend_mean(self, reading: EngineReading, tokens: float, elapsed_s: float) -> None:
        """By the counter, which is right over a gap, too; else by the engine's own rate, which tells nothing of one."""
        at_s = reading.monotonic_s
        if self.counts(DECODE_TOKENS):
            self._mean.add(at_s, tokens, elapsed_s, self.cadence_s)
            if counter_advance(reading, self, DECODE_TOKENS) is Advance.END:
                self._mean.lasted(longest(self.histogram(E2E, self.quantile_s)))
        elif samples := self.samples(DECODE_RATE, 0.0):
            seen_s = elapsed_s if elapsed_s <= GAP * self.cadence_s else 0.0
            self._mean.add(at_s, samples[-1] * seen_s, seen_s, self.cadence_s)

    def _decode_mean(self, reading: EngineReading) -> Reading:
        service = service_of(reading)
        if service in WITHOUT_DECODE:
            return WITHOUT_DECODE[service]
        if self.several_servers:
            return Missing(Reason.RESET)
        moves = counter_advance(reading, self, DECODE_TOKENS)
        if moves is None and not self.samples(DECODE_RATE, 0.0):
            return NOT_EXPOSED
        return self._mean.per_s(at_end=moves is Advance.END)


def _latency(track: Track, quantity: str) -> Quantiles:
    window = track.histogram(quantity, track.quantile_s)
    if window is None and track.has_histogram(quantity):
        return no_quantiles(track.not_yet)
    return quantiles(window)
