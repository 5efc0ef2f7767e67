"""Placement against trying everything, on cases that are small enough for it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.sizing.placement import Block, Shape, place
from gpumon.sizing.scenario import Packing
from tests.sizing.placed import assert_sound, best_fit_decreasing, fewest_gpus, fewest_servers

GB = 1e9
PACKINGS = st.sampled_from(("busy", "memory"))


def numbered(drawn: list[Block]) -> list[Block]:
    """Each block a workload of its own."""
    return [
        Block(at, *(getattr(block, name) for name in block.__struct_fields__[1:])) for at, block in enumerate(drawn)
    ]


def single(
    memory: st.SearchStrategy[float], count: int, busy: st.SearchStrategy[float | None]
) -> st.SearchStrategy[Block]:
    """Instances of one GPU."""
    return st.builds(Block, st.just(0), st.integers(1, count), st.just(1), st.just(1), memory, busy)


TENTHS = st.one_of(st.none(), st.integers(0, 12).map(lambda tenths: tenths / 10))
FEW = st.lists(single(st.integers(1, 12).map(lambda units: units * GB), 3, TENTHS), min_size=1, max_size=4).map(
    numbered
)
ODD = st.floats(0.05, 1.0).map(lambda share: share * 80 * GB)
UNEVEN = st.lists(single(ODD, 3, st.one_of(st.none(), st.floats(0.01, 1))), min_size=1, max_size=4).map(numbered)
GROUPS = ((1, 1), (2, 2), (2, 1), (3, 3), (3, 1), (4, 4), (4, 2), (5, 5), (6, 3), (6, 2), (6, 6), (8, 4), (8, 2))
WHOLE = st.builds(
    lambda group, count, share: Block(0, count, *group, share * group[0] * GB, 0.5),
    st.sampled_from(GROUPS),
    st.integers(1, 3),
    st.integers(1, 8),
)
MIXED = st.lists(WHOLE, min_size=1, max_size=3).map(numbered)


@given(FEW, PACKINGS)
def test_the_fewest_gpus_for_round_sizes(blocks: list[Block], packing: Packing) -> None:
    """Sizes that fill a GPU exactly are frequent here."""
    shape = Shape(2, 2, 12 * GB)
    placed = place(blocks, [shape], packing)
    assert_sound(placed, blocks, [shape], packing == "busy")
    assert placed.gpus == placed.least_gpus == fewest_gpus(blocks, 12 * GB, packing == "busy")
    assert placed.servers_used == placed.least_servers == -(-placed.gpus // 2)
    assert not placed.unplaced


@given(UNEVEN, PACKINGS)
def test_the_fewest_gpus_for_any_size(blocks: list[Block], packing: Packing) -> None:
    """Sizes as they come."""
    shape = Shape(8, 0, 80 * GB)
    placed = place(blocks, [shape], packing)
    assert_sound(placed, blocks, [shape], packing == "busy")
    assert placed.gpus == placed.least_gpus == fewest_gpus(blocks, 80 * GB, packing == "busy")


@settings(max_examples=150)
@given(MIXED, st.sampled_from(((4, 4), (4, 2), (8, 8), (8, 4), (8, 2), (8, 3), (6, 4), (5, 5))), PACKINGS)
def test_the_fewest_servers(blocks: list[Block], size: tuple[int, int], packing: Packing) -> None:
    """TP groups of usual and odd sizes, pipelines within and across servers, and shared GPUs between them."""
    shape = Shape(*size, 8 * GB)
    blocks = [block for block in blocks if block.tp <= shape.domains[0]]
    placed = place(blocks, [shape], packing)
    assert_sound(placed, blocks, [shape], packing == "busy")
    assert placed.servers_used == placed.least_servers == fewest_servers(blocks, shape, packing == "busy")
    assert not placed.unplaced


@settings(max_examples=60)
@given(st.lists(single(ODD, 60, TENTHS), min_size=1, max_size=8).map(numbered), PACKINGS)
def test_never_worse_than_best_fit_decreasing(blocks: list[Block], packing: Packing) -> None:
    """Many instances: the bound holds, and the search never loses what the simple way finds."""
    shape = Shape(8, 8, 80 * GB)
    placed = place(blocks, [shape], packing, steps=2000)
    assert placed == place(blocks, [shape], packing, steps=2000)
    assert placed.least_gpus <= placed.gpus <= best_fit_decreasing(blocks, 80 * GB, packing == "busy")
    assert place(blocks, [shape], packing, steps=0).gpus >= placed.gpus
    assert_sound(placed, blocks, [shape], packing == "busy")


SHAPES = st.lists(
    st.builds(
        Shape,
        st.sampled_from((1, 2, 4, 8)),
        st.sampled_from((0, 1, 2, 4)),
        st.sampled_from((4 * GB, 8 * GB, 12 * GB)),
        st.sampled_from((0, 1, 2, 5)),
        st.sampled_from((None, 1.0, 3.0)),
    ),
    max_size=3,
)


@given(
    st.lists(st.one_of(WHOLE, single(st.floats(0.5 * GB, 13 * GB), 9, TENTHS)), max_size=5).map(numbered),
    SHAPES,
    PACKINGS,
)
def test_rules_on_several_shapes(blocks: list[Block], shapes: list[Shape], packing: Packing) -> None:
    """Whatever fits, nothing is lost, doubled or put where it may not stand; an unlimited shape takes all it can."""
    placed = place(blocks, shapes, packing)
    assert_sound(placed, blocks, shapes, packing == "busy")
    assert placed == place(blocks, shapes, packing)
    missing = dict(placed.unplaced)
    for block in blocks:
        share = block.memory_bytes / block.gpus
        if any(not s.count and share <= s.memory_bytes and block.tp <= s.domains[0] for s in shapes):
            assert block.workload not in missing
