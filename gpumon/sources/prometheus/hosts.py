"""Which machine a series is of, and which of its GPUs an engine runs on, as far as labels say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.text import clean

INSTANCE: Final = "instance"
CLUSTER: Final = "cluster"
PODS: Final = (("namespace", "pod", "container"), ("pod_namespace", "pod_name", "container_name"))
"""How engines' targets and dcgm-exporters of today and of old (before 2.0) call a pod."""
NAMELESS: Final = "(no host label)"

FROM_POD: Final = "pod (as the dcgm-exporter says)"
FROM_COUNT: Final = "the only engine of its host, and it says that it takes all GPUs"
NO_POD: Final = (
    "no label says on which GPUs it runs: let the dcgm-exporter name pods (DCGM_EXPORTER_KUBERNETES), or give this "
    "engine's address as [[endpoint]] with gpus = [..]"
)
NO_GPU: Final = "no GPU of its host is in this Prometheus: scrape its dcgm-exporter, or give gpu_type and gpu_count"
SHARED_POD: Final = "several engines run in its pod, and no label says which GPUs are whose"


class Pod(NamedTuple):
    """A pod's name; two clusters may have the same. Texts are from outside."""

    cluster: str
    namespace: str
    name: str


class User(NamedTuple):
    """Who uses a GPU."""

    pod: Pod
    container: str


def host_of(target: Mapping[str, str], own: Mapping[str, str], ladder: Sequence[str]) -> str:
    """Name of the machine: by the first label of the ladder that the target or else its page has.

    Of an address the port is left out: a pod's address stays, as there is no better name.
    """
    for label in ladder:
        value = target.get(label) or own.get(label, "")
        if label == INSTANCE:
            value = without_port(value)
        if value.strip():
            return value
    return ""


def without_port(instance: str) -> str:
    """An address without scheme, port and path."""
    bare = instance.partition("://")[2] or instance
    bare = bare.partition("/")[0]
    if bare.startswith("["):
        return bare[1:].partition("]")[0]
    host, colon, port = bare.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else bare


def port_of(instance: str) -> str:
    """Port of an address; empty where it names none."""
    bare = (instance.partition("://")[2] or instance).partition("/")[0]
    host, colon, port = bare.rpartition(":")
    single = ":" not in host or host.endswith("]")
    return port if colon and port.isdecimal() and len(port) <= 5 and single else ""


def named_port(kind: str, port: str) -> str:
    """An engine's name such as `vllm:8000`."""
    return f"{kind}:{port}" if port else kind


def user_of(labels: Mapping[str, str], cluster: str) -> User | None:
    """The pod that these labels name; None where they name none."""
    for namespace, pod, container in PODS:
        if labels.get(pod):
            return User(Pod(cluster, labels.get(namespace, ""), labels[pod]), labels.get(container, ""))
    return None


def same_pod(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the labels of two targets may be of one pod: what one of them does not say is no contradiction."""
    users = user_of(one, ""), user_of(other, "")
    pairs = zip(*(user.pod for user in users if user is not None), strict=True) if None not in users else ()
    return all(a == b or not a or not b for a, b in pairs)


class Seats:
    """Which GPUs each pod uses, by the labels of a dcgm-exporter."""

    def __init__(self) -> None:
        self._hosts: dict[Pod, dict[str, None]] = {}
        self._gpus: dict[User, dict[str, None]] = {}
        self._containers: dict[Pod, set[str]] = {}

    def take(self, user: User, host: str, uuid: str) -> None:
        """A GPU that a pod uses."""
        self._hosts.setdefault(user.pod, {})[host] = None
        self._gpus.setdefault(user, {})[uuid] = None
        self._containers.setdefault(user.pod, set()).add(user.container)

    def host(self, user: User) -> str:
        """Host of a pod's GPUs; empty where it has none, or GPUs of several."""
        hosts = self._hosts.get(user.pod, {})
        return next(iter(hosts)) if len(hosts) == 1 else ""

    def gpus(self, user: User, engines: int) -> tuple[tuple[str, ...], str]:
        """GPUs of an engine in this pod, one of `engines` there; or none, and why."""
        containers = self._containers.get(user.pod, set())
        if not containers:
            return (), NO_POD
        if user.container in containers and (user.container or engines == 1):
            return tuple(self._gpus[user]), FROM_POD
        if engines > 1:
            return (), SHARED_POD
        return tuple(
            dict.fromkeys(uuid for each in sorted(containers) for uuid in self._gpus[User(user.pod, each)])
        ), FROM_POD


def by_count(engine: EngineReading, engines: int, gpus: Sequence[GpuReading]) -> tuple[tuple[str, ...], str]:
    """GPUs of an engine that no label gives any: those of its host, where it is alone and takes as many."""
    whole = tuple(gpu.uuid for gpu in gpus if not gpu.parent_uuid)
    if not whole:
        return (), NO_GPU
    size = engine.tp * (engine.pp or 1) * (engine.dp or 1)
    if engines == 1 and size == len(whole):
        return whole, FROM_COUNT
    return (), NO_POD


def shown(name: str, cluster: str, clusters: int) -> str:
    """A host's name in the fleet; with its cluster where there are several."""
    name = clean(name, 120) or NAMELESS
    return f"{clean(cluster, 60)}/{name}" if cluster and clusters > 1 else name


def named_apart(engines: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Names of a host's engines, made to differ: by pod, else by address, else by number."""
    items = list(engines)
    names = [name for name, _ in items]
    for label in ("pod", INSTANCE, "job"):
        twice = {name for name in names if names.count(name) > 1}
        names = [
            f"{name}@{clean(labels[label], 60)}" if name in twice and labels.get(label) else name
            for name, (_, labels) in zip(names, items, strict=True)
        ]
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[at] = f"{name}-{seen[name]}"
    return names
