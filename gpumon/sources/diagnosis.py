"""What works on this host, what does not, why, and the fix: everything is tried once, each with its deadline."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.efficiency.faults import Lack, lacks
from gpumon.readings import quantities as q
from gpumon.readings.check import Check, CheckState
from gpumon.readings.format import amount, ratio
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, Fault, GpuReading, Phase
from gpumon.readings.merge import merged, told_apart
from gpumon.readings.missing import WARMING_UP
from gpumon.sources.attachment import NAMELESS, NAMELESS_FEED, EngineFacts
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.dcgm_checks import dcgm_checks
from gpumon.sources.discovery.chain import SOURCE as DISCOVERED
from gpumon.sources.discovery.source import Discovery, discover
from gpumon.sources.driver.source import DriverSource, vendor_of
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.feeds import feeds_of
from gpumon.sources.gpu_checks import ACTIVITY, driver_checks, gpu_checks
from gpumon.sources.host import HostMeter
from gpumon.sources.ownership import Ownership
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution, Source
from gpumon.sources.terminal import terminal_checks
from gpumon.specs.llm import LlmSpec

EXPECTED: Final = {
    q.DECODE_TOKENS: "decode rate",
    q.PROMPT_TOKENS: "prompt rate",
    q.STEPS: "steps (then estimated from ITL)",
    q.RUNNING: "running",
    q.WAITING: "waiting",
    q.KV_USAGE: "KV use",
    q.REQUESTS: "request rate",
    q.TTFT: "TTFT",
    q.ITL: "ITL",
    q.E2E: "end-to-end latency",
    q.QUEUE: "queue time",
}
"""Quantities that every serving engine should export, and what is missing from the screen without them."""

COMPLETE: Final = frozenset({EngineKind.VLLM, EngineKind.SGLANG})
"""Engines that export all of them, if they are new enough and started so."""

NO_ENDPOINT: Final = Check(
    "engine",
    "none",
    CheckState.OFF,
    "no engine was found, and no endpoint is given: no tokens, MFU or MBU",
    "gpumon --endpoint http://127.0.0.1:8000, or [[endpoint]] in the config (gpumon config --example)",
)
MODEL_LINE: Final = (
    "add to the config: [[model]] match = {name!a:.80} with params_b, layers, hidden, heads "
    "from the model's config.json (gpumon config --example)"
)
NAME_LINE: Final = 'model = "NAME"  # such as "Qwen/Qwen3-8B" (gpumon models lists the known ones)'
CONFIG_LINES: Final = {
    "set api_key_env": 'api_key_env = "NAME"  # of the variable that holds the key (or api_key_file)',
    "set tls_ca": 'tls_ca = "/PATH/ca.pem"  # of the authority that signed its certificate',
}
"""Words of a fault -> the line of the config that they ask for."""
COST_LINE: Final = "add to this [[feed]]: params_b (parameters in 1e9, those used per token), or flops_per_token"


def engine_checks(
    readings: Sequence[EngineReading], faults: Sequence[Fault], gpus: Sequence[GpuReading]
) -> list[Check]:
    """All checks of all engines, with their models and GPUs attached; `faults` are what the endpoints complain of."""
    if not readings:
        return [NO_ENDPOINT]
    checks = []
    for reading in readings:
        checks.append(_answer(reading))
        checks += [
            Check("engine", reading.name, CheckState.WARN, fault.text)
            for fault in faults
            if fault.source == reading.name and fault.text != reading.fault
        ]
        if reading.state is EndpointState.OK:
            checks += [_exports(reading), _model(reading), *_lacks(reading), _gpus(reading, gpus)]
    return checks


def _answer(reading: EngineReading) -> Check:
    if reading.state is EndpointState.OK and reading.kind is EngineKind.GENERIC:
        return Check("engine", reading.name, CheckState.OK, f"{reading.url} is read as a feed ({reading.phase.value})")
    if reading.state is EndpointState.OK:
        version = f" {reading.version}" if reading.version else ""
        ranks = f", {len(reading.ranks)} data-parallel ranks" if len(reading.ranks) > 1 else ""
        text = f"{reading.url} answers in {reading.latency_s * 1e3:.0f} ms: {reading.kind.value}{version}{ranks}"
        return Check("engine", reading.name, CheckState.OK, text)
    state = CheckState.WARN if reading.state is EndpointState.STARTING else CheckState.FAIL
    text = reading.fault or "no answer yet"
    line = next((line for words, line in CONFIG_LINES.items() if words in text), "")
    fix = _in_config(reading, line) if line else ""
    return Check("engine", reading.name, state, f"{reading.url} {reading.state.value.replace('_', ' ')}: {text}", fix)


def _exports(reading: EngineReading) -> Check:
    """What it exports; of a kind that could export more if it were started otherwise, what is missing is a warning."""
    if reading.kind is EngineKind.GENERIC:
        mapped = ", ".join(f"{quantity} = {metric}" for quantity, metric in reading.live.items())
        return Check("engine", f"{reading.name} metrics", CheckState.OK, mapped)
    gone = [word for quantity, word in EXPECTED.items() if quantity not in reading.live]
    late = [EXPECTED[name] for name, how in reading.advance.items() if how is Advance.END and name in EXPECTED]
    name = f"{reading.name} metrics"
    notes = [f"not exported: {', '.join(gone)}"] if gone else [f"all {len(EXPECTED)} quantities"]
    if q.STEPS in reading.live:
        notes.append(f"steps are {'counted' if reading.exact_steps else 'estimated'}")
    if late:
        notes.append(f"counted only when a request ends, so n/a live: {', '.join(late)}")
    if reading.from_documentation:
        notes.append("this adapter was built from documentation, not tried on a real server")
    state = CheckState.WARN if gone and reading.kind in COMPLETE else CheckState.OK
    return Check("engine", name, state, "; ".join(notes))


def _model(reading: EngineReading) -> Check:
    name = f"{reading.name} model"
    if reading.training is not None:
        text = f"{reading.training.flops_per_token:.3g} FLOPs per token, at the peak of {reading.training.precision}"
        return Check("engine", name, CheckState.OK, f"{reading.model or 'no name'}: {text}")
    if reading.phase is Phase.TRAINING:
        text = f"{reading.model or 'no name'}: what a token costs is not known, so no MFU"
        return Check("engine", name, CheckState.WARN, text, COST_LINE)
    if reading.llm is None:
        why, _, lines = reading.info.get("model_missing", "its dimensions are not known").partition("\n")
        nameless = why in (NAMELESS, NAMELESS_FEED)
        fix = lines or (_in_config(reading, NAME_LINE) if nameless else MODEL_LINE.format(name=reading.model))
        return Check("engine", name, CheckState.WARN, f"{reading.model or 'no name'}: no MFU, no MBU: {why}", fix)
    text = f"{reading.model}: {_dimensions(reading.llm)} (from {reading.llm.source})"
    if reading.llm.not_modelled:
        text += f"; not in the figures: {', '.join(reading.llm.not_modelled)}"
        return Check("engine", name, CheckState.WARN, text)
    return Check("engine", name, CheckState.OK, text)


def _lacks(reading: EngineReading) -> list[Check]:
    """Figures that will not come, by what the engine exports."""
    figures: dict[Lack, list[str]] = {}
    for figure, lack in lacks(reading):
        figures.setdefault(lack, []).append(figure)
    return [
        Check(
            "engine",
            f"{reading.name} {' and '.join(named)}",
            CheckState.WARN,
            f"no {', no '.join(named)}: {lack.sentence}",
            lack.todo,
        )
        for lack, named in figures.items()
    ]


def _in_config(reading: EngineReading, line: str) -> str:
    """A line of the config, with the table that it belongs to."""
    if reading.found_by == DISCOVERED:
        return f"add to the config:\n[[endpoint]]\nurl = {json.dumps(reading.url)}\n{line}"
    table = "[[feed]]" if reading.kind is EngineKind.GENERIC else f"[[endpoint]] with url = {json.dumps(reading.url)}"
    return f"add to its {table} in the config:\n{line}"


def _dimensions(llm: LlmSpec) -> str:
    experts = f", {llm.experts_per_token} of {llm.experts} experts" if llm.experts else ""
    return f"{llm.params / 1e9:.1f}B parameters, {llm.layers} layers{experts}, {llm.precision.value}"


def _gpus(reading: EngineReading, gpus: Sequence[GpuReading]) -> Check:
    name = f"{reading.name} GPUs"
    if reading.gpu_type:
        return Check(
            "engine", name, CheckState.OK, f"{reading.gpu_count} x {reading.gpu_type} on another host (config)"
        )
    indices = {gpu.uuid: gpu.index for gpu in gpus}
    own = ", ".join(str(indices[uuid]) for uuid in reading.gpus if uuid in indices)
    if own:
        return Check("engine", name, CheckState.OK, f"{own} (from {reading.gpus_source})")
    text = f"not known, so no MFU and no MBU: {reading.gpus_source or 'no process was found'}"
    return Check("engine", name, CheckState.WARN, text)


READY_S: Final = 30.0
"""Longest wait for the driver and for every endpoint; eight GPUs without persistence mode can take longer."""
SETTLE_S: Final = 4.0
"""Longest wait for what needs two readings (GPM), a model's files or the owner of a port."""
STEP_S: Final = 0.3
"""Between two readings: GPM needs more than 0.1 s."""

COST_S: Final = 3.0
"""Longest wait for gpumon's own memory: the kernel walks all pages for it."""
COST_STEP_S: Final = 0.05
DEMO: Final = Check(
    "gpumon",
    "demo",
    CheckState.OFF,
    "there is no GPU and no engine to show",
    "gpumon demo shows a simulated server with eight GPUs and its engines",
)
NO_CONFIG: Final = Check(
    "config", "file", CheckState.OFF, "none: defaults (gpumon config --example shows every setting)"
)
NVML_OFF: Final = Check("driver", "NVML", CheckState.OFF, "not checked (--no-nvml)")


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
        meter = HostMeter()
        meter.read(await _worker_pids(nvml))
        found = await _settled(nvml, dcgm, [*engines, *files], discovery, facts)
        config_file = NO_CONFIG
        if options.config_file:
            config_file = Check("config", "file", CheckState.OK, options.config_file)
        checks = [config_file, *terminal_checks(os.environ)]
        checks += await driver_checks(found.driver, vendor) if nvml else [NVML_OFF]
        checks += dcgm_checks(dcgm.url.base, found.exporter) if dcgm else []
        checks += gpu_checks(found.gpus, gpu_catalogue(config.gpu))
        checks += discovery.checks(found.readings) if discovery is not None else []
        checks += engine_checks(found.readings, found.faults, found.gpus)
        if not found.gpus and not found.readings:
            checks.append(DEMO)
        return [*checks, await _own_cost(meter, found.driver.pids)]
    finally:
        await asyncio.gather(*(source.close() for source in sources), return_exceptions=True)


async def _worker_pids(nvml: DriverSource | None) -> tuple[int, ...]:
    """Processes that gpumon started to read the driver."""
    if nvml is None:
        return ()
    part = await nvml.poll(time.monotonic())
    return part.pids


async def _own_cost(meter: HostMeter, pids: tuple[int, ...]) -> Check:
    """What this look costs by itself: gpumon's CPU since the sources answered, and its memory."""
    await asyncio.sleep(STEP_S)
    host = meter.read(pids)
    end_s = time.monotonic() + COST_S
    while host.self_pss_bytes == WARMING_UP and time.monotonic() < end_s:
        await asyncio.sleep(COST_STEP_S)
        host = meter.read(pids)
    used = f"{ratio(host.self_cpu_ratio)} of one core, {amount(host.self_pss_bytes, 'B')} of memory"
    text = f"{used} for this look, its driver process included; help (?) on the screen has those of the screen"
    return Check("gpumon", "own cost", CheckState.OK, text)


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
        warming = any(getattr(gpu, field) == WARMING_UP for gpu in driver.gpus for field in ACTIVITY)
        if now_s >= end_s or not (warming or any(map(_unresolved, readings))):
            return _Found(driver, exporter, gpus, readings, faults)
        await asyncio.sleep(STEP_S)


def _unresolved(reading: EngineReading) -> bool:
    if reading.state is not EndpointState.OK:
        return False
    model_open = reading.llm is None and "model_missing" not in reading.info
    return model_open or not (reading.gpus or reading.gpus_source or reading.gpu_type)
