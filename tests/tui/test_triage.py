"""Pane 5: the worst verdict on every screen, all of it zoomed, a page for each, and what happened."""

from __future__ import annotations

import time

import pytest

from gpumon.config.themes import load_theme
from gpumon.efficiency.faults import SLOWED, gpu_faults
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuReading, GpuState
from gpumon.readings.history import History
from gpumon.readings.snapshot import (
    Confidence,
    Event,
    EventKind,
    Family,
    FaultShown,
    Kind,
    Level,
    Limit,
    Snapshot,
    Verdict,
)
from gpumon.readings.verdict import Action
from gpumon.triage.render import BRIEF_NAMES, NARROW_NAMES
from gpumon.tui.charts.curves import chart_of
from gpumon.tui.fold import folded
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.triage_lines import recent_changes
from gpumon.tui.triage_rows import event_words
from gpumon.tui.triage_verdicts import STANDS_S, SteadyVerdicts, verdict_key
from gpumon.tui.triage_words import EVENTS, glyph_legend
from gpumon.tui.widgets.triage_pane import TriagePane
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.detail_scenes import flat, page_of
from tests.tui.feed import Still
from tests.tui.painted import PLAIN, process, text
from tests.tui.running import running, text_of, until

FIX = "the fix: nvidia-smi -pm 1"
LONG = "the driver answers slowly because persistence mode is off, " * 3 + "http://" + "path/" * 20 + " " + FIX
NOW_S = scenes.WALL_S


def faulty(*texts: str) -> Snapshot:
    faults = tuple(FaultShown("gpu 3", text, "2025-10-09T08:53:22Z") for text in texts)
    return replace(scenes.snapshot(), faults=faults, verdicts=())


def shown_below(lines: list[str], title: str) -> list[str]:
    return lines[next(at for at, line in enumerate(lines) if title in line) + 1 : -1]


def pane_of(snapshot: Snapshot, history: History | None = None) -> TriagePane:
    pane = TriagePane(Palette(load_theme("default"), Depth.TRUE), PLAIN, history or History())
    pane.snapshot = snapshot
    return pane


def body(snapshot: Snapshot, width: int, height: int, history: History | None = None) -> list[str]:
    """The lines of the pane, in as many as it is given."""
    return [text(row) for row in pane_of(snapshot, history).in_view(width, height).rows]


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_a_zoomed_pane_shows_the_whole_text(width: int) -> None:
    async with running(Still(faulty(LONG, "short")), width, 24) as (app, pilot):
        await pilot.press("5", "z")
        lines = shown_below(text_of(app), " triage ")
        assert all(cells(line) <= width for line in lines)
        assert "".join(LONG.split()) in "".join("".join(lines).split())
        assert any(line.endswith(" short") for line in lines)
        assert "whole text" not in "".join(text_of(app))


def test_a_zoomed_pane_with_lines_to_spare_cuts_no_event() -> None:
    words = " ".join(["held back"] * 20)
    hot = verdicts.of_gpu(scenes.snapshot().gpus[3], Limit.THROTTLED, words, level=Level.WARN)
    event = Event(NOW_S - 4.0, EventKind.VERDICT, "gpu 3", "verdict_began", level=Level.WARN, verdict=hot)
    pane = pane_of(replace(scenes.snapshot(), verdicts=(), faults=()), happened(event))
    pane.zoomed = True
    lines = [text(row) for row in pane.in_view(80, 20).rows]
    assert " ".join(" ".join(lines).split()).count("held back") == 20
    assert not pane.more_note(80)


async def test_a_pane_without_spare_lines_cuts_and_says_how_to_read_on() -> None:
    async with running(Still(faulty(LONG)), 80, 24) as (app, pilot):
        before = "\n".join(text_of(app))
        assert FIX not in before
        assert "keys 5 z: whole text" in before
        await pilot.press("5")
        assert " z: whole text" in "\n".join(text_of(app))
        assert "keys 5 z" not in "\n".join(text_of(app))


async def test_a_text_that_fits_says_nothing_about_more() -> None:
    async with running(Still(faulty("short")), 80, 24) as (app, _):
        assert "whole text" not in "".join(text_of(app))


def test_spare_lines_are_used_for_whole_texts_first_and_then_for_what_they_stand_on() -> None:
    said = f"the driver answers slowly because persistence mode is off, {FIX}"
    assert "".join(said.split()) in "".join("".join(body(faulty(said), 60, 5)).split())
    assert len(body(faulty(said, "short"), 60, 3)) == 3
    assert len(body(faulty(said, "short"), 60, 2)) == 2
    of = scenes.snapshot()
    judged = replace(of, verdicts=(verdicts.bandwidth(of.engines[0]), verdicts.hot(of.gpus[0])))
    for height, evidence in ((5, 0), (7, 2), (12, 4)):
        shown = body(judged, 200, height)
        assert sum("→ " in line for line in shown) == 2, "what to do comes before the evidence"
        assert sum("· " in line for line in shown) == evidence


SAVES = {"saves_gpu_hours": 1.0, "saves_per_hour": 2.5}


@pytest.mark.parametrize(
    "action",
    [
        Action("end_program", {"owner": "a-user-with-a-long-name", "vram_bytes": 7.8e10, **SAVES}),
        Action("ask_owner", SAVES),
        Action("send_traffic_or_stop", {"frees": "gpus", **SAVES}),
        Action("fewer_gpus", {"tp_flag": "--tensor-parallel-size", "tp_to": 1.0, "seconds": 150.0, **SAVES}),
        Action("quantise_weights", {"flag": "--quantization fp8", "fits_on": 1.0, **SAVES}),
    ],
)
async def test_what_an_action_saves_is_read_at_120_columns(action: Action) -> None:
    of = scenes.snapshot()
    parameters = {"processes": f"{'python-' * 15} (pid 9000002)", "vram_bytes": 7.8e10, "seconds": 600.0, "cost": 2.5}
    held = verdicts.of_gpu(
        of.gpus[1], Limit.IDLE_VRAM_HELD, "vram_held", level=Level.NOTE, parameters=parameters, actions=(action,)
    )
    async with running(Still(replace(of, verdicts=(held,))), 120, 40) as (app, _):
        shown = "\n".join(text_of(app))
    row = next(line for line in shown.splitlines() if line.startswith(" + VRAM held"))
    assert "2.5 $/h idle: " in row
    assert "(saves 1 GPU, 2.5 $/h)" in shown


LOST = Action("drain this server and power-cycle it (a reboot is often not enough)")
COOL = Action("check_cooling", {"index": 3.0})


@each_row("width", [80, 120])
def test_a_critical_verdict_is_read_whole_what_to_do_first_and_the_command_in_one_piece(width: int) -> None:
    of = scenes.snapshot()
    cause = "slowed down by heat (the hardware's own protection), 1.37 of 1.98 GHz, 91 °C, for over a minute by now"
    hot = verdicts.of_gpu(of.gpus[3], Limit.THROTTLED, cause, level=Level.CRITICAL, actions=(COOL, LOST))
    lines = body(replace(of, verdicts=(hot,)), width, 6)
    assert lines[0].startswith(" ✗ throttled gpu 3 ")
    assert " → hardware: check fans" in lines[0]
    assert any("nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i 3" in line for line in lines)
    whole = " ".join(line.strip() for line in lines[:5])
    assert LOST.code in whole
    assert whole.rstrip().endswith(cause)
    assert "…" not in whole
    assert lines[-1].startswith("   last 10 min: ")
    short = body(replace(of, verdicts=(hot,)), width, 3)
    assert "nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i 3" in " ".join(short), "the first thing to do before the cause"


def test_equal_verdicts_of_gpus_are_one_row() -> None:
    of = scenes.snapshot()
    action = (Action("start with --pid=host or hostPID"),)
    held = [
        verdicts.of_gpu(gpu, Limit.IDLE_VRAM_HELD, "no visible process holds 72 GiB", actions=action) for gpu in of.gpus
    ]
    lines = body(replace(of, verdicts=tuple(held)), 80, 4)
    assert lines[0].startswith(" ! VRAM held GPUs 0-7 08:50 → start with --pid=host or hostPID")
    assert [line.strip() for line in lines[1:]] == [
        "no visible process holds 72 GiB",
        "",
        "last 10 min: nothing changed",
    ]
    other = replace(held[7], actions=(LOST,))
    lines = body(replace(of, verdicts=(*held[:7], other)), 80, 6)
    assert lines[0].startswith(" ! VRAM held GPUs 0-6")
    assert lines[2].startswith(" ! VRAM held gpu 7 ")
    pane = pane_of(replace(of, verdicts=tuple(held)))
    assert pane.listing.gpus(pane.listed_items()[0], pane.scene()) == list(range(8))


def test_a_host_short_of_memory_names_the_processes_that_hold_most_of_it() -> None:
    of = scenes.snapshot()
    busy = [
        process(pid, name=f"worker-{pid}", user="ann", cpu_ratio=pid / 10.0, rss_bytes=(50.0 - pid) * scenes.GIB)
        for pid in range(10, 15)
    ]
    of = replace(of, gpus=(replace(of.gpus[0], processes=tuple(busy)), *of.gpus[1:]))
    verdict = Verdict("host", Limit.MEMORY_FULL, "host_memory_full", "", kind=Kind.HOST, level=Level.WARN)
    lines = [line.strip() for line in body(replace(of, verdicts=(verdict,)), 120, 9) if "· pid" in line]
    assert len(lines) == 3
    assert "pid 10 worker-10 (ann): 40.0 GiB of memory" in lines[0]


def test_changes_of_engines_with_a_long_name_are_told_apart_by_its_end() -> None:
    """Replicas differ in the last characters alone: they are changes of their own, and each is named."""
    of = scenes.snapshot()
    verdict = verdicts.of_engine(of.engines[0], Limit.KV_CACHE_FULL, "x", level=Level.CRITICAL)
    names = [f"llama-3.1-70b-instruct-{letter}" for letter in "abc"]
    events = []
    for place, name in enumerate(names):
        wall_s = 90.0 + place
        events.append(Event(wall_s, EventKind.VERDICT, name, "verdict_level", level=Level.CRITICAL, verdict=verdict))
    line = text(recent_changes(events, 100.0, 200, "braille"))
    assert line.count("KV cache full: now critical") == 3
    assert [line.count(f"…truct-{letter} KV") for letter in "abc"] == [1, 1, 1]
    assert "llama" in line
    assert line.count("…") == 3
    narrow = text(recent_changes(events, 100.0, 80, "braille"))
    assert narrow.endswith("truct-c KV cache full: now critical  +2 more")
    others = []
    for port in (1, 2, 2):
        others.append(Event(99.0, EventKind.RESTART, f"{'a' * 70}:{port}", "restarted", level=Level.WARN))
    words = text(recent_changes(others, 100.0, 200, "braille"))
    assert [words.count(f"aa:{port} restarted") for port in (1, 2)] == [1, 1]


def test_the_same_change_of_several_gpus_is_one() -> None:
    gpus = scenes.snapshot().gpus
    events = []
    for gpu in gpus[:4]:
        hot = verdicts.hot(gpu)
        events.append(Event(90.0, EventKind.VERDICT, hot.scope, "verdict_level", level=Level.CRITICAL, verdict=hot))
    later = verdicts.hot(gpus[6])
    events.append(Event(95.0, EventKind.VERDICT, later.scope, "verdict_level", level=Level.CRITICAL, verdict=later))
    line = text(recent_changes(events, 100.0, 200, "braille"))
    assert [line.count(f"{scope} throttled: now critical") for scope in ("GPUs 0-3", "gpu 6")] == [1, 1]


def test_what_changed_of_late_stands_in_one_line() -> None:
    restart = Event(NOW_S - 100.0, EventKind.RESTART, "vllm:8000", "restarted", level=Level.WARN)
    old = Event(NOW_S - 700.0, EventKind.RESTART, "vllm:8001", "restarted", level=Level.WARN)
    began = Event(
        NOW_S - 4.0, EventKind.VERDICT, "gpu 3", "verdict_began", key="3",
        verdict=verdicts.hot(scenes.snapshot().gpus[3]),
    )  # fmt: skip
    snapshot = replace(scenes.snapshot(), verdicts=())
    assert body(snapshot, 80, 2, happened(old, restart, began))[1] == (
        "   last 10 min: 08:53 ◆ gpu 3 throttled  08:51 ● vllm:8000 restarted  "
    )
    assert body(snapshot, 50, 2, happened(old, restart, began))[1].endswith("gpu 3 throttled  +1 more")
    assert body(snapshot, 80, 2)[1] == "   last 10 min: nothing changed"


@each_row(
    ("code", "scope", "words"),
    [
        ("verdict_began", "llama-8b", "llama-8b throttled"),
        ("verdict_level", "llama-8b", "llama-8b throttled: now critical"),
        ("verdict_cause", "llama-8b", "llama-8b throttled: new cause"),
        ("verdict_over", "llama-8b", "llama-8b throttled: over"),
        ("verdict_level", "a-name-of-an-engine-that-is-long:8000", "a-name-of-…long:8000 throttled: now critical"),
    ],
)
def test_a_verdict_that_changed_does_not_read_like_its_begin(code: str, scope: str, words: str) -> None:
    """Where it does not fit, its scope is cut in its middle, not what changed."""
    hot = verdicts.hot(scenes.snapshot().gpus[3])
    old = Event(NOW_S - 700.0, EventKind.RESTART, "vllm:8001", "restarted", level=Level.WARN)
    event = Event(NOW_S - 4.0, EventKind.VERDICT, scope, code, level=Level.CRITICAL, verdict=hot)
    line = body(replace(scenes.snapshot(), verdicts=()), 80, 2, happened(old, event))[1]
    assert line.rstrip() == f"   last 10 min: 08:53 ◆ {words}"


@each_row(
    ("sources", "width", "column"),
    [
        (("nvml",), 80, 4),
        (("nvml", "vllm:8000"), 80, 9),
        (("host-with-a-name.example:8000",), 80, 20),
        (("host-with-a-name.example:8000",), 60, 15),
        (("host-with-a-name.example:8000",), 120, 24),
        (("日本語のとても長いエンジン名:8000",), 120, 24),
    ],
)
def test_the_column_of_scopes_is_as_wide_as_the_longest(sources: tuple[str, ...], width: int, column: int) -> None:
    faults = tuple(FaultShown(source, "text", "2025-10-09T08:53:22Z") for source in sources)
    lines = body(replace(scenes.snapshot(), faults=faults, verdicts=()), width, 10)[: len(faults)]
    assert {cells(line[: line.index("08:53:22")]) for line in lines} == {3 + 6 + column + 1}
    assert all(line.endswith("08:53:22 text") for line in lines)
    assert all(line.startswith(" ! fault ") for line in lines)


def test_what_somebody_suffers_from_comes_first_and_what_is_healthy_last() -> None:
    found = body(scenes.SCENES["triage"](), 120, 12)
    order = ("KV cache full", "throttled", "bandwidth", "fault", "unknown", "3 healthy: gpu 0-2")
    starts = [line for line in found if line[1] in "✗!?+●"]
    assert [next(word for word in order if word in line[1:24]) for line in starts] == list(order)
    assert [line[1] for line in starts] == ["✗", "!", "!", "!", "?", "●"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_every_screen_has_the_worst_verdict(width: int, height: int) -> None:
    async with running("triage", width, height) as (app, _):
        first = shown_below(text_of(app), " triage ")[0]
        assert first.startswith(" ✗ KV cache full ")
        assert "vllm:8001" in first
        assert "→ shorten --max-model-len" in " ".join(shown_below(text_of(app), " triage "))
        assert "KV cache 97% full with 31 w" in " ".join(shown_below(text_of(app), " triage "))


def test_a_verdict_that_held_before_it_was_given_says_since_when() -> None:
    given = Event(
        NOW_S - 4.0, EventKind.VERDICT, "gpu 3", "memory_full: 79 GB", level=Level.WARN, key="3", since_s=NOW_S - 34.0
    )
    assert any("since 08:52:48: memory_full: 79 GB" in line for line in body(scenes.snapshot(), 80, 9, happened(given)))


@each_row("said", [(), ("healthy",)])
def test_a_healthy_host_says_so_in_one_line(said: tuple[str, ...]) -> None:
    of = scenes.snapshot()
    found = tuple(verdicts.healthy(each) for each in (*of.engines, *of.gpus)) if said else ()
    assert body(replace(of, verdicts=found), 80, 1) == [
        "   no problem found; 11 healthy: vllm:8000, vllm:8001, vllm:8002, gpu 0-7"
        if said
        else "   first verdicts after 30 s of traffic; utilisation after 2 to 3 min"
    ]


def test_a_verdict_that_was_lost_is_not_called_the_first() -> None:
    judged = replace(scenes.snapshot(gpus=1, engines=1), verdicts=())
    (engine,) = judged.engines
    pane = pane_of(replace(judged, verdicts=(verdicts.healthy(engine),)))
    assert text(pane.in_view(80, 1).rows[0]).endswith("1 healthy: vllm:8000")
    pane.show(judged)
    assert text(pane.in_view(80, 1).rows[0]) == "   no verdict now: checking vllm:8000"


def test_what_has_only_begun_is_not_healthy() -> None:
    of = scenes.snapshot()
    gpus = tuple(replace(gpu, state=GpuState.INITIALISING, engines=()) for gpu in of.gpus)
    engines = tuple(replace(engine, state=EndpointState.STARTING) for engine in of.engines)
    for first in (replace(of, gpus=gpus, engines=()), replace(of, gpus=(), engines=engines)):
        assert body(replace(first, verdicts=()), 80, 1) == [
            "   first verdicts after 30 s of traffic; utilisation after 2 to 3 min"
        ]


def test_nothing_at_all_to_judge_is_said_so() -> None:
    assert body(replace(scenes.snapshot(), gpus=(), engines=(), verdicts=()), 80, 1) == ["   no problem found"]


def test_what_has_no_verdict_yet_is_named_beside_what_is_healthy() -> None:
    of = scenes.snapshot()
    alone = (*of.gpus[:6], replace(of.gpus[6], engines=()), replace(of.gpus[7], engines=()))
    first = replace(of, gpus=alone, verdicts=tuple(map(verdicts.healthy, of.engines[:2])))
    assert body(first, 100, 1) == ["   no problem found; 2 healthy: vllm:8000, vllm:8001; checking vllm:8002, gpu 6-7"]
    down = replace(of.engines[2], state=EndpointState.REFUSED)
    gone = replace(first, engines=(*of.engines[:2], down), gpus=of.gpus)
    assert body(gone, 100, 1) == ["   no problem found; 2 healthy: vllm:8000, vllm:8001"]


def test_an_engine_that_starts_anew_is_not_healthy_at_once() -> None:
    """Its older verdict stands for a moment beside the new one: `3 healthy: a, b, c; starting: b` says both of b."""
    of = scenes.snapshot()
    first, second, *_ = map(verdicts.healthy, of.engines)
    starts = replace(second, code=Limit.STARTING)
    line = body(replace(of, verdicts=(first, second, starts)), 120, 1)[0]
    assert "1 healthy: vllm:8000; starting: vllm:8001" in line


def test_use_that_is_not_judged_yet_is_no_clean_bill() -> None:
    of = scenes.snapshot()
    first, second, *_ = map(verdicts.healthy, of.engines)
    early = replace(first, parameters={"evaluating": 2.0})
    assert body(replace(of, verdicts=(early, second)), 120, 1)[0].strip() == (
        "no problem found so far; 1 healthy: vllm:8001; use of vllm:8000 judged in 2 min; checking vllm:8002"
    )


def test_engines_that_are_down_come_before_older_faults() -> None:
    of = scenes.snapshot()
    down = tuple(replace(engine, state=EndpointState.REFUSED) for engine in of.engines[:2])
    told = ("discovery", down[0].name, "nvml", down[1].name)
    faults = tuple(FaultShown(source, "text", f"2025-10-09T08:5{at}:22Z") for at, source in enumerate(told))
    found = body(replace(of, engines=(*down, *of.engines[2:]), faults=faults, verdicts=()), 120, 5)[:4]
    assert [line.split()[2] for line in found] == [down[0].name, down[1].name, "discovery", "nvml"]


def test_a_gpu_and_its_number_stay_on_one_line() -> None:
    assert folded("no verdict yet: gpu 7", 20) == ("no verdict yet:", "gpu 7")


@each_row("state", [state for state in GpuState if state is not GpuState.OK])
def test_the_text_of_a_fault_reads_on_behind_the_name_of_its_gpu_and_a_colon(state: GpuState) -> None:
    """`gpu 3 fault: slowed down by heat`, not `gpu 3 fault: is slowed down by heat`."""
    texts = []
    for reason in SLOWED:
        texts += [text for _, text in gpu_faults(GpuReading(3, "GPU-3", "H100", state, 0.0, throttle=(reason,)))]
    assert texts
    assert not [text for text in texts if text.startswith(("is ", "has "))]


def test_a_fault_that_a_verdict_on_the_same_gpu_tells_has_no_row() -> None:
    of = scenes.snapshot()
    read = GpuReading(3, "GPU-3", "H100", GpuState.OK, 0.0, throttle=("hw_slowdown", "hw_thermal_slowdown"))
    lost = GpuReading(5, "GPU-5", "H100", GpuState.LOST, 0.0, "GPU is lost", ecc_uncorrected=2.0)
    said = [(f"gpu {gpu.index}", text, code) for gpu in (read, lost) for code, text in gpu_faults(gpu)]
    assert len(said) == 3
    faults = tuple(
        FaultShown(source, text, "2025-10-09T08:53:22Z", code)
        for source, text, code in (*said, ("gpu 4", *said[0][1:]))
    )
    gone = verdicts.of_gpu(of.gpus[5], Limit.HARDWARE_FAULT, "lost for 2 min", level=Level.CRITICAL)
    judged = replace(of, faults=faults, verdicts=(gone, verdicts.hot(of.gpus[3])))
    starts = [" ✗ hardware  gpu", " ! throttled gpu", " ! fault     gpu"]
    shown = [line for line in body(judged, 120, 8) if line[:2] in (" ✗", " !")]
    assert [line[:16] for line in shown] == starts
    assert " gpu 4 " in shown[2]
    other = replace(judged, verdicts=(verdicts.of_gpu(of.gpus[3], Limit.HARDWARE_FAULT, "x", level=Level.CRITICAL),))
    assert sum(" fault " in line for line in body(other, 120, 8)) == 4
    assert sum(" fault " in line for line in body(replace(judged, verdicts=()), 120, 8)) == 4


def test_the_same_event_again_and_again_is_one_row() -> None:
    events = [
        Event(NOW_S - 205.0 + 8.0 * at, EventKind.THROTTLE, "gpu 3", "heat", level=Level.WARN) for at in range(25)
    ]
    other = Event(NOW_S - 100.0, EventKind.RESTART, "vllm:8000", "restarted", level=Level.WARN)
    past = happened(*sorted([*events, other], key=lambda event: event.wall_s))
    for height in (3, 12):
        lines = body(replace(scenes.snapshot(), verdicts=()), 100, height, past)
        assert lines[1:3] == [
            " ↓ throttle gpu 3     08:53:09 x25, first 08:49:57: heat",
            " ● restart  vllm:8000 08:51:42 restarted",
        ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_quiet_rows_and_events_do_not_move_the_panes(size: tuple[int, int]) -> None:
    of = replace(scenes.snapshot(8, 3), verdicts=())
    feed = Still(of, scenes.history(of))
    bad = verdicts.of_engine(of.engines[0], Limit.HUNG, "no token", level=Level.CRITICAL, actions=(LOST,))
    async with running(feed, *size) as (app, pilot):
        seen = []
        for tick in range(1, 150):
            feed.give(replace(of, wall_s=NOW_S + tick, verdicts=(bad,) if 20 <= tick < 60 and tick % 20 >= 5 else ()))
            await until(lambda tick=tick: app.monitor.shown.wall_s == NOW_S + tick, pilot)  # type: ignore[misc]
            if not seen or app.monitor.planned != seen[-1]:
                seen.append(app.monitor.planned)
        assert len(seen) == 3, "a verdict comes and goes: once more lines, and a minute after its end fewer"
        assert seen[0] == seen[2]
        assert seen[1].triage > seen[0].triage


async def test_the_filter_finds_what_is_folded() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("t", "z", "slash", *"gpu3", "enter")
        lines = shown_below(text_of(app), " triage ")
        assert lines[0].startswith("▸! bandwidth vllm:8000")
        assert any(line.startswith(" ● healthy   gpu 3 ") for line in lines)
        assert not any("gpu 4" in line or "vllm:8001" in line for line in lines)


async def test_a_verdict_opens_its_page_and_that_the_engine() -> None:
    async with running("triage", 120, 40) as (app, pilot):
        await pilot.press("t", "enter")
        await until(lambda: "KV cache full · vllm:8001" in text_of(app)[2], pilot)
        page = "\n".join(text_of(app))
        for said in ("critical", "since 08:50:12", "confidence medium", "vllm:kv_cache_usage_perc", "→ shorten"):
            assert said in page
        assert "⣿ KV cache" in page
        assert page.index("⣿ waiting") < page.index("──now")
        await pilot.press("right")
        await until(lambda: "throttled · gpu 3" in text_of(app)[2], pilot)
        await pilot.press("enter")
        await until(lambda: text_of(app)[2].startswith("─── gpu 3 · "), pilot)
        assert "! throttled" in "\n".join(text_of(app))
        await pilot.press("escape", "escape")
        await until(lambda: text_of(app)[2].startswith("─5─ triage"), pilot)


async def test_the_key_of_triage_leads_back_to_the_worst() -> None:
    async with running("triage", 120, 40) as (app, pilot):
        await pilot.press("t", "j")
        assert not shown_below(text_of(app), " triage ")[0].startswith("▸")
        await pilot.press("t")
        await until(lambda: shown_below(text_of(app), " triage ")[0].startswith("▸✗ KV cache full "), pilot)


async def test_what_comes_on_top_is_shown_while_the_cursor_was_never_moved() -> None:
    of = scenes.SCENES["triage"]()
    mild = tuple(verdict for verdict in of.verdicts if verdict.level is not Level.CRITICAL)
    async with running(Still(replace(of, verdicts=mild)), 80, 24) as (app, pilot):
        await pilot.press("t", "escape")
        app.monitor.paint(of)
        await until(lambda: shown_below(text_of(app), "triage ")[0].startswith("▸✗ KV cache full "), pilot)


async def test_the_verdicts_page_follows_to_the_next_verdict_of_its_family() -> None:
    of = scenes.SCENES["triage"]()
    feed = Still(of, scenes.history(of))
    async with running(feed, 120, 40) as (app, pilot):
        await pilot.press("t", "enter")
        other = replace(of.verdicts[0], code=Limit.QUEUE_LIMIT, cause="31 wait while KV has room", evidence=())
        feed.give(replace(of, verdicts=(other, *of.verdicts[1:])))
        await until(lambda: "queue limit · vllm:8001" in text_of(app)[2], pilot)
        assert "31 wait while KV has room" in "\n".join(text_of(app))
        feed.give(replace(of, verdicts=of.verdicts[1:]))
        await until(lambda: "no longer found" in "\n".join(text_of(app)), pilot)


async def test_an_event_leads_to_what_it_is_about() -> None:
    async with running("triage", 120, 40) as (app, pilot):
        await pilot.press("t", "G", "enter")
        await until(lambda: text_of(app)[2].startswith("─── engine vllm:8000"), pilot)


async def test_a_fault_leads_to_its_engine_and_what_is_about_nothing_to_nothing() -> None:
    of = replace(scenes.SCENES["triage"](), verdicts=())
    past = happened(Event(NOW_S - 5.0, EventKind.REPLICAS, "Llama-3.3-70B", "2 -> 3", key=""))
    async with running(Still(of, past), 120, 40) as (app, pilot):
        await pilot.press("t", "down", "enter")
        assert app.monitor.pages.shown is None
        await pilot.press("up", "enter")
        await until(lambda: text_of(app)[2].startswith("─── engine vllm:8001"), pilot)


async def test_the_worst_is_shown_again_once_another_pane_has_the_keys() -> None:
    async with running("triage", 80, 24) as (app, pilot):
        await pilot.press("t", "G")
        assert "✗ KV cache full vllm:8001" in next(line for line in text_of(app) if line.startswith("─5─"))
        assert not any(line.startswith(" ✗ KV cache") for line in text_of(app))
        await pilot.press("1")
        assert any(line.startswith(" ✗ KV cache") for line in text_of(app))


def test_what_cannot_be_told_names_the_signals_and_no_chart() -> None:
    of = scenes.SCENES["triage"]()
    said = flat(page_of(of, "verdict", verdict_key(of.verdicts[3])))
    assert said.count("memory bandwidth (needs Hopper, or --dcgm)") == 1
    assert "? the model's dimensions" in said
    assert "figure" not in said


def test_a_series_that_the_history_does_not_keep_is_named() -> None:
    of = scenes.SCENES["live"]()
    said = flat(page_of(of, "verdict", verdict_key(of.verdicts[0])))
    assert "none of dram:0, mbu@" in said
    assert "beyond the first 128 GPUs and 12 engines" in said


def test_pages_of_engines_and_gpus_have_their_verdicts() -> None:
    of = scenes.SCENES["triage"]()
    engine = flat(page_of(of, "engine", of.engines[1].key))
    assert "what limits it ✗ KV cache full KV cache 97% full" in engine
    assert "· 31 waiting" in engine
    assert "→ shorten --max-model-len" in engine
    assert "throttled" not in engine
    assert "! throttled HW thermal slowdown" in flat(page_of(of, "gpu", of.gpus[3].reading.uuid))
    assert "what does not work" not in flat(page_of(of, "gpu", of.gpus[0].reading.uuid))


async def test_the_tables_mark_what_suffers() -> None:
    async with running("triage", 120, 40) as (app, pilot):
        lines = text_of(app)
        assert any(line.startswith("✗vllm:8001") for line in lines)
        assert any(line.startswith("  3 ") and "! throttled" in line for line in lines)
        await pilot.press("1", "slash", *"throttled", "enter")
        assert "1 of 8" in next(line for line in text_of(app) if line.startswith("─1─"))


def test_a_verdict_that_stands_is_painted_with_newer_figures_every_ten_seconds_only() -> None:
    of = scenes.snapshot()
    steady = SteadyVerdicts()

    def painted(tick: int, said: str, **others: object) -> str:
        verdict = replace(verdicts.bandwidth(of.engines[0]), cause=said, **others)
        return steady.hold(replace(of, wall_s=NOW_S + tick, verdicts=(verdict,)))[0].cause

    assert [painted(tick, f"at {tick}") for tick in range(21)] == [f"at {tick // 10 * 10}" for tick in range(21)]
    assert STANDS_S == 10.0
    assert painted(21, "worse", level=Level.CRITICAL) == "worse"
    assert painted(22, "as bad", level=Level.CRITICAL) == "worse"
    assert painted(23, "another", code=Limit.QUEUE_LIMIT) == "another"
    assert painted(400, "after a gap", code=Limit.QUEUE_LIMIT) == "after a gap"
    assert painted(300, "back in time", code=Limit.QUEUE_LIMIT) == "back in time"


def test_all_verdicts_get_newer_figures_at_one_beat() -> None:
    of = scenes.snapshot()
    steady = SteadyVerdicts()
    painted = []
    for tick in range(21):
        shown = [replace(verdicts.bandwidth(engine), cause=f"at {tick}") for engine in of.engines[: 1 + (tick > 3)]]
        painted.append([one.cause for one in steady.hold(replace(of, wall_s=NOW_S + tick, verdicts=tuple(shown)))])
    assert painted[4:10] == [["at 0", "at 4"]] * 6
    assert painted[10:20] == [["at 10", "at 10"]] * 10
    assert painted[20] == ["at 20", "at 20"]


async def test_a_verdict_with_other_figures_each_second_changes_no_line() -> None:
    of = scenes.SCENES["live"]()
    feed = Still(of, scenes.history(of))
    async with running(feed, 120, 40) as (app, pilot):
        pane = app.monitor.panes["triage"]
        before = [text(row) for row in pane._rows]
        for tick in range(1, 5):
            verdict = replace(of.verdicts[0], cause=f"reads {69 + tick}% of HBM")
            feed.give(replace(of, wall_s=NOW_S + tick, verdicts=(verdict, *of.verdicts[1:])))
            await until(lambda tick=tick: app.monitor.shown.wall_s == NOW_S + tick, pilot)  # type: ignore[misc]
            assert [text(row) for row in pane._rows] == before
        pane.prepare_for_jump()
        feed.give(replace(of, wall_s=NOW_S + 5, verdicts=(verdict, *of.verdicts[1:])))
        await until(lambda: any("reads 73%" in text(row) for row in pane._rows), pilot)


def happened(*events: Event) -> History:
    past = History()
    past.append(NOW_S, {"busy": 0.5})
    for event in events:
        past.add_event(event)
    return past


def event(ago_s: float, kind: EventKind, level: Level = Level.NOTE) -> Event:
    return Event(NOW_S - ago_s, kind, "vllm:8000", "text", level=level)


async def test_without_events_the_charts_have_the_line() -> None:
    async with running("wasted", 120, 40) as (app, _):
        assert not any(line.strip().startswith("events") for line in text_of(app))


def test_events_are_listed_the_newest_first_with_their_time() -> None:
    past = happened(event(9.0, EventKind.RESTART), event(3.0, EventKind.XID))
    lines = body(scenes.snapshot(), 80, 9, past)
    assert [line.split()[:2] for line in lines[1:]] == [["X", "Xid"], ["●", "restart"]]
    assert all(":" in line.split()[3] for line in lines[1:])


def test_every_limit_and_event_has_its_words() -> None:
    assert set(NARROW_NAMES) == set(BRIEF_NAMES) == set(Limit)
    assert all(cells(word) <= 13 for word in NARROW_NAMES.values())
    assert all(cells(word) <= 9 for word in BRIEF_NAMES.values())
    assert set(EVENTS) == set(EventKind)
    assert len({glyph for glyph, _, _ in EVENTS.values()}) == len({plain for _, plain, _ in EVENTS.values()}) == 9
    assert all(plain.isascii() for _, plain, _ in EVENTS.values())
    assert glyph_legend([event(1.0, EventKind.VERDICT), event(2.0, EventKind.XID)], "ascii") == "X Xid V verdict"


@each_row(
    ("key", "name", "full"),
    [
        ("kv@http://127.0.0.1:8000", "KV cache", 1.0),
        ("itl@http://127.0.0.1:8000", "ITL p95", 0.0),
        ("tensor:15", "gpu 15 tensor", 1.0),
        ("power:0", "gpu 0 power", 0.0),
        ("iowait@host", "host iowait", 1.0),
        ("busy", "busy", 1.0),
        ("waiting", "waiting", 0.0),
    ],
)
def test_a_series_has_a_chart_by_its_key(key: str, name: str, full: float) -> None:
    chart = chart_of(key)
    assert chart is not None
    assert [(curve.name, curve.key) for curve in chart.curves] == [(name, key)]
    assert chart.full == full
    assert cells(name) <= 13


@each_row("key", ["nonsense", "nonsense:3", "nonsense@host", ""])
def test_a_key_that_means_nothing_has_no_chart(key: str) -> None:
    assert chart_of(key) is None


def test_a_verdict_without_figures_and_hostile_texts_are_painted() -> None:
    of = scenes.snapshot()
    bare = Verdict("host", Limit.HOST_CPU, "", "", confidence=Confidence.LOW)
    long = replace(bare, scope="x" * 300, cause="y" * 3000, key="other", kind=Kind.HOST)
    for width in (60, 80, 120):
        lines = body(replace(of, verdicts=(bare, long)), width, 20)
        assert all(cells(line) <= width for line in lines)
        assert lines[0].startswith(" ! host CPU")


def test_times_in_verdicts_and_events_are_those_of_the_clock_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine hours ahead of UTC, as the title's clock, and without `UTC` behind them."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    shown = scenes.snapshot()
    parameters = {"down": scenes.WALL_S - 3600.0}
    down = verdicts.of_engine(shown.engines[0], Limit.DOWN, "crashed", family=Family.STATE, parameters=parameters)
    faded = replace(verdicts.bandwidth(shown.engines[1]), until="2025-10-09T08:50:12.000Z")
    judged = replace(shown, verdicts=(down, faded))
    pane = " ".join(body(judged, 200, 30))
    assert "since 16:53, cause unknown" in pane
    assert "until 17:50:12" in pane
    page = flat(page_of(judged, "verdict", verdict_key(faded)))
    assert "until 17:50:12" in page
    assert "UTC" not in pane + page
    began = Event(scenes.WALL_S, EventKind.VERDICT, down.scope, "verdict_began", key=down.key, verdict=down)
    assert event_words(began) == "down: since 16:53, cause unknown"
