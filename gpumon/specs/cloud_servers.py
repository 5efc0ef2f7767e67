"""The catalogue of servers that clouds rent: `cloud_servers.csv` -> GPUs, NVLink domain and network by name."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Final

import msgspec

_AZURE: Final = "standard-"
"""Beginning of the whole name of a server of Azure."""


class CloudServer(msgspec.Struct, frozen=True):
    """A server as a cloud rents it."""

    name: str
    cloud: str
    gpu: str
    """Catalogue name of its GPUs."""
    gpus: int
    nvlink_gpus: int
    """GPUs of one NVLink domain; 0: all of them."""
    network: str
    """Name in networks.csv."""
    network_gb_per_s: float | None
    """1e9 bytes per second of one GPU to other servers; None: that of the network."""
    source: str
    note: str = ""


class CloudServers(msgspec.Struct, frozen=True):
    """All rows by their names, without case, dashes for other signs."""

    by_name: Mapping[str, CloudServer] = {}

    def find(self, name: str) -> CloudServer | None:
        """The server of that name; None where it is the name of none."""
        return self.by_name.get(_key(name))


def parse_cloud_servers(text: str) -> CloudServers:
    """The catalogue of the lines of `cloud_servers.csv`. Raises ValueError with the line of a cell that is none."""
    by_name: dict[str, CloudServer] = {}
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        server = _parse_row(row, line)
        for name in (server.name, *filter(None, (row["other_names"] or "").split(";"))):
            if by_name.setdefault(_key(name), server) is not server:
                raise ValueError(f"cloud_servers.csv line {line}: {name} stands twice")
    return CloudServers(by_name)


def _parse_row(row: Mapping[str, str], line: int) -> CloudServer:
    """The server of a line. Raises ValueError."""
    for column in ("name", "cloud", "gpu", "network", "source"):
        if not row.get(column):
            raise ValueError(f"cloud_servers.csv line {line}: {column} is empty")
    try:
        rate = row["network_gb_per_s"]
        return CloudServer(
            name=row["name"],
            cloud=row["cloud"],
            gpu=row["gpu"],
            gpus=int(row["gpus"]),
            nvlink_gpus=int(row["nvlink_gpus"] or 0),
            network=row["network"],
            network_gb_per_s=float(rate) if rate else None,
            source=row["source"],
            note=row.get("notes") or "",
        )
    except ValueError as wrong:
        raise ValueError(f"cloud_servers.csv line {line}: {wrong}") from None


def _key(name: str) -> str:
    """Key of a name: `Standard_ND96isr_H100_v5`, `nd96isr-h100-v5` and `ND96isr H100 v5` are one."""
    return "-".join(name.casefold().replace("_", "-").split()).removeprefix(_AZURE)
