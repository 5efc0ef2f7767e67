"""Measurements of running engines of one model with the same settings, which are replicas of one instance."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import Final

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.sizing.length_tail import Lengths
from gpumon.sizing.peaks import credible
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.traffic_mix import LengthMeans, MeanLengths, MixPoints
from gpumon.specs.dimensions import LONGEST_CONTEXT

_MOST_MIXES: Final = 3
"""Mixes that are kept of one instance; the one not met for longest goes first."""
_POOL_TOLERANCE: Final = 0.1
"""KV pools of replicas differ by what else lay in memory when each started; by more than this it is another setting."""
_MOST_SLOTS: Final = 1e6
"""More requests at once, or tokens of a step, are nothing that an engine is set to."""
_SEEN_TO_STOP: Final = "more waited and none were let in, though its KV cache had room"
_MOST_TOKENS_PER_STEP: Final = 64.0
"""Tokens per step and sequence beyond which nothing that an engine says is believed."""


class RestartSettings(msgspec.Struct, frozen=True):
    """Settings that a restart may change; empty or 0 is not known (yet)."""

    model: str
    gpu: str
    """Catalogue name."""
    gpus: int
    """GPUs of one instance."""
    tp: int
    weight_precision: str
    kv_precision: str
    tool: str
    """Engine and version."""
    pool_tokens: float
    """Tokens of the KV pool of one instance."""

    @classmethod
    def of(cls, engine: Engine, gpus: list[Gpu]) -> RestartSettings:
        """The settings as an engine, and the GPUs that it runs on here, show them."""
        hardware = engine.hardware
        types = {gpu.gpu_type for gpu in gpus} or {hardware.gpu_type}
        gpu_count = credible(hardware.gpu_count)
        pool_tokens = credible(engine.load.kv_pool_tokens)
        return cls(
            model=engine.model,
            gpu=types.pop() if len(types) == 1 else "",
            gpus=round(gpu_count / hardware.ranks) if gpu_count is not None else 0,
            tp=hardware.tp,
            weight_precision=engine.dimensions.weight_precision,
            kv_precision=engine.dimensions.kv_precision,
            tool=" ".join(word for word in (engine.kind.value, engine.version) if word),
            pool_tokens=pool_tokens / hardware.ranks if pool_tokens is not None else 0.0,
        )

    def agrees_with(self, other: RestartSettings) -> bool:
        """Whether nothing that both know differs."""
        smaller, larger = sorted((self.pool_tokens, other.pool_tokens))
        if smaller and larger > smaller * (1.0 + _POOL_TOLERANCE):
            return False
        for name in ("model", "gpu", "gpus", "tp", "weight_precision", "kv_precision"):
            ours = getattr(self, name)
            theirs = getattr(other, name)
            if ours and theirs and ours != theirs:
                return False
        # An engine whose version is not known agrees with any version of it; the space keeps 0.1 apart from 0.10.
        return f"{self.tool} ".startswith(f"{other.tool} ") or f"{other.tool} ".startswith(f"{self.tool} ")

    def completed_by(self, other: RestartSettings) -> RestartSettings:
        """These settings, with what only the other ones know."""
        fields = {name: getattr(self, name) or getattr(other, name) for name in self.__struct_fields__}
        fields["tool"] = max(self.tool, other.tool, key=len)  # the one with a version
        return RestartSettings(**fields)


class SeenReplicas:
    """Measurements of one instance of a model with one setting, on all engines that have both: its replicas."""

    def __init__(self, setting: RestartSettings) -> None:
        self.setting = setting
        self.names: dict[str, str] = {}
        """URL -> name of each engine."""
        self.last_s = -math.inf
        """Time at which one of them was last seen, in seconds."""
        self.time = ""
        """When one of them was last seen (RFC 3339)."""
        self.lengths: MeanLengths | None = None
        """Lengths of the requests that ended last on one of them: known before there is a point."""
        self._mixes: list[MixPoints] = []
        self._current_mix: MixPoints | None = None
        self._memory_bytes: float | None = None
        self._tokens_per_step: float | None = None
        self._drafted_per_step: float | None = None
        self._prompts = LengthMeans()
        self._answers = LengthMeans()
        self._told_slots: float | None = None
        """Requests that an instance runs at once, as its page or its command line says."""
        self._slots_source = ""
        self._step_tokens: int | None = None
        """Tokens that a step computes at most, as its page or its command line says."""
        self._step_tokens_source = ""
        self._longest_request: int | None = None
        """Tokens of the longest request that an instance takes, as its page or its command line says."""
        self._plateau: float | None = None
        """Running requests at which an instance let no more in; None where none was seen to stop."""
        self._most_running = 0.0

    def notice(self, engine: Engine, gpus: list[Gpu]) -> None:
        """Look at its memory, its speculation, the spread of its lengths and its limit of requests."""
        memory_bytes = _engine_memory_bytes(engine, gpus)
        if memory_bytes is not None:
            self._memory_bytes = memory_bytes / engine.hardware.ranks
        self._notice_speculation(engine)
        if engine.load.window is not None:
            self._prompts.take(engine.load.window.prompt_lengths)
            self._answers.take(engine.load.window.answer_lengths)
        step_tokens = engine.options.told("step_tokens")
        if step_tokens is not None and 1.0 <= step_tokens <= _MOST_SLOTS:
            self._step_tokens = round(step_tokens)
            self._step_tokens_source = engine.options.sources.get("step_tokens", "")
        longest = engine.options.told("context_tokens")
        if longest is not None and 1.0 <= longest <= LONGEST_CONTEXT:
            self._longest_request = round(longest)
        told_slots = engine.options.told("slots")
        if told_slots is not None and 1.0 <= told_slots <= _MOST_SLOTS:
            self._told_slots = told_slots
            self._slots_source = engine.options.sources.get("slots", "")

    def _notice_speculation(self, engine: Engine) -> None:
        """Take the tokens that a step yields, and those that it drafts: the accepted ones over their share."""
        per_step = number(engine.rates.tokens_per_step)
        if per_step is None or not 1.0 <= per_step <= _MOST_TOKENS_PER_STEP:
            return
        self._tokens_per_step = per_step
        accepted_ratio = number(engine.rates.acceptance_ratio)
        if accepted_ratio is not None and 0.0 < accepted_ratio <= 1.0:
            self._drafted_per_step = min((per_step - 1.0) / accepted_ratio, _MOST_TOKENS_PER_STEP - 1.0)

    def select_mix(self, traffic: MeanLengths, requests: float) -> MixPoints:
        """The mix that `traffic`, a mean of so many requests, belongs to; it becomes the current one.

        The current mix is kept while it holds, so that lengths at the edge do not go to and fro.
        """
        candidates = sorted(self._mixes, key=lambda mix: (mix is not self._current_mix, mix.traffic.distance(traffic)))
        for mix in candidates:
            if mix.covers(traffic, requests):
                self._current_mix = mix
                return mix
        new = MixPoints(traffic)
        self._mixes.append(new)
        if len(self._mixes) > _MOST_MIXES:
            self._mixes.remove(min(self._mixes[:-1], key=lambda mix: mix.last_s))
        self._current_mix = new
        return new

    def note_running(self, running: float, *, limited: bool) -> None:
        """Note that `running` requests ran at once on an instance: a limit that was seen below was none.

        `limited`: it let no more in while others waited, and had room in its KV pool.
        """
        self._most_running = max(self._most_running, running)
        if limited and running >= self._most_running:
            self._plateau = running
        elif self._plateau is not None and running > self._plateau:
            self._plateau = None

    def observed(self) -> Observed:
        """The profile of the instance, with the points of the current mix."""
        setting = self.setting
        traffic = self.lengths
        points: tuple[Point, ...] = ()
        tpot_tail = None
        itl_tail = None
        ttft_tail = None
        mix = self._current_mix
        if mix is not None:
            traffic = mix.traffic
            points = mix.points()
            tpot_tail = _median(mix.tpot_tails)
            itl_tail = _median(mix.itl_tails)
            ttft_tail = _median(mix.ttft_tails)
        lengths = Lengths(self._prompts.shares(), self._answers.shares())
        max_num_seqs, max_num_seqs_source = self._max_num_seqs()
        return Observed(
            origin=Origin.LIVE,
            name=_shown_name(sorted(self.names.values())),
            model=setting.model,
            points=points,
            time=self.time,
            tool=setting.tool,
            gpu=setting.gpu,
            gpus=setting.gpus,
            tp=setting.tp,
            weight_precision=setting.weight_precision,
            kv_precision=setting.kv_precision,
            prompt_tokens=traffic.prompt_tokens if traffic is not None else None,
            answer_tokens=traffic.answer_tokens if traffic is not None else None,
            prefix_hit_ratio=traffic.hit_ratio if traffic is not None else None,
            lengths=lengths if lengths != Lengths() else None,
            tpot_tail_ratio=tpot_tail,
            itl_tail_ratio=itl_tail,
            ttft_tail_ratio=ttft_tail,
            kv_pool_tokens=setting.pool_tokens or None,
            max_num_seqs=max_num_seqs,
            max_num_seqs_source=max_num_seqs_source,
            max_num_batched_tokens=self._step_tokens,
            max_num_batched_tokens_source=self._step_tokens_source,
            max_model_len=self._longest_request,
            memory_bytes=self._memory_bytes,
            busy_ratio=points[-1].busy_ratio if points else None,
            power_w=points[-1].power_w if points else None,
            tokens_per_step=self._tokens_per_step,
            drafted_per_step=self._drafted_per_step,
        )

    def _max_num_seqs(self) -> tuple[int | None, str]:
        """Requests that run at once at most, as it tells, else where it was seen to stop; and who tells it."""
        if self._told_slots is not None:
            return round(self._told_slots), self._slots_source
        if self._plateau:
            return round(self._plateau), _SEEN_TO_STOP
        return None, ""


def _engine_memory_bytes(engine: Engine, gpus: list[Gpu]) -> float | None:
    """GPU memory of an engine's processes; of a GPU that it has to itself, where those are hidden, all that is in use.

    None where it is not known of one of its GPUs, or it has none here.
    """
    if not gpus:
        return None
    total_bytes = 0.0
    for gpu in gpus:
        on_gpu = _memory_on(gpu, engine)
        if isinstance(on_gpu, Missing) and gpu.engines == (engine.name,):
            on_gpu = gpu.reading.vram_used_bytes
        if isinstance(on_gpu, Missing):
            return None
        total_bytes += on_gpu
    return total_bytes


def _memory_on(gpu: Gpu, engine: Engine) -> Reading:
    """Memory of an engine's processes on a GPU; missing where it has none there, or that of one is not known."""
    sizes_bytes = []
    for process in gpu.reading.processes:
        if process.engine == engine.name:
            if isinstance(process.vram_bytes, Missing):
                return process.vram_bytes
            sizes_bytes.append(process.vram_bytes)
    if not sizes_bytes:
        return NOT_EXPOSED
    return sum(sizes_bytes)


def _median(values: Collection[float]) -> float | None:
    """The median; None without values."""
    if values:
        return median(values)
    return None


def _shown_name(names: Sequence[str]) -> str:
    """The first of the engines, and how many more there are."""
    if len(names) > 1:
        return f"{names[0]} +{len(names) - 1}"
    return "".join(names)
