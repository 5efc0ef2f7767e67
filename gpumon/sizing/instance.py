"""One instance of a workload: its model, GPUs, lengths and latencies, each from the best source there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.sizing import memory
from gpumon.sizing.accuracy import NO_BAND, Band, band_of, unmeasured_reason
from gpumon.sizing.answer import Source
from gpumon.sizing.first_token import FirstToken, engine_of, estimated, measured, typed
from gpumon.sizing.fit import Fitted, LatencySample, calibrated_ttft, fit, points_below_knee, tail_of
from gpumon.sizing.latency import (
    MOST_SEQUENCES,
    NO_SPECULATION,
    Curve,
    Mix,
    Speculation,
    Tail,
    TtftLine,
    largest_load_within,
    response_s,
)
from gpumon.sizing.length_tail import TokensInFlight, held_of
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.roofline import (
    InstanceSetting,
    Prompt,
    layers_s,
    prefill_tokens_per_s,
    rescale,
    roofline,
    ttft_line,
    ttft_line_of,
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
    checked_profile,
)
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec, Reach

T = TypeVar("T")

SAME_MIX: Final = 0.1
"""Share by which mean lengths of one mix may differ."""
_LEAST_ITL_RATIO: Final = 0.5
"""Share of the time to read the weights at the peak bandwidth that no ITL is below (sizing fact sheet, 1.4)."""
_DIMENSIONS: Final = (
    "params", "matmul_params", "vocab", "hidden", "layers", "attention", "states", "experts", "experts_per_token",
)  # fmt: skip
"""Dimensions that two models share which cost the same but for their precisions, whatever they are called."""
_LEAST_BUCKETS: Final = {Origin.LIVE: 5, Origin.SWEEP: 3, Origin.TABLE: 3}
"""Load levels that a fit needs: those of a running engine are noisier than those of a load test."""


class Instance(NamedTuple):
    """Knowledge of one instance. None: it could not be found; `notes` say what follows from that."""

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
    """Tensor-parallel sizes that hold it, inside one NVLink domain; empty where they are not known."""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    hit_ratio: float = 0.0
    held: TokensInFlight | None = None
    """Distribution of the tokens that a request in flight holds; None where that of the lengths is not known."""
    speculation: Speculation = NO_SPECULATION
    alike: bool = False
    """Whether `seen` was measured on the same model, GPU, parallelism and precision."""
    same_mix: bool = False
    """Whether `seen` was measured with the same lengths."""
    pool_shift_ratio: float | None = None
    """Share of a GPU's memory by which the measured KV pool differs from the formula; None: it was not measured."""
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
        """The instance as the roofline formulas take it; None where something of it is not known."""
        mix = self.mix
        if self.llm is None or self.gpu is None or mix is None:
            return None
        expert_gpus = 0
        if self.dp > 1:
            expert_gpus = self.tp * self.dp
        return InstanceSetting(self.llm, self.gpu, self.gpus, self.tp, mix, expert_gpus, self.speculation)

    @property
    def startup(self) -> memory.Startup:
        """Memory that its engine takes of a GPU beside weights and KV cache."""
        if self.gpu is None:
            return memory.VLLM_STARTUP
        return memory.startup_of(self.gpu, _engine(self.workload, self.seen))

    @property
    def goal_itl_s(self) -> float | None:
        """The ITL goal as a mean: the mean at the load at which p95 comes to the goal. None without a goal."""
        if self.workload.itl_p95_ms is None:
            return None
        goal_s = self.workload.itl_p95_ms / 1e3
        tail = self.itl_tail
        if tail.mean_s is None or self.curve is None:
            return goal_s / tail.ratio_at(1.0)
        load = min(largest_load_within(goal_s, self.curve.itl_s, tail), MOST_SEQUENCES)
        return goal_s / tail.ratio_at(max(1.0, load))

    @property
    def itl_tail_ratio(self) -> float:
        """p95 / mean of the ITL at the load at which the goal is met; without a goal that of the measured points."""
        mean_s = self.goal_itl_s
        goal = self.workload.itl_p95_ms
        if mean_s is None or goal is None:
            return self.itl_tail.ratio
        return goal / 1e3 / mean_s

    def itl_s(self, running: float) -> float | None:
        """Mean ITL in seconds; None where it is not known.

        Below one running request on average the engine idles most of the time, and decodes single requests.
        """
        if self.curve is None:
            return None
        return self.curve.itl_s(max(1.0, running))

    def itl_p95_s(self, running: float) -> float | None:
        """p95 of the ITL in seconds; None where it is not known."""
        itl_s = self.itl_s(running)
        if itl_s is None or not self.itl_tail.known:
            return None
        return itl_s * self.itl_tail.ratio_at(running)

    def ttft_s(self, running: float) -> float | None:
        """Mean TTFT in seconds of requests that do not wait for admission; None where it is not known."""
        if self.first.line is None:
            return None
        return self.first.line.ttft_s(running)

    def ttft_p95_s(self, running: float) -> float | None:
        """p95 of the TTFT in seconds; None where it is not known."""
        ttft_s = self.ttft_s(running)
        if ttft_s is None or not self.ttft_tail.known:
            return None
        return ttft_s * self.ttft_tail.ratio_at(running)

    def response_s(self, running: float) -> float | None:
        """Seconds from request to last token with `running` in flight: TTFT + ITL*(OSL-1), or as measured.

        None where neither is known.
        """
        itl_s = self.itl_s(running)
        if itl_s is not None and self.answer_tokens is not None:
            return response_s(self.ttft_s(running) or 0.0, itl_s, self.answer_tokens)
        if self.seen is None or not self.alike or not self.same_mix:
            return None
        return interpolate([(point.running, point.e2e_s) for point in self.seen.points], running)

    def gpu_power_w(self, running: float) -> tuple[float | None, str]:
        """Watts of one of its GPUs with so many in flight, and their source: `typed`, `seen` (measured at such a load)
        or `limit` (that of the board); None and an empty source where they are not known."""
        if self.server is not None and self.server.gpu_power_w is not None:
            return self.server.gpu_power_w, "typed"
        if self.alike and self.seen is not None:
            points = [(point.running, point.power_w) for point in self.seen.points]
            power_w = interpolate(points, running) or self.seen.power_w
            if power_w is not None:
                return power_w / self.gpus, "seen"
        if self.gpu is not None and self.gpu.tdp_w:
            return (self.gpu.tdp_w, "limit")
        return (None, "")


class MeasuredInstance(NamedTuple):
    """The instance that a profile was measured on, by the catalogues."""

    seen: Observed
    llm: LlmSpec | None = None
    """Its model at its precisions; None where they are not known."""
    setting: InstanceSetting | None = None
    """The instance as the roofline formulas take it; None where something of it is not known."""

    @classmethod
    def look_up(cls, seen: Observed, catalogues: Catalogues, dp: int = 1) -> MeasuredInstance:
        """Look up model and GPU of a profile. Its GPUs beyond TP share the experts if they are `dp` times as many."""
        base = catalogues.llm(seen.model)
        if base is None:
            return cls(seen)
        try:
            llm = memory.variant(catalogues.llms, seen.model, base, seen.weight_precision, seen.kv_precision)
        except ValueError:
            return cls(seen)
        try:
            return cls(seen, llm, _setting_of_profile(seen, llm, catalogues, dp))
        except ValueError:
            return cls(seen, llm)

    @property
    def ranks(self) -> int:
        """Number of data-parallel ranks that share its experts."""
        setting = self.setting
        if setting is not None and setting.expert_gpus:
            return setting.expert_gpus // setting.tp
        return 1

    def same_model(self, workload: Workload, llm: LlmSpec | None) -> bool:
        """Whether it has these dimensions and precisions; for an unknown model: this name and the typed precisions."""
        own = self.llm
        if llm is not None and own is not None:
            return _same_size(llm, own) and (llm.precision, llm.kv_precision) == (own.precision, own.kv_precision)
        return (
            (self.seen.model == workload.model or bool(workload.profile))
            and workload.weight_precision in ("", self.seen.weight_precision)
            and workload.kv_precision in ("", self.seen.kv_precision)
        )

    def same_mix(self, prompt: float | None, answer: float | None, hit_ratio: float) -> bool:
        """Whether it was measured with these mean lengths and hits; unknown ones do not differ."""
        computed_share = 1.0 - hit_ratio
        own_computed_share = 1.0 - (self.seen.prefix_hit_ratio or 0.0)
        return (
            _about_same(prompt, self.seen.prompt_tokens)
            and _about_same(answer, self.seen.answer_tokens)
            and _about_same(computed_share, own_computed_share)
        )

    def pool_shift_ratio(self, llm: LlmSpec | None, scenario: Scenario, catalogues: Catalogues) -> float | None:
        """Share of a GPU's memory by which its KV pool differs from the formula; None where that is not known."""
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


def _about_same(value: float | None, measured_value: float | None) -> bool:
    """Whether two lengths or shares count as the same mix; unknown ones do."""
    if value is None or measured_value is None:
        return True
    return abs(value - measured_value) <= SAME_MIX * max(measured_value, 0.01)


def _setting_of_profile(seen: Observed, llm: LlmSpec, catalogues: Catalogues, dp: int) -> InstanceSetting | None:
    """The setting of a profile; None where its GPU or its lengths are not known. Raises ValueError."""
    if not seen.gpu or seen.prompt_tokens is None or seen.answer_tokens is None:
        return None
    tp, pp = seen.parallel
    mix = Mix(seen.prompt_tokens, seen.answer_tokens, seen.prefix_hit_ratio or 0.0)
    gpus = max(tp * pp, seen.gpus)
    expert_gpus = 0
    if dp > 1 and gpus == tp * dp:
        expert_gpus = gpus
    return InstanceSetting(llm, catalogues.gpus.find(seen.gpu), gpus, tp, mix, expert_gpus, speculation_of(seen))


def speculation_of(seen: Observed | None) -> Speculation:
    """The speculation in a profile. Where the number of drafted tokens is not known, all drafted ones were accepted."""
    if seen is None or seen.tokens_per_step is None or seen.tokens_per_step <= 1.0:
        return NO_SPECULATION
    accepted = seen.tokens_per_step - 1.0
    return Speculation(max(accepted, seen.drafted_per_step or 0.0), accepted)


def interpolate(points: Sequence[tuple[float, float | None]], load: float) -> float | None:
    """The value at a load, linear between points (load, value) by rising load, flat beyond them; None without any."""
    known = []
    below = []
    above = []
    for point_load, value in points:
        if value is not None:
            known.append((point_load, value))
            if point_load <= load:
                below.append((point_load, value))
            if point_load >= load:
                above.append((point_load, value))
    if not known:
        return None
    low_load, low_value = max(below, default=known[0])
    high_load, high_value = min(above, default=known[-1])
    if high_load <= low_load:
        return low_value
    return low_value + (high_value - low_value) * (load - low_load) / (high_load - low_load)


def resolve(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Instance:
    """One instance of `workload` on the GPUs of the servers; `problem` says why there can be none.

    Typed values come before measured ones, these before imported ones, these before formulas.
    """
    goals = {}
    for name in GOAL_NAMES:
        if getattr(workload, name) is None:
            goals[name] = getattr(scenario, name)
    if any(goals.values()):
        workload = msgspec.structs.replace(workload, **goals)
    try:
        check_scenario(scenario)
        seen = _profile(workload, catalogues)
        measured_instance = None
        if seen is not None:
            measured_instance = MeasuredInstance.look_up(seen, catalogues, workload.dp or 1)
        bare = _bare(workload, scenario, catalogues, measured_instance)
        return _with_latency(bare, measured_instance)
    except ValueError as why:
        return Instance(workload, problem=str(why))


def _profile(workload: Workload, catalogues: Catalogues) -> Observed | None:
    """The profile of a workload, its GPU by the catalogue's name; None if it names none and keeps none.

    Raises ValueError for a profile that is not there, or not sound.
    """
    seen = catalogues.profile_of(workload)
    if seen is None:
        if not workload.profile:
            return None
        names = ", ".join(sorted(catalogues.profiles)[:8]) or "none is imported"
        raise ValueError(f"there is no profile {workload.profile[:40]!r}; known: {names}")
    seen = checked_profile(seen)
    name = ""
    if seen.gpu:
        name = catalogues.gpu_name(seen.gpu)
    if name == seen.gpu:
        return seen
    return msgspec.structs.replace(seen, gpu=name)


def _bare(
    workload: Workload, scenario: Scenario, catalogues: Catalogues, measured_instance: MeasuredInstance | None
) -> Instance:
    """The instance without its latencies. Raises ValueError with the reason why there can be none."""
    seen = None
    if measured_instance is not None:
        seen = measured_instance.seen
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
    source = Source.NONE
    if workload.capacity_per_instance:
        source = Source.TYPED
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
        source=source,
    )
    if measured_instance is None:
        return instance
    same_hardware = _has_hardware(measured_instance.seen, gpu, instance.gpus, tp)
    return instance._replace(
        alike=same_hardware and measured_instance.same_model(workload, llm),
        pool_shift_ratio=measured_instance.pool_shift_ratio(llm, scenario, catalogues),
        same_mix=measured_instance.same_mix(prompt, answer, hits),
    )


def _held(
    workload: Workload, seen: Observed | None, prompt: float | None, answer: float | None
) -> TokensInFlight | None:
    """Distribution of the tokens that a request in flight holds, by typed or measured lengths; None if not known."""
    lengths = workload.lengths
    if not lengths and seen is not None:
        lengths = seen.lengths
    if not lengths or not prompt or not answer:
        return None
    return held_of(lengths, prompt, answer)


def _server(scenario: Scenario, seen: Observed | None) -> Server:
    """The server to plan for: the first one given, or else one with the GPUs of the profile. Raises ValueError."""
    if scenario.server:
        return scenario.server[0]
    if seen is None or not seen.gpu:
        raise ValueError("no server is given: choose a GPU type and how many a server has ([[server]] gpu, gpus)")
    return Server(seen.gpu)


def _check_context(workload: Workload, llm: LlmSpec | None) -> None:
    """Raises ValueError for requests that the model's context does not hold."""
    request_tokens = (workload.prompt_tokens or 0.0) + (workload.answer_tokens or 0.0)
    if llm is not None and 0 < llm.max_context < request_tokens:
        raise ValueError(
            f"a request of {request_tokens:,.0f} tokens (prompt and answer) is longer than the model's context of "
            f"{llm.max_context:,}: engines refuse it"
        )


def _typed_or_seen(workload: Workload, seen: Observed | None, name: str) -> float | None:
    """A figure of the workload as typed, or else as measured; None where it is neither."""
    typed_value: float | None = getattr(workload, name)
    if typed_value is not None:
        return typed_value
    measured_value: float | None = getattr(seen, name, None)
    return measured_value


def _has_hardware(seen: Observed, gpu: GpuSpec, gpus: int, tp: int) -> bool:
    """Whether a profile was measured on these GPUs with this TP; facts that were not recorded do not differ."""
    return seen.gpu in ("", gpu.name) and seen.gpus in (0, gpus) and seen.tp in (0, tp)


def _model(workload: Workload, seen: Observed | None, catalogues: Catalogues) -> LlmSpec | None:
    """Dimensions of the model at the precisions that are typed, or else measured; None where they are not known.

    Raises ValueError for an unknown precision.
    """
    weights = workload.weight_precision
    cache = workload.kv_precision
    if seen is not None:
        weights = weights or seen.weight_precision
        cache = cache or seen.kv_precision
    for name in filter(None, (weights, cache)):
        if name not in memory.WEIGHTS:
            raise ValueError(f"unknown precision {name[:20]!r}: one of {', '.join(memory.WEIGHTS)}")
    base = catalogues.llm(workload.model)
    if base is None:
        return None
    return memory.variant(catalogues.llms, workload.model, base, weights, cache)


def _gpu(server: Server, catalogues: Catalogues) -> GpuSpec:
    """The type of the server's GPUs. Raises ValueError where their memory is not known."""
    gpu = catalogues.gpus.find(server.gpu)
    if gpu.memory_bytes <= 0.0:
        raise ValueError(f"the memory of {gpu.name} is not known: memory_gb in a [[gpu]] table of the config tells it")
    return gpu


def _parallel(
    workload: Workload, seen: Observed | None, llm: LlmSpec | None, gpu: GpuSpec, server: Server, scenario: Scenario,
    context: float,
) -> tuple[int, int, tuple[int, ...]]:  # fmt: skip
    """TP and PP, and all TPs that hold the model, among which the plan searches.

    They are typed, or measured, or else the smallest TP that holds the model; on another GPU the measured TP stays
    unless that GPU holds too little. `context`: tokens of a request. Raises ValueError where no TP holds the model, or
    where engines refuse the typed one.
    """
    dp = workload.dp or 1
    _check_ranks(llm, dp)
    pp = workload.pp or _measured_pp(seen, dp)
    measured_tp = _measured_tp(seen, pp, dp)
    fitting: tuple[int, ...] | str = ()
    if llm is not None and workload.memory_gb is None and workload.capacity_per_instance is None:
        room = _room(gpu, server, scenario)
        startup = memory.startup_of(gpu, _engine(workload, seen))
        fitting = _fitting_tps(llm, room, startup, context, _pool_to_hold(seen, measured_tp), pp, dp)
        if workload.tp:
            _check_even(llm, workload.tp, measured_tp)
    on_its_gpu = seen is not None and seen.gpu in ("", gpu.name)
    tp = workload.tp or _tp(measured_tp, fitting, on_its_gpu=on_its_gpu)
    if isinstance(fitting, str):
        return tp, pp, ()
    return tp, pp, fitting


def _pool_to_hold(seen: Observed | None, measured_tp: int) -> float | None:
    """Tokens of a measured KV pool, if it is not known on how many GPUs it lies: they have to hold it. Else None."""
    if seen is None or measured_tp:
        return None
    return seen.kv_pool_tokens


def _check_ranks(llm: LlmSpec | None, dp: int) -> None:
    """Raises ValueError for data-parallel ranks of a model that has nothing to share among them."""
    if dp == 1 or (llm is not None and llm.experts):
        return
    reason = "nobody knows of this model"
    if llm is not None:
        reason = "this model has none of"
    raise ValueError(f"DP {dp}: data-parallel ranks share experts, which {reason}; ask for more instances")


def _room(gpu: GpuSpec, server: Server, scenario: Scenario) -> _Room:
    """Memory for an instance in a server of these GPUs."""
    domain = min(server.nvlink_gpus or server.gpus, server.gpus)
    return _Room(gpu.memory_bytes, domain, scenario.usable_memory_ratio)


def _tp(measured_tp: int, fitting: tuple[int, ...] | str, *, on_its_gpu: bool) -> int:
    """The measured TP, unless it holds too little on another GPU; else the smallest that holds the model.

    Raises ValueError where none does: `fitting` is the reason then.
    """
    if measured_tp and on_its_gpu:
        return measured_tp
    if isinstance(fitting, str):
        raise ValueError(fitting)
    if not fitting:
        return max(measured_tp, 1)
    return max(measured_tp, fitting[0])


def _measured_pp(seen: Observed | None, dp: int) -> int:
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


def _measured_tp(seen: Observed | None, pp: int, dp: int) -> int:
    """TP of a profile; 0 where it is not known, or was measured without these data-parallel ranks."""
    if seen is None:
        return 0
    tp = seen.tp
    if not tp and seen.gpus:
        tp = max(1, seen.gpus // pp)
    if dp > 1 and seen.gpus != tp * dp:
        return 0
    return tp


def _fitting_tps(
    llm: LlmSpec, room: _Room, startup: memory.Startup, context: float, pool: float | None, pp: int, dp: int
) -> tuple[int, ...] | str:
    """The TPs that hold the model with a KV pool of `pool` tokens, or, if that is None, with one request of `context`
    tokens; or the reason why none does."""
    if pool:
        holding = memory.tensor_parallels(llm, *room, pool, pp, startup=startup)
        if holding and not isinstance(holding, str):
            return holding
    return memory.tensor_parallels(llm, *room, context / KV_SHARE, pp, dp, startup)


def _check_even(llm: LlmSpec, tp: int, measured_tp: int) -> None:
    """Raises ValueError where engines refuse to split the model so. A measured TP works."""
    if tp == measured_tp:
        return
    problem = memory.tp_problem(llm, tp)
    if problem:
        raise ValueError(problem)


def _same_size(llm: LlmSpec, other: LlmSpec) -> bool:
    return all(getattr(llm, name) == getattr(other, name) for name in _DIMENSIONS)


class _FittedLatencies(NamedTuple):
    """Latencies of the measured instance, fitted to the points of its profile."""

    itl: Fitted | str
    """A text: why there is no fit."""
    ttft: TtftLine | None
    itl_tail: Tail
    ttft_tail: Tail


@lru_cache(maxsize=256)
def _fit_latencies(seen: Observed, roof: Curve | None, floor_s: float, formula: TtftLine | None) -> _FittedLatencies:
    """Fit the latencies of a profile.

    It is cached, as each keystroke asks about the same profile: that takes 1 ms with 64 points, more for a MoE.
    """
    itl = fit(seen.points, roof=roof, floor_s=floor_s, least_buckets=_LEAST_BUCKETS[seen.origin])
    ttft = calibrated_ttft(formula, seen.points)
    itl_samples = _samples((point.running, point.itl_s, point.itl_p95_s) for point in seen.points)
    below_knee = points_below_knee(seen.points)
    ttft_samples = _samples((point.running, point.ttft_s, point.ttft_p95_s) for point in below_knee)
    curve = None
    if not isinstance(itl, str):
        curve = itl.curve
    return _FittedLatencies(
        itl=itl,
        ttft=ttft,
        itl_tail=tail_of(itl_samples, curve, seen.itl_tail_ratio),
        ttft_tail=tail_of(ttft_samples, ttft, seen.ttft_tail_ratio),
    )


def _samples(figures: Iterable[tuple[float, float | None, float | None]]) -> list[LatencySample]:
    """Samples of the points that have both a mean and a p95."""
    samples = []
    for running, mean_s, p95_s in figures:
        if mean_s and p95_s:
            samples.append(LatencySample(running, mean_s, p95_s))
    return samples


def _with_latency(bare: Instance, measured_instance: MeasuredInstance | None) -> Instance:
    """The instance with its latencies from the first source there is: a fit of it, a re-scaled fit, the roofline."""
    workload = bare.workload
    measured_setting = None
    measured_engine = ""
    if measured_instance is not None:
        measured_setting = measured_instance.setting
        measured_engine = engine_of(measured_instance.seen.tool)
    formula = _ttft_formula(measured_engine, measured_setting)
    latencies = None
    ttft = None
    ttft_tail = Tail()
    instance = bare
    if bare.seen is not None:
        roof = _or_none(roofline, measured_setting)
        latencies = _fit_latencies(bare.seen, roof, _least_itl_s(measured_setting), formula)
        ttft = latencies.ttft
        ttft_tail = latencies.ttft_tail
        if bare.seen.points:
            instance = _by_fit(bare, bare.seen, latencies.itl, measured_setting)
    if instance.curve is None and bare.setting is not None:
        instance = _by_roofline(instance, bare.setting)
    if workload.capacity_per_instance:
        instance = instance._replace(source=Source.TYPED, band=NO_BAND)
    instance = instance._replace(
        itl_tail=_itl_tail(workload.itl_tail_ratio, latencies),
        first=_first_token(bare, ttft, formula),
        ttft_tail=ttft_tail,
        prefill_tokens_per_s=workload.prefill_tokens_per_s or _or_none(prefill_tokens_per_s, bare.setting),
    )
    return _with_honest_bands(instance)


def _least_itl_s(setting: InstanceSetting | None) -> float:
    """The least ITL that a fit may have: a share of the time that its weights take to read; 0 if that is not known."""
    return _LEAST_ITL_RATIO * (_or_none(weight_read_s, setting) or 0.0)


def _by_roofline(instance: Instance, setting: InstanceSetting) -> Instance:
    """The instance with the curve of the roofline; with a note where a figure for that is lacking."""
    kind = "itl"
    if setting.expert_gpus:
        kind = "itl dp"
    try:
        band = band_of(kind, setting.tp, bool(setting.llm.experts))
        return instance._replace(curve=roofline(setting), source=Source.ROOFLINE, band=band)
    except ValueError as wrong:
        return instance._replace(notes=(*instance.notes, f"no roofline: {wrong}"))


def _itl_tail(typed_ratio: float | None, latencies: _FittedLatencies | None) -> Tail:
    """p95 / mean of the ITL: typed, or else as the measured points have it."""
    if typed_ratio is not None:
        return Tail(typed_ratio or 1.0, known=True)
    if latencies is not None:
        return latencies.itl_tail
    return Tail()


COMPUTED: Final = "aiconfigurator"
"""Tool whose sweeps are computed, not measured."""


def _with_honest_bands(instance: Instance) -> Instance:
    """The instance without error bands, and with notes, where these are those of servers unlike it."""
    notes = []
    if instance.speculation != speculation_of(instance.seen) and instance.curve is not None:
        notes.append(_speculation_note(instance))
    unlike = _unlike_measured(instance)
    if unlike and instance.source in (Source.ROOFLINE, Source.RESCALED):
        notes.append(f"ITL without an error band: estimate by roofline, {unlike}")
    band = instance.band
    if notes:
        band = NO_BAND
    first = instance.first
    if unlike and not first.decides:
        first = first._replace(band=NO_BAND)
    if band and _is_computed(instance):
        band = NO_BAND
        notes.append(f"without an error band: {COMPUTED} computes its figures, nobody measured them")
    return instance._replace(band=band, first=first, notes=(*instance.notes, *notes))


def _unlike_measured(instance: Instance) -> str:
    """Why the errors of the reference servers say nothing about this one; empty where they do."""
    if instance.gpu is None:
        return ""
    llm = instance.llm
    indexed = llm is not None and llm.attention_layers(Reach.INDEX) > 0
    return unmeasured_reason(instance.gpu.architecture, instance.pp, instance.dp, instance.tp, indexed)


def _is_computed(instance: Instance) -> bool:
    """Whether its latencies stand on a sweep that was computed."""
    seen = instance.seen
    return seen is not None and COMPUTED in seen.tool.lower() and instance.source is not Source.TYPED


def _speculation_note(instance: Instance) -> str:
    """The note on the ITL of a speculation that was not measured."""
    speculation = instance.speculation
    if speculation == NO_SPECULATION:
        return "without speculation: not measured, estimate by roofline"
    kept = f"{speculation.accepted:g} of {speculation.tokens:g} drafted tokens kept"
    return f"speculation ({kept}) not measured: estimate by roofline, without the time of the drafter"


def _by_fit(bare: Instance, seen: Observed, fitted: Fitted | str, measured_setting: InstanceSetting | None) -> Instance:
    """The instance with the fit of a profile, re-scaled if it was measured elsewhere.

    Without a curve, and with a note, where there is no fit, or it cannot be re-scaled.
    """
    if isinstance(fitted, str):
        return bare._replace(notes=(fitted,))
    if bare.alike and bare.same_mix and bare.speculation == speculation_of(seen):
        return _by_own_fit(bare, seen, fitted, measured_setting)
    origin = f"{seen.gpus or 1}x {seen.gpu or 'unknown GPU'}"
    return _by_rescaled_fit(bare, origin, fitted, measured_setting)


def _by_rescaled_fit(bare: Instance, origin: str, fitted: Fitted, measured_setting: InstanceSetting | None) -> Instance:
    """The instance with a fit from other hardware (`origin`) or other lengths, re-scaled by the roofline."""
    setting = bare.setting
    if measured_setting is None or setting is None:
        note = f"measured on {origin}, which cannot be re-scaled: dimensions or lengths are unknown"
        return bare._replace(notes=(note,))
    try:
        curve = rescale(fitted.curve, measured_setting, setting, fitted.high)
    except ValueError as wrong:
        return bare._replace(notes=(f"not re-scaled: {wrong}",))
    own_fit = None
    if bare.alike:
        own_fit = fitted
    return bare._replace(
        curve=curve,
        fitted=own_fit,
        source=Source.RESCALED,
        band=_rescaled_band(fitted.band, measured_setting, setting),
        notes=(f"re-scaled from {origin}: the same ratio to the roofline as measured there",),
    )


def _by_own_fit(bare: Instance, seen: Observed, fitted: Fitted, measured_setting: InstanceSetting | None) -> Instance:
    """The instance with the fit of the same server and mix of lengths."""
    setting = bare.setting
    curve = fitted.curve
    if measured_setting is not None and setting is not None and measured_setting != setting:
        # Re-scaled to lengths a little off, too: else the answer had a step where they count as another mix.
        try:
            curve = rescale(fitted.curve, measured_setting, setting, fitted.high)
        except ValueError:
            curve = fitted.curve
    notes = list[str]()
    if not seen.gpu:
        gpu = "what is planned with"
        if bare.gpu is not None:
            gpu = bare.gpu.name
        notes.append(f"the GPU that it ran on is not known: assumed to be {gpu}")
    source = Source.SWEEP
    if seen.origin is Origin.LIVE:
        source = Source.MEASURED
    return bare._replace(curve=curve, fitted=fitted, source=source, band=fitted.band, notes=tuple(notes))


def _rescaled_band(band: Band, measured_setting: InstanceSetting, setting: InstanceSetting) -> Band:
    """The errors of a fit, joined with those of each step from the measured server to the planned one."""
    measured_llm = measured_setting.llm
    measured_precisions = (measured_llm.precision, measured_llm.kv_precision)
    differs = {
        "itl": not _same_size(measured_llm, setting.llm),
        "gpu": measured_setting.gpu.name != setting.gpu.name,
        "precision": measured_precisions != (setting.llm.precision, setting.llm.kv_precision),
        "tp": measured_setting.tp != setting.tp,
        "mix": measured_setting.mix != setting.mix,
    }
    for step, is_other in differs.items():
        if is_other:
            band = band.union(band_of(step, 1, bool(setting.llm.experts)))
    return band


def _first_token(bare: Instance, fitted_line: TtftLine | None, formula: TtftLine | None) -> FirstToken:
    """TTFT over the requests in flight, from the best source: typed, measured, re-scaled, a formula.

    `fitted_line` and `formula` are those of the measured instance.
    """
    seen = bare.seen
    engine = _engine(bare.workload, seen)
    rate = bare.workload.prefill_tokens_per_s
    if rate is not None and bare.prompt_tokens is not None:
        return _typed_first_token(bare, bare.prompt_tokens, rate, engine)
    line = _ttft_formula(engine, bare.setting)
    if seen is None:
        return estimated(line, bare.setting, engine)
    if _is_measured_here(bare, seen, engine) and (bare.same_mix or formula is None):
        return measured(line, seen.points, bare.setting, engine)
    if line is None or formula is None or fitted_line is None:
        return estimated(line, bare.setting, engine)
    usual = _usual_running(seen)
    moved = fitted_line.scaled(line.ttft_s(usual) / formula.ttft_s(usual))
    return _moved_first_token(bare, moved, measured(formula, seen.points, bare.setting, engine), engine)


def _moved_first_token(bare: Instance, moved: TtftLine, own: FirstToken, engine: str) -> FirstToken:
    """TTFT of a line that was re-scaled from the measured server, whose TTFT is `own`.

    It decides about a goal if the lengths alone differ.
    """
    if not bare.alike or not own.decides or bare.setting is None:
        return estimated(moved, bare.setting, engine, "re-scaled from what was measured elsewhere")
    band = own.band.union(band_of("mix", 1, bool(bare.setting.llm.experts)))
    return FirstToken(moved, band, decides=True, basis=f"{own.basis}, re-scaled to these lengths")


def _typed_first_token(bare: Instance, prompt_tokens: float, rate: float, engine: str) -> FirstToken:
    """TTFT by a typed prefill rate in tokens/s of one stage: a prompt passes the stages one after the other."""
    new_tokens = prompt_tokens * (1.0 - bare.hit_ratio)
    beside_s = 0.0
    if bare.setting is not None:
        beside_s = layers_s(bare.setting)
    prompt = Prompt(new_tokens, new_tokens / rate * bare.pp, beside_s)
    return typed(ttft_line_of(prompt, engine))


def _is_measured_here(bare: Instance, seen: Observed, engine: str) -> bool:
    """Whether a profile was measured on this very instance and engine."""
    return bare.alike and engine == engine_of(seen.tool)


def _usual_running(seen: Observed) -> float:
    """Median of the running sequences over the points of a profile; 1 where it has none."""
    if not seen.points:
        return 1.0
    return median(point.running for point in seen.points)


def _engine(workload: Workload, seen: Observed | None) -> str:
    """The engine that is sized: typed, or else that of the profile; empty where neither is known."""
    if workload.engine or seen is None:
        return workload.engine
    return engine_of(seen.tool)


def _ttft_formula(engine: str, setting: InstanceSetting | None) -> TtftLine | None:
    """TTFT of an engine from dimensions alone; None where something is not known."""
    return _or_none(lambda known: ttft_line(known, engine), setting)


def _or_none(formula: Callable[[InstanceSetting], T], setting: InstanceSetting | None) -> T | None:
    """Result of a formula; None without a setting, or where a figure of it is lacking."""
    if setting is None:
        return None
    try:
        return formula(setting)
    except ValueError:
        return None
