"""One instance of a workload: its model, GPUs, lengths and latencies, each from the best source there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.sizing import memory
from gpumon.sizing.accuracy import NO_BAND, Band, band_of, unmeasured
from gpumon.sizing.answer import Source
from gpumon.sizing.first_token import FirstToken, engine_of, estimated, measured, typed
from gpumon.sizing.fit import Fitted, LatencySample, calibrated, fit, points_below_knee, tail_of
from gpumon.sizing.latency import (
    MOST_SEQUENCES,
    NO_SPECULATION,
    Curve,
    Mix,
    Speculation,
    Tail,
    TtftLine,
    largest_within,
    response_s,
)
from gpumon.sizing.length_tail import TokensInFlight, held_of
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.roofline import (
    InstanceSetting,
    Prompt,
    layers_s,
    line_of,
    prefill_tokens_per_s,
    rescale,
    roofline,
    ttft_line,
    weight_read_s,
)
from gpumon.sizing.scenario import (
    GOAL_NAMES,
    Catalogues,
    Scenario,
    Server,
    Workload,
    check_scenario,
    check_workload,
    sound,
)
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec, Reach

T = TypeVar("T")

ALIKE: Final = 0.1
"""Lengths that differ by at most this share are one mix."""
_FLOOR: Final = 0.5
"""Share of the time that the weights take at the peak bandwidth: no ITL is less (sizing fact sheet, 1.4)."""
_DIMENSIONS: Final = (
    "params", "matmul_params", "vocab", "hidden", "layers", "attention", "states", "experts", "experts_per_token",
)  # fmt: skip
"""Dimensions in which two models agree that cost the same but for their precisions, whatever they are called."""
_LEAST_BUCKETS: Final = {Origin.LIVE: 5, Origin.SWEEP: 3, Origin.TABLE: 3}


class Instance(NamedTuple):
    """Knowledge of one instance. A field that is None could not be found; `notes` say what that costs."""

    workload: Workload
    """With the goals of the scenario where it has none of its own."""
    server: Server | None = None
    gpu: GpuSpec | None = None
    llm: LlmSpec | None = None
    seen: Observed | None = None
    gpus: int = 0
    tp: int = 0
    pp: int = 0
    dp: int = 1
    """Data-parallel ranks: each has the attention and its KV cache for itself, the experts are spread over all."""
    tps: tuple[int, ...] = ()
    """Tensor-parallel sizes that hold it, inside one NVLink domain; empty where they cannot be told."""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    hit_ratio: float = 0.0
    held: TokensInFlight | None = None
    """Tokens that a request in flight holds, where it is known how lengths spread."""
    speculation: Speculation = NO_SPECULATION
    alike: bool = False
    """It is what was seen: same model, GPU, parallelism and precision."""
    same_mix: bool = False
    """Its lengths are those that were seen."""
    pool_shift_ratio: float | None = None
    """Share of a GPU's memory by which its KV pool was seen to differ from the formula; None where it was not seen."""
    curve: Curve | None = None
    fitted: Fitted | None = None
    source: Source = Source.NONE
    band: Band = NO_BAND
    """Errors of its ITL."""
    first: FirstToken = FirstToken()
    """Its TTFT."""
    prefill_tokens_per_s: float | None = None
    itl_tail: Tail = Tail()
    ttft_tail: Tail = Tail()
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def mix(self) -> Mix | None:
        """Lengths; None where they are not known."""
        if self.prompt_tokens is None or not self.answer_tokens:
            return None
        return Mix(self.prompt_tokens, self.answer_tokens, self.hit_ratio)

    @property
    def setting(self) -> InstanceSetting | None:
        """For the roofline formulas; None where something of it is not known."""
        mix = self.mix
        if self.llm is None or self.gpu is None or mix is None:
            return None
        expert_gpus = self.tp * self.dp if self.dp > 1 else 0
        return InstanceSetting(self.llm, self.gpu, self.gpus, self.tp, mix, expert_gpus, self.speculation)

    @property
    def startup(self) -> memory.Startup:
        """How its engine divides the memory of a GPU."""
        if self.gpu is None:
            return memory.VLLM
        return memory.startup_of(self.gpu, _engine(self.workload, self.seen))

    @property
    def goal_itl_s(self) -> float | None:
        """Goal as a mean: that of the load at which p95 comes to it."""
        if self.workload.itl_p95_ms is None:
            return None
        goal_s = self.workload.itl_p95_ms / 1e3
        tail = self.itl_tail
        if tail.mean_s is None or self.curve is None:
            return goal_s / tail.at(1.0)
        return goal_s / tail.at(max(1.0, min(largest_within(goal_s, self.curve.itl_s, tail), MOST_SEQUENCES)))

    @property
    def itl_tail_ratio(self) -> float:
        """p95 / mean of the ITL where the goal is met, without one where the points lie."""
        mean_s = self.goal_itl_s
        goal = self.workload.itl_p95_ms
        if mean_s is None or goal is None:
            return self.itl_tail.ratio
        return goal / 1e3 / mean_s

    def itl_s(self, running: float) -> float | None:
        """Mean ITL; a mean of fewer than one request is of idle moments, and who decodes then decodes alone."""
        if self.curve is None:
            return None
        return self.curve.itl_s(max(1.0, running))

    def itl_p95_s(self, running: float) -> float | None:
        """p95 of the ITL; None where its tail is not known."""
        itl_s = None
        if self.itl_tail.known:
            itl_s = self.itl_s(running)
        if itl_s is None:
            return None
        return itl_s * self.itl_tail.at(running)

    def ttft_s(self, running: float) -> float | None:
        """Mean TTFT, of requests that do not wait for admission."""
        if self.first.line is None:
            return None
        return self.first.line.ttft_s(running)

    def ttft_p95_s(self, running: float) -> float | None:
        """p95 of the TTFT; None where its tail is not known."""
        ttft_s = None
        if self.ttft_tail.known:
            ttft_s = self.ttft_s(running)
        if ttft_s is None:
            return None
        return ttft_s * self.ttft_tail.at(running)

    def response_s(self, running: float) -> float | None:
        """Time from request to last token with `running` in flight: TTFT + ITL*(OSL-1), or as it was measured."""
        itl_s = self.itl_s(running)
        if itl_s is not None and self.answer_tokens is not None:
            return response_s(self.ttft_s(running) or 0.0, itl_s, self.answer_tokens)
        if self.seen is not None and self.alike and self.same_mix:
            own = self.seen.points
        else:
            own = ()
        return between([(point.running, point.e2e_s) for point in own], running)

    def gpu_power_w(self, running: float) -> tuple[float | None, str]:
        """Watts of one of its GPUs with so many in flight, and where they come from: typed, as seen at such a load,
        else the board's limit."""
        if self.server is not None and self.server.gpu_power_w is not None:
            return self.server.gpu_power_w, "typed"
        if self.alike and self.seen is not None:
            points = [(point.running, point.power_w) for point in self.seen.points]
            power_w = between(points, running) or self.seen.power_w
            if power_w is not None:
                return power_w / self.gpus, "seen"
        if self.gpu is not None and self.gpu.tdp_w:
            return (self.gpu.tdp_w, "limit")
        return (None, "")


class Was(NamedTuple):
    """A profile by the catalogues of here."""

    seen: Observed
    llm: LlmSpec | None = None
    """Its model at its precisions; None where they are not known."""
    setting: InstanceSetting | None = None
    """Setting that its points come from; None where something of it is not known."""

    @classmethod
    def of(cls, seen: Observed, catalogues: Catalogues, dp: int = 1) -> Was:
        """Looked up. Its GPUs beyond TP share the experts where so many data-parallel ranks are asked for."""
        base = catalogues.llm(seen.model)
        try:
            llm = base and memory.variant(catalogues.llms, seen.model, base, seen.weight_precision, seen.kv_precision)
        except ValueError:
            return cls(seen)
        if llm is None:
            return cls(seen)
        try:
            return cls(seen, llm, _setting_seen(seen, llm, catalogues, dp))
        except ValueError:
            return cls(seen, llm)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks that share its experts."""
        setting = self.setting
        if setting is not None and setting.expert_gpus:
            return setting.expert_gpus // setting.tp
        return 1

    def same_model(self, workload: Workload, llm: LlmSpec | None) -> bool:
        """Whether dimensions and precisions are these; of a model not known, its name and what was typed."""
        was = self.llm
        if llm is not None and was is not None:
            return _same_size(llm, was) and (llm.precision, llm.kv_precision) == (was.precision, was.kv_precision)
        return (
            (self.seen.model == workload.model or bool(workload.profile))
            and workload.weight_precision in ("", self.seen.weight_precision)
            and workload.kv_precision in ("", self.seen.kv_precision)
        )

    def same_mix(self, prompt: float | None, answer: float | None, hit_ratio: float) -> bool:
        """Whether the lengths are these; what is not known does not differ."""
        pairs = (
            (prompt, self.seen.prompt_tokens),
            (answer, self.seen.answer_tokens),
            (1.0 - hit_ratio, 1.0 - (self.seen.prefix_hit_ratio or 0.0)),
        )
        return all(now is None or was is None or abs(now - was) <= ALIKE * max(was, 0.01) for now, was in pairs)

    def pool_shift_ratio(self, llm: LlmSpec | None, scenario: Scenario, catalogues: Catalogues) -> float | None:
        """Share of a GPU's memory by which its KV pool differs from the formula; None where it was not seen."""
        seen = self.seen
        tokens = self.seen.kv_pool_tokens
        if llm is None or self.llm is None or not tokens or not seen.gpu or not (seen.tp or seen.gpus):
            return None
        tp, pp = seen.parallel
        try:
            gpu = catalogues.gpus.find(seen.gpu)
            startup = memory.startup_of(gpu, engine_of(seen.tool))
            usable = scenario.usable_memory_ratio
            shift = memory.pool_shift_ratio(
                self.llm, tokens, gpu.memory_bytes, tp * pp, tp, usable, self.ranks, startup
            )
        except ValueError:
            return None
        if _same_size(llm, self.llm):
            return shift
        return None


def _setting_seen(seen: Observed, llm: LlmSpec, catalogues: Catalogues, dp: int) -> InstanceSetting | None:
    """The setting of a profile; None where its GPU or its lengths are not known. Raises ValueError."""
    if not seen.gpu or seen.prompt_tokens is None or seen.answer_tokens is None:
        return None
    tp, pp = seen.parallel
    mix = Mix(seen.prompt_tokens, seen.answer_tokens, seen.prefix_hit_ratio or 0.0)
    gpus = max(tp * pp, seen.gpus)
    if dp > 1 and gpus == tp * dp:
        expert_gpus = gpus
    else:
        expert_gpus = 0
    return InstanceSetting(llm, catalogues.gpus.find(seen.gpu), gpus, tp, mix, expert_gpus, speculation_of(seen))


def speculation_of(seen: Observed | None) -> Speculation:
    """The speculation that was seen. Where nobody tells how many tokens are drafted, the accepted ones were all."""
    if seen is None or seen.tokens_per_step is None or seen.tokens_per_step <= 1.0:
        return NO_SPECULATION
    accepted = seen.tokens_per_step - 1.0
    return Speculation(max(accepted, seen.drafted_per_step or 0.0), accepted)


def between(points: Sequence[tuple[float, float | None]], load: float) -> float | None:
    """The value at `at`, linear between points by rising load, flat beyond them; None without any."""
    known = []
    below = []
    above = []
    for x, y in points:
        if y is not None:
            known.append((x, y))
            if x <= load:
                below.append((x, y))
            if x >= load:
                above.append((x, y))
    if not known:
        return None
    before = max(below, default=known[0])
    after = min(above, default=known[-1])
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (load - before[0]) / (after[0] - before[0])


def resolve(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Instance:
    """One instance of `workload` on the GPUs of the servers; `problem` says why there can be none.

    Typed values stand above measured ones, these above imported ones, these above formulas.
    """
    goals = {}
    for name in GOAL_NAMES:
        if getattr(workload, name) is None:
            goals[name] = getattr(scenario, name)
    if any(goals.values()):
        workload = msgspec.structs.replace(workload, **goals)
    try:
        check_scenario(scenario)
        seen = _seen(workload, catalogues)
        if seen is None:
            was = None
        else:
            was = Was.of(seen, catalogues, workload.dp or 1)
        return _with_latency(_bare(workload, scenario, catalogues, was), was)
    except ValueError as why:
        return Instance(workload, problem=str(why))


def _seen(workload: Workload, catalogues: Catalogues) -> Observed | None:
    """The profile, its GPU by the catalogue's name; one that is not here may be kept in the scenario.

    ValueError on a profile that is not there, or not sound.
    """
    seen = catalogues.seen(workload)
    if seen is None:
        if not workload.profile:
            return None
        names = ", ".join(sorted(catalogues.profiles)[:8]) or "none is imported"
        raise ValueError(f"there is no profile {workload.profile[:40]!r}; known: {names}")
    seen = sound(seen)
    name = ""
    if seen.gpu:
        name = catalogues.gpu_name(seen.gpu)
    if name == seen.gpu:
        return seen
    return msgspec.structs.replace(seen, gpu=name)


def _bare(workload: Workload, scenario: Scenario, catalogues: Catalogues, was: Was | None) -> Instance:
    """All but its latencies. ValueError says why there can be none."""
    seen = was.seen if was is not None else None
    server = _server(scenario, seen)
    gpu = _gpu(server, catalogues)
    llm = _model(workload, seen, catalogues)
    _check_context(workload, llm)
    check_workload(workload)
    prompt = _typed_or_seen(workload, seen, "prompt_tokens")
    answer = _typed_or_seen(workload, seen, "answer_tokens")
    hits = _typed_or_seen(workload, seen, "prefix_hit_ratio") or 0.0
    tp, pp, tps = _parallel(workload, seen, llm, gpu, server, scenario, (prompt or 0.0) + (answer or 0.0))
    dp = workload.dp or 1
    instance = Instance(
        workload=workload,
        server=server,
        gpu=gpu,
        llm=llm,
        seen=seen,
        gpus=tp * pp * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        tps=tps,
        prompt_tokens=prompt,
        answer_tokens=answer,
        hit_ratio=hits,
        held=_held(workload, seen, prompt, answer),
        speculation=workload.speculative or speculation_of(seen),
        source=Source.TYPED if workload.capacity_per_instance else Source.NONE,
    )
    if was is None:
        return instance
    return instance._replace(
        alike=_has_parts(was.seen, gpu, instance.gpus, tp) and was.same_model(workload, llm),
        pool_shift_ratio=was.pool_shift_ratio(llm, scenario, catalogues),
        same_mix=was.same_mix(prompt, answer, hits),
    )


def _held(
    workload: Workload, seen: Observed | None, prompt: float | None, answer: float | None
) -> TokensInFlight | None:
    """Tokens that a request in flight holds, by the lengths that are typed or seen; None where they are not known."""
    lengths = workload.lengths
    if not lengths and seen is not None:
        lengths = seen.lengths
    if not lengths or not prompt or not answer:
        return None
    return held_of(lengths, prompt, answer)


def _server(scenario: Scenario, seen: Observed | None) -> Server:
    """The server to plan for: the first that is given, else one of the GPUs that were seen. Raises ValueError."""
    if scenario.server:
        return scenario.server[0]
    if seen is None or not seen.gpu:
        raise ValueError("no server is given: choose a GPU type and how many a server has ([[server]] gpu, gpus)")
    return Server(seen.gpu)


def _check_context(workload: Workload, llm: LlmSpec | None) -> None:
    """Raises ValueError for requests that the model's context does not hold."""
    asked = (workload.prompt_tokens or 0.0) + (workload.answer_tokens or 0.0)
    if llm is not None and 0 < llm.max_context < asked:
        raise ValueError(
            f"a request of {asked:,.0f} tokens (prompt and answer) is longer than the model's context of "
            f"{llm.max_context:,}: engines refuse it"
        )


def _typed_or_seen(workload: Workload, seen: Observed | None, name: str) -> float | None:
    """A figure of the workload as it is typed, else as it was seen."""
    typed: float | None = getattr(workload, name)
    if typed is not None:
        return typed
    known: float | None = getattr(seen, name, None)
    return known


def _has_parts(seen: Observed, gpu: GpuSpec, gpus: int, tp: int) -> bool:
    """Whether a profile ran on these GPUs with this TP; what was not recorded does not differ."""
    return seen.gpu in ("", gpu.name) and seen.gpus in (0, gpus) and seen.tp in (0, tp)


def _model(workload: Workload, seen: Observed | None, catalogues: Catalogues) -> LlmSpec | None:
    """Dimensions of the model at the wanted precisions; typed, else as seen. ValueError on an unknown precision."""
    base = catalogues.llm(workload.model)
    weights = workload.weight_precision or (seen.weight_precision if seen is not None else "")
    cache = workload.kv_precision or (seen.kv_precision if seen is not None else "")
    for name in filter(None, (weights, cache)):
        if name not in memory.WEIGHTS:
            raise ValueError(f"unknown precision {name[:20]!r}: one of {', '.join(memory.WEIGHTS)}")
    return base and memory.variant(catalogues.llms, workload.model, base, weights, cache)


def _gpu(server: Server, catalogues: Catalogues) -> GpuSpec:
    """The type of the server's GPUs. ValueError where their memory is not known."""
    gpu = catalogues.gpus.find(server.gpu)
    if gpu.memory_bytes <= 0.0:
        raise ValueError(f"the memory of {gpu.name} is not known: memory_gb in a [[gpu]] table of the config tells it")
    return gpu


def _parallel(
    workload: Workload, seen: Observed | None, llm: LlmSpec | None, gpu: GpuSpec, server: Server, scenario: Scenario,
    context: float,
) -> tuple[int, int, tuple[int, ...]]:  # fmt: skip
    """TP and PP, and the TPs that would do: typed, as seen, else the smallest TP that holds the model (the plan
    searches the others). ValueError where none does, or where engines refuse the typed one.

    On another GPU the TP that was seen stays, unless that one holds too little. Where nobody tells on how many GPUs an
    engine runs, they hold the KV pool that it says it has.
    """
    dp = workload.dp or 1
    _check_ranks(llm, dp)
    pp = workload.pp or _pp_seen(seen, dp)
    tp_seen = _tp_seen(seen, pp, dp)
    fitting: tuple[int, ...] | str = ()
    if llm is not None and workload.memory_gb is None and workload.capacity_per_instance is None:
        room = _room(gpu, server, scenario)
        startup = memory.startup_of(gpu, _engine(workload, seen))
        fitting = _fitting(llm, room, startup, context, _pool_to_hold(seen, tp_seen), pp, dp)
        if workload.tp:
            _check_even(llm, workload.tp, tp_seen)
    tp = workload.tp or _tp(tp_seen, fitting, on_its_gpu=seen is not None and seen.gpu in ("", gpu.name))
    return tp, pp, () if isinstance(fitting, str) else fitting


def _pool_to_hold(seen: Observed | None, tp_seen: int) -> float | None:
    """KV pool that an engine says it has, where nobody tells on how many GPUs it runs; else None."""
    if seen is None or tp_seen:
        return None
    return seen.kv_pool_tokens


def _check_ranks(llm: LlmSpec | None, dp: int) -> None:
    """Raises ValueError for data-parallel ranks of a model that has nothing to share among them."""
    if dp > 1 and (llm is None or not llm.experts):
        raise ValueError(f"DP {dp}: data-parallel ranks share experts, which {_unshared(llm)}; ask for more instances")


def _room(gpu: GpuSpec, server: Server, scenario: Scenario) -> _Room:
    """Memory for an instance in a server of these GPUs."""
    domain = min(server.nvlink_gpus or server.gpus, server.gpus)
    return _Room(gpu.memory_bytes, domain, scenario.usable_memory_ratio)


def _tp(tp_seen: int, fitting: tuple[int, ...] | str, *, on_its_gpu: bool) -> int:
    """The TP that was seen, unless it holds too little on another GPU; else the smallest that holds the model."""
    if tp_seen and on_its_gpu:
        return tp_seen
    if isinstance(fitting, str):
        raise ValueError(fitting)
    smallest = fitting[0] if fitting else 1
    return max(tp_seen, smallest)


def _pp_seen(seen: Observed | None, dp: int) -> int:
    """Pipeline stages of a profile; 1 where there is none, or where data-parallel ranks are asked for."""
    if seen is None or dp != 1:
        return 1
    return seen.parallel[1]


class _Room(NamedTuple):
    """Memory for an instance in a server."""

    memory_bytes: float
    """Memory of a GPU."""
    most_gpus: int
    """GPUs that a tensor-parallel group may have."""
    usable_ratio: float


def _tp_seen(seen: Observed | None, pp: int, dp: int) -> int:
    """TP of a profile; 0 where it does not tell, or ran without these data-parallel ranks."""
    if seen is None:
        return 0
    tp = seen.tp
    if not tp and seen.gpus:
        tp = max(1, seen.gpus // pp)
    if dp > 1 and seen.gpus != tp * dp:
        return 0
    return tp


def _fitting(
    llm: LlmSpec, room: _Room, startup: memory.Startup, context: float, pool: float | None, pp: int, dp: int
) -> tuple[int, ...] | str:
    """The TPs that hold the model with a KV pool of so many tokens, where that is known, else with one request of
    `context` tokens; or why none does."""
    if pool:
        holding = memory.tensor_parallels(llm, *room, pool, pp, startup=startup)
        if holding and not isinstance(holding, str):
            return holding
    return memory.tensor_parallels(llm, *room, context / KV_SHARE, pp, dp, startup)


def _check_even(llm: LlmSpec, tp: int, tp_seen: int) -> None:
    """Raises ValueError where engines refuse to split the model so; a TP that was seen works."""
    if tp == tp_seen:
        refused = ""
    else:
        refused = memory.tp_problem(llm, tp)
    if refused:
        raise ValueError(refused)


def _unshared(llm: LlmSpec | None) -> str:
    """Why data-parallel ranks of a model share nothing."""
    return "this model has none of" if llm is not None else "nobody knows of this model"


def _same_size(llm: LlmSpec, other: LlmSpec) -> bool:
    return all(getattr(llm, name) == getattr(other, name) for name in _DIMENSIONS)


class _Learnt(NamedTuple):
    """Latencies of its own instance that the points of a profile tell."""

    itl: Fitted | str
    """Or why there is none."""
    ttft: TtftLine | None
    itl_tail: Tail
    ttft_tail: Tail


@lru_cache(maxsize=256)
def _learnt(seen: Observed, roof: Curve | None, floor_s: float, formula: TtftLine | None) -> _Learnt:
    """The same profile is asked about at every keystroke: 1 ms with 64 points, more of a MoE."""
    itl = fit(seen.points, roof=roof, floor_s=floor_s, least_buckets=_LEAST_BUCKETS[seen.origin])
    ttft = calibrated(formula, seen.points)
    gaps = _samples((point.running, point.itl_s, point.itl_p95_s) for point in seen.points)
    below_knee = points_below_knee(seen.points)
    firsts = _samples((point.running, point.ttft_s, point.ttft_p95_s) for point in below_knee)
    if isinstance(itl, str):
        mean = None
    else:
        mean = itl.curve
    return _Learnt(itl, ttft, tail_of(gaps, mean, seen.itl_tail_ratio), tail_of(firsts, ttft, seen.ttft_tail_ratio))


def _samples(figures: Iterable[tuple[float, float | None, float | None]]) -> list[LatencySample]:
    """Samples of the points that have both a mean and a p95."""
    samples = []
    for running, mean_s, p95_s in figures:
        if mean_s and p95_s:
            samples.append(LatencySample(running, mean_s, p95_s))
    return samples


def _with_latency(bare: Instance, was_seen: Was | None) -> Instance:
    """The ladder of the latency: fitted here, re-scaled, roofline."""
    workload = bare.workload
    was = was_seen.setting if was_seen is not None else None
    formula = _formula(engine_of(bare.seen.tool) if bare.seen is not None else "", was)
    learnt = None
    ttft = None
    ttft_tail = Tail()
    instance = bare
    if bare.seen is not None:
        learnt = _learnt(bare.seen, _or_none(roofline, was), _floor_s(was), formula)
        ttft = learnt.ttft
        ttft_tail = learnt.ttft_tail
        if bare.seen.points:
            instance = _measured(bare, bare.seen, learnt.itl, was)
    if instance.curve is None and bare.setting is not None:
        instance = _by_roofline(instance, bare.setting)
    if workload.capacity_per_instance:
        instance = instance._replace(source=Source.TYPED, band=NO_BAND)
    instance = instance._replace(
        itl_tail=_itl_tail(workload.itl_tail_ratio, learnt),
        first=_first_token(bare, ttft, formula),
        ttft_tail=ttft_tail,
        prefill_tokens_per_s=workload.prefill_tokens_per_s or _or_none(prefill_tokens_per_s, bare.setting),
    )
    return _with_honest_bands(instance)


def _floor_s(was: InstanceSetting | None) -> float:
    """The least ITL that a fit may have: a share of the time that its weights take to read, 0 if unknown."""
    return _FLOOR * (_or_none(weight_read_s, was) or 0.0)


def _by_roofline(instance: Instance, setting: InstanceSetting) -> Instance:
    """With the curve of the roofline; with a note where it lacks a figure."""
    kind = "itl dp" if setting.expert_gpus else "itl"
    try:
        band = band_of(kind, setting.tp, bool(setting.llm.experts))
        return instance._replace(curve=roofline(setting), source=Source.ROOFLINE, band=band)
    except ValueError as wrong:
        return instance._replace(notes=(*instance.notes, f"no roofline: {wrong}"))


def _itl_tail(typed_ratio: float | None, learnt: _Learnt | None) -> Tail:
    """p95 / mean of the ITL: typed, else as the points show it."""
    if typed_ratio is not None:
        return Tail(typed_ratio or 1.0, True)
    if learnt is not None:
        return learnt.itl_tail
    return Tail(1.0, False)


COMPUTED: Final = "aiconfigurator"
"""Tool whose sweeps are computed, not measured."""


def _with_honest_bands(instance: Instance) -> Instance:
    """Without the errors of servers that are unlike it: a band is of what was measured."""
    notes = []
    if instance.speculation != speculation_of(instance.seen) and instance.curve is not None:
        notes.append(_speculation_note(instance))
    unlike = _unlike_measured(instance)
    if unlike and instance.source in (Source.ROOFLINE, Source.RESCALED):
        notes.append(f"ITL without an error band: estimate by roofline, {unlike}")
    band = NO_BAND if notes else instance.band
    first = instance.first
    if unlike and not first.decides:
        first = first._replace(band=NO_BAND)
    if band and _is_computed(instance):
        band = NO_BAND
        notes.append(f"without an error band: {COMPUTED} computes its figures, nobody measured them")
    return instance._replace(band=band, first=first, notes=(*instance.notes, *notes))


def _unlike_measured(instance: Instance) -> str:
    """Why the errors of the measured servers say nothing of this one; empty where they do."""
    if instance.gpu is None:
        return ""
    llm = instance.llm
    indexed = llm is not None and llm.attention_layers(Reach.INDEX) > 0
    return unmeasured(instance.gpu.architecture, instance.pp, instance.dp, instance.tp, indexed)


def _is_computed(instance: Instance) -> bool:
    """Whether its latencies stand on a sweep that was computed."""
    seen = instance.seen
    return seen is not None and COMPUTED in seen.tool.lower() and instance.source is not Source.TYPED


def _speculation_note(instance: Instance) -> str:
    """Source of the ITL of a speculation that was not seen."""
    speculation = instance.speculation
    if speculation == NO_SPECULATION:
        return "without speculation: not measured, estimate by roofline"
    kept = f"{speculation.accepted:g} of {speculation.tokens:g} drafted tokens kept"
    return f"speculation ({kept}) not measured: estimate by roofline, without the time of the drafter"


def _measured(bare: Instance, seen: Observed, fitted: Fitted | str, was: InstanceSetting | None) -> Instance:
    """With the fit of what was seen, moved to what is wanted; without a curve where either cannot be done."""
    if isinstance(fitted, str):
        return bare._replace(notes=(fitted,))
    if bare.alike and bare.same_mix and bare.speculation == speculation_of(seen):
        return _as_seen(bare, seen, fitted, was)
    origin = f"{seen.gpus or 1}x {seen.gpu or 'unknown GPU'}"
    return _rescaled(bare, origin, fitted, was)


def _rescaled(bare: Instance, origin: str, fitted: Fitted, was: InstanceSetting | None) -> Instance:
    """With the fit of what was seen on other hardware (`origin`) or with other lengths, moved by the roofline."""
    wanted = bare.setting
    if was is None or wanted is None:
        note = f"measured on {origin}, which cannot be re-scaled: dimensions or lengths are unknown"
        return bare._replace(notes=(note,))
    try:
        curve = rescale(fitted.curve, was, wanted, fitted.high)
    except ValueError as wrong:
        return bare._replace(notes=(f"not re-scaled: {wrong}",))
    return bare._replace(
        curve=curve,
        fitted=fitted if bare.alike else None,
        source=Source.RESCALED,
        band=_rescaled_band(fitted.band, was, wanted),
        notes=(f"re-scaled from {origin}: the same ratio to the roofline as measured there",),
    )


def _as_seen(bare: Instance, seen: Observed, fitted: Fitted, was: InstanceSetting | None) -> Instance:
    """With the fit of the same server and mix of lengths."""
    wanted = bare.setting
    curve: Curve | None = None
    if was is not None and wanted is not None and was != wanted:
        # Moved to lengths a little off, too: else the answer had a step where they count as others.
        try:
            curve = rescale(fitted.curve, was, wanted, fitted.high)
        except ValueError:
            curve = None
    notes = list[str]()
    if not seen.gpu:
        gpu = bare.gpu.name if bare.gpu is not None else "what is planned with"
        notes.append(f"the GPU that it ran on is not known: assumed to be {gpu}")
    return bare._replace(
        curve=curve or fitted.curve,
        fitted=fitted,
        source=Source.MEASURED if seen.origin is Origin.LIVE else Source.SWEEP,
        band=fitted.band,
        notes=tuple(notes),
    )


def _rescaled_band(band: Band, was: InstanceSetting, wanted: InstanceSetting) -> Band:
    """The errors of a fit with those of each step from the measured server to the wanted one."""
    precision = (was.llm.precision, was.llm.kv_precision)
    differs = {
        "itl": not _same_size(was.llm, wanted.llm),
        "gpu": was.gpu.name != wanted.gpu.name,
        "precision": precision != (wanted.llm.precision, wanted.llm.kv_precision),
        "tp": was.tp != wanted.tp,
        "mix": was.mix != wanted.mix,
    }
    for step, other in differs.items():
        if other:
            band = band.joined(band_of(step, 1, bool(wanted.llm.experts)))
    return band


def _first_token(bare: Instance, learnt: TtftLine | None, formula: TtftLine | None) -> FirstToken:
    """TTFT over the requests in flight, from the best source: typed, measured, moved from what was seen, a formula.

    `learnt` and `formula` are those of what was seen.
    """
    seen = bare.seen
    engine = _engine(bare.workload, seen)
    rate = bare.workload.prefill_tokens_per_s
    if rate is not None and bare.prompt_tokens is not None:
        return _typed_first_token(bare, bare.prompt_tokens, rate, engine)
    line = _formula(engine, bare.setting)
    if seen is None:
        return estimated(line, bare.setting, engine)
    if _is_measured_here(bare, seen, engine) and (bare.same_mix or formula is None):
        return measured(line, seen.points, bare.setting, engine)
    if line is None or formula is None or learnt is None:
        return estimated(line, bare.setting, engine)
    usual = _usual_running(seen)
    moved = learnt.scaled(line.ttft_s(usual) / formula.ttft_s(usual))
    return _moved_first_token(bare, moved, measured(formula, seen.points, bare.setting, engine), engine)


def _moved_first_token(bare: Instance, moved: TtftLine, own: FirstToken, engine: str) -> FirstToken:
    """TTFT of a line that was moved from the measured server (`own`): it decides where only the lengths differ."""
    if not bare.alike or not own.decides or bare.setting is None:
        return estimated(moved, bare.setting, engine, "re-scaled from what was measured elsewhere")
    band = own.band.joined(band_of("mix", 1, bool(bare.setting.llm.experts)))
    return FirstToken(moved, band, decides=True, basis=f"{own.basis}, re-scaled to these lengths")


def _typed_first_token(bare: Instance, prompt_tokens: float, rate: float, engine: str) -> FirstToken:
    """TTFT by a typed prefill rate in tokens/s of one stage: a prompt passes the stages one after the other."""
    new_tokens = prompt_tokens * (1.0 - bare.hit_ratio)
    if bare.setting is not None:
        beside_s = layers_s(bare.setting)
    else:
        beside_s = 0.0
    prompt = Prompt(new_tokens, new_tokens / rate * bare.pp, beside_s)
    return typed(line_of(prompt, engine))


def _is_measured_here(bare: Instance, seen: Observed, engine: str) -> bool:
    """Whether its points are of this very instance and engine."""
    return bare.alike and engine == engine_of(seen.tool)


def _usual_running(seen: Observed) -> float:
    """Median of the sequences that ran at its points; one where it has none."""
    if not seen.points:
        return 1.0
    return median(point.running for point in seen.points)


def _engine(workload: Workload, seen: Observed | None) -> str:
    """The engine that is sized: typed, else the one that was seen; empty where nothing tells it."""
    if workload.engine or seen is None:
        return workload.engine
    return engine_of(seen.tool)


def _formula(engine: str, setting: InstanceSetting | None) -> TtftLine | None:
    """TTFT of an engine from dimensions alone; None where something is not known."""
    return _or_none(lambda at: ttft_line(at, engine), setting)


def _or_none(formula: Callable[[InstanceSetting], T], setting: InstanceSetting | None) -> T | None:
    """Result of the formula; None where it lacks a figure."""
    try:
        if setting is not None:
            return formula(setting)
        return None
    except ValueError:
        return None
