"""The compute driver of AMD's GPUs (KFD) in /sys/class/kfd: its nodes, the links between them, and its processes.

Everybody may read it. Sources: amdkfd/kfd_topology.c, kfd_crat.h (types of links) and kfd_process.c of Linux 6.12.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing
from gpumon.sources.sysfs.files import number_of, text_or

XGMI: Final = 11
"""CRAT_IOLINK_TYPE_XGMI; a link that goes over several hops has the weight 15 for each."""
HOP_WEIGHT: Final = 15


class Node(NamedTuple):
    """A GPU, or a partition of one, in the topology of KFD."""

    number: int
    """Number by which links name it."""
    gpu_id: int
    slot: str
    """PCI address."""
    compute_units: float
    """0: not known."""


class NodeLink(NamedTuple):
    """A link from one node to another."""

    start: int
    end: int
    type: int
    weight: int


def nodes(sys: Path) -> Iterator[Node]:
    """The GPUs; CPUs are nodes without a `gpu_id`."""
    folder = _topology(sys)
    for name in names_ending(folder):
        gpu_id = number_of(text_or(folder / name / "gpu_id"))
        if isinstance(gpu_id, Missing) or gpu_id <= 0.0 or not name.isdecimal():
            continue
        properties = _properties(text_or(folder / name / "properties"))
        units = properties.get("simd_count", 0) / max(1, properties.get("simd_per_cu", 1))
        yield Node(int(name), int(gpu_id), _slot(properties), units)


def node_at(sys: Path, slot: str) -> Node | None:
    """The GPU at a PCI address: the first of its partitions."""
    for node in nodes(sys):
        if node.slot == slot:
            return node
    return None


def links(sys: Path, node: Node) -> Iterator[NodeLink]:
    """The links that begin at a node."""
    folder = _topology(sys) / str(node.number) / "io_links"
    for name in names_ending(folder):
        properties = _properties(text_or(folder / name / "properties"))
        if "node_to" in properties:
            yield NodeLink(node.number, properties["node_to"], properties.get("type", 0), properties.get("weight", 0))


def used_bytes(sys: Path, node: Node) -> Iterator[tuple[int, float]]:
    """(pid, VRAM) of the processes that use a node."""
    folder = sys / "class" / "kfd" / "kfd" / "proc"
    for name in names_ending(folder):
        if not name.isdecimal():
            continue
        vram_bytes = number_of(text_or(folder / name / f"vram_{node.gpu_id}"))
        if not isinstance(vram_bytes, Missing) and vram_bytes > 0.0:
            yield int(name), vram_bytes


def names_ending(folder: Path, end: str = "") -> Iterator[str]:
    """Names in a folder that end so; none where it cannot be listed."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return
    for name in names:
        if name.endswith(end):
            yield name


def _topology(sys: Path) -> Path:
    """The folder of the nodes."""
    return sys / "class" / "kfd" / "kfd" / "topology" / "nodes"


def _slot(properties: dict[str, int]) -> str:
    """PCI address by `domain` and `location_id`: 8 bits of bus, 5 of device, 3 of function."""
    location = properties.get("location_id", 0)
    bus = location >> 8 & 0xFF
    device = location >> 3 & 0x1F
    function = location & 0x7
    return f"{properties.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function}"


def _properties(text: str) -> dict[str, int]:
    """The values of lines such as `simd_count 1216`, by name."""
    entries = (line.partition(" ") for line in text.splitlines())
    return {name: int(number) for name, _, number in entries if number.strip().isdecimal()}
