"""Verdicts, events and faults as Markdown."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from gpumon.history.incidents import incidents
from gpumon.outputs.markdown import safe
from gpumon.outputs.verdicts import markdown
from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import FaultShown, Kind
from gpumon.readings.verdict import Action, Confidence, Event, EventKind, Evidence, Level, Limit, Signal, Verdict
from tests.records import replace
from tests.tui import scenes


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


HOT = Verdict("gpu 5", Limit.THROTTLED, "hot", "2025-10-09T08:52:00Z", Kind.GPU, "5")
VERDICTS = (
    Verdict(
        scope="vllm:8000",
        code=Limit.KV_CACHE_FULL,
        cause="the cache is full",
        since="2025-10-09T08:52:00Z",
        actions=(Action("raise --gpu-memory-utilization to 0.95"),),
        evidence=(Evidence("KV cache 97%", source="vllm:kv_cache_usage_perc"), Evidence("12 waiting")),
        confidence=Confidence.HIGH,
        level=Level.WARN,
    ),
    Verdict(
        scope="gpu 3",
        code=Limit.UNKNOWN,
        cause="",
        since="2025-10-09T08:53:00Z",
        confidence=Confidence.LOW,
        level=Level.NOTE,
        unknown=(Signal("SM active"),),
        kind=Kind.GPU,
        key="GPU-00000003",
    ),
)
SAID = """# gpu-07, 2025-10-09 08:53:22+00:00, SIMULATED

On the screen, from this folder: `gpumon replay recording.gpumon --at 2025-10-09T08:53:22Z`

Recorded: 2025-10-09 08:23:22+00:00 to 2025-10-09 08:53:22+00:00.

## Engines

| engine | model | GPUs | run | wait | kv | decode tok/s | prefill tok/s | ttft p95 | itl p95 | mfu | mbu | state |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |
| vllm:8000 | meta-llama/Llama-3.3-70B | 0-3 | 24 | 0 | 41% | 1.10k | 8.20k | 210ms | 24ms | 31% | 62% | evaluating |

## GPUs

| GPU | name | busy | sm | vram GiB | mem bw | mfu | mbu | power | °C | engines | state | UUID |
| --: | --- | --: | --: | --: | --: | --: | --: | --: | --: | --- | --- | --- |
| 3 | H100 | 93% | 63% | 71.4/79.6 | 2.33TB/s | 33% | 64% | 615W/700W | 64 | vllm:8000 | lost: off bus | GPU-00000003 |

## Verdicts

### vllm:8000: KV cache full (warn)

the cache is full

- KV cache 97% (vllm:kv\\_cache\\_usage\\_perc)
- 12 waiting
- **to do:** raise --gpu-memory-utilization to 0.95
- confidence high, since 2025-10-09T08:52:00Z

### gpu 3: unknown (note)

GPU-00000003

- missing: SM active
- confidence low, since 2025-10-09T08:53:00Z

## Incidents

| since | for | level | where | what |
| --- | --: | --- | --- | --- |
| 08:53:17 | - | critical | gpu 3 | Xid 79 |
| 08:51:52 | 1m | warn | gpu 5 | throttled: hot |

## What happened

All that is kept; `events` of snapshot.json has only what happened since the reading before it.

| time | level | what | where |  |
| --- | --- | --- | --- | --- |
| 2025-10-09 08:52:22+00:00 | warn | verdict | gpu 5 | since 2025-10-09 08:51:52+00:00: throttled: hot |
| 2025-10-09 08:53:02+00:00 | ok | verdict | gpu 5 | throttled is over |
| 2025-10-09 08:53:17+00:00 | critical | xid | gpu 3 | Xid 79 |

## Faults

| since | source |  |
| --- | --- | --- |
| 2025-10-09T08:50:00Z | gpu 5 | no answer |
"""


def test_it_says_all_there_is() -> None:
    given_s = scenes.WALL_S - 60.0
    events = (
        Event(
            *(given_s, EventKind.VERDICT, "gpu 5", "verdict_began", Level.WARN, "5"),
            since_s=given_s - 30.0,
            verdict=HOT,
        ),
        Event(scenes.WALL_S - 20.0, EventKind.VERDICT, "gpu 5", "verdict_over", Level.OK, "5", verdict=HOT),
        Event(scenes.WALL_S - 5.0, EventKind.XID, "gpu 3", "Xid 79", level=Level.CRITICAL),
    )
    found, _ = incidents(events, scenes.WALL_S)
    faults = (FaultShown("gpu 5", "no answer", "2025-10-09T08:50:00Z"),)
    gpu = scenes.gpu(3, name="NVIDIA H100", state=GpuState.LOST, state_text="off bus", engines=("vllm:8000",))
    engines = scenes.snapshot().engines[:1]
    shot = replace(scenes.snapshot(), simulated=True, gpus=(gpu,), engines=engines, verdicts=VERDICTS, faults=faults)
    assert markdown(shot, events, (scenes.WALL_S - 1800.0, scenes.WALL_S), found) == SAID


def test_it_says_that_there_is_nothing() -> None:
    said = markdown(replace(scenes.snapshot(), gpus=()), (), None)
    assert "## GPUs\n\nNone." in said
    assert "Recorded: nothing." in said
    assert "## Verdicts\n\nNone." in said
    assert "## What happened\n\nNothing of note." in said
    assert said.endswith("## Faults\n\nNone.\n")


def test_an_address_from_outside_is_no_link() -> None:
    """As GitHub and others read it, which make a link of an address in a text."""
    reader = MarkdownIt("gfm-like")
    assert reader.linkify is not None
    reader.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    text = "HTTPS://evil.example/login?a=b ftp://evil.example mailto:a@evil.example"
    assert "<a" in reader.render(text)
    assert reader.render(safe(f"{text} www.evil.example")) == f"<p>{text} www.evil.example</p>\n"
    assert "www." not in safe("WWW.evil.example www.evil.example").lower()


def test_a_text_from_outside_is_no_markup() -> None:
    hostile = replace(VERDICTS[0], scope="<b>|@all\x1b[31m", cause="[a](http://evil) # x")
    said = markdown(replace(scenes.snapshot(), verdicts=(hostile,)), (), None)
    assert "<b>" not in said
    assert "@all" not in said
    assert "[a](" not in said
    assert said.replace("\n", "").isprintable()
