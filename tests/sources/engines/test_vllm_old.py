"""vLLM's first engine, which is not read, and what the versions since renamed (tests/data/pages/vllm)."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.sources.engines.adapter import PATIENT
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.http_server import Reply
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import always, first

ABSURD = {b"0": True, b"1e-20": True, b"1e29": True, b"1e31": False, b"1e-31": False, b"-1": False, b"NaN": False}
"""Value of a counter -> whether it can be one."""
ROW = next(row for row in BY_KIND.values() if row.title == "vLLM")


def read(page: str | bytes) -> EngineReading:
    body = page if isinstance(page, bytes) else page.encode()
    (found,) = Reader(ROW).read({"/metrics": body})
    return found


def old(name: str) -> bytes:
    return (PAGES / "vllm" / f"{name}.prom").read_bytes()


async def test_the_engine_v0_is_named_and_not_read():
    source = await first(always(Reply(200, old("v0"))))
    assert (source.reading.state, source.reading.ranks) == (EndpointState.WRONG_ENGINE, ())
    assert "V0" in source.reading.fault


@pytest.mark.parametrize("sign", ["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"])
def test_a_page_without_the_engine_label_but_with_counters_of_v1_is_v1(sign: str):
    page = old("v0") + f'{sign}{{model_name="m"}} 10\n'.encode()
    assert read(page).exact_steps


def test_failures_are_the_requests_that_ended_in_an_error_and_only_where_the_version_tells():
    ended = "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {count}\n'
        for reason, count in (("stop", 5), ("abort", 3), ("error", 2))
    )
    counters = read(ended).ranks[0].counters
    assert (counters[q.REQUESTS], counters[q.FAILURES]) == (10.0, 2.0)
    assert q.FAILURES not in read(old("0.10")).ranks[0].counters


def test_the_engines_own_estimates_stay_as_they_are_read_per_rank():
    page = read(
        "".join(
            f'vllm:estimated_{what}_per_gpu_total{{engine="{rank}",model_name="m"}} {value}\n'
            for rank in (0, 1)
            for what, value in (("flops", 2.5e15), ("read_bytes", 3e12), ("write_bytes", 0))
        )
    )
    assert [rank.counters for rank in page.ranks] == [
        {q.OWN_FLOPS: 2.5e15, q.OWN_READ_BYTES: 3e12, q.OWN_WRITE_BYTES: 0.0}
    ] * 2


def test_a_sum_of_which_a_part_is_missing_is_no_figure_until_the_part_is_gone_for_good():
    whole, reader = old("0.10"), Reader(ROW)
    lines = whole.splitlines(keepends=True)
    parts = [line for line in lines if line.startswith(b"vllm:request_success_total{")]
    without = b"".join(line for line in lines if line != parts[0])
    told = [
        reader.read({"/metrics": page})[0].ranks[0].counters.get(q.REQUESTS)
        for page in (whole, *[without] * (PATIENT + 1), whole)
    ]
    assert len(parts) > 1
    assert told[0] == told[-1]
    assert told[1:-2] == [None] * PATIENT
    assert told[-2] is not None


def test_what_cannot_be_counted_is_left_out():
    lines = [line for line in old("0.10").splitlines() if not line.startswith(b"vllm:generation_tokens_total{")]
    read_of = {value: read(b"\n".join([*lines, b"vllm:generation_tokens_total " + value])) for value in ABSURD}
    assert {value: q.DECODE_TOKENS in found.ranks[0].counters for value, found in read_of.items()} == ABSURD


def test_hits_in_blocks_do_not_stand_for_hits_in_tokens_that_a_page_lacks():
    page = old("0.10")
    lacking = b"".join(
        line for line in page.splitlines(keepends=True) if not line.startswith(b"vllm:prefix_cache_hits_total{")
    )
    assert q.PREFILL_CACHED in read(page).ranks[0].counters
    assert q.PREFILL_CACHED not in read(lacking).ranks[0].counters
