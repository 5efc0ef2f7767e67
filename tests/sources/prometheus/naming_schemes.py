"""Ways in which people name and relabel the engines and the GPU exporters of one machine, as data.

Each scheme has three machines, every one with an engine and an exporter of two GPUs. A scheme is right as it is, or
with the line of `[prometheus]` that gpumon proposes, or it has no such line and the notice says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

Labels = Mapping[str, str]
"""Labels of a target."""


class Outcome(Enum):
    """What a fleet of this scheme comes to."""

    RIGHT = "right as it is"
    LINE = "right with the line that is proposed"
    SPLIT = "right as it is, and the line that is proposed tells the places apart by name"
    NOTICE = "no label names both, which is said"


class Scheme(NamedTuple):
    """One way to name things. The functions get the number of a machine, from 1 on."""

    engine: Callable[[int], Labels]
    """Labels of an engine's target."""
    exporter: Callable[[int], Labels]
    """Labels of an exporter's target."""
    page: Callable[[int], str] = lambda _: ""
    """Labels that an exporter writes on every series: `Hostname="gpu-01"`."""
    outcome: Outcome = Outcome.RIGHT
    label: str = ""
    """Label that the proposed line begins with."""


def ip(n: int, port: int, net: int = 0) -> str:
    """An address of a machine: `10.0.0.1:8000`; of another network of its pods or its management."""
    return f"10.{net}.0.{n}:{port}"


def name(n: int) -> str:
    """Name of a machine."""
    return f"gpu-0{n}"


def at(instance: Callable[[int], str], **labels: Callable[[int], str] | str) -> Callable[[int], Labels]:
    """Labels of a target at this address; a label may be the same for all machines."""

    def of(n: int) -> Labels:
        more = {label: value if isinstance(value, str) else value(n) for label, value in labels.items()}
        return {"instance": instance(n), **more}

    return of


def hostname(n: int) -> str:
    """The label that a dcgm-exporter writes of its own."""
    return f'Hostname="{name(n)}"'


def container_id(n: int) -> str:
    """The same from inside a container that was given no name."""
    return f'Hostname="{n:012x}"'


def pod_of(n: int) -> str:
    """Labels of the pod that uses a GPU, as dcgm-exporter writes them."""
    return f'namespace="chat",pod="llm-{n}",container="main"'


POD = {"namespace": "chat", "pod": lambda n: f"llm-{n}", "container": "main"}
"""Labels of an engine's target in Kubernetes."""


def engine_ip(n: int) -> str:
    return ip(n, 8000)


def exporter_ip(n: int) -> str:
    return ip(n, 9400)


def pod_ip(n: int) -> str:
    return ip(n, 8000, 1)


def exporter_pod_ip(n: int) -> str:
    return ip(n, 9400, 2)


def named(port: int, form: str = "{}:{}") -> Callable[[int], str]:
    """An address by name."""
    return lambda n: form.format(name(n), port)


SCHEMES: Final[Mapping[str, Scheme]] = {
    # instance alone
    "both by address": Scheme(at(engine_ip), at(exporter_ip)),
    "both by name": Scheme(at(named(8000)), at(named(9400))),
    "both by name without a port": Scheme(at(named(8000, "{}")), at(named(9400, "{}"))),
    "both by URL": Scheme(at(named(8000, "http://{}:{}/metrics")), at(named(9400, "http://{}:{}/metrics"))),
    "name against URL": Scheme(at(named(8000)), at(named(9400, "http://{}:{}/metrics"))),
    "name against full name": Scheme(at(named(8000)), at(named(9400, "{}.example.com:{}"))),
    "full name against name": Scheme(at(named(8000, "{}.example.com:{}")), at(named(9400))),
    "both by full name": Scheme(at(named(8000, "{}.example.com:{}")), at(named(9400, "{}.example.com:{}"))),
    "upper case against lower": Scheme(at(lambda n: f"{name(n).upper()}:8000"), at(named(9400))),
    "IPv6": Scheme(at(lambda n: f"[fd00::{n}]:8000"), at(lambda n: f"[fd00::{n}]:9400")),
    # the page's own Hostname
    "Hostname on the page, engines by name": Scheme(at(named(8000)), at(exporter_ip), hostname),
    "Hostname on the page, both by one address": Scheme(at(engine_ip), at(exporter_ip), hostname),
    "Hostname is a container's id": Scheme(at(named(8000)), at(named(9400)), container_id),
    "Hostname is a container's id, node label": Scheme(
        at(pod_ip, node=name), at(exporter_pod_ip, node=name), container_id
    ),
    # labels that are known
    **{
        f"label {label} on both": Scheme(at(pod_ip, **{label: name}), at(exporter_pod_ip, **{label: name}))
        for label in ("node", "nodename", "kubernetes_node", "host", "hostname", "Hostname")
    },
    "node against Hostname": Scheme(at(pod_ip, node=name), at(exporter_pod_ip), hostname),
    "kubernetes_node against Hostname": Scheme(at(pod_ip, kubernetes_node=name), at(exporter_pod_ip), hostname),
    "node against host": Scheme(at(pod_ip, node=name), at(exporter_pod_ip, host=name)),
    "node against instance by name": Scheme(at(pod_ip, node=name), at(named(9400))),
    "instance by name against node": Scheme(at(named(8000)), at(exporter_pod_ip, node=name)),
    "node with a domain": Scheme(at(pod_ip, node=name), at(exporter_pod_ip, node=lambda n: f"{name(n)}.example.com")),
    "node in upper case": Scheme(at(pod_ip, node=lambda n: name(n).upper()), at(exporter_pod_ip, node=name)),
    # pods
    "pod on the exporter's page": Scheme(at(pod_ip, **POD), at(exporter_pod_ip, node=name), pod_of),
    "pod on the page, Hostname": Scheme(at(pod_ip, **POD), at(exporter_pod_ip), lambda n: f"{pod_of(n)},{hostname(n)}"),
    "pod_name labels": Scheme(
        at(pod_ip, pod_namespace="chat", pod_name=lambda n: f"llm-{n}"), at(exporter_pod_ip, node=name), pod_of
    ),
    "kubernetes_pod_name labels": Scheme(
        at(pod_ip, kubernetes_namespace="chat", kubernetes_pod_name=lambda n: f"llm-{n}"),
        at(exporter_pod_ip, node=name),
        pod_of,
    ),
    "pod and node": Scheme(at(pod_ip, node=name, **POD), at(exporter_pod_ip, node=name), pod_of),
    # external labels that all have
    "region on all": Scheme(at(engine_ip, region="eu"), at(exporter_ip, region="eu")),
    "prometheus on all": Scheme(at(engine_ip, prometheus="a/b"), at(exporter_ip, prometheus="a/b")),
    "cluster on all": Scheme(at(pod_ip, cluster="a", node=name), at(exporter_pod_ip, cluster="a", node=name)),
    "cluster on engines alone": Scheme(at(pod_ip, cluster="a", node=name), at(exporter_pod_ip, node=name)),
    "cluster of each rack": Scheme(
        at(pod_ip, cluster=lambda n: f"rack{n}", node=name),
        at(exporter_pod_ip, cluster=lambda n: f"rack{n}", node=name),
    ),
    "one node name in each cluster": Scheme(
        at(pod_ip, cluster=lambda n: f"c{n}", node="gpu-01"),
        at(exporter_pod_ip, cluster=lambda n: f"c{n}", node="gpu-01"),
    ),
    "rack and zone on all": Scheme(
        at(pod_ip, node=name, rack="r1", zone="z1"), at(exporter_pod_ip, node=name, rack="r1", zone="z1")
    ),
    # with a line
    "k8s_node_name against Hostname": Scheme(
        at(pod_ip, k8s_node_name=name), at(exporter_pod_ip), hostname, Outcome.LINE, "k8s_node_name"
    ),
    "k8s_node_name on both": Scheme(
        at(pod_ip, k8s_node_name=name),
        at(exporter_pod_ip, k8s_node_name=name),
        outcome=Outcome.LINE,
        label="k8s_node_name",
    ),
    "NodeName on both": Scheme(
        at(pod_ip, NodeName=name), at(exporter_pod_ip, NodeName=name), outcome=Outcome.LINE, label="NodeName"
    ),
    "machine against server": Scheme(
        at(pod_ip, machine=name), at(exporter_pod_ip, server=name), outcome=Outcome.LINE, label="machine"
    ),
    "address against name with host_ip": Scheme(
        at(lambda n: f"10.1.0.{n}:8000"),
        at(named(9400), host_ip=lambda n: f"10.1.0.{n}"),
        hostname,
        Outcome.LINE,
        "host_ip",
    ),
    "nodename is the model, fqdn is the machine": Scheme(
        at(pod_ip, nodename="llama", fqdn=name), at(exporter_pod_ip, fqdn=name), outcome=Outcome.LINE, label="fqdn"
    ),
    "OpenTelemetry's host_name": Scheme(
        at(pod_ip, host_name=name), at(exporter_pod_ip, host_name=name), outcome=Outcome.LINE, label="host_name"
    ),
    "Consul's node label": Scheme(
        at(pod_ip, consul_node=name), at(exporter_pod_ip, consul_node=name), outcome=Outcome.LINE, label="consul_node"
    ),
    # equal addresses in several places
    "one address in each region": Scheme(
        at(lambda _: ip(5, 8000), region=lambda n: f"eu-{n}"),
        at(lambda _: ip(5, 9400), region=lambda n: f"eu-{n}"),
        outcome=Outcome.SPLIT,
        label="region",
    ),
    "one node name at each Prometheus": Scheme(
        at(pod_ip, node="gpu-01", prometheus=lambda n: f"mon/{n}"),
        at(exporter_pod_ip, node="gpu-01", prometheus=lambda n: f"mon/{n}"),
        outcome=Outcome.SPLIT,
        label="prometheus",
    ),
    # no label does it
    "addresses of two networks": Scheme(at(pod_ip), at(exporter_pod_ip), outcome=Outcome.NOTICE),
    "address against Hostname": Scheme(at(pod_ip), at(exporter_pod_ip), hostname, Outcome.NOTICE),
    "two networks and one label for all": Scheme(
        at(pod_ip, env="prod"), at(exporter_pod_ip, env="prod"), outcome=Outcome.NOTICE
    ),
    "service against address": Scheme(
        at(lambda n: f"llm-{n}.chat.svc:8000"), at(exporter_pod_ip), hostname, Outcome.NOTICE
    ),
}
