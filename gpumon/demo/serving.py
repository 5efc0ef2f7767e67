"""One simulated vLLM server: its ranks, and what its HTTP paths answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from gpumon.demo.engine_model import EngineModel, Meter
from gpumon.demo.gpus import AverageWork, GpuPace, work_between
from gpumon.demo.link import KvLink
from gpumon.demo.scenario import Actor, EngineCondition, EngineEffect, EnginePause, boundaries, effects_at
from gpumon.demo.server import NOT_FOUND, PageAnswer
from gpumon.demo.speculation import DraftSettings
from gpumon.demo.traffic import ArrivalQueue, Handover, Traffic, TrafficDemand
from gpumon.demo.vllm_page import STARTING_S, VllmPage

_SEEDS_PER_ENGINE = 100
"""Seeds that each engine has for its ranks."""
ASLEEP_VRAM = 0.03
"""Share of its memory that a vLLM worker keeps while it sleeps: context, CUDA graphs, NCCL buffers."""
LEAST_VRAM = 0.01
"""Share that a worker holds which has just begun to read its weights: the context."""
LOADING_CORES = 0.6
"""CPU cores that a process keeps busy which reads its weights: mostly it waits for the disk."""
_COMPILING_CORES = 12.0
"""CPU cores of a process that compiles: torch.compile has workers."""
SERVING_CORES = 1.1
"""CPU cores of a process that serves: the engine core's loop, and a little for the API server."""
RESTING_CORES = 0.03
"""CPU cores of a process that waits."""
_SHARED_LOSS = 0.5
"""Share of its speed that an engine loses to another program that is always at work on its GPU."""


class SimulatedEngine:
    """The ranks of an `Actor`, on simulated time that begins at `start_s` (its wall time is `started_wall_s`)."""

    def __init__(
        self,
        actor: Actor,
        seed: int,
        start_s: float,
        started_wall_s: float,
        effects: tuple[EngineEffect, ...] = (),
        conditions: tuple[EngineCondition, ...] = (),
        handovers: Mapping[str, Handover] | None = None,
    ) -> None:
        """`handovers` has the requests on their way to each actor that decodes what another one prefills."""
        self.actor = actor
        self.up = True
        """It listens."""
        self.closed = False
        """It has closed its port, and ends what runs."""
        self.mute = False
        """It takes connections and answers none of them."""
        self._seed = seed
        self._start_times = (start_s, started_wall_s)
        """Simulated time and Unix time of the same moment."""
        self._effects = tuple(effect for effect in effects if effect.engine == actor.name)
        self._conditions = tuple(condition for condition in conditions if condition.engine == actor.name)
        self._handovers = handovers or {}
        self._changes = boundaries((*self._effects, *self._conditions))
        """Moments at which one of them begins or ends, and that are still to come."""
        self._present_effects: list[EngineEffect] = []
        self._present_conditions: list[EngineCondition] = []
        self._at_s = start_s
        """The simulated moment."""
        self._measured_s = start_s
        """When `works` was called last."""
        self.life = 0
        """Number of its process: another one serves after a restart."""
        self._free_s = -math.inf
        """Since when no other process was in its place: its own cannot be older."""
        self._start(start_s)

    def _start(self, at_s: float, *, has_loaded: bool = False) -> None:
        """Serve with a new process, whose counters are empty; `has_loaded`: with the one that has just loaded."""
        if not has_loaded:
            self.life += 1
        actor = self.actor
        self._started_wall_s = self._unix_time(at_s)
        hand_over = self._handovers[actor.hands_over_to].put if actor.hands_over_to in self._handovers else None
        self.ranks = tuple(
            EngineModel(
                actor.instance,
                actor.limits,
                self._arrivals(demand, seed, at_s),
                start_s=at_s,
                held=actor.held,
                speculation=actor.speculation,
                hand_over=hand_over,
            )
            for seed, demand in enumerate(actor.demands, self._seed * _SEEDS_PER_ENGINE)
        )
        self._paces = (GpuPace(),) * len(self.ranks)
        self._slower = 1.0
        """How many times as long a step takes as it should."""
        self._last_meters = (Meter(),) * len(self.ranks)
        """Work of each rank when `works` was called last."""
        self._page = VllmPage(actor, self.ranks, self._started_wall_s, min(STARTING_S, at_s - self._free_s))

    def _arrivals(self, demand: TrafficDemand, seed: int, at_s: float) -> ArrivalQueue:
        """Who asks a new process: clients, or the engine that prefills for it."""
        return self._handovers.get(self.actor.name) or Traffic(demand, seed, at_s)

    def advance(self, to_s: float) -> None:
        """Let all ranks work until `to_s`; a time that is past already changes nothing."""
        while self._changes and self._changes[0] <= to_s:
            at_s = self._changes.pop(0)
            self._advance(at_s)
            self._change(at_s)
        self._advance(to_s)

    def _advance(self, to_s: float) -> None:
        """Let all ranks work until `to_s`, before which nothing changes."""
        seconds = max(0.0, to_s - self._at_s)
        self._at_s = max(self._at_s, to_s)
        lost_share = seconds * sum(condition.leaks_per_s for condition in self._present_conditions)
        if self.up:
            for rank in self.ranks:
                rank.advance(self._at_s)
                rank.blocks.lose(round(lost_share * rank.limits.kv_pool_blocks))

    def _change(self, at_s: float) -> None:
        """Begin and end the effects and conditions of this moment."""
        before = self._present_effects
        was_starting = self.starts
        was_up = self.up
        self._present_effects = effects_at(self._effects, at_s)
        self.up = not any(effect.ends_process for effect in self._present_effects)
        self.mute = any(effect.mute for effect in self._present_effects)
        self.closed = any(effect.draining for effect in self._present_effects)
        if was_up:
            self._free_s = at_s
        if self.starts and not was_starting:
            self.life += 1
            self._free_s = at_s
        # After a sleep the same process goes on; after all else another one begins.
        has_slept = all(effect.asleep for effect in before)
        if not self._present_effects and not has_slept:
            self._start(at_s, has_loaded=was_starting)
        self._stop_ranks(at_s)
        self._meet_conditions(at_s)

    def _stop_ranks(self, at_s: float) -> None:
        """Let the ranks sleep or hang where an effect of this moment says so."""
        asleep = any(effect.asleep for effect in self._present_effects)
        for rank in self.ranks:
            rank.asleep = asleep
            if self._present_effects and self.up and not asleep and not self.closed:
                rank.hang(at_s)

    def _meet_conditions(self, at_s: float) -> None:
        """Set the ranks to the conditions of this moment."""
        self._present_conditions = effects_at(self._conditions, at_s)
        conditions = self._present_conditions
        failing_share = max((condition.failing_share for condition in conditions), default=0.0)
        refused_share = max((condition.refused_share for condition in conditions), default=0.0)
        corrupted_share = max((condition.corrupted_share for condition in conditions), default=0.0)
        pauses_s = [condition.to_s for condition in conditions if condition.pause is not None]
        pause_to_s = max(pauses_s, default=at_s)
        updates = [condition.pause.weight_updates for condition in conditions if condition.pause is not None]
        self._page.note_weight_updates(sum(updates))
        speculation = self._speculation()
        for rank in self.ranks:
            rank.failing_share = failing_share
            rank.refused_share = refused_share
            rank.corrupted_share = corrupted_share
            rank.pause(pause_to_s)
            if rank.speculation is not None and speculation is not None:
                rank.speculation = speculation
            if rank.link is not None:
                self._set_link(rank.link, at_s)

    def _speculation(self) -> DraftSettings | None:
        """Speculation with the acceptance of this moment; None for an engine without it."""
        speculation = self.actor.speculation
        if speculation is None:
            return None
        acceptance = speculation.acceptance
        acceptances = [
            condition.acceptance for condition in self._present_conditions if condition.acceptance is not None
        ]
        if acceptances:
            acceptance = min(acceptances)
        return msgspec.structs.replace(speculation, acceptance=acceptance)

    def _set_link(self, link: KvLink, at_s: float) -> None:
        """Let transfers stand still while a condition says so."""
        if any(condition.link_stuck for condition in self._present_conditions):
            link.stick(at_s)
        else:
            link.go_on(at_s)

    @property
    def ended(self) -> bool:
        """Its process is gone, and no other has begun."""
        return any(effect.down for effect in self._present_effects)

    @property
    def starts(self) -> bool:
        """A new process has begun, and does not listen yet."""
        return not self.ended and any(effect.ends_process for effect in self._present_effects)

    @property
    def read_bytes_per_s(self) -> float:
        """Rate at which it reads from disks: its weights, evenly while they are loaded."""
        for effect in self._present_effects:
            if effect.loading:
                return self.actor.shape.file_bytes / (effect.to_s - effect.from_s)
        return 0.0

    def vram_share_of(self, gpu: int) -> float:
        """Share of its memory that its process on a GPU holds: none where that one is gone."""
        return 0.0 if gpu in self.left_gpus else self.vram_share

    @property
    def left_gpus(self) -> tuple[int, ...]:
        """GPUs whose process of it is gone while others live."""
        for effect in self._present_effects:
            if effect.core_gone:
                return self.actor.gpus
            if effect.worker_gone is not None:
                return (self.actor.gpus[effect.worker_gone],)
        return ()

    @property
    def is_stopped(self) -> bool:
        """Its API server is stopped by a signal."""
        return any(effect.stopped for effect in self._present_effects)

    @property
    def open_connections(self) -> int:
        """Connections of requests that still run."""
        return int(sum(rank.running for rank in self.ranks))

    @property
    def vram_share(self) -> float:
        """Share of its memory that its processes hold: none where they are gone, more and more while they load."""
        weights_share = self.actor.shape.file_bytes / (len(self.actor.gpus) * self.actor.chip.memory_bytes)
        for effect in self._present_effects:
            if effect.down:
                return 0.0
            if effect.loading:
                loaded_ratio = (self._at_s - effect.from_s) / (effect.to_s - effect.from_s)
                return max(LEAST_VRAM, weights_share * loaded_ratio)
            if effect.compiling:
                return weights_share
            if effect.asleep:
                return ASLEEP_VRAM
        return 1.0

    @property
    def cpu_cores(self) -> float:
        """CPU cores that each of its processes keeps busy."""
        for effect in self._present_effects:
            if effect.loading:
                return LOADING_CORES
            if effect.compiling:
                return _COMPILING_CORES
            # One that waits for its kernels asks the driver again and again.
            return SERVING_CORES if effect.spinning else RESTING_CORES
        for condition in self._present_conditions:
            if condition.pause is not None:
                return condition.pause.cores
        # A scheduler with requests asks itself again and again which of them may run.
        if any(rank.running or rank.for_capacity for rank in self.ranks):
            return SERVING_CORES
        return RESTING_CORES

    def works(self, pace: Callable[[int], GpuPace]) -> dict[int, AverageWork]:
        """Average work of each of its GPUs since the last call."""
        seconds = self._at_s - self._measured_s
        self._measured_s = self._at_s
        if not self.up or seconds <= 0.0:
            return {}
        if any(effect.spinning for effect in self._present_effects):
            return dict.fromkeys(self.actor.gpus, AverageWork(busy_ratio=1.0))
        for condition in self._present_conditions:
            if condition.pause is not None:
                return dict.fromkeys(self.actor.gpus, self._work_in_pause(condition.pause))
        return self._works_of_steps(seconds, pace)

    def _works_of_steps(self, seconds: float, pace: Callable[[int], GpuPace]) -> dict[int, AverageWork]:
        """Average work of each GPU in the steps of its rank.

        The GPUs of a rank go at the pace of the slowest: the others wait for it in the all-reduce.
        """
        works: dict[int, AverageWork] = {}
        meters = self.meters()
        paces: list[GpuPace] = []
        for gpus, rank, before, meter in zip(self.actor.ranks, self.ranks, self._last_meters, meters, strict=True):
            work = work_between(rank.instance, before, meter, seconds)
            slowest = GpuPace(min(pace(gpu).clock for gpu in gpus), max(pace(gpu).others for gpu in gpus))
            for gpu in gpus:
                clock_ratio = slowest.clock / pace(gpu).clock
                works[gpu] = msgspec.structs.replace(work, kernel_ratio=work.kernel_ratio * clock_ratio)
            paces.append(slowest)
        self._last_meters = meters
        self._slow_to(tuple(paces))
        return works

    def _work_in_pause(self, pause: EnginePause) -> AverageWork:
        """Work of its GPUs while it makes no step."""
        self._last_meters = self.meters()
        return AverageWork(
            busy_ratio=pause.busy_ratio,
            nvlink_bytes_per_s=pause.nvlink_bytes_per_s if self.actor.chip.nvlink else 0.0,
            pcie_bytes_per_s=pause.pcie_bytes_per_s,
        )

    def _slow_to(self, paces: tuple[GpuPace, ...]) -> None:
        """Set the speed of each rank: a lower SM clock slows arithmetic down, another program memory traffic, too."""
        slower = math.prod(condition.slower_at(self._at_s) for condition in self._present_conditions)
        if paces == self._paces and slower == self._slower:
            return
        self._paces = paces
        self._slower = slower
        instance = self.actor.instance
        speed = self.actor.speed
        for rank, (clock, others) in zip(self.ranks, paces, strict=True):
            own_share = (1.0 - _SHARED_LOSS * others) / slower
            present_speed = msgspec.structs.replace(
                speed,
                flops_share=speed.flops_share * clock * own_share,
                bytes_share=speed.bytes_share * own_share,
                step_overhead_s=speed.step_overhead_s * slower,
                sequence_overhead_s=speed.sequence_overhead_s * slower,
            )
            rank.instance = msgspec.structs.replace(instance, speed=present_speed)

    def meters(self) -> tuple[Meter, ...]:
        """The counted work of each rank."""
        return tuple(rank.meter(self._at_s) for rank in self.ranks)

    def _unix_time(self, at_s: float) -> float:
        """Unix time of a simulated moment."""
        start_s, start_wall_s = self._start_times
        return start_wall_s + at_s - start_s

    def answer(self, path: str) -> PageAnswer:
        """The server's answer to GET `path`."""
        if path == "/metrics":
            page = self._page.text(self._unix_time(self._at_s))
            return PageAnswer(200, "text/plain; version=1.0.0; charset=utf-8", page.encode())
        if path == "/version":
            return PageAnswer(200, "application/json", msgspec.json.encode({"version": self.actor.version}))
        if path == "/v1/models":
            return PageAnswer(200, "application/json", msgspec.json.encode({"object": "list", "data": [self._model()]}))
        if path == "/health":
            return PageAnswer(200, "", b"")
        return NOT_FOUND

    def _model(self) -> dict[str, object]:
        """The card of the model, as vLLM lists it."""
        return {
            "id": self.actor.model,
            "object": "model",
            "created": int(self._started_wall_s),
            "owned_by": "vllm",
            "root": self.actor.model,
            "parent": None,
            "max_model_len": self.actor.max_model_len,
        }
