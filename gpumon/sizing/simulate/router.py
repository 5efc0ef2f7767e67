"""Routers: each chooses the replica to which a request goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.sizing.simulate.requests import PlayedRequest
from gpumon.sizing.simulate.scheduler import Replica

Router = Callable[[Sequence[Replica], PlayedRequest], int]
"""Chooses the index of the replica that a request goes to."""

UNEVEN_BY: Final = 64
"""Requests in flight that the busiest replica may have more than the idlest before a prefix-aware router goes by load:
default of SGLang's router (balance-abs-threshold)."""
UNEVEN_TIMES: Final = 1.5
"""Times the requests of the idlest that the busiest may have; both have to be exceeded (balance-rel-threshold)."""


def round_robin() -> Router:
    """A router that takes the replicas in turn."""
    turn = -1

    def choose(replicas: Sequence[Replica], request: PlayedRequest) -> int:  # noqa: ARG001 - the signature of Router
        nonlocal turn
        turn = (turn + 1) % len(replicas)
        return turn

    return choose


def least_loaded() -> Router:
    """A router that takes the replica with the fewest requests in flight; of several the first."""
    return lambda replicas, request: _idlest(replicas)  # noqa: ARG005 - the signature of Router


def prefix_aware() -> Router:
    """A router that takes a replica with the beginning of the request in its prefix cache, or the one that was sent a
    request of the same group last; the least loaded one where their loads are very uneven."""
    homes: dict[int, int] = {}  # group -> replica that was sent its last request

    def choose(replicas: Sequence[Replica], request: PlayedRequest) -> int:
        idlest = _idlest(replicas)
        if request.group < 0:
            return idlest
        loads = [replica.in_flight for replica in replicas]
        busiest = max(loads)
        if busiest - loads[idlest] > UNEVEN_BY and busiest > UNEVEN_TIMES * loads[idlest]:
            return idlest
        holders = []
        for index, replica in enumerate(replicas):
            if replica.has_prefix(request.group):
                holders.append(index)
        if not holders:
            return homes.setdefault(request.group, idlest)
        home = min(holders, key=loads.__getitem__)
        homes[request.group] = home
        return home

    return choose


def _idlest(replicas: Sequence[Replica]) -> int:
    """Index of the replica with the fewest requests in flight."""
    return min(range(len(replicas)), key=lambda index: replicas[index].in_flight)


ROUTERS: Final[dict[str, Callable[[], Router]]] = {
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "prefix-aware": prefix_aware,
}
"""Router factories by the name typed for --router."""
