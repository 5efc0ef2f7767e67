"""vLLM's first engine, and what the versions since renamed: pages in tests/data/pages/vllm, and the rules between."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance
from gpumon.sources.engines.adapter import PATIENT, EnginePage
from gpumon.sources.engines.registry import BY_KIND
from tests.sources.engines.contract import PAGES, Reader

ABSURD = {b"0": True, b"1e-20": True, b"1e29": True, b"1e31": False, b"1e-31": False, b"-1": False, b"NaN": False}
"""Value of a counter -> whether it can be one."""
ROW = next(row for row in BY_KIND.values() if row.title == "vLLM")


def read(page: str | bytes) -> EnginePage:
    body = page if isinstance(page, bytes) else page.encode()
    (found,) = Reader(ROW).read({"/metrics": body})
    return found


def old(name: str) -> bytes:
    return (PAGES / "vllm" / f"{name}.prom").read_bytes()


def test_swapped_requests_wait_and_say_so():
    page = read(old("v0-0.6"))
    assert page.ranks[0].gauges[q.WAITING] == 1.0 + 2.0
    assert page.live[q.WAITING] == "vllm:num_requests_waiting + num_requests_swapped"
    assert page.advance[q.WAITING] is Advance.DERIVED


def test_the_steps_of_v0_are_not_exact_and_those_of_v1_are():
    # Several steps may be scheduled at once there, and are counted as one.
    assert not read(old("v0-0.9")).exact_steps
    assert read(old("0.10")).exact_steps


@pytest.mark.parametrize("sign", ["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"])
def test_a_page_without_the_engine_label_but_with_counters_of_v1_is_v1(sign: str):
    page = old("v0-0.9") + f'{sign}{{model_name="m"}} 10\n'.encode()
    assert read(page).exact_steps


def test_the_gauge_of_the_throughput_is_the_engines_own_and_no_counter():
    page = read(old("v0-0.6"))
    assert page.ranks[0].gauges[q.DECODE_RATE] == 98.25
    assert page.advance[q.DECODE_RATE] is Advance.SAMPLED
    assert q.PREFILL_RATE not in page.ranks[0].gauges


def test_the_hit_rate_of_v0_is_no_count_so_computed_prefill_is_unknown_with_caching():
    assert q.PREFILL_COMPUTED not in read(old("v0-0.8")).ranks[0].counters
    assert read(old("v0-0.9")).ranks[0].counters[q.PREFILL_COMPUTED] == 5400.0


def test_drafts_of_v0_are_what_was_emitted_beyond_the_accepted_tokens():
    counters = read(old("v0-0.8")).ranks[0].counters
    assert counters[q.DRAFTS] == 1900.0 - 900.0
    assert 1.0 + counters[q.ACCEPTED_TOKENS] / counters[q.DRAFTS] == 1.9


def test_without_the_emitted_tokens_the_drafts_are_not_guessed():
    lines = [line for line in old("v0-0.8").splitlines(keepends=True) if b"emitted" not in line]
    page = read(b"".join(lines))
    assert q.DRAFTS not in page.ranks[0].counters
    assert q.DRAFTS not in page.live


def test_time_in_queue_under_its_first_name():
    page = old("v0-0.9") + (
        b'vllm:time_in_queue_requests_bucket{le="0.3",model_name="m"} 3\n'
        b'vllm:time_in_queue_requests_bucket{le="+Inf",model_name="m"} 4\n'
        b'vllm:time_in_queue_requests_sum{model_name="m"} 1.5\n'
        b'vllm:time_in_queue_requests_count{model_name="m"} 4\n'
    )
    assert read(page).ranks[0].histograms[q.QUEUE].sum == 1.5


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
