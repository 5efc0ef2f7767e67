"""Memory held for nothing, memory nearly full, idle and busy GPUs; engines speak for the GPUs they are on."""

from __future__ import annotations

from typing import Any

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.amd import AMDSMI
from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Family, Level, Limit
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.efficiency.polls import frame
from tests.efficiency.polls import gpu as polled_gpu
from tests.records import replace
from tests.triage.stage import GIB, Of, Stage, engine, gpu, limit, process, said, verdict

LEFTOVER = process(command="python -u train_lora.py --lr 1", user="ada")


def test_memory_that_no_visible_process_holds_says_where_to_look() -> None:
    found = said(Stage().play(60, (gpu(vram_used_bytes=76 * GIB),)), Family.USE)
    assert (found.code, found.cause, found.level) == (Limit.IDLE_VRAM_HELD, "vram_unlisted", Level.NOTE)
    assert verdict_text(found).endswith("76 GiB of 80 GiB are held by no process that is listed")
    assert "fuser -v /dev/nvidia0" in actions_text(found)
    assert "free for other work" not in actions_text(found)


def test_from_inside_a_container_the_holder_may_be_outside() -> None:
    held = gpu(vram_used_bytes=76 * GIB)
    inside = held._replace(read=replace(held.read, own_namespace=True))
    found = said(Stage().play(60, (inside,)), Family.USE)
    assert "this gpumon is in a container" in verdict_text(found)
    assert actions_text(found).startswith("host: start gpumon with --pid=host")


HOLDS_3 = process(gib=3.0)
COHERENT = gpu(vram_used_bytes=76 * GIB)


@each_row(
    "on",
    [
        gpu(vram_used_bytes=3.9 * GIB),  # what a driver and the contexts of a few programs take
        gpu(vram_used_bytes=76 * GIB, processes=(process(gib=75.0),)),
        gpu(vram_used_bytes=12 * GIB, processes=(HOLDS_3,)),  # CUDA's managed memory is nobody's
        gpu(vram_used_bytes=76 * GIB, processes=(HOLDS_3, GpuProcess(12, "python"))),  # of whose memory nothing is told
        gpu(vram_used_bytes=76 * GIB, busy_ratio=0.9),  # a program that is not visible works
        gpu(vram_used_bytes=76 * GIB, mig=True),
        gpu(vram_used_bytes=76 * GIB, vram_shared=True),
        COHERENT._replace(read=replace(COHERENT.read, lists_processes=False)),  # the driver refuses the list
        COHERENT._replace(read=replace(COHERENT.read, source="dcgm")),  # an exporter lists none
        COHERENT._replace(shown=replace(COHERENT.shown, name="NVIDIA GH200 480GB")),
    ],
)
def test_memory_that_may_be_somebodys_is_not_called_unlisted(on: Of) -> None:
    found = verdict(Stage().play(60, (on,)), Family.USE)
    assert found is None or found.cause != "vram_unlisted"


def test_the_memory_of_an_engine_whose_processes_are_hidden_is_its_own() -> None:
    on = gpu(vram_used_bytes=76 * GIB)
    for served in (engine(), engine(state=EndpointState.TIMEOUT), engine(gpus=())):
        found = verdict(Stage().play(60, (on, served)), Family.USE)
        assert found is None or found.cause != "vram_unlisted"


def test_memory_beside_that_of_listed_processes_is_held_too() -> None:
    found = said(Stage().play(60, (gpu(vram_used_bytes=64 * GIB, processes=(HOLDS_3,)),)), Family.USE)
    assert "61 GiB of 80 GiB are held by no process that is listed beside python" in verdict_text(found)


def test_a_small_gpu_with_a_little_memory_in_use_is_not_called_free() -> None:
    card = gpu(vram_used_bytes=1.5 * GIB, vram_total_bytes=16 * GIB)
    found = said(Stage().play(240, (card,)), Family.USE)
    assert "fuser -v /dev/nvidia0" in actions_text(found)
    free = said(Stage().play(240, (gpu(vram_used_bytes=0.4 * GIB, vram_total_bytes=16 * GIB),)), Family.USE)
    assert "free for other work" in actions_text(free)


@each_row("kind", [EngineKind.VLLM, EngineKind.SGLANG])
def test_an_engine_that_reserves_its_pool_is_not_told_by_its_gpu(kind: EngineKind) -> None:
    """Full memory is how they work; whether they are idle or full is the engine's own verdict."""
    on = gpu(vram_used_bytes=75 * GIB, processes=(process(engine="vllm:8000", gib=75.0),))
    served = engine(kind=kind, running=0.0, waiting=0.0, kv_usage_ratio=0.0)
    snapshot = Stage(gpu_idle_s=60).play(200, (on, served))
    assert limit(snapshot, Family.USE) is None
    assert limit(snapshot, Family.LIMIT) is None


@each_row(("used", "level"), [(66.0, Level.NOTE), (75.0, Level.WARN)])
def test_a_training_that_fills_its_memory_is_near_its_end(used: float, level: Level) -> None:
    trains = engine(phase=Phase.TRAINING, kind=EngineKind.GENERIC, name="run")
    on = gpu(vram_used_bytes=used * GIB, busy_ratio=0.95, processes=(process(gib=used),))
    found = said(Stage().play(60, (on, trains)), Family.USE)
    assert (found.code, found.level) == (Limit.MEMORY_FULL, level)
    assert f"{80 - used:.1f} GiB left" in verdict_text(found) or f"{80 - used:.0f} GiB left" in verdict_text(found)
    assert "micro-batch" in actions_text(found)


def test_full_memory_that_nothing_computes_on_will_not_run_out() -> None:
    trains = engine(phase=Phase.TRAINING, kind=EngineKind.GENERIC, name="run")
    assert limit(Stage().play(60, (gpu(vram_used_bytes=78 * GIB, busy_ratio=0.0), trains)), Family.USE) is None


def test_a_gpu_whose_figures_are_refused_can_not_be_told_and_says_why() -> None:
    refused = Missing(Reason.NO_PERMISSION, "the driver refuses it to this user")
    on = gpu(state=GpuState.NO_PERMISSION, busy_ratio=refused, vram_used_bytes=refused, vram_total_bytes=refused)
    snapshot = Stage().play(60, (on,))
    found = said(snapshot, Family.USE)
    assert found.code is Limit.UNKNOWN
    assert "the driver refuses it to this user" in verdict_text(found)


@each_row(("active", "expected"), [(0.0, Limit.IDLE_VRAM_HELD), (0.7, Limit.HEALTHY)])
def test_a_slice_sleeps_by_its_sm_activity(active: float, expected: Limit) -> None:
    busy = Missing(Reason.UNDER_MIG)
    part = gpu(1, busy_ratio=busy, sm_active_ratio=active, mig_profile="3g.40gb", vram_used_bytes=38 * GIB)
    assert limit(Stage(gpu_idle_s=60).play(240, (part,)), Family.USE) is expected


UNMAPPED = engine(gpus=(), running=3.0)


def test_a_program_that_is_no_engine_is_told_as_before_beside_an_engine_elsewhere() -> None:
    held = gpu(vram_used_bytes=38 * GIB, processes=(LEFTOVER,))
    assert limit(Stage().play(800, (held, UNMAPPED)), Family.USE) is Limit.IDLE_VRAM_HELD
    full = gpu(vram_used_bytes=75 * GIB, busy_ratio=0.9, processes=(LEFTOVER,))
    assert limit(Stage().play(200, (full, UNMAPPED)), Family.USE) is Limit.MEMORY_FULL


@each_row(("used", "said_empty"), [(0.5, True), (71.0, False)])
def test_a_gpu_whose_processes_are_not_listed_is_empty_only_with_its_memory_free(used: float, said_empty: bool) -> None:
    """A dcgm-exporter lists no processes: somebody holds the memory."""
    found = said(Stage().play(400, (gpu(vram_used_bytes=used * GIB), UNMAPPED)), Family.USE)
    assert found.cause == "gpu_idle"
    assert ("nothing runs on it" in verdict_text(found)) is said_empty
    assert ("add gpus to the [[endpoint]] of vllm:8000" in actions_text(found)) is not said_empty


def test_a_held_gpu_beside_an_engine_that_has_some_of_the_hosts_gpus_is_not_free_for_other_work() -> None:
    """So a fleet places an engine of which it knows how many GPUs it takes, and not which."""
    source = "1 GPUs per engine (config); not known which of its host's"
    placed = replace(UNMAPPED.read, gpu_type="H100 SXM 80GB", gpu_count=1, gpus_source=source)
    beside = Of(placed, UNMAPPED.shown)
    held = said(Stage(prices={"": 2.5}).play(400, (gpu(vram_used_bytes=71 * GIB), beside)), Family.USE)
    assert (held.code, held.level) == (Limit.IDLE_VRAM_HELD, Level.NOTE)
    assert actions_text(held) == "add gpus to the [[endpoint]] of vllm:8000"
    elsewhere = Of(replace(placed, gpus_source="config (another host)"), UNMAPPED.shown)
    free = said(Stage(prices={"": 2.5}).play(400, (gpu(), elsewhere)), Family.USE)
    assert actions_text(free) == "free for other work (saves 1 GPU, 2.5 $/h)"


@each_row("others", [(), (UNMAPPED,), (engine(gpus=(), state=EndpointState.TIMEOUT),)])
@each_row("processes", [(), (process(name="", command=""),)])
def test_memory_of_a_program_that_nobody_sees_may_be_an_engines_pool(others: tuple[Of, ...], processes: Any) -> None:
    """vLLM takes nine tenths by design: that is no memory that runs out."""
    full = gpu(vram_used_bytes=74 * GIB, busy_ratio=0.9, processes=processes)
    assert limit(Stage().play(200, (full, *others)), Family.USE) is not Limit.MEMORY_FULL


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
    assert {each.code for each in found} == {Limit.IDLE_VRAM_HELD}
    assert not any("$" in verdict_text(each) for each in found)
    assert {one.chart for each in found for one in each.evidence} == {""}


@each_row(
    ("sm_ratio", "words"),
    [
        (0.1, "SM 10% active over 3 min, with python (pid 4711) on it"),
        (0.25, "unknown workload: python (pid 4711) (SM 25% active)"),
    ],
)
def test_the_work_of_a_slice_is_told_by_its_sms_which_are_no_busy_share(sm_ratio: float, words: str) -> None:
    names = {"mig_profile": "1g.10gb", "parent_uuid": "GPU-p"}
    own = gpu(
        uuid="MIG-0",
        busy_ratio=Missing(Reason.UNDER_MIG),
        processes=(process(gib=1.0),),
        vram_total_bytes=10 * GIB,
        sm_active_ratio=sm_ratio,
    )
    whole = gpu(uuid="GPU-p", mig=True, busy_ratio=Missing(Reason.UNDER_MIG))
    told = Stage().play(200, (whole, Of(replace(own.read, **names), replace(own.shown, **names))))
    (found,) = told.verdicts
    assert verdict_text(found).startswith(words)
    assert [evidence_text(figure) for figure in found.evidence][:1] == [f"SM {sm_ratio:.0%} active"]


def test_what_runs_on_a_gpu_of_a_known_engine_is_no_unknown_engine() -> None:
    worker = process(5000, "VLLM::EngineCore")
    works = {"sm_active_ratio": 0.1, "tensor_active_ratio": 0.0, "processes": (worker,)}
    down = Stage().play(120, (gpu(busy_ratio=0.5, **works), engine(state=EndpointState.METRICS_OFF)))
    alone = Stage().play(120, (gpu(busy_ratio=0.5, **works),))
    assert "--endpoint" not in verdict_text(said(down, Family.USE))
    assert "--endpoint" in verdict_text(said(alone, Family.USE))


def test_a_gpu_whose_engine_has_ended_is_not_asked_who_worked_there() -> None:
    works = gpu(busy_ratio=1.0, sm_active_ratio=0.1, tensor_active_ratio=0.0)
    stage = Stage()
    stage.play(120, (works, engine()))
    rests = gpu(sm_active_ratio=0.0, tensor_active_ratio=0.0)
    for age_s in range(90):
        refused = engine(state=EndpointState.REFUSED)
        ended = stage.tick(rests, Of(refused.read, replace(refused.shown, age_s=float(age_s))))
        assert Limit.UNKNOWN not in {each.code for each in ended.verdicts if each.scope.startswith("gpu")}


def test_a_free_gpu_tells_what_it_would_save() -> None:
    idle = gpu(busy_ratio=0.0, sm_active_ratio=0.0, gpu_type="H100 SXM 80GB")
    found = said(Stage(prices={"": 2.5}, gpu_idle_s=60).play(400, (idle,)), Family.USE)
    assert actions_text(found) == "free for other work (saves 1 GPU, 2.5 $/h)"
    unpriced = said(Stage(gpu_idle_s=60).play(400, (idle,)), Family.USE)
    assert actions_text(unpriced) == "free for other work"


def test_the_evidence_on_a_gpu_of_amd_names_what_its_library_tells() -> None:
    polled = frame(0.0, (polled_gpu(0, source=AMDSMI),), ())
    (shown,) = Deriver(gpu_catalogue()).derive(polled).snapshot.gpus
    card = gpu(vram_used_bytes=38.5 * GIB, processes=(LEFTOVER,), sources=shown.sources)
    found = said(Stage().play(1200, (card,)), Family.USE)
    assert found.cause == "vram_held"
    of_gpu = {figure.quantity: (figure.source, figure.chart) for figure in found.evidence[:2]}
    assert of_gpu == {
        "vram_used": (shown.sources["vram_used_bytes"], "vram:0"),
        "idle_time": (shown.sources["busy_ratio"], "busy:0"),
    }
    assert all(source.startswith("amdsmi_") for source, _ in of_gpu.values())
