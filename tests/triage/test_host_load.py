"""The host as the limit: memory, cores, disks; a host whose figures are not there says nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Confidence, Family, Kind, Level, Limit
from tests.triage.stage import CALM, GIB, Stage, limit, said

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "vllm-starved-host" / "metrics.jsonl.gz"


def test_memory_that_runs_out_is_critical_where_tasks_wait_for_it() -> None:
    full = {"memory_used_bytes": 62 * GIB, "memory_total_bytes": 64 * GIB}
    calm = said(Stage().play(60, (), **full, memory_pressure_ratio=0.0), Family.USE, Kind.HOST)
    assert (calm.limit, calm.level) == (Limit.MEMORY_FULL, Level.WARN)
    assert "2.0 GiB left" in calm.text
    hard = said(Stage().play(60, (), **full, memory_pressure_ratio=0.4), Family.USE, Kind.HOST)
    assert hard.level is Level.CRITICAL


def test_a_host_that_swaps_before_it_is_full_is_a_warning() -> None:
    found = said(Stage().play(60, (), memory_used_bytes=56 * GIB, memory_pressure_ratio=0.3), Family.USE, Kind.HOST)
    assert (found.limit, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.WARN, Confidence.MEDIUM)
    assert "30 % of the time" in found.text


def test_tasks_that_wait_for_memory_beside_an_empty_host_have_a_limit_of_their_own() -> None:
    found = said(Stage().play(60, (), memory_pressure_ratio=0.12), Family.USE, Kind.HOST)
    assert (found.limit, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.NOTE, Confidence.LOW)
    assert "56 GiB left: likely a container's limit" in found.text
    assert "memory.events" in found.action


def test_cores_that_all_work_are_told_where_tasks_wait_for_one() -> None:
    found = said(Stage().play(60, (), cpu_ratio=0.97, cpu_pressure_ratio=0.6), Family.LIMIT, Kind.HOST)
    assert (found.limit, found.level, found.confidence) == (Limit.COMPUTE, Level.WARN, Confidence.HIGH)
    assert "cpu@host" in {each.chart for each in found.evidence}
    even = Stage().play(60, (), cpu_ratio=0.97, cpu_pressure_ratio=0.02)
    assert limit(even, Family.LIMIT, Kind.HOST) is None, "work that fills the cores without a queue"


def test_a_disk_that_is_waited_for_is_a_note() -> None:
    busy = {**CALM, "io_pressure_ratio": 0.5, "disk_busy_ratio": 0.99}
    found = said(Stage().play(60, (), **busy), Family.LIMIT, Kind.HOST)
    assert (found.limit, found.level) == (Limit.INPUT_STARVED, Level.NOTE)
    assert {"io@host", "disk@host"} <= {each.chart for each in found.evidence}


def test_a_calm_host_and_one_without_figures_have_no_verdict() -> None:
    for host in (CALM, dict.fromkeys((*CALM, "memory_used_bytes", "memory_total_bytes"), NOT_SUPPORTED)):
        assert Stage().play(90, (), **host).verdicts == ()


def test_a_recorded_host_that_starved_its_engine_is_told() -> None:
    """The recording's own figures of the machine, each of which stood for a second."""
    with gzip.open(CAPTURE, "rt", encoding="utf-8") as lines:
        seen = [json.loads(line)["host_cpu"] for line in lines]
    stage = Stage(hold_s=5.0)
    for cpu in seen:
        last = stage.tick(cpu_ratio=cpu["busy"], iowait_ratio=cpu["iowait"])
    found = said(last, Family.LIMIT, Kind.HOST)
    assert (found.limit, found.confidence) == (Limit.COMPUTE, Confidence.MEDIUM)
