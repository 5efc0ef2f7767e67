"""GPUs that the driver listed and does not list any more: each keeps a row that says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from gpumon.readings.format import clock_utc
from gpumon.readings.frame import GPU_FIGURES, GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.last_seen.records import SHOWN_AFTER_END_S, Listed


class LastListed:
    """Remembers the GPUs of this boot and driver."""

    def __init__(self) -> None:
        self._known: dict[str, Listed] = {}
        self._gone: dict[str, GpuReading] = {}
        self.driver = ""
        self.version = 0
        """Grows when a GPU comes or goes."""

    def load(self, listed: Iterable[Listed], driver: str) -> None:
        """Take what an earlier run of this boot remembered."""
        if self.driver in ("", driver):
            self.driver = driver
            for gpu in listed:
                self._known.setdefault(gpu.uuid, gpu)

    def records(self) -> list[Listed]:
        """All that is remembered."""
        return list(self._known.values())

    def take(self, gpus: tuple[GpuReading, ...], driver: str, wall_s: float, now_s: float) -> tuple[GpuReading, ...]:
        """The GPUs of a tick, with those that are not listed any more.

        Where the driver lists none, or is another one, nothing is said of single GPUs.
        """
        if not gpus or not driver or any(gpu.state is GpuState.INITIALISING for gpu in gpus):
            return gpus
        if self.driver and driver != self.driver:
            self._known = {}
            self._gone = {}
        self.driver = driver
        listed = _listed(gpus)
        if listed is None:
            return gpus
        self._remember(listed, wall_s)
        self._miss(listed, wall_s, now_s)
        return self._with_missing(gpus, listed)

    def _with_missing(self, gpus: tuple[GpuReading, ...], listed: Mapping[str, GpuReading]) -> tuple[GpuReading, ...]:
        """The GPUs with the rows of those that are remembered and not listed, in the order of their indices."""
        gone = []
        for uuid, row in self._gone.items():
            if uuid in self._known and uuid not in listed:
                gone.append(row)
        if not gone:
            return gpus
        return tuple(sorted((*gpus, *gone), key=attrgetter("index")))

    def _remember(self, listed: Mapping[str, GpuReading], wall_s: float) -> None:
        """Note that these are listed now, and forget those that were not for long."""
        for uuid, gpu in listed.items():
            if uuid not in self._known or uuid in self._gone:
                self.version += 1
            self._gone.pop(uuid, None)
            if gpu.state is not GpuState.LOST:
                self._known[uuid] = Listed(uuid, gpu.index, gpu.name, gpu.source, wall_s)
        self._known = {
            uuid: gpu for uuid, gpu in self._known.items() if wall_s - gpu.listed_wall_s <= SHOWN_AFTER_END_S
        }

    def _miss(self, listed: Mapping[str, GpuReading], wall_s: float, now_s: float) -> None:
        """Note which of those that are remembered are not listed any more."""
        for uuid, known in self._known.items():
            if uuid not in listed and uuid not in self._gone:
                self._gone[uuid] = _row(known, wall_s, now_s)
                self.version += 1


def _listed(gpus: Iterable[GpuReading]) -> dict[str, GpuReading] | None:
    """The whole GPUs by UUID; None if one has no UUID: it cannot be opened, and may be the missing one."""
    whole = [gpu for gpu in gpus if not gpu.parent_uuid]
    listed = {gpu.uuid: gpu for gpu in whole}
    if len(listed) < len(whole) or any(uuid.startswith("index:") for uuid in listed):
        return None
    return listed


def _row(listed: Listed, wall_s: float, now_s: float) -> GpuReading:
    text = f"the driver does not list it any more, and did at {clock_utc(listed.listed_wall_s)}: unplugged or removed"
    blank: dict[str, Any] = dict.fromkeys(GPU_FIGURES, Missing(Reason.LOST, text))
    read_s = now_s - max(0.0, wall_s - listed.listed_wall_s)
    own = (listed.index, listed.uuid, listed.name, GpuState.LOST, read_s, text)
    return GpuReading(*own, source=listed.source, **blank)
