"""The vLLM adapter on every recorded server, and on pages of the versions that no recording covers."""

from __future__ import annotations

import re

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, RankReading
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.sources.engines.contract import PAGES

ABSURD = {b"0": True, b"1e-20": True, b"1e29": True, b"1e31": False, b"1e-31": False, b"-1": False, b"+Inf": False}
"""Value of a counter -> whether it can be one."""
LABELS = 'engine="0",model_name="m"'


class Reader:
    """An adapter with its scanner, as an endpoint holds them."""

    def __init__(self) -> None:
        self.adapter = VllmAdapter()
        self.scanner = Scanner(self.adapter.wanted_names)

    def read(self, page: str | bytes) -> EngineReading:
        return self.adapter.read(self.scanner.scan(page if isinstance(page, bytes) else page.encode()))


def one(page: str) -> RankReading:
    ranks = Reader().read(page).ranks
    assert len(ranks) == 1
    return ranks[0]


def last_pages(name: str) -> list[bytes]:
    return [scrape.body for scrape in Capture(name).scrapes if scrape.status == 200]


def counter_in(page: bytes, series: str) -> float:
    """The value of one series, read by a regular expression only."""
    match = re.search(rb"^" + re.escape(series.encode()) + rb" (\S+)$", page, re.MULTILINE)
    assert match is not None, series
    return float(match[1])


COMPLETE = ("vllm-basic", "vllm-poisson", "vllm-mfu-queue-prefix-abort", "vllm-apikey", "vllm-dp2", "prometheus-api")


@each_row("name", COMPLETE)
def test_the_totals_grew_by_what_the_client_counted(name: str) -> None:
    pages = [Reader().read(body) for body in (last_pages(name)[0], last_pages(name)[-1])]
    requests = Capture(name).truth

    def grown(quantity: str) -> float:
        first, last = (sum(rank.counters[quantity] for rank in page.ranks) for page in pages)
        return last - first

    cut = any(line.get("aborted_by_client") for line in requests)
    received = sum(line.get("server_output_tokens") or line["output_tokens"] for line in requests)
    assert grown(q.DECODE_TOKENS) == pytest.approx(received, rel=0.01 if cut else 0.0)
    if not cut:  # a cut answer has no usage, so the client does not know that prompt's length
        assert grown(q.PROMPT_TOKENS) == sum(line["prompt_tokens"] for line in requests)
    assert grown(q.PREFILL_COMPUTED) + grown(q.PREFILL_CACHED) == grown(q.PROMPT_TOKENS)


def test_data_parallel_ranks_are_told_apart_by_label_in_whatever_order() -> None:
    reader, seen = Reader(), set()
    for body in last_pages("vllm-dp2"):
        page = reader.read(body)
        assert [rank.rank for rank in page.ranks] == ["0", "1"]
        assert not page.exact_steps
        assert page.started_wall_s == 0.0
        for rank in page.ranks:
            series = f'{{engine="{rank.rank}",model_name="tiny-llama"}}'
            assert rank.counters[q.DECODE_TOKENS] == counter_in(body, f"vllm:generation_tokens_total{series}")
            seen.add((rank.rank, q.RUNNING in rank.gauges))
    # Gauges are absent until they are first set: absent, not zero.
    assert seen == {("0", False), ("0", True), ("1", False), ("1", True)}


def test_the_pool_of_a_data_parallel_rank_is_its_own() -> None:
    body = last_pages("vllm-dp2")[-1]
    assert b'num_gpu_blocks="8192"' in body
    assert [rank.gauges[q.POOL_TOKENS] for rank in Reader().read(body).ranks] == [524288.0, 524288.0]
    older = body.replace(b'kv_cache_size_tokens="524288",', b"")
    page = Reader().read(older)
    assert [rank.gauges[q.POOL_TOKENS] for rank in page.ranks] == [524288.0, 524288.0]
    assert page.live[q.POOL_TOKENS] == "vllm:cache_config_info num_gpu_blocks x block_size"


# Pages of versions that are not recorded.


def test_a_stale_series_of_a_dead_process_does_not_hide_the_live_one() -> None:
    page = f'vllm:kv_cache_usage_perc{{{LABELS},pid="7"}} 0.0\nvllm:kv_cache_usage_perc{{{LABELS},pid="9"}} 0.4\n'
    assert one(page).gauges[q.KV_USAGE] == 0.4
    assert one("\n".join(reversed(page.splitlines()))).gauges[q.KV_USAGE] == 0.4


def histogram(name: str, count: int, more: str = "") -> str:
    return (
        f'{name}_bucket{{{LABELS}{more},le="0.1"}} {count - 1}\n{name}_bucket{{{LABELS}{more},le="+Inf"}} {count}\n'
        f"{name}_sum{{{LABELS}{more}}} {count * 0.05}\n{name}_count{{{LABELS}{more}}} {count}\n"
    )


def test_a_better_metric_that_is_missing_once_is_not_replaced_by_a_worse_one() -> None:
    old, new = "vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"
    reader = Reader()
    reader.read(histogram(old, 10) + histogram(new, 12))
    page = reader.read(histogram(old, 11))
    assert q.ITL not in page.live
    assert page.ranks == ()


@each_row(
    ("was", "becomes"),
    [
        ('le="0.1"} 2', 'le="0.1"} NaN'),
        ('le="0.1"} 2', 'le="0.1"} 9'),
        ('le="0.1"} 2', 'le="0.1"} -1'),
        ("_sum", "_other"),
        ("_count", "_other"),
        ("} 3", "} +Inf"),
    ],
)
def test_a_histogram_that_is_not_sound_is_left_out(was: str, becomes: str) -> None:
    name = "vllm:time_to_first_token_seconds"
    page = histogram(name, 3).replace(was, becomes)
    assert page != histogram(name, 3)
    assert q.TTFT not in one(page + f"vllm:generation_tokens_total{{{LABELS}}} 1\n").histograms


def prompts(prompt: float, hits: float, name: str = "prefix_cache_hits_total") -> str:
    return f"vllm:prompt_tokens_total{{{LABELS}}} {prompt}\nvllm:{name}{{{LABELS}}} {hits}\n"


def test_before_0_16_computed_prefill_is_prompt_less_hits_and_never_falls() -> None:
    reader = Reader()
    computed = []
    # 1000 hits are counted at admission, their prompt only at its first token.
    for prompt, hits in ((500, 100), (500, 1100), (1700, 1100), (1900, 1100)):
        page = reader.read(prompts(prompt, hits))
        computed.append(page.ranks[0].counters[q.PREFILL_COMPUTED])
    assert computed == [400.0, 400.0, 600.0, 800.0]
    assert "last resort" in page.live[q.PREFILL_COMPUTED]
    assert "vllm:prefix_cache_hits_total" in page.live[q.PREFILL_COMPUTED]


def test_without_any_word_on_the_cache_computed_prefill_is_unknown() -> None:
    page = f"vllm:prompt_tokens_total{{{LABELS}}} 500\n"
    assert q.PREFILL_COMPUTED not in one(page).counters
    off = f'vllm:cache_config_info{{enable_prefix_caching="False",{LABELS}}} 1.0\n'
    assert one(off + page).counters[q.PREFILL_COMPUTED] == 500.0


def config_info(**settings: str) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in settings.items())
    return f"vllm:cache_config_info{{{inside}}} 1.0\nvllm:num_requests_running{{{LABELS}}} 1\n"


def test_the_pool_in_tokens() -> None:
    blocks = {"block_size": "16", "num_gpu_blocks": "1000", "cache_dtype": "fp8"}
    assert one(config_info(**blocks)).gauges[q.POOL_TOKENS] == 16000.0
    assert one(config_info(**blocks, kv_cache_size_tokens="12345")).gauges[q.POOL_TOKENS] == 12345.0
    assert q.POOL_TOKENS not in one(config_info(block_size="16", num_gpu_blocks="None")).gauges
    assert Reader().read(config_info(**blocks)).info["cache_dtype"] == "fp8"


def old(name: str) -> bytes:
    return (PAGES / "vllm" / f"{name}.prom").read_bytes()


def test_what_cannot_be_counted_is_left_out():
    lines = [line for line in old("0.10").splitlines() if not line.startswith(b"vllm:generation_tokens_total{")]
    read_of = {value: Reader().read(b"\n".join([*lines, b"vllm:generation_tokens_total " + value])) for value in ABSURD}
    assert {value: q.DECODE_TOKENS in found.ranks[0].counters for value, found in read_of.items()} == ABSURD


def test_requests_that_their_client_gave_up_are_what_the_api_server_answered_and_no_finish_reason_has() -> None:
    """vLLM counts them nowhere: its `abort` stays 0 (a recording of 158 requests, of which the client cut 12)."""
    reader = Reader()
    pages = [reader.read(body) for body in last_pages("vllm-mfu-queue-prefix-abort")]
    cut = sum(bool(line.get("aborted_by_client")) for line in Capture("vllm-mfu-queue-prefix-abort").truth)
    counts = [page.ranks[0].counters[q.ABORTS] for page in pages]
    assert counts[-1] == cut == 12
    assert counts == sorted(counts)
    assert pages[-1].ranks[0].counters[q.REQUESTS] == 158.0
    assert "http_requests_total" in pages[-1].live[q.ABORTS]


def answers(*, finished: int, failed: int, ok: int, broken: int, health: int = 0) -> str:
    """A page with what the engine ended, and what its API server answered."""
    success, http = "vllm:request_success_total", "http_requests_total"
    return (
        f"vllm:num_requests_running{{{LABELS}}} 1\nvllm:generation_tokens_total{{{LABELS}}} 9\n"
        f'{success}{{{LABELS},finished_reason="stop"}} {finished}\n'
        f'{success}{{{LABELS},finished_reason="error"}} {failed}\n{success}{{{LABELS},finished_reason="abort"}} 0\n'
        f'{http}{{handler="/v1/chat/completions",method="POST",status="2xx"}} {ok}\n'
        f'{http}{{handler="/v1/chat/completions",method="POST",status="5xx"}} {broken}\n'
        f'{http}{{handler="/health",method="GET",status="5xx"}} {health}\n'
        f'{http}{{handler="/tokenize",method="POST",status="2xx"}} 77\n'
    )


@each_row(
    ("then", "failed", "aborted", "ended"),
    [
        ({"ok": 110, "finished": 110}, 0.0, 0.0, 10.0),
        ({"ok": 110, "finished": 104}, 0.0, 6.0, 10.0),
        ({"broken": 8}, 8.0, 0.0, 8.0),  # none of them reached the engine
        ({"broken": 8, "failed": 8}, 8.0, 0.0, 8.0),  # both counted the same
        ({"ok": 108, "failed": 8}, 8.0, 0.0, 8.0),  # streams that broke after their headers
        ({"ok": 110, "finished": 130}, 0.0, 0.0, 30.0),  # several samples of one request
        ({"health": 50}, 0.0, 0.0, 0.0),
    ],
)
def test_errors_of_the_api_server_and_of_the_engine_are_counted_once(
    then: dict[str, int], failed: float, aborted: float, ended: float
) -> None:
    reader, before = Reader(), {"finished": 100, "failed": 0, "ok": 100, "broken": 0}
    pages = [reader.read(answers(**one)).ranks[0].counters for one in (before, {**before, **then})]
    grown = [pages[1][quantity] - pages[0][quantity] for quantity in (q.FAILURES, q.ABORTS, q.REQUESTS)]
    assert grown == [failed, aborted, ended]


LORA = 'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{}",waiting_lora_adapters="{}"}} {}\n'


def test_lora_adapters_come_from_the_newest_series() -> None:
    page = answers(finished=1, failed=0, ok=1, broken=0)
    told = LORA.format("", "", 1.7e9) + LORA.format("a,b,c,d", "e, a,f", 1.7e9 + 9.0)
    gauges = Reader().read(page + told).ranks[0].gauges
    assert (gauges[q.LORA_SLOTS], gauges[q.LORA_LOADED], gauges[q.LORA_WAITING]) == (4.0, 4.0, 2.0)
    summed = Reader().read(page + LORA.format("a", "b", 3.4e9)).ranks[0].gauges
    assert q.LORA_SLOTS not in summed, "several processes added up their times"
    assert q.LORA_SLOTS not in Reader().read(page).ranks[0].gauges
