"""The host as the limit: memory, cores, disks; a host whose figures are not there says nothing."""

from __future__ import annotations

from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Confidence, Family, Kind, Level, Limit
from gpumon.triage.render import actions_text, verdict_text
from tests.triage.stage import CALM, GIB, Stage, said


def test_memory_that_runs_out_is_critical_where_tasks_wait_for_it() -> None:
    full = {"memory_used_bytes": 62 * GIB, "memory_total_bytes": 64 * GIB}
    calm = said(Stage().play(60, (), **full, memory_pressure_ratio=0.0), Family.USE, Kind.HOST)
    assert (calm.code, calm.level) == (Limit.MEMORY_FULL, Level.WARN)
    assert "2.0 GiB left" in verdict_text(calm)
    hard = said(Stage().play(60, (), **full, memory_pressure_ratio=0.4), Family.USE, Kind.HOST)
    assert hard.level is Level.CRITICAL


def test_a_host_that_swaps_before_it_is_full_is_a_warning() -> None:
    found = said(Stage().play(60, (), memory_used_bytes=56 * GIB, memory_pressure_ratio=0.3), Family.USE, Kind.HOST)
    assert (found.code, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.WARN, Confidence.MEDIUM)
    assert "30 % of the time" in verdict_text(found)


def test_tasks_that_wait_for_memory_beside_an_empty_host_have_a_limit_of_their_own() -> None:
    found = said(Stage().play(60, (), memory_pressure_ratio=0.12), Family.USE, Kind.HOST)
    assert (found.code, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.NOTE, Confidence.LOW)
    assert "56 GiB left: likely a container's limit" in verdict_text(found)
    assert "memory.events" in actions_text(found)


def test_a_calm_host_and_one_without_figures_have_no_verdict() -> None:
    for host in (CALM, dict.fromkeys((*CALM, "memory_used_bytes", "memory_total_bytes"), NOT_SUPPORTED)):
        assert Stage().play(90, (), **host).verdicts == ()
