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
    most_known,
    p95,
    ratio_of_sums,
    sum_known_figures,
    sum_of,
    sum_of_known_gpus,
    tokens_per_j,
    weighted,
)  # fmt: skip
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
"""Name of the row of the GPUs, and hosts, that no engine is on."""
NOT_PLACED: Final = "engine not known"
"""Name of the row of the GPUs that engines of their host may be on: it is not known which of them are on which."""
UNPLACED_KEY: Final = "?"
_NO_GPU: Final = "no GPU"
NO_MODEL: Final = "model not known"
FRONT_ENDS: Final = "front ends"
"""Name of the row of routers for several models, or for one under a name that no engine has."""
_STATES: Final = {state: place for place, state in enumerate(HostState)}
STATE_LEVELS: Final = {
    HostState.STALE: Level.WARN,
    HostState.UNREACHABLE: Level.CRITICAL,
    HostState.GONE: Level.CRITICAL,
}
"""Level of a host of which nothing new is known."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)


_UNDECIDED: Final = URGENCY[Level.NOTE] + 0.5
"""Place among the levels of a row without a verdict: what is known to be well comes after it."""
_FAILED: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED, GpuState.ERROR})
"""States of a GPU that somebody has to mend."""
_FULL_KV: Final = 0.98
"""KV usage from which new requests wait."""


class FleetRow(msgspec.Struct, frozen=True, eq=False):
    """A host, a model, or all of it. Texts are from outside: escape before showing. Whole GPUs only, no MIG slices.

    Figures over GPUs say of how many they are known (`Known`); those of engines are of the ones that answer.
    """

    key: str
    """Tells rows apart for good: the host's name, or the model's as its engines have it."""
    name: str
    labels: Mapping[str, str]
    """Labels of the host, as `HostShown.labels`; of several hosts the labels that all share."""
    hosts: tuple[str, ...]
    gpus: int | Missing
    """Missing where nobody tells of any: what is behind an engine, or a host that does not answer, is not none."""
    gpu_types: tuple[tuple[str, int], ...]
    """(Catalogue name, else the driver's, how many), most first."""
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
    """The same of the ITL goal; of tokens where no engine counts requests."""
    power_w: Known
    tokens_per_j: Reading
    """Decode tokens/s over the mean watts of the engines' GPUs."""
    idle_gpus: Known
    """Sum of what the busy shares leave: 8 GPUs at 75 % are 2 idle ones."""
    idle_cost_per_h: Known
    """Price x what the busy share leaves, as in a report."""
    cost_per_h: Known
    """Price of an hour of its GPUs; so the next, by the prices of the gpumon that shows the fleet."""
    cost_per_million_output_tokens: Reading
    """Known for rows whose GPUs all have a price."""
    cost_per_million_all_tokens: Reading
    unused_gpu_s: Known
    """GPU-seconds without a request, or with nobody on the GPU, since the gpumon that reads them started."""
    unused_cost: Known
    energy_j: Known
    """Since the gpumon that reads them started."""
    energy_cost: Known
    """By the prices of the gpumon that reads the GPUs."""
    level: Level | None
    """Level of the worst verdict; None where there is none."""
    verdict: str
    """The worst verdict in one line, with its scope; of a host without one why it does not answer, that it has no GPU,
    or what is wrong with its gpumon."""
    worst: Verdict | None
    """The worst verdict; its scope says whose it is."""
    state: HostState
    """State of the host; of several hosts `ok` where any is."""
    troubled: int
    """Hosts that are not `ok`."""
    faults: int
    parts: Parts
    """The hosts, GPUs and engines that the row is worked out from."""


class Whole(NamedTuple):
    """A host as it counts: one that is gone has no figures."""

    shown: HostShown
    snapshot: Snapshot
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
    """All GPUs of a host, without MIG slices."""
    for gpu in whole.snapshot.gpus:
        if not gpu.parent_uuid:
            yield RowGpu(whole.shown.name, _with_slices(gpu, whole.snapshot.gpus), gpu.mfu_ratio, gpu.mbu_ratio)


def _with_slices(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """A GPU that MIG leaves without a busy share: what its slices do of its sevenths."""
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
    """A row per model that is served or trained, however its name is written; the last ones are what no engine is on,
    and what is on GPUs that nobody can tell.

    A GPU that several models share is in the row of each, with the part of MFU and MBU that is the row's.
    """
    wholes = wholes_of(snapshot)
    of_workers = worker_gpus(wholes)
    rows = []
    for model, replicas in sorted(_replicas_by_model(wholes).items()):
        rows.append(_model_row(model, replicas, of_workers, prices))
    without_engine, unplaced = _left_over(wholes, of_workers)
    if without_engine.hosts:
        parts = without_engine.parts(prices)
        rows.append(fleet_row("", NO_ENGINE, parts, verdicts_on(parts, hosts=True)))
    if unplaced.hosts:
        parts = unplaced.parts(prices)
        rows.append(fleet_row(UNPLACED_KEY, NOT_PLACED, parts, verdicts_on(parts)))
    return rows


def _left_over(wholes: Sequence[Whole], of_workers: Mapping[str, Sequence[RowGpu]]) -> tuple[_Leftover, _Leftover]:
    """The hosts and GPUs that no engine is on, and those that engines of their host may be on."""
    with_workers = set()
    for workers in of_workers.values():
        for placed in workers:
            with_workers.add(placed.gpu.uuid)
    without_engine = _Leftover()
    unplaced = _Leftover()
    for whole in wholes:
        idle_here = []
        unknown_here = []
        for placed in _free_gpus(whole, with_workers):
            if _is_unplaced(placed.gpu):
                unknown_here.append(placed)
            else:
                idle_here.append(placed)
        if unknown_here:
            unplaced.add(whole.shown, unknown_here)
        if idle_here or not _has_engine(whole, with_workers):
            without_engine.add(whole.shown, idle_here)
    return without_engine, unplaced


class _Leftover:
    """Hosts and GPUs that are in no row of a model."""

    def __init__(self) -> None:
        self.hosts: list[HostShown] = []
        self._gpus: list[RowGpu] = []

    def add(self, host: HostShown, gpus: Iterable[RowGpu]) -> None:
        """Adds a host with those of its GPUs that are left over."""
        self.hosts.append(host)
        self._gpus += gpus

    def parts(self, prices: Mapping[str, float]) -> Parts:
        """All of it as the parts of one row."""
        return Parts(tuple(self.hosts), tuple(self._gpus), (), prices)


def _replicas_by_model(wholes: Sequence[Whole]) -> dict[tuple[str, ...], list[tuple[Whole, list[RowEngine]]]]:
    """The hosts of each model with the engines that serve it there, by the key of the model."""
    replicas: dict[tuple[str, ...], list[tuple[Whole, list[RowEngine]]]] = {}
    models = set()
    for whole in wholes:
        for served in whole.served:
            if served.engine.kind not in ROUTER_KINDS:
                models.add(model_key(served.engine.model))
    for whole in wholes:
        here: dict[tuple[str, ...], list[RowEngine]] = {}
        for served in whole.served:
            model = model_key(served.engine.model)
            if served.engine.kind in ROUTER_KINDS and (not model or model not in models):
                model = (FRONT_ENDS,)
            here.setdefault(model, []).append(served)
        for model, engines in here.items():
            replicas.setdefault(model, []).append((whole, engines))
    return replicas


def _free_gpus(whole: Whole, with_workers: set[str]) -> list[RowGpu]:
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
    """The GPUs of the worker pods of each multi-node engine, by its `host/key`: they do what the engine does."""
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
    """Whether an engine of its host may be on it, as far as anybody can tell."""
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
    prices = rows[0].parts.prices if rows else {}
    parts = Parts(tuple(hosts.values()), tuple(gpus.values()), tuple(engines.values()), prices)
    return fleet_row("", "total", parts, verdicts_on(parts, hosts=True))


def wholes_of(snapshot: FleetSnapshot) -> list[Whole]:
    """The hosts as they count, in the order of the snapshot."""
    figures = [_figures_of(host) for host in snapshot.hosts]
    # A frontend may stand on another host than its workers.
    every_engine: list[Engine] = []
    for known in figures:
        every_engine += known.engines
    in_totals = {id(engine) for engine in engines_in_sums(every_engine)}
    wholes = []
    for host, known in zip(snapshot.hosts, figures, strict=True):
        served = []
        for engine in known.engines:
            served.append(RowEngine(host.name, engine, id(engine) in in_totals, host.latencies.get(engine.key)))
        wholes.append(Whole(host, known, tuple(served)))
    return wholes


def _figures_of(host: HostShown) -> Snapshot:
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
    """The row of a model, of its engines by host."""
    hosts: list[HostShown] = []
    gpus: list[RowGpu] = []
    engines: list[RowEngine] = []
    for whole, served_here in replicas:
        hosts.append(whole.shown)
        engines += served_here
        gpus += _placed(whole, [served.engine for served in served_here])
    elsewhere = 0
    for served in engines:
        workers = of_workers.get(f"{served.host}/{served.engine.key}", ())
        gpus += workers
        elsewhere += max(0, _on_other_hosts(served.engine) - len(workers))
    parts = Parts(tuple(hosts), tuple(gpus), tuple(engines), prices)
    names = Counter(served.engine.model for served in engines)
    name = names.most_common(1)[0][0] or NO_MODEL
    if model == (FRONT_ENDS,):
        name = FRONT_ENDS
    row = fleet_row(" ".join(model) or NO_MODEL, name, parts, verdicts_on(parts))
    return _with_others(row, elsewhere)


def _on_other_hosts(engine: Engine) -> int:
    """GPUs of an engine beside those of its own host: it has worker pods there."""
    hardware = engine.hardware
    if not hardware.gpus or isinstance(hardware.gpu_count, Missing):
        return 0
    return max(0, round(hardware.gpu_count) - len(set(hardware.gpus)))


def _with_others(row: FleetRow, number: int) -> FleetRow:
    """The row with so many GPUs more, of which no figure is the row's: its figures are known of some of its GPUs."""
    if not number or isinstance(row.gpus, Missing):
        return row
    wider = {}
    for name in FleetRow.__struct_fields__:
        figure = getattr(row, name)
        if isinstance(figure, Known):
            wider[name] = figure._replace(of=figure.of + number)
    types = row.gpu_types
    if len(types) == 1:
        types = ((types[0][0], types[0][1] + number),)
    return msgspec.structs.replace(row, gpus=row.gpus + number, gpu_types=types, **wider)


def _placed(whole: Whole, engines: Sequence[Engine]) -> Iterator[RowGpu]:
    """The GPUs that these engines are on, each with their own part of its MFU and MBU."""
    host = whole.shown.name
    for gpu in whole.snapshot.gpus:
        if gpu.parent_uuid:
            continue
        here = []
        for engine in engines:
            if gpu.index in engine.hardware.gpus:
                here.append(engine)
        if not here:
            continue
        mfu = gpu.mfu_ratio
        mbu = gpu.mbu_ratio
        if len(gpu.engines) > len(here):
            mfu = sum_known_figures([engine.efficiency.mfu_ratio for engine in here])
            mbu = sum_known_figures([engine.efficiency.mbu_ratio for engine in here])
        yield RowGpu(host, gpu, mfu, mbu)


def verdicts_on(parts: Parts, *, hosts: bool = False) -> Iterator[Verdict]:
    """The verdicts on the GPUs and engines of a row that is no host's; with `hosts` those on hosts, too."""
    keys = {(served.host, served.engine.key) for served in parts.engines}
    keys |= {(placed.host, placed.gpu.uuid) for placed in parts.gpus}
    for host in parts.hosts:
        if host.state is HostState.GONE:
            continue
        for verdict in host.snapshot.verdicts:
            if (host.name, verdict.key) in keys or (hosts and not verdict.key):
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
        mfu_ratio=weighted([placed.mfu for placed in gpus], _of_gpus(gpus, "flops_peak_per_s")),
        mbu_ratio=weighted([placed.mbu for placed in gpus], hbm_peaks),
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
        level=None if worst is None else worst.level,
        verdict=_verdict_line(worst, parts),
        worst=worst,
        state=_state(hosts),
        troubled=_troubled_hosts(hosts),
        faults=_faults(hosts),
        parts=parts,
    )


def _costs(gpus: Sequence[RowGpu], in_totals: Sequence[RowEngine], prices: Mapping[str, float]) -> dict[str, Any]:
    """Unused time and prices of the GPUs, and those of the engines' tokens."""
    hourly = [price_of_hour(placed.gpu.gpu_type, prices) for placed in gpus]
    per_hour = sum_of_known_gpus(hourly)
    whole_cost = per_hour.value
    if per_hour.gpus < per_hour.of:
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
    """Why the only host of a row is not well, where no verdict tells; of one that answers, that it has no GPU, or what
    is wrong with its gpumon."""
    if len(parts.hosts) != 1:
        return ""
    (host,) = parts.hosts
    faults = [fault.text for fault in host.snapshot.faults]
    if host.state is not HostState.OK:
        return faults[-1] if faults else ""
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
    """The most urgent first; that nothing can be told says less than that all is well."""
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
    """As coarse as it is noisy, so that hosts of nearly equal waste do not change places at each refresh."""
    cost = row.idle_cost_per_h.value
    if not isinstance(cost, Missing):
        cost = float(f"{cost:.2g}")
    gpus = row.idle_gpus.value
    if not isinstance(gpus, Missing):
        gpus = round(gpus, 1)
    return (cost, gpus)


def _level(row: FleetRow) -> tuple[Reading, ...]:
    """The worst level, then who waits, then waste."""
    levels = [*_signs(row)]
    if row.level is not None and not _is_undecided(row):
        levels.append(row.level)
    urgency = float(len(Level))
    if levels:
        urgency = min(URGENCY[level] for level in levels)
    elif row.parts.gpus or row.parts.engines:
        urgency = _UNDECIDED
    return (-urgency, _queue(row), *_waste(row))


def _is_undecided(row: FleetRow) -> bool:
    """Whether no verdict tells how a row does: it has none yet, or signals are missing."""
    return row.worst is None or row.worst.code is Limit.UNKNOWN


def _signs(row: FleetRow) -> Iterator[Level]:
    """Levels of what readings show at once. A verdict needs to see it for a while, and somebody looks before that."""
    if any(placed.gpu.state in _FAILED for placed in row.parts.gpus):
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
    """Requests that wait, as coarse as they are noisy; 0 where nobody tells."""
    if isinstance(row.waiting, Missing):
        return 0.0
    return float(f"{row.waiting:.1g}")


def worst_level(rows: Sequence[FleetRow]) -> Level:
    """Critical where a host is; else a warning, as all that `count_troubles` counts."""
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
    kinds = [
        (levels[Level.CRITICAL], "host", " critical"),
        (levels[Level.WARN], "host", " with warnings"),
        (silent, "silent engine", ""),
        (exporters_down, "exporter", " down"),
    ]
    troubles = []
    for number, noun, how in kinds:
        if number:
            troubles.append(f"{counted(number, noun)}{how}")
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
"""Name of a sort -> what it goes by, the largest first; a figure that is missing comes last."""


def sort_fleet_rows(rows: Iterable[FleetRow], sort: str = "level") -> list[FleetRow]:
    """The rows in the order of a sort (`SORTS`); equals by name, numbers in names by their value.

    By whatever figure, what nothing is known of comes before all that has figures: somebody has to look there.
    """
    figures = SORTS[sort]

    def place(row: FleetRow) -> tuple[object, ...]:
        if sort == "name" or row.state is HostState.PARTIAL:
            blank = 0
        else:
            blank = -_STATES[row.state]
        return (blank, *(_last(figure) for figure in figures(row)), by_name(row.name), row.key)

    return sorted(rows, key=place)


def _last(figure: Reading) -> tuple[bool, float]:
    if isinstance(figure, Missing):
        return (True, 0.0)
    return (False, -figure)


def by_name(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Puts `gpu2` before `gpu10`."""
    parts = re.split(r"(\d+)", name.lower()[:256])
    result = []
    for part in parts:
        if part:
            if part.isdecimal():
                result.append((False, int(part), ""))
            else:
                result.append((True, 0, part))
    return tuple(result)
