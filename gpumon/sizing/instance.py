"""One instance of a workload: its model, GPUs, lengths and latencies, each from the best source there is."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.sizing import memory, queueing
from gpumon.sizing.answer import Source
from gpumon.sizing.bands import NO_BAND, Band
from gpumon.sizing.curve import Curve, Mix
from gpumon.sizing.fit import Fitted
from gpumon.sizing.known import Known
from gpumon.sizing.latency import named, same_dimensions, same_mix, seen_llm, with_latency
from gpumon.sizing.observed import Observed, Point
from gpumon.sizing.ranges import check, check_scenario, sound
from gpumon.sizing.roofline import Setting
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.tails import Tail, mean_at_goal
from gpumon.sizing.ttft import TtftLine
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec


class Instance(NamedTuple):
    """What is known of one instance. What is None could not be found; `notes` say what that costs."""

    workload: Workload
    server: Server | None
    gpu: GpuSpec | None
    llm: LlmSpec | None
    seen: Observed | None
    gpus: int
    tp: int
    pp: int
    prompt_tokens: float | None
    answer_tokens: float | None
    hit_ratio: float
    curve: Curve | None
    fitted: Fitted | None
    source: Source
    band: Band
    """Errors of its ITL."""
    ttft: TtftLine | None
    prefill_tokens_per_s: float | None
    itl_tail: Tail
    ttft_tail: Tail
    alike: bool
    """It is what was seen: same model, GPU, parallelism and precision."""
    same_mix: bool = False
    """Its lengths are those that were seen."""
    pool_shift_ratio: float | None = None
    """Share of a GPU's memory by which its KV pool was seen to differ from the formula; None where it was not seen."""
    tps: tuple[int, ...] = ()
    """Tensor-parallel sizes that hold it, inside one NVLink domain; empty where they can not be told."""
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def setting(self) -> Setting | None:
        """For the roofline formulas; None where something of it is not known."""
        if self.llm is None or self.gpu is None or self.mix is None:
            return None
        return Setting(self.llm, self.gpu, self.gpus, self.tp, self.mix)

    @property
    def mix(self) -> Mix | None:
        """Lengths; None where they are not known."""
        if self.prompt_tokens is None or not self.answer_tokens:
            return None
        return Mix(self.prompt_tokens, self.answer_tokens, self.hit_ratio)

    @property
    def itl_tail_ratio(self) -> float:
        """p95 / mean of the ITL where the goal is met, without one where the points lie."""
        mean_s, goal = self.goal_itl_s, self.workload.itl_p95_ms
        return self.itl_tail.ratio if mean_s is None or goal is None else goal / 1e3 / mean_s

    @property
    def goal_itl_s(self) -> float | None:
        """Goal as a mean: that of the load at which p95 comes to it."""
        goal = self.workload.itl_p95_ms
        mean_s = self.curve.itl_s if self.curve is not None else None
        return None if goal is None else mean_at_goal(goal / 1e3, mean_s, self.itl_tail)

    def itl_s(self, running: float) -> float | None:
        """Mean ITL; a mean of fewer than one request is of idle moments, and who decodes then decodes alone."""
        return None if self.curve is None else self.curve.itl_s(max(1.0, running))

    def itl_p95_s(self, running: float) -> float | None:
        """p95 of the ITL; None where its tail is not known."""
        itl_s = self.itl_s(running) if self.itl_tail.known else None
        return None if itl_s is None else itl_s * self.itl_tail.at(running)

    def ttft_p95_s(self, running: float) -> float | None:
        """p95 of the TTFT; None where its tail is not known."""
        if self.ttft is None or not self.ttft_tail.known:
            return None
        return self.ttft.ttft_s(running) * self.ttft_tail.at(running)

    def response_s(self, running: float) -> float | None:
        """Time from request to last token with `running` in flight: TTFT + ITL*(OSL-1), or as it was measured."""
        itl_s = self.itl_s(running)
        if itl_s is not None and self.answer_tokens is not None:
            ttft_s = self.ttft.ttft_s(running) if self.ttft is not None else 0.0
            return queueing.response_s(ttft_s, itl_s, self.answer_tokens)
        own = self.seen is not None and self.alike and self.same_mix
        return _between(self.seen.points if self.seen is not None and own else (), running)


def resolve(workload: Workload, scenario: Scenario, known: Known, shape: int = 0) -> Instance:
    """One instance of `workload` on the GPUs of the `shape`-th server; `problem` says why there can be none.

    Typed values stand above measured ones, these above imported ones, these above formulas.
    """
    workload = _with_goals(workload, scenario)
    try:
        check_scenario(scenario)
        seen = _seen(workload, known)
        server, gpu = _hardware(scenario, seen, known, shape)
        llm = _model(workload, seen, known)
        prompt = _either(workload.prompt_tokens, seen, "prompt_tokens")
        answer = _either(workload.answer_tokens, seen, "answer_tokens")
        context = (prompt or 0.0) + (answer or 0.0)
        _check_context(llm, workload.prompt_tokens, workload.answer_tokens)
        check(workload)
        tp, pp, tps = _parallel(workload, seen, llm, gpu, server, scenario, context)
    except ValueError as why:
        return _impossible(workload, str(why))
    bare = Instance(
        workload=workload,
        server=server,
        gpu=gpu,
        llm=llm,
        seen=seen,
        gpus=tp * pp,
        tp=tp,
        pp=pp,
        prompt_tokens=prompt,
        answer_tokens=answer,
        hit_ratio=_either(workload.prefix_hit_ratio, seen, "prefix_hit_ratio") or 0.0,
        curve=None,
        fitted=None,
        source=Source.TYPED if workload.capacity_per_instance else Source.NONE,
        band=NO_BAND,
        ttft=None,
        prefill_tokens_per_s=None,
        itl_tail=Tail(),
        ttft_tail=Tail(),
        alike=seen is not None and _alike(seen, gpu, tp * pp, tp) and _same_model(seen, workload, llm, known),
        pool_shift_ratio=_pool_shift_ratio(seen, llm, scenario, known) if seen is not None else None,
        tps=tps,
    )
    return with_latency(bare._replace(same_mix=seen is not None and same_mix(bare, seen)), known)


def _seen(workload: Workload, known: Known) -> Observed | None:
    """What was seen, its GPU by the catalogue's name; a profile that is not here may be kept in the scenario.

    ValueError on a profile that is not there, or not sound.
    """
    seen = known.seen(workload)
    if seen is not None or not workload.profile:
        return named(sound(seen), known) if seen is not None else None
    names = ", ".join(sorted(known.profiles)[:8]) or "none is imported"
    raise ValueError(f"there is no profile {workload.profile[:40]!r}; known: {names}")


def _hardware(scenario: Scenario, seen: Observed | None, known: Known, shape: int) -> tuple[Server, GpuSpec]:
    """Server shape and GPU; without a shape in the scenario, eight of the GPUs that were seen."""
    server = scenario.server[shape] if shape < len(scenario.server) else None
    if server is None:
        if seen is None or not seen.gpu:
            raise ValueError("no server is given: choose a GPU type and how many a server has ([[server]] gpu, gpus)")
        server = Server(seen.gpu)
    gpu = known.gpus.find(server.gpu)
    if gpu.memory_bytes <= 0.0:
        raise ValueError(f"the memory of {gpu.name} is not known: memory_gb in a [[gpu]] table of the config tells it")
    return server, gpu


def _model(workload: Workload, seen: Observed | None, known: Known) -> LlmSpec | None:
    """Dimensions of the model at the wanted precisions; typed, else as seen. ValueError on an unknown precision."""
    base = known.llm(workload.model)
    weights = workload.weight_precision or (seen.weight_precision if seen is not None else "")
    cache = workload.kv_precision or (seen.kv_precision if seen is not None else "")
    for name in filter(None, (weights, cache)):
        if name not in memory.WEIGHTS:
            raise ValueError(f"unknown precision {name[:20]!r}: one of {', '.join(memory.WEIGHTS)}")
    if base is None:
        return None
    return memory.variant(known.llms, workload.model, base, weights, cache)


def _parallel(
    workload: Workload,
    seen: Observed | None,
    llm: LlmSpec | None,
    gpu: GpuSpec,
    server: Server,
    scenario: Scenario,
    context: float,
) -> tuple[int, int, tuple[int, ...]]:
    """TP and PP, and the TPs that would do: typed, as seen, else the smallest TP that holds the model (the plan
    searches the others). ValueError where none does, or where engines refuse the typed one.

    On another GPU the TP that was seen stays, unless that one holds too little. Where nobody tells on how many GPUs an
    engine runs, they hold the KV pool that it says it has.
    """
    pp = workload.pp or (seen.parallel[1] if seen is not None else 1)
    was = (seen.tp or max(1, seen.gpus // pp)) if seen is not None and (seen.tp or seen.gpus) else 0
    here = bool(was) and seen is not None and seen.gpu in ("", gpu.name)
    typed = workload.tp or 0
    if llm is None or workload.memory_gb is not None or workload.capacity_per_instance is not None:
        fitting: tuple[int, ...] | str = ()
    else:
        domain = min(server.nvlink_gpus or server.gpus, server.gpus)
        usable = scenario.usable_memory_ratio
        fitting = memory.tensor_parallels(llm, gpu.memory_bytes, domain, usable, context / KV_SHARE, pp)
        pool = seen.kv_pool_tokens or 0.0 if seen is not None and not was else 0.0
        larger = memory.tensor_parallels(llm, gpu.memory_bytes, domain, usable, pool, pp) if pool else ()
        if larger and not isinstance(larger, str):
            fitting = larger
        if typed and typed != was and (refused := memory.uneven(llm, typed)):
            raise ValueError(refused)
    choices = () if isinstance(fitting, str) else fitting
    if typed or here:
        return typed or was, pp, choices
    if isinstance(fitting, str):
        raise ValueError(fitting)
    return max(was, choices[0]) if choices else was or 1, pp, choices


def _check_context(llm: LlmSpec | None, prompt: float | None, answer: float | None) -> None:
    """ValueError where a typed request is longer than the model's context: engines refuse it."""
    asked = (prompt or 0.0) + (answer or 0.0)
    if llm is not None and 0 < llm.max_context < asked:
        raise ValueError(
            f"a request of {asked:,.0f} tokens (prompt and answer) is longer than the model's context of "
            f"{llm.max_context:,}: engines refuse it"
        )


def _alike(seen: Observed, gpu: GpuSpec, gpus: int, tp: int) -> bool:
    """Whether the wanted instance stands on what was seen; what was not recorded does not differ."""
    return seen.gpu in ("", gpu.name) and seen.gpus in (0, gpus) and seen.tp in (0, tp)


def _same_model(seen: Observed, workload: Workload, llm: LlmSpec | None, known: Known) -> bool:
    """Whether dimensions and precisions are those that were seen; of a model not known, its name and what was typed."""
    was = seen_llm(seen, known)
    if llm is not None and was is not None:
        return same_dimensions(llm, was) and (llm.precision, llm.kv_precision) == (was.precision, was.kv_precision)
    return (
        (seen.model == workload.model or bool(workload.profile))
        and workload.weight_precision in ("", seen.weight_precision)
        and workload.kv_precision in ("", seen.kv_precision)
    )


def _pool_shift_ratio(seen: Observed, llm: LlmSpec | None, scenario: Scenario, known: Known) -> float | None:
    was, tokens = seen_llm(seen, known), seen.kv_pool_tokens
    if llm is None or was is None or not tokens or not seen.gpu or not (seen.tp or seen.gpus):
        return None
    if not same_dimensions(llm, was):
        return None
    tp, pp = seen.parallel
    try:
        size = known.gpus.find(seen.gpu).memory_bytes
        return memory.pool_shift_ratio(was, tokens, size, tp * pp, tp, scenario.usable_memory_ratio)
    except ValueError:
        return None


def _either(typed: float | None, seen: Observed | None, name: str) -> float | None:
    if typed is not None or seen is None:
        return typed
    found: float | None = getattr(seen, name)
    return found


def _with_goals(workload: Workload, scenario: Scenario) -> Workload:
    goals = {name: getattr(scenario, name) for name in GOALS if getattr(workload, name) is None}
    return msgspec.structs.replace(workload, **goals) if any(goals.values()) else workload


GOALS: Final = ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms")


def _between(points: tuple[Point, ...], running: float) -> float | None:
    """E2E at `running`, linear between the measured points, flat beyond them."""
    known = [(point.running, point.e2e_s) for point in points if point.e2e_s is not None]
    if not known:
        return None
    before = max((pair for pair in known if pair[0] <= running), default=known[0])
    after = min((pair for pair in known if pair[0] >= running), default=known[-1])
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (running - before[0]) / (after[0] - before[0])


def _impossible(workload: Workload, problem: str) -> Instance:
    return Instance(
        workload, None, None, None, None, 0, 0, 0, None, None, 0.0, None, None, Source.NONE, NO_BAND, None, None,
        Tail(), Tail(), alike=False, problem=problem,
    )  # fmt: skip
