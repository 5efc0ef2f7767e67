"""A simulated server as data: who is on it, what happens when, and what is true of each thing while it does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import TypeVar

import msgspec

from gpumon.demo.engine_model import HostHold, SchedulerLimits
from gpumon.demo.gpus import AverageWork
from gpumon.demo.physics import H100, Chip, ModelCopy, ModelShape, Speed
from gpumon.demo.speculation import DraftSettings
from gpumon.demo.traffic import TrafficDemand
from gpumon.demo.training import TrainingRun
from gpumon.readings.frame import GpuState, HostReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Reading
from gpumon.readings.verdict import Level
from gpumon.sizing.simulate.batch import BLOCK
from gpumon.specs.units import GIB

MUTE_AFTER_S = 11.0
"""Seconds after which a source says that a GPU is mute."""
MAX_NUM_SEQS = 256
"""Requests at once of an engine that sets nothing else here."""


class Actor(msgspec.Struct, frozen=True):
    """One simulated vLLM server. Each rank of it has its own GPUs, scheduler and share of the traffic."""

    name: str
    model: str
    """Served model name, and `root` in /v1/models."""
    shape: ModelShape
    speed: Speed
    ranks: tuple[tuple[int, ...], ...]
    """GPU indices of each data-parallel rank."""
    demand: TrafficDemand
    """Traffic of one rank."""
    activation_gib: float
    """Memory per GPU of activations."""
    other_gib: float
    """Memory per GPU of what is neither weights, KV nor activations: NCCL and CUDA buffers."""
    max_model_len: int = 32768
    max_num_seqs: int = MAX_NUM_SEQS
    max_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.9
    version: str = "0.32.0"
    user: str = "simulated"
    container: str = ""
    pod: str = ""
    chip: Chip = H100
    shares: tuple[float, ...] = ()
    """How the traffic falls on the data-parallel ranks, as factors; empty: evenly."""
    most_waiting: int = 0
    """Requests in the queue beyond which new ones are turned away; 0: none is."""
    held: HostHold | None = None
    """Load of the host that keeps it from its steps."""
    hidden: tuple[str, ...] = ()
    """Metrics that its page does not have."""
    speculation: DraftSettings | None = None
    """Its draft, where it has one."""
    max_loras: int = 0
    """LoRA adapters that one batch may use; 0: it serves none."""
    link_bytes_per_s: float = 0.0
    """Speed at which KV comes from elsewhere; 0: none comes."""
    offloads: bool = False
    """KV goes to the host's memory and back; else, where there is a link, it comes from an engine that prefills."""
    counts_aborts: bool = False
    """Its page counts requests whose client hung up."""
    takes_all: bool = False
    """It takes requests that can never fit into its KV cache."""
    counts_nans: bool = False
    """It looks for NaN in logits (VLLM_COMPUTE_NANS_IN_LOGITS), and counts requests that had one."""
    hands_over_to: str = ""
    """Name of the actor that decodes what this one prefills; empty: it decodes by itself."""
    options: str = ""
    """Options of its command line beside those that other fields give."""
    command_hidden: bool = False
    """Nobody sees its command line: its processes have titles, and their parent is out of sight."""
    port_of: str = ""
    """Name of the actor before this one that had the same port; empty: it has one of its own."""

    @property
    def features(self) -> frozenset[str]:
        """Optional features of the server, by their names in `vllm_page.txt`."""
        is_present = {
            "speculation": self.speculation is not None,
            "nans": self.counts_nans,
            "nixl": bool(self.hands_over_to) or (self.link_bytes_per_s > 0.0 and not self.offloads),
            "offload": self.offloads,
        }
        return frozenset(name for name, present in is_present.items() if present)

    @property
    def endpoint(self) -> str:
        """The name by which its port is known."""
        return self.port_of or self.name

    @property
    def command(self) -> str:
        """The command line that started it."""
        parts = ["sim:vllm serve", self.model]
        if len(self.ranks[0]) > 1:
            parts.append(f"--tensor-parallel-size {len(self.ranks[0])}")
        if len(self.ranks) > 1:
            parts.append(f"--data-parallel-size {len(self.ranks)}")
        parts.append(f"--max-model-len {self.max_model_len}")
        parts.append(f"--max-num-batched-tokens {self.max_batched_tokens}")
        parts.append(f"--max-num-seqs {self.max_num_seqs}")
        if self.max_loras:
            parts.append(f"--enable-lora --max-loras {self.max_loras}")
        if self.options:
            parts.append(self.options)
        return " ".join(parts)

    @property
    def gpus(self) -> tuple[int, ...]:
        """All GPU indices."""
        return tuple(chain.from_iterable(self.ranks))

    @property
    def instance(self) -> ModelCopy:
        """The hardware and model of one rank."""
        return ModelCopy(self.shape, self.chip, self.speed, gpus=len(self.ranks[0]))

    @property
    def kv_pool_bytes(self) -> float:
        """KV pool of one GPU: the share that vLLM may take, less weights, activations and the rest."""
        weight_bytes = self.shape.file_bytes / len(self.ranks[0])
        usable_bytes = self.gpu_memory_utilization * self.chip.memory_bytes
        return usable_bytes - weight_bytes - (self.activation_gib + self.other_gib) * GIB

    @property
    def demands(self) -> tuple[TrafficDemand, ...]:
        """The traffic of each rank."""
        shares = self.shares or (1.0,) * len(self.ranks)
        rate = self.demand.requests_per_s
        demands = [msgspec.structs.replace(self.demand, requests_per_s=rate * share) for share in shares]
        return tuple(demands)

    @property
    def limits(self) -> SchedulerLimits:
        """The limits of its scheduler. Data-parallel vLLM starts as many API servers as ranks."""
        block_bytes = BLOCK * self.shape.kv_bytes / len(self.ranks[0])
        return SchedulerLimits(
            max_num_seqs=self.max_num_seqs,
            max_batched_tokens=self.max_batched_tokens,
            max_model_len=self.max_model_len,
            kv_pool_blocks=int(self.kv_pool_bytes / block_bytes),
            api_servers=len(self.ranks),
            most_waiting=self.most_waiting,
            max_loras=self.max_loras,
            link_bytes_per_s=self.link_bytes_per_s,
            offloads=self.offloads,
            counts_aborts=self.counts_aborts,
            takes_all=self.takes_all,
        )


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Lasts from one moment to another: seconds of simulated time, of which zero is the end of the warm-up."""

    from_s: float = -math.inf
    to_s: float = math.inf


class Leftover(_Effect, frozen=True):
    """A process that is no engine: it holds memory of a GPU, and does nothing where no work is given."""

    gpu: int
    vram_bytes: float
    command: str = ""
    work: AverageWork = AverageWork()
    name: str = "sim:python"
    user: str = "simulated"
    leak_bytes_per_s: float = 0.0
    """Bytes of the GPU's memory by which it grows each second, from `from_s` on or from zero."""
    hidden: bool = False
    """No list of processes has it: it is in another container, or has ended and left its memory."""


class Stage(_Effect, frozen=True):
    """Work of a program for a while: steady, or in turns with rests."""

    work: AverageWork = AverageWork()
    gpus: tuple[int, ...] = ()
    """Its GPUs that do so; empty: all."""
    every_s: float = 0.0
    """Seconds between two begins of work; 0: it works all the time."""
    for_s: float = 0.0
    """Seconds of work in each of these times."""
    rest: AverageWork = AverageWork()
    """Work in the seconds between."""
    cores: float = 1.0
    """CPU cores that each of its processes keeps busy."""

    def work_between(self, from_s: float, to_s: float) -> AverageWork:
        """Average work of a GPU between two moments."""
        if not self.every_s or to_s <= from_s:
            return self.work
        share = (self._worked_s(to_s) - self._worked_s(from_s)) / (to_s - from_s)
        fields = {
            field: share * getattr(self.work, field) + (1.0 - share) * getattr(self.rest, field)
            for field in AverageWork.__struct_fields__
        }
        return AverageWork(**fields)

    def _worked_s(self, at_s: float) -> float:
        """Seconds of work since time zero, of time before it as a negative number."""
        turns, into_s = divmod(at_s, self.every_s)
        return turns * self.for_s + min(into_s, self.for_s)


class Program(_Effect, frozen=True):
    """A program over several GPUs that no page tells of: one process on each."""

    gpus: tuple[int, ...]
    vram_bytes: float
    """Memory that it holds on each GPU."""
    command: str
    stages: tuple[Stage, ...] = ()
    """Its work; of two that last, the later counts."""
    ended: dict[int, float] = {}
    """GPU -> when its process there ends."""
    hidden: bool = False
    """No list of processes has it."""
    name: str = "sim:python"
    user: str = "simulated"

    def stage_at(self, gpu: int, at_s: float) -> Stage | None:
        """The stage of one of its GPUs at a moment; None where it does nothing, or its process there has ended."""
        if not effects_at((self,), at_s) or at_s >= self.ended.get(gpu, math.inf):
            return None
        lasting = [stage for stage in effects_at(self.stages, at_s) if not stage.gpus or gpu in stage.gpus]
        return lasting[-1] if lasting else None


class GpuEffect(_Effect, frozen=True):
    """A fault of some GPUs that lasts for a while."""

    gpus: tuple[int, ...]
    state: GpuState = GpuState.OK
    """State of the driver; nothing else is read of a lost GPU."""
    state_text: str = ""
    xid: int = 0
    """Code of an Xid error that the driver reports at `from_s`; 0: none."""
    throttle: tuple[str, ...] = ()
    """Causes that the driver names, as in `GpuReading.throttle`."""
    clock_share: float = 1.0
    """SM clock, as a share of the highest."""
    power_limit_w: float = math.inf
    """Limit that somebody has set; the chip's own limit where that is lower."""
    mute: bool = False
    """The driver's calls for it do not return: its readings stand still, and after `MUTE_AFTER_S` it is called mute."""
    nvlinks_down: tuple[int, ...] = ()
    """NVLinks that are down."""
    own_namespace: bool = False
    """Its source is in a container, and lists the processes there only."""
    figures: dict[str, Reading] = {}
    """Fields of `GpuReading` and what they say instead: what no physics gives, such as ECC counts."""


class EngineEffect(_Effect, frozen=True):
    """A fault of an engine that lasts for a while. All but a sleep end with a new process, whose counters are empty."""

    engine: str
    """Name of the actor."""
    down: bool = False
    """Its process is gone: nobody listens. Where nothing else is said it hangs: it answers and makes no step."""
    loading: bool = False
    """A new process reads its weights: nobody listens yet, and the memory of its GPUs fills up until the end."""
    mute: bool = False
    """It takes connections and answers none of them, and its processes still hold their GPUs."""
    spinning: bool = False
    """While it hangs, its kernels wait for each other: the GPUs are busy and read no memory."""
    compiling: bool = False
    """A new process has its weights and compiles: nobody listens yet, and some cores are busy."""
    core_gone: bool = False
    """Its core has ended, and its API server goes on to answer: requests come, and none gets a token."""
    worker_gone: int | None = None
    """Number of the worker that has ended, in the order of its GPUs; the others wait for it."""
    stopped: bool = False
    """Its API server is stopped (SIGSTOP): give `mute`, too."""
    draining: bool = False
    """It has closed its port and ends what runs, after SIGTERM."""
    asleep: bool = False
    """Somebody has put it to sleep (level 1): weights are in the host's memory, the KV cache is dropped."""

    @property
    def ends_process(self) -> bool:
        """No process listens: the old one has ended, and a new one is not ready yet."""
        return self.down or self.loading or self.compiling


class EnginePause(msgspec.Struct, frozen=True):
    """Activity of a server that makes no step for a while, and then goes on."""

    cores: float
    """CPU cores that its process keeps busy."""
    busy_ratio: float = 0.0
    """Busy ratio of its GPUs."""
    pcie_bytes_per_s: float = 0.0
    nvlink_bytes_per_s: float = 0.0
    weight_updates: int = 0
    """Operations of a weight update that its page says are in flight."""


class EngineCondition(_Effect, frozen=True):
    """Condition that an engine is in for a while; its process stays the same."""

    engine: str
    """Name of the actor."""
    failing_share: float = 0.0
    """Share of the requests admitted meanwhile that end in an error."""
    refused_share: float = 0.0
    """Share of the requests that come meanwhile and are answered with 400."""
    corrupted_share: float = 0.0
    """Share of the requests admitted meanwhile that have a NaN in their logits."""
    acceptance: float | None = None
    """Share of the drafted tokens that are accepted meanwhile."""
    link_stuck: bool = False
    """No KV comes over its link."""
    pause: EnginePause | None = None
    """It makes no step, for a reason of its own."""
    slower: tuple[float, float] = (1.0, 1.0)
    """How many times as long a step takes: at the beginning, and at the end. It grows evenly in between."""
    leaks_per_s: float = 0.0
    """Share of the KV pool that gets lost each second: blocks that no request holds and nobody gives back."""

    def slower_at(self, at_s: float) -> float:
        """How many times as long a step takes at a moment."""
        first, last = self.slower
        if first == last:
            return first
        return first + (last - first) * (at_s - self.from_s) / (self.to_s - self.from_s)


class HostEffect(_Effect, frozen=True):
    """Load of the machine for a while. Of two that last, the later counts."""

    reading: HostReading
    """Figures that are not in it are as the effects before it say."""
    leak_bytes_per_s: float = 0.0
    """Bytes of memory that are taken each second, from `from_s` on."""


S = TypeVar("S", bound=_Effect)


def effects_at(effects: Iterable[S], at_s: float) -> list[S]:
    """The effects that last at a moment."""
    return [effect for effect in effects if effect.from_s <= at_s < effect.to_s]


def boundaries(effects: Iterable[_Effect]) -> list[float]:
    """The moments at which something changes, in order."""
    moments = {at_s for effect in effects for at_s in (effect.from_s, effect.to_s)}
    return sorted(filter(math.isfinite, moments))


class Truth(msgspec.Struct, frozen=True):
    """A verdict that an expert who knows the cause would sign."""

    thing: str
    """As `Verdict.scope`; a glob."""
    code: str
    """Value of its `Limit`, a glob; with `/` and its cause, where only that one is right: `throttled/power_cap`."""
    levels: tuple[Level, ...]
    actions: tuple[str, ...] = ()
    """Codes (globs) of the actions that mend it: no other may stand; empty: any."""
    first: tuple[str, ...] = ()
    """Codes (globs) of which one has to be the first action; empty: any of `actions`."""
    from_s: float = -math.inf
    """Simulated time at which its cause begins, and at which it ends."""
    to_s: float = math.inf
    within_s: float = math.inf
    """Longest time until it is named; infinite: it is tolerable, but need not be named."""
    root: str = ""
    """Scope (a glob) of the verdict that it has to be told to come of; empty: of any, or none."""


class Scenario(msgspec.Struct, frozen=True):
    """One play. Simulated time is zero when the screen opens on it."""

    name: str
    about: str
    """One line about the trouble, and how it shows."""
    truth: tuple[Truth, ...]
    """Verdicts that may stand on the screen at any time of the play. The first one is the subject of the play."""
    cast: tuple[Actor, ...] = ()
    runs: tuple[TrainingRun, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    programs: tuple[Program, ...] = ()
    gpu_effects: tuple[GpuEffect, ...] = ()
    engine_effects: tuple[EngineEffect, ...] = ()
    engine_conditions: tuple[EngineCondition, ...] = ()
    host_effects: tuple[HostEffect, ...] = ()
    """Beside those of a host that has little to do."""
    unmeasured: tuple[str, ...] = ()
    """Fields of `GpuReading` that these GPUs do not have."""
    chip: Chip = H100
    gpus: int = 2
    length_s: float = 240.0
    warm_s: float = 120.0
    """Simulated time before it opens."""
    past_s: float = 600.0
    """The same for the screen, which shows that time as its past. Shorter where the trouble grows from the start."""
    goals: Goals = Goals()
    """Goals that the traffic is held against, in the place of the config's; none: those of the config."""
    idle_s: float | None = None
    """After how long a GPU or an engine counts as idle here: nobody waits ten minutes for a verdict in a demo."""

    @property
    def expected(self) -> str:
        """The verdict that it shows, in words."""
        return self.truth[0].code.partition("/")[0].replace("_", " ")
