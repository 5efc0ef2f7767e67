"""GPUs whose driver calls do not return: who they are, which workers leave them out, and when they are tried again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import Fault, GpuReading, GpuState
from gpumon.sources.driver.wire import UNOPENED, PendingCall, WorkerReport

_HANGS_S: Final = 1.0
"""A call that takes longer is named as a fault."""


class MutePatience(msgspec.Struct, frozen=True):
    """Seconds after which a GPU counts as mute, and between two tries of it; tests make them short."""

    call_s: float = 10.0
    """A call that has not returned for so long will not soon: calls of a slow driver take up to 3 s."""
    reading_s: float = 12.0
    """A GPU that cannot be read to its end in that time, while others are read as always, is as mute: each of its calls
    ends in a timeout of the driver (of its GSP: 6 s and longer)."""
    open_s: float = 30.0
    """`call_s` while a worker opens a GPU: one that nobody has open takes up to 11 s to wake. They wake one after the
    other, so that the time counts from when the last one was open. Where the driver keeps the other GPUs open
    (persistence mode), it does so with this one, too: then it has `call_s`."""
    later_s: float = 1.0
    """A reading of another GPU that was made so long after the call began shows that the driver goes on."""
    fresh_s: float = 3.0
    """A reading of another GPU that is no older shows that the driver is not slow as a whole."""
    suspected_s: float = 3.0
    """A GPU under suspicion that gives a worker of its own no answer for so long, while others answer, is the one."""
    waking_s: float = 15.0
    """The same of one that has to be woken for that worker: nobody has it open, and the driver does not keep it so."""
    jam_s: float = 2.5
    """If the others do not answer for so long while a GPU is tried, the try is what holds them up: it is given up."""
    probe_s: float = 30.0
    """A worker of its own that gives no reading of the GPU is given up after so long."""
    retry_s: float = 15.0
    """First pause before a mute GPU is tried again; it doubles with each try up to `retry_most_s`."""
    retry_most_s: float = 300.0


_ANSWERING: Final = frozenset({GpuState.OK, GpuState.INITIALISING})
"""States of a GPU that can show that the driver goes on, or could soon."""


class _MuteGpu(msgspec.Struct):
    """A GPU whose call does not return."""

    call: PendingCall
    retry_s: float
    """When it is tried again (monotonic)."""
    pause_s: float
    """Pause after that try."""


class _Suspect(NamedTuple):
    """A GPU in whose call a worker may have hung, that gets a worker of its own to clear it."""

    call: PendingCall
    asked_s: float
    """When the worker of its own was started (monotonic)."""


class MuteGpus:
    """Notes of one driver's GPUs that do not answer. A GPU is mute only if others answer, or there are none."""

    def __init__(self, source: str, patience: MutePatience) -> None:
        """`source`: as `Fault.source`."""
        self._source = source
        self._patience = patience
        self._mute: dict[int, _MuteGpu] = {}
        self._suspect: _Suspect | None = None
        self._opened_s = -math.inf
        """When a worker last had a GPU open that it had not before (monotonic)."""
        self._open: frozenset[int] = frozenset()
        """Indices of the GPUs that the present worker has open."""
        self._listed: frozenset[int] = frozenset()
        """Indices of all GPUs of the driver."""
        self._last_rows: dict[int, tuple[GpuReading, ...]] = {}
        """Index -> the GPU and its slices when they gave figures last."""

    @property
    def can_leave_out(self) -> bool:
        """Whether there are several GPUs, so that a worker without one of them still has some to read."""
        return len(self._listed - self._mute.keys()) > 1

    @property
    def left_out(self) -> tuple[int, ...]:
        """Indices of the GPUs that a new worker does not touch."""
        indices = set(self._mute)
        if self._suspect is not None:
            indices.add(self._suspect.call.index)
        if indices >= self._listed:
            return ()
        return tuple(sorted(indices))

    def note_report(self, report: WorkerReport, now_s: float) -> None:
        """Take in the worker's newest report: who is mute now, and who answers again."""
        rows = _by_index(report.gpus)
        self._listed |= rows.keys()
        pending = {call.index for call in report.pending}
        opened = frozenset(index for index, gpu_rows in rows.items() if not is_awaited(gpu_rows[0]))
        if opened != self._open:
            self._open = opened
            self._opened_s = now_s
        for index, gpu_rows in rows.items():
            if index not in pending and index in opened:
                self._last_rows[index] = self.identified(gpu_rows)
                self._mute.pop(index, None)
        for call in report.pending:
            if self._is_mute(call, rows, now_s):
                self._add(call, now_s)
        suspect = self._suspect
        if suspect is not None and rows and self._is_guilty(suspect, rows, now_s):
            self._add(suspect.call, now_s)

    def _is_guilty(self, suspect: _Suspect, rows: Mapping[int, Sequence[GpuReading]], now_s: float) -> bool:
        """Whether a suspected GPU gives a worker of its own no answer, while the worker without it reads the others."""
        last_rows = self._last_rows.get(suspect.call.index, ())
        has_to_wake = any(row.persistence_mode == 0.0 and not row.processes for row in last_rows)
        silent_s = self._patience.waking_s if has_to_wake else self._patience.suspected_s
        is_silent_apart = now_s - suspect.asked_s >= silent_s
        is_long = now_s - suspect.call.since_s >= self._patience.call_s
        return is_silent_apart and is_long and self._others_go_on(suspect.call, rows)

    def _is_mute(self, call: PendingCall, rows: Mapping[int, Sequence[GpuReading]], now_s: float) -> bool:
        """Whether the GPU of a call that runs is mute: it hangs while others answer, or while there is no other."""
        patience = self._patience
        if call.opens:
            waited_s = now_s - max(call.since_s, self._opened_s)
            return waited_s >= self._patience_s(call) and self._others_go_on(call, rows)
        if now_s - call.since_s >= patience.call_s:
            return self._others_go_on(call, rows)
        if now_s - call.asked_s < patience.reading_s:
            return False
        fresh_s = max(call.asked_s + patience.later_s, now_s - patience.fresh_s)
        return _newest_of_others(call, rows) >= fresh_s

    def _patience_s(self, call: PendingCall) -> float:
        """Seconds that a call which opens a GPU may take: one that the driver keeps open does not have to wake."""
        modes = [rows[0].persistence_mode for index, rows in self._last_rows.items() if index != call.index and rows]
        is_kept_open = bool(modes) and all(mode == 1.0 for mode in modes)
        return self._patience.call_s if is_kept_open else self._patience.open_s

    def _others_go_on(self, call: PendingCall, rows: Mapping[int, Sequence[GpuReading]]) -> bool:
        """Whether another GPU gave figures after the call began, or none can: the others, if any, are down."""
        could_answer = [index for index, gpu_rows in rows.items() if gpu_rows[0].state in _ANSWERING]
        if could_answer in ([], [call.index]):
            return True
        return _newest_of_others(call, rows) >= call.since_s + self._patience.later_s

    def suspect(self, pending: Sequence[PendingCall], now_s: float) -> bool:
        """A worker hung, in one of these calls if there are any. Returns whether the next one should leave a GPU out.

        The call that began first is the one that the others wait for. Where the last worker left a GPU out already and
        hung all the same, that one is not to blame.
        """
        before = self._suspect
        self._suspect = None
        if before is not None or not pending or not self.can_leave_out:
            return False
        first = min(pending, key=attrgetter("since_s"))
        self._suspect = _Suspect(first, now_s)
        return True

    def due(self, now_s: float) -> int | None:
        """Index of the GPU that is to be tried now, in a worker of its own; None while there is none."""
        if self._suspect is not None:
            return self._suspect.call.index
        for index, gpu in self._mute.items():
            if now_s >= gpu.retry_s:
                return index
        return None

    def answered(self, index: int) -> None:
        """A GPU answers again."""
        self._mute.pop(index, None)
        if self._suspect is not None and self._suspect.call.index == index:
            self._suspect = None

    def failed(self, index: int, now_s: float) -> None:
        """A GPU was tried and did not answer. One that is suspected stays so until the others answer, or do not."""
        gpu = self._mute.get(index)
        if gpu is not None:
            gpu.retry_s = now_s + gpu.pause_s
            gpu.pause_s = min(self._patience.retry_most_s, 2.0 * gpu.pause_s)

    def with_mute(self, gpus: Sequence[GpuReading], left_out: Iterable[int]) -> tuple[GpuReading, ...]:
        """The readings of a worker and, as they were last, those of GPUs that are mute, or that it was to leave out."""
        hidden = {*self._mute, *left_out}
        if not hidden:
            return tuple(gpus)
        rows = _by_index(gpus)
        shown: list[GpuReading] = []
        for index in sorted(rows.keys() | hidden):
            if index in self._mute:
                shown += self._mute_rows(index, rows.get(index, ()))
            else:
                shown += rows.get(index) or self._last_rows.get(index, ())
        return tuple(shown)

    def identified(self, gpus: Sequence[GpuReading]) -> tuple[GpuReading, ...]:
        """The readings; a GPU that this worker never could open is the one that an earlier one read at its index."""
        uuids = {gpu.uuid for gpu in gpus}
        rows = []
        for gpu in gpus:
            last_rows = self._last_rows.get(gpu.index)
            if gpu.uuid.startswith(UNOPENED) and last_rows and last_rows[0].uuid not in uuids:
                gpu = msgspec.structs.replace(gpu, uuid=last_rows[0].uuid, name=last_rows[0].name)
            rows.append(gpu)
        return tuple(rows)

    def _mute_rows(self, index: int, rows: tuple[GpuReading, ...]) -> list[GpuReading]:
        """The GPU and its slices with the call that does not return."""
        call = self._mute[index].call
        last_rows = self._last_rows.get(index) or rows
        mute_rows = []
        for row in last_rows:
            # A GPU that never answered has not done so since the call began.
            answered_s = min(row.monotonic_s, call.since_s)
            mute_rows.append(
                msgspec.structs.replace(row, state=GpuState.MUTE, state_text=call.name, monotonic_s=answered_s)
            )
        return mute_rows

    def faults(self, pending: Iterable[PendingCall], now_s: float) -> list[Fault]:
        """A fault for each of these calls that takes long, of GPUs that are not mute yet: a verdict tells of those."""
        present = []
        for call in pending:
            patience_s = self._patience_s(call) if call.opens else _HANGS_S
            if now_s - call.since_s >= patience_s and call.index not in self._mute:
                text = f"GPU {call.index}: {call.name} does not return: its row is old until it does"
                present.append(Fault(self._source, text, call.asked_wall_s))
        return present

    def _add(self, call: PendingCall, now_s: float) -> None:
        """Note that a GPU is mute; one that was before keeps its first call, and its pauses."""
        if call.index not in self._mute:
            self._mute[call.index] = _MuteGpu(call, now_s + self._patience.retry_s, self._patience.retry_s)
        if self._suspect is not None and self._suspect.call.index == call.index:
            self._suspect = None


def is_awaited(gpu: GpuReading) -> bool:
    """Whether a GPU has not been read yet."""
    return gpu.state is GpuState.INITIALISING


def _by_index(gpus: Iterable[GpuReading]) -> dict[int, tuple[GpuReading, ...]]:
    """Index -> the GPU, then its slices."""
    rows: dict[int, tuple[GpuReading, ...]] = {}
    for gpu in gpus:
        rows[gpu.index] = (*rows.get(gpu.index, ()), gpu)
    return rows


def _newest_of_others(call: PendingCall, rows: Mapping[int, Sequence[GpuReading]]) -> float:
    """When another GPU than that of the call gave figures last (monotonic)."""
    newest_s = -math.inf
    for index, gpu_rows in rows.items():
        gpu = gpu_rows[0]
        if index != call.index and gpu.state is GpuState.OK:
            newest_s = max(newest_s, gpu.monotonic_s)
    return newest_s
