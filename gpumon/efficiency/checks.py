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
from gpumon.readings.snapshot import Engine, Gpu, RankLoad
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence, Parameters

HOLD_WINDOWS: Final = 3.0
"""Windows that a deviation or contradiction holds before it is said, and before it goes: of replicas three means that
have no reading in common. With one, equal replicas near their limit are accused for a minute in each hour, as Poisson
arrivals happen to fall on them."""
LEAST_RUNNING: Final = 4.0
"""Requests per rank or replica below which they differ because there are too few requests to share."""
_FULL_WINDOW: Final = 0.9
"""Share of its window that must be there before ranks or replicas are compared: a shorter one is chance."""

ClaimT = TypeVar("ClaimT", bound=Hashable)


class Hysteresis(Generic[ClaimT]):
    """Claims that stand: each once it has been true for a while, until it has been untrue for as long."""

    def __init__(self) -> None:
        self._stands: dict[ClaimT, bool] = {}
        self._changing_s: dict[ClaimT, float] = {}
        """Claim -> since when (s) it is true though it does not stand, or untrue though it does."""

    def update(self, now_s: float, claims: Mapping[ClaimT, bool], hold_s: float) -> set[ClaimT]:
        """Take in which claims are true now. Returns those that stand; one that is not in `claims` is forgotten."""
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

MEASURE_SLACK: Final = 1.25
"""A modelled rate may be that much above the measured one: the two windows are not quite the same."""
BEYOND_CACHES_BYTES: Final = 0.5e9
"""Weights of a step on one GPU that no cache holds: the largest L2 have some 130 MB."""


class Contradictions:
    """MBU of all engines beside the bandwidth that their GPUs measure.

    MFU is not held against the tensor pipes: decoding of few sequences, and attention, may run on the others.
    """

    def __init__(self) -> None:
        self._bounds: dict[str, tuple[float, float]] = {}
        """Key of an engine -> the least that it must have read, and the most that was measured (bytes/s), since the one
        exceeds the other. A load that grows makes the two differ at different moments, and is no error."""
        self._standing: Hysteresis[str] = Hysteresis()

    def find(
        self, now_s: float, engines: Iterable[tuple[str, Engine, Sequence[Gpu]]], window_s: float
    ) -> dict[str, tuple[Evidence, ...]]:
        """Key of an engine -> what contradicts it. `engines` are keys, engines, and all GPUs of each, on this host.

        `window_s` is the longest window, in seconds, that a figure here is a mean of.
        """
        evidence: dict[str, Evidence] = {}
        claims: dict[str, bool] = {}
        bounds: dict[str, tuple[float, float]] = {}
        for key, engine, gpus in engines:
            # The bandwidth of all of them is measured, and no other engine is on one of them.
            if not gpus or any(not gpu.bandwidth_source.is_measured or len(gpu.engines) > 1 for gpu in gpus):
                continue
            moved: Reading = plus(*(gpu.bandwidth_bytes_per_s for gpu in gpus))
            share = divide(moved, plus(*(gpu.bandwidth_peak_bytes_per_s for gpu in gpus)))
            least_read = _least_read(engine)
            measured = number(moved)
            mbu = number(engine.efficiency.mbu_ratio)
            if least_read is None or measured is None or mbu is None:
                continue
            lowest_read, highest_measured = self._bounds.get(key, (least_read, measured))
            lowest_read = min(lowest_read, least_read)
            highest_measured = max(highest_measured, measured)
            claims[key] = lowest_read > MEASURE_SLACK * highest_measured
            if claims[key]:
                bounds[key] = (lowest_read, highest_measured)
            evidence[key] = Evidence("mbu_beside_measured", mbu, share, "MBU, and the activity that its GPUs measure")
        self._bounds = bounds
        standing = self._standing.update(now_s, claims, HOLD_WINDOWS * window_s)
        return {key: (evidence[key],) for key in standing}


def _least_read(engine: Engine) -> float | None:
    """Bytes/s that the engine must read from its GPUs' memory at the least; None where that is not known.

    What requests have in common in their KV cache may be read once for all of them, so only the rest of it counts.
    """
    weights = number(engine.efficiency.weight_bytes_per_s)
    kv = number(engine.efficiency.kv_bytes_per_s)
    step_bytes = number(divide(engine.efficiency.weight_bytes, engine.hardware.gpu_count))
    if weights is None or kv is None or step_bytes is None or step_bytes < BEYOND_CACHES_BYTES:
        return None
    cached = number(engine.load.cached_ratio)
    if cached is None:
        return weights  # all of the KV cache may be common
    return weights + kv * (1.0 - cached)


# A replica beside the others.

COMPARED_S: Final = 15.0
"""How often replicas are compared with each other: means of a minute, that have to hold for three, change little."""
_LEAST_POLLS: Final = 5
"""Samples of a gauge in the window below which their mean is chance."""
LEAST_REQUESTS: Final = 5.0
"""Requests per replica, in the window or running at a time, below which their numbers differ by chance."""
_FAR_BELOW: Final = 1 / 3
"""Share of the others' requests below which a replica gets too few: a balancer that counts connections or goes round
gives equal replicas within some ten per cent of each other."""
HALF_OF_OTHERS: Final = 0.5
"""Share of the others' requests above which a replica is not out of work."""
_CHANCE_DEVIATIONS: Final = 3.0
"""Standard deviations that two numbers of requests, which come by chance, lie apart."""
EMPTY_QUEUE: Final = 0.5
"""Mean requests waiting up to which there is no queue: now and then one waits for a step."""
AS_MUCH_IN_FLIGHT: Final = 0.9
"""Share of another's requests in flight from which a replica has as much to do."""
ROLES: Final = ("role", "dynamo_component")
"""Keys in `EngineReading.info` that say which part of the work a replica does: of SGLang, and of a Dynamo worker."""


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
    """Number of its GPUs."""
    seconds: float
    """Length of the window."""
    requests: float | None
    """Requests that ended in the window."""
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
    if not window.points or window.length_s < _FULL_WINDOW * QUANTILE_S:
        return None
    requests = number(window.rate(q.REQUESTS))
    if requests is not None:
        requests *= window.length_s
    kv_usage = _gauge_mean(window, q.KV_USAGE)
    if kv_usage is not None:
        kv_usage /= max(1, len(track.points[-1].ranks))
    if track.advance_of(q.DECODE_TOKENS) in (None, Advance.END):
        # There is no counter, or one that moves when requests end and says little about a minute.
        decode = _gauge_mean(window, q.DECODE_RATE)
    else:
        decode = number(window.rate(q.DECODE_TOKENS))
    return Minute(
        key=reading.key,
        name=name,
        role=_role(reading),
        gpus=gpus,
        seconds=window.length_s,
        requests=requests,
        running=_gauge_mean(window, q.RUNNING),
        waiting=_gauge_mean(window, q.WAITING),
        kv_usage=kv_usage,
        decode=decode,
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
    first_bound = histogram.bounds[0] if len(histogram.bounds) > 1 else 0.0
    return max(histogram.sum / histogram.count, first_bound)


class ReplicaCheck(msgspec.Struct, frozen=True):
    """Quantity that replicas are compared by, and from where on one is worse: by a factor and a difference, both."""

    quantity: str
    """Code of its `Evidence`."""
    figure: Callable[[Minute], float | None]
    factor: float
    least_difference: float
    less_is_worse: bool = False
    """Less is worse, if the replica has as much to do as the other."""
    only_loaded: bool = False
    """Compared only where each has `LEAST_RUNNING` requests on average: below, one request makes the difference."""


def _gpu_decode(replica: Minute) -> float | None:
    """Tokens/s per GPU, where its GPUs are known."""
    if replica.decode is None or not replica.gpus:
        return None
    return replica.decode / replica.gpus


def _decode(replica: Minute) -> float | None:
    """Tokens/s of a replica whose GPUs are not known: it cannot be compared with one whose are."""
    if replica.gpus:
        return None
    return replica.decode


_REPLICA_CHECKS: Final = (
    # Equal replicas behind one balancer stay within some ten per cent of each other.
    ReplicaCheck(
        "replica_gpu_decode", _gpu_decode, factor=1 / 0.7, least_difference=20.0, less_is_worse=True, only_loaded=True
    ),
    ReplicaCheck(
        "replica_decode", _decode, factor=1 / 0.7, least_difference=20.0, less_is_worse=True, only_loaded=True
    ),
    # A queue of three is one burst of arrivals.
    ReplicaCheck("replica_queue", attrgetter("waiting"), factor=3.0, least_difference=4.0),
    # As between ranks: requests of one mix fill the caches of equal replicas alike.
    ReplicaCheck("replica_kv", attrgetter("kv_usage"), factor=1.0, least_difference=0.3, only_loaded=True),
    # The ITL grows with the batch; at equal shares of the load half as much again is a slower replica.
    ReplicaCheck("replica_itl", attrgetter("itl_s"), factor=1.5, least_difference=0.005, only_loaded=True),
    # The TTFT is mostly queue and prompt: it varies more, and 100 ms more is nothing that a user notes.
    ReplicaCheck("replica_ttft", attrgetter("ttft_s"), factor=2.0, least_difference=0.1),
)
"""Quantities that are compared, each with the reason for its thresholds."""
_Claim = tuple[str, str]
"""Key of a replica, and the quantity in which it is worse."""
_Flow = Callable[[Minute], "float | None"]
"""A number of requests of a replica."""
_FLOWS: Final[tuple[tuple[str, _Flow], ...]] = (
    ("replica_requests", attrgetter("requests")),
    ("replica_running", attrgetter("running")),
)
"""Quantity of the evidence -> the flow that tells how much traffic a replica gets, the better one first."""


class _JudgedClaim(NamedTuple):
    """Whether a replica is worse now, and the figures that show it."""

    is_true: bool
    evidence: Evidence


class Deviations:
    """Deviations within one group of replicas that have held long enough to be said.

    Replicas are compared on a grid of `COMPARED_S`, so that a gpumon that begins later finds the same moments, and at
    once where another set of engines answers.
    """

    def __init__(self) -> None:
        self._standing: Hysteresis[_Claim] = Hysteresis()
        self._compared_at: object = None
        """When they were compared (place on the grid), and who answered then."""
        self._newest: dict[str, tuple[Evidence, ...]] = {}
        """Deviations as they were found then."""

    def find(self, group: Sequence[Member], now_s: float) -> dict[str, tuple[Evidence, ...]]:
        """Key of a replica that answers -> in what it stands apart; compared anew if it is time."""
        answering = tuple((member.reading.key, member.engine.name, member.answers) for member in group)
        compared_at = (now_s // COMPARED_S, *answering)
        if compared_at == self._compared_at:
            return self._newest
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
        self._newest = self.compare(poll_s, minutes, HOLD_WINDOWS * window_s)
        self._compared_at = compared_at
        return self._newest

    def compare(self, now_s: float, minutes: Sequence[Minute], hold_s: float) -> dict[str, tuple[Evidence, ...]]:
        """Key of a replica -> in what it has stood apart for `hold_s`; little traffic first."""
        claims: dict[_Claim, _JudgedClaim] = {}
        for role in dict.fromkeys(replica.role for replica in minutes):
            claims.update(_claims([replica for replica in minutes if replica.role == role]))
        truths = {claim: judged.is_true for claim, judged in claims.items()}
        standing = self._standing.update(now_s, truths, hold_s)
        deviations: dict[str, tuple[Evidence, ...]] = {}
        for claim, judged in claims.items():
            key, _ = claim
            if claim in standing:
                deviations[key] = (*deviations.get(key, ()), judged.evidence)
        return deviations


def _claims(minutes: Sequence[Minute]) -> dict[_Claim, _JudgedClaim]:
    """Whether each replica is worse in each quantity, with its figure and the median of the others.

    One that has little to do is fast, empty, and no measure of the others.
    """
    claims: dict[_Claim, _JudgedClaim] = {}
    starved = set[str]()
    if len(minutes) > 1:
        for replica in minutes:
            claims[replica.key, "traffic"] = _traffic_claim(replica, minutes)
            if claims[replica.key, "traffic"].is_true:
                starved.add(replica.key)
    fed = [replica for replica in minutes if replica.key not in starved]
    is_loaded = sum(replica.running or 0.0 for replica in fed) >= LEAST_RUNNING * len(fed)
    for check in _REPLICA_CHECKS:
        claims.update(_claims_by(check, fed, is_loaded=is_loaded))
    return claims


def _claims_by(check: ReplicaCheck, fed: Sequence[Minute], *, is_loaded: bool) -> dict[_Claim, _JudgedClaim]:
    """Whether each replica is worse in one quantity, with its figure and the median of the others."""
    by_value: list[tuple[float, Minute]] = []
    for replica in fed:
        value = check.figure(replica)
        if value is not None:
            by_value.append((value, replica))
    if len(by_value) < 2:
        return {}
    by_value.sort(key=lambda pair: (pair[0], pair[1].key))
    others = len(by_value) - 1
    claims = {}
    for index, (value, replica) in enumerate(by_value):
        # Of an even number worse than both middle ones: one odd replica must not make its neighbours odd.
        low, low_replica = by_value[_index_without(index, (others - 1) // 2)]
        high, high_replica = by_value[_index_without(index, others // 2)]
        is_worse = _is_worse(check, value, replica, low, low_replica) and _is_worse(
            check, value, replica, high, high_replica
        )
        peers: Parameters = {"others": float(others)} if others > 1 else {"other": low_replica.name}
        evidence = Evidence(check.quantity, value, (low + high) / 2.0, parameters=peers)
        is_compared = is_loaded or not check.only_loaded
        claims[replica.key, check.quantity] = _JudgedClaim(is_worse and is_compared, evidence)
    return claims


def _index_without(left_out: int, index: int) -> int:
    """Index in a list of what is at `index` in the same list without its element `left_out`."""
    if index >= left_out:
        return index + 1
    return index


def _is_worse(check: ReplicaCheck, value: float, replica: Minute, other_value: float, other: Minute) -> bool:
    """Whether a figure of a replica is worse than that of another."""
    if check.less_is_worse:
        low = value
        high = other_value
    else:
        low = other_value
        high = value
    if high - low < check.least_difference or high < check.factor * low:
        return False
    if not check.less_is_worse:
        return True
    # Less output is no fault of one that has less to do.
    waits_as_much = (replica.waiting or 0.0) + EMPTY_QUEUE >= (other.waiting or 0.0)
    return replica.in_flight >= AS_MUCH_IN_FLIGHT * other.in_flight and waits_as_much


def _traffic_claim(replica: Minute, minutes: Sequence[Minute]) -> _JudgedClaim:
    """Whether a replica gets far fewer requests than the others in the mean, and could take more; with the figures.

    A replica that hangs ends none, but runs as many as before; one with a queue has enough to do.
    """
    evidence = Evidence("replica_requests")
    is_far_below = False
    is_at_most_half = True
    # The evidence is that of the last flow which is known: of requests that ended, else of those that run.
    for quantity, flow in reversed(_FLOWS):
        own = flow(replica)
        usual = _mean_of_others(minutes, replica, flow)
        if own is None or not usual.per_replica:
            continue
        share = usual.share(own, replica.gpus)
        is_far_below = is_far_below or (usual.is_certain(own) and share <= _FAR_BELOW)
        is_at_most_half = is_at_most_half and share <= HALF_OF_OTHERS
        seconds = replica.seconds if quantity == "replica_requests" else 1.0  # ended requests are shown per second
        share_of_usual: Parameters = {"share": own / usual.per_replica}
        evidence = Evidence(quantity, own / seconds, usual.per_replica / seconds, parameters=share_of_usual)
    has_no_queue = (replica.waiting or 0.0) <= EMPTY_QUEUE
    return _JudgedClaim(is_far_below and is_at_most_half and has_no_queue, evidence)


class _MeanOfOthers(msgspec.Struct, frozen=True):
    """Mean of an amount over replicas, per replica and per GPU; 0 where none is known."""

    per_replica: float
    per_gpu: float

    def share(self, own: float, gpus: float | None) -> float:
        """Share of the others' mean that `own` is, per replica or per GPU, whichever is more."""
        return max(own / self.per_replica, own / (gpus or 1.0) / self.per_gpu)

    def is_certain(self, own: float) -> bool:
        """Whether `own` is below the mean by more than chance gives: numbers of requests are Poisson."""
        difference = self.per_replica - own
        return self.per_replica >= LEAST_REQUESTS and difference >= _CHANCE_DEVIATIONS * (self.per_replica + own) ** 0.5


def _mean_of_others(minutes: Sequence[Minute], replica: Minute, flow: _Flow) -> _MeanOfOthers:
    """Means over the replicas beside this one."""
    amounts = []
    per_gpu = []
    for other in minutes:
        amount = flow(other)
        if amount is not None and other is not replica:
            amounts.append(amount)
            per_gpu.append(amount / (other.gpus or 1.0))
    if not amounts:
        return _MeanOfOthers(per_replica=0.0, per_gpu=0.0)
    return _MeanOfOthers(per_replica=sum(amounts) / len(amounts), per_gpu=sum(per_gpu) / len(amounts))


# A data-parallel rank beside the others.

_LEAST_SHARE: Final = 0.7
"""Share of the mean tokens/s below which a rank works less than the others: those of equal ranks differ by some per
cent, and by one request in four where a balancer does its best with `LEAST_RUNNING`."""
LEAST_TOKENS_PER_S: Final = 20.0
"""Mean per rank below which ranks are not compared: one request more or less is the whole difference."""
_QUEUE_WAITING: Final = 1.0
"""Mean requests waiting on a rank that make it a queue."""
FREE_SHARE: Final = 0.5
"""A rank without a queue that runs less than this share of what the queueing one runs could have taken some."""
KV_DIFFERENCE: Final = 0.3
"""Difference of the KV usage of two ranks: requests of equal lengths spread by far less."""


def rank_loads(track: Track) -> tuple[RankLoad, ...]:
    """Each rank's part, means of the window of the rates; empty with one rank."""
    if not track.points or len(track.points[-1].ranks) < 2:
        return ()
    return tuple(
        RankLoad(
            rank=clean(rank, 32),
            decode_tokens_per_s=rank_decode(track, rank),
            running=_rank_mean(track, rank, q.RUNNING),
            waiting=_rank_mean(track, rank, q.WAITING),
            kv_usage_ratio=_rank_mean(track, rank, q.KV_USAGE),
        )
        for rank in track.points[-1].ranks
    )


def _rank_mean(track: Track, rank: str, gauge: str) -> Reading:
    """Mean of a rank's gauge in the window of the rates."""
    samples = track.short.rank_samples(rank, gauge)
    if samples:
        return sum(samples) / len(samples)
    return NOT_EXPOSED


def uneven_rank_figures(loads: Sequence[RankLoad], track: Track) -> tuple[Evidence, ...]:
    """The figures that the ranks share unevenly; nothing before the window is full for all of them."""
    points = track.short.points
    if len(loads) < 2 or not points or track.short.length_s < _FULL_WINDOW * RATE_S:
        return ()
    if points[0].ranks.keys() != points[-1].ranks.keys():
        return ()
    return tuple(
        evidence
        for evidence in (_uneven_decode(loads), _uneven_queue(loads), _uneven_kv(loads))
        if evidence is not None
    )


def _by_rank(loads: Sequence[RankLoad], field: str) -> list[tuple[float, str]]:
    """(Figure, rank) of all ranks, the field of `RankLoad`; empty where one rank lacks it."""
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
    queues = [_RankQueue(queued, runs, rank) for (queued, rank), (runs, _) in zip(waiting, running, strict=True)]
    longest = max(queues)
    free = min(queues, key=lambda queue: (queue.waiting > 0.0, queue.running))
    if longest.waiting < _QUEUE_WAITING or free.waiting > 0.0 or free.running >= FREE_SHARE * longest.running:
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
    if most - least > KV_DIFFERENCE:
        return Evidence("rank_kv", most, least, parameters={"rank": rank, "other": other})
    return None
