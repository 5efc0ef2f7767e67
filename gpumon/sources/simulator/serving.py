"""One simulated vLLM server: its ranks, what its HTTP paths answer, and the truth about its work."""

from __future__ import annotations

import msgspec

from gpumon.sources.simulator.cast import Actor
from gpumon.sources.simulator.engine_model import EngineModel, Meter
from gpumon.sources.simulator.pages import MetricsPage
from gpumon.sources.simulator.server import Answer
from gpumon.sources.simulator.traffic import Traffic

_NOT_FOUND = Answer(404, "application/json", b'{"detail":"Not Found"}')


class EngineTruth(msgspec.Struct, frozen=True):
    """What an engine has done since the simulation began, all ranks together; the difference of two gives rates."""

    at_s: float
    flops: float
    model_bytes: float
    """Read from HBM: weights once per step, and the KV of every sequence."""
    dram_bytes: float
    """All HBM traffic, activations included."""
    prefill_tokens: int
    """Computed, booked at the first token of the request."""
    cached_tokens: int
    decode_tokens: int
    steps: float
    busy_s: float
    """Of all ranks, added up."""
    peak_flops_per_s: float
    peak_bytes_per_s: float


class SimulatedEngine:
    """The ranks of an `Actor`, on simulated time that begins at `start_s` (its wall time is `started_wall_s`)."""

    def __init__(self, actor: Actor, seed: int, start_s: float, started_wall_s: float) -> None:
        self.actor = actor
        self.ranks = tuple(
            EngineModel(actor.instance, actor.limits, Traffic(actor.demand, seed * 100 + number, start_s), start_s)
            for number in range(len(actor.ranks))
        )
        self._at_s = start_s
        self._started_wall_s = started_wall_s
        self._page = MetricsPage(actor, self.ranks, started_wall_s)

    def advance(self, to_s: float) -> None:
        """Let all ranks work until `to_s`; a time that is past already changes nothing."""
        self._at_s = max(self._at_s, to_s)
        for rank in self.ranks:
            rank.advance(self._at_s)

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
        return Answer(200, "", b"") if path == "/health" else _NOT_FOUND

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

    def truth(self) -> EngineTruth:
        """What it has really done until the last `advance`."""
        meters = self.meters()
        counters = [rank.counters for rank in self.ranks]
        instance = self.actor.instance
        count = len(self.ranks)
        return EngineTruth(
            at_s=self._at_s,
            flops=sum(meter.flops for meter in meters),
            model_bytes=sum(meter.weight_bytes + meter.kv_bytes for meter in meters),
            dram_bytes=sum(meter.dram_bytes for meter in meters),
            prefill_tokens=sum(each.prompt_tokens - each.cached_tokens for each in counters),
            cached_tokens=sum(each.cached_tokens for each in counters),
            decode_tokens=sum(each.generation_tokens for each in counters),
            steps=sum(meter.steps for meter in meters),
            busy_s=sum(meter.busy_s for meter in meters),
            peak_flops_per_s=instance.peak_flops_per_s * count,
            peak_bytes_per_s=instance.chip.bytes_per_s * instance.gpus * count,
        )
