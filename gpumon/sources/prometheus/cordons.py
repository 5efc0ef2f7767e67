"""Nodes that a scheduler gives nothing to any more: cordoned in Kubernetes, drained in Slurm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.hosts import HostLabels
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.queries import join_matchers
from gpumon.sources.prometheus.targets import EXPORTED

CORDONED: Final = "cordoned in Kubernetes"
DRAINED: Final = "drained in Slurm"
_KUBERNETES: Final = "kube_node_spec_unschedulable"
"""Series of kube-state-metrics: 1 for a node that is cordoned."""
_SLURM: Final = "slurm_node_cpu_total|slurm_node_status"
"""Series of two exporters for Slurm, both with the state of a node in a label."""
_DRAINED_STATES: Final = "(?i)(drain|drng|maint).*"
_NODE_LABELS: Final = (EXPORTED + "node", "node")
"""Labels that name the node: where the exporter's target has a label `node`, the page's own is renamed."""


def cordons_query(match: str) -> str:
    """The query for the nodes that are taken out."""
    kubernetes = f"{_KUBERNETES}{{{join_matchers(match)}}} == 1"
    slurm = join_matchers(f'__name__=~"{_SLURM}"', f'status=~"{_DRAINED_STATES}"', match)
    return f"{kubernetes} or {{{slurm}}} > 0"


def cordons_of(answer: Iterable[Vector], labels: HostLabels) -> dict[MachineId, str]:
    """Machine, by its cluster and node, that is taken out -> how."""
    cordons: dict[MachineId, str] = {}
    for vector in answer:
        series = vector.series
        node = next((series.labels[name] for name in _NODE_LABELS if series.labels.get(name)), "")
        if node:
            reason = CORDONED if series.name == _KUBERNETES else DRAINED
            cordons[MachineId(labels.cluster(series.labels), node)] = reason
    return cordons


def taken_out(machines: Iterable[MachineId], memory: Memory) -> Mapping[MachineId, str]:
    """Each of these machines that a scheduler has taken out -> how. A cluster counts where there are several; names
    that differ in case, or by a domain on one side, are one node."""
    if not memory.cordons:
        return {}
    # Under its first part a node stands with its whole name, too: `gpu1.east` is not `gpu1.west`.
    by_first_part: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for machine_id, reason in memory.cordons.items():
        cluster = machine_id.cluster if len(memory.clusters) > 1 else ""
        shown = memory.machines.shown_id(MachineId(cluster, machine_id.name))
        for name in (machine_id.name, shown.name):
            by_first_part[shown.cluster, _first_part(name)][name.lower()] = reason
    found: dict[MachineId, str] = {}
    for machine_id in machines:
        name = machine_id.name.lower()
        first_part = _first_part(name)
        nodes = by_first_part.get((machine_id.cluster, first_part), {})
        alike = nodes if name == first_part else [node for node in nodes if node in (name, first_part)]
        for node in alike:
            found[machine_id] = nodes[node]
    return found


def _first_part(name: str) -> str:
    """A name in lower case without its domain; an address as it is."""
    lower = name.lower()
    if ":" in lower or lower.replace(".", "").isdecimal():
        return lower
    return lower.partition(".")[0]
