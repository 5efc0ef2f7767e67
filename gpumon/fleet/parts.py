"""Parts of a row of the fleet, and the sums over them: a figure that is not known is left out, and counted as such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite
from typing import Final, NamedTuple

from gpumon.efficiency.quantiles import merge_common, quantiles
from gpumon.efficiency.ratio import times
from gpumon.fleet.snapshot import HostShown, Latencies
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles

NO_PRICE: Final = Missing(Reason.NO_PRICE)
_NO_SUM: Final = Missing(Reason.INVALID, "its parts are too large to be added")
ONE = "one"
MERGED = "merged"
WORST = "worst"
"""How a latency of several engines was found: there is one; over all requests of all of them; the worst of theirs."""
_SURENESS: Final = {source: at for at, source in enumerate(BandwidthSource)}


class Known(NamedTuple):
    """A figure over GPUs, and for how many of how many it is known: the others are not in it."""

    value: Reading
    gpus: int
    of: int


class Latency(NamedTuple):
    """A p95 in seconds over several engines."""

    value: Reading
    how: str = ONE
    """`one`, `merged` or `worst`."""


class Placed(NamedTuple):
    """A GPU of a row, with the MFU and MBU that are the row's there."""

    host: str
    gpu: Gpu
    mfu: Reading
    mbu: Reading


class Served(NamedTuple):
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


class Parts(NamedTuple):
    """All of a row; none is in it twice."""

    hosts: tuple[HostShown, ...]
    gpus: tuple[Placed, ...]
    engines: tuple[Served, ...]
    prices: Mapping[str, float]
    """Catalogue name of a GPU -> price of one hour; under "" that of all others."""


def sum_of(values: Iterable[float]) -> Reading:
    """The sum of numbers; missing where it is no number, as of figures that can not be true."""
    try:
        added = fsum(values)
    except (OverflowError, ValueError):
        return _NO_SUM
    if isfinite(added):
        return added
    return _NO_SUM


def mean(values: Iterable[Reading]) -> Known:
    """The mean over the GPUs that it is known of."""
    every = list(values)
    known = []
    for value in every:
        if not isinstance(value, Missing):
            known.append(value)
    if not known:
        return Known(_why(every), 0, len(every))
    added = sum_of(known)
    return Known(added if isinstance(added, Missing) else added / len(known), len(known), len(every))


def total(values: Iterable[Reading]) -> Known:
    """The sum over the GPUs that it is known of."""
    every = list(values)
    known = []
    for value in every:
        if not isinstance(value, Missing):
            known.append(value)
    return Known(sum_of(known) if known else _why(every), len(known), len(every))


def share(pairs: Iterable[tuple[Reading, Reading]]) -> Known:
    """Sum of the parts / sum of the wholes, over the GPUs that both are known of."""
    every = list(pairs)
    known = []
    for part, whole in every:
        if not isinstance(part, Missing) and not isinstance(whole, Missing):
            known.append((part, whole))
    most = sum_of(whole for _, whole in known)
    if isinstance(most, Missing) or not most > 0.0:
        lacking = [part if isinstance(part, Missing) else whole for part, whole in every]
        return Known(_why(lacking), 0, len(every))
    parts = sum_of(part for part, _ in known)
    return Known(parts if isinstance(parts, Missing) else parts / most, len(known), len(every))


def weighted(pairs: Iterable[tuple[Reading, Reading]]) -> Known:
    """The mean of shares, each weighted with its peak: what the GPUs do together of what they could."""
    return share((times(ratio, peak), peak) for ratio, peak in pairs)


def sum_known(values: Iterable[Reading]) -> Reading:
    """The sum of what is known; where nothing is, the first reason."""
    return total(values).value


def most_known(values: Iterable[Reading]) -> Reading:
    """The largest of what is known; where nothing is, the first reason."""
    every = list(values)
    known = []
    for value in every:
        if not isinstance(value, Missing):
            known.append(value)
    if known:
        return max(known)
    return _why(every, NOT_EXPOSED)


def _why(values: Sequence[Reading], otherwise: Missing = NOT_SUPPORTED) -> Missing:
    """Why nothing is known, as most of them have it."""
    reasons = Counter(value for value in values if isinstance(value, Missing))
    if reasons:
        return reasons.most_common(1)[0][0]
    return otherwise


def idle(gpu: Gpu) -> Reading:
    """The share of a GPU that lies idle: what its busy share leaves, as a report counts it."""
    if isinstance(gpu.busy_ratio, Missing):
        return gpu.busy_ratio
    return max(0.0, 1.0 - gpu.busy_ratio)


def price_per_h(gpu: Gpu, prices: Mapping[str, float]) -> Reading:
    """Price of one hour of a GPU."""
    price = prices.get(gpu.gpu_type, prices.get(""))
    return NO_PRICE if price is None else price


def bandwidth_source(gpus: Sequence[Placed]) -> BandwidthSource:
    """The least sure source of the bandwidths that are in a row's share."""
    sources = []
    for placed in gpus:
        if not isinstance(placed.gpu.bandwidth_bytes_per_s, Missing):
            sources.append(placed.gpu.bandwidth_source)
    return max(sources, key=lambda source: _SURENESS[source], default=BandwidthSource.NONE)


def tokens_per_j(engines: Sequence[Served]) -> Reading:
    """Decode tokens/s over the mean watts of the GPUs that they run on; a GPU that engines share counts once."""
    sharers = Counter((served.host, index) for served in engines for index in set(served.engine.hardware.gpus))
    tokens: list[float] = []
    watts: list[float] = []
    for served in engines:
        decoded = number(served.engine.rates.decode_tokens_per_s)
        power = number(served.engine.hardware.power_w)
        gpus = set(served.engine.hardware.gpus)
        if decoded is None or power is None or not gpus:
            continue
        tokens.append(decoded)
        watts.append(power * sum(1.0 / sharers[served.host, index] for index in gpus) / len(gpus))
    power_w = sum_of(watts)
    rate = sum_of(tokens)
    if isinstance(power_w, Missing) or isinstance(rate, Missing) or not power_w > 0.0:
        return _why([served.engine.efficiency.tokens_per_j for served in engines])
    return rate / power_w


def p95(engines: Sequence[Served], field: str, window: str) -> Latency:
    """The p95 over all requests of the engines that answer, if all have their buckets; else the worst p95 of theirs.

    `field` is that of `Engine`, `window` that of `Latencies`. Engines that have no such latency are left out.
    """
    answering = [served for served in engines if served.answers]
    latencies: list[Quantiles] = [value_of(served.engine, field) for served in answering]
    if not latencies:
        return Latency(NOT_EXPOSED)
    if len(latencies) == 1:
        return Latency(latencies[0].p95)
    windows: list[HistogramReading] = []
    for served, latency in zip(answering, latencies, strict=True):
        histogram = None
        if served.latencies is not None:
            histogram = getattr(served.latencies, window)
        if histogram is not None:
            windows.append(histogram)
        elif not isinstance(latency.p95, Missing):
            return _worst_p95(latencies)
    merged = merge_common(windows)
    if merged is None:
        return _worst_p95(latencies)
    return Latency(quantiles(merged).p95, MERGED if len(windows) > 1 else ONE)


def _worst_p95(latencies: Sequence[Quantiles]) -> Latency:
    """The largest p95 of the engines."""
    return Latency(most_known(latency.p95 for latency in latencies), WORST)
