"""Verdicts, events and faults as Markdown."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gpumon.outputs.verdicts import markdown
from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import FaultShown, Kind
from gpumon.readings.verdict import Confidence, Event, EventKind, Evidence, Level, Limit, Verdict
from tests.tui import scenes


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


VERDICTS = (
    Verdict(
        scope="vllm:8000",
        limit=Limit.KV_CACHE,
        evidence=(Evidence("KV cache 97 %", "vllm:kv_cache_usage_perc"), Evidence("12 waiting")),
        action="raise --gpu-memory-utilization to 0.95",
        confidence=Confidence.HIGH,
        since="2025-10-09T08:52:00Z",
        level=Level.WARN,
        text="the cache is full",
    ),
    Verdict(
        scope="gpu 3",
        limit=Limit.CANNOT_TELL,
        evidence=(),
        action="",
        confidence=Confidence.LOW,
        since="2025-10-09T08:53:00Z",
        level=Level.NOTE,
        unknown=("SM active",),
        kind=Kind.GPU,
        key="GPU-00000003",
    ),
)
SAID = """# gpu-07, 2025-10-09 08:53:22+00:00, SIMULATED

Recorded: 2025-10-09 08:23:22+00:00 to 2025-10-09 08:53:22+00:00.

## GPUs

| GPU | UUID | name | state | engines |
| --: | --- | --- | --- | --- |
| 3 | GPU-00000003 | NVIDIA H100 80GB HBM3 | lost: off the bus | vllm:8000 |

## Verdicts

### vllm:8000: kv cache (warn)

the cache is full

- KV cache 97 % (vllm:kv\\_cache\\_usage\\_perc)
- 12 waiting
- **to do:** raise --gpu-memory-utilization to 0.95
- confidence high, since 2025-10-09T08:52:00Z

### gpu 3: cannot tell (note)

GPU-00000003

- missing: SM active
- confidence low, since 2025-10-09T08:53:00Z

## What happened

| time | level | what | where |  |
| --- | --- | --- | --- | --- |
| 2025-10-09 08:53:17+00:00 | critical | xid | gpu 3 | Xid 79 |

## Faults

| since | source |  |
| --- | --- | --- |
| 2025-10-09T08:50:00Z | gpu 5 | no answer |
"""


def test_it_says_all_there_is() -> None:
    event = Event(scenes.WALL_S - 5.0, EventKind.XID, "gpu 3", "Xid 79", Level.CRITICAL)
    faults = (FaultShown("gpu 5", "no answer", "2025-10-09T08:50:00Z"),)
    gpu = scenes.gpu(3, state=GpuState.LOST, state_text="off the bus", engines=("vllm:8000",))
    shot = replace(scenes.snapshot(), simulated=True, gpus=(gpu,), verdicts=VERDICTS, faults=faults)
    assert markdown(shot, (event,), (scenes.WALL_S - 1800.0, scenes.WALL_S)) == SAID


def test_it_says_that_there_is_nothing() -> None:
    said = markdown(replace(scenes.snapshot(), gpus=()), (), None)
    assert "## GPUs\n\nNone." in said
    assert "Recorded: nothing." in said
    assert "## Verdicts\n\nNone." in said
    assert "## What happened\n\nNothing of note." in said
    assert said.endswith("## Faults\n\nNone.\n")


def test_a_text_from_outside_is_no_markup() -> None:
    hostile = replace(VERDICTS[0], scope="<b>|@all\x1b[31m", text="[a](http://evil) # x")
    said = markdown(replace(scenes.snapshot(), verdicts=(hostile,)), (), None)
    assert "<b>" not in said
    assert "@all" not in said
    assert "[a](" not in said
    assert said.replace("\n", "").isprintable()
