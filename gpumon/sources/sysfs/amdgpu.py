"""AMD's GPUs by the files of the kernel's driver amdgpu, for hosts without AMD SMI. Not verified on hardware.

Sources: drivers/gpu/drm/amd/pm/amdgpu_pm.c (busy in %, hwmon, `pp_dpm_*` in MHz), amdgpu_vram_mgr.c (bytes of
`mem_info_*`), amdgpu_ras.c (`ras/*_err_count`: lines `ue: N` and `ce: N`), amdkfd/kfd_topology.c and kfd_process.c
(`topology/nodes/*/properties`; bytes of `proc/PID/vram_GPUID`, which everybody may read) of Linux 6.12, and
data/amdgpu.ids of libdrm 2.4.125.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from gpumon.readings.cadence import MINUTE, TICK
from gpumon.readings.missing import MAY_BE_IN_AMDSMI, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.sysfs import AMDGPU_FIGURES
from gpumon.readings.text import clean
from gpumon.readings.topology import is_below
from gpumon.sources.driver.calls import CallTrace
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs import kfd
from gpumon.sources.sysfs.cards import AMD_DRIVERS, Card
from gpumon.sources.sysfs.driver import ROOT, SysfsDriver
from gpumon.sources.sysfs.fdinfo import ClientUsage, FdinfoClients
from gpumon.sources.sysfs.files import text_or
from gpumon.sources.sysfs.gpu import SysfsGpu, card_gauges, listed_name
from gpumon.specs.units import MHZ

PACKAGE: Final = "'amdsmi>=7.0'"
"""AMD's binding, for pip: the version that `gpumon.sources.amd` is written for."""
INSTALL: Final = f"install {PACKAGE} with pip in gpumon's own environment, and ROCm's amd-smi-lib on the host"
MORE: Final = "energy, throttling, XGMI links, bad pages, partitions and the peak bandwidth"
"""Figures that AMD SMI adds to those of sysfs."""
NO_AMD_GPU: Final = "the kernel shows no GPU with the driver amdgpu in /sys/class/drm: see lspci and dmesg"
_NO_PCIE: Final = Missing(Reason.NOT_SUPPORTED, "amdgpu counts no PCIe traffic that every user may read")
_IDS: Final = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
_AMD: Final = "0x1002"
"""PCI vendor."""
_CLOCKS: Final = {"sm_clock_hz": "sm_clock_max_hz", "memory_clock_hz": "memory_clock_max_hz"}
"""Field of a clock -> field of its highest level."""
_BOOSTS: Final = Missing(Reason.INVALID, "the clock was above the highest level that the driver lists (pp_dpm_sclk)")
"""RX 9070 XT: levels up to 1000 MHz are listed, and it boosts to 2970."""
_LEVEL: Final = re.compile(r"(?m)^\S+: (\d+)Mhz")
"""A line of a list of clocks (`pp_dpm_*`): MHz of one level."""
_COUNT: Final = re.compile(r"(?m)^(ue|ce): (\d+)$")
"""A line of an error count: its kind and its number."""
_ERRORS: Final = {"ue": "ecc_uncorrected", "ce": "ecc_corrected"}
"""Kind of an error in such a line -> its field."""
_MOST_BRIDGES: Final = 2
"""PCIe bridges on a card, between its slot and its GPU."""
_NAMES: Final = {
    (0x738C, 0x01): "AMD Instinct MI100",
    (0x740F, 0x02): "AMD Instinct MI210",
    (0x7408, 0x00): "AMD Instinct MI250X",
    (0x740C, 0x01): "AMD Instinct MI250X / MI250",
    (0x74A0, 0x00): "AMD Instinct MI300A",
    (0x74A1, 0x00): "AMD Instinct MI300X",
    (0x74B5, 0x00): "AMD Instinct MI300X VF",
    (0x74A2, 0x00): "AMD Instinct MI308X",
    (0x74B6, 0x00): "AMD Instinct MI308X",
    (0x74A5, 0x00): "AMD Instinct MI325X",
    (0x75A0, 0x00): "AMD Instinct MI350X",
    (0x75B0, 0x00): "AMD Instinct MI350X VF",
    (0x75A3, 0x00): "AMD Instinct MI355X",
    (0x75B3, 0x00): "AMD Instinct MI355X VF",
    (0x73A3, 0x00): "AMD Radeon Pro W6800",
    (0x7448, 0x00): "AMD Radeon Pro W7900",
    (0x744A, 0x00): "AMD Radeon Pro W7900 Dual Slot",
    (0x7449, 0x00): "AMD Radeon Pro W7800 48GB",
    (0x745E, 0xCC): "AMD Radeon Pro W7800",
    (0x7551, 0xC0): "AMD Radeon AI PRO R9700",
    (0x744C, 0xC8): "AMD Radeon RX 7900 XTX",
    (0x744C, 0xCC): "AMD Radeon RX 7900 XT",
    (0x744C, 0xCE): "AMD Radeon RX 7900 GRE",
    (0x747E, 0xC8): "AMD Radeon RX 7800 XT",
    (0x7550, 0xC0): "AMD Radeon RX 9070 XT",
    (0x7550, 0xC3): "AMD Radeon RX 9070",
}
"""(device, revision) -> the name of libdrm's amdgpu.ids, which AMD SMI has, too. Containers often lack that file."""


class AmdgpuGpu(SysfsGpu):
    """One card; its partitions are no cards of their own here."""

    lacks: ClassVar[Mapping[str, Missing]] = {
        **dict.fromkeys(("energy_j", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"), MAY_BE_IN_AMDSMI),
        **dict.fromkeys(("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), _NO_PCIE),
    }

    def __init__(
        self, index: int, uuid: str, card: Card, timings: Timings, trace: CallTrace, clients: FdinfoClients, root: Path
    ) -> None:
        super().__init__(index, uuid, card, timings, trace, clients, root)
        self._tick_gauges = card_gauges(card, AMDGPU_FIGURES, TICK)
        self._minute_gauges = card_gauges(card, AMDGPU_FIGURES, MINUTE)
        self._boosting: set[str] = set()
        """Fields of highest clocks that a clock was above."""

    @staticmethod
    def identity(card: Card) -> str:
        """By the number that was burnt into the chip, where it has one."""
        unique = text_or(card.folder / "device" / "unique_id")
        if re.fullmatch(r"[0-9a-f]{16}", unique) and unique.strip("0"):
            return f"amdgpu-{unique}"
        return SysfsGpu.identity(card)

    def _market_name(self) -> str:
        """The name of the card by its ids: known here, in a list of the system, or as the card says."""
        card = self._card
        known = _NAMES.get((card.device_id, card.revision), "")
        if known:
            return known
        line_start = f"{card.device_id:04x},\t{card.revision:02x},\t"
        for path in _IDS:
            listed = listed_name(self._root / path, line_start)
            if listed:
                return listed
        product = clean(text_or(card.folder / "device" / "product_name"), 80)
        return product or f"AMD GPU {card.vendor_id:04x}:{card.device_id:04x}"

    def _read_minute(self) -> None:
        """Read what changes seldom. A power limit of 0 is none."""
        self._gauges(self._minute_gauges)
        for field in ("power_limit_w", "power_default_w"):
            if self._values[field] == 0.0:
                self._values[field] = NOT_SUPPORTED
        self._values["sm_clock_max_hz"] = self._top_level("device/pp_dpm_sclk")
        self._values["memory_clock_max_hz"] = self._top_level("device/pp_dpm_mclk")
        self._values["sm_count"] = self._compute_units()
        self._values |= self._ecc()

    def _read_slow(self, now_s: float) -> None:  # noqa: ARG002 - the signature of a card
        """Read the link of the card's slot."""
        self._values |= self._link(self._slot_device())

    def _read_tick(self) -> None:
        """Read what changes all the time. A clock above its highest level shows that the card boosts."""
        self._gauges(self._tick_gauges)
        for clock, top_clock in _CLOCKS.items():
            if is_below(self._values[top_clock], self._values[clock]):
                self._boosting.add(top_clock)
        for top_clock in self._boosting:  # for good: the level is wrong in moments without a boost, too
            self._values[top_clock] = _BOOSTS

    def _top_level(self, file: str) -> Reading:
        """The highest clock of a list such as `1: 1200Mhz *`."""
        text = self._text(file)
        if isinstance(text, Missing):
            return text
        levels = [float(level) for level in _LEVEL.findall(text)]
        if not levels or max(levels) <= 0.0:
            return NOT_SUPPORTED
        return max(levels) * MHZ

    def _ecc(self) -> dict[str, Reading]:
        """Errors of all blocks of the chip since the driver was loaded."""
        counts: dict[str, Reading] = dict.fromkeys(_ERRORS.values(), NOT_SUPPORTED)
        for file in kfd.names_ending(self._card.folder / "device" / "ras", "_err_count"):
            text = self._text(f"device/ras/{file}")
            if isinstance(text, Missing):
                continue
            for kind, count in _COUNT.findall(text):
                field = _ERRORS[kind]
                before = counts[field]
                counts[field] = float(count) if isinstance(before, Missing) else before + float(count)
        return counts

    def _slot_device(self) -> str:
        """The PCI device whose link is that of the card's slot: a Radeon has a switch before its GPU."""
        device = (self._card.folder / "device").resolve()
        for _ in range(_MOST_BRIDGES):
            if text_or(device.parent / "vendor") != _AMD:
                break
            device = device.parent
        return str(device)

    def _compute_units(self) -> Reading:
        """Compute units of the first partition, by KFD."""
        node = kfd.node_at(self._root / "sys", self._card.slot)
        if node is None or not node.compute_units:
            return NOT_SUPPORTED
        return node.compute_units

    def _usage(self, now_s: float) -> dict[int, ClientUsage]:
        """Usage by pid, with the processes that KFD lists for everybody: ROCm's."""
        usage = dict(super()._usage(now_s))
        node = kfd.node_at(self._root / "sys", self._card.slot)
        if node is None:
            return usage
        for pid, vram_bytes in kfd.used_bytes(self._root / "sys", node):
            known = usage.get(pid, ClientUsage())
            if isinstance(known.vram_bytes, Missing) or known.vram_bytes < vram_bytes:
                usage[pid] = known._replace(vram_bytes=vram_bytes)
        return usage


def amdgpu(root: Path = ROOT, no_gpu: str = NO_AMD_GPU) -> SysfsDriver:
    """The driver of AMD's cards without AMD SMI."""
    return SysfsDriver(AMD_DRIVERS, no_gpu, AmdgpuGpu, root)
