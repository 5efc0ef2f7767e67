"""A replay beside the client's own account: totals, rates, requests in flight and mean latencies, and their errors."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineReading
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine
from tests.fakes.engine import Capture

WINDOW_S = 10.0
POLL_S = 2.0
NAN = float("nan")


class Tick(NamedTuple):
    """One moment of a replay: what was polled, and what gpumon showed. `t` is on the capture's clock."""

    t: float
    readings: tuple[EngineReading, ...]
    engines: tuple[Engine, ...]
    decode_tick: float

    @property
    def reading(self) -> EngineReading:
        """The server's first model."""
        return self.readings[0]

    @property
    def engine(self) -> Engine:
        """The same, as shown."""
        return self.engines[0]


class Replay(NamedTuple):
    """A whole replay."""

    name: str
    capture: Capture
    start_s: float
    offset_s: float
    """Capture clock minus monotonic clock."""
    ticks: list[Tick]


class Arrived(NamedTuple):
    """What arrived, summed up to each moment at which something did."""

    times_s: list[float]
    sums: list[float]
    """One more than there are times: the first is 0."""

    @classmethod
    def of(cls, arrivals: Sequence[tuple[float, float]]) -> Arrived:
        """The sums of pairs of a moment and what arrived then."""
        ordered = sorted(arrivals)
        times_s = [at_s for at_s, _ in ordered]
        return cls(times_s, [0.0, *itertools.accumulate(tokens for _, tokens in ordered)])

    def until(self, t: float) -> float:
        """All that arrived at a moment and before it."""
        return self.sums[bisect_right(self.times_s, t)]


class Truth:
    """The client's tokens and requests, by the moment that they arrived."""

    def __init__(self, capture: Capture) -> None:
        self.requests = capture.truth
        self.decode: list[tuple[float, float]] = []
        self.prompt: list[tuple[float, float]] = []
        self.cached: list[tuple[float, float]] = []
        self.ended: list[tuple[float, float]] = []
        self.items: list[tuple[float, float]] = []
        for request in capture.truth:
            events: list[list[float]] = request.get("events") or []
            if not events and request.get("output_tokens"):
                events = [[request["t_end"], request["output_tokens"]]]
            self.decode += [(at, tokens) for at, tokens in events]
            aborted = request.get("aborted_by_client")
            # An answer that the client or the server's end cut has no usage: the length that was asked for.
            prompt = request.get("prompt_tokens") or request.get("prompt_len")
            if request.get("t_first") is not None and prompt:
                self.prompt.append((request["t_first"], prompt))
            if (timings := request.get("server_timings")) is not None:
                self.cached.append((request["t_first"], timings["cache_n"]))
            # A refused request ended, too, and one that its client cut; one that the server's end broke off did not.
            cut = request.get("status") == 200 and request.get("error") and not aborted
            if request.get("status") and not cut:
                self.ended.append((request["t_end"], 1.0))
                items = float(request.get("batch") or 0.0) if request["status"] == 200 else 0.0
                self.items.append((request["t_end"], items))
        self._arrived: dict[str, Arrived] = {}

    def tokens(self, of: str, since_s: float, until_s: float) -> float:
        """Tokens (prompts, requests) that arrived in (since, until]."""
        if of not in self._arrived:
            self._arrived[of] = Arrived.of(getattr(self, of))
        arrived = self._arrived[of]
        return arrived.until(until_s) - arrived.until(since_s)

    def in_flight(self, t: float) -> int:
        """Requests that were sent and not answered to their end."""
        return sum(request["t_start"] <= t < (request["t_end"] or t + 1.0) for request in self.requests)

    def ttft_s(self, lives: Sequence[tuple[float, float]]) -> float:
        """Mean time to the first token of the requests that got it then."""
        waits = [
            request["t_first"] - request["t_start"]
            for request in self.requests
            if request.get("t_first") is not None and _within(request["t_first"], lives)
        ]
        return statistics.mean(waits) if waits else NAN

    def itl_s(self, lives: Sequence[tuple[float, float]]) -> float:
        """Mean time between two pieces of an answer: tokens, or with speculation the tokens of one step."""
        spent = gaps = 0.0
        for request in self.requests:
            arrived = [at for at, _ in request.get("events") or () if _within(at, lives)]
            if arrived:
                spent += arrived[-1] - arrived[0]
                gaps += len(arrived) - 1
        return spent / gaps if gaps else NAN


class Beside(NamedTuple):
    """What stands beside the tokens: gpumon's figure and the client's; NaN is none."""

    cached: tuple[float, float]
    requests: tuple[float, float]
    items: tuple[float, float]
    in_flight: tuple[float, float]
    ttft_s: tuple[float, float]
    itl_s: tuple[float, float]
    long_rate: tuple[float, float]
    """Mean decode tokens/s of the whole replay."""


class Result(NamedTuple):
    """How far gpumon was from the truth on one capture; shares of the truth."""

    name: str
    decode: float
    decode_truth: float
    prompt: float
    prompt_truth: float
    rate_errors: tuple[float, ...]
    highest_rate: float
    highest_truth: float
    negative: bool
    kind: str
    live: str
    """When the decode tokens move (`Advance`); empty where there are none."""
    beside: Beside

    @property
    def decode_error(self) -> float:
        """Of the total of generated tokens."""
        return abs(self.decode - self.decode_truth) / self.decode_truth if self.decode_truth else 0.0

    @property
    def prompt_error(self) -> float:
        """Of the total of prompt tokens, cached ones included."""
        return abs(self.prompt - self.prompt_truth) / self.prompt_truth if self.prompt_truth else 0.0

    @property
    def rate_error(self) -> float:
        """The worst 10 s rate of all steady phases."""
        return max(self.rate_errors, default=0.0)


def judge(done: Replay) -> Result:
    """Compare a replay with its truth."""
    truth = Truth(done.capture)
    last = done.ticks[-1].engine.tokens_total
    prompt = sum(_number(part) for part in (last.prefill_computed, last.prefill_cached))
    lives = _lives(done)
    rates = [_number(tick.engine.rates.decode_tokens_per_s) for tick in done.ticks]
    # Shown at 1 s ticks from polls 2 s apart: the truth's highest rate is taken over spans of that length.
    spans = [truth.tokens("decode", at / 2, at / 2 + POLL_S) / POLL_S for at in range(2 * int(done.ticks[-1].t))]
    answered = next((tick.reading for tick in reversed(done.ticks) if tick.reading.live), done.ticks[-1].reading)
    return Result(
        done.name,
        _number(last.decode),
        sum(truth.tokens("decode", *life) for life in lives),
        prompt,
        sum(truth.tokens("prompt", *life) for life in lives),
        tuple(_rate_errors(done, truth)),
        max((tick.decode_tick for tick in done.ticks if tick.decode_tick == tick.decode_tick), default=0.0),
        max(spans, default=0.0),
        any(rate < 0 for rate in rates) or any(tick.decode_tick < 0 for tick in done.ticks),
        answered.kind.value,
        _advance(answered),
        _beside(done, truth, lives),
    )


def _beside(done: Replay, truth: Truth, lives: Sequence[tuple[float, float]]) -> Beside:
    def total(of: str) -> float:
        return sum(truth.tokens(of, *life) for life in lives) if getattr(truth, of) else NAN

    counted = [tick.readings for tick in done.ticks if tick.reading.state is EndpointState.OK]
    means = [
        tick.engine.rates.decode_mean_tokens_per_s for tick in done.ticks if tick.reading.state is EndpointState.OK
    ]
    polled = [tick.reading.monotonic_s for tick in done.ticks if tick.reading.state is EndpointState.OK]
    span_s = polled[-1] - polled[0] if len(lives) == 1 else 0.0
    return Beside(
        cached=(_growth(counted, q.PREFILL_CACHED), total("cached")),
        requests=(_growth(counted, q.REQUESTS), total("ended")),
        items=(_growth(counted, q.INFERENCES), total("items")),
        in_flight=_in_flight(done, truth),
        ttft_s=(_mean(counted, q.TTFT), truth.ttft_s(lives)),
        itl_s=(_mean(counted, q.ITL), truth.itl_s(lives)),
        long_rate=(_number(means[-1]) if means else NAN, total("decode") / span_s if span_s else NAN),
    )


def _advance(reading: EngineReading) -> str:
    if q.DECODE_TOKENS not in reading.live:
        return ""
    moves = reading.advance.get(q.DECODE_TOKENS, Advance.LIVE)
    return Advance.SAMPLED.value if moves is Advance.END and q.DECODE_RATE in reading.live else moves.value


def _number(reading: Reading) -> float:
    return 0.0 if isinstance(reading, Missing) else reading


def _within(t: float, lives: Sequence[tuple[float, float]]) -> bool:
    return any(since_s < t <= until_s for since_s, until_s in lives)


def _in_flight(done: Replay, truth: Truth) -> tuple[float, float]:
    """Mean of running + waiting at the polls, and of what the client had open at these moments."""
    shown, open_ = [], []
    for tick in done.ticks:
        gauges = [rank.gauges for reading in tick.readings for rank in reading.ranks if q.RUNNING in rank.gauges]
        if tick.reading.state is EndpointState.OK and gauges:
            shown.append(sum(each[q.RUNNING] + each.get(q.WAITING, 0.0) for each in gauges))
            open_.append(truth.in_flight(served_at(done, tick.reading.monotonic_s)))
    return (statistics.mean(shown), statistics.mean(open_)) if shown else (NAN, NAN)


def _growth(polls: Sequence[Sequence[EngineReading]], quantity: str) -> float:
    """Growth of a counter over all polls; a fall is a restart. NaN where the engine does not count it."""
    return _grown(polls, lambda reading: {rank.rank: rank.counters.get(quantity, NAN) for rank in reading.ranks})


def _mean(polls: Sequence[Sequence[EngineReading]], quantity: str) -> float:
    def part(name: str) -> Callable[[EngineReading], dict[str, float]]:
        return lambda reading: {
            rank.rank: getattr(rank.histograms[quantity], name) for rank in reading.ranks if quantity in rank.histograms
        }

    count = _grown(polls, part("count"))
    return _grown(polls, part("sum")) / count if count > 0 else NAN


def _grown(polls: Sequence[Sequence[EngineReading]], of: Callable[[EngineReading], dict[str, float]]) -> float:
    before: dict[tuple[str, str], float] = {}
    grown, seen = 0.0, False
    for reading in itertools.chain.from_iterable(polls):
        for rank, value in of(reading).items():
            if value == value:
                last = before.get((reading.key, rank), value if not seen or rank not in {r for _, r in before} else 0.0)
                grown += value - last if value >= last else value
                before[reading.key, rank], seen = value, True
    return grown if seen else NAN


def served_at(done: Replay, monotonic_s: float) -> float:
    """Moment of the recorded scrape that a poll got."""
    return done.capture.at(monotonic_s + done.offset_s).t


def _lives(done: Replay) -> list[tuple[float, float]]:
    """Spans of the capture that the polls covered: from the first (or the engine's start) to the last good one."""
    lives: list[tuple[float, float]] = []
    since_s: float | None = None
    until_s = 0.0
    known = 0.0
    for tick in done.ticks:
        if tick.reading.state is not EndpointState.OK:
            if tick.reading.state is EndpointState.REFUSED and since_s is not None:
                lives.append((since_s, until_s))
                since_s = None
                known = tick.t
            continue
        at_s = served_at(done, tick.reading.monotonic_s)
        if since_s is None:
            since_s = known or at_s
        until_s = at_s
    return [*lives, (since_s, until_s)] if since_s is not None else lives


def _rate_errors(done: Replay, truth: Truth) -> list[float]:
    """Errors of the shown 10 s decode rate at every tick whose window lies inside one phase of load."""
    errors = []
    polls = sorted({tick.reading.monotonic_s for tick in done.ticks if tick.reading.state is EndpointState.OK})
    for tick in done.ticks:
        rate = tick.engine.rates.decode_tokens_per_s
        if isinstance(rate, Missing) or tick.reading.monotonic_s not in polls:
            continue
        newest_s = tick.reading.monotonic_s
        inside = [at for at in polls if newest_s - WINDOW_S - POLL_S / 2 <= at <= newest_s]
        since_s, until_s = served_at(done, inside[0]), served_at(done, newest_s)
        if until_s - since_s < WINDOW_S - 1.5 or not _steady(done.capture, since_s, until_s):
            continue
        expected = truth.tokens("decode", since_s, until_s) / (newest_s - inside[0])
        errors.append(abs(rate - expected) / expected)
    return errors


def _steady(capture: Capture, since_s: float, until_s: float) -> bool:
    events: Sequence[Any] = capture.meta.get("events") or ()
    if any(since_s - 1 <= event["t"] <= until_s for event in events):
        return False
    return any(
        phase["kind"] != "idle" and phase["t0"] <= since_s and until_s <= phase["t0"] + phase["dur"]
        for phase in capture.meta["phases"]
    )
