"""Programs without a feed: which GPUs are those of one program, and what their processes are called."""

from __future__ import annotations

import pytest

from gpumon.demo import scenario as plays
from gpumon.demo.gpus import AverageWork
from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import scenario
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Level
from gpumon.triage.programs import _key_of_process
from gpumon.triage.render import verdict_text
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row
from tests.records import replace
from tests.triage.stage import GIB, Of, Stage, gpu
from tests.triage.stage import process as program


def process(command: str, **more: str) -> GpuProcess:
    return GpuProcess(1, "python", more.pop("user", "ada"), NOT_SUPPORTED, command=command, **more)


@each_row(
    "first, second, same",
    [
        ("python train.py --local_rank=0", "python train.py --local_rank=1", True),
        ("python train.py --local-rank 0 -v", "python train.py --local-rank 7 -v", True),
        ("python train.py --node_rank=1 --rank 3", "python train.py --node_rank=0 --rank 11", True),
        ("python train.py", "python train.py", True),
        ("python train.py --config a", "python train.py --config b", False),
    ],
)
def test_ranks_of_one_program_have_one_key(first: str, second: str, same: bool) -> None:
    assert (_key_of_process(process(first)) == _key_of_process(process(second))) is same


def test_jobs_users_and_pods_tell_programs_apart() -> None:
    own = _key_of_process(process("python train.py"))
    for other in ({"user": "bob"}, {"job": "77"}, {"pod": "p"}):
        assert _key_of_process(process("python train.py", **other)) != own


def test_a_stage_in_turns_averages_its_work_over_any_time() -> None:
    stage = plays.Stage(work=AverageWork(busy_ratio=1.0), every_s=4.0, for_s=1.0, rest=AverageWork(busy_ratio=0.2))
    assert [round(stage.work_between(at, at + 1.0).busy_ratio, 6) for at in (0.0, 1.0, 3.5)] == [1.0, 0.2, 0.6]
    assert round(stage.work_between(-8.0, 8.0).busy_ratio, 6) == 0.4


def texts(play: Scenario, at_s: float) -> dict[str, str]:
    """Thing -> its urgent verdict at a moment of a play."""
    for second, snapshot in judged(play, frames(play, at_s, every_s=2)):
        if second == at_s:
            return {
                verdict.scope: verdict_text(verdict)
                for verdict in snapshot.verdicts
                if verdict.level.value in ("critical", "warn")
            }
    raise AssertionError("it ended before")


def test_a_hang_is_told_with_its_gpus_figures_and_onset() -> None:
    play = scenario("nccl-hang")
    shown = texts(play, 130.0)
    assert list(shown) == [f"gpu {index}" for index in range(8)]
    assert set(shown.values()) == {
        "sim:python of simulated has waited in a collective for over 60 s on gpu 0-7: busy, no arithmetic, "
        "memory bandwidth 0%, power 22% of the limit: a rank did not come to it, or the way to it is "
        "broken"
    }


def test_an_idle_rank_of_what_may_answer_requests_is_never_critical() -> None:
    """Its first rank waits for a request, and the others for it: that is all that is seen of a server of one's own."""
    play = scenario("idle-rank")
    (program_of_play,) = play.programs
    levels = {}
    for command in ("sim:python train.py", "sim:python generate.py"):
        one = replace(play, programs=(replace(program_of_play, command=command),), length_s=500)
        for second, snapshot in judged(one, frames(one, 480.0, every_s=4)):
            if second == 480.0:
                levels[command] = [(v.cause, v.level) for v in snapshot.verdicts if v.scope == "gpu 5"]
    assert levels["sim:python train.py"] == [("rank_idle", Level.CRITICAL)]
    assert levels["sim:python generate.py"] == [("rank_idle", Level.WARN)]


def test_gpus_that_send_at_speed_are_in_no_hang() -> None:
    """A long all-gather computes nothing and reads little: its links are busy."""
    play = scenario("nccl-hang")
    (program,) = play.programs
    works, hangs = program.stages
    sends = replace(hangs, work=replace(hangs.work, nvlink_bytes_per_s=5e9))
    assert texts(replace(play, programs=(replace(program, stages=(works, sends)),)), 130.0) == {}


def test_a_hang_is_over_as_soon_as_its_gpus_compute() -> None:
    play = scenario("nccl-hang")
    (program,) = play.programs
    work, hang = program.stages
    healed = replace(program, stages=(work, replace(hang, to_s=150.0)))
    shown = texts(replace(play, programs=(healed,)), 156.0)
    assert shown == {}


@pytest.mark.parametrize(
    "name", ["tiny-kernels", "rollouts-then-updates", "own-server-waits", "checkpoint-stall", "eval-loop"]
)
def test_what_works_or_waits_for_a_reason_gets_no_warning(name: str) -> None:
    play = scenario(name)
    for at_s, snapshot in judged(play, frames(play, 220.0, every_s=2)):
        urgent = [verdict.cause for verdict in snapshot.verdicts if verdict.level.value in ("critical", "warn")]
        assert not urgent, at_s


def test_memory_that_one_job_fills_is_one_verdict() -> None:
    play = scenario("one-job-fills-memory")
    *_, (_, snapshot) = judged(play, frames(play, 60.0))
    shown = [(verdict.scope, verdict_text(verdict)) for verdict in snapshot.verdicts if verdict.cause == "vram_full"]
    text = "VRAM 85%, 12 GiB left for sim:python of simulated on gpu 0-7: a larger batch may run out of memory"
    assert shown == [("gpu 0", text)]


def test_a_rank_that_is_gone_is_told_on_its_gpu() -> None:
    shown = texts(scenario("rank-gone"), 110.0)
    assert shown == {
        "gpu 2": "its process is gone, with 3 GPUs of sim:python of simulated (gpu 0-1, 3) waiting for it in a "
        "collective for over 30 s"
    }


def test_the_gpus_of_a_program_are_those_of_now_between_two_samples_of_the_host() -> None:
    """As with `--interval 0.25`, and after a refresh: samples are a second apart, and VRAM fills within."""
    stage = Stage()

    def card(gib: float) -> Of:
        return gpu(processes=(program(command="python train.py"),), busy_ratio=1.0, vram_used_bytes=gib * GIB)

    stage.tick(card(40.0), seconds=3.8)
    stage.tick(card(40.0), seconds=0.4)
    assert stage.tick(card(79.5)).verdicts == ()
