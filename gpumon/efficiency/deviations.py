"""Which replica of a model does worse than the others, and which gets less to do: means of 60 s, and no flicker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Final, NamedTuple

from gpumon.efficiency.flow import counter_advance
from gpumon.efficiency.held import Held
from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.ranks import LEAST_RUNNING
from gpumon.efficiency.windows import QUANTILE_S, Track
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import number
from gpumon.readings.quantities import DECODE_RATE, DECODE_TOKENS, ITL, KV_USAGE, REQUESTS, RUNNING, TTFT, WAITING
from gpumon.readings.snapshot import Engine

FULL: Final = 0.9
"""Share of the 60 s that a replica's window has to have before it is compared with others."""
HOLD_WINDOWS: Final = 3.0
"""Windows that it holds before it is said, and before it goes: three means that have no reading in common. With one,
equal replicas near their limit are accused for a minute in each hour, as Poisson arrivals happen to fall on them."""
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
    span_s = track.quantile_s
    seconds = track.length_s(span_s)
    if track.window(span_s) is None or seconds < FULL * QUANTILE_S:
        return None
    per_s, usage = number(track.rate(REQUESTS, span_s)), _mean(track, KV_USAGE)
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
        decode=_decode(reading, track),
        itl_s=_latency(track, ITL),
        ttft_s=_latency(track, TTFT),
    )


def _decode(reading: EngineReading, track: Track) -> float | None:
    """By a counter that moves with the steps, else by the engine's own rate."""
    if counter_advance(reading, track, DECODE_TOKENS) in (None, Advance.END):
        return _mean(track, DECODE_RATE)
    return number(track.rate(DECODE_TOKENS, track.quantile_s))


def _mean(track: Track, gauge: str) -> float | None:
    samples = track.samples(gauge, track.quantile_s)
    return sum(samples) / len(samples) if len(samples) >= LEAST_POLLS else None


def _latency(track: Track, quantity: str) -> float | None:
    """All means in the first bucket are alike: that one is as fast as its engine looks at."""
    window = track.histogram(quantity, track.quantile_s)
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
        self._held: Held[tuple[str, int]] = Held()
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
        said = self._held.at(now_s, {claim: true for claim, (true, _) in found.items()}, hold_s)
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
