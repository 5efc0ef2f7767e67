"""The line under the title of a fleet's screen, and marks of rows that agree with what the rows carry."""

from __future__ import annotations

import re

from gpumon.fleet.row import STATE_LEVELS
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.snapshot import Level, Limit, Snapshot, Verdict
from gpumon.triage.marks import MARKS
from gpumon.tui.fleet.headline import fleet_headline
from gpumon.tui.fleet.moment import FleetMoment, fleet_moment
from gpumon.tui.fleet.row_words import row_sentence, state_or_verdict
from gpumon.tui.fleet.summary import fault_lines
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.fleet_feed import LAST, Scrapes, watching
from tests.tui.painted import text
from tests.tui.running import text_of, until


def snapshot(*found: Verdict) -> Snapshot:
    return replace(scenes.snapshot(8, 3), verdicts=found, faults=())


def verdict(level: Level, code: Limit = Limit.HUNG, cause: str = "hung_spinning") -> Verdict:
    return verdicts.of_engine(scenes.engine(1), code, cause, level=level)


def fleet(prices: dict[str, float] | None = None, state: HostState = HostState.OK, **hosts: Snapshot) -> FleetMoment:
    shown = tuple(
        HostShown(name=name, state=state, seen_wall_s=scenes.WALL_S, snapshot=of, labels={})
        for name, of in hosts.items()
    )
    of = FleetSnapshot(time="2025-10-09T08:53:22Z", wall_s=scenes.WALL_S, interval_s=15.0, hosts=shown)
    return fleet_moment(of, prices or {})


def line(shown: FleetMoment, width: int, *, live: bool = True) -> tuple[str, set[str]]:
    """Text and tones of the headline."""
    row = fleet_headline(shown.total, shown.standing, width, live=live)
    return text(row), {tone for _, tone in row}


@each_row("width", [80, 120, 200])
def test_in_trouble_it_names_level_host_thing_and_what_is_wrong(width: int) -> None:
    shown, tones = line(
        fleet(a=snapshot(), b=snapshot(verdict(Level.WARN)), c=snapshot(verdict(Level.CRITICAL))), width
    )
    assert shown.startswith(" ✗ 1 ! 1  c vllm:8001 hung")
    assert " tok/s" in shown
    assert len(shown) == width
    assert tones == {"alarm"}


def test_a_wide_one_has_the_first_action() -> None:
    shown, _ = line(fleet(a=snapshot(verdicts.full_cache(scenes.engine(1)))), 200)
    assert " → " in shown


def test_a_warning_has_its_own_colour() -> None:
    shown, tones = line(fleet(a=snapshot(verdict(Level.WARN))), 120)
    assert shown.startswith(" ! 1  a vllm:8001 hung")
    assert tones == {"warn"}


def test_without_trouble_it_has_the_sums_of_all_hosts() -> None:
    healthy = verdicts.healthy(scenes.engine(0))
    one, _ = line(fleet(a=snapshot(healthy)), 160)
    both, _ = line(fleet({"": 2.0}, a=snapshot(healthy), b=snapshot(healthy)), 160)
    assert one.strip().startswith("3.6k tok/s  MFU 32%  MBU ")
    assert both.strip().startswith("7.2k tok/s  MFU 32%  MBU ")
    assert "6/6 engines up" in both
    assert "32.0 $/h" in both
    assert "$" not in one, "where there is no price"
    assert both.rstrip().endswith("● no problem found")
    notes, _ = line(fleet(a=snapshot(verdict(Level.NOTE))), 160)
    assert notes.rstrip().endswith("● no problem found; + 1 note")


def test_where_a_limit_is_unknown_nobody_knows_that_there_is_no_problem() -> None:
    healthy = verdicts.healthy(scenes.engine(0))
    unknown = replace(verdict(Level.NOTE), code=Limit.UNKNOWN)
    alone, _ = line(fleet(a=snapshot(healthy), b=snapshot(unknown)), 160)
    assert alone.rstrip().endswith("engines up  ? 1 limit unknown")
    with_note, _ = line(fleet(a=snapshot(healthy, unknown), b=snapshot(unknown, verdict(Level.NOTE))), 160)
    assert with_note.rstrip().endswith("engines up  ? 2 limits unknown, + 1 note")


def test_an_engine_that_gives_no_token_is_named_before_there_is_a_verdict() -> None:
    none = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "cached_tokens_per_s": 0.0}
    hangs = scenes.engine(1, **none, running_mean=24.0, advances={"decode_tokens_per_s": "live"})
    gpus = tuple(replace(gpu, tensor_active_ratio=0.0) for gpu in scenes.snapshot(8, 3).gpus)
    shown, tones = line(fleet(a=snapshot(), b=replace(snapshot(), engines=(hangs,), gpus=gpus)), 160)
    assert shown.rstrip().endswith("b vllm:8001: no token for over 10 s while requests run")
    assert not tones & {"alarm", "warn", "critical"}


def test_it_says_nothing_of_problems_while_nothing_answers() -> None:
    healthy = snapshot(verdicts.healthy(scenes.engine(0)))
    assert "no problem" not in line(fleet(a=healthy), 160, live=False)[0]


@each_row("state", [HostState.STALE, HostState.UNREACHABLE, HostState.GONE])
def test_the_state_of_a_host_has_one_level_on_the_whole_screen(state: HostState) -> None:
    shown = fleet(None, state, a=snapshot())
    mark = MARKS[STATE_LEVELS[state]]
    (row,) = shown.hosts
    assert line(shown, 120)[0].startswith(f" {mark.glyph} 1  a {state.value}: ")
    ((word, tone),) = state_or_verdict(row, scenes.WALL_S, 60)
    assert (word.split()[0], tone) == (mark.glyph, mark.tone)
    assert row_sentence(row, scenes.WALL_S)[:2] == (mark.glyph, mark.tone)
    assert fault_lines(shown, scenes.WALL_S, 120, gone_back=False) == [], "the headline has told it"
    two = fleet(None, state, a=snapshot(), b=snapshot())
    (wrong,) = fault_lines(two, scenes.WALL_S, 120, gone_back=False)
    assert (mark.glyph, mark.tone) in [(piece.strip(), tone) for piece, tone in wrong]
    assert f"2 {state.value} (a, b)" in "".join(piece for piece, _ in wrong)


@each_row("state", [HostState.OK, HostState.PARTIAL, HostState.STALE])
def test_a_host_with_a_critical_engine_is_critical(state: HostState) -> None:
    shown = fleet(None, state, a=snapshot(verdict(Level.WARN), verdict(Level.CRITICAL)))
    (row,) = shown.hosts
    for room in (12, 60):
        assert state_or_verdict(row, scenes.WALL_S, room)[0][1] == MARKS[Level.CRITICAL].tone
        assert text(state_or_verdict(row, scenes.WALL_S, room)).startswith(" ✗ hung")
    assert row_sentence(row, scenes.WALL_S)[0] == "✗"


def test_an_engine_that_does_not_answer_and_has_no_verdict_is_a_warning() -> None:
    down = replace(scenes.snapshot(8, 3), verdicts=(), faults=())
    gone = scenes.down_engine(1, scenes.EndpointState.REFUSED, "connection refused")
    shown, tones = line(fleet(a=replace(down, engines=(down.engines[0], gone, down.engines[2]))), 120)
    assert shown.startswith(" ! 1  a vllm:8001 silent: connection refused")
    assert tones == {"warn"}


async def test_it_stands_under_the_title_and_follows_the_fleet() -> None:
    source = Scrapes(5)
    source.newest = LAST - 4
    async with watching(source, 80, 24) as (app, pilot):
        assert re.match(r" ✗ 1 ! \d  gpu02 gpu 2 hardware: lost for ", text_of(app)[1])
        source.wrong = {}
        while source.newest < LAST:  # a GPU that is back is watched for a while
            source.newest += 1
            taken = app.control.fleet.snapshot
            await pilot.press("r")
            await until(lambda taken=taken: app.control.fleet.snapshot is not taken, pilot)
        await until(lambda: "✗" not in text_of(app)[1], pilot)
        assert " tok/s  MFU " in text_of(app)[1]
        await pilot.press("question_mark")
        assert " tok/s  MFU " in text_of(app)[1], "above the help, too"
