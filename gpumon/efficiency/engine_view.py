"""An engine's poll, window and peaks to the `Engine` that is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpumon.efficiency.engine import DENOISES, Peak, Shares, Work, assumes, kv_precision, no_model, shares, work
from gpumon.efficiency.engine_track import ALL_LATENCIES, EngineTrack, Shown
from gpumon.efficiency.layout import Layout, layout
from gpumon.efficiency.lengths import pool_tokens
from gpumon.efficiency.own import has_own, own_estimate
from gpumon.efficiency.provenance import Spans, engine_sources
from gpumon.efficiency.quantiles import no_quantiles
from gpumon.efficiency.rates import Rates
from gpumon.efficiency.service import BY_NATURE, WITHOUT_DECODE, Service, service_of
from gpumon.efficiency.windows import GAP, Track
from gpumon.readings.engine_snapshot import flat_fields, nested
from gpumon.readings.frame import SLEEPING, EndpointState, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, REMOTE_POWER, Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    KV_USAGE,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    ROUTER_QUEUE,
    RUNNING,
    SAMPLES,
    TRAINED_TOKENS,
    WAITING,
    WAITING_DEFERRED,
)
from gpumon.readings.snapshot import Engine, OwnEstimate, TokensTotal
from gpumon.readings.text import MOST_FAULT, clean

TRANSIENT = frozenset({EndpointState.TIMEOUT, EndpointState.HTTP_ERROR, EndpointState.ERROR})
"""States in which the last figures stand until they are stale: one slow answer is no outage."""
SHORTEST_STALE_S = 3.0
"""An engine that is polled more often than it can answer is not stale for that."""


def derive_engine(
    reading: EngineReading,
    track: EngineTrack,
    now_s: float,
    peaks: Sequence[Peak],
    indices: tuple[int, ...],
    power_w: Reading,
    since: str = "",
) -> tuple[Engine, Rates | None]:
    """The shown engine; with its rates, unless it is unreachable or stale. `since` dates its state."""
    age_s = max(0.0, now_s - reading.monotonic_s) if track.last_s > -math.inf else 0.0
    gone = _gone(reading, age_s)
    if gone is not None or not track.points:
        reason = gone if gone is not None else Missing(Reason.WARMING_UP)
        return without_figures(reading, track, age_s, indices, reason, since), None
    shown, made_of = track.shown, (peaks, indices, since)
    if shown is None or shown.reading is not reading or shown.made_of != made_of:
        laid = layout(reading, len(track.points[-1].ranks), len(indices) or reading.gpu_count)
        figures = track.figures(reading, laid)
        if shown is None or shown.figures is not figures or shown.made_of != made_of:
            engine = _with_figures(reading, track, _identity(reading, age_s, indices, since), laid, peaks)
        else:
            engine = shown.engine
        shown = track.shown = Shown(reading, figures, made_of, engine)
    return _at(shown.engine, shown.figures.found, age_s, power_w), shown.figures.found


def _at(engine: Engine, found: Rates, age_s: float, power_w: Reading) -> Engine:
    """The engine between two polls: what its GPUs draw goes on to change."""
    tokens = found.counted["trained_tokens_per_s"] if found.service is Service.TRAINING else found.decode
    replace = msgspec.structs.replace
    efficiency = replace(
        engine.efficiency,
        tokens_per_j=_per_joule(tokens, power_w),
        flops_per_j=_per_joule(engine.efficiency.flops_per_s, power_w),
    )
    hardware = replace(engine.hardware, power_w=power_w)
    return replace(engine, age_s=age_s, hardware=hardware, efficiency=efficiency)


def _gone(reading: EngineReading, age_s: float) -> Missing | None:
    if reading.state not in TRANSIENT and reading.state is not EndpointState.OK:
        return Missing(Reason.UNREACHABLE)
    longest_s = max(GAP * reading.interval_s, SHORTEST_STALE_S) + reading.latency_s
    return Missing(Reason.STALE) if age_s > longest_s else None


def _identity(reading: EngineReading, age_s: float, indices: tuple[int, ...], since: str) -> dict[str, Any]:
    """What is known of it whether it answers or not."""
    llm, count = reading.llm, len(indices) or reading.gpu_count
    unknown = no_model(reading)
    return {
        "name": clean(reading.name),
        "kind": reading.kind,
        "phase": reading.phase,
        "url": clean(reading.url),
        "state": reading.state,
        "age_s": age_s,
        "fault": clean(reading.fault, MOST_FAULT),
        "version": clean(reading.version, 32),
        "model": clean(reading.model),
        "model_source": clean(reading.llm.source) if reading.llm is not None else "",
        "gpus": indices,
        "gpus_source": clean(reading.gpus_source),
        "gpu_type": clean(reading.gpu_type),
        "since": since,
        "asleep": clean(reading.info.get(SLEEPING, "")),
        "gpu_count": float(count) if count else Missing(Reason.NO_GPU),
        "params": unknown if llm is None else llm.params,
        "active_params": unknown if llm is None else llm.matmul_params,
        "layers": unknown if llm is None else float(llm.layers),
        "part": clean(reading.part),
        "found_by": reading.found_by,
        "from_documentation": reading.from_documentation,
        "weight_precision": "" if llm is None else llm.precision.value,
        "kv_precision": "" if llm is None else (kv_precision(reading) or llm.kv_precision).value,
        "llm": llm,
    }


def without_figures(
    reading: EngineReading, track: Track, age_s: float, indices: tuple[int, ...], why: Missing, since: str = ""
) -> Engine:
    """The engine with what is known of it all the same, and one reason for every figure."""
    blank: dict[str, Any] = dict.fromkeys(_READINGS, why)
    latencies = dict.fromkeys(ALL_LATENCIES, no_quantiles(why))
    blanks: dict[str, Any] = dict.fromkeys(_OWN_READINGS, why)
    own = OwnEstimate(**blanks)
    known = _identity(reading, age_s, indices, since)
    return nested(Engine, {**blank, **known, **latencies, "tokens_total": _totals(reading, track), "own": own})


def _with_figures(
    reading: EngineReading, track: EngineTrack, identity: dict[str, Any], laid: Layout, peaks: Sequence[Peak]
) -> Engine:
    found, latencies, operated = track.figures(reading, laid)
    done = work(reading, found, laid.tp)
    share = shares(reading, done, peaks)
    # llama.cpp is asked for its sleep once a minute: tokens tell sooner that it is over.
    awake = any(number(rate) for rate in (found.prefill, found.decode))
    identity = {**identity, "asleep": ""} if awake else identity
    more: dict[str, Any] = {**found.counted, **latencies, **operated, **_inputs(found, done, share)}
    figures: dict[str, Any] = {
        **identity,
        **counted(reading, track),
        "tp": laid.tp,
        "pp": laid.pp,
        "prefill_tokens_per_s": found.prefill,
        "decode_tokens_per_s": found.decode,
        "cached_tokens_per_s": found.cached,
        "steps_per_s": found.steps,
        "context_tokens": found.context,
        "mfu_ratio": share.mfu,
        "mfu_prefill_ratio": share.mfu_prefill,
        "mfu_decode_ratio": share.mfu_decode,
        "mbu_ratio": share.mbu,
        "mbu_single_stream_ratio": share.mbu_single_stream,
        "flops_per_s": done.flops,
        "bytes_per_s": done.bytes,
        "peak_unverified": share.unverified,
        "bandwidth_peak_unverified": share.bandwidth_unverified,
        "precision": share.precision,
        "sources": _sources(reading, found, share, peaks),
        "advances": found.advances,
        "kv_pool_tokens": pool_tokens(reading, track),
        "own": own_estimate(reading, track, found, laid, done) if has_own(track) else _NO_OWN,
        **more,
    }
    return nested(Engine, figures)


def _inputs(found: Rates, done: Work, share: Shares) -> dict[str, Any]:
    """What MFU and MBU were worked out from."""
    return {
        "flops_per_decode_token": done.flops_per_decode_token,
        "prefill_flops_per_s": done.prefill_flops,
        "decode_flops_per_s": done.decode_flops,
        "peak_flops_per_s": share.flops_peak,
        "batch": DENOISES if done.bytes == DENOISES else _per_step(per(found.decode, found.tokens_per_step), found),
        "weight_bytes": _per_step(done.weight_bytes, found),
        "kv_bytes_per_token": done.kv_bytes_per_token,
        "weight_bytes_per_s": done.weight_bytes,
        "kv_bytes_per_s": minus(done.bytes, done.weight_bytes),
        "peak_bandwidth_bytes_per_s": share.bandwidth_peak,
    }


def per(part: Reading, whole: Reading) -> Reading:
    """`part / whole`; the first of the two that is missing, `invalid` where the whole is not above zero."""
    if isinstance(part, Missing):
        return part
    if isinstance(whole, Missing):
        return whole
    return part / whole if whole > 0 else Missing(Reason.INVALID)


def _per_joule(part: Reading, power_w: Reading) -> Reading:
    """`part / power_w`; that nobody reads the power stands before what `part` lacks."""
    return power_w if power_w == REMOTE_POWER and part not in BY_NATURE else per(part, power_w)


def _per_step(per_s: Reading, found: Rates) -> Reading:
    return Missing(Reason.IDLE) if found.steps == 0.0 or found.decode == 0.0 else per(per_s, found.steps)


def minus(whole: Reading, part: Reading) -> Reading:
    """`whole - part`, at least 0; the first of the two that is missing."""
    if isinstance(whole, Missing):
        return whole
    return part if isinstance(part, Missing) else max(0.0, whole - part)


def counted(reading: EngineReading, track: Track) -> dict[str, Any]:
    """What is shown as the newest poll told it: gauges and counts."""
    return {
        "running": track.gauge(RUNNING),
        "waiting": track.gauge(WAITING),
        "waiting_deferred": track.gauge(WAITING_DEFERRED),
        "router_queue": track.gauge(ROUTER_QUEUE),
        "kv_usage_ratio": track.gauge_mean(KV_USAGE),
        "tokens_total": _totals(reading, track),
    }


def _totals(reading: EngineReading, track: Track) -> TokensTotal:
    prefill, cached, decode, trained, samples = (track.totals.get(name, NOT_EXPOSED) for name in _COUNTED)
    return TokensTotal(prefill, cached, WITHOUT_DECODE.get(service_of(reading), decode), trained, samples)


def _sources(reading: EngineReading, found: Rates, share: Shares, peaks: Sequence[Peak]) -> dict[str, str]:
    """Field -> the metric or formula behind it, for the detail view and `--json`."""
    known = (
        ("model", _model_source(reading)),
        ("gpus", reading.gpus_source),
        ("steps_per_s", found.steps_source),
        ("context_tokens", found.context_source),
        *found.named,
    )
    assumed = [_ASSUMED] if any(assumes(peak, reading) for peak in peaks) else []
    peak_sources = (
        _joined([*(peak.spec.source for peak in peaks if peak.spec is not None), *assumed]),
        _joined(peak.bandwidth_source for peak in peaks),
    )
    formulas = found.service if reading.llm is not None or reading.training is not None else None
    live = tuple(reading.live.items())
    spans_s = Spans(*(max(1, round(span_s)) for span_s in (found.rate_s, found.prefill_s, found.quantile_s)))
    return engine_sources(live, spans_s, known, share.precision, peak_sources, formulas)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _model_source(reading: EngineReading) -> str:
    """Where the model's dimensions come from and what they leave out; or what is missing, in one line."""
    if reading.llm is None:
        why = reading.info.get("model_missing", "").split("\n")[0].split(". Add to")[0]
        return f"{why}: `gpumon doctor` prints the config lines to add" if why else ""
    left_out = ", ".join(reading.llm.not_modelled)
    return f"{reading.llm.source}; not modelled: {left_out}" if left_out else reading.llm.source


def _readings(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields that are missing by default."""
    return tuple(name for name, (_, field) in flat_fields(kind).items() if isinstance(field.default, Missing))


_READINGS = _readings(Engine)
_OWN_READINGS = _readings(OwnEstimate)
_COUNTED = (PREFILL_COMPUTED, PREFILL_CACHED, DECODE_TOKENS, TRAINED_TOKENS, SAMPLES)
_NO_OWN = OwnEstimate()
_ASSUMED = "assumed, as nothing tells what activations its MXFP4 weights are multiplied with"
