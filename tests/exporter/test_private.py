"""What triage says of processes stays on its host: no program, script, pid or user on any page."""

from __future__ import annotations

import re

from gpumon.commands.serve_metrics import answer
from gpumon.demo.scenarios import scenario
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.private import without_processes
from gpumon.readings.frame import GpuProcess, XidEvent
from gpumon.readings.snapshot import FaultShown, Snapshot
from gpumon.readings.verdict import RaisedAlert
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.accuracy import triage as plays
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


@each_row("play", ["nccl-hang", "rank-gone", "one-job-fills-memory", "checkpoint-stall", "neighbour-arrives"])
def test_no_program_of_a_sentence_is_named(play: str) -> None:
    """Programs over several GPUs, and those beside an engine, are named by their script and user in the sentence."""
    names = re.compile(r"sim:python|\bpids? \d")
    *_, (_, shot) = plays.judged(scenario(play), plays.frames(scenario(play), 160.0, every_s=4))
    seen = told(shot)
    assert any(names.search(verdict_text(one)) for one in shot.verdicts)
    assert not names.search(seen), names.findall(seen)


def test_sources_and_faults_name_no_process_no_user_and_no_file_of_a_user() -> None:
    source = "process 4711 (secret) listens on port 8000 but runs nothing on a GPU of this host"
    refused = (
        "what file /home/bob/secret holds was not sent: the server on this port belongs to ada and bob, and it is not"
        ' given for that user; if it is, set api_key_user = "ada"'
    )
    unreadable = "/m/config.json: the engine's user ada may not read it: where it is yours, set model"
    key_file = "api_key_file: /home/bob/secret belongs to ada, who could write it: sudo chown bob /home/bob/secret"
    options = shots.engine().options
    engine = replace(
        shots.engine(fault=refused),
        sources={"gpus": source, "model": unreadable},
        options=replace(options, sources={"slots": "--max-num-seqs of its command line (pid 4711)"}),
    )
    other = shots.engine(name="b", url="http://b", fault=key_file)
    checked = shots.engine(name="c", url="http://c", fault="401: the key was refused: check what file ~bob/key holds")
    seen = told(shots.snapshot(engines=(engine, other, checked)))
    assert not NAMES.search(seen.replace("(pid PID)", "")), NAMES.findall(seen)
    assert "a process listens on port 8000" in seen
    assert "what its file holds was not sent: the server on this port belongs to another user, and it is not" in seen
    assert "the engine's user may not read it" in seen
    assert "the key was refused: check what its file holds" in seen


def test_an_alert_on_a_verdict_is_told_in_the_words_that_others_may_read() -> None:
    shot = left_over(GpuProcess(4711, "python", "ada", 38.0 * GIB, command=SCRIPT))
    held = next(one for one in shot.verdicts if one.cause == "vram_held")
    raised = RaisedAlert(
        name="memory",
        scope=held.scope,
        text=f"{held.code.value}: {verdict_text(held)}",
        since=held.since,
        level=held.level.value,
        action=actions_text(held),
    )
    over = replace(raised, scope="gpu 7")
    figure = RaisedAlert(name="kv", scope="m", text="kv_usage_ratio 0.97 > 0.95", since=held.since)
    assert NAMES.search(raised.text)
    shown = without_processes(replace(shot, alerts=(raised, over, figure))).alerts
    assert not NAMES.search(repr(shown)), shown
    assert shown[0].text.startswith(f"{held.code.value}: a process holds 38 GiB")
    assert (shown[1].text, shown[1].action) == (held.code.value, "")
    assert shown[2] == figure
