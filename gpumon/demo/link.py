"""KV cache that comes over a link: from the engine that prefilled the request, or from the host's memory."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from gpumon.demo.sequence import Sequence


class _Transfer(NamedTuple):
    """The KV of one request on its way."""

    end_s: float
    """When it has come, unless the link gets stuck before."""
    seconds: float
    """How long it takes by itself."""
    sequence: Sequence


class KvLink:
    """Carries the KV of one request after the other. While it is stuck it carries nothing, and loses nothing."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = -math.inf
        """When the last transfer of the queue will end: the next one begins then."""
        self._stuck_s = math.inf
        """Since when it is stuck; infinity while it is not."""
        self._transfers: deque[_Transfer] = deque()
        """The transfers on their way and those in the queue, the next one to end first."""

    def __len__(self) -> int:
        return len(self._transfers)

    def begin(self, sequence: Sequence, size_bytes: float, at_s: float) -> None:
        """Ask for the KV of a request."""
        seconds = size_bytes / self._bytes_per_s
        # What is asked of a stuck link begins when that got stuck: `go_on` moves it by the whole time without work.
        begin_s = max(self._free_s, min(at_s, self._stuck_s))
        self._free_s = begin_s + seconds
        self._transfers.append(_Transfer(self._free_s, seconds, sequence))

    def next_s(self) -> float:
        """When the next transfer ends; infinity if none does."""
        if not self._transfers or self._transfers[0].end_s > self._stuck_s:
            return math.inf
        return self._transfers[0].end_s

    def take(self) -> tuple[Sequence, float]:
        """Take the request out whose transfer ends next; returns it, and the seconds of its transfer."""
        transfer = self._transfers.popleft()
        return transfer.sequence, transfer.seconds

    def drop(self, sequence: Sequence) -> bool:
        """Forget a request whose client has hung up. Returns whether it was on its way."""
        others = deque(transfer for transfer in self._transfers if transfer.sequence is not sequence)
        was_on_its_way = len(others) < len(self._transfers)
        self._transfers = others
        return was_on_its_way

    def stick(self, at_s: float) -> None:
        """Carry nothing from now on."""
        self._stuck_s = min(self._stuck_s, at_s)

    def go_on(self, at_s: float) -> None:
        """Carry on after it was stuck: what had not come by then comes later by the time without work."""
        if math.isinf(self._stuck_s):
            return
        lost_s = at_s - self._stuck_s
        transfers: deque[_Transfer] = deque()
        for transfer in self._transfers:
            if transfer.end_s > self._stuck_s:
                transfer = transfer._replace(end_s=transfer.end_s + lost_s)
            transfers.append(transfer)
        self._transfers = transfers
        self._free_s = max(self._free_s, self._stuck_s) + lost_s
        self._stuck_s = math.inf
