"""How a Prometheus' targets are named: each with its kind, its machine, and the label that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.readings.fleet import FleetFrame, NamedTarget
from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.prometheus.hosts import INSTANCE, HostLabels, user_of
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.targets import LabelPairs, Target

_NOT_READ: Final = "not read"
_DOWN: Final = "down"


def named_targets(frame: FleetFrame, memory: Memory, labels: HostLabels) -> list[NamedTarget]:
    """The targets of a frame by host, then those that are not read, by job."""
    kinds = _kinds(memory)
    engine_gpus = _engine_gpus(frame)
    engines_down = _engines_down(frame)
    rows: list[NamedTarget] = []
    for host, targets in sorted(memory.hosts.items()):
        for target in sorted(targets, key=lambda target: target.key):
            kind = kinds.get(target.key, _DOWN)
            if (host, target.instance) in engines_down and kind != _DOWN:
                kind = f"{kind}, {_DOWN}"
            gpus = engine_gpus.get((host, target.instance), "")
            page: Mapping[str, str] = {}
            if target.key in memory.exporters:
                page = memory.exporters[target.key].page_labels
                gpus = str(len(memory.exporters[target.key].uuids_on_page))
            rows.append(_row(target, kind, host, _how(target, page, labels.hosts), gpus))
    for job, count in sorted(memory.unread_targets.items()):
        rows.append(NamedTarget(clean(job, 60), f"{count} targets", _NOT_READ, "", "", ""))
    return rows


def _row(target: Target, kind: str, host: str, how: str, gpus: str) -> NamedTarget:
    """The row of one target."""
    return NamedTarget(clean(target.labels.get("job", ""), 60), clean(target.instance, 60), kind, host, how, gpus)


def _kinds(memory: Memory) -> Mapping[LabelPairs, str]:
    """Key of a target -> its kind."""
    kinds = dict.fromkeys(memory.own_pages, "gpumon")
    kinds |= dict.fromkeys(memory.exporters, "GPU exporter")
    return kinds | {key: engine.row.kind.value for key, engine in memory.engines.items()}


def _engine_gpus(frame: FleetFrame) -> Mapping[tuple[str, str], str]:
    """Host and address of an engine -> the number of its GPUs, or `?`."""
    gpus: dict[tuple[str, str], str] = {}
    for host in frame.hosts:
        for reading in host.engines:
            number = max(len(reading.gpus), reading.gpu_count)
            address = reading.url.partition(" ")[0]
            gpus[host.name, address] = str(number or "?")
    return gpus


def _engines_down(frame: FleetFrame) -> set[tuple[str, str]]:
    """Host and address of each engine that the Prometheus cannot scrape."""
    down = set()
    for host in frame.hosts:
        for reading in host.engines:
            if reading.state is not EndpointState.OK:
                down.add((host.name, reading.url.partition(" ")[0]))
    return down


def _how(target: Target, page: Mapping[str, str], ladder: Sequence[str]) -> str:
    """The label by which a target's machine is named: its own, or one of its page."""
    for label in ladder:
        if label == INSTANCE and user_of(target.labels, "") is not None:
            return "its pod, or instance"
        if target.labels.get(label, "").strip():
            return label
        if page.get(label, "").strip():
            return f"{label} (page)"
    return "its page"
