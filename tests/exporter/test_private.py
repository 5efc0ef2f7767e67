"""What triage says of processes stays on its host: no program, script, pid or user on any page."""

from __future__ import annotations

import re

from gpumon.commands.serve_metrics import answer
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.private import without_processes
from gpumon.readings.frame import GpuProcess, XidEvent
from gpumon.readings.snapshot import FaultShown, Snapshot
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.exporter.served import MODERN
from tests.outputs import shots
from tests.records import replace
from tests.triage.engines import SPINS, judged, scene
from tests.triage.stage import GIB, START_S, Stage, gpu

SCRIPT = "python -u train_lora.py --lr 1"
NAMES = re.compile(r"train_lora|\bada\b|\bbob\b|secret|(?<![\d.])471\d(?!\d)|\(pid")


def left_over(*processes: GpuProcess) -> Snapshot:
    """GPUs whose memory is held for nothing, one that nearly runs out of it, and one with an Xid."""
    held = gpu(0, vram_used_bytes=38 * GIB, processes=processes)
    full = gpu(1, vram_used_bytes=78 * GIB, busy_ratio=0.9, processes=processes)
    hit = gpu(2, xid=(XidEvent(31, START_S),), busy_ratio=0.9, vram_used_bytes=30 * GIB, processes=processes)
    work = gpu(3, busy_ratio=0.9, vram_used_bytes=30 * GIB, processes=processes)
    return Stage(gpu_idle_s=60).play(240, (held, full, hit, work))


def told(shot: Snapshot) -> str:
    """All that goes over the network of it."""
    page = MetricsPage(detail=True)
    page.take(shot)
    return "\n".join(
        answer(page, path, headers).body.decode()
        for path, headers in (("/metrics", {}), ("/metrics", {"accept": MODERN}), ("/snapshot.json", {}))
    )


@each_row(
    "processes",
    [
        (GpuProcess(4711, "python", "ada", 38.0 * GIB, command=SCRIPT),),
        (GpuProcess(4711, "/opt/secret/python3.11", "", 38.0 * GIB, command=SCRIPT),),
        (GpuProcess(4711, "my secret, odd: job; (pid 4712) of bob", "ada", 38.0 * GIB),),
        tuple(GpuProcess(4711 + at, "python", "ada bob"[at % 2 * 4 :], 6.0 * GIB, command=SCRIPT) for at in range(6)),
        (GpuProcess(4711, "python", "DOM\\ada bob", 38.0 * GIB, command=f"python 'secret {SCRIPT}.py'"),),
    ],
)
def test_no_process_is_named(processes: tuple[GpuProcess, ...]) -> None:
    shot = left_over(*processes)
    said = [verdict_text(one) + actions_text(one) for one in shot.verdicts]
    assert any(NAMES.search(text) for text in said)
    seen = told(shot)
    assert not NAMES.search(seen), NAMES.findall(seen)
    assert "a process" in seen
    gone = replace(
        shot, gpus=tuple(replace(one, processes=()) for one in shot.gpus)
    )  # a verdict that stands for a while after its process has ended
    assert "(pid" not in told(gone)


def test_the_rest_of_what_is_said_stays() -> None:
    shot = without_processes(left_over(GpuProcess(4711, "python", "ada", 38.0 * GIB, command=SCRIPT)))
    held = next(one for one in shot.verdicts if one.cause == "vram_held")
    assert verdict_text(held).startswith("a process holds 38 GiB and nothing computes for")
    assert [(action.code, action.parameters.get("owner", "")) for action in held.actions[:1]] == [("end_program", "")]
    assert "a process holds 38 GiB" in [evidence_text(one) for one in held.evidence]


def test_the_pids_of_a_mute_engine_stay_here() -> None:
    shot = judged(scene({"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0}, SPINS, moves=False), 32)
    assert any("pid 4711" in actions_text(one) for one in shot.verdicts), shot.verdicts
    seen = told(shot)
    assert not NAMES.search(seen)


def test_owners_of_ports_processes_that_have_gone_and_cut_texts_name_nobody() -> None:
    source = "process 4711 (secret) listens on port 8000 but runs nothing on a GPU of this host"
    owner = "port 8000 belongs to user ada, and Linux hides other users' sockets"
    engines = (shots.engine(gpus_source=source), shots.engine(name="b", url="http://b", gpus_source=owner))
    fault = FaultShown("engines", f"unmapped ({source}); server 4713 (vllm serve m) has ended; pid 4714 hangs", "")
    seen = told(shots.snapshot(engines=engines, faults=(fault,)))
    assert not NAMES.search(seen), NAMES.findall(seen)
    assert "a process listens on port 8000" in seen
    assert "belongs to another user, and Linux" in seen
    assert "server (vllm serve m) has ended" in seen
    assert "pid PID hangs" in seen
