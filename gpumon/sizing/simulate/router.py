"""To which replica a request goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.sizing.simulate.requests import PlayedRequest
from gpumon.sizing.simulate.scheduler import Replica

Router = Callable[[Sequence[Replica], PlayedRequest], int]
"""Chooses the number of a replica."""

UNEVEN_BY: Final = 64
UNEVEN_TIMES: Final = 1.5
"""Requests in flight that the busiest replica has more than the idlest, and times as many, from which a prefix-aware
router goes by load: defaults of SGLang's router (balance-abs-threshold, balance-rel-threshold)."""


def round_robin() -> Router:
    """Each in its turn."""
    turn = -1

    def choose(replicas: Sequence[Replica], request: PlayedRequest) -> int:  # noqa: ARG001 - the signature of Router
        nonlocal turn
        turn = (turn + 1) % len(replicas)
        return turn

    return choose


def least_loaded() -> Router:
    """The one with the fewest requests in flight; of several the first."""
    return lambda replicas, request: _idlest(replicas)  # noqa: ARG005 - the signature of Router


def prefix_aware() -> Router:
    """One that has the beginning of the request in its prefix cache, or was sent such a request last, unless it has
    much more to do than others."""
    homes: dict[int, int] = {}

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
    return min(range(len(replicas)), key=lambda index: replicas[index].in_flight)


ROUTERS: Final[dict[str, Callable[[], Router]]] = {
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "prefix-aware": prefix_aware,
}
"""Router factories by the name typed for --router."""
