"""What works on this host, what does not, why, and the fix: everything is tried once, each with its deadline."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.readings.check import Check, CheckState
from gpumon.readings.frame import EndpointState, EngineReading, Fault, GpuReading
from gpumon.readings.merge import merged, told_apart
from gpumon.readings.missing import WARMING_UP
from gpumon.sources.attachment import EngineFacts
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.dcgm_checks import dcgm_checks
from gpumon.sources.discovery.source import Discovery, discover
from gpumon.sources.driver.source import DriverSource, vendor_of
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.engine_checks import engine_checks
from gpumon.sources.feeds import feeds_of
from gpumon.sources.gpu_checks import ACTIVITY, driver_checks, gpu_checks
from gpumon.sources.ownership import Ownership
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution, Source
from gpumon.sources.terminal import terminal_checks

READY_S: Final = 30.0
"""Longest wait for the driver and for every endpoint; eight GPUs without persistence mode can take longer."""
SETTLE_S: Final = 4.0
"""Longest wait for what needs two readings (GPM), a model's files or the owner of a port."""
STEP_S: Final = 0.3
"""Between two readings: GPM needs more than 0.1 s."""

NVML_OFF: Final = Check("driver", "NVML", CheckState.OFF, "not looked at (--no-nvml)")


async def diagnose(config: Config, options: Options) -> list[Check]:
    """The doctor's checks, in the order in which they are read: config, terminal, driver, GPUs, engines."""
    vendor = vendor_of()
    nvml = DriverSource(config.general.interval_s, vendor) if options.nvml else None
    dcgm = DcgmSource(config.dcgm) if config.dcgm.url else None
    engines = [EndpointSource(endpoint, config.general.engine_interval_s) for endpoint in config.endpoint]
    pages, files = feeds_of(config)
    engines += pages
    listed = {source.reading.key: source.endpoint for source in engines}
    listed |= {file.reading.key: file.endpoint for file in files}
    owner = Ownership() if config.discovery.enabled else None
    discovery = discover(config, engines, listed, owner, nvml) if owner is not None else None
    owner = owner if discovery is not None else None
    sources: list[Source] = [source for source in (nvml, dcgm, *engines, *files, discovery) if source is not None]
    try:
        await asyncio.gather(*(source.start() for source in sources))
        await asyncio.gather(*(source.ready(READY_S) for source in sources))
        facts = EngineFacts(listed, config.model, owner, nvml=bool(nvml or dcgm))
        found = await _settled(nvml, dcgm, [*engines, *files], discovery, facts)
        checks = [_config(options), *terminal_checks(os.environ)]
        checks += await driver_checks(found.driver, vendor) if nvml else [NVML_OFF]
        checks += dcgm_checks(dcgm.url.base, found.exporter) if dcgm else []
        checks += gpu_checks(found.gpus, gpu_catalogue(config.gpu))
        checks += discovery.checks(found.readings) if discovery is not None else []
        return [*checks, *engine_checks(found.readings, found.faults, found.gpus)]
    finally:
        await asyncio.gather(*(source.close() for source in sources), return_exceptions=True)


def _config(options: Options) -> Check:
    if options.config_file:
        return Check("config", "file", CheckState.OK, options.config_file)
    return Check("config", "file", CheckState.OFF, "none: defaults (gpumon config --example shows every setting)")


class _Found(NamedTuple):
    driver: Contribution
    exporter: Contribution
    gpus: tuple[GpuReading, ...]
    """Of both."""
    readings: tuple[EngineReading, ...]
    faults: tuple[Fault, ...]
    """Of the engines and of discovery."""


async def _settled(
    nvml: DriverSource | None,
    dcgm: DcgmSource | None,
    engines: Sequence[Source],
    discovery: Discovery | None,
    facts: EngineFacts,
) -> _Found:
    """The newest of everything, once nothing is on its way any more or the time is over."""
    end_s = time.monotonic() + SETTLE_S
    while True:
        now_s = time.monotonic()
        driver = await nvml.poll(now_s) if nvml is not None else Contribution()
        exporter = await dcgm.poll(now_s) if dcgm is not None else Contribution()
        gpus = merged([*driver.gpus, *exporter.gpus], socket.gethostname())
        if discovery is not None:
            discovery.see(driver.gpus)
        polled = [await source.poll(now_s) for source in (*engines, discovery) if source is not None]
        readings, faults = told_apart(
            ([facts.attach(engine, gpus) for engine in part.engines], part.faults) for part in polled
        )
        if now_s >= end_s or not (_warming(driver) or any(map(_unresolved, readings))):
            return _Found(driver, exporter, gpus, readings, faults)
        await asyncio.sleep(STEP_S)


def _warming(driver: Contribution) -> bool:
    return any(getattr(gpu, field) == WARMING_UP for gpu in driver.gpus for field in ACTIVITY)


def _unresolved(reading: EngineReading) -> bool:
    if reading.state is not EndpointState.OK:
        return False
    model_open = reading.llm is None and "model_missing" not in reading.info
    return model_open or not (reading.gpus or reading.gpus_source or reading.gpu_type)
