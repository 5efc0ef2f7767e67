"""The figures of a sizing as words with their unit, and its packing in short: for its text and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gpumon.outputs.units import NONE, milliseconds
from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Degraded, GpuSlot, Limit, Packed, PlacedServer, Source, Totals, WorkloadPlan
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.scenario import Scenario


class SameGpus(msgspec.Struct, frozen=True):
    """GPUs of one server on which the same instances stand."""

    times: int
    """How many such GPUs, or groups of GPUs, the server has."""
    gpus: int
    """GPUs of one group: more than 1 where an instance stands on several."""
    workloads: tuple[int, ...]
    """Indices in `workloads`, one for each instance, the largest first; none: the GPU is free."""
    memory_bytes: float
    """Taken on each GPU."""
    busy_ratio: float
    """Sum of the busy shares that are known, on each GPU."""


class SameServers(msgspec.Struct, frozen=True):
    """Servers that are filled alike."""

    times: int
    """How many there are."""
    shape: int
    """Index of the [[server]] of the scenario."""
    gpus: int
    """GPUs of one such server."""
    filled: tuple[SameGpus, ...]


def grouped(layout: Sequence[PlacedServer], workloads: Sequence[WorkloadPlan]) -> tuple[SameServers, ...]:
    """The servers of a layout, alike ones once, in the order of the layout."""
    order = _largest_first(workloads)
    groups: dict[tuple[int, tuple[tuple[int, tuple[int, ...], int], ...]], SameServers] = {}
    for server in layout:
        filled = tuple(_filled(server.gpus, order))
        key = server.shape, tuple((same.gpus, same.workloads, same.times) for same in filled)
        before = groups.get(key)
        times = 1 if before is None else before.times + 1
        groups[key] = SameServers(times, server.shape, len(server.gpus), filled)
    return tuple(groups.values())


def _largest_first(workloads: Sequence[WorkloadPlan]) -> dict[int, tuple[float, int]]:
    sizes = (0.0 if isinstance(each.memory_bytes, Missing) else each.memory_bytes for each in workloads)
    return {at: (-size, at) for at, size in enumerate(sizes)}


def _filled(slots: Sequence[GpuSlot], order: dict[int, tuple[float, int]]) -> Iterator[SameGpus]:
    same: dict[tuple[int, tuple[int, ...]], SameGpus] = {}
    for first, gpus in _groups(slots):
        workloads = tuple(sorted(first.workloads, key=lambda at: order.get(at, (0.0, at))))
        key = gpus, workloads
        times = same[key].times + 1 if key in same else 1
        same[key] = SameGpus(times, gpus, workloads, first.memory_bytes, first.busy_ratio)
    yield from sorted(same.values(), key=lambda each: (not each.workloads, -each.gpus))


def _groups(slots: Sequence[GpuSlot]) -> Iterator[tuple[GpuSlot, int]]:
    """Each GPU, or each group of GPUs that hold one instance together, by its first GPU."""
    sizes: dict[object, list[GpuSlot]] = {}
    for at, slot in enumerate(slots):
        sizes.setdefault(("gpu", at) if slot.group < 0 else ("group", slot.group, slot.workloads), []).append(slot)
    for members in sizes.values():
        yield members[0], len(members)


_TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "req/s"}
PACKINGS: Final = {"memory": "by memory alone", "busy": "by memory and busy share"}
MOST: Final = 400
"""Characters of one text from a file or an engine."""
_OTHER: Final = {"memory": "by memory alone", "busy": "by busy share"}
_BYTES: Final = ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"))
_WATTS: Final = ((1e9, "GW"), (1e6, "MW"), (1e3, "kW"))
_MOST_NAMED: Final = 3
"""Workloads that the sums leave out and that are named."""
_MOST_DIGITS: Final = 1e15
"""From there on a count is told in powers of ten."""


def number(value: Reading) -> str:
    """Whole where it is whole or above 100, else three digits: `24`, `1,024`, `0.5`, `85.5`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    whole = value == round(value) or abs(value) >= 99.95
    return f"{value:,.0f}" if whole and abs(value) < _MOST_DIGITS else f"{value:.3g}"


def gigabytes(value: Reading) -> str:
    """Bytes in GB (1e9), TB, PB or EB: `12.41 GB`, `556.6 GB`, `1.25 TB`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    one, unit = next((step for step in _BYTES if value >= 0.99995 * step[0]), _BYTES[-1])
    size = value / one
    return f"{size:,.{2 if size < 99.995 else 1}f} {unit}" if size < _MOST_DIGITS else f"{size:.3g} {unit}"


def money(value: Reading) -> str:
    """A sum in the user's currency: `19.92`, `0.0042`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    return f"{value:,.2f}" if value == 0 or 0.1 <= value < _MOST_DIGITS else f"{value:.2g}"


def watts(value: Reading) -> str:
    """`2,800 W`, `12.3 kW`, `1.5 MW`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    if value < 9999.5:
        return f"{value:,.0f} W"
    one, unit = next((step for step in _WATTS if value >= 0.99995 * step[0]), _WATTS[-1])
    return f"{value / one:,.1f} {unit}" if value < _MOST_DIGITS else f"{value / one:.3g} {unit}"


def percent(value: Reading) -> str:
    """A share: `93.5 %`, `99 %`."""
    return NONE if isinstance(value, Missing) or not math.isfinite(value) else f"{value * 100:.3g} %"


def with_unit(value: Reading, unit: str) -> str:
    """`1,234 tok/s`; NONE alone where there is no value."""
    text = number(value)
    return text if text == NONE else f"{text} {unit}"


def name(text: str) -> str:
    """A name from a file or an engine, safe to print."""
    return clean(text, 80)


def target(plan: WorkloadPlan) -> str:
    """`64 in flight`, `2,000 users`, `12 req/s`."""
    return f"{number(plan.target)} {_TARGETS.get(plan.target_kind, plan.target_kind)}"


def source(plan: WorkloadPlan) -> str:
    """`roofline -20..+30%`, `typed`; with `!` beyond what was measured."""
    return f"{plan.source.value} {plan.band.short}{' !' if plan.extrapolated else ''}".replace("  ", " ").rstrip()


def planned(plan: WorkloadPlan, planning_factor: float) -> str:
    """`117 in flight each, 80 % of the first limit (planning_factor)`; empty where it is not known."""
    each = with_unit(plan.capacity_per_instance, "in flight each")
    if each == NONE or not plan.limits:
        return "" if each == NONE else each
    as_is = plan.source is Source.TYPED or plan.limits[0].kind in OPERATING_POINTS or planning_factor == 1.0
    return each if as_is else f"{each}, {percent(planning_factor)} of the first limit (planning_factor)"


def origin(plan: WorkloadPlan) -> str:
    """Where the capacity comes from, as a sentence's end."""
    said = [f"{plan.source.value} {plan.band.text}".rstrip()]
    if plan.seen_name:
        when = f" at {clean(plan.seen_time, 40)}" if plan.seen_time else ""
        said.append(f"from {name(plan.seen_name)}{when}")
    if plan.extrapolated:
        said.append("beyond the largest load that was measured")
    return ", ".join(said)


def instance(plan: WorkloadPlan) -> str:
    """What one instance takes."""
    gpus = f"{plan.gpus_per_instance} GPU{'s' if plan.gpus_per_instance != 1 else ''}" if plan.gpus_per_instance else ""
    parallel = f"TP {plan.tp}" + (f" x PP {plan.pp}" if plan.pp > 1 else "") if plan.gpus_per_instance > 1 else ""
    memory = gigabytes(plan.memory_bytes)
    behind = f" ({plan.memory_source})" if plan.memory_source and memory != NONE else ""
    parts = (gpus, parallel, memory + behind, f"busy {percent(plan.busy_ratio)}")
    spares = f"{plan.spares} spare" if plan.spares else ""
    return ", ".join(part for part in (*parts, spares) if part and not part.endswith(NONE))


_Form = tuple[str, Callable[[Reading], str], str]
_OF_EACH: Final[tuple[_Form, ...]] = (
    ("running", lambda value: with_unit(value, "running each"), ""),
    ("itl_s", milliseconds, "ITL "),
    ("itl_p95_s", milliseconds, "p95 "),
    ("ttft_s", milliseconds, "TTFT "),
    ("ttft_p95_s", milliseconds, "p95 "),
    ("e2e_s", milliseconds, "E2E "),
)
"""Field of a workload's plan, its form and what stands before it."""
_OF_ALL: Final[tuple[_Form, ...]] = (
    ("tokens_per_s", lambda value: with_unit(value, "tok/s"), ""),
    ("requests_per_s", lambda value: with_unit(value, "req/s"), ""),
    ("power_w", watts, ""),
)
"""The same of what is a sum over its instances."""


def at_target(plan: WorkloadPlan) -> str:
    """What its instances do at the target, each and all together; only what is known."""
    each, together = _said(plan, _OF_EACH), _said(plan, _OF_ALL)
    asked = with_unit(plan.concurrency, "in flight") if plan.target_kind != "concurrency" else NONE
    limit = " (the boards' limit)" if plan.power_source == "limit" and watts(plan.power_w) != NONE else ""
    return "; ".join(
        part for part in (asked, each, f"all together {together}{limit}" if together else "") if part not in ("", NONE)
    )


def _said(plan: WorkloadPlan, forms: Sequence[_Form]) -> str:
    texts = ((before, form(getattr(plan, field))) for field, form, before in forms)
    return ", ".join(before + text for before, text in texts if text != NONE)


def bound(limit: Limit) -> str:
    """`61.1 in flight, KV: the KV cache holds 441,347 tokens, 6,500 a request`."""
    kind, at = limit.kind.value, f"{number(limit.concurrency)} in flight"
    text = clean(limit.text, MOST).removeprefix(f"{kind}: ")
    return f"{at}: {text}" if text.startswith(f"{kind} ") else f"{at}, {kind}: {text}"


def lost(case: Degraded) -> str:
    """What is left when an instance or a server is gone."""
    figures = (
        "" if case.text else with_unit(case.running, "running each"),
        f"ITL {milliseconds(case.itl_s)}",
        f"p95 {milliseconds(case.itl_p95_s)}",
        f"TTFT {milliseconds(case.ttft_s)}",
        f"p95 {milliseconds(case.ttft_p95_s)}",
    )
    known = [figure for figure in figures if figure and not figure.endswith(NONE)]
    said = f": {clean(case.text, MOST)}" if case.text else ""
    return f"{', '.join([f'{case.instances:,} left', *known])}{said}"


TOTALS: Final[tuple[tuple[str, str, Callable[[Reading], str]], ...]] = (
    ("memory_bytes", "memory", gigabytes),
    ("price_per_hour", "price", lambda value: _behind(money(value), " per hour")),
    ("price_per_mtok", "price of tokens", lambda value: _behind(money(value), " per 1e6 output tokens")),
    ("power_w", "power", watts),
    ("tokens_per_s", "output", lambda value: with_unit(value, "tok/s")),
    ("tokens_per_j", "energy", lambda value: with_unit(value, "tok/J")),
)
"""Field of the totals, its name, and its form."""


def totals(answer: Answer) -> Iterator[tuple[str, str]]:
    """Name and text of the totals that are known; a price says what it is of where servers have free GPUs, and sums
    that workloads are missing from say so."""
    partial = f" (without {len(answer.without)} of {len(answer.workloads)} workloads)" if answer.without else ""
    for field, what, form in TOTALS:
        text = form(getattr(sums(answer), field))
        if text != NONE:
            yield what, text + _behind_total(field, answer) + partial


def _behind_total(field: str, answer: Answer) -> str:
    """What a price is of, and that watts are no measured ones."""
    if field == "price_per_hour":
        return _whole_servers(answer)
    if field != "power_w":
        return ""
    part = "" if answer.power_sources == {"limit"} else "in part "
    return f" ({part}the boards' limit)" if "limit" in answer.power_sources else ""


def sums(answer: Answer) -> Totals:
    """The totals, or those of the workloads that have an answer where others have none."""
    return answer.totals_without if answer.without else answer.totals


def _whole_servers(answer: Answer) -> str:
    """` for 4 whole servers` where more GPUs are paid for than are in use."""
    packed = needed(answer)
    if isinstance(packed.servers, Missing) or isinstance(packed.gpus, Missing) or not packed.layout:
        return ""
    sizes = [len(server.gpus) for server in packed.layout]
    paid = sum(sizes) + (packed.servers - len(sizes)) * max(sizes)
    return f" for {counted(packed.servers, 'whole server')}" if packed.gpus < paid else ""


def _behind(text: str, unit: str) -> str:
    return text if text == NONE else text + unit


def counts(totals: Totals | Packed) -> str:
    """`24 instances, 8 GPUs, 2 servers`."""
    parts = ((totals.instances, "instance"), (totals.gpus, "GPU"), (totals.servers, "server"))
    return ", ".join(counted(value, word) for value, word in parts)


def counted(value: Reading, word: str) -> str:
    """`1 GPU`, `1,024 GPUs`."""
    return f"{number(value)} {word}{'' if value == 1.0 else 's'}"


def needed(answer: Answer) -> Packed:
    """The packing that was asked for."""
    return answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware


def other(answer: Answer) -> str:
    """What the other packing takes of the same workloads, where that differs: `by busy share 24 GPUs, 6 servers`."""
    if answer.without:
        return ""
    mine, name = needed(answer), "busy" if answer.packing == "memory" else "memory"
    theirs = answer.plans.busy_aware if name == "busy" else answer.plans.memory_only
    if (theirs.gpus, theirs.servers) == (mine.gpus, mine.servers):
        return ""
    if isinstance(theirs.gpus, Missing) or isinstance(theirs.servers, Missing):
        return f"{_OTHER[name]} there is no room"
    return f"{_OTHER[name]} {counted(theirs.gpus, 'GPU')}, {counted(theirs.servers, 'server')}"


def without(answer: Answer, most: int = _MOST_NAMED) -> str:
    """`without 70B, 8B and 2 more`: the workloads that the sums leave out; empty where there are none."""
    if not answer.without:
        return ""
    more = len(answer.without) - most
    shown = ", ".join(map(name, answer.without[:most]))
    return f"without {shown} and {more:,} more" if more > 0 else f"without {shown}"


def servers(plan: WorkloadPlan) -> str:
    """Servers that hold it, those that other workloads share with it named: `4`, `3 (1 shared)`, `1 (shared)`."""
    count, shared = plan.servers, plan.servers_shared
    if isinstance(count, Missing) or isinstance(shared, Missing) or not shared:
        return number(count)
    return f"{number(count)} (shared)" if shared == count else f"{number(count)} ({number(shared)} shared)"


def unknown(totals: Totals) -> str:
    """The totals that are not known, with the reason of each."""
    missing = ((what, getattr(totals, field)) for field, what, _ in TOTALS)
    return ", ".join(f"{what} ({phrase(value)})" for what, value in missing if isinstance(value, Missing))


def optimal(packed: Packed) -> str:
    """Whether fewer servers could do; empty where it is not known."""
    servers, least = packed.servers, packed.servers_least
    if isinstance(servers, Missing) or isinstance(least, Missing):
        return ""
    return "proven: no placement needs fewer" if servers <= least else f"no placement needs fewer than {number(least)}"


def spare(packed: Packed, scenario: Scenario) -> str:
    """`1 x spare server of 2 x L40S`: those on which nothing stands; empty where there are none."""
    if not packed.spare_servers or packed.spare_shape >= len(scenario.server):
        return ""
    server = scenario.server[packed.spare_shape]
    return f"{packed.spare_servers:,} x spare server of {server.gpus} x {name(server.gpu)}"


def shape(servers: SameServers, scenario: Scenario) -> str:
    """`2 x server of 4 x H100 PCIe 80GB`."""
    gpu = f" x {name(scenario.server[servers.shape].gpu)}" if servers.shape < len(scenario.server) else " GPUs"
    return f"{servers.times:,} x server of {servers.gpus}{gpu}"


def filled(same: SameGpus, plans: Sequence[WorkloadPlan]) -> str:
    """`[20B, 5B, 5B] x4`, `[70B on 4 GPUs] x2`, `[free] x3`; from three equal ones on they are counted: `[5B x6]`."""
    words: list[str] = []
    for at, run in groupby(same.workloads):
        shown = name(plans[at].name) if at < len(plans) else str(at)
        times = len(list(run))
        words += [f"{shown} x{times}"] if times > 2 else [shown] * times
    span = f" on {same.gpus} GPUs" if same.gpus > 1 else ""
    return f"[{', '.join(words) or 'free'}{span}]{f' x{same.times}' if same.times > 1 else ''}"
