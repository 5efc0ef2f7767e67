"""Engines and runs that hang, told apart from long prefills, idleness, restarts and counters that move late."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.frame import EndpointState, GpuProcess, Phase
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import BandwidthSource, Confidence, Family, Kind, Level, Limit, Quantiles, TokensTotal
from tests.triage.engines import BUSY, IDLE, PEAK, SPINS, EngineKind, judged, limits, of_engine, only, scene
from tests.triage.stage import GIB, Of, Stage, engine, gpu

STOPS = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0}
BLIND = {"sm_active_ratio": NOT_SUPPORTED, "tensor_active_ratio": NOT_SUPPORTED, "activity_source": ""}


@pytest.mark.parametrize("gpus", [IDLE, SPINS])
def test_requests_run_no_token_comes_and_the_gpu_does_nothing(gpus: dict[str, Any]) -> None:
    assert Limit.STALLED not in limits(judged(scene(STOPS, gpus, moves=False), 30))
    found = only(judged(scene(STOPS, gpus, moves=False), 32))
    assert (found.limit, found.level, found.confidence) == (Limit.STALLED, Level.CRITICAL, Confidence.HIGH)
    busy = "100 %" if gpus is SPINS else "0 %"
    assert found.text == f"no token for 31 s with 24 running: its GPUs read no memory (DRAM 0 %, busy {busy})"
    assert "pid 4711 (py-spy dump --pid 4711)" in found.action


@pytest.mark.parametrize("gpus", [BUSY, {**SPINS, "bandwidth_bytes_per_s": 0.1 * PEAK}])
def test_a_long_prefill_gives_no_token_either_but_its_gpu_works(gpus: dict[str, Any]) -> None:
    assert Limit.STALLED not in limits(judged(scene(STOPS, gpus, moves=False), 120))


def test_an_engine_without_requests_is_not_hung() -> None:
    assert Limit.STALLED not in limits(judged(scene({**STOPS, "running": 0.0}, IDLE, moves=False), 120))


def test_requests_that_are_never_taken_up_are_a_hang_too() -> None:
    assert limits(judged(scene({**STOPS, "running": 0.0, "waiting": 3.0}, IDLE, moves=False), 40)) == (Limit.STALLED,)


def test_a_slow_first_token_is_waited_for_three_times_as_long() -> None:
    slow = {**STOPS, "ttft_s": Quantiles(mean=20.0)}
    assert Limit.STALLED not in limits(judged(scene(slow, IDLE, moves=False), 58))
    assert limits(judged(scene(slow, IDLE, moves=False), 62)) == (Limit.STALLED,)


@pytest.mark.parametrize("advances", [{"decode_tokens_per_s": "end"}, {}])
def test_tokens_that_are_counted_at_the_end_of_a_request_say_nothing(advances: dict[str, str]) -> None:
    changes = {**STOPS, "advances": advances}
    assert Limit.STALLED not in limits(judged(scene(changes, IDLE, moves=False, kind=EngineKind.TENSORRT_LLM), 120))


def test_without_activity_a_share_of_time_is_enough_to_see_that_memory_rests() -> None:
    bound = {**SPINS, **BLIND, "bandwidth_source": BandwidthSource.UPPER_BOUND}
    assert limits(judged(scene(STOPS, bound, moves=False), 40)) == (Limit.STALLED,)
    works = {**bound, "bandwidth_bytes_per_s": 0.3 * PEAK}
    assert Limit.STALLED not in limits(judged(scene(STOPS, works, moves=False), 120))


@pytest.mark.parametrize(
    ("gpus", "lacks"),
    [
        ({**SPINS, **BLIND, "bandwidth_source": BandwidthSource.NONE}, "DRAM activity of its busy GPUs"),
        ((), "what its GPUs do (which GPUs?"),
    ],
)
def test_a_gpu_that_cannot_be_seen_leaves_it_open(gpus: Any, lacks: str) -> None:
    found = of_engine(judged(scene(STOPS, gpus, moves=False), 40), Family.STATE)
    assert found is not None
    assert found.limit is Limit.CANNOT_TELL
    assert found.unknown[0].startswith(lacks)


@pytest.mark.parametrize(
    ("state", "how"), [(EndpointState.TIMEOUT, "does not answer"), (EndpointState.REFUSED, "refuses")]
)
def test_an_engine_that_is_mute_while_its_processes_hold_the_gpu(state: EndpointState, how: str) -> None:
    stage = Stage()
    for tick in range(40):
        one = engine(state=state)
        shown = type(one.shown)(**{**_fields(one.shown), "age_s": float(tick)})
        last = stage.tick(gpu(**IDLE), Of(one.read, shown))
        found = of_engine(last, Family.STATE)
        assert (found is not None) == (tick >= 30)
    assert found is not None
    assert found.text.startswith(how)
    assert found.text.endswith("while its processes hold 70.0 GiB")
    assert found.level is Level.CRITICAL


def _fields(of: Any) -> dict[str, Any]:
    return {name: getattr(of, name) for name in of.__struct_fields__}


@pytest.mark.parametrize(
    "card",
    [
        lambda tick: {**IDLE, "processes": ()},
        lambda tick: {**IDLE, "vram_used_bytes": (1.0 + tick) * GIB},  # it loads its weights
        lambda tick: {**BUSY},  # it warms up
        lambda tick: {**IDLE, "processes": (GpuProcess(1, "python", engine="another"),)},
    ],
)
def test_an_engine_that_has_ended_or_starts_anew_is_no_hang(card: Any) -> None:
    stage = Stage()
    for tick in range(90):
        one = engine(state=EndpointState.REFUSED)
        shown = type(one.shown)(**{**_fields(one.shown), "age_s": float(tick)})
        assert of_engine(stage.tick(gpu(**card(tick)), Of(one.read, shown)), Family.STATE) is None


def run(trained: float, card: dict[str, Any]) -> tuple[Of, ...]:
    totals = TokensTotal(NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED, trained)
    one = engine(name="run", phase=Phase.TRAINING, kind=EngineKind.GENERIC, mfu_ratio=0.4, tokens_total=totals)
    return gpu(**card), one


def test_a_training_run_without_a_step_for_ten_minutes() -> None:
    stage = Stage()
    last = stage.play(590, run(7.0, SPINS))
    assert of_engine(last, Family.STATE) is None
    last = stage.play(15, run(7.0, SPINS))
    found = of_engine(last, Family.STATE)
    assert found is not None
    assert (found.limit, found.kind) == (Limit.STALLED, Kind.ENGINE)
    assert found.text.startswith("no step for 10 min: its GPUs read no memory")
    assert of_engine(stage.play(32, run(8.0, SPINS)), Family.STATE) is None


def test_nothing_is_said_beside_a_hang() -> None:
    queued = {**STOPS, "waiting": 40.0, "queue_s": Quantiles(mean=9.0), "ttft_s": Quantiles(mean=9.1)}
    assert limits(judged(scene(queued, IDLE, moves=False), 120)) == (Limit.STALLED,)
