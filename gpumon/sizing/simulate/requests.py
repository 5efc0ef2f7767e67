"""Requests that a simulation plays: when they arrive, how long they are, and which of them begin alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

from gpumon.efficiency.ratio import require_not_negative, require_positive

MOST_REQUESTS = 2_000_000
"""Requests of one simulation: more take minutes and tell nothing new."""


class PlayedRequest(NamedTuple):
    """One request."""

    arrival_s: float
    prompt: int
    """Tokens, cached ones included."""
    answer: int
    """Tokens."""
    cached: int = 0
    """Tokens of the prompt that any replica has in its prefix cache."""
    group: int = -1
    """Requests of one group begin with the same `shared` tokens, which a replica has that served one of them; -1: no
    group."""
    shared: int = 0


Draw = Callable[[Random], float]
"""Draws one length."""


def constant(mean: float) -> Draw:
    """A length that is always the same."""
    return lambda _: mean


def lognormal(mean: float, variation: float) -> Draw:
    """Lengths with a tail: lognormal with this mean and this standard deviation over the mean."""
    require_positive("mean", mean)
    if require_not_negative("variation", variation) == 0.0:
        return constant(mean)
    sigma = math.sqrt(math.log1p(variation * variation))
    middle = math.log(mean) - sigma * sigma / 2.0
    return lambda random: random.lognormvariate(middle, sigma)


def histogram(bounds: Sequence[float], counts: Sequence[float], mean: float | None = None) -> Draw:
    """Lengths from the buckets of a Prometheus histogram: evenly within a bucket, the last bound beyond it.

    `counts` are those of each bucket alone, one more than there are bounds. `mean`: the lengths are stretched to have
    it. ValueError on a histogram without counts.
    """
    if len(counts) != len(bounds) + 1 or sum(counts) <= 0.0:
        raise ValueError("a histogram of lengths needs counts, one more than its bounds")
    sums = list(accumulate(counts))
    edges = [0.0, *bounds, bounds[-1]]
    middles = [(low + high) / 2.0 for low, high in pairwise(edges)]
    drawn = sum(middle * count for middle, count in zip(middles, counts, strict=True)) / sums[-1]
    if mean is None:
        scale = 1.0
    else:
        scale = mean / require_positive("mean of the histogram", drawn)

    def draw(random: Random) -> float:
        at = random.random() * sums[-1]
        bucket = next(number for number, total in enumerate(sums) if at < total)
        return scale * random.uniform(edges[bucket], edges[bucket + 1])

    return draw


class RequestShape(NamedTuple):
    """How requests look, whenever they arrive."""

    prompt: Draw
    answer: Draw
    hit_ratio: float = 0.0
    """Share of each prompt that is cached on any replica."""
    groups: int = 0
    """Number of groups whose requests begin alike; 0: none do."""
    shared_tokens: int = 0
    """Tokens that the requests of one group begin with."""
    longest: float = math.inf
    """Tokens of a prompt and its answer together that the model takes."""

    def request(self, arrival_s: float, random: Random) -> PlayedRequest:
        """One request."""
        prompt = max(1, round(self.prompt(random)))
        answer = max(1, round(self.answer(random)))
        if prompt + answer > self.longest:
            answer = max(1, min(answer, int(self.longest) - 1))
            prompt = max(1, int(self.longest) - answer)
        if not self.groups:
            return PlayedRequest(arrival_s, prompt, answer, int(prompt * self.hit_ratio))
        group = random.randrange(self.groups)
        return PlayedRequest(arrival_s, prompt, answer, 0, group, min(self.shared_tokens, prompt))


def gaps(rate: float, burstiness: float, random: Random) -> Callable[[], float]:
    """Seconds between two arrivals: gamma with this shape, so that 1 is Poisson and less comes in bursts."""
    require_positive("requests per second", rate)
    require_positive("burstiness", burstiness)
    if math.isinf(burstiness):
        return lambda: 1.0 / rate
    scale = 1.0 / (rate * burstiness)
    return lambda: random.gammavariate(burstiness, scale)


def steady(
    rate: float, seconds: float, shape: RequestShape, seed: int, burstiness: float = 1.0, most: int = MOST_REQUESTS
) -> list[PlayedRequest]:
    """Requests of a constant rate. ValueError on more than `most` of them."""
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
    """Requests whose rate changes: arrivals of rate 1 on a clock that runs as fast as the rate at each moment.

    ValueError on more than `most` requests.
    """
    stretches = list(paces)
    total = sum((pace.end_s - pace.start_s) * pace.rate for pace in stretches)
    if total > most:
        raise ValueError(f"{total:,.0f} requests are too many to simulate: at most {most:,}")
    random = Random(seed)
    gap = gaps(1.0, burstiness, random)
    requests = []
    due = gap()
    for pace in stretches:
        if pace.rate <= 0.0:
            continue
        expected = (pace.end_s - pace.start_s) * pace.rate
        while due < expected:
            requests.append(shape.request(pace.start_s + due / pace.rate, random))
            due += gap()
        due -= expected
    return requests


class RequestSource:
    """Requests that are known before the first one is served."""

    counted_from_s = 0.0
    counted_until_s = math.inf
    """Arrivals between these times are counted: not those of a load that still grows, or that ends."""

    def __init__(self, requests: Sequence[PlayedRequest]) -> None:
        self._requests = requests

    def first(self) -> Sequence[PlayedRequest]:
        """Requests that do not wait for an answer."""
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
        """`spread_s`: the first requests come evenly over so many seconds, and are not counted; 0: all at once. `most`:
        requests of all clients, beyond which `after` raises ValueError."""
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
        super().__init__([shape.request(start_s, self._random) for start_s in starts])

    def _pause_s(self) -> float:
        if self._think_s > 0.0:
            return self._random.expovariate(1.0 / self._think_s)
        return 0.0

    def after(self, request: PlayedRequest, ended_s: float) -> PlayedRequest | None:  # noqa: ARG002 - all clients are alike
        """The next request, as long as the simulated time lasts."""
        sent_s = ended_s + self._pause_s()
        if sent_s >= self._seconds:
            return None
        self._sent += 1
        if self._sent > self._most:
            raise ValueError(f"the clients send more than {self._most:,} requests: too many to simulate")
        return self._shape.request(sent_s, self._random)
