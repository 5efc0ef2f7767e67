"""Summary of a stretch of a recording: means, totals, money and incidents. `gpumon report` prints it."""

from __future__ import annotations

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Reading
from gpumon.readings.prices import NO_ENERGY_PRICE, NO_PRICE
from gpumon.readings.verdict import EventKind, Level

REPORT_SCHEMA = 1
"""Version of the JSON of `gpumon report`."""


class GoalPeriod(msgspec.Struct, frozen=True):
    """Requests or tokens within a goal, summed up."""

    count: Reading = NOT_EXPOSED
    """Requests, or tokens, that were observed."""
    within_low: Reading = NOT_EXPOSED
    """At least so many of them were within the goal."""
    within_high: Reading = NOT_EXPOSED
    """At most so many were. Equal to `within_low` where the goal is the bound of a bucket."""
    low_ratio: Reading = NOT_EXPOSED
    """`within_low / count`."""
    high_ratio: Reading = NOT_EXPOSED
    """`within_high / count`."""
    goal_s: Reading = NOT_EXPOSED
    users_low_ratio: Reading = NOT_EXPOSED
    """The share as users see it lies between this and `high_ratio`: HTTP adds up to 25 ms to a TTFT."""


class GoodputPeriod(msgspec.Struct, frozen=True):
    """Requests whose latencies inside the engine were within the goals of the config, or within assumed ones."""

    ttft_goal: GoalPeriod = GoalPeriod()
    """Requests by their TTFT."""
    itl_goal: GoalPeriod = GoalPeriod()
    """Tokens by the gap before them."""
    tpot_goal: GoalPeriod = GoalPeriod()
    """Requests that ended, by their mean time per token after the first."""
    ttft_goal_assumed: bool = False
    """The config has no such goal: 1 s is assumed."""
    itl_goal_assumed: bool = False
    """The config has no such goal: 50 ms are assumed."""


def known_s_field(field: str) -> str:
    """Field with the seconds of which a figure of a span is known: `mfu_known_s` of `mfu_ratio`."""
    return f"{field.rpartition('_')[0]}_known_s"


class GpuPeriod(msgspec.Struct, frozen=True):
    """One GPU. Ratios are means over the time in which they were known."""

    index: int
    uuid: str
    name: str
    busy_ratio: Reading = NOT_SUPPORTED
    mfu_ratio: Reading = NOT_SUPPORTED
    mbu_ratio: Reading = NOT_SUPPORTED
    power_w: Reading = NOT_SUPPORTED
    """Mean: `energy_j` over the time in which it was counted."""
    energy_j: Reading = NOT_SUPPORTED
    """From the driver's counter."""
    cost: Reading = NO_PRICE
    """Price of its hours, in the currency of the config."""
    idle_cost: Reading = NO_PRICE
    """The share of `cost` for the time in which no kernel ran, as far as that is known."""
    energy_cost: Reading = NO_ENERGY_PRICE
    """Price of `energy_j`, each minute at the price of its hour."""
    unused_s: Reading = NOT_SUPPORTED
    """Time in which no engine on it served a request, or without one no kernel ran, looked at 600 times, and at least
    once a minute."""
    unused_cost: Reading = NO_PRICE
    """The share of `cost` for that time."""


class SpanTotals(msgspec.Struct, frozen=True):
    """Tokens, energy and money of a span of time: of an engine, a host, or a group of GPUs and engines. Tokens are from
    the engines' own counters, restarts handled."""

    prefill_computed_tokens: Reading = NOT_EXPOSED
    prefill_cached_tokens: Reading = NOT_EXPOSED
    decode_tokens: Reading = NOT_EXPOSED
    trained_tokens: Reading = NOT_EXPOSED
    energy_j: Reading = NOT_EXPOSED
    """Energy of its GPUs that tell it; of an engine none if it shares one with another."""
    tokens_per_j: Reading = NOT_EXPOSED
    """Decode (or trained) tokens per joule, where the energy of all its GPUs is known for all the time."""
    cost: Reading = NO_PRICE
    """Price of its GPUs' hours, as far as they have one; of an engine none if it shares a GPU with another. So all
    costs."""
    energy_cost: Reading = NO_ENERGY_PRICE
    cost_per_million_tokens: Reading = NO_PRICE
    """`cost` per 10^6 decode (or trained) tokens; none where some GPUs of its engines have no price, are not known, or
    are in another group."""
    cost_per_million_all_tokens: Reading = NO_PRICE
    """`cost` per 10^6 prompt tokens, cached ones included, and decode tokens."""
    goodput: GoodputPeriod = GoodputPeriod()
    """Sums over the engines, no means."""


class EnginePeriod(SpanTotals, frozen=True, kw_only=True):
    """One serving engine or training run."""

    name: str
    key: str
    model: str
    kind: str
    decode_tokens_per_s: Reading = NOT_EXPOSED
    """`decode_tokens` over the time in which they were counted, quiet hours included, gaps of the recording not."""
    running_mean: Reading = NOT_EXPOSED
    waiting_mean: Reading = NOT_EXPOSED
    kv_usage_ratio: Reading = NOT_EXPOSED
    mfu_ratio: Reading = NOT_EXPOSED
    mbu_ratio: Reading = NOT_EXPOSED
    uncounted_s: Reading = 0.0
    """Time in which it did not answer before its process ended or the stretch did: its tokens of that time are in no
    figure. Less than 10 s in one piece are left out."""


class Incident(msgspec.Struct, frozen=True):
    """A verdict of `warn` or worse, from its first to its last moment; or an event that has no length."""

    kind: EventKind
    scope: str
    text: str
    level: Level
    begin: str
    """RFC 3339."""
    end: str = ""
    """Empty for an event; for a verdict that still stood at the end, the end of the stretch."""
    seconds: float = 0.0
    ended: bool = True
    id: str = ""
    """Id of the verdict, as in `verdicts` of `--json`; empty for an event."""
    caused_by: str = ""
    """`id` of the incident that this one came of: the nearest one of that id before it in the list."""


class Period(SpanTotals, frozen=True, kw_only=True):
    """A stretch of a recording."""

    begin: str
    """RFC 3339."""
    end: str
    """RFC 3339."""
    seconds: float
    covered_s: float
    """Time of which there are frames; the rest is missing and enters no mean."""
    gaps: int
    """Breaks of more than 10 s in which nothing was recorded."""
    host: str
    simulated: bool
    gpus: tuple[GpuPeriod, ...] = ()
    engines: tuple[EnginePeriod, ...] = ()
    busy_ratio: Reading = NOT_SUPPORTED
    """Mean over all its GPUs, idle spares included."""
    mfu_ratio: Reading = NOT_SUPPORTED
    """Mean over its GPUs that an engine uses, weighted with their peaks; so is `mbu_ratio`."""
    mbu_ratio: Reading = NOT_SUPPORTED
    idle_cost: Reading = NO_PRICE
    incidents: tuple[Incident, ...] = ()
    """The longest of the most urgent ones first, at most 200; what came of one follows it."""
    incidents_left_out: int = 0
    """Number of incidents that are not listed, without what came of them."""
    busy_known_s: float = 0.0
    """Seconds of which `busy_ratio` is the mean: those in which it was known."""
    mfu_known_s: float = 0.0
    """Seconds of which `mfu_ratio` is the mean."""
    mbu_known_s: float = 0.0
    """Seconds of which `mbu_ratio` is the mean."""
    unused_gpu_s: Reading = NOT_SUPPORTED
    """GPU-seconds: the sum of `unused_s`."""
    unused_cost: Reading = NO_PRICE
