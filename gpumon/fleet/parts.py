"""Hosts, GPUs and engines behind a row of the fleet, and figures over them that no other has the rule of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.goodput import share_of_all
from gpumon.efficiency.merged import common_reason, most_known, sum_of
from gpumon.efficiency.quantiles import merge_common, quantiles
from gpumon.fleet.free import Domain
from gpumon.fleet.snapshot import HostShown, Latencies
from gpumon.readings.flat import value_of
from gpumon.readings.format import is_last_bucket
from gpumon.readings.frame import EndpointState, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import BandwidthSource, Engine, Goodput, Gpu, Quantiles, WithinGoal

ONE = "one"
"""A row's latency is that of its only engine."""
MERGED = "merged"
"""A row's latency is over all requests of all its engines."""
WORST = "worst"
"""A row's latency is the worst one of its engines: their requests cannot be put together."""
_DOUBT: Final = {source: place for place, source in enumerate(BandwidthSource)}
"""Place among the sources of a bandwidth, the surest first."""


class RowLatency(NamedTuple):
    """A p95 in seconds over several engines."""

    value: Reading
    how: str = ONE
    """`one`, `merged` or `worst`."""
    is_least: bool = False
    """Whether it may be longer: it, or that of one of the engines, lies in the last bucket of a histogram."""


class RowGpu(NamedTuple):
    """A GPU of a row, with the MFU and MBU that count there: of the row's engines alone, where others share it."""

    host: str
    gpu: Gpu
    mfu: Reading
    mbu: Reading

    @classmethod
    def of(cls, host: str, gpu: Gpu) -> RowGpu:
        """The GPU with all of its MFU and MBU."""
        return cls(host, gpu, gpu.mfu_ratio, gpu.mbu_ratio)


class RowEngine(NamedTuple):
    """An engine of a row."""

    host: str
    engine: Engine
    in_totals: bool
    """Whether its tokens and requests are in the sums: those of a frontend are those of its workers."""
    latencies: Latencies | None = None

    @property
    def answers(self) -> bool:
        """Whether it gave figures within 3 of its intervals."""
        running = self.engine.load.running
        stale = isinstance(running, Missing) and running.reason in (Reason.STALE, Reason.UNREACHABLE)
        return self.engine.state is EndpointState.OK and not stale

    def histogram(self, name: str) -> HistogramReading | None:
        """The observations behind a latency, by its field in `Latencies` (`ttft`, `itl`); None where not known."""
        if self.latencies is None:
            return None
        observed: HistogramReading | None = getattr(self.latencies, name)
        return observed


class Parts(NamedTuple):
    """Everything that is in a row; nothing is in it twice."""

    hosts: tuple[HostShown, ...]
    gpus: tuple[RowGpu, ...]
    engines: tuple[RowEngine, ...]
    prices: Mapping[str, float]
    """Catalogue name of a GPU -> price of one hour; under "" that of all others."""
    domains: tuple[Domain, ...] = ()
    """GPUs by host and type with those that are free, of rows of whole hosts."""


def idle_share(gpu: Gpu) -> Reading:
    """The share of a GPU that lies idle: what its busy share leaves, as a report counts it."""
    if isinstance(gpu.reading.busy_ratio, Missing):
        return gpu.reading.busy_ratio
    return max(0.0, 1.0 - gpu.reading.busy_ratio)


def bandwidth_source(gpus: Sequence[RowGpu]) -> BandwidthSource:
    """The least sure source of the bandwidths in a row's share; NONE if no bandwidth is known."""
    sources = [
        row_gpu.gpu.bandwidth_source for row_gpu in gpus if not isinstance(row_gpu.gpu.bandwidth_bytes_per_s, Missing)
    ]
    return max(sources, key=lambda source: _DOUBT[source], default=BandwidthSource.NONE)


def tokens_per_j(engines: Sequence[RowEngine]) -> Reading:
    """Decode tokens/s over the mean watts of the GPUs that they run on; a GPU that engines share counts once."""
    engines_per_gpu = Counter(
        (row_engine.host, index) for row_engine in engines for index in set(row_engine.engine.hardware.gpus)
    )
    tokens: list[float] = []
    watts: list[float] = []
    for row_engine in engines:
        decoded = number(row_engine.engine.rates.decode_tokens_per_s)
        power = number(row_engine.engine.hardware.power_w)
        own_share = _own_share(row_engine, engines_per_gpu)
        if decoded is not None and power is not None and own_share is not None:
            tokens.append(decoded)
            watts.append(power * own_share)
    power_w = sum_of(watts)
    rate = sum_of(tokens)
    if isinstance(power_w, Missing) or isinstance(rate, Missing) or not power_w > 0.0:
        return common_reason(row_engine.engine.efficiency.tokens_per_j for row_engine in engines)
    return rate / power_w


def _own_share(row_engine: RowEngine, engines_per_gpu: Mapping[tuple[str, int], int]) -> float | None:
    """The share of its GPUs' watts that an engine stands for; None where its GPUs are not known."""
    gpus = set(row_engine.engine.hardware.gpus)
    if not gpus:
        return None
    shares = 0.0
    for index in gpus:
        shares += 1.0 / engines_per_gpu[row_engine.host, index]
    return shares / len(gpus)


def least_within_goal(shares: Iterable[WithinGoal]) -> Reading:
    """The least share of what several engines served that kept its goal; engines that observe no such latency are left
    out."""
    counted_shares = [share for share in shares if not isinstance(share.count, Missing)]
    return share_of_all(counted_shares).low_ratio


def least_within_itl_goal(goodputs: Sequence[Goodput]) -> Reading:
    """The least share of requests that kept the ITL goal; of tokens where no engine counts requests. Both are not added
    up: one long answer has more tokens than other engines have requests."""
    of_requests = least_within_goal(goodput.tpot_goal for goodput in goodputs)
    if isinstance(of_requests, Missing):
        return least_within_goal(goodput.itl_goal for goodput in goodputs)
    return of_requests


def p95_over_engines(engines: Sequence[RowEngine], field: str, window: str) -> RowLatency:
    """The p95 over all requests of the engines that answer, if all have their buckets; else the worst p95 of theirs.

    `field` is that of `Engine`, `window` that of `Latencies`. Engines that have no such latency are left out.
    """
    latencies: list[Reading] = []
    windows: list[HistogramReading] = []
    all_have_buckets = True
    is_least = False
    for row_engine in engines:
        if not row_engine.answers:
            continue
        latency: Quantiles = value_of(row_engine.engine, field)
        latencies.append(latency.p95)
        is_least = is_least or (not isinstance(latency.p95, Missing) and is_last_bucket(latency.p95_high))
        histogram = row_engine.histogram(window)
        if histogram is not None:
            windows.append(histogram)
        elif not isinstance(latency.p95, Missing):
            all_have_buckets = False
    if not latencies:
        return RowLatency(NOT_EXPOSED)
    if len(latencies) == 1:
        return RowLatency(latencies[0], is_least=is_least)
    all_requests = merge_common(windows) if all_have_buckets else None
    if all_requests is None:
        return RowLatency(most_known(latencies), WORST, is_least)
    how = MERGED if len(windows) > 1 else ONE
    together = quantiles(all_requests)
    return RowLatency(together.p95, how, is_last_bucket(together.p95_high))
