"""Settings as words: options of a command line, what differs, and what a span makes of counters and settings."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.before_after import COMPARED_FIGURES, figure_change
from gpumon.efficiency.deriver import Deriver, snapshot_without_things
from gpumon.efficiency.facts import OPTIONS_KNOWN, differing_facts, engine_facts, host_facts, options_of
from gpumon.efficiency.span import ThingSpan
from gpumon.readings import quantities as q
from gpumon.readings.change_words import after_text, before_text, difference_text
from gpumon.readings.frame import EndpointState, EngineReading, Frame, HistogramReading, HostReading, RankReading
from gpumon.readings.verdict import Kind
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.records import replace

Changes = list[tuple[str, str, str]]


@each_row(
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


@each_row(
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
    assert list(differing_facts(options_of(before), options_of(after))) == changes


@each_row(
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
    assert bool([*differing_facts({code: before}, {code: after})]) is is_other


def poll(time_s: float, requests: float) -> EngineReading:
    """Each request waited half a second for its first token."""
    waits = HistogramReading((1.0, math.inf), (requests, requests), requests / 2.0, requests)
    ranks = (RankReading("0", {q.REQUESTS: requests}, {}, {q.TTFT: waits}),)
    return EngineReading("vllm:8000", "http://127.0.0.1:8000", EndpointState.OK, time_s, ranks=ranks)


def test_requests_between_two_parts_of_a_span_are_counted_and_those_since_a_restart() -> None:
    span = ThingSpan("vllm:8000", 3)
    for place, time_s, requests in ((0, 0.0, 100.0), (0, 10.0, 120.0), (1, 20.0, 140.0), (2, 30.0, 5.0)):
        span.take_poll(place, poll(time_s, requests), time_s)
    assert span.whole.rate(q.REQUESTS) == pytest.approx(1.5)
    assert [part.rate(q.REQUESTS) for part in span.by_part()] == pytest.approx([2.0, 2.0, 0.5])


@each_row(
    ("polls", "served"),
    [
        # It restarts, and then counts on beyond where it stood at first.
        (((0.0, 100.0), (10.0, 300.0), (20.0, 10.0), (30.0, 210.0)), 410.0),
        (((0.0, 10.0), (10.0, 210.0), (20.0, 0.0), (30.0, 200.0)), 400.0),
    ],
)
def test_a_restart_within_a_part_is_seen_whatever_is_counted_after_it(
    polls: tuple[tuple[float, float], ...], served: float
) -> None:
    span = ThingSpan("vllm:8000", 1)
    for time_s, requests in polls:
        span.take_poll(0, poll(time_s, requests), time_s)
    assert span.whole.rate(q.REQUESTS) == pytest.approx(served / 30.0)
    waits = span.whole.histogram(q.TTFT)
    assert waits is not None
    assert (waits.count, waits.sum) == (served, served / 2.0)


def test_tokens_for_money_and_energy_are_those_of_the_counter_where_there_is_one() -> None:
    """The counter has all of the span; the rate of a moment is that of the 10 s before it."""
    span = ThingSpan("vllm:8000", 1)
    for time_s, tokens in ((0.0, 0.0), (30.0, 3000.0)):
        reading = poll(time_s, 1.0)
        ranks = (RankReading("0", {q.DECODE_TOKENS: tokens}, {}, {}),)
        span.take_poll(0, replace(reading, ranks=ranks), time_s)
        span.take(0, {"decode_tokens_per_s": 400.0, "power_w": 50.0, "cost_per_hour": 3.6})
    figures = {spec.code: figure_change(spec, span, span).after for spec in COMPARED_FIGURES[Kind.ENGINE]}
    assert figures["decode_tokens_per_s"] == pytest.approx(100.0)
    assert figures["tokens_per_j"] == pytest.approx(2.0)
    assert figures["cost_per_million_output_tokens"] == pytest.approx(10.0)


def test_of_a_command_line_that_was_cut_no_option_is_missing() -> None:
    options = " ".join(f"--option-{number:03} value" for number in range(60))
    before = options_of(f"vllm serve m {options} --last 1")
    after = options_of(f"vllm serve m --new-one 1 {options} --last 1")
    assert list(differing_facts(before, after)) == []
    assert list(differing_facts(before, options_of(f"vllm serve m --option-000 other {options}"[:200] + "…"))) == []


def test_a_start_that_no_calendar_has_is_no_setting() -> None:
    engines = []
    for started_s in (1.8e9, 1e15):
        reading = replace(poll(1.0, 1.0), started_wall_s=started_s)
        frame = Frame(0, 1.0, 1.0, 1.0, HostReading(name="box"), engines=(reading,))
        (engine,) = Deriver(gpu_catalogue()).derive(frame).snapshot.engines
        engines.append(engine_facts(engine, reading, ()))
    assert engines[0]["started"] == "1800000000"
    assert "started" not in engines[1]


def test_settings_of_another_machine_are_safe_to_print() -> None:
    snapshot = snapshot_without_things(Frame(0, 1.0, 1.0, 1.0, HostReading(name="box")))
    host = replace(snapshot.host, driver="580\x1b]0;x\x07", cuda="13\x9b2J")
    for text in host_facts(host, snapshot).values():
        assert text.isprintable()


def test_a_setting_that_changes_within_a_span_is_marked() -> None:
    span = ThingSpan("vllm:8000", 1)
    span.take_facts({"version": "0.32.0", "model": "m"})
    span.take_facts({"version": "0.33.0", "model": "m"})
    assert span.mixed == {"version"}
    assert span.facts["version"] == "0.33.0"


def span_of_waits(late_ratio: float) -> ThingSpan:
    """Ten requests a second for a minute, of which so many are behind the last bound of the histogram."""
    span = ThingSpan("vllm:8000", 6)
    for second in range(0, 61, 2):
        count = 10.0 * second
        late = late_ratio * count
        bounds = (0.25, 1.0, math.inf)
        waits = HistogramReading(bounds, (0.0, count - late, count), 0.5 * count + 3.0 * late, count)
        reading = replace(poll(float(second), count), ranks=(RankReading("0", {}, {}, {q.TTFT: waits}),))
        span.take_poll(min(5, second // 10), reading, float(second))
    return span


@each_row(
    ("before", "after", "texts"),
    [
        (0.0, 0.5, ["962ms", ">1.0s", ">+4%"]),
        (0.5, 0.0, [">1.0s", "962ms", "<-4%"]),
        (0.5, 0.6, [">1.0s", ">1.0s", "in noise"]),
        (0.0, 0.0, ["962ms", "962ms", "same"]),
    ],
)
def test_a_quantile_beyond_the_last_bound_is_a_least_value_and_so_is_its_difference(
    before: float, after: float, texts: list[str]
) -> None:
    (spec,) = (spec for spec in COMPARED_FIGURES[Kind.ENGINE] if spec.code == "ttft_p95_s")
    change = figure_change(spec, span_of_waits(before), span_of_waits(after))
    assert [before_text(change), after_text(change), difference_text(change)] == texts
    assert (change.before_is_least, change.after_is_least) == (before > 0.0, after > 0.0)
