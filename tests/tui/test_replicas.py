"""Replicas in the engines' pane and on a page of their own; what is not live; an engine beside its own estimate."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, OwnEstimate, OwnMemory, Quantiles, RankLoad, Replicas, Snapshot
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import evidence_text
from gpumon.tui.replica_rows import is_sums, with_replica_rows
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, page_of, whole
from tests.tui.feed import Still
from tests.tui.painted import engine_row, text
from tests.tui.running import running, text_of
from tests.tui.test_lists import below, pane

MODEL = scenes.engine(0).model
APART = Evidence("replica_decode", 310.0, 1100.0, parameters={"others": 3.0})


def server() -> Snapshot:
    """Four engines: three of one model, the second of another; the last replica stands apart."""
    engines = [scenes.engine(number) for number in range(4)]
    engines[2] = replace(engines[2], model=MODEL)
    engines[3] = replace(engines[3], model=MODEL, decode_tokens_per_s=310.0, deviates=(APART,))
    names = tuple(engines[number].name for number in (0, 2, 3))
    sums = Replicas(
        MODEL,
        names,
        3,
        running=72.0,
        waiting=0.0,
        kv_usage_ratio=0.4,
        decode_tokens_per_s=2510.0,
        prefill_tokens_per_s=24_600.0,
        ttft_s=Quantiles(p95=0.3, mean=0.2, first_bound_s=0.001),
        mfu_ratio=0.28,
        mbu_ratio=0.55,
        deviating=(names[2],),
    )
    return replace(scenes.snapshot(), engines=tuple(engines), replicas=(sums,))


def test_replicas_stand_together_below_their_sums_in_the_order_of_the_engines() -> None:
    rows = with_replica_rows(server())
    assert [row.name for row in rows] == ["3 replicas", "vllm:8000", "vllm:8002", "vllm:8003", "vllm:8001"]
    assert [is_sums(row) for row in rows] == [True, False, False, False, False]
    assert with_replica_rows(scenes.snapshot()) == list(scenes.snapshot().engines)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_pane_shows_the_sums_and_marks_the_one_that_stands_apart(size: tuple[int, int]) -> None:
    async with running(Still(server()), *size) as (app, pilot):
        await pilot.press("2", "z")
        lines = below(text_of(app), "engines")
        sums = next(line for line in lines if "3 replicas" in line)
        assert "2.51k" in sums
        assert "24.6k" in sums
        marked = [line.split()[0] for line in lines if line.startswith("!")]
        assert marked == ["!vllm:8003"]


async def test_a_filter_or_an_order_shows_engines_alone() -> None:
    async with running(Still(server()), 120, 40) as (app, pilot):
        await pilot.press("2", "z", "/", *"8003", "enter")
        assert [row.name for row in pane(app, "engines").listed_items()] == ["vllm:8003"]
        assert "1 of 4" in "\n".join(text_of(app))


async def test_enter_on_the_sums_opens_the_replicas_and_leads_to_the_one_apart() -> None:
    async with running(Still(server()), 120, 40) as (app, pilot):
        await pilot.press("2", "g", "enter")
        shown = "\n".join(text_of(app))
        assert f"3 replicas · {MODEL}" in shown
        assert "all answer" in shown
        assert evidence_text(APART) in shown
        await pilot.press("enter")
        shown = "\n".join(text_of(app))
        assert "engine vllm:8003" in shown
        assert f"beside its replicas: {evidence_text(APART)}" in " ".join(shown.split())
        await pilot.press("escape", "escape")
        assert "3 replicas" in "\n".join(below(text_of(app), "engines"))


async def test_the_page_of_replicas_has_the_costs_of_all_of_them() -> None:
    costs = {
        "cost_per_hour": 7.5,
        "cost_per_million_output_tokens": 0.83,
        "unused_s": 5400.0,
        "unused_cost": 3.75,
    }
    of = server()
    of = replace(of, replicas=(replace(of.replicas[0], **costs),))
    async with running(Still(of), 120, 50) as (app, pilot):
        await pilot.press("2", "g", "enter")
        words = " ".join("\n".join(text_of(app)).split())
    for figure in ("per hour 7.50 per h", "per 1M output 0.83", "unused time 1.50 h", "unused cost 3.75"):
        assert figure in words


def test_a_replica_without_figures_is_named_on_the_page() -> None:
    of = server()
    engines = list(of.engines)
    gone = Missing(Reason.UNREACHABLE)
    engines[0] = replace(engines[0], state=EndpointState.REFUSED, fault="nothing listens", running=gone)
    of = replace(of, engines=tuple(engines), replicas=(replace(of.replicas[0], answering=2),))
    page = flat(page_of(of, "replicas", MODEL))
    assert "1 of 3 without figures" in page
    assert "nothing listens" in page


@each_row(("answering", "name"), [(3, " 3 replicas "), (2, "!2/3 replicas "), (0, "!0/3 replicas ")])
def test_the_sums_say_how_many_answer(answering: int, name: str) -> None:
    of = server()
    of = replace(of, replicas=(replace(of.replicas[0], answering=answering),))
    assert text(engine_row(with_replica_rows(of)[0], 80)).startswith(name)
    assert page_of(of, "replicas", MODEL).title() == f"{name[1:-1]} · {MODEL}"


def test_mfu_of_some_of_the_replicas_says_of_which() -> None:
    of = server()
    of = replace(of, replicas=(replace(of.replicas[0], mapped=2),))
    row, page = text(engine_row(with_replica_rows(of)[0], 80)), flat(page_of(of, "replicas", MODEL))
    assert " 28%* " in row
    assert "55%*" in row
    assert "?" not in row
    assert "MFU of 2 of 3" in page
    assert "MBU of 2 of 3" in page
    assert "MFU and MBU: of 2 of 3, as the GPUs of the others are not known" in page
    whole_group = replace(of, replicas=(replace(of.replicas[0], mapped=3),))
    assert "*" not in text(engine_row(with_replica_rows(whole_group)[0], 80))
    assert "of 3 of 3" not in flat(page_of(whole_group, "replicas", MODEL))


def test_the_sums_run_on_the_gpus_of_all() -> None:
    sums = with_replica_rows(server())[0]
    assert sums.hardware.gpus == (0, 1, 2, 3, 6, 7)
    assert " Llam…70B 0-3… " in text(engine_row(sums, 80))


def test_the_page_names_who_stands_apart_at_the_top_and_breaks_no_gpu_from_its_number() -> None:
    page = page_of(server(), "replicas", MODEL)
    assert "● all answer · ! apart: vllm:8003" in whole(page, 80)[1]
    for width in range(60, 140):
        assert not [line for line in whole(page, width) if line.endswith(" GPU")]


def late(**fields: object) -> Engine:
    """An engine that counts tokens when a request ends."""
    not_live = Missing(Reason.NOT_LIVE)
    values = {
        "kind": EngineKind.TENSORRT_LLM,
        "decode_tokens_per_s": not_live,
        "decode_mean_tokens_per_s": 812.0,
        "mfu_ratio": not_live,
        "advances": {"decode_tokens_per_s": "end"},
        "from_documentation": True,
        **fields,
    }
    return replace(scenes.engine(0), **values)


def test_what_is_not_live_is_not_a_number_in_the_row_and_has_its_mean_on_the_page() -> None:
    row = text(engine_row(late(), 80))
    assert " n/a" in row
    assert "812" not in row
    of = replace(scenes.snapshot(), engines=(late(),))
    page = flat(page_of(of, "engine", late().key))
    for words in ("n/a live", "812", "only when a request ends", "from documentation"):
        assert words in page


def test_an_engines_own_estimate_stands_beside_gpumons() -> None:
    own = OwnEstimate(2.44e15, 9e12, 1e11, 2.0, 1.08)
    of = replace(scenes.snapshot(), engines=(replace(scenes.engine(0), own=own),))
    page = flat(page_of(of, "engine", scenes.engine(0).key))
    assert "2.440 PFLOP/s" in page
    assert "2.00 x gpumon's" in page
    assert "docs/accuracy.md" in page
    off = OwnEstimate(Missing(Reason.OFF), Missing(Reason.OFF), Missing(Reason.OFF))
    of = replace(scenes.snapshot(), engines=(replace(scenes.engine(0), own=off),))
    page = flat(page_of(of, "engine", scenes.engine(0).key))
    assert "its FLOP/s" in page
    assert "switched off at its source" in page


def test_what_is_not_folded_has_the_engines_own_count_and_why_it_differs() -> None:
    own = OwnEstimate(2.44e15, 9e12, 1e11, 2.0, 1.08, "it counts twice")
    engine = replace(scenes.engine(0), own=own)
    page = page_of(replace(scenes.snapshot(), engines=(engine,)), "engine", engine.key)
    page.toggle_fold()
    assert "own FLOP/s 2.00 x gpumon's it counts twice" in flat(page, 80)
    assert "own bytes read 1.08 x gpumon's agrees" in flat(page, 80)


def test_memory_by_the_engines_own_table_is_a_notice_where_it_is_far_from_gpumons() -> None:
    memory = OwnMemory(16.0e9, 40e9, 0.5e9, weight_ratio=2.0, kv_ratio=1.04)
    engine = replace(scenes.engine(0), own_memory=memory)
    page = flat(page_of(replace(scenes.snapshot(), engines=(engine,)), "engine", engine.key))
    assert "the engine's own memory, one GPU" in page
    assert "2.00 x gpumon's" in page
    assert "! weights: gpumon expects 7.45 GiB: is the model, its precision or its number of GPUs another?" in page
    assert "! KV cache" not in page
    small = replace(engine, own_memory=OwnMemory(16.0e6, weight_ratio=2.0))
    page = flat(page_of(replace(scenes.snapshot(), engines=(small,)), "engine", engine.key))
    assert "! weights" not in page, "measured by what was free: too little to say"


def test_uneven_ranks_are_marked_and_shown() -> None:
    loads = tuple(RankLoad(str(rank), 500.0 / (rank + 1), 8.0, 0.0, 0.4) for rank in range(2))
    uneven = replace(
        scenes.engine(0), rank_loads=loads, uneven=(Evidence("rank_decode", 200.0, 300.0, parameters={"rank": "1"}),)
    )
    assert text(engine_row(uneven, 80)).startswith("!vllm:8000")
    page = flat(page_of(replace(scenes.snapshot(), engines=(uneven,)), "engine", uneven.key))
    assert "rank 1" in page
    assert "uneven ranks: decode: rank 1 gives 200 tok/s, the mean of the ranks is 300" in page


def test_two_models_of_one_server_are_two_rows_with_pages_of_their_own() -> None:
    parts = [replace(scenes.engine(0), part=name, name=f"triton:8002/{name}", model=name) for name in ("a", "b")]
    of = replace(scenes.snapshot(), engines=tuple(parts))
    assert len({engine.key for engine in of.engines}) == 2
    for part in parts:
        assert f"engine {part.name}" in page_of(of, "engine", part.key).title()
