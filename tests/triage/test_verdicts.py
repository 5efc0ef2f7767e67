"""What stands, by its codes: cause, level, figures and the first action; and that every code has words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpumon.outputs.verdicts import markdown
from gpumon.readings.frame import EndpointState, GpuState, Phase, XidEvent
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Family, Kind, Level, Quantiles, TokensTotal
from gpumon.readings.verdict import Action, Evidence, Limit, Verdict
from gpumon.specs.llm import LlmSpec
from gpumon.triage import render, templates
from gpumon.triage.peers import vetted_action
from gpumon.tui.detail.verdict import sections
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, SPINS, judged, only, scene
from tests.triage.stage import GIB, START_S, Of, Stage, engine, gpu, limit, process, verdict

GHZ = 1e9
STOPS: Mapping[str, Any] = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0}
COMPUTES = {**SPINS, "sm_active_ratio": 0.94, "tensor_active_ratio": 0.83, "bandwidth_bytes_per_s": 0.02 * PEAK}
BLIND = {"sm_active_ratio": NOT_SUPPORTED, "tensor_active_ratio": NOT_SUPPORTED, "power_limit_w": 700.0}
DRAWS = {**SPINS, **BLIND, "power_w": 515.0}
RESTS = {**SPINS, **BLIND, "power_w": 210.0}
RESTART = "save_stacks_and_restart"
QUEUED = {"waiting": 20.0, "running": 24.0, "queue_s": Quantiles(mean=1.8), "ttft_s": Quantiles(mean=2.0, p95=4.0)}
READS = {**BUSY, "bandwidth_bytes_per_s": 0.81 * PEAK}
FULL = {**BUSY, "tensor_active_ratio": 0.7}
PROMPTS = {"mfu_ratio": 0.5, "mfu_prefill_ratio": 0.45}


@each_row(
    ("changes", "card", "code", "cause", "level", "first"),
    [
        (STOPS, SPINS, Limit.HUNG, "hung_spinning", Level.CRITICAL, RESTART),
        (STOPS, IDLE, Limit.HUNG, "hung_or_frozen", Level.WARN, "send_one_request"),
        ({**STOPS, "waiting": 880.0}, IDLE, Limit.HUNG, "hung_idle", Level.CRITICAL, RESTART),
        (STOPS, COMPUTES, Limit.COMPUTE_BOUND, "long_prefill", Level.WARN, "wait_for_prefill"),
        (STOPS, DRAWS, Limit.COMPUTE_BOUND, "long_prefill", Level.WARN, "wait_for_prefill"),
        (STOPS, RESTS, Limit.HUNG, "hung_spinning", Level.CRITICAL, RESTART),
        ({**STOPS, "tokens_total": TokensTotal(0.0, 0.0, 0.0)}, IDLE, Limit.HUNG, "hung_compiling", Level.NOTE, None),
    ],
)
def test_a_hang_needs_gpus_that_do_nothing(
    changes: Mapping[str, Any], card: Mapping[str, Any], code: Limit, cause: str, level: Level, first: str | None
) -> None:
    found = only(judged(scene(changes, card, moves=False), 160))
    assert (found.code, found.cause, found.level) == (code, cause, level)
    assert first is None or found.actions[0].code == first
    restart = next((render.action_text(one) for one in found.actions if one.code == RESTART), "")
    assert restart.startswith("else ") is (cause == "hung_or_frozen")
    assert not restart or cause != "hung_compiling"
    assert code is Limit.HUNG or all(one.code != RESTART for one in found.actions)


@each_row(
    ("waiting", "now", "later"),
    [
        (0.0, ["wait_for_prefill", "split_prefill", "more_instances"], ["smaller_chunks", "quantise_weights"]),
        (9.0, ["wait_for_prefill", "more_instances", "split_prefill"], ["quantise_weights"]),
    ],
)
def test_what_takes_a_restart_is_for_later_while_a_prompt_is_at_work(
    waiting: float, now: list[str], later: list[str]
) -> None:
    """A restart now would end that prompt; other instances take none of this one."""
    changes = {**STOPS, "waiting": waiting, "weight_precision": "bf16"}
    last = judged(scene(changes, COMPUTES, moves=False), 160)
    found = only(last)
    assert found.cause == "long_prefill"
    assert [action.code for action in found.actions] == [*now, *later], "what is for now comes first"
    notes = [action.parameters.get("later") for action in found.actions]
    assert notes == [None] * len(now) + ["yes"] * len(later)
    texts = render.action_texts(found)
    assert [text for text in texts if text.startswith("later: ")] == [texts[len(now)]], "one note for all that follow"
    assert list(map(vetted_action, found.actions)) == list(found.actions), "another host's advice keeps it"
    (todo,) = [section for section in sections(found, None) if section.title == "what to do"]
    report = [line for line in markdown(last, (), None).splitlines() if line.startswith("- **to do:**")]
    for lines in (todo.entries, report):
        assert [str(line).count("later: ") for line in lines] == [0] * len(now) + [1] * len(later)


@each_row(
    ("code", "parameters", "note"),
    [
        ("quantise_weights", {"flag": "--quantization fp8", "later": "yes"}, "later: "),
        ("quantise_weights", {"flag": "--quantization fp8", "later": "no"}, ""),
        ("quantise_weights", {"flag": "`an odd flag`; x", "later": "yes"}, "later: "),
        ("quantise_weights", {"flag": "`an odd flag`; x", "later": "no"}, ""),
        ("a_code_of_a_newer_release", {"later": "yes"}, "later: "),
        ("peer_words", {"text": "restart it", "later": "yes"}, "later: "),
        ("peer_words", {"text": "restart it"}, ""),
    ],
)
def test_advice_of_another_host_for_later_stays_so_in_its_own_words(
    code: str, parameters: dict[str, float | str], note: str
) -> None:
    vetted = vetted_action(Action(code, parameters))
    assert render.action_note(vetted) == note
    assert vetted_action(vetted) == vetted, "a fleet's host may pass it on"


@each_row(
    ("changes", "card", "slots", "code", "cause", "level"),
    [
        ({"ttft_s": Quantiles(mean=1.0, p95=3.0)}, BUSY, 0.0, Limit.UNKNOWN, "", Level.WARN),
        ({"itl_s": Quantiles(mean=0.1, p95=0.56)}, BUSY, 0.0, Limit.UNKNOWN, "", Level.WARN),
        ({"ttft_s": Quantiles(mean=0.5, p95=1.9)}, BUSY, 48.0, Limit.HEALTHY, "headroom", Level.OK),
        (QUEUED, BUSY, 24.0, Limit.QUEUE_LIMIT, "queue_slots", Level.WARN),
        ({**QUEUED, "kv_usage_ratio": 0.97}, BUSY, 0.0, Limit.KV_CACHE_FULL, "kv_full", Level.WARN),
        ({**QUEUED, "kv_usage_ratio": 0.97, **PROMPTS}, FULL, 0.0, Limit.COMPUTE_BOUND, "compute_full", Level.WARN),
        (PROMPTS, FULL, 0.0, Limit.COMPUTE_BOUND, "compute_full", Level.NOTE),
        ({}, READS, 0.0, Limit.BANDWIDTH_BOUND, "bandwidth_full", Level.NOTE),
        ({"asleep": "level 1"}, IDLE, 0.0, Limit.ASLEEP, "asleep", Level.OK),
    ],
)
def test_levels_follow_harm(
    changes: Mapping[str, Any], card: Mapping[str, Any], slots: float, code: Limit, cause: str, level: Level
) -> None:
    found = only(judged(scene(changes, card, slots=slots)))
    assert (found.code, found.cause, found.level) == (code, cause, level)
    assert render.verdict_text(found)


@each_row(("state", "how"), [(EndpointState.TIMEOUT, "silent"), (EndpointState.REFUSED, "refuses")])
def test_an_engine_that_does_not_answer_while_its_processes_hold_the_gpu(state: EndpointState, how: str) -> None:
    stage = Stage()
    stage.tick(gpu(**IDLE), engine())
    for tick in range(40):
        silent = engine(state=state)
        last = stage.tick(gpu(**IDLE), Of(silent.read, replace(silent.shown, age_s=float(tick))))
        found = verdict(last, Family.STATE, Kind.ENGINE)
        assert (found is not None) == (tick >= 30)
    assert found is not None
    assert (found.code, found.level, found.parameters["how"]) == (Limit.UNRESPONSIVE, Level.CRITICAL, how)


def loaded(*reasons: str, clock: float = 1.9, **fields: Any) -> Of:
    fields = {"busy_ratio": 0.98, "power_w": 690.0, "power_limit_w": 700.0, **fields}
    return gpu(2, throttle=reasons, sm_clock_hz=clock * GHZ, sm_clock_max_hz=1.98 * GHZ, **fields)


@each_row(
    ("thing", "cause", "level", "command"),
    [
        (loaded("hw_slowdown", "hw_thermal_slowdown", clock=0.99), "thermal", Level.CRITICAL, "fans"),
        (loaded("sw_thermal_slowdown", clock=1.7), "thermal_driver", Level.WARN, "-pl 490"),
        (loaded("hw_slowdown", "hw_power_brake_slowdown", clock=1.7), "power_brake", Level.WARN, "PSUs"),
        (
            loaded("sw_power_cap", clock=1.7, power_limit_w=400.0, power_default_w=700.0),
            "power_cap",
            None,
            "-i 2 -pl 700",
        ),
        (loaded(clock=1.035), "locked_clock", Level.NOTE, "-rgc -i 2"),
        (loaded("applications_clocks_setting", clock=0.9), "application_clocks", Level.NOTE, "-rac -i 2"),
    ],
)
def test_what_holds_a_clock_down_and_the_command_that_undoes_it(
    thing: Of, cause: str, level: Level | None, command: str
) -> None:
    found = verdict(Stage().play(120, (thing,)), Family.STATE)
    assert found is not None
    assert (found.code, found.cause) == (Limit.THROTTLED, cause)
    assert level is None or found.level is level
    assert command in render.actions_text(found)


@each_row(
    "thing",
    [
        loaded("sw_power_cap", clock=1.5, power_limit_w=700.0, power_default_w=700.0),  # what a cap is for
        loaded(clock=1.7),  # not far below
        loaded(clock=1.035, busy_ratio=0.3),  # nobody waits for it
    ],
)
def test_a_clock_that_nobody_has_to_mend_is_no_verdict(thing: Of) -> None:
    assert limit(Stage().play(120, (thing,)), Family.STATE) is None


def test_a_gpu_of_which_anything_is_told_is_not_called_healthy_beside_it() -> None:
    found = Stage().play(120, (loaded(clock=1.035, sm_active_ratio=0.8),)).verdicts
    assert [(one.code, one.level) for one in found] == [(Limit.THROTTLED, Level.NOTE)]


def test_an_engine_on_a_gpu_with_wrong_data_is_degraded_and_not_healthy() -> None:
    broken = {**BUSY, "xid": (XidEvent(48, START_S),)}
    found = [each for each in judged(scene({}, broken)).verdicts if each.kind is Kind.ENGINE]
    assert [(each.code, each.cause) for each in found] == [(Limit.HARDWARE_FAULT, "gpu_degraded")]
    assert "double bit" in render.verdict_text(found[0])


def test_an_error_of_a_program_on_its_gpu_is_named_in_words() -> None:
    found = judged(scene({}, {**BUSY, "xid": (XidEvent(32, START_S),)})).verdicts
    text = next(render.verdict_text(each) for each in found if each.cause == "gpu_degraded")
    assert "error of a program" in text
    assert "_" not in text


def test_a_restart_is_named_for_ten_minutes() -> None:
    def at(tick: int) -> tuple[Of, ...]:
        card, one = scene({}, BUSY, slots=48.0)(tick)
        began_s = START_S + (100.0 if tick > 100 else 0.0)
        return card, Of(replace(one.read, started_wall_s=began_s, monotonic_s=float(tick)), one.shown)

    stage = Stage()
    stage.play(100, at)
    assert "restarted" in only(stage.play(120, at)).parameters
    assert "restarted" not in only(stage.play(560, at)).parameters


@each_row(
    ("version", "info", "codes"),
    [
        ("0.11.0", {}, ["smaller_chunks"]),
        ("0.7.3", {}, ["prefix_caching", "smaller_chunks"]),
        ("0.11.0", {"enable_prefix_caching": "False"}, ["prefix_caching", "smaller_chunks"]),
        ("0.7.3", {"enable_prefix_caching": "True"}, ["smaller_chunks"]),
    ],
)
def test_what_is_on_already_is_not_advised(version: str, info: dict[str, str], codes: list[str]) -> None:
    found = only(judged(scene({**PROMPTS, "version": version}, FULL, info=info)))
    assert [one.code for one in found.actions][: len(codes)] == codes
    (chunks,) = (one for one in found.actions if one.code == "smaller_chunks")
    assert ("chunked" in chunks.parameters) == (version == "0.7.3")


DENSE = LlmSpec("m", "test", 70e9, 70e9, 1.05e9, 128256, 8192, 80, 64, 8, 128)
BOUND = {
    "llm": DENSE,
    "mfu_prefill_ratio": 0.02,
    "weight_bytes": 40e9,
    "kv_bytes_per_token": 1e6,
    "kv_pool_tokens": 200_000.0,
    "weight_precision": "bf16",
    "tp": 2,
}


def test_a_bigger_batch_goes_as_far_as_the_goal_and_the_memory_allow() -> None:
    """40 GB + 24 x 1 GB take 24 ms; 40 ms read 106.7 GB, which are 66 sequences. The pool holds 180."""
    found = only(judged(scene(BOUND, (READS, READS)), goals=Goals(itl_s=0.04)))
    assert render.verdict_text(found) == "memory bandwidth 81% at batch 24: room to batch 66, which meets 40 ms"
    assert [one.code for one in found.actions] == ["bigger_batch", "quantise_weights", "more_gpus"]
    full = only(judged(scene({**BOUND, "kv_pool_tokens": 25_000.0}, (READS, READS)), goals=Goals(itl_s=0.04)))
    assert "bigger_batch" not in [one.code for one in full.actions]


@each_row(
    ("thing", "seconds", "code", "cause"),
    [
        (gpu(0, vram_used_bytes=40 * GIB, processes=(process(),)), 700, Limit.IDLE_VRAM_HELD, "vram_held"),
        (gpu(0), 200, Limit.IDLE, "gpu_idle"),
        (gpu(0, busy_ratio=0.1), 200, Limit.LOW_EFFICIENCY, "gpu_hardly_used"),
        (
            gpu(0, busy_ratio=0.9, vram_used_bytes=77 * 2**30, processes=(process(),)),
            90,
            Limit.MEMORY_FULL,
            "vram_full",
        ),
        (gpu(0, busy_ratio=0.9, sm_active_ratio=0.7), 120, Limit.HEALTHY, "gpu_at_work"),
    ],
)
def test_how_a_gpu_without_an_engine_is_used(thing: Of, seconds: int, code: Limit, cause: str) -> None:
    found = verdict(Stage().play(seconds, (thing,)), Family.USE)
    assert found is not None
    assert (found.code, found.cause) == (code, cause)


def test_a_server_whose_address_is_not_known_is_ended_only_where_it_does_not_answer() -> None:
    server = process(name="vllm", command="vllm serve m")
    found = verdict(Stage().play(700, (gpu(0, vram_used_bytes=40 * GIB, processes=(server,)),)), Family.USE)
    assert found is not None
    assert [one.code for one in found.actions] == ["add_endpoint", "end_program"]
    assert "if its server still answers; else ask" in render.actions_text(found)
    assert "that frees 40 GiB" in render.actions_text(found)


def test_a_lost_gpu_is_told_at_once_with_its_xid() -> None:
    stage = Stage()
    stage.tick(gpu(3, busy_ratio=0.9))
    lost = gpu(3, state=GpuState.LOST, xid=(XidEvent(79, START_S),))
    found = verdict(stage.tick(lost), Family.STATE)
    assert found is not None
    assert (found.code, found.cause, found.level) == (Limit.HARDWARE_FAULT, "lost", Level.CRITICAL)
    assert found.parameters["xid"] == 79.0


@each_row(("used", "first"), [(40.0, "larger_micro_batch"), (76.0, "faster_kernels")])
def test_a_slow_training_run_is_told_to_use_memory_that_it_has(used: float, first: str) -> None:
    run = engine(name="run", phase=Phase.TRAINING, mfu_ratio=0.1, trained_tokens_per_s=9_000.0)
    found = verdict(Stage().play(200, (gpu(busy_ratio=0.97, vram_used_bytes=used * GIB), run)), Family.USE, Kind.ENGINE)
    assert found is not None
    assert (found.cause, found.actions[0].code) == ("training_low_mfu", first)


@each_row(("gpus_busy", "level"), [(0.97, Level.NOTE), (0.6, Level.WARN)])
def test_a_busy_host_is_a_warning_where_its_gpus_notice(gpus_busy: float, level: Level) -> None:
    things = (gpu(0, busy_ratio=gpus_busy), engine(phase=Phase.TRAINING, gpus=(0,)))
    last = Stage().play(90, things, cpu_ratio=0.97, cpu_pressure_ratio=0.7, busiest_core_ratio=1.0)
    found = verdict(last, Family.LIMIT, Kind.HOST, "")
    assert found is not None
    assert (found.code, found.level, bool(found.actions)) == (Limit.HOST_CPU, level, level is Level.WARN)


def test_every_code_has_words_and_an_unknown_one_stands_for_itself() -> None:
    assert set(Limit) - set(render.LIMIT_NAMES) == set(), "LIMIT_NAMES of gpumon/triage/render.py lacks these"
    for table, names, most in (("NARROW_NAMES", render.NARROW_NAMES, 13), ("BRIEF_NAMES", render.BRIEF_NAMES, 9)):
        long = [name for name in names.values() if len(name) > most]
        assert long == [], f"{table} in triage/render.py needs a name of at most {most} cells for these"
    assert render.action_text(Action("of a newer gpumon")) == "of a newer gpumon"
    assert render.evidence_text(Evidence("of a newer gpumon", 1.0)) == "of a newer gpumon"
    assert render.verdict_text(Verdict("a", Limit.HUNG, "of a newer gpumon", "")) == "of a newer gpumon"


@each_row("table", [render.CAUSE_WORDS, render.EVIDENCE_WORDS, render.ACTION_WORDS], named=["text", "figure", "action"])
def test_templates_are_whole_with_numbers_with_names_and_with_nothing(table: Mapping[Any, str]) -> None:
    for template in table.values():
        check_template(template)


def check_template(template: str) -> None:
    names = set(re.findall(r"\{(\w+)", template))
    for value in (1.0, 1e300, "x", "\x1b[2J"):  # another host's page has anybody's numbers and names
        said = templates.fill_template(template, dict.fromkeys(names, value))
        assert "\x1b" not in said
        assert "{" not in said
        assert "}" not in said
    assert "{" not in templates.fill_template(template, {})


def test_parts_of_a_sentence_whose_figures_are_missing_are_left_out() -> None:
    template = "KV cache {usage:percent}[ of {tokens:tokens} tokens]: [{waiting:requests} wait|nobody waits]"
    assert templates.fill_template(template, {"usage": 0.97}) == "KV cache 97%: nobody waits"
    assert (
        templates.fill_template(template, {"usage": 0.97, "tokens": 3200.0, "waiting": 4.5})
        == "KV cache 97% of 3.2k tokens: 4 wait"
    )


@each_row(
    ("seconds", "text"),
    [(1.0, "a moment"), (7.9, "over 6 s"), (15.0, "over 10 s"), (45.0, "over 30 s"), (130.0, "2 min")],
)
def test_a_time_that_goes_on_is_still_right_some_seconds_later(seconds: float, text: str) -> None:
    assert templates.lasted(seconds) == text


@each_row(
    ("mean", "text"),
    [
        (0.0, "0"),
        (0.02, "0"),
        (0.5, "under 1"),
        (0.97, "1"),
        (3.4, "3"),
        (59.5, "60"),
        (2002.0, "2,002"),
        (1e12, "1,000,000,000"),
    ],
)
def test_nobody_sees_half_a_request(mean: float, text: str) -> None:
    assert templates.requests(mean) == text


def test_an_action_of_the_own_team_behind_one_of_another_says_so() -> None:
    actions = (Action("bigger_batch", {"wider": 15.0}), Action("fp8_kv"), Action("more_requests"))
    found = Verdict("llama-8b", Limit.BANDWIDTH_BOUND, "bandwidth_full", "", level=Level.NOTE, actions=actions)
    first, second, third = render.action_texts(found)
    assert first == "client: send it more requests at once, up to 15: a larger batch"
    assert second.startswith("engine: ")
    assert third.startswith("client: ")
