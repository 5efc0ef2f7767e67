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
        self._listed: dict[str, Listed] = {}
        """UUID -> the GPU as it was listed last."""
        self._lost_rows: dict[str, GpuReading] = {}
        """UUID -> the row of one that is not listed any more."""
        self.driver = ""
        """Version of the driver that listed them."""
        self.version = 0
        """Grows when a GPU comes or goes."""

    def load(self, listed: Iterable[Listed], driver: str) -> None:
        """Take over what an earlier run remembered; both runs have to be of the same boot."""
        if self.driver in ("", driver):
            self.driver = driver
            for gpu in listed:
                self._listed.setdefault(gpu.uuid, gpu)

    def records(self) -> list[Listed]:
        """All that is remembered."""
        return list(self._listed.values())

    def take(self, gpus: tuple[GpuReading, ...], driver: str, wall_s: float, now_s: float) -> tuple[GpuReading, ...]:
        """The GPUs of a tick, with those that are not listed any more.

        Where the driver lists none, or is another one, nothing is said of single GPUs.
        """
        if not gpus or not driver or any(gpu.state is GpuState.INITIALISING for gpu in gpus):
            return gpus
        if self.driver and driver != self.driver:
            self._listed = {}
            self._lost_rows = {}
        self.driver = driver
        listed = _whole_gpus(gpus)
        if listed is None:
            return gpus
        self._remember(listed, wall_s)
        self._note_lost(listed, wall_s, now_s)
        return self._with_missing(gpus, listed)

    def _with_missing(self, gpus: tuple[GpuReading, ...], listed: Mapping[str, GpuReading]) -> tuple[GpuReading, ...]:
        """The GPUs with the rows of those that are remembered and not listed, in the order of their indices."""
        rows = []
        for uuid, row in self._lost_rows.items():
            if uuid in self._listed and uuid not in listed:
                rows.append(row)
        if not rows:
            return gpus
        return tuple(sorted((*gpus, *rows), key=attrgetter("index")))

    def _remember(self, listed: Mapping[str, GpuReading], wall_s: float) -> None:
        """Note that these are listed now, and forget those that were not for long."""
        for uuid, gpu in listed.items():
            if uuid not in self._listed or uuid in self._lost_rows:
                self.version += 1
            self._lost_rows.pop(uuid, None)
            if gpu.state is not GpuState.LOST:
                self._listed[uuid] = Listed(uuid, gpu.index, gpu.name, gpu.source, wall_s)
        self._listed = {
            uuid: gpu for uuid, gpu in self._listed.items() if wall_s - gpu.listed_wall_s <= SHOWN_AFTER_END_S
        }

    def _note_lost(self, listed: Mapping[str, GpuReading], wall_s: float, now_s: float) -> None:
        """Note which of those that are remembered are not listed any more."""
        for uuid, last_listed in self._listed.items():
            if uuid not in listed and uuid not in self._lost_rows:
                self._lost_rows[uuid] = _lost_row(last_listed, wall_s, now_s)
                self.version += 1


def _whole_gpus(gpus: Iterable[GpuReading]) -> dict[str, GpuReading] | None:
    """The whole GPUs by UUID; None if one has no UUID: it cannot be opened, and may be the missing one."""
    whole = [gpu for gpu in gpus if not gpu.parent_uuid]
    listed = {gpu.uuid: gpu for gpu in whole}
    if len(listed) < len(whole) or any(uuid.startswith("index:") for uuid in listed):
        return None
    return listed


def _lost_row(listed: Listed, wall_s: float, now_s: float) -> GpuReading:
    """The row of a GPU that is not listed any more: no figures, each with the reason."""
    text = f"the driver does not list it any more, and did at {clock_utc(listed.listed_wall_s)}: unplugged or removed"
    blank: dict[str, Any] = dict.fromkeys(GPU_FIGURES, Missing(Reason.LOST, text))
    read_s = now_s - max(0.0, wall_s - listed.listed_wall_s)
    return GpuReading(
        index=listed.index,
        uuid=listed.uuid,
        name=listed.name,
        state=GpuState.LOST,
        monotonic_s=read_s,
        state_text=text,
        source=listed.source,
        **blank,
    )
