"""A level has the same mark and tone wherever it is shown: rows, borders, triage, fleet, texts."""

from __future__ import annotations

from typing import Any

from gpumon.config.themes import load_theme
from gpumon.demo.scenarios import scenario
from gpumon.outputs.brief import brief
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.snapshot import Evidence, Family, Gpu, Kind, Level, Limit, Snapshot
from gpumon.readings.verdict import Action
from gpumon.triage.marks import MARKS, states_by_key, urgent_by_gpu
from gpumon.triage.render import verdict_text
from gpumon.tui import engine_table, gpu_table
from gpumon.tui.detail.state import Topic, head_lines
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.triage_words import mark
from gpumon.tui.widgets.gpu_pane import GpuPane
from gpumon.tui.widgets.wall_pane import WallShape
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.detail_scenes import flat, full_engine, full_gpu, full_snapshot, page_of, whole
from tests.tui.painted import PLAIN, text
from tests.tui.test_triage import pane_of

HOT: dict[str, Any] = {"throttle": ("sw_thermal_slowdown",)}
LEVELS = [Level.CRITICAL, Level.WARN, Level.NOTE]


def hot(level: Level) -> tuple[Gpu, Any]:
    gpu = scenes.gpu(3, **HOT)
    return gpu, verdicts.of_gpu(gpu, Limit.THROTTLED, "thermal_driver", level=level, family=Family.STATE)


@each_row("level", LEVELS)
def test_the_row_of_a_gpu_is_marked_as_its_verdict(level: Level) -> None:
    gpu, verdict = hot(level)
    urgent = verdict if level is not Level.NOTE else None
    row = gpu_table.gpu_row(gpu, 80, PLAIN, urgent, of_state=verdict)
    word, tone = next((piece, tone) for piece, tone in row if "hot (sw)" in piece)
    assert (word.strip(), tone) == (f"{MARKS[level].glyph} hot (sw)", MARKS[level].tone)


@each_row("level", LEVELS)
def test_the_row_of_the_triage_pane_and_the_text_are_too(level: Level) -> None:
    gpu, verdict = hot(level)
    snapshot = replace(scenes.snapshot(), gpus=(gpu,), verdicts=(verdict,), faults=())
    rows = pane_of(snapshot).in_view(80, 6).rows
    mark = next(row[0] for row in rows if "throttled" in text(row))
    assert (mark[0].strip(), mark[1]) == (MARKS[level].glyph, MARKS[level].tone)
    assert any(
        line.startswith(f"{MARKS[level].glyph}  {MARKS[level].word}") for line in brief(snapshot, 120).split("\n")
    )


@each_row(("level", "glyph"), [(Level.CRITICAL, "✗"), (Level.WARN, "!"), (Level.NOTE, "?")])
def test_late_answers_without_a_known_cause_have_the_mark_by_which_they_are_counted(level: Level, glyph: str) -> None:
    """They are counted as critical or warning; only a note is a mere question."""
    of = scenes.snapshot()
    unknown = verdicts.of_engine(of.engines[1], Limit.UNKNOWN, "", level=level)
    snapshot = replace(of, verdicts=(unknown,), faults=())
    assert mark(unknown).glyph == glyph
    rows = pane_of(snapshot).in_view(80, 6).rows
    assert next(row[0] for row in rows if "unknown" in text(row))[0].strip() == glyph


@each_row("level", [Level.CRITICAL, Level.WARN])
def test_rows_of_the_printed_snapshot_have_the_mark_of_what_they_carry(level: Level) -> None:
    of = scenes.snapshot()
    hung = verdicts.of_engine(of.engines[1], Limit.HUNG, "hung_spinning", level=level, family=Family.STATE)
    lines = brief(replace(of, verdicts=(hung,), faults=()), 160).split("\n")
    rows = [line for line in lines if line.endswith(f"{MARKS[level].glyph} hung")]
    assert len(rows) == 1 + len(of.engines[1].hardware.gpus), "the engine, and the GPUs that it runs on"


def slow_gpu(name: str, length_s: float) -> Snapshot:
    """A scenario with a slow GPU after so many seconds."""
    play = scenario(name)
    *_, (_, last) = judged(play, frames(play, length_s, every_s=4))
    return last


@each_row(
    ("name", "length_s", "slow", "words"),
    [
        ("one-slow-gpu", 150.0, 3, "its other GPUs wait for it"),
        ("locked-clock", 120.0, 1, "its other GPUs wait for it"),
        ("gpu-off-the-bus", 76.0, 2, "does not reach it over PCIe): its other GPUs wait for it"),
        ("gpu-off-the-bus", 120.0, 2, "gpu 2, which it runs on, is lost"),
    ],
)
def test_gpus_that_wait_for_a_slow_or_lost_one_say_so(name: str, length_s: float, slow: int, words: str) -> None:
    """They have nothing of their own, so that nobody looks for their clocks, or takes them for broken."""
    last = slow_gpu(name, length_s)
    urgent = urgent_by_gpu(last)
    states = states_by_key(last.verdicts, Kind.GPU)
    for gpu in last.gpus:
        word, _ = gpu_table.judged_state(gpu, PLAIN.levels, urgent.get(gpu.reading.uuid), states.get(gpu.reading.uuid))
        assert word.endswith(" waits") == (gpu.reading.index != slow)
    lines = brief(last, 200).split("\n")
    assert sum(line.endswith(f" waits for gpu {slow}") for line in lines) == 3
    engine = verdict_of(last)
    assert engine.endswith(words)
    peer = last.gpus[0]
    topic = Topic(("gpu", peer.reading.uuid), now=peer, figures=peer, figures_wall_s=last.wall_s, gone_wall_s=0.0)
    assert f" waits for gpu {slow} · read " in text(head_lines(topic, last, PLAIN.levels)[0])


@each_row(
    ("lost", "words"), [(2, "gpu 10 and gpu 11"), (3, "gpu 10, gpu 11 and 1 more"), (7, "gpu 10, gpu 11 and 5 more")]
)
def test_of_many_gpus_that_are_waited_for_two_are_named(lost: int, words: str) -> None:
    """The age of the reading stays in view at 60 columns, and no name is cut."""
    engine = full_engine()
    gpu = full_gpu(throttle=())
    hung = verdicts.of_engine(engine, Limit.HUNG, "hung_lost_gpu", level=Level.CRITICAL)
    gpus = " and ".join(f"gpu {10 + place}" for place in range(lost))
    hung = replace(hung, parameters={**hung.parameters, "waits": "for_it", "gpus": gpus})
    snapshot = full_snapshot(gpus=(gpu,), engines=(engine,), verdicts=(hung,))
    page = page_of(snapshot, "gpu", gpu.reading.uuid)
    for width in (60, 80, 120):
        assert whole(page, width)[1] == f" ✗ waits for {words} · read 0.2 s ago"
    assert any(line.endswith(f"waits for {words}") for line in brief(snapshot, 80).split("\n"))


def verdict_of(snapshot: Snapshot) -> str:
    """The text of the urgent verdict on the engine."""
    return next(verdict_text(verdict) for verdict in snapshot.verdicts if verdict.kind is Kind.ENGINE)


@each_row("level", [Level.CRITICAL, Level.WARN])
def test_so_is_the_border_above_rows_out_of_view(level: Level) -> None:
    gpu, verdict = hot(level)
    snapshot = replace(scenes.snapshot(), gpus=(*scenes.snapshot().gpus[:3], gpu), verdicts=(verdict,))
    pane = GpuPane(Palette(load_theme("default"), Depth.TRUE), PLAIN)
    pane.shape = WallShape.ROWS
    pane.snapshot = snapshot
    pane.urgent = {gpu.reading.uuid: verdict}
    pane.states = states_by_key(snapshot.verdicts, verdict.kind)
    rule = pane.rows(80, 3)[0]
    assert pane.alarm() == f"{MARKS[level].glyph} gpu 3 hot (sw)"
    assert (f" {pane.alarm()} ", MARKS[level].tone) in rule


@each_row("level", [Level.CRITICAL, Level.WARN])
def test_a_lost_gpu_and_a_silent_engine_are_as_bad_as_their_verdicts_say(level: Level) -> None:
    gpu = scenes.gpu(3, state=GpuState.LOST)
    lost = verdicts.of_gpu(gpu, Limit.HARDWARE_FAULT, "lost", level=level)
    word, _ = gpu_table.judged_state(gpu, PLAIN.levels, lost, lost)
    assert word.startswith(f"{MARKS[level].glyph} LOST")
    engine = scenes.engine(0, state=EndpointState.TIMEOUT, fault="no answer")
    silent = verdicts.of_engine(engine, Limit.UNRESPONSIVE, "unresponsive", level=level, family=Family.STATE)
    row = engine_table.engine_row(engine, 80, PLAIN, 0.0, silent, of_state=silent)
    word, tone = next((piece, tone) for piece, tone in row if "TIMEOUT" in piece)
    assert (word.split()[:2], tone) == ([MARKS[level].glyph, "TIMEOUT"], MARKS[level].tone)
    assert engine_table.trouble_text(engine, silent, silent) == f"{MARKS[level].glyph} {engine.name} TIMEOUT"


@each_row(
    ("causes", "level", "title"),
    [
        (("sw_power_cap",), Level.CRITICAL, "✗ throttled"),
        (("sw_thermal_slowdown",), Level.CRITICAL, "✗ hot (sw)"),
        (("sw_thermal_slowdown",), Level.WARN, "! hot (sw)"),
        (("sw_power_cap",), Level.OK, "● power cap"),
    ],
)
def test_the_top_of_a_gpus_page_has_the_word_and_mark_of_its_row(
    causes: tuple[str, ...], level: Level, title: str
) -> None:
    gpu = full_gpu(throttle=causes)
    verdict = verdicts.of_gpu(gpu, Limit.THROTTLED, "slowed down", level=level)
    snapshot = full_snapshot(gpus=(gpu,), verdicts=(verdict,))
    page = page_of(snapshot, "gpu", gpu.reading.uuid)
    assert whole(page, 120)[1].startswith(f" {title} · read ")
    [(_, tone), *_] = page.head(120)[0]
    assert tone == MARKS[level].tone


def test_the_page_of_a_gpu_whose_state_is_its_engines_says_what_limits_the_engine() -> None:
    engine = full_engine()
    gpu = full_gpu(throttle=())
    full_pool = verdicts.of_engine(
        engine,
        Limit.KV_CACHE_FULL,
        "requests wait and are preempted",
        level=Level.CRITICAL,
        evidence=(Evidence("12 waiting"),),
        actions=(Action("add an instance"),),
    )
    page = page_of(full_snapshot(gpus=(gpu,), engines=(engine,), verdicts=(full_pool,)), "gpu", gpu.reading.uuid)
    lines = whole(page, 120)
    assert lines[1].startswith(" ✗ KV full · read ")
    assert [line.strip() for line in lines[2:6]] == [
        "what limits it",
        "✗ KV cache full   vllm:8000: requests wait and are preempted",
        "→ add an instance",
        "· 12 waiting",
    ]
    noted = replace(full_pool, level=Level.NOTE)
    page = page_of(full_snapshot(gpus=(gpu,), engines=(engine,), verdicts=(noted,)), "gpu", gpu.reading.uuid)
    assert whole(page, 120)[1].startswith(" ● ok · read ")
    assert "what limits it" not in flat(page)
