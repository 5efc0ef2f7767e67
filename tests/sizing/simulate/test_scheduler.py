"""The scheduler against the same rules taken step by step, and its own rules one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.sizing.simulate.batch import BLOCK
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest, RequestShape, RequestSource, constant, lognormal, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits, Log
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
    requests = [PlayedRequest(float(at), 800, 10, prefix=(at % 2,), shared=800) for at in range(10)]
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
    long = PlayedRequest(0.0, 801, 1, prefix=(0,), shared=800)
    short = [PlayedRequest(5.0 + at / 1000, 97, 303, prefix=(0,), shared=97) for at in range(8)]
    log = played([long, *short], EngineLimits(8, 2048, 101))
    assert len(log.served) == 9
    assert log.preemptions > 0


def test_a_longer_prompt_makes_the_known_beginning_longer() -> None:
    requests = [
        PlayedRequest(0.0, 160, 5, prefix=(0,), shared=160),
        *(PlayedRequest(5.0 * at, 1000, 5, prefix=(0,), shared=800) for at in (1, 2, 3)),
    ]
    log = played(requests)
    assert log.hit_tokens == 160 + 800 + 800


def pieces(arrival_s: float, *names: int) -> PlayedRequest:
    """A prompt of 64 tokens for each piece of its beginning, and 16 of its own."""
    return PlayedRequest(arrival_s, 64 * len(names) + 16, 2, prefix=names, shared=64 * len(names), piece=64)


def test_a_conversation_goes_on_from_the_pieces_that_it_shares() -> None:
    """The second turn has two of its three pieces, the third all four of the second's and none of the stranger's."""
    log = played([pieces(0.0, 1, 2), pieces(5.0, 1, 2, 3), pieces(10.0, 1, 7, 8), pieces(15.0, 1, 2, 3, 4)])
    assert log.hit_tokens == 64 * (0 + 2 + 1 + 3)


def test_of_the_pieces_that_nobody_uses_the_end_of_the_oldest_goes_first() -> None:
    """Pieces take 4 blocks: 24 hold both beginnings of 2 pieces (16) and one request's own 2 blocks, not three."""
    requests = [pieces(0.0, 1, 2), pieces(5.0, 3, 4), pieces(10.0, 5, 6), pieces(15.0, 1, 2)]
    roomy = played(requests, EngineLimits(8, 2048, 100))
    tight = played(requests, EngineLimits(8, 2048, 25))
    assert roomy.hit_tokens == 2 * 64
    assert tight.hit_tokens == 64  # the third request took the room of piece 2, which is left before piece 1
    assert len(tight.served) == 4


def test_two_that_compute_the_same_beginning_at_once_keep_their_own_blocks() -> None:
    log = played([pieces(0.0, 1, 2), pieces(0.0, 1, 2), pieces(9.0, 1, 2)], EngineLimits(8, 2048, 40))
    assert log.hit_tokens == 2 * 64
    assert (len(log.served), log.preemptions) == (3, 0)


@each_row(
    ("limits", "others"),
    [
        (EngineLimits(1, 512, 10), PlayedRequest(0.0, 32, 1, prefix=(1,), shared=32, piece=32)),
        (EngineLimits(3, 1, 10), PlayedRequest(0.0, 16, 1, prefix=(1,), shared=16, piece=16)),
    ],
    named=["before it is admitted", "while it decodes"],
)
def test_a_request_as_large_as_the_cache_is_served_beside_a_longer_piece_of_which_it_has_a_part(
    limits: EngineLimits, others: PlayedRequest
) -> None:
    large = PlayedRequest(100.0, 15, 145, prefix=(1,), shared=15, piece=others.piece)
    if limits.max_num_batched_tokens > BLOCK:
        large = PlayedRequest(100.0, 158, 2, prefix=(2, 3, 4, 5, 1), shared=144, piece=32)
        more = [PlayedRequest(float(name), 32, 1, prefix=(name,), shared=32, piece=32) for name in (2, 3, 4, 5)]
        log = played([others, *more, large], limits)
    else:
        log = played([others, large], limits)
    assert log.served[-1].request is large
    assert log.refused == 0
