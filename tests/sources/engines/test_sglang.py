"""The SGLang adapter on a recorded server, and in the order in which its series appear, stand still and go missing.

What one page of a version gives is in tests/data/pages/sglang (test_contract.py).
"""

from __future__ import annotations

import json

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.engines.sglang import parse_server_info
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.sources.engines.contract import PAGES, Reader

ROW = BY_KIND[EngineKind.SGLANG]
LABELS = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
REALTIME = "sglang:realtime_tokens_total"


def series(name: str, value: float, **more: str) -> str:
    labels = ",".join([LABELS, *(f'{key}="{text}"' for key, text in more.items())])
    return f"{name}{{{labels}}} {value}\n"


def read(reader: Reader, page: str, **bodies: bytes) -> EngineReading:
    (part,) = reader.read({"/metrics": page.encode(), **{f"/{path}": body for path, body in bodies.items()}})
    return part


def decoded(reader: Reader, page: str) -> dict[str, float]:
    return {rank.rank: rank.counters[q.DECODE_TOKENS] for rank in read(reader, page).ranks}


def test_the_totals_grew_by_what_the_client_counted() -> None:
    capture, reader = Capture("sglang-basic"), Reader(ROW)
    pages = [read(reader, scrape.body.decode()).ranks[0].counters for scrape in capture.scrapes]
    received = sum(tokens for request in capture.truth for _, tokens in request["events"])
    prompts = sum(request["prompt_tokens"] for request in capture.truth)
    grown = {name: pages[-1][name] - pages[0][name] for name in pages[0]}
    assert grown[q.DECODE_TOKENS] == received
    assert grown[q.PROMPT_TOKENS] == grown[q.PREFILL_COMPUTED] == prompts
    assert grown[q.REQUESTS] == len(capture.truth)


def test_every_decode_pass_is_counted() -> None:
    """Eight requests in step: tokens / passes is their number, second by second."""
    capture, reader = Capture("sglang-basic"), Reader(ROW)
    steady = [read(reader, capture.at(t).body.decode()).ranks[0].counters for t in (31.5, 34.5, 36.5, 40.5, 42.5, 45.5)]
    for first, last in zip(steady[::2], steady[1::2], strict=True):
        steps = last[q.STEPS] - first[q.STEPS]
        assert (last[q.DECODE_TOKENS] - first[q.DECODE_TOKENS]) / steps == pytest.approx(8.0, abs=0.05)


def test_passes_that_stand_still_while_tokens_come_are_no_steps() -> None:
    reader, exact = Reader(ROW), []
    for tokens in (10, 20, 30, 40):
        page = series(REALTIME, tokens, mode="decode") + series(
            "sglang:cuda_graph_passes_total", 7, mode="prefill_none"
        )
        exact.append(read(reader, page).exact_steps)
    assert exact == [True, True, False, False]


def test_a_series_that_appears_later_started_from_zero() -> None:
    reader = Reader(ROW)
    first = series(REALTIME, 100, mode="prefill_compute") + series(REALTIME, 50, mode="decode")
    counters = read(reader, first).ranks[0].counters
    assert (counters[q.PREFILL_CACHED], counters[q.PREEMPTIONS]) == (0.0, 0.0)
    later = first + series(REALTIME, 64, mode="prefill_cache") + series("sglang:num_retracted_requests_total", 2)
    counters = read(reader, later).ranks[0].counters
    assert (counters[q.PREFILL_CACHED], counters[q.PREEMPTIONS]) == (64.0, 2.0)
    assert counters[q.PROMPT_TOKENS] == 164.0


def test_a_fresh_server_has_counted_nothing_and_its_first_tokens_are_seen() -> None:
    reader = Reader(ROW)
    gauges = series("sglang:num_running_reqs", 0) + series("sglang:decode_sum_seq_lens", 0)
    page = read(reader, gauges)
    assert page.ranks[0].counters[q.DECODE_TOKENS] == 0.0
    assert page.advance == {}
    assert decoded(reader, gauges + series(REALTIME, 30, mode="decode")) == {"0": 30.0}


@each_row(("version", "live"), [("0.5.7", True), ("0.5.6.post2", False), ("0.6.0rc1", True), ("x", False)])
def test_the_version_tells_whether_tokens_are_live(version: str, live: bool) -> None:
    page = read(
        Reader(ROW), series("sglang:num_running_reqs", 0), server_info=json.dumps({"version": version}).encode()
    )
    assert (q.DECODE_TOKENS in page.ranks[0].counters) is live
    assert page.version == version


def two_ranks(first: float, second: float, answers: float) -> str:
    return (
        series(REALTIME, first, mode="decode", dp_rank="0")
        + series(REALTIME, second, mode="decode", dp_rank="1")
        + f'sglang:time_to_first_token_seconds_count{{model_name="m"}} {answers}\n'
    )


def test_the_gpus_of_data_parallel_attention_are_counted_once() -> None:
    said = {"tp_size": 8, "dp_size": 2, "pp_size": 1}
    plain, attention = (
        parse_server_info(json.dumps({**said, "enable_dp_attention": on}).encode()) for on in (False, True)
    )
    assert (plain.tp, plain.dp) == (8, 2)
    assert (attention.tp, attention.dp) == (4, 2)


def test_no_secret_of_the_server_is_kept() -> None:
    body = (PAGES / "sglang" / "server_info.json").read_bytes()
    assert b"never-shown" in body
    assert "never-shown" not in str(parse_server_info(body))


def test_first_tokens_are_shared_among_the_ranks_and_none_is_lost() -> None:
    reader = Reader(ROW)
    assert decoded(reader, two_ranks(100, 300, 40)) == {"0": 120.0, "1": 320.0}
    assert decoded(reader, two_ranks(100, 400, 46)) == {"0": 123.0, "1": 423.0}
    one = two_ranks(150, 400, 50).splitlines(keepends=True)
    assert decoded(reader, "".join(one[:1] + one[2:])) == {"0": 175.0}
    assert sum(decoded(reader, two_ranks(150, 460, 50)).values()) == 150 + 460 + 50


def test_acceptance_and_lora_slots_are_read_where_there_are_drafts_and_slots() -> None:
    runs = series("sglang:num_running_reqs", 2.0)
    speculates = series("sglang:spec_accept_length", 2.75) + series("sglang:spec_accept_rate", 0.58)
    loras = series("sglang:lora_pool_slots_total", 4.0) + series("sglang:lora_pool_slots_used", 3.0)
    gauges = read(Reader(ROW), runs + speculates + loras).ranks[0].gauges
    assert (gauges[q.ACCEPTANCE], gauges[q.LORA_SLOTS], gauges[q.LORA_LOADED]) == (0.58, 4.0, 3.0)
    none = series("sglang:spec_accept_length", 0.0) + series("sglang:spec_accept_rate", 0.0)
    assert q.ACCEPTANCE not in read(Reader(ROW), runs + none).ranks[0].gauges
