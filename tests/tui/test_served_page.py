"""The page of an engine says what its users sent and got: recorded servers, polled over HTTP, to the lines shown."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.config.schema import Config
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Snapshot, WithinGoal
from gpumon.tui.detail import engine as engine_page
from gpumon.tui.detail.blocks import lay_out
from gpumon.tui.marked import Marked
from gpumon.tui.view import View
from tests.accuracy.replay import replays
from tests.each_row import each_row
from tests.tui import scenes


@pytest.fixture(scope="module", name="queued")
def engine_that_queued() -> Engine:
    return last_of("vllm-mfu-queue-prefix-abort")


@pytest.fixture(scope="module", name="speculating")
def engine_that_speculated() -> Engine:
    return last_of("vllm-ngram")


def last_of(capture: str) -> Engine:
    """A recorded engine at its last good poll."""
    (done,) = replays([capture])
    return next(tick.engine for tick in reversed(done.ticks) if tick.reading.state is EndpointState.OK)


def page(engine: Engine, view: View | None = None, wall_s: float | None = None) -> list[str]:
    """The lines of its page on 120 columns."""
    snapshot = msgspec.structs.replace(scenes.snapshot(), engines=(engine,))
    if wall_s is not None:
        snapshot = msgspec.structs.replace(snapshot, wall_s=wall_s)
    sections = engine_page.sections(engine, snapshot, view or View(Config()))
    return ["".join(text for text, _ in row).rstrip() for row in lay_out(sections, 120)]


def section(lines: list[str], title: str) -> list[str]:
    """The lines of a section, without its title."""
    start = next(number for number, line in enumerate(lines) if line.startswith(f" {title}"))
    return lines[start + 1 : lines.index("", start)]


def words(line: str) -> list[str]:
    return line.split()


def test_shares_within_the_goals_are_exact_at_bounds(queued: Engine) -> None:
    goals = section(page(queued), "within the goals")
    assert words(goals[0])[:4] == ["TTFT", "in", "goal", "22.78%"]
    assert "= 36 of 158 requests within 1.000 s (goal)" in goals[1]


def test_a_goal_inside_a_bucket_gives_two_bounds_and_an_assumed_one_says_so(queued: Engine) -> None:
    shares = queued.goodput
    between = msgspec.structs.replace(shares.ttft_goal, low_ratio=0.25, high_ratio=0.5, count=100.0)
    goodput = msgspec.structs.replace(shares, ttft_goal=between, ttft_goal_assumed=True)
    goals = section(page(msgspec.structs.replace(queued, goodput=goodput)), "within the goals")
    assert words(goals[0])[3:5] == ["25–50%", "estimated"]
    assert "between 25 and 50 of 100 requests within 1.000 s (assumed), which lies inside a bucket" in goals[1]
    assert any("no verdict uses them" in line for line in goals)


def test_a_promise_that_http_can_break_is_said_to_be_in_doubt(queued: Engine) -> None:
    shares = queued.goodput
    kept = msgspec.structs.replace(shares.ttft_goal, low_ratio=0.97, high_ratio=0.97, users_low_ratio=0.5, count=100.0)
    goodput = msgspec.structs.replace(shares, ttft_goal=kept, ttft_goal_assumed=False)
    goals = " ".join(section(page(msgspec.structs.replace(queued, goodput=goodput)), "within the goals"))
    assert "as users see it 50–97%: HTTP adds up to 25 ms, so it is not known whether 95% keep the goal" in goals
    assumed = msgspec.structs.replace(goodput, ttft_goal_assumed=True)
    goals = " ".join(section(page(msgspec.structs.replace(queued, goodput=assumed)), "within the goals"))
    assert "as users see it 50–97%" in goals
    assert "not known" not in goals


def test_outcomes_by_finish_reason_and_no_row_of_what_is_not_counted(queued: Engine) -> None:
    ended = {words(line)[0]: words(line)[1:] for line in section(page(queued), "how requests ended")[1:]}
    assert ended["length"] == ["146", "92.4%", "146"]
    assert ended["abort"] == ["12", "7.6%", "12"]
    assert ended["error"] == ["0", "0.0%", "0"]
    silent = msgspec.structs.replace(queued.served.outcomes, stopped=Missing(Reason.NOT_EXPOSED))
    never = msgspec.structs.replace(queued.served.outcomes_since_start, stopped=Missing(Reason.NOT_EXPOSED))
    served = msgspec.structs.replace(queued.served, outcomes=silent, outcomes_since_start=never)
    lines = section(page(msgspec.structs.replace(queued, served=served)), "how requests ended")
    assert not any(words(line)[0] == "stop" for line in lines)


def test_shares_of_outcomes_add_up_with_requests_that_were_turned_away(queued: Engine) -> None:
    recent = msgspec.structs.replace(queued.served.outcomes, ended=675.0, stopped=675.0, cut=0.0, rejected=421.0)
    served = msgspec.structs.replace(queued.served, outcomes=recent)
    lines = section(page(msgspec.structs.replace(queued, served=served)), "how requests ended")
    ended = {line[2:14].strip(): words(line[14:])[:2] for line in lines[1:-1]}
    assert ended["ended"] == ["675", "61.6%"]
    assert ended["stop"] == ["675", "61.6%"]
    assert ended["turned away"] == ["421", "38.4%"]
    assert lines[-1].strip() == "shares of the 1,096 requests that ended, were turned away or refused"


def test_the_row_that_a_column_shows_names_it_and_both_goals_are_named(queued: Engine) -> None:
    low = queued.goodput.itl_goal
    by_request = msgspec.structs.replace(low, low_ratio=0.5, high_ratio=0.5, count=100.0)
    by_token = msgspec.structs.replace(low, low_ratio=0.9, high_ratio=0.9, count=1000.0)
    both = msgspec.structs.replace(queued.goodput, tpot_goal=by_request, itl_goal=by_token)
    goals = section(page(msgspec.structs.replace(queued, goodput=both)), "within the goals")
    assert "column `ttft ok`" in below(goals, "TTFT in goal")
    assert "column `itl ok`" in below(goals, "TPOT in goal")
    assert "column" not in below(goals, "ITL in goal")
    assert any("within both the TTFT and the TPOT goal" in line for line in goals)
    tokens_only = msgspec.structs.replace(both, tpot_goal=WithinGoal())
    goals = section(page(msgspec.structs.replace(queued, goodput=tokens_only)), "within the goals")
    assert "column `itl ok`" in below(goals, "ITL in goal")


def below(lines: list[str], name: str) -> str:
    """The last line of a figure: its formula."""
    place = next(number for number, line in enumerate(lines) if line.startswith(f"  {name}"))
    return next(line for line in lines[place:] if line.startswith("    = "))


def test_cached_tokens_by_source_are_no_hit_rate(queued: Engine) -> None:
    by_source = msgspec.structs.replace(queued.served.cached_by, device_ratio=1.0)
    served = msgspec.structs.replace(queued.served, cached_by=by_source)
    lines = section(page(msgspec.structs.replace(queued, served=served)), "cached tokens by source")
    assert lines[0].strip().startswith("% of the cached tokens of the last 2 min")
    assert words(lines[1])[:3] == ["GPU", "memory", "100.00%"]


def test_lengths_by_bucket_and_the_context_that_held_all(queued: Engine) -> None:
    lines = section(page(queued), "lengths")
    assert words(lines[1]) == ["prompt", "676", "500–1,000", "500–1,000", "500–1,000"]
    assert words(lines[2]) == ["answer", "111", "50–100", "200–500", "500–1,000"]
    assert "--max-model-len of 2,000 tokens would have held every request" in lines[-1]


@each_row(
    ("kind", "option"),
    [
        (EngineKind.SGLANG, "--context-length"),
        (EngineKind.TGI, "--max-total-tokens"),
        (EngineKind.FASTDEPLOY, "the longest context"),
    ],
)
def test_the_context_that_held_all_has_the_name_of_the_engines_own_option(
    queued: Engine, kind: EngineKind, option: str
) -> None:
    lines = section(page(msgspec.structs.replace(queued, kind=kind)), "lengths")
    assert f"{option} of 2,000 tokens would have held every request" in lines[-1]
    assert "max-model-len" not in lines[-1]


def test_the_bar_of_phases_adds_up(queued: Engine) -> None:
    lines = section(page(queued), "where a request's time goes")
    shares = [float(words(line)[-1].removesuffix("%")) for line in lines[1:-1]]
    assert sum(shares) == pytest.approx(100.0, abs=0.2)
    assert len(set(lines[0].strip())) == len(shares), "each has a glyph of its own"
    assert "2.211 s from end to end" in lines[-1]


def test_accepted_tokens_by_position(speculating: Engine, queued: Engine) -> None:
    lines = section(page(speculating), "speculation")
    assert [words(line)[2] for line in lines[:4]] == ["86.5%", "67.9%", "59.6%", "52.0%"]
    assert lines[4].strip().startswith("3.66 tokens per step and sequence")
    assert not any(line.startswith(" speculation") for line in page(queued))


def test_what_was_done_since_the_mark(queued: Engine) -> None:
    before = marked_before(queued)
    view = View(Config())
    view.marked = Marked(before)
    view.marked.take(with_load(before, running=9.0))
    view.marked.take(with_load(before, running=1.0))
    lines = section(page(queued, view, before.wall_s + 30.0), "since the mark")
    figures = {line[2:20].strip(): words(line[20:])[0] for line in lines}
    assert figures["requests"] == "58"
    assert figures["most running"] == "9"
    assert not any(line.startswith(" since the mark") for line in page(queued, view, before.wall_s - 1.0))


def test_since_the_mark_stands_first_and_counts_outcomes_over_a_restart(queued: Engine) -> None:
    before = with_outcomes(marked_before(queued), ended=100.0, failed=2.0, aborted=5.0, rejected=10.0)
    now = with_outcomes(before, ended=158.0, failed=3.0, aborted=12.0, rejected=40.0)
    (engine,) = now.engines
    view = View(Config())
    view.marked = Marked(before)
    view.marked.take(now)
    lines = page(engine, view, before.wall_s + 30.0)
    titles = [line.strip() for line in lines if line.startswith(" ") and line[1:2].strip()]
    assert titles[0].startswith("since the mark")
    assert titles[1] == "load"
    figures = {line[2:20].strip(): words(line[20:])[0] for line in section(lines, "since the mark")}
    assert (figures["errors"], figures["aborted"], figures["turned away"]) == ("1", "7", "30")
    view.marked.take(with_outcomes(before, ended=4.0, failed=0.0, aborted=3.0, rejected=0.0))
    lines = section(page(engine, view, before.wall_s + 60.0), "since the mark")
    figures = {line[2:20].strip(): words(line[20:])[0] for line in lines}
    assert (figures["errors"], figures["aborted"], figures["turned away"]) == ("1", "10", "30")


def test_mean_latencies_since_the_mark_are_of_what_was_observed_since(queued: Engine) -> None:
    before = with_means(marked_before(queued), seconds=100.0, ttft_s=0.5, ttft_count=100.0, itl_s=0.02, itl_count=1e4)
    now = with_means(before, seconds=130.0, ttft_s=0.8, ttft_count=200.0, itl_s=0.03, itl_count=2e4)
    view = View(Config())
    view.marked = Marked(before)
    view.marked.take(now)
    lines = section(page(now.engines[0], view, before.wall_s + 30.0), "since the mark")
    figures = {line[2:20].strip(): words(line[20:])[:2] for line in lines}
    assert figures["TTFT, mean"] == ["1.100", "s"]
    assert figures["ITL, mean"] == ["40.00", "ms"]
    restarted = with_means(now, seconds=61.0, ttft_s=0.5, ttft_count=20.0)
    view.marked.take(restarted)
    lines = section(page(restarted.engines[0], view, before.wall_s + 99.0), "since the mark")
    figures = {line[2:20].strip(): words(line[20:])[:2] for line in lines}
    assert figures["TTFT, mean"] == ["1.000", "s"], "100 of 1.1 s and 20 of 0.5 s"


def with_means(snapshot: Snapshot, **means: float) -> Snapshot:
    (engine,) = snapshot.engines
    since_start = msgspec.structs.replace(engine.since_start, **means)
    return msgspec.structs.replace(snapshot, engines=(msgspec.structs.replace(engine, since_start=since_start),))


def with_outcomes(snapshot: Snapshot, **counts: float) -> Snapshot:
    (engine,) = snapshot.engines
    outcomes = msgspec.structs.replace(engine.served.outcomes_since_start, **counts)
    served = msgspec.structs.replace(engine.served, outcomes_since_start=outcomes)
    return msgspec.structs.replace(snapshot, engines=(msgspec.structs.replace(engine, served=served),))


def test_an_engine_that_came_after_the_mark_has_no_figures_of_it(queued: Engine) -> None:
    view = View(Config())
    view.marked = Marked(msgspec.structs.replace(scenes.snapshot(), engines=()))
    (line,) = section(page(queued, view), "since the mark")
    assert line.strip() == "it was not listed all the time since the mark"


def test_an_engine_that_was_gone_since_the_mark_counts_anew_and_has_no_figures_of_it(queued: Engine) -> None:
    before = marked_before(queued)
    view = View(Config())
    view.marked = Marked(before)
    view.marked.take(msgspec.structs.replace(before, engines=()))
    view.marked.take(before)
    (line,) = section(page(queued, view, before.wall_s + 30.0), "since the mark")
    assert line.strip() == "it was not listed all the time since the mark"


def marked_before(engine: Engine) -> Snapshot:
    """The moment at which 100 of its requests had ended."""
    seen = msgspec.structs.replace(engine.served.seen, requests=100.0, seconds=40.0)
    then = msgspec.structs.replace(engine, served=msgspec.structs.replace(engine.served, seen=seen))
    return msgspec.structs.replace(scenes.snapshot(), engines=(then,))


def with_load(snapshot: Snapshot, running: float) -> Snapshot:
    (engine,) = snapshot.engines
    load = msgspec.structs.replace(engine.load, running=running)
    return msgspec.structs.replace(snapshot, engines=(msgspec.structs.replace(engine, load=load),))
