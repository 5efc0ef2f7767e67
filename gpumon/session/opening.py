"""The first snapshot of this host: its GPUs, as soon as the driver has answered."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

from gpumon.config.prices import running_prices
from gpumon.config.schema import Config
from gpumon.deadline import timeout
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import WARMING_UP
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Source

_DRIVER_WAIT_S: Final = 0.1
"""Seconds to wait for the driver: a slower one does not hold up the rest."""


async def opening_snapshot(hardware: Source, config: Config) -> Snapshot | None:
    """The GPUs alone, without engines and verdicts; None where the driver has not answered within a moment."""
    try:
        async with timeout(_DRIVER_WAIT_S):
            part = await hardware.poll(time.monotonic())
    except asyncio.TimeoutError:
        return None
    if not part.gpus:
        return None
    host = HostReading(
        name=socket.gethostname(),
        driver=part.driver,
        cuda=part.cuda,
        cpu_ratio=WARMING_UP,
        memory_used_bytes=WARMING_UP,
        memory_total_bytes=WARMING_UP,
        self_cpu_ratio=WARMING_UP,
        self_pss_bytes=WARMING_UP,
    )
    frame = Frame(
        seq=0,
        wall_s=time.time(),
        monotonic_s=time.monotonic(),
        interval_s=config.general.interval_s,
        host=host,
        gpus=part.gpus,
        faults=part.faults,
    )
    gpus = gpu_catalogue(config.gpu)
    deriver = Deriver(gpus, prices=running_prices(config, gpus))
    return deriver.derive(frame, charted=False, engines_known=False).snapshot
