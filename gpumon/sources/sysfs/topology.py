"""Reads how AMD's and Intel's GPUs are connected, once, and prints it: a process of its own, as a file may hang.

python -m gpumon.sources.sysfs.topology SOURCE [ROOT]; SOURCE is that of `Vendor`. The way through PCIe is that of the
devices' folders, XGMI links are those that KFD lists; AMD SMI, where it is installed, tells which of them are up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.text import clean
from gpumon.readings.topology import XGMI_LINK, LinkPath, Pair, Topology, TopologyGpu
from gpumon.sources.driver.calls import CallTrace
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
_PCIE_FIELDS: Final = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


class _LinkCount(NamedTuple):
    """XGMI links of a card."""

    links: Reading
    active: Reading
    """Number of those that are up."""


_NO_LINKS: Final = _LinkCount(0.0, 0.0)


def _read_topology(source: str, root: Path = ROOT) -> Topology:
    """The topology of the cards that the driver of this name reads: AMD's or Intel's."""
    driver = amdgpus.amdgpu(root) if source == AMD.source else intels.intel(root)
    cards = driver.listed()
    xgmi_paths = _xgmi_paths(root / "sys", cards)
    if source == AMD.source:
        link = XGMI_LINK
        link_counts = _xgmi_counts(root / "sys", cards, xgmi_paths)
    else:
        link = ""
        link_counts = [_NO_LINKS] * len(cards)
    boards = [_read_board(driver, index, card, link_counts[index]) for index, card in enumerate(cards)]
    version, _ = driver.versions()
    return Topology(version, "", tuple(boards), tuple(_pairs(cards, xgmi_paths)), link)


def _pairs(cards: Sequence[Card], xgmi_paths: Mapping[tuple[int, int], LinkPath]) -> list[Pair]:
    """The connection of each two cards: XGMI where there is one, else the way through PCIe."""
    pairs = []
    for first, second in combinations(range(len(cards)), 2):
        path = xgmi_paths.get((first, second))
        if path is None:
            path = _pcie_path(cards[first], cards[second])
        pairs.append(Pair(first, second, path))
    return pairs


def _xgmi_counts(sys: Path, cards: Sequence[Card], xgmi_paths: Mapping[tuple[int, int], LinkPath]) -> list[_LinkCount]:
    """The number of XGMI links of each card: by AMD SMI, else by KFD, which lists those that are up."""
    from gpumon.sources.amd import xgmi_states  # it loads AMD's library, which Intel's hosts do not have

    states = xgmi_states()
    listed = {node.slot for node in kfd.nodes(sys)}
    counts: list[_LinkCount] = []
    for index, card in enumerate(cards):
        if card.slot in states:
            links, active = states[card.slot]
            counts.append(_LinkCount(float(links), float(active)))
        elif card.slot in listed:
            neighbours = float(sum(path is LinkPath.XGMI and index in pair for pair, path in xgmi_paths.items()))
            counts.append(_LinkCount(neighbours, neighbours))
        else:
            counts.append(_LinkCount(_NOT_LISTED, _NOT_LISTED))
    return counts


def _read_board(driver: SysfsDriver, index: int, card: Card, count: _LinkCount) -> TopologyGpu:
    """One card as the topology shows it; `count` is that of its XGMI links."""
    gpu = driver.open(index, None, Timings(), CallTrace())
    (reading,) = gpu.read(0.0, (), Pcie.OFF)
    figures = {field: getattr(reading, field) for field in _PCIE_FIELDS}
    device = card.folder / "device"
    numa_nodes: tuple[int, ...] = ()
    node = text_or(device / "numa_node")
    if node.isdecimal():  # -1 where there is but one node
        numa_nodes = (int(node),)
    return TopologyGpu(
        index=index,
        uuid=reading.uuid,
        name=clean(reading.name, 80),
        bus_id=card.slot,
        numa_nodes=numa_nodes,
        cpus=tuple(_cpus_of(text_or(device / "local_cpulist"))),
        nvlinks=count.links,
        nvlinks_active=count.active,
        ecc_corrected=reading.ecc_corrected,
        ecc_uncorrected=reading.ecc_uncorrected,
        **figures,
    )


def _cpus_of(text: str) -> Iterator[int]:
    """The CPUs in a list such as `0-3,8`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), int(last or first) + 1)


def _xgmi_paths(sys: Path, cards: Sequence[Card]) -> dict[tuple[int, int], LinkPath]:
    """(lower index, higher index) of two cards that XGMI connects -> whether directly, or through a third one."""
    index_of = {card.slot: index for index, card in enumerate(cards)}
    nodes = {node: index_of[node.slot] for node in kfd.nodes(sys) if node.slot in index_of}
    indices = {node.number: index for node, index in nodes.items()}
    paths: dict[tuple[int, int], LinkPath] = {}
    for node in nodes:
        for link in kfd.links(sys, node):
            if link.type != kfd.XGMI or link.end not in indices:
                continue
            first = min(indices[node.number], indices[link.end])
            second = max(indices[node.number], indices[link.end])
            if first == second:
                continue
            is_direct = link.weight <= kfd.HOP_WEIGHT
            # Both ends list the link: a direct one at either of them counts.
            if is_direct:
                paths[first, second] = LinkPath.XGMI
            else:
                paths.setdefault((first, second), LinkPath.XGMI_VIA)
    return paths


def _pcie_path(first: Card, second: Card) -> LinkPath:
    """The path between two cards through PCIe, by the folders of their devices."""
    devices = [(card.folder / "device").resolve() for card in (first, second)]
    first_bridges, second_bridges = map(_bridges, devices)
    if first_bridges[:1] != second_bridges[:1]:
        return _path_between_roots(devices)
    shared = 0
    for first_bridge, second_bridge in zip(first_bridges, second_bridges, strict=False):
        if first_bridge != second_bridge:
            break
        shared += 1
    if shared == 1:  # the host bridge alone
        return LinkPath.PHB
    # Below the last bridge that both have, each has at most one port of its own: that bridge is one switch.
    most_own_ports = max(len(first_bridges), len(second_bridges)) - shared
    if most_own_ports <= 1:
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
    topology = _read_topology(source, Path(root))
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
