"""The traffic of a trace: its requests as they are played, faster, more or fewer of them, or at a typed rate."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from random import Random
from typing import Final, NamedTuple

from gpumon.sizing.simulate.requests import MOST_REQUESTS, PlayedRequest, arrival_kind, cut_to_context, gap_draw
from gpumon.sizing.traces.trace import Trace, TracedRequest

_PEAK_STEP_S: Final = 60.0
"""Seconds of a step in which arrivals are counted for the rate of a plan."""
_PEAK_SHARE: Final = 0.95
"""Share of these steps that have no higher rate."""


class TraceTraffic(NamedTuple):
    """The traffic of a trace. Its requests come by rising arrival, the first one at time 0 or later."""

    arrivals: tuple[TracedRequest, ...]
    piece: int
    """Tokens of one piece of a prefix; 0: prefixes are not played."""
    basis: str
    """Source of the lengths, as a note says it."""
    notes: tuple[str, ...] = ()
    timing: str = "as recorded"
    """Source of the times, as the arrivals are told: `2,000 requests as recorded in 600 s`."""
    hit_ratio: float | None = None
    """Share of each prompt that is cached on any replica, as typed; None: hits are those of the prefixes."""

    @property
    def requests(self) -> float:
        """Number of its requests."""
        return float(len(self.arrivals))

    @property
    def seconds(self) -> float:
        """Seconds from its begin to the last arrival."""
        return self.arrivals[-1].arrival_s

    @property
    def has_prefixes(self) -> bool:
        """Whether its requests say what they begin with."""
        return self.piece > 0 and self.hit_ratio is None

    @property
    def peak_rate(self) -> float:
        """Requests per second of the p95 of its minutes; of the whole where it lasts less than two."""
        if self.seconds < 2.0 * _PEAK_STEP_S:
            return self.requests / max(self.seconds, 1.0)
        minutes = int(self.seconds // _PEAK_STEP_S)  # the last one is not whole
        counts = Counter(int(request.arrival_s // _PEAK_STEP_S) for request in self.arrivals)
        by_rate = sorted(count for minute, count in counts.items() if minute < minutes)
        higher = minutes - 1 - int(_PEAK_SHARE * (minutes - 1))
        peak = by_rate[-1 - higher] if higher < len(by_rate) else 0
        return max(peak / _PEAK_STEP_S, self.requests / self.seconds)

    @property
    def mean_prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(request.prompt for request in self.arrivals) / len(self.arrivals)

    @property
    def mean_answer(self) -> float:
        """Mean tokens of an answer."""
        return sum(request.answer for request in self.arrivals) / len(self.arrivals)

    @property
    def most_hits(self) -> float:
        """Share of the prompt tokens that one prefix cache without limit would have."""
        seen: set[int] = set()
        hits = 0
        for request in self.arrivals:
            known = sum(1 for name in request.prefix if name in seen)
            hits += min(known * self.piece, request.prompt - 1)
            seen.update(request.prefix)
        return hits / sum(request.prompt for request in self.arrivals)

    def played(self, longest: float, seconds: float | None) -> list[PlayedRequest]:
        """The requests of the first `seconds` (None: all), each of at most `longest` tokens: the model's context."""
        requests = []
        for request in self.arrivals:
            if seconds is not None and request.arrival_s >= seconds:
                break
            requests.append(self._played_request(request, longest))
        return requests

    def _played_request(self, request: TracedRequest, longest: float) -> PlayedRequest:
        """One request, with its beginning in pieces where these are known."""
        prompt, answer = cut_to_context(request.prompt, request.answer, longest)
        if not self.has_prefixes:
            return PlayedRequest(request.arrival_s, prompt, answer, cached=int(prompt * (self.hit_ratio or 0.0)))
        shared = min(prompt, len(request.prefix) * self.piece)
        prefix = request.prefix[: -(-shared // self.piece)]
        return PlayedRequest(request.arrival_s, prompt, answer, prefix=prefix, shared=shared, piece=self.piece)


def traffic_of_trace(trace: Trace, name: str, *, time_scale: float, rate_factor: float, seed: int) -> TraceTraffic:
    """The traffic of a trace with times.

    `time_scale`: each time is so many times later, 2 for half the rate; `rate_factor`: so many times the requests in
    the same time. Those that are added copy the lengths of a request of the trace, come before the next one of it, and
    share their prefixes with other copies of the same number alone: they are of other users.

    Raises ValueError where these are too many requests, or none.
    """
    requests = trace.requests
    _check_count(len(requests) * rate_factor)
    if rate_factor != 1.0:
        requests = _multiplied(requests, rate_factor, Random(seed))
        if not requests:
            raise ValueError("no request is left of the trace: give a higher --rate-factor")
    if time_scale != 1.0:
        requests = tuple(request._replace(arrival_s=request.arrival_s * time_scale) for request in requests)
    timing = "as recorded"
    if rate_factor != 1.0:
        timing += f", {rate_factor:g} times as many,"
    if time_scale != 1.0:
        timing += f", at {time_scale:g} times the time,"
    return TraceTraffic(requests, trace.piece, f"{name} ({trace.kind})", trace.notes, timing)


def traffic_at_rate(
    trace: Trace, name: str, *, rate: float, seconds: float, burstiness: float, seed: int
) -> TraceTraffic:
    """The lengths of a trace in its order, again and again, with arrivals at a rate in requests per second.

    Raises ValueError where no request arrives in the time, or too many.
    """
    _check_count(rate * seconds)
    draw_gap = gap_draw(rate, burstiness, Random(seed))
    requests = []
    arrival_s = draw_gap()
    for request in cycle(trace.requests):
        if arrival_s >= seconds:
            break
        requests.append(request._replace(arrival_s=arrival_s))
        arrival_s += draw_gap()
    if not requests:
        raise ValueError("no request arrives in the simulated time: give a longer one (--duration)")
    timing = f"at {rate:g} requests/s, {arrival_kind(burstiness)},"
    return TraceTraffic(tuple(requests), trace.piece, f"{name} ({trace.kind})", trace.notes, timing)


def _check_count(requests: float) -> None:
    """Raise ValueError for more requests than a simulation has."""
    if requests > MOST_REQUESTS:
        raise ValueError(f"{requests:,.0f} requests are too many to simulate: at most {MOST_REQUESTS:,}")


def _multiplied(requests: tuple[TracedRequest, ...], factor: float, random: Random) -> tuple[TracedRequest, ...]:
    """So many times the requests in the same time; each one with its chance where the factor is no whole number."""
    names = 1 + max((max(request.prefix, default=0) for request in requests), default=0)
    multiplied = []
    for number, request in enumerate(requests):
        copies = int(factor) + (random.random() < factor % 1.0)
        following_s = requests[min(number + 1, len(requests) - 1)].arrival_s
        for copy in range(copies):
            arrival_s = random.uniform(request.arrival_s, following_s) if copy else request.arrival_s
            prefix = tuple(name + copy * names for name in request.prefix)
            multiplied.append(request._replace(arrival_s=arrival_s, prefix=prefix))
    return tuple(sorted(multiplied, key=lambda request: request.arrival_s))
