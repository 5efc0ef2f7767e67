"""Settings as words: options of a command line, what differs, and what a span makes of counters and settings."""

from __future__ import annotations

import pytest

from gpumon.efficiency.facts import OPTIONS_KNOWN, differing, options_of
from gpumon.efficiency.span import ThingSpan
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, RankReading

Changes = list[tuple[str, str, str]]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("vllm serve m --max-num-seqs 64 --enforce-eager", {"--max-num-seqs": "64", "--enforce-eager": "on"}),
        ("vllm serve m --max-num-seqs=64 --port 8000", {"--max-num-seqs": "64"}),
        ("llama-server -m *** -np 4 --temp -1", {"-m": "***", "-np": "4", "--temp": "-1"}),
        ("sglang serve --lora-paths a b --tp 2", {"--lora-paths": "a b", "--tp": "2"}),
    ],
)
def test_options_are_read_with_their_values(command: str, options: dict[str, str]) -> None:
    facts = options_of(command)
    assert facts.pop(OPTIONS_KNOWN) == "yes"
    assert facts == {f"option {name}": value for name, value in options.items()}


def test_without_a_command_line_nothing_is_known() -> None:
    assert options_of("") == {}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("vllm serve m --tp 2", "vllm serve m --tp 4", [("option --tp", "2", "4")]),
        ("vllm serve m", "vllm serve m --tp 4", [("option --tp", "", "4")]),
        ("vllm serve m --tp 2", "vllm serve m", [("option --tp", "2", "")]),
        ("", "vllm serve m --tp 4", []),
        ("vllm serve m --port 1", "vllm serve m --port 2", []),
    ],
)
def test_an_option_that_was_not_given_differs_only_where_both_command_lines_are_known(
    before: str, after: str, changes: Changes
) -> None:
    assert list(differing(options_of(before), options_of(after))) == changes


@pytest.mark.parametrize(
    ("code", "before", "after", "is_other"),
    [
        ("kv_pool", "100000", "100900", False),
        ("kv_pool", "100000", "103000", True),
        ("started", "1800000000", "1800000002", False),
        ("started", "1800000000", "1800000030", True),
        ("clock", "1980 MHz", "1950 MHz", False),
        ("clock", "1980 MHz", "990 MHz", True),
        ("version", "0.32.0", "0.33.0", True),
        ("version", "", "0.33.0", False),
    ],
)
def test_what_varies_by_itself_is_no_difference(code: str, before: str, after: str, is_other: bool) -> None:
    assert bool([*differing({code: before}, {code: after})]) is is_other


def poll(time_s: float, requests: float) -> EngineReading:
    ranks = (RankReading("0", {q.REQUESTS: requests}, {}, {}),)
    return EngineReading("vllm:8000", "http://127.0.0.1:8000", EndpointState.OK, time_s, ranks=ranks)


def test_requests_between_two_parts_of_a_span_are_counted_and_a_restart_costs_its_part_alone() -> None:
    span = ThingSpan("vllm:8000", 3)
    for place, time_s, requests in ((0, 0.0, 100.0), (0, 10.0, 120.0), (1, 20.0, 140.0), (2, 30.0, 5.0)):
        span.take_poll(place, poll(time_s, requests))
    assert span.whole.rate(q.REQUESTS) == pytest.approx(2.0)
    assert [part.rate(q.REQUESTS) for part in span.each()] == [pytest.approx(2.0), pytest.approx(2.0), None]


def test_a_setting_that_changes_within_a_span_is_marked() -> None:
    span = ThingSpan("vllm:8000", 1)
    span.take_facts({"version": "0.32.0", "model": "m"})
    span.take_facts({"version": "0.33.0", "model": "m"})
    assert span.mixed == {"version"}
    assert span.facts["version"] == "0.33.0"
