"""One simulated vLLM server: its ranks, and what its HTTP paths answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpumon.sources.simulator.engine_model import EngineModel, Meter
from gpumon.sources.simulator.gpus import Pace, Work, work_between
from gpumon.sources.simulator.scenario import Actor, EngineEffect, boundaries, lasting
from gpumon.sources.simulator.server import NOT_FOUND, Answer
from gpumon.sources.simulator.traffic import Traffic
from gpumon.sources.simulator.vllm_page import MetricsPage

ASLEEP_VRAM = 0.03
"""Share of its memory that a vLLM worker keeps while it sleeps: context, CUDA graphs, NCCL buffers."""


class SimulatedEngine:
    """The ranks of an `Actor`, on simulated time that begins at `start_s` (its wall time is `started_wall_s`)."""

    def __init__(
        self, actor: Actor, seed: int, start_s: float, started_wall_s: float, effects: tuple[EngineEffect, ...] = ()
    ) -> None:
        self.actor = actor
        self.up = True
        """It listens."""
        self.mute = False
        """It takes connections and answers none of them."""
        self._seed = seed
        self._begun = (start_s, started_wall_s)
        self._effects = tuple(effect for effect in effects if effect.engine == actor.name)
        self._changes = boundaries(self._effects)
        self._now: list[EngineEffect] = []
        """The effects of this moment."""
        self._at_s = self._seen_s = start_s
        self._start(start_s)

    def _start(self, at_s: float) -> None:
        """A new process, with empty counters."""
        actor, (start_s, wall_s) = self.actor, self._begun
        self._started_wall_s = wall_s + at_s - start_s
        self.ranks = tuple(
            EngineModel(actor.instance, actor.limits, Traffic(demand, number, at_s), at_s, actor.held)
            for number, demand in enumerate(actor.demands, self._seed * 100)
        )
        self._paces = (Pace(),) * len(self.ranks)
        self._seen = (Meter(),) * len(self.ranks)
        self._page = MetricsPage(actor, self.ranks, self._started_wall_s)

    def advance(self, to_s: float) -> None:
        """Let all ranks work until `to_s`; a time that is past already changes nothing."""
        while self._changes and self._changes[0] <= to_s:
            at_s = self._changes.pop(0)
            self._advance(at_s)
            self._change(at_s)
        self._advance(to_s)

    def _advance(self, to_s: float) -> None:
        self._at_s = max(self._at_s, to_s)
        if self.up:
            for rank in self.ranks:
                rank.advance(self._at_s)

    def _change(self, at_s: float) -> None:
        """Begin and end what happens at this moment."""
        before, self._now = self._now, lasting(self._effects, at_s)
        asleep = any(effect.asleep for effect in self._now)
        self.up = not any(effect.down or effect.loading for effect in self._now)
        self.mute = any(effect.mute for effect in self._now)
        if not self._now and not all(effect.asleep for effect in before):
            self._start(at_s)
        for rank in self.ranks:
            rank.asleep = asleep
            if self._now and self.up and not asleep:
                rank.hang(at_s)

    @property
    def vram_share(self) -> float:
        """How much of its memory its processes hold: none where they are gone, more and more while they load."""
        for effect in self._now:
            if effect.down:
                return 0.0
            if effect.loading:
                weights = self.actor.shape.file_bytes / (len(self.actor.gpus) * self.actor.chip.memory_bytes)
                return max(0.01, weights * (self._at_s - effect.from_s) / (effect.to_s - effect.from_s))
            if effect.asleep:
                return ASLEEP_VRAM
        return 1.0

    def works(self, pace: Callable[[int], Pace]) -> dict[int, Work]:
        """What each of its GPUs did on average since the last call.

        The GPUs of a rank go at the pace of the slowest: the others wait for it in the all-reduce.
        """
        seconds, self._seen_s = self._at_s - self._seen_s, self._at_s
        if not self.up or seconds <= 0.0:
            return {}
        if any(effect.spinning for effect in self._now):
            return {gpu: Work(busy_ratio=1.0) for gpu in self.actor.gpus}
        works: dict[int, Work] = {}
        meters, paces = self.meters(), []
        for gpus, rank, before, meter in zip(self.actor.ranks, self.ranks, self._seen, meters, strict=True):
            work = work_between(rank.instance, before, meter, seconds)
            slowest = Pace(min(pace(gpu).clock for gpu in gpus), max(pace(gpu).others for gpu in gpus))
            for gpu in gpus:
                waits = slowest.clock / pace(gpu).clock
                works[gpu] = msgspec.structs.replace(work, kernel_ratio=work.kernel_ratio * waits)
            paces.append(slowest)
        self._seen = meters
        self._slow_to(tuple(paces))
        return works

    def _slow_to(self, paces: tuple[Pace, ...]) -> None:
        """Arithmetic goes with the SM clock, the memory has a clock of its own; another program takes of both."""
        if paces == self._paces:
            return
        self._paces = paces
        instance, speed = self.actor.instance, self.actor.speed
        for rank, (clock, others) in zip(self.ranks, paces, strict=True):
            left = 1.0 - 0.5 * others
            slower = msgspec.structs.replace(
                speed, flops_share=speed.flops_share * clock * left, bytes_share=speed.bytes_share * left
            )
            rank.instance = msgspec.structs.replace(instance, speed=slower)

    def meters(self) -> tuple[Meter, ...]:
        """What each rank has done."""
        return tuple(rank.meter(self._at_s) for rank in self.ranks)

    def answer(self, path: str) -> Answer:
        """What the server says to GET `path`."""
        if path == "/metrics":
            return Answer(200, "text/plain; version=1.0.0; charset=utf-8", self._page.text().encode())
        if path == "/version":
            return Answer(200, "application/json", msgspec.json.encode({"version": self.actor.version}))
        if path == "/v1/models":
            return Answer(200, "application/json", msgspec.json.encode({"object": "list", "data": [self._model()]}))
        return Answer(200, "", b"") if path == "/health" else NOT_FOUND

    def _model(self) -> dict[str, object]:
        return {
            "id": self.actor.model,
            "object": "model",
            "created": int(self._started_wall_s),
            "owned_by": "vllm",
            "root": self.actor.model,
            "parent": None,
            "max_model_len": self.actor.max_model_len,
        }
