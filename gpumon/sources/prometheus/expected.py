"""GPUs that a Prometheus had in the last two days and has not now: each is expected until it is back or forgotten.

A GPU on nobody's page is silent: lost where its exporter answers, stale where that is down or is no target any more. A
host that left with all its targets was taken out by whoever scrapes it, which is a note. So is a GPU that was replaced:
its index has another one that had no other index before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.readings.dcgm import DCGM
from gpumon.readings.format import clock_utc
from gpumon.readings.frame import GpuReading, GpuState, XidEvent
from gpumon.readings.text import clean
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.contents import OLD_INTERVALS, Contents
from gpumon.sources.prometheus.exporters import EXPORTER_DOWN
from gpumon.sources.prometheus.hosts import OF_ONE_THING, HostLabels, host_name, host_of
from gpumon.sources.prometheus.machine import Machine, MachineBuilder
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import ExpectedGpu, Memory
from gpumon.sources.prometheus.naming import Naming
from gpumon.sources.prometheus.queries import GPU_SIGNS, LABEL_NAME, join_matchers, matchers_of_label
from gpumon.sources.prometheus.scraped import Scraped, job_of
from gpumon.sources.prometheus.standing import XID_NAMES, uuid_of
from gpumon.sources.prometheus.targets import Target

SHOWN_NO_MORE: Final = "its dcgm-exporter shows it no more"
"""State of a GPU that left the page of its exporter."""
NO_EXPORTER: Final = "its dcgm-exporter is no target any more, since {}: {} GPUs unseen"
HOSTS_GONE: Final = "{} hosts of the last day are gone with all their targets, such as {} (since {}): taken out?"
REPLACED: Final = "{} GPUs of the last day were replaced, such as gpu {} of {} ({}, last seen {})"
_STEP_S: Final = 600
"""Seconds between two moments of the last two days at which it is asked which GPUs there were."""
_MOST_EXPECTED: Final = 20_000
"""GPUs that are remembered."""
FORGET_S: Final = 2 * 86400.0
"""Seconds after which a silent GPU is expected no more."""
_MOST_PLACE_LABELS: Final = 24
"""Labels of exporters' targets by which places are told apart."""
_MOST_MOMENTS: Final = 8
"""Moments at which GPUs fell silent that are looked at closely."""

AskSamples = Callable[[str, float], Awaitable[Sequence[Matrix]]]
"""Asks for the stored samples of a range, as of a Unix time."""


def expected_query(labels: HostLabels, more_labels: Iterable[str], match: str) -> str:
    """The query for each GPU of the last two days: the time of its newest sample (Unix time, to 10 minutes).

    `more_labels`: further labels that tell where exporters are.
    """
    of_gpu = ("UUID", "uuid", "gpu", "modelName", "job", "instance")
    kept = dict.fromkeys((*of_gpu, *labels.hosts, *labels.clusters, *more_labels))
    times = " or ".join(f"timestamp({name}{{{join_matchers(match)}}})" for name in sorted(GPU_SIGNS))
    return f"max by ({', '.join(kept)}) (max_over_time(({times})[2d:{_STEP_S}s]))"


def place_labels(memory: Memory) -> list[str]:
    """Names of the labels of exporters' targets that name neither one machine nor one pod, such as a region."""
    names: set[str] = set()
    for key in memory.exporters:
        names.update(name for name, _ in key if name not in OF_ONE_THING and LABEL_NAME.fullmatch(name))
    return sorted(names)[:_MOST_PLACE_LABELS]


def learn_expected(answer: Iterable[Vector], labels: HostLabels, memory: Memory) -> None:
    """Keep in the memory the GPUs of the answer that are newer than what is known of them."""
    for vector in answer:
        uuid = uuid_of(vector)
        known = memory.expected_gpus.get(uuid)
        if not uuid or len(memory.expected_gpus) > _MOST_EXPECTED:
            continue
        series = vector.series.labels
        index_text = series.get("gpu", "")
        index = int(index_text) if index_text.isdecimal() and len(index_text) <= 4 else 0
        indices = frozenset({index}) | (known.indices if known is not None else frozenset())
        if known is not None and known.seen_s >= vector.value:
            memory.expected_gpus[uuid] = known._replace(indices=indices)
            continue
        memory.expected_gpus[uuid] = ExpectedGpu(
            target=Target(series, tuple(sorted(series.items())), "", has_up=False),
            name=host_of(series, {}, labels.hosts),
            gpu_index=index,
            model=clean(series.get("modelName", ""), 80),
            seen_s=vector.value,
            indices=indices,
        )


async def date_silence(memory: Memory, match: str, at_s: float, ask: AskSamples) -> None:
    """Find the last sample of silent GPUs, and their last Xid: one query for all of one moment. Raises ApiFault."""
    by_moment: dict[float, list[str]] = {}
    for uuid, gpu in memory.expected_gpus.items():
        if not gpu.dated and _STEP_S < at_s - gpu.seen_s <= FORGET_S:
            by_moment.setdefault(gpu.seen_s // _STEP_S, []).append(uuid)
    for moment, uuids in sorted(by_moment.items(), reverse=True)[:_MOST_MOMENTS]:
        names = "|".join(sorted(GPU_SIGNS | XID_NAMES))
        only = matchers_of_label(join_matchers(f'__name__=~"{names}"', match), "UUID", uuids)
        end_s = (moment + 2) * _STEP_S
        _take_last_samples(await ask(f"{{{only}}}[{round(end_s - moment * _STEP_S)}s]", end_s), memory)


def _take_last_samples(matrices: Iterable[Matrix], memory: Memory) -> None:
    """Date the silence of GPUs by their newest samples."""
    codes: dict[str, tuple[float, float]] = {}
    for matrix in matrices:
        uuid = matrix.series.labels.get("UUID", "")
        gpu = memory.expected_gpus.get(uuid)
        if gpu is None or not matrix.points:
            continue
        at_s, value = matrix.points[-1]
        if matrix.series.name in XID_NAMES:
            codes[uuid] = max(codes.get(uuid, (0.0, 0.0)), (at_s, value))
        memory.expected_gpus[uuid] = gpu._replace(seen_s=max(gpu.seen_s, at_s), dated=True)
    for uuid, (_, code) in codes.items():
        memory.expected_gpus[uuid] = memory.expected_gpus[uuid]._replace(xid=int(code))


def add_silent(
    builder: MachineBuilder, scraped: Scraped, contents: Contents, naming: Naming, memory: Memory
) -> list[str]:
    """Put GPUs that are expected and on no page on their machines; returns the notices. The memory notes what is there.

    A host's own gpumon tells of its GPUs itself.
    """
    present, answering = _note_present(scraped, contents, naming, memory)
    if "gpus" in scraped.incomplete:
        return []
    by_address = _targets_by_address(scraped.counted)
    successors = _only_at_one_index(memory, present)
    unseen: dict[MachineId, list[ExpectedGpu]] = {}
    gone_s: dict[MachineId, float] = {}
    replaced: list[tuple[str, ExpectedGpu, MachineId]] = []
    for uuid, gpu in _silent_gpus(memory, present, scraped.at_s):
        machine_id = memory.machines.shown_id(gpu.machine_id or naming.machines.id_of(gpu.target, gpu.name))
        machine, target = _place_of(gpu, machine_id, by_address, builder)
        if machine is None:
            gone_s[machine_id] = max(gpu.seen_s, gone_s.get(machine_id, 0.0))
            continue
        if (machine_id, gpu.gpu_index) in successors:
            replaced.append((uuid, gpu, machine_id))
            machine.gpus.pop(uuid, None)
            continue
        is_lost = machine_id in answering or _answers(target, scraped)
        _show_silent(machine, uuid, gpu, target, is_lost=is_lost)
        if target is None and not is_lost:
            unseen.setdefault(machine_id, []).append(gpu)
    for machine_id, gpus in unseen.items():
        _note_no_exporter(builder.machines[machine_id], gpus)
    clusters = len(memory.clusters)
    return [*_gone_notice(gone_s, scraped.at_s, clusters), *_replaced_notice(replaced, scraped.at_s, clusters)]


def _place_of(
    gpu: ExpectedGpu,
    machine_id: MachineId,
    by_address: Mapping[tuple[str, str], Collection[Target]],
    builder: MachineBuilder,
) -> tuple[Machine | None, Target | None]:
    """The machine of a silent GPU, and the target that its exporter is now; None where there is none any more."""
    beside = by_address.get((job_of(gpu.target), gpu.target.instance), ())
    target = _same_target(gpu.target, beside)
    machine = builder.machines.get(machine_id)
    # Where gpumon never saw the GPU itself, and its address is another place's target's now, the machine of its name is
    # that other one.
    is_elsewhere = bool(beside) and gpu.machine_id is None
    if target is None and (machine is None or is_elsewhere):
        return None, None
    return machine or builder.machine_of(target or gpu.target, gpu.name), target


def _only_at_one_index(memory: Memory, present: Container[str]) -> set[tuple[MachineId, int]]:
    """Machine and index of the GPUs on the pages of now that had no other index in the last two days."""
    return {
        (gpu.machine_id, gpu.gpu_index)
        for uuid, gpu in memory.expected_gpus.items()
        if uuid in present and gpu.machine_id is not None and gpu.indices == {gpu.gpu_index}
    }


def _targets_by_address(targets: Iterable[Target]) -> dict[tuple[str, str], list[Target]]:
    """The targets by job and address."""
    by_address: dict[tuple[str, str], list[Target]] = {}
    for target in targets:
        by_address.setdefault((job_of(target), target.instance), []).append(target)
    return by_address


def _same_target(target: Target, at_its_address: Iterable[Target]) -> Target | None:
    """The target of now that another one of earlier is, by labels that both have: two clusters may share an address."""
    for other in at_its_address:
        if all(target.labels.get(name, value) == value for name, value in other.labels.items()):
            return other
    return None


def _answers(target: Target | None, scraped: Scraped) -> bool:
    """Whether there is a target that the Prometheus can scrape."""
    return target is not None and not scraped.is_down(target)


def _show_silent(machine: Machine, uuid: str, gpu: ExpectedGpu, target: Target | None, *, is_lost: bool) -> None:
    """Put the row of a silent GPU on its machine, unless that has its own gpumon: lost where its exporter answers, else
    as stale as it is there. `target`: its exporter; None: it is no target any more."""
    if machine.snapshot is not None:
        return
    if is_lost:
        machine.gpus[uuid] = _silent_reading(uuid, gpu, machine.gpus.get(uuid), GpuState.LOST)
        return
    machine.gpus.setdefault(uuid, _silent_reading(uuid, gpu, None, GpuState.STALE))
    if target is not None:
        machine.faults[EXPORTER_DOWN] = None
        machine.exporters_down.add(target.key)


def _note_no_exporter(machine: Machine, gpus: Sequence[ExpectedGpu]) -> None:
    """Note on a machine that the exporter of these GPUs is no target any more, unless it has its own gpumon."""
    if machine.snapshot is not None:
        return
    since = clock_utc(max(gpu.seen_s for gpu in gpus))
    machine.faults[NO_EXPORTER.format(since, len(gpus))] = None
    machine.exporters_down.add(gpus[0].target.key)


def _silent_gpus(memory: Memory, present: Container[str], at_s: float) -> list[tuple[str, ExpectedGpu]]:
    """The GPUs that are expected and on no page, by UUID. Those that are silent for long are forgotten."""
    silent = []
    for uuid, gpu in list(memory.expected_gpus.items()):
        silent_s = at_s - gpu.seen_s
        if silent_s > FORGET_S:
            del memory.expected_gpus[uuid]
        elif uuid not in present and silent_s > _grace_s(gpu, memory):
            silent.append((uuid, gpu))
    return silent


def _note_present(
    scraped: Scraped, contents: Contents, naming: Naming, memory: Memory
) -> tuple[set[str], set[MachineId]]:
    """The GPUs on the pages of now, which the memory notes, and the machines whose exporters answer."""
    present: set[str] = set()
    answering: set[MachineId] = set()
    for target, exporter, is_down in contents.exporters:
        if is_down:
            continue
        for name, gpu in exporter.gpus:
            if gpu.uuid not in exporter.uuids_on_page:
                continue
            present |= {gpu.uuid, gpu.parent_uuid}
            machine_id = naming.machines.shown(target, name)
            answering.add(machine_id)
            if not gpu.parent_uuid:
                known = memory.expected_gpus.get(gpu.uuid)
                earlier_indices = known.indices if known is not None else frozenset()
                memory.expected_gpus[gpu.uuid] = ExpectedGpu(
                    target=target,
                    name=name,
                    gpu_index=gpu.index,
                    model=gpu.name,
                    seen_s=scraped.scraped_s.get(target, scraped.at_s),
                    xid=gpu.standing_xid,
                    dated=True,
                    machine_id=machine_id,
                    indices=earlier_indices | {gpu.index},
                )
    for own_gpumon in contents.own_gpumons:
        if own_gpumon.snapshot is not None:
            present.update(gpu.reading.uuid for gpu in own_gpumon.snapshot.gpus)
    return present, answering


def _grace_s(gpu: ExpectedGpu, memory: Memory) -> float:
    """Seconds for which a GPU may lack on its page: a scrape may be late, an exporter start anew."""
    return OLD_INTERVALS * memory.intervals.of(gpu.target)


def _silent_reading(uuid: str, gpu: ExpectedGpu, last: GpuReading | None, state: GpuState) -> GpuReading:
    """The row of a GPU that is on no page, as it was last seen."""
    if last is None:
        last = GpuReading(gpu.gpu_index, uuid, gpu.model, state, gpu.seen_s, source=DCGM)
    xids = last.xid
    if gpu.xid and not any(event.code == gpu.xid for event in xids):
        xids = (*xids, XidEvent(gpu.xid, gpu.seen_s))
    return msgspec.structs.replace(
        last, state=state, state_text=SHOWN_NO_MORE, monotonic_s=gpu.seen_s, xid=xids, standing_xid=gpu.xid
    )


def _gone_notice(gone_s: Mapping[MachineId, float], at_s: float, clusters: int) -> list[str]:
    """The notice of hosts that left with all their targets within a day; none where there are none."""
    lately = {machine_id: seen_s for machine_id, seen_s in gone_s.items() if at_s - seen_s <= FORGET_S / 2}
    if not lately:
        return []
    newest = max(lately, key=lambda machine_id: lately[machine_id])
    name = host_name(newest.name, newest.cluster, clusters)
    return [HOSTS_GONE.format(len(lately), name, clock_utc(lately[newest]))]


def _replaced_notice(replaced: Sequence[tuple[str, ExpectedGpu, MachineId]], at_s: float, clusters: int) -> list[str]:
    """The notice of GPUs that were replaced within a day; none where there are none."""
    lately = [entry for entry in replaced if at_s - entry[1].seen_s <= FORGET_S / 2]
    if not lately:
        return []
    uuid, gpu, machine_id = max(lately, key=lambda entry: entry[1].seen_s)
    host = host_name(machine_id.name, machine_id.cluster, clusters)
    return [REPLACED.format(len(lately), gpu.gpu_index, host, clean(uuid, 12), clock_utc(gpu.seen_s))]
