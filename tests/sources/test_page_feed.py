"""A feed with a url: its page mapped by the user's selectors, and over HTTP its states and what it does not ask."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, Phase
from gpumon.sources.exposition import Scanner
from gpumon.sources.page_feed import PageFeed, engine_row_of
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import check
from tests.sources.polling import HURRIED, PATIENT, always

SERIES = b"""
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
    adapter = engine_row_of(Feed(url="http://h:1", quantities=quantities, **settings), "", named_page=False).adapter()
    return adapter.read_all(Scanner(adapter.wanted_names).scan(page))


def one(page: bytes, quantities: dict[str, str], **settings: Any) -> EngineReading:
    (found,) = read(page, quantities, **settings)
    check([found])
    return found


def test_series_that_match_are_added():
    page = one(SERIES, {"decode_tokens": 'tokens_total{mode="decode"}', "running": "busy"})
    (rank,) = page.ranks
    assert rank.counters == {q.DECODE_TOKENS: 120.0}
    assert rank.gauges == {q.RUNNING: 7.0}
    assert page.live[q.DECODE_TOKENS] == 'tokens_total{mode="decode"}'
    assert page.advance == {}


def test_histograms_are_added_bucket_by_bucket():
    found = one(SERIES, {"ttft_s": "lat"}).ranks[0].histograms[q.TTFT]
    assert (found.bounds, found.counts, found.sum, found.count) == ((0.1, math.inf), (4.0, 6.0), 0.75, 6.0)
    alone = one(SERIES, {"itl_s": 'lat{job="b"}'}).ranks[0].histograms[q.ITL]
    assert (alone.counts, alone.sum) == ((3.0, 4.0), 0.25)


def test_a_server_that_tells_its_first_tokens_may_book_whole_prompts():
    tokens = {"prefill_computed_tokens": "tokens_total", "decode_tokens": "tokens_total"}
    assert one(SERIES, tokens).advance == {}
    assert one(SERIES, tokens | {"ttft_s": "lat"}).advance == {q.PREFILL_COMPUTED: Advance.PROMPT}
    ended = one(SERIES, tokens | {"ttft_s": "lat"}, at_end=("prefill_computed_tokens",))
    assert ended.advance == {q.PREFILL_COMPUTED: Advance.END}


@each_row("value", ["NaN", "-1", "+Inf", "-Inf"])
def test_what_is_no_count_is_left_out_and_no_zero(value: str):
    page = f'tokens_total{{mode="decode"}} {value}\nbusy 2\n'.encode()
    found = one(page, {"decode_tokens": "tokens_total", "running": "busy"})
    assert found.ranks[0].counters == {}
    assert q.DECODE_TOKENS not in found.live


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_page_is_read_without_a_fault(lines: list[bytes]):
    check(
        read(SERIES + b"\n".join(lines), {"decode_tokens": "tokens_total", "kv_usage_ratio": "cache", "ttft_s": "lat"})
    )


# Over HTTP

PAGE = b'tokens_total{job="a"} 100\ntokens_total{job="b"} 7\nbusy 3\nprocess_start_time_seconds 1700000000\n'
MAPPED = {"decode_tokens": 'tokens_total{job="a"}', "running": "busy"}


@contextlib.asynccontextmanager
async def polling(url: str, **settings: Any) -> AsyncIterator[PageFeed]:
    feed = Feed(**{"url": url, "quantities": MAPPED, "interval_s": 60.0, **settings})
    source = PageFeed(feed, limits=PATIENT, back_off=HURRIED)
    await source.start()
    try:
        await source.ready(60.0)
        yield source
    finally:
        await source.close()


async def first(answer: Callable[[Request], Reply], path: str = "", **settings: Any) -> tuple[PageFeed, list[str]]:
    with LoopbackServer(answer) as server:
        async with polling(server.url + path, **settings) as source:
            return source, [request.path for request in server.requests]


async def test_a_page_is_an_engine_of_its_own_kind():
    source, asked = await first(always(Reply(200, PAGE)), name="acme", model="acme-7b")
    reading = source.reading
    assert (reading.name, reading.kind, reading.state) == ("acme", EngineKind.GENERIC, EndpointState.OK)
    assert (reading.phase, reading.model, reading.training) == (Phase.INFERENCE, "acme-7b", None)
    assert reading.ranks[0].counters == {q.DECODE_TOKENS: 100.0}
    assert reading.found_by == "config"
    assert reading.started_wall_s == 1700000000.0
    assert asked == ["/metrics"], "it asks for no model and no version"
    assert "identity" in reading.info, "so that the model is looked up by the config's name"


@pytest.mark.parametrize(
    ("path", "asked"),
    [("", "/metrics"), ("/", "/metrics"), ("/stats/prom", "/stats/prom"), ("/v1/metrics", "/v1/metrics")],
)
async def test_the_path_is_the_one_that_the_user_gave(path: str, asked: str):
    def answer(request: Request) -> Reply:
        return Reply(200, PAGE) if request.path == asked else Reply(404, b"no")

    source, paths = await first(answer, path)
    assert (source.reading.state, paths) == (EndpointState.OK, [asked])


@pytest.mark.parametrize(
    ("reply", "state", "words"),
    [
        (Reply(404, b"no"), EndpointState.HTTP_ERROR, "check the url of this [[feed]]"),
        (Reply(500, b"no"), EndpointState.HTTP_ERROR, "500"),
        (Reply(503, b"no"), EndpointState.STARTING, "503"),
        (Reply(401, b"no"), EndpointState.UNAUTHORIZED, "api_key_env"),
        (Reply(200, b"<html></html>", "text/html"), EndpointState.NOT_METRICS, "HTML"),
        (Reply(200, b"{}", "application/json"), EndpointState.NOT_METRICS, "JSON"),
        (Reply(200, b""), EndpointState.NOT_METRICS, "empty"),
        (
            Reply(200, b"other_metric 1\n"),
            EndpointState.NOT_METRICS,
            'none of its metrics is on this page: decode_tokens = tokens_total{job="a"}, running = busy',
        ),
    ],
)
async def test_what_is_wrong_is_said_in_words_of_feeds(reply: Reply, state: EndpointState, words: str):
    source, _ = await first(always(reply))
    assert source.reading.state is state
    assert words in source.reading.fault
    assert source.reading.ranks == ()


async def test_a_quantity_without_a_series_is_named():
    source, _ = await first(always(Reply(200, b'tokens_total{job="a"} 1\n')))
    (fault,) = (await source.poll(0.0)).faults
    assert fault.text == "no series on the page for running = busy"


async def test_the_key_goes_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FEED_KEY", "s3cret")

    def answer(request: Request) -> Reply:
        return Reply(200, PAGE) if request.headers.get("authorization") == "Bearer s3cret" else Reply(401, b"no")

    source, _ = await first(answer, api_key_env="FEED_KEY")
    assert source.reading.state is EndpointState.OK
    assert "s3cret" not in repr(source.reading)
