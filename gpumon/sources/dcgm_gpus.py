"""GPUs of a dcgm-exporter from page to page: how old their figures are, and which Xid errors came."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from gpumon.figures.gpu import GPU
from gpumon.readings.dcgm import DCGM, NAME_OF, NOT_ON_PAGE, NOT_READ, PROFILED, RATIOS, XID
from gpumon.readings.frame import GpuReading, GpuState, XidEvent
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.nvml import NVML_FIGURES
from gpumon.sources.dcgm_page import MOST_GPUS, DcgmPage, GpuIdentity, gpu_fields

EXPORTER_S: Final = 30.0
"""Seconds between two measurements of a dcgm-exporter whose interval nobody changed (30 000 ms)."""
_MOST_GAPS: Final = 5
"""Newest intervals between two changes that are remembered: the upper quartile of five is the second largest."""
_IDLE_RATIO: Final = 0.001
"""Activity below which a GPU is idle: it may well stay the same for minutes."""
STALE_GPU_S: Final = 600.0
"""Seconds for which a GPU is shown as stale that is not on the page any more."""
_UNREAD: Final[Mapping[str, Any]] = dict.fromkeys(
    (
        *(figure.field for figure in NVML_FIGURES if GPU[figure.field].exported and figure.field not in NAME_OF),
        *("nvlinks", "nvlinks_active", "nvlink_errors", "pcie_replays"),
    ),
    NOT_READ,
)
"""Figures that a driver tells of every GPU, and that are not read from an exporter."""
_MOST_XIDS: Final = 16
"""Newest Xid errors of a GPU that are remembered."""


class ChangePace:
    """When values last changed, and how far apart their changes come.

    The page repeats what was measured last until the next measurement: only a change says that there was one. What
    the first page shows may be older than the look at it.
    """

    def __init__(self, shortest_s: float) -> None:
        """`shortest_s`: seconds between two looks; changes cannot be seen to come faster."""
        self.changed_s = 0.0
        """Moment of the last change (monotonic)."""
        self._shortest_s = shortest_s
        self._values: object = None
        """The values at the last look."""
        self._gaps: deque[float] = deque(maxlen=_MOST_GAPS)
        self._is_dated = False
        """Whether the last change came between two looks in a row, so that its moment is known."""
        self._has_answer = False
        """Whether the last look got an answer."""

    @property
    def interval_s(self) -> float:
        """Seconds between two changes: the upper quartile of the last ones; the exporter's default before any.

        A look in the middle of a measurement makes two changes of one, which are too close; a pause that is too long is
        rare.
        """
        if not self._gaps:
            return max(self._shortest_s, EXPORTER_S)
        gaps = sorted(self._gaps)
        upper_quartile_s = gaps[3 * len(gaps) // 4]
        return max(self._shortest_s, upper_quartile_s)

    def see(self, values: object, now_s: float) -> None:
        """Note the values of an answer at `now_s` (monotonic): where they have changed, that is a change."""
        if values != self._values:
            if self._is_dated:
                self._gaps.append(now_s - self.changed_s)
            self._is_dated = self._has_answer  # a look without an answer in between could have seen it earlier
            self._values = values
            self.changed_s = now_s
        self._has_answer = True

    def miss(self) -> None:
        """Note that there was no answer: a change in the meantime goes unseen."""
        self._is_dated = False
        self._has_answer = False


class ExporterGpus:
    """The GPUs that one exporter tells of, from page to page, with how old their figures are."""

    def __init__(self, shortest_s: float) -> None:
        """`shortest_s`: seconds between two looks."""
        self._shortest_s = shortest_s
        self._hosts: dict[str, ChangePace] = {}
        """Host -> how its whole part of the page changes."""
        self._profiling: dict[str, ChangePace] = {}
        """UUID -> how the profiling figures of that GPU change."""
        self._readings: dict[str, GpuReading] = {}
        """UUID -> the newest reading, in the order of `_order`."""
        self._seen_s: dict[str, float] = {}
        """UUID -> monotonic time of the last page that had that GPU."""
        self._xid: dict[str, float] = {}
        """UUID -> code of the last Xid error on the last page; 0 for none."""

    @property
    def readings(self) -> tuple[GpuReading, ...]:
        """The newest of each GPU; one that has left the page stays for `STALE_GPU_S`."""
        return tuple(self._readings.values())

    def miss(self) -> None:
        """Note that there was no page."""
        for pace in self._hosts.values():
            pace.miss()

    def follow(self, page: DcgmPage, now_s: float, wall_s: float) -> None:
        """Date the page's figures by what has changed, and make the readings of its GPUs.

        `now_s` is monotonic time, `wall_s` Unix time, for Xid errors.
        """
        hosts: dict[str, list[Mapping[str, Reading]]] = {}
        for key, figures in page.gpus.items():
            hosts.setdefault(key.host, []).append(figures.values)
        for host, values in hosts.items():
            self._hosts.setdefault(host, ChangePace(self._shortest_s)).see(values, now_s)
        fresh: dict[str, GpuReading] = {}
        for key in page.gpus:
            uuid = f"MIG-{key.uuid}/{key.instance}" if key.instance else key.uuid
            if uuid not in fresh:  # an exporter that was started anew may stand there under both its names
                fresh[uuid] = self._reading(page, key, uuid, now_s=now_s, wall_s=wall_s)
        self._seen_s.update(dict.fromkeys(fresh, now_s))
        self._keep(fresh, now_s)

    def _keep(self, fresh: Mapping[str, GpuReading], now_s: float) -> None:
        """Keep these readings, and for a while those of GPUs that left the page; forget all others."""
        remembered = {uuid: gpu for uuid, gpu in self._readings.items() if now_s - self._seen_s[uuid] <= STALE_GPU_S}
        remembered |= fresh
        if len(remembered) > MOST_GPUS:
            remembered = dict(fresh)
        self._readings = dict(sorted(remembered.items(), key=_order))
        for memory in (self._seen_s, self._xid, self._profiling):
            for uuid in memory.keys() - remembered.keys():
                del memory[uuid]
        for host in self._hosts.keys() - {gpu.host for gpu in remembered.values()}:
            del self._hosts[host]

    def _reading(self, page: DcgmPage, key: GpuIdentity, uuid: str, *, now_s: float, wall_s: float) -> GpuReading:
        """The reading of one GPU or slice, with the moments that its figures stand for."""
        figures = page.gpus[key]
        host = self._hosts[key.host]
        pace = self._profiling.setdefault(uuid, ChangePace(self._shortest_s))
        pace.see({field: figures.values[field] for field in PROFILED if field in figures.values}, now_s)
        fields = gpu_fields(page, key)
        measured = tuple(name for name, value in fields.items() if name in PROFILED and not isinstance(value, Missing))
        # An idle GPU shows the same activity at each measurement. Of a busy one whose activity stands still while the
        # rest of the page changes, the profiling figures are old.
        is_idle = all((number(fields[field]) or 0.0) < _IDLE_RATIO for field in RATIOS)
        active_s = host.changed_s if is_idle else pace.changed_s
        parent_uuid = key.uuid if key.instance else ""
        activity_source = DCGM if not frozenset(RATIOS).isdisjoint(measured) else ""
        return GpuReading(
            index=figures.gpu_index,
            uuid=uuid,
            name=figures.name,
            state=GpuState.OK,
            monotonic_s=host.changed_s,
            mig=key in page.sliced,
            parent_uuid=parent_uuid,
            mig_profile=figures.profile,
            mig_instance=key.instance,
            xid=self._xid_events(uuid, figures.values, wall_s),
            source=DCGM,
            host=key.host,
            activity_source=activity_source,
            activity_monotonic_s=active_s,
            activity_interval_s=host.interval_s,
            from_dcgm=measured,
            standing_xid=int(number(figures.values.get(XID, NOT_ON_PAGE)) or 0.0),
            **_UNREAD,
            **fields,
        )

    def _xid_events(self, uuid: str, values: Mapping[str, Reading], wall_s: float) -> tuple[XidEvent, ...]:
        """The Xid errors seen to come: the page has the last one only, and one on the first page is old."""
        code = number(values.get(XID, NOT_ON_PAGE)) or 0.0
        last = self._readings.get(uuid)
        events: tuple[XidEvent, ...] = last.xid if last is not None else ()
        if code and code != self._xid.get(uuid, code):
            events = (*events, XidEvent(int(code), wall_s))
        self._xid[uuid] = code
        return events[-_MOST_XIDS:]


def _order(item: tuple[str, GpuReading]) -> tuple[Any, ...]:
    """Sort key: by host, then by index, each GPU before its slices, slice 2 before slice 10."""
    gpu = item[1]
    return gpu.host, gpu.index, gpu.parent_uuid or gpu.uuid, len(gpu.mig_instance), gpu.mig_instance
