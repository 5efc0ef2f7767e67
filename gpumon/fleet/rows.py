"""Rows of the fleet: one per host or per model, their order, and their sum."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import adding_up, model_key
from gpumon.fleet.blank import without_figures
from gpumon.fleet.parts import (
    Known,
    Latency,
    Parts,
    Placed,
    Served,
    bandwidth_source,
    idle,
    mean,
    most_known,
    p95,
    price_per_h,
    product,
    share,
    sum_known,
    sum_of,
    tokens_per_j,
    weighted,
)  # fmt: skip
from gpumon.fleet.parts import (
    total as total_of,
)
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Level, Limit, Snapshot, Verdict
from gpumon.triage.render import verdict_text

NO_ENGINE: Final = "no engine"
"""Name of the row of the GPUs, and hosts, that no engine is on."""
NOT_PLACED: Final = "engine not known"
"""Name of the row of the GPUs that engines of their host may be on: it is not known which of them are on which."""
UNPLACED_KEY: Final = "?"
NO_GPU: Final = "no GPU"
NO_MODEL: Final = "model not known"
_URGENCY: Final = {level: at for at, level in enumerate(Level)}
_STATES: Final = {state: at for at, state in enumerate(HostState)}
STATE_LEVELS: Final = {
    HostState.STALE: Level.WARN,
    HostState.UNREACHABLE: Level.CRITICAL,
    HostState.GONE: Level.CRITICAL,
}
"""Level of a host of which nothing new is known."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)


class Row(msgspec.Struct, frozen=True, eq=False):
    """A host, a model, or all of it. Texts are from outside: escape before showing. Whole GPUs only, no MIG slices.

    Figures over GPUs say of how many they are known (`Known`); those of engines are of the ones that answer.
    """

    key: str
    """Tells rows apart for good: the host's name, or the model's as its engines have it."""
    name: str
    labels: Mapping[str, str]
    """Of a host, as `HostShown.labels`; of several those that all share."""
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
    """Of the fullest."""
    ttft_p95_s: Latency
    itl_p95_s: Latency
    power_w: Known
    tokens_per_j: Reading
    """Decode tokens/s over the mean watts of the engines' GPUs."""
    idle_gpus: Known
    """Sum of what the busy shares leave: 8 GPUs at 75 % are 2 idle ones."""
    idle_cost_per_h: Known
    """Price x what the busy share leaves, as in a report."""
    level: Level | None
    """Of the worst verdict; None where there is none."""
    verdict: str
    """The worst verdict in one line, with its scope; of a host without one why it does not answer, that it has no GPU,
    or what is wrong with its gpumon."""
    worst: Verdict | None
    """That verdict; its scope says whose it is."""
    state: HostState
    """Of a host; of several `ok` where any is."""
    troubled: int
    """Hosts that are not `ok`."""
    faults: int
    parts: Parts
    """What it is worked out from."""


class _Whole(NamedTuple):
    """A host as it counts: one that is gone has no figures."""

    shown: HostShown
    snapshot: Snapshot
    served: tuple[Served, ...]


def by_host(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[Row]:
    """A row per host, by name. `prices`: catalogue name of a GPU -> price of one hour; under "" that of all others."""
    rows = []
    for shown, known, served in _wholes(snapshot):
        gpus = tuple(
            Placed(shown.name, _with_slices(gpu, known.gpus), gpu.mfu_ratio, gpu.mbu_ratio)
            for gpu in known.gpus
            if not gpu.parent_uuid
        )
        parts = Parts((shown,), gpus, served, prices)
        rows.append(_row(shown.name, shown.name, parts, known.verdicts))
    return rows


def _with_slices(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """A GPU that MIG leaves without a busy share: what its slices do of its sevenths."""
    if not isinstance(gpu.busy_ratio, Missing) or gpu.busy_ratio.reason is not Reason.UNDER_MIG:
        return gpu
    slices = [(one.busy_ratio, one.mig_profile.partition("g.")[0]) for one in gpus if one.parent_uuid == gpu.uuid]
    known = [busy * int(sevenths) / 7.0 for busy, sevenths in slices if isinstance(busy, float) and sevenths.isdigit()]
    return msgspec.structs.replace(gpu, busy_ratio=sum_of(known)) if known else gpu


def by_model(snapshot: FleetSnapshot, prices: Mapping[str, float]) -> list[Row]:
    """A row per model that is served or trained, however its name is written; the last ones are what no engine is on,
    and what is on GPUs that nobody can tell.

    A GPU that several models share is in the row of each, with the part of MFU and MBU that is the row's.
    """
    groups: dict[tuple[str, ...], list[tuple[_Whole, list[Served]]]] = {}
    rest: list[tuple[HostShown, list[Placed]]] = []
    unplaced: list[tuple[HostShown, list[Placed]]] = []
    wholes = _wholes(snapshot)
    of_workers = _worker_gpus(wholes)
    with_workers = {placed.gpu.uuid for several in of_workers.values() for placed in several}
    for whole in wholes:
        here: dict[tuple[str, ...], list[Served]] = {}
        for one in whole.served:
            here.setdefault(model_key(one.engine.model), []).append(one)
        for model, served in here.items():
            groups.setdefault(model, []).append((whole, served))
        on = {index for one in whole.served for index in one.engine.hardware.gpus}
        free = [
            Placed(whole.shown.name, gpu, gpu.mfu_ratio, gpu.mbu_ratio)
            for gpu in whole.snapshot.gpus
            if not gpu.parent_uuid and gpu.index not in on and gpu.uuid not in with_workers
        ]
        unknown = [placed for placed in free if _is_unplaced(placed.gpu)]
        if unknown:
            unplaced.append((whole.shown, unknown))
        if len(free) > len(unknown) or not (whole.served or _has_any(whole, with_workers)):
            rest.append((whole.shown, [placed for placed in free if not _is_unplaced(placed.gpu)]))
    rows = [_model_row(model, found, of_workers, prices) for model, found in sorted(groups.items())]
    for key, name, others in (("", NO_ENGINE, rest), (UNPLACED_KEY, NOT_PLACED, unplaced)):
        if others:
            gpus = tuple(placed for _, found in others for placed in found)
            parts = Parts(tuple(shown for shown, _ in others), gpus, (), prices)
            rows.append(_row(key, name, parts, _verdicts_on(parts, hosts=not key)))
    return rows


def _worker_gpus(wholes: Sequence[_Whole]) -> dict[str, list[Placed]]:
    """The GPUs of the worker pods of each multi-node engine, by its `host/key`: they do what the engine does."""
    known = {gpu.uuid: (whole.shown.name, gpu) for whole in wholes for gpu in whole.snapshot.gpus}
    found: dict[str, list[Placed]] = {}
    for whole in wholes:
        for engine in (one.engine for one in whole.served):
            own = set(engine.hardware.gpus)
            for uuid in whole.shown.worker_gpus.get(engine.key, ()):
                host, gpu = known.get(uuid, ("", None))
                if gpu is None or gpu.parent_uuid or (host == whole.shown.name and gpu.index in own):
                    continue
                placed = Placed(host, gpu, engine.efficiency.mfu_ratio, engine.efficiency.mbu_ratio)
                found.setdefault(f"{whole.shown.name}/{engine.key}", []).append(placed)
    return found


def _has_any(whole: _Whole, uuids: set[str]) -> bool:
    """Whether one of these GPUs is on the host."""
    return any(gpu.uuid in uuids for gpu in whole.snapshot.gpus)


def _is_unplaced(gpu: Gpu) -> bool:
    """Whether an engine of its host may be on it, as far as anybody can tell."""
    return isinstance(gpu.mfu_ratio, Missing) and gpu.mfu_ratio.reason is Reason.UNMAPPED


def total(rows: Sequence[Row]) -> Row:
    """All rows as one; what is in several of them counts once."""
    hosts = {host.name: host for row in rows for host in row.parts.hosts}
    gpus = {
        id(placed.gpu): placed._replace(mfu=placed.gpu.mfu_ratio, mbu=placed.gpu.mbu_ratio)
        for row in rows
        for placed in row.parts.gpus
    }
    engines = {id(one.engine): one for row in rows for one in row.parts.engines}
    prices = rows[0].parts.prices if rows else {}
    parts = Parts(tuple(hosts.values()), tuple(gpus.values()), tuple(engines.values()), prices)
    return _row("", "total", parts, _verdicts_on(parts, hosts=True))


def _wholes(snapshot: FleetSnapshot) -> list[_Whole]:
    known = [
        without_figures(host.snapshot, _UNREACHABLE) if host.state is HostState.GONE else host.snapshot
        for host in snapshot.hosts
    ]
    # A frontend may stand on another host than its workers.
    adding = {id(engine) for engine in adding_up(engine for each in known for engine in each.engines)}
    return [
        _Whole(
            host,
            each,
            tuple(
                Served(host.name, engine, id(engine) in adding, host.latencies.get(engine.key))
                for engine in each.engines
            ),
        )
        for host, each in zip(snapshot.hosts, known, strict=True)
    ]


def _model_row(
    model: tuple[str, ...],
    found: Sequence[tuple[_Whole, Sequence[Served]]],
    of_workers: Mapping[str, Sequence[Placed]],
    prices: Mapping[str, float],
) -> Row:
    names = Counter(one.engine.model for _, served in found for one in served)
    name = names.most_common(1)[0][0] or NO_MODEL
    engines = tuple(one for _, served in found for one in served)
    gpus = [placed for whole, served in found for placed in _placed(whole, [one.engine for one in served])]
    elsewhere = 0
    for one in engines:
        workers = of_workers.get(f"{one.host}/{one.engine.key}", ())
        gpus += workers
        elsewhere += max(0, _on_other_hosts(one.engine) - len(workers))
    parts = Parts(tuple(whole.shown for whole, _ in found), tuple(gpus), engines, prices)
    row = _row(" ".join(model) or NO_MODEL, name, parts, _verdicts_on(parts))
    return _with_others(row, elsewhere)


def _on_other_hosts(engine: Engine) -> int:
    """GPUs of an engine beside those of its own host: it has worker pods there."""
    hardware = engine.hardware
    if not hardware.gpus or isinstance(hardware.gpu_count, Missing):
        return 0
    return max(0, round(hardware.gpu_count) - len(set(hardware.gpus)))


def _with_others(row: Row, number: int) -> Row:
    """The row with so many GPUs more, of which no figure is the row's: its figures are known of some of its GPUs."""
    if not number or isinstance(row.gpus, Missing):
        return row
    figures = {name: getattr(row, name) for name in Row.__struct_fields__}
    wider = {name: one._replace(of=one.of + number) for name, one in figures.items() if isinstance(one, Known)}
    types = row.gpu_types
    if len(types) == 1:
        types = ((types[0][0], types[0][1] + number),)
    return msgspec.structs.replace(row, gpus=row.gpus + number, gpu_types=types, **wider)


def _placed(whole: _Whole, engines: Sequence[Engine]) -> Iterator[Placed]:
    """The GPUs that these engines are on, each with their own part of its MFU and MBU."""
    for gpu in whole.snapshot.gpus:
        here = [] if gpu.parent_uuid else [engine for engine in engines if gpu.index in engine.hardware.gpus]
        if not here:
            continue
        if len(gpu.engines) > len(here):
            yield Placed(
                whole.shown.name,
                gpu,
                sum_known(engine.efficiency.mfu_ratio for engine in here),
                sum_known(engine.efficiency.mbu_ratio for engine in here),
            )
        else:
            yield Placed(whole.shown.name, gpu, gpu.mfu_ratio, gpu.mbu_ratio)


def _verdicts_on(parts: Parts, *, hosts: bool = False) -> Iterator[Verdict]:
    """The verdicts on the GPUs and engines of a row that is no host's; with `hosts` those on hosts, too."""
    keys = {(one.host, one.engine.key) for one in parts.engines} | {(at.host, at.gpu.uuid) for at in parts.gpus}
    for host in parts.hosts:
        for verdict in () if host.state is HostState.GONE else host.snapshot.verdicts:
            if (host.name, verdict.key) in keys or (hosts and not verdict.key):
                yield msgspec.structs.replace(verdict, scope=f"{host.name} {verdict.scope}")


def _row(key: str, name: str, parts: Parts, verdicts: Iterable[Verdict]) -> Row:
    gpus = parts.gpus
    every = [one.engine for one in parts.engines]
    sums = [one.engine for one in parts.engines if one.counts]
    worst = min(verdicts, key=_badness, default=None)
    prices = parts.prices
    return Row(
        key=key,
        name=name,
        labels=_shared([host.labels for host in parts.hosts]),
        hosts=tuple(host.name for host in parts.hosts),
        gpus=len(gpus) if gpus or (parts.hosts and all(host.ready for host in parts.hosts)) else _no_gpus(parts),
        gpu_types=tuple(Counter(placed.gpu.gpu_type or placed.gpu.name for placed in gpus).most_common()),
        engines=len(every),
        silent=sum(not one.answers for one in parts.engines),
        exporters_down=sum(host.exporters_down for host in parts.hosts if host.state is HostState.PARTIAL),
        models=tuple(dict.fromkeys(engine.model for engine in every if engine.model)),
        busy_ratio=mean(placed.gpu.busy_ratio for placed in gpus),
        vram_used_bytes=total_of(placed.gpu.vram_used_bytes for placed in gpus),
        vram_total_bytes=total_of(placed.gpu.vram_total_bytes for placed in gpus),
        bandwidth_ratio=share((at.gpu.bandwidth_bytes_per_s, at.gpu.bandwidth_peak_bytes_per_s) for at in gpus),
        bandwidth_source=bandwidth_source(gpus),
        mfu_ratio=weighted((placed.mfu, placed.gpu.flops_peak_per_s) for placed in gpus),
        mbu_ratio=weighted((placed.mbu, placed.gpu.bandwidth_peak_bytes_per_s) for placed in gpus),
        decode_tokens_per_s=sum_known(engine.rates.decode_tokens_per_s for engine in sums),
        prefill_tokens_per_s=sum_known(engine.rates.prefill_tokens_per_s for engine in sums),
        requests_per_s=sum_known(engine.rates.requests_per_s for engine in sums),
        running=sum_known(engine.load.running for engine in sums),
        waiting=sum_known(engine.load.waiting for engine in sums),
        kv_usage_ratio=most_known(engine.load.kv_usage_ratio for engine in every),
        ttft_p95_s=p95([one for one in parts.engines if one.counts], "ttft_s", "ttft"),
        itl_p95_s=p95([one for one in parts.engines if one.counts], "itl_s", "itl"),
        power_w=total_of(placed.gpu.power_w for placed in gpus),
        tokens_per_j=tokens_per_j([one for one in parts.engines if one.counts]),
        idle_gpus=total_of(idle(placed.gpu) for placed in gpus),
        idle_cost_per_h=total_of(product(price_per_h(placed.gpu, prices), idle(placed.gpu)) for placed in gpus),
        level=None if worst is None else worst.level,
        verdict=f"{worst.scope}: {verdict_text(worst)}" if worst is not None else _without_verdict(parts),
        worst=worst,
        state=min((host.state for host in parts.hosts), key=_STATES.__getitem__, default=HostState.OK),
        troubled=sum(host.state is not HostState.OK for host in parts.hosts),
        faults=sum(len(host.snapshot.faults) for host in parts.hosts),
        parts=parts,
    )


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
        return f"{NO_GPU}: {faults[-1]}" if faults else NO_GPU
    return faults[-1] if faults and host.ready else ""


def has_nothing(host: HostShown) -> bool:
    """Whether a host's own gpumon answers, and finds neither a GPU nor an engine."""
    return host.ready and not host.snapshot.gpus and not host.snapshot.engines


def _no_gpus(parts: Parts) -> Missing:
    """Why it is not known how many GPUs there are."""
    troubled = any(host.state is not HostState.OK for host in parts.hosts)
    return _UNREACHABLE if troubled else Missing(Reason.NOT_EXPOSED)


def _badness(verdict: Verdict) -> int:
    """The most urgent first; that nothing can be told says less than that all is well."""
    return len(Level) if verdict.code is Limit.UNKNOWN else _URGENCY[verdict.level]


def _shared(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first = labels[0] if labels else {}
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in labels[1:])}


def _waste(row: Row) -> tuple[Reading, ...]:
    """As coarse as it is noisy, so that hosts of nearly equal waste do not change places at each refresh."""
    cost = row.idle_cost_per_h.value
    gpus = row.idle_gpus.value
    return (
        cost if isinstance(cost, Missing) else float(f"{cost:.2g}"),
        gpus if isinstance(gpus, Missing) else round(gpus, 1),
    )


def _level(row: Row) -> tuple[Reading, ...]:
    """The worst level, then waste. An engine or an exporter that does not answer is a warning."""
    levels = [level for level in (row.level, Level.WARN if row.silent or row.exporters_down else None) if level]
    level = -1.0 - min(_URGENCY[level] for level in levels) if levels else Missing(Reason.NOT_SUPPORTED)
    return (level, *_waste(row))


def worst_level(rows: Sequence[Row]) -> Level:
    """Critical where a host is; else a warning, as all that `troubles` counts."""
    here = [row for row in rows if row.state is not HostState.GONE]
    return Level.CRITICAL if any(row.level is Level.CRITICAL for row in here) else Level.WARN


def troubles(rows: Sequence[Row]) -> list[str]:
    """What is wrong, counted over rows of hosts, the worst first: `2 hosts critical`, `1 exporter down`."""
    here = [row for row in rows if row.state is not HostState.GONE]
    told = [
        (sum(row.level is Level.CRITICAL for row in here), "host", " critical"),
        (sum(row.level is Level.WARN for row in here), "host", " with warnings"),
        (sum(row.silent for row in here), "silent engine", ""),
        (sum(row.exporters_down for row in here), "exporter", " down"),
    ]
    return [f"{counted(number, what)}{how}" for number, what, how in told if number]


SORTS: Final[dict[str, Callable[[Row], tuple[Reading, ...]]]] = {
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


def ordered(rows: Iterable[Row], sort: str = "level") -> list[Row]:
    """The rows in the order of a sort (`SORTS`); equals by name, numbers in names by their value.

    By whatever figure, what nothing is known of comes before all that has figures: somebody has to look there.
    """
    figures = SORTS[sort]

    def place(row: Row) -> tuple[object, ...]:
        blank = 0 if sort == "name" or row.state is HostState.PARTIAL else -_STATES[row.state]
        return (blank, *(_last(figure) for figure in figures(row)), by_name(row.name), row.key)

    return sorted(rows, key=place)


def _last(figure: Reading) -> tuple[bool, float]:
    return (True, 0.0) if isinstance(figure, Missing) else (False, -figure)


def by_name(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Puts `gpu2` before `gpu10`."""
    parts = re.split(r"(\d+)", name.lower()[:256])
    return tuple((False, int(part), "") if part.isdecimal() else (True, 0, part) for part in parts if part)
