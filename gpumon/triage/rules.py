"""The table of rules, in the order in which they are asked: of each family the first that finds something speaks."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Family, Kind, Limit
from gpumon.triage import (
    engine_limit,
    engine_links,
    engine_state,
    engine_use,
    gpu_hardware,
    gpu_throttle,
    gpu_use,
    host_load,
    starved,
    training_use,
)
from gpumon.triage.rule import Rule

_GPU: Final = frozenset({Kind.GPU})
_HOST: Final = frozenset({Kind.HOST})
_ENGINE: Final = frozenset({Kind.ENGINE})

RULES: Final[tuple[Rule, ...]] = (
    Rule(Limit.HARDWARE, Family.STATE, _GPU, gpu_hardware.broken, hold_s=0.0),
    Rule(Limit.THROTTLED, Family.STATE, _GPU, gpu_throttle.throttled, leave_s=0.0),
    Rule(Limit.HARDWARE, Family.STATE, _GPU, gpu_hardware.program_fault, hold_s=0.0),
    Rule(Limit.STALLED, Family.STATE, _ENGINE, engine_state.stalled, hold_s=0.0, leave_s=0.0),
    Rule(Limit.INPUT_STARVED, Family.LIMIT, _ENGINE, starved.host_bound),
    Rule(Limit.INPUT_STARVED, Family.LIMIT, _ENGINE, starved.even_drops),
    Rule(Limit.KV_CACHE, Family.LIMIT, _ENGINE, engine_limit.kv_cache),
    Rule(Limit.QUEUE, Family.LIMIT, _ENGINE, engine_limit.queue),
    Rule(Limit.COMMUNICATION, Family.LIMIT, _ENGINE, engine_links.communication),
    Rule(Limit.COMPUTE, Family.LIMIT, _ENGINE, engine_limit.compute),
    Rule(Limit.BANDWIDTH, Family.LIMIT, _ENGINE, engine_limit.bandwidth),
    Rule(Limit.COMPUTE, Family.LIMIT, _HOST, host_load.cpu_saturated),
    Rule(Limit.INPUT_STARVED, Family.LIMIT, _HOST, host_load.disk_waits),
    Rule(Limit.INPUT_STARVED, Family.LIMIT, _GPU | _ENGINE, starved.input_starved),
    Rule(Limit.UNDER_USED, Family.USE, _ENGINE, engine_use.under_used),
    Rule(Limit.UNDER_USED, Family.USE, _ENGINE, training_use.slow),
    Rule(Limit.HEALTHY, Family.USE, _ENGINE, engine_use.healthy),
    Rule(Limit.HEALTHY, Family.USE, _ENGINE, training_use.well),
    Rule(Limit.MEMORY_FULL, Family.USE, _HOST, host_load.memory_full),
    Rule(Limit.MEMORY_IDLE, Family.USE, _GPU, gpu_use.memory_idle),
    Rule(Limit.MEMORY_FULL, Family.USE, _GPU, gpu_use.memory_full),
    Rule(Limit.UNDER_USED, Family.USE, _GPU, gpu_use.under_used),
    Rule(Limit.HEALTHY, Family.USE, _GPU, gpu_use.at_work),
)
