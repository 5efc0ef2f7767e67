"""An engine's poll, window and peaks to the `Engine` that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpumon.efficiency.engine import (
    Peak,
    Rates,
    Shares,
    Work,
    kv_precision,
    no_model,
    plus,
    pool_tokens,
    rates,
    shares,
    work,
)
from gpumon.efficiency.operation import operation
from gpumon.efficiency.provenance import Spans, engine_sources
from gpumon.efficiency.quantiles import quantiles
from gpumon.efficiency.windows import GAP, Track
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    E2E,
    ITL,
    KV_USAGE,
    PREEMPTIONS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    QUEUE,
    REQUESTS,
    RUNNING,
    TTFT,
    WAITING,
)
from gpumon.readings.snapshot import Engine, Quantiles, TokensTotal
from gpumon.readings.text import clean

TRANSIENT = frozenset({EndpointState.TIMEOUT, EndpointState.HTTP_ERROR, EndpointState.ERROR})
"""States in which the last figures stand until they are stale: one slow answer is no outage."""
SHORTEST_STALE_S = 3.0
"""An engine that is polled more often than it can answer is not stale for that."""
NO_QUANTILES = tuple(Quantiles.__struct_fields__)


_LATENCIES = {"ttft_s": TTFT, "itl_s": ITL, "queue_s": QUEUE, "e2e_s": E2E}


class Figures(NamedTuple):
    """What one poll and the window that it ends give, whatever the GPUs do."""

    found: Rates
    latencies: dict[str, Any]
    """`Quantiles` by field of `Engine`."""
    operation: dict[str, Any]
    """Concurrency, its ITL and the lengths of requests by field of `Engine`."""


class EngineTrack(Track):
    """A window with the figures of its newest poll: an engine is polled less often than the GPUs are."""

    def __init__(self) -> None:
        super().__init__()
        self._reading: EngineReading | None = None
        self._figures: Figures | None = None

    def figures(self, reading: EngineReading) -> Figures:
        """Rates and latencies up to `reading`, the last one added."""
        if self._figures is None or reading != self._reading:
            latencies = {field: _latency(self, quantity) for field, quantity in _LATENCIES.items()}
            found = rates(reading, self)
            self._reading = reading
            self._figures = Figures(found, latencies, operation(reading, self, found.tokens_per_step))
        return self._figures


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
    age_s = max(0.0, now_s - reading.monotonic_s) if track.points else 0.0
    gone = _gone(reading, age_s)
    if gone is not None or not track.points:
        reason = gone if gone is not None else Missing(Reason.WARMING_UP)
        return without_figures(reading, track, age_s, indices, reason, since), None
    ranks = len(track.points[-1].ranks)
    count = len(indices) or reading.gpu_count
    tp = count // ranks if count and count % ranks == 0 else 0
    found = track.figures(reading).found
    done = work(reading, found, tp)
    share = shares(reading, done, peaks)
    identity = _identity(reading, age_s, indices, since)
    return _with_figures(reading, track, identity, tp, done, share, peaks, power_w), found


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
        "fault": clean(reading.fault),
        "version": clean(reading.version, 32),
        "model": clean(reading.model),
        "model_source": clean(reading.llm.source) if reading.llm is not None else "",
        "gpus": indices,
        "gpus_source": clean(reading.gpus_source),
        "gpu_type": clean(reading.gpu_type),
        "since": since,
        "gpu_count": float(count) if count else Missing(Reason.NO_GPU),
        "params": unknown if llm is None else llm.params,
        "active_params": unknown if llm is None else llm.matmul_params,
        "layers": unknown if llm is None else float(llm.layers),
        "weight_precision": "" if llm is None else llm.precision.value,
        "kv_precision": "" if llm is None else (kv_precision(reading) or llm.kv_precision).value,
        "llm": llm,
    }


def without_figures(
    reading: EngineReading, track: Track, age_s: float, indices: tuple[int, ...], why: Missing, since: str = ""
) -> Engine:
    """The engine with what is known of it all the same, and one reason for every figure."""
    blank: dict[str, Any] = dict.fromkeys(_READINGS, why)
    latencies = dict.fromkeys(_LATENCIES, Quantiles(*(why for _ in NO_QUANTILES)))
    return Engine(**{**blank, **_identity(reading, age_s, indices, since), **latencies}, tokens_total=_totals(track))


def _with_figures(
    reading: EngineReading,
    track: EngineTrack,
    identity: dict[str, Any],
    tp: int,
    done: Work,
    share: Shares,
    peaks: Sequence[Peak],
    power_w: Reading,
) -> Engine:
    found, latencies, operated = track.figures(reading)
    flops_per_s = plus(done.prefill_flops, done.decode_flops)
    return Engine(
        **identity,
        tp=tp,
        running=track.gauge(RUNNING),
        waiting=track.gauge(WAITING),
        kv_usage_ratio=track.gauge_mean(KV_USAGE),
        prefill_tokens_per_s=found.prefill,
        decode_tokens_per_s=found.decode,
        cached_tokens_per_s=found.cached,
        requests_per_s=track.rate(REQUESTS, track.rate_s),
        steps_per_s=found.steps,
        context_tokens=found.context,
        **latencies,
        preemptions_per_s=track.rate(PREEMPTIONS, track.rate_s),
        tokens_total=_totals(track),
        mfu_ratio=share.mfu,
        mfu_prefill_ratio=share.mfu_prefill,
        mfu_decode_ratio=share.mfu_decode,
        mbu_ratio=share.mbu,
        mbu_single_stream_ratio=share.mbu_single_stream,
        flops_per_s=flops_per_s,
        bytes_per_s=done.bytes,
        tokens_per_j=per(found.decode, power_w),
        flops_per_j=per(flops_per_s, power_w),
        peak_unverified=share.unverified,
        bandwidth_peak_unverified=share.bandwidth_unverified,
        precision=share.precision,
        sources=_sources(reading, found, share, peaks),
        power_w=power_w,
        kv_pool_tokens=pool_tokens(reading, track),
        **operated,
        **_inputs(found, done, share),
    )


def _inputs(found: Rates, done: Work, share: Shares) -> dict[str, Any]:
    """What MFU and MBU were worked out from."""
    return {
        "flops_per_decode_token": done.flops_per_decode_token,
        "prefill_flops_per_s": done.prefill_flops,
        "decode_flops_per_s": done.decode_flops,
        "peak_flops_per_s": share.flops_peak,
        "batch": _per_step(per(found.decode, found.tokens_per_step), found),
        "weight_bytes": _per_step(done.weight_bytes, found),
        "kv_bytes_per_token": done.kv_bytes_per_token,
        "weight_bytes_per_s": done.weight_bytes,
        "kv_bytes_per_s": minus(done.bytes, done.weight_bytes),
        "peak_bandwidth_bytes_per_s": share.bandwidth_peak,
    }


def _latency(track: Track, quantity: str) -> Quantiles:
    window = track.histogram(quantity, track.quantile_s)
    if window is None and track.has_histogram(quantity):
        return Quantiles(*(track.not_yet for _ in NO_QUANTILES))
    return quantiles(window)


def per(part: Reading, whole: Reading) -> Reading:
    """`part / whole`; the first of the two that is missing, `invalid` where the whole is not above zero."""
    if isinstance(part, Missing):
        return part
    if isinstance(whole, Missing):
        return whole
    return part / whole if whole > 0 else Missing(Reason.INVALID)


def _per_step(per_s: Reading, found: Rates) -> Reading:
    return Missing(Reason.IDLE) if found.steps == 0.0 or found.decode == 0.0 else per(per_s, found.steps)


def minus(whole: Reading, part: Reading) -> Reading:
    """`whole - part`, at least 0; the first of the two that is missing."""
    if isinstance(whole, Missing):
        return whole
    return part if isinstance(part, Missing) else max(0.0, whole - part)


def _totals(track: Track) -> TokensTotal:
    return TokensTotal(
        *(track.totals.get(name, NOT_EXPOSED) for name in (PREFILL_COMPUTED, PREFILL_CACHED, DECODE_TOKENS))
    )


def _sources(reading: EngineReading, found: Rates, share: Shares, peaks: Sequence[Peak]) -> dict[str, str]:
    """Field -> the metric or formula behind it, for the detail view and `--json`."""
    known = (
        ("model", _model_source(reading)),
        ("gpus", reading.gpus_source),
        ("steps_per_s", found.steps_source),
        ("context_tokens", found.context_source),
    )
    peak_sources = (
        _joined(peak.spec.source for peak in peaks if peak.spec is not None),
        _joined(peak.bandwidth_source for peak in peaks),
    )
    modelled = reading.llm is not None
    live = tuple(reading.live.items())
    spans_s = Spans(*(max(1, round(span_s)) for span_s in (found.rate_s, found.prefill_s, found.quantile_s)))
    return engine_sources(live, spans_s, known, share.precision, peak_sources, modelled=modelled)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _model_source(reading: EngineReading) -> str:
    """Where the model's dimensions come from and what they leave out; or what is missing, in one line."""
    if reading.llm is None:
        why = reading.info.get("model_missing", "").split("\n")[0].split(". Add to")[0]
        return f"{why}: `gpumon doctor` prints the config lines to add" if why else ""
    left_out = ", ".join(reading.llm.not_modelled)
    return f"{reading.llm.source}; not modelled: {left_out}" if left_out else reading.llm.source


_READINGS = frozenset(
    name
    for name, default in zip(
        Engine.__struct_fields__[-len(Engine.__struct_defaults__) :], Engine.__struct_defaults__, strict=True
    )
    if isinstance(default, Missing)
)
