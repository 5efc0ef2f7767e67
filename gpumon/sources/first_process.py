"""The first process of a PID namespace: of a host its init; of a container often the very server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.sources.family import Process, process

FIRST: Final = 1
HOST_INITS: Final = frozenset({"systemd", "init"})
"""What it is called on a host. There it holds other processes' sockets, and is everybody's ancestor."""

Chains = Mapping[int, tuple[Process, ...]]


def completed(chains: Chains) -> dict[int, tuple[Process, ...]]:
    """Processes and their ancestors by pid, the nearest first, with the first process where it is no host's init."""
    first = process(FIRST)
    if first is None or first.name in HOST_INITS:
        return dict(chains)
    return {
        pid: (*chain, first) if (chain[-1].parent if chain else pid) == FIRST else chain
        for pid, chain in chains.items()
    }
