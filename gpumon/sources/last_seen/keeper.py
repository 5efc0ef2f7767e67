"""Keeps the memory of last-seen engines and GPUs for a collector, and saves it in its file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from gpumon.readings.frame import EngineReading, GpuReading, UnseenGpus
from gpumon.readings.merge import with_unique_names
from gpumon.sources.last_seen.causes import Cause, cause_of
from gpumon.sources.last_seen.memory.engines import LastSeen
from gpumon.sources.last_seen.memory.gpus import LastListed
from gpumon.sources.last_seen.memory.hardware import HardwareLook, look_at_hardware
from gpumon.sources.last_seen.memory.seen_engine import CAUSE_S
from gpumon.sources.last_seen.processes.origin import boot_id
from gpumon.sources.last_seen.processes.process_state import ProcessState
from gpumon.sources.last_seen.processes.server_looks import SERVER_LOOK_S, ServerLooks, Servers
from gpumon.sources.last_seen.records import EngineOrigin, KnownEngine, WrittenMemory
from gpumon.sources.last_seen.store import LastSeenStore
from gpumon.sources.offload import daemon_thread, finished

SAVE_S: Final = 30.0
"""Seconds between two writes while nothing but the times of answers changes."""
SOON_S: Final = 1.0
"""Seconds between two writes after an engine came or ended."""
_CLOSE_S: Final = 0.2
"""Longest wait at the end for the last write, and before it for one that is under way."""
_READY_S: Final = 1.0
"""Longest wait for the file and the first look: a home folder may be on a mount that hangs."""


class LastSeenKeeper:
    """A collector's access to the memory of engines and GPUs.

    Files and /proc are read in threads: only `ready` and `close` wait for them, within bounds.
    """

    def __init__(
        self,
        servers: Servers | None,
        store: LastSeenStore | None,
        *,
        simulated: Callable[[], ProcessState] | None = None,
        ask: Callable[[KnownEngine], Cause] = cause_of,
        exporter: str = "",
        save_s: float = SAVE_S,
        soon_s: float = SOON_S,
        look_s: float = SERVER_LOOK_S,
    ) -> None:
        """`servers` is discovery's; None: processes are not looked at. Without a `store` nothing outlives this run.

        `simulated` gives the looks at processes of a simulation; `ask` finds out how a real process has ended.
        `exporter` is the URL of the dcgm-exporter that is read.
        """
        self._hardware_look: Future[HardwareLook] | None = None
        """The look at the hardware at the start; None before it begins, and once `_load` has taken its result."""
        self._looks_at_hardware = simulated is None
        if simulated is None:
            self.memory = LastSeen(lambda record: daemon_thread(ask, record))
            self._listed = LastListed(_begin_hardware_look, exporter)
        else:
            self.memory = LastSeen()
            self._listed = LastListed()
        self._process_looks = ServerLooks(servers, simulated, look_s)
        self._store = store
        self._save_s = save_s
        self._soon_s = soon_s
        self._file_read: Future[WrittenMemory] | None = None
        """The read of the file; None before it begins, and once `_load` has taken its result."""
        self._file_write: Future[bool] | None = None
        """The last write."""
        self._saved_s = time.monotonic()
        """Monotonic time at which the last write began; at first that of the start."""
        self._saved_versions = (0, 0)
        """Versions of the memory and of the list of GPUs that were written last."""
        self._has_rebooted = False
        """Whether the file was written before this host's last start."""

    @property
    def unseen_gpus(self) -> tuple[UnseenGpus, ...]:
        """GPUs that are not to be seen here as of the last tick, and not known to be lost."""
        return self._listed.unseen

    async def start(self) -> None:
        """Begin to read the file, and to look at the hardware."""
        if self._looks_at_hardware and self._hardware_look is None:
            self._hardware_look = _begin_hardware_look()
        if self._store is not None and self._file_read is None:
            self._file_read = daemon_thread(self._store.read, time.time())

    async def ready(self) -> None:
        """Wait for the file, the first look at its processes, and how those that are gone have ended."""
        if self._hardware_look is not None:
            await finished(self._hardware_look, _READY_S)
        if self._file_read is None:
            return
        await finished(self._file_read, _READY_S)
        self._load()
        self._begin_process_look()
        await self._process_looks.finish(_READY_S)
        processes = self._process_looks.state(rebooted=self._has_rebooted)
        answers = self.memory.ask_causes(processes, time.monotonic(), time.time())
        if answers:
            await asyncio.wait([asyncio.wrap_future(answer) for answer in answers], timeout=CAUSE_S)

    def gpus(self, gpus: tuple[GpuReading, ...], driver: str, wall_s: float, now_s: float) -> tuple[GpuReading, ...]:
        """The GPUs of a tick, and those that the driver no longer lists. `wall_s` is Unix time, `now_s` monotonic."""
        self._load()
        return self._listed.take(gpus, driver, wall_s, now_s)

    def engines(
        self, engines: Sequence[EngineReading], gpus: Sequence[GpuReading], wall_s: float, now_s: float
    ) -> tuple[EngineReading, ...]:
        """The engines of a tick, and those that have ended. `wall_s` is Unix time, `now_s` monotonic."""
        self._load()
        processes = self._process_looks.state(rebooted=self._has_rebooted)
        if self._process_looks.is_due(now_s):
            self._begin_process_look()
        shown = with_unique_names(self.memory.take(engines, gpus, processes, wall_s, now_s))
        self._save(now_s)
        return shown

    def origin(self, key: str, url: str) -> EngineOrigin:
        """Origin of an engine, as far as it is known by now; may be called in any thread."""
        running = self._process_looks.server_at(url)
        if running.pid:
            return running
        return self.memory.origin(key)

    async def close(self) -> None:
        """Write what is remembered, within a fraction of a second."""
        if self._store is None:
            return
        self._load()
        if self._file_write is not None and not self._file_write.done():
            await finished(self._file_write, _CLOSE_S)
        self._write()
        if self._file_write is not None:
            await finished(self._file_write, _CLOSE_S)

    def _load(self) -> None:
        """Take over the contents of the file, once it is read, and the first look at the hardware before that."""
        if self._hardware_look is not None:
            if not self._hardware_look.done():
                return
            if self._hardware_look.exception() is None:
                self._listed.see_hardware(self._hardware_look.result())
            self._hardware_look = None
        if self._file_read is None or not self._file_read.done() or self._file_read.cancelled():
            return
        file_read = self._file_read
        self._file_read = None
        if file_read.exception() is not None:
            return
        written = file_read.result()
        self._has_rebooted = bool(written.boot) and written.boot != boot_id()
        self.memory.load(written.engines)
        if not self._has_rebooted:  # only a GPU that was listed since this boot can be lost
            self._listed.load(written.sights)

    def _begin_process_look(self) -> None:
        """Begin a look at the processes of engines."""
        self._process_looks.begin(self.memory.watched(), self.memory.refusing)

    def _save(self, now_s: float) -> None:
        """Begin to write the file if it is due: `soon_s` after an engine or GPU came or went, else every `save_s`."""
        versions = (self.memory.version, self._listed.version)
        pace_s = self._soon_s if versions != self._saved_versions else self._save_s
        # Not before the file is read: what it remembers would be lost.
        if self._store is not None and self._file_read is None and now_s - self._saved_s >= pace_s:
            self._write()

    def _write(self) -> None:
        """Begin to write the file, unless that is under way."""
        if self._store is None or (self._file_write is not None and not self._file_write.done()):
            return
        self._saved_s = time.monotonic()
        self._saved_versions = (self.memory.version, self._listed.version)
        # Copies: the thread reads them while the ticks change the memory.
        engines = [msgspec.structs.replace(record) for record in self.memory.records()]
        sights = self._listed.sights()
        dropped = dict(self.memory.dropped)
        self._file_write = daemon_thread(self._store.write, engines, sights, dropped, time.time())


def _begin_hardware_look() -> Future[HardwareLook]:
    """Begin a look at the hardware in a thread."""
    return daemon_thread(look_at_hardware, dict(os.environ))
