"""A GPU's page: how busy, how efficient, its memory, what runs on it, and its health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.gpu import over_window
from gpumon.efficiency.service import BY_NATURE
from gpumon.figures.gpu import GPU, IN_ROWS, SHARES_OF_PEAKS
from gpumon.readings.flat import value_of
from gpumon.readings.format import counted, left, right, short, wall_of
from gpumon.readings.frame import GpuProcess, Phase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Snapshot
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
from gpumon.tui.detail.costs import cost_section
from gpumon.tui.detail.formulas import UNVERIFIED_BANDWIDTH, mbu_formula, mfu_formula
from gpumon.tui.detail.things import is_blank
from gpumon.tui.detail.values import (
    duration_text,
    figure_text,
    formula_text,
    is_above_one,
    known_number,
    known_numbers,
    shown_time,
)
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.gpu_table import IDLE_BELOW, has_no_use, holds_vram
from gpumon.tui.levels import tone_of
from gpumon.tui.process_table import command_text, sm_share
from gpumon.tui.table import clock, spans
from gpumon.tui.view import View

_MOST_PROCESSES: Final = 32
"""Processes that have a line."""
_PID_CELLS: Final = 12
_SIZE_CELLS: Final = 11
_SM_SHARE_CELLS: Final = 5
"""Cells of pid, VRAM and share of the SMs in the line of a process."""
_LONGEST_COMMAND: Final = 60
"""Characters of a command inside a sentence."""
_WORK_OF_PHASE: Final = {Phase.INFERENCE: "engine", Phase.TRAINING: "training"}

_BANDWIDTH_BASES: Final = {
    BandwidthSource.GPM: (MEASURED, "measured by the GPU itself"),
    BandwidthSource.DCGM: (MEASURED, "measured by the GPU, read through DCGM"),
    BandwidthSource.ENGINE: (
        DERIVED,
        "at least this much (≥): modelled from the steps of the engines here, so it is no check on their MBU",
    ),
    BandwidthSource.ENGINE_MEAN: (
        DERIVED,
        "mean over the engine's GPUs (~): modelled from its steps, and ranks, stages, experts or GPUs may differ",
    ),
    BandwidthSource.UPPER_BOUND: (
        ESTIMATED,
        "at most this much (≤): memory busy is the share of time with any access, not of the bytes that could move",
    ),
    BandwidthSource.NONE: ("", ""),
}
"""Source of the bandwidth -> its basis, and how it is to be read."""

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
"""Causes of slower clocks, by the driver's names."""
_BAD_CAUSES: Final = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})
"""Causes of slower clocks that are a trouble of the server, and no limit that somebody set."""
_LEAST_WATCHED_S: Final = 1.0
"""Seconds between two readings of the throttle counters below which their share of the time says nothing."""

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
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "memory_busy_ratio",
)
_CLOCKS: Final = (
    "sm_clock_hz",
    "sm_clock_max_hz",
    "memory_clock_hz",
    "memory_clock_max_hz",
)
_NVLINK: Final = (
    "nvlinks",
    "nvlinks_active",
    "nvlink_errors",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
)
_PCIE: Final = (
    "pcie_width_max",
    "pcie_replays",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
)


_ERRORS: Final = {"ecc_uncorrected": "warn", "ecc_corrected": "text", "remap_pending": "warn", "remap_failed": "warn"}
"""Counter of errors -> its tone where it is not 0."""
_BAD_PAGES: Final = {"bad_pages": "text", "bad_pages_pending": "warn"}
"""The same of counters that only AMD's GPUs have."""


class ThrottleWatch(NamedTuple):
    """The throttle counters of a GPU at two moments, which give the share of the time between that it was throttled.

    The driver's counters are read less often than the page is drawn, so only where they change is it known when they
    were read: the first change after the page was opened is the one moment, the last change the other.
    """

    throttle_s: dict[str, float]
    """The newest counters: seconds by cause."""
    wall_s: float = 0.0
    """When they changed to these (Unix time)."""
    first: tuple[float, dict[str, float]] | None = None
    """The first change: its Unix time, and the counters after it."""

    def follow(self, throttle_s: dict[str, float], wall_s: float) -> ThrottleWatch:
        """The watch after counters that were read at `wall_s` (Unix time)."""
        if not throttle_s or throttle_s == self.throttle_s:
            return self
        if not self.throttle_s:  # the first counters are no change
            return ThrottleWatch(throttle_s)
        return ThrottleWatch(throttle_s, wall_s, self.first or (wall_s, throttle_s))

    def share_text(self, cause: str) -> str:
        """For how much of the time between both moments a cause slowed the clocks; empty before the second change."""
        if self.first is None:
            return ""
        first_wall_s, first_throttle_s = self.first
        watched_s = self.wall_s - first_wall_s
        if watched_s < _LEAST_WATCHED_S or cause not in first_throttle_s or cause not in self.throttle_s:
            return ""
        # Counters and clock are read one after the other: a counter may grow by a little more than the time between.
        slowed_s = min(watched_s, max(0.0, self.throttle_s[cause] - first_throttle_s[cause]))
        share = figure_text(values.percent(slowed_s / watched_s))
        begin = shown_time(first_wall_s, self.wall_s).clock
        end = shown_time(self.wall_s, self.wall_s).clock
        slowed = figure_text(values.plain_seconds(slowed_s))
        return f"of it {slowed} in the {duration_text(watched_s)} from {begin} to {end}: {share} of the time"


def sections(gpu: Gpu, snapshot: Snapshot, view: View, watch: ThrottleWatch | None) -> list[Section]:
    """All sections, in the order of a narrow screen; `watch`: its throttling since the page was opened."""
    subject = Subject(
        is_blank=is_blank(gpu),
        is_gpu=True,
        gpu=gpu.reading.index,
        other_process=_other_process(gpu),
        is_free=has_no_use(gpu),
    )
    figures = FigureMaker(gpu, GPU, gpu.sources, make_explainer(subject))
    return [
        _activity_section(gpu, figures),
        _bandwidth_section(gpu, figures),
        _efficiency_section(gpu, snapshot, figures),
        _memory_section(gpu, view, figures),
        _tenants_section(gpu, snapshot, view),
        _power_section(gpu, view, figures),
        cost_section(gpu, figures),
        Section("clocks", figures.table(_CLOCKS), side=1),
        _throttling_section(gpu, snapshot.counted_since, figures, watch),
        _errors_section(gpu, figures),
        _links_section(gpu, figures),
        _identity_section(gpu, snapshot, figures),
    ]


def _other_process(gpu: Gpu) -> str:
    """Command and pid of the first process that is of no engine; empty where there is none."""
    for process in gpu.reading.processes:
        if not process.engine:
            return f"{clean(command_text(process), _LONGEST_COMMAND)} (pid {process.pid})"
    return ""


def _activity_section(gpu: Gpu, figures: FigureMaker) -> Section:
    """How busy the GPU and its units are, and how busy and SM active go together."""
    entries: list[Entry] = [
        figures.of_field("busy_ratio"),
        figures.of_field("busy_mean_ratio", DERIVED),
        *figures.table(_ACTIVITY),
    ]
    entries += figures.known(IN_ROWS, DERIVED)
    shares = known_numbers(gpu.reading.busy_ratio, gpu.reading.sm_active_ratio)
    if shares is not None:
        busy, sm_active = shares
        entries += [Sentence(text) for text in _busy_texts(busy, sm_active)]
    elif known_number(gpu.reading.busy_ratio) is not None:
        entries.append(Sentence("busy is the share of time with any kernel, not the work done"))
    return Section("activity", entries)


def _busy_texts(busy: float, sm_active: float) -> list[str]:
    """The meaning of the shares busy and SM active beside each other."""
    if busy < IDLE_BELOW:
        texts = ["idle: no kernel ran in the last sample"]
        if sm_active >= IDLE_BELOW:
            texts.append("SM active is of another interval: work of a moment may show in one of them only")
        return texts
    if sm_active >= busy:
        return ["SM active is as high as busy: while a kernel ran, about all SMs had work"]
    points = counted(round(100 * (busy - sm_active)), "point")
    gap = f"{points} of the chip stood idle while it counted as busy"
    return [f"a kernel ran {100 * busy:.0f}% of the time, but the mean SM had work {100 * sm_active:.0f}%: {gap}"]


def _bandwidth_section(gpu: Gpu, figures: FigureMaker) -> Section:
    """Bytes that the memory moves, their share of its peak, and how far that may be trusted."""
    basis, meaning = _BANDWIDTH_BASES[gpu.bandwidth_source]
    share = _share_text(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s, values.traffic)
    if share and gpu.bandwidth_peak_unverified:
        share += " ?"
    # The driver gives the memory clock and the width of the bus.
    peak_basis = DERIVED if "clock" in gpu.peak_source else ESTIMATED
    peak = figures.of_field("bandwidth_peak_bytes_per_s", peak_basis)
    peak_source = gpu.peak_source.rpartition("bandwidth: ")[2]  # before it stands the source of the FLOP/s peak
    entries: list[Entry] = [
        figures.of_field("bandwidth_bytes_per_s", basis, formula=share),
        peak._replace(source=clean(peak_source)),
    ]
    if meaning:
        entries.append(Sentence(meaning))
    if gpu.bandwidth_peak_unverified:
        entries.append(UNVERIFIED_BANDWIDTH)
    return Section(GPU["bandwidth_bytes_per_s"].name, entries)


def _share_text(part: Reading, whole: Reading, write: values.Write) -> str:
    """A part as share of the whole: `31.24% of 3.352 TB/s`; empty where one of them is missing."""
    known_part = known_number(part)
    known_whole = known_number(whole)
    if known_part is None or known_whole is None or known_whole <= 0.0:
        return ""
    return f"{figure_text(values.percent(known_part / known_whole))} of {figure_text(write(known_whole))}"


def _efficiency_section(gpu: Gpu, snapshot: Snapshot, figures: FigureMaker) -> Section:
    """MFU and MBU of all engines on the GPU, and the peaks that they are shares of."""
    engines = _engines_on(gpu, snapshot)
    mfu = _sum_formula(engines, "mfu_ratio", mfu_formula)
    mbu = _sum_formula(engines, "mbu_ratio", mbu_formula)
    entries: list[Entry] = [
        figures.of_field("mfu_ratio", DERIVED, formula=mfu),
        figures.of_field("mbu_ratio", DERIVED, formula=mbu),
        figures.of_field("flops_peak_per_s", ESTIMATED, name=f"{gpu.flops_peak_precision or 'FLOP/s'} peak"),
    ]
    if known_number(gpu.achievable_ratio) is not None:
        entries.append(figures.of_field("achievable_ratio", ESTIMATED))
    if gpu.tokens_per_j not in BY_NATURE:
        entries.append(figures.of_field("tokens_per_j", DERIVED))
    impossible = [GPU[field].name for field in SHARES_OF_PEAKS if is_above_one(value_of(gpu, field))]
    if impossible:
        names = " and ".join(impossible)
        entries.append(Sentence(f"! {names} above 100%: see the cross-check of the engine", "warn"))
    if gpu.peak_unverified:
        entries.append(Sentence("? the FLOP/s peak is derived, assumed, or rests on one source only"))
    text = "FLOPs and bytes that the tokens needed, as shares of the peaks; the engine's page has all"
    return Section("efficiency", [*entries, Sentence(text)])


def _engines_on(gpu: Gpu, snapshot: Snapshot) -> list[Engine]:
    """The engines that run on a GPU, as far as the snapshot has them."""
    return [
        engine
        for engine in snapshot.engines
        if engine.name in gpu.engines and gpu.reading.index in engine.hardware.gpus
    ]


def _sum_formula(engines: Sequence[Engine], field: str, formula_of: Callable[[Engine], str]) -> str:
    """The formula of the one engine; of several the sum of their shares: `vllm:8000 31.24% + vllm:8001 12.00%`.

    Empty where the share of one is missing. `formula_of`: formula of an engine's share, empty where it is not known.
    """
    parts = []
    for engine in engines:
        share = formula_text("{}", (value_of(engine, field), values.percent))
        if not share:
            return ""
        parts.append(f"{engine.name} {share}")
    formulas = [formula_of(engine) for engine in engines]
    if len(engines) == 1 and formulas[0]:
        return f"{engines[0].name}: {formulas[0]}"
    text = " + ".join(parts)
    if all(formulas):
        text += "; their rows have the formulas"
    return text


def _memory_section(gpu: Gpu, view: View, figures: FigureMaker) -> Section:
    """VRAM in use, in all, and reserved by the driver."""
    write = values.memory(view)
    share = _share_text(gpu.reading.vram_used_bytes, gpu.reading.vram_total_bytes, write)
    entries: list[Entry] = [
        figures.of_field("vram_used_bytes", name="used", write=write, formula=share),
        figures.of_field("vram_total_bytes", name="total", write=write),
        figures.of_field("vram_reserved_bytes", name="reserved", write=write),
    ]
    if gpu.reading.vram_shared:
        entries.append(Sentence("this GPU uses the host's memory: the figures are the host's"))
    elif holds_vram(over_window(gpu)):
        text = "! VRAM held: no engine is known on it and it is below 1% busy, but the memory is not free"
        entries.append(Sentence(text, "warn"))
    if not gpu.reading.vram_shared and known_number(gpu.reading.vram_reserved_bytes) is not None:
        entries.append(Sentence("reserved is the driver's own, and not part of used"))
    return Section("VRAM", entries)


def _tenants_section(gpu: Gpu, snapshot: Snapshot, view: View) -> Section:
    """The engines and the processes on the GPU."""
    write = values.memory(view)
    entries: list[Entry] = []
    for engine in _engines_on(gpu, snapshot):
        work = f"{_WORK_OF_PHASE[engine.phase]} on GPUs {spans(engine.hardware.gpus)}"
        if engine.model:
            work = f"{work}: {engine.model}"
        entries.append(Fact(engine.name, work))
    entries += [_process_line(process, write) for process in gpu.reading.processes[:_MOST_PROCESSES]]
    more = len(gpu.reading.processes) - _MOST_PROCESSES
    if more > 0:
        entries.append(Sentence(f"and {more} more: see the pane of the processes"))
    return Section("runs here", entries or [Sentence("no engine and no process is known on it")], side=1)


def _process_line(process: GpuProcess, write: values.Write) -> ReadyLine:
    """Pid, VRAM, share of the SMs and name of a process."""
    vram = process.vram_bytes
    size = short(vram) if isinstance(vram, Missing) else figure_text(write(vram))
    share = sm_share(process.sm_ratio, _SM_SHARE_CELLS)
    pid = left(f"pid {process.pid}", _PID_CELLS)
    figures = f"{right(size, _SIZE_CELLS)} {right(share, _SM_SHARE_CELLS)} SM  "
    name = f"{process.name}  {process.engine}" if process.engine else f"{command_text(process)}  {process.user}"
    return ReadyLine(((f"  {pid}", "muted"), (figures, "text"), (clean(name), "text")))


def _power_section(gpu: Gpu, view: View, figures: FigureMaker) -> Section:
    """Power with its limit, energy, and what becomes of them: temperatures and the fan."""
    degrees = values.temperature(view)
    of_limit = ""
    power_w = known_number(gpu.power_w)
    limit_w = known_number(gpu.reading.power_limit_w)
    if power_w is not None and limit_w is not None and limit_w > 0.0:
        # No mark above 100%: short peaks above the limit are normal.
        share = figure_text(values.percent(power_w / limit_w)).replace("%!", "%")
        of_limit = f"{share} of the limit"
    tone = tone_of(GPU["temperature_c"].level, gpu.reading.temperature_c, view)
    entries: list[Entry] = [
        figures.of_field("power_w", formula=of_limit),
        figures.of_field("power_limit_w"),
        figures.of_field("energy_j"),
        figures.of_field("temperature_c", write=degrees, tone=tone),
        figures.of_field("memory_temperature_c", write=degrees),
        figures.of_field("fan_ratio"),
    ]
    return Section("power and heat", entries, side=1)


def _throttling_section(gpu: Gpu, counted_since: str, figures: FigureMaker, watch: ThrottleWatch | None) -> Section:
    """The causes that slow the clocks now, and the seconds for which each has.

    `counted_since`: when the counts began (RFC 3339) at a moment of the past; empty now.
    """
    entries = [*_causes_now(gpu), *_throttled_times(gpu, figures, watch)]
    if gpu.throttle_s:
        entries.append(Sentence(gpu.sources.get("throttle_s", "seconds since gpumon started, counted by the driver")))
    elif gpu.is_told("throttle_s"):
        entries.append(Sentence("the driver keeps no counters of throttled time for this GPU"))
    if counted_since:
        entries.append(Sentence(f"energy and throttled time counted since {clock(wall_of(counted_since))}"))
    return Section("throttling", entries, side=1)


def _causes_now(gpu: Gpu) -> list[Entry]:
    """The causes that slow the clocks now; nothing for a GPU that shows no figures."""
    if not gpu.reading.throttle and not is_blank(gpu):
        if gpu.is_told("throttle"):
            return [Fact("now", "nothing slows the clocks")]
        return [Fact("now", "not known: what this GPU is read from does not tell what slows its clocks")]
    return [
        Fact("now", _CAUSES.get(name, clean(name)), tone="warn" if name in _BAD_CAUSES else "text")
        for name in gpu.reading.throttle
    ]


def _throttled_times(gpu: Gpu, figures: FigureMaker, watch: ThrottleWatch | None) -> list[Entry]:
    """Seconds for which each cause has slowed the clocks; those that never did in one sentence."""
    entries: list[Entry] = []
    unseen_causes = []
    for name, seconds in sorted(gpu.throttle_s.items()):
        words = name.replace("_", " ")
        if seconds <= 0.0:
            unseen_causes.append(words)
            continue
        share = watch.share_text(name) if watch is not None else ""
        figure = figures.of_reading(seconds, words.removesuffix(" slowdown"), "", values.plain_seconds, formula=share)
        entries.append(figure._replace(source=_CAUSES.get(name, "")))
    if unseen_causes:
        entries.append(Sentence(f"0 s since gpumon started: {', '.join(sorted(unseen_causes))}"))
    return entries


def _errors_section(gpu: Gpu, figures: FigureMaker) -> Section:
    """Counters of errors, and the Xid events."""
    entries: list[Entry] = [figures.of_field("ecc_mode", write=values.on_off)]
    counters = _ERRORS if isinstance(gpu.reading.bad_pages, Missing) else _ERRORS | _BAD_PAGES
    for field, tone_of_errors in counters.items():
        count = known_number(value_of(gpu, field))
        tone = tone_of_errors if count is not None and count > 0.0 else "text"
        entries.append(figures.of_field(field, tone=tone))
    for code in dict.fromkeys(gpu.xid):
        times = f", {gpu.xid.count(code)} times" if gpu.xid.count(code) > 1 else ""
        meaning = _XIDS.get(code, "see NVIDIA's list of Xid errors, and dmesg")
        entries.append(Fact(f"Xid {code}", f"{meaning}{times}", tone="warn"))
    if not gpu.xid:
        entries.append(Fact("Xid events", "none since gpumon started"))
    return Section("errors", entries, side=1)


def _links_section(gpu: Gpu, figures: FigureMaker) -> Section:
    """PCIe, with a warning where it has fewer lanes than it could, and the links between GPUs."""
    lanes = known_number(gpu.reading.pcie_width)
    most_lanes = known_number(gpu.reading.pcie_width_max)
    is_narrow = lanes is not None and most_lanes is not None and lanes < most_lanes
    has_xgmi = not isinstance(gpu.reading.xgmi_links, Missing)
    entries: list[Entry] = [
        *figures.table(("pcie_generation", "pcie_generation_max")),
        figures.of_field("pcie_width", tone="warn" if is_narrow else "text"),
        *figures.table(_PCIE),
        *(_xgmi_entries(figures) if has_xgmi else figures.table(_NVLINK)),
    ]
    if is_narrow:
        cause = "a riser, a slot or a dirty contact, if it stays so under load"
        entries.append(Sentence(f"! x{lanes:.0f} of x{most_lanes:.0f} lanes: {cause}", "warn"))
    generations = known_numbers(gpu.reading.pcie_generation, gpu.reading.pcie_generation_max)
    if generations is not None:
        generation, newest_generation = generations
        if generation < newest_generation:
            text = f"generation {generation:.0f} of {newest_generation:.0f}"
            entries.append(Sentence(f"{text}: an idle GPU trains its link down; under load it goes up"))
    return Section("links", entries, side=1)


def _xgmi_entries(figures: FigureMaker) -> list[Entry]:
    """Links between AMD's GPUs, which they have in place of NVLink; the traffic fields are the same."""
    return [
        *figures.table(("xgmi_links", "xgmi_links_up")),
        figures.of_field("nvlink_tx_bytes_per_s", name="XGMI sent"),
        figures.of_field("nvlink_rx_bytes_per_s", name="XGMI received"),
    ]


def _identity_section(gpu: Gpu, snapshot: Snapshot, figures: FigureMaker) -> Section:
    """Names of the GPU and of its driver, its MIG slices, and where its peaks come from."""
    entries: list[Entry] = [Fact("name", gpu.reading.name), Fact("UUID", gpu.reading.uuid)]
    if gpu.reading.compute_capability:
        entries.append(Fact("compute", f"capability {gpu.reading.compute_capability}"))
    if snapshot.host.driver:
        entries.append(Fact("driver", snapshot.host.driver))
    if snapshot.host.cuda:
        entries.append(Fact("CUDA", f"{snapshot.host.cuda}, the newest that the driver runs"))
    entries.append(figures.of_field("persistence_mode", write=values.on_off))
    entries += _mig_facts(gpu, snapshot)
    entries.append(Fact("peaks from", gpu.peak_source))
    return Section("identity", entries, side=1)


def _mig_facts(gpu: Gpu, snapshot: Snapshot) -> list[Fact]:
    """The GPU that a MIG slice is of, and the slices of a GPU: `2x 1g.10gb, 1x 3g.40gb`; empty without MIG."""
    facts = []
    if gpu.reading.mig_profile or gpu.reading.parent_uuid:
        facts.append(Fact("MIG slice", f"{gpu.reading.mig_profile} of {gpu.reading.parent_uuid}"))
    profiles = Counter(
        mig_slice.reading.mig_profile
        for mig_slice in snapshot.gpus
        if mig_slice.reading.parent_uuid and mig_slice.reading.parent_uuid == gpu.reading.uuid
    )
    if profiles:
        layout = ", ".join(f"{count}x {clean(profile) or 'unnamed'}" for profile, count in profiles.items())
        facts.append(Fact("MIG slices", layout))
    return facts
