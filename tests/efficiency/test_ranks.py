"""Each data-parallel rank's part, and when ranks count as unevenly loaded."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, RankReading
from gpumon.readings.snapshot import Engine
from tests.accuracy.pages import Where, recorded, snapshots
from tests.each_row import each_row
from tests.efficiency.polls import after, only, poll, rank, there, tracked

Load = tuple[float, float, float, float]
"""Decode tokens/s, running, waiting, KV usage."""
EVEN: Load = (500.0, 10.0, 0.0, 0.4)


def one(name: str, at_s: float, load: Load) -> RankReading:
    tokens, running, waiting, usage = load
    return rank(
        {q.DECODE_TOKENS: at_s * tokens}, {q.RUNNING: running, q.WAITING: waiting, q.KV_USAGE: usage}, name=name
    )


def shown(*loads: Load, seconds: int = 20) -> Engine:
    def engine(at_s: float) -> EngineReading:
        return poll(at_s, *(one(str(at), at_s, load) for at, load in enumerate(loads)), gpu_count=len(loads))

    return only(after(engine, seconds=seconds))


def figures(engine: Engine) -> list[tuple[str, str, float]]:
    return [(one.quantity, str(one.parameters["rank"]), round(there(one.value), 2)) for one in engine.uneven]


def test_each_ranks_part_adds_up_to_the_engine():
    found = shown((100.0, 2.0, 0.0, 0.1), (300.0, 6.0, 1.0, 0.3))
    assert [load.rank for load in found.rank_loads] == ["0", "1"]
    assert sum(there(load.decode_tokens_per_s) for load in found.rank_loads) == pytest.approx(
        there(found.rates.decode_tokens_per_s)
    )
    (_, second) = found.rank_loads
    assert (second.running, second.waiting, second.kv_usage_ratio) == pytest.approx((6.0, 1.0, 0.3))


def test_one_rank_is_no_list_and_equal_ones_are_even():
    assert shown(EVEN).rank_loads == ()
    assert shown(EVEN, EVEN, EVEN).uneven == ()


@each_row(
    ("odd", "said"),
    [
        ((250.0, 10.0, 0.0, 0.4), ("rank_decode", "2", 250.0)),
        ((400.0, 10.0, 0.0, 0.4), None),
        (
            (500.0, 4.0, 0.0, 0.4),
            None,  # nobody waits
        ),
        ((500.0, 10.0, 0.0, 0.75), ("rank_kv", "2", 0.75)),
        ((500.0, 10.0, 0.0, 0.65), None),
    ],
)
def test_what_ranks_share_unevenly_is_said_with_figures(odd: Load, said: tuple[str, str, float] | None):
    assert figures(shown(EVEN, EVEN, odd)) == ([said] if said else [])


def test_a_queue_beside_a_rank_with_room_is_uneven():
    full = (500.0, 16.0, 5.0, 0.4)
    assert figures(shown(full, (500.0, 3.0, 0.0, 0.4))) == [("rank_queue", "0", 5.0)]
    assert shown(full, (500.0, 12.0, 0.0, 0.4)).uneven == ()
    assert shown(full, (500.0, 3.0, 2.0, 0.4)).uneven == ()


def test_nothing_is_said_while_it_warms_up_or_a_rank_has_just_joined():
    odd = (0.0, 10.0, 0.0, 0.9)
    assert shown(EVEN, odd, seconds=8).uneven == ()
    assert len(shown(EVEN, odd, seconds=20).uneven) == 2

    def joining(at_s: float) -> EngineReading:
        ranks = [one("0", at_s, EVEN), one("1", at_s, EVEN)]
        return poll(at_s, *ranks, *([one("2", at_s, odd)] if at_s >= 30 else []))

    seen = [only(found.snapshot).uneven for found in tracked(joining, seconds=50)]
    assert all(texts == () for texts in seen[:20])
    assert len(seen[-1]) == 2


def test_the_ranks_of_a_real_engine_are_even():
    pages = [page for page in recorded("vllm-dp2") if page.t < 40.0]
    seen = [found.engines[0] for found in snapshots(pages, Where(gpu_count=2, gpu_type="H100 SXM 80GB"))]
    assert all(engine.uneven == () for engine in seen)
    assert {load.rank for load in seen[-1].rank_loads} == {"0", "1"}
    assert all(there(load.decode_tokens_per_s) > 0 for load in seen[-3].rank_loads)
