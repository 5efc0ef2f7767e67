"""What a scheduler does with its time: it idles, its GPU runs forward passes, or the host works alone."""

from __future__ import annotations

from statistics import fmean
from typing import Final

from gpumon.efficiency.windows import Track
from gpumon.readings.frame import EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import FORWARD_SECONDS, SCHEDULER_IDLE_SECONDS

UNTIMED: Final = Missing(Reason.OFF, "start it with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1")
IN_STAGES: Final = Missing(Reason.NOT_MODELLED, "a stage of a pipeline waits for the others")
APART: Final = Missing(Reason.NOT_MODELLED, "prefill and decode run apart: requests wait for their KV cache, too")


def scheduler_time(reading: EngineReading, track: Track, pp: int) -> dict[str, Reading]:
    """Shares of the window of the rates by field of `Engine`, each the mean over the data-parallel ranks.

    A forward pass is timed on the GPU from its first to its last kernel, gaps between kernels included; SGLang times
    none unless it is told to. The host's share is what is left: work was there, and no pass ran. Time that is counted
    late (idle time each second) never makes it negative.
    """
    forward, idle = (_share(track, quantity) for quantity in (FORWARD_SECONDS, SCHEDULER_IDLE_SECONDS))
    if not track.counts(FORWARD_SECONDS) and track.counts(SCHEDULER_IDLE_SECONDS):
        forward = UNTIMED
    host = IN_STAGES if pp > 1 else APART if "role" in reading.info else forward
    if host is forward and not isinstance(forward, Missing):
        host = idle if isinstance(idle, Missing) else max(0.0, 1.0 - idle - forward)
    return {"forward_ratio": forward, "scheduler_idle_ratio": idle, "host_ratio": host}


def _share(track: Track, quantity: str) -> Reading:
    """Seconds per second of wall time."""
    if not track.counts(quantity):
        return NOT_EXPOSED
    shares = track.rank_rates(quantity, track.rate_s)
    return min(1.0, fmean(shares)) if shares else track.not_yet
