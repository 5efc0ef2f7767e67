"""The requests that simulated engines get: arrivals that swell and ebb in slow waves, deterministic from a seed."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Protocol

import msgspec

_BLOCK_TOKENS = 16
"""Tokens of a block of the prefix cache."""
_MOST_CACHED_SHARE = 0.95
"""Share of a prompt that may be cached: every turn of a conversation brings something new."""
_HIT_SHARE_SIGMA = 0.1
"""Standard deviation of the cached share of a returning prompt around `hit_share`."""
_RIPPLE = 0.25
"""Height of the ripple, as a share of the wave's."""
_RIPPLES = 7
"""Ripples in one wave."""
_BEGINNING_S = 10.0
"""Time in which clients begin, one after the other."""


class SimulatedRequest(msgspec.Struct, frozen=True):
    """One request: simulated time of arrival, prompt tokens (of which cached), tokens it will generate."""

    arrival_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish: str = "stop"
    adapter: str = ""
    """LoRA adapter that it names; empty: the base model."""
    fetched_tokens: int = 0
    """Prompt tokens whose KV another engine, or the host's memory, holds: they come over the engine's link."""
    patience_s: float = math.inf
    """Seconds after which its client hangs up, whatever has come by then."""


class LogNormalLengths(msgspec.Struct, frozen=True):
    """A log-normal of token counts, cut to [least, most]."""

    median: float
    sigma: float
    """Standard deviation of the logarithm."""
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        """One length."""
        tokens = round(self.median * math.exp(self.sigma * rng.gauss(0.0, 1.0)))
        return min(self.most, max(self.least, tokens))


class Surge(msgspec.Struct, frozen=True):
    """A time in which the rate is `factor` times as high; it comes again every `every_s`."""

    from_s: float
    to_s: float
    factor: float
    every_s: float = math.inf

    def holds(self, at_s: float) -> bool:
        """Whether it is on at a moment."""
        in_period_s = at_s if math.isinf(self.every_s) else at_s % self.every_s
        return self.from_s <= in_period_s < self.to_s

    def lasts_for_good(self, at_s: float) -> bool:
        """Whether it is on at a moment, and at all later ones."""
        return self.from_s <= at_s and math.isinf(self.to_s)


class Patience(msgspec.Struct, frozen=True):
    """A share of the requests sent from one moment to another is given up after `seconds`."""

    from_s: float
    to_s: float
    seconds: float
    share: float = 1.0


class TrafficDemand(msgspec.Struct, frozen=True):
    """The traffic of one rank.

    The rate is `requests_per_s` x (1 + swing x a wave of `period_s`), with `_RIPPLES` small ones on it: a day in
    minutes. A share `returning` of the requests goes on with an earlier conversation: of their prompt, `hit_share`
    is in the prefix cache. The cached blocks belong to that conversation alone, so no two running requests share one.
    """

    requests_per_s: float
    prompt: LogNormalLengths
    output: LogNormalLengths
    swing: float = 0.4
    period_s: float = 900.0
    phase: float = 0.0
    """Place of time zero in the wave, in turns."""
    returning: float = 0.0
    hit_share: float = 0.0
    relearn_s: float = 0.0
    """A new process has an empty prefix cache: the share that is in it grows back with this time constant."""
    surges: tuple[Surge, ...] = ()
    singles: tuple[tuple[float, int, int], ...] = ()
    """Requests beside all this: when each arrives, its prompt and its answer."""
    batches: tuple[tuple[float, int], ...] = ()
    """Jobs that send all their requests at one moment: when, and how many. Lengths as of the others."""
    hit_surges: tuple[Surge, ...] = ()
    """When `hit_share` is `factor` times as high: a router that sends conversations elsewhere makes it fall."""
    adapters: int = 0
    """LoRA adapters that the requests name, each as often as the others; 0: none does."""
    clients: int = 0
    """Clients that send their next request when the last one is answered, in the place of `requests_per_s`, which is 0
    then."""
    fetched_share: float = 0.0
    """Share of the prompt beyond the cached tokens whose KV comes over the engine's link."""
    patience: tuple[Patience, ...] = ()

    @property
    def most_per_s(self) -> float:
        """An upper bound of the rate."""
        factors = [surge.factor for surge in self.surges]
        return self.requests_per_s * (1.0 + (1.0 + _RIPPLE) * self.swing) * max(1.0, *factors, 1.0)

    def rate_per_s(self, at_s: float) -> float:
        """The rate of arrivals at a moment."""
        turn = at_s / self.period_s + self.phase
        wave = math.sin(2 * math.pi * turn) + _RIPPLE * math.sin(_RIPPLES * 2 * math.pi * turn)
        factor = _surge_factor(self.surges, at_s)
        return max(0.0, factor * self.requests_per_s * (1.0 + self.swing * wave))

    def hit_share_at(self, at_s: float) -> float:
        """The mean share of a returning prompt that is in the prefix cache."""
        return self.hit_share * _surge_factor(self.hit_surges, at_s)

    def patience_at(self, at_s: float) -> Patience | None:
        """How long the clients of requests sent at `at_s` wait, and how many of them; None: for ever, all of them."""
        present = [patience for patience in self.patience if patience.from_s <= at_s < patience.to_s]
        return min(present, key=attrgetter("seconds"), default=None)


def _surge_factor(surges: Iterable[Surge], at_s: float) -> float:
    """Factor of the surges that hold at a moment."""
    factor = 1.0
    for surge in surges:
        if surge.holds(at_s):
            factor *= surge.factor
    return factor


class ArrivalQueue(Protocol):
    """Requests in order of arrival."""

    def next_s(self) -> float:
        """When the next request arrives; infinity if none does."""

    def take(self) -> SimulatedRequest:
        """Take the next request out, and return it."""

    def answered(self, at_s: float) -> None:
        """An answer has ended: a client that waited for it may ask again."""


class Handover:
    """The requests that one engine has prefilled, as they reach the engine that decodes them."""

    def __init__(self) -> None:
        self._requests: deque[SimulatedRequest] = deque()

    def put(self, request: SimulatedRequest) -> None:
        """Send a request on to the engine that decodes it."""
        self._requests.append(request)

    def next_s(self) -> float:
        """When the next request arrives; infinity as long as none was sent on."""
        if self._requests:
            return self._requests[0].arrival_s
        return math.inf

    def take(self) -> SimulatedRequest:
        """The next request."""
        return self._requests.popleft()

    def answered(self, at_s: float) -> None:
        """Nothing follows from an answer here: who asks is the engine that prefills."""


class Traffic:
    """Poisson arrivals at the rate of a `TrafficDemand`, from `start_s` on."""

    def __init__(self, demand: TrafficDemand, seed: int, start_s: float) -> None:
        self._demand = demand
        self._rng = random.Random(seed)
        self._start_s = start_s
        self._next_s = start_s
        self._most_per_s = demand.most_per_s
        self._due_impatience = 0.0
        """Clients who give up that are due: each request adds its share, and one gives up at each whole."""
        singles = [
            (at_s, prompt, output)
            for at_s, prompt, output in (*demand.singles, *_batch_requests(demand, seed))
            if at_s >= start_s
        ]
        self._singles = deque(sorted(singles))
        """Requests of single moments, as in `TrafficDemand.singles`."""
        self._clients_s = deque(start_s + _BEGINNING_S * client / demand.clients for client in range(demand.clients))
        """When each of the clients that wait for no answer asks next, in order."""
        self._draw_arrival()

    def next_s(self) -> float:
        """When the next request arrives; infinity if none does."""
        next_s = self._next_s
        if self._singles:
            next_s = min(next_s, self._singles[0][0])
        if self._clients_s:
            next_s = min(next_s, self._clients_s[0])
        return next_s

    def answered(self, at_s: float) -> None:
        """Let a client ask again at once: it does not matter whose answer it was, as all ask alike."""
        if len(self._clients_s) < self._demand.clients:
            self._clients_s.append(at_s)

    def take(self) -> SimulatedRequest:
        """The next request."""
        if self._singles and self._singles[0][0] <= self._next_s:
            at_s, prompt, output = self._singles.popleft()
            return SimulatedRequest(at_s, prompt_tokens=prompt, cached_tokens=0, output_tokens=output)
        if self._clients_s and self._clients_s[0] <= self._next_s:
            return self._drawn_request(self._clients_s.popleft())
        request = self._drawn_request(self._next_s)
        self._draw_arrival()
        return request

    def _drawn_request(self, at_s: float) -> SimulatedRequest:
        """A request that arrives at a moment, with lengths of the demand."""
        demand = self._demand
        rng = self._rng
        # The order of the draws is fixed: the same seed gives the same play.
        prompt = demand.prompt.draw(rng)
        cached = self._draw_cached(prompt, at_s)
        output = demand.output.draw(rng)
        adapter = f"adapter-{rng.randrange(demand.adapters):02d}" if demand.adapters else ""
        return SimulatedRequest(
            arrival_s=at_s,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            finish="length" if output == demand.output.most else "stop",
            adapter=adapter,
            fetched_tokens=int(demand.fetched_share * (prompt - 1 - cached)),
            patience_s=self._patience_s(at_s),
        )

    def _patience_s(self, at_s: float) -> float:
        """Seconds that the client of the next request waits; infinity: for ever."""
        patience = self._demand.patience_at(at_s)
        if patience is None:
            return math.inf
        self._due_impatience += patience.share
        if self._due_impatience < 1.0:
            return math.inf
        self._due_impatience -= 1.0
        return patience.seconds

    def _draw_cached(self, prompt: int, at_s: float) -> int:
        """Draw how many tokens of a prompt are in the prefix cache: whole blocks, and never all of it."""
        demand = self._demand
        rng = self._rng
        if rng.random() >= demand.returning:
            return 0
        relearned_share = 1.0 - math.exp((self._start_s - at_s) / demand.relearn_s) if demand.relearn_s else 1.0
        share = relearned_share * rng.gauss(demand.hit_share_at(at_s), _HIT_SHARE_SIGMA)
        cached = int(prompt * min(_MOST_CACHED_SHARE, max(0.0, share))) // _BLOCK_TOKENS * _BLOCK_TOKENS
        return min(cached, prompt - 1)

    def _draw_arrival(self) -> None:
        """Draw the moment of the next request.

        Moments are drawn at the highest rate, and each is kept with the chance `rate_per_s` / `most_per_s` (thinning).
        """
        most_per_s = self._most_per_s
        if most_per_s <= 0.0:
            self._next_s = math.inf
            return
        while True:
            # Thinning would never end where no request comes any more.
            if any(surge.factor == 0.0 and surge.lasts_for_good(self._next_s) for surge in self._demand.surges):
                self._next_s = math.inf
                return
            self._next_s += self._rng.expovariate(most_per_s)
            if self._rng.random() * most_per_s <= self._demand.rate_per_s(self._next_s):
                return


def _batch_requests(demand: TrafficDemand, seed: int) -> list[tuple[float, int, int]]:
    """Arrival, prompt and answer of each request of the batches."""
    rng = random.Random(f"batch {seed}")
    arrivals_s = [at_s for at_s, count in demand.batches for _ in range(count)]
    return [(at_s, demand.prompt.draw(rng), demand.output.draw(rng)) for at_s in arrivals_s]
