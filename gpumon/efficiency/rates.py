"""One engine's polls to its rates over their windows, and the sizes that FLOPs and bytes depend on."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.efficiency.flow import NOWHERE, Flow, counter_advance, flow, newest, weakest
from gpumon.efficiency.layout import Layout
from gpumon.efficiency.lengths import context, prompt_length
from gpumon.efficiency.quantiles import longest
from gpumon.efficiency.service import WITHOUT_DECODE, WITHOUT_PREFILL, Service, service_of
from gpumon.efficiency.steps import gaps_are_steps, speculation, steps
from gpumon.efficiency.traffic import Spread
from gpumon.efficiency.training import trained
from gpumon.efficiency.windows import MOST_KEPT_S, Track
from gpumon.readings.frame import TOKENS_OFF, Advance, EngineReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    ABORTS,
    ACCEPTED_TOKENS,
    DECODE_RATE,
    DECODE_TOKENS,
    DRAFTS,
    FAILURES,
    INFERENCES,
    ITL,
    KV_LOADED_BYTES,
    KV_STORED_BYTES,
    KV_TRANSFER_FAILURES,
    KV_TRANSFERRED_BYTES,
    MEAN_ACCEPTED,
    PREEMPTIONS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PREFILL_RATE,
    REJECTIONS,
    REQUESTS,
    TTFT,
)

COUNTERS: Final = {
    "requests_per_s": REQUESTS,
    "failures_per_s": FAILURES,
    "aborts_per_s": ABORTS,
    "inferences_per_s": INFERENCES,
    "preemptions_per_s": PREEMPTIONS,
    "rejections_per_s": REJECTIONS,
    "kv_stored_bytes_per_s": KV_STORED_BYTES,
    "kv_loaded_bytes_per_s": KV_LOADED_BYTES,
    "kv_transferred_bytes_per_s": KV_TRANSFERRED_BYTES,
    "kv_transfer_failures_per_s": KV_TRANSFER_FAILURES,
}
"""Fields of `Engine` that are plain rates of a counter."""
_MADE_OF: Final = {
    "mfu_prefill_ratio": ("prefill_tokens_per_s",),
    "mfu_decode_ratio": ("decode_tokens_per_s",),
    "mfu_ratio": ("prefill_tokens_per_s", "decode_tokens_per_s", "trained_tokens_per_s"),
    "flops_per_s": ("prefill_tokens_per_s", "decode_tokens_per_s", "trained_tokens_per_s"),
    "mbu_ratio": ("decode_tokens_per_s", "steps_per_s"),
    "bytes_per_s": ("decode_tokens_per_s", "steps_per_s"),
}
"""Figure -> the rates that it is made of: it is as much of a figure of now as the least of them."""


class Rates(NamedTuple):
    """What the engine did per second, and the sizes that its FLOPs and bytes depend on."""

    service: Service
    prefill: Reading
    cached: Reading
    decode: Reading
    decode_tick: Reading
    """Decode rate between the two newest polls, for charts."""
    prompts: Reading
    """Requests per second that got their first token."""
    steps: Reading
    """Steps per second, summed over the ranks."""
    spread: Spread
    """How its ranks share the weights that a step reads."""
    steps_source: str
    context: Reading
    context_source: str
    prompt_length: Reading
    """Size-biased mean prompt length, cached tokens included."""
    tokens_per_step: float
    """Tokens per step and sequence: 1 without speculation."""
    rate_s: float
    """What the window of the rates truly spans, in seconds."""
    prefill_s: float
    """The same of the prefill rate."""
    quantile_s: float
    """The same of the quantiles."""
    counted: dict[str, Reading]
    """Other rates by field of `Engine`."""
    advances: dict[str, str]
    """Field of `Engine` -> when what it stands on moves."""
    named: tuple[tuple[str, str], ...]
    """Field of `Engine` -> where it is read, for those whose source depends on when that moves."""


def rates(reading: EngineReading, track: Track, laid: Layout) -> Rates:
    """The rates of one engine over its windows."""
    service = service_of(reading)
    window_s, settled = _prefill_window(reading, track)
    flows = _flows(reading, track, service, window_s)
    prefill, decode = flows["prefill_tokens_per_s"], flows["decode_tokens_per_s"]
    if not settled and prefill.advance is Advance.PROMPT:
        prefill = flows["prefill_tokens_per_s"] = prefill._replace(per_s=track.not_yet)
    told = speculation(reading, track, decode.per_s)
    per_step = number(told) or 1.0
    made = steps(reading, track, laid, per_step, decode.per_s)
    flows["steps_per_s"] = Flow(NOT_EXPOSED, made.advance)
    known = service not in WITHOUT_DECODE
    tokens, source = context(reading, track) if known else (WITHOUT_DECODE[service], "")
    return Rates(
        service=service,
        prefill=prefill.per_s,
        cached=flows["cached_tokens_per_s"].per_s,
        decode=decode.per_s,
        decode_tick=newest(reading, track, DECODE_TOKENS, DECODE_RATE) if known else decode.per_s,
        prompts=_prompts(track, window_s),
        steps=made.by_rank if isinstance(made.by_rank, Missing) else sum(made.by_rank),
        spread=_spread(made.by_rank, laid),
        steps_source=made.source,
        context=tokens,
        context_source=source,
        prompt_length=prompt_length(reading, track, window_s, tokens),
        tokens_per_step=per_step,
        rate_s=track.length_s(track.rate_s),
        prefill_s=track.length_s(window_s),
        quantile_s=track.length_s(track.quantile_s),
        counted={
            **{field: flows[field].per_s for field in _COUNTED},
            "tokens_per_step": told if known else WITHOUT_DECODE[service],
        },
        advances=_advances(tuple((field, found.advance) for field, found in flows.items())),
        named=(
            *((field, found.source) for field, found in flows.items() if found.source),
            *_named(reading, track, known=known),
        ),
    )


_COUNTED: Final = (*COUNTERS, "trained_tokens_per_s", "samples_per_s")


def _flows(reading: EngineReading, track: Track, service: Service, prefill_s: float) -> dict[str, Flow]:
    """Every rate by field of `Engine`."""
    found = {field: flow(reading, track, quantity) for field, quantity in COUNTERS.items()}
    off = Missing(Reason.OFF, reading.info[TOKENS_OFF]) if TOKENS_OFF in reading.info else None
    no_prefill, no_decode = WITHOUT_PREFILL.get(service, off), WITHOUT_DECODE.get(service, off)
    if no_prefill is None:
        computed = flow(reading, track, PREFILL_COMPUTED, PREFILL_RATE, prefill_s)
        cached = flow(reading, track, PREFILL_CACHED, seconds=prefill_s)
    else:
        computed = cached = Flow(no_prefill)
    found["prefill_tokens_per_s"], found["cached_tokens_per_s"] = computed, cached
    found["decode_tokens_per_s"] = (
        flow(reading, track, DECODE_TOKENS, DECODE_RATE, steady_s=track.quantile_s)
        if no_decode is None
        else Flow(no_decode)
    )
    tokens, samples = trained(reading, track) if service is Service.TRAINING else (NOWHERE, NOWHERE)
    found["trained_tokens_per_s"], found["samples_per_s"] = tokens, samples
    return found


def _prefill_window(reading: EngineReading, track: Track) -> tuple[float, bool]:
    """Window of computed prefill, and whether the polls go back far enough for it.

    An engine that books a whole prompt at its first token (vLLM) needs a window as long as the longest prefill in it;
    until it is, there is no rate. The longest, not the mean: one prompt of 128k among short ones would else read as
    more than the GPUs can compute. Prefill that is counted as it is computed has the window of the other rates.
    """
    if counter_advance(reading, track, PREFILL_COMPUTED) is not Advance.PROMPT:
        track.keep_s = MOST_KEPT_S if reading.phase is Phase.TRAINING else track.quantile_s
        return track.rate_s, True
    ttft_s = longest(track.histogram(TTFT, max(track.quantile_s, track.keep_s)))
    ttft_s = min(ttft_s, MOST_KEPT_S)
    window_s = max(track.rate_s, ttft_s)
    if track.length_s(window_s) < ttft_s:
        window_s += track.cadence_s
    track.keep_s = max(track.quantile_s, window_s)
    return window_s, track.length_s(window_s) >= ttft_s


def _spread(by_rank: list[float] | Missing, laid: Layout) -> Spread:
    """Of ranks that share experts the one that makes most steps is the pace of all; others each have their own."""
    made = [] if isinstance(by_rank, Missing) else by_rank
    group = max(made, default=0.0) if laid.together > 1 else sum(made)
    return Spread(group, max(1.0, laid.together / laid.dp), laid.attention_alone)


def _prompts(track: Track, window_s: float) -> Reading:
    first, pair = track.histogram(TTFT, window_s), track.window(window_s)
    if first is None or pair is None:
        return NOT_EXPOSED
    return first.count / (pair[1].monotonic_s - pair[0].monotonic_s)


@lru_cache(maxsize=64)
def _advances(of_rates: tuple[tuple[str, Advance | None], ...]) -> dict[str, str]:
    """When each rate moves, and each figure that is made of them; shared between ticks: never change it."""
    moves = dict(of_rates)
    moves.update((field, weakest(moves[part] for part in parts)) for field, parts in _MADE_OF.items())
    return {field: advance.value for field, advance in moves.items() if advance is not None}


def _named(reading: EngineReading, track: Track, *, known: bool) -> tuple[tuple[str, str], ...]:
    """Sources of what has no flow."""
    live = reading.live
    if not known:
        return ()
    drafted = ""
    if {ACCEPTED_TOKENS, DRAFTS} <= live.keys():
        drafted = f"all tokens / those not accepted, at most 1 + {live[ACCEPTED_TOKENS]} / {live[DRAFTS]}"
    told = f"mean of {live[MEAN_ACCEPTED]}" if MEAN_ACCEPTED in live else "no sign of speculation"
    rate = f"{live[DECODE_RATE]}, mean of its samples of the last 10 min at most" if DECODE_RATE in live else ""
    gaps = f"{live[ITL]} sum / count over {track.length_s(track.rate_s):.0f} s" if ITL in live else ""
    if gaps and gaps_are_steps(reading):
        gaps += ", / tokens per step and sequence"
    return ("tokens_per_step", drafted or told), ("decode_mean_tokens_per_s", rate), ("itl_mean_s", gaps)
