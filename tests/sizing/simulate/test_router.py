"""To which replica requests go, and what that costs or saves."""

from __future__ import annotations

from statistics import mean

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest, RequestShape, RequestSource, constant, lognormal, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits, Log, Replica
from tests.each_row import each_row

COST = StepTime(0.008, 1e-4, 5e-5, 1e-9)


def hit_ratio(log: Log) -> float:
    return log.hit_tokens / log.prompt_tokens


def ttft_s(log: Log) -> float:
    return mean(one.first_s - one.request.arrival_s for one in log.served)


def test_each_in_its_turn() -> None:
    router = ROUTERS["round-robin"]()
    replicas = [Replica(COST, EngineLimits(8, 2048, 100), Log()) for _ in range(3)]
    assert [router(replicas, PlayedRequest(0.0, 1, 1)) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_the_one_with_the_least_to_do() -> None:
    router = ROUTERS["least-loaded"]()
    replicas = [Replica(COST, EngineLimits(8, 2048, 100), Log()) for _ in range(3)]
    for at in (0, 0, 1):
        replicas[at].add(PlayedRequest(0.0, 10, 10), 0.0)
    assert router(replicas, PlayedRequest(0.0, 1, 1)) == 2


def test_prefix_aware_routing_finds_what_others_compute_again() -> None:
    """200 beginnings do not fit one replica's cache; each replica can hold its share."""
    requests = steady(
        30.0, 120.0, RequestShape(lognormal(1500, 0.3), lognormal(200, 0.5), groups=200, shared_tokens=1024), 1
    )
    limits = EngineLimits(256, 8192, 8000)
    logs = {name: play(RequestSource(requests), COST, limits, 6, make()) for name, make in ROUTERS.items()}
    assert hit_ratio(logs["prefix-aware"]) > 1.3 * hit_ratio(logs["round-robin"])
    assert ttft_s(logs["prefix-aware"]) < ttft_s(logs["round-robin"])


def test_by_load_where_it_is_uneven() -> None:
    """All requests begin alike: one replica would get all of them."""
    requests = steady(60.0, 30.0, RequestShape(constant(2000), constant(400), groups=1, shared_tokens=1024), 1)
    log = play(RequestSource(requests), COST, EngineLimits(256, 8192, 40_000), 4, ROUTERS["prefix-aware"]())
    alone = play(RequestSource(requests), COST, EngineLimits(256, 8192, 40_000), 1, ROUTERS["prefix-aware"]())
    assert ttft_s(log) < ttft_s(alone)


@each_row("name", ROUTERS)
def test_every_request_is_served_once(name: str) -> None:
    requests = steady(20.0, 60.0, RequestShape(lognormal(300, 1.0), lognormal(100, 1.0), groups=5, shared_tokens=64), 1)
    log = play(RequestSource(requests), COST, EngineLimits(64, 2048, 3000), 3, ROUTERS[name]())
    assert sorted(one.request for one in log.served) == sorted(requests)


def test_a_conversation_goes_back_to_the_replica_that_has_it() -> None:
    """All begin with one system prompt, which is no reason to send them all to one replica."""
    router = ROUTERS["prefix-aware"]()
    replicas = [Replica(COST, EngineLimits(8, 2048, 1000), Log()) for _ in range(2)]

    def send(*names: int) -> int:
        request = PlayedRequest(0.0, 64 * len(names), 10, prefix=names, shared=64 * len(names), piece=64)
        index = router(replicas, request)
        replicas[index].add(request, 0.0)
        return index

    assert [send(0, 1, 2), send(0, 3, 4)] == [0, 1]
    assert [send(0, 1, 2, 5), send(0, 3, 4, 6), send(0, 1, 2, 5, 7)] == [0, 1, 0]
