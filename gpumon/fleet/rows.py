"""Rows of the fleet: one per host, one per model, and the sum of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.gpu import over_window
from gpumon.efficiency.merged import Known, sum_known, sum_of
from gpumon.efficiency.service import ROUTER_KINDS, engines_in_sums, model_key
from gpumon.fleet.blank import without_figures
from gpumon.fleet.free import domains_of, worker_gpus
from gpumon.fleet.parts import (
    Parts,
    RowEngine,
    RowGpu,
)
from gpumon.fleet.row import FleetRow, fleet_row, verdicts_on
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.flat import replace_fields
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, physical_gpus

NO_ENGINE: Final = "no engine"
"""Name of the row of GPUs and hosts without an engine."""
NOT_PLACED: Final = "engine not known"
"""Name of the row of GPUs that engines of their host may be on: it is not known which engine is on which GPU."""
UNPLACED_KEY: Final = "?"
"""Key of that row."""
NO_MODEL: Final = "model not known"
"""Name of the row, and of the group, of engines that name no model."""
FRONT_ENDS: Final = "front ends"
"""Name of the row of routers for several models, or for one under a name that no engine has."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)


class CountedHost(NamedTuple):
    """A host with the figures and engines with which it counts in rows."""

    shown: HostShown
    snapshot: Snapshot
    """The snapshot in `shown`, with means over a window; without figures once the host is gone."""
    engines: tuple[RowEngine, ...]


def by_host(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per host, by name. `prices`: catalogue name of a GPU -> price of one hour; under "" that of all others."""
    rows = []
    workers = worker_gpus(snapshot.hosts)
    for counted_host in counted_hosts_of(snapshot):
        shown = counted_host.shown
        name = shown.name
        domains = () if shown.state is HostState.GONE else tuple(domains_of(shown, workers))
        parts = Parts((shown,), tuple(whole_gpus(counted_host)), counted_host.engines, prices, domains)
        rows.append(fleet_row(name, name, parts, counted_host.snapshot.verdicts))
    return rows


def rows_of_hosts(row: FleetRow) -> list[FleetRow]:
    """The part of a row over several hosts that is on each of them, as a row of that host."""
    rows = []
    for host in row.parts.hosts:
        gpus = tuple(row_gpu for row_gpu in row.parts.gpus if row_gpu.host == host.name)
        engines = tuple(row_engine for row_engine in row.parts.engines if row_engine.host == host.name)
        parts = Parts((host,), gpus, engines, row.parts.prices)
        keys = {*(row_gpu.gpu.reading.uuid for row_gpu in gpus), *(row_engine.engine.key for row_engine in engines)}
        verdicts = [verdict for verdict in host.snapshot.verdicts if verdict.key in keys]
        rows.append(fleet_row(host.name, host.name, parts, verdicts))
    return rows


def whole_gpus(counted_host: CountedHost) -> Iterator[RowGpu]:
    """All whole GPUs of a host as parts of a row; no MIG slices."""
    for gpu in counted_host.snapshot.gpus:
        if not gpu.reading.parent_uuid:
            with_busy = _with_busy_of_slices(gpu, counted_host.snapshot.gpus)
            yield RowGpu.of(counted_host.shown.name, with_busy)


def _with_busy_of_slices(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """A GPU under MIG, which has no busy share of its own, with that of its slices; any other GPU as it is.

    A slice counts by its sevenths of the GPU, the number in its profile: `3g.40gb` has three.
    """
    if not isinstance(gpu.reading.busy_ratio, Missing) or gpu.reading.busy_ratio.reason is not Reason.UNDER_MIG:
        return gpu
    shares = []
    for mig_slice in gpus:
        if mig_slice.reading.parent_uuid != gpu.reading.uuid:
            continue
        sevenths = mig_slice.reading.mig_profile.partition("g.")[0]
        if not isinstance(mig_slice.reading.busy_ratio, float) or not sevenths.isdigit():
            return gpu  # of a part of its slices it would be less busy than it may be
        shares.append(mig_slice.reading.busy_ratio * int(sevenths) / 7.0)
    if not shares:
        return gpu
    return replace_fields(gpu, {"busy_ratio": sum_of(shares)})


def by_model(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per model that is served or trained, however its name is written. At the end come the GPUs without an
    engine, then those of which it is not known whether one is on them.

    A GPU that several models share is in the row of each, with that model's part of its MFU and MBU.
    """
    counted_hosts = counted_hosts_of(snapshot)
    workers_by_engine = worker_gpus_by_engine(counted_hosts)
    rows = [
        _model_row(model, replicas, workers_by_engine, prices)
        for model, replicas in sorted(_replicas_by_model(counted_hosts).items())
    ]
    without_engine, unplaced = _left_over(counted_hosts, workers_by_engine)
    if without_engine.hosts:
        parts = without_engine.parts(prices)
        rows.append(fleet_row("", NO_ENGINE, parts, verdicts_on(parts, with_hosts=True)))
    if unplaced.hosts:
        parts = unplaced.parts(prices)
        rows.append(fleet_row(UNPLACED_KEY, NOT_PLACED, parts, verdicts_on(parts)))
    return rows


def _left_over(
    counted_hosts: Sequence[CountedHost], workers_by_engine: Mapping[str, Sequence[RowGpu]]
) -> tuple[_Leftover, _Leftover]:
    """Hosts and GPUs without an engine, and those that engines of their host may be on."""
    worker_uuids = {row_gpu.gpu.reading.uuid for workers in workers_by_engine.values() for row_gpu in workers}
    without_engine = _Leftover()
    unplaced = _Leftover()
    for counted_host in counted_hosts:
        free_gpus = []
        unplaced_gpus = []
        for row_gpu in _gpus_without_engine(counted_host, worker_uuids):
            if row_gpu.gpu.is_unplaced:
                unplaced_gpus.append(row_gpu)
            else:
                free_gpus.append(row_gpu)
        if unplaced_gpus:
            unplaced.add(counted_host.shown, unplaced_gpus)
        if free_gpus or not _has_engine(counted_host, worker_uuids):
            without_engine.add(counted_host.shown, free_gpus)
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


def _replicas_by_model(
    counted_hosts: Sequence[CountedHost],
) -> dict[tuple[str, ...], list[tuple[CountedHost, list[RowEngine]]]]:
    """The hosts of each model with the engines that serve it there, by the key of the model."""
    replicas: dict[tuple[str, ...], list[tuple[CountedHost, list[RowEngine]]]] = {}
    models = {  # models of engines that are no routers
        model_key(row_engine.engine.model)
        for counted_host in counted_hosts
        for row_engine in counted_host.engines
        if row_engine.engine.kind not in ROUTER_KINDS
    }
    for counted_host in counted_hosts:
        host_engines: dict[tuple[str, ...], list[RowEngine]] = {}
        for row_engine in counted_host.engines:
            model = model_key(row_engine.engine.model)
            if row_engine.engine.kind in ROUTER_KINDS and (not model or model not in models):
                model = (FRONT_ENDS,)
            host_engines.setdefault(model, []).append(row_engine)
        for model, engines in host_engines.items():
            replicas.setdefault(model, []).append((counted_host, engines))
    return replicas


def _gpus_without_engine(counted_host: CountedHost, worker_uuids: set[str]) -> list[RowGpu]:
    """The GPUs of a host that no engine, and no worker of one, is known to be on."""
    in_use = {index for row_engine in counted_host.engines for index in row_engine.engine.hardware.gpus}
    return [
        RowGpu.of(counted_host.shown.name, gpu)
        for gpu in physical_gpus(counted_host.snapshot.gpus)
        if gpu.reading.index not in in_use and gpu.reading.uuid not in worker_uuids
    ]


def worker_gpus_by_engine(counted_hosts: Sequence[CountedHost]) -> dict[str, list[RowGpu]]:
    """`host/key` of each multi-node engine -> the GPUs of its worker pods, with the engine's MFU and MBU."""
    by_uuid = {
        gpu.reading.uuid: (counted_host.shown.name, gpu)
        for counted_host in counted_hosts
        for gpu in counted_host.snapshot.gpus
    }
    workers: dict[str, list[RowGpu]] = {}
    for counted_host in counted_hosts:
        for row_engine in counted_host.engines:
            engine = row_engine.engine
            for uuid in counted_host.shown.worker_gpus.get(engine.key, ()):
                if uuid not in by_uuid:
                    continue
                host, gpu = by_uuid[uuid]
                is_own = host == counted_host.shown.name and gpu.reading.index in engine.hardware.gpus
                # A MIG slice is in no row; the engine's own GPUs are in the row without this.
                if gpu.reading.parent_uuid or is_own:
                    continue
                row_gpu = RowGpu(host, gpu, engine.efficiency.mfu_ratio, engine.efficiency.mbu_ratio)
                workers.setdefault(f"{counted_host.shown.name}/{engine.key}", []).append(row_gpu)
    return workers


def _has_engine(counted_host: CountedHost, worker_uuids: set[str]) -> bool:
    """Whether an engine, or a worker of one, is on the host."""
    return bool(counted_host.engines) or any(gpu.reading.uuid in worker_uuids for gpu in counted_host.snapshot.gpus)


def total_row(rows: Sequence[FleetRow]) -> FleetRow:
    """All rows as one; what is in several of them counts once."""
    hosts: dict[str, HostShown] = {}
    gpus: dict[int, RowGpu] = {}
    engines: dict[int, RowEngine] = {}
    for row in rows:
        for host in row.parts.hosts:
            hosts[host.name] = host
        for row_gpu in row.parts.gpus:
            gpus[id(row_gpu.gpu)] = RowGpu.of(row_gpu.host, row_gpu.gpu)
        for row_engine in row.parts.engines:
            engines[id(row_engine.engine)] = row_engine
    prices: Mapping[str, float] = rows[0].parts.prices if rows else {}  # all rows have the same ones
    domains = tuple(domain for row in rows for domain in row.parts.domains)
    parts = Parts(tuple(hosts.values()), tuple(gpus.values()), tuple(engines.values()), prices, domains)
    return fleet_row("", "total", parts, verdicts_on(parts, with_hosts=True))


def counted_hosts_of(snapshot: FleetSnapshot) -> list[CountedHost]:
    """The hosts with what of them counts in rows, in the order of the snapshot."""
    snapshots = [_counted_snapshot(host) for host in snapshot.hosts]
    # Over all hosts at once: a frontend may stand on another host than its workers.
    all_engines = [engine for host_snapshot in snapshots for engine in host_snapshot.engines]
    in_totals = {id(engine) for engine in engines_in_sums(all_engines)}
    counted_hosts = []
    for host, host_snapshot in zip(snapshot.hosts, snapshots, strict=True):
        engines = []
        for engine in host_snapshot.engines:
            latencies = host.latencies.get(engine.key)
            engines.append(RowEngine(host.name, engine, in_totals=id(engine) in in_totals, latencies=latencies))
        counted_hosts.append(CountedHost(host, host_snapshot, tuple(engines)))
    return counted_hosts


def _counted_snapshot(host: HostShown) -> Snapshot:
    """The snapshot of a host, its GPUs with means over the window of their rates, as the rows of its own screen have
    them; without figures once the host is gone."""
    if host.state is HostState.GONE:
        return without_figures(host.snapshot, _UNREACHABLE)
    gpus = tuple(over_window(gpu) if gpu.reading.state is GpuState.OK else gpu for gpu in host.snapshot.gpus)
    return msgspec.structs.replace(host.snapshot, gpus=gpus)


def _model_row(
    model: tuple[str, ...],
    replicas: Sequence[tuple[CountedHost, Sequence[RowEngine]]],
    workers_by_engine: Mapping[str, Sequence[RowGpu]],
    prices: Mapping[str, float],
) -> FleetRow:
    """The row of a model (its key). `replicas`: each of its hosts with its engines there."""
    hosts: list[HostShown] = []
    gpus: list[RowGpu] = []
    engines: list[RowEngine] = []
    for counted_host, host_engines in replicas:
        hosts.append(counted_host.shown)
        engines += host_engines
        gpus += _gpus_of_engines(counted_host, [row_engine.engine for row_engine in host_engines])
    unseen_gpus = 0
    for row_engine in engines:
        workers = workers_by_engine.get(f"{row_engine.host}/{row_engine.engine.key}", ())
        gpus += workers
        unseen_gpus += max(0, _gpus_on_other_hosts(row_engine.engine) - len(workers))
    parts = Parts(tuple(hosts), tuple(gpus), tuple(engines), prices)
    names = Counter(row_engine.engine.model for row_engine in engines)
    name = FRONT_ENDS if model == (FRONT_ENDS,) else names.most_common(1)[0][0] or NO_MODEL
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


def _gpus_of_engines(counted_host: CountedHost, engines: Sequence[Engine]) -> Iterator[RowGpu]:
    """The GPUs that these engines are on, each with their own part of its MFU and MBU."""
    host = counted_host.shown.name
    for gpu in counted_host.snapshot.gpus:
        if gpu.reading.parent_uuid:
            continue
        on_gpu = [engine for engine in engines if gpu.reading.index in engine.hardware.gpus]
        if not on_gpu:
            continue
        mfu = gpu.mfu_ratio
        mbu = gpu.mbu_ratio
        if len(gpu.engines) > len(on_gpu):  # engines of other models are on it, too
            mfu = sum_known([engine.efficiency.mfu_ratio for engine in on_gpu]).value
            mbu = sum_known([engine.efficiency.mbu_ratio for engine in on_gpu]).value
        yield RowGpu(host, gpu, mfu, mbu)
