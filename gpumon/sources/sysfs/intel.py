"""Intel's GPUs by the files of the kernel's drivers xe and i915. Not verified on hardware.

Sources: Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and sysfs-driver-intel-i915-hwmon (uJ of `energy*_input`,
uW of `power*_max`, where 0 is no limit), xe_gt_idle.c (ms of `gtidle/idle_residency_ms`, `gt0-rc` for compute and
`gt1-mc` for media), xe_gt_freq.c (MHz of `freq0/act_freq` and `rp0_freq`), intel_gt_sysfs_pm.c (ms of
`rc6_residency_ms`, MHz of `rps_*_freq_mhz`) of Linux 6.12, and pci.ids of 2025-06-21.

Busy is the share of time outside the deepest idle state, which a GPU enters a moment after its last work: a little more
than the time in which a kernel ran.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from gpumon.readings.cadence import TICK
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.sysfs import INTEL_FIGURES
from gpumon.readings.text import clean
from gpumon.sources.driver.calls import CallTrace
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs import INTEGRATED_VARIABLE
from gpumon.sources.sysfs.cards import INTEL_DRIVERS, Card
from gpumon.sources.sysfs.driver import ROOT, SysfsDriver
from gpumon.sources.sysfs.fdinfo import FdinfoClients
from gpumon.sources.sysfs.files import text_or
from gpumon.sources.sysfs.gpu import SysfsGauge, SysfsGpu, card_gauges
from gpumon.sources.sysfs.rates import GrowthRate
from gpumon.specs.units import MHZ, MICRO, MILLI

NO_INTEL_GPU: Final = (
    "the kernel shows no Intel graphics card with the driver xe or i915 in /sys/class/drm; "
    f"the GPU of the CPU is left out without {INTEGRATED_VARIABLE}=1"
)
_NEVER_IDLE: Final = Missing(
    Reason.NOT_SUPPORTED, "the kernel's counter of idle time stands at 0: this GPU does not have it"
)
_JUMPED: Final = Missing(Reason.RESET, "the counter of idle time grew by more than the time that passed")
_JUMP_RATIO: Final = 1.2
"""Idle time / time passed above which the counter was set anew; less is the roughness of reading both."""
_NO_LIMIT: Final = Missing(Reason.OFF, "no sustained power limit (PL1) is set")
_STANDS: Final = Missing(Reason.NOT_SUPPORTED, "the card's counters of energy stand at 0")
_STOOD: Final = Missing(Reason.STALE, "the card's counter of energy has not moved since the last reading")
_NO_PROCESS: Final = Missing(Reason.IDLE, "no process has this GPU open, and the kernel counts memory per process only")
_NO_SIZE: Final = Missing(Reason.NOT_SUPPORTED, "the kernel tells the size of this memory in no file")
_HIDDEN: Final = Missing(
    Reason.NO_PERMISSION,
    "the kernel counts it per process, and your user may not read those of others: run gpumon as root",
)
_NO_PCIE: Final = Missing(Reason.NOT_SUPPORTED, "the kernel counts no PCIe traffic of this GPU")
_NO_LINK: Final = Missing(Reason.NOT_SUPPORTED, "the kernel tells the link of the card's own switch only")
_ID_LISTS: Final = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")
"""Files with the names of PCI devices, below the root."""
_VENDOR: Final = "8086"
"""Intel's number as a PCI vendor."""
_IN_BRACKETS: Final = re.compile(r"\[([^]]+)\]")
_NAMES: Final = {
    0x0BD5: "Intel Data Center GPU Max 1550",
    0x0BDA: "Intel Data Center GPU Max 1100",
    0x56A0: "Intel Arc A770",
    0x56A1: "Intel Arc A750",
    0x56A5: "Intel Arc A380",
    0x56C0: "Intel Data Center GPU Flex 170",
    0x56C1: "Intel Data Center GPU Flex 140",
    0xE20B: "Intel Arc B580",
    0xE20C: "Intel Arc B570",
}
"""PCI device -> market name, for containers, which often lack pci.ids."""


class IdleState:
    """The idle state of one GT: a part of the GPU with engines and clocks of its own."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._rate = GrowthRate()

    def busy_ratio(self, idle_ms: Reading, at_s: float) -> Reading:
        """Share of the time since the last reading that it was not idle."""
        if idle_ms == 0.0:
            return _NEVER_IDLE
        idle_ms_per_s = self._rate.update(idle_ms, at_s)
        if isinstance(idle_ms_per_s, Missing):
            return idle_ms_per_s
        idle_ratio = idle_ms_per_s * MILLI
        if idle_ratio > _JUMP_RATIO:
            self._rate.forget()
            return _JUMPED
        return 1.0 - min(1.0, idle_ratio)

    def forget(self) -> None:
        """Forget the last reading: the counter stood still while the GPU slept."""
        self._rate.forget()


class IntelGpu(SysfsGpu):
    """One card of xe or i915."""

    lacks: ClassVar[Mapping[str, Missing]] = {
        **dict.fromkeys(("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), _NO_PCIE),
        **dict.fromkeys(("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"), _NO_LINK),
        "vram_total_bytes": _NO_SIZE,
    }

    def __init__(
        self, index: int, uuid: str, card: Card, timings: Timings, trace: CallTrace, clients: FdinfoClients, root: Path
    ) -> None:
        super().__init__(index, uuid, card, timings, trace, clients, root)
        self._idle_states = [IdleState(file) for file in _idle_files(card)]
        self._clock, self._top_clock = _clock_gauges(card)
        self._temperatures = card_gauges(card, INTEL_FIGURES, TICK)
        self._energy_file = ""
        """File of the energy counter, relative to the card's folder; empty until one was seen to move."""
        self._power = GrowthRate()
        self._last_energy_j: Reading = NOT_SUPPORTED

    def _market_name(self) -> str:
        """The name of the card by its id: known here, or in a list of the system."""
        card = self._card
        if card.device_id in _NAMES:
            return _NAMES[card.device_id]
        return _listed_name(self._root, card.device_id) or f"Intel GPU {_VENDOR}:{card.device_id:04x}"

    def _read_minute(self) -> None:
        """Read what changes seldom."""
        self._values["power_limit_w"] = self._limit("max")
        self._values["power_default_w"] = self._limit("rated_max")
        self._values["vram_total_bytes"] = self._memory_bytes()
        self._gauges((self._top_clock,))

    def _read_slow(self, now_s: float) -> None:
        """Read the memory in use: the kernel counts it per process."""
        self._values["vram_used_bytes"] = self._used_bytes(now_s)

    def _read_tick(self) -> None:
        """Read what changes all the time. An energy counter that stood still tells nothing."""
        self._gauges((self._clock, *self._temperatures))
        self._values["busy_ratio"] = self._busy_ratio()
        energy_j = self._energy_j()
        if energy_j == self._last_energy_j and not isinstance(energy_j, Missing):
            self._values |= {"energy_j": _STOOD, "power_w": _STOOD}
            return
        self._last_energy_j = energy_j
        self._values["energy_j"] = energy_j
        self._values["power_w"] = self._power.update(energy_j, time.monotonic())

    def _sleep(self) -> None:
        """Forget what rates are made of: counters stand still while the card sleeps."""
        super()._sleep()
        self._power.forget()
        for idle_state in self._idle_states:
            idle_state.forget()

    def _busy_ratio(self) -> Reading:
        """Busy share of the busiest GT; those for media are not among them."""
        busiest: Reading = NOT_SUPPORTED
        for idle_state in self._idle_states:
            idle_ms = self._number(idle_state.file)
            busy = idle_state.busy_ratio(idle_ms, time.monotonic())
            if isinstance(busiest, Missing):
                busiest = busy
            elif not isinstance(busy, Missing):
                busiest = max(busiest, busy)
        return busiest

    def _energy_j(self) -> Reading:
        """Energy of the card, or of its package where the card's counter stands at 0 (Battlemage before Linux 6.17)."""
        if self._energy_file:
            return self._number(self._energy_file, MICRO)
        energy_j: Reading = NOT_SUPPORTED
        for label in ("energy card", "energy pkg", "energy1"):
            channel = self._card.hwmon.channel(label)
            if not channel:
                continue
            energy_j = self._number(f"{channel}_input", MICRO)
            if isinstance(energy_j, Missing):
                continue
            if energy_j > 0.0:
                self._energy_file = f"{channel}_input"
                return energy_j
            energy_j = _STANDS
        return energy_j

    def _limit(self, kind: str) -> Reading:
        """A power limit of the card in W, else of its package; `kind`: `max` or `rated_max`. The kernel's 0 is none."""
        limit_w: Reading = NOT_SUPPORTED
        for label in ("power card", "power pkg", "power1"):
            channel = self._card.hwmon.channel(label)
            if not channel:
                continue
            limit_w = self._number(f"{channel}_{kind}", MICRO)
            if isinstance(limit_w, Missing):
                continue
            if limit_w > 0.0:
                return limit_w
            limit_w = _NO_LIMIT
        return limit_w

    def _memory_bytes(self) -> Reading:
        """Size of the memory, where the driver has a file for it: those of Intel's own packages and early xe do."""
        size = self._number("lmem_total_bytes")
        if not isinstance(size, Missing):
            return size
        total: Reading = size
        for tile in _matching(self._card.folder / "device", r"tile\d+"):
            tile_bytes = self._number(f"device/{tile}/physical_vram_size_bytes")
            if isinstance(tile_bytes, Missing):
                continue
            total = tile_bytes if isinstance(total, Missing) else total + tile_bytes
        return total

    def _used_bytes(self, now_s: float) -> Reading:
        """Memory in use: by the driver's own file, else the sum over all processes, where all are seen."""
        total = self._number("lmem_total_bytes")
        free = self._number("lmem_avail_bytes")
        if not isinstance(total, Missing) and not isinstance(free, Missing):
            return max(0.0, total - free)
        # Half the time between two slow reads: the cards of a host share one look, and none gets the look before.
        look = self._clients.look(now_s, self._timings.slow_s / 2.0)
        if not look.is_whole:
            return _HIDDEN
        used: Reading = _NO_PROCESS
        for usage in look.usage.get(self._card.slot, {}).values():
            if isinstance(usage.vram_bytes, Missing):
                return usage.vram_bytes
            used = usage.vram_bytes if isinstance(used, Missing) else used + usage.vram_bytes
        return used


def _matching(folder: Path, pattern: str) -> list[str]:
    """Names in a folder that match; none where it cannot be listed."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if re.fullmatch(pattern, entry.name))
    except OSError:
        return []


def _gt_folders(card: Card) -> list[str]:
    """Folders of the GTs, relative to the card: xe has them below tiles of the device, i915 below the card."""
    folders = [
        f"device/{tile}/{gt}"
        for tile in _matching(card.folder / "device", r"tile\d+")
        for gt in _matching(card.folder / "device" / tile, r"gt\d+")
    ]
    if card.driver == "i915":
        folders += [f"gt/{gt}" for gt in _matching(card.folder / "gt", r"gt\d+")]
    return folders


def _idle_files(card: Card) -> list[str]:
    """Counters of idle time, without those of media engines."""
    files = []
    for gt in _gt_folders(card):
        is_media = text_or(card.folder / gt / "gtidle" / "name").endswith("-mc")
        if is_media:
            continue
        for file in (f"{gt}/gtidle/idle_residency_ms", f"{gt}/rc6_residency_ms"):
            if (card.folder / file).exists():
                files.append(file)
    # Older kernels with i915 have one counter of the whole card.
    if not files and (card.folder / "power" / "rc6_residency_ms").exists():
        files.append("power/rc6_residency_ms")
    return files


def _clock_gauges(card: Card) -> tuple[SysfsGauge, SysfsGauge]:
    """Clock of the first GT now and at most: by xe, by i915, and by older kernels with i915."""
    clock_files = []
    top_files = []
    for gt in _gt_folders(card)[:1]:
        clock_files += [f"{gt}/freq0/act_freq", f"{gt}/rps_act_freq_mhz"]
        top_files += [f"{gt}/freq0/rp0_freq", f"{gt}/rps_RP0_freq_mhz"]
    clock_files.append("gt_act_freq_mhz")
    top_files.append("gt_RP0_freq_mhz")
    clock = SysfsGauge("sm_clock_hz", tuple(clock_files), MHZ)
    top_clock = SysfsGauge("sm_clock_max_hz", tuple(top_files), MHZ)
    return clock, top_clock


def _listed_name(root: Path, device_id: int) -> str:
    """Market name in pci.ids: the words in brackets behind the chip's, `Battlemage G21 [Arc B580]`."""
    for path in _ID_LISTS:
        for line in _devices_of_vendor(root / path):
            listed_id, _, name = line.strip().partition("  ")
            if listed_id.casefold() == f"{device_id:04x}":
                market = _IN_BRACKETS.search(name)
                return f"Intel {clean(market[1] if market else name, 60)}"
    return ""


def _devices_of_vendor(file: Path) -> Iterator[str]:
    """Lines of Intel's devices; none where there is no such file.

    A vendor's line begins at the margin, its devices' with one tab, and those of their subsystems with two.
    """
    is_intel = False
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("\t\t", "#")):
                    continue
                if line.startswith("\t"):
                    if is_intel:
                        yield line
                elif is_intel:
                    return
                else:
                    is_intel = line.startswith(_VENDOR)
    except OSError:
        return


def intel(root: Path = ROOT, no_gpu: str = NO_INTEL_GPU) -> SysfsDriver:
    """The driver of Intel's cards."""
    return SysfsDriver(INTEL_DRIVERS, no_gpu, IntelGpu, root)


DRIVER: Final = intel()
