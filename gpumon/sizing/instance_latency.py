"""Latencies of an instance, each from the best source: typed, a fit of what it did, a re-scaled fit, the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.sizing.accuracy import NO_BAND, NOT_MEASURED, Band, band_of
from gpumon.sizing.answer import Source
from gpumon.sizing.first_token import (
    FirstToken,
    engine_of,
    estimated_first_token,
    measured_first_token,
)
from gpumon.sizing.fit import Fitted, LatencySample, bound_by_points, calibrated_ttft, fit, points_below_knee, tail_of
from gpumon.sizing.instance import Instance, engine_to_size
from gpumon.sizing.interpolated import Interpolated
from gpumon.sizing.latency import NO_SPECULATION, Curve, Tail, TtftLine
from gpumon.sizing.measured_instance import MeasuredInstance, same_size, speculation_of
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.reference_classes import itl_figure, unknown_generation, unlike_reference
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

T = TypeVar("T")

_LEAST_ITL_RATIO: Final = 0.5
"""Share of the time to read the weights at the peak bandwidth that no ITL is below."""
LEAST_BUCKETS: Final = {Origin.LIVE: 5, Origin.SWEEP: 2, Origin.TABLE: 2}
"""Load levels that a fit needs: those of a running engine are noisier than those of a load test."""
_TWO_LOADS: Final = 2
"""Load levels that a line needs at least."""
_MOST_UNLIKE: Final = 4.0
"""Times that a server of the planned type is slower or faster than its roofline at most: of 2,351 reference rows 98 of
100 lie between 0.62 and 2.2 times it, 998 of 1,000 between 0.32 and 6.6."""
_COMPUTED: Final = "aiconfigurator"
"""Tool whose sweeps are computed, not measured."""


class _FittedLatencies(NamedTuple):
    """Latencies of the measured instance, fitted to the points of its profile."""

    itl: Fitted | str
    """A text: why there is no fit."""
    ttft: TtftLine | None
    tpot_tail: Tail
    itl_tail: Tail
    ttft_tail: Tail


class _Measured(NamedTuple):
    """The measured server of an instance's profile, as latencies are taken over from it."""

    setting: InstanceSetting | None
    """As the formulas take it; None where something of it is not known, or there is no profile."""
    ttft_formula: TtftLine | None
    """Its TTFT from dimensions alone; None where something is not known."""
    fitted: _FittedLatencies | None
    """None without a profile."""


def with_latencies(bare: Instance, measured_instance: MeasuredInstance | None) -> Instance:
    """The instance with its latencies from the first source there is: a fit of it, a re-scaled fit, the roofline.

    `bare`: the instance without latencies. `measured_instance`: the one that its profile is of, if it has a profile.
    """
    workload = bare.workload
    measured = _measured_of(bare.seen, measured_instance)
    instance = _with_curve(bare, measured)
    if workload.capacity_per_instance:  # it decides, in place of the curve
        instance = instance._replace(source=Source.TYPED, band=NO_BAND)
    tpot_tail = Tail()
    ttft_tail = Tail()
    if measured.fitted is not None:
        tpot_tail = measured.fitted.tpot_tail
        ttft_tail = measured.fitted.ttft_tail
    instance = instance._replace(
        tpot_tail=tpot_tail,
        itl_tail=_itl_tail(workload.itl_tail_ratio, measured.fitted),
        first=_first_token_of(bare, measured),
        ttft_tail=ttft_tail,
        prefill_tokens_per_s=workload.prefill_tokens_per_s or _or_none(prefill_tokens_per_s, bare.setting),
    )
    return _with_honest_bands(instance)


def _measured_of(seen: Observed | None, measured_instance: MeasuredInstance | None) -> _Measured:
    """The server that a profile is of, with the fits of that profile; all of it None without one."""
    setting = None
    engine = ""
    if measured_instance is not None:
        setting = measured_instance.setting
        engine = engine_of(measured_instance.seen.tool)
    formula = _ttft_formula(engine, setting)
    fitted = None
    if seen is not None:
        least_itl_s = _LEAST_ITL_RATIO * (_or_none(weight_read_s, setting) or 0.0)
        fitted = _fit_latencies(seen, _or_none(roofline, setting), least_itl_s, formula)
    return _Measured(setting, formula, fitted)


def _with_curve(bare: Instance, measured: _Measured) -> Instance:
    """The instance with the curve of its ITL: that of the profile, or else of the roofline, if there is either."""
    instance = bare
    if bare.seen is not None and bare.seen.points and measured.fitted is not None:
        instance = _with_fit(bare, bare.seen, measured.fitted.itl, measured.setting)
    if bare.setting is None:
        return instance
    other_server = _why_other_server(bare.seen, bare.setting)
    if other_server:
        return instance._replace(notes=(*instance.notes, other_server))
    if instance.curve is None:
        instance = _with_roofline(instance, bare.setting)
    return instance


def _why_other_server(seen: Observed | None, setting: InstanceSetting) -> str:
    """Why a profile of a server that nobody knows is none of the GPU that is planned with; empty where it may be.

    Its points are several times as slow as the roofline of that GPU, or as fast: a CPU's, most likely.
    """
    roof = _or_none(roofline, setting)
    if seen is None or seen.gpu or roof is None:
        return ""
    for point in seen.points:
        if not point.itl_s or not 0.0 < point.running < math.inf:
            continue
        times = point.itl_s / roof.itl_s(max(1.0, point.running))
        if not 1.0 / _MOST_UNLIKE <= times <= _MOST_UNLIKE:
            return (
                f"the server of {seen.name} is not known, and no {setting.gpu.name}: {point.itl_s * 1e3:,.3g} ms at "
                f"{point.running:.3g} running is {times:,.3g} times what such a GPU takes, so that no figure of one "
                "stands for it"
            )
    return ""


@lru_cache(maxsize=256)
def _fit_latencies(seen: Observed, roof: Curve | None, floor_s: float, formula: TtftLine | None) -> _FittedLatencies:
    """Fit the latencies of a profile.

    It is cached, as each keystroke asks about the same profile: that takes 1 ms with 64 points, more for a MoE.
    """
    is_live = seen.origin is Origin.LIVE
    # Without a roofline, nothing but the points tells how the latency rises.
    least_buckets = _TWO_LOADS if roof is None else LEAST_BUCKETS[seen.origin]
    itl = fit(seen.points, roof=roof, floor_s=floor_s, least_buckets=least_buckets, noisy=is_live)
    if isinstance(itl, str) and roof is None and not seen.gpu:
        itl = bound_by_points(seen.points) or itl
    ttft = calibrated_ttft(formula, seen.points)
    tpot_samples = _samples((point.running, point.itl_s, point.tpot_p95_s) for point in seen.points)
    itl_samples = _samples((point.running, point.itl_s, point.itl_p95_s) for point in seen.points)
    below_knee = points_below_knee(seen.points)
    ttft_samples = _samples((point.running, point.ttft_s, point.ttft_p95_s) for point in below_knee)
    line = None
    if not isinstance(itl, str):
        itl = msgspec.structs.replace(itl, line=_within_throughput(itl.line, seen))
        line = itl.line
    return _FittedLatencies(
        itl=itl,
        ttft=ttft,
        tpot_tail=tail_of(tpot_samples, line, seen.tpot_tail_ratio),
        itl_tail=tail_of(itl_samples, line, seen.itl_tail_ratio),
        ttft_tail=tail_of(ttft_samples, ttft, seen.ttft_tail_ratio),
    )


def _within_throughput(line: Interpolated, seen: Observed) -> Interpolated:
    """The line, of a load test with the throughput that it measured at most: a running engine shows what it was sent,
    not how far it can go."""
    most = 0.0
    if seen.origin is not Origin.LIVE:
        most = max((point.tokens_per_s or 0.0 for point in seen.points), default=0.0)
    if most <= 0.0:
        return line
    return msgspec.structs.replace(line, most_tokens_per_s=most)


def _samples(figures: Iterable[tuple[float, float | None, float | None]]) -> list[LatencySample]:
    """Samples of the points that have both a mean and a p95."""
    return [LatencySample(running, mean_s, p95_s) for running, mean_s, p95_s in figures if mean_s and p95_s]


def _itl_tail(typed_ratio: float | None, fitted: _FittedLatencies | None) -> Tail:
    """p95 / mean of the ITL: typed, or else as the measured points have it."""
    if typed_ratio is not None:
        return Tail(typed_ratio or 1.0, known=True)
    if fitted is not None:
        return fitted.itl_tail
    return Tail()


def _with_fit(
    bare: Instance, seen: Observed, fitted: Fitted | str, measured_setting: InstanceSetting | None
) -> Instance:
    """The instance with the fit of a profile, re-scaled if it was measured elsewhere.

    Without a curve, and with a note, where there is no fit, or it cannot be re-scaled.
    """
    if isinstance(fitted, str):
        return bare._replace(notes=(fitted,))
    if bare.alike and bare.same_mix and bare.speculation == speculation_of(seen):
        return _with_own_fit(bare, seen, fitted, measured_setting)
    origin = f"{seen.gpus or 1}x {seen.gpu or 'unknown GPU'}"
    return _with_rescaled_fit(bare, origin, fitted, measured_setting)


def _with_own_fit(bare: Instance, seen: Observed, fitted: Fitted, measured_setting: InstanceSetting | None) -> Instance:
    """The instance with the fit of the same server and mix of lengths."""
    setting = bare.setting
    line = fitted.line
    if measured_setting is not None and setting is not None and measured_setting != setting:
        # Re-scaled to lengths a little off, too: else the answer had a step where they count as another mix.
        try:
            line = _rescaled_line(fitted, measured_setting, setting)
        except ValueError:
            line = fitted.line
    notes = list[str]()
    if not seen.gpu:
        gpu = bare.gpu.name if bare.gpu is not None else "what is planned with"
        notes.append(f"the GPU that it ran on is not known: assumed to be {gpu}")
    source = Source.MEASURED if seen.origin is Origin.LIVE else Source.SWEEP
    return bare._replace(curve=line, fitted=fitted, source=source, band=fitted.band, notes=tuple(notes))


def _rescaled_line(fitted: Fitted, measured_setting: InstanceSetting, setting: InstanceSetting) -> Interpolated:
    """The line of a fit under another setting. Raises ValueError where the fit cannot be re-scaled."""
    return fitted.line.moved(rescale(fitted.curve, measured_setting, setting, fitted.high))


def _with_rescaled_fit(
    bare: Instance, origin: str, fitted: Fitted, measured_setting: InstanceSetting | None
) -> Instance:
    """The instance with a fit from other hardware (`origin`) or other lengths, re-scaled by the roofline."""
    setting = bare.setting
    if measured_setting is None or setting is None:
        note = f"measured on {origin}, which cannot be re-scaled: dimensions or lengths are unknown"
        return bare._replace(notes=(note,))
    try:
        line = _rescaled_line(fitted, measured_setting, setting)
    except ValueError as wrong:
        return bare._replace(notes=(f"not re-scaled: {wrong}",))
    own_fit = None
    if bare.alike:
        own_fit = fitted
    else:  # other GPUs may go further than the throughput that was measured
        line = msgspec.structs.replace(line, most_tokens_per_s=math.inf)
    return bare._replace(
        curve=line,
        fitted=own_fit,
        source=Source.RESCALED,
        band=_rescaled_band(fitted.band, measured_setting, setting),
        notes=(f"re-scaled from {origin}: the same ratio to the roofline as measured there",),
    )


def _rescaled_band(band: Band, measured_setting: InstanceSetting, setting: InstanceSetting) -> Band:
    """The errors of a fit, joined with those of each step from the measured server to the planned one."""
    measured_llm = measured_setting.llm
    measured_precisions = (measured_llm.precision, measured_llm.kv_precision)
    differs = {
        "itl": not same_size(measured_llm, setting.llm),
        "gpu": measured_setting.gpu.name != setting.gpu.name,
        "precision": measured_precisions != (setting.llm.precision, setting.llm.kv_precision),
        "tp": measured_setting.tp != setting.tp,
        "mix": measured_setting.mix != setting.mix,
    }
    for step, is_other in differs.items():
        if is_other:
            band = band.union(band_of(step, 1, bool(setting.llm.experts)))
    return band


def _with_roofline(instance: Instance, setting: InstanceSetting) -> Instance:
    """The instance with the curve of the roofline; with a note where a figure for that is lacking."""
    try:
        band = band_of(itl_figure(setting), setting.tp, bool(setting.llm.experts))
        return instance._replace(curve=roofline(setting), source=Source.ROOFLINE, band=band)
    except ValueError as wrong:
        return instance._replace(notes=(*instance.notes, f"no roofline: {wrong}"))


def _with_honest_bands(instance: Instance) -> Instance:
    """The instance without error bands, and with a note why, where they say nothing about it.

    They are the errors of servers unlike it, of a speculation that was not measured, or of figures that were computed.
    """
    notes = []
    if instance.speculation != speculation_of(instance.seen) and instance.curve is not None:
        notes.append(_speculation_note(instance))
    unlike = _unlike_measured(instance)
    if unlike and instance.source in (Source.ROOFLINE, Source.RESCALED):
        notes.append(f"ITL {NOT_MEASURED}: estimate by roofline, {unlike}")
    band = NO_BAND if notes else instance.band
    first = instance.first
    if unlike and not first.decides:
        first = first._replace(band=NO_BAND)
    if band and _is_computed(instance):
        band = NO_BAND
        notes.append(f"without an error band: {_COMPUTED} computes its figures, nobody measured them")
    return instance._replace(band=band, first=first, notes=(*instance.notes, *notes))


def _unlike_measured(instance: Instance) -> str:
    """Why the errors of the reference servers say nothing about this one; empty where they do."""
    if instance.gpu is None:
        return ""
    if instance.setting is None:
        return unknown_generation(instance.gpu.architecture)
    try:
        return unlike_reference(instance.setting)
    except ValueError as wrong:  # no link joins its GPUs
        return str(wrong)


def _is_computed(instance: Instance) -> bool:
    """Whether its latencies stand on a sweep that was computed."""
    seen = instance.seen
    return seen is not None and _COMPUTED in seen.tool.lower() and instance.source is not Source.TYPED


def _speculation_note(instance: Instance) -> str:
    """The note on the ITL of a speculation that was not measured."""
    speculation = instance.speculation
    if speculation == NO_SPECULATION:
        return "without speculation: not measured, estimate by roofline"
    kept = f"{speculation.accepted:g} of {speculation.tokens:g} drafted tokens kept"
    return f"speculation ({kept}) not measured: estimate by roofline, with a drafter of one layer"


def _first_token_of(bare: Instance, measured: _Measured) -> FirstToken:
    """TTFT over the requests in flight, from the best source: typed, measured, re-scaled, a formula."""
    seen = bare.seen
    engine = engine_to_size(bare.workload, seen)
    typed_tokens_per_s = bare.workload.prefill_tokens_per_s
    if typed_tokens_per_s is not None and bare.prompt_tokens is not None:
        new_tokens = bare.prompt_tokens * (1.0 - bare.hit_ratio)
        fixed_s = layers_s(bare.setting) if bare.setting is not None else 0.0
        # The rate is that of one stage: a prompt passes the stages one after the other.
        prompt = Prompt(new_tokens, alone_s=new_tokens / typed_tokens_per_s * bare.pp, layers_s=fixed_s)
        return FirstToken(ttft_line_of(prompt, engine), NO_BAND, decides=True, basis="typed prompt tokens/s")
    if seen is not None and bare.setting is not None and _why_other_server(seen, bare.setting):
        # No formula of a GPU is near what another server takes: its own points tell, or nothing does.
        return measured_first_token(None, seen.points, None, engine)
    if seen is None or measured.fitted is None:
        return estimated_first_token(_ttft_formula(engine, bare.setting), bare.setting, engine)
    return _first_token_by_profile(bare, seen, measured, measured.fitted.ttft)


def _first_token_by_profile(
    bare: Instance, seen: Observed, measured: _Measured, fitted_line: TtftLine | None
) -> FirstToken:
    """TTFT by what was measured: of the instance itself, or re-scaled; a formula where it cannot be re-scaled."""
    engine = engine_to_size(bare.workload, seen)
    line = _ttft_formula(engine, bare.setting)
    formula = measured.ttft_formula
    # Without a formula of the measured server, nothing can be re-scaled to other lengths.
    if bare.alike and engine == engine_of(seen.tool) and (bare.same_mix or formula is None):
        return measured_first_token(line, seen.points, bare.setting, engine)
    if line is None or formula is None or fitted_line is None:
        return estimated_first_token(line, bare.setting, engine)
    usual_running = median(point.running for point in seen.points) if seen.points else 1.0
    scale = line.ttft_s(usual_running) / formula.ttft_s(usual_running)
    measured_first = measured_first_token(formula, seen.points, bare.setting, engine)
    return _rescaled_first_token(bare, fitted_line.scaled(scale), measured_first, engine)


def _rescaled_first_token(
    bare: Instance, rescaled_line: TtftLine, measured_first: FirstToken, engine: str
) -> FirstToken:
    """TTFT of a line that was re-scaled from that of the measured server.

    It decides about a goal if the lengths alone differ.
    """
    if not bare.alike or not measured_first.decides or bare.setting is None:
        return estimated_first_token(rescaled_line, bare.setting, engine, "re-scaled from what was measured elsewhere")
    band = measured_first.band.union(band_of("mix", 1, bool(bare.setting.llm.experts)))
    basis = f"{measured_first.basis}, re-scaled to these lengths"
    return FirstToken(rescaled_line, band, decides=True, basis=basis)


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
