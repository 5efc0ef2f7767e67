"""One engine's windows to what it did per second, and the sizes that its FLOPs and bytes depend on."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.lengths import IN_USE, context, context_of_ended, prompt_length
from gpumon.efficiency.quantiles import longest
from gpumon.efficiency.ratio import divide, times
from gpumon.efficiency.service import DENOISES, WITHOUT_DECODE, WITHOUT_PREFILL, Service, service_of
from gpumon.efficiency.tracks import MOST_KEPT_S, CounterWindow, Track
from gpumon.efficiency.traffic import WeightSharing
from gpumon.figures.engine import ENGINE
from gpumon.readings import quantities as q
from gpumon.readings.frame import DIFFUSION, TOKENS_OFF, Advance, EngineKind, EngineReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import EngineRates

_OF_TOKENS: Final = ("prefill_tokens_per_s", "cached_tokens_per_s", "decode_tokens_per_s", "trained_tokens_per_s")
"""Rates that take more than the growth of their counter."""
_COUNTER_OF_RATE: Final = {
    row.field: row.counts for row in ENGINE.values() if row.counts and row.field not in _OF_TOKENS
}
"""Fields of `EngineRates` that are plain rates of a counter."""
_RATES_OF_FIGURES: Final = {
    "mfu_prefill_ratio": ("prefill_tokens_per_s",),
    "mfu_decode_ratio": ("decode_tokens_per_s",),
    "mfu_ratio": ("prefill_tokens_per_s", "decode_tokens_per_s", "trained_tokens_per_s"),
    "flops_per_s": ("prefill_tokens_per_s", "decode_tokens_per_s", "trained_tokens_per_s"),
    "mbu_ratio": ("decode_tokens_per_s", "steps_per_s"),
    "bytes_per_s": ("decode_tokens_per_s", "steps_per_s"),
}
"""Figure -> the rates that it is made of: it is as much of a figure of now as the least of them."""
_WEAKEST_LAST: Final = tuple(Advance(name) for name in ("live", "prompt", "derived", "sampled", "end"))
"""When a counter moves, from what gives the best rate of now to what gives none."""

NOT_LIVE: Final = Missing(Reason.NOT_LIVE)
"""Reason of a rate whose counter moves when a request ends, so that there is no rate of now."""
_IDLE: Final = Missing(Reason.IDLE)
_COUNTER_SOURCES: Final = {
    Advance.LIVE: "{metric} over {span_s} s",
    Advance.PROMPT: "{metric} over {span_s} s, smoothed: a prompt is counted when its first token comes",
    Advance.DERIVED: "worked out: {metric}, over {span_s} s",
    Advance.SAMPLED: "sampled: {metric}, over {span_s} s",
    Advance.END: "{metric}: counted when a request ends, so there is no rate of now",
}
"""When a counter moves -> the text of the source of its rate."""
_GAUGE_SOURCES: Final = {
    Advance.DERIVED: "worked out: {metric}, mean of {span_s} s",
    Advance.SAMPLED: "sampled: {metric}, mean of {span_s} s",
}
"""The same for a gauge that is a rate by itself."""
COARSE_TOKENS: Final = 100.0
"""Tokens in a window below which one more or less is more than 1% of its rate."""
_SOURCE_BY_GAPS: Final = "estimated: duty / mean ITL, per rank"
_SOURCE_BY_TOKENS: Final = "estimated: decode tokens/s / requests running / tokens per step"
STEP_GAPS: Final = frozenset({EngineKind.VLLM, EngineKind.LMDEPLOY, EngineKind.APHRODITE, EngineKind.FASTDEPLOY})
"""Engines whose ITL is a gap between outputs, however many tokens one brings; others divide it by its tokens."""

WHOLE_STEPS_S: Final = 30.0
"""Shortest time between the two training steps that a rate lies between: polls date one to 2 s, so to 7% of it."""
_LEAST_POLLS: Final = 3.0
"""Intervals between polls that lie at least between those two steps."""
OVERDUE: Final = 2.0
"""Times the longest step seen after which the next one is overdue: from then on the rate falls."""

DP_ATTENTION: Final = "dp_attention"
"""Key in `EngineReading.info`: `yes` where data-parallel ranks share the tensor-parallel GPUs (SGLang)."""


class Layout(msgspec.Struct, frozen=True):
    """How an engine's GPUs split into instances, pipeline stages and tensor-parallel shards; 0 is not known."""

    gpus: int
    """GPUs of all its ranks."""
    tp: int
    """GPUs that share each layer of one rank."""
    pp: int
    """Pipeline stages of one rank."""
    dp: int
    """Data-parallel ranks, at least 1."""
    expert_ranks: int = 1
    """Data-parallel ranks, those of other pages included, that have the experts of a MoE once together; 1: each has
    all of them."""
    attention_alone: bool = False
    """The ranks share the tensor-parallel GPUs: all layers but the attention lie on the GPUs of all of them."""


def layout_of(reading: EngineReading, shown_ranks: int, gpus: int) -> Layout:
    """The sizes of an engine with `gpus` GPUs (0: not known) whose page shows `shown_ranks` data-parallel ranks.

    What the server or its command line says holds. Without it: GPUs / ranks / stages. Where the ranks share the
    tensor-parallel GPUs (SGLang's DP attention: tp 8 and dp 8 on 8 GPUs), each layer's KV cache lies on what is left
    for one rank. A page that adds the ranks up shows one: the command line's number holds if the GPUs agree; else it
    is the page of one rank among several.
    """
    stages = max(reading.pp, 1)
    dp = reading.dp if _adds_ranks_up(reading, shown_ranks, gpus) else shown_ranks
    tp = reading.tp
    shares_gpus = bool(gpus) and dp > 1 and tp * stages * dp > gpus
    if gpus and (not tp or shares_gpus):
        tp = 0 if gpus % (dp * stages) else gpus // (dp * stages)  # 0: they do not come out even
    attention_alone = dp > 1 and (shares_gpus or reading.info.get(DP_ATTENTION) == "yes")
    expert_ranks = 1 if _are_replicas(reading, attention_alone) else max(dp, reading.dp)
    return Layout(gpus=gpus, tp=tp, pp=reading.pp, dp=dp, expert_ranks=expert_ranks, attention_alone=attention_alone)


def gpus_of_all_ranks(reading: EngineReading, known: int) -> int:
    """GPUs of all ranks of an engine of which so many are `known` here; 0: not known.

    Its sizes may need more of them, as the ranks of one instance may be on several hosts: the work that its page counts
    is that of all.
    """
    if reading.gpu_count or not known:
        return max(known, reading.gpu_count)
    # Of a vLLM each rank has GPUs of its own; SGLang's may share those of one.
    ranks = len(reading.ranks) if reading.kind is EngineKind.VLLM else 1
    return max(known, max(reading.tp, 1) * max(reading.pp, 1) * max(ranks, 1))


def has_gpus_elsewhere(reading: EngineReading, known: int) -> bool:
    """Whether an engine of which so many GPUs are `known` here has more: on other hosts, or it is not known which."""
    return gpus_of_all_ranks(reading, known) > known


def _adds_ranks_up(reading: EngineReading, shown_ranks: int, gpus: int) -> bool:
    """Whether a page that shows one rank is that of all ranks: the GPUs agree with the number of the command line."""
    if shown_ranks != 1 or reading.dp <= 1:
        return False
    return gpus > 0 and gpus == max(reading.tp, 1) * max(reading.pp, 1) * reading.dp


def _are_replicas(reading: EngineReading, attention_alone: bool) -> bool:
    """Whether each of the data-parallel ranks has all weights: those of Ray, and those of SGLang unless their attention
    alone is data-parallel."""
    if reading.kind is EngineKind.RAY:
        return True
    return reading.kind is EngineKind.SGLANG and bool(reading.tp) and not attention_alone


class Rates(msgspec.Struct, frozen=True):
    """Work of the engine per second, and the sizes that its FLOPs and bytes depend on."""

    shown: EngineRates
    service: Service
    newest_decode: Reading
    """Generated tokens/s between the two newest polls, for charts."""
    first_tokens_per_s: Reading
    """Requests per second that got their first token."""
    weight_sharing: WeightSharing
    """How its ranks share the weights that a step reads."""
    context_tokens: Reading
    """Mean tokens in context of a running sequence."""
    prompt_tokens: Reading
    """Size-biased mean length of a prompt in tokens, cached ones included."""
    tokens_per_step: float
    """Tokens per step and sequence: 1 without speculation, and where that is not known."""
    prefill_window: CounterWindow
    advances: dict[str, str]
    """Field of `Engine` -> value of the `Advance` of the series behind it."""
    sources: dict[str, str]
    """Field of `Engine` -> where it is read, for those whose source depends on that."""


def rates_of(reading: EngineReading, track: Track, layout: Layout) -> Rates:
    """The rates of one engine over its windows."""
    service = service_of(reading)
    prefill_window, is_long_enough = _prefill_window(reading, track)
    rates = _rates_but_steps(reading, track, service, prefill_window)
    if not is_long_enough and rates["prefill_tokens_per_s"].advance is Advance.PROMPT:
        rates["prefill_tokens_per_s"] = rates["prefill_tokens_per_s"]._replace(per_s=track.why_no_rate_yet)
    decode = rates["decode_tokens_per_s"].per_s
    shown_per_step = _tokens_per_step(track, decode)
    tokens_per_step = number(shown_per_step) or 1.0
    rank_steps = step_rates(reading, track, layout, tokens_per_step, decode)
    by_rank = rank_steps.by_rank
    all_steps_per_s: Reading = by_rank if isinstance(by_rank, Missing) else sum(by_rank)
    rates["steps_per_s"] = AmountPerSecond(all_steps_per_s, rank_steps.advance, rank_steps.source)
    sources = {field: rate.source for field, rate in rates.items() if rate.source}
    without_decode = WITHOUT_DECODE.get(service)
    if without_decode is None:
        acceptance_ratio = acceptance(track)
        context_tokens, sources["context_tokens"] = context(reading, track)
        newest_decode = newest_rate(track, q.DECODE_TOKENS, q.DECODE_RATE)
        sources |= _other_sources(reading, track)
    else:
        shown_per_step = without_decode
        acceptance_ratio = without_decode
        context_tokens = without_decode
        newest_decode = decode
    shown = EngineRates(
        **{field: rate.per_s for field, rate in rates.items()},
        tokens_per_step=shown_per_step,
        acceptance_ratio=acceptance_ratio,
        batch=_batch(reading, service, decode, rates["steps_per_s"].per_s, tokens_per_step),
        decode_mean_tokens_per_s=_decode_mean(track, service),
    )
    return Rates(
        shown=shown,
        service=service,
        newest_decode=newest_decode,
        first_tokens_per_s=_first_tokens_per_s(prefill_window),
        weight_sharing=_weight_sharing(rank_steps.by_rank, layout),
        context_tokens=context_tokens,
        prompt_tokens=prompt_length(track, prefill_window, context_tokens),
        tokens_per_step=tokens_per_step,
        prefill_window=prefill_window,
        advances=_advances(rates),
        sources=sources,
    )


def with_context_of_ended(rates: Rates, track: Track) -> Rates:
    """The rates with the context of the requests that ended, where the use of the KV pool gave a longer one."""
    ended = context_of_ended(track)
    longest = number(rates.context_tokens)
    if ended is None or longest is None or rates.sources.get("context_tokens") != IN_USE or ended[0] >= longest:
        return rates
    tokens, source = ended
    return msgspec.structs.replace(rates, context_tokens=tokens, sources=rates.sources | {"context_tokens": source})


def _first_tokens_per_s(window: CounterWindow) -> Reading:
    """Requests per second that got their first token, by the histogram of TTFT."""
    first_tokens = window.sum_and_count(q.TTFT)
    if first_tokens is None:
        return NOT_EXPOSED
    return first_tokens.observations / window.length_s


def _weight_sharing(by_rank: list[float] | Missing, layout: Layout) -> WeightSharing:
    """How ranks with so many steps per second share the weights that a step reads."""
    group_steps_per_s = 0.0
    if not isinstance(by_rank, Missing):
        # Ranks that share experts step together, at the pace of the one that makes most steps; others each read theirs.
        group_steps_per_s = max(by_rank, default=0.0) if layout.expert_ranks > 1 else sum(by_rank)
    peers = max(1.0, layout.expert_ranks / layout.dp)
    return WeightSharing(group_steps_per_s, peers=peers, attention_alone=layout.attention_alone)


class AmountPerSecond(NamedTuple):
    """An amount per second."""

    per_s: Reading
    advance: Advance | None = None
    """When the series behind it moves; None where there is none."""
    source: str = ""


def rate_of(
    reading: EngineReading,
    track: Track,
    counter: str,
    gauge: str = "",
    window: CounterWindow | None = None,
    *,
    steady: bool = False,
) -> AmountPerSecond:
    """The rate of a counter over a window (that of the rates), else the engine's own gauge of that rate.

    Few tokens make a coarse rate: `steady` takes the long window where that is the same to within a token.

    A counter that moves when a request ends is 0 for as long as one runs and then jumps by all of it: it gives no rate
    of now. The engine's gauge does, as the mean of its samples.
    """
    window = window or track.short
    advance = track.advance_of(counter)
    metric = reading.live.get(counter, "")
    if advance is not None and advance is not Advance.END:
        if steady:
            window = _steadier_window(track, counter, window)
        source = _source_text(_COUNTER_SOURCES[advance], metric, window)
        return AmountPerSecond(window.rate(counter), advance, source)
    samples = track.short.samples(gauge) if gauge else []
    if samples:
        return _rate_by_gauge(reading, track, counter, gauge, samples)
    if advance is None:
        return AmountPerSecond(NOT_EXPOSED, source=metric)
    return AmountPerSecond(NOT_LIVE, advance, _source_text(_COUNTER_SOURCES[advance], metric, window))


def _rate_by_gauge(
    reading: EngineReading, track: Track, counter: str, gauge: str, samples: list[float]
) -> AmountPerSecond:
    """The mean of the samples of the engine's own gauge of a rate; 0 where its counter says that it has rested."""
    advance = Advance.DERIVED if reading.advance.get(gauge) is Advance.DERIVED else Advance.SAMPLED
    per_s = 0.0 if _has_rested(track, counter) else sum(samples) / len(samples)
    source = _source_text(_GAUGE_SOURCES[advance], reading.live.get(gauge, ""), track.short)
    return AmountPerSecond(per_s, advance, source)


def _steadier_window(track: Track, counter: str, window: CounterWindow) -> CounterWindow:
    """The long window where this one has few tokens, and the two tell the same to within one of them."""
    rate = number(window.rate(counter))
    if not rate or rate * window.length_s >= COARSE_TOKENS:
        return window
    long_rate = number(track.long.rate(counter))
    if long_rate is not None and abs(long_rate - rate) * window.length_s <= 1.0:
        return track.long
    return window


def _source_text(text: str, metric: str, window: CounterWindow) -> str:
    """A source with its metric and the seconds of its window put in; empty without a metric."""
    if metric:
        return text.format(metric=metric, span_s=max(1, round(window.length_s)))
    return ""


def _has_rested(track: Track, counter: str) -> bool:
    """Whether nothing ran at any poll of the window and nothing ended in it: a gauge then shows what was.

    SGLang before 0.5.7 leaves its last throughput standing when the last request has ended.
    """
    running = track.short.samples(q.RUNNING)
    return track.short.rate(counter) == 0.0 and bool(running) and not any(running)


def newest_rate(track: Track, counter: str, gauge: str) -> Reading:
    """The rate between the two newest polls, for charts."""
    advance = track.advance_of(counter)
    window = track.window(0.0)
    if advance is not None and advance is not Advance.END:
        return window.rate(counter)
    samples = window.samples(gauge)
    if not samples and advance is None:
        return NOT_EXPOSED
    if not samples:
        return NOT_LIVE
    if _has_rested(track, counter):
        return 0.0
    return samples[-1]


def rank_decode(track: Track, rank: str) -> Reading:
    """Tokens/s that one rank generated over the window of the rates, from the series that the whole is from."""
    advance = track.advance_of(q.DECODE_TOKENS)
    if advance is not None and advance is not Advance.END:
        return track.short.rank_rate(rank, q.DECODE_TOKENS)
    samples = track.short.rank_samples(rank, q.DECODE_RATE)
    if not samples and advance is None:
        return NOT_EXPOSED
    if not samples:
        return NOT_LIVE
    return sum(samples) / len(samples)


def _advances(rates: dict[str, AmountPerSecond]) -> dict[str, str]:
    """When each rate moves, and each figure that is made of them."""
    by_rate: dict[str, Advance] = {field: rate.advance for field, rate in rates.items() if rate.advance is not None}
    advances = {field: advance.value for field, advance in by_rate.items()}
    for figure, parts in _RATES_OF_FIGURES.items():
        of_parts = [by_rate[part] for part in parts if part in by_rate]
        if of_parts:
            advances[figure] = max(of_parts, key=_WEAKEST_LAST.index).value
    return advances


def _rates_but_steps(
    reading: EngineReading, track: Track, service: Service, prefill: CounterWindow
) -> dict[str, AmountPerSecond]:
    """Every rate but that of the steps, by field of `EngineRates`."""
    rates = {
        field: rate_of(reading, track, quantity)
        for field, quantity in _COUNTER_OF_RATE.items()
        if quantity in reading.live or track.has_counter(quantity)
    }
    why_no_tokens = Missing(Reason.OFF, reading.info[TOKENS_OFF]) if TOKENS_OFF in reading.info else None
    no_prefill = WITHOUT_PREFILL.get(service, why_no_tokens)
    no_decode = WITHOUT_DECODE.get(service, why_no_tokens)
    if no_prefill is None:
        rates["prefill_tokens_per_s"] = rate_of(reading, track, q.PREFILL_COMPUTED, q.PREFILL_RATE, prefill)
        rates["cached_tokens_per_s"] = rate_of(reading, track, q.PREFILL_CACHED, window=prefill)
    else:
        rates["prefill_tokens_per_s"] = AmountPerSecond(no_prefill)
        rates["cached_tokens_per_s"] = AmountPerSecond(no_prefill)
    if no_decode is None:
        rates["decode_tokens_per_s"] = rate_of(reading, track, q.DECODE_TOKENS, q.DECODE_RATE, steady=True)
    else:
        rates["decode_tokens_per_s"] = AmountPerSecond(no_decode)
    if service is Service.TRAINING:
        rates["trained_tokens_per_s"], rates["samples_per_s"] = training_rates(reading, track)
    else:
        rates["trained_tokens_per_s"] = AmountPerSecond(NOT_EXPOSED)
        rates["samples_per_s"] = AmountPerSecond(NOT_EXPOSED)
    return rates


def _prefill_window(reading: EngineReading, track: Track) -> tuple[CounterWindow, bool]:
    """Window of computed prefill, and whether the polls go back far enough for it; the track keeps as many from now on.

    An engine that books a whole prompt at its first token (vLLM) needs a window as long as the longest prefill in it;
    until it is, there is no rate. The longest, not the mean: one prompt of 128k among short ones would else read as
    more than the GPUs can compute. Prefill that is counted as it is computed has the window of the other rates.
    """
    if track.advance_of(q.PREFILL_COMPUTED) is not Advance.PROMPT:
        track.keep_s = track.long.seconds
        if reading.phase is Phase.TRAINING:
            track.keep_s = MOST_KEPT_S  # a step may take minutes
        return track.short, True
    lengths = _prefill_window_lengths(track)
    window = track.window(max(track.short.seconds, lengths.wanted_s))
    if window.length_s < lengths.wanted_s:
        # A window ends at whole polls: this one began half a poll too late.
        window = track.window(window.seconds + track.cadence_s)
    track.keep_s = max(track.long.seconds, window.seconds)
    # Whoever begins to watch in the middle of a long prefill sees no token of it: that is no rate of 0.
    has_counted = any(track.totals.values()) or not any(track.short.samples(q.RUNNING))
    return window, window.length_s >= lengths.least_s and has_counted


class PrefillWindowLengths(msgspec.Struct, frozen=True):
    """Lengths of the window of prefill that is booked at the first token."""

    least_s: float
    """Length below which there is no rate."""
    wanted_s: float
    """Length once there are polls for it: a longer window is smoother."""


def _prefill_window_lengths(track: Track) -> PrefillWindowLengths:
    """How long the window of the prefill rate has to be: as long as the longest prefill of the last minutes took.

    Without a queue that is the longest TTFT. With one, most of a TTFT is waiting: the prefill time of the requests that
    ended tells what is needed. Requests that still run may have had longer ones, so the window grows to their TTFT, up
    to that of the quantiles. An engine without a histogram of prefill times needs this length.
    """
    window = track.window(max(track.long.seconds, track.keep_s))
    ttft_s = min(longest(window.histogram(q.TTFT)), MOST_KEPT_S)
    if not any(window.samples(q.WAITING)):
        return PrefillWindowLengths(least_s=ttft_s, wanted_s=ttft_s)
    wanted_s = min(ttft_s, track.long.seconds)
    prefills = window.histogram(q.PREFILL_TIME)
    if prefills is None or prefills.count <= 0:
        return PrefillWindowLengths(least_s=wanted_s, wanted_s=wanted_s)
    prefill_s = min(longest(prefills), MOST_KEPT_S)
    return PrefillWindowLengths(least_s=prefill_s, wanted_s=max(prefill_s, wanted_s))


def _decode_mean(track: Track, service: Service) -> Reading:
    """Long mean of the decode rate."""
    if service in WITHOUT_DECODE:
        return WITHOUT_DECODE[service]
    if track.several_servers:
        return Missing(Reason.RESET)
    advance = track.advance_of(q.DECODE_TOKENS)
    if advance is None and not track.window(0.0).samples(q.DECODE_RATE):
        return NOT_EXPOSED
    return track.mean.per_s(at_end=advance is Advance.END)


def _batch(reading: EngineReading, service: Service, decode: Reading, steps_per_s: Reading, per_step: float) -> Reading:
    """Mean sequences in a step of one rank; `per_step` are the tokens that a step gives each."""
    if service is Service.GENERATION and reading.llm is not None and DIFFUSION in reading.info:
        return DENOISES
    return per_step_of(divide(decode, per_step), decode, steps_per_s)


def per_step_of(per_s: Reading, decode: Reading, steps_per_s: Reading) -> Reading:
    """Amount of one step, of an amount per second; idle where no tokens are generated."""
    if steps_per_s == 0.0 or decode == 0.0:
        return _IDLE
    return divide(per_s, steps_per_s)


def _other_sources(reading: EngineReading, track: Track) -> dict[str, str]:
    """Field of `Engine` -> source, for figures that are no plain rates: the best source that the engine has.

    Each is first the one of the engine's own gauge, and then that of its counters where it has them, which is better.
    """
    live = reading.live
    per_step = f"mean of {live[q.MEAN_ACCEPTED]}" if q.MEAN_ACCEPTED in live else "no sign of speculation"
    if {q.ACCEPTED_TOKENS, q.DRAFTS} <= live.keys():
        per_step = f"all tokens / those not accepted, at most 1 + {live[q.ACCEPTED_TOKENS]} / {live[q.DRAFTS]}"
    decode_mean = ""
    if q.DECODE_RATE in live:
        decode_mean = f"{live[q.DECODE_RATE]}, mean of its samples of the last 10 min at most"
    acceptance_source = f"mean of {live[q.ACCEPTANCE]}" if q.ACCEPTANCE in live else ""
    if {q.ACCEPTED_TOKENS, q.DRAFTED_TOKENS} <= live.keys():
        acceptance_source = f"{live[q.ACCEPTED_TOKENS]} / {live[q.DRAFTED_TOKENS]}"
    itl_mean = f"{live[q.ITL]} sum / count over {track.short.length_s:.0f} s" if q.ITL in live else ""
    if itl_mean and gaps_are_steps(reading):
        itl_mean += ", / tokens per step and sequence"
    return {
        "tokens_per_step": per_step,
        "acceptance_ratio": acceptance_source,
        "decode_mean_tokens_per_s": decode_mean,
        "itl_mean_s": itl_mean,
    }


class StepRates(msgspec.Struct, frozen=True):
    """Steps per second of each rank, or why there are none, with their source."""

    by_rank: list[float] | Missing
    source: str = ""
    advance: Advance | None = None


def step_rates(
    reading: EngineReading, track: Track, layout: Layout, tokens_per_step: float, decode: Reading
) -> StepRates:
    """Steps per second by the best of four: an exact counter, one that is worked out, duty / mean ITL, tokens/s /
    running requests."""
    if not track.short.points:
        return StepRates(track.why_no_rate_yet)
    source = f"{reading.live.get(q.STEPS, 'step counter')} over {track.short.length_s:.0f} s"
    advance = track.advance_of(q.STEPS)
    if reading.exact_steps:
        by_counter = track.short.rank_rates(q.STEPS) or NOT_EXPOSED
        return StepRates(by_counter, source, advance)
    if advance is Advance.DERIVED:
        by_derived_counter = track.short.rank_rates(q.STEPS) or track.why_no_rate_yet
        return StepRates(by_derived_counter, f"estimated: {source}", advance)
    return _estimated_step_rates(reading, track, layout, tokens_per_step, decode)


def _estimated_step_rates(
    reading: EngineReading, track: Track, layout: Layout, tokens_per_step: float, decode: Reading
) -> StepRates:
    """Steps by duty / mean ITL, else by tokens/s / running requests."""
    by_gaps = _steps_by_gaps(reading, track, layout, tokens_per_step)
    if by_gaps:
        return StepRates(by_gaps, _SOURCE_BY_GAPS, Advance.DERIVED)
    by_tokens = _steps_by_tokens(track, layout, tokens_per_step)
    if by_gaps is not None and (decode == 0.0 or isinstance(by_tokens, Missing)):
        return StepRates(_IDLE, _SOURCE_BY_GAPS, Advance.DERIVED)
    if isinstance(by_tokens, Missing):
        return StepRates(by_tokens)
    return StepRates(by_tokens, _SOURCE_BY_TOKENS, Advance.DERIVED)


def _steps_by_gaps(reading: EngineReading, track: Track, layout: Layout, tokens_per_step: float) -> list[float] | None:
    """Steps/s of each rank that had a gap; None where there is no ITL or no gauge of what runs, or where no poll met
    the requests that had the gaps: how long they ran is not known then."""
    per_s: list[float] = []
    steps_per_gap = tokens_per_gap(reading, tokens_per_step) / tokens_per_step
    for rank in track.points[-1].ranks:
        running = track.short.rank_samples(rank, q.RUNNING)
        gap_s = track.short.rank_mean(rank, q.ITL)
        if not running or (isinstance(gap_s, Missing) and gap_s.reason is not Reason.IDLE):
            return None
        duty = sum(value > 0 for value in running) / len(running)
        if not isinstance(gap_s, Missing) and gap_s > 0:
            if not duty:
                return None
            steps_per_s = duty * steps_per_gap / gap_s * _batches_in_pipeline(layout, running)
            per_s += _for_each_rank(layout, track, steps_per_s)
    return per_s


def _steps_by_tokens(track: Track, layout: Layout, tokens_per_step: float) -> list[float] | Missing:
    """Tokens/s over the requests that ran while any did: a share of them was in its prefill, so it is the least."""
    per_s: list[float] = []
    for rank in track.points[-1].ranks:
        decode = rank_decode(track, rank)
        if isinstance(decode, Missing):
            return decode
        running = track.short.rank_samples(rank, q.RUNNING)
        batch = _mean_while_busy(running)
        if decode > 0.0 and batch is None:
            if running:
                return Missing(Reason.FEW, "no poll met a running request")
            return NOT_EXPOSED
        if batch:
            steps_per_s = decode * _batches_in_pipeline(layout, running) / (batch * tokens_per_step)
        else:
            steps_per_s = 0.0
        per_s += _for_each_rank(layout, track, steps_per_s)
    return per_s


def _mean_while_busy(running: list[float]) -> float | None:
    """Mean requests over the polls at which there was one; None where no poll met one."""
    busy = [value for value in running if value > 0.0]
    if busy:
        return sum(busy) / len(busy)
    return None


def _batches_in_pipeline(layout: Layout, running: list[float]) -> float:
    """Batches that a pipeline works on at once: one for each stage, as far as there are requests for that."""
    if layout.pp > 1:
        return min(float(layout.pp), max(1.0, _mean_while_busy(running) or 1.0))
    return 1.0


def _for_each_rank(layout: Layout, track: Track, steps_per_s: float) -> list[float]:
    """One rank's steps for each rank that it stands for: a page may add the ranks up."""
    return [steps_per_s] * max(1, layout.dp // len(track.points[-1].ranks))


def _tokens_per_step(track: Track, decode: Reading) -> Reading:
    """Tokens per step and sequence: from the counters of drafts, else the engine's own gauge, else 1."""
    if not track.has_counter(q.DRAFTS):
        return _sampled_tokens_per_step(track)
    drafts = track.short.rate(q.DRAFTS)
    accepted = number(track.short.rate(q.ACCEPTED_TOKENS)) or 0.0
    if not track.newest_count(q.DRAFTS):
        return 1.0
    if isinstance(drafts, Missing):
        return drafts
    if drafts <= 0.0:
        if decode == 0.0:
            return _IDLE
        return 1.0
    # A step gives a sequence one token more than it accepts. Not each has a draft in each step (n-grams that were not
    # found before have none): all tokens over those that were not accepted; 1 + accepted per draft is the most.
    most_per_step = 1.0 + accepted / drafts
    decoded = number(decode)
    counters = (q.DECODE_TOKENS, q.DRAFTS, q.ACCEPTED_TOKENS)
    if decoded is None or decoded <= accepted or any(track.advance_of(name) is not Advance.LIVE for name in counters):
        return most_per_step
    return min(most_per_step, decoded / (decoded - accepted))


def _sampled_tokens_per_step(track: Track) -> Reading:
    """Mean of the engine's own gauge of tokens per step, at least 1; 1 where it has none."""
    if not track.points:
        return 1.0
    samples = [mean for rank in track.points[-1].ranks for mean in track.short.rank_samples(rank, q.MEAN_ACCEPTED)]
    means = [mean for mean in samples if mean > 0.0]
    return max(1.0, sum(means) / len(means)) if means else 1.0


def acceptance(track: Track) -> Reading:
    """Share of the draft tokens that were accepted: from the counters, else the mean of the engine's own gauge."""
    if not track.has_counter(q.DRAFTED_TOKENS):
        # A rank without steps has a 0 that says nothing of drafts.
        samples = [
            rank.gauges[q.ACCEPTANCE]
            for point in track.short.inside
            for rank in point.ranks.values()
            if q.ACCEPTANCE in rank.gauges and rank.gauges.get(q.MEAN_ACCEPTED) != 0.0
        ]
        return sum(samples) / len(samples) if samples else NOT_EXPOSED
    drafted = track.short.rate(q.DRAFTED_TOKENS)
    return divide(track.short.rate(q.ACCEPTED_TOKENS), drafted, _IDLE)


def tokens_per_gap(reading: EngineReading, tokens_per_step: float) -> float:
    """Tokens of a sequence that one observation of its ITL stands for."""
    if gaps_are_steps(reading):
        return tokens_per_step
    return 1.0


def gaps_are_steps(reading: EngineReading) -> bool:
    """Whether one observation of the ITL is one step, and not one token."""
    return reading.kind in STEP_GAPS or "vllm" in reading.live.get(q.ITL, "")


def training_rates(reading: EngineReading, track: Track) -> tuple[AmountPerSecond, AmountPerSecond]:
    """Tokens and samples per second of a training run, from counters that move once per step.

    What only one of them tells gives the other, by the tokens of a sample.
    """
    tokens = _training_rate(reading, track, q.TRAINED_TOKENS, q.TRAINED_RATE)
    samples = _training_rate(reading, track, q.SAMPLES, q.SAMPLE_RATE)
    tokens_per_sample = reading.training.tokens_per_sample if reading.training is not None else 0.0
    if tokens_per_sample > 0.0 and tokens.advance is None and samples.advance is not None:
        tokens = _scaled_rate(samples, tokens_per_sample, f"x {tokens_per_sample:g} tokens per sample")
    elif tokens_per_sample > 0.0 and samples.advance is None and tokens.advance is not None:
        samples = _scaled_rate(tokens, 1.0 / tokens_per_sample, f"/ {tokens_per_sample:g} tokens per sample")
    return tokens, samples


def _scaled_rate(rate: AmountPerSecond, factor: float, note: str) -> AmountPerSecond:
    """A rate times a factor, with a note of it in its source."""
    source = f"{rate.source} {note}" if rate.source else ""
    return AmountPerSecond(times(rate.per_s, factor), Advance.DERIVED, source)


def _training_rate(reading: EngineReading, track: Track, counter: str, gauge: str) -> AmountPerSecond:
    """The rate of a training run: between whole steps where its counter moves with them, else as any other."""
    advance = track.advance_of(counter)
    if advance is None or advance is Advance.END:
        return rate_of(reading, track, counter, gauge)
    source = f"{reading.live[counter]} between whole steps" if reading.live.get(counter) else ""
    return AmountPerSecond(stepped_rate(track, counter), advance, source)


class _CounterSample(NamedTuple):
    """A counter of all ranks at one poll."""

    monotonic_s: float
    value: float


def stepped_rate(track: Track, counter: str) -> Reading:
    """Increase per second of a counter that stands still during a step and jumps at its end.

    From one jump to another, so that it is neither 0 within a step nor a spike after it. The newest jump is the end,
    until the next one is overdue: then it is now, and the rate of a run that hangs falls to 0 within ten minutes.
    """
    samples = _counter_samples(track, counter)
    if len(samples) < 2:
        if track.has_counter(counter):
            return track.why_no_rate_yet
        return NOT_EXPOSED
    first = samples[0]
    newest = samples[-1]
    watched_s = newest.monotonic_s - first.monotonic_s
    jumps = [after for before, after in pairwise(samples) if after.value > before.value]
    if len(jumps) < 2:
        # Polls are thrown away at `MOST_KEPT_S`, so the kept ones are up to two of them shorter.
        if watched_s < MOST_KEPT_S - 2 * track.cadence_s:
            return track.why_no_rate_yet
        return (newest.value - first.value) / watched_s
    end_s = jumps[-1].monotonic_s
    start = _begin_of_rate(jumps, max(WHOLE_STEPS_S, _LEAST_POLLS * track.cadence_s))
    if end_s - start.monotonic_s < _LEAST_POLLS * track.cadence_s:
        return track.why_no_rate_yet
    if newest.monotonic_s - end_s > OVERDUE * max(_longest_step_s(jumps, start.monotonic_s), track.cadence_s):
        end_s = newest.monotonic_s
    return max(0.0, newest.value - start.value) / (end_s - start.monotonic_s)


def _counter_samples(track: Track, counter: str) -> list[_CounterSample]:
    """A counter at the polls that have the ranks of the newest one: a rank that joins is no step."""
    if not track.points:
        return []
    ranks = track.points[-1].ranks.keys()
    samples = []
    for point in track.points:
        total = point.total(counter)
        if point.ranks.keys() == ranks and total is not None:
            samples.append(_CounterSample(point.monotonic_s, total))
    return samples


def _begin_of_rate(jumps: list[_CounterSample], span_s: float) -> _CounterSample:
    """The newest jump that is at least `span_s` older than the last one, else the first of all."""
    for jump in reversed(jumps):
        if jumps[-1].monotonic_s - jump.monotonic_s >= span_s:
            return jump
    return jumps[0]


def _longest_step_s(jumps: list[_CounterSample], start_s: float) -> float:
    """Longest time between two jumps from `start_s` on."""
    return max(
        after.monotonic_s - before.monotonic_s for before, after in pairwise(jumps) if before.monotonic_s >= start_s
    )
