"""Rows of the fleet: one per host or per model, their order, and their sum."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.efficiency.costs import cost_of, per_million_tokens
from gpumon.efficiency.ratio import times
from gpumon.efficiency.service import ROUTER_KINDS, engines_in_sums, model_key
from gpumon.fleet.blank import without_figures
from gpumon.fleet.parts import (
    Known,
    Parts,
    RowEngine,
    RowGpu,
    RowLatency,
    bandwidth_source,
    idle,
    least_within_goal,
    least_within_itl_goal,
    mean_of_known_gpus,
    mean_weighted_by_peak,
    most_known,
    p95,
    ratio_of_sums,
    sum_known_figures,
    sum_of,
    sum_of_known_gpus,
    tokens_per_j,
)
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.flat import getter
from gpumon.readings.format import counted
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.prices import NO_PRICE, price_of_hour
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Level, Limit, Snapshot, Verdict
from gpumon.triage.marks import URGENCY
from gpumon.triage.render import verdict_text

NO_ENGINE: Final = "no engine"
"""Name of the row of GPUs and hosts without an engine."""
NOT_PLACED: Final = "engine not known"
"""Name of the row of GPUs that engines of their host may be on: it is not known which engine is on which GPU."""
UNPLACED_KEY: Final = "?"
"""Key of that row."""
_NO_GPU: Final = "no GPU"
NO_MODEL: Final = "model not known"
"""Name of the row, and of the group, of engines that name no model."""
FRONT_ENDS: Final = "front ends"
"""Name of the row of routers for several models, or for one under a name that no engine has."""
_STATE_PLACES: Final = {state: place for place, state in enumerate(HostState)}
"""Place among the states of a host, the best first."""
STATE_LEVELS: Final = {
    HostState.STALE: Level.WARN,
    HostState.UNREACHABLE: Level.CRITICAL,
    HostState.GONE: Level.CRITICAL,
}
"""Level of a host of which nothing new is known."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)
_UNDECIDED: Final = URGENCY[Level.NOTE] + 0.5
"""Place of a row without a verdict among the levels: a row that is known to be well comes after it."""
_BROKEN: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED, GpuState.ERROR})
"""States of a GPU that somebody has to repair."""
_FULL_KV: Final = 0.98
"""KV usage from which new requests wait."""
_SORTED_CHARACTERS: Final = 256
"""Characters of a name that rows are sorted by: a name from outside may be of any length."""


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
    """Sum of the GPUs' idle shares: 8 GPUs that are 75 % busy are 2 idle ones."""
    idle_cost_per_h: Known
    """Price of an hour x the idle share, as in a report."""
    cost_per_h: Known
    """Price of an hour of its GPUs, by the prices of the gpumon that shows the fleet; so are the next two costs."""
    cost_per_million_output_tokens: Reading
    """Known for rows whose GPUs all have a price."""
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


class Whole(NamedTuple):
    """A host as it counts in rows."""

    shown: HostShown
    snapshot: Snapshot
    """The snapshot in `shown`, without figures once the host is gone."""
    served: tuple[RowEngine, ...]


def by_host(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per host, by name. `prices`: catalogue name of a GPU -> price of one hour; under "" that of all others."""
    rows = []
    for whole in wholes_of(snapshot):
        shown, known, served = whole
        parts = Parts((shown,), tuple(placed_gpus(whole)), served, prices)
        rows.append(fleet_row(shown.name, shown.name, parts, known.verdicts))
    return rows


def placed_gpus(whole: Whole) -> Iterator[RowGpu]:
    """All whole GPUs of a host as parts of a row; no MIG slices."""
    for gpu in whole.snapshot.gpus:
        if not gpu.parent_uuid:
            with_busy = _with_busy_of_slices(gpu, whole.snapshot.gpus)
            yield RowGpu(whole.shown.name, with_busy, gpu.mfu_ratio, gpu.mbu_ratio)


def _with_busy_of_slices(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """A GPU under MIG, which has no busy share of its own, with that of its slices; any other GPU as it is.

    A slice counts by its sevenths of the GPU, the number in its profile: `3g.40gb` has three.
    """
    if not isinstance(gpu.busy_ratio, Missing) or gpu.busy_ratio.reason is not Reason.UNDER_MIG:
        return gpu
    shares = []
    for mig_slice in gpus:
        if mig_slice.parent_uuid != gpu.uuid:
            continue
        sevenths = mig_slice.mig_profile.partition("g.")[0]
        if isinstance(mig_slice.busy_ratio, float) and sevenths.isdigit():
            shares.append(mig_slice.busy_ratio * int(sevenths) / 7.0)
    if not shares:
        return gpu
    return msgspec.structs.replace(gpu, busy_ratio=sum_of(shares))


def by_model(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per model that is served or trained, however its name is written. At the end come the GPUs without an
    engine, then those of which it is not known whether one is on them.

    A GPU that several models share is in the row of each, with that model's part of its MFU and MBU.
    """
    wholes = wholes_of(snapshot)
    of_workers = worker_gpus(wholes)
    rows = []
    for model, replicas in sorted(_replicas_by_model(wholes).items()):
        rows.append(_model_row(model, replicas, of_workers, prices))
    without_engine, unplaced = _left_over(wholes, of_workers)
    if without_engine.hosts:
        parts = without_engine.parts(prices)
        rows.append(fleet_row("", NO_ENGINE, parts, verdicts_on(parts, with_hosts=True)))
    if unplaced.hosts:
        parts = unplaced.parts(prices)
        rows.append(fleet_row(UNPLACED_KEY, NOT_PLACED, parts, verdicts_on(parts)))
    return rows


def _left_over(wholes: Sequence[Whole], of_workers: Mapping[str, Sequence[RowGpu]]) -> tuple[_Leftover, _Leftover]:
    """Hosts and GPUs without an engine, and those that engines of their host may be on."""
    with_workers = set()  # UUIDs of the GPUs of worker pods
    for workers in of_workers.values():
        for placed in workers:
            with_workers.add(placed.gpu.uuid)
    without_engine = _Leftover()
    unplaced = _Leftover()
    for whole in wholes:
        free_gpus = []
        unplaced_gpus = []
        for placed in _gpus_without_engine(whole, with_workers):
            if _is_unplaced(placed.gpu):
                unplaced_gpus.append(placed)
            else:
                free_gpus.append(placed)
        if unplaced_gpus:
            unplaced.add(whole.shown, unplaced_gpus)
        if free_gpus or not _has_engine(whole, with_workers):
            without_engine.add(whole.shown, free_gpus)
    return without_engine, unplaced


class _Leftover:
    """Hosts and GPUs that are in no row of a model."""

    def __init__(self) -> None:
        self.hosts: list[HostShown] = []
        self._gpus: list[RowGpu] = []

    def add(self, host: HostShown, gpus: Iterable[RowGpu]) -> None:
        """Add a host with those of its GPUs that are left over."""
        self.hosts.append(host)
        self._gpus += gpus

    def parts(self, prices: Mapping[str, float]) -> Parts:
        """The hosts and GPUs as the parts of one row."""
        return Parts(tuple(self.hosts), tuple(self._gpus), (), prices)


def _replicas_by_model(wholes: Sequence[Whole]) -> dict[tuple[str, ...], list[tuple[Whole, list[RowEngine]]]]:
    """The hosts of each model with the engines that serve it there, by the key of the model."""
    replicas: dict[tuple[str, ...], list[tuple[Whole, list[RowEngine]]]] = {}
    models = set()  # those that other engines than routers serve
    for whole in wholes:
        for served in whole.served:
            if served.engine.kind not in ROUTER_KINDS:
                models.add(model_key(served.engine.model))
    for whole in wholes:
        host_engines: dict[tuple[str, ...], list[RowEngine]] = {}
        for served in whole.served:
            model = model_key(served.engine.model)
            if served.engine.kind in ROUTER_KINDS and (not model or model not in models):
                model = (FRONT_ENDS,)
            host_engines.setdefault(model, []).append(served)
        for model, engines in host_engines.items():
            replicas.setdefault(model, []).append((whole, engines))
    return replicas


def _gpus_without_engine(whole: Whole, with_workers: set[str]) -> list[RowGpu]:
    """The GPUs of a host that no engine, and no worker of one, is known to be on."""
    in_use: set[int] = set()
    for served in whole.served:
        in_use.update(served.engine.hardware.gpus)
    free = []
    for gpu in whole.snapshot.gpus:
        if gpu.parent_uuid or gpu.index in in_use or gpu.uuid in with_workers:
            continue
        free.append(RowGpu(whole.shown.name, gpu, gpu.mfu_ratio, gpu.mbu_ratio))
    return free


def worker_gpus(wholes: Sequence[Whole]) -> dict[str, list[RowGpu]]:
    """`host/key` of each multi-node engine -> the GPUs of its worker pods, with the engine's MFU and MBU."""
    by_uuid = {}
    for whole in wholes:
        for gpu in whole.snapshot.gpus:
            by_uuid[gpu.uuid] = (whole.shown.name, gpu)
    workers: dict[str, list[RowGpu]] = {}
    for whole in wholes:
        for served in whole.served:
            engine = served.engine
            for uuid in whole.shown.worker_gpus.get(engine.key, ()):
                if uuid not in by_uuid:
                    continue
                host, gpu = by_uuid[uuid]
                is_own = host == whole.shown.name and gpu.index in engine.hardware.gpus
                if gpu.parent_uuid or is_own:
                    continue
                placed = RowGpu(host, gpu, engine.efficiency.mfu_ratio, engine.efficiency.mbu_ratio)
                workers.setdefault(f"{whole.shown.name}/{engine.key}", []).append(placed)
    return workers


def _has_engine(whole: Whole, with_workers: set[str]) -> bool:
    """Whether an engine, or a worker of one, is on the host."""
    return bool(whole.served) or any(gpu.uuid in with_workers for gpu in whole.snapshot.gpus)


def _is_unplaced(gpu: Gpu) -> bool:
    """Whether an engine of its host may be on a GPU: no source says which GPUs that engine has."""
    return isinstance(gpu.mfu_ratio, Missing) and gpu.mfu_ratio.reason is Reason.UNMAPPED


def total_row(rows: Sequence[FleetRow]) -> FleetRow:
    """All rows as one; what is in several of them counts once."""
    hosts: dict[str, HostShown] = {}
    gpus: dict[int, RowGpu] = {}
    engines: dict[int, RowEngine] = {}
    for row in rows:
        for host in row.parts.hosts:
            hosts[host.name] = host
        for placed in row.parts.gpus:
            gpus[id(placed.gpu)] = placed._replace(mfu=placed.gpu.mfu_ratio, mbu=placed.gpu.mbu_ratio)
        for served in row.parts.engines:
            engines[id(served.engine)] = served
    prices: Mapping[str, float] = {}
    if rows:
        prices = rows[0].parts.prices  # all rows have the same ones
    parts = Parts(tuple(hosts.values()), tuple(gpus.values()), tuple(engines.values()), prices)
    return fleet_row("", "total", parts, verdicts_on(parts, with_hosts=True))


def wholes_of(snapshot: FleetSnapshot) -> list[Whole]:
    """The hosts as they count, in the order of the snapshot."""
    snapshots = [_counted_snapshot(host) for host in snapshot.hosts]
    # Over all hosts at once: a frontend may stand on another host than its workers.
    all_engines: list[Engine] = []
    for own in snapshots:
        all_engines += own.engines
    in_totals = {id(engine) for engine in engines_in_sums(all_engines)}
    wholes = []
    for host, own in zip(snapshot.hosts, snapshots, strict=True):
        served = []
        for engine in own.engines:
            served.append(RowEngine(host.name, engine, id(engine) in in_totals, host.latencies.get(engine.key)))
        wholes.append(Whole(host, own, tuple(served)))
    return wholes


def _counted_snapshot(host: HostShown) -> Snapshot:
    """The snapshot of a host; without figures once the host is gone."""
    if host.state is HostState.GONE:
        return without_figures(host.snapshot, _UNREACHABLE)
    return host.snapshot


def _model_row(
    model: tuple[str, ...],
    replicas: Sequence[tuple[Whole, Sequence[RowEngine]]],
    of_workers: Mapping[str, Sequence[RowGpu]],
    prices: Mapping[str, float],
) -> FleetRow:
    """The row of a model. `replicas`: each of its hosts with its engines there."""
    hosts: list[HostShown] = []
    gpus: list[RowGpu] = []
    engines: list[RowEngine] = []
    for whole, host_engines in replicas:
        hosts.append(whole.shown)
        engines += host_engines
        gpus += _gpus_of_engines(whole, [served.engine for served in host_engines])
    unseen_gpus = 0
    for served in engines:
        workers = of_workers.get(f"{served.host}/{served.engine.key}", ())
        gpus += workers
        unseen_gpus += max(0, _gpus_on_other_hosts(served.engine) - len(workers))
    parts = Parts(tuple(hosts), tuple(gpus), tuple(engines), prices)
    names = Counter(served.engine.model for served in engines)
    name = names.most_common(1)[0][0] or NO_MODEL
    if model == (FRONT_ENDS,):
        name = FRONT_ENDS
    row = fleet_row(" ".join(model) or NO_MODEL, name, parts, verdicts_on(parts))
    return _with_unseen_gpus(row, unseen_gpus)


def _gpus_on_other_hosts(engine: Engine) -> int:
    """The number of an engine's GPUs beside those of its own host: it has worker pods there."""
    hardware = engine.hardware
    if not hardware.gpus or isinstance(hardware.gpu_count, Missing):
        return 0
    return max(0, round(hardware.gpu_count) - len(set(hardware.gpus)))


def _with_unseen_gpus(row: FleetRow, number: int) -> FleetRow:
    """The row with so many GPUs more, of which nothing is known: its figures are those of some of its GPUs."""
    if not number or isinstance(row.gpus, Missing):
        return row
    wider = {}
    for name in FleetRow.__struct_fields__:
        figure = getattr(row, name)
        if isinstance(figure, Known):
            wider[name] = figure._replace(of=figure.of + number)
    types = row.gpu_types
    if len(types) == 1:  # else it is not known of which type the others are
        ((name, known_gpus),) = types
        types = ((name, known_gpus + number),)
    return msgspec.structs.replace(row, gpus=row.gpus + number, gpu_types=types, **wider)


def _gpus_of_engines(whole: Whole, engines: Sequence[Engine]) -> Iterator[RowGpu]:
    """The GPUs that these engines are on, each with their own part of its MFU and MBU."""
    host = whole.shown.name
    for gpu in whole.snapshot.gpus:
        if gpu.parent_uuid:
            continue
        on_gpu = []
        for engine in engines:
            if gpu.index in engine.hardware.gpus:
                on_gpu.append(engine)
        if not on_gpu:
            continue
        mfu = gpu.mfu_ratio
        mbu = gpu.mbu_ratio
        if len(gpu.engines) > len(on_gpu):  # engines of other models are on it, too
            mfu = sum_known_figures([engine.efficiency.mfu_ratio for engine in on_gpu])
            mbu = sum_known_figures([engine.efficiency.mbu_ratio for engine in on_gpu])
        yield RowGpu(host, gpu, mfu, mbu)


def verdicts_on(parts: Parts, *, with_hosts: bool = False) -> Iterator[Verdict]:
    """The verdicts on the GPUs and engines of a row over several hosts, each with its host in its scope.

    `with_hosts`: also those on the hosts themselves.
    """
    keys = {(served.host, served.engine.key) for served in parts.engines}
    keys |= {(placed.host, placed.gpu.uuid) for placed in parts.gpus}
    for host in parts.hosts:
        if host.state is HostState.GONE:
            continue
        for verdict in host.snapshot.verdicts:
            if (host.name, verdict.key) in keys or (with_hosts and not verdict.key):
                yield msgspec.structs.replace(verdict, scope=f"{host.name} {verdict.scope}")


def fleet_row(key: str, name: str, parts: Parts, verdicts: Iterable[Verdict]) -> FleetRow:
    """The row of these parts, under the worst of the verdicts."""
    hosts = parts.hosts
    gpus = parts.gpus
    engines = parts.engines
    in_totals = [served for served in engines if served.in_totals]
    hbm_peaks = _of_gpus(gpus, "bandwidth_peak_bytes_per_s")
    idle_shares = [idle(placed.gpu) for placed in gpus]
    worst = min(verdicts, key=_badness, default=None)
    level = None
    if worst is not None:
        level = worst.level
    return FleetRow(
        key=key,
        name=name,
        labels=_shared_labels(hosts),
        hosts=tuple(host.name for host in hosts),
        gpus=_gpu_count(parts),
        gpu_types=_gpu_types(gpus),
        engines=len(engines),
        silent=_silent_engines(engines),
        exporters_down=_exporters_down(hosts),
        models=_model_names(engines),
        busy_ratio=mean_of_known_gpus(_of_gpus(gpus, "busy_ratio")),
        vram_used_bytes=sum_of_known_gpus(_of_gpus(gpus, "vram_used_bytes")),
        vram_total_bytes=sum_of_known_gpus(_of_gpus(gpus, "vram_total_bytes")),
        bandwidth_ratio=ratio_of_sums(_of_gpus(gpus, "bandwidth_bytes_per_s"), hbm_peaks),
        bandwidth_source=bandwidth_source(gpus),
        mfu_ratio=mean_weighted_by_peak([placed.mfu for placed in gpus], _of_gpus(gpus, "flops_peak_per_s")),
        mbu_ratio=mean_weighted_by_peak([placed.mbu for placed in gpus], hbm_peaks),
        decode_tokens_per_s=sum_known_figures(_of_engines(in_totals, "decode_tokens_per_s")),
        prefill_tokens_per_s=sum_known_figures(_of_engines(in_totals, "prefill_tokens_per_s")),
        requests_per_s=sum_known_figures(_of_engines(in_totals, "requests_per_s")),
        running=sum_known_figures(_of_engines(in_totals, "running")),
        waiting=sum_known_figures(_of_engines(in_totals, "waiting")),
        kv_usage_ratio=most_known(_of_engines(engines, "kv_usage_ratio")),
        ttft_p95_s=p95(in_totals, "ttft_s", "ttft"),
        itl_p95_s=p95(in_totals, "itl_s", "itl"),
        ttft_goal_ratio=least_within_goal(served.engine.goodput.ttft_goal for served in in_totals),
        itl_goal_ratio=least_within_itl_goal([served.engine.goodput for served in in_totals]),
        power_w=sum_of_known_gpus(_of_gpus(gpus, "power_w")),
        tokens_per_j=tokens_per_j(in_totals),
        idle_gpus=sum_of_known_gpus(idle_shares),
        **_costs(gpus, in_totals, parts.prices),
        energy_j=sum_of_known_gpus(_of_gpus(gpus, "energy_j")),
        energy_cost=sum_of_known_gpus(_of_gpus(gpus, "energy_cost")),
        level=level,
        verdict=_verdict_line(worst, parts),
        worst=worst,
        state=_state(hosts),
        troubled=_troubled_hosts(hosts),
        faults=_faults(hosts),
        parts=parts,
    )


def _costs(gpus: Sequence[RowGpu], in_totals: Sequence[RowEngine], prices: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a row for unused time, prices of the GPUs, and prices of the engines' tokens."""
    hourly = [price_of_hour(placed.gpu.gpu_type, prices) for placed in gpus]
    per_hour = sum_of_known_gpus(hourly)
    whole_cost = per_hour.value
    if per_hour.gpus < per_hour.of:  # without the price of every GPU that of the tokens is too low
        whole_cost = NO_PRICE
    unused = _of_gpus(gpus, "unused_s")
    decoded = sum_known_figures(_of_engines(in_totals, "decode_tokens_per_s"))
    prompts = [*_of_engines(in_totals, "prefill_tokens_per_s"), *_of_engines(in_totals, "cached_tokens_per_s")]
    return {
        "idle_cost_per_h": sum_of_known_gpus(_idle_costs_per_h(gpus, prices)),
        "cost_per_h": per_hour,
        "cost_per_million_output_tokens": per_million_tokens(whole_cost, decoded),
        "cost_per_million_all_tokens": per_million_tokens(whole_cost, sum_known_figures([decoded, *prompts])),
        "unused_gpu_s": sum_of_known_gpus(unused),
        "unused_cost": sum_of_known_gpus(
            [cost_of(price, unused_s) for price, unused_s in zip(hourly, unused, strict=True)]
        ),
    }


def _of_gpus(gpus: Sequence[RowGpu], field: str) -> list[Reading]:
    """One figure of every GPU, by its flat name."""
    figure = getter(Gpu, field)
    return [figure(placed.gpu) for placed in gpus]


def _of_engines(engines: Sequence[RowEngine], field: str) -> list[Reading]:
    """One figure of every engine, by its flat name."""
    figure = getter(Engine, field)
    return [figure(served.engine) for served in engines]


def _gpu_count(parts: Parts) -> int | Missing:
    """The number of GPUs, or why it is not known."""
    if parts.gpus:
        return len(parts.gpus)
    if parts.hosts and all(host.ready for host in parts.hosts):
        return 0
    return _no_gpus(parts)


def _gpu_types(gpus: Sequence[RowGpu]) -> tuple[tuple[str, int], ...]:
    """The types of GPUs with their numbers, most first."""
    types = Counter(placed.gpu.gpu_type or placed.gpu.name for placed in gpus)
    return tuple(types.most_common())


def _silent_engines(engines: Sequence[RowEngine]) -> int:
    """The number of engines that do not answer."""
    return sum(not served.answers for served in engines)


def _faults(hosts: Sequence[HostShown]) -> int:
    """The number of faults of all sources."""
    return sum(len(host.snapshot.faults) for host in hosts)


def _exporters_down(hosts: Sequence[HostShown]) -> int:
    """The number of exporters that do not answer, on hosts of which something else does."""
    down = 0
    for host in hosts:
        if host.state is HostState.PARTIAL:
            down += host.exporters_down
    return down


def _model_names(engines: Sequence[RowEngine]) -> tuple[str, ...]:
    """The models of the engines, each name once, in the order of the engines; a router may have names of its own."""
    names = []
    for served in engines:
        if served.engine.model and served.engine.kind not in ROUTER_KINDS:
            names.append(served.engine.model)
    return tuple(dict.fromkeys(names))


def _idle_costs_per_h(gpus: Sequence[RowGpu], prices: Mapping[str, float]) -> list[Reading]:
    """Price of the idle share of every GPU."""
    return [times(price_of_hour(placed.gpu.gpu_type, prices), idle(placed.gpu)) for placed in gpus]


def _verdict_line(worst: Verdict | None, parts: Parts) -> str:
    """The worst verdict with its scope; without a verdict the reason that `_without_verdict` gives."""
    if worst is None:
        return _without_verdict(parts)
    return f"{worst.scope}: {verdict_text(worst)}"


def _state(hosts: Sequence[HostShown]) -> HostState:
    """The best state of the hosts."""
    states = {host.state for host in hosts}
    for state in HostState:
        if state in states:
            return state
    return HostState.OK


def _troubled_hosts(hosts: Sequence[HostShown]) -> int:
    """The number of hosts that are not well."""
    return sum(host.state is not HostState.OK for host in hosts)


def _without_verdict(parts: Parts) -> str:
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
    if faults and host.ready:
        return faults[-1]
    return ""


def has_nothing(host: HostShown) -> bool:
    """Whether a host's own gpumon answers, and finds neither a GPU nor an engine."""
    return host.ready and not host.snapshot.gpus and not host.snapshot.engines


def _no_gpus(parts: Parts) -> Missing:
    """Why it is not known how many GPUs there are."""
    if _troubled_hosts(parts.hosts):
        return _UNREACHABLE
    return Missing(Reason.NOT_EXPOSED)


def _badness(verdict: Verdict) -> int:
    """Sort key of verdicts, the worst first. One that nothing can be said comes last: after one that all is well."""
    if verdict.code is Limit.UNKNOWN:
        return len(Level)
    return URGENCY[verdict.level]


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


def _waste(row: FleetRow) -> tuple[Reading, ...]:
    """Price and number of idle GPUs, rounded: hosts of nearly equal waste must not change places at each refresh."""
    cost = row.idle_cost_per_h.value
    if not isinstance(cost, Missing):
        cost = float(f"{cost:.2g}")
    gpus = row.idle_gpus.value
    if not isinstance(gpus, Missing):
        gpus = round(gpus, 1)
    return (cost, gpus)


def _level(row: FleetRow) -> tuple[Reading, ...]:
    """Urgency, then waiting requests, then waste: the sort key of the levels."""
    levels = [*_instant_levels(row)]
    if row.level is not None and not _is_undecided(row):
        levels.append(row.level)
    urgency = float(len(Level))
    if levels:
        urgency = min(URGENCY[level] for level in levels)
    elif row.parts.gpus or row.parts.engines:
        urgency = _UNDECIDED
    return (-urgency, _queue(row), *_waste(row))


def _is_undecided(row: FleetRow) -> bool:
    """Whether no verdict says how a row does: it has none yet, or signals are missing."""
    return row.worst is None or row.worst.code is Limit.UNKNOWN


def _instant_levels(row: FleetRow) -> Iterator[Level]:
    """Levels of troubles that readings show at once: verdicts take a while, and somebody looks before that."""
    if any(placed.gpu.state in _BROKEN for placed in row.parts.gpus):
        yield Level.CRITICAL
    if row.silent or row.exporters_down:
        yield Level.WARN
    if not _is_undecided(row):
        return
    kv_usage = row.kv_usage_ratio
    is_full = not isinstance(kv_usage, Missing) and kv_usage >= _FULL_KV
    if is_full or _queue(row) > 0.0:
        yield Level.WARN


def _queue(row: FleetRow) -> float:
    """Waiting requests to one digit, so that rows keep their places; 0 where they are not known."""
    if isinstance(row.waiting, Missing):
        return 0.0
    return float(f"{row.waiting:.1g}")


def worst_level(rows: Sequence[FleetRow]) -> Level:
    """The worst level of the troubles that `count_troubles` counts: critical where a host is, else a warning."""
    for row in rows:
        if row.state is not HostState.GONE and row.level is Level.CRITICAL:
            return Level.CRITICAL
    return Level.WARN


def count_troubles(rows: Sequence[FleetRow]) -> list[str]:
    """The number of each kind of trouble over rows of hosts, the worst first: `2 hosts critical`, `1 exporter down`."""
    levels: Counter[Level | None] = Counter()
    silent = 0
    exporters_down = 0
    for row in rows:
        if row.state is not HostState.GONE:
            levels[row.level] += 1
            silent += row.silent
            exporters_down += row.exporters_down
    troubles = []
    if levels[Level.CRITICAL]:
        troubles.append(f"{counted(levels[Level.CRITICAL], 'host')} critical")
    if levels[Level.WARN]:
        troubles.append(f"{counted(levels[Level.WARN], 'host')} with warnings")
    if silent:
        troubles.append(counted(silent, "silent engine"))
    if exporters_down:
        troubles.append(f"{counted(exporters_down, 'exporter')} down")
    return troubles


SORTS: Final[dict[str, Callable[[FleetRow], tuple[Reading, ...]]]] = {
    "level": _level,
    "waste": _waste,
    "name": lambda _: (),
    "busy": lambda row: (row.busy_ratio.value,),
    "mfu": lambda row: (row.mfu_ratio.value,),
    "mbu": lambda row: (row.mbu_ratio.value,),
    "tokens": lambda row: (row.decode_tokens_per_s,),
    "power": lambda row: (row.power_w.value,),
    "vram": lambda row: (row.vram_used_bytes.value,),
    "waiting": lambda row: (row.waiting,),
    "ttft": lambda row: (row.ttft_p95_s.value,),
    "itl": lambda row: (row.itl_p95_s.value,),
    "kv": lambda row: (row.kv_usage_ratio,),
}
"""Name of a sort -> the figures of a row that it goes by, the largest first; a missing figure comes last."""


def sort_fleet_rows(rows: Iterable[FleetRow], sort: str = "level") -> list[FleetRow]:
    """The rows in the order of a sort (`SORTS`); equals by name, numbers in names by their value.

    Hosts without figures come first in every order but that by name: somebody has to look there.
    """
    figures = SORTS[sort]

    def sort_key(row: FleetRow) -> tuple[object, ...]:
        blankness = -_STATE_PLACES[row.state]
        if sort == "name" or row.state is HostState.PARTIAL:  # a partial host has figures
            blankness = 0
        return (blankness, *(_missing_last(figure) for figure in figures(row)), natural_order(row.name), row.key)

    return sorted(rows, key=sort_key)


def _missing_last(figure: Reading) -> tuple[bool, float]:
    """Sort key of a figure: the largest first, a missing one last."""
    if isinstance(figure, Missing):
        return (True, 0.0)
    return (False, -figure)


def natural_order(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key of a name, by the values of the numbers in it: `gpu2` comes before `gpu10`."""
    parts = re.split(r"(\d+)", name.lower()[:_SORTED_CHARACTERS])
    result = []
    for part in parts:
        if part:
            if part.isdecimal():
                result.append((False, int(part), ""))
            else:
                result.append((True, 0, part))
    return tuple(result)
