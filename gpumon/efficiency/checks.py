"""Figures that disagree: an engine's with what its GPUs measure, a replica's or a rank's with those of the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.rates import rank_decode
from gpumon.efficiency.ratio import per, plus
from gpumon.efficiency.tracks import QUANTILE_S, RATE_S, Track
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
FULL: Final = 0.9
"""Share of its window that must be there before ranks or replicas are compared: a shorter one is chance."""

ClaimT = TypeVar("ClaimT", bound=Hashable)


class Hysteresis(Generic[ClaimT]):
    """A claim stands once it has held for a while, and until it has not for as long. Times are of one clock."""

    def __init__(self) -> None:
        self._stands: dict[ClaimT, bool] = {}
        self._changing_s: dict[ClaimT, float] = {}
        """Since when a claim is not as it stands."""

    def at(self, now_s: float, claims: Mapping[ClaimT, bool], hold_s: float) -> set[ClaimT]:
        """Those that stand; `claims` says which are true. One that is not in it is forgotten."""
        self._stands = {claim: self._stands.get(claim, False) for claim in claims}
        changing = [claim for claim, true in claims.items() if true != self._stands[claim]]
        self._changing_s = {claim: self._changing_s.get(claim, now_s) for claim in changing}
        for claim in changing:
            if now_s - self._changing_s[claim] >= hold_s:
                self._stands[claim] = claims[claim]
                del self._changing_s[claim]
        return {claim for claim, stands in self._stands.items() if stands}


# An engine beside its GPUs.

SLACK: Final = 1.25
"""A modelled rate may be that much above the measured one: the two windows are not quite the same."""
MEASURED: Final = frozenset({BandwidthSource.GPM, BandwidthSource.DCGM})
BEYOND_CACHES_BYTES: Final = 0.5e9
"""Weights of a step on one GPU that no cache holds: the largest L2 have some 130 MB."""


class Contradictions:
    """Of all engines, MBU beside the bandwidth that their GPUs measure.

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
        found: dict[str, Evidence] = {}
        bounds: dict[str, tuple[float, float]] = {}
        for key, engine, gpus in engines:
            if not gpus or any(gpu.bandwidth_source not in MEASURED or len(gpu.engines) > 1 for gpu in gpus):
                continue
            moved: Reading = plus(*(gpu.bandwidth_bytes_per_s for gpu in gpus))
            share = per(moved, plus(*(gpu.bandwidth_peak_bytes_per_s for gpu in gpus)))
            read = _read(engine)
            measured = number(moved)
            mbu = number(engine.efficiency.mbu_ratio)
            if read is None or measured is None or mbu is None:
                continue
            least, most = self._bounds.get(key, (read, measured))
            bounds[key] = min(least, read), max(most, measured)
            found[key] = Evidence("mbu_beside_measured", mbu, share, "MBU, and the activity that its GPUs measure")
        claims = {key: least > SLACK * most for key, (least, most) in bounds.items()}
        self._bounds = {key: of for key, of in bounds.items() if claims[key]}
        return {key: (found[key],) for key in self._shown.at(now_s, claims, HOLD_WINDOWS * window_s)}


def _read(engine: Engine) -> float | None:
    """Bytes/s that must come from the memory, at the least; None where that is not known.

    What requests have in common in their KV cache may be read once for all of them, so only the rest of it counts.
    """
    weights = number(engine.efficiency.weight_bytes_per_s)
    kv = number(engine.efficiency.kv_bytes_per_s)
    step = number(per(engine.efficiency.weight_bytes, engine.hardware.gpu_count))
    if weights is None or kv is None or step is None or step < BEYOND_CACHES_BYTES:
        return None
    cached = number(engine.load.cached_ratio)
    return weights + (0.0 if cached is None else kv * (1.0 - cached))


# A replica beside the others.

COMPARED_S: Final = 15.0
"""How often replicas are compared with each other: means of a minute, that have to hold for three, change little."""
LEAST_POLLS: Final = 5
"""Fewer samples of a gauge in the window have no mean that tells anything."""
LEAST_REQUESTS: Final = 5.0
"""Fewer requests in the window, or running at a time, tell nothing of who gets how many."""
FAR_BELOW: Final = 1 / 3
"""A balancer that counts connections or goes round gives equal replicas within some ten per cent of each other."""
HALF: Final = 0.5
"""One that runs so much of what the others run is not out of work."""
CHANCE: Final = 3.0
"""Standard deviations that two numbers of requests, which come by chance, lie apart."""
EMPTY: Final = 0.5
"""Mean requests waiting up to which there is no queue: now and then one waits for a step."""
AS_MUCH: Final = 0.9
"""Share of another's requests in flight from which a replica has as much to do."""
ROLES: Final = ("role", "dynamo_component")
"""Keys in `info` that tell it: of SGLang, and of a Dynamo worker."""


class Member(NamedTuple):
    """One engine of a frame."""

    reading: EngineReading
    engine: Engine
    track: Track
    answers: bool
    """It gave figures in this frame."""


class Minute(NamedTuple):
    """What a replica did in the window of the quantiles: means, None where not known."""

    key: str
    name: str
    role: str
    """What it does of the work: prefill and decode may run apart, and then differ in every figure."""
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
    """What one replica did; None while its window is not full. `gpus` are all its GPUs."""
    window = track.long
    if not window.points or window.length_s < FULL * QUANTILE_S:
        return None

    def mean(gauge: str) -> float | None:
        samples = window.samples(gauge)
        return sum(samples) / len(samples) if len(samples) >= LEAST_POLLS else None

    def latency(quantity: str) -> float | None:
        """All means in the first bucket are alike: that one is as fast as its engine looks at."""
        seen = window.histogram(quantity)
        if seen is None or seen.count < ENOUGH:
            return None
        return max(seen.sum / seen.count, seen.bounds[0] if len(seen.bounds) > 1 else 0.0)

    per_s = number(window.rate(q.REQUESTS))
    usage = mean(q.KV_USAGE)
    live = track.moves(q.DECODE_TOKENS) not in (None, Advance.END)
    return Minute(
        key=reading.key,
        name=name,
        role=next((told for key in ROLES if (told := reading.info.get(key, ""))), ""),
        gpus=gpus,
        seconds=window.length_s,
        requests=None if per_s is None else per_s * window.length_s,
        running=mean(q.RUNNING),
        waiting=mean(q.WAITING),
        kv_usage=None if usage is None else usage / max(1, len(track.points[-1].ranks)),
        decode=number(window.rate(q.DECODE_TOKENS)) if live else mean(q.DECODE_RATE),
        itl_s=latency(q.ITL),
        ttft_s=latency(q.TTFT),
    )


class Row(NamedTuple):
    """What replicas are compared by: worse is a factor and a difference of at least so much, both."""

    quantity: str
    """Code of its `Evidence`."""
    of: Callable[[Minute], float | None]
    factor: float
    least: float
    less: bool = False
    """Less is worse, of one that has as much to do."""
    loaded: bool = False
    """It says something only where each has `LEAST_RUNNING` requests: below, one more is all of it."""


ROWS: Final = (
    # Equal replicas behind one balancer stay within some ten per cent of each other.
    Row(
        "replica_gpu_decode",
        lambda of: of.decode / of.gpus if of.decode is not None and of.gpus else None,
        *(1 / 0.7, 20.0),
        less=True,
        loaded=True,
    ),
    # Where its GPUs are not known, it can not be compared with one whose are.
    Row("replica_decode", lambda of: None if of.gpus else of.decode, 1 / 0.7, 20.0, less=True, loaded=True),
    # A queue of three is one burst of arrivals.
    Row("replica_queue", lambda of: of.waiting, 3.0, 4.0),
    # As between ranks: requests of one mix fill the caches of equal replicas alike.
    Row("replica_kv", lambda of: of.kv_usage, 1.0, 0.3, loaded=True),
    # The ITL grows with the batch; at equal shares of the load half as much again is a slower replica.
    Row("replica_itl", lambda of: of.itl_s, 1.5, 0.005, loaded=True),
    # The TTFT is mostly queue and prompt: it varies more, and 100 ms more is nothing that a user notes.
    Row("replica_ttft", lambda of: of.ttft_s, 2.0, 0.1),
)
"""What is compared, each with the reason for its thresholds."""
_Claim = tuple[str, str]
"""Key of a replica, and the quantity in which it is worse."""
_Flow = Callable[[Minute], "float | None"]
_FLOWS: Final[tuple[tuple[str, _Flow], ...]] = (
    ("replica_requests", lambda of: of.requests),
    ("replica_running", lambda of: of.running),
)


class Deviations:
    """Of one group of replicas, what has held long enough to be said.

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
        compared = now_s // COMPARED_S, *((one.reading.key, one.engine.name, one.answers) for one in group)
        if compared != self._compared:
            members = [one for one in group if one.answers]
            found = (
                minute(one.reading, one.engine.name, number(one.engine.hardware.gpu_count), one.track)
                for one in members
            )
            poll_s = max((one.track.points[-1].monotonic_s for one in members), default=0.0)
            window_s = max((one.track.quantile_s for one in members), default=0.0)
            minutes = [one for one in found if one is not None]
            self._apart = self.at(poll_s, minutes, HOLD_WINDOWS * window_s)
            self._compared = compared
        return self._apart

    def at(self, now_s: float, minutes: Sequence[Minute], hold_s: float) -> dict[str, tuple[Evidence, ...]]:
        """Key of a replica -> in what it stands apart; little traffic first. What has held for `hold_s` is told."""
        found: dict[_Claim, tuple[bool, Evidence]] = {}
        for role in dict.fromkeys(one.role for one in minutes):
            found.update(_compared([one for one in minutes if one.role == role]))
        stands = self._shown.at(now_s, {claim: true for claim, (true, _) in found.items()}, hold_s)
        apart: dict[str, tuple[Evidence, ...]] = {}
        for claim, (_, shown) in found.items():
            if claim in stands:
                apart[claim[0]] = (*apart.get(claim[0], ()), shown)
        return apart


def _compared(minutes: Sequence[Minute]) -> dict[_Claim, tuple[bool, Evidence]]:
    """Whether each replica is worse in each quantity, with its figure and the median of the others.

    One that has little to do is fast, empty, and no measure of the others.
    """
    found = {(one.key, "traffic"): _traffic(one, minutes) for one in minutes} if len(minutes) > 1 else {}
    fed = [one for one in minutes if not (found and found[one.key, "traffic"][0])]
    loaded = sum(one.running or 0.0 for one in fed) >= LEAST_RUNNING * len(fed)
    for row in ROWS:
        known = sorted(
            ((value, one) for one in fed if (value := row.of(one)) is not None), key=lambda pair: (pair[0], pair[1].key)
        )
        for place, (value, one) in enumerate(known if len(known) > 1 else ()):
            # Of an even number worse than both middle ones: one odd replica must not make its neighbours odd.
            others = len(known) - 1
            middle = [known[at + (at >= place)] for at in ((others - 1) // 2, others // 2)]
            worse = (loaded or not row.loaded) and all(_is_worse(row, value, one, *other) for other in middle)
            who: Parameters = {"others": float(others)} if others > 1 else {"other": middle[0][1].name}
            shown = Evidence(row.quantity, value, (middle[0][0] + middle[1][0]) / 2.0, parameters=who)
            found[one.key, row.quantity] = worse, shown
    return found


def _is_worse(row: Row, value: float, one: Minute, other: float, than: Minute) -> bool:
    low, high = (value, other) if row.less else (other, value)
    if high - low < row.least or high < row.factor * low:
        return False
    # Less output is no fault of one that has less to do.
    waits_as_much = (one.waiting or 0.0) + EMPTY >= (than.waiting or 0.0)
    return not row.less or (one.in_flight >= AS_MUCH * than.in_flight and waits_as_much)


def _traffic(one: Minute, minutes: Sequence[Minute]) -> tuple[bool, Evidence]:
    """Whether it gets far fewer requests than the others in the mean, and could take more.

    One that hangs ends none, but runs as many as before; one that waits has enough to do. Its part is that of what the
    others have each, or per GPU, whichever is more.
    """
    shown = Evidence("replica_requests")
    far = False
    half = True
    for quantity, flow in reversed(_FLOWS):
        own = flow(one)
        others = [(of, amount) for of in minutes if of is not one and (amount := flow(of)) is not None]
        usual = sum(amount for _, amount in others) / len(others) if others else 0.0
        if own is None or not usual:
            continue
        usual_per_gpu = sum(amount / (of.gpus or 1.0) for of, amount in others) / len(others)
        share = max(own / usual, own / (one.gpus or 1.0) / usual_per_gpu)
        certain = usual >= LEAST_REQUESTS and usual - own >= CHANCE * (usual + own) ** 0.5
        far = far or (certain and share <= FAR_BELOW)
        half = half and share <= HALF
        seconds = one.seconds if quantity == "replica_requests" else 1.0
        shown = Evidence(quantity, own / seconds, usual / seconds, parameters={"share": own / usual})
    return far and half and (one.waiting or 0.0) <= EMPTY, shown


# A data-parallel rank beside the others.

LEAST_SHARE: Final = 0.7
"""A rank that gives less than this share of the mean works less than the others: tokens/s of equal ranks differ by
some per cent, and by one request in four where a balancer does its best with the fewest below."""
LEAST_TOKENS_PER_S: Final = 20.0
"""Per rank; below it one request more or less is the whole difference."""
QUEUED: Final = 1.0
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

    def mean(rank: str, quantity: str) -> Reading:
        samples = track.short.rank_samples(rank, quantity)
        return sum(samples) / len(samples) if samples else NOT_EXPOSED

    return tuple(
        RankLoad(
            clean(rank, 32), rank_decode(track, rank), *(mean(rank, one) for one in (q.RUNNING, q.WAITING, q.KV_USAGE))
        )
        for rank in ranks
    )


def uneven(loads: Sequence[RankLoad], track: Track) -> tuple[Evidence, ...]:
    """What the ranks share unevenly; nothing before the window is full for all of them."""
    points = track.short.points
    if len(loads) < 2 or not points or track.short.length_s < FULL * RATE_S:
        return ()
    if points[0].ranks.keys() != points[-1].ranks.keys():
        return ()

    def known(field: str) -> list[tuple[float, str]]:
        found = [(value, one.rank) for one in loads if (value := number(getattr(one, field))) is not None]
        return found if len(found) == len(loads) else []

    rates = known("decode_tokens_per_s")
    running = known("running")
    waiting = known("waiting")
    found = []
    if rates and sum(count for count, _ in running) / len(loads) >= LEAST_RUNNING:
        mean = sum(rate for rate, _ in rates) / len(rates)
        (least, rank) = min(rates)
        if mean >= LEAST_TOKENS_PER_S and least < LEAST_SHARE * mean:
            found.append(Evidence("rank_decode", least, mean, parameters={"rank": rank}))
    if waiting and running:
        loaded = [(queue, runs, rank) for (queue, rank), (runs, _) in zip(waiting, running, strict=True)]
        most = max(loaded)
        free = min(loaded, key=lambda one: (one[0] > 0.0, one[1]))
        if most[0] >= QUEUED and free[0] <= 0.0 and free[1] < FREE_SHARE * most[1]:
            said: Parameters = {"rank": most[2], "running": most[1], "other": free[2], "other_running": free[1]}
            found.append(Evidence("rank_queue", most[0], parameters=said))
    if usage := known("kv_usage_ratio"):
        (most_kv, rank) = max(usage)
        (least_kv, other) = min(usage)
        if most_kv - least_kv > KV_APART:
            found.append(Evidence("rank_kv", most_kv, least_kv, parameters={"rank": rank, "other": other}))
    return tuple(found)
