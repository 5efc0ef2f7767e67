"""Conditions of alerts: what can be written, what it is true of, and what is said of the rest."""

from __future__ import annotations

from gpumon.readings.missing import NOT_EXPOSED, Missing
from gpumon.readings.snapshot import Confidence, Evidence, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.alerts import parse
from tests.tui import scenes
from tests.tui.scenes import replace

SCENE = scenes.snapshot(gpus=3, engines=2)
KV = Verdict(
    "vllm:8000",
    Limit.KV_CACHE_FULL,
    "KV cache full",
    "",
    evidence=(Evidence("KV 97%"),),
    confidence=Confidence.HIGH,
    kind=Kind.ENGINE,
    key="a",
    level=Level.WARN,
)
XID = replace(
    KV, scope="gpu 1", kind=Kind.GPU, key="u1", code=Limit.HARDWARE_FAULT, level=Level.CRITICAL, cause="Xid 79"
)
JUDGED = replace(SCENE, verdicts=(XID, KV))


def holding(text: str, snapshot: Snapshot) -> list[str]:
    return [sight.scope for sight in parse(text).look(snapshot) if sight.holds]


def test_a_verdict_by_its_word_and_by_whom_it_is_about() -> None:
    assert holding("kv_cache_full", JUDGED) == ["vllm:8000"]
    assert holding("kv_cache_full[vllm*]", JUDGED) == ["vllm:8000"]
    assert holding("kv_cache_full[sglang*]", JUDGED) == []
    assert holding("queue_limit", JUDGED) == []


def test_a_level_takes_in_what_is_more_urgent() -> None:
    assert holding("critical", JUDGED) == ["gpu 1"]
    assert holding("warn", JUDGED) == ["gpu 1", "vllm:8000"]


def test_a_figure_beside_a_number_per_thing() -> None:
    gpus = tuple(replace(gpu, temperature_c=70.0 + 10 * gpu.reading.index) for gpu in SCENE.gpus)
    scene = replace(SCENE, gpus=gpus)
    assert holding("gpus.temperature_c > 75", scene) == ["gpu 1", "gpu 2"]
    assert holding("gpus[gpu 2].temperature_c>=90", scene) == ["gpu 2"]
    assert holding("gpus[2].temperature_c < 80", scene) == []
    assert [sight.text for sight in parse("gpus[1].temperature_c > 75").look(scene)] == ["temperature_c 80 > 75"]


def test_a_figure_of_a_part_and_of_the_host() -> None:
    engine = SCENE.engines[0]
    slow = replace(engine, ttft_s=replace(engine.latency.ttft_s, p95=3.0))
    scene = replace(SCENE, engines=(slow, *SCENE.engines[1:]), host=replace(SCENE.host, cpu_ratio=0.99))
    assert holding(f"engines[{engine.name}].ttft_s.p95 > 2", scene) == [engine.name]
    assert holding("host.cpu_ratio > 0.9", scene) == ["host"]


def test_a_missing_figure_is_neither() -> None:
    gone = replace(SCENE, gpus=(replace(SCENE.gpus[0], power_w=NOT_EXPOSED),))
    (sight,) = parse("gpus.power_w > 1").look(gone)
    assert sight.holds is None
    assert isinstance(sight.value, Missing)
