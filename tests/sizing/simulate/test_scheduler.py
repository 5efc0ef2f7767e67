"""The scheduler against the same rules taken step by step, and its own rules one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest, RequestShape, RequestSource, constant, lognormal, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import BLOCK, EngineLimits, Log
from tests.each_row import each_row
from tests.sizing.simulate import step_by_step

COST = StepTime(0.01, 0.0002, 1e-4, 1e-7, 1e-9)
ROOM = EngineLimits(64, 2048, 10_000)


def played(
    requests: Sequence[PlayedRequest], limits: EngineLimits = ROOM, cost: StepTime = COST, replicas: int = 1
) -> Log:
    return play(RequestSource(requests), cost, limits, replicas, ROUTERS["round-robin"]())


@each_row(
    "limits",
    [
        ROOM,
        EngineLimits(4, 2048, 10_000),
        EngineLimits(64, 100, 10_000),
        EngineLimits(64, 512, 120),
        EngineLimits(8, 64, 70),
    ],
    named=["room", "four places", "small steps", "few blocks", "all of it"],
)
@each_row("seed", [1, 2, 3])
def test_stretches_that_are_taken_together_change_nothing(limits: EngineLimits, seed: int) -> None:
    requests = steady(6.0, 40.0, RequestShape(lognormal(200, 0.8), lognormal(60, 1.0), longest=1000), seed)
    log = played(requests, limits)
    wanted, preemptions = step_by_step.served(requests, COST, limits)
    got = {one.request.arrival_s: (one.first_s, one.end_s) for one in log.served}
    assert got.keys() == wanted.keys()
    for arrival_s, times in wanted.items():
        assert got[arrival_s] == pytest.approx(times, rel=1e-9)
    assert log.preemptions == preemptions
    assert (preemptions > 0) == (limits.kv_blocks < 200)


def test_one_request_takes_its_chunks_and_its_tokens() -> None:
    log = played([PlayedRequest(5.0, 1000, 11)], EngineLimits(8, 400, 1000), StepTime(0.01, 0.001, 1e-4))
    served = log.served[0]
    assert served.first_s == pytest.approx(5.0 + 3 * 0.01 + 0.1)
    assert served.end_s == pytest.approx(served.first_s + 10 * 0.011)
    assert log.gaps == pytest.approx({0.011: 10})


def test_a_prompt_holds_up_those_that_decode() -> None:
    requests = [PlayedRequest(0.0, 10, 50), PlayedRequest(0.1, 4000, 1)]
    log = played(requests, EngineLimits(8, 8192, 1000), StepTime(0.01, 0.0, 1e-4))
    assert max(log.gaps) == pytest.approx(0.41, rel=0.01)


def test_no_more_run_than_there_are_places() -> None:
    requests = [PlayedRequest(0.0, 16, 100) for _ in range(6)]
    log = played(requests, EngineLimits(2, 2048, 1000))
    admitted = sorted(one.admitted_s for one in log.served)
    ends = sorted(one.end_s for one in log.served)
    assert admitted[:2] == [0.0, 0.0]
    assert admitted[2] == ends[0]


def test_a_request_longer_than_the_cache_is_refused() -> None:
    log = played([PlayedRequest(0.0, 100, 100), PlayedRequest(0.0, 10, 10)], EngineLimits(8, 512, 200 // BLOCK))
    assert log.refused == 1
    assert [one.request.prompt for one in log.served] == [10]


def test_what_was_preempted_is_computed_anew_and_served() -> None:
    requests = [PlayedRequest(0.0, 160, 200) for _ in range(4)]
    log = played(requests, EngineLimits(8, 2048, 60))
    assert log.preemptions > 0
    assert [one.request.answer for one in log.served] == [200] * 4
    assert max(log.gaps) > 0.1  # who was sent back waits for its next token


def test_the_same_seed_gives_the_same_log() -> None:
    requests = steady(5.0, 60.0, RequestShape(lognormal(300, 1.0), lognormal(50, 1.0)), 7)
    again = steady(5.0, 60.0, RequestShape(lognormal(300, 1.0), lognormal(50, 1.0)), 7)
    assert requests == again
    assert played(requests).served == played(again).served


def test_a_known_beginning_is_not_computed_again() -> None:
    shape = RequestShape(constant(1000), constant(10), groups=1, shared_tokens=800)
    requests = steady(0.5, 60.0, shape, 1)
    log = played(requests)
    assert log.hit_tokens == 800 * (len(requests) - 1)
    ordered = sorted(log.served, key=lambda one: one.request.arrival_s)
    firsts = [one.first_s - one.request.arrival_s for one in ordered]
    assert firsts[0] > 0.1
    assert max(firsts[1:]) < 0.1


def test_a_beginning_that_nobody_uses_makes_room() -> None:
    """Two groups whose beginnings do not fit the cache together."""
    requests = [PlayedRequest(float(at), 800, 10, 0, at % 2, 800) for at in range(10)]
    roomy = played(requests, EngineLimits(8, 2048, 200))
    tight = played(requests, EngineLimits(8, 2048, 60))
    assert roomy.hit_tokens == 8 * 799  # the last token of a prompt is always computed
    assert tight.hit_tokens == 0
    assert len(tight.served) == 10


def test_of_experts_a_step_reads_those_that_its_tokens_need() -> None:
    few = StepTime(0.02, 0.0, 0.0, resident_ratio=0.1, experts=128, experts_per_token=8)
    bases = few.base_by_tokens()
    assert bases[1] == pytest.approx(0.02 * (0.1 + 0.9 * 8 / 128))
    assert bases[-1] == pytest.approx(0.02)
    alone = played([PlayedRequest(0.0, 1, 100)], cost=few)
    assert alone.served[0].end_s == pytest.approx(100 * bases[1])


def test_a_prompt_shorter_than_the_beginning_of_its_group_gives_no_blocks_back() -> None:
    """Beside a beginning of 50 blocks 51 are free: of eight requests with 19 blocks of their own two fit to the end."""
    long = PlayedRequest(0.0, 801, 1, 0, 0, 800)
    short = [PlayedRequest(5.0 + at / 1000, 97, 303, 0, 0, 97) for at in range(8)]
    log = played([long, *short], EngineLimits(8, 2048, 101))
    assert len(log.served) == 9
    assert log.preemptions > 0


def test_a_longer_prompt_makes_the_known_beginning_longer() -> None:
    requests = [
        PlayedRequest(0.0, 160, 5, 0, 0, 160),
        *(PlayedRequest(5.0 * at, 1000, 5, 0, 0, 800) for at in (1, 2, 3)),
    ]
    log = played(requests)
    assert log.hit_tokens == 160 + 800 + 800
