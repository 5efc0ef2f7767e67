"""The latency of an instance, from the best source there is: fitted here, re-scaled, roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from gpumon.sizing import memory
from gpumon.sizing.answer import Source
from gpumon.sizing.bands import NO_BAND, Band, band_of
from gpumon.sizing.curve import Curve, Mix
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.known import Known
from gpumon.sizing.observed import Observed, Origin, Point
from gpumon.sizing.roofline import (
    Setting,
    layers_s,
    prefill_slope_s,
    prefill_tokens_per_s,
    rescale,
    roofline,
    speculative,
    weight_read_s,
)
from gpumon.sizing.tails import Sample, Tail, tail_of
from gpumon.sizing.ttft import TtftLine, below_knee, calibrated, line_of, ttft_line
from gpumon.specs.llm import LlmSpec

if TYPE_CHECKING:
    from gpumon.sizing.instance import Instance

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
