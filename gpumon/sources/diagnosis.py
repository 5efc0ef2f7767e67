"""The doctor: tries each source once, within a deadline, and says in checks what is wrong, why, and the fix."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.config.options import Options
from gpumon.config.schema import Config, Endpoint
from gpumon.efficiency.backends import backend_url, host_port_of
from gpumon.efficiency.faults import Lack, lacks
from gpumon.efficiency.service import ROUTER_KINDS, Service, no_formula, service_of
from gpumon.readings import quantities as q
from gpumon.readings.check import Check, CheckState
from gpumon.readings.format import amount, counted, ratio
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, Fault, GpuReading, Phase
from gpumon.readings.merge import disambiguate_engines, merge_dcgm
from gpumon.readings.missing import WARMING_UP
from gpumon.readings.untrusted import MOST_URL, Untrusted
from gpumon.sources.attachment import NAMELESS, NAMELESS_FEED, EngineResolver
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.dcgm_checks import dcgm_checks
from gpumon.sources.discovery.chain import DISCOVERY_SOURCE
from gpumon.sources.discovery.source import EngineDiscovery, discover
from gpumon.sources.driver.source import DriverSource, Vendor, vendor_of
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.feeds import feeds_of
from gpumon.sources.file_feed import FileFeed
from gpumon.sources.gpu_checks import ACTIVITY, driver_checks, gpu_checks
from gpumon.sources.host import ProcMeter
from gpumon.sources.ownership import Ownership
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution, Source
from gpumon.sources.state_checks import state_checks
from gpumon.sources.terminal import terminal_checks
from gpumon.specs.llm import LlmSpec

_EXPECTED_QUANTITIES: Final = {
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
"""Engines that export all of `_EXPECTED_QUANTITIES`, if they are new enough and not started with metrics off."""

_MOST_NAME: Final = 80
"""Characters of a model's name in a fix."""
_MOST_URLS: Final = 4
"""Backends of a front end whose URLs are printed."""
NO_ENDPOINT: Final = Check(
    "engine",
    "none",
    CheckState.OFF,
    "no engine was found, and no endpoint is given: no tokens, MFU or MBU",
    "gpumon --endpoint http://127.0.0.1:8000, or [[endpoint]] in the config (gpumon config --example)",
)
MODEL_LINE: Final = (
    "add to the config: [[model]] match = {name} with params_b, layers, hidden, heads "
    "from the model's config.json (gpumon config --example)"
)
NAME_LINE: Final = 'model = "NAME"  # such as "Qwen/Qwen3-8B" (gpumon models lists the known ones)'
CONFIG_LINES: Final = {
    "set api_key_env": 'api_key_env = "NAME"  # of the variable that holds the key (or api_key_file)',
    "set tls_ca": 'tls_ca = "/PATH/ca.pem"  # of the authority that signed its certificate',
}
"""Words of a fault -> the line of the config that they ask for."""
COST_LINE: Final = "add to this [[feed]]: params_b (parameters in 1e9, those used per token), or flops_per_token"

_READY_S: Final = 30.0
"""Longest wait for the driver and for every endpoint; eight GPUs without persistence mode can take longer."""
_SETTLE_S: Final = 4.0
"""Longest wait for what needs two readings (GPM), a model's files or the owner of a port."""
_STEP_S: Final = 0.3
"""Seconds between two readings: GPM needs more than 0.1 s."""

COST_S: Final = 3.0
"""Longest wait for gpumon's own memory: the kernel walks all pages for it."""
COST_STEP_S: Final = 0.05
"""Seconds between two looks at whether that memory is known."""
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


def engine_checks(
    readings: Sequence[EngineReading], faults: Sequence[Fault], gpus: Sequence[GpuReading]
) -> list[Check]:
    """All checks of all engines, with their models and GPUs attached; `faults` are what the endpoints complain of."""
    if not readings:
        return [NO_ENDPOINT]
    checks = []
    for reading in readings:
        checks.append(_answer_check(reading))
        for fault in faults:
            if fault.source == reading.name and fault.text != reading.fault:
                checks.append(Check("engine", reading.name, CheckState.WARN, fault.text))
        if reading.state is EndpointState.OK and reading.kind in ROUTER_KINDS:
            checks.append(_backends_check(reading, readings))
        elif reading.state is EndpointState.OK:
            checks += [
                _exports_check(reading),
                _model_check(reading),
                *_lack_checks(reading),
                _gpus_check(reading, gpus),
            ]
    return checks


def _backends_check(front_end: EngineReading, readings: Sequence[EngineReading]) -> Check:
    """How many backends a front end names, and which of them are no engines here: their GPUs and tokens are missing."""
    name = f"{front_end.name} backends"
    polled = {host_port_of(reading.url) for reading in readings}
    urls = [
        Untrusted(backend_url(backend.rank)).of_form("url")
        for backend in front_end.backends
        if host_port_of(backend.rank) not in polled
    ]
    text = f"a front end of {counted(len(front_end.backends), 'backend')}"
    if not any(urls):
        return Check("engine", name, CheckState.OK, text)
    shown = ", ".join(filter(None, urls[:_MOST_URLS]))
    return Check("engine", name, CheckState.OK, f"{text}, of which {len(urls)} not polled ([[endpoint]] adds {shown})")


def _answer_check(reading: EngineReading) -> Check:
    """Whether the engine answers, how fast, and what it is."""
    if reading.state is not EndpointState.OK:
        return _no_answer_check(reading)
    if reading.kind is EngineKind.GENERIC:
        return Check("engine", reading.name, CheckState.OK, f"{reading.url} is read as a feed ({reading.phase.value})")
    version = f" {reading.version}" if reading.version else ""
    ranks = f", {len(reading.ranks)} data-parallel ranks" if len(reading.ranks) > 1 else ""
    text = f"{reading.url} answers in {reading.latency_s * 1e3:.0f} ms: {reading.kind.value}{version}{ranks}"
    return Check("engine", reading.name, CheckState.OK, text)


def _no_answer_check(reading: EngineReading) -> Check:
    """Why the engine gives no figures, with the line of the config that mends it if there is one."""
    state = CheckState.WARN if reading.state is EndpointState.STARTING else CheckState.FAIL
    text = reading.fault or "no answer yet"
    fix = ""
    for words, line in CONFIG_LINES.items():
        if words in text:
            fix = _in_config(reading, line)
            break
    return Check("engine", reading.name, state, f"{reading.url} {reading.state.value.replace('_', ' ')}: {text}", fix)


def _exports_check(reading: EngineReading) -> Check:
    """The exported quantities. A missing one is a warning only for the engines that can export all of them."""
    name = f"{reading.name} metrics"
    if reading.kind is EngineKind.GENERIC:
        mapped = ", ".join(f"{quantity} = {metric}" for quantity, metric in reading.live.items())
        return Check("engine", name, CheckState.OK, mapped)
    missing = [word for quantity, word in _EXPECTED_QUANTITIES.items() if quantity not in reading.live]
    notes = [f"not exported: {', '.join(missing)}"] if missing else [f"all {len(_EXPECTED_QUANTITIES)} quantities"]
    notes += _notes_on_figures(reading)
    state = CheckState.WARN if missing and reading.kind in COMPLETE else CheckState.OK
    return Check("engine", name, state, "; ".join(notes))


def _notes_on_figures(reading: EngineReading) -> list[str]:
    """How the engine counts, and how well that is known."""
    notes = []
    if q.STEPS in reading.live:
        if reading.exact_steps:
            notes.append("steps are counted")
        else:
            notes.append("steps are estimated")
    at_end = [
        _EXPECTED_QUANTITIES[quantity]
        for quantity, advance in reading.advance.items()
        if advance is Advance.END and quantity in _EXPECTED_QUANTITIES
    ]
    if at_end:
        notes.append(f"counted only when a request ends, so n/a live: {', '.join(at_end)}")
    if reading.from_documentation:
        notes.append("this adapter was built from documentation, not tried on a real server")
    return notes


def _model_check(reading: EngineReading) -> Check:
    """The model and where its dimensions are from, or why there will be no MFU and no MBU."""
    name = f"{reading.name} model"
    model = reading.model or "no name"
    if reading.training is not None:
        text = f"{reading.training.flops_per_token:.3g} FLOPs per token, at the peak of {reading.training.precision}"
        return Check("engine", name, CheckState.OK, f"{model}: {text}")
    if reading.phase is Phase.TRAINING:
        text = f"{model}: what a token costs is not known, so no MFU"
        return Check("engine", name, CheckState.WARN, text, COST_LINE)
    service = service_of(reading)
    if service is Service.OTHER:
        text = f"{model}: no MFU, no MBU: {no_formula(reading, service).detail}"
        return Check("engine", name, CheckState.OK, text)
    if reading.llm is None:
        why, fix = _missing_model(reading)
        return Check("engine", name, CheckState.WARN, f"{model}: no MFU, no MBU: {why}", fix)
    text = f"{reading.model}: {_dimensions(reading.llm)} (from {reading.llm.source})"
    if reading.llm.not_modelled:
        text += f"; not in the figures: {', '.join(reading.llm.not_modelled)}"
        return Check("engine", name, CheckState.WARN, text)
    return Check("engine", name, CheckState.OK, text)


def _missing_model(reading: EngineReading) -> tuple[str, str]:
    """Why the model's dimensions are not known, and the fix. The reason may bring a fix on lines of its own."""
    why, _, fix = reading.info.get("model_missing", "its dimensions are not known").partition("\n")
    if fix:
        return why, fix
    if why in (NAMELESS, NAMELESS_FEED):
        return why, _in_config(reading, NAME_LINE)
    return why, MODEL_LINE.format(name=Untrusted(reading.model).in_config(_MOST_NAME))


def _lack_checks(reading: EngineReading) -> list[Check]:
    """Figures that will not come, by what the engine exports."""
    figures_by_lack: dict[Lack, list[str]] = {}
    for figure, lack in lacks(reading):
        figures_by_lack.setdefault(lack, []).append(figure)
    checks = []
    for lack, figures in figures_by_lack.items():
        name = f"{reading.name} {' and '.join(figures)}"
        text = f"no {', no '.join(figures)}: {lack.sentence}"
        checks.append(Check("engine", name, CheckState.WARN, text, lack.todo))
    return checks


def _in_config(reading: EngineReading, line: str) -> str:
    """A line of the config, with the table that it belongs to."""
    url = Untrusted(reading.url).in_config(MOST_URL)
    if reading.found_by == DISCOVERY_SOURCE:
        return f"add to the config:\n[[endpoint]]\nurl = {url}\n{line}"
    table = "[[feed]]" if reading.kind is EngineKind.GENERIC else f"[[endpoint]] with url = {url}"
    return f"add to its {table} in the config:\n{line}"


def _dimensions(llm: LlmSpec) -> str:
    """`30.5B parameters, 48 layers, 8 of 128 experts, bf16`."""
    experts = f", {llm.experts_per_token} of {llm.experts} experts" if llm.experts else ""
    return f"{llm.params / 1e9:.1f}B parameters, {llm.layers} layers{experts}, {llm.precision.value}"


def _gpus_check(reading: EngineReading, gpus: Sequence[GpuReading]) -> Check:
    """The GPUs of the engine and how they are known, or why they are not."""
    name = f"{reading.name} GPUs"
    if reading.gpu_type:
        text = f"{reading.gpu_count} x {reading.gpu_type} on another host (config)"
        return Check("engine", name, CheckState.OK, text)
    indices = {gpu.uuid: gpu.index for gpu in gpus}
    own = ", ".join(str(indices[uuid]) for uuid in reading.gpus if uuid in indices)
    if own:
        return Check("engine", name, CheckState.OK, f"{own} (from {reading.gpus_source})")
    text = f"not known, so no MFU and no MBU: {reading.gpus_source or 'no process was found'}"
    return Check("engine", name, CheckState.WARN, text)


class _Sources(NamedTuple):
    """The sources that the config and the options name."""

    vendor: Vendor
    nvml: DriverSource | None
    dcgm: DcgmSource | None
    engines: list[EndpointSource]
    """Endpoints, and feeds that are pages."""
    files: list[FileFeed]
    endpoints: dict[str, Endpoint]
    """Endpoints of the config by the keys of their readings."""
    owner: Ownership | None
    discovery: EngineDiscovery | None

    @property
    def all(self) -> list[Source]:
        """All sources that exist, as one list."""
        candidates = (self.nvml, self.dcgm, *self.engines, *self.files, self.discovery)
        return [source for source in candidates if source is not None]


def _sources_of(config: Config, options: Options) -> _Sources:
    """Make the sources that the config and the options name; none is started."""
    vendor = vendor_of()
    nvml = DriverSource(config.general.interval_s, vendor) if options.nvml else None
    dcgm = DcgmSource(config.dcgm) if config.dcgm.url else None
    engines = [EndpointSource(endpoint, config.general.engine_interval_s) for endpoint in config.endpoint]
    pages, files = feeds_of(config)
    engines += pages
    endpoints = {source.reading.key: source.endpoint for source in engines}
    endpoints |= {file.reading.key: file.endpoint for file in files}
    owner = None
    discovery = None
    if config.discovery.enabled:
        owner = Ownership()
        discovery = discover(config, engines, endpoints, owner, nvml)
    if discovery is None:  # nothing would feed `owner`: without it the checks say that discovery is off
        owner = None
    return _Sources(vendor, nvml, dcgm, engines, files, endpoints, owner, discovery)


async def diagnose(config: Config, options: Options) -> list[Check]:
    """The doctor's checks, in the order in which they are read: config, terminal, driver, GPUs, engines."""
    sources = _sources_of(config, options)
    try:
        await asyncio.gather(*(source.start() for source in sources.all))
        await asyncio.gather(*(source.ready(_READY_S) for source in sources.all))
        reads_gpus = sources.nvml is not None or sources.dcgm is not None
        facts = EngineResolver(sources.endpoints, config.model, sources.owner, nvml=reads_gpus)
        meter = ProcMeter()
        # CPU is a difference: this read begins it, the one of `_own_cost_check` ends it.
        meter.read(await _worker_pids(sources.nvml))
        host = await _await_readings(sources, facts)
        config_file = NO_CONFIG
        if options.config_file:
            config_file = Check("config", "file", CheckState.OK, options.config_file)
        checks = [config_file, *await asyncio.to_thread(state_checks, os.environ), *terminal_checks(os.environ)]
        checks += await _gpu_sources_checks(sources, host)
        checks += gpu_checks(host.gpus, gpu_catalogue(config.gpu))
        if sources.discovery is not None:
            checks += sources.discovery.checks(host.readings)
        checks += engine_checks(host.readings, host.faults, host.gpus)
        if not host.gpus and not host.readings:
            checks.append(DEMO)
        return [*checks, await _own_cost_check(meter, host.driver.pids)]
    finally:
        await asyncio.gather(*(source.close() for source in sources.all), return_exceptions=True)


async def _gpu_sources_checks(sources: _Sources, host: _Host) -> list[Check]:
    """Checks of the driver and of a dcgm-exporter."""
    checks = [NVML_OFF]
    if sources.nvml is not None:
        checks = await driver_checks(host.driver, sources.vendor)
    if sources.dcgm is not None:
        checks = [*checks, *dcgm_checks(sources.dcgm.url.base, host.exporter)]
    return checks


async def _worker_pids(nvml: DriverSource | None) -> tuple[int, ...]:
    """Pids of the processes that gpumon started to read the driver."""
    if nvml is None:
        return ()
    part = await nvml.poll(time.monotonic())
    return part.pids


async def _own_cost_check(meter: ProcMeter, pids: tuple[int, ...]) -> Check:
    """The cost of this look: gpumon's CPU since the sources answered, and its memory."""
    await asyncio.sleep(_STEP_S)
    host = meter.read(pids)
    end_s = time.monotonic() + COST_S
    while host.self_pss_bytes == WARMING_UP and time.monotonic() < end_s:
        await asyncio.sleep(COST_STEP_S)
        host = meter.read(pids)
    used = f"{ratio(host.self_cpu_ratio)} of one core, {amount(host.self_pss_bytes, 'B')} of memory"
    text = f"{used} for this look, its driver process included; help (?) on the screen has those of the screen"
    return Check("gpumon", "own cost", CheckState.OK, text)


class _Host(NamedTuple):
    """The newest readings of this host."""

    driver: Contribution
    exporter: Contribution
    gpus: tuple[GpuReading, ...]
    """GPUs of the driver and of the exporter, merged."""
    readings: tuple[EngineReading, ...]
    faults: tuple[Fault, ...]
    """Faults of the engines and of discovery."""


async def _await_readings(sources: _Sources, facts: EngineResolver) -> _Host:
    """The readings of this host once no figure, model or GPU is still to come, or after `_SETTLE_S`."""
    end_s = time.monotonic() + _SETTLE_S
    while True:
        now_s = time.monotonic()
        host = await _poll(sources, facts, now_s)
        is_waiting = any(map(_is_warming_up, host.driver.gpus)) or any(map(_is_unresolved, host.readings))
        if not is_waiting or now_s >= end_s:
            return host
        await asyncio.sleep(_STEP_S)


async def _poll(sources: _Sources, facts: EngineResolver, now_s: float) -> _Host:
    """The newest readings of all sources, with models and GPUs attached to engines as far as they are known."""
    driver = Contribution()
    exporter = Contribution()
    if sources.nvml is not None:
        driver = await sources.nvml.poll(now_s)
    if sources.dcgm is not None:
        exporter = await sources.dcgm.poll(now_s)
    gpus = merge_dcgm([*driver.gpus, *exporter.gpus], socket.gethostname())
    engine_sources: list[Source] = [*sources.engines, *sources.files]
    if sources.discovery is not None:
        sources.discovery.see(driver.gpus)
        engine_sources.append(sources.discovery)
    polled = [await source.poll(now_s) for source in engine_sources]
    attached = []
    for part in polled:
        engines = [facts.attach(engine, gpus) for engine in part.engines]
        attached.append((engines, part.faults))
    readings, faults = disambiguate_engines(attached)
    return _Host(driver, exporter, gpus, readings, faults)


def _is_warming_up(gpu: GpuReading) -> bool:
    """Whether a figure of the GPU needs a second reading."""
    return any(getattr(gpu, field) == WARMING_UP for field in ACTIVITY)


def _is_unresolved(reading: EngineReading) -> bool:
    """Whether the model or the GPUs of an engine that answers are still looked for."""
    if reading.state is not EndpointState.OK:
        return False
    model_is_open = reading.llm is None and "model_missing" not in reading.info
    gpus_are_open = not (reading.gpus or reading.gpus_source or reading.gpu_type)
    return model_is_open or gpus_are_open
