"""The mapping of a page by the user's selectors: what is added, what counts as it is, and what is left out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading
from gpumon.sources.exposition import Scanner
from gpumon.sources.feeds.page import row_of
from tests.sources.engines.contract import check

PAGE = b"""
tokens_total{job="a",mode="decode"} 100
tokens_total{job="b",mode="decode"} 20
tokens_total{job="a",mode="prefill"} 7000
busy{job="a"} 3
busy{job="b"} 4
cache{pool="x"} 0.25
cache{pool="y"} 0.75
lat_bucket{job="a",le="0.1"} 1
lat_bucket{job="a",le="+Inf"} 2
lat_sum{job="a"} 0.5
lat_count{job="a"} 2
lat_bucket{job="b",le="0.1"} 3
lat_bucket{job="b",le="+Inf"} 4
lat_sum{job="b"} 0.25
lat_count{job="b"} 4
"""


def read(page: bytes, quantities: dict[str, str], **settings: Any) -> tuple[EngineReading, ...]:
    adapter = row_of(Feed(url="http://h:1", quantities=quantities, **settings), "", named_page=False).adapter()
    return adapter.read_all(Scanner(adapter.wanted).scan(page))


def one(page: bytes, quantities: dict[str, str], **settings: Any) -> EngineReading:
    (found,) = read(page, quantities, **settings)
    check([found])
    return found


def test_series_that_match_are_added():
    page = one(PAGE, {"decode_tokens": 'tokens_total{mode="decode"}', "running": "busy"})
    (rank,) = page.ranks
    assert rank.counters == {q.DECODE_TOKENS: 120.0}
    assert rank.gauges == {q.RUNNING: 7.0}
    assert page.live[q.DECODE_TOKENS] == 'tokens_total{mode="decode"}'
    assert page.advance == {}


def test_histograms_are_added_bucket_by_bucket():
    found = one(PAGE, {"ttft_s": "lat"}).ranks[0].histograms[q.TTFT]
    assert (found.bounds, found.counts, found.sum, found.count) == ((0.1, math.inf), (4.0, 6.0), 0.75, 6.0)
    alone = one(PAGE, {"itl_s": 'lat{job="b"}'}).ranks[0].histograms[q.ITL]
    assert (alone.counts, alone.sum) == ((3.0, 4.0), 0.25)


def test_a_server_that_tells_its_first_tokens_may_book_whole_prompts():
    tokens = {"prefill_computed_tokens": "tokens_total", "decode_tokens": "tokens_total"}
    assert one(PAGE, tokens).advance == {}
    assert one(PAGE, tokens | {"ttft_s": "lat"}).advance == {q.PREFILL_COMPUTED: Advance.PROMPT}
    ended = one(PAGE, tokens | {"ttft_s": "lat"}, at_end=("prefill_computed_tokens",))
    assert ended.advance == {q.PREFILL_COMPUTED: Advance.END}


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf"])
def test_what_is_no_count_is_left_out_and_no_zero(value: str):
    page = f'tokens_total{{mode="decode"}} {value}\nbusy 2\n'.encode()
    found = one(page, {"decode_tokens": "tokens_total", "running": "busy"})
    assert found.ranks[0].counters == {}
    assert q.DECODE_TOKENS not in found.live


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_page_is_read_without_a_fault(lines: list[bytes]):
    check(read(PAGE + b"\n".join(lines), {"decode_tokens": "tokens_total", "kv_usage_ratio": "cache", "ttft_s": "lat"}))
