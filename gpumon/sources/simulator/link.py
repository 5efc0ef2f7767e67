"""KV cache that comes over a link: from the engine that prefilled the request, or from the host's memory."""

from __future__ import annotations

import math
from collections import deque

from gpumon.sources.simulator.sequence import Sequence


class KvLink:
    """Carries the KV of one request after the other. A link that is stuck carries nothing, and loses nothing."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = -math.inf
        """When the last transfer that was begun will end."""
        self._stuck_s = math.inf
        """Since when it carries nothing."""
        self._transfers: deque[tuple[float, float, Sequence]] = deque()
        """The requests on their way, with the end of each transfer and how long it takes by itself."""

    def __len__(self) -> int:
        return len(self._transfers)

    def begin(self, sequence: Sequence, size_bytes: float, at_s: float) -> None:
        """Ask for the KV of a request."""
        seconds = size_bytes / self._bytes_per_s
        self._free_s = max(self._free_s, min(at_s, self._stuck_s)) + seconds
        self._transfers.append((self._free_s, seconds, sequence))

    def next_s(self) -> float:
        """When the next transfer ends; infinity if none does."""
        if not self._transfers or self._transfers[0][0] > self._stuck_s:
            return math.inf
        return self._transfers[0][0]

    def take(self) -> tuple[Sequence, float]:
        """The request whose transfer ends next, and how long that took."""
        _, seconds, sequence = self._transfers.popleft()
        return sequence, seconds

    def drop(self, sequence: Sequence) -> bool:
        """Forget a request whose client has hung up. Returns whether it was on its way."""
        others = deque(transfer for transfer in self._transfers if transfer[2] is not sequence)
        was_on_its_way = len(others) < len(self._transfers)
        self._transfers = others
        return was_on_its_way

    def stick(self, at_s: float) -> None:
        """Carry nothing from now on."""
        self._stuck_s = min(self._stuck_s, at_s)

    def go_on(self, at_s: float) -> None:
        """Carry on where it was stuck."""
        if math.isinf(self._stuck_s):
            return
        lost_s = at_s - self._stuck_s
        transfers: deque[tuple[float, float, Sequence]] = deque()
        for end_s, seconds, sequence in self._transfers:
            if end_s > self._stuck_s:
                transfers.append((end_s + lost_s, seconds, sequence))
            else:
                transfers.append((end_s, seconds, sequence))
        self._transfers = transfers
        self._free_s = max(self._free_s, self._stuck_s) + lost_s
        self._stuck_s = math.inf
