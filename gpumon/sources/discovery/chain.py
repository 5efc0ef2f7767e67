"""One server's chain: GPU processes, their server, its port, its page; in words, as the doctor's checks, and as what
the user should know of GPU processes whose engine is not polled."""

from __future__ import annotations

import os.path
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.readings.check import Check, CheckState
from gpumon.readings.frame import (
    CPU_OFFLOAD_GB,
    EMBEDDINGS,
    GPU_LAYERS,
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
from gpumon.sources.discovery.command_line import Launch, ranks, shown_command
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.family import ProcessRecord
from gpumon.specs import hints

_NOT_HERE: Final = (
    "not in /proc here: its engine runs in another PID namespace (or /proc hides other users' processes): "
    "add its URL as [[endpoint]] in the config, with gpus = [..]"
)
_NO_ENGINE: Final = "no serving engine by its command line: not asked"
NO_PORT: Final = "no port is open: it is loading its model, or it serves no requests from outside"
SWITCHED_OFF: Final = "its command line switches them off"
MODEL_CHARACTERS: Final = 80
MOST_COMMAND: Final = 1024
"""Characters of a command line."""
DISCOVERY_SOURCE: Final = "discovery"
_PATIENCE_S: Final = 6.0
"""Longer than a list of NVML's processes gets old."""
UNSEEN_BYTES: Final = 4 * 2**30
"""Memory in use by no visible process that is worth a word: drivers keep some for themselves."""
_UNSEEN: Final = f"more than {UNSEEN_BYTES / 2**30:g} GiB of its memory are in use by processes that are"
MOST_PIDS: Final = 4
"""Pids that one text names."""


class Chain(NamedTuple):
    """From GPU processes to the page of their server, as far as it could be followed."""

    processes: tuple[ProcessRecord, ...]
    """Processes on GPUs."""
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
        return self.launch.kind if self.launch is not None else EngineKind.UNKNOWN

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
        tp, pp, dp = ranks(map(_shown, self.processes))
        if self.launch is not None:
            tp = self.launch.tp or tp
            pp = self.launch.pp or pp
            dp = self.launch.dp or dp
        if gpus == 1:
            return tp or 1, pp or 1, dp or 1
        return tp, pp, dp

    @property
    def model(self) -> str:
        """As the command line names it, the served name first; empty where it does not."""
        launch = self.launch
        if launch is not None:
            return launch.stored_as or launch.served_name or launch.model
        return ""

    def hints(self, said: Mapping[str, str]) -> dict[str, str]:
        """The storage and place of the model by the command line, where its server has not `said` them."""
        launch = self.launch
        if launch is None:
            return {}
        told = {
            hints.QUANTIZATION: launch.quantization,
            hints.KV_DTYPE: launch.kv_dtype,
            hints.STATE_DTYPE: launch.state_dtype,
            hints.CONVOLUTION_DTYPE: launch.convolution_dtype,
            GPU_LAYERS: launch.gpu_layers,
            WEIGHTS_ON_CPU: launch.weights_on_cpu,
            CPU_OFFLOAD_GB: launch.cpu_offload_gb,
        }
        told[SERVES] = EMBEDDINGS if launch.embeds else ""
        lacking = {}
        for key, word in told.items():
            if word and key not in said:
                lacking[key] = word
        if self.folder and said.get(hints.MODEL_PATH, launch.model) == launch.model:
            lacking[hints.MODEL_PATH] = os.path.normpath(f"{self.folder}/{launch.model}")
        return lacking

    def told(self, said: Mapping[str, str]) -> dict[str, str]:
        """Hints that the server has not `said`, and its command line: entries for the `info` of its readings."""
        told = self.hints(said)
        if self.server is not None and len(self.server.argv) > 1:
            told[SERVER_COMMAND] = _command(self.server.argv)
        return told


@lru_cache(maxsize=256)
def _command(argv: tuple[str, ...]) -> str:
    """A command line as everybody may read it; cached, as it is the same at every poll."""
    return clean(shown_command(argv), MOST_COMMAND)


def _shown(process: ProcessRecord) -> str:
    """A process's own title, else its program: nothing of its arguments, which may hold a key."""
    first = process.argv[0] if process.argv else ""
    return clean(first.split(" ")[0] if "::" in first else process.name, 48)


def server_words(chain: Chain) -> str:
    """Its server in words: `server 4200 (vllm serve Qwen/Qwen3-8B)`."""
    if chain.server is None or chain.launch is None:
        return ""
    model = chain.launch.stored_as or chain.launch.model
    parts = (clean(chain.launch.command, 80), clean(model, MODEL_CHARACTERS))
    if chain.launch.part:
        parts = (clean(chain.server.name), f"with {chain.launch.title} in it")
    return f"server {chain.server.pid} ({' '.join(filter(None, parts))})"


def not_open(chain: Chain) -> str:
    """The fault of a server whose port is not open yet; that its metrics are off, its command line tells by now."""
    text = "not open yet: it is loading its model" if chain.port else NO_PORT
    if chain.launch is None or chain.launch.metrics is not False:
        return text
    row = BY_KIND.get(chain.kind)
    return f"{text}; its metrics are off: {row.switch if row is not None and row.switch else SWITCHED_OFF}"


def chain_checks(chains: Sequence[Chain], readings: Iterable[EngineReading], gpus: Sequence[GpuReading]) -> list[Check]:
    """A line for each process on a GPU: how its page was found, or where the chain broke and the fix."""
    by_url: dict[str, EngineReading] = {}
    for reading in readings:
        by_url.setdefault(reading.url, reading)
    places: dict[int, dict[int, None]] = {}
    for gpu in gpus:
        for process in gpu.processes:
            places.setdefault(process.pid, {})[gpu.index] = None
    checks = []
    for chain in chains:
        state, end = _end(chain, by_url)
        titles = {process.pid: _shown(process) for process in chain.processes}
        titles |= dict.fromkeys(chain.absent, "")
        for pid, title in titles.items():
            steps = [" ".join(filter(None, (f"pid {pid}", title))), *end]
            place = f"gpu {','.join(map(str, places.get(pid, '?')))}"
            checks.append(Check("process", place, state, " -> ".join(steps)))
    return checks


def _end(chain: Chain, by_url: Mapping[str, EngineReading]) -> tuple[CheckState, list[str]]:
    """How the chain goes on behind the process, and how it ends. What its page lacks is the engine's to say, once."""
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
    state, end = _end_at_page(chain, by_url.get(chain.url))
    return state, [*steps, end]


def _end_at_page(chain: Chain, reading: EngineReading | None) -> tuple[CheckState, str]:
    """The end of a chain that leads to a page; `reading` is what came of it, None while nothing did."""
    if not chain.listens:
        if reading is None:
            return CheckState.WARN, not_open(chain)
        return CheckState.OK, f"not open yet: see engine {reading.name}"
    kind = BY_KIND.get(chain.kind)
    page = chain.url
    if kind is not None:
        page = f"{chain.url}{kind.paths[0]}"
    if reading is None:
        return CheckState.WARN, f"{page} was not asked"
    if reading.state is EndpointState.OK:
        state = "answers"
    else:
        state = reading.state.value.replace("_", " ")
    return CheckState.OK, f"{page} {state}: see engine {reading.name}"


class Notices:
    """Keeps since when each text holds. GPUs that the config gives to an endpoint (`claimed`) are not talked about."""

    def __init__(self, claimed: frozenset[int]) -> None:
        self._claimed = claimed
        self._since: dict[str, tuple[float, float]] = {}
        """By text: Unix and monotonic time since when it holds."""
        self._begun = False

    def faults(self, certain: Iterable[str], passing: Iterable[str], now_s: float, *, looked: bool) -> list[Fault]:
        """The faults to be shown. `looked`: the first look is done.

        `passing` may only be a process that is just ending or starting, as NVML's lists are some seconds old: it has to
        hold for a while, unless it was so at the first look.
        """
        held_s = dict.fromkeys(passing, now_s - (0.0 if self._begun else _PATIENCE_S))
        held_s |= dict.fromkeys(certain, now_s - _PATIENCE_S)
        self._begun = self._begun or looked
        self._since = {text: self._since.get(text, (time.time(), at_s)) for text, at_s in held_s.items()}
        faults = []
        for text, (wall, at_s) in self._since.items():
            if now_s - at_s >= _PATIENCE_S:
                faults.append(Fault(DISCOVERY_SOURCE, text, wall))
        return faults

    def broken(self, chains: Iterable[Chain], gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Faults of chains that lead nowhere, each with the GPUs that it concerns, the reason and the fix.

        A server that is out of reach has a row, which says so.
        """
        for chain in chains:
            if not (chain.absent or chain.broken) or chain.unreached or not self.concern(chain, gpus):
                continue
            shown = ", ".join(map(str, sorted(indices_of(chain.pids, gpus))))
            if chain.absent:
                yield f"GPU {shown}: process {', '.join(map(str, chain.absent[:MOST_PIDS]))} is {_NOT_HERE}"
            elif chain.broken and chain.launch is not None:
                yield f"{chain.launch.title} on GPU {shown}, {server_words(chain)}: {chain.broken}"

    def concern(self, chain: Chain, gpus: Sequence[GpuReading]) -> bool:
        """Whether it is on a GPU that the config gives to no endpoint."""
        return bool(indices_of(chain.pids, gpus) - self._claimed)

    def unseen(self, gpus: Sequence[GpuReading]) -> Iterable[str]:
        """Faults of GPUs whose memory is in use by processes that NVML does not list in this PID namespace."""
        for gpu in gpus:
            if gpu.index not in self._claimed and _unseen(gpu, gpus):
                yield f"GPU {gpu.index}: {_UNSEEN} {_NOT_HERE}"


def indices_of(pids: frozenset[int], gpus: Iterable[GpuReading]) -> frozenset[int]:
    """Indices of the GPUs that one of the processes is on."""
    indices = set()
    for gpu in gpus:
        if any(process.pid in pids for process in gpu.processes):
            indices.add(gpu.index)
    return frozenset(indices)


def _unseen(gpu: GpuReading, gpus: Iterable[GpuReading]) -> bool:
    used = number(gpu.vram_used_bytes) or 0.0
    listed = gpu.processes or gpu.vram_shared or gpu.parent_uuid or any(other.parent_uuid == gpu.uuid for other in gpus)
    return gpu.state is GpuState.OK and gpu.source == "nvml" and not listed and used > UNSEEN_BYTES
