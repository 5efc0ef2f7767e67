"""Memory held for nothing, memory nearly full, idle and busy GPUs; engines speak for the GPUs they are on."""

from __future__ import annotations

import pytest

from gpumon.readings.format import wall_of
from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Confidence, Family, Level, Limit
from tests.records import replace
from tests.triage.stage import GIB, START_S, Of, Stage, engine, gpu, limit, process, said

LEFTOVER = process(command="python -u train_lora.py --lr 1", user="ada")


def test_a_left_over_is_named_with_what_it_holds_how_long_and_the_money() -> None:
    held = (gpu(vram_used_bytes=38 * GIB, processes=(LEFTOVER,), gpu_type="H100 SXM 80GB"),)
    stage = Stage(prices={"H100 SXM 80GB": 2.49})
    assert limit(stage.play(600, held), Family.USE) is not Limit.MEMORY_IDLE
    found = said(stage.play(180, held), Family.USE)
    assert (found.limit, found.level) == (Limit.MEMORY_IDLE, Level.NOTE)
    assert found.text == (
        "python train_lora.py (pid 4711) of ada holds 38 GiB and nothing computes for 13 min: 2.5 $/h idle"
    )
    assert wall_of(found.since) == START_S
    assert "ada" in found.action
    assert any("38,912 MiB" in each.text for each in found.evidence)


def test_memory_that_no_visible_process_holds_says_where_to_look() -> None:
    found = said(Stage(gpu_idle_s=60).play(200, (gpu(vram_used_bytes=76 * GIB),)), Family.USE)
    assert found.limit is Limit.MEMORY_IDLE
    assert "no process that is visible" in found.text
    assert "container" in found.action


def test_a_kernel_now_and_then_is_no_left_over() -> None:
    def scene(at: int) -> tuple[Of, ...]:
        return (gpu(vram_used_bytes=38 * GIB, processes=(LEFTOVER,), busy_ratio=0.9 if at % 50 == 0 else 0.0),)

    assert limit(Stage(gpu_idle_s=60).play(240, scene), Family.USE) is Limit.UNDER_USED


@pytest.mark.parametrize("kind", [EngineKind.VLLM, EngineKind.SGLANG])
def test_an_engine_that_reserves_its_pool_is_not_told_by_its_gpu(kind: EngineKind) -> None:
    """Full memory is how they work; whether they are idle or full is the engine's own verdict."""
    on = gpu(vram_used_bytes=75 * GIB, processes=(process(engine="vllm:8000", gib=75.0),))
    served = engine(kind=kind, running=0.0, waiting=0.0, kv_usage_ratio=0.0)
    snapshot = Stage(gpu_idle_s=60).play(200, (on, served))
    assert limit(snapshot, Family.USE) is None
    assert limit(snapshot, Family.LIMIT) is None


def test_an_engine_that_is_gone_or_mute_leaves_its_gpu_to_speak_for_itself() -> None:
    gone = engine(state=EndpointState.REFUSED)
    assert limit(Stage().play(240, (gpu(), gone)), Family.USE) is Limit.UNDER_USED
    off = engine(state=EndpointState.METRICS_OFF)
    loaded = gpu(vram_used_bytes=75 * GIB, processes=(process(name="vllm", gib=75.0),))
    assert limit(Stage(gpu_idle_s=60).play(240, (loaded, off)), Family.USE) is Limit.MEMORY_IDLE


@pytest.mark.parametrize(("used", "level"), [(66.0, Level.NOTE), (75.0, Level.WARN)])
def test_a_training_that_fills_its_memory_is_near_its_end(used: float, level: Level) -> None:
    trains = engine(phase=Phase.TRAINING, kind=EngineKind.GENERIC, name="run")
    on = gpu(vram_used_bytes=used * GIB, busy_ratio=0.95, processes=(process(gib=used),))
    found = said(Stage().play(60, (on, trains)), Family.USE)
    assert (found.limit, found.level) == (Limit.MEMORY_FULL, level)
    assert f"{80 - used:.1f} GiB left" in found.text or f"{80 - used:.0f} GiB left" in found.text
    assert "micro-batch" in found.action


def test_full_memory_that_nothing_computes_on_will_not_run_out() -> None:
    trains = engine(phase=Phase.TRAINING, kind=EngineKind.GENERIC, name="run")
    assert limit(Stage().play(60, (gpu(vram_used_bytes=78 * GIB, busy_ratio=0.0), trains)), Family.USE) is None


def test_memory_below_the_marks_is_no_verdict_of_a_training() -> None:
    trains = engine(phase=Phase.TRAINING, kind=EngineKind.GENERIC, name="run")
    assert limit(Stage().play(60, (gpu(vram_used_bytes=60 * GIB, busy_ratio=0.95), trains)), Family.USE) is None


def test_an_empty_gpu_is_under_used_and_costs_money() -> None:
    found = said(Stage(prices={"": 2.0}).play(240, (gpu(),)), Family.USE)
    assert (found.limit, found.level) == (Limit.UNDER_USED, Level.NOTE)
    assert "nothing runs on it: 2.0 $/h idle" in found.text
    assert found.action == "free for other work"


def test_a_busy_gpu_without_an_engine_is_healthy_where_its_activity_is_measured() -> None:
    on = gpu(
        busy_ratio=0.97, sm_active_ratio=0.8, tensor_active_ratio=0.4, processes=(process(),), activity_source="gpm"
    )
    found = said(Stage().play(120, (on,)), Family.USE)
    assert (found.limit, found.level) == (Limit.HEALTHY, Level.OK)
    assert {"busy:0", "sm:0", "tensor:0"} == {each.chart for each in found.evidence}


def test_a_busy_gpu_without_an_engine_and_without_gpm_can_not_be_told() -> None:
    found = said(Stage().play(120, (gpu(busy_ratio=0.97, processes=(process(user="ada"),)),)), Family.USE)
    assert found.limit is Limit.CANNOT_TELL
    assert "--endpoint" in found.unknown[0]
    assert "of ada" in found.unknown[0]


def test_a_gpu_whose_figures_are_refused_can_not_be_told_and_says_why() -> None:
    refused = Missing(Reason.NO_PERMISSION, "the driver refuses it to this user")
    on = gpu(state=GpuState.NO_PERMISSION, busy_ratio=refused, vram_used_bytes=refused, vram_total_bytes=refused)
    snapshot = Stage().play(60, (on,))
    found = said(snapshot, Family.USE)
    assert found.limit is Limit.CANNOT_TELL
    assert "the driver refuses it to this user" in found.text


def test_a_split_gpu_is_told_slice_by_slice() -> None:
    whole = gpu(mig=True, busy_ratio=Missing(Reason.UNDER_MIG))
    part = gpu(1, busy_ratio=Missing(Reason.UNDER_MIG), sm_active_ratio=0.0, mig_profile="3g.40gb", parent_uuid="GPU-0")
    snapshot = Stage().play(240, (whole, part))
    assert [each.key for each in snapshot.verdicts if each.family is Family.USE] == ["GPU-1"]


@pytest.mark.parametrize(("active", "expected"), [(0.0, Limit.MEMORY_IDLE), (0.7, Limit.HEALTHY)])
def test_a_slice_sleeps_by_its_sm_activity(active: float, expected: Limit) -> None:
    busy = Missing(Reason.UNDER_MIG)
    part = gpu(1, busy_ratio=busy, sm_active_ratio=active, mig_profile="3g.40gb", vram_used_bytes=38 * GIB)
    assert limit(Stage(gpu_idle_s=60).play(240, (part,)), Family.USE) is expected


def test_memory_that_is_the_hosts_is_not_held_by_a_gpu() -> None:
    shared = gpu(vram_used_bytes=100 * GIB, vram_total_bytes=119 * GIB, vram_shared=True)
    assert limit(Stage(gpu_idle_s=60).play(240, (shared,)), Family.USE) is Limit.UNDER_USED


CORE = process(name="VLLM::EngineCore", gib=74.0, user="root", command="VLLM::EngineCore")
UNMAPPED = engine(gpus=(), running=3.0)


@pytest.mark.parametrize("holds", [(CORE,), ()])
def test_the_full_memory_of_an_engine_that_nobody_places_is_its_pool(holds: tuple[GpuProcess, ...]) -> None:
    busy = gpu(vram_used_bytes=75 * GIB, busy_ratio=0.9, processes=holds)
    found = said(Stage().play(200, (busy, UNMAPPED)), Family.USE)
    assert found.limit is Limit.CANNOT_TELL
    assert "add gpus to the [[endpoint]] of vllm:8000" in found.unknown[0]
    assert "--endpoint" not in found.unknown[0]


def test_an_idle_engine_that_nobody_places_is_not_to_be_ended() -> None:
    found = said(Stage().play(800, (gpu(vram_used_bytes=75 * GIB, processes=(CORE,)), UNMAPPED)), Family.USE)
    assert found.limit is Limit.UNDER_USED
    assert found.action.startswith("add gpus to the [[endpoint]] of vllm:8000")


def test_an_engine_by_its_process_alone_may_be_a_left_over_or_one_to_add() -> None:
    idle = said(Stage().play(800, (gpu(vram_used_bytes=75 * GIB, processes=(CORE,)),)), Family.USE)
    assert idle.limit is Limit.MEMORY_IDLE
    assert idle.action.startswith("add the engine's URL with --endpoint if its server still answers; else ask root")
    busy = Stage().play(200, (gpu(vram_used_bytes=75 * GIB, busy_ratio=0.9, processes=(CORE,)),))
    assert limit(busy, Family.USE) is Limit.CANNOT_TELL


def test_a_program_that_is_no_engine_is_told_as_before_beside_an_engine_elsewhere() -> None:
    held = gpu(vram_used_bytes=38 * GIB, processes=(LEFTOVER,))
    assert limit(Stage().play(800, (held, UNMAPPED)), Family.USE) is Limit.MEMORY_IDLE
    full = gpu(vram_used_bytes=75 * GIB, busy_ratio=0.9, processes=(LEFTOVER,))
    assert limit(Stage().play(200, (full, UNMAPPED)), Family.USE) is Limit.MEMORY_FULL


def test_a_slice_has_a_name_of_its_own_no_price_and_not_its_parents_chart() -> None:
    fields = {"vram_used_bytes": 8 * GIB, "vram_total_bytes": 10 * GIB, "sm_active_ratio": 0.0}
    things = [gpu(uuid="GPU-p", mig=True, busy_ratio=Missing(Reason.UNDER_MIG))]
    for at in range(2):
        own = gpu(uuid=f"MIG-{at}", busy_ratio=Missing(Reason.UNDER_MIG), processes=(LEFTOVER,), **fields)  # type: ignore[arg-type]
        names = {"mig_profile": "1g.10gb", "parent_uuid": "GPU-p"}
        read = replace(own.read, mig_instance="9" if at else "", **names)
        things.append(Of(read, replace(own.shown, **names)))
    found = list(Stage(prices={"": 2.5}, gpu_idle_s=60).play(200, tuple(things)).verdicts)
    assert {each.scope for each in found} == {"gpu 0 1g.10gb #1", "gpu 0 1g.10gb #9"}
    assert {each.limit for each in found} == {Limit.MEMORY_IDLE}
    assert not any("$" in each.text for each in found)
    assert {one.chart for each in found for one in each.evidence} == {""}


def test_the_evidence_of_an_idle_gpu_is_as_long_as_its_text() -> None:
    found = said(Stage().play(760, (gpu(vram_used_bytes=0.5 * GIB),)), Family.USE)
    assert found.text == "idle for 13 min, nothing runs on it"
    assert found.evidence[0].text == "at most 5 % busy for 13 min"


def test_memory_that_is_nearly_full_is_as_sure_as_it_is_measured() -> None:
    holder = process(gib=75.0)
    full = (gpu(vram_used_bytes=75 * GIB, busy_ratio=0.9, processes=(holder,)),)
    found = said(Stage().play(90, full), Family.USE)
    assert (found.limit, found.confidence) == (Limit.MEMORY_FULL, Confidence.HIGH)
