"""The GPUs that an engine's processes hold, or held a moment ago. Pure: it knows no clock and does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.readings.frame import GpuReading, GpuState

LEAVING_S: Final = 10.0
"""Seconds for which a GPU still counts as held by a process that has left the driver's list: a process that is killed
leaves the list seconds before its socket is closed."""
_MOST_NAMED: Final = 4
"""Processes that are named in a sentence."""


class Holders(NamedTuple):
    """An engine's processes on one GPU, as they were seen last."""

    pids: frozenset[int]
    at_s: float
    """Monotonic time of that reading of the GPU."""


class HeldGpus(NamedTuple):
    """The GPUs of one engine."""

    by_gpu: Mapping[str, Holders] = {}
    """UUID of a GPU -> the engine's processes there."""
    pids: frozenset[int] = frozenset()
    """The engine's processes that were seen last on any GPU."""
    server: int = 0
    """The process that listens for the engine; 0: not known."""

    def follow(
        self, owned: frozenset[int], server: int, gpus: Iterable[GpuReading], is_alive: Callable[[int], bool]
    ) -> HeldGpus:
        """The GPUs after a reading of `gpus`. `owned`: pids of the engine; `server`: the pid that listens, or 0."""
        before = HeldGpus() if self._was_replaced(owned, server) else self
        by_gpu = {}
        pids: set[int] = set()
        for gpu in gpus:
            holders = _holders_of(gpu, owned, before.by_gpu.get(gpu.uuid), is_alive)
            if holders is not None:
                by_gpu[gpu.uuid] = holders
                pids |= holders.pids
        # Without any process on a GPU the last known ones stay, for `left_text`.
        return HeldGpus(by_gpu, frozenset(pids) or before.pids, server or before.server)

    def _was_replaced(self, owned: frozenset[int], server: int) -> bool:
        """Whether another process has taken the engine's place."""
        if owned and self.pids and not owned & self.pids:
            return True
        return bool(server and self.server and server != self.server)

    @property
    def left_text(self) -> str:
        """Words for an engine whose processes have left all GPUs; empty while some are there, or if none ever was."""
        if self.by_gpu or not self.pids:
            return ""
        named = ", ".join(str(pid) for pid in sorted(self.pids)[:_MOST_NAMED])
        if len(self.pids) == 1:
            return f"its process {named} no longer runs on a GPU"
        if len(self.pids) > _MOST_NAMED:
            named += f" and {len(self.pids) - _MOST_NAMED} more"
        return f"its processes {named} no longer run on a GPU"


def _holders_of(
    gpu: GpuReading, owned: frozenset[int], before: Holders | None, is_alive: Callable[[int], bool]
) -> Holders | None:
    """The engine's processes on a GPU; None where it is not the engine's.

    A GPU that is lost lists no processes: those that were there before and still live are on it.
    """
    pids = owned & {process.pid for process in gpu.processes}
    if pids:
        return Holders(pids, gpu.monotonic_s)
    if before is None:
        return None
    if gpu.state is GpuState.OK:
        is_leaving = gpu.monotonic_s - before.at_s < LEAVING_S
        return before if is_leaving else None
    if gpu.processes:
        return None
    alive = frozenset(pid for pid in before.pids if is_alive(pid))
    if not alive:
        return None
    return Holders(alive, gpu.monotonic_s)
