"""One engine's windows and the peaks of its GPUs to the `Engine` that is shown: load, rates, latencies, MFU and MBU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec

from gpumon.efficiency import flops, ratio, traffic
from gpumon.efficiency.backends import BackendsView
from gpumon.efficiency.checks import rank_loads, uneven_rank_figures
from gpumon.efficiency.costs import SHARED_GPU
from gpumon.efficiency.goodput import derive_goodput, no_goodput
from gpumon.efficiency.lengths import all_pool_tokens, answer_mean, length_steps, prompt_mean
from gpumon.efficiency.offload import GpuPart, gpu_part, scaled
from gpumon.efficiency.own import own_estimate, own_memory
from gpumon.efficiency.peaks import Peak, flops_peak_of, is_format_assumed
from gpumon.efficiency.provenance import Spans, engine_sources
from gpumon.efficiency.quantiles import ENOUGH, no_quantiles, quantiles
from gpumon.efficiency.rates import (
    Layout,
    Rates,
    gpus_of_all_ranks,
    layout_of,
    per_step_of,
    rates_of,
    tokens_per_gap,
    with_context_of_ended,
)
from gpumon.efficiency.ratio import divide, minus, plus
from gpumon.efficiency.served import aborted_tokens_mean, no_served, seen_load, served_figures
from gpumon.efficiency.service import (
    BY_NATURE,
    DENOISES,
    NO_COST,
    NO_TOKENS,
    WITHOUT_DECODE,
    Service,
    no_flops,
    no_formula,
    no_model,
    service_of,
)
from gpumon.efficiency.since_start import since_start
from gpumon.efficiency.tracks import GAP_INTERVALS, CounterWindow, Track
from gpumon.figures.engine import GAUGE_OF_FIGURE
from gpumon.figures.latency import LATENCIES_OF_ENGINES
from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    DIFFUSION,
    SLEEPING,
    Advance,
    Departure,
    EndpointState,
    EngineReading,
)
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_EXPOSED, REMOTE_POWER, WARMING_UP, Missing, Reading, Reason, number
from gpumon.readings.snapshot import (
    Dimensions,
    Efficiency,
    Engine,
    EngineRates,
    Goodput,
    Hardware,
    Latency,
    Load,
    OwnEstimate,
    OwnMemory,
    Quantiles,
    Served,
    TokensTotal,
    Window,
)
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.specs.hints import KV_DTYPE
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_hints import is_unknown_kv_word, kv_precision_of
from gpumon.specs.precision import Precision

TRANSIENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.HTTP_ERROR, EndpointState.ERROR})
"""States in which the last figures stand until they are stale: one slow answer is no outage."""
SHORTEST_STALE_S: Final = 3.0
"""An engine that is polled more often than it can answer is not stale for that."""
EVERY_GAP: Final = 0.5
"""Gaps over tokens, below which the histogram lacks some gaps. Even with all gaps it is below 1: first tokens have no
gap."""
_HITS_COUNTED_TWICE: Final = Missing(
    Reason.INVALID, "prefix hits exceed the prompts: the engine counts waiting requests again"
)
IMPOSSIBLE: Final = Missing(Reason.INVALID, "these tokens need more FLOP/s than its GPUs have")
_OTHERS_ELSEWHERE: Final = Missing(Reason.NO_GPU, "by its sizes it has more GPUs than are known here")
_ASSUMED_FORMAT: Final = "assumed: the activation format of its MXFP4 weights is not exported"

PartT = TypeVar("PartT", bound=msgspec.Struct)


class EngineView:
    """One engine's polls, and how it was shown last: most ticks have no new poll of it."""

    def __init__(self, goals: Goals) -> None:
        self.track = Track()
        self.backends = BackendsView()
        self._goals = goals
        self._reading: EngineReading | None = None
        self._inputs: object = None
        """Inputs beside the reading from which the engine was derived; it is derived anew once one of both is
        another."""
        self._engine: Engine | None = None
        """The engine as it was derived last, without its age and power."""
        self._rates: Rates | None = None
        """Its rates; None while it has no figures."""

    def derive(
        self,
        reading: EngineReading,
        *,
        now_s: float,
        peaks: Sequence[Peak],
        indices: tuple[int, ...],
        power_w: Reading,
        shares_gpu: bool,
        since: str,
    ) -> tuple[Engine, Rates | None]:
        """The engine at `now_s` of the monotonic clock, and its rates; None for these while it has no figures.

        It has none while it is unreachable or stale, or before its first poll. `peaks` and `indices` are those of its
        GPUs, `power_w` what they draw, with `shares_gpu` for another engine, too; `since` (RFC 3339) dates its state.
        """
        age_s = max(0.0, now_s - reading.monotonic_s) if self.track.last_s > -math.inf else 0.0
        why_blank = self._why_blank(reading, age_s)
        inputs = (why_blank, peaks, indices, since)
        if self._engine is None or reading is not self._reading or inputs != self._inputs:
            engine = known_engine(reading, self.track, indices, since)
            if why_blank is not None:
                self._rates = None
                self._engine = engine_without_figures(engine, why_blank)
            else:
                gpus = gpus_of_all_ranks(reading, len(indices))
                layout = layout_of(reading, len(self.track.points[-1].ranks), gpus)
                self._rates = rates_of(reading, self.track, layout)
                self._engine = self._engine_with_figures(engine, reading, self._rates, layout, peaks)
                if (number(self._engine.efficiency.mbu_ratio) or 0.0) > 1.0:
                    # Nothing reads more than the peak: the pool has lost blocks, and what is in use is not all read.
                    self._rates = with_context_of_ended(self._rates, self.track)
                    self._engine = self._engine_with_figures(engine, reading, self._rates, layout, peaks)
            self._reading = reading
            self._inputs = inputs
        if self._rates is None:
            return msgspec.structs.replace(self._engine, age_s=age_s), None
        return _with_power(self._engine, self._rates, age_s, power_w, shares_gpu=shares_gpu), self._rates

    def _engine_with_figures(
        self, engine: Engine, reading: EngineReading, rates: Rates, layout: Layout, peaks: Sequence[Peak]
    ) -> Engine:
        """An engine that answers, with the figures of its windows, its backends and what it has served."""
        return msgspec.structs.replace(
            _with_figures(engine, reading, self.track, rates, layout, peaks),
            backends=self.backends.shown(),
            goodput=self._goodput(rates),
            served=served_figures(reading, self.track),
        )

    def _goodput(self, rates: Rates) -> Goodput:
        """Shares of the answers within the goals; none for engines that generate no tokens, but those of a router."""
        without = WITHOUT_DECODE.get(rates.service)
        if without is not None and rates.service is not Service.ROUTING:
            return no_goodput(without)
        return derive_goodput(self.track, self._goals)

    def _why_blank(self, reading: EngineReading, age_s: float) -> Missing | None:
        """Why an engine whose last good answer is so old has no figures; None where it has them."""
        longest_s = max(GAP_INTERVALS * reading.interval_s, SHORTEST_STALE_S) + reading.latency_s
        if reading.state not in TRANSIENT and reading.state is not EndpointState.OK:
            return Missing(Reason.UNREACHABLE)
        if age_s > longest_s:
            return Missing(Reason.STALE)
        if not self.track.points:
            return WARMING_UP
        return None


def _with_power(engine: Engine, rates: Rates, age_s: float, power_w: Reading, *, shares_gpu: bool) -> Engine:
    """The engine with what changes between two polls: its age, and what its GPUs draw. What they draw for another
    engine, too, is no measure of its work."""
    replace = msgspec.structs.replace
    efficiency = engine.efficiency
    if rates.service is Service.TRAINING:
        tokens_per_s = rates.shown.trained_tokens_per_s
    else:
        tokens_per_s = rates.shown.decode_tokens_per_s
    own_power_w = SHARED_GPU if shares_gpu else power_w
    efficiency = replace(
        efficiency,
        tokens_per_j=_per_joule(tokens_per_s, own_power_w),
        flops_per_j=_per_joule(efficiency.flops_per_s, own_power_w),
    )
    return replace(engine, age_s=age_s, hardware=replace(engine.hardware, power_w=power_w), efficiency=efficiency)


def _per_joule(per_s: Reading, power_w: Reading) -> Reading:
    """`per_s / power_w`, missing where one is; power that nobody reads is the reason that is named first."""
    if power_w == REMOTE_POWER and per_s not in BY_NATURE:
        return power_w
    return divide(per_s, power_w)


def known_engine(reading: EngineReading, track: Track, indices: tuple[int, ...], since: str) -> Engine:
    """The engine with its identity, totals and model, which are known whether it answers or not."""
    gpus = gpus_of_all_ranks(reading, len(indices))
    gpu_count: Reading = float(gpus) if gpus else Missing(Reason.NO_GPU)
    departures: tuple[Departure, ...] = (reading.departure,) if reading.departure is not None else ()
    totals = track.totals
    decode = WITHOUT_DECODE.get(service_of(reading), totals.get(q.DECODE_TOKENS, NOT_EXPOSED))
    return Engine(
        name=clean(reading.name),
        kind=reading.kind,
        phase=reading.phase,
        url=clean(reading.url),
        state=reading.state,
        age_s=0.0,
        fault=clean(reading.fault, MOST_FAULT),
        version=clean(reading.version, 32),
        model=clean(reading.model),
        tokens_total=TokensTotal(
            prefill_computed=totals.get(q.PREFILL_COMPUTED, NOT_EXPOSED),
            prefill_cached=totals.get(q.PREFILL_CACHED, NOT_EXPOSED),
            decode=decode,
            trained=totals.get(q.TRAINED_TOKENS, NOT_EXPOSED),
            samples=totals.get(q.SAMPLES, NOT_EXPOSED),
        ),
        since_start=since_start(reading, track.good_wall_s, several_servers=track.several_servers),
        since=since,
        part=clean(reading.part),
        found_by=reading.found_by,
        from_documentation=reading.from_documentation,
        departure=departures,
        asleep=clean(reading.info.get(SLEEPING, "")),
        hardware=Hardware(
            gpus=indices,
            gpus_source=clean(reading.gpus_source),
            gpu_type=clean(reading.gpu_type),
            gpu_count=gpu_count,
        ),
        dimensions=_dimensions(reading),
        served=Served(seen=seen_load(track)),
        options=reading.options,
    )


def _dimensions(reading: EngineReading) -> Dimensions:
    """Dimensions of the engine's model; one reason for all of them where that is not known."""
    llm = reading.llm
    if llm is None:
        unknown = no_model(reading)
        return Dimensions(params=unknown, active_params=unknown, layers=unknown)
    if _unknown_kv_format(reading) is None:
        kv_format = (kv_precision(reading) or llm.kv_precision).value
    else:
        kv_format = clean(_kv_word(reading), 32)
    return Dimensions(
        llm=llm,
        model_source=clean(llm.source),
        params=llm.params,
        active_params=llm.matmul_params,
        layers=float(llm.layers),
        weight_precision=llm.precision.value,
        kv_precision=kv_format,
    )


def engine_without_figures(engine: Engine, why: Missing) -> Engine:
    """The engine with one reason for every figure."""
    no_latency = no_quantiles(why)
    replace = msgspec.structs.replace
    return replace(
        engine,
        hardware=replace(engine.hardware, power_w=why),
        dimensions=replace(engine.dimensions, kv_bytes_per_token=why),
        load=_blank(Load, why),
        rates=_blank(EngineRates, why),
        latency=Latency(
            ttft_s=no_latency,
            itl_s=no_latency,
            queue_s=no_latency,
            e2e_s=no_latency,
            tpot_s=no_latency,
            prefill_token_s=why,
            itl_mean_s=why,
        ),
        goodput=no_goodput(why),
        served=replace(no_served(why), seen=engine.served.seen),
        efficiency=replace(_blank(Efficiency, why), own=_blank(OwnEstimate, why), own_memory=_blank(OwnMemory, why)),
    )


def _blank(kind: type[PartT], why: Missing) -> PartT:
    """A part of an engine with one reason for every figure."""
    return kind(**dict.fromkeys(_figures_of(kind), why))


@cache
def _figures_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a part that are missing unless they are measured: asking msgspec evaluates its annotations."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if isinstance(field.default, Missing))


def _with_figures(
    engine: Engine, reading: EngineReading, track: Track, rates: Rates, layout: Layout, peaks: Sequence[Peak]
) -> Engine:
    """An engine that answers, with all figures of its windows."""
    replace = msgspec.structs.replace
    efficiency = _efficiency(reading, rates, layout.tp, peaks)
    loads = rank_loads(track)
    kv_bytes = _kv_bytes_per_token(reading, rates.service)
    # llama.cpp is asked for its sleep once a minute: tokens tell sooner that it is over.
    if number(rates.shown.prefill_tokens_per_s) or number(rates.shown.decode_tokens_per_s):
        asleep = ""
    else:
        asleep = engine.asleep
    return replace(
        engine,
        sources=_sources(reading, track, rates, efficiency.precision, peaks),
        advances=rates.advances,
        rank_loads=loads,
        uneven=uneven_rank_figures(loads, track),
        asleep=asleep,
        hardware=replace(engine.hardware, tp=layout.tp, pp=layout.pp, ranks=layout.dp),
        dimensions=replace(engine.dimensions, kv_bytes_per_token=kv_bytes),
        load=_load(reading, track, rates),
        rates=rates.shown,
        latency=_latency(reading, track, rates),
        efficiency=replace(
            efficiency,
            own=own_estimate(reading, track, rates, layout, efficiency),
            own_memory=own_memory(reading, track, layout, kv_bytes, kv_precision(reading)),
        ),
    )


def _kv_bytes_per_token(reading: EngineReading, service: Service) -> Reading:
    """Bytes of one token in the KV cache, or why they are not known."""
    if service is not Service.GENERATION:
        return WITHOUT_DECODE[service]
    if reading.llm is None:
        return no_model(reading)
    unknown = _unknown_kv_format(reading)
    if unknown is not None:
        return unknown
    return traffic.kv_bytes_per_token(reading.llm, kv_precision(reading))


def _load(reading: EngineReading, track: Track, rates: Rates) -> Load:
    """Requests, their lengths and the KV cache; with two polls that have it, how many ran on average over time."""
    polls = []
    for point in track.short.points:
        running = point.running()
        if running is not None:
            polls.append((point.monotonic_s, running))
    window = None
    if len(polls) > 1:
        running_mean = _mean_over_time(polls)
        window = _rate_window(reading, track, rates, [running for _, running in polls])
    elif len(track.points) > 1:
        running_mean = NOT_EXPOSED
    else:
        running_mean = track.why_no_rate_yet
    return Load(
        **{field: track.gauge(quantity) for field, quantity in GAUGE_OF_FIGURE.items()},
        running_mean=running_mean,
        kv_usage_ratio=_kv_usage(track, rates.service),
        kv_pool_tokens=all_pool_tokens(reading, track),
        host_kv_usage_ratio=track.gauge_mean(q.HOST_KV_USAGE),
        context_tokens=rates.context_tokens,
        prompt_tokens_mean=prompt_mean(track),
        answer_tokens_mean=answer_mean(track),
        cached_ratio=_cached_ratio(reading, track),
        aborted_tokens_mean=aborted_tokens_mean(track),
        preemptions_mean=track.long.mean(q.REQUEST_PREEMPTIONS),
        expert_balance_ratio=track.long.mean(q.EXPERT_BALANCE),
        rank_imbalance=track.long.mean(q.RANK_IMBALANCE),
        scheduler_idle_ratio=_share_of_time(track, q.SCHEDULER_IDLE_S),
        forward_ratio=_share_of_time(track, q.FORWARD_S),
        window=window,
    )


def _share_of_time(track: Track, counter: str) -> Reading:
    """Share of the window of the quantiles that a counter of seconds grew by, mean of the ranks that have it."""
    shares = track.long.rank_rates(counter)
    if shares:
        return min(1.0, sum(shares) / len(shares))
    return track.long.rate(counter)


def _mean_over_time(samples: Sequence[tuple[float, float]]) -> Reading:
    """Mean of (s, value) samples over the time from the first to the last, linear between two of them."""
    area = 0.0
    for (before_s, before), (after_s, after) in pairwise(samples):
        area += (before + after) / 2 * (after_s - before_s)
    begin_s, _ = samples[0]
    end_s, _ = samples[-1]
    return area / (end_s - begin_s)


def _kv_usage(track: Track, service: Service) -> Reading:
    """Share of the KV cache in use; models that are no LLMs have none."""
    if service is Service.OTHER:
        return NO_TOKENS
    return track.gauge_mean(q.KV_USAGE)


def _rate_window(reading: EngineReading, track: Track, rates: Rates, running: Sequence[float]) -> Window:
    """The window of the rates; `running` are the requests that ran at its polls."""
    token_s = number(track.short.mean(q.TPOT)) if track.short.sum_and_count(q.ITL) is None else None
    return Window(
        seconds=track.short.length_s,
        running_least=min(running),
        running_most=max(running),
        decoding_mean=_decoding_mean(reading, track, rates),
        first_token_s=_first_token_s(reading, track),
        token_s=token_s,
        prompt_lengths=length_steps(track, q.PROMPT_LENGTH),
        answer_lengths=length_steps(track, q.OUTPUT_LENGTH),
    )


def _first_token_s(reading: EngineReading, track: Track) -> float | None:
    """Mean TTFT less the mean time in the queue; of an engine without TTFT the time to compute a prompt of mean length,
    as far as it is not cached. None where neither is known."""
    ttft_s = number(track.short.mean(q.TTFT))
    if ttft_s is not None:
        return max(0.0, ttft_s - (number(track.short.mean(q.QUEUE)) or 0.0))
    prompt_tokens = number(prompt_mean(track))
    token_s = number(_prefill_token_s(track))
    if prompt_tokens is None or token_s is None or track.has_histogram(q.TTFT):
        return None
    cached_ratio = number(_cached_ratio(reading, track)) or 0.0
    return prompt_tokens * (1.0 - cached_ratio) * token_s


def _decoding_mean(reading: EngineReading, track: Track, rates: Rates) -> float | None:
    """Mean number of requests that decode: the sum of all gaps between tokens / window.

    None where the histogram has one mean per request, and not every gap.
    """
    gaps = track.short.sum_and_count(q.ITL)
    generated = number(rates.shown.decode_tokens_per_s)
    if gaps is None or generated is None:
        return None
    tokens_of_gaps = gaps.observations * tokens_per_gap(reading, rates.tokens_per_step)
    if tokens_of_gaps < EVERY_GAP * generated * track.short.length_s:
        return None
    return gaps.total / track.short.length_s


def _cached_ratio(reading: EngineReading, track: Track) -> Reading:
    """Share of the prompt tokens that came from the prefix cache.

    By the counters of tokens, never of prefix queries: a request that waits is queried again at each step. vLLM before
    0.16 has only hits, which suffer from the same: more of them than prompt tokens are no figure.
    """
    cached = track.long.rate(q.PREFILL_CACHED)
    if isinstance(cached, Missing):
        return cached
    if "hits" in reading.live.get(q.PREFILL_CACHED, ""):
        prompt = track.long.rate(q.PROMPT_TOKENS)
        if not isinstance(prompt, Missing) and cached > prompt:
            return _HITS_COUNTED_TWICE
        return divide(cached, prompt, Missing(Reason.IDLE))
    computed = track.long.rate(q.PREFILL_COMPUTED)
    if isinstance(computed, Missing):
        return computed
    cached_at_end = track.advance_of(q.PREFILL_CACHED) is Advance.END
    computed_at_end = track.advance_of(q.PREFILL_COMPUTED) is Advance.END
    ended = number(track.long.rate(q.REQUESTS)) or 0.0
    if cached_at_end is not computed_at_end and ended * track.long.length_s < ENOUGH:
        return Missing(Reason.FEW, "cached and computed tokens are counted at different moments of a request")
    return divide(cached, cached + computed, Missing(Reason.IDLE))


def _latency(reading: EngineReading, track: Track, rates: Rates) -> Latency:
    """Quantiles over the long window, and the mean gap of the short one.

    With speculation a step gives a sequence several tokens at one gap, where the engine counts gaps between steps.
    """
    gap_s = track.short.mean(q.ITL)
    if not isinstance(gap_s, Missing):
        gap_s /= tokens_per_gap(reading, rates.tokens_per_step)
    observed: dict[str, Any] = {latency.field: _quantiles(track, latency.quantity) for latency in LATENCIES_OF_ENGINES}
    return Latency(
        prefill_token_s=_prefill_token_s(track),
        itl_mean_s=gap_s,
        **observed,
    )


def _prefill_token_s(track: Track) -> Reading:
    """Seconds of prefill per computed token over the long window."""
    seconds = track.long.rate(q.PREFILL_SECONDS)
    return divide(seconds, track.long.rate(q.PREFILL_COMPUTED), Missing(Reason.IDLE))


def _quantiles(track: Track, quantity: str) -> Quantiles:
    """Quantiles of a latency over the long window."""
    window = track.long.histogram(quantity)
    if window is None and track.has_histogram(quantity):
        return no_quantiles(track.why_no_rate_yet)
    return quantiles(window)


class _Flops(msgspec.Struct, frozen=True):
    """Arithmetic of an engine over all its GPUs, in FLOP/s."""

    prefill: Reading
    decode: Reading
    total: Reading
    per_token: Reading
    """FLOPs of one generated token at the mean context."""


def _unknown_flops(why: Missing) -> _Flops:
    """One reason for all of an engine's FLOP/s."""
    return _Flops(prefill=why, decode=why, total=why, per_token=why)


def _engine_flops(reading: EngineReading, rates: Rates) -> _Flops:
    """FLOP/s of prefill, of decode and of both, over all GPUs; and those of one generated token at the mean context."""
    if rates.service is not Service.GENERATION:
        return _flops_without_decode(reading, rates)
    llm = reading.llm
    if llm is None:
        unknown = no_model(reading)
        return _unknown_flops(unknown)
    if llm.flops_unknown:
        return _unknown_flops(Missing(Reason.NOT_MODELLED, llm.flops_unknown))
    prefill = _prefill_flops(llm, rates)
    if DIFFUSION in reading.info:
        return _Flops(prefill=prefill, decode=DENOISES, total=plus(prefill, DENOISES), per_token=DENOISES)
    per_token = rates.context_tokens
    if not isinstance(per_token, Missing):
        per_token = flops.decode_flops_per_token(llm, per_token)
    decode = _decode_flops(rates, per_token)
    return _Flops(prefill=prefill, decode=decode, total=plus(prefill, decode), per_token=per_token)


def _flops_without_decode(reading: EngineReading, rates: Rates) -> _Flops:
    """FLOP/s of an engine that generates no tokens: it trains, encodes, or does neither."""
    no_decode = WITHOUT_DECODE[rates.service]
    if rates.service is Service.TRAINING:
        trained = _training_flops(reading, rates)
        return _Flops(prefill=no_decode, decode=no_decode, total=trained, per_token=no_decode)
    if rates.service is Service.ENCODING:
        prefill: Reading = no_model(reading)
        if reading.llm is not None and reading.llm.flops_unknown:
            prefill = Missing(Reason.NOT_MODELLED, reading.llm.flops_unknown)
        elif reading.llm is not None:
            prefill = _prefill_flops(reading.llm, rates)
        return _Flops(prefill=prefill, decode=no_decode, total=prefill, per_token=no_decode)
    no_total = no_formula(reading, rates.service)
    return _Flops(prefill=no_decode, decode=no_decode, total=no_total, per_token=no_decode)


def _training_flops(reading: EngineReading, rates: Rates) -> Reading:
    """FLOP/s of a training run: trained tokens/s x the FLOPs of a token that its feed gives."""
    trained = rates.shown.trained_tokens_per_s
    if reading.training is None:
        return NO_COST
    if isinstance(trained, Missing):
        return trained
    return trained * reading.training.flops_per_token


def _decode_flops(rates: Rates, per_token: Reading) -> Reading:
    """FLOP/s of the generated tokens but the first of each answer, which the pass of its prompt makes.

    More prompts than tokens are of another span of time: nothing is taken off for them.
    """
    decode = rates.shown.decode_tokens_per_s
    if isinstance(decode, Missing) or decode <= 0.0:
        return decode
    if isinstance(per_token, Missing):
        return Missing(Reason.NO_CONTEXT)
    first_tokens = number(rates.first_tokens_per_s) or 0.0
    if first_tokens <= decode:
        return (decode - first_tokens) * per_token
    return decode * per_token


def _prefill_flops(llm: LlmSpec, rates: Rates) -> Reading:
    """FLOP/s of the computed prompt tokens, and of the LM head once per prompt; an encoder has no LM head."""
    computed = rates.shown.prefill_tokens_per_s
    if isinstance(computed, Missing) or computed == 0.0:
        return computed
    if isinstance(rates.prompt_tokens, Missing):
        return Missing(Reason.NO_CONTEXT)
    if rates.service is Service.ENCODING:
        return computed * flops.prefill_flops_per_token(llm, rates.prompt_tokens)
    cached = number(rates.shown.cached_tokens_per_s) or 0.0
    cached_share = cached / (cached + computed)
    cached_tokens = rates.prompt_tokens * cached_share
    new_tokens = rates.prompt_tokens * (1 - cached_share)
    per_token = flops.prefill_flops_per_token(llm, new_tokens, cached_tokens)
    head_per_s = (number(rates.first_tokens_per_s) or 0.0) * flops.head_flops(llm)
    return computed * per_token + head_per_s


class _Bytes(msgspec.Struct, frozen=True):
    """Memory traffic of an engine over all its GPUs, in bytes/s."""

    weights: Reading
    moved: Reading
    """Weights and KV cache together."""
    single_stream: Reading
    """Weights by the textbook's form, which holds for one stream."""


def _unknown_bytes(why: Missing) -> _Bytes:
    """One reason for all of an engine's bytes/s."""
    return _Bytes(weights=why, moved=why, single_stream=why)


def _engine_bytes(reading: EngineReading, rates: Rates, tp: int) -> _Bytes:
    """Bytes/s that an engine reads, be it from the memory of GPUs or of the host; one reason for all where none is
    known."""
    llm = reading.llm
    if rates.service is not Service.GENERATION:
        no_bytes = no_formula(reading, rates.service)
        return _unknown_bytes(no_bytes)
    if llm is None:
        unknown = no_model(reading)
        return _unknown_bytes(unknown)
    if DIFFUSION in reading.info:
        return _unknown_bytes(DENOISES)
    decode = rates.shown.decode_tokens_per_s
    if isinstance(decode, Missing):
        return _unknown_bytes(decode)
    single = traffic.single_stream_bytes_per_s(llm, decode)
    if decode == 0.0:
        return _Bytes(weights=decode, moved=decode, single_stream=single)
    steps_per_s = rates.shown.steps_per_s
    if isinstance(steps_per_s, Missing):
        return _Bytes(weights=steps_per_s, moved=steps_per_s, single_stream=single)
    if steps_per_s <= 0.0:
        idle = Missing(Reason.IDLE)
        return _Bytes(weights=idle, moved=idle, single_stream=single)
    weights = traffic.weight_bytes_per_s(llm, steps_per_s, decode, rates.weight_sharing)
    if isinstance(rates.context_tokens, Missing):
        return _Bytes(weights=weights, moved=Missing(Reason.NO_CONTEXT), single_stream=single)
    unknown_format = _unknown_kv_format(reading)
    if unknown_format is not None:
        return _Bytes(weights=weights, moved=unknown_format, single_stream=single)
    moved = traffic.step_bytes_per_s(
        llm,
        steps_per_s,
        decode,
        rates.context_tokens,
        tokens_per_step=rates.tokens_per_step,
        tp=max(tp, 1),
        kv_precision=kv_precision(reading),
        spread=rates.weight_sharing,
    )
    return _Bytes(weights=weights, moved=moved, single_stream=single)


def _gpu_bytes(part: GpuPart, whole: _Bytes) -> _Bytes:
    """The GPUs' part of an engine's traffic: the CPU reads the rest, or it comes from the host's memory."""
    weights = scaled(whole.weights, part.weights)
    kv = scaled(minus(whole.moved, whole.weights), part.kv)
    moved = whole.moved
    if not isinstance(moved, Missing):
        moved = plus(weights, kv)
    return _Bytes(weights=weights, moved=moved, single_stream=scaled(whole.single_stream, part.weights))


def kv_precision(reading: EngineReading) -> Precision | None:
    """Format of the KV cache where the engine names one; else it is the model's, unless `_unknown_kv_format` says
    why."""
    return kv_precision_of(_kv_word(reading))


def _unknown_kv_format(reading: EngineReading) -> Missing | None:
    """Why the bytes of a token in the KV cache are not known; None where they are."""
    word = _kv_word(reading)
    if is_unknown_kv_word(word):
        return Missing(Reason.NOT_MODELLED, f"the bytes of a KV cache in {clean(word, 32)} are not known")
    return None


def _kv_word(reading: EngineReading) -> str:
    """The engine's word for the format of its KV cache: that of its page, else of its command line; empty: none."""
    return reading.info.get("cache_dtype") or reading.info.get(KV_DTYPE, "")


def _efficiency(reading: EngineReading, rates: Rates, tp: int, peaks: Sequence[Peak]) -> Efficiency:
    """FLOPs and bytes, and their shares of the peaks of the engine's GPUs."""
    work = _engine_flops(reading, rates)
    part = gpu_part(reading, max(tp, 0) * max(reading.pp, 1))
    on_gpus = _gpu_bytes(part, _engine_bytes(reading, rates, tp))
    flops_peak, precision = _flops_peak(reading, peaks)
    if peaks:
        bandwidth = plus(*(peak.bandwidth_bytes_per_s for peak in peaks))
        shares = _Shares(
            mfu_prefill=_share(ratio.mfu, scaled(work.prefill, part.arithmetic), flops_peak),
            mfu_decode=_share(ratio.mfu, scaled(work.decode, part.arithmetic), flops_peak),
            mfu=_mfu(reading, rates, scaled(work.total, part.arithmetic), flops_peak),
            mbu=_share(ratio.mbu, on_gpus.moved, bandwidth),
            mbu_single_stream=_share(ratio.mbu, on_gpus.single_stream, bandwidth),
        )
    else:
        bandwidth = _OTHERS_ELSEWHERE if reading.gpus else Missing(Reason.NO_GPU)
        # What can never be worked out is a better reason than a GPU that is not known.
        why: Reading = flops_peak
        no_arithmetic = no_flops(reading)
        if no_arithmetic is not None:
            why = no_arithmetic
        shares = _Shares(mfu_prefill=why, mfu_decode=why, mfu=why, mbu=why, mbu_single_stream=why)
    return Efficiency(
        mfu_prefill_ratio=shares.mfu_prefill,
        mfu_decode_ratio=shares.mfu_decode,
        mfu_ratio=shares.mfu,
        mbu_ratio=shares.mbu,
        mbu_single_stream_ratio=shares.mbu_single_stream,
        flops_per_s=work.total,
        prefill_flops_per_s=work.prefill,
        decode_flops_per_s=work.decode,
        flops_per_decode_token=work.per_token,
        peak_flops_per_s=flops_peak,
        peak_unverified=any(peak.unverified or is_format_assumed(peak, reading) for peak in peaks),
        precision=precision,
        bytes_per_s=on_gpus.moved,
        weight_bytes=per_step_of(on_gpus.weights, rates.shown.decode_tokens_per_s, rates.shown.steps_per_s),
        weight_bytes_per_s=on_gpus.weights,
        kv_bytes_per_s=minus(on_gpus.moved, on_gpus.weights),
        peak_bandwidth_bytes_per_s=bandwidth,
        bandwidth_peak_unverified=any(peak.bandwidth_unverified for peak in peaks),
    )


class _Shares(msgspec.Struct, frozen=True):
    """Shares of the peaks of an engine's GPUs."""

    mfu_prefill: Reading
    mfu_decode: Reading
    mfu: Reading
    mbu: Reading
    mbu_single_stream: Reading
    """MBU by the textbook's form, which holds for one stream."""


def _mfu(reading: EngineReading, rates: Rates, flops_per_s: Reading, flops_peak: Reading) -> Reading:
    """MFU; impossible where all tokens that are known of would take more than the peak.

    They need their passes through the weights whatever their context, so attention and LM head are not counted.
    """
    mfu = _share(ratio.mfu, flops_per_s, flops_peak)
    if not isinstance(mfu, Missing) or reading.llm is None:
        return mfu
    params = max(0.0, reading.llm.matmul_params - reading.llm.head_params)
    prefill = number(rates.shown.prefill_tokens_per_s) or 0.0
    decode = number(rates.shown.decode_tokens_per_s) or 0.0
    least_flops_per_s = (prefill + decode) * 2.0 * params
    if least_flops_per_s > (number(flops_peak) or math.inf):
        return IMPOSSIBLE
    return mfu


def _share(formula: Callable[[float, float, float], float], part: Reading, whole: Reading) -> Reading:
    """`formula` (`ratio.mfu` or `ratio.mbu`) of an amount per second and of the peak of all GPUs together."""
    if isinstance(part, Missing):
        return part
    if isinstance(whole, Missing):
        return whole
    if whole > 0:
        return formula(part, 1, whole)  # as if it were one GPU with the peak of all
    return Missing(Reason.UNKNOWN_GPU)


def _flops_peak(reading: EngineReading, peaks: Sequence[Peak]) -> tuple[Reading, str]:
    """Dense peak FLOP/s of all GPUs, and its precision; several, joined by `+`, on GPUs of different types."""
    if not peaks:
        return _OTHERS_ELSEWHERE if reading.gpus else Missing(Reason.NO_GPU), ""
    peaks_per_s = []
    precisions = set()
    for peak in peaks:
        flops_per_s, precision = flops_peak_of(peak, reading)
        peaks_per_s.append(flops_per_s)
        precisions.add(precision)
    total = plus(*peaks_per_s)
    if isinstance(total, Missing):
        return total, ""
    return total, "+".join(sorted(precisions))


def _sources(
    reading: EngineReading, track: Track, rates: Rates, precision: str, peaks: Sequence[Peak]
) -> dict[str, str]:
    """Field -> the metric or formula behind it, for the detail view and `--json`."""
    formulas = rates.service if reading.llm is not None or reading.training is not None else None
    spans = Spans(
        rate=_whole_s(track.short),
        prefill=_whole_s(rates.prefill_window),
        quantile=_whole_s(track.long),
        minutes=_whole_s(track.minutes),
    )
    return engine_sources(
        tuple(reading.live.items()),
        spans,
        (("model", _model_source(reading)), ("gpus", reading.gpus_source), *rates.sources.items()),
        precision,
        _peak_sources(reading, peaks),
        formulas,
    )


def _whole_s(window: CounterWindow) -> int:
    """Length of a window in whole seconds, at least one."""
    return max(1, round(window.length_s))


def _peak_sources(reading: EngineReading, peaks: Sequence[Peak]) -> tuple[str, str]:
    """Sources of the FLOP/s peak and of the bandwidth peak of the engine's GPUs."""
    flops_sources = []
    bandwidth_sources = []
    is_assumed = False
    for peak in peaks:
        bandwidth_sources.append(peak.bandwidth_source)
        if peak.spec is not None:
            flops_sources.append(peak.spec.source)
        is_assumed = is_assumed or is_format_assumed(peak, reading)
    if is_assumed:
        flops_sources.append(_ASSUMED_FORMAT)
    return _join_different(flops_sources), _join_different(bandwidth_sources)


def _join_different(texts: Iterable[str]) -> str:
    """The texts, each once and without empty ones, with `; ` between them."""
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _model_source(reading: EngineReading) -> str:
    """Source of the model's dimensions and the parts that they leave out; or what is missing, in one line."""
    if reading.llm is None:
        # The text goes on with how to add the model, in lines that `gpumon doctor` prints.
        why = reading.info.get("model_missing", "").split("\n")[0].split(". Add to")[0]
        if why:
            return f"{why}: `gpumon doctor` prints the config lines to add"
        return ""
    left_out = ", ".join(reading.llm.not_modelled)
    if left_out:
        return f"{reading.llm.source}; not modelled: {left_out}"
    return reading.llm.source
