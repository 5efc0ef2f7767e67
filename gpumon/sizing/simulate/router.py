"""Routers: each chooses the replica to which a request goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

LEAST_MATCH: Final = 0.5
"""Share of a request's beginning that a replica must have for a prefix-aware router to prefer it: a system prompt that
all requests have is no reason. SGLang's router (cache-threshold) takes this share of the whole prompt."""


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
    """A router that takes a replica with most of the beginning of the request in its prefix cache, or the one that was
    sent such a request last; the least loaded one where neither has half of it, or where their loads are very uneven.
    """
    homes: dict[int, int] = {}  # piece of a beginning -> replica that was sent the last request with it

    def choose(replicas: Sequence[Replica], request: PlayedRequest) -> int:
        idlest = _idlest(replicas)
        if not request.prefix:
            return idlest
        loads = [replica.in_flight for replica in replicas]
        busiest = max(loads)
        if busiest - loads[idlest] > UNEVEN_BY and busiest > UNEVEN_TIMES * loads[idlest]:
            return idlest
        least_pieces = LEAST_MATCH * len(request.prefix)
        pieces = [replica.cached_pieces(request) for replica in replicas]
        most_pieces = max(pieces)
        if most_pieces >= least_pieces:
            holders = [index for index, count in enumerate(pieces) if count == most_pieces]
            home = min(holders, key=loads.__getitem__)
        else:
            home = _last_home(request.prefix, homes, least_pieces, idlest)
        for piece in request.prefix:
            homes[piece] = home
        return home

    return choose


def _last_home(prefix: Sequence[int], homes: Mapping[int, int], least_pieces: float, idlest: int) -> int:
    """The replica that was sent the last request with at least so many pieces of a beginning; without one `idlest`."""
    for number in range(len(prefix), 0, -1):
        if number < least_pieces:
            break
        home = homes.get(prefix[number - 1])
        if home is not None:
            return home
    return idlest


def _idlest(replicas: Sequence[Replica]) -> int:
    """Index of the replica with the fewest requests in flight."""
    return min(range(len(replicas)), key=lambda index: replicas[index].in_flight)


ROUTERS: Final[dict[str, Callable[[], Router]]] = {
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "prefix-aware": prefix_aware,
}
"""Router factories by the name typed for --router."""
