"""Figures that disagree: an engine's with what its GPUs measure, a replica's or a rank's with those of the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.rates import rank_decode
from gpumon.efficiency.ratio import divide, plus
from gpumon.efficiency.tracks import QUANTILE_S, RATE_S, CounterWindow, Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Reading, number
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, RankLoad
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence, Parameters

HOLD_WINDOWS: Final = 3.0
"""Windows that a deviation or contradiction holds before it is said, and before it goes: of replicas three means that
have no reading in common. With one, equal replicas near their limit are accused for a minute in each hour, as Poisson
arrivals happen to fall on them."""
LEAST_RUNNING: Final = 4.0
"""Requests per rank or replica below which they differ because there are too few requests to share."""
_FULL: Final = 0.9
"""Share of its window that must be there before ranks or replicas are compared: a shorter one is chance."""

ClaimT = TypeVar("ClaimT", bound=Hashable)


class Hysteresis(Generic[ClaimT]):
    """A claim stands once it has held for a while, and until it has not for as long. Times are of one clock."""

    def __init__(self) -> None:
        self._stands: dict[ClaimT, bool] = {}
        self._changing_s: dict[ClaimT, float] = {}
        """Since when a claim is not as it stands."""

    def at(self, now_s: float, claims: Mapping[ClaimT, bool], hold_s: float) -> set[ClaimT]:
        """The claims that stand; `claims` says which are true. One that is not in it is forgotten."""
        stands: dict[ClaimT, bool] = {}
        changing_s: dict[ClaimT, float] = {}
        for claim, is_true in claims.items():
            stands[claim] = self._stands.get(claim, False)
            if is_true == stands[claim]:
                continue
            since_s = self._changing_s.get(claim, now_s)
            if now_s - since_s >= hold_s:
                stands[claim] = is_true
            else:
                changing_s[claim] = since_s
        self._stands = stands
        self._changing_s = changing_s
        return {claim for claim, is_standing in stands.items() if is_standing}


# An engine beside its GPUs.

SLACK: Final = 1.25
"""A modelled rate may be that much above the measured one: the two windows are not quite the same."""
_MEASURED: Final = frozenset({BandwidthSource.GPM, BandwidthSource.DCGM})
BEYOND_CACHES_BYTES: Final = 0.5e9
"""Weights of a step on one GPU that no cache holds: the largest L2 have some 130 MB."""


class Contradictions:
    """MBU of all engines beside the bandwidth that their GPUs measure.

    MFU is not held against the tensor pipes: decoding of few sequences, and attention, may run on the others.
    """

    def __init__(self) -> None:
        self._bounds: dict[str, tuple[float, float]] = {}
        """While it lasts: the least that an engine must have read, and the most that was measured (bytes/s). A load
        that grows makes the two differ at different moments, and is no error."""
        self._shown: Hysteresis[str] = Hysteresis()

    def at(
        self, now_s: float, engines: Iterable[tuple[str, Engine, Sequence[Gpu]]], window_s: float
    ) -> dict[str, tuple[Evidence, ...]]:
        """Key -> what contradicts it. Of each engine its key and all its GPUs of this host.

        `window_s`: the longest window, in seconds, that a figure here is a mean of.
        """
        evidence: dict[str, Evidence] = {}
        claims: dict[str, bool] = {}
        bounds: dict[str, tuple[float, float]] = {}
        for key, engine, gpus in engines:
            if not _are_measured(gpus):
                continue
            moved: Reading = plus(*(gpu.bandwidth_bytes_per_s for gpu in gpus))
            share = divide(moved, plus(*(gpu.bandwidth_peak_bytes_per_s for gpu in gpus)))
            read = _read(engine)
            measured = number(moved)
            mbu = number(engine.efficiency.mbu_ratio)
            if read is None or measured is None or mbu is None:
                continue
            least, most = self._bounds.get(key, (read, measured))
            least = min(least, read)
            most = max(most, measured)
            claims[key] = least > SLACK * most
            if claims[key]:
                bounds[key] = (least, most)
            evidence[key] = Evidence("mbu_beside_measured", mbu, share, "MBU, and the activity that its GPUs measure")
        self._bounds = bounds
        return {key: (evidence[key],) for key in self._shown.at(now_s, claims, HOLD_WINDOWS * window_s)}


def _are_measured(gpus: Sequence[Gpu]) -> bool:
    """Whether the bandwidth of all these GPUs is measured, and no other engine is on one of them."""
    for gpu in gpus:
        if gpu.bandwidth_source not in _MEASURED or len(gpu.engines) > 1:
            return False
    return bool(gpus)


def _read(engine: Engine) -> float | None:
    """Bytes/s that must come from the memory, at the least; None where that is not known.

    What requests have in common in their KV cache may be read once for all of them, so only the rest of it counts.
    """
    weights = number(engine.efficiency.weight_bytes_per_s)
    kv = number(engine.efficiency.kv_bytes_per_s)
    step = number(divide(engine.efficiency.weight_bytes, engine.hardware.gpu_count))
    if weights is None or kv is None or step is None or step < BEYOND_CACHES_BYTES:
        return None
    cached = number(engine.load.cached_ratio)
    return weights + (0.0 if cached is None else kv * (1.0 - cached))


# A replica beside the others.

COMPARED_S: Final = 15.0
"""How often replicas are compared with each other: means of a minute, that have to hold for three, change little."""
_LEAST_POLLS: Final = 5
"""Fewer samples of a gauge in the window have no mean that tells anything."""
LEAST_REQUESTS: Final = 5.0
"""Fewer requests in the window, or running at a time, tell nothing of who gets how many."""
_FAR_BELOW: Final = 1 / 3
"""A balancer that counts connections or goes round gives equal replicas within some ten per cent of each other."""
HALF: Final = 0.5
"""One that runs so much of what the others run is not out of work."""
_CHANCE: Final = 3.0
"""Standard deviations that two numbers of requests, which come by chance, lie apart."""
EMPTY: Final = 0.5
"""Mean requests waiting up to which there is no queue: now and then one waits for a step."""
AS_MUCH: Final = 0.9
"""Share of another's requests in flight from which a replica has as much to do."""
ROLES: Final = ("role", "dynamo_component")
"""Keys in `info` that tell it: of SGLang, and of a Dynamo worker."""


class Member(msgspec.Struct, frozen=True):
    """One engine of a frame."""

    reading: EngineReading
    engine: Engine
    track: Track
    answers: bool
    """It gave figures in this frame."""


class Minute(msgspec.Struct, frozen=True):
    """Work of a replica in the window of the quantiles: means, None where not known."""

    key: str
    name: str
    role: str
    """Its part of the work: prefill and decode may run apart, and then differ in every figure."""
    gpus: float | None
    seconds: float
    """Length of the window."""
    requests: float | None
    """Ended in it."""
    running: float | None
    waiting: float | None
    kv_usage: float | None
    decode: float | None
    """Tokens/s of all its GPUs."""
    itl_s: float | None
    """Mean of at least 20 observations, at least the first bucket's bound."""
    ttft_s: float | None

    @property
    def in_flight(self) -> float:
        """Requests running and waiting, per GPU where its GPUs are known."""
        return ((self.running or 0.0) + (self.waiting or 0.0)) / (self.gpus or 1.0)


def minute(reading: EngineReading, name: str, gpus: float | None, track: Track) -> Minute | None:
    """The minute of one replica; None while its window is not full. `gpus` are all its GPUs."""
    window = track.long
    if not window.points or window.length_s < _FULL * QUANTILE_S:
        return None
    per_s = number(window.rate(q.REQUESTS))
    usage = _gauge_mean(window, q.KV_USAGE)
    counts_live = track.moves(q.DECODE_TOKENS) not in (None, Advance.END)
    return Minute(
        key=reading.key,
        name=name,
        role=_role(reading),
        gpus=gpus,
        seconds=window.length_s,
        requests=None if per_s is None else per_s * window.length_s,
        running=_gauge_mean(window, q.RUNNING),
        waiting=_gauge_mean(window, q.WAITING),
        kv_usage=None if usage is None else usage / max(1, len(track.points[-1].ranks)),
        decode=number(window.rate(q.DECODE_TOKENS)) if counts_live else _gauge_mean(window, q.DECODE_RATE),
        itl_s=_mean_latency_s(window, q.ITL),
        ttft_s=_mean_latency_s(window, q.TTFT),
    )


def _role(reading: EngineReading) -> str:
    """Part of the work that an engine says it does; empty where it says none."""
    for key in ROLES:
        if reading.info.get(key):
            return reading.info[key]
    return ""


def _gauge_mean(window: CounterWindow, gauge: str) -> float | None:
    """Mean of a gauge's samples; None where there are too few."""
    samples = window.samples(gauge)
    if len(samples) < _LEAST_POLLS:
        return None
    return sum(samples) / len(samples)


def _mean_latency_s(window: CounterWindow, quantity: str) -> float | None:
    """Mean of a latency; all means in the first bucket are alike: that one is as fast as its engine looks at."""
    histogram = window.histogram(quantity)
    if histogram is None or histogram.count < ENOUGH:
        return None
    if len(histogram.bounds) > 1:
        first_bound = histogram.bounds[0]
    else:
        first_bound = 0.0
    return max(histogram.sum / histogram.count, first_bound)


class ReplicaCheck(msgspec.Struct, frozen=True):
    """Quantity that replicas are compared by: worse is a factor and a difference of at least so much, both."""

    quantity: str
    """Code of its `Evidence`."""
    of: Callable[[Minute], float | None]
    factor: float
    least: float
    less: bool = False
    """Less is worse, of one that has as much to do."""
    loaded: bool = False
    """It says something only where each has `LEAST_RUNNING` requests: below, one more is all of it."""


def _gpu_decode(replica: Minute) -> float | None:
    """Tokens/s per GPU, where its GPUs are known."""
    if replica.decode is None or not replica.gpus:
        return None
    return replica.decode / replica.gpus


def _decode(replica: Minute) -> float | None:
    """Tokens/s of a replica whose GPUs are not known: it cannot be compared with one whose are."""
    return None if replica.gpus else replica.decode


_ROWS: Final = (
    # Equal replicas behind one balancer stay within some ten per cent of each other.
    ReplicaCheck("replica_gpu_decode", _gpu_decode, 1 / 0.7, 20.0, less=True, loaded=True),
    ReplicaCheck("replica_decode", _decode, 1 / 0.7, 20.0, less=True, loaded=True),
    # A queue of three is one burst of arrivals.
    ReplicaCheck("replica_queue", attrgetter("waiting"), 3.0, 4.0),
    # As between ranks: requests of one mix fill the caches of equal replicas alike.
    ReplicaCheck("replica_kv", attrgetter("kv_usage"), 1.0, 0.3, loaded=True),
    # The ITL grows with the batch; at equal shares of the load half as much again is a slower replica.
    ReplicaCheck("replica_itl", attrgetter("itl_s"), 1.5, 0.005, loaded=True),
    # The TTFT is mostly queue and prompt: it varies more, and 100 ms more is nothing that a user notes.
    ReplicaCheck("replica_ttft", attrgetter("ttft_s"), 2.0, 0.1),
)
"""Quantities that are compared, each with the reason for its thresholds."""
_Claim = tuple[str, str]
"""Key of a replica, and the quantity in which it is worse."""
_Flow = Callable[[Minute], "float | None"]
_FLOWS: Final[tuple[tuple[str, _Flow], ...]] = (
    ("replica_requests", attrgetter("requests")),
    ("replica_running", attrgetter("running")),
)


class Deviations:
    """Deviations within one group of replicas that have held long enough to be said.

    They are compared on a grid of `COMPARED_S`, so that one who begins later finds the same moments, and at once where
    another set of engines answers.
    """

    def __init__(self) -> None:
        self._shown: Hysteresis[_Claim] = Hysteresis()
        self._compared: object = None
        """When they were compared, and who answered then."""
        self._apart: dict[str, tuple[Evidence, ...]] = {}

    def of(self, group: Sequence[Member], now_s: float) -> dict[str, tuple[Evidence, ...]]:
        """Key of a replica -> in what it stands apart, of those that answer."""
        answering = tuple((member.reading.key, member.engine.name, member.answers) for member in group)
        compared = (now_s // COMPARED_S, *answering)
        if compared == self._compared:
            return self._apart
        minutes = []
        poll_s = 0.0
        window_s = 0.0
        for member in group:
            if not member.answers:
                continue
            poll_s = max(poll_s, member.track.points[-1].monotonic_s)
            window_s = max(window_s, member.track.quantile_s)
            gpus = number(member.engine.hardware.gpu_count)
            replica = minute(member.reading, member.engine.name, gpus, member.track)
            if replica is not None:
                minutes.append(replica)
        self._apart = self.at(poll_s, minutes, HOLD_WINDOWS * window_s)
        self._compared = compared
        return self._apart

    def at(self, now_s: float, minutes: Sequence[Minute], hold_s: float) -> dict[str, tuple[Evidence, ...]]:
        """Key of a replica -> in what it stands apart; little traffic first. What has held for `hold_s` is told."""
        claims: dict[_Claim, tuple[bool, Evidence]] = {}
        for role in dict.fromkeys(replica.role for replica in minutes):
            claims.update(_compared([replica for replica in minutes if replica.role == role]))
        stands = self._shown.at(now_s, {claim: true for claim, (true, _) in claims.items()}, hold_s)
        apart: dict[str, tuple[Evidence, ...]] = {}
        for claim, (_, shown) in claims.items():
            if claim in stands:
                apart[claim[0]] = (*apart.get(claim[0], ()), shown)
        return apart


def _compared(minutes: Sequence[Minute]) -> dict[_Claim, tuple[bool, Evidence]]:
    """Whether each replica is worse in each quantity, with its figure and the median of the others.

    One that has little to do is fast, empty, and no measure of the others.
    """
    claims: dict[_Claim, tuple[bool, Evidence]] = {}
    starved = set[str]()
    if len(minutes) > 1:
        for replica in minutes:
            is_starved, shown = _traffic(replica, minutes)
            claims[replica.key, "traffic"] = (is_starved, shown)
            if is_starved:
                starved.add(replica.key)
    fed = [replica for replica in minutes if replica.key not in starved]
    loaded = sum(replica.running or 0.0 for replica in fed) >= LEAST_RUNNING * len(fed)
    for row in _ROWS:
        claims.update(_compared_by(row, fed, loaded=loaded))
    return claims


def _compared_by(row: ReplicaCheck, fed: Sequence[Minute], *, loaded: bool) -> dict[_Claim, tuple[bool, Evidence]]:
    """Whether each replica is worse in one quantity, with its figure and the median of the others."""
    known: list[tuple[float, Minute]] = []
    for replica in fed:
        value = row.of(replica)
        if value is not None:
            known.append((value, replica))
    if len(known) < 2:
        return {}
    known.sort(key=lambda pair: (pair[0], pair[1].key))
    others = len(known) - 1
    claims = {}
    for place, (value, replica) in enumerate(known):
        # Of an even number worse than both middle ones: one odd replica must not make its neighbours odd.
        low, low_replica = known[_beside(place, (others - 1) // 2)]
        high, high_replica = known[_beside(place, others // 2)]
        worse = _is_worse(row, value, replica, low, low_replica) and _is_worse(row, value, replica, high, high_replica)
        who: Parameters = {"others": float(others)} if others > 1 else {"other": low_replica.name}
        shown = Evidence(row.quantity, value, (low + high) / 2.0, parameters=who)
        claims[replica.key, row.quantity] = (worse and (loaded or not row.loaded), shown)
    return claims


def _beside(place: int, other: int) -> int:
    """Place among all of the one that is at `other` once the one at `place` is left out."""
    return other + 1 if other >= place else other


def _is_worse(row: ReplicaCheck, value: float, replica: Minute, other: float, than: Minute) -> bool:
    """Whether a figure of a replica is worse than that of another."""
    low = value if row.less else other
    high = other if row.less else value
    if high - low < row.least or high < row.factor * low:
        return False
    if not row.less:
        return True
    # Less output is no fault of one that has less to do.
    waits_as_much = (replica.waiting or 0.0) + EMPTY >= (than.waiting or 0.0)
    return replica.in_flight >= AS_MUCH * than.in_flight and waits_as_much


def _traffic(replica: Minute, minutes: Sequence[Minute]) -> tuple[bool, Evidence]:
    """Whether it gets far fewer requests than the others in the mean, and could take more.

    One that hangs ends none, but runs as many as before; one that waits has enough to do.
    """
    shown = Evidence("replica_requests")
    is_far_below = False
    is_at_most_half = True
    for quantity, flow in reversed(_FLOWS):
        own = flow(replica)
        usual = _usual(minutes, replica, flow)
        if own is None or not usual.each:
            continue
        share = usual.share(own, replica.gpus)
        is_far_below = is_far_below or (usual.is_certain(own) and share <= _FAR_BELOW)
        is_at_most_half = is_at_most_half and share <= HALF
        shown = _traffic_evidence(quantity, replica, own, usual)
    has_no_queue = (replica.waiting or 0.0) <= EMPTY
    return is_far_below and is_at_most_half and has_no_queue, shown


class _Usual(msgspec.Struct, frozen=True):
    """Mean of an amount over replicas, of each and per GPU; 0 where none is known."""

    each: float
    per_gpu: float

    def share(self, own: float, gpus: float | None) -> float:
        """Part of what the others have each, or per GPU, whichever is more."""
        return max(own / self.each, own / (gpus or 1.0) / self.per_gpu)

    def is_certain(self, own: float) -> bool:
        """Whether the difference is more than chance gives."""
        return self.each >= LEAST_REQUESTS and self.each - own >= _CHANCE * (self.each + own) ** 0.5


def _usual(minutes: Sequence[Minute], replica: Minute, flow: _Flow) -> _Usual:
    """Means over the replicas beside this one."""
    amounts = []
    per_gpu = []
    for other in minutes:
        amount = flow(other)
        if amount is not None and other is not replica:
            amounts.append(amount)
            per_gpu.append(amount / (other.gpus or 1.0))
    if not amounts:
        return _Usual(0.0, 0.0)
    return _Usual(sum(amounts) / len(amounts), sum(per_gpu) / len(amounts))


def _traffic_evidence(quantity: str, replica: Minute, own: float, usual: _Usual) -> Evidence:
    """Figures of a replica's traffic beside those of the others; requests are told per second."""
    seconds = replica.seconds if quantity == "replica_requests" else 1.0
    parameters: Parameters = {"share": own / usual.each}
    return Evidence(quantity, own / seconds, usual.each / seconds, parameters=parameters)


# A data-parallel rank beside the others.

_LEAST_SHARE: Final = 0.7
"""A rank that gives less than this share of the mean works less than the others: tokens/s of equal ranks differ by
some per cent, and by one request in four where a balancer does its best with the fewest below."""
LEAST_TOKENS_PER_S: Final = 20.0
"""Per rank; below it one request more or less is the whole difference."""
_QUEUED: Final = 1.0
"""Mean requests waiting on a rank that make it a queue."""
FREE_SHARE: Final = 0.5
"""A rank without a queue that runs less than this share of what the queueing one runs could have taken some."""
KV_APART: Final = 0.3
"""Difference of the KV usage of two ranks: requests of equal lengths spread by far less."""


def rank_loads(track: Track) -> tuple[RankLoad, ...]:
    """Each rank's part, means of the window of the rates; empty with one rank."""
    ranks = track.points[-1].ranks if track.points else {}
    if len(ranks) < 2:
        return ()
    loads = []
    for rank in ranks:
        loads.append(
            RankLoad(
                clean(rank, 32),
                rank_decode(track, rank),
                _rank_mean(track, rank, q.RUNNING),
                _rank_mean(track, rank, q.WAITING),
                _rank_mean(track, rank, q.KV_USAGE),
            )
        )
    return tuple(loads)


def _rank_mean(track: Track, rank: str, gauge: str) -> Reading:
    samples = track.short.rank_samples(rank, gauge)
    if samples:
        return sum(samples) / len(samples)
    return NOT_EXPOSED


def figures_uneven_by_rank(loads: Sequence[RankLoad], track: Track) -> tuple[Evidence, ...]:
    """The figures that the ranks share unevenly; nothing before the window is full for all of them."""
    points = track.short.points
    if len(loads) < 2 or not points or track.short.length_s < _FULL * RATE_S:
        return ()
    if points[0].ranks.keys() != points[-1].ranks.keys():
        return ()
    evidence = (_uneven_decode(loads), _uneven_queue(loads), _uneven_kv(loads))
    uneven = []
    for shown in evidence:
        if shown is not None:
            uneven.append(shown)
    return tuple(uneven)


def _by_rank(loads: Sequence[RankLoad], field: str) -> list[tuple[float, str]]:
    """(Figure, rank) of all ranks; empty where it is not known of one of them."""
    figures = []
    for load in loads:
        value = number(getattr(load, field))
        if value is None:
            return []
        figures.append((value, load.rank))
    return figures


def _uneven_decode(loads: Sequence[RankLoad]) -> Evidence | None:
    """A rank that generates far fewer tokens than the mean, while there is enough to do."""
    rates = _by_rank(loads, "decode_tokens_per_s")
    running = sum(count for count, _ in _by_rank(loads, "running"))
    if not rates or running / len(loads) < LEAST_RUNNING:
        return None
    mean = sum(rate for rate, _ in rates) / len(rates)
    least, rank = min(rates)
    if mean >= LEAST_TOKENS_PER_S and least < _LEAST_SHARE * mean:
        return Evidence("rank_decode", least, mean, parameters={"rank": rank})
    return None


class _RankQueue(NamedTuple):
    """Queue of a rank."""

    waiting: float
    running: float
    rank: str


def _uneven_queue(loads: Sequence[RankLoad]) -> Evidence | None:
    """A rank with a queue beside one that could take some of it."""
    waiting = _by_rank(loads, "waiting")
    running = _by_rank(loads, "running")
    if not waiting or not running:
        return None
    queues = []
    for (queued, rank), (runs, _) in zip(waiting, running, strict=True):
        queues.append(_RankQueue(queued, runs, rank))
    longest = max(queues)
    free = min(queues, key=lambda queue: (queue.waiting > 0.0, queue.running))
    if longest.waiting < _QUEUED or free.waiting > 0.0 or free.running >= FREE_SHARE * longest.running:
        return None
    parameters: Parameters = {
        "rank": longest.rank,
        "running": longest.running,
        "other": free.rank,
        "other_running": free.running,
    }
    return Evidence("rank_queue", longest.waiting, parameters=parameters)


def _uneven_kv(loads: Sequence[RankLoad]) -> Evidence | None:
    """The fullest and the emptiest KV cache, where they are far apart."""
    usage = _by_rank(loads, "kv_usage_ratio")
    if not usage:
        return None
    most, rank = max(usage)
    least, other = min(usage)
    if most - least > KV_APART:
        return Evidence("rank_kv", most, least, parameters={"rank": rank, "other": other})
    return None
