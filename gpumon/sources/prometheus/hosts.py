"""Which machine a series is of, as far as labels say so."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.address import LOOPBACK
from gpumon.readings.text import clean

INSTANCE: Final = "instance"
PODS: Final = (
    ("namespace", "pod", "container"),
    ("pod_namespace", "pod_name", "container_name"),
    ("kubernetes_namespace", "kubernetes_pod_name", "kubernetes_container_name"),
)
"""Labels for namespace, pod and container, of engines' targets and dcgm-exporters: today, before 2.0, and in
Prometheus' example of annotations."""
OF_ONE_THING: Final = frozenset(
    {
        *("job", "instance", "endpoint", "service", "node", "nodename", "host", "hostname", "Hostname"),
        *("pod_template_hash", "controller_revision_hash", "uid", "prometheus"),
        *itertools.chain(*PODS),
    }
)
"""Labels of scraping, and those that name one machine or one pod."""
_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")
"""Host name of a container that was given none."""
_NAMELESS: Final = "(no host label)"


class Pod(NamedTuple):
    """A pod's name; two clusters may have the same. Texts are from outside."""

    cluster: str
    namespace: str
    name: str


class User(NamedTuple):
    """Who uses a GPU."""

    pod: Pod
    container: str


class HostLabels(NamedTuple):
    """Names of the labels that tell machines, and clusters, apart; each the best first."""

    hosts: Sequence[str]
    clusters: Sequence[str] = ("cluster",)

    def cluster(self, labels: Mapping[str, str]) -> str:
        """The cluster that these labels name; empty where they name none."""
        for name in self.clusters:
            if labels.get(name):
                return labels[name]
        return ""


def host_of(target: Mapping[str, str], page: Mapping[str, str], ladder: Sequence[str]) -> str:
    """Name of the machine: by the first label of the ladder that the target or else its page has.

    `target`, `page`: labels that Prometheus has added, and those that the page wrote.

    Of an address the port is left out: a pod's address stays, as there is no better name. The id of a container is no
    name where a later label has one: an exporter in docker knows no other name of its machine.
    """
    container = ""
    for label in ladder:
        value = target.get(label) or page.get(label, "")
        if label == INSTANCE:
            value = without_port(value)
        if _CONTAINER_ID.fullmatch(value):
            container = container or value
        elif value.strip() and not (container and value in LOOPBACK):
            return value
    return container


def without_port(instance: str) -> str:
    """An address without scheme, port and path."""
    bare = instance.partition("://")[2] or instance
    bare = bare.partition("/")[0]
    if bare.startswith("["):
        return bare[1:].partition("]")[0]
    host, colon, port = bare.rpartition(":")
    if colon and port.isdecimal() and ":" not in host:
        return host
    return bare


def port_of(instance: str) -> str:
    """Port of an address; empty where it names none."""
    bare = (instance.partition("://")[2] or instance).partition("/")[0]
    host, colon, port = bare.rpartition(":")
    # Several colons without brackets: an IPv6 address without a port.
    has_port = ":" not in host or host.endswith("]")
    if colon and port.isdecimal() and len(port) <= 5 and has_port:
        return port
    return ""


def user_of(labels: Mapping[str, str], cluster: str) -> User | None:
    """The pod that these labels name; None where they name none."""
    for namespace, pod, container in PODS:
        if labels.get(pod):
            return User(Pod(cluster, labels.get(namespace, ""), labels[pod]), labels.get(container, ""))
    return None


def owner_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a target by which owners can be told apart: its namespace, and what names no single thing."""
    owner = {clean(name, 80): clean(value, 120) for name, value in labels.items() if value and name not in OF_ONE_THING}
    user = user_of(labels, "")
    if user is not None and user.pod.namespace:
        owner["namespace"] = clean(user.pod.namespace, 120)
    return owner


def same_pod(labels: Mapping[str, str], other_labels: Mapping[str, str]) -> bool:
    """Whether the labels of two targets may be of one pod: what one of them does not say is no contradiction."""
    user = user_of(labels, "")
    other_user = user_of(other_labels, "")
    if user is None or other_user is None:
        return True
    for name, other_name in zip(user.pod, other_user.pod, strict=True):
        if name and other_name and name != other_name:
            return False
    return True


def host_name(name: str, cluster: str, clusters: int) -> str:
    """A host's name in the fleet; with its cluster where there are several."""
    name = clean(name, 120) or _NAMELESS
    if cluster and clusters > 1:
        return f"{clean(cluster, 60)}/{name}"
    return name


def distinction(labels: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> str:
    """The pod of a target, or else its labels that others at its address do not share: they tell it apart."""
    beside = [other for other in others if other.get(INSTANCE) == labels.get(INSTANCE)]
    pod = labels.get("pod", "")
    if pod and sum(other.get("pod") == pod for other in beside) == 1:
        return pod
    values = [value for name, value in sorted(labels.items()) if any(other.get(name) != value for other in beside)]
    return " ".join(values)


def named_apart(engines: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Names of a host's engines, made to differ: by pod, else by address, job, any label, or number."""
    items = list(engines)
    names = [name for name, _ in items]
    for label in ("pod", INSTANCE, "job"):
        counts = Counter(names)
        for index, (name, (_, labels)) in enumerate(zip(names, items, strict=True)):
            if counts[name] > 1 and labels.get(label):
                names[index] = f"{name}@{clean(labels[label], 60)}"
    counts = Counter(names)
    every = [labels for _, labels in items]
    for index, (name, (_, labels)) in enumerate(zip(names, items, strict=True)):
        if counts[name] > 1:
            names[index] = f"{name}@{clean(distinction(labels, every), 60)}".removesuffix("@")
    counts = Counter[str]()
    for index, name in enumerate(names):
        counts[name] += 1
        if counts[name] > 1:
            names[index] = f"{name}-{counts[name]}"
    return names
