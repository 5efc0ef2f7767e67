"""Placement: the worked example, shapes of servers, limits, and questions without an answer."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.placement import DRAWN_SERVERS, InstanceBlock, Placement, ServerShape, place
from tests.each_row import each_row
from tests.sizing.placed import assert_sound, fewest_gpus, of, problem

GB = 1e9
EIGHT = ServerShape(8, 8, 73.6 * GB)


def one(count: int, memory_gb: float, busy: float | None = None, workload: int = 0) -> InstanceBlock:
    """Instances of one GPU."""
    return InstanceBlock(workload, count, 1, 1, memory_gb * GB, busy)


def many(count: int, gpus: int, tp: int, workload: int = 0, memory_gb: float = 60) -> InstanceBlock:
    """Instances of several GPUs, with that memory on each."""
    return InstanceBlock(workload, count, gpus, tp, memory_gb * GB * gpus, 0.9)


GUIDE = [one(16, 12.41, 0.99), one(8, 44.76, 0.935, workload=1)]


@each_row("usable", [0.92 * 80e9, 0.92 * 85.5e9])
def test_the_design_guide_by_memory(usable: float) -> None:
    """Eight GPUs, each with one 20B and two 5B; two servers of four."""
    placed = place(GUIDE, [ServerShape(4, 4, usable)], "memory")
    assert (placed.gpus, placed.least_gpus, sum(placed.servers_by_shape), placed.least_servers) == (8, 8, 2, 2)
    assert {slot.workloads for server in placed.servers for slot in server.gpus} == {(0, 0, 1)}
    slot = placed.servers[0].gpus[0]
    assert slot.memory_bytes == pytest.approx(69.58e9)
    assert slot.busy_ratio == pytest.approx(2 * 0.99 + 0.935)
    assert of(placed, "gpus") == ((0, 8), (1, 8))
    assert of(placed, "most_on_a_server") == ((0, 8), (1, 4))


@each_row("usable", [0.92 * 80e9, 0.92 * 85.5e9])
def test_the_design_guide_by_busy_share(usable: float) -> None:
    """One instance a GPU: 24 GPUs in six servers, the larger model first."""
    shape = ServerShape(4, 4, usable)
    placed = place(GUIDE, [shape], "busy")
    assert (placed.gpus, placed.least_gpus, sum(placed.servers_by_shape), placed.least_servers) == (24, 24, 6, 6)
    assert [server.gpus[0].workloads for server in placed.servers] == [(1,)] * 2 + [(0,)] * 4
    assert_sound(placed, GUIDE, [shape], True)


ITEMS = st.lists(st.tuples(st.integers(1, 2), st.integers(5, 70), st.floats(0.05, 1.0)), min_size=1, max_size=3)


@given(ITEMS, st.sampled_from(["busy", "memory"]))
def test_best_fit_decreasing_is_close_to_the_best_there_is(items: list[tuple[int, int, float]], packing: str) -> None:
    """Against all partitions: at most a GPU more for six instances, and the bound is below both."""
    blocks = [one(count, memory, busy, workload=at) for at, (count, memory, busy) in enumerate(items)]
    placed = place(blocks, [EIGHT], "busy" if packing == "busy" else "memory")
    best = fewest_gpus(blocks, EIGHT.memory_bytes, packing == "busy")
    assert placed.least_gpus <= best <= placed.gpus <= best + 1
    assert_sound(placed, blocks, [EIGHT], packing == "busy")


def test_random_scenarios_take_few_gpus_more_than_their_bound() -> None:
    """300 mixes of instances of one and of several GPUs: as many servers as the bound in all but a few."""
    chance = random.Random(7)
    proven = 0
    for _ in range(300):
        blocks = [
            many(chance.randint(1, 5), tp := chance.choice((2, 4, 8)), tp, at)
            if chance.random() < 0.4
            else one(chance.randint(1, 12), chance.uniform(4, 70), chance.uniform(0.05, 1.0), workload=at)
            for at in range(chance.randint(1, 6))
        ]
        placed = place(blocks, [EIGHT], "busy")
        assert_sound(placed, blocks, [EIGHT], True)
        proven += sum(placed.servers_by_shape) == placed.least_servers
        assert sum(placed.servers_by_shape) <= placed.least_servers + 2
    assert proven >= 270


def test_memory_that_fills_a_gpu_exactly() -> None:
    """Tenths do not add up to one in floats; still ten fit, and nothing above it does."""
    assert place([one(10, 8)], [ServerShape(1, 1, 80 * GB)], "memory").gpus == 1
    assert place([one(10, 0.1)], [ServerShape(1, 1, 0.1 * 10 * GB)], "memory").gpus == 1
    assert place([one(3, 73.6 / 3)], [EIGHT], "memory").gpus == 1
    assert place([one(10, 1, 0.1)], [EIGHT], "busy").gpus == 1
    assert place([one(1, 73.6)], [EIGHT], "memory").gpus == 1
    assert place([one(3, 73.6 / 3 * 1.0001)], [EIGHT], "memory").gpus == 2
    assert of(place([one(1, 73.6001)], [EIGHT], "memory"), "unplaced") == ((0, 1),)


def test_unknown_busy_share_has_a_gpu_of_its_own() -> None:
    """By busy share only; and so has one that is more than busy."""
    blocks = [one(3, 5, None), one(4, 5, 0.0, workload=1), one(1, 5, 1.3, workload=2), one(1, 5, math.nan, workload=3)]
    assert place(blocks, [EIGHT], "memory").gpus == 1
    placed = place(blocks, [EIGHT], "busy")
    assert placed.gpus == 6
    assert sorted(slot.workloads for slot in placed.servers[0].gpus if slot.workloads) == [
        (0,), (0,), (0,), (1, 1, 1, 1), (2,), (3,)
    ]  # fmt: skip


@each_row(
    ("shape", "blocks", "servers"),
    [
        (EIGHT, [many(3, 5, 5), many(3, 3, 3, 1)], 3),
        (EIGHT, [many(2, 6, 6), many(2, 3, 3, 1), one(6, 60, workload=2)], 3),
        (EIGHT, [many(2, 4, 4), many(4, 2, 2, 1), one(8, 60, workload=2)], 3),
        (EIGHT, [many(1, 16, 8), many(1, 32, 4, 1)], 6),
        (ServerShape(8, 2, 73.6 * GB), [many(3, 2, 2), many(3, 6, 2, 1)], 3),
        (ServerShape(8, 3, 73.6 * GB), [many(4, 3, 3), many(2, 2, 2, 1)], 2),
        (ServerShape(72, 72, 170 * GB), [many(9, 8, 8), many(2, 32, 32, 1), many(1, 8, 8, 2)], 2),
        (ServerShape(72, 0, 170 * GB), [many(2, 72, 72)], 2),
        (ServerShape(576, 8, 170 * GB), [many(288, 2, 1), many(144, 4, 2, 1), many(100, 5, 5, 2)], 3),
        (ServerShape(4, 4, 73.6 * GB), [many(2, 6, 2)], 3),
        (ServerShape(1, 1, 73.6 * GB), [many(2, 3, 1)], 6),
        (ServerShape(16, 8, 73.6 * GB), [many(1, 15, 5), many(3, 4, 4, 1), many(1, 2, 2, 2)], 3),
        (ServerShape(16, 8, 73.6 * GB), [many(4, 6, 3), many(1, 15, 5, 1), many(3, 8, 4, 2), many(4, 4, 2, 3)], 6),
    ],
)
def test_instances_of_several_gpus(shape: ServerShape, blocks: list[InstanceBlock], servers: int) -> None:
    """TP groups stay in a domain, pipelines in a server where it can hold them."""
    placed = place(blocks, [shape], "memory")
    assert sum(placed.servers_by_shape) == servers
    assert_sound(placed, blocks, [shape], False)


def test_a_pipeline_over_two_servers_is_numbered_in_each() -> None:
    """PP 4 x TP 4 on servers of eight: two stages in each, one group there; the loss of a server costs the instance."""
    placed = place([many(1, 16, 4)], [EIGHT], "busy")
    assert [[slot.group for slot in server.gpus] for server in placed.servers] == [[0] * 8, [0] * 8]
    assert of(placed, "most_on_a_server") == ((0, 1),)


@each_row(
    ("block", "shape", "words"),
    [
        (one(2, 90), EIGHT, "an instance takes 90 GB of a GPU, of which 73.6 GB are usable"),
        (many(2, 4, 4, memory_gb=80), EIGHT, "an instance takes 80 GB of each of 4 GPUs, of which 73.6 GB are usable"),
        (many(1, 4, 4), ServerShape(8, 2, 73.6 * GB), "TP 4 takes 4 GPUs of one NVLink domain, which has 2 GPUs"),
        (many(1, 16, 16), EIGHT, "TP 16 takes 16 GPUs of one NVLink domain, which has 8 GPUs"),
        (many(1, 2, 2), ServerShape(1, 0, 73.6 * GB), "TP 2 takes 2 GPUs of one NVLink domain, which has 1 GPU"),
        (InstanceBlock(0, 2, 4, 3, 9e9, 0.5), EIGHT, "4 GPUs of an instance are not TP 3 times PP"),
        (InstanceBlock(0, 2, 0, 1, 9e9, 0.5), EIGHT, "0 GPUs of an instance are not TP 1 times PP"),
        (one(2, 0), EIGHT, "the memory of an instance is not known"),
        (one(2, math.nan), EIGHT, "the memory of an instance is not known"),
        (one(2, math.inf), EIGHT, "the memory of an instance is not known"),
        (one(2, 9), ServerShape(0, 0, 80 * GB), "the server has no GPU, or none whose memory is known"),
        (one(2, 9), ServerShape(10**9, 2, 80 * GB), "a server has 576 GPUs at most, not 1000000000"),
        (one(2, 9), ServerShape(8, 0, math.nan), "the server has no GPU, or none whose memory is known"),
        (one(2, 9), ServerShape(8, 0, 0.0), "the server has no GPU, or none whose memory is known"),
    ],
)
def test_what_has_no_place_says_why(block: InstanceBlock, shape: ServerShape, words: str) -> None:
    """Beside it the rest is placed all the same."""
    placed = place([block, one(1, 5, workload=1)], [shape], "busy")
    assert dict(of(placed, "unplaced"))[0] == block.count
    assert dict(of(placed, "problem"))[0] == problem(placed) == words
    assert sum(placed.servers_by_shape) == (1 if shape is EIGHT or shape.memory_bytes == 73.6 * GB else 0)


def test_nothing_to_place_and_nowhere() -> None:
    """No instance is no server and no problem; no shape is a problem."""
    assert place([], [EIGHT], "busy") == Placement(servers_by_shape=(0,))
    assert place([one(0, 5), one(-3, 5, workload=1)], [EIGHT], "busy") == Placement(servers_by_shape=(0,))
    placed = place([one(3, 5)], [], "busy")
    assert (sum(placed.servers_by_shape), of(placed, "unplaced")) == (0, ((0, 3),))
    assert problem(placed) == "there is no shape of server"


def test_servers_run_out() -> None:
    """What is needed and what is there is named; those there are filled, the fullest GPUs first."""
    shape = ServerShape(4, 4, 73.6 * GB, count=2)
    placed = place(GUIDE, [shape], "busy")
    assert sum(placed.servers_by_shape) == placed.least_servers == 2
    assert of(placed, "unplaced") == ((0, 16),)
    assert problem(placed) == "16 of 16 instances have no place: 6 servers are needed, there are 2"
    placed = place([many(2, 16, 4)], [ServerShape(8, 8, 73.6 * GB, count=3)], "busy")
    assert (of(placed, "unplaced"), sum(placed.servers_by_shape)) == (((0, 1),), 2)
    placed = place([many(1, 32, 4)], [ServerShape(8, 8, 73.6 * GB, count=3)], "busy")
    assert problem(placed) == "1 of 1 instances have no place: each takes 32 GPUs, and there are 3 servers of 8"


def test_limited_shapes_are_filled_first() -> None:
    """Wherever they stand in the list; what fits only them has their room before others."""
    there, more = ServerShape(4, 4, 73.6 * GB, count=2), ServerShape(8, 8, 73.6 * GB)
    assert place([one(24, 60)], [there, more], "memory").servers_by_shape == (2, 2)
    assert place([one(24, 60)], [more, there], "memory").servers_by_shape == (2, 2)
    assert place([one(5, 60)], [more, there], "memory").servers_by_shape == (0, 2)
    large, small = ServerShape(1, 1, 80 * GB, count=1), ServerShape(1, 1, 40 * GB, count=1)
    placed = place([one(1, 35), one(1, 75, workload=1)], [large, small], "memory")
    assert not of(placed, "unplaced")
    assert [(server.shape, server.gpus[0].workloads) for server in placed.servers] == [(0, (1,)), (1, (0,))]


def test_unlimited_shapes_take_what_fits_them_in_the_order_given() -> None:
    eight, four = ServerShape(8, 8, 80 * GB), ServerShape(4, 4, 80 * GB)
    assert place([one(4, 60)], [eight, four], "memory").servers_by_shape == (1, 0)
    assert place([one(4, 60)], [four, eight], "memory").servers_by_shape == (1, 0)
    blocks = [one(8, 60), one(8, 150, workload=1)]
    assert place(blocks, [eight, ServerShape(8, 8, 180 * GB)], "memory").servers_by_shape == (1, 1)


@each_row("packing", ["busy", "memory"])
def test_many_small_instances_take_two_gpus_more_than_the_best_at_most(packing: str) -> None:
    """40 mixes that were cut out of full GPUs, so that as many GPUs hold them."""
    chance = random.Random(11)
    for _ in range(40):
        kinds = [(chance.uniform(2, 25), chance.uniform(0.02, 0.6)) for _ in range(chance.randint(3, 10))]
        counts, gpus = Counter[int](), 0
        for _ in range(chance.randint(2, 12)):
            memory, busy, times = 73.6, 1.0, chance.randint(1, 40)
            gpus += times
            for at in chance.sample(range(len(kinds)), len(kinds)):
                size, share = kinds[at]
                most = int(min(memory / size, busy / share if packing == "busy" else 99))
                number = chance.randint(most // 2, most)
                memory, busy = memory - number * size, busy - number * share
                counts[at] += number * times
        blocks = [one(count, *kinds[at], workload=at) for at, count in sorted(counts.items()) if count]
        placed = place(blocks, [EIGHT], "busy" if packing == "busy" else "memory")
        assert placed.gpus <= gpus + 2


@each_row("packing", ["busy", "memory"])
def test_a_million_instances(packing: str) -> None:
    """Counted, bounded, and drawn as far as anyone looks."""
    blocks = [one(10**6, 12.41, 0.3), one(10**6, 44.76, 0.4, workload=1), many(10**6, 16, 8, 2), many(10**6, 3, 3, 3)]
    placed = place(blocks, [EIGHT], "busy" if packing == "busy" else "memory")
    assert placed.gpus == placed.least_gpus == 20 * 10**6
    assert sum(placed.servers_by_shape) == placed.least_servers == 25 * 10**5
    assert len(placed.servers) == DRAWN_SERVERS
    assert dict(of(placed, "gpus"))[2] == 16 * 10**6


def test_absurd_numbers() -> None:
    """They have a bound that holds, and the answer comes back."""
    placed = place([one(10**15, 3, 0.2)], [EIGHT], "busy")
    assert placed.gpus == 2 * 10**14
    assert placed.least_gpus <= placed.gpus < placed.least_gpus * (1 + 1e-9)
    tiny = place([InstanceBlock(0, 10**7, 1, 1, 1.0, 0.0)], [EIGHT], "busy")
    assert tiny.gpus == 10**4, "a GPU holds a thousand at most, however small they are"


def test_the_layout_is_in_order() -> None:
    """The fullest servers first, equal ones side by side, and the same for the same question."""
    blocks = [many(3, 6, 2), many(2, 4, 4, 1), one(9, 30, 0.4, workload=2), one(5, 70, 0.2, workload=3)]
    placed = place(blocks, [EIGHT], "busy")
    used = [sum(bool(slot.workloads) for slot in server.gpus) for server in placed.servers]
    assert used == sorted(used, reverse=True)
    kinds = [server.gpus for server in placed.servers]
    assert len({*kinds}) == 1 + sum(one_ != other for one_, other in pairwise(kinds))
    assert place(blocks, [EIGHT], "busy") == placed
    assert_sound(placed, blocks, [EIGHT], True)


def test_two_workloads_alike_are_told_apart() -> None:
    """Equal sizes are one type for the search; each instance still has its own workload's name."""
    blocks = [one(5, 20, 0.3), one(4, 20, 0.3, workload=1), many(1, 4, 4, 2), many(2, 4, 4, 3)]
    placed = place(blocks, [EIGHT], "busy")
    assert_sound(placed, blocks, [EIGHT], True)
    assert placed.gpus == placed.least_gpus == 3 + 12
