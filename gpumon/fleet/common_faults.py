"""One fault on many hosts as one item: `Xid 79 on 5 hosts of rack=B`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.order import natural_order
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.verdict import Level, Limit, Verdict
from gpumon.triage.marks import URGENCY
from gpumon.triage.render import LIMIT_NAMES
from gpumon.triage.roots import Root, roots_of

LEAST_HOSTS: Final = 3
"""Hosts from which on the same fault is one item."""
_URGENT: Final = frozenset({Level.CRITICAL, Level.WARN})

_Identity = tuple[Limit, str, float]


class CommonFault(NamedTuple):
    """The same fault on several hosts."""

    name: str
    """The fault: `Xid 79`, `KV cache full`."""
    level: Level
    hosts: tuple[str, ...]
    """By name."""
    label: tuple[str, str] | None
    """A label and its value that all these hosts have and some other host has not; None: there is none."""
    roots: tuple[tuple[HostShown, Root], ...]
    """Its causes, each with its host."""

    @property
    def where(self) -> str:
        """`5 hosts of rack=B`."""
        of_label = f" of {self.label[0]}={self.label[1]}" if self.label is not None else ""
        return f"{len(self.hosts)} hosts{of_label}"

    @property
    def words(self) -> str:
        """`Xid 79 on 5 hosts of rack=B`."""
        return f"{self.name} on {self.where}"


def common_faults(fleet: FleetSnapshot) -> list[CommonFault]:
    """Faults that three hosts or more have, the most urgent first, then those of the most hosts. What is acknowledged
    is not counted."""
    hosts = [host for host in fleet.hosts if host.state is not HostState.GONE]
    alike: dict[_Identity, list[tuple[HostShown, Root]]] = defaultdict(list)
    for host in hosts:
        for root in roots_of(host.snapshot.verdicts):
            if root.level in _URGENT and root.acknowledged is None and root.first.code is not Limit.UNKNOWN:
                alike[_identity(root.first)].append((host, root))
    faults = []
    for identity, roots in alike.items():
        names = {host.name for host, _ in roots}
        if len(names) >= LEAST_HOSTS:
            faults.append(
                CommonFault(
                    name=_name(identity),
                    level=min((root.level for _, root in roots), key=URGENCY.__getitem__),
                    hosts=tuple(sorted(names, key=natural_order)),
                    label=_shared_label(names, hosts),
                    roots=tuple(roots),
                )
            )
    return sorted(faults, key=lambda fault: (URGENCY[fault.level], -len(fault.hosts), fault.name))


def _identity(verdict: Verdict) -> _Identity:
    """Limit and cause, and of an Xid its number (0: none): faults that agree in them are the same."""
    xid = verdict.parameters.get("xid")
    return verdict.code, verdict.cause, xid if isinstance(xid, float) else 0.0


def _name(identity: _Identity) -> str:
    """Name of a fault."""
    code, _, xid = identity
    return f"Xid {xid:.0f}" if xid else LIMIT_NAMES[code]


def _shared_label(names: set[str], hosts: Sequence[HostShown]) -> tuple[str, str] | None:
    """The label that all these hosts share and that the fewest others have, too; None where it tells them from none."""
    shared: set[tuple[str, str]] | None = None
    counts: Counter[tuple[str, str]] = Counter()
    for host in hosts:
        pairs = set(host.labels.items())
        counts.update(pairs)
        if host.name in names:
            shared = pairs if shared is None else shared & pairs
    telling = [pair for pair in shared or () if counts[pair] < len(hosts)]
    return min(telling, key=lambda pair: (counts[pair], pair), default=None)


def hosts_text(names: Iterable[str], most: int = 4) -> str:
    """The first few hosts, and how many more there are: `gpu01 gpu02 +3`."""
    listed = list(names)
    more = f" +{len(listed) - most}" if len(listed) > most else ""
    return " ".join(listed[:most]) + more
