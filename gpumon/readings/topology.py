"""How the GPUs of a host are connected, and what each of them is set to."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading

NVLINK_WORD: Final = "NVLink"
"""Name of the links between GPUs of NVIDIA."""
XGMI_LINK: Final = "XGMI link"
"""Name of those between GPUs of AMD."""


class LinkPath(str, Enum):
    """The way between two GPUs without NVLink, by the words of nvidia-smi; the nearest first."""

    BOARD = "board"
    """They are on one board."""
    PIX = "PIX"
    """Across one PCIe bridge at most."""
    PXB = "PXB"
    """Across several PCIe bridges, without the CPU."""
    PHB = "PHB"
    """Across a PCIe host bridge: the CPU."""
    NODE = "NODE"
    """Across host bridges of one NUMA node."""
    XGMI = "XGMI"
    """Across XGMI links (AMD) between the two."""
    XGMI_VIA = "XGMI+"
    """Across XGMI links and other GPUs."""
    SYS = "SYS"
    """Across the connection between NUMA nodes."""
    UNKNOWN = "?"


class TopologyGpu(msgspec.Struct, frozen=True):
    """One GPU."""

    index: int
    uuid: str = ""
    name: str = ""
    bus_id: str = ""
    """PCI address."""
    fault: str = ""
    """Why nothing is known of it."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes beside it; empty: not known."""
    cpus: tuple[int, ...] = ()
    """CPUs beside it; empty: not known."""
    pcie_generation: Reading = NOT_SUPPORTED
    pcie_generation_max: Reading = NOT_SUPPORTED
    pcie_width: Reading = NOT_SUPPORTED
    pcie_width_max: Reading = NOT_SUPPORTED
    nvlinks: Reading = 0.0
    """Its NVLinks or XGMI links, active or not."""
    nvlinks_active: Reading = 0.0
    """Number of those that are active."""
    nvlinks_to_switch: int = 0
    """Active NVLinks that lead to an NVSwitch."""
    persistence: Reading = NOT_SUPPORTED
    """Persistence mode: 1 on, 0 off."""
    ecc: Reading = NOT_SUPPORTED
    """1 on, 0 off."""
    ecc_corrected: Reading = NOT_SUPPORTED
    ecc_uncorrected: Reading = NOT_SUPPORTED
    mig: Reading = NOT_SUPPORTED
    """1 on, 0 off."""
    slices: tuple[str, ...] = ()
    """Names of its MIG slices."""


class Pair(msgspec.Struct, frozen=True):
    """The connection of two GPUs."""

    first: int
    second: int
    path: LinkPath
    nvlinks: int = 0
    """NVLinks between them, directly or through NVSwitches."""

    @property
    def word(self) -> str:
        """`NV18`, or the way through PCIe."""
        if self.nvlinks:
            return f"NV{self.nvlinks}"
        return self.path.value

    @property
    def is_linked(self) -> bool:
        """Whether links of the GPUs themselves connect them."""
        return self.nvlinks > 0 or self.path in (LinkPath.XGMI, LinkPath.XGMI_VIA)


class Topology(msgspec.Struct, frozen=True):
    """The GPUs of a host and their connections."""

    driver: str = ""
    cuda: str = ""
    boards: tuple[TopologyGpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """Each pair once, the lower index first."""
    link: str = NVLINK_WORD
    """Name of the links between GPUs; empty: there are none of this kind of GPU."""


def nvlink_groups(topology: Topology) -> list[list[int]]:
    """GPUs that NVLinks or XGMI links connect, directly or through each other; one without is a group of its own.

    A GPU that cannot be read is in none.
    """
    group_of = {board.index: [board.index] for board in topology.boards if not board.fault}  # GPU -> its group
    for pair in topology.pairs:
        first = group_of[pair.first]
        second = group_of[pair.second]
        if pair.is_linked and first is not second:
            first += second
            for index in second:
                group_of[index] = first
    groups: list[list[int]] = []
    for group in group_of.values():
        if group not in groups:
            groups.append(group)
    return [sorted(group) for group in groups]


def is_below(now: Reading, most: Reading) -> bool:
    """Whether a figure is below what is possible; False where one of them is missing."""
    if isinstance(now, Missing) or isinstance(most, Missing):
        return False
    return now < most
