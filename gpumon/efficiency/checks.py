"""Figures that disagree: an engine's with what its GPUs measure, a replica's or a rank's with those of the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.rates import rank_decode
from gpumon.efficiency.ratio import per, plus
from gpumon.efficiency.tracks import QUANTILE_S, RATE_S, Track
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Reading, number
from gpumon.readings.quantities import DECODE_RATE, DECODE_TOKENS, ITL, KV_USAGE, REQUESTS, RUNNING, TTFT, WAITING
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, RankLoad
from gpumon.readings.text import clean

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
    """What is true now and then must not flicker: it is said once it has held for a while, and until it has not for
    as long. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._said: dict[ClaimT, bool] = {}
        self._since_s: dict[ClaimT, float] = {}
        """Since when a claim is not what is said of it."""

    def at(self, now_s: float, claims: Mapping[ClaimT, bool], hold_s: float) -> set[ClaimT]:
        """Those that are said now; `claims` says which are true. One that is not in it is forgotten."""
        self._said = {claim: self._said.get(claim, False) for claim in claims}
        self._since_s = {
            claim: self._since_s.get(claim, now_s) for claim, true in claims.items() if true != self._said[claim]
        }
        for claim, since_s in [*self._since_s.items()]:
            if now_s - since_s >= hold_s:
                self._said[claim] = claims[claim]
                del self._since_s[claim]
        return {claim for claim, said in self._said.items() if said}


SLACK: Final = 1.25
"""A modelled rate may be that much above the measured one: the two windows are not quite the same."""
MEASURED: Final = frozenset({BandwidthSource.GPM, BandwidthSource.DCGM})
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
        self._shown: Hysteresis[str] = Hysteresis()

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
        return {key: (texts[key],) for key in self._shown.at(now_s, claims, HOLD_WINDOWS * window_s)}


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
    seconds = track.long.length_s
    if not track.long.points or seconds < FULL * QUANTILE_S:
        return None
    per_s, usage = number(track.long.rate(REQUESTS)), _mean(track, KV_USAGE)
    return Minute(
        key=reading.key,
        name=name,
        role=next((said for key in ROLES if (said := reading.info.get(key, ""))), ""),
        gpus=gpus,
        seconds=seconds,
        requests=None if per_s is None else per_s * seconds,
        running=_mean(track, RUNNING),
        waiting=_mean(track, WAITING),
        kv_usage=None if usage is None else usage / max(1, len(track.points[-1].ranks)),
        decode=_decode(track),
        itl_s=_latency(track, ITL),
        ttft_s=_latency(track, TTFT),
    )


def _decode(track: Track) -> float | None:
    """By a counter that moves with the steps, else by the engine's own rate."""
    if track.moves(DECODE_TOKENS) in (None, Advance.END):
        return _mean(track, DECODE_RATE)
    return number(track.long.rate(DECODE_TOKENS))


def _mean(track: Track, gauge: str) -> float | None:
    samples = track.long.samples(gauge)
    return sum(samples) / len(samples) if len(samples) >= LEAST_POLLS else None


def _latency(track: Track, quantity: str) -> float | None:
    """All means in the first bucket are alike: that one is as fast as its engine looks at."""
    window = track.long.histogram(quantity)
    if window is None or window.count < ENOUGH:
        return None
    return max(window.sum / window.count, window.bounds[0] if len(window.bounds) > 1 else 0.0)


class Row(NamedTuple):
    """What replicas are compared by: worse is a factor and a difference of at least so much, both."""

    words: str
    unit: str
    of: Callable[[Minute], float | None]
    factor: float
    least: float
    text: str
    """Format of a value in that unit."""
    scale: float = 1.0
    """Units of the text in one of the value."""
    less: bool = False
    """Less is worse, of one that has as much to do."""
    loaded: bool = False
    """It says something only where each has `LEAST_RUNNING` requests: below, one more is all of it."""


ROWS: Final = (
    # Equal replicas behind one balancer stay within some ten per cent of each other.
    Row(
        *("decode", " tok/s per GPU", lambda of: of.decode / of.gpus if of.decode is not None and of.gpus else None),
        *(1 / 0.7, 20.0, ",.0f"),
        less=True,
        loaded=True,
    ),
    # Where its GPUs are not known, it can not be compared with one whose are.
    Row("decode", " tok/s", lambda of: None if of.gpus else of.decode, 1 / 0.7, 20.0, ",.0f", less=True, loaded=True),
    # A queue of three is one burst of arrivals.
    Row("queue", " waiting", lambda of: of.waiting, 3.0, 4.0, ",.1f"),
    # As between ranks: requests of one mix fill the caches of equal replicas alike.
    Row("KV cache", "", lambda of: of.kv_usage, 1.0, 0.3, ".0%", loaded=True),
    # The ITL grows with the batch; at equal shares of the load half as much again is a slower replica.
    Row("ITL", " ms", lambda of: of.itl_s, 1.5, 0.005, ",.0f", 1e3, loaded=True),
    # The TTFT is mostly queue and prompt: it varies more, and 100 ms more is nothing that a user notes.
    Row("TTFT", " ms", lambda of: of.ttft_s, 2.0, 0.1, ",.0f", 1e3),
)
"""What is compared, each with the reason for its thresholds."""
_TRAFFIC: Final = len(ROWS)
"""Beside the places of the rows: it gets far less to do than the others."""


_FLOWS: Final[tuple[Callable[[Minute], float | None], ...]] = (lambda of: of.requests, lambda of: of.running)


class Deviations:
    """Of one group of replicas, what has held long enough to be said."""

    def __init__(self) -> None:
        self._shown: Hysteresis[tuple[str, int]] = Hysteresis()
        self._minutes: dict[str, tuple[object, Minute | None]] = {}
        """Key -> what a replica's minute was made of, and the minute: only one that was polled anew has another."""

    def of(self, group: Sequence[Member]) -> dict[str, tuple[str, ...]]:
        """Key of a replica -> why it needs a look (`at`), of those that answer."""
        members = [member for member in group if member.answers]
        self._minutes = {member.reading.key: self._minute(member) for member in members}
        minutes = [found for _, found in self._minutes.values() if found is not None]
        now_s = max((member.track.points[-1].monotonic_s for member in members), default=0.0)
        window_s = max((member.track.quantile_s for member in members), default=0.0)
        return self.at(now_s, minutes, HOLD_WINDOWS * window_s)

    def _minute(self, member: Member) -> tuple[object, Minute | None]:
        engine, key = member.engine, member.reading.key
        made_of = member.track.polls, engine.name, engine.hardware.gpu_count
        last = self._minutes.get(key)
        if last is not None and last[0] == made_of:
            return last
        return made_of, minute(member.reading, engine.name, number(engine.hardware.gpu_count), member.track)

    def at(self, now_s: float, minutes: Sequence[Minute], hold_s: float) -> dict[str, tuple[str, ...]]:
        """Key of a replica -> why it needs a look, in words with figures; little traffic first.

        `hold_s`: what has held for so long is said, until it has not for as long.
        """
        found: dict[tuple[str, int], tuple[bool, Callable[[], str]]] = {}
        for role in dict.fromkeys(one.role for one in minutes):
            found.update(_compared([one for one in minutes if one.role == role]))
        said = self._shown.at(now_s, {claim: true for claim, (true, _) in found.items()}, hold_s)
        texts: dict[str, tuple[str, ...]] = {}
        for claim in [claim for claim in found if claim in said]:
            texts[claim[0]] = (*texts.get(claim[0], ()), found[claim][1]())
        return texts


def _compared(minutes: Sequence[Minute]) -> dict[tuple[str, int], tuple[bool, Callable[[], str]]]:
    """Key and what is compared -> whether that replica is worse in it, and what words the figures.

    One that has little to do is fast, empty, and no measure of the others.
    """
    found: dict[tuple[str, int], tuple[bool, Callable[[], str]]] = {}
    flows = tuple((_Sum.of(flow, minutes), _Sum.of(flow, minutes, per_gpu=True)) for flow in _FLOWS)
    for one in minutes:
        found[one.key, _TRAFFIC] = _gets_less(one, flows), partial(_less_traffic, one, flows)
    fed = [one for one in minutes if not found[one.key, _TRAFFIC][0]]
    loaded = sum(one.running or 0.0 for one in fed) >= LEAST_RUNNING * len(fed)
    for place, row in enumerate(ROWS):
        known = sorted((value, at) for at, one in enumerate(fed) if (value := row.of(one)) is not None)
        for rank in range(len(known) if len(known) > 1 else 0):
            worse = (loaded or not row.loaded) and _stands_out(row, known, rank, fed)
            found[fed[known[rank][1]].key, place] = worse, partial(_beside, row, known, rank, fed)
    return found


def _middle(known: Sequence[tuple[float, int]], place: int) -> list[tuple[float, int]]:
    """Of the sorted values, without the one at a place, the two in the middle; of an odd number twice the same."""
    others = len(known) - 1
    return [known[other + (other >= place)] for other in ((others - 1) // 2, others // 2)]


def _stands_out(row: Row, known: Sequence[tuple[float, int]], place: int, fed: Sequence[Minute]) -> bool:
    """Whether the one at a place of the sorted values is worse than the median of the others.

    Of an even number of others it is worse than both middle ones: one odd replica must not make its neighbours odd.
    """
    if (place > len(known) // 2) if row.less else (place < (len(known) - 1) // 2):
        return False  # it is on the better side of the median
    (value, at), middle = known[place], _middle(known, place)
    if not all(_is_worse(row, value, other) for other, _ in middle):
        return False
    return not row.less or all(_has_as_much(fed[at], fed[other]) for _, other in middle)


def _beside(row: Row, known: Sequence[tuple[float, int]], place: int, fed: Sequence[Minute]) -> str:
    """The value at a place of the sorted ones, and the median of the others."""
    others, (value, _), middle = len(known) - 1, known[place], _middle(known, place)
    median = sum(other for other, _ in middle) / 2 * row.scale
    whose = f"median of the {others} others" if others > 1 else f"{fed[middle[0][1]].name} has"
    return f"{row.words} {value * row.scale:{row.text}}{row.unit}, {whose} {median:{row.text}}{row.unit}"


def _is_worse(row: Row, one: float, other: float) -> bool:
    low, high = (one, other) if row.less else (other, one)
    return high - low >= row.least and high >= row.factor * low


def _has_as_much(one: Minute, other: Minute) -> bool:
    """Whether it has the same to do or more, so that less output is not for want of requests."""
    return one.in_flight >= AS_MUCH * other.in_flight and (one.waiting or 0.0) + EMPTY >= (other.waiting or 0.0)


class _Sum(NamedTuple):
    """What the replicas that tell it have of something, together and each."""

    amounts: Mapping[str, float]
    total: float

    @classmethod
    def of(cls, flow: Callable[[Minute], float | None], minutes: Sequence[Minute], *, per_gpu: bool = False) -> _Sum:
        """Of all; or of all that they have per GPU."""
        told = ((one, amount) for one in minutes if (amount := flow(one)) is not None)
        amounts = {one.key: amount / (one.gpus or 1.0) if per_gpu else amount for one, amount in told}
        return cls(amounts, fsum(amounts.values()))

    def usual(self, but: str) -> float | None:
        """Mean of the others that tell it."""
        own = self.amounts.get(but)
        others = len(self.amounts) - (own is not None)
        return (self.total - (own or 0.0)) / others if others else None


_Flows = Sequence[tuple[_Sum, _Sum]]
"""Of each flow the amounts, and the amounts per GPU."""


def _gets_less(one: Minute, flows: _Flows) -> bool:
    """Whether it gets far fewer requests than the others in the mean, and could take more.

    One that hangs ends none, but runs as many as before; one that waits has enough to do.
    """
    shares = [share for flow in flows if (share := _share(one, *flow)) is not None]
    far = any(certain and share <= FAR_BELOW for share, certain in shares)
    return far and (one.waiting or 0.0) <= EMPTY and all(share <= HALF for share, _ in shares)


def _share(one: Minute, flow: _Sum, per_gpu: _Sum) -> tuple[float, bool] | None:
    """Its part of what the others have, each or per GPU, whichever is more; and whether that is no chance."""
    own, usual = flow.amounts.get(one.key), flow.usual(one.key)
    if own is None or not usual:
        return None
    certain = usual >= LEAST_REQUESTS and usual - own >= CHANCE * (usual + own) ** 0.5
    return max(own / usual, own / (one.gpus or 1.0) / (per_gpu.usual(one.key) or usual)), certain


def _less_traffic(one: Minute, flows: _Flows) -> str:
    """How much less it gets, by the requests that ended, else by those that ran."""
    for (flow, _), seconds, unit in zip(flows, (one.seconds, 1.0), ("/s", " running"), strict=True):
        own, usual = flow.amounts.get(one.key), flow.usual(one.key)
        if own is not None and usual:
            figures = f"{own / seconds:,.2f}{unit}, they {usual / seconds:,.2f}{unit} each"
            return f"gets {own / usual:.0%} of the requests of the others ({figures}): look at the load balancer"
    return ""


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
    return tuple(
        RankLoad(
            clean(rank, 32),
            rank_decode(track, rank),
            *(_rank_mean(track.short.rank_samples(rank, quantity)) for quantity in (RUNNING, WAITING, KV_USAGE)),
        )
        for rank in ranks
    )


def uneven(loads: Sequence[RankLoad], track: Track) -> tuple[str, ...]:
    """What the ranks share unevenly, in words with figures; nothing before the window is full for all of them."""
    points = track.short.points
    if len(loads) < 2 or not points or track.short.length_s < FULL * RATE_S:
        return ()
    if points[0].ranks.keys() != points[-1].ranks.keys():
        return ()
    return tuple(text for text in (_uneven_decode(loads), _uneven_queue(loads), _uneven_kv(loads)) if text)


def _uneven_decode(loads: Sequence[RankLoad]) -> str:
    rates = _known(loads, "decode_tokens_per_s")
    running = _known(loads, "running")
    if len(rates) < len(loads) or sum(running) / len(loads) < LEAST_RUNNING:
        return ""
    mean = sum(rates) / len(rates)
    least = min(range(len(loads)), key=rates.__getitem__)
    if mean < LEAST_TOKENS_PER_S or rates[least] >= LEAST_SHARE * mean:
        return ""
    return f"decode: rank {loads[least].rank} gives {rates[least]:,.0f} tok/s, the mean of the ranks is {mean:,.0f}"


def _uneven_queue(loads: Sequence[RankLoad]) -> str:
    waiting, running = _known(loads, "waiting"), _known(loads, "running")
    if len(waiting) < len(loads) or len(running) < len(loads):
        return ""
    most = max(range(len(loads)), key=waiting.__getitem__)
    least = min(range(len(loads)), key=lambda at: (waiting[at] > 0.0, running[at]))
    if waiting[most] < QUEUED or waiting[least] > 0.0 or running[least] >= FREE_SHARE * running[most]:
        return ""
    return (
        f"queue: rank {loads[most].rank} has {waiting[most]:,.1f} waiting and runs {running[most]:,.1f}, "
        f"rank {loads[least].rank} runs {running[least]:,.1f} and has none waiting"
    )


def _uneven_kv(loads: Sequence[RankLoad]) -> str:
    usage = _known(loads, "kv_usage_ratio")
    if len(usage) < len(loads) or max(usage) - min(usage) <= KV_APART:
        return ""
    most, least = (pick(range(len(loads)), key=usage.__getitem__) for pick in (max, min))
    return f"KV cache: rank {loads[most].rank} uses {usage[most]:.0%}, rank {loads[least].rank} {usage[least]:.0%}"


def _known(loads: Sequence[RankLoad], field: str) -> list[float]:
    return [value for load in loads if (value := number(getattr(load, field))) is not None]


def _rank_mean(samples: Sequence[float]) -> Reading:
    return sum(samples) / len(samples) if samples else NOT_EXPOSED
