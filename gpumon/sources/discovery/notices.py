"""What the user should know of GPU processes whose engine is not polled: in words, and since when it holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.readings.frame import Fault, GpuReading, GpuState
from gpumon.readings.missing import number
from gpumon.sources.discovery.chain import NOT_HERE, Chain, words

SOURCE: Final = "discovery"
PATIENCE_S: Final = 6.0
"""Longer than a list of NVML's processes gets old."""
UNSEEN_BYTES: Final = 4 * 2**30
"""Memory in use by no visible process that is worth a word: drivers keep some for themselves."""
UNSEEN: Final = f"more than {UNSEEN_BYTES / 2**30:g} GiB of its memory are in use by processes that are"
MOST_PIDS: Final = 4
"""Pids that one text names."""


class Notices:
    """Keeps since when each text holds. GPUs that the config gives to an endpoint (`claimed`) are not talked about."""

    def __init__(self, claimed: frozenset[int]) -> None:
        self._claimed = claimed
        self._since: dict[str, tuple[float, float]] = {}
        """By text: Unix and monotonic time since when it holds."""
        self._begun = False

    def faults(self, certain: Iterable[str], passing: Iterable[str], now_s: float, *, looked: bool) -> list[Fault]:
        """Those that are to be shown. `looked`: the first look is done.

        `passing` may only be a process that is just ending or starting, as NVML's lists are some seconds old: it has to
        hold for a while, unless it was so at the first look.
        """
        held_s = dict.fromkeys(passing, now_s - (0.0 if self._begun else PATIENCE_S))
        held_s |= dict.fromkeys(certain, now_s - PATIENCE_S)
        self._begun = self._begun or looked
        self._since = {text: self._since.get(text, (time.time(), at_s)) for text, at_s in held_s.items()}
        return [Fault(SOURCE, text, wall) for text, (wall, at_s) in self._since.items() if now_s - at_s >= PATIENCE_S]

    def broken(self, chains: Iterable[Chain], gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Of chains that lead nowhere, each with the GPUs that it concerns, the reason and the fix.

        A server that is out of reach has a row, which says so.
        """
        for chain in chains:
            if not (chain.absent or chain.broken) or chain.unreached or not self.concern(chain, gpus):
                continue
            shown = ", ".join(map(str, sorted(indices_of(chain.pids, gpus))))
            if chain.absent:
                yield f"GPU {shown}: process {', '.join(map(str, chain.absent[:MOST_PIDS]))} is {NOT_HERE}"
            elif chain.broken and chain.launch is not None:
                yield f"{chain.launch.title} on GPU {shown}, {words(chain)}: {chain.broken}"

    def concern(self, chain: Chain, gpus: Sequence[GpuReading]) -> bool:
        """Whether it is on a GPU that the config gives to no endpoint."""
        return bool(indices_of(chain.pids, gpus) - self._claimed)

    def unseen(self, gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Of GPUs whose memory is in use by processes that NVML does not list in this PID namespace."""
        for gpu in gpus:
            if gpu.index not in self._claimed and _unseen(gpu, gpus):
                yield f"GPU {gpu.index}: {UNSEEN} {NOT_HERE}"


def indices_of(pids: frozenset[int], gpus: Iterable[GpuReading]) -> frozenset[int]:
    """Indices of the GPUs that one of the processes is on."""
    return frozenset(gpu.index for gpu in gpus if any(each.pid in pids for each in gpu.processes))


def _unseen(gpu: GpuReading, gpus: Iterable[GpuReading]) -> bool:
    used = number(gpu.vram_used_bytes) or 0.0
    listed = gpu.processes or gpu.vram_shared or gpu.parent_uuid or any(each.parent_uuid == gpu.uuid for each in gpus)
    return gpu.state is GpuState.OK and gpu.source == "nvml" and not listed and used > UNSEEN_BYTES
