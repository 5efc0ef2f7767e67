"""Requests of a simulation: their arrivals, their lengths, and groups of them that begin with the same tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

from gpumon.efficiency.ratio import require_not_negative, require_positive

MOST_REQUESTS = 2_000_000
"""Most requests of one simulation: more take minutes and tell nothing new."""


class PlayedRequest(NamedTuple):
    """One request of a simulation, with its lengths in tokens."""

    arrival_s: float
    prompt: int
    """Tokens, cached ones included."""
    answer: int
    cached: int = 0
    """Tokens of the prompt that any replica has in its prefix cache."""
    prefix: tuple[int, ...] = ()
    """Names of the pieces that its prompt begins with, in their order: requests that begin alike have the same first
    ones, and a name stands for all that is before it, too."""
    shared: int = 0
    """Tokens of these pieces together."""
    piece: int = 0
    """Tokens of each piece but the last one, which has the rest; 0: there is one piece at most."""


Draw = Callable[[Random], float]
"""Draws one length."""


def constant(mean: float) -> Draw:
    """A draw of always the same length."""
    return lambda _: mean


def lognormal(mean: float, variation: float) -> Draw:
    """A draw of lengths with a tail: lognormal with this mean; `variation` is the standard deviation / mean."""
    require_positive("mean", mean)
    if require_not_negative("variation", variation) == 0.0:
        return constant(mean)
    sigma = math.sqrt(math.log1p(variation * variation))
    middle = math.log(mean) - sigma * sigma / 2.0
    return lambda random: random.lognormvariate(middle, sigma)


def histogram(bounds: Sequence[float], counts: Sequence[float], mean: float | None = None) -> Draw:
    """A draw of lengths from the buckets of a Prometheus histogram.

    Lengths are even within a bucket; those beyond the last bound are the last bound. `bounds`: upper bounds of the
    buckets in tokens. `counts`: requests in each bucket alone, one more than there are bounds. `mean`: the lengths are
    stretched to have it. Raises ValueError for a histogram without counts.
    """
    if len(counts) != len(bounds) + 1 or sum(counts) <= 0.0:
        raise ValueError("a histogram of lengths needs counts, one more than its bounds")
    cumulative_counts = list(accumulate(counts))
    total = cumulative_counts[-1]
    edges = [0.0, *bounds, bounds[-1]]
    middles = [(low + high) / 2.0 for low, high in pairwise(edges)]
    unscaled_mean = sum(middle * count for middle, count in zip(middles, counts, strict=True)) / total
    scale = mean / require_positive("mean of the histogram", unscaled_mean) if mean is not None else 1.0

    def draw(random: Random) -> float:
        rank = random.random() * total
        bucket = next(number for number, count in enumerate(cumulative_counts) if rank < count)
        return scale * random.uniform(edges[bucket], edges[bucket + 1])

    return draw


class RequestShape(NamedTuple):
    """Lengths and shared beginnings of requests, whenever they arrive."""

    prompt: Draw
    answer: Draw
    hit_ratio: float = 0.0
    """Share of each prompt that is cached on any replica."""
    groups: int = 0
    """Number of groups whose requests begin with the same tokens; 0: none do."""
    shared_tokens: int = 0
    """Tokens that the requests of one group begin with."""
    longest: float = math.inf
    """Most tokens of a prompt and its answer together: the model's context."""

    def draw_request(self, arrival_s: float, random: Random) -> PlayedRequest:
        """Draw one request. One that is too long for the model loses tokens of the prompt, then of the answer."""
        prompt, answer = cut_to_context(round(self.prompt(random)), round(self.answer(random)), self.longest)
        if not self.groups:
            return PlayedRequest(arrival_s, prompt, answer, cached=int(prompt * self.hit_ratio))
        group = random.randrange(self.groups)
        shared = min(self.shared_tokens, prompt)
        return PlayedRequest(arrival_s, prompt, answer, prefix=(group,), shared=shared)


def cut_to_context(prompt: int, answer: int, longest: float) -> tuple[int, int]:
    """Tokens of a prompt and its answer, each one at least, and together at most `longest`: the model's context.

    Those of a request that is too long come off the prompt, then off the answer.
    """
    prompt = max(1, prompt)
    answer = max(1, answer)
    if prompt + answer > longest:
        answer = max(1, min(answer, int(longest) - 1))
        prompt = max(1, int(longest) - answer)
    return prompt, answer


def gap_draw(rate: float, burstiness: float, random: Random) -> Callable[[], float]:
    """A draw of the seconds between two arrivals at a rate in requests per second.

    They have a gamma distribution whose shape is `burstiness`: 1 is Poisson, less comes in bursts, infinite is even.
    """
    require_positive("requests per second", rate)
    require_positive("burstiness", burstiness)
    if math.isinf(burstiness):
        return lambda: 1.0 / rate
    scale = 1.0 / (rate * burstiness)
    return lambda: random.gammavariate(burstiness, scale)


def arrival_kind(burstiness: float) -> str:
    """The distribution of arrivals in words."""
    if burstiness == 1.0:
        return "Poisson"
    return f"gamma with burstiness {burstiness:g}"


def steady(
    rate: float, seconds: float, shape: RequestShape, seed: int, burstiness: float = 1.0, most: int = MOST_REQUESTS
) -> list[PlayedRequest]:
    """Requests at a constant rate in requests per second. Raises ValueError for more than `most` of them."""
    return paced([ArrivalPace(0.0, seconds, rate)], shape, seed, burstiness, most)


class ArrivalPace(NamedTuple):
    """A stretch of time with one rate of arrivals."""

    start_s: float
    end_s: float
    rate: float
    """Requests per second."""


def paced(
    paces: Iterable[ArrivalPace], shape: RequestShape, seed: int, burstiness: float = 1.0, most: int = MOST_REQUESTS
) -> list[PlayedRequest]:
    """Requests at a changing rate. Raises ValueError for more than `most` of them.

    Arrivals are drawn at rate 1 and put on a clock that runs as fast as the rate of the pace, so that a pause between
    two of them may reach over several paces.
    """
    paces = list(paces)
    total = sum((pace.end_s - pace.start_s) * pace.rate for pace in paces)
    if total > most:
        raise ValueError(f"{total:,.0f} requests are too many to simulate: at most {most:,}")
    random = Random(seed)
    draw_gap = gap_draw(1.0, burstiness, random)
    requests = []
    due = draw_gap()  # arrival of the next request, on a clock at rate 1 that begins with each pace
    for pace in paces:
        if pace.rate <= 0.0:
            continue
        expected = (pace.end_s - pace.start_s) * pace.rate
        while due < expected:
            requests.append(shape.draw_request(pace.start_s + due / pace.rate, random))
            due += draw_gap()
        due -= expected
    return requests


class RequestSource:
    """Source of a simulation's requests, which here are all known before the first one is served."""

    counted_from_s = 0.0
    """Arrivals from this time on, in seconds, are counted: before it the load still grows."""
    counted_until_s = math.inf
    """Arrivals before this time are counted: after it the load ends."""

    def __init__(self, requests: Sequence[PlayedRequest]) -> None:
        self._requests = requests

    @property
    def seconds(self) -> float:
        """Seconds until the last arrival."""
        if not self._requests:
            return 0.0
        return self._requests[-1].arrival_s

    def first(self) -> Sequence[PlayedRequest]:
        """The requests that are sent without waiting for an answer."""
        return self._requests

    def after(self, request: PlayedRequest, ended_s: float) -> PlayedRequest | None:  # noqa: ARG002 - a client that waits for nothing
        """The next request of the client whose request ended; None: it sends no more."""
        return None


class Clients(RequestSource):
    """Clients that each hold one request open, and send the next one after the answer and some thought."""

    def __init__(
        self,
        clients: int,
        seconds: float,
        shape: RequestShape,
        seed: int,
        think_s: float = 0.0,
        spread_s: float = 0.0,
        most: int = MOST_REQUESTS,
    ) -> None:
        """`seconds`: time in which requests are sent. `think_s`: mean pause of a client. `spread_s`: the first requests
        come evenly over so many seconds, and are not counted; 0: all at once. `most`: requests of all clients, beyond
        which `after` raises ValueError."""
        self._random = Random(seed)
        self._seconds = seconds
        self._shape = shape
        self._think_s = think_s
        if spread_s > 0.0:
            self.counted_from_s = spread_s
            self.counted_until_s = seconds
        starts = [spread_s * number / clients for number in range(clients)]
        self._most = most
        self._sent = clients
        super().__init__([shape.draw_request(start_s, self._random) for start_s in starts])

    @property
    def seconds(self) -> float:
        """Seconds in which requests are sent."""
        return self._seconds

    def after(self, request: PlayedRequest, ended_s: float) -> PlayedRequest | None:  # noqa: ARG002 - all clients are alike
        """The next request of the client whose request ended at `ended_s`; None once the time is over."""
        pause_s = self._random.expovariate(1.0 / self._think_s) if self._think_s > 0.0 else 0.0
        sent_s = ended_s + pause_s
        if sent_s >= self._seconds:
            return None
        self._sent += 1
        if self._sent > self._most:
            raise ValueError(f"the clients send more than {self._most:,} requests: too many to simulate")
        return self._shape.draw_request(sent_s, self._random)
