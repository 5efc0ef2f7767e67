"""The table of rules, and the tables of the rows that stand beside them: causes, figures and actions by their code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from gpumon.readings.verdict import Family, Kind
from gpumon.triage import (
    advice,
    answers,
    bandwidth_bound,
    compute_bound,
    engine_down,
    engine_parts,
    engine_state,
    engine_use,
    failing,
    forecast,
    free_gpus,
    front_end,
    gpu_clocks,
    gpu_figures,
    gpu_hardware,
    gpu_memory,
    gpu_use,
    harm,
    host,
    host_change,
    idle_time,
    kv_cache,
    kv_leak,
    kv_transfer,
    links,
    lora,
    neighbours,
    onset,
    option_causes,
    other_vendors,
    pace,
    parallel,
    periodic,
    prefix_cache,
    programs,
    queueing,
    replicas,
    sentences,
    signals,
    slowed,
    speculation,
    start_loop,
    traffic,
    unexplained,
    xid,
)
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy
from gpumon.triage.progress import hung, work
from gpumon.triage.signals import Case

RuleFunction = Callable[[Case], "Finding | None"]
RULES: Final[Mapping[tuple[Kind, Family], tuple[RuleFunction, ...]]] = {
    (Kind.GPU, Family.STATE): (
        gpu_hardware.broken,
        gpu_clocks.throttled,
        programs.idle_rank,
        programs.collective_hang,
        links.bad_link,
        gpu_hardware.program_fault,
    ),
    (Kind.GPU, Family.LIMIT): (
        programs.checkpoint,
        programs.starved,
        programs.waits_for_host,
        pace.program_slower,
    ),
    (Kind.GPU, Family.USE): (
        gpu_memory.vram_full,
        gpu_memory.memory_unlisted,
        engine_down.gpu_left,
        gpu_memory.memory_idle,
        gpu_use.gpu_under_used,
        programs.without_tensor_cores,
        gpu_use.works_without_engine,
    ),
    (Kind.ENGINE, Family.STATE): (
        start_loop.start_loop,
        engine_state.ended_again,
        engine_down.down,
        engine_parts.part_gone,
        engine_parts.part_stands_still,
        hung.hung,
        engine_state.unresponsive,
        engine_state.mute,
        engine_down.unreachable,
        engine_state.restarting,
        front_end.no_backend,
        front_end.requests_fail,
        front_end.turns_requests_away,
        failing.errors,
        failing.corrupted,
        failing.rejections,
        failing.aborts,
        failing.refusals,
        engine_state.degraded,
        engine_down.never_served,
        engine_down.starting,
        engine_down.draining,
    ),
    (Kind.ENGINE, Family.LIMIT): (
        host.even_drops,
        periodic.periodic_stalls,
        parallel.uneven_ranks,
        lora.lora_slots,
        kv_transfer.transfer_waits,
        kv_transfer.cache_expires,
        prefix_cache.prefix_hits,
        slowed.slowed_down,
        slowed.slower_than_replicas,
        pace.training_slower,
        kv_leak.kv_leak,
        kv_cache.one_prompt,
        kv_cache.kv_cache,
        neighbours.neighbour,
        speculation.lost_speculation,
        queueing.bursts,
        queueing.queue,
        parallel.straggler,
        parallel.uneven_steps,
        parallel.interconnect,
        compute_bound.long_prefill,
        compute_bound.compute,
        bandwidth_bound.bandwidth,
        host.input_starved,
        host.scheduler_bound,
        front_end.backend_fails,
        front_end.front_end_queue,
        front_end.backend_out,
        option_causes.slow_option,
        unexplained.unexplained,
    ),
    (Kind.ENGINE, Family.USE): (
        traffic.traffic_fell,
        answers.cut_answers,
        engine_use.under_used,
        engine_use.training_low,
        answers.one_token_answers,
        engine_use.healthy,
        engine_use.training_well,
    ),
    (Kind.HOST, Family.STATE): (gpu_hardware.unseen_gpus,),
    (Kind.HOST, Family.LIMIT): (host.cpu_saturated, host.disk_waits, host_change.host_changed),
    (Kind.HOST, Family.USE): (host.host_memory_full,),
    (Kind.GPU, Family.FORECAST): (forecast.vram_will_be_full,),
    (Kind.ENGINE, Family.FORECAST): (forecast.will_be_full,),
    (Kind.HOST, Family.FORECAST): (forecast.host_memory_will_be_full,),
}
"""The table of rules: of each family of a thing the first that finds something gives the verdict."""
_BESIDE_RULES: Final = (
    *(advice, free_gpus, gpu_figures, harm, idle_time, onset),
    *(other_vendors, replicas, sentences, signals, work, xid),
)
"""Modules with rows that several rules show, or that are added to their findings."""


Row = TypeVar("Row", Cause, Quantity, Remedy)


def _values() -> Iterator[object]:
    """All constants of these modules, in the order of the rules."""
    modules = [sys.modules[rule.__module__] for rules in RULES.values() for rule in rules]
    for module in dict.fromkeys((*modules, *_BESIDE_RULES)):
        yield from vars(module).values()


def rows_by_code(kind: type[Row], values: Iterable[object]) -> dict[str, Row]:
    """The rows of a kind by their code; raises ValueError where two have the same."""
    by_code: dict[str, Row] = {}
    for row in values:
        if isinstance(row, kind) and by_code.setdefault(row.code, row) is not row:
            raise ValueError(f"two rows have the code {row.code}")
    return by_code


CAUSES: Final[Mapping[str, Cause]] = rows_by_code(Cause, _values())
"""Code of a cause -> its row."""
QUANTITIES: Final[Mapping[str, Quantity]] = rows_by_code(Quantity, _values())
"""Code of a figure of evidence -> its row."""
REMEDIES: Final[Mapping[str, Remedy]] = rows_by_code(Remedy, _values())
"""Code of an action -> its row."""
