"""A simulated vLLM server under a staircase of concurrency: closed loops of clients, pages as text, the truth known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.demo.engine_model import EngineModel
from gpumon.demo.scenario import Actor
from gpumon.demo.scenarios import DEMO
from gpumon.demo.traffic import LogNormalLengths, SimulatedRequest
from gpumon.demo.vllm_page import VllmPage
from tests.accuracy.pages import WALL_S, Page
from tests.records import replace

ACTORS = {actor.name: actor for actor in DEMO.cast}
PROMPT, ANSWER = LogNormalLengths(900.0, 0.5, 32, 8000), LogNormalLengths(250.0, 0.5, 16, 1500)


class Level(NamedTuple):
    """So many clients, each with one request in flight at all times, until `end_s`."""

    end_s: float
    clients: int


class Closed:
    """Arrivals of a closed loop: a client asks again as soon as it was answered."""

    def __init__(
        self, levels: Sequence[Level], seed: int, prompt: LogNormalLengths, answer: LogNormalLengths, hit: float
    ) -> None:
        self.levels = tuple(levels)
        self.model: EngineModel | None = None
        self.then_s = self.now_s = 0.0
        """The model has come to the first, and goes on to the second."""
        self._rng = random.Random(seed)
        self._lengths = prompt, answer
        self._hit = hit

    def next_s(self) -> float:
        """A moment that is past where a client is free, else when more clients come."""
        model = self.model
        assert model is not None
        for at, level in enumerate(self.levels):
            if self.now_s < level.end_s:
                if model.running + model.waiting < level.clients:
                    return self.then_s
                steps = zip(self.levels[at:], self.levels[at + 1 :], strict=False)
                return next((one.end_s for one, after in steps if after.clients > one.clients), math.inf)
        return math.inf

    def answered(self, at_s: float) -> None:
        """Nothing to note: `next_s` looks how many clients wait for an answer."""

    def take(self) -> SimulatedRequest:
        """One request, asked in the 20 ms in which its client was free."""
        prompt, answer = (lengths.draw(self._rng) for lengths in self._lengths)
        return SimulatedRequest(self.then_s, prompt, int(prompt * self._hit) // 16 * 16, answer)


class Truth(NamedTuple):
    """What the physics did at one level: mean sequences that decoded, and the mean gap between tokens."""

    decoding: float
    itl_s: float


class Staircase:
    """One simulated engine, walked up the stairs. `pages` must be used up before `truth` is asked."""

    def __init__(
        self,
        actor: Actor,
        levels: Sequence[tuple[float, int]],
        *,
        seed: int = 1,
        prompt: LogNormalLengths = PROMPT,
        answer: LogNormalLengths = ANSWER,
        hit: float = 0.0,
        max_num_seqs: int = 256,
    ) -> None:
        self.actor = replace(actor, max_num_seqs=max_num_seqs)
        ends, at_s = [], 0.0
        for seconds, clients in levels:
            at_s += seconds
            ends.append(Level(at_s, clients))
        self.levels = tuple(ends)
        self._arrivals = Closed(self.levels, seed, prompt, answer, hit)
        self.model = EngineModel(self.actor.instance, self.actor.limits, self._arrivals)
        self._arrivals.model = self.model
        self._page = VllmPage(self.actor, [self.model], WALL_S - 600.0)
        self._truth: dict[int, Truth] = {}

    def pages(self, every_s: float = 2.0) -> Iterator[Page]:
        """The metrics page every so often, from the first level to the end of the last."""
        at_s, start_s = 0.0, 0.0
        for level in self.levels:
            settled = start_s + (level.end_s - start_s) / 4
            before: tuple[float, float, float] | None = None
            while at_s < level.end_s:
                self._advance(at_s)
                gaps = self.model.counters.itl
                if before is None and at_s >= settled:
                    before = (at_s, gaps.total, gaps.count)
                if before is not None and at_s > before[0]:
                    self._truth[level.clients] = self._measured(before, at_s)
                yield Page(at_s, self._page.text().encode())
                at_s += every_s
            start_s = level.end_s

    def truth(self, clients: int) -> Truth:
        """Of the level with so many clients, its first quarter left out."""
        return self._truth[clients]

    def _advance(self, to_s: float) -> None:
        """In small steps, so that a client that is free asks again at once and not at the next poll."""
        while self._arrivals.now_s < to_s:
            self._arrivals.then_s = self._arrivals.now_s
            self._arrivals.now_s = min(to_s, self._arrivals.now_s + 0.02)
            self.model.advance(self._arrivals.now_s)

    def _measured(self, before: tuple[float, float, float], at_s: float) -> Truth:
        gaps = self.model.counters.itl
        total, count = gaps.total - before[1], gaps.count - before[2]
        return Truth(total / (at_s - before[0]), total / count)
