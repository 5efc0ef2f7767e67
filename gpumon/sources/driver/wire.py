"""Protocol between the monitor and a driver's worker: a line per request, framed msgpack back."""

from __future__ import annotations

import struct
from collections.abc import Collection

import msgspec

from gpumon.readings.frame import Fault, GpuReading

MOST_WATCHED = 64
"""GPUs that one request names: what is written to the worker's pipe at once stays whole."""
MOST_MESSAGE_BYTES = 8 << 20
"""A longer message is garbage: 16 GPUs in 7 slices each with 256 processes fit."""

UNOPENED = "index:"
"""A GPU that could not be opened has these letters and its index in the place of its uuid."""

_LENGTH = struct.Struct(">I")


class Timings(msgspec.Struct, frozen=True):
    """Seconds between the worker's repetitions; tests make them short."""

    slow_s: float = 4.0
    """Processes, PCIe link, MIG slices, memory temperature."""
    links_s: float = 15.0
    """NVLinks that are up, and error counters of links: twenty short calls."""
    energy_s: float = 10.0
    """The energy counter."""
    minute_s: float = 60.0
    """ECC, row remapping, names, limits, top clocks."""
    open_s: float = 20.0
    """Longest wait of the first report for GPUs that are being opened; those that take longer come into later ones."""
    init_retry_s: float = 5.0
    """Between two tries to initialise the driver."""
    reprobe_s: float = 30.0
    """Between two looks at a GPU that is lost, needs a reset or cannot be opened."""
    permission_s: float = 300.0
    """Pause before a call that was not permitted is tried again."""
    backoff_s: float = 5.0
    """First pause after a failure that may pass; it doubles up to a minute."""


class Chosen(msgspec.Struct, frozen=True):
    """The GPUs that a worker reads: all of them, unless some are named."""

    left_out: tuple[int, ...] = ()
    """Indices of GPUs that it does not touch."""
    only: int | None = None
    """Index of the only GPU that it touches."""

    def has(self, index: int) -> bool:
        """Whether the worker reads the GPU at an index."""
        if self.only is not None:
            return index == self.only
        return index not in self.left_out


class PendingCall(msgspec.Struct, frozen=True, array_like=True):
    """A driver call that has not returned when a report is made."""

    index: int
    """Index of the GPU that it is made for."""
    name: str
    since_s: float
    """When it began (monotonic)."""
    asked_s: float
    """When the reading of its GPU began (monotonic), of which it is a part."""
    asked_wall_s: float
    """The same as Unix time."""
    opens: bool
    """The GPU was never read before: the call may wake it, which takes its time."""


class WorkerReport(msgspec.Struct, frozen=True, array_like=True):
    """One answer of the worker. Until the driver is initialised `ready` is false and `error` says what is wrong."""

    seq: int
    ready: bool
    gpus: tuple[GpuReading, ...] = ()
    driver: str = ""
    cuda: str = ""
    error: str = ""
    """Fault of the driver as a whole, and the fix; empty where there is none."""
    faults: tuple[Fault, ...] = ()
    """Faults of single GPUs."""
    silent_s: float = 0.0
    """For how long no call of any GPU has returned, while some are made; 0 while a GPU gives readings."""
    leaving: bool = False
    """The worker ends after this report: only a new process can load the driver's new library."""
    pending: tuple[PendingCall, ...] = ()
    """Calls that run: if the next report does not come, one of them is where the worker hangs."""


def request_line(watched: Collection[str] = ()) -> bytes:
    """The line on the worker's stdin that asks for one report; the end of its stdin ends the worker.

    `watched` are the GPUs (uuids) whose PCIe traffic is measured meanwhile.
    """
    uuids = [uuid for uuid in sorted(watched) if uuid.isascii() and uuid.isprintable() and " " not in uuid]
    return " ".join(uuids[:MOST_WATCHED]).encode() + b"\n"


class Requests:
    """Puts requests together from whatever pieces a pipe delivers."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[frozenset[str]]:
        """The requests that are complete with this piece, each as the GPUs (uuids) that it names."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [frozenset(line.decode("ascii", "replace").split()) for line in lines]


_DECODER = msgspec.msgpack.Decoder(WorkerReport)


class GarbledError(Exception):
    """The bytes from the worker are no reports."""


def pack_report(report: WorkerReport) -> bytes:
    """The report as one message: 4 bytes of length, then msgpack."""
    body = msgspec.msgpack.encode(report)
    return _LENGTH.pack(len(body)) + body


class Inbox:
    """Puts reports together from whatever pieces a pipe delivers."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> list[WorkerReport]:
        """The reports that are complete with this piece. Raises GarbledError where it can be no report."""
        self._bytes += piece
        reports = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MOST_MESSAGE_BYTES:
                raise GarbledError(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            try:
                reports.append(_DECODER.decode(self._bytes[_LENGTH.size : end]))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise GarbledError(str(error)) from error
            del self._bytes[:end]
        return reports
