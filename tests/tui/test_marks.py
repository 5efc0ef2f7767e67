"""What an on-call user must not miss: marks in front of names, beside the cursor, below the fold, and in the help."""

from __future__ import annotations

import pytest

from gpumon.config.schema import Screen
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import evidence_text
from gpumon.tui.pages.help import LEGEND
from gpumon.tui.widgets.list_pane import highlight_row
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, full_engine, full_snapshot, page_of, whole
from tests.tui.feed import Still
from tests.tui.painted import engine_row, seen, text
from tests.tui.running import running, text_of
from tests.tui.test_lists import below

CONTRADICTED = Evidence("mbu_beside_measured", 0.86, 0.59)
ODD = (Evidence("own_gpumon"),)


def test_a_figure_that_contradicts_the_gpus_is_marked_in_the_row_and_said_at_the_top() -> None:
    odd = full_engine(contradicts=(CONTRADICTED,))
    assert text(engine_row(odd, 80)).startswith("!vllm:8000 ")
    lines = whole(page_of(full_snapshot(engines=(odd,)), "engine", odd.key), 120)
    assert lines[1].startswith(" ! its figures contradict its GPUs · read ")
    begin = lines.index(" what does not work")
    assert begin < lines.index(" load"), "behind what its users got, before everything else"
    assert " ".join(" ".join(lines[begin + 1 : begin + 3]).split()) == f"! {evidence_text(CONTRADICTED)}"


@each_row(
    ("changed", "said"),
    [
        ({"uneven": ODD}, "its ranks are uneven"),
        ({"deviates": ODD}, "apart from its replicas"),
        ({}, "● answering"),
    ],
)
def test_the_top_of_a_page_says_what_its_row_is_marked_for(changed: dict[str, object], said: str) -> None:
    odd = full_engine(**changed)
    assert said in whole(page_of(full_snapshot(engines=(odd,)), "engine", odd.key), 120)[1]


@each_row(
    ("name", "shown"),
    [("vllm:8000", "▸!vllm:8000   Ll"), ("sglang:30000", "▸!sglang:300… Ll"), ("x", "▸!x           Ll")],
)
def test_the_cursor_hides_no_mark_and_moves_no_column(name: str, shown: str) -> None:
    row = engine_row(replace(scenes.engine(0), name=name, deviates=ODD), 80)
    under = highlight_row(row)
    assert text(under).startswith(shown)
    assert text(under)[14:] == text(row)[14:]
    assert text(highlight_row(engine_row(scenes.engine(0), 80))).startswith("▸vllm:8000    Ll")


async def test_a_marked_row_under_the_cursor_keeps_its_mark_on_the_screen() -> None:
    engines = (scenes.engine(0), scenes.engine(1, deviates=ODD))
    async with running(Still(replace(scenes.snapshot(), engines=engines)), 80, 24) as (app, pilot):
        await pilot.press("2", "j")
        assert any(line.startswith("▸!vllm:8001 ") for line in text_of(app))


def crowd(last: Engine) -> Snapshot:
    return replace(scenes.snapshot(engines=7), engines=(*(scenes.engine(at) for at in range(7)), last))


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (scenes.down_engine(7, EndpointState.METRICS_OFF, "404"), " ! vllm:8007 METRICS OFF ─ 1-"),
        (scenes.down_engine(7, EndpointState.REFUSED, "refused"), " ! vllm:8007 REFUSED ─ 1-"),
        (scenes.engine(7, deviates=ODD), " ! vllm:8007 ─ 1-"),
        (scenes.engine(7, state=EndpointState.STARTING), "engines ─"),
        (scenes.engine(7), "engines ─"),
    ],
)
async def test_what_needs_somebody_below_the_fold_is_named_on_the_rule(last: Engine, said: str) -> None:
    async with running(Still(crowd(last)), 80, 24) as (app, pilot):
        pane = below(text_of(app), "engines")
        assert said in pane[0]
        assert not any("vllm:8007" in line for line in pane[1:])
        await pilot.press("2", "G")
        pane = below(text_of(app), "engines")
        assert "vllm:8007" not in pane[0]
        assert any("vllm:8007" in line for line in pane[1:])


async def test_rows_above_the_view_count_too_and_more_than_one_is_counted() -> None:
    down = [scenes.down_engine(at, EndpointState.REFUSED, "refused") for at in range(2)]
    of = replace(scenes.snapshot(), engines=(*down, *(scenes.engine(at) for at in range(2, 9))))
    async with running(Still(of), 80, 24) as (app, pilot):
        assert "vllm:8000" not in below(text_of(app), "engines")[0]
        await pilot.press("2", "G")
        assert " ! vllm:8000 REFUSED +1 ─ " in below(text_of(app), "engines")[0]


async def test_a_lost_gpu_below_the_fold_is_named_on_the_rule() -> None:
    of = scenes.snapshot(16, 3)
    lost = scenes.dead_gpu(15, GpuState.LOST, 14.0, scenes.LOST)
    async with running(Still(replace(of, gpus=(*of.gpus[:15], lost))), 80, 24) as (app, pilot):
        await pilot.press("W")  # rows, though tiles would show all
        assert " ✗ gpu 15 LOST 14s ─ " in below(text_of(app), "gpus")[0]


@pytest.mark.parametrize("width", range(60, 201, 20))
async def test_the_rule_fills_its_line_with_and_without_an_alarm(width: int) -> None:
    last = scenes.down_engine(7, EndpointState.METRICS_OFF, "404")
    async with running(Still(crowd(replace(last, name="x" * 60))), width, 24) as (app, _):
        rules = [line for line in text_of(app) if line.startswith("─")]
        assert len(rules) > 2
        assert all(cells(line) == width and line.endswith("─") for line in rules)
        assert " ! xxx" in "".join(rules)


def test_the_gpus_of_an_engine_stand_behind_its_model() -> None:
    head, row = " engine       model     gpu  run", text(engine_row(scenes.engine(0), 80))
    assert row[head.index("gpu") : head.index("gpu") + 3] == "0-3"
    single = replace(scenes.engine(0), gpus=(12,), model="meta-llama/Llama-3.1-8B-Instruct")
    assert " Llama-3…8B 12 " in text(engine_row(single, 80))
    several = replace(single, gpus=(0, 2, 4, 6))
    assert " Llama…8B 0 2… " in text(engine_row(several, 80))
    hidden = seen(screen=Screen(hidden_columns=("engines.gpus",)))
    assert " Llama-3.1-8B… " in text(engine_row(several, 80, hidden))


async def test_a_gpu_whose_engine_has_its_metrics_off_says_so() -> None:
    of = scenes.SCENES["engines_down"]()
    none = dict.fromkeys(
        ("mfu_ratio", "mbu_ratio"), scenes.down_engine(0, EndpointState.REFUSED, "").efficiency.mfu_ratio
    )
    gpus = tuple(replace(gpu, **none) for gpu in of.gpus)
    async with running(Still(replace(of, gpus=gpus)), 80, 24) as (app, _):
        rows = below(text_of(app), "gpus")[2:]
        assert ["metrics off" in row for row in rows] == [False] * 6 + [True] * 2
        assert all("no figures" in row for row in rows[:6])
        assert "unreachable" not in "\n".join(text_of(app))


def test_the_legend_explains_every_mark_of_the_engines_table() -> None:
    shown = " ".join(mark for mark, _ in LEGEND)
    for mark in ("!vllm:8000", "n/a", "~24ms", "<10ms", "31%?", "28%*", "104%!", "GPU?"):
        assert mark in shown


def test_the_page_of_a_stale_engine_is_not_called_contradicted() -> None:
    down = scenes.down_engine(0, EndpointState.REFUSED, "nothing listens")
    assert "contradict" not in flat(page_of(replace(scenes.snapshot(), engines=(down,)), "engine", down.key))
