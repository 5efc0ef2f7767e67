"""Files of traces: what is read of each format, what is refused, and with which words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gpumon.sizing.imports.files import ImportRefused
from gpumon.sizing.simulate.requests import PlayedRequest
from gpumon.sizing.simulate.trace_traffic import TraceTraffic, traffic_at_rate, traffic_of_trace
from gpumon.sizing.traces.files import read_trace
from gpumon.sizing.traces.trace import Cut, Trace

FILES = Path(__file__).parents[2] / "data" / "traces"


def read(name: str, begin_s: float = 0.0, end_s: float = math.inf, part: int | None = None) -> Trace:
    with (FILES / name).open(encoding="utf-8", newline="") as lines:
        return read_trace(lines, name, Cut(begin_s, end_s), part=part)


def of_text(text: str, unit_s: float | None = None) -> Trace:
    return read_trace(text.splitlines(keepends=True), "t", Cut(), unit_s=unit_s)


def lengths(trace: Trace) -> list[tuple[float, int, int]]:
    return [(request.arrival_s, request.prompt, request.answer) for request in trace.requests]


def test_azure_has_dates_with_ticks_of_100_ns() -> None:
    trace = read("azure-2023-code.csv")
    assert len(trace.requests) == 120
    first, second, third = lengths(trace)[:3]
    assert first == (0.0, 4808, 10)
    assert second == (pytest.approx(0.052), 3180, 8)
    assert third == (pytest.approx(0.098189, abs=1e-6), 110, 27)
    assert trace.kind == "Azure's LLM inference trace"


def test_azure_of_2024_has_a_zone() -> None:
    trace = of_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 02:00:01+02:00,7,8\n"
    )
    assert lengths(trace) == [(0.0, 2162, 5), (pytest.approx(0.99007), 7, 8)]


def test_burstgpt_leaves_out_what_failed() -> None:
    trace = read("burstgpt.csv")
    assert lengths(trace) == [(0.0, 472, 18), (40.0, 1087, 230), (113.0, 417, 276), (125.0, 200, 40)]
    assert trace.notes == ("1 request of the trace without tokens left out: what failed has none",)
    assert lengths(read("burstgpt-sessions.csv")) == [(0.0, 906, 446), (51.0, 36, 29)]


def test_mooncake_has_milliseconds_and_hashes_of_512_tokens() -> None:
    trace = read("mooncake-conversation.jsonl")
    assert trace.piece == 512
    assert (trace.requests[0].prompt, len(trace.requests[0].prefix)) == (2290, 5)
    assert trace.requests[-1].arrival_s == pytest.approx(399.0, abs=3.0)
    assert any("milliseconds" in note for note in trace.notes)


def test_times_with_fractions_are_seconds_and_short_hashes_are_of_16_tokens() -> None:
    trace = of_text(
        '{"chat_id": 1, "timestamp": 1.5, "input_length": 33, "output_length": 4, "hash_ids": [7, 8, 9]}\n'
        '{"chat_id": 2, "timestamp": 3, "input_length": 32, "output_length": 4, "hash_ids": [7, 8]}\n'
    )
    assert lengths(trace) == [(0.0, 33, 4), (1.5, 32, 4)]
    assert trace.piece == 16
    assert trace.requests[1].prefix == trace.requests[0].prefix[:2]


def test_the_unit_can_be_said() -> None:
    lines = "".join(f'{{"timestamp": {time}, "input_length": 3, "output_length": 4}}\n' for time in (0, 9))
    assert of_text(lines).requests[1].arrival_s == pytest.approx(0.009)
    assert of_text(lines, unit_s=1.0).requests[1].arrival_s == 9.0
    assert of_text("time,prompt,answer\n0,1,1\n500,1,1\n", unit_s=1e-3).requests[1].arrival_s == 0.5


def test_a_table_of_three_columns_with_or_without_their_names() -> None:
    expected = [(0.0, 10, 20), (1.5, 30, 40)]
    assert lengths(of_text("0,10,20\n1.5,30,40\n")) == expected
    assert lengths(of_text("answer;arrival_ms;prompt\n20;100;10\n40;1600;30\n")) == expected
    assert lengths(of_text("2026-01-01T00:00:00Z\t10\t20\n2026-01-01T00:00:01.5Z\t30\t40\n")) == expected


def test_requests_come_by_their_arrival() -> None:
    assert lengths(of_text("5,1,1\n3,2,2\n8,3,3\n")) == [(0.0, 2, 2), (2.0, 1, 1), (5.0, 3, 3)]


def test_a_detailed_result_of_vllm() -> None:
    assert lengths(read("vllm-detailed.json")) == [(0.0, 100, 10), (0.5, 200, 20), (2.0, 400, 40)]


def test_guidellm_has_a_run_for_each_rate() -> None:
    with pytest.raises(ImportRefused, match=r"guidellm.json: holds 2 runs; allowed: --trace-part from 1 to 2"):
        read("guidellm.json")
    assert lengths(read("guidellm.json", part=2)) == [(0.0, 500, 50), (0.25, 500, 50), (1.0, 500, 50)]
    with pytest.raises(ImportRefused, match="has no run 3"):
        read("guidellm.json", part=3)


def test_sharegpt_has_texts_and_no_times() -> None:
    trace = read("sharegpt.json")
    assert [(request.prompt, request.answer) for request in trace.requests] == [(100, 20), (20, 10)]
    assert not trace.timed
    traffic = traffic_at_rate(trace, "f", rate=10.0, seconds=100.0, burstiness=1.0, seed=1)
    assert traffic.requests == pytest.approx(1000, rel=0.1)
    assert [request.prompt for request in traffic.arrivals[:4]] == [100, 20, 100, 20]


def test_a_cut_is_from_the_first_request_on() -> None:
    trace = read("azure-2023-code.csv", begin_s=1.0, end_s=3.0)
    whole = [one for one in read("azure-2023-code.csv").requests if 1.0 <= one.arrival_s < 3.0]
    assert [one.prompt for one in trace.requests] == [one.prompt for one in whole]
    assert trace.requests[0].arrival_s == pytest.approx(whole[0].arrival_s - 1.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "t: is empty"),
        ("a,b,c\n1,2,3\n", r"t: has no tokens of the prompt \(it has 'a, b, c'\); allowed: contexttokens, "),
        ("time,prompt,answer\n1,2\n", "t:2: has 2 cells; allowed: 3, as the header has"),
        ("time,prompt,answer\nnoon,2,3\n", "t:2: time: is 'noon'; allowed: a number of seconds, or a time such as"),
        ("time,prompt,answer\n1,2,many\n", "t:2: answer: is 'many'; allowed: tokens from 0 to 100,000,000"),
        ("time,prompt,answer\n1,2,-3\n", "t:2: answer: is '-3'"),
        ("time,prompt,answer\n1,0,0\n", "t: all requests are without tokens, of 1 in it"),
        ("time,prompt,answer\n", "t: has no request"),
        ("2023-13-45 99:00:00,1,1\n", "is '2023-13-45 99:00:00'"),
        ('{"input_length": 1, "output_length": 2}\n{"input', "t:2: is no JSON"),
        ('{"input_length": 1, "output_length": 2}\n[]', "t:2: is no JSON object; allowed: an object"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 2, "hash_ids": {}}', "hash_ids: is '{}'"),
        ('{"mean_ttft_ms": 4}', "is no trace of requests that gpumon knows; allowed: lines with timestamp"),
        ("[1, 2]", "is no trace of requests that gpumon knows"),
        ("{", "t:1: is no JSON"),
        ("time,prompt,answer,text\n1,2,3," + "a" * 200_000, "t: is no CSV: field larger than field limit"),
        ("a" * 200_000, "t: is no CSV: field larger than field limit"),
        (
            "time,prompt,answer\n0,2,3\n1700000000,2,3\n",
            r"t: request 2 is 1.7e\+09 s from the first one; allowed: 31,622",
        ),
        ("time,prompt,answer\n-1e308,2,3\n1e308,2,3\n", "t: request 2 is inf s from the first one"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 2}', "t:1: timestamp: is 'nan'; allowed: a number"),
        ('{"timestamp": Infinity, "input_length": 1, "output_length": 2}', "t:1: timestamp: is 'inf'"),
        ("[" * 200_000, "t: is no JSON"),
        ('{"benchmarks": [{"requests": {"successful": 5}}]}', "is no trace of requests that gpumon knows"),
        ("\0\0\n", "t: holds binary data; allowed: text in UTF-8, also packed by gzip"),
        pytest.param(
            "[\n" + "[],\n" * 10_000_000,
            "t: is a document of more than 10,000,000 lists and objects",
            id="too many lists",
        ),
    ],
)
def test_what_is_no_trace_is_refused_with_place_and_remedy(text: str, why: str) -> None:
    with pytest.raises(ImportRefused, match=why):
        of_text(text)


def traffic(text: str, *, time_scale: float = 1.0, rate_factor: float = 1.0) -> TraceTraffic:
    return traffic_of_trace(of_text(text), "f", time_scale=time_scale, rate_factor=rate_factor, seed=1)


STEADY = "".join(f"{second},10,20\n" for second in range(600))


def test_time_scale_stretches_and_rate_factor_multiplies() -> None:
    plain = traffic(STEADY)
    assert (plain.requests, plain.seconds, plain.peak_rate) == (600, 599.0, pytest.approx(1.0, rel=0.01))
    slower = traffic(STEADY, time_scale=2.0)
    assert (slower.requests, slower.seconds) == (600, 1198.0)
    more = traffic(STEADY, rate_factor=3.0)
    assert (more.requests, more.seconds, more.peak_rate) == (1800, 599.0, pytest.approx(3.0, rel=0.02))
    assert sorted(more.arrivals, key=lambda one: one.arrival_s) == list(more.arrivals)
    fewer = traffic(STEADY, rate_factor=0.5)
    assert fewer.requests == pytest.approx(300, rel=0.15)
    assert "0.5 times as many" in fewer.timing


def test_too_many_requests_or_none_are_refused_before_they_fill_the_memory() -> None:
    with pytest.raises(ValueError, match="600,000,000 requests are too many to simulate: at most 2,000,000"):
        traffic(STEADY, rate_factor=1e6)
    with pytest.raises(ValueError, match="no request is left of the trace: give a higher --rate-factor"):
        traffic("0,10,20\n1,10,20\n", rate_factor=1e-3)
    with pytest.raises(ValueError, match="requests are too many to simulate"):
        traffic_at_rate(of_text("prompt,answer\n1,1\n"), "f", rate=1e6, seconds=600.0, burstiness=1.0, seed=1)


def test_the_peak_counts_minutes_without_requests_and_a_long_pause_takes_no_time() -> None:
    by_minute = "".join(f"{60 * minute},10,20\n" * (minute % 10 == 0) for minute in range(101))
    assert traffic(by_minute).peak_rate == pytest.approx(1 / 60)
    rare = "".join(f"{60 * minute},10,20\n" for minute in (0, 1, 200))
    assert traffic(rare).peak_rate == pytest.approx(3 / 12_000)
    assert traffic(rare, time_scale=1e12).peak_rate == pytest.approx(3 / 12e15)


def test_copies_share_no_prefix_with_the_requests_that_they_copy() -> None:
    line = '{{"timestamp": {}, "input_length": 1024, "output_length": 4, "hash_ids": [1, {}]}}\n'
    text = "".join(line.format(100 * number, 2 + number) for number in range(10))
    doubled = traffic(text, rate_factor=2.0)
    single = traffic(text)
    assert doubled.most_hits == pytest.approx(single.most_hits)
    assert single.most_hits == pytest.approx(9 * 512 / (10 * 1024))


def test_a_prompt_longer_than_the_context_loses_pieces_of_its_beginning_too() -> None:
    text = '{"timestamp": 0, "input_length": 2000, "output_length": 50, "hash_ids": [1, 2, 3, 4]}'
    (request,) = traffic(text).played(longest=1000, seconds=None)
    assert (request.prompt, request.answer, request.shared, len(request.prefix)) == (950, 50, 950, 2)
    (typed,) = traffic(text)._replace(hit_ratio=0.5).played(longest=math.inf, seconds=None)
    assert typed == PlayedRequest(0.0, 2000, 50, cached=1000)
