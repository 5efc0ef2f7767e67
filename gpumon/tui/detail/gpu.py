"""A GPU's page: how busy, how efficient, its memory, what runs on it, and its health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import BY_NATURE
from gpumon.readings import glossary
from gpumon.readings.flat import value_of
from gpumon.readings.format import counted, left, right, short, wall_of
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import (
    DERIVED,
    ESTIMATED,
    MEASURED,
    Entry,
    Fact,
    FigureMaker,
    ReadyLine,
    Section,
    Sentence,
)
from gpumon.tui.detail.costs import gpu_cost_section
from gpumon.tui.detail.things import is_blank
from gpumon.tui.detail.values import duration_text, figure_text, formula_text, is_above_one, known_numbers, shown_time
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.gpu_table import IDLE_BELOW, has_no_use, holds_vram
from gpumon.tui.process_table import command_text, sm_share
from gpumon.tui.table import clock, spans
from gpumon.tui.view import View

_MOST_PROCESSES: Final = 32
_WORK: Final = {Phase.INFERENCE: "engine", Phase.TRAINING: "training"}

_BANDWIDTH: Final = {
    BandwidthSource.GPM: (MEASURED, "measured by the GPU itself"),
    BandwidthSource.DCGM: (MEASURED, "measured by the GPU, read through DCGM"),
    BandwidthSource.ENGINE: (
        DERIVED,
        "at least this much (≥): modelled from the steps of the engines here, so it is no check on their MBU",
    ),
    BandwidthSource.UPPER_BOUND: (
        ESTIMATED,
        "at most this much (≤): memory busy is the share of time with any access, not of the bytes that could move",
    ),
    BandwidthSource.NONE: ("", ""),
}
"""Basis of the bandwidth, and what it means."""


_CAUSES: Final = {
    "hw_thermal_slowdown": "heat (hardware): check cooling and airflow",
    "sw_thermal_slowdown": "heat (driver): check cooling and airflow",
    "hw_power_brake_slowdown": "power brake: check the server's power supply",
    "hw_slowdown": "slowed by the hardware: check cooling and power",
    "sw_power_cap": "power limit: normal under full load",
    "sync_boost": "clocks tied to other GPUs (sync boost)",
    "applications_clocks_setting": "application clocks are set",
    "display_clock_setting": "display clocks",
    "board_limit": "limit of the board",
    "reliability": "voltage limit for reliability",
}
"""Reasons for slower clocks, by the driver's names."""
_SHORTEST_S: Final = 1.0
"""Time below which no share is told."""
_HOT: Final = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})

_XIDS: Final = {
    13: "fault in a kernel: mostly the application's",
    31: "memory page fault: mostly the application's",
    43: "a channel was stopped: mostly the application's",
    45: "work was cleaned up after an error or a kill",
    48: "uncorrectable memory error (ECC)",
    63: "a memory row was remapped or a page retired",
    64: "a memory row could not be remapped: replace the GPU",
    74: "NVLink error: check links and switches",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error: the application was ended",
    95: "uncontained memory error: reset the GPU",
    119: "the GPU's system processor timed out",
    120: "the GPU's system processor failed",
    149: "NVLink error: check links and switches",
}
"""Xid codes as NVIDIA's list of Xid errors explains them."""


_ACTIVITY: Final = (
    (glossary.SM.name, "sm_active_ratio", values.percent),
    (glossary.OCCUPANCY.name, "sm_occupancy_ratio", values.percent),
    (glossary.TENSOR.name, "tensor_active_ratio", values.percent),
    ("memory busy", "memory_busy_ratio", values.percent),
)
_CLOCKS: Final = (
    (glossary.SM_CLOCK.name, "sm_clock_hz", values.megahertz),
    ("SM clock max", "sm_clock_max_hz", values.megahertz),
    ("memory clock", "memory_clock_hz", values.megahertz),
    ("memory clock max", "memory_clock_max_hz", values.megahertz),
)
_XGMI: Final = (
    ("XGMI links", "xgmi_links", values.whole),
    ("XGMI links up", "xgmi_links_up", values.whole),
    ("XGMI sent", "nvlink_tx_bytes_per_s", values.traffic),
    ("XGMI received", "nvlink_rx_bytes_per_s", values.traffic),
)
"""Links between AMD's GPUs, in the place of NVLink."""
_NVLINK: Final = (
    ("NVLink sent", "nvlink_tx_bytes_per_s", values.traffic),
    ("NVLink received", "nvlink_rx_bytes_per_s", values.traffic),
)
_LINKS: Final = (
    ("PCIe lanes max", "pcie_width_max", values.whole),
    ("PCIe sent", "pcie_tx_bytes_per_s", values.traffic),
    ("PCIe received", "pcie_rx_bytes_per_s", values.traffic),
)
_ERRORS: Final = {
    "ecc_uncorrected": ("ECC uncorrected", "warn"),
    "ecc_corrected": ("ECC corrected", "text"),
    "remap_pending": ("remap pending", "warn"),
    "remap_failed": ("remap failed", "warn"),
}
"""Counter -> its name, and its tone where it is not 0."""
_BAD_PAGES: Final = {
    "bad_pages": ("bad pages", "text"),
    "bad_pages_pending": ("bad pages to go", "warn"),
}
"""The same of AMD's GPUs, which have no row remapping."""


class ThrottleWatch(NamedTuple):
    """How long a GPU was throttled at two moments, to tell its share of the time between.

    The driver's counters are read less often than the page is drawn, so only where they change is it known when they
    were read: the first change after the page was opened is the one moment, the last one the other.
    """

    throttle_s: dict[str, float]
    wall_s: float = 0.0
    """When they changed to that (Unix time)."""
    first: tuple[float, dict[str, float]] | None = None
    """The first change: when, and to what."""

    def follow(self, throttle_s: dict[str, float], wall_s: float) -> ThrottleWatch:
        """With figures read at `wall_s` (Unix time)."""
        if not throttle_s or throttle_s == self.throttle_s:
            return self
        if not self.throttle_s:
            return ThrottleWatch(throttle_s)
        return ThrottleWatch(throttle_s, wall_s, self.first or (wall_s, throttle_s))

    def share_text(self, cause: str) -> str:
        """How much of the time that was; empty before the second change."""
        if self.first is None:
            return ""
        first_wall_s, before_s = self.first
        lasted_s = self.wall_s - first_wall_s
        if lasted_s < _SHORTEST_S or cause not in before_s or cause not in self.throttle_s:
            return ""
        slowed_s = min(lasted_s, max(0.0, self.throttle_s[cause] - before_s[cause]))
        share = figure_text(values.percent(slowed_s / lasted_s))
        start, end = (shown_time(moment_s, self.wall_s).clock for moment_s in (first_wall_s, self.wall_s))
        slowed = figure_text(values.plain_seconds(slowed_s))
        return f"of it {slowed} in the {duration_text(lasted_s)} from {start} to {end}: {share} of the time"


def sections(gpu: Gpu, snapshot: Snapshot, view: View, watch: ThrottleWatch | None) -> list[Section]:
    """All sections, in the order of a narrow screen; `watch`: how its throttling was when the page was opened."""
    runs = next(
        (f"{clean(command_text(process), 60)} (pid {process.pid})" for process in gpu.processes if not process.engine),
        "",
    )
    subject = Subject(is_blank(gpu), gpu=gpu.index, runs=runs, free=has_no_use(gpu))
    figures = FigureMaker(gpu, gpu.sources, explain(subject))
    return [
        _activity(gpu, figures),
        _bandwidth(gpu, figures),
        _efficiency(gpu, snapshot, figures),
        _memory(gpu, view, figures),
        _tenants(gpu, snapshot, view),
        _power(gpu, view, figures),
        gpu_cost_section(gpu, figures),
        Section("clocks", figures.table(_CLOCKS), side=1),
        _throttling(gpu, snapshot.counted_since, figures, watch),
        _errors(gpu, figures),
        _links(gpu, figures),
        _identity(gpu, snapshot, figures),
    ]


def _activity(gpu: Gpu, figures: FigureMaker) -> Section:
    entries: list[Entry] = [
        figures(glossary.BUSY.name, "busy_ratio", values.percent),
        figures("busy mean", "busy_mean_ratio", values.percent, DERIVED),
        *figures.table(_ACTIVITY),
    ]
    pair = known_numbers(gpu.busy_ratio, gpu.sm_active_ratio)
    if pair and pair[0] < IDLE_BELOW:
        entries.append(Sentence("idle: no kernel ran in the last sample"))
        if pair[1] >= IDLE_BELOW:
            entries.append(Sentence("SM active is of another interval: work of a moment may show in one of them only"))
    elif pair and pair[1] >= pair[0]:
        entries.append(Sentence("whenever a kernel ran, all SMs had work"))
    elif pair:
        busy, active = (f"{100 * share:.0f} %" for share in pair)
        points = counted(round(100 * max(0.0, pair[0] - pair[1])), "point")
        gap = f"{points} of the chip stood idle while it counted as busy"
        entries.append(Sentence(f"a kernel ran {busy} of the time, but the mean SM had work {active}: {gap}"))
    elif known_numbers(gpu.busy_ratio):
        entries.append(Sentence("busy is the share of time with any kernel, not the work done"))
    return Section("activity", entries)


def _bandwidth(gpu: Gpu, figures: FigureMaker) -> Section:
    basis, meaning = _BANDWIDTH[gpu.bandwidth_source]
    used = _share(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s, values.traffic)
    if used and gpu.bandwidth_peak_unverified:
        used += " ?"
    of_peak = DERIVED if "clock" in gpu.peak_source else ESTIMATED
    peak = figures("peak bandwidth", "bandwidth_peak_bytes_per_s", values.traffic, of_peak)
    entries: list[Entry] = [
        figures(glossary.BANDWIDTH.name, "bandwidth_bytes_per_s", values.traffic, basis, used),
        peak._replace(source=clean(gpu.peak_source.rpartition("bandwidth: ")[2])),
    ]
    if meaning:
        entries.append(Sentence(meaning))
    if gpu.bandwidth_peak_unverified:
        entries.append(Sentence("? the peak is derived, or rests on one source only"))
    return Section(glossary.BANDWIDTH.name, entries)


def _share(part: Reading, whole: Reading, write: values.Write) -> str:
    """`31.24 % of 3.352 TB/s`."""
    pair = known_numbers(part, whole)
    if pair and pair[1] > 0.0:
        return f"{figure_text(values.percent(pair[0] / pair[1]))} of {figure_text(write(pair[1]))}"
    return ""


def _efficiency(gpu: Gpu, snapshot: Snapshot, figures: FigureMaker) -> Section:
    here = _engines_on(gpu, snapshot)
    entries: list[Entry] = [
        figures("MFU", "mfu_ratio", values.percent, DERIVED, _sum(here, "mfu_ratio")),
        figures("MBU", "mbu_ratio", values.percent, DERIVED, _sum(here, "mbu_ratio")),
        figures(f"{gpu.flops_peak_precision or 'FLOP/s'} peak", "flops_peak_per_s", values.flop_rate, ESTIMATED),
    ]
    if known_numbers(gpu.achievable_ratio):
        entries.append(figures("achievable", "achievable_ratio", values.percent, ESTIMATED))
    if gpu.tokens_per_j not in BY_NATURE:
        entries.append(figures(glossary.TOKENS_PER_JOULE.name, "tokens_per_j", values.tokens_per_joule, DERIVED))
    shares = (("MFU", gpu.mfu_ratio), ("MBU", gpu.mbu_ratio))
    impossible = [name for name, ratio in shares if is_above_one(ratio)]
    if impossible:
        names = " and ".join(impossible)
        entries.append(Sentence(f"! {names} above 100 %: see the cross-check of the engine", "warn"))
    if gpu.peak_unverified:
        entries.append(Sentence("? the FLOP/s peak is derived, assumed, or rests on one source only"))
    text = "FLOPs and bytes that the tokens needed, as shares of the peaks; the engine's page has all"
    return Section("efficiency", [*entries, Sentence(text)])


def _engines_on(gpu: Gpu, snapshot: Snapshot) -> list[Engine]:
    """The engines that run on a GPU."""
    return [engine for engine in snapshot.engines if engine.name in gpu.engines and gpu.index in engine.hardware.gpus]


def _sum(engines: Sequence[Engine], field: str) -> str:
    """The shares of the engines on it, as a sum with the numbers put in."""
    template = " + ".join(f"{engine.name.replace('{', '{{').replace('}', '}}')} {{}}" for engine in engines)
    return formula_text(template, *((value_of(engine, field), values.percent) for engine in engines))


def _memory(gpu: Gpu, view: View, figures: FigureMaker) -> Section:
    write = values.memory(view)
    used = _share(gpu.vram_used_bytes, gpu.vram_total_bytes, write)
    rows = (("total", "vram_total_bytes", write), ("reserved", "vram_reserved_bytes", write))
    entries: list[Entry] = [figures("used", "vram_used_bytes", write, formula=used), *figures.table(rows)]
    if gpu.vram_shared:
        entries.append(Sentence("this GPU uses the host's memory: the figures are the host's"))
    elif holds_vram(gpu):
        entries.append(Sentence("! VRAM held: no engine known and nothing runs, but the memory is not free", "warn"))
    if not gpu.vram_shared and known_numbers(gpu.vram_reserved_bytes):
        entries.append(Sentence("reserved is the driver's own, and not part of used"))
    return Section("VRAM", entries)


def _tenants(gpu: Gpu, snapshot: Snapshot, view: View) -> Section:
    write = values.memory(view)
    entries: list[Entry] = []
    for engine in _engines_on(gpu, snapshot):
        work = f"{_WORK[engine.phase]} on GPUs {spans(engine.hardware.gpus)}"
        if engine.model:
            work = f"{work}: {engine.model}"
        entries.append(Fact(engine.name, work))
    entries += [_process_line(process, write) for process in gpu.processes[:_MOST_PROCESSES]]
    more = len(gpu.processes) - _MOST_PROCESSES
    if more > 0:
        entries.append(Sentence(f"and {more} more: see the pane of the processes"))
    return Section("runs here", entries or [Sentence("no engine and no process is known on it")], side=1)


def _process_line(process: Process, write: values.Write) -> ReadyLine:
    """Number, VRAM, share of the SMs and name of a process."""
    vram = process.vram_bytes
    if isinstance(vram, Missing):
        size = short(vram)
    else:
        size = figure_text(write(vram))
    share = sm_share(process.sm_ratio, 5)
    return ReadyLine(
        (
            (f"  {left(f'pid {process.pid}', 12)}", "muted"),
            (f"{right(size, 11)} {right(share, 5)} SM  ", "text"),
            (clean(_who(process)), "text"),
        )
    )


def _who(process: Process) -> str:
    """The name of a process of an engine, else its command line; behind it the engine, else the user."""
    if process.engine:
        name = process.name
    else:
        name = command_text(process)
    return f"{name}  {process.engine or process.user}"


def _power(gpu: Gpu, view: View, figures: FigureMaker) -> Section:
    degrees = values.temperature(view)
    heat = "text"
    of_limit = _share(gpu.power_w, gpu.power_limit_w, values.watts).replace("%!", "%")
    if of_limit:
        of_limit = f"{of_limit.partition(' of ')[0]} of the limit"
    if not isinstance(gpu.temperature_c, Missing) and gpu.temperature_c >= view.levels.temperature_warn_c:
        heat = "critical" if gpu.temperature_c >= view.levels.temperature_critical_c else "warn"
    entries: list[Entry] = [
        figures("power", "power_w", values.watts, formula=of_limit),
        figures(glossary.POWER_LIMIT.name, "power_limit_w", values.watts),
        figures(glossary.ENERGY.name, "energy_j", values.joules),
        figures(glossary.TEMPERATURE.name, "temperature_c", degrees, tone=heat),
        figures(glossary.MEMORY_TEMPERATURE.name, "memory_temperature_c", degrees),
        figures(glossary.FAN.name, "fan_ratio", values.percent),
    ]
    return Section("power and heat", entries, side=1)


def _throttling(gpu: Gpu, counted_since: str, figures: FigureMaker, watch: ThrottleWatch | None) -> Section:
    """The causes that slow the clocks now, and the seconds for which each has."""
    entries = [*_throttles_now(gpu), *_throttled_times(gpu, figures, watch)]
    if gpu.throttle_s:
        entries.append(Sentence(gpu.sources.get("throttle_s", "seconds since gpumon started, counted by the driver")))
    else:
        entries.append(Sentence("the driver keeps no counters of throttled time for this GPU"))
    if counted_since:
        entries.append(Sentence(f"energy and throttled time counted since {clock(wall_of(counted_since))}"))
    return Section("throttling", entries, side=1)


def _throttles_now(gpu: Gpu) -> list[Entry]:
    """The causes that slow the clocks now; nothing for a GPU that shows no figures."""
    if not gpu.throttle and not is_blank(gpu):
        return [Fact("now", "nothing slows the clocks")]
    entries: list[Entry] = []
    for name in gpu.throttle:
        tone = "warn" if name in _HOT else "text"
        entries.append(Fact("now", _CAUSES.get(name, clean(name)), tone=tone))
    return entries


def _throttled_times(gpu: Gpu, figures: FigureMaker, watch: ThrottleWatch | None) -> list[Entry]:
    """Seconds for which each cause has slowed the clocks; those that never did in one sentence."""
    entries: list[Entry] = []
    never = []
    for name, seconds in sorted(gpu.throttle_s.items()):
        words = name.replace("_", " ")
        if seconds <= 0.0:
            never.append(words)
            continue
        share = ""
        if watch is not None:
            share = watch.share_text(name)
        row = figures.of_reading(seconds, words[:18], "", values.plain_seconds, formula=share)
        entries.append(row._replace(source=_CAUSES.get(name, "")))
    if never:
        entries.append(Sentence(f"0 s since gpumon started: {', '.join(sorted(never))}"))
    return entries


def _errors(gpu: Gpu, figures: FigureMaker) -> Section:
    """Counters of errors, and the Xid events."""
    entries: list[Entry] = [figures("ECC", "ecc_mode", values.on_off)]
    counters = _ERRORS
    if not isinstance(gpu.bad_pages, Missing):
        counters = _ERRORS | _BAD_PAGES
    for field, (name, tone) in counters.items():
        count = known_numbers(value_of(gpu, field))
        if not count or count[0] <= 0.0:
            tone = "text"
        entries.append(figures(name, field, values.whole, tone=tone))
    for code in dict.fromkeys(gpu.xid):
        times = ""
        if gpu.xid.count(code) > 1:
            times = f", {gpu.xid.count(code)} times"
        meaning = _XIDS.get(code, "see NVIDIA's list of Xid errors, and dmesg")
        entries.append(Fact(f"Xid {code}", f"{meaning}{times}", tone="warn"))
    if not gpu.xid:
        entries.append(Fact("Xid events", "none since gpumon started"))
    return Section("errors", entries, side=1)


def _links(gpu: Gpu, figures: FigureMaker) -> Section:
    lanes = known_numbers(gpu.pcie_width, gpu.pcie_width_max)
    narrow = lanes is not None and lanes[0] < lanes[1]
    entries: list[Entry] = [
        figures("PCIe generation", "pcie_generation", values.whole),
        figures("PCIe gen. max", "pcie_generation_max", values.whole),
        figures("PCIe lanes", "pcie_width", values.whole, tone="warn" if narrow else "text"),
        *figures.table(_LINKS),
        *figures.table(_NVLINK if isinstance(gpu.xgmi_links, Missing) else _XGMI),
    ]
    if lanes is not None and narrow:
        text = (
            f"! x{lanes[0]:.0f} of x{lanes[1]:.0f} lanes: a riser, a slot or a dirty contact, if it stays so under load"
        )
        entries.append(Sentence(text, "warn"))
    steps = known_numbers(gpu.pcie_generation, gpu.pcie_generation_max)
    if steps and steps[0] < steps[1]:
        text = f"generation {steps[0]:.0f} of {steps[1]:.0f}: an idle GPU trains its link down; under load it goes up"
        entries.append(Sentence(text))
    return Section("links", entries, side=1)


def _identity(gpu: Gpu, snapshot: Snapshot, figures: FigureMaker) -> Section:
    entries: list[Entry] = [Fact("name", gpu.name), Fact("UUID", gpu.uuid)]
    if gpu.compute_capability:
        entries.append(Fact("compute", f"capability {gpu.compute_capability}"))
    if snapshot.host.driver:
        entries.append(Fact("driver", snapshot.host.driver))
    if snapshot.host.cuda:
        entries.append(Fact("CUDA", f"{snapshot.host.cuda}, the newest that the driver runs"))
    entries.append(figures("persistence mode", "persistence_mode", values.on_off))
    if gpu.mig_profile or gpu.parent_uuid:
        entries.append(Fact("MIG slice", f"{gpu.mig_profile} of {gpu.parent_uuid}"))
    profiles = Counter(part.mig_profile for part in snapshot.gpus if part.parent_uuid and part.parent_uuid == gpu.uuid)
    if profiles:
        layout = ", ".join(f"{count}x {clean(profile) or 'unnamed'}" for profile, count in profiles.items())
        entries.append(Fact("MIG slices", layout))
    entries.append(Fact("peaks from", gpu.peak_source))
    return Section("identity", entries, side=1)
