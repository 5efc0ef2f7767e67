"""A row of a fleet: the figures over some hosts, GPUs and engines, under the worst verdict on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from gpumon.efficiency.costs import ALL_RATES, OUTPUT_RATES, tokens_per_s
from gpumon.efficiency.merged import Known, merge_known, ratio_of_sums, sum_known
from gpumon.efficiency.money import cost_of, per_million_tokens
from gpumon.efficiency.ratio import times
from gpumon.efficiency.service import ROUTER_KINDS
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.fleet.parts import (
    Parts,
    RowEngine,
    RowGpu,
    RowLatency,
    bandwidth_source,
    idle_share,
    least_within_goal,
    least_within_itl_goal,
    p95_over_engines,
    tokens_per_j,
)
from gpumon.fleet.snapshot import HostShown, HostState
from gpumon.readings.flat import getter
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.prices import NO_PRICE, price_of_hour
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Level, Limit, Verdict
from gpumon.readings.verdict import Acknowledged
from gpumon.triage.marks import URGENCY
from gpumon.triage.render import shown_text, verdict_text

_NO_GPU: Final = "no GPU"
STATE_LEVELS: Final = {
    HostState.STALE: Level.WARN,
    HostState.UNREACHABLE: Level.CRITICAL,
    HostState.GONE: Level.CRITICAL,
}
"""Level of a host of which nothing new is known. One that starts is no trouble yet."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)
_OF_GPUS: Final = (
    *("busy_ratio", "vram_used_bytes", "vram_total_bytes", "mfu_ratio", "mbu_ratio", "power_w", "energy_j"),
    "energy_cost",
)
"""Figures of a row that are those of its GPUs together, by the rules of their rows."""
_OF_ENGINES: Final = ("decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s", "running", "waiting")
"""Figures of a row that are those of its engines together."""
_COUNTED_IN_ROW: Final = {"mfu_ratio": "mfu", "mbu_ratio": "mbu"}
"""Figure of a GPU -> field of `RowGpu` that has it for the engines of the row alone."""


class FleetRow(msgspec.Struct, frozen=True, eq=False):
    """A host, a model, an owner, or the whole fleet. Texts are from outside: escape before showing.

    GPUs are whole ones, no MIG slices; figures over GPUs say of how many they are known (`Known`). Figures of engines
    are over those that answer.
    """

    key: str
    """Identity of the row: the host's name, the model's as its engines have it, or the owner's."""
    name: str
    labels: Mapping[str, str]
    """Labels of the host, as `HostShown.labels`; of several hosts the labels that all share."""
    hosts: tuple[str, ...]
    gpus: int | Missing
    """Missing where no GPU is reported, unless the hosts' own gpumon say that there is none: engines have some."""
    gpu_types: tuple[tuple[str, int], ...]
    """(Catalogue name, or else the driver's; number of GPUs), most first."""
    engines: int
    silent: int
    """Engines that do not answer."""
    exporters_down: int
    """Exporters that do not answer."""
    models: tuple[str, ...]
    busy_ratio: Known
    """Mean."""
    vram_used_bytes: Known
    vram_total_bytes: Known
    bandwidth_ratio: Known
    """Bytes/s of all / peak of all."""
    bandwidth_source: BandwidthSource
    """The least sure one in it."""
    mfu_ratio: Known
    """Weighted with the GPUs' FLOP/s peaks."""
    mbu_ratio: Known
    """Weighted with the GPUs' bandwidth peaks."""
    decode_tokens_per_s: Reading
    prefill_tokens_per_s: Reading
    requests_per_s: Reading
    running: Reading
    waiting: Reading
    kv_usage_ratio: Reading
    """KV usage of the fullest engine."""
    ttft_p95_s: RowLatency
    itl_p95_s: RowLatency
    ttft_goal_ratio: Reading
    """Least share of all requests of 2 minutes that kept the TTFT goal, or the assumed one, of their engines."""
    itl_goal_ratio: Reading
    """Least share of all requests of 2 minutes that kept the ITL goal; of tokens where no engine counts requests."""
    power_w: Known
    tokens_per_j: Reading
    """Decode tokens/s over the mean watts of the engines' GPUs."""
    idle_gpus: Known
    """Sum of the GPUs' idle shares: 8 GPUs that are 75% busy are 2 idle ones."""
    idle_cost_per_h: Known
    """Price of an hour x the idle share, as in a report."""
    cost_per_h: Known
    """Price of an hour of its GPUs, by the prices of the gpumon that shows the fleet; so are the next two costs."""
    cost_per_million_output_tokens: Reading
    """Known for rows whose GPUs all have a price, and whose engines all tell their tokens."""
    cost_per_million_all_tokens: Reading
    unused_gpu_s: Known
    """GPU-seconds without a request, or with nobody on the GPU, since the gpumon that reads them started."""
    unused_cost: Known
    """Price of these GPU-seconds."""
    energy_j: Known
    """Since the gpumon that reads them started."""
    energy_cost: Known
    """By the prices of the gpumon that reads the GPUs."""
    level: Level | None
    """Level of the worst verdict; None where there is none."""
    verdict: str
    """The worst verdict in one line, with its scope. For a host without one: why it does not answer, that it has no
    GPU, or what is wrong with its gpumon."""
    worst: Verdict | None
    """The worst verdict; its scope says whose it is."""
    state: HostState
    """State of the host; the best state of several hosts."""
    troubled: int
    """Hosts that are not `ok`."""
    faults: int
    """Faults that its hosts report."""
    parts: Parts
    """The hosts, GPUs and engines that the row is worked out from."""


def row_reader(figure: Figure) -> Callable[[FleetRow], Reading]:
    """A function that reads a figure of GPUs or engines off a row, over those of which it is known."""
    read = attrgetter(figure.flat_name)

    def value(row: FleetRow) -> Reading:
        over_things: Known | RowLatency | Reading = read(row)
        return over_things.value if isinstance(over_things, (Known, RowLatency)) else over_things

    return value


def is_least(row: FleetRow, figure: Figure) -> bool:
    """Whether a figure of a row is a least value: a latency beyond the end of a histogram."""
    over_things = getattr(row, figure.flat_name, None)
    return isinstance(over_things, RowLatency) and over_things.is_least


def row_maintenance(row: FleetRow) -> Acknowledged | None:
    """The maintenance that all hosts of a row are in; None where one of them is in none."""
    found = [host.maintenance for host in row.parts.hosts]
    return found[0] if found and all(found) else None


def verdicts_on(parts: Parts, *, with_hosts: bool = False) -> Iterator[Verdict]:
    """The verdicts on the GPUs and engines of a row over several hosts, each with its host in its scope.

    `with_hosts`: also those on the hosts themselves.
    """
    keys = {(row_engine.host, row_engine.engine.key) for row_engine in parts.engines}
    keys |= {(row_gpu.host, row_gpu.gpu.reading.uuid) for row_gpu in parts.gpus}
    for host in parts.hosts:
        if host.state is HostState.GONE:
            continue
        for verdict in host.snapshot.verdicts:
            if (host.name, verdict.key) in keys or (with_hosts and not verdict.key):
                yield msgspec.structs.replace(verdict, scope=f"{host.name} {verdict.scope}")


def fleet_row(key: str, name: str, parts: Parts, verdicts: Iterable[Verdict]) -> FleetRow:
    """The row of these parts, under the worst of the verdicts that nobody has acknowledged."""
    hosts = parts.hosts
    gpus = parts.gpus
    engines = parts.engines
    in_totals = [row_engine for row_engine in engines if row_engine.in_totals]
    idle_shares = [idle_share(row_gpu.gpu) for row_gpu in gpus]
    all_verdicts = list(verdicts)
    counted = [verdict for verdict in all_verdicts if verdict.acknowledged is None]
    worst = min(counted, key=_worst_first, default=None)
    level = worst.level if worst is not None else None
    return FleetRow(
        key=key,
        name=name,
        labels=_shared_labels(hosts),
        hosts=tuple(host.name for host in hosts),
        gpus=_count_gpus(parts),
        gpu_types=_gpu_types(gpus),
        engines=len(engines),
        silent=sum(not row_engine.answers for row_engine in engines),
        # Where nothing else answers either, the host is down, not its exporters.
        exporters_down=sum(host.exporters_down for host in hosts if host.state is HostState.PARTIAL),
        models=_model_names(engines),
        **_of_parts(gpus, in_totals),
        bandwidth_ratio=ratio_of_sums(
            _gpu_figures(gpus, "bandwidth_bytes_per_s"), _gpu_figures(gpus, "bandwidth_peak_bytes_per_s")
        ),
        bandwidth_source=bandwidth_source(gpus),
        kv_usage_ratio=_over_engines(engines, "kv_usage_ratio"),
        ttft_p95_s=p95_over_engines(in_totals, "ttft_s", "ttft"),
        itl_p95_s=p95_over_engines(in_totals, "itl_s", "itl"),
        ttft_goal_ratio=least_within_goal(row_engine.engine.goodput.ttft_goal for row_engine in in_totals),
        itl_goal_ratio=least_within_itl_goal([row_engine.engine.goodput for row_engine in in_totals]),
        tokens_per_j=tokens_per_j(in_totals),
        idle_gpus=sum_known(idle_shares),
        **_costs(gpus, in_totals, parts.prices),
        level=level,
        verdict=_verdict_line(worst, parts) or _acknowledged_line(all_verdicts),
        worst=worst,
        state=_best_state(hosts),
        troubled=_count_troubled_hosts(hosts),
        faults=sum(len(host.snapshot.faults) for host in hosts),
        parts=parts,
    )


def _costs(gpus: Sequence[RowGpu], in_totals: Sequence[RowEngine], prices: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a row for unused time, prices of the GPUs, and prices of the engines' tokens."""
    hourly = [price_of_hour(row_gpu.gpu.gpu_type, prices) for row_gpu in gpus]
    per_hour = merge_known(GPU["cost_per_hour"], hourly)
    # Without the price of every GPU that of the tokens is too low.
    whole_cost = NO_PRICE if per_hour.gpus < per_hour.of else per_hour.value
    unused = _gpu_figures(gpus, "unused_s")
    unused_costs = [cost_of(price, unused_s) for price, unused_s in zip(hourly, unused, strict=True)]
    engines = [row_engine.engine for row_engine in in_totals]
    idle_costs_per_h = [times(price_of_hour(row_gpu.gpu.gpu_type, prices), idle_share(row_gpu.gpu)) for row_gpu in gpus]
    return {
        "idle_cost_per_h": sum_known(idle_costs_per_h),
        "cost_per_h": per_hour,
        "cost_per_million_output_tokens": per_million_tokens(whole_cost, tokens_per_s(engines, OUTPUT_RATES)),
        "cost_per_million_all_tokens": per_million_tokens(whole_cost, tokens_per_s(engines, ALL_RATES)),
        "unused_gpu_s": merge_known(GPU["unused_s"], unused),
        "unused_cost": merge_known(GPU["unused_cost"], unused_costs),
    }


def _of_parts(gpus: Sequence[RowGpu], in_totals: Sequence[RowEngine]) -> dict[str, Any]:
    """The fields of a row that are figures of its GPUs, or of its engines, together."""
    of_gpus: dict[str, Any] = {field: _over_gpus(gpus, field) for field in _OF_GPUS}
    return of_gpus | {field: _over_engines(in_totals, field) for field in _OF_ENGINES}


def _over_gpus(gpus: Sequence[RowGpu], field: str) -> Known:
    """One figure over the GPUs of which it is known, by the rule of its row."""
    row = GPU[field]
    weights = _gpu_figures(gpus, row.weight) if row.weight else ()
    return merge_known(row, _gpu_figures(gpus, field), weights)


def _over_engines(engines: Sequence[RowEngine], field: str) -> Reading:
    """One figure over the engines of which it is known, by the rule of its row."""
    return merge_known(ENGINE[field], _engine_figures(engines, field)).value


def _gpu_figures(gpus: Sequence[RowGpu], field: str) -> list[Reading]:
    """One figure of every GPU, by its flat name; MFU and MBU are those that count in the row."""
    if field in _COUNTED_IN_ROW:
        return [getattr(row_gpu, _COUNTED_IN_ROW[field]) for row_gpu in gpus]
    figure = getter(Gpu, field)
    return [figure(row_gpu.gpu) for row_gpu in gpus]


def _engine_figures(engines: Sequence[RowEngine], field: str) -> list[Reading]:
    """One figure of every engine, by its flat name."""
    figure = getter(Engine, field)
    return [figure(row_engine.engine) for row_engine in engines]


def _count_gpus(parts: Parts) -> int | Missing:
    """The number of GPUs, or why it is not known."""
    if parts.gpus:
        return len(parts.gpus)
    if parts.hosts and all(host.own_gpumon for host in parts.hosts):
        return 0
    if _count_troubled_hosts(parts.hosts):
        return _UNREACHABLE
    if any(host.state is HostState.STARTING for host in parts.hosts):
        return Missing(Reason.WARMING_UP)
    return Missing(Reason.NOT_EXPOSED)


def _gpu_types(gpus: Sequence[RowGpu]) -> tuple[tuple[str, int], ...]:
    """The types of GPUs with their numbers, most first."""
    types = Counter(row_gpu.gpu.gpu_type or row_gpu.gpu.reading.name for row_gpu in gpus)
    return tuple(types.most_common())


def _model_names(engines: Sequence[RowEngine]) -> tuple[str, ...]:
    """The models of the engines, each name once, in the order of the engines; a router may have names of its own."""
    names = [
        row_engine.engine.model
        for row_engine in engines
        if row_engine.engine.model and row_engine.engine.kind not in ROUTER_KINDS
    ]
    return tuple(dict.fromkeys(names))


def _verdict_line(worst: Verdict | None, parts: Parts) -> str:
    """The worst verdict with its scope; without a verdict the reason that `_reason_without_verdict` gives."""
    if worst is None:
        return _reason_without_verdict(parts)
    return f"{worst.scope}: {verdict_text(worst)}"


def _acknowledged_line(verdicts: Sequence[Verdict]) -> str:
    """The worst verdict that somebody has acknowledged; empty where there is none."""
    known = [verdict for verdict in verdicts if verdict.acknowledged is not None]
    worst = min(known, key=_worst_first, default=None)
    if worst is None:
        return ""
    return f"{worst.scope}: {shown_text(worst)}"


def _best_state(hosts: Sequence[HostShown]) -> HostState:
    """The best state of the hosts."""
    states = {host.state for host in hosts}
    for state in HostState:
        if state in states:
            return state
    return HostState.OK


def _count_troubled_hosts(hosts: Sequence[HostShown]) -> int:
    """The number of hosts that are not well; one that starts is not counted."""
    return sum(host.state not in (HostState.OK, HostState.STARTING) for host in hosts)


def _reason_without_verdict(parts: Parts) -> str:
    """Why the only host of a row is not well, where no verdict tells; empty for rows over several hosts.

    For a host that answers: that it has no GPU, or what is wrong with its gpumon.
    """
    if len(parts.hosts) != 1:
        return ""
    (host,) = parts.hosts
    faults = [fault.text for fault in host.snapshot.faults]
    if host.state is not HostState.OK:
        if faults:
            return faults[-1]
        return ""
    if has_nothing(host):
        if faults:
            return f"{_NO_GPU}: {faults[-1]}"
        return _NO_GPU
    if faults and host.own_gpumon:
        return faults[-1]
    return ""


def has_nothing(host: HostShown) -> bool:
    """Whether a host's own gpumon answers, and finds neither a GPU nor an engine."""
    return host.own_gpumon and not host.snapshot.gpus and not host.snapshot.engines


def _worst_first(verdict: Verdict) -> tuple[int, bool, bool]:
    """Sort key of verdicts, the worst first, of equals a cause before its consequences, then broken hardware.

    "Not known" comes last, even after one that all is well.
    """
    is_other = verdict.code is not Limit.HARDWARE_FAULT
    if verdict.code is Limit.UNKNOWN:
        return len(Level), False, is_other
    return URGENCY[verdict.level], bool(verdict.caused_by), is_other


def _shared_labels(hosts: Sequence[HostShown]) -> dict[str, str]:
    """The labels that all hosts have with the same value."""
    if not hosts:
        return {}
    shared = dict(hosts[0].labels)
    for host in hosts[1:]:
        for name, value in list(shared.items()):
            if host.labels.get(name) != value:
                del shared[name]
    return shared
