"""Broken GPUs: Xids by class, lost, ECC, rows; what a program caused is not told as broken hardware."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import GpuState, XidEvent
from gpumon.readings.snapshot import Confidence, Family, Level, Limit
from gpumon.triage.xid import XIDS, xid_of
from tests.triage.stage import START_S, Of, Stage, gpu, limit, process, said


def with_xid(*codes: int, ago_s: float = 0.0, **fields: object) -> Of:
    return gpu(3, xid=tuple(XidEvent(code, START_S - ago_s) for code in codes), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "level", "step"),
    [
        (79, Level.CRITICAL, "power-cycle"),
        (48, Level.CRITICAL, "--gpu-reset -i 3"),
        (64, Level.CRITICAL, "RMA"),
        (95, Level.CRITICAL, "--gpu-reset -i 3"),
        (94, Level.WARN, "restart the program"),
        (63, Level.WARN, "until there is time"),
        (74, Level.CRITICAL, "nvlink -e -i 3"),
        (119, Level.CRITICAL, "GSP"),
        (120, Level.CRITICAL, "update the driver"),
    ],
)
def test_a_hardware_xid_is_told_at_once_with_its_next_step(code: int, level: Level, step: str) -> None:
    found = said(Stage().tick(with_xid(code)), Family.STATE)
    assert (found.limit, found.level, found.confidence) == (Limit.HARDWARE, level, Confidence.HIGH)
    assert f"Xid {code}" in found.text
    assert step in found.action


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_a_programs_xid_is_a_note_that_names_programs_and_drains_nothing(code: int) -> None:
    holder = process(name="/usr/bin/python3", command="python3 -u train.py", user="ada")
    found = said(Stage().tick(with_xid(code, processes=(holder,))), Family.STATE)
    assert found.level is Level.NOTE
    assert "no hardware action" in found.action
    assert "drain" not in found.action
    assert "python3 train.py (pid 4711) of ada" in found.text


def test_a_code_that_is_not_known_says_so() -> None:
    found = said(Stage().tick(with_xid(987)), Family.STATE)
    assert (found.level, found.confidence) == (Level.WARN, Confidence.LOW)
    assert "not in gpumon's table" in found.text


def test_the_worst_of_several_speaks_and_all_are_evidence() -> None:
    found = said(Stage().tick(with_xid(63, 79, 63, remap_pending=1.0)), Family.STATE)
    assert "Xid 79" in found.text
    shown = " ".join(each.text for each in found.evidence)
    assert "Xid 63" in shown
    assert "2 times" in shown
    assert "row waits" in shown


def test_hardware_stands_before_throttled_and_throttled_before_a_programs_fault() -> None:
    hot = {"throttle": ("hw_thermal_slowdown",), "busy_ratio": 0.9}
    assert limit(Stage().play(60, (with_xid(31, **hot),)), Family.STATE) is Limit.THROTTLED
    assert limit(Stage().play(60, (with_xid(48, **hot),)), Family.STATE) is Limit.HARDWARE


def test_an_old_xid_ages_out_and_what_persists_stays() -> None:
    stage = Stage(hold_s=5.0)
    assert limit(stage.tick(with_xid(48, ago_s=3590.0)), Family.STATE) is Limit.HARDWARE
    assert limit(stage.play(30, (with_xid(48, ago_s=3590.0),)), Family.STATE) is None
    assert limit(stage.play(30, (with_xid(48, ago_s=3590.0, remap_failed=1.0),)), Family.STATE) is Limit.HARDWARE


def test_a_programs_xid_ages_out_sooner() -> None:
    assert limit(Stage().tick(with_xid(31, ago_s=290.0)), Family.STATE) is Limit.HARDWARE
    assert limit(Stage().tick(with_xid(31, ago_s=310.0)), Family.STATE) is None


@pytest.mark.parametrize(
    ("state", "text"), [(GpuState.LOST, "lost for 14s"), (GpuState.RESET_REQUIRED, "needs a reset")]
)
def test_a_gpu_that_is_gone_is_critical_and_its_use_is_no_question(state: GpuState, text: str) -> None:
    stage = Stage()
    snapshot = stage.play(60, (gpu(3, state=state, age_s=14.0, state_text="fallen off the bus"),))
    found = said(snapshot, Family.STATE)
    assert (found.limit, found.level, found.text) == (Limit.HARDWARE, Level.CRITICAL, text)
    assert "fallen off the bus" in found.evidence[0].text
    assert limit(snapshot, Family.LIMIT) is None


def test_ecc_errors_that_rise_are_critical_and_old_ones_are_not() -> None:
    stage = Stage()
    old = said(stage.play(40, (gpu(ecc_uncorrected=2.0),)), Family.STATE)
    assert (old.level, "2 uncorrectable" in old.text) == (Level.WARN, True)
    risen = said(stage.play(5, (gpu(ecc_uncorrected=5.0),)), Family.STATE)
    assert (risen.level, "3 more" in risen.text) == (Level.CRITICAL, True)


def test_a_sound_gpu_has_no_verdict_of_its_state() -> None:
    snapshot = Stage().play(60, (gpu(ecc_uncorrected=0.0, remap_pending=0.0, remap_failed=0.0, busy_ratio=0.9),))
    assert limit(snapshot, Family.STATE) is None


def test_the_table_of_xids_has_a_step_for_every_class() -> None:
    for code in (*XIDS, 999):
        kind = xid_of(code)
        assert kind.text
        assert kind.action
        assert kind.is_application is False or kind.level in (Level.NOTE, Level.WARN)
        assert "{" not in kind.action.replace("{index}", "0")


@pytest.mark.parametrize(
    ("codes", "said_first"),
    [
        ((79,), "fell off the bus (Xid 79), lost"),
        ((13, 119), "Xid 119 (GSP did not answer in time), lost"),
        ((13,), "lost"),
        ((), "lost"),
    ],
)
def test_a_lost_gpu_says_what_happened_where_the_driver_did(codes: tuple[int, ...], said_first: str) -> None:
    lost = with_xid(*codes, ago_s=9.0, state=GpuState.LOST, age_s=70.0)
    assert said(Stage().tick(lost), Family.STATE).text == f"{said_first} for 1m"
