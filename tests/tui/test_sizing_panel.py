"""The sizing panel on the real application: what each key does, and that nothing that is typed breaks it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.config.scenario_file import read_scenario, save_scenario
from gpumon.config.schema import Config, Prometheus
from gpumon.readings.history import History
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Evidence, Limit, Snapshot
from gpumon.sizing.latency import Speculation
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Disaggregated, Scenario, Server, Workload
from gpumon.tui.app import MonitorApp
from gpumon.tui.screens.palette import all_entries
from gpumon.tui.sizing.fields import FieldPlace, field_of, with_field_names, with_value
from tests.fakes.prometheus import free_port
from tests.program import run_gpumon
from tests.records import replace
from tests.tui import scenes, verdicts
from tests.tui.feed import Still
from tests.tui.past import Kept
from tests.tui.running import MONOTONIC_S, foot, names_of, question_of, run_named, running, text_of, until
from tests.tui.sizing_scenes import H100, desk_of, disk_at, gone, panel_of, snapshot, watched
from tests.tui.test_keys import focused, type_keys

pytestmark = pytest.mark.usefixtures("lasting_notices")


def target(app: MonitorApp, at: int = 0) -> float:
    return desk_of(app).scenario.workload[at].target


def needed(app: MonitorApp) -> float | None:
    answer = desk_of(app).calculation.answer
    assert answer is not None
    return number(answer.totals.gpus)


async def renewed(app: MonitorApp, pilot: Pilot[None], feed: Still, shot: Snapshot) -> None:
    """Give a snapshot, and take what it shows by the key for that."""
    feed.give(shot)
    await until(lambda: app.monitor.newest is shot, pilot)
    await type_keys(app, pilot, "r")


def shown(app: MonitorApp) -> str:
    return "\n".join(text_of(app))


def said(app: MonitorApp) -> str:
    """The panel's text without its line breaks."""
    at = panel_of(app).region.x
    return " ".join(" ".join(line[at:].lstrip("│") for line in text_of(app)[2:-1]).split())


async def test_it_opens_with_what_runs_and_closes_again() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        before = text_of(app)
        assert app.monitor.dock.panel is None
        await type_keys(app, pilot, "s")
        page = shown(app)
        assert "s─ sizing" in page
        assert "Llama-3.3-70B   [      24]" in page
        assert re.search(r"seen   \d+ points, 0s old", page)
        assert "need   8 GPUs  1 server" in page
        assert "have   8 GPUs H100 SXM5 80GB  fits on 8 of 8 GPUs" in page
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, "s")
        await until(lambda: text_of(app) == before, pilot)
        assert focused(app) == "gpus"


async def test_beside_from_140_columns_on_and_over_the_panes_below() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert app.monitor.panes["gpus"].size.width == 84
        assert panel_of(app).size.width == 56
        assert panel_of(app).region.x == 84
        assert text_of(app)[0].startswith(" gpumon")
        assert app.monitor.key_line.size.width == app.monitor.title_bar.size.width == 140
        await pilot.resize_terminal(139, 40)
        await until(lambda: panel_of(app).size.width == 139, pilot)
        assert not app.monitor.panes["gpus"].display
        assert app.monitor.focused is panel_of(app)
        await pilot.resize_terminal(200, 60)
        await until(lambda: panel_of(app).region.x == 120, pilot)
        assert app.monitor.panes["gpus"].size.width == 120
        assert app.monitor.focused is panel_of(app)
        await pilot.resize_terminal(40, 5)
        await until(lambda: text_of(app)[0].startswith("8 GPU"), pilot)
        await type_keys(app, pilot, "5", "d", "s", "x")
        assert target(app) == 24.0
        await pilot.resize_terminal(80, 24)
        await until(lambda: "s─ sizing" in text_of(app)[2], pilot)


async def test_every_digit_is_answered_at_once_and_escape_takes_it_back() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        first = needed(app)
        seen = []
        for key in "512":
            await type_keys(app, pilot, key)
            seen.append((target(app), needed(app)))
        assert [number for number, _ in seen] == [5.0, 51.0, 512.0]
        assert seen[-1][1] == 20.0 != first
        assert "need   20 GPUs" in shown(app)
        assert "[512" in shown(app)
        assert "Enter use it" in foot(app)
        await type_keys(app, pilot, "escape")
        assert (target(app), needed(app)) == (24.0, first)
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, *"512", "enter")
        assert desk_of(app).present.workload[0].target == 512.0
        await type_keys(app, pilot, "u")
        assert target(app) == 24.0
        await type_keys(app, pilot, "U")
        assert target(app) == 512.0
        await type_keys(app, pilot, "u", "ctrl+r")
        assert target(app) == 512.0


async def test_half_a_number_keeps_the_last_answer_and_says_why() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "1", "e")
        assert desk_of(app).stale
        assert target(app) == 24.0
        assert needed(app) is not None
        assert "target: 1e is no number; allowed: 0 or more, such as 512 or 1.5k" in said(app)
        await type_keys(app, pilot, "enter", "down")
        assert desk_of(app).edit is not None
        assert "as before" in foot(app)
        await type_keys(app, pilot, "3")
        assert target(app) == 1000.0
        await type_keys(app, pilot, "backspace", "backspace", "backspace")
        assert "a number is needed here" in shown(app)
        await type_keys(app, pilot, "escape")
        assert target(app) == 24.0


async def test_absurd_targets_are_answered_in_words() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        for text, answer in (("0", "the target is 0: it must be above 0"), ("1e9", "GPUs"), ("1e15", "instances")):
            await type_keys(app, pilot, *text)
            page = said(app)
            assert answer in page
            assert "failed" not in page
            assert "need   0" not in page
            await type_keys(app, pilot, "escape")


async def test_up_and_down_take_what_is_typed_and_go_on() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"100", "down", *"200", "up", "up", *"4", "up", *"50", "enter")
        scenario = desk_of(app).present
        assert [each.target for each in scenario.workload] == [100.0, 200.0, 30.0]
        assert scenario.server[0].gpus == 4
        assert scenario.tpot_p95_ms == 50.0
        assert "TPOT ≤ [50 ms]" in shown(app)
        await type_keys(app, pilot, "right", "right", *"900", "enter", "right", *"20 s", "enter")
        scenario = desk_of(app).present
        assert (scenario.ttft_p95_ms, scenario.e2e_p95_ms) == (900.0, 20_000.0)


async def test_plus_and_minus_step_the_value_and_not_the_interval() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "+", "+")
        assert target(app) == 28.0
        await type_keys(app, pilot, "-")
        assert target(app) == 25.0
        assert feed.interval_s == 1.0
        await type_keys(app, pilot, "u")
        assert target(app) == 24.0
        await type_keys(app, pilot, *"99", "+")
        assert target(app) == 100.0
        assert desk_of(app).edit is None
        await type_keys(app, pilot, "tab", "+")
        assert (target(app), feed.interval_s) == (100.0, 2.0)


async def test_twice_the_traffic_is_one_key_and_one_step_back() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "D")
        assert [target(app, at) for at in range(3)] == [48.0, 54.0, 60.0]
        await type_keys(app, pilot, "D", "u")
        assert target(app) == 48.0
        await type_keys(app, pilot, "R")
        assert target(app) == 24.0
        await type_keys(app, pilot, "u")
        assert target(app) == 48.0


async def test_a_model_without_an_answer_hides_nothing_of_the_others() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "enter")
        desk = desk_of(app)
        desk.put(with_value(desk.present, FieldPlace("workload", 2, field_of("workload", "itl_p95_ms")), 0.1))
        await type_keys(app, pilot, "escape", "up", "down")
        page = said(app)
        assert "need without 1 of 3 workloads: 6 GPUs 1 server" in page
        assert "without Mistral-Small-3.2" in page
        assert "no answer" in page
        await type_keys(app, pilot, "down", "down")
        assert "not even one request at a time" in said(app)
        await type_keys(app, pilot, "v")
        assert desk_of(app).calculation.comparison.without == ("mistralai/Mistral-Small-3.2-24B-Instruct-2506",)
        assert "without Mistral-Small-3.2-24B-Instruct-2506" in shown(app)
        [row] = [line.partition("L40S")[2].split() for line in text_of(app) if "L40S" in line]
        assert all(int(figure.strip("*")) > 0 for figure in row[:2])


async def test_a_full_kv_cache_is_no_room_for_more() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "carries 128 (80% of the KV limit): room for 104 more" in said(app)
        await type_keys(app, pilot, *"128", "enter")
        assert "carries 128 (80% of the KV limit): no room for more" in said(app)
        shot = snapshot(30.0)
        full = tuple(replace(each, kv_usage_ratio=0.99) for each in shot.engines)
        feed.give(replace(shot, engines=full))
        await type_keys(app, pilot, *"100", "enter", "r")
        assert "28 above the target, but KV here is 99% full" in said(app)
        assert "room for" not in said(app)


async def test_a_late_first_token_beside_the_plan_has_the_queue_of_now_at_80_columns() -> None:
    shot = snapshot()
    late = replace(shot.engines[0], waiting=58.0, ttft_s=replace(shot.engines[0].latency.ttft_s, mean=19.0))
    feed = watched()
    feed.show_first(replace(shot, engines=(late,)))
    async with running(feed, 80, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "82 of 82 in flight, 58 waiting; ITL mean" in said(app)
        assert re.search(r"TTFT mean 19s \(plan: \d+ms, \d+ times that\)", said(app))


async def test_replicas_at_their_limit_beside_others_with_room_tell_that_the_plan_assumes_even_routing() -> None:
    """A plan that frees GPUs beside a queue of 180 is about other routing than that of now. Triage finds who has room:
    a prefill replica that waits beside a decode one, or a queue of a moment, is none of it."""
    shot = snapshot()
    replicas = []
    for name, waiting in (("prefill", 30.0), ("decode", 0.0), ("full", 30.0)):
        replicas.append(replace(shot.engines[0], name=name, url=f"http://{name}", waiting=waiting))
    queued = replace(snapshot(3.0), engines=(*shot.engines[1:], *replicas))
    room = Evidence("replicas_with_room", 1.0, parameters={"replica": "decode"})
    found = verdicts.of_engine(replicas[2], Limit.KV_CACHE_FULL, "kv_full", evidence=(room,))
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        await renewed(app, pilot, feed, queued)
        assert "runs 3 (" in said(app)
        assert "routing" not in said(app)
        await renewed(app, pilot, feed, replace(queued, wall_s=queued.wall_s + 3.0, verdicts=(found,)))
        assert "routing assumed even; here 1 replica is at its limit, while another has room" in said(app)
        more = (replace(room, value=2.0),)
        both = (replace(found, evidence=more), replace(found, key=replicas[0].key, evidence=more))
        await renewed(app, pilot, feed, replace(queued, wall_s=queued.wall_s + 6.0, verdicts=both))
        assert "here 2 replicas are at their limit, while others have room" in said(app)
        over = replace(queued, wall_s=queued.wall_s + 9.0, verdicts=(replace(found, until=queued.time),))
        await renewed(app, pilot, feed, over)
        assert "routing" not in said(app)


async def test_the_fields_of_a_workload_say_where_their_values_come_from() -> None:
    async with running(watched(), 140, 60) as (app, pilot):
        await type_keys(app, pilot, "s", "enter")
        page = shown(app)
        for line in ("prompt (ISL)         2,000", "TP                   4", "weights              bf16"):
            assert line in page
        assert page.count("measured") > 5
        assert "Load to plan for." in page
        await type_keys(app, pilot, "down", "right")
        assert desk_of(app).scenario.workload[0].target_kind == "users"
        await type_keys(app, pilot, "down", *"30", "enter")
        assert desk_of(app).scenario.workload[0].think_s == 30.0
        await type_keys(app, pilot, "down", *"16", "enter")
        plan_of = desk_of(app).calculation.answer
        assert plan_of is not None
        assert plan_of.workloads[0].capacity_per_instance == 16.0
        assert "typed" in shown(app)
        await type_keys(app, pilot, "delete")
        assert desk_of(app).scenario.workload[0].capacity_per_instance is None
        await type_keys(app, pilot, "escape")
        assert not desk_of(app).opened
        assert "users" not in text_of(app)[4]
        await type_keys(app, pilot, "escape")
        assert not app.monitor.dock.open


async def test_choices_cycle_and_open_a_list() -> None:
    async with running(watched(), 140, 60) as (app, pilot):
        await type_keys(app, pilot, "s", "enter", *["down"] * 10, "right")
        assert desk_of(app).place.field.key == "weight_precision"
        assert desk_of(app).scenario.workload[0].weight_precision == "fp32"
        await type_keys(app, pilot, "left", "enter")
        assert "fp8" in names_of(app)
        at = names_of(app).index("fp8")
        await type_keys(app, pilot, *["down"] * at)
        assert desk_of(app).scenario.workload[0].weight_precision == "fp8"
        assert "re-scaled" in shown(app)
        await type_keys(app, pilot, "escape")
        assert desk_of(app).scenario.workload[0].weight_precision == ""
        await type_keys(app, pilot, "4")
        await until(lambda: names_of(app) == ["int4", "mxfp4", "nvfp4"], pilot)
        await type_keys(app, pilot, "escape", "7")
        assert desk_of(app).edit is None
        assert "none of the choices has this digit" in foot(app)


async def test_g_chooses_the_gpu_type_and_the_answer_follows() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "g")
        assert question_of(app)[0].startswith(" GPU type:")
        await type_keys(app, pilot, *"h200 nvl", "enter")
        assert desk_of(app).scenario.server[0].gpu.startswith("H200")
        assert "no GPU of this type here" in said(app)
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, "u")
        assert desk_of(app).scenario.server[0].gpu == H100


async def test_a_model_is_added_by_a_part_of_its_name_and_removed_again() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "a")
        await until(lambda: names_of(app)[:1] == ["meta-llama/Llama-3.3-70B"], pilot)
        assert len(names_of(app)) > 50
        await type_keys(app, pilot, *"gpt-oss-20b")
        await until(lambda: names_of(app)[:1] == ["openai/gpt-oss-20b"], pilot)
        await type_keys(app, pilot, "enter", *"64", "enter")
        scenario = desk_of(app).present
        assert (scenario.workload[3].model, scenario.workload[3].target) == ("openai/gpt-oss-20b", 64.0)
        assert scenario.workload[3].seen is None
        await type_keys(app, pilot, "x")
        assert len(desk_of(app).present.workload) == 3
        await type_keys(app, pilot, "u")
        assert len(desk_of(app).present.workload) == 4
        await type_keys(app, pilot, "a", *"my own model", "enter")
        assert desk_of(app).present.workload[4].model == "my own model"
        await type_keys(app, pilot, "a", *"llama-3.3-70B", "up", "enter")
        assert desk_of(app).present.workload[5].seen is not None


async def test_a_scenario_is_saved_and_loaded_and_nothing_is_overwritten(tmp_path: Path) -> None:
    async with running(watched(), 140, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", *"321", "enter", "w", "ctrl+u", *"mine", "enter")
        await until(lambda: "saved to" in foot(app), pilot)
        path = tmp_path / "scenarios" / "mine.toml"
        catalogues = desk_of(app).calculation.catalogues
        assert read_scenario(path) == catalogues.self_contained(desk_of(app).present)
        await type_keys(app, pilot, "d", "w", "ctrl+u", *"mine", "enter")
        await until(lambda: "is there already" in foot(app), pilot)
        assert read_scenario(path).workload[0].target == 321.0
        await type_keys(app, pilot, "l")
        await until(lambda: names_of(app) == ["mine"], pilot)
        await type_keys(app, pilot, "enter")
        await until(lambda: target(app) == 321.0, pilot)
        await type_keys(app, pilot, "u")
        assert target(app) == 642.0


async def test_a_saved_model_that_no_catalogue_has_gives_the_same_answer_on_another_machine(tmp_path: Path) -> None:
    """A model that is served from a folder is known by its engine alone: the file has its dimensions and its points."""
    shot = snapshot()
    llama = shot.engines[0].dimensions.llm
    assert llama is not None
    tiny = msgspec.structs.replace(
        llama, name="tiny-llama", layers=llama.layers // 2, not_modelled=("a vision encoder",)
    )
    feed = watched()
    for window in range(24):
        of = snapshot((window - 24) * 160.0 - 11.0, 4.0 + 2.0 * window)
        feed.calibration.take(replace(of, engines=(replace(of.engines[0], model="tiny-llama", llm=tiny),)))
    feed.show_first(replace(shot, engines=(replace(shot.engines[0], model="tiny-llama", llm=tiny),)))
    async with running(feed, 140, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", *"700", "enter", "w", "ctrl+u", *"mine", "enter")
        await until(lambda: "saved to" in foot(app), pilot)
        answer = desk_of(app).calculation.answer
        assert answer is not None
        assert not answer.problem
        path = tmp_path / "scenarios" / "mine.toml"
        assert read_scenario(path).workload[0].dimensions == tiny
        await type_keys(app, pilot, "l")
        await until(lambda: names_of(app) == ["mine"], pilot)
        await type_keys(app, pilot, "enter")
        await until(lambda: desk_of(app).present.workload[0].dimensions is not None, pilot)
        loaded = desk_of(app).calculation.answer
    elsewhere = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "elsewhere")}
    printed = run_gpumon("size", str(path), "--json", env=elsewhere)
    assert printed.returncode == 0, printed.stderr
    there = json.loads(printed.stdout)
    for totals in (msgspec.to_builtins(answer.totals), msgspec.to_builtins(loaded.totals if loaded else None)):
        for name in ("gpus", "servers", "instances", "price_per_hour", "memory_bytes"):
            assert there["totals"][name] == totals[name], name
    assert there["workloads"][0]["itl_s"] == pytest.approx(answer.workloads[0].itl_s)


async def test_a_file_by_its_path_and_one_that_is_none(tmp_path: Path) -> None:
    scenario = Scenario(server=(Server(H100),), workload=(Workload("openai/gpt-oss-20b", 77.0, prompt_tokens=900.0),))
    save_scenario(tmp_path / "a.toml", scenario, replace=False)
    (tmp_path / "bad.toml").write_text("[[workload]]\nmodel = 5\n")
    async with running(watched(), 200, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "l")
        await until(lambda: app.monitor.question_bar is not None, pilot)
        await type_keys(app, pilot, *str(tmp_path / "a.toml"), "enter")
        await until(lambda: target(app) == 77.0, pilot)
        assert desk_of(app).present == scenario
        for name, said in (("bad.toml", "workload[0].model"), ("none.toml", "none.toml")):
            await type_keys(app, pilot, "l")
            await until(lambda: app.monitor.question_bar is not None, pilot)
            await type_keys(app, pilot, *str(tmp_path / name), "enter")
            await until(lambda said=said: said in foot(app), pilot)  # type: ignore[misc]
        assert desk_of(app).present == scenario


async def test_pools_of_prefill_and_decode_are_one_line_beside_the_plan(tmp_path: Path) -> None:
    """Where the loaded scenario asks for them; ranks and speculation stand behind the TP."""
    workload = Workload("openai/gpt-oss-20b", 77.0, prompt_tokens=4000.0, answer_tokens=300.0, itl_p95_ms=20.0)
    asked = replace(workload, disaggregated=Disaggregated(), dp=2, speculative=Speculation(3.0, 2.1))
    save_scenario(tmp_path / "a.toml", Scenario(server=(Server(H100),), workload=(asked,)), replace=False)
    async with running(watched(), 200, 60, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "disaggregated" not in shown(app)
        await type_keys(app, pilot, "l")
        await until(lambda: app.monitor.question_bar is not None, pilot)
        await type_keys(app, pilot, *str(tmp_path / "a.toml"), "enter")
        await until(lambda: target(app) == 77.0, pilot)
        plan_of = desk_of(app).calculation.answer
        assert plan_of is not None
        split = plan_of.workloads[0].disaggregated
        assert split is not None
        assert f"disaggregated {split.text}; not measured" in said(app)
        assert "DP 2 typed" in said(app)
        assert "3.1 tokens per step" in said(app)


async def test_v_goes_through_pictures_and_the_comparison_of_gpus() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        seen = []
        for _ in range(5):
            await type_keys(app, pilot, "v")
            seen.append(shown(app))
        assert len(set(seen)) == 5
        assert "ITL in ms over requests in flight" in seen[0]
        assert "L40S" in seen[1]
        assert "optimal" in seen[2]
        assert "simulation of one instance" in seen[3]


async def test_missing_figures_freeze_the_rows_and_never_need_nothing() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        before = needed(app)
        later = gone(snapshot(), 190.0)
        feed.calibration.take(later)
        await renewed(app, pilot, feed, later)
        assert needed(app) == before
        assert "‖3m" in shown(app)
        assert [target(app, at) for at in range(3)] == [24.0, 27.0, 30.0]


async def test_a_target_that_nobody_typed_is_that_of_what_runs_once_a_key_takes_it() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "down", "d", "up", *"7")
        shot = snapshot(3.0, 40.0)
        feed.give(shot)
        await until(lambda: app.monitor.newest is shot, pilot)
        assert [target(app, at) for at in range(3)] == [7.0, 54.0, 30.0]
        await type_keys(app, pilot, "r")
        assert [target(app, at) for at in range(3)] == [7.0, 54.0, 46.0]
        await type_keys(app, pilot, "u")
        assert target(app) == 40.0
        assert "1 changed" in shown(app)
        await type_keys(app, pilot, "enter")
        assert "target [40] as it ran" in said(app)
        await type_keys(app, pilot, "escape", "R")
        assert [target(app, at) for at in range(3)] == [40.0, 43.0, 46.0]


async def test_a_target_is_the_larger_one_of_the_peak_and_of_what_runs() -> None:
    """Triage counts the requests of now: two answers to "how many" have two numbers of requests."""
    feed = watched()
    for second in range(-60, 0):
        feed.calibration.take(snapshot(float(second), 40.0))
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert target(app) == 40.0
        assert "target the peak of the last 1 min; 24 in flight at the end with" in said(app)
        shot = snapshot(3.0)
        full = tuple(replace(engine, waiting=70.0, requests_per_s=2.0, rejections_per_s=1.0) for engine in shot.engines)
        await renewed(app, pilot, feed, replace(shot, engines=full))
        assert target(app) == 106.0
        above = "highest mean of 10 s in the last 1 min: 40"
        assert f"target 106 in flight at the end, 12 of them turned away; {above} with" in said(app)
        await type_keys(app, pilot, *"50", "enter")
        assert "106 in flight at the end, 12 of them" not in said(app)


async def test_a_loaded_file_never_follows_and_undo_brings_back_what_does(tmp_path: Path) -> None:
    feed = watched()
    async with running(feed, 140, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "d")
        mine = replace(desk_of(app).present, name="mine")
        save_scenario(tmp_path / "a.toml", mine, replace=False)
        await type_keys(app, pilot, "l")
        await until(lambda: app.monitor.question_bar is not None, pilot)
        await type_keys(app, pilot, *str(tmp_path / "a.toml"), "enter")
        await until(lambda: desk_of(app).present.name == "mine", pilot)
        await type_keys(app, pilot, "enter")
        assert "target [48] typed" in said(app)
        await type_keys(app, pilot, "escape", "u")
        await renewed(app, pilot, feed, snapshot(3.0, 40.0))
        assert [target(app, at) for at in range(2)] == [48.0, 43.0]
        await type_keys(app, pilot, "U")
        assert desk_of(app).present == mine
        await type_keys(app, pilot, "R", "u")
        assert desk_of(app).present == mine


async def test_a_loaded_file_may_name_gpus_and_clouds_servers_as_people_do(tmp_path: Path) -> None:
    async with running(watched(), 140, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "d")
        servers = (Server("g6e.12xlarge"), Server("H100"))
        save_scenario(tmp_path / "a.toml", replace(desk_of(app).present, server=servers), replace=False)
        await type_keys(app, pilot, "l")
        await until(lambda: app.monitor.question_bar is not None, pilot)
        await type_keys(app, pilot, *str(tmp_path / "a.toml"), "enter")
        await until(lambda: len(desk_of(app).present.server) == 2, pilot)
        rented, usual = desk_of(app).present.server
        assert (rented.gpu, rented.gpus, rented.network) == ("L40S", 4, "Ethernet 25")
        assert (usual.gpu, usual.gpus) == ("H100 SXM5 80GB", 8)
        assert "g6e.12xlarge is 4 x L40S" in shown(app)


async def test_the_list_of_gpus_has_clouds_servers_and_what_names_mean() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "d", "g")
        await type_keys(app, pilot, *"p5.48")
        assert any("AWS: 8 x H100 SXM5 80GB" in line for line in question_of(app))
        await type_keys(app, pilot, "enter")
        (server,) = desk_of(app).present.server
        assert (server.gpu, server.gpus, server.network) == ("H100 SXM5 80GB", 8, "EFA 400")
        await type_keys(app, pilot, "g", *"RTX 5090 32GB", "enter")
        assert [one.gpu for one in desk_of(app).present.server] == ["GeForce RTX 5090"]


async def test_what_is_no_number_stays_marked_with_what_is_allowed_and_how_to_mend_it() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"51")
        for key in ("b", "y", "_"):  # no command has these keys
            await type_keys(app, pilot, key)
            assert f"target: 51{key} is no number; allowed: 0 or more, such as 512 or 1.5k" in said(app)
            assert "Backspace: delete · Ctrl+U: clear · Esc: as before" in shown(app)
            assert app.monitor.question_bar is None
            await type_keys(app, pilot, "backspace")
            assert target(app) == 51.0
        await type_keys(app, pilot, "ctrl+r")
        assert "ctrl+r waits until the number is taken" in shown(app)
        assert target(app) == 51.0
        await type_keys(app, pilot, *"2k", "enter")
        assert target(app) == 512_000.0
        await type_keys(app, pilot, *"5", "enter", "u")
        assert target(app) == 512_000.0
        await type_keys(app, pilot, *"5")
        assert foot(app).endswith("ctrl+c quit")
        await type_keys(app, pilot, "ctrl+c")
        await until(lambda: app.return_code is not None, pilot)


async def test_letters_on_a_number_field_are_no_commands() -> None:
    async with running(watched(), 80, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "up", "up", "enter")
        assert desk_of(app).place.field.key == "tpot_p95_ms"
        before = desk_of(app).present
        for key in "fatuRqjdwgvp":
            await type_keys(app, pilot, key)
            assert f"TPOT p95: {key} is no number; type one such as 40, in ms" in foot(app)
            assert (desk_of(app).present, desk_of(app).cell) == (before, 0)
            assert app.monitor.question_bar is None
            assert app.monitor.dock.open
        await type_keys(app, pilot, *"40", "enter")
        assert desk_of(app).present.tpot_p95_ms == 40.0
        assert "Enter type" in foot(app)
        await type_keys(app, pilot, "delete")
        assert desk_of(app).present.tpot_p95_ms is None
        await type_keys(app, pilot, "escape", "f")
        assert desk_of(app).present.workload[0].weight_precision == "fp8"


async def test_over_the_panes_tab_says_that_sizing_is_open_and_keeps_it() -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "Tab panes" not in foot(app)
        for key in ("tab", "shift+tab"):
            await type_keys(app, pilot, "down", key)
            assert "sizing has the whole screen: s closes it" in foot(app)
            assert app.monitor.focused is panel_of(app)
        await pilot.resize_terminal(140, 40)
        await until(lambda: panel_of(app).size.width == 56, pilot)
        await type_keys(app, pilot, "tab")
        assert focused(app) == "gpus"


async def test_a_gpu_that_something_else_holds_is_drawn_and_counted_as_taken() -> None:
    shot, feed = snapshot(), watched()
    held = replace(scenes.SCENES["wasted"]().gpus[7], gpu_type=H100)
    feed._snapshot = replace(shot, gpus=(*shot.gpus[:7], held), engines=shot.engines[:2])
    async with running(feed, 140, 60) as (app, pilot):
        await type_keys(app, pilot, "s", "v", "v", "v", "v")
        page = said(app)
        assert "have 7 GPUs H100 SXM5 80GB fits on 6 of 7 GPUs: frees 1 GPU" in page
        assert "GPU 7: in use by python3, 76.9 GB" in page
        assert "GiB" not in page
        await type_keys(app, pilot, *"140", "enter")
        assert "short 3 GPUs" in said(app)


async def test_ticks_cost_no_answer_while_nothing_changed() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        answer = desk_of(app).calculation.answer
        for tick in range(1, 6):
            now = replace(snapshot(), wall_s=scenes.WALL_S + tick)
            feed.give(now)
            await until(lambda now=now: app.monitor.shown is now, pilot)  # type: ignore[misc]
        assert desk_of(app).calculation.answer is answer
        await type_keys(app, pilot, "s")
        feed.give(snapshot(100.0, 60.0))
        await pilot.pause()
        assert app.monitor.dock.panel is not None
        assert app.monitor.dock.panel.state.calculation.answer is answer


async def test_tab_leaves_it_and_s_comes_back() -> None:
    async with running(watched(), 160, 50) as (app, pilot):
        await type_keys(app, pilot, "s", "tab")
        assert focused(app) == "gpus"
        assert app.monitor.dock.open
        await type_keys(app, pilot, "2", "j")
        assert focused(app) == "engines"
        await type_keys(app, pilot, "s")
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, "shift+tab")
        assert focused(app) == "triage"
        await type_keys(app, pilot, "tab")
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, "?")
        assert "in the sizing panel" in shown(app)
        assert app.monitor.panes["gpus"].display is False
        await type_keys(app, pilot, "escape")
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, ":", "escape")
        assert app.monitor.focused is panel_of(app)


async def test_a_click_puts_the_cursor_on_a_row() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "tab")
        at = next(y for y, line in enumerate(text_of(app)) if "Qwen3-30B-A3B          27 " in line)
        await pilot.click(offset=(100, at))
        await until(lambda: desk_of(app).workload_number == 1, pilot)
        assert app.monitor.focused is panel_of(app)
        await type_keys(app, pilot, *"64", "enter")
        assert target(app, 1) == 64.0


async def test_without_an_engine_it_says_how_to_begin() -> None:
    async with running("empty", 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "no workload: a adds one, l loads a file" in shown(app)
        for key in ("d", "x", "+", "enter", "escape", "5", "escape", "v", "u", "R", "down", "up", "right"):
            await type_keys(app, pilot, *(() if app.monitor.dock.open else ("s",)), key)
            await type_keys(app, pilot, *(("escape",) if app.monitor.question_bar is not None else ()))
        assert "failed" not in shown(app)
        await type_keys(app, pilot, "g", *"h100 sxm", "enter", "a", *"gpt-oss-20b", "enter", *"64", "enter")
        await until(lambda: "known" in shown(app) and desk_of(app).edit is None, pilot)
        await type_keys(app, pilot, "enter", *["down"] * 4, *"2000", "down", *"300", "enter", "escape")
        await until(lambda: needed(app) is not None, pilot)


async def test_the_settings_are_where_it_begins() -> None:
    config = Config()
    config = replace(
        config,
        sizing=replace(config.sizing, gpu="H200 SXM 141GB", gpus=4, packing="memory", planning_factor=0.7),
        goals=replace(config.goals, itl_p95_ms=45.0),
    )
    async with running(watched(), 140, 40, config=config) as (app, pilot):
        await type_keys(app, pilot, "s")
        scenario = desk_of(app).present
        assert scenario.server == (Server("H200 SXM 141GB", 4),)
        assert (scenario.packing, scenario.planning_factor, scenario.itl_p95_ms) == ("memory", 0.7, 45.0)


async def test_the_palette_has_its_commands_while_it_is_open() -> None:
    async with running(watched(), 140, 40) as (app, pilot):
        names = [entry.name for entry in all_entries(app.monitor)]
        assert "double this target" not in names
        await type_keys(app, pilot, "s")
        names = [entry.name for entry in all_entries(app.monitor)]
        assert "double this target" in names
        await run_named(app, pilot, "double this target")
        await until(lambda: target(app) == 48.0, pilot)


HOSTILE = "evil\x1b[31m[bold]\u202e名前" * 20


def hostile() -> Still:
    base = snapshot()
    engines = tuple(replace(each, model=HOSTILE, name=HOSTILE, llm=None) for each in base.engines)
    feed = Still(replace(base, engines=engines))
    for tick in range(24):
        of = snapshot((tick - 24) * 11.0, 4.0 + 2.0 * tick)
        feed.calibration.take(replace(of, engines=tuple(replace(e, model=HOSTILE, llm=None) for e in of.engines)))
    return feed


@pytest.mark.parametrize("size", [(60, 15), (160, 50)])
async def test_hostile_names_stay_text(size: tuple[int, int]) -> None:
    async with running(hostile(), *size) as (app, pilot):
        for keys in (("s",), ("enter",), ("escape", "5"), ("escape", "a"), ("escape", "v"), ("v", "v", "v", "v")):
            await type_keys(app, pilot, *keys)
            text = said(app)
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert "failed" not in text


SCENES = (
    "empty",
    "engines_down",
    pytest.param("crowded", marks=pytest.mark.wide),
    pytest.param("engines_only", marks=pytest.mark.wide),
)


@pytest.mark.parametrize("scene", SCENES)
async def test_it_opens_on_every_server(scene: str) -> None:
    async with running(scene, 160, 50) as (app, pilot):
        for keys in (("s",), ("d",), ("v",), ("v",), ("enter",), ("escape", "up", "enter"), ("escape", "up", "enter")):
            await type_keys(app, pilot, *keys)
            assert "failed" not in shown(app), keys


async def test_the_answer_is_that_of_the_plan() -> None:
    feed = watched()
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"700", "enter")
        desk = desk_of(app)
        expected = plan(desk.present, feed.catalogues(), {H100: 8})
        assert desk.calculation.answer == expected
        assert not isinstance(expected.totals.gpus, Missing)


async def test_a_panel_that_waits_for_its_first_snapshot_begins_with_what_then_runs() -> None:
    feed = watched()
    given: Snapshot | None = feed._snapshot
    feed._snapshot = None
    from gpumon.config.themes import load_theme

    app = MonitorApp(
        feed, load_theme("default"), Config(), unix_time=lambda: scenes.WALL_S, monotonic=lambda: MONOTONIC_S
    )
    async with app.run_test(size=(140, 40)) as pilot:
        await asyncio.sleep(0.1)
        await type_keys(app, pilot, "s")
        assert "no workload" in shown(app)
        assert given is not None
        feed.give(given)
        await until(lambda: "Llama-3.3-70B" in shown(app), pilot)


async def test_arrows_take_what_is_typed_and_digits_on_a_choice_open_its_list() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "up", "up", "4", "0", "right", "right", "1")
        assert desk_of(app).present.tpot_p95_ms == 40.0
        assert desk_of(app).scenario.ttft_p95_ms == 1.0
        await type_keys(app, pilot, "escape", "down", "right", "2", "0", "0")
        assert app.monitor.pages.shown is None
        await until(lambda: "H200 SXM 141GB" in names_of(app), pilot)
        await until(lambda: all("200" in name for name in names_of(app)), pilot)
        await type_keys(app, pilot, "escape")
        assert "[H100 SXM5 80GB]" in shown(app)


async def test_a_negative_number_is_refused() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        app.post_message(events.Paste("-5"))
        await until(lambda: "[-5" in shown(app), pilot)
        assert "must be at least 0" in shown(app)
        await type_keys(app, pilot, "escape")
        assert target(app) == 24.0


async def test_all_types_of_gpu_fit_and_escape_brings_the_words_back() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "v", "v")
        assert all(f"\n{gpu}" in shown(app) for gpu in ("H100", "L40S", "A100", "H200", "B200"))
        assert "ITL mean" in shown(app)
        assert "lines of notes: Esc" in shown(app)
        await type_keys(app, pilot, "escape")
        assert app.monitor.dock.open
        assert "all together" in shown(app)


def most_blank_lines(app: MonitorApp) -> int:
    """Longest run of blank lines of the panel."""
    runs = re.findall(r"(?:^[│ ]*\n)+", shown(app) + "\n", re.MULTILINE)
    return max((run.count("\n") for run in runs), default=0)


@pytest.mark.parametrize("height", [22, pytest.param(26, marks=pytest.mark.wide)])
async def test_a_picture_that_was_asked_for_is_drawn_with_any_number_of_models(height: int) -> None:
    """Between the least room and the room it wants there was nothing, and no words either."""
    async with running(watched(), 80, height) as (app, pilot):
        await type_keys(app, pilot, "s")
        for added in range(2):
            for _ in range(4):
                await type_keys(app, pilot, "v")
                assert "▸Llama-3.3-70B" in shown(app)
                assert most_blank_lines(app) < 4, shown(app)
            await type_keys(app, pilot, "escape", "a", *"gpt-oss", "enter", *["up"] * (3 + added))


async def test_workloads_without_a_place_are_counted() -> None:
    async with running(watched(), 60, 15) as (app, pilot):
        await type_keys(app, pilot, "s")
        for _ in range(3):
            await type_keys(app, pilot, "a", *"gpt-oss", "enter")
        assert "more: ↑ ↓" in shown(app)
        assert "s close" in foot(app)


def test_messages_name_fields_as_the_panel_does() -> None:
    assert (
        with_field_names("set think_s and itl_p95_ms, not rethink_sx") == "set think time and ITL p95, not rethink_sx"
    )


async def test_notes_that_have_no_room_are_counted_and_can_be_scrolled() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "f")
        assert "need   6 GPUs" in shown(app)
        first = shown(app)
        hidden = re.search(r"(\d+ lines?) below: PgDn ·", first)
        assert hidden is not None
        seen = [first]
        while "below: PgDn" in shown(app):
            await type_keys(app, pilot, "pagedown")
            seen.append(shown(app))
        assert "need   6 GPUs" in seen[-1]
        assert f"{hidden[1]} above: PgUp" in seen[-1]
        assert "with   TP 2" not in seen[-1]
        await type_keys(app, pilot, "pagedown")
        assert shown(app) == seen[-1]
        await type_keys(app, pilot, *["pageup"] * (len(seen) - 1))
        assert shown(app) == first
        await type_keys(app, pilot, "pagedown", "down")
        assert "with   TP 2" in shown(app)


async def test_the_row_under_the_cursor_says_what_it_is_planned_with() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "with TP 4 · weights bf16 · KV cache bf16" in said(app)
        await type_keys(app, pilot, "f")
        assert "with TP 2 · weights fp8 typed · KV cache bf16" in said(app)
        desk = desk_of(app)
        desk.put(with_value(desk.present, FieldPlace("workload", 0, field_of("workload", "itl_p95_ms")), 40.0))
        await type_keys(app, pilot, "down", "up")
        assert "own goal ITL p95 ≤ 40 ms" in said(app)
        await type_keys(app, pilot, "down")
        assert "own goal" not in said(app)


async def test_other_weights_are_never_those_that_the_model_has() -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "a", *"gpt-oss-20b", "enter")
        fp8 = replace(desk_of(app).present.workload[3], model="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", target=4.0)
        desk_of(app).put(replace(desk_of(app).present, workload=(fp8,)))
        await type_keys(app, pilot, "down", "down", "down")
        assert "weights fp8 ·" in said(app)
        seen = []
        for _ in range(4):
            await type_keys(app, pilot, "f")
            seen.append(desk_of(app).scenario.workload[0].weight_precision)
        assert seen == ["w8a8", "int4", "nvfp4", ""]


async def test_the_peak_of_the_past_gives_targets_that_stay() -> None:
    feed = watched()
    hour = [snapshot(60.0 * minute - 3600.0, 100.0 if 20 <= minute < 24 else 24.0) for minute in range(60)]
    feed.timeline = Kept(hour, History())
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "P")
        assert names_of(app) == ["what runs now", "p95 of what is recorded"]
        await type_keys(app, pilot, "enter")
        await until(lambda: [target(app, at) for at in range(3)] == [100.0, 103.0, 106.0], pilot)
        later = snapshot(3.0, 40.0)
        feed.give(later)
        await until(lambda: app.monitor.newest is later, pilot)
        await type_keys(app, pilot, "enter")
        assert "target [100] p95 recorded" in said(app)
        await type_keys(app, pilot, "escape", "P", "up", "enter")
        await until(lambda: target(app) == 40.0, pilot)
        await type_keys(app, pilot, "u")
        assert target(app) == 100.0


async def test_each_past_to_plan_for_takes_one_line_at_80_columns(tmp_path: Path) -> None:
    config = Config(prometheus=Prometheus(url=f"http://127.0.0.1:{free_port()}"))
    feed = watched()
    feed.timeline = Kept([snapshot(60.0 * minute - 3600.3) for minute in range(60)], History())
    async with running(feed, 80, 24, config=config, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "P")
        recorded = next(line for line in text_of(app) if "p95 of what is recorded" in line)
        assert re.search(r"in flight of each model, 59 min up to \d\d:\d\d:\d\d", recorded)
        scraped = next(line for line in text_of(app) if "p95 in the Prometheus" in line)
        assert scraped.rstrip().endswith("on all hosts, last 7 days")


async def test_a_prometheus_that_does_not_answer_leaves_the_targets(tmp_path: Path) -> None:
    config = Config(prometheus=Prometheus(url=f"http://127.0.0.1:{free_port()}"))
    async with running(watched(), 140, 40, config=config, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "P")
        assert names_of(app) == ["what runs now", "p95 in the Prometheus"]
        await type_keys(app, pilot, "enter")
        await until(lambda: " prometheus:" in foot(app), pilot)
        assert target(app) == 24.0


async def test_one_key_tries_another_tp_other_weights_and_another_goal() -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        first = desk_of(app).scenario
        tp = desk_of(app).calculation.instance(0).tp
        await type_keys(app, pilot, "t")
        assert desk_of(app).scenario.workload[0].tp != first.workload[0].tp
        assert desk_of(app).calculation.instance(0).tp != tp
        await type_keys(app, pilot, "f")
        assert desk_of(app).scenario.workload[0].weight_precision == "fp8"
        await type_keys(app, pilot, "i")
        assert desk_of(app).scenario.tpot_p95_ms is not None
        await type_keys(app, pilot, "T")
        assert desk_of(app).scenario.ttft_p95_ms is not None
        await type_keys(app, pilot, "u", "u", "u", "u")
        assert desk_of(app).scenario == first


async def test_plan_for_keeps_goals_tp_and_what_else_was_typed() -> None:
    feed = watched()
    hour = [snapshot(60.0 * minute - 3600.0, 100.0 if 20 <= minute < 24 else 24.0) for minute in range(60)]
    feed.timeline = Kept(hour, History())
    async with running(feed, 140, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "i", *"70", "enter", "T", *"900", "enter", "t", "d")
        typed = desk_of(app).present
        assert (typed.tpot_p95_ms, typed.ttft_p95_ms, typed.workload[0].tp) == (70.0, 900.0, 8)
        for keys, loads in ((("enter",), [100.0, 103.0, 106.0]), (("up", "enter"), [24.0, 27.0, 30.0])):
            await type_keys(app, pilot, "P", *keys)
            await until(lambda loads=loads: [target(app, at) for at in range(3)] == loads, pilot)  # type: ignore[misc]
            assert "goals and TP as they were" in foot(app)
            now = desk_of(app).present
            assert now.workload[0].tp == 8
            assert replace(now, workload=()) == replace(typed, workload=())
        await renewed(app, pilot, feed, snapshot(3.0, 40.0))
        assert target(app) == 40.0
        await type_keys(app, pilot, "P", "up", "enter")
        assert "no target changed; R begins anew" in foot(app)


async def test_escape_from_the_fields_of_the_goals_comes_back_to_their_row() -> None:
    """They were opened on a goal that a key went to from a workload: that row is not gone back to with its fields."""
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "i", "enter", "escape")
        assert not desk_of(app).opened
        assert desk_of(app).stop.section == "goals"
        assert "field 1 of" not in said(app)


@pytest.mark.parametrize(("key", "goal"), [("i", "tpot_p95_ms"), ("T", "ttft_p95_ms")])
async def test_digits_after_a_goal_s_key_are_the_goal(key: str, goal: str) -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "down", key, key)
        assert desk_of(app).place.field.key == goal
        assert desk_of(app).workload_number == 1
        await type_keys(app, pilot, *"350", "enter")
        assert getattr(desk_of(app).present, goal) == 350.0
        assert [target(app, at) for at in range(3)] == [24.0, 27.0, 30.0]
        assert (desk_of(app).stop.section, desk_of(app).stop.number) == ("workload", 1)
        await type_keys(app, pilot, key, "d")
        assert target(app, 1) == 54.0
        await type_keys(app, pilot, key, "5", "escape")
        assert desk_of(app).stop.section == "workload"
        assert app.monitor.dock.open
        await type_keys(app, pilot, "enter", key)
        assert not desk_of(app).opened or desk_of(app).place.field.kind is not None


async def test_a_wrong_number_stays_marked_until_it_is_right() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", *"12ybc")
        assert "[12ybc" in shown(app)
        assert "target: 12ybc is no number; allowed: 0 or more, such as 512 or 1.5k" in said(app)
        for key in ("enter", "down", "up", "left", "right"):
            await type_keys(app, pilot, key)
            assert "not taken: target: 12ybc is no number" in said(app)
            assert "[12ybc" in shown(app)
            assert not app.monitor.key_line.notice
        await type_keys(app, pilot, *["backspace"] * 3)
        assert "answered as you type · Enter: use it · Esc: as before" in shown(app)
        await type_keys(app, pilot, "enter")
        assert desk_of(app).present.workload[0].target == 12.0


async def test_a_server_by_another_name_of_its_gpu_has_the_price_of_the_catalogue_s(tmp_path: Path) -> None:
    scenario = Scenario(server=(Server("h100 sxm5 80gb"),), workload=(Workload("openai/gpt-oss-20b", 77.0),))
    save_scenario(tmp_path / "a.toml", scenario, replace=False)
    async with running(watched(), 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "s", "l")
        await until(lambda: app.monitor.question_bar is not None, pilot)
        await type_keys(app, pilot, *str(tmp_path / "a.toml"), "enter")
        await until(lambda: target(app) == 77.0, pilot)
        assert "no price" not in shown(app)
        assert "8x h100 sxm5 80gb  2.5 per GPU-h" in shown(app)


async def test_a_capital_a_adds_a_server_type_and_the_plan_names_each() -> None:
    async with running(watched(), 120, 50) as (app, pilot):
        await type_keys(app, pilot, "s", "A")
        assert question_of(app)[0].startswith(" add servers with:")
        await type_keys(app, pilot, *"a100 sxm4 80", "enter")
        assert [each.gpu for each in desk_of(app).present.server] == [H100, "A100 SXM4 80GB"]
        assert desk_of(app).present.server[0].count == 1
        assert "at most 1" in shown(app)
        await type_keys(app, pilot, "down", *"900", "enter")
        assert "A100 SXM4 80GB in" in said(app)
        assert "of 8 H100 SXM5 80GB in 1 server" in said(app)
        await type_keys(app, pilot, "v")
        assert "as planned" in shown(app)
        await type_keys(app, pilot, "v")
        assert "GPUs shared by memory and busy share: 8x H100 SXM5 80GB, 8x A100 SXM4 80GB" in shown(app)
        await type_keys(app, pilot, "up", "x")
        assert [each.gpu for each in desk_of(app).present.server] == [H100]
