"""Changes on what has no engine: a program's pace, a GPU's clock, a link, the host; and loads that only change."""

from __future__ import annotations

from functools import cache

from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import scenario
from gpumon.readings.snapshot import BandwidthSource, Family, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row
from tests.records import replace
from tests.triage.stage import GIB, Of, Stage, gpu, process, verdict

WORK = {
    "busy_ratio": 1.0,
    "sm_clock_hz": 1.98e9,
    "sm_clock_max_hz": 1.98e9,
    "power_w": 500.0,
    "power_limit_w": 700.0,
    "tensor_active_ratio": 0.5,
    "bandwidth_bytes_per_s": 1.2e12,
    "bandwidth_source": BandwidthSource.GPM,
    "nvlink_bytes_per_s": 6e10,
}
"""A GPU at work in a training run."""
HALF = {**WORK, "tensor_active_ratio": 0.25, "bandwidth_bytes_per_s": 0.6e12, "nvlink_bytes_per_s": 3e10}
TRAIN = "python train.py"


def card(index: int = 0, command: str = TRAIN, **fields: object) -> Of:
    return gpu(index, processes=(process(4711 + index, command=command, user="ml"),), **fields)


def pair(fields: dict[str, object], command: str = TRAIN, **first: object) -> tuple[Of, Of]:
    """Two GPUs of one program, of which the first may have figures of its own."""
    return card(0, command, **{**fields, **first}), card(1, command, **fields)


def slower(stage: Stage) -> Verdict | None:
    assert stage.last is not None
    return next((each for each in stage.last.verdicts if each.code is Limit.SLOWED_DOWN), None)


def played(*later: Of, before: tuple[Of, ...] = pair(WORK), seconds: int = 100) -> Stage:
    stage = Stage()
    stage.play(160, before, every_s=2)
    stage.play(seconds, later, every_s=2)
    return stage


@cache
def snapshot_of(name: str, at_s: float) -> Snapshot:
    """The snapshot of a scenario at a moment."""
    play: Scenario = scenario(name)
    *_, (_, last) = judged(play, frames(play, at_s, every_s=2))
    return last


def test_a_program_that_does_the_same_work_in_twice_the_time_is_told_with_what_was_set() -> None:
    stage = played(*pair(HALF, power_limit_w=350.0))
    told = slower(stage)
    assert told is not None
    assert (told.scope, told.cause, told.level, told.family) == ("gpu 0", "program_slower", Level.NOTE, Family.LIMIT)
    assert verdict_text(told) == (
        "python train.py of ml on gpu 0-1 takes 2.0x as long for the same work since 00:02:40 UTC, "
        "when the power limit of gpu 0 went 700 W -> 350 W"
    )
    assert told.since.startswith("2026-01-01T00:02:")
    assert "-pl 700" in actions_text(told)
    assert [evidence.quantity for evidence in told.evidence][:2] == ["turned", "pace_bandwidth_bytes_per_s"]
    assert evidence_text(told.evidence[1]).startswith("memory traffic 600 GB/s, 1.2 TB/s before")


def test_a_program_that_began_on_one_of_its_gpus_is_the_cause() -> None:
    """The counters of that GPU are those of both by now: the others of the first program tell how it goes on."""
    both = gpu(
        1,
        processes=(
            process(4712, command=TRAIN, user="ml"),
            process(999, command="python play.py", user="bob"),
        ),
        **WORK,
    )
    told = slower(played(card(0, **HALF), both))
    assert told is not None
    assert verdict_text(told).endswith(", when python play.py (pid 999) began on gpu 1")
    assert [fix.code for fix in told.actions] == ["own_gpus"]


def test_it_stands_until_the_program_is_as_fast_as_before() -> None:
    stage = played(*pair(HALF), seconds=600)
    told = slower(stage)
    assert told is not None
    assert verdict_text(told).endswith("; nothing that gpumon sees changed then")
    stage.play(80, pair(WORK), every_s=2)
    assert slower(stage) is None


@each_row(
    "later",
    [
        pair({**HALF, "nvlink_bytes_per_s": 1e9}),  # an evaluation: no gradients
        pair({**HALF, "tensor_active_ratio": 0.5}),  # longer sequences: more arithmetic for each byte
        (card(0, **HALF), card(1, **WORK)),  # one GPU has less to do
        pair({**WORK, "bandwidth_bytes_per_s": 1.0e12, "nvlink_bytes_per_s": 5e10, "tensor_active_ratio": 0.42}),
        pair({**WORK, "busy_ratio": 0.0, "bandwidth_bytes_per_s": 0.0, "nvlink_bytes_per_s": 0.0}),  # a pause
    ],
    named=["evaluation", "other work", "one of them", "a fifth", "a pause"],
)
def test_what_is_other_work_is_no_slower_program(later: tuple[Of, ...]) -> None:
    assert slower(played(*later)) is None


def test_a_server_of_ones_own_with_fewer_requests_is_no_slower_program() -> None:
    for command in ("python answer.py --port 5000", "python solve.py"):
        idler = {**HALF, "busy_ratio": 0.5}
        assert slower(played(*pair(idler, command), before=pair(WORK, command))) is None
    # What is busy all the time and serves nobody does its work more slowly.
    assert slower(played(*pair(HALF, "python solve.py"), before=pair(WORK, "python solve.py"))) is not None


def test_another_program_is_not_held_against_the_one_before_it() -> None:
    stage = Stage()
    stage.play(160, pair(WORK), every_s=2)
    stage.play(20, (gpu(0), gpu(1)), every_s=2)
    stage.play(200, pair(HALF, "python finetune.py"), every_s=2)
    assert slower(stage) is None


def fallen(stage: Stage, index: int = 0) -> Verdict | None:
    assert stage.last is not None
    return verdict(stage.last, Family.STATE, Kind.GPU, f"GPU-{index}")


def test_a_clock_that_falls_under_load_is_told_with_what_it_was() -> None:
    low = {**WORK, "sm_clock_hz": 1.62e9, "power_w": 420.0}
    told = fallen(played(card(0, **low), before=(card(0, **WORK),)))
    assert told is not None
    assert (told.code, told.cause, told.level) == (Limit.THROTTLED, "clock_fell", Level.NOTE)
    assert verdict_text(told).startswith("SM clock 1.98 -> 1.62 GHz under load since 00:02:")
    assert [fix.code for fix in told.actions] == ["inspect_gpu"]
    locked = fallen(played(card(0, **{**low, "sm_clock_hz": 1.2e9}), before=(card(0, **WORK),)))
    assert locked is not None
    assert locked.cause == "locked_clock"
    assert ", 1.98 GHz until 00:02:" in verdict_text(locked)


@each_row(
    "low",
    [
        {"sm_clock_hz": 1.62e9, "power_w": 690.0},  # heavier work
        {"sm_clock_hz": 1.62e9, "power_w": 420.0, "throttle": ("sw_power_cap",)},  # at its limit, as ever
        {"sm_clock_hz": 1.75e9, "power_w": 420.0},  # a tenth
        {"sm_clock_hz": 0.6e9, "power_w": 90.0, "busy_ratio": 0.1},  # next to nothing to do
    ],
    named=["heavier work", "power limit", "a tenth", "idle"],
)
def test_a_clock_that_follows_the_load_is_none(low: dict[str, object]) -> None:
    assert fallen(played(card(0, **{**WORK, **low}), before=(card(0, **WORK),))) is None


CALM = {
    "cpu_ratio": 0.1,
    "cpu_pressure_ratio": 0.02,
    "disk_busy_ratio": 0.02,
    "network_rx_bytes_per_s": 1e6,
    "memory_used_bytes": 8 * GIB,
}


def host_verdict(stage: Stage) -> Verdict | None:
    assert stage.last is not None
    return next((each for each in stage.last.verdicts if each.code is Limit.CHANGED), None)


@each_row(
    ("changed", "text"),
    [
        ({"cpu_ratio": 0.96}, "CPU 10% -> 96% of all cores since 00:02:"),
        ({"disk_busy_ratio": 0.95}, "busiest disk 2% -> 95% busy since 00:02:"),
        ({"network_rx_bytes_per_s": 2e9}, "receives 2 GB/s since 00:02:"),
        ({"memory_used_bytes": 30 * GIB}, "memory in use 8.0 GiB -> 30 GiB since 00:02:"),
    ],
    named=["cpu", "disk", "network", "memory"],
)
def test_a_figure_of_the_host_that_is_far_from_before_is_a_note(changed: dict[str, float], text: str) -> None:
    stage = Stage()
    stage.play(160, (card(0, **WORK),), every_s=2, **CALM)
    stage.play(110, (card(0, **WORK),), every_s=2, **{**CALM, **changed})
    told = host_verdict(stage)
    assert told is not None
    assert told.level is Level.NOTE
    assert verdict_text(told).startswith(text)
    stage.play(60, (card(0, **WORK),), every_s=2, **CALM)
    assert host_verdict(stage) is None


def test_what_the_host_does_for_its_gpus_is_no_change() -> None:
    """A job that begins, and one that has more to do than before."""
    loud = {**CALM, "cpu_ratio": 0.96, "memory_used_bytes": 30 * GIB}
    for before in (gpu(0), card(0, **{**WORK, "busy_ratio": 0.3})):
        stage = Stage()
        stage.play(160, (before,), every_s=2, **CALM)
        stage.play(110, (card(0, **WORK),), every_s=2, **loud)
        assert host_verdict(stage) is None
    short = Stage()
    short.play(160, (card(0, **WORK),), every_s=2, **CALM)
    short.play(50, (card(0, **WORK),), every_s=2, **loud)
    assert host_verdict(short) is None


def test_the_cause_of_a_slower_program_is_the_root_and_the_program_its_consequence() -> None:
    for name, at_s, cause in (
        ("program-limit-lowered", 240.0, "power_cap"),
        ("program-clock-falls", 260.0, "locked_clock"),
        ("program-nvlinks-down", 240.0, "nvlinks_down"),
    ):
        verdicts = snapshot_of(name, at_s).verdicts
        (told,) = (each for each in verdicts if each.cause == "program_slower")
        (root,) = (each for each in verdicts if each.id == told.caused_by)
        assert root.cause == cause


def test_rounds_tell_the_pace_where_nothing_else_is_measured() -> None:
    told = slower_in(snapshot_of("program-rounds-longer", 400.0))
    assert "takes 2.2x as long" in verdict_text(told)
    assert "(a round every 13." in verdict_text(told)
    assert "6.0 s before)" in verdict_text(told)


def test_a_training_run_with_a_feed_tells_its_rate_before_and_after() -> None:
    told = slower_in(snapshot_of("run-limit-lowered", 400.0))
    assert (told.scope, told.cause, told.level) == ("pretrain-8b", "training_slower", Level.NOTE)
    assert verdict_text(told).startswith("18.6k tok/s, 36.1k before 08:03:")
    assert verdict_text(told).endswith("when the power limit of gpu 0 went 700 W -> 250 W")


def slower_in(snapshot: Snapshot) -> Verdict:
    """The only slowdown of a snapshot."""
    (told,) = (each for each in snapshot.verdicts if each.code is Limit.SLOWED_DOWN)
    return told


def test_lanes_that_an_engine_lost_are_the_first_evidence_of_its_slowdown() -> None:
    told = slower_in(snapshot_of("engine-loses-lanes", 200.0))
    assert verdict_text(told).endswith("when the NVLink count of gpu 1 went 18 -> 12")
    assert replace(told.actions[0], parameters={}).code == "show_nvlinks"
