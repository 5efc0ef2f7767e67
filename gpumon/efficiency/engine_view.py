"""An engine's poll, window and peaks to the `Engine` that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.efficiency.engine import QUANTILE_S, RATE_S, Peak, Rates, Shares, Work, plus, rates, shares, work
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


def derive_engine(
    reading: EngineReading,
    track: Track,
    now_s: float,
    peaks: Sequence[Peak],
    indices: tuple[int, ...],
    power_w: Reading,
) -> tuple[Engine, Rates | None]:
    """The shown engine; with its rates, unless it is unreachable or stale."""
    age_s = max(0.0, now_s - reading.monotonic_s) if track.points else 0.0
    gone = _gone(reading, age_s)
    if gone is not None or not track.points:
        reason = gone if gone is not None else Missing(Reason.WARMING_UP)
        return without_figures(reading, track, age_s, indices, reason), None
    ranks = len(track.points[-1].ranks)
    count = len(indices) or reading.gpu_count
    tp = count // ranks if count and count % ranks == 0 else 0
    found = rates(reading, track)
    done = work(reading, found, tp)
    share = shares(reading.llm, done, peaks)
    return _with_figures(reading, track, age_s, indices, tp, found, done, share, power_w), found


def _gone(reading: EngineReading, age_s: float) -> Missing | None:
    if reading.state not in TRANSIENT and reading.state is not EndpointState.OK:
        return Missing(Reason.UNREACHABLE)
    longest_s = max(GAP * reading.interval_s, SHORTEST_STALE_S) + reading.latency_s
    return Missing(Reason.STALE) if age_s > longest_s else None


def _identity(reading: EngineReading, age_s: float, indices: tuple[int, ...]) -> dict[str, object]:
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
    }


def without_figures(
    reading: EngineReading, track: Track, age_s: float, indices: tuple[int, ...], why: Missing
) -> Engine:
    blank = {name: why for name in Engine.__struct_fields__ if name in _READINGS}
    latencies = {name: Quantiles(*(why for _ in NO_QUANTILES)) for name in ("ttft_s", "itl_s", "queue_s", "e2e_s")}
    return Engine(**_identity(reading, age_s, indices), **blank, **latencies, tokens_total=_totals(track))  # type: ignore[arg-type]


def _with_figures(
    reading: EngineReading,
    track: Track,
    age_s: float,
    indices: tuple[int, ...],
    tp: int,
    found: Rates,
    done: Work,
    share: Shares,
    power_w: Reading,
) -> Engine:
    flops_per_s = plus(done.prefill_flops, done.decode_flops)
    return Engine(
        **_identity(reading, age_s, indices),  # type: ignore[arg-type]
        tp=tp,
        running=track.gauge(RUNNING),
        waiting=track.gauge(WAITING),
        kv_usage_ratio=track.gauge_mean(KV_USAGE),
        prefill_tokens_per_s=found.prefill,
        decode_tokens_per_s=found.decode,
        cached_tokens_per_s=found.cached,
        requests_per_s=track.rate(REQUESTS, RATE_S),
        steps_per_s=found.steps,
        context_tokens=found.context,
        ttft_s=_latency(track, TTFT),
        itl_s=_latency(track, ITL),
        queue_s=_latency(track, QUEUE),
        e2e_s=_latency(track, E2E),
        preemptions_per_s=track.rate(PREEMPTIONS, RATE_S),
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
        sources=_sources(reading, found, share),
    )


def _latency(track: Track, quantity: str) -> Quantiles:
    window = track.histogram(quantity, QUANTILE_S)
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


def _totals(track: Track) -> TokensTotal:
    return TokensTotal(
        *(track.totals.get(name, NOT_EXPOSED) for name in (PREFILL_COMPUTED, PREFILL_CACHED, DECODE_TOKENS))
    )


def _sources(reading: EngineReading, found: Rates, share: Shares) -> dict[str, str]:
    """Field -> the metric or formula behind it, for the detail view and `--json`."""
    live = reading.live
    smoothed = f"over {found.prefill_s:.0f} s, smoothed: a whole prompt is booked at its first token"
    named = {
        "model": _model_source(reading),
        "gpus": reading.gpus_source,
        "running": live.get(RUNNING, ""),
        "waiting": live.get(WAITING, ""),
        "kv_usage_ratio": live.get(KV_USAGE, ""),
        "prefill_tokens_per_s": _joined(live.get(PREFILL_COMPUTED), smoothed),
        "cached_tokens_per_s": _joined(live.get(PREFILL_CACHED), smoothed),
        "decode_tokens_per_s": _joined(live.get(DECODE_TOKENS), f"over {RATE_S:.0f} s"),
        "steps_per_s": found.steps_source,
        "context_tokens": found.context_source,
        "ttft_s": _joined(live.get(TTFT), f"buckets of the last {QUANTILE_S:.0f} s"),
        "itl_s": _joined(live.get(ITL), f"buckets of the last {QUANTILE_S:.0f} s"),
        "queue_s": _joined(live.get(QUEUE), f"buckets of the last {QUANTILE_S:.0f} s"),
        "e2e_s": _joined(live.get(E2E), f"buckets of the last {QUANTILE_S:.0f} s"),
        "mfu_ratio": "(prefill FLOPs + decode FLOPs) / (GPUs x dense peak)" if share.precision else "",
        "mbu_ratio": "(steps/s x weights + tokens/s x KV) / (GPUs x peak bandwidth)" if share.precision else "",
    }
    return {field: clean(text) for field, text in named.items() if text}


def _model_source(reading: EngineReading) -> str:
    """Where the model's dimensions come from and what they leave out; or what is missing, in one line."""
    if reading.llm is None:
        why = reading.info.get("model_missing", "").split("\n")[0].split(". Add to")[0]
        return f"{why}: `gpumon doctor` prints the config lines to add" if why else ""
    left_out = ", ".join(reading.llm.not_modelled)
    return f"{reading.llm.source}; not modelled: {left_out}" if left_out else reading.llm.source


def _joined(metric: str | None, how: str) -> str:
    return f"{metric} {how}" if metric else ""


_READINGS = frozenset(
    name
    for name, default in zip(
        Engine.__struct_fields__[-len(Engine.__struct_defaults__) :], Engine.__struct_defaults__, strict=True
    )
    if isinstance(default, Missing)
)
