"""One server's chain: GPU processes, their server, its port, its page; in words, as the doctor's checks, and as what
the user should know of GPU processes whose engine is not polled."""

from __future__ import annotations

import os.path
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.readings.check import Check, CheckState
from gpumon.readings.engine_options import NO_OPTIONS, EngineOptions
from gpumon.readings.frame import (
    CPU_OFFLOAD_GB,
    EMBEDDINGS,
    GPU_LAYERS,
    OPTIONS_UNREAD,
    SERVER_COMMAND,
    SERVES,
    WEIGHTS_ON_CPU,
    EndpointState,
    EngineKind,
    EngineReading,
    Fault,
    GpuReading,
    GpuState,
)
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sources.discovery.command_line import Launch, ranks
from gpumon.sources.discovery.launch_options import with_place
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.family import ProcessRecord
from gpumon.specs import hints
from gpumon.specs.units import GIB

_NOT_HERE: Final = (
    "not in /proc here: its engine runs in another PID namespace (or /proc hides other users' processes): "
    "add its URL as [[endpoint]] in the config, with gpus = [..]"
)
_NO_ENGINE: Final = "no serving engine by its command line: not asked"
NO_PORT: Final = "no port is open: it is loading its model, or it serves no requests from outside"
SWITCHED_OFF: Final = "its command line switches them off"
MODEL_CHARACTERS: Final = 80
"""Characters of a model's name that a text has."""
_TITLE_CHARACTERS: Final = 48
"""Characters of a process's title that a text has."""
MOST_COMMAND: Final = 1024
"""Characters of a command line that a reading has."""
DISCOVERY_SOURCE: Final = "discovery"
_HOLDS_S: Final = 6.0
"""Seconds for which a fault has to hold before it is shown: longer than NVML's list of processes may be out of date."""
UNSEEN_BYTES: Final = 4 * GIB
"""Memory in use by no visible process that is worth a word: drivers keep some for themselves."""
_UNSEEN: Final = f"more than {UNSEEN_BYTES / GIB:g} GiB of its memory are in use by processes that are"
MOST_PIDS: Final = 4
"""Pids that one text names."""


class Chain(NamedTuple):
    """From GPU processes to the page of their server, as far as it could be followed."""

    processes: tuple[ProcessRecord, ...]
    """Processes on GPUs that work for the server."""
    absent: tuple[int, ...] = ()
    """Pids on GPUs that /proc does not have; then there is nothing else."""
    server: ProcessRecord | None = None
    launch: Launch | None = None
    """Its command line as that of an engine; None where it is no engine's."""
    port: int = 0
    url: str = ""
    listens: bool = False
    """Whether its port is open by now."""
    broken: str = ""
    """Why its page cannot be found, and the fix."""
    configured: str = ""
    """URL of the config that leads to the same server: it is polled by that one."""
    foreign: bool = False
    """Its server is in another network namespace."""
    folder: str = ""
    """The folder that the path of its model is relative to; empty where it is not, or where Linux hides that."""

    @property
    def kind(self) -> EngineKind:
        """Kind of its engine, by its command line."""
        if self.launch is None:
            return EngineKind.UNKNOWN
        return self.launch.kind

    @property
    def unreached(self) -> str:
        """Name in place of a URL for a server that listens where nothing leads to from here; empty for all others."""
        if self.foreign and self.broken and self.server is not None:
            return f"pid:{self.server.pid}"
        return ""

    @property
    def pids(self) -> frozenset[int]:
        """Its processes on GPUs."""
        return frozenset(process.pid for process in self.processes) or frozenset(self.absent)

    def ranks(self, gpus: int) -> tuple[int, int, int]:
        """TP, PP and DP: as the command line says, else as worker titles tell, else 1 on a single GPU; 0: not known."""
        tp, pp, dp = ranks(map(_process_title, self.processes))
        if self.launch is not None:
            tp = self.launch.tp or tp
            pp = self.launch.pp or pp
            dp = self.launch.dp or dp
        if gpus == 1:
            return tp or 1, pp or 1, dp or 1
        return tp, pp, dp

    @property
    def model(self) -> str:
        """Its model as the command line names it, the served name first; empty where it does not."""
        launch = self.launch
        if launch is not None:
            return launch.stored_as or launch.served_name or launch.model
        return ""

    def hints(self, server_info: Mapping[str, str]) -> dict[str, str]:
        """Storage and place of the model by the command line, without what `server_info` has."""
        launch = self.launch
        if launch is None:
            return {}
        values = {
            hints.QUANTIZATION: launch.quantization,
            hints.KV_DTYPE: launch.kv_dtype,
            hints.STATE_DTYPE: launch.state_dtype,
            hints.CONVOLUTION_DTYPE: launch.convolution_dtype,
            GPU_LAYERS: launch.gpu_layers,
            WEIGHTS_ON_CPU: launch.weights_on_cpu,
            CPU_OFFLOAD_GB: launch.cpu_offload_gb,
            SERVES: EMBEDDINGS if launch.embeds else "",
        }
        entries = {key: value for key, value in values.items() if value and key not in server_info}
        # A relative path means nothing without its folder, even where the server tells the path.
        if self.folder and server_info.get(hints.MODEL_PATH, launch.model) == launch.model:
            entries[hints.MODEL_PATH] = os.path.normpath(f"{self.folder}/{launch.model}")
        return entries

    @property
    def options(self) -> EngineOptions:
        """Options of its command line and environment, whose sources name its process."""
        if self.launch is None or self.server is None:
            return NO_OPTIONS
        return with_place(self.launch.options, f"pid {self.server.pid}")

    def info_entries(self, server_info: Mapping[str, str]) -> dict[str, str]:
        """Entries for the `info` of its readings, which is `server_info` so far: the hints, and the command line."""
        entries = self.hints(server_info)
        if self.server is not None and len(self.server.argv) > 1:
            entries[SERVER_COMMAND] = _shown_argv(self.server.argv)
            if self.launch is not None and self.launch.file:
                entries[OPTIONS_UNREAD] = clean(self.launch.file)
        return entries


@lru_cache(maxsize=256)
def _shown_argv(argv: tuple[str, ...]) -> str:
    """A command line as everybody may read it; cached, as it is the same at every poll."""
    return clean(shown_command(argv), MOST_COMMAND)


def _process_title(process: ProcessRecord) -> str:
    """A process's own title, else its program: nothing of its arguments, which may hold a key."""
    # Engines name their processes: `VLLM::Worker_TP0`.
    is_named = bool(process.argv) and "::" in process.argv[0]
    return clean(process.argv[0].split(" ")[0] if is_named else process.name, _TITLE_CHARACTERS)


def server_words(chain: Chain) -> str:
    """Its server in words: `server 4200 (vllm serve Qwen/Qwen3-8B)`."""
    if chain.server is None or chain.launch is None:
        return ""
    model = chain.launch.stored_as or chain.launch.model
    parts = (clean(chain.launch.command, 80), clean(model, MODEL_CHARACTERS))
    if chain.launch.part:
        parts = (clean(chain.server.name), f"with {chain.launch.title} in it")
    return f"server {chain.server.pid} ({' '.join(filter(None, parts))})"


def not_open_text(chain: Chain) -> str:
    """The fault of a server whose port is not open yet; where its command line switches its metrics off, that, too."""
    text = "not open yet: it is loading its model" if chain.port else NO_PORT
    if chain.launch is None or chain.launch.metrics is not False:
        return text
    fix = SWITCHED_OFF
    row = BY_KIND.get(chain.kind)
    if row is not None and row.switch:
        fix = row.switch
    return f"{text}; its metrics are off: {fix}"


def chain_checks(chains: Sequence[Chain], readings: Iterable[EngineReading], gpus: Sequence[GpuReading]) -> list[Check]:
    """A line for each process on a GPU: how its page was found, or where the chain broke and the fix."""
    by_url: dict[str, EngineReading] = {}
    for reading in readings:
        by_url.setdefault(reading.url, reading)
    gpus_of: dict[int, dict[int, None]] = {}
    """Pid -> indices of its GPUs, as a set that keeps its order."""
    for gpu in gpus:
        for process in gpu.processes:
            gpus_of.setdefault(process.pid, {})[gpu.index] = None
    checks = []
    for chain in chains:
        state, further_steps = _steps_and_state(chain, by_url)
        titles = {process.pid: _process_title(process) for process in chain.processes}
        titles |= dict.fromkeys(chain.absent, "")
        for pid, title in titles.items():
            steps = [" ".join(filter(None, (f"pid {pid}", title))), *further_steps]
            place = f"gpu {','.join(map(str, gpus_of.get(pid, '?')))}"
            checks.append(Check("process", place, state, " -> ".join(steps)))
    return checks


def _steps_and_state(chain: Chain, by_url: Mapping[str, EngineReading]) -> tuple[CheckState, list[str]]:
    """The state of a chain, and its steps behind the process. What its page lacks, the row of the engine says."""
    if chain.absent:
        return CheckState.WARN, [_NOT_HERE]
    if chain.launch is None:
        return CheckState.OFF, [_NO_ENGINE]
    steps = [server_words(chain)]
    if chain.broken:
        reading = by_url.get(chain.unreached)
        if reading is None:
            return CheckState.WARN, [*steps, chain.broken]
        return CheckState.OK, [*steps, f"its page cannot be reached: see engine {reading.name}"]
    if chain.port:
        steps.append(f"port {chain.port}")
    if chain.configured:
        return CheckState.OK, [*steps, f"polled as {chain.configured} (found via: config)"]
    state, page_step = _page_step(chain, by_url.get(chain.url))
    return state, [*steps, page_step]


def _page_step(chain: Chain, reading: EngineReading | None) -> tuple[CheckState, str]:
    """State and last step of a chain that leads to a page; `reading` is what came of it, None while nothing did."""
    if not chain.listens:
        if reading is None:
            return CheckState.WARN, not_open_text(chain)
        return CheckState.OK, f"not open yet: see engine {reading.name}"
    row = BY_KIND.get(chain.kind)
    page = f"{chain.url}{row.paths[0]}" if row is not None else chain.url
    if reading is None:
        return CheckState.WARN, f"{page} was not asked"
    if reading.state is EndpointState.OK:
        state = "answers"
    else:
        state = reading.state.value.replace("_", " ")
    return CheckState.OK, f"{page} {state}: see engine {reading.name}"


class Notices:
    """Faults of discovery: keeps since when each text holds."""

    def __init__(self, claimed: frozenset[int]) -> None:
        """`claimed`: indices of GPUs that the config gives to an endpoint, of which nothing is said."""
        self._claimed = claimed
        self._since: dict[str, tuple[float, float]] = {}
        """Text -> Unix and monotonic time since when it holds."""
        self._is_first_look_over = False

    def faults(
        self, certain: Iterable[str], passing: Iterable[str], now_s: float, *, is_first_look_over: bool
    ) -> list[Fault]:
        """The faults to be shown now (monotonic time), of the texts that hold now.

        A `passing` one may only be a process that is just ending or starting, as NVML's lists are some seconds old: it
        has to hold for a while, unless it is there at the first look. A `certain` one is shown at once.
        """
        long_ago_s = now_s - _HOLDS_S
        passing_since_s = long_ago_s if not self._is_first_look_over else now_s
        new_since_s = dict.fromkeys(passing, passing_since_s)
        new_since_s |= dict.fromkeys(certain, long_ago_s)
        self._is_first_look_over = self._is_first_look_over or is_first_look_over
        self._since = {text: self._since.get(text, (time.time(), begun_s)) for text, begun_s in new_since_s.items()}
        return [
            Fault(DISCOVERY_SOURCE, text, begun_wall_s)
            for text, (begun_wall_s, begun_s) in self._since.items()
            if now_s - begun_s >= _HOLDS_S
        ]

    def broken(self, chains: Iterable[Chain], gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Faults of chains that lead nowhere, each with the GPUs that it concerns, the reason and the fix.

        A server that is out of reach has a row, which says so.
        """
        for chain in chains:
            if not (chain.absent or chain.broken) or chain.unreached or not self.concern(chain, gpus):
                continue
            indices = ", ".join(map(str, sorted(indices_of(chain.pids, gpus))))
            if chain.absent:
                pids = ", ".join(map(str, chain.absent[:MOST_PIDS]))
                yield f"GPU {indices}: process {pids} is {_NOT_HERE}"
            elif chain.broken and chain.launch is not None:
                yield f"{chain.launch.title} on GPU {indices}, {server_words(chain)}: {chain.broken}"

    def concern(self, chain: Chain, gpus: Sequence[GpuReading]) -> bool:
        """Whether it is on a GPU that the config gives to no endpoint."""
        return bool(indices_of(chain.pids, gpus) - self._claimed)

    def unseen(self, gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Faults of GPUs whose memory is in use by processes that NVML does not list in this PID namespace."""
        for gpu in gpus:
            if gpu.index not in self._claimed and _has_unseen_memory(gpu, gpus):
                yield f"GPU {gpu.index}: {_UNSEEN} {_NOT_HERE}"


def indices_of(pids: frozenset[int], gpus: Iterable[GpuReading]) -> frozenset[int]:
    """Indices of the GPUs that one of the processes is on."""
    indices = set()
    for gpu in gpus:
        if any(process.pid in pids for process in gpu.processes):
            indices.add(gpu.index)
    return frozenset(indices)


def _has_unseen_memory(gpu: GpuReading, gpus: Iterable[GpuReading]) -> bool:
    """Whether memory of a GPU is in use by processes that NVML does not list.

    That cannot be told of slices and of sliced GPUs, nor where the memory is the host's.
    """
    if gpu.state is not GpuState.OK or gpu.source != "nvml":
        return False
    is_sliced = any(other.parent_uuid == gpu.uuid for other in gpus)
    if gpu.processes or gpu.vram_shared or gpu.parent_uuid or is_sliced:
        return False
    return (number(gpu.vram_used_bytes) or 0.0) > UNSEEN_BYTES
