"""One instance of a workload: its model, GPUs, lengths and latencies, each from the best source there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.sizing import memory
from gpumon.sizing.accuracy import NO_BAND, Band, band_of
from gpumon.sizing.answer import Source
from gpumon.sizing.fit import Fitted, below_knee, calibrated, fit
from gpumon.sizing.latency import Curve, Mix, Sample, Tail, TtftLine, mean_at_goal, response_s, tail_of
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.roofline import (
    Setting,
    layers_s,
    line_of,
    prefill_slope_s,
    prefill_tokens_per_s,
    rescale,
    roofline,
    speculative,
    ttft_line,
    weight_read_s,
)
from gpumon.sizing.scenario import Known, Scenario, Server, Workload, check, check_scenario, sound
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
            return response_s(ttft_s, itl_s, self.answer_tokens)
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


T = TypeVar("T")

ALIKE: Final = 0.1
"""Lengths that differ by at most this share are one mix."""
_FLOOR: Final = 0.5
"""Of the time that the weights take at the peak bandwidth: no ITL is less (sizing fact sheet, 1.4)."""
_DIMENSIONS: Final = (
    "params", "matmul_params", "vocab", "hidden", "layers", "attention", "states", "experts", "experts_per_token",
)  # fmt: skip
_FROM_POINTS: Final = (Source.MEASURED, Source.SWEEP, Source.RESCALED)
_SPECULATES: Final = 1.05
"""Tokens per step from which an engine that was seen is taken to draft."""
_LEAST_BUCKETS: Final = {Origin.LIVE: 5, Origin.SWEEP: 3, Origin.TABLE: 3}


def with_latency(bare: Instance, known: Known) -> Instance:
    """The ladder of the latency: fitted here, re-scaled, roofline; then what speculative decoding makes of it."""
    was = _seen_setting(bare.seen, known) if bare.seen is not None else None
    found = _measured(bare, was)
    if found.curve is None and bare.setting is not None:
        found = _roofline(bare.setting, found.notes)
    curve, notes = found.curve, list(found.notes)
    if curve is not None:
        curve, note = _speculating(bare, curve, seen=found.source in _FROM_POINTS)
        notes += [note] if note else []
    if bare.workload.capacity_per_instance:
        found = found._replace(source=Source.TYPED, band=NO_BAND)
    return bare._replace(
        curve=curve,
        fitted=found.fitted,
        source=found.source,
        band=found.band,
        ttft=_ttft(bare, was),
        itl_tail=_itl_tail(bare, was),
        ttft_tail=_ttft_tail(bare, was),
        prefill_tokens_per_s=bare.workload.prefill_tokens_per_s or _or_none(prefill_tokens_per_s, bare.setting),
        notes=tuple(notes),
    )


def _speculating(bare: Instance, curve: Curve, *, seen: bool) -> tuple[Curve, str]:
    """The curve with the speculative decoding that was typed, and a note; what was `seen` with it has it already."""
    typed = bare.workload.tokens_per_step
    if typed is None or typed <= 1.0:
        return curve, ""
    had = (bare.seen.tokens_per_step or 1.0) if seen and bare.seen is not None else 1.0
    prompts_s = _or_none(prefill_slope_s, bare.setting) or 0.0
    if had < _SPECULATES:
        drafted = speculative(curve, typed, bare.workload.draft_ratio or 0.0, prefill_slope_s=prompts_s)
        return drafted, f"speculative decoding as typed: {typed:g} tokens a step"
    if typed <= had:
        return curve, f"speculative decoding is in what was seen: {had:.2g} tokens a step, typed {typed:g}"
    more = speculative(curve, typed / had, 0.0, prefill_slope_s=prompts_s)
    return more, f"speculative decoding as typed: {typed:g} tokens a step, of which {had:.2g} are in what was seen"


class _Latency(NamedTuple):
    curve: Curve | None
    fitted: Fitted | None
    source: Source
    band: Band
    notes: tuple[str, ...]


def _measured(bare: Instance, was: Setting | None) -> _Latency:
    """The fit of what was seen, moved to what is wanted; without a curve where either can not be done."""
    seen, wanted = bare.seen, bare.setting
    if seen is None or not seen.points:
        return _Latency(None, None, Source.NONE, NO_BAND, ())
    found = _fitted(seen, was)
    if isinstance(found, str):
        return _Latency(None, None, Source.NONE, NO_BAND, (found,))
    if bare.alike and bare.same_mix:
        source = Source.MEASURED if seen.origin is Origin.LIVE else Source.SWEEP
        notes = () if seen.gpu else (f"the GPU it was seen on is not known: taken to be {_name(bare)}",)
        return _Latency(_moved(found, was, wanted), found, source, found.band, notes)
    if was is None or wanted is None:
        note = f"measured on {_of(seen)}, which can not be re-scaled: dimensions or lengths are unknown"
        return _Latency(None, None, Source.NONE, NO_BAND, (note,))
    note = f"re-scaled from {_of(seen)}: as far from the roofline as it was there"
    try:
        curve = rescale(found.curve, was, wanted, found.high)
    except ValueError as wrong:
        return _Latency(None, None, Source.NONE, NO_BAND, (f"not re-scaled: {wrong}",))
    band = found.band
    for what in _differences(was, wanted):
        band = band.joined(band_of(what, 1, bool(wanted.llm.experts)))
    return _Latency(curve, found if bare.alike else None, Source.RESCALED, band, (note,))


def _differences(was: Setting, wanted: Setting) -> Iterator[str]:
    """Figures of `bands.band_of` for what differs between two settings; of another model the roofline's."""
    if not same_dimensions(was.llm, wanted.llm):
        yield "itl"
    if was.gpu.name != wanted.gpu.name:
        yield "gpu"
    if (was.llm.precision, was.llm.kv_precision) != (wanted.llm.precision, wanted.llm.kv_precision):
        yield "precision"
    if was.tp != wanted.tp:
        yield "tp"
    if was.mix != wanted.mix:
        yield "mix"


def _moved(found: Fitted, was: Setting | None, wanted: Setting | None) -> Curve:
    """The curve at lengths a little off those that were seen, so that the answer has no step where they count as
    others; itself where that can not be told."""
    if was is None or wanted is None or was == wanted:
        return found.curve
    try:
        return rescale(found.curve, was, wanted, found.high)
    except ValueError:
        return found.curve


def _roofline(setting: Setting, notes: tuple[str, ...]) -> _Latency:
    try:
        curve = roofline(setting)
    except ValueError as wrong:
        return _Latency(None, None, Source.NONE, NO_BAND, (*notes, f"no roofline: {wrong}"))
    return _Latency(curve, None, Source.ROOFLINE, band_of("itl", setting.tp, bool(setting.llm.experts)), notes)


def _ttft(bare: Instance, was: Setting | None) -> TtftLine | None:
    """TTFT over the requests in flight: from dimensions, moved as far as what was seen was off; else what was seen."""
    points = bare.seen.points if bare.seen is not None else ()
    typed, setting = bare.workload.prefill_tokens_per_s, bare.setting
    line, seen = _line(bare.seen, setting), _line(bare.seen, was)
    if typed is not None and bare.prompt_tokens is not None:
        # A prompt passes the stages one after the other.
        alone_s = bare.prompt_tokens * (1.0 - bare.hit_ratio) / typed * bare.pp
        return line_of(alone_s, layers_s(setting) if setting is not None else 0.0)
    own = bare.alike and (bare.same_mix or seen is None)
    if own:
        return calibrated(line, points)
    learnt = calibrated(seen, points)
    if line is None or seen is None or learnt is None:
        return line
    usual = median(point.running for point in points) if points else 1.0
    return learnt.scaled(line.ttft_s(usual) / seen.ttft_s(usual))


def _line(seen: Observed | None, setting: Setting | None) -> TtftLine | None:
    """From dimensions alone, for the engine that was seen; None where something is not known."""
    engine = seen.tool.split(" ", 1)[0].lower() if seen is not None and seen.tool else ""
    try:
        return ttft_line(setting, engine) if setting is not None else None
    except ValueError:
        return None


def _itl_tail(bare: Instance, was: Setting | None) -> Tail:
    """p95 / mean of the ITL: typed, else by load as it was seen beside the mean that was fitted."""
    typed, seen = bare.workload.itl_tail_ratio, bare.seen
    if typed is not None or seen is None:
        return Tail(typed or 1.0, typed is not None)
    samples = [
        Sample(each.running, each.itl_s, each.itl_p95_s) for each in seen.points if each.itl_s and each.itl_p95_s
    ]
    found = _fitted(seen, was) if seen.points else ""
    return tail_of(samples, None if isinstance(found, str) else found.curve.itl_s, seen.itl_tail_ratio)


def _ttft_tail(bare: Instance, was: Setting | None) -> Tail:
    """The same of the TTFT, of loads that did not wait for admission."""
    seen = bare.seen
    if seen is None:
        return Tail()
    points = [each for each in seen.points if each.ttft_s and below_knee(each)]
    if not points:
        return tail_of((), None, seen.ttft_tail_ratio)
    samples = [Sample(each.running, each.ttft_s, each.ttft_p95_s) for each in points if each.ttft_s and each.ttft_p95_s]
    line = calibrated(_line(seen, was), seen.points)
    return tail_of(samples, line.ttft_s if line is not None else None, seen.ttft_tail_ratio)


def _or_none(formula: Callable[[Setting], T], setting: Setting | None) -> T | None:
    """What the formula gives; None where it lacks a figure."""
    try:
        return formula(setting) if setting is not None else None
    except ValueError:
        return None


def same_mix(bare: Instance, seen: Observed) -> bool:
    """Whether the lengths are those that were seen; what is not known does not differ."""
    pairs = (
        (bare.prompt_tokens, seen.prompt_tokens),
        (bare.answer_tokens, seen.answer_tokens),
        (1.0 - bare.hit_ratio, 1.0 - (seen.prefix_hit_ratio or 0.0)),
    )
    return all(now is None or was is None or abs(now - was) <= ALIKE * max(was, 0.01) for now, was in pairs)


def named(seen: Observed, known: Known) -> Observed:
    """With the catalogue's own name of its GPU, where it has one: other names of it are the same GPU."""
    try:
        name = known.gpus.find(seen.gpu).name if seen.gpu else ""
    except ValueError:
        return seen
    return seen if name == seen.gpu else msgspec.structs.replace(seen, gpu=name)


def seen_llm(seen: Observed, known: Known) -> LlmSpec | None:
    """The model that was seen at its precisions; None where they are not known."""
    base = known.llm(seen.model)
    try:
        return base and memory.variant(known.llms, seen.model, base, seen.weight_precision, seen.kv_precision)
    except ValueError:
        return None


def same_dimensions(one: LlmSpec, other: LlmSpec) -> bool:
    """Whether two models cost the same but for their precisions, whatever they are called."""
    return all(getattr(one, name) == getattr(other, name) for name in _DIMENSIONS)


def _seen_setting(seen: Observed, known: Known) -> Setting | None:
    """Where the points come from; None where something of it is not known."""
    llm = seen_llm(seen, known)
    if llm is None or not seen.gpu or seen.prompt_tokens is None or seen.answer_tokens is None:
        return None
    try:
        gpu = known.gpus.find(seen.gpu)
        mix = Mix(seen.prompt_tokens, seen.answer_tokens, seen.prefix_hit_ratio or 0.0)
        tp, pp = seen.parallel
        return Setting(llm, gpu, max(tp * pp, seen.gpus), tp, mix)
    except ValueError:
        return None


def _fitted(seen: Observed, was: Setting | None) -> Fitted | str:
    reads_s = _or_none(weight_read_s, was)
    return _fit(seen.points, _or_none(roofline, was), _FLOOR * (reads_s or 0.0), _LEAST_BUCKETS[seen.origin])


@lru_cache(maxsize=256)
def _fit(points: tuple[Point, ...], roof: Curve | None, floor_s: float, least: int) -> Fitted | str:
    """The same points are asked about at every keystroke."""
    return fit(points, roof=roof, floor_s=floor_s, least_buckets=least)


def _name(bare: Instance) -> str:
    return bare.gpu.name if bare.gpu is not None else "what is planned with"


def _of(seen: Observed) -> str:
    return f"{seen.gpus or 1}x {seen.gpu or 'unknown GPU'}"
