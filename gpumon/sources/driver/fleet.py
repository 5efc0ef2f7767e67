"""All GPUs of one driver, each read in a thread of its own, so that one that hangs or fails costs only its own row."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

import msgspec

from gpumon.readings.frame import GPU_FIGURES, Fault, GpuReading, GpuState, XidEvent
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.sources.driver.calls import Api, CallTrace, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.driver.wire import UNOPENED, Chosen, PendingCall, Timings

_MOST_WAIT_PER_GPU_S = 0.2
"""Longest wait of one tick for one GPU, while the others wait for their turn."""
_MOST_WAIT_S = 0.5
"""Longest wait of one tick for all GPUs together; those that answer later are in the next report."""
_MOST_OPENING_S = 5.0
"""Longest wait of the first report for one GPU, before the next has its turn: one that hangs does not hold it up."""
_MOST_NAMED_CALLS = 3
"""Calls that one fault names."""
UNPLUGGED = (GpuState.LOST, "the driver does not list it any more: unplugged or removed")
"""State and text of the row of a GPU that the driver listed before."""
_REASON_OF_STATE = {GpuState.LOST: Reason.LOST, GpuState.NO_PERMISSION: Reason.NO_PERMISSION}


class Pcie(Enum):
    """Treatment of a GPU's PCIe traffic at one reading, where measuring it takes a call that blocks."""

    OFF = "off"
    KEEP = "keep"
    """It is another GPU's turn: what was measured last stays."""
    MEASURE = "measure"


class DriverGpu(Protocol):
    """One GPU that is open. Reading it may raise GpuDownError, HandleStaleError or DriverDownError."""

    handle: Any
    uuid: str
    read_s: float
    """When it was last read, on the monotonic clock."""

    @property
    def name(self) -> str:
        """The driver's name of it; empty until it was read."""

    def read(self, now_s: float, xid: tuple[XidEvent, ...], pcie: Pcie) -> tuple[GpuReading, ...]:
        """This GPU, then its slices."""

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""

    def close(self) -> None:
        """Give the driver's records back, as far as it still answers."""


class GpuErrorEvents(Protocol):
    """Error events of the GPUs."""

    def watch(self, handles: dict[str, Any]) -> None:
        """The GPUs (UUID -> handle) that are watched from now on."""

    def events_of(self, uuid: str) -> tuple[XidEvent, ...]:
        """A GPU's events so far."""


class Driver(Protocol):
    """A vendor's library as the worker uses it. `count` and `open` raise what `api.code_of` knows."""

    source: str
    """As `GpuReading.source` and `Fault.source`."""
    api: Api
    no_gpu: str
    """The fault where the driver lists no GPU."""
    reload: frozenset[int]
    """Codes after which only a new process can load the library."""

    def start(self) -> int:
        """Load the library and initialise it; its code, 0 for success. It may take many seconds, or hang."""

    def explain(self, code: int) -> str:
        """The text for the user about a driver that cannot be used: the fault, and the fix."""

    def versions(self) -> tuple[str, str]:
        """Driver version, and of the newest CUDA (or ROCm) that it supports; empty where it does not tell."""

    def events(self) -> GpuErrorEvents:
        """Begin to watch."""

    def count(self) -> int:
        """Number of GPUs that it lists."""

    def open(self, index: int, last: DriverGpu | None, timings: Timings, trace: CallTrace) -> DriverGpu:
        """The GPU at an index: `last` where it is still that one."""


class _DownGpu(msgspec.Struct, frozen=True):
    """A GPU that cannot be read: what its row says, and since when."""

    index: int
    uuid: str
    name: str
    state: GpuState
    text: str
    since_s: float

    def reading(self, source: str, events: GpuErrorEvents) -> GpuReading:
        """Its row: no figures, each with the reason."""
        missing = Missing(_REASON_OF_STATE.get(self.state, Reason.ERROR), self.text)
        blank: dict[str, Any] = dict.fromkeys(GPU_FIGURES, missing)
        return GpuReading(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            state=self.state,
            monotonic_s=self.since_s,
            state_text=self.text,
            xid=events.events_of(self.uuid),
            source=source,
            **blank,
        )


class _Slot:
    """The GPU at one index, and the thread that reads it.

    Two threads share it, and the two queues say whose turn it is. Between `ask` and the answer the slot's own thread
    reads the GPU; the fleet's thread then only reads what was written last, which may be old, and never waits longer
    than its patience: this is how a call that hangs costs one row.
    """

    def __init__(self, index: int, driver: Driver, timings: Timings, events: GpuErrorEvents) -> None:
        self.index = index
        self._driver = driver
        self._timings = timings
        self._events = events

        # Written by the slot's thread; each is replaced as a whole.
        self.rows: tuple[GpuReading, ...] = ()
        """The GPU and its slices, as they were read last; none before the first time."""
        self.gpu: DriverGpu | None = None
        """The open GPU; None while it is not open."""
        self.down: _DownGpu | None = None
        """Why it gives no figures; None while it does."""
        self.error: Exception | None = None
        """Ends the worker's session with the driver, or shows a fault of gpumon's own."""
        self.stale = False
        """Whether its handle does not name its device any more: all are looked for again then."""
        self.troubles: dict[str, tuple[str, float]] = {}
        """Calls that worked before and fail now -> the reason and since when (Unix time)."""
        self._trace = CallTrace()
        """The driver call that runs now, or ran last."""
        self._probe_due_s = 0.0
        """When a GPU that is down is tried again."""

        # Written by the fleet's thread.
        self.question: tuple[float, float] | None = None
        """When the question was asked that is not answered yet: monotonic, and Unix time."""
        self._now_s = 0.0
        """Moment of the question (monotonic)."""
        self._pcie = Pcie.OFF
        """Part of the question that is about PCIe traffic."""
        self._is_ended = False
        """Whether the thread is to end, as soon as it is not reading."""

        # Set by the fleet's thread, reset by the slot's.
        self.look_again = True
        """Whether to ask the driver anew which GPU stands at this index."""

        # Not a semaphore and an event, which take thirty calls per question: these queues take four.
        self._questions: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"gpu {index}", daemon=True).start()

    def end(self) -> None:
        """End its thread, once it is not reading."""
        self._is_ended = True
        self._questions.put(None)

    def ask(self, now_s: float, pcie: Pcie) -> None:
        """Let it be read, unless it is still being read."""
        if self.question is None:
            self.question = (now_s, time.time())
            self._now_s = now_s
            self._pcie = pcie
            self._questions.put(None)

    def wait_for_answer(self, patience_s: float) -> bool:
        """Wait at most `patience_s` until it is read. Returns whether it is."""
        if self.question is None:
            return True
        try:
            self._answers.get(timeout=patience_s)
        except Empty:
            return False
        self.question = None
        return True

    @property
    def pending(self) -> PendingCall | None:
        """The driver call that runs now; None while the GPU is not being read."""
        question = self.question
        if question is None:
            return None
        asked_s, asked_wall_s = question
        return PendingCall(
            self.index,
            self._trace.name,
            # Where no call was made since the question, the last one is older than it.
            since_s=max(self._trace.since_s, asked_s),
            asked_s=asked_s,
            asked_wall_s=asked_wall_s,
            opens=not self.rows,
        )

    def opening_row(self, now_s: float) -> GpuReading:
        """The row of a GPU that was never read: it says which driver call opens it now."""
        blank: dict[str, Any] = dict.fromkeys(GPU_FIGURES, WARMING_UP)
        return GpuReading(
            index=self.index,
            uuid=f"{UNOPENED}{self.index}",
            name="",
            state=GpuState.INITIALISING,
            monotonic_s=now_s,
            state_text=f"the driver is opening it ({self._trace.name})",
            source=self._driver.source,
            **blank,
        )

    def faults(self) -> list[Fault]:
        """A fault for calls that fail and worked before."""
        if not self.troubles:
            return []
        names = ", ".join(sorted(self.troubles)[:_MOST_NAMED_CALLS])
        if len(self.troubles) > _MOST_NAMED_CALLS:
            names += " ..."
        why, _ = next(iter(self.troubles.values()))
        begun_wall_s = min(since_s for _, since_s in self.troubles.values())
        text = f"GPU {self.index}: {names} worked before and fails now: {why}"
        return [Fault(self._driver.source, text, begun_wall_s)]

    def _run(self) -> None:
        """Answer questions until the slot is ended; runs in the slot's thread."""
        while True:
            self._questions.get()
            if self._is_ended:
                return
            try:
                self._read(self._now_s)
            except Exception as error:  # raised where the rows are asked for
                self.error = error
            self._answers.put(None)

    def _read(self, now_s: float) -> None:
        """Read the GPU into `rows`; open it first where it is not, or may be another. Raises DriverDownError."""
        if self.look_again or (self.gpu is None and now_s >= self._probe_due_s):
            self._open(now_s)
        if self.gpu is not None:
            try:
                self.rows = self.gpu.read(now_s, self._events.events_of(self.gpu.uuid), self._pcie)
                self.troubles = self.gpu.troubles()
                self.down = None
                return
            except GpuDownError as down:
                self._give_up((down.state, down.text), now_s)
            except HandleStaleError:
                self._give_up((GpuState.ERROR, "its handle became invalid: looking for it again"), now_s)
                self.stale = True
        if self.down is not None:
            self.rows = (self.down.reading(self._driver.source, self._events),)

    def _open(self, now_s: float) -> None:
        """Ask the driver for the GPU at this index. Raises DriverDownError."""
        self.look_again = False
        self.stale = False
        self._probe_due_s = now_s + self._timings.reprobe_s
        try:
            gpu = self._driver.open(self.index, self.gpu, self._timings, self._trace)
        except Exception as error:  # each library has exceptions of its own; one without a code is raised again
            code = self._driver.api.code_of(error)
            if code is None:
                raise
            if code in self._driver.api.driver_down:
                raise DriverDownError(code) from error
            unknown = (GpuState.ERROR, f"cannot be opened (code {code})")
            why = self._driver.api.refused.get(code) or self._driver.api.down.get(code) or unknown
            self._give_up(why, now_s)
            return
        if gpu is not self.gpu:
            if self.gpu is not None:
                self.gpu.close()
            if self.down is not None and self.down.uuid != gpu.uuid:
                self.down = None
            self.gpu = gpu

    def _give_up(self, why: tuple[GpuState, str], now_s: float) -> None:
        """Close the GPU, and note state and text (`why`) of its row.

        A row that was down before keeps its first moment: a probe that failed again is no news.
        """
        uuid = f"{UNOPENED}{self.index}"
        name = ""
        since_s = now_s
        if self.down is not None:
            uuid = self.down.uuid
            name = self.down.name
            since_s = self.down.since_s
        gpu = self.gpu
        if gpu is not None:
            gpu.close()
            uuid = gpu.uuid
            name = gpu.name or name
            if self.down is None:
                since_s = gpu.read_s or now_s
        state, text = why
        self.gpu = None
        self.troubles = {}
        self.down = _DownGpu(self.index, uuid=uuid, name=name, state=state, text=text, since_s=since_s)


class DriverGpus:
    """The GPUs of an initialised driver. A GPU that cannot be had at all goes by the uuid `index:N`."""

    def __init__(self, driver: Driver, timings: Timings, chosen: Chosen) -> None:
        self._driver = driver
        self._timings = timings
        self._chosen = chosen
        self._events = driver.events()
        self._slots: list[_Slot] = []
        """The GPUs that are read, in the order of their indices."""
        self._listed_count = 0
        """Number of GPUs that the driver listed last."""
        self._listed: dict[str, GpuReading] = {}
        """The rows of the last report by uuid, slices left out."""
        self._gone: dict[str, _DownGpu] = {}
        """GPUs that the driver does not list any more, by uuid."""
        self._turns = 0
        """Number of readings with PCIe traffic so far, which go round the GPUs that are watched."""
        self.faults: tuple[Fault, ...] = ()
        """Present faults of single GPUs."""
        self.silent_s = 0.0
        """For how long no call of any GPU that is not down has returned; 0 while one answers."""
        self.pending: tuple[PendingCall, ...] = ()
        """Calls that had not returned when all were waited for."""

    def read(self, now_s: float, watched: frozenset[str] = frozenset()) -> tuple[GpuReading, ...]:
        """All rows in the order of their index; of the GPUs `watched` (uuids) with their PCIe traffic.

        Raises DriverDownError where the driver as a whole is gone.
        """
        count = self._count()
        is_first = not self._slots
        enumerates = count != self._listed_count or any(slot.stale for slot in self._slots)
        if enumerates:
            self._enumerate(count)
        self._ask_all(now_s, self._choose_pcie(watched), is_first=is_first)
        rows: list[GpuReading] = []
        faults: list[Fault] = []
        for slot in self._slots:
            rows += slot.rows or (slot.opening_row(now_s),)
            faults += slot.faults()
        self._note_listed(rows, enumerates=enumerates)
        opened = [slot.gpu for slot in self._slots if slot.gpu is not None]
        self._events.watch({gpu.uuid: gpu.handle for gpu in opened})
        pending = [slot.pending for slot in self._slots]
        self.pending = tuple(call for call in pending if call is not None)
        self.silent_s = self._silence_s()
        self.faults = tuple(faults)
        rows += [down.reading(self._driver.source, self._events) for down in self._gone.values()]
        return tuple(sorted(rows, key=attrgetter("index")))

    def _note_listed(self, rows: Sequence[GpuReading], *, enumerates: bool) -> None:
        """Note which GPUs the driver lists now.

        `enumerates`: the driver was asked for all GPUs just now, so that those which are not among `rows` are gone.
        """
        listed = {row.uuid: row for row in rows if not row.parent_uuid}
        if enumerates:
            self._remember_gone(listed)
        for uuid in listed:
            self._gone.pop(uuid, None)
        self._listed = listed

    def _enumerate(self, count: int) -> None:
        """Have a slot for each of `count` GPUs, and look at all of them again."""
        slots = {slot.index: slot for slot in self._slots}
        self._slots = []
        for index in range(count):
            if self._chosen.has(index):
                slot = slots.pop(index, None) or _Slot(index, self._driver, self._timings, self._events)
                self._slots.append(slot)
        for slot in slots.values():
            slot.end()
        for slot in self._slots:
            slot.look_again = True
        self._listed_count = count

    def _ask_all(self, now_s: float, pcie: Mapping[int, Pcie], *, is_first: bool) -> None:
        """Ask every GPU, and wait for those that do not hang. Raises DriverDownError."""
        end_s = time.monotonic() + (self._timings.open_s if is_first else _MOST_WAIT_S)
        for slot in self._slots:
            hangs = not slot.wait_for_answer(0.0)
            slot.ask(now_s, pcie.get(slot.index, Pcie.OFF))
            patience_s = max(0.0, end_s - time.monotonic())
            if hangs:
                patience_s = 0.0
            else:
                patience_s = min(_MOST_OPENING_S if is_first else _MOST_WAIT_PER_GPU_S, patience_s)
            slot.wait_for_answer(patience_s)
        for slot in self._slots:
            if slot.error is not None:
                self._end_all(slot.error)

    def _end_all(self, error: BaseException) -> NoReturn:
        """End all slots, and raise the error of one."""
        for slot in self._slots:
            slot.end()
        raise error

    def _remember_gone(self, listed: Mapping[str, GpuReading]) -> None:
        """Remember the GPUs that the driver listed before and does not list now."""
        for uuid, row in self._listed.items():
            if uuid not in listed and not uuid.startswith(UNOPENED):
                state, text = UNPLUGGED
                self._gone[uuid] = _DownGpu(
                    row.index, uuid=uuid, name=row.name, state=state, text=text, since_s=row.monotonic_s
                )

    def _silence_s(self) -> float:
        """For how long no call of any GPU that is not down has returned; 0 while one answers.

        A driver whose calls take seconds each is slow: it does not hang.
        """
        one_answers = any(slot.question is None and slot.gpu is not None for slot in self._slots)
        if self.pending and not one_answers:
            return time.monotonic() - max(call.since_s for call in self.pending)
        return 0.0

    def _choose_pcie(self, watched: frozenset[str]) -> dict[int, Pcie]:
        """Index of each GPU that is watched -> treatment of its PCIe traffic: one of them is measured, in turn."""
        indices = [slot.index for slot in self._slots if slot.gpu is not None and slot.gpu.uuid in watched]
        if not indices:
            return {}
        self._turns += 1
        turn = indices[self._turns % len(indices)]
        pcie = dict.fromkeys(indices, Pcie.KEEP)
        pcie[turn] = Pcie.MEASURE
        return pcie

    def _count(self) -> int:
        """Number of GPUs that the driver lists; the last one where it does not tell now. Raises DriverDownError."""
        try:
            return self._driver.count()
        except Exception as error:  # each library has exceptions of its own; one without a code is raised again
            code = self._driver.api.code_of(error)
            if code is None:
                raise
            if code in self._driver.api.driver_down:
                raise DriverDownError(code) from error
            return self._listed_count
