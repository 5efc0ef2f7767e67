"""A program beside an engine on its GPU, ranks that starve, and one prompt that fills the pool."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import Confidence, Gpu, Level, Limit, Quantiles
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, PEAK, judged, limits, only, scene
from tests.triage.stage import GIB, Of, Stage

TRAINING = GpuProcess(999, "python", user="bob", vram_bytes=8.0 * GIB, command="python train.py")
BESIDE = {**BUSY, "tensor_active_ratio": 0.7, "processes": (*BUSY["processes"], TRAINING)}
SLOW = {"itl_mean_s": 0.087, "itl_s": Quantiles(mean=0.087, p95=0.09), "mfu_ratio": 0.1, "mbu_ratio": 0.2}


def taking(share: float, of: Any) -> Any:
    """The scene with a process 999 that takes this share of the SMs' time."""

    def shown(thing: Of) -> Of:
        if not isinstance(thing.shown, Gpu):
            return thing
        known = thing.shown.reading.processes
        processes = tuple(replace(one, sm_ratio=share) if one.pid == 999 else one for one in known)
        return Of(thing.read, replace(thing.shown, processes=processes))

    return lambda tick: tuple(shown(thing) for thing in of(tick))


def test_a_training_job_that_came_later_is_named_with_what_it_costs() -> None:
    stage = Stage()
    stage.play(180, scene())
    found = only(stage.play(120, taking(0.6, scene(SLOW, BESIDE))))
    assert (found.code, found.cause, found.level) == (Limit.GPU_SHARED, "neighbour", Level.WARN)
    assert verdict_text(found) == (
        "it shares gpu 0 with python train.py (pid 999) of bob, which takes 60% of its time; ITL 87 ms, 24 ms before"
    )
    assert actions_text(found) == "scheduler: move python train.py to other GPUs"


@each_row(
    ("changes", "share", "level"),
    [
        ({**SLOW, "itl_s": Quantiles(mean=0.25, p95=0.3)}, 0.2, Level.WARN),
        (SLOW, 0.6, Level.NOTE),  # it has been there since gpumon looked
    ],
)
def test_a_job_that_was_there_from_the_start_is_named(changes: dict[str, Any], share: float, level: Level) -> None:
    found = only(judged(taking(share, scene(changes, BESIDE)), 90))
    assert (found.code, found.level) == (Limit.GPU_SHARED, level)


def test_without_the_drivers_share_what_the_gpu_does_beyond_the_engine_tells() -> None:
    late = {**SLOW, "itl_s": Quantiles(mean=0.25, p95=0.3)}
    found = only(judged(scene(late, BESIDE), 90))
    assert found.code is Limit.GPU_SHARED
    assert "takes" not in verdict_text(found)
    quiet = {**BESIDE, "tensor_active_ratio": 0.12, "bandwidth_bytes_per_s": 0.22 * PEAK}
    assert Limit.GPU_SHARED not in limits(judged(scene(late, quiet), 90)), "it holds memory and does nothing"


def test_an_engine_whose_own_share_of_the_gpu_is_not_known_makes_it_less_sure() -> None:
    unknown = {"mfu_ratio": Missing(Reason.UNKNOWN_MODEL), "mbu_ratio": Missing(Reason.UNKNOWN_MODEL)}
    late = {**SLOW, "itl_s": Quantiles(mean=0.25, p95=0.3)}
    known, guessed = (only(judged(taking(0.2, scene(late | own, BESIDE)), 90)) for own in ({}, unknown))
    assert (known.code, known.confidence) == (Limit.GPU_SHARED, Confidence.MEDIUM)
    assert (guessed.code, guessed.confidence) == (Limit.GPU_SHARED, Confidence.LOW)
    stage = Stage()
    stage.play(180, scene(unknown))
    risen = only(stage.play(120, taking(0.6, scene(SLOW | unknown, BESIDE))))
    assert (risen.code, risen.confidence) == (Limit.GPU_SHARED, Confidence.MEDIUM)


OF_8B = {
    "weight_bytes": 16e9,
    "kv_bytes_per_s": 2e10,
    "steps_per_s": 11.5,
    "peak_bandwidth_bytes_per_s": PEAK,
    "mfu_prefill_ratio": 0.02,
    "tokens_per_step": 1.0,
}


def test_steps_that_take_far_longer_than_their_bytes_are_costly_from_the_start() -> None:
    """(16 GB + 20 GB/s / 11.5) / 3.35 TB/s / 0.35 = 15.1 ms; the job was there before gpumon."""
    found = only(judged(scene({**SLOW, **OF_8B}, BESIDE), 90))
    assert (found.code, found.level) == (Limit.GPU_SHARED, Level.WARN)
    assert verdict_text(found) == (
        "it shares gpu 0 with python train.py (pid 999) of bob; ITL 87 ms, about 15 ms alone"
    )
    blind = {**BESIDE, "tensor_active_ratio": NOT_SUPPORTED, "bandwidth_bytes_per_s": NOT_SUPPORTED}
    guessed = only(judged(scene({**SLOW, **OF_8B}, blind), 90))
    assert (guessed.code, guessed.level, guessed.confidence) == (Limit.GPU_SHARED, Level.NOTE, Confidence.LOW)
    assert Limit.GPU_SHARED not in limits(judged(scene({**SLOW, **OF_8B, "itl_mean_s": 0.04}, blind), 90))
    assert Limit.GPU_SHARED not in limits(judged(scene({**SLOW, **OF_8B}), 90)), "nobody is beside it"


@each_row(("changes", "share"), [({}, 0.2), (SLOW, 0.02), ({**SLOW, "mfu_ratio": 0.55, "mfu_prefill_ratio": 0.5}, 0.6)])
def test_a_neighbour_that_costs_nothing_is_not_told(changes: dict[str, Any], share: float) -> None:
    assert Limit.GPU_SHARED not in limits(judged(taking(share, scene(changes, BESIDE)), 90))


STARVED = (
    Evidence("rank_queue", 20.0, parameters={"rank": "0", "running": 64.0, "other": "2", "other_running": 0.0}),
    Evidence("rank_decode", 0.0, 900.0, parameters={"rank": "2"}),
)


def test_a_rank_without_work_comes_before_advice_on_slots() -> None:
    """The GPUs of the starved rank are idle: their mean is below what counts as at work."""
    queued = {"waiting": 60.0, "running": 192.0, "queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0)}
    found = only(judged(scene({**queued, "uneven": STARVED, "ranks": 4}, {**BUSY, "busy_ratio": 0.7}, slots=192.0)))
    assert (found.code, found.cause, found.level) == (Limit.STRAGGLER, "uneven_ranks", Level.WARN)
    assert verdict_text(found) == "rank 2 runs 0 while rank 0 runs 64 and has 20 waiting"
    assert [one.code for one in found.actions] == ["balance_ranks"]


def test_ranks_that_differ_without_a_queue_are_a_note() -> None:
    found = only(judged(scene({"uneven": STARVED[1:], "ranks": 4})))
    assert (found.cause, found.level) == ("uneven_ranks", Level.NOTE)


GIANT = {
    "running": 1.0,
    "waiting": 9.0,
    "kv_usage_ratio": 0.97,
    "queue_s": Quantiles(mean=9.0),
    "ttft_s": Quantiles(mean=10.0, p95=18.0),
}


def test_one_prompt_that_fills_the_pool_is_no_lack_of_instances() -> None:
    stage = Stage()
    stage.play(180, scene({"running": 12.0, "kv_usage_ratio": 0.3}))
    found = only(stage.play(60, scene(GIANT)))
    assert (found.code, found.cause, found.level) == (Limit.KV_CACHE_FULL, "one_prompt", Level.WARN)
    assert verdict_text(found) == ("one request fills 97% of the KV cache (58.2k tokens): up to 9 wait for it")
    assert actions_text(found).startswith("lower --max-model-len, or limit the prompts at the gateway")


@each_row(("running", "share"), [(1.0, "97%"), (4.0, "90%")])
def test_one_prompt_is_told_beside_those_that_run_with_it(running: float, share: str) -> None:
    """The others take 2.5% each, as in the minutes before."""
    stage = Stage()
    stage.play(180, scene({"running": 12.0, "kv_usage_ratio": 0.3}), every_s=1)

    def comes_and_goes(tick: int) -> tuple[Of, ...]:
        return scene({**GIANT, "running": running} if tick % 60 < 20 else {"running": 12.0, "kv_usage_ratio": 0.3})(
            tick
        )

    found = only(stage.play(150, comes_and_goes, every_s=1))
    assert found.cause == "one_prompt"
    assert f"one request fills {share}" in verdict_text(found)


@each_row(
    ("grown", "info"),
    [
        # All prompts became longer: twelve of 4,700 tokens fill the pool by themselves.
        ({"prompt_tokens_mean": 4700.0, "running": 12.0}, {}),
        # No request can hold half of 60,000 tokens where 16,384 is the longest.
        ({"running": 3.0}, {"context_len": "16384"}),
    ],
)
def test_prompts_that_all_grew_are_not_one_that_fills_the_pool(grown: dict[str, Any], info: dict[str, str]) -> None:
    stage = Stage()
    stage.play(180, scene({"running": 12.0, "kv_usage_ratio": 0.3, "prompt_tokens_mean": 1500.0}, info=info))
    found = only(stage.play(60, scene({**GIANT, **grown}, info=info)))
    assert (found.code, found.cause) == (Limit.KV_CACHE_FULL, "kv_full")
    assert "limit_prompt" not in [one.code for one in found.actions]


def test_many_requests_that_fill_the_pool_are_not_one() -> None:
    stage = Stage()
    stage.play(180, scene({"running": 12.0, "kv_usage_ratio": 0.3}))
    full = {**GIANT, "running": 38.0}
    assert only(stage.play(60, scene(full))).cause == "kv_full"
