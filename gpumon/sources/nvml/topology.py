"""Reads the topology once and prints it: a process of its own, because a call of the driver may hang."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Final

import msgspec
import pynvml

from gpumon.readings.missing import Missing, Reading
from gpumon.readings.topology import LinkPath, Pair, Topology, TopologyGpu
from gpumon.sources.driver.calls import Calls, CallTrace, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.driver.wire import Timings
from gpumon.sources.nvml.driver import DRIVER
from gpumon.sources.topology import EXIT_UNREADABLE

_PATHS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: LinkPath.BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: LinkPath.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: LinkPath.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkPath.PHB,
    pynvml.NVML_TOPOLOGY_NODE: LinkPath.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: LinkPath.SYS,
}
_WORD_BITS: Final = 64
"""Bits of a word in which the driver gives a set of numbers."""
_CPU_WORDS: Final = 64
"""Words of the set of CPUs: 4096 CPUs."""
_NODE_WORDS: Final = 16
"""Words of the set of NUMA nodes: 1024 nodes."""
_SCOPE_NODE: Final = 0
"""NVML_AFFINITY_SCOPE_NODE."""
_FIGURES: Final = {
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    "pcie_generation_max": ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    "persistence": ("nvmlDeviceGetPersistenceMode", ()),
    "ecc_corrected": (
        "nvmlDeviceGetTotalEccErrors",
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
    "ecc_uncorrected": (
        "nvmlDeviceGetTotalEccErrors",
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
}
"""Figure of a board -> the call that gives it, and its arguments."""
_MODES: Final = {"ecc": "nvmlDeviceGetEccMode", "mig": "nvmlDeviceGetMigMode"}
"""Figure -> the call that gives a pair: its value now, and the one after the next restart."""


class _OpenGpu:
    """A GPU that can be asked."""

    def __init__(self, index: int) -> None:
        """Open it. Raises pynvml.NVMLError."""
        self.index = index
        self.handle: Any = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.bus_id = _bus_id(pynvml.nvmlDeviceGetPciInfo(self.handle))
        self.switch_links = 0
        """Number of active NVLinks that lead to an NVSwitch."""
        self.peers: list[str] = []
        """PCI address at the other end of each other active NVLink."""
        self._calls = Calls(DRIVER.api, Timings(), CallTrace())

    def read(self, name: str, *arguments: Any, key: str = "") -> Any:
        """The result of a driver's call, or Missing. Raises GpuDownError, HandleStaleError, DriverDownError."""
        return self._calls.read(name, self.handle, *arguments, key=key)

    def read_board(self) -> TopologyGpu:
        """All that is known of it alone. Raises GpuDownError, HandleStaleError, DriverDownError."""
        links, active = self._read_links()
        figures: dict[str, Reading] = {}
        for field, (name, arguments) in _FIGURES.items():
            value = self.read(name, *arguments, key=field)
            figures[field] = value if isinstance(value, Missing) else float(value)
        for field, name in _MODES.items():
            values = self.read(name)
            figures[field] = values if isinstance(values, Missing) else float(values[0])
        board = TopologyGpu(
            self.index,
            uuid=_text(self.read("nvmlDeviceGetUUID")),
            name=_text(self.read("nvmlDeviceGetName")),
            bus_id=self.bus_id,
            numa_nodes=_set_bits(self.read("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, _SCOPE_NODE)),
            cpus=_set_bits(self.read("nvmlDeviceGetCpuAffinity", _CPU_WORDS)),
            nvlinks=float(links),
            nvlinks_active=float(active),
            nvlinks_to_switch=self.switch_links,
            slices=self._slice_names(figures["mig"]),
        )
        return msgspec.structs.replace(board, **figures)

    def _read_links(self) -> tuple[int, int]:
        """Number of its NVLinks, and of the active ones; notes in `switch_links` and `peers` where these lead."""
        links = 0
        active = 0
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            state = self.read("nvmlDeviceGetNvLinkState", link, key=f"link {link}")
            if isinstance(state, Missing):
                continue
            links += 1
            if not state:
                continue
            active += 1
            kind = self.read("nvmlDeviceGetNvLinkRemoteDeviceType", link, key=f"kind {link}")
            if not isinstance(kind, Missing) and int(kind) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                self.switch_links += 1
                continue
            remote = self.read("nvmlDeviceGetNvLinkRemotePciInfo", link, key=f"remote {link}")
            if not isinstance(remote, Missing):
                self.peers.append(_bus_id(remote))
        return links, active

    def _slice_names(self, mig: Reading) -> tuple[str, ...]:
        """Names of its MIG slices; `mig`: whether MIG is on."""
        if isinstance(mig, Missing) or not mig:
            return ()
        most = self.read("nvmlDeviceGetMaxMigDeviceCount")
        if isinstance(most, Missing):
            return ()
        names = []
        for number in range(int(most)):
            handle = self.read("nvmlDeviceGetMigDeviceHandleByIndex", number, key=f"slice {number}")
            if isinstance(handle, Missing):
                continue
            name = self._calls.read("nvmlDeviceGetName", handle, key=f"slice {number} name")
            if not isinstance(name, Missing):
                names.append(str(name))
        return tuple(names)


def _read_topology() -> Topology:
    """The topology of this host. Raises pynvml.NVMLError where there is no driver."""
    pynvml.nvmlInit()
    driver, cuda = DRIVER.versions()
    gpus = [_read_board(index) for index in range(DRIVER.count())]
    boards = tuple(board for board, _ in gpus)
    open_gpus = [gpu for _, gpu in gpus if gpu is not None]
    return Topology(driver, cuda, boards, tuple(_read_pairs(open_gpus)))


def _read_board(index: int) -> tuple[TopologyGpu, _OpenGpu | None]:
    """A GPU as the topology shows it, and the open one to ask further; None where it cannot be opened."""
    try:
        gpu = _OpenGpu(index)
        return gpu.read_board(), gpu
    except pynvml.NVMLError as error:
        return TopologyGpu(index, fault=_fault_text(int(error.value))), None
    except GpuDownError as down:
        return TopologyGpu(index, fault=down.text), None
    except (HandleStaleError, DriverDownError):
        return TopologyGpu(index, fault="it is gone"), None


def _read_pairs(gpus: Sequence[_OpenGpu]) -> Iterable[Pair]:
    """The connection of each two GPUs that are open."""
    for first, second in combinations(gpus, 2):
        level = _path_level(first, second)
        path = _PATHS.get(level, LinkPath.UNKNOWN)
        # The direct NVLinks, else as many as both have to the NVSwitches.
        nvlinks = first.peers.count(second.bus_id) or min(first.switch_links, second.switch_links)
        yield Pair(first.index, second.index, path, nvlinks)


def _path_level(first: _OpenGpu, second: _OpenGpu) -> int:
    """The driver's number of the nearest part of PCIe that both have in common (a key of `_PATHS`); -1: not told."""
    key = f"path {second.index}"
    try:
        level = first.read("nvmlDeviceGetTopologyCommonAncestor", second.handle, key=key)
    except (GpuDownError, HandleStaleError, DriverDownError):
        return -1
    if isinstance(level, Missing):
        return -1
    return int(level)


def _bus_id(info: Any) -> str:
    """PCI address in the driver's record, in lower case."""
    text = info.busId
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    return str(text).lower()


def _text(value: Any) -> str:
    """The text that a call gave; empty where it gave none."""
    if isinstance(value, Missing):
        return ""
    return str(value)


def _set_bits(words: Any) -> tuple[int, ...]:
    """The numbers in a set that the driver gives as words of bits; empty where it gives none."""
    if isinstance(words, Missing):
        return ()
    members = []
    for place, word in enumerate(words):
        for bit in range(_WORD_BITS):
            if word >> bit & 1:
                members.append(place * _WORD_BITS + bit)
    return tuple(members)


def _fault_text(code: int) -> str:
    """Why a GPU cannot be opened."""
    for table in (DRIVER.api.down, DRIVER.api.refused):
        if code in table:
            return table[code][1]
    return f"the driver refuses it (NVML code {code}): see dmesg"


def main() -> int:
    """Print the topology as msgpack, or the fault as text."""
    try:
        topology = _read_topology()
    except pynvml.NVMLError as error:
        sys.stdout.write(DRIVER.explain(int(error.value)))
        return EXIT_UNREADABLE
    sys.stdout.buffer.write(msgspec.msgpack.encode(topology))
    return 0


if __name__ == "__main__":
    sys.exit(main())
