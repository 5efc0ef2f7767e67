"""MFU of an engine that queues: simulated pages through adapter and deriver, against the counters of these pages."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine
from gpumon.sources.packaged import llm_catalogue
from tests.accuracy.calibration import GPU
from tests.accuracy.pages import Page, Where, snapshots
from tests.accuracy.staircase import ACTORS, Staircase

ACTOR = ACTORS["llama-8b"]
QUEUED_S = 240.0
MOST_ERROR = 0.05
COMPUTED = b'vllm:prompt_tokens_by_source_total{engine="0",model_name="'


class Watched(NamedTuple):
    """What was shown after each page, and what the page had counted."""

    t: float
    engine: Engine
    computed: float


@functools.cache
def whole_pages() -> list[Page]:
    """The pages of an engine of 8 places and 400 clients, from its first request on."""
    return list(Staircase(ACTOR, [(QUEUED_S, 400)], max_num_seqs=8).pages())


@functools.cache
def queueing(without: bytes = b"") -> list[Watched]:
    """What is shown of that engine; `without` the lines that hold this."""
    pages = list(_pages(without))
    where = Where(llm_catalogue().find(ACTOR.model), GPU, 1)
    engines = [snapshot.engines[0] for snapshot in snapshots(pages, where)]
    return [Watched(page.t, engine, _computed(page)) for page, engine in zip(pages, engines, strict=True)]


def _pages(without: bytes) -> Iterator[Page]:
    for page in whole_pages():
        assert page.body is not None
        lines = page.body.splitlines(keepends=True)
        yield Page(page.t, b"".join(line for line in lines if not without or without not in line))


def _computed(page: Page) -> float:
    """Prompt tokens that the page says were computed."""
    assert page.body is not None
    lines = [line for line in page.body.splitlines() if line.startswith(COMPUTED) and b"local_compute" in line]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("without", [b"", b"request_prefill_time_seconds"])
def test_mfu_is_there_while_requests_wait(without: bytes):
    seen = queueing(without)
    ttft = seen[-1].engine.latency.ttft_s.mean
    assert not isinstance(ttft, Missing)
    # The queue is what makes the first token late.
    assert ttft > 60.0
    late = [tick for tick in seen if tick.t >= 70.0]
    missing = {tick.t: tick.engine.efficiency.mfu_ratio for tick in late}
    assert [t for t, ratio in missing.items() if isinstance(ratio, Missing)] == []


def test_mfu_is_there_after_the_first_seconds_where_the_prefill_time_is_told():
    seen = queueing()
    missing = [tick.t for tick in seen if tick.t >= 30.0 and isinstance(tick.engine.efficiency.mfu_ratio, Missing)]
    assert missing == []


def test_the_prefill_rate_of_a_queueing_engine_is_that_of_its_counter():
    seen = queueing()
    start, end = seen[len(seen) // 2], seen[-1]
    counted = (end.computed - start.computed) / (end.t - start.t)
    shown = [tick.engine.rates.prefill_tokens_per_s for tick in seen if tick.t > start.t]
    rates = [rate for rate in shown if not isinstance(rate, Missing)]
    assert len(rates) == len(shown)
    assert sum(rates) / len(rates) == pytest.approx(counted, rel=MOST_ERROR)
    assert max(rates) < 2.0 * counted
