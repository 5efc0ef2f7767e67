"""The line under the title names level, thing and what is wrong; while that is critical, triage stands below it."""

from __future__ import annotations

import re

import pytest

from gpumon.efficiency.deriver import snapshot_without_things
from gpumon.readings.frame import NO_DRIVER, EndpointState, Fault, Frame, HostReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.snapshot import Family, Level, Limit, Snapshot, Verdict
from gpumon.readings.verdict import Signal
from gpumon.triage.marks import urgent_by_gpu
from gpumon.tui.headline import headline, price_per_hour
from gpumon.tui.summary import summary
from gpumon.tui.triage_rows import triage_items
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.feed import Still
from tests.tui.painted import PLAIN, text
from tests.tui.running import running, text_of, until

SIZES = ((80, 24), (120, 40), (200, 60))


def line_of(snapshot: Snapshot, width: int, prices: dict[str, float] | None = None) -> tuple[str, set[str]]:
    """Text and tones of the headline."""
    rows = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, rows, prices or {}, width, PLAIN)
    return text(row), {tone for _, tone in row}


def one_verdict(code: Limit, cause: str, level: Level) -> Snapshot:
    snapshot = scenes.snapshot()
    verdict = verdicts.of_engine(snapshot.engines[0], code, cause, level=level)
    return replace(snapshot, verdicts=(verdict,), faults=())


@each_row("width", [80, 120, 200])
def test_in_trouble_it_names_level_thing_and_what_is_wrong(width: int) -> None:
    shown, tones = line_of(one_verdict(Limit.KV_CACHE_FULL, "kv_full", Level.CRITICAL), width)
    assert shown.startswith(" ✗ 1  vllm:8000 KV cache full")
    assert tones == {"alarm"}
    assert " tok/s " in shown
    assert len(shown) == width


def without_driver(text: str = NO_DRIVER) -> Snapshot:
    """A host that watches engines over the network, as the deriver gives it."""
    frame = Frame(1, scenes.WALL_S, 1.0, 1.0, HostReading(), faults=(Fault("nvml", text, scenes.WALL_S),))
    return replace(scenes.snapshot(), gpus=(), verdicts=(), faults=snapshot_without_things(frame).faults)


def test_a_missing_driver_is_a_note_where_there_are_engines() -> None:
    snapshot = without_driver()
    shown, tones = line_of(snapshot, 120)
    assert "no problem found; + 1 note" in shown
    assert not tones & {"alarm", "warn"}
    assert "fault" not in text(summary(snapshot, 120, 1, paused=False)[0])
    alone = replace(snapshot, engines=())
    assert line_of(alone, 120)[0].startswith(" ! 1  nvml fault: no NVIDIA driver library"), "nothing else is watched"
    assert "1 fault" in text(summary(alone, 120, 1, paused=False)[0])
    loud, _ = line_of(without_driver("the NVIDIA kernel driver is not loaded"), 120)
    assert loud.startswith(" ! 1  nvml fault: the NVIDIA kernel driver is not loaded")


HANGS = "no token for 3 min, 25 running, 762 waiting: its GPUs are not working (memory bandwidth 0%, busy 100%)"
SAVE = "save its log (journalctl _PID=9000001, or where its output goes), then restart it"
IN_TROUBLE = {
    60: " ✗ 1  vllm:8000 hung: no token for 3 min, 25 …   3.6k tok/s ",
    80: " ✗ 1  vllm:8000 hung: no token for 3 min, 25 running, 762 waiting    3.6k tok/s ",
    120: " ✗ 1  vllm:8000 hung: no token for 3 min, 25 running, 762 waiting",
    200: " ✗ 1  vllm:8000 hung: no token for 3 min, 25 running, 762 waiting: its GPUs are not working "
    "(memory bandwidth 0%, busy 100%) → save its log … ",
}


@each_row("width", IN_TROUBLE)
def test_what_is_wrong_comes_before_what_to_do_and_before_figures(width: int) -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    (worst, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [worst._replace(text=HANGS, actions=(SAVE,))], {}, width, PLAIN)
    assert text(row).startswith(IN_TROUBLE[width])
    assert len(text(row)) == width


def test_a_short_action_stands_behind_the_words() -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    (worst, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [worst._replace(text=HANGS, actions=("restart it",))], {}, 120, PLAIN)
    assert text(row).startswith(" ✗ 1  vllm:8000 hung: no token for 3 min, 25 running, 762 waiting → restart it")


NEEDS_ROOM = "its power limit of 200 W (700 W before) holds its clock at 0.65 of 1.98 GHz under load"
SETS = "host: sudo nvidia-smi -i 0 -pl 700 sets the default"
WITH_ACTION = {
    80: " ✗ 1  vllm:8000 hung: its power limit of 200 W → host: sudo …        3.6k tok/s ",
    120: " ✗ 1  vllm:8000 hung: its power limit of 200 W → host: sudo nvidia-smi -i 0 -pl …   3.6k",
}


@each_row("width", WITH_ACTION)
def test_the_action_has_room_before_the_rest_of_the_words_and_further_figures(width: int) -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    (worst, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [worst._replace(text=NEEDS_ROOM, actions=(SETS,))], {}, width, PLAIN)
    assert text(row).startswith(WITH_ACTION[width])


CUT = {
    "no token for three minutes and requests wait": "no token for three minutes and …  ",
    "no token for three minutes or several more": "no token for three minutes or several…",
    "vllm-" * 12: f"{'vllm-' * 7}vl…",
}


@each_row("sentence", CUT)
def test_words_are_cut_short_between_them_but_one_that_would_leave_the_line_empty(sentence: str) -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    (worst, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [worst._replace(text=sentence, actions=())], {}, 72, PLAIN)
    assert text(row).startswith(f" ✗ 1  vllm:8000 hung: {CUT[sentence]}")


CHECKING = "no problem found; 2 healthy: llama-70b, qwen-moe; checking llama-8b"
AT_PEACE = {
    60: " 3.6k tok/s  MFU 32%  MBU 64%  4921W  ● no problem found",
    80: " 3.6k tok/s  MFU 32%  MBU 64%  4921W  3/3 engines up  ● no problem found",
    120: " 3.6k tok/s  MFU 32%  MBU 64%  4921W  3/3 engines up  ● no problem found; 2 healthy: llama-70b, qwen-moe",
}


@each_row("width", AT_PEACE)
def test_the_words_of_peace_end_between_clauses(width: int) -> None:
    snapshot = replace(scenes.snapshot(), verdicts=(), faults=())
    (first, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [first._replace(text=CHECKING)], {}, width, PLAIN)
    assert text(row) == AT_PEACE[width]


def test_a_warning_has_the_colour_of_warnings() -> None:
    shown, tones = line_of(one_verdict(Limit.QUEUE_LIMIT, "queue", Level.WARN), 120)
    assert shown.startswith(" ! 1  vllm:8000 queue limit")
    assert tones == {"warn"}


def test_without_trouble_it_has_the_figures_and_says_so() -> None:
    shown, tones = line_of(replace(scenes.snapshot(), verdicts=(), faults=()), 120)
    assert " tok/s  MFU 32%  MBU 64%  4921W  3/3 engines up" in shown
    assert not tones & {"alarm", "warn", "critical"}


def test_notes_are_counted_and_no_trouble() -> None:
    shown, tones = line_of(one_verdict(Limit.LOW_EFFICIENCY, "few_requests", Level.NOTE), 120)
    assert "● no problem found; + 1 note" in shown
    assert not tones & {"alarm", "warn", "critical"}


LIMITED = {
    "seen until 08:01:40: its clock is locked (by hand); it suffers": "seen until 08:01:40: its clock is locked",
    "gpu 0: its power limit of 250 W (700 W before) holds its clock": "gpu 0: its power limit of 250 W",
    "gpu 0: seen until 08:01:40: clock is locked: by hand": "gpu 0: seen until 08:01:40: clock is locked",
}


@each_row("sentence", LIMITED)
def test_a_time_or_a_gpu_before_a_sentence_is_not_all_of_it(sentence: str) -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    (worst, *_) = triage_items(snapshot, snapshot.verdicts, (), "braille", unfolded=False)
    row = headline(snapshot, [worst._replace(text=sentence, actions=("restart it, and that soon",))], {}, 80, PLAIN)
    assert text(row).startswith(f" ✗ 1  vllm:8000 hung: {LIMITED[sentence]}")


@pytest.mark.parametrize("width", [100, 120, 200])
def test_a_note_on_what_is_not_known_says_what_that_is(width: int) -> None:
    snapshot = one_verdict(Limit.UNKNOWN, "signals", Level.NOTE)
    (unknown,) = snapshot.verdicts
    waiting = replace(unknown, unknown=(Signal("input_wait"),))
    line, _ = line_of(replace(snapshot, verdicts=(waiting,)), width)
    assert f"? {unknown.scope} unknown: what the GPUs wait for" in line
    assert "not known" not in line
    assert "no problem found" not in line, "nobody knows that"


def test_what_is_not_known_comes_before_other_notes() -> None:
    snapshot = one_verdict(Limit.UNKNOWN, "signals", Level.NOTE)
    held = verdicts.of_engine(scenes.engine(1), Limit.LOW_EFFICIENCY, "few_requests", level=Level.NOTE)
    (unknown,) = snapshot.verdicts
    line, _ = line_of(replace(snapshot, verdicts=(held, unknown)), 200)
    assert f"? {unknown.scope} unknown, + 1 note: " in line
    assert "no problem found" not in line


def test_an_engine_that_starts_comes_before_notes() -> None:
    snapshot = one_verdict(Limit.LOW_EFFICIENCY, "few_requests", Level.NOTE)
    starts = verdicts.of_engine(scenes.engine(1), Limit.STARTING, "starting", level=Level.OK)
    shown, _ = line_of(replace(snapshot, verdicts=(*snapshot.verdicts, starts)), 200)
    assert f"● {starts.scope} starting; no problem found; + 1 note" in shown
    narrow, _ = line_of(replace(snapshot, verdicts=(*snapshot.verdicts, starts)), 80)
    assert narrow.rstrip().endswith(f"● {starts.scope} starting")


def test_what_will_be_full_comes_before_the_number_of_notes() -> None:
    snapshot = one_verdict(Limit.LOW_EFFICIENCY, "few_requests", Level.NOTE)
    soon = {"seconds": 120.0, "now": 0.61, "per_min": 0.16}
    fills = verdicts.of_engine(
        snapshot.engines[0], Limit.FORECAST, "kv_full_soon", level=Level.NOTE, parameters=soon, family=Family.FORECAST
    )
    shown, tones = line_of(replace(snapshot, verdicts=(*snapshot.verdicts, fills)), 80)
    assert shown.rstrip().endswith("+ vllm:8000 KV cache full in about 2 min at this rate")
    assert not tones & {"alarm", "warn", "critical"}


def test_what_fills_up_on_the_host_names_it_once() -> None:
    snapshot = replace(scenes.snapshot(), verdicts=(), faults=())
    soon = Verdict(
        *("host", Limit.FORECAST, "host_memory_full_soon", "2026-01-02T14:00:00Z"),
        level=Level.NOTE,
        family=Family.FORECAST,
        parameters={"seconds": 240.0, "now": 1e12, "per_min": 2e10},
    )
    shown, _ = line_of(replace(snapshot, verdicts=(soon,)), 120)
    assert "+ host memory full in about 4 min at this rate" in shown


def hanging(verdict: Verdict | None = None) -> Snapshot:
    """An engine whose requests run, and that has given no token in the last 10 s, on GPUs that do not compute."""
    rates = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "cached_tokens_per_s": 0.0}
    hangs = scenes.engine(0, **rates, running_mean=24.0, advances={"decode_tokens_per_s": "live"})
    gpus = tuple(replace(gpu, tensor_active_ratio=0.0) for gpu in scenes.snapshot().gpus)
    shown = replace(scenes.snapshot(), engines=(hangs, scenes.engine(1)), gpus=gpus, faults=(), verdicts=())
    if verdict is None:
        return shown
    return replace(shown, verdicts=(verdict,))


@pytest.mark.parametrize(
    "verdict", [None, verdicts.of_engine(scenes.engine(1), Limit.LOW_EFFICIENCY, "few", level=Level.NOTE)]
)
async def test_before_an_engine_is_called_hung_it_is_said_that_no_token_comes(verdict: Verdict | None) -> None:
    said = "vllm:8000: no token for over 10 s while requests run"
    async with running(Still(hanging(verdict)), 160, 30) as (app, _):
        lines = text_of(app)
    assert said in lines[1]
    assert sum(said in line for line in lines) == 2, "the headline and the triage pane"
    assert "no problem found" not in "\n".join(lines)


async def test_before_an_engine_is_called_down_it_is_said_that_it_ended() -> None:
    """It has a verdict once it is clear that no other process takes its place, 5 s later."""
    ended = replace(scenes.engine(0), state=EndpointState.DOWN)
    snapshot = replace(scenes.snapshot(), engines=(ended, scenes.engine(1)), faults=(), verdicts=())
    async with running(Still(snapshot), 120, 30) as (app, pilot):
        lines = text_of(app)
        assert "vllm:8000 ended just now: may be restarting" in lines[1]
        assert sum("ended just now" in line for line in lines) == 2, "the headline and the triage pane"
        assert "no problem found" not in "\n".join(lines)
        await pilot.press("t", "enter")
        await until(lambda: "engine vllm:8000" in "\n".join(text_of(app)), pilot, 10.0)
        assert "no details" not in "\n".join(text_of(app))


async def test_the_row_of_an_engine_without_a_token_leads_to_it() -> None:
    async with running(Still(hanging()), 160, 30) as (app, pilot):
        await pilot.press("t", "enter")
        await until(lambda: "engine vllm:8000" in "\n".join(text_of(app)), pilot, 10.0)
        assert "no details" not in "\n".join(text_of(app))


async def test_a_verdict_on_the_engine_says_it_better() -> None:
    hung = verdicts.of_engine(scenes.engine(0), Limit.HUNG, "no_tokens", level=Level.WARN, family=Family.STATE)
    async with running(Still(hanging(hung)), 160, 30) as (app, _):
        assert "while requests run" not in "\n".join(text_of(app))


def test_a_figure_that_is_not_known_is_no_zero() -> None:
    snapshot = replace(scenes.snapshot(), verdicts=(), faults=())
    gpus = tuple(replace(gpu, mfu_ratio=NOT_EXPOSED) for gpu in snapshot.gpus)
    shown, _ = line_of(replace(snapshot, gpus=gpus), 120)
    assert "tok/s  MBU 64%" in shown
    assert "MFU" not in shown


def test_a_machine_without_engines_has_the_figures_of_its_gpus() -> None:
    gpus = tuple(replace(gpu, **scenes.NO_ENGINE) for gpu in scenes.snapshot().gpus)
    snapshot = replace(scenes.snapshot(), gpus=gpus, verdicts=(), faults=(), engines=(), replicas=())
    shown, _ = line_of(snapshot, 120)
    assert re.match(r" busy 9\d%  sm 6\d%  tensor \d+%  mem bw \d+%  VRAM 57\d/637 GiB  \d+W", shown)
    assert "MFU" not in shown
    spare = replace(gpus[7], engines=(), processes=(), busy_ratio=0.0)
    shown, _ = line_of(replace(snapshot, gpus=(*gpus[:7], spare)), 120)
    assert re.match(r" busy 8\d% of all 8 GPUs  sm ", shown), "charts are of the 7 that something uses, and say so"
    idle = tuple(replace(gpu, busy_ratio=0.0) for gpu in gpus)
    shown, _ = line_of(replace(snapshot, gpus=idle), 120)
    assert shown.startswith(" busy 0%  VRAM "), "what an idle GPU does not do needs no figures"


def test_a_training_run_has_its_own_rate_and_no_empty_one() -> None:
    none = Missing(Reason.NOT_EXPOSED)
    run = scenes.engine(
        0, phase=Phase.TRAINING, decode_tokens_per_s=none, trained_tokens_per_s=66_000.0, mbu_ratio=none
    )
    gpus = tuple(replace(gpu, mbu_ratio=none) for gpu in scenes.snapshot().gpus)
    snapshot = replace(scenes.snapshot(), gpus=gpus, engines=(run,), replicas=(), verdicts=(), faults=())
    shown, _ = line_of(snapshot, 120)
    assert re.match(r" 66\.0k tok/s trained  MFU 3\d%  \d+W  1/1 runs up", shown)


def test_the_price_is_that_of_all_gpus_or_none() -> None:
    kind = "H100 SXM5 80GB"
    snapshot = replace(scenes.snapshot(), verdicts=(), faults=())
    snapshot = replace(snapshot, gpus=tuple(replace(gpu, gpu_type=kind) for gpu in snapshot.gpus))
    assert price_per_hour(snapshot, {kind: 2.5}) == 8 * 2.5
    assert price_per_hour(snapshot, {}) is None
    other = (replace(snapshot.gpus[0], gpu_type="another"), *snapshot.gpus[1:])
    assert price_per_hour(replace(snapshot, gpus=other), {kind: 2.5}) is None
    assert price_per_hour(replace(snapshot, gpus=other), {kind: 2.5, "": 1.0}) == 7 * 2.5 + 1.0
    assert "20.0 $/h" in line_of(snapshot, 120, {kind: 2.5})[0]


GLANCES = {
    "critical": (Limit.HUNG, "hung_spinning", Level.CRITICAL, " ✗ 1  vllm:8000 hung", "alarm"),
    "warning": (Limit.QUEUE_LIMIT, "queue_slots", Level.WARN, " ! 1  vllm:8000 queue limit", "warn"),
    "healthy": (Limit.HEALTHY, "headroom", Level.OK, "● no problem found", ""),
}
"""State: its verdict, what the headline alone has to say of it (level, thing, what is wrong), and the tone of that."""


@pytest.mark.parametrize(("state", "theme"), [("critical", "default"), ("warning", "light"), ("healthy", "default")])
async def test_one_line_says_how_it_is_the_second_of_every_size(state: str, theme: str) -> None:
    limit, cause, level, words, tone = GLANCES[state]
    async with running(Still(one_verdict(limit, cause, level)), *SIZES[0], theme=theme) as (app, pilot):
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await until(lambda size=size: len(text_of(app)) == size[1], pilot)  # type: ignore[misc]
            assert words in text_of(app)[1]
            assert text_of(app)[2].startswith("─5─ triage" if level is Level.CRITICAL else "─1─ gpus")
            painted = app.monitor.body.headline.painted[0]
            styles = {segment.style for segment in painted if segment.text.strip()}
            urgent = {name for name in ("alarm", "warn") if app.palette.styles[name] in styles}
            assert urgent == ({tone} if tone else set())


async def test_triage_is_on_top_while_something_is_critical_and_a_minute_longer() -> None:
    critical = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    well = replace(critical, verdicts=())
    feed = Still(well)
    async with running(feed, 120, 40) as (app, pilot):
        assert text_of(app)[2].startswith("─1─ gpus")
        feed.give(replace(critical, wall_s=critical.wall_s + 1.0))
        await until(lambda: text_of(app)[2].startswith("─5─ triage"), pilot)
        assert app.monitor.panes["gpus"].has_focus, "the keys stay where they were"
        feed.give(replace(well, wall_s=well.wall_s + 60.0))
        await pilot.pause()
        assert text_of(app)[2].startswith("─5─ triage")
        feed.give(replace(well, wall_s=well.wall_s + 62.0))
        await until(lambda: text_of(app)[2].startswith("─1─ gpus"), pilot)


def test_the_gpus_of_a_hung_engine_are_marked_as_it_is() -> None:
    snapshot = one_verdict(Limit.HUNG, "hung_spinning", Level.CRITICAL)
    marked = urgent_by_gpu(snapshot)
    assert {gpu.reading.index for gpu in snapshot.gpus if gpu.reading.uuid in marked} == {
        gpu.reading.index for gpu in snapshot.gpus if "vllm:8000" in gpu.engines
    }
    assert marked


def test_the_gpus_of_an_engine_that_warns_are_not_ok() -> None:
    snapshot = one_verdict(Limit.QUEUE_LIMIT, "queue", Level.WARN)
    marked = urgent_by_gpu(snapshot)
    assert {gpu.reading.index for gpu in snapshot.gpus if gpu.reading.uuid in marked} == {
        gpu.reading.index for gpu in snapshot.gpus if "vllm:8000" in gpu.engines
    }
