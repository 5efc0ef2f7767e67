"""Reads how AMD's and Intel's GPUs are connected, once, and prints it: a process of its own, as a file may hang.

python -m gpumon.sources.sysfs.topology SOURCE [ROOT]; SOURCE is that of `Vendor`. The way through PCIe is that of the
devices' folders, XGMI links are those that KFD lists; AMD SMI, where it is installed, tells which of them are up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.text import clean
from gpumon.readings.topology import XGMI_LINK, LinkPath, Pair, Topology, TopologyGpu
from gpumon.sources.driver.fleet import Pcie
from gpumon.sources.driver.source import AMD, INTEL
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs import amdgpu as amdgpus
from gpumon.sources.sysfs import intel as intels
from gpumon.sources.sysfs import kfd
from gpumon.sources.sysfs.cards import Card
from gpumon.sources.sysfs.driver import ROOT, SysfsDriver
from gpumon.sources.sysfs.files import text_or
from gpumon.sources.topology import EXIT_UNREADABLE

NO_GPUS: Final = {AMD.source: amdgpus.NO_AMD_GPU, INTEL.source: intels.NO_INTEL_GPU}
_NOT_LISTED: Final = Missing(Reason.OFF, "KFD does not list this GPU")
_LINK_FIELDS: Final = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


def _read(source: str, root: Path = ROOT) -> Topology:
    """The topology of the cards that `source` reads."""
    driver = intels.intel(root)
    if source == AMD.source:
        driver = amdgpus.amdgpu(root)
    cards = driver.listed()
    xgmi_pairs = _xgmi_pairs(root / "sys", cards)
    link_counts: list[tuple[Reading, Reading]] = [(0.0, 0.0)] * len(cards)
    if source == AMD.source:
        link_counts = _xgmi_counts(root / "sys", cards, xgmi_pairs)
    boards = []
    for index, card in enumerate(cards):
        boards.append(_read_board(driver, index, card, link_counts[index]))
    pairs = []
    for first, card in enumerate(cards):
        for second in range(first + 1, len(cards)):
            path = xgmi_pairs.get((first, second)) or _pcie_path(card, cards[second])
            pairs.append(Pair(first, second, path))
    link = ""
    if source == AMD.source:
        link = XGMI_LINK
    return Topology(driver.versions()[0], "", tuple(boards), tuple(pairs), link)


def _xgmi_counts(
    sys: Path, cards: Sequence[Card], pairs: Mapping[tuple[int, int], LinkPath]
) -> list[tuple[Reading, Reading]]:
    """Per card its XGMI links, and those of them that are up: by AMD SMI, else by KFD, which lists no state."""
    from gpumon.sources.amd import xgmi_states  # it loads AMD's library, which Intel's hosts do not have

    states = xgmi_states()
    listed = {node.slot for node in kfd.nodes(sys)}
    counts: list[tuple[Reading, Reading]] = []
    for index, card in enumerate(cards):
        if card.slot in states:
            links, up = states[card.slot]
            counts.append((float(links), float(up)))
        elif card.slot in listed:
            direct = float(_direct_links(pairs, index))
            counts.append((direct, direct))
        else:
            counts.append((_NOT_LISTED, _NOT_LISTED))
    return counts


def _read_board(driver: SysfsDriver, index: int, card: Card, links: tuple[Reading, Reading]) -> TopologyGpu:
    """One card; `links`: its XGMI links, and those of them that are up."""
    gpu = driver.open(index, None, Timings(), [""])
    (reading,) = gpu.read(0.0, (), Pcie.OFF)
    figures = {field: getattr(reading, field) for field in _LINK_FIELDS}
    device = card.folder / "device"
    node = text_or(device / "numa_node")
    return TopologyGpu(
        index,
        reading.uuid,
        clean(reading.name, 80),
        card.slot,
        numa_nodes=(int(node),) if node.isdecimal() else (),
        cpus=tuple(_cpus(text_or(device / "local_cpulist"))),
        nvlinks=links[0],
        nvlinks_active=links[1],
        ecc_corrected=reading.ecc_corrected,
        ecc_uncorrected=reading.ecc_uncorrected,
        **figures,
    )


def _cpus(text: str) -> Iterator[int]:
    """CPUs of a list such as `0-3,8`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), int(last or first) + 1)


def _xgmi_pairs(sys: Path, cards: Sequence[Card]) -> dict[tuple[int, int], LinkPath]:
    """(lower index, higher index) -> XGMI, for the cards that XGMI links connect."""
    nodes = _nodes_of(sys, cards)
    indices = {node.number: index for node, index in nodes.items()}
    pairs: dict[tuple[int, int], LinkPath] = {}
    for node in nodes:
        for link in kfd.links(sys, node):
            if link.type != kfd.XGMI or link.end not in indices:
                continue
            first = min(indices[node.number], indices[link.end])
            second = max(indices[node.number], indices[link.end])
            if first != second and pairs.get((first, second)) is not LinkPath.XGMI:
                pairs[first, second] = LinkPath.XGMI if link.weight <= kfd.HOP_WEIGHT else LinkPath.XGMI_VIA
    return pairs


def _nodes_of(sys: Path, cards: Sequence[Card]) -> dict[kfd.Node, int]:
    """Nodes of KFD that are cards -> index of the card."""
    places = {card.slot: index for index, card in enumerate(cards)}
    return {node: places[node.slot] for node in kfd.nodes(sys) if node.slot in places}


def _direct_links(pairs: Mapping[tuple[int, int], LinkPath], index: int) -> int:
    """GPUs that a GPU is connected to without another between."""
    return sum(path is LinkPath.XGMI and index in pair for pair, path in pairs.items())


def _pcie_path(first: Card, second: Card) -> LinkPath:
    """The path between two cards through PCIe, by the folders of their devices."""
    devices = [(card.folder / "device").resolve() for card in (first, second)]
    bridges = [_bridges(device) for device in devices]
    if bridges[0][:1] != bridges[1][:1]:
        return _path_between_roots(devices)
    shared = 0
    for bridge, other in zip(*bridges, strict=False):
        if bridge != other:
            break
        shared += 1
    if shared == 1:  # the host bridge alone
        return LinkPath.PHB
    # Below the last bridge that both have, each has at most one port of its own: that bridge is one switch.
    if max(len(ports) - shared for ports in bridges) <= 1:
        return LinkPath.PIX
    return LinkPath.PXB


def _bridges(device: Path) -> list[str]:
    """The host bridge (`pci0000:00`) and the bridges down to a device; switches on the card itself are left out."""
    folder = device.parent
    vendor = text_or(device / "vendor")
    while text_or(folder / "vendor") == vendor and vendor:
        folder = folder.parent
    return [part for part in folder.parts if part.startswith("pci") or part.count(":") == 2]


def _path_between_roots(devices: Sequence[Path]) -> LinkPath:
    """The way between host bridges, by the NUMA nodes that they belong to."""
    nodes = [text_or(device / "numa_node") for device in devices]
    if nodes[0] == nodes[1]:
        return LinkPath.NODE
    if all(node.isdecimal() for node in nodes):
        return LinkPath.SYS
    return LinkPath.UNKNOWN


def main(source: str, root: str = "/") -> int:
    """Print the topology as msgpack, or the fault as text."""
    # What a library prints goes to stderr: the topology has the pipe to the monitor for itself.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    topology = _read(source, Path(root))
    if topology.boards:
        answer = msgspec.msgpack.encode(topology)
        code = 0
    else:
        answer = NO_GPUS.get(source, "").encode()
        code = EXIT_UNREADABLE
    with pipe:
        pipe.write(answer)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
