"""The question that the running engines pose: a scenario of what is here now, and the GPUs that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gpumon.efficiency.service import FRONTENDS, engines_in_sums
from gpumon.readings.format import GIB
from gpumon.readings.frame import EndpointState, GpuState, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.sizing.peaks import PeakLoad, credible, turned_away_of
from gpumon.sizing.profile import Observed, best_profile
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.specs.llm import LlmSpec

REMOTE_GPUS = 8
"""GPUs of a server that gpumon does not run on: usual, and said in the note."""
MOST_SHAPES = 8
"""Shapes of servers that a plan begins with: those that serve most."""
MOST_NOTED = 8
"""Things of a kind that the note names."""
HELD_RATIO = 0.05
"""Share of a GPU's memory in use above which something holds it: an idle driver takes less."""


def from_live(
    snapshot: Snapshot,
    observed: Sequence[Observed],
    base: Scenario | None = None,
    in_flight: Mapping[str, PeakLoad] | None = None,
) -> Scenario:
    """One workload per model that is served now, its target the requests in flight; the server is the one seen.

    A plan is for the peak: `in_flight` has that of the last minutes of every model (`Calibration.in_flight`); what it
    has nothing of has the requests of this instant for its target.
    `base` has what cannot be seen: goals, prices, planning factor, and a server shape where the user gave one. What
    was assumed or left out stands in the note.
    """
    base = base if base is not None else Scenario()
    models, odd = _models(snapshot)
    peaks = {}
    for model, load in (in_flight or {}).items():
        if model in models:
            peaks[model] = load
    notes = [*_few(odd, "engines"), *_peaks_note(peaks)]
    workloads = []
    for model, engines in models.items():
        workloads.append(_workload(model, engines, observed, peaks.get(model), notes))
    server = base.server or _servers(snapshot, notes)
    note = "; ".join(part for part in (base.note, *notes) if part)
    return msgspec.structs.replace(base, name=base.name or "live", note=note, server=server, workload=tuple(workloads))


def live_targets(snapshot: Snapshot, in_flight: Mapping[str, PeakLoad]) -> dict[str, float]:
    """Served model name -> the target that `from_live` has for it now; none for a model whose engines do not tell."""
    targets = {}
    for model, engines in _models(snapshot)[0].items():
        if _answering(engines):
            targets[model] = max(1.0, _in_flight(engines, in_flight.get(model)) or 0.0)
    return targets


def gpus_here(snapshot: Snapshot) -> tuple[tuple[str, int], ...]:
    """(GPU type, how many) of what works here and of what remote engines stand on.

    A GPU that something else holds is not there to be planned with.
    The type is the catalogue's name; a GPU that is not in the catalogue goes by the name that its driver gives it.
    """
    counts: Counter[str] = Counter()
    unplaced = _unplaced_hosts(snapshot)
    for gpu in _physical_gpus(snapshot):
        if not _why_not(gpu) and not _holder(gpu, gpu.host not in unplaced):
            counts[gpu.gpu_type or f"{gpu.name} (not in the catalogue)"] += 1
    _count_remote(snapshot, counts)
    return tuple(counts.items())


def _count_remote(snapshot: Snapshot, counts: Counter[str]) -> None:
    """Add the GPUs of engines on hosts whose own GPUs are not counted."""
    hosts = _hosts(snapshot)
    for engine in snapshot.engines:
        hardware = engine.hardware
        count = credible(hardware.gpu_count)
        if count and hardware.gpu_type and not hardware.gpus and not _host_of(engine, hosts):
            counts[hardware.gpu_type] += round(count)


def _hosts(snapshot: Snapshot) -> set[str]:
    """Hosts whose GPUs are in the snapshot."""
    return {gpu.host for gpu in _physical_gpus(snapshot)}


def _host_of(engine: Engine, hosts: Collection[str]) -> str:
    """Which of these hosts, whose GPUs are counted already, an engine of a fleet is on; empty where it is on none.

    It has its host's name before its own (`fleet.whole`), and that may have slashes, too. Engines of one machine have
    none: those without GPUs there are on other machines.
    """
    parts = engine.url.split("/")
    for number in range(1, len(parts)):
        name = "/".join(parts[:number])
        if name and name in hosts:
            return name
    return ""


def gpus_held(snapshot: Snapshot) -> tuple[str, ...]:
    """GPUs that `gpus_here` leaves out, as something else holds them: `GPU 3: in use by python, 18.6 GiB`.

    Equal texts of several GPUs are one.
    """
    unplaced = _unplaced_hosts(snapshot)
    holders: Counter[str] = Counter()
    for gpu in _physical_gpus(snapshot):
        holder = _holder(gpu, gpu.host not in unplaced)
        if holder and not _why_not(gpu):
            holders[holder] += 1
    return tuple(_few(_times(holders), "GPUs or hosts"))


def instances_here(snapshot: Snapshot) -> dict[str, int]:
    """Served model name -> instances that answer: data-parallel ranks count one by one."""
    counts: Counter[str] = Counter()
    for engine in snapshot.engines:
        if engine.state is EndpointState.OK and engine.model and engine.kind not in FRONTENDS:
            counts[engine.model] += max(engine.hardware.ranks, 1)
    return dict(counts)


def kv_ratios(snapshot: Snapshot) -> dict[str, float]:
    """Served model name -> how full the fullest KV cache is of its engines that answer and tell."""
    ratios: dict[str, float] = {}
    for engine in snapshot.engines:
        ratio = credible(engine.load.kv_usage_ratio)
        if engine.state is EndpointState.OK and engine.model and ratio is not None:
            ratios[engine.model] = max(ratio, ratios.get(engine.model, 0.0))
    return ratios


def own_models(snapshot: Snapshot) -> dict[str, LlmSpec]:
    """Served model name -> dimensions, of the engines whose model is known."""
    models = {}
    for engine in snapshot.engines:
        llm = engine.dimensions.llm
        if engine.model and llm is not None:
            models[engine.model] = llm
    return models


def _models(snapshot: Snapshot) -> tuple[dict[str, list[Engine]], list[str]]:
    """Served model name -> its engines; and what was left out, and why."""
    odd: list[str] = []
    models: dict[str, list[Engine]] = {}
    for engine in engines_in_sums(snapshot.engines):
        decode = engine.tokens_total.decode
        if engine.phase is not Phase.INFERENCE:
            continue
        # No LLM's, but an encoder's or another model; known of one that does not answer now, too.
        if isinstance(decode, Missing) and decode.reason is Reason.NOT_SUPPORTED:
            odd.append(f"{engine.name}: left out (it generates no tokens)")
        elif engine.model:
            models.setdefault(engine.model, []).append(engine)
        else:
            odd.append(f"{engine.name}: its model is not known")
    return models, odd


def _answering(engines: Sequence[Engine]) -> list[Engine]:
    answering = []
    for engine in engines:
        if credible(engine.load.running) is not None:
            answering.append(engine)
    return answering


def _in_flight(engines: Sequence[Engine], peak: PeakLoad | None) -> float | None:
    """Requests in flight to plan for: the peak, else those of this instant; None where nobody told either."""
    if peak is not None:
        return float(round(peak.peak))
    counts = []
    for engine in _answering(engines):
        running = credible(engine.load.running) or 0.0
        waiting = credible(engine.load.waiting) or 0.0
        counts.append(running + waiting + turned_away_of(engine))
    if counts:
        return sum(counts)
    return None


def _workload(
    model: str, engines: Sequence[Engine], observed: Sequence[Observed], peak: PeakLoad | None, notes: list[str]
) -> Workload:
    """The workload of a model as its engines show it."""
    seen = best_profile(model, observed)
    in_flight = _in_flight(engines, peak)
    if in_flight is None:
        target = _usual_load(engines, seen)
    else:
        target = in_flight
    away = sum(turned_away_of(engine) for engine in engines)
    if away >= 0.5:
        notes.append(f"{model}: requests are turned away, {away:.0f} more would run: the target has them, too")
    notes += _silent_note(engines, seen)
    if target <= 0.0:
        why = "what it had in flight is not known" if in_flight is None else "nothing in flight now"
        notes.append(f"{model}: {why}, so its target is 1")
    return Workload(model=model, target=max(1.0, target), seen=seen)


def _silent_note(engines: Sequence[Engine], seen: Observed | None) -> list[str]:
    """The engines of a model that have no figures now."""
    silent = []
    for engine in engines:
        if credible(engine.load.running) is None:
            silent.append(engine.name)
    if not silent:
        return []
    when = ""
    if seen is not None and seen.time:
        when = f", last seen {seen.time}"
    return [f"{', '.join(_few(silent, 'engines'))}: no figures now ({engines[0].state.value}{when})"]


def _usual_load(engines: Sequence[Engine], seen: Observed | None) -> float:
    """Requests in flight of all instances at the load that was seen most; 0 where none was."""
    if seen is None or not seen.points:
        return 0.0
    usual = max(seen.points, key=lambda point: point.weight).running
    return float(round(usual * sum(max(engine.hardware.ranks, 1) for engine in engines)))


def _peaks_note(peaks: Mapping[str, PeakLoad]) -> list[str]:
    """Source of the targets: `targets: the peak of the last 5 min, 64 running + waiting (mean 41)`."""
    if not peaks:
        return []
    seconds = 0.0
    texts = []
    for model, load in peaks.items():
        seconds = max(seconds, load.seconds)
        text = f"{load.peak:.0f} running + waiting (mean {load.mean:.0f})"
        if len(peaks) > 1:
            text = f"{clean(model)} {text}"
        if load.requests_per_s is not None:
            text += f", {load.requests_per_s:.3g} requests/s"
        texts.append(text)
    return [f"targets: the {next(iter(peaks.values())).what} of the last {_span(seconds)}, {', '.join(texts)}"]


def _span(seconds: float) -> str:
    """A length of time in the largest unit of which it has some: `45 s`, `5 min`, `3 h`."""
    if seconds >= 7200:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"


def _servers(snapshot: Snapshot, notes: list[str]) -> tuple[Server, ...]:
    """The shapes of servers here, those that serve most in front; else one of eight GPUs for each type that remote
    engines run on.

    Of several types as many servers as there are, then more of the type that serves most.
    """
    gpus = _planned_with(snapshot, notes)
    if not gpus:
        return _remote_servers(snapshot, notes)
    counts: Counter[tuple[str, str]] = Counter()
    serving: Counter[tuple[str, str]] = Counter()
    for gpu in gpus:
        counts[gpu.host, gpu.gpu_type] += 1
        if gpu.engines:
            serving[gpu.host, gpu.gpu_type] += 1
    servers: Counter[tuple[str, int]] = Counter()
    busy: Counter[tuple[str, int]] = Counter()
    for (host, name), number in counts.items():
        servers[name, number] += 1
        busy[name, number] += serving[host, name]
    shapes = sorted(servers, key=lambda shape: -busy[shape])
    if len({gpu.host for gpu in gpus}) > 1:
        here = _few([f"{servers[shape]} of {shape[1]} x {shape[0]}" for shape in shapes], "shapes")
        notes.append(f"servers here: {', '.join(here)}")
    return _in_order(shapes[:MOST_SHAPES], servers)


def _planned_with(snapshot: Snapshot, notes: list[str]) -> list[Gpu]:
    """The GPUs here that can be planned with; notes say which cannot, and which something else holds."""
    unplaced = _unplaced_hosts(snapshot)
    texts: Counter[str] = Counter()
    gpus = []
    for gpu in _physical_gpus(snapshot):
        why = _why_not(gpu)
        if not why and not gpu.gpu_type:
            why = f"{gpu.name} is not in the catalogue"
        if why:
            texts[f"{_at(gpu)}: left out ({why})"] += 1
            continue
        gpus.append(gpu)
        holder = _holder(gpu, gpu.host not in unplaced)
        if holder:
            texts[holder] += 1
    notes += _few(_times(texts), "GPUs or hosts")
    return gpus


def _remote_servers(snapshot: Snapshot, notes: list[str]) -> tuple[Server, ...]:
    """A server for each type of GPU that remote engines run on, the most frequent first."""
    types = Counter(engine.hardware.gpu_type for engine in snapshot.engines if engine.hardware.gpu_type)
    if types:
        notes.append(f"servers of remote engines: assumed to have {REMOTE_GPUS} GPUs each")
    servers = []
    for name, _ in types.most_common(MOST_SHAPES):
        servers.append(Server(gpu=name, gpus=REMOTE_GPUS))
    return tuple(servers)


def _in_order(shapes: Sequence[tuple[str, int]], hosts: Mapping[tuple[str, int], int]) -> tuple[Server, ...]:
    """Servers of these shapes, (type of GPU, how many). Of one type there may be more than are here; of several the
    first type alone, behind all that are here."""
    first = shapes[0][0]
    if all(name == first for name, _ in shapes):
        return tuple(Server(gpu=name, gpus=number) for name, number in shapes)
    here = []
    for name, number in shapes:
        here.append(Server(gpu=name, gpus=number, count=hosts[name, number]))
    return (*here, Server(gpu=first, gpus=shapes[0][1]))


def _physical_gpus(snapshot: Snapshot) -> list[Gpu]:
    """The GPUs without the slices of any."""
    return [gpu for gpu in snapshot.gpus if not gpu.parent_uuid]


def _why_not(gpu: Gpu) -> str:
    """Why nothing can be planned on a GPU; empty where it can."""
    if gpu.state in (GpuState.LOST, GpuState.RESET_REQUIRED):
        return str(gpu.state.value).replace("_", " ")
    peak = gpu.bandwidth_peak_bytes_per_s
    under_mig = isinstance(peak, Missing) and peak.reason is Reason.UNDER_MIG
    return "MIG: its slices are not whole GPUs" if under_mig else ""


def _unplaced_hosts(snapshot: Snapshot) -> set[str]:
    """Hosts with an engine whose GPUs are not known: it may be what holds memory there."""
    hosts = _hosts(snapshot)
    unplaced: set[str] = set()
    for engine in snapshot.engines:
        host = _host_of(engine, hosts)
        if not engine.hardware.gpus and (host or not engine.hardware.gpu_type):
            unplaced.add(host)
    return unplaced


def _holder(gpu: Gpu, placed: bool) -> str:
    """The holder of the memory of a GPU without an engine: `GPU 3: in use by python, 18.6 GiB`.

    Empty if there is none, or if it is not known.
    """
    used = credible(gpu.vram_used_bytes)
    total = credible(gpu.vram_total_bytes)
    own = gpu.engines or any(process.engine for process in gpu.processes)
    if own or not used or not total or used <= HELD_RATIO * total:
        return ""
    holder = _holding_process(gpu)
    if not holder and placed:
        # On a host with an engine whose GPUs are not known, that engine may be the one.
        holder = "a process that cannot be seen"
    if holder:
        return f"{_at(gpu)}: in use by {holder}, {used / GIB:.1f} GiB"
    return ""


def _holding_process(gpu: Gpu) -> str:
    """The process with most memory on a GPU, and how many more there are; empty where processes are hidden."""
    if not gpu.processes:
        return ""
    largest = min(gpu.processes, key=lambda process: -(credible(process.vram_bytes) or 0.0))
    name = clean(largest.name) or "a process"
    others = len(gpu.processes) - 1
    if others:
        return f"{name} and {others} more"
    return name


def _at(gpu: Gpu) -> str:
    """How a note names a GPU: of a fleet by its host."""
    if gpu.host:
        return f"a GPU of {clean(gpu.host, 64)}"
    return f"GPU {gpu.index}"


def _times(texts: Counter[str]) -> list[str]:
    """Each text once, with its number where that is more than one."""
    times = []
    for text, count in texts.items():
        if count > 1:
            times.append(f"{text} x {count}")
        else:
            times.append(text)
    return times


def _few(texts: Sequence[str], of: str) -> list[str]:
    """The first of many texts, and how many more there are."""
    more = len(texts) - MOST_NOTED
    if more > 0:
        return [*texts[:MOST_NOTED], f"and {more} more {of}"]
    return [*texts]
