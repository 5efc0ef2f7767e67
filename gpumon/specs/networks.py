"""The catalogue of links between GPUs: `networks.csv` -> bandwidth of one GPU and latency of a hop, by name."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final

import msgspec

from gpumon.specs.gpu import GpuSpec

_NVLINK: Final = "NVLink"
_PEER_TO_PEER: Final = "PCIe peer-to-peer"
_HOST_STAGED: Final = "PCIe through host memory"
_WITHOUT_PEERS: Final = "GeForce"
"""Word in the names of GPUs whose driver has no peer-to-peer over PCIe."""
HOST_STAGED_TIMES: Final = 2.6
"""Times that a byte takes through host memory, by the rate of PCIe. Fitted on six rows of RTX 4090 (`networks.csv`)."""
HOST_STAGED_HOP_S: Final = 16e-6
PEER_TO_PEER_HOP_S: Final = 8e-6
"""Hops over PCIe, as `networks.csv` has them, where no catalogue is at hand."""
_LONGEST_NAME: Final = 80
"""Characters of an unknown name in an error message."""


class LinkKind(str, Enum):
    """Kind of a link between GPUs."""

    NVLINK = "nvlink"
    """NVLink or xGMI, of one server or of one rack."""
    PCIE = "pcie"
    RDMA = "rdma"
    """A network that a GPU's memory is read and written over without the host."""
    TCP = "tcp"


class Network(msgspec.Struct, frozen=True):
    """A kind of link between GPUs."""

    name: str
    kind: LinkKind
    bytes_per_s: float
    """Bytes per second of one GPU, one direction; 0: that of the GPU's own link."""
    hop_s: float
    """Seconds of one hop of a small message."""
    source: str
    note: str = ""
    usual_nvlink_gbs: float | None = None
    """The network that is usual between servers of GPUs with NVLink of so many GB/s, both directions, and of faster
    ones; 0: of GPUs without NVLink; None: it is the usual one of none."""


class NetworkCatalogue(msgspec.Struct, frozen=True):
    """All rows by their names, case-folded."""

    by_name: Mapping[str, Network] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the links between servers, in the order of the file."""
        between = (row for row in self.by_name.values() if row.kind in (LinkKind.RDMA, LinkKind.TCP))
        return tuple(dict.fromkeys(row.name for row in between))

    def find(self, name: str) -> Network:
        """The network between servers of that name. ValueError names the near ones."""
        row = self.by_name.get(name.strip().casefold())
        if row is not None and row.name in self.names:
            return row
        near = get_close_matches(name.casefold(), [known.casefold() for known in self.names], n=3, cutoff=0.3)
        known = [row.name for key, row in self.by_name.items() if key in near] or self.names
        raise ValueError(f"unknown network {name[:_LONGEST_NAME]!r}: one of {', '.join(known)}")

    def usual(self, gpu: GpuSpec) -> Network | None:
        """The network that is usual between servers with such GPUs; None without a catalogue."""
        nvlink_gbs = 2.0 * gpu.link_bytes_per_s / 1e9 if gpu.has_nvlink else 0.0
        usual = None
        for row in self.by_name.values():
            least = row.usual_nvlink_gbs
            if least is None or least > nvlink_gbs:
                continue
            if usual is None or least > (usual.usual_nvlink_gbs or 0.0):
                usual = row
        return usual

    def of_server(self, gpu: GpuSpec) -> Network | None:
        """The link that joins such GPUs in one server: NVLink, else PCIe with peer-to-peer or without; None without a
        catalogue, or where the rate of the GPU's link is not known."""
        if gpu.has_nvlink:
            return self._with_rate(_NVLINK, gpu.link_bytes_per_s)
        return self.over_pcie(gpu)

    def over_pcie(self, gpu: GpuSpec) -> Network | None:
        """PCIe between such GPUs in one server, also where NVLink joins some of them; None as `of_server`."""
        if has_peer_to_peer(gpu):
            return self._with_rate(_PEER_TO_PEER, gpu.pcie_bytes_per_s)
        return self._with_rate(_HOST_STAGED, gpu.pcie_bytes_per_s / HOST_STAGED_TIMES)

    def _with_rate(self, name: str, bytes_per_s: float) -> Network | None:
        """The row of a link whose rate is that of the GPU."""
        row = self.by_name.get(name.casefold())
        if row is None or bytes_per_s <= 0.0:
            return None
        return msgspec.structs.replace(row, bytes_per_s=bytes_per_s)


def has_peer_to_peer(gpu: GpuSpec) -> bool:
    """Whether the driver lets such GPUs read each other's memory over PCIe."""
    return _WITHOUT_PEERS not in gpu.name


def parse_networks(text: str) -> NetworkCatalogue:
    """The catalogue of the lines of `networks.csv`. Raises ValueError with the line of a cell that is none."""
    by_name: dict[str, Network] = {}
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        network = _parse_row(row, line)
        for name in (network.name, *filter(None, (row["other_names"] or "").split(";"))):
            by_name[name.casefold()] = network
    return NetworkCatalogue(by_name)


def _parse_row(row: Mapping[str, str | None], line: int) -> Network:
    """The network of a line. Raises ValueError."""
    if not row.get("name") or not row.get("source"):
        raise ValueError(f"networks.csv line {line}: name or source is empty")
    usual = row.get("usual_nvlink_gbs")
    try:
        return Network(
            name=row["name"] or "",
            kind=LinkKind(row["kind"]),
            bytes_per_s=float(row["gb_per_s"] or 0.0) * 1e9,
            hop_s=float(row["hop_us"] or "") * 1e-6,
            source=row["source"] or "",
            note=row["notes"] or "",
            usual_nvlink_gbs=float(usual) if usual else None,
        )
    except ValueError as why:
        raise ValueError(f"networks.csv line {line}: {why}") from None
