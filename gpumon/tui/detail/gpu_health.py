"""A GPU's page: power, clocks, throttling, errors and links."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.format import clock_utc, wall_of
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Fact, Figure, Figures, Section, Sentence
from gpumon.tui.detail.things import is_blank
from gpumon.tui.detail.values import known, lasting, moment_of, said
from gpumon.tui.view import View

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
"""What slows the clocks, by the driver's name."""
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


class Watch(NamedTuple):
    """How long a GPU was throttled at two moments, to tell its share of the time between.

    The driver's counters are read less often than the page is drawn, so only where they change is it known when they
    were read: the first change after the page was opened is the one moment, the last one the other.
    """

    throttle_s: dict[str, float]
    wall_s: float = 0.0
    """When they changed to that (Unix time)."""
    first: tuple[float, dict[str, float]] | None = None
    """The first change: when, and to what."""

    def follow(self, throttle_s: dict[str, float], wall_s: float) -> Watch:
        """With figures read at `wall_s` (Unix time)."""
        if not throttle_s or throttle_s == self.throttle_s:
            return self
        if not self.throttle_s:
            return Watch(throttle_s)
        return Watch(throttle_s, wall_s, self.first or (wall_s, throttle_s))

    def share(self, cause: str) -> str:
        """How much of the time that was; empty before the second change."""
        if self.first is None:
            return ""
        first_wall_s, before_s = self.first
        lasted_s = self.wall_s - first_wall_s
        if lasted_s < _SHORTEST_S or cause not in before_s or cause not in self.throttle_s:
            return ""
        slowed_s = min(lasted_s, max(0.0, self.throttle_s[cause] - before_s[cause]))
        share = said(values.percent(slowed_s / lasted_s))
        start, end = (moment_of(at, self.wall_s).clock for at in (first_wall_s, self.wall_s))
        slowed = said(values.plain_seconds(slowed_s))
        return f"of it {slowed} in the {lasting(lasted_s)} from {start} to {end}: {share} of the time"


def health(gpu: Gpu, counted_since: str, view: View, figures: Figures, watch: Watch | None) -> list[Section]:
    """The sections on the GPU's health; `counted_since` as in the snapshot."""
    return [
        _power(gpu, view, figures),
        _clocks(gpu, figures),
        _throttling(gpu, counted_since, figures, watch),
        _errors(gpu, figures),
        _links(gpu, figures),
    ]


def _power(gpu: Gpu, view: View, figures: Figures) -> Section:
    degrees = values.temperature(view)
    formula = ""
    if (pair := known(gpu.power_w, gpu.power_limit_w)) and pair[1] > 0.0:
        formula = f"{said(values.percent(pair[0] / pair[1])).rstrip('!')} of the limit"
    entries: list[Entry] = [
        figures("power", gpu.power_w, values.watts, "power_w", formula=formula),
        figures("power limit", gpu.power_limit_w, values.watts, "power_limit_w"),
        figures("energy", gpu.energy_j, values.joules, "energy_j"),
        figures("temperature", gpu.temperature_c, degrees, "temperature_c", tone=_heat(gpu.temperature_c, view)),
        figures("memory temp.", gpu.memory_temperature_c, degrees, "memory_temperature_c"),
    ]
    return Section("power and heat", entries, side=1)


def _heat(temperature_c: Reading, view: View) -> str:
    if isinstance(temperature_c, Missing) or temperature_c < view.levels.temperature_warn_c:
        return "text"
    return "critical" if temperature_c >= view.levels.temperature_critical_c else "warn"


def _clocks(gpu: Gpu, figures: Figures) -> Section:
    entries: list[Entry] = [
        figures("SM clock", gpu.sm_clock_hz, values.megahertz, "sm_clock_hz"),
        figures("SM clock max", gpu.sm_clock_max_hz, values.megahertz, "sm_clock_max_hz"),
        figures("memory clock", gpu.memory_clock_hz, values.megahertz, "memory_clock_hz"),
        figures("memory clock max", gpu.memory_clock_max_hz, values.megahertz, "memory_clock_max_hz"),
    ]
    return Section("clocks", entries, side=1)


def _throttling(gpu: Gpu, counted_since: str, figures: Figures, watch: Watch | None) -> Section:
    entries: list[Entry] = [
        Fact("now", _CAUSES.get(name, clean(name)), tone="warn" if name in _HOT else "text") for name in gpu.throttle
    ]
    if not gpu.throttle and not is_blank(gpu):
        entries.append(Fact("now", "nothing slows the clocks"))
    slowed = {name: seconds for name, seconds in sorted(gpu.throttle_s.items()) if seconds > 0.0}
    for name, seconds in slowed.items():
        formula = "" if watch is None else watch.share(name)
        row = figures(name.replace("_", " ")[:18], seconds, values.plain_seconds, "", formula=formula)
        entries.append(row._replace(source=_CAUSES.get(name, "")))
    free = [name.replace("_", " ") for name in gpu.throttle_s if name not in slowed]
    if free:
        entries.append(Sentence(f"0 s since gpumon started: {', '.join(sorted(free))}"))
    if gpu.throttle_s:
        entries.append(Sentence(gpu.sources.get("throttle_s", "seconds since gpumon started, counted by the driver")))
    else:
        entries.append(Sentence("the driver keeps no counters of throttled time for this GPU"))
    if counted_since:
        entries.append(
            Sentence(f"here energy and throttled time are counted since {clock_utc(wall_of(counted_since))}")
        )
    return Section("throttling", entries, side=1)


def _errors(gpu: Gpu, figures: Figures) -> Section:
    entries: list[Entry] = [
        _bad(figures("ECC uncorrected", gpu.ecc_uncorrected, values.whole, "ecc_uncorrected"), gpu.ecc_uncorrected),
        figures("ECC corrected", gpu.ecc_corrected, values.whole, "ecc_corrected"),
        _bad(figures("remap pending", gpu.remap_pending, values.whole, "remap_pending"), gpu.remap_pending),
        _bad(figures("remap failed", gpu.remap_failed, values.whole, "remap_failed"), gpu.remap_failed),
    ]
    for code in dict.fromkeys(gpu.xid):
        times = f", {gpu.xid.count(code)} times" if gpu.xid.count(code) > 1 else ""
        meaning = _XIDS.get(code, "see NVIDIA's list of Xid errors, and dmesg")
        entries.append(Fact(f"Xid {code}", f"{meaning}{times}", tone="warn"))
    if not gpu.xid:
        entries.append(Fact("Xid events", "none since gpumon started"))
    return Section("errors", entries, side=1)


def _bad(figure: Figure, reading: Reading) -> Figure:
    counts = not isinstance(reading, Missing) and reading > 0.0
    return figure._replace(tone="warn") if counts else figure


def _links(gpu: Gpu, figures: Figures) -> Section:
    lanes = known(gpu.pcie_width, gpu.pcie_width_max)
    narrow = lanes is not None and lanes[0] < lanes[1]
    entries: list[Entry] = [
        figures("PCIe generation", gpu.pcie_generation, values.whole, "pcie_generation"),
        figures("PCIe gen. max", gpu.pcie_generation_max, values.whole, "pcie_generation_max"),
        figures("PCIe lanes", gpu.pcie_width, values.whole, "pcie_width", tone="warn" if narrow else "text"),
        figures("PCIe lanes max", gpu.pcie_width_max, values.whole, "pcie_width_max"),
        figures("PCIe sent", gpu.pcie_tx_bytes_per_s, values.traffic, "pcie_tx_bytes_per_s"),
        figures("PCIe received", gpu.pcie_rx_bytes_per_s, values.traffic, "pcie_rx_bytes_per_s"),
        figures("NVLink sent", gpu.nvlink_tx_bytes_per_s, values.traffic, "nvlink_tx_bytes_per_s"),
        figures("NVLink received", gpu.nvlink_rx_bytes_per_s, values.traffic, "nvlink_rx_bytes_per_s"),
    ]
    if lanes is not None and narrow:
        text = (
            f"! x{lanes[0]:.0f} of x{lanes[1]:.0f} lanes: a riser, a slot or a dirty contact, if it stays so under load"
        )
        entries.append(Sentence(text, "warn"))
    if (steps := known(gpu.pcie_generation, gpu.pcie_generation_max)) and steps[0] < steps[1]:
        text = f"generation {steps[0]:.0f} of {steps[1]:.0f}: an idle GPU trains its link down; under load it goes up"
        entries.append(Sentence(text))
    return Section("links", entries, side=1)
