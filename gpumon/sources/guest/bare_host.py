"""A host without gpumon, read through its nvidia-smi and through the pages of its engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.readings.frame import EngineReading, GpuProcess, GpuReading
from gpumon.sources.guest import smi
from gpumon.sources.guest.engines import GuestEngines
from gpumon.sources.guest.processes import StartedEngine, parse_look
from gpumon.sources.guest.shell import Shell, ShellError, first_lines
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.prometheus.models import Models

HOST_LOOK_S: Final = 2.0
"""Shortest time between two calls of nvidia-smi: one takes up to a second of a core on eight GPUs."""
PROCESSES_S: Final = 10.0
"""Seconds between two looks at the processes on the GPUs."""
_NOT_FOUND: Final = 127
"""Exit code of a shell that does not find a program."""
MOST_TRIES: Final = 12
"""Calls of nvidia-smi for one answer: an old one refuses the columns that it does not know, one at a time."""


class Readings(msgspec.Struct, frozen=True, array_like=True):
    """Readings of one look at a host. All clocks in it are Unix time of this machine."""

    gpus: tuple[GpuReading, ...]
    engines: tuple[EngineReading, ...]


class BareHost:
    """One host for as long as its shell lasts. `read` raises ShellError where nothing more comes."""

    def __init__(self, shell: Shell, address: str, models: Models, wall: Callable[[], float]) -> None:
        self._shell = shell
        self._engines = GuestEngines(address, models, wall)
        self._wall = wall
        self._columns = smi.SMI_COLUMNS
        """Columns that its nvidia-smi has not refused."""
        self._processes: Mapping[str, tuple[GpuProcess, ...]] = {}
        """UUID of a GPU -> the processes on it, at the last look at them."""
        self._looked_s = float("-inf")
        """Monotonic time of that look."""

    async def read(self) -> Readings:
        """The readings of the host now. Raises ShellError."""
        if time.monotonic() - self._looked_s >= PROCESSES_S:
            self._looked_s = time.monotonic()
            answer = await self._shell.ask("processes")
            # In a thread: a host decides how long its command lines are, and so how long they take to read.
            self._processes, servers = await in_daemon_thread(_read_look, answer.lines)
            await self._engines.adopt(servers)
        return Readings(await self._gpus(), self._engines.readings())

    async def close(self) -> None:
        """Stop polling its engines."""
        await self._engines.close()

    async def _gpus(self) -> tuple[GpuReading, ...]:
        """The GPUs by nvidia-smi, without the columns that an older one refuses. Raises ShellError."""
        for _ in range(MOST_TRIES):
            answer = await self._shell.ask(f"gpus {','.join(self._columns)}")
            refused = smi.refused_column(answer.lines)
            if refused not in self._columns:
                break
            self._columns = smi.without_column(self._columns, refused)
        if answer.code == _NOT_FOUND:
            raise ShellError("there is no nvidia-smi either")
        gpus = smi.parse_smi_gpus(answer.lines, self._columns, self._wall(), self._processes)
        if not gpus:
            raise ShellError(f"nvidia-smi there: {first_lines(answer.lines) or 'no GPU'}")
        return gpus


def _read_look(lines: Sequence[str]) -> tuple[Mapping[str, tuple[GpuProcess, ...]], tuple[StartedEngine, ...]]:
    """Processes by the UUID of their GPU, and the engines that they work for, in an answer to `processes`."""
    look = parse_look(lines)
    return look.by_uuid(), look.servers()
