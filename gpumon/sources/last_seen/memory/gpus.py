"""GPUs that were listed and are not listed any more: a lost one keeps a row that says so, of others there is a note."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gpumon.readings.dcgm import DCGM
from gpumon.readings.format import clock_utc
from gpumon.readings.frame import GPU_FIGURES, OFF_THE_BUS, GpuReading, GpuState, UnseenGpus
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.fleet import UNPLUGGED
from gpumon.sources.last_seen.memory.hardware import HardwareLook, view_change
from gpumon.sources.last_seen.records import SHOWN_AFTER_END_S, Listed, Sight, View

LOOKING: Final = "not listed any more: looking why"
_NO_LOOK: Final = HardwareLook()

AskHardware = Callable[[], "Future[HardwareLook]"]
"""Begins a look at what the kernel has on the GPUs."""
_Key = tuple[str, str]
"""The source that was asked, and the UUID of a GPU."""


class Absence(NamedTuple):
    """Verdict on a GPU that is not listed: lost, or only not to be seen here."""

    is_lost: bool
    why: str
    """The record of its loss, or what hides it; empty: nothing is known."""


class LastListed:
    """Remembers the GPUs that this run and earlier ones of this boot were shown, by who was asked.

    A GPU is lost only if this run has seen it by the same way of asking, or if its loss is recorded: by the driver, by
    the kernel's log, by its PCI device that is gone. What an earlier run saw may have been shown to that one alone.
    """

    def __init__(self, ask: AskHardware | None = None, exporter: str = "") -> None:
        """`ask` looks at the hardware when a GPU is missed, `exporter` is the URL of the dcgm-exporter that is read."""
        self._ask = ask
        self._exporter = exporter
        self._seen: dict[_Key, Listed] = {}
        """GPUs that this run was shown, as they were listed last."""
        self._readings: dict[_Key, GpuReading] = {}
        """The last reading of each of them."""
        self._counts: dict[str, int] = {}
        """Source that was asked -> most GPUs that were shown together to this run."""
        self._earlier: dict[_Key, Sight] = {}
        """GPUs that an earlier run was shown, and this one was not."""
        self._first_look = _NO_LOOK
        """The hardware as it was at the start of this run."""
        self._looking: Future[HardwareLook] | None = None
        """The look that is under way."""
        self._absences: dict[_Key, Absence] = {}
        """GPUs of which it is decided what their absence means."""
        self._lost_rows: dict[_Key, GpuReading] = {}
        self.unseen: tuple[UnseenGpus, ...] = ()
        """GPUs that are not to be seen here as of the last tick, and not known to be lost."""
        self.version = 0
        """Grows when a GPU comes or goes."""

    def load(self, sights: Iterable[Sight]) -> None:
        """Take over what earlier runs remembered; they have to be of the same boot."""
        for sight in sights:
            for gpu in sight.gpus:
                key = (sight.asked, gpu.uuid)
                if key not in self._seen:
                    self._earlier[key] = Sight(sight.asked, sight.pid, sight.count, sight.view, [gpu])

    def see_hardware(self, look: HardwareLook) -> None:
        """Take the look at the hardware that belongs to the start of this run."""
        self._first_look = look

    def sights(self) -> list[Sight]:
        """All that is remembered: what this run was shown, then what only earlier ones were."""
        shown: dict[str, list[Listed]] = {}
        for (asked, _), gpu in self._seen.items():
            shown.setdefault(asked, []).append(gpu)
        pid = os.getpid()
        own = [Sight(asked, pid, self._counts[asked], self._first_look.view, gpus) for asked, gpus in shown.items()]
        return [*own, *self._earlier.values()]

    def take(self, gpus: tuple[GpuReading, ...], driver: str, wall_s: float, now_s: float) -> tuple[GpuReading, ...]:
        """The GPUs of a tick, with those that are lost. `unseen` has those that are only not to be seen.

        Where the driver lists none, or is another one, nothing is said of single GPUs.
        """
        unlisted = {gpu.uuid for gpu in gpus if _is_unlisted(gpu)}
        absent: list[_Key] = []
        for asked, listed in self._by_asked(gpus, driver).items():
            self._remember(asked, listed, wall_s)
            absent += self._absent(asked, listed)
        self._judge(absent)
        if not absent:
            self.unseen = ()
            return gpus
        self.unseen = self._notes(absent, {gpu.index for gpu in gpus if gpu.uuid not in unlisted})
        replaced = unlisted & {uuid for _, uuid in absent}
        rows = [gpu for gpu in gpus if gpu.uuid not in replaced]
        for key in absent:
            row = self._row(key, wall_s, now_s)
            if row is not None:
                rows.append(row)
        return tuple(sorted(rows, key=attrgetter("index")))

    def _absent(self, asked: str, listed: Container[str]) -> list[_Key]:
        """The GPUs that somebody told of before and does not list now."""
        return [key for key in (*self._seen, *self._earlier) if key[0] == asked and key[1] not in listed]

    def _by_asked(self, gpus: Iterable[GpuReading], driver: str) -> dict[str, dict[str, GpuReading]]:
        """Source that was asked -> the whole GPUs that are listed there, by UUID.

        Left out is who cannot name all its GPUs: one that is being opened, or cannot be, may be the missing one.
        """
        groups: dict[str, dict[str, GpuReading]] = {}
        nameless: set[str] = set()
        for gpu in gpus:
            if gpu.parent_uuid:
                continue
            if gpu.source == DCGM:
                asked = f"dcgm {self._exporter} {gpu.host}"
            elif driver:
                asked = f"{gpu.source} {driver}"
            else:
                continue
            group = groups.setdefault(asked, {})
            if gpu.state is GpuState.INITIALISING or gpu.uuid.startswith("index:") or gpu.uuid in group:
                nameless.add(asked)
            if _is_unlisted(gpu):
                self._readings[asked, gpu.uuid] = gpu
            else:
                group[gpu.uuid] = gpu
        return {asked: group for asked, group in groups.items() if asked not in nameless}

    def _remember(self, asked: str, listed: Mapping[str, GpuReading], wall_s: float) -> None:
        """Note that these are listed now, and forget those that were not for long."""
        self._counts[asked] = max(self._counts.get(asked, 0), len(listed))
        for uuid, gpu in listed.items():
            key = (asked, uuid)
            if key not in self._seen or key in self._absences:
                self.version += 1
            self._absences.pop(key, None)
            self._lost_rows.pop(key, None)
            self._earlier.pop(key, None)
            self._readings[key] = gpu
            if gpu.state is not GpuState.LOST:
                had_device = self._first_look.has_device(gpu.bus_id)
                self._seen[key] = Listed(uuid, gpu.index, gpu.name, gpu.source, wall_s, gpu.bus_id, had_device)
        oldest_s = wall_s - SHOWN_AFTER_END_S
        for key in [key for key, gpu in self._seen.items() if gpu.listed_wall_s < oldest_s]:
            del self._seen[key]
            self._readings.pop(key, None)
        for key in [key for key, sight in self._earlier.items() if sight.gpus[0].listed_wall_s < oldest_s]:
            del self._earlier[key]

    def _judge(self, absent: Iterable[_Key]) -> None:
        """Decide on the absent ones: on those of this run with a look at the hardware that is made for it."""
        undecided = [key for key in absent if key not in self._absences]
        if not undecided:
            self._looking = None  # a look that nobody needs any more knows nothing of a later absence
            return
        look: HardwareLook | None = self._first_look
        if any(key in self._seen for key in undecided):
            look = self._fresh_look()
        for key in undecided:
            if key in self._earlier:
                sight = self._earlier[key]
                self._decide(key, judge_absence(sight.gpus[0], sight.view, self._first_look, in_this_run=False))
            elif look is not None:
                self._decide(key, self._judge_seen(key, look))

    def _fresh_look(self) -> HardwareLook | None:
        """A look at the hardware that began after a GPU was missed; None while it is under way."""
        if self._ask is None:
            return self._first_look
        if self._looking is None:
            self._looking = self._ask()
        if not self._looking.done():
            return None
        looking = self._looking
        self._looking = None
        return self._first_look if looking.exception() is not None else looking.result()

    def _judge_seen(self, key: _Key, look: HardwareLook) -> Absence:
        """Decide on a GPU that this run has seen."""
        if any(event.code == OFF_THE_BUS for event in self._readings[key].xid):
            return Absence(True, f"Xid {OFF_THE_BUS} came before")
        return judge_absence(self._seen[key], self._first_look.view, look, in_this_run=True)

    def _decide(self, key: _Key, absence: Absence) -> None:
        """Note what the absence of a GPU means."""
        self._absences[key] = absence
        self.version += 1

    def _listed(self, key: _Key) -> Listed:
        """A GPU as it was listed last."""
        if key in self._seen:
            return self._seen[key]
        return self._earlier[key].gpus[0]

    def _row(self, key: _Key, wall_s: float, now_s: float) -> GpuReading | None:
        """The row of an absent GPU; None where it is not known to be lost."""
        absence = self._absences.get(key)
        if absence is None:
            return _blank_row(self._readings[key], GpuState.STALE, LOOKING, self._readings[key].monotonic_s)
        if not absence.is_lost:
            return None
        row = self._lost_rows.get(key)
        if row is None:
            listed = self._listed(key)
            read_s = now_s - max(0.0, wall_s - listed.listed_wall_s)
            text = _lost_text(listed, absence)
            last = self._readings.get(key)
            if last is None:
                last = GpuReading(listed.index, listed.uuid, listed.name, GpuState.LOST, read_s, source=listed.source)
            row = _blank_row(last, GpuState.LOST, text, read_s)
            self._lost_rows[key] = row
        return row

    def _notes(self, absent: Iterable[_Key], taken_indices: Container[int]) -> tuple[UnseenGpus, ...]:
        """The notes on the absent ones that are not known to be lost, one for those of one run and reason."""
        groups: dict[tuple[str, int, int, str, bool], list[Listed]] = {}
        for key in absent:
            absence = self._absences.get(key)
            if absence is None or absence.is_lost:
                continue
            asked = f"dcgm-exporter {self._exporter}" if self._listed(key).source == DCGM else ""
            pid = os.getpid()
            count = self._counts[key[0]]
            if key in self._earlier:
                pid = self._earlier[key].pid
                count = self._earlier[key].count
            run = (asked, pid, count, absence.why, key in self._seen)
            groups.setdefault(run, []).append(self._listed(key))
        return tuple(
            UnseenGpus(
                indices=tuple(sorted(gpu.index for gpu in gpus if gpu.index not in taken_indices)),
                seen_wall_s=max(gpu.listed_wall_s for gpu in gpus),
                pid=pid,
                count=count,
                asked=asked,
                why=why,
                in_this_run=in_this_run,
                uuids=tuple(gpu.uuid for gpu in gpus if gpu.index in taken_indices),
            )
            for (asked, pid, count, why, in_this_run), gpus in groups.items()
        )


def judge_absence(listed: Listed, view: View, look: HardwareLook, *, in_this_run: bool) -> Absence:
    """The meaning of the absence of a GPU that was listed to a process with this view.

    `in_this_run`: it was this process, which asked the same driver: without a reason to be hidden it is lost then.
    """
    if listed.source == DCGM:  # an exporter that was started anew may have been told of fewer GPUs
        return Absence(False, "")
    bus_id = listed.bus_id
    if look.has_fallen(bus_id, listed.listed_wall_s):
        return Absence(True, f"the kernel's log has Xid {OFF_THE_BUS} on it")
    if listed.had_device and look.shows_gpus and not look.has_device(bus_id):
        return Absence(True, f"its PCI device {bus_id} is gone")
    other_driver = look.other_driver(bus_id)
    if other_driver:
        return Absence(False, f"its PCI device is given to {other_driver}")
    change = view_change(view, look.view)
    if change:
        return Absence(False, change)
    return Absence(in_this_run, "")


def _is_unlisted(gpu: GpuReading) -> bool:
    """Whether a row is that of a GPU that the driver's worker listed before and misses now."""
    return (gpu.state, gpu.state_text) == UNPLUGGED


def _lost_text(listed: Listed, absence: Absence) -> str:
    """The text of the row of a lost GPU."""
    listed_at = clock_utc(listed.listed_wall_s)
    if absence.why:
        return f"{absence.why}: not listed any more, and was at {listed_at}"
    return f"the driver does not list it any more, and did at {listed_at}: unplugged or removed"


def _blank_row(last: GpuReading, state: GpuState, text: str, read_s: float) -> GpuReading:
    """The row of a GPU that is not listed: no figures, each with the reason."""
    reason = Reason.LOST if state is GpuState.LOST else Reason.STALE
    blank: dict[str, Any] = dict.fromkeys(GPU_FIGURES, Missing(reason, text))
    return GpuReading(
        index=last.index,
        uuid=last.uuid,
        name=last.name,
        state=state,
        monotonic_s=read_s,
        state_text=text,
        xid=last.xid,
        source=last.source,
        host=last.host,
        bus_id=last.bus_id,
        **blank,
    )
