"""Advice names the GPUs that more instances fit on, and settings by the values that somebody set."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Family, Kind, Verdict
from gpumon.triage.render import actions_text
from tests.each_row import each_row
from tests.triage.engines import BUSY, scene
from tests.triage.stage import GIB, Of, Stage, gpu, process, verdict
from tests.triage.test_engine_limit import FULL, QUEUED


def limit_beside(*others: Of, changes: dict[str, Any] = FULL, gpus: Any = BUSY, slots: float = 0.0) -> Verdict:
    found = verdict(
        Stage().play(90, lambda tick: (*scene(changes, gpus, slots=slots)(tick), *others)), Family.LIMIT, Kind.ENGINE
    )
    assert found is not None
    return found


def free_of(found: Verdict) -> object:
    (free,) = {one.parameters.get("free") for one in found.actions if one.code.startswith("more_instances")}
    return free


def test_one_free_gpu_is_named() -> None:
    found = limit_beside(gpu(1))
    assert free_of(found) == "GPU 1"
    assert "on free GPU 1" in actions_text(found)


@each_row(
    "other",
    [
        gpu(1, processes=(process(gib=0.3),)),
        gpu(1, vram_used_bytes=20 * GIB),  # of a process that is not visible
        gpu(1, busy_ratio=0.5),
        gpu(1, vram_total_bytes=24 * GIB),
        gpu(1, state=GpuState.LOST),
        gpu(1, state=GpuState.MUTE),
        gpu(1, state=GpuState.RESET_REQUIRED),
        gpu(1, remap_pending=1.0),
        gpu(1, mig=True),
    ],
)
def test_a_gpu_that_is_used_broken_too_small_or_split_is_not(other: Of) -> None:
    assert free_of(limit_beside(other)) is None


def test_an_instance_of_two_gpus_needs_two() -> None:
    pair = {"gpus": (BUSY, BUSY), "changes": {**FULL, "tp": 2}}
    assert free_of(limit_beside(gpu(2), **pair)) is None
    assert free_of(limit_beside(gpu(2), gpu(3), **pair)) == "GPUs 2-3"
    assert free_of(limit_beside(gpu(2), gpu(3), gpu(4), **pair)) == "GPUs 2-3"


def test_the_limit_of_requests_is_that_of_one_rank() -> None:
    """Two ranks of 12 slots run 24 together: the flag says 12, and 18 is what fits."""
    found = limit_beside(changes={**QUEUED, "ranks": 2}, slots=12.0)
    (raised,) = (one for one in found.actions if one.code == "raise_slots")
    assert (raised.parameters["now"], raised.parameters["wanted"]) == (12.0, 18.0)


def test_a_limit_that_nobody_tells_is_not_named() -> None:
    """The number that runs stands still: that there is a limit is known, and not what it is set to."""
    found = limit_beside(changes=QUEUED)
    (raised,) = (one for one in found.actions if one.code == "raise_slots")
    assert "now" not in raised.parameters
    assert actions_text(found) == "raise --max-num-seqs to 36"


def more_of(found: Verdict) -> dict[str, Any]:
    (parameters,) = [one.parameters for one in found.actions if one.code == "more_instances"]
    return dict(parameters)


def test_of_more_instances_than_fit_those_that_fit_are_counted() -> None:
    found = limit_beside(gpu(1), changes={**FULL, "waiting": 100.0})
    assert more_of(found)["instances"] == 4.0
    assert "4 instances instead of 1 for these 148 requests; 1 more fits on free GPU 1" in actions_text(found)
    three = limit_beside(gpu(1), gpu(2), gpu(3), gpu(4), changes={**FULL, "waiting": 100.0})
    assert "4 instances instead of 1 on free GPUs 1-3" in actions_text(three)


def test_a_load_that_wavers_does_not_change_the_number_of_instances() -> None:
    low = {**FULL, "waiting": 77.0}
    high = {**FULL, "waiting": 83.0}
    counts = set()

    def wavers(tick: int) -> Any:
        return scene(high if tick // 40 % 2 else low)(tick)

    stage = Stage()
    for seconds in range(60, 300, 30):
        found = verdict(stage.play(seconds, wavers), Family.LIMIT, Kind.ENGINE)
        if found is not None:
            counts.add(more_of(found)["instances"])
    assert counts == {3.0}


def test_requests_that_are_turned_away_are_load() -> None:
    """One a second is turned away while four are served with 48 running: 12 more would run."""
    away = {"requests_per_s": 4.0, "rejections_per_s": 1.0, "failures_per_s": 0.0, "aborts_per_s": 0.0}
    parameters = more_of(limit_beside(changes={**FULL, **away}))
    assert parameters["requests"] == pytest.approx(48 + 12 + 12, abs=0.5)
    assert parameters["turned_away"] == pytest.approx(12.0)
    text = actions_text(limit_beside(changes={**FULL, **away}))
    assert "for these 72 requests, 12 of them turned away" in text
    slots = limit_beside(changes={**QUEUED, **away, "running": 48.0, "kv_usage_ratio": 0.3}, slots=48.0)
    (raised,) = [one.parameters for one in slots.actions if one.code == "raise_slots"]
    assert raised["wanted"] == 72.0
