"""Before and after: what is named as changed is exactly what the play changed, and nothing in one that goes on."""

from __future__ import annotations

import time

import pytest

from gpumon.demo.scenarios import scenario
from gpumon.history.compared import GoingComparison, TooShortError, compare_spans, spans_of
from gpumon.history.memory import MemoryStore
from gpumon.outputs.before_after import report
from gpumon.readings.before_after import BeforeAfter, SeenOn
from gpumon.readings.change_words import load_text
from gpumon.readings.format import cells
from gpumon.readings.missing import Missing
from gpumon.readings.verdict import Kind, Limit
from gpumon.readings.when import OutsideError, Stretch, stretch_of
from tests.accuracy.triage import frames
from tests.each_row import each_row
from tests.history.changed import (
    DOUBLED,
    LOCKED,
    LOWERED,
    MORE_SLOTS,
    RATE,
    RESTARTED,
    answer_of,
    changed,
    named,
    only,
)
from tests.history.pasts import lived, make

EVERY = (Kind.HOST, Kind.ENGINE, Kind.GPU)


@pytest.fixture(scope="module")
def doubled() -> BeforeAfter:
    return answer_of(DOUBLED)


def test_twice_the_load_is_said_and_latencies_are_not_comparable_then(doubled: BeforeAfter) -> None:
    engine = only(doubled, Kind.ENGINE)
    assert named(doubled) == {}
    assert engine.load == "requests_per_s"
    assert engine.load_ratio == pytest.approx(2.0, abs=0.3)
    assert not engine.is_comparable
    assert {"requests_per_s", "decode_tokens_per_s", "running", "itl_mean_s"} <= changed(doubled, Kind.ENGINE)
    rates = engine.figures[0]
    assert (rates.before, rates.after) == (pytest.approx(RATE, rel=0.2), pytest.approx(2 * RATE, rel=0.2))


def test_quantiles_are_of_all_requests_of_a_span(doubled: BeforeAfter) -> None:
    """About 450 requests before and 900 after: far more than the 60 s of the screen have."""
    figures = {figure.code: figure for figure in only(doubled, Kind.ENGINE).figures}
    for side in ("before", "after"):
        p50 = getattr(figures["ttft_p50_s"], side)
        p95 = getattr(figures["ttft_p95_s"], side)
        assert 0.0 < p50 < p95 < 1.0
    assert figures["ttft_goal_ratio"].goal_s == 1.0


def test_a_clock_at_half_is_the_only_setting_that_is_another() -> None:
    answer = answer_of(LOCKED)
    assert named(answer) == {"gpu 0": {"clock": ("1980 MHz", "990 MHz")}}
    assert {"itl_mean_s", "ttft_mean_s"} <= changed(answer, Kind.ENGINE)
    assert "requests_per_s" not in changed(answer, Kind.ENGINE)
    stood = {change.verdict.code: change for change in answer.verdicts}
    assert stood[Limit.THROTTLED].before_ratio == 0.0 < stood[Limit.THROTTLED].after_ratio


def test_a_lowered_power_limit_is_named_where_it_costs_nothing_yet() -> None:
    answer = answer_of(LOWERED)
    assert named(answer) == {"gpu 0": {"power_limit": ("700 W", "600 W")}}
    assert [changed(answer, kind) for kind in EVERY] == [set(), set(), set()]
    assert only(answer, Kind.ENGINE).load_ratio == pytest.approx(1.0, abs=0.2)
    assert only(answer, Kind.ENGINE).is_comparable


def test_an_option_that_was_raised_and_what_it_did_for_those_who_waited() -> None:
    answer = answer_of(MORE_SLOTS)
    changes = named(answer)
    assert changes.keys() == {"llama-8b"}
    assert changes["llama-8b"].keys() == {"started", "--max-num-seqs"}
    assert changes["llama-8b"]["--max-num-seqs"] == ("12", "64")
    assert {"ttft_p95_s", "queue_mean_s", "waiting"} <= changed(answer, Kind.ENGINE)
    assert only(answer, Kind.ENGINE).is_comparable


def test_a_restart_with_the_same_options_is_a_restart_and_no_more() -> None:
    answer = answer_of(RESTARTED)
    assert {name: set(changes) for name, changes in named(answer).items()} == {"llama-8b": {"started"}}
    assert [changed(answer, kind) for kind in EVERY] == [set(), set(), set()]
    assert only(answer, Kind.ENGINE).seen is SeenOn.BOTH


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_and_says_the_load_before_the_figures(doubled: BeforeAfter, width: int) -> None:
    lines = report(doubled, width).splitlines()
    assert all(cells(line) <= width for line in lines)
    head = next(place for place, line in enumerate(lines) if line.startswith("engine llama-8b: at 2"))
    assert head < next(place for place, line in enumerate(lines) if "TTFT p95" in line)
    assert " in noise" in "\n".join(lines)


def test_a_load_of_which_a_part_is_turned_away_is_called_offered(doubled: BeforeAfter) -> None:
    """Requests that are served go up by more than those that arrive, where fewer are turned away."""
    engine = only(answer_of(scenario("kv-cache-full")), Kind.ENGINE)
    figures = {figure.code: figure for figure in engine.figures}
    offered = [
        getattr(figures["requests_per_s"], side) + getattr(figures["rejections_per_s"], side)
        for side in ("before", "after")
    ]
    assert engine.load_ratio == pytest.approx(offered[1] / offered[0])
    assert "(offered requests/s)" in load_text(engine)
    assert "(requests/s)" in load_text(only(doubled, Kind.ENGINE))


def means(answer: BeforeAfter) -> dict[tuple[str, str], list[float]]:
    """The running requests, decode rates and power of all things, on both sides."""
    figures = {}
    for thing in answer.things:
        for figure in thing.figures:
            if figure.code in ("running", "decode_tokens_per_s", "power_w"):
                sides = (figure.before, figure.after)
                figures[thing.name, figure.code] = [side for side in sides if not isinstance(side, Missing)]
    return figures


def test_a_comparison_that_goes_on_says_what_one_from_the_beginning_says() -> None:
    store = MemoryStore(3600.0, 1e9)
    lived((frame for _, frame in frames(MORE_SLOTS, 260.0, every_s=4)), store)
    held = store.span()
    assert held is not None
    marked_s = held[0] + 110.0
    going = GoingComparison(store, make)
    for at_s in (held[1] - 60.0, held[1] - 20.0, held[1] - 64.0, held[1]):
        moments = (Stretch(marked_s, marked_s), Stretch(at_s, at_s))
        spans = spans_of(*moments, 300.0, Stretch(*held))
        answer = going.compare(*spans)
        whole = compare_spans(store, make, *spans)
        assert named(answer) == named(whole)
        assert answer.after.end == whole.after.end
        assert answer.before.moments >= 0.4 * whole.before.moments
        for name, figures in means(whole).items():
            assert means(answer)[name] == pytest.approx(figures, rel=0.1, abs=0.5), (at_s, name)


def test_a_span_that_is_too_short_is_told_in_the_time_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with pytest.raises(TooShortError, match="the span that ends at 09:00:02 has 1 s"):
            spans_of(Stretch(2.0, 2.0), Stretch(4.0, 4.0), 300.0, Stretch(0.0, 4.0))
    finally:
        monkeypatch.undo()
        time.tzset()


HELD = Stretch(1000.0, 5000.0)


@each_row(
    ("before", "after", "length_s", "spans"),
    [
        ((2000, 2000), (4000, 4000), 300, ((1700, 2000), (3700, 4000))),
        ((1000, 1000), (4000, 4000), 300, ((1000, 1300), (3700, 4000))),
        ((2000, 2000), (2100, 2100), 300, ((1950, 2000), (2050, 2100))),
        ((1040, 1040), (1210, 1210), 300, ((1000, 1040), (1125, 1210))),
        ((1002, 1002), (1210, 1210), 300, ((1000, 1104), (1106, 1210))),
        ((2000, 2400), (4000, 4000), 300, ((2000, 2400), (3700, 4000))),
        ((4000, 4000), (2000, 2000), 300, ((3700, 4000), (1700, 2000))),
    ],
)
def test_a_moment_is_the_end_of_its_span(
    before: tuple[float, float],
    after: tuple[float, float],
    length_s: float,
    spans: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    assert spans_of(Stretch(*before), Stretch(*after), length_s, HELD) == spans


def test_spans_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(TooShortError, match="needs 10 s on each side"):
        spans_of(Stretch(2000, 2000), Stretch(2005, 2005), 300.0, HELD)
    with pytest.raises(TooShortError, match="overlap"):
        spans_of(Stretch(2000, 2400), Stretch(2300, 2600), 300.0, HELD)


def test_a_span_is_written_with_two_dots() -> None:
    held = (1_800_000_000.0, 1_800_003_600.0)
    assert stretch_of("-10m..-5m", held) == (held[1] - 600.0, held[1] - 300.0)
    assert stretch_of("-10m", held) == (held[1] - 600.0, held[1] - 600.0)
    with pytest.raises(ValueError, match="ends before it begins"):
        stretch_of("-5m..-10m", held)
    with pytest.raises(OutsideError):
        stretch_of("-5m..-3h", held)


def test_a_figure_that_nobody_has_is_left_out(doubled: BeforeAfter) -> None:
    """No price is set, and nothing is trained here."""
    for thing in doubled.things:
        assert not {figure.code for figure in thing.figures} & {"cost_per_hour", "trained_tokens_per_s"}
