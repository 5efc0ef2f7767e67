"""What the simulated server has really done, to hold derived figures against."""

from __future__ import annotations

import msgspec

from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.source import SimulatedServer


class EngineTruth(msgspec.Struct, frozen=True):
    """What an engine has done since the simulation began, all ranks together; the difference of two gives rates."""

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


class GpuTruth(msgspec.Struct, frozen=True):
    """What a GPU has done since the simulation began: FLOPs, HBM bytes, and joules since its driver was loaded."""

    index: int
    flops: float
    dram_bytes: float
    energy_j: float


class Truth(msgspec.Struct, frozen=True):
    """What really happened until `at_s` of simulated time, to hold derived figures against."""

    at_s: float
    engines: dict[str, EngineTruth]
    gpus: tuple[GpuTruth, ...]


def engine_truth(engine: SimulatedEngine) -> EngineTruth:
    """What an engine has really done until the last `advance`."""
    meters = engine.meters()
    counters = [rank.counters for rank in engine.ranks]
    instance = engine.actor.instance
    count = len(engine.ranks)
    return EngineTruth(
        flops=sum(meter.flops for meter in meters),
        model_bytes=sum(meter.weight_bytes + meter.kv_bytes for meter in meters),
        dram_bytes=sum(meter.dram_bytes for meter in meters),
        prefill_tokens=sum(each.computed_tokens for each in counters),
        cached_tokens=sum(each.cached_tokens for each in counters),
        decode_tokens=sum(each.generation_tokens for each in counters),
        steps=sum(meter.steps for meter in meters),
        busy_s=sum(meter.busy_s for meter in meters),
        peak_flops_per_s=instance.peak_flops_per_s * count,
        peak_bytes_per_s=instance.chip.bytes_per_s * instance.gpus * count,
    )


def server_truth(server: SimulatedServer) -> Truth:
    """What really happened so far."""
    engines = {engine.actor.name: engine_truth(engine) for engine in server.engines}
    gpus = tuple(GpuTruth(index, gpu.flops, gpu.dram_bytes, gpu.energy_j) for index, gpu in enumerate(server.gpus))
    return Truth(server.at_s, engines, gpus)
