"""GPUs that there are for a plan: those that work here, those that something else holds, and the shapes of servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, physical_gpus
from gpumon.readings.text import clean
from gpumon.sizing.peaks import credible
from gpumon.sizing.scenario import Server

_REMOTE_GPUS: Final = 8
"""GPUs of a server that gpumon does not run on: usual, and said in the note."""
_MOST_SHAPES: Final = 8
"""Shapes of servers that a plan begins with: those that serve most."""
_MOST_NOTED: Final = 8
"""Things of a kind that a note names."""
_HELD_RATIO: Final = 0.05
"""Share of a GPU's memory in use above which something holds it: an idle driver takes less."""
_LONGEST_HOST: Final = 64
"""Characters of the name of a host in a note."""


class _Shape(NamedTuple):
    """Servers that are alike."""

    gpu: str
    """Catalogue name of their GPUs."""
    gpus: int


def gpus_here(snapshot: Snapshot) -> tuple[tuple[str, int], ...]:
    """(GPU type, how many) of what works here and of what remote engines stand on.

    A GPU that something else holds is not counted: nothing can be planned on it. The type is the catalogue's name; a
    GPU that is not in the catalogue goes by the name that its driver gives it.
    """
    counts: Counter[str] = Counter()
    unplaced_hosts = _unplaced_hosts(snapshot)
    for gpu in physical_gpus(snapshot.gpus):
        if not _why_unusable(gpu) and not _holder_text(gpu, unplaced_hosts):
            counts[gpu.gpu_type or f"{gpu.reading.name} (not in the catalogue)"] += 1
    _count_remote(snapshot, counts)
    return tuple(counts.items())


def gpus_held(snapshot: Snapshot) -> tuple[str, ...]:
    """GPUs that `gpus_here` leaves out, as something else holds them: `GPU 3: in use by python, 20.0 GB`.

    Equal texts of several GPUs are one.
    """
    unplaced_hosts = _unplaced_hosts(snapshot)
    texts: Counter[str] = Counter()
    for gpu in physical_gpus(snapshot.gpus):
        text = _holder_text(gpu, unplaced_hosts)
        if text and not _why_unusable(gpu):
            texts[text] += 1
    return tuple(first_few(_with_counts(texts), "GPUs or hosts"))


def servers_here(snapshot: Snapshot, notes: list[str]) -> tuple[Server, ...]:
    """Servers to plan with: the shapes here, those that serve most in front; else one of eight GPUs for each type that
    remote engines run on. Adds notes on what was left out or assumed.

    Of several types as many servers as there are, then more of the type that serves most.
    """
    gpus = _plannable_gpus(snapshot, notes)
    if not gpus:
        return _remote_servers(snapshot, notes)
    gpu_counts: Counter[tuple[str, str]] = Counter()  # by host and type of GPU
    serving_counts: Counter[tuple[str, str]] = Counter()
    for gpu in gpus:
        gpu_counts[gpu.reading.host, gpu.gpu_type] += 1
        if gpu.engines:
            serving_counts[gpu.reading.host, gpu.gpu_type] += 1
    servers: Counter[_Shape] = Counter()
    serving_gpus: Counter[_Shape] = Counter()
    for (host, gpu_type), gpu_count in gpu_counts.items():
        shape = _Shape(gpu_type, gpu_count)
        servers[shape] += 1
        serving_gpus[shape] += serving_counts[host, gpu_type]
    shapes = sorted(servers, key=lambda shape: -serving_gpus[shape])
    if len({gpu.reading.host for gpu in gpus}) > 1:
        texts = [f"{servers[shape]} of {shape.gpus} x {shape.gpu}" for shape in shapes]
        notes.append(f"servers here: {', '.join(first_few(texts, 'shapes'))}")
    return _servers_of_shapes(shapes[:_MOST_SHAPES], servers)


def _plannable_gpus(snapshot: Snapshot, notes: list[str]) -> list[Gpu]:
    """The GPUs here whose servers can be planned with, also those that something else holds at the moment.

    Adds notes that say which cannot be planned with, and which are held.
    """
    unplaced_hosts = _unplaced_hosts(snapshot)
    texts: Counter[str] = Counter()
    gpus = []
    for gpu in physical_gpus(snapshot.gpus):
        reason = _why_unusable(gpu)
        if not reason and not gpu.gpu_type:
            reason = f"{gpu.reading.name} is not in the catalogue"
        if reason:
            texts[f"{_gpu_name(gpu)}: left out ({reason})"] += 1
            continue
        gpus.append(gpu)
        holder_text = _holder_text(gpu, unplaced_hosts)
        if holder_text:
            texts[holder_text] += 1
    notes += first_few(_with_counts(texts), "GPUs or hosts")
    return gpus


def _remote_servers(snapshot: Snapshot, notes: list[str]) -> tuple[Server, ...]:
    """A server for each type of GPU that remote engines run on, the most frequent first. Adds a note on their size."""
    types = Counter(engine.hardware.gpu_type for engine in snapshot.engines if engine.hardware.gpu_type)
    if types:
        notes.append(f"servers of remote engines: assumed to have {_REMOTE_GPUS} GPUs each")
    servers = [Server(gpu=gpu_type, gpus=_REMOTE_GPUS) for gpu_type, _ in types.most_common(_MOST_SHAPES)]
    return tuple(servers)


def _servers_of_shapes(shapes: Sequence[_Shape], counts: Mapping[_Shape, int]) -> tuple[Server, ...]:
    """Servers of these shapes. `counts`: how many of each are here.

    Of a single type of GPU as many servers as it takes; of several types those that are here, and behind them as many
    more of the first shape as it takes.
    """
    first = shapes[0]
    if all(shape.gpu == first.gpu for shape in shapes):
        return tuple(Server(gpu=shape.gpu, gpus=shape.gpus) for shape in shapes)
    servers = [Server(gpu=shape.gpu, gpus=shape.gpus, count=counts[shape]) for shape in shapes]
    return (*servers, Server(gpu=first.gpu, gpus=first.gpus))


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
    return {gpu.reading.host for gpu in physical_gpus(snapshot.gpus)}


def _host_of(engine: Engine, hosts: Collection[str]) -> str:
    """The one of these hosts that an engine of a fleet is on; empty where it is on none of them.

    Its URL begins with its host's name (`fleet.whole`), which may have slashes, too. URLs of engines of a single
    machine have none: those without GPUs there are on other machines.
    """
    parts = engine.url.split("/")
    for length in range(1, len(parts)):
        host = "/".join(parts[:length])
        if host and host in hosts:
            return host
    return ""


def _why_unusable(gpu: Gpu) -> str:
    """Why nothing can be planned on a GPU; empty where it can."""
    if gpu.reading.state in (GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED, GpuState.ERROR):
        return str(gpu.reading.state.value).replace("_", " ")
    peak = gpu.bandwidth_peak_bytes_per_s
    if isinstance(peak, Missing) and peak.reason is Reason.UNDER_MIG:
        return "MIG: its slices are not whole GPUs"
    return ""


def _unplaced_hosts(snapshot: Snapshot) -> set[str]:
    """Hosts with an engine whose GPUs are not known: it may be what holds memory there.

    The empty name is the single machine, of which only engines without a type of GPU count: others are elsewhere.
    """
    hosts = _hosts(snapshot)
    unplaced_hosts: set[str] = set()
    for engine in snapshot.engines:
        host = _host_of(engine, hosts)
        if not engine.hardware.gpus and (host or not engine.hardware.gpu_type):
            unplaced_hosts.add(host)
    return unplaced_hosts


def _holder_text(gpu: Gpu, unplaced_hosts: Collection[str]) -> str:
    """The holder of the memory of a GPU without an engine: `GPU 3: in use by python, 20.0 GB`.

    Empty if there is none, or if it is not known.
    """
    used = credible(gpu.reading.vram_used_bytes)
    total = credible(gpu.reading.vram_total_bytes)
    has_engine = gpu.engines or any(process.engine for process in gpu.reading.processes)
    if has_engine or not used or not total or used <= _HELD_RATIO * total:
        return ""
    holder = _holding_process(gpu)
    if not holder and gpu.reading.host not in unplaced_hosts:  # else an engine whose GPUs are not known may be the one
        holder = "a process that cannot be seen"
    if holder:
        return f"{_gpu_name(gpu)}: in use by {holder}, {used / 1e9:.1f} GB"
    return ""


def _holding_process(gpu: Gpu) -> str:
    """The process with most memory on a GPU, and how many more there are; empty where processes are hidden."""
    if not gpu.reading.processes:
        return ""
    largest = max(gpu.reading.processes, key=lambda process: credible(process.vram_bytes) or 0.0)
    name = clean(largest.name) or "a process"
    others = len(gpu.reading.processes) - 1
    if others:
        return f"{name} and {others} more"
    return name


def _gpu_name(gpu: Gpu) -> str:
    """How a note names a GPU: that of a fleet by its host."""
    if gpu.reading.host:
        return f"a GPU of {clean(gpu.reading.host, _LONGEST_HOST)}"
    return f"GPU {gpu.reading.index}"


def _with_counts(texts: Counter[str]) -> list[str]:
    """Each text once, with the times that it occurred where these are more than one: `... x 3`."""
    return [f"{text} x {count}" if count > 1 else text for text, count in texts.items()]


def first_few(texts: Sequence[str], noun: str) -> list[str]:
    """The first of many texts for a note, then how many more there are: `and 5 more GPUs`. `noun`: what they are of."""
    more = len(texts) - _MOST_NOTED
    if more > 0:
        return [*texts[:_MOST_NOTED], f"and {more} more {noun}"]
    return [*texts]
