"""GPUs that wait for their input, told apart from bursty traffic, hangs, slowdowns and steady work."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.frame import EngineKind, Phase
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Family, Kind, Limit, Snapshot
from gpumon.triage.host import rhythm_in
from gpumon.triage.render import actions_text, verdict_text
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row
from tests.triage.stage import CALM, Of, Stage, engine, gpu, limit, process, said

DISK = {**CALM, "io_pressure_ratio": 0.45, "iowait_ratio": 0.2, "disk_busy_ratio": 0.97}
CPU = {**CALM, "cpu_ratio": 0.97, "busiest_core_ratio": 1.0, "cpu_pressure_ratio": 0.8}
CORE = {**CALM, "cpu_ratio": 0.12, "busiest_core_ratio": 0.99}
UNKNOWN = dict.fromkeys(CALM, NOT_SUPPORTED)


def square(at: int, period: int = 6, low: int = 2) -> float:
    """Busy share that drops for some seconds of each period."""
    return 0.08 if at % period < low else 0.95


def training(
    busy: Callable[[int], float], tokens: float = 5000.0, gpus: int = 2, **figures: float
) -> Callable[[int], tuple[Of, ...]]:
    def scene(at: int) -> tuple[Of, ...]:
        run = engine(
            name="run",
            phase=Phase.TRAINING,
            kind=EngineKind.GENERIC,
            gpus=tuple(range(gpus)),
            trained_tokens_per_s=tokens,
            **figures,
        )
        return (*(gpu(index, busy_ratio=busy(at)) for index in range(gpus)), run)

    return scene


def serving(
    busy: Callable[[int], float],
    running: Callable[[int], float] = lambda at: 6.0,
    kind: EngineKind = EngineKind.VLLM,
    decode: float = 300.0,
    **of_gpu: object,
) -> Callable[[int], tuple[Of, ...]]:
    def scene(at: int) -> tuple[Of, ...]:
        rates = {"running": running(at), "waiting": 0.0, "decode_tokens_per_s": decode}
        return gpu(busy_ratio=busy(at), **of_gpu), engine(kind=kind, **rates)  # type: ignore[arg-type]

    return scene


def starved(snapshot: Snapshot) -> bool:
    return limit(snapshot, Family.LIMIT, Kind.ENGINE) is Limit.HOST_CPU


def test_a_server_whose_front_end_takes_a_core_names_its_own_flag_and_full_cores_are_freed() -> None:
    one_core = said(Stage().play(150, serving(square), **CORE), Family.LIMIT, Kind.ENGINE)
    assert one_core.code is Limit.HOST_CPU
    assert one_core.actions[0].code == "more_front_ends"
    assert "--api-server-count 4" in actions_text(one_core)
    all_cores = said(Stage().play(150, serving(square), **CPU), Family.LIMIT, Kind.ENGINE)
    assert all_cores.code is Limit.HOST_CPU
    assert [action.code for action in all_cores.actions] == ["serving_cpu"]


def test_a_training_run_that_waits_for_a_disk_is_told_of_the_disk() -> None:
    found = said(Stage().play(150, training(square), **DISK), Family.LIMIT, Kind.ENGINE)
    assert (found.code, found.cause) == (Limit.HOST_DISK, "waits_for_host")
    assert actions_text(found).startswith("owner: training data from disk")


def test_bursts_of_traffic_are_not_starved() -> None:
    """Busy falls because nobody asks: there is nothing at hand."""
    bursts = serving(lambda at: square(at, 10, 5), running=lambda at: 0.0 if at % 10 < 5 else 8.0)
    assert not starved(Stage().play(150, bursts, **CPU))


def test_a_hang_is_not_starved() -> None:
    assert not starved(Stage().play(150, serving(lambda at: 0.0, decode=0.0), **CPU))
    assert not starved(Stage().play(150, training(lambda at: 0.0, tokens=0.0), **DISK))


def test_a_rhythm_on_a_calm_host_can_not_be_told() -> None:
    found = said(Stage().play(150, training(square), **CALM), Family.LIMIT, Kind.ENGINE)
    assert found.code is Limit.UNKNOWN
    assert "no core, disk or network here" in verdict_text(found)


@each_row(("busy", "code"), [(square, Limit.EVALUATING), (lambda at: 0.99, Limit.HEALTHY)])
def test_a_training_run_whose_gpus_wait_is_not_healthy_before_that_is_judged(
    busy: Callable[[int], float], code: Limit
) -> None:
    """What they wait for is found after more than a minute; until then nobody knows that nothing holds it back."""
    assert said(Stage().play(40, training(busy, mfu_ratio=0.35), **CALM), Family.USE, Kind.ENGINE).code is code


def test_nor_is_one_whose_past_was_sampled_too_seldom_to_show_waits_of_seconds() -> None:
    stage = Stage()
    stage.play(240, training(lambda at: 0.6, mfu_ratio=0.35), every_s=8, **CALM)
    waits = training(lambda at: square(at, 14, 6), mfu_ratio=0.35)
    early = said(stage.play(40, waits, every_s=1, **CALM), Family.USE, Kind.ENGINE)
    assert early.code is Limit.EVALUATING
    later = said(stage.play(40, waits, every_s=1, **CALM), Family.LIMIT, Kind.ENGINE)
    assert later.code is Limit.UNKNOWN


@each_row("period", [4, 5, 8, 15, 28])
def test_periods_from_4_s_on_are_seen_at_1_s(period: int) -> None:
    found = rhythm_in([(float(at), square(at, period, max(1, period // 3))) for at in range(120)], Thresholds())
    assert found is not None
    assert found.period_s == pytest.approx(period, rel=0.05)
    assert found.drops >= 4


def test_drops_at_random_are_no_rhythm() -> None:
    gone = {5, 9, 30, 33, 71, 115}
    assert rhythm_in([(float(at), 0.05 if at in gone else 0.95) for at in range(120)], Thresholds()) is None


@given(st.lists(st.floats(0.0, 1.0), max_size=60))
def test_a_rhythm_is_made_of_drops_that_are_there(values: list[float]) -> None:
    samples = [(float(at), value) for at, value in enumerate(values)]
    found = rhythm_in(samples, Thresholds())
    if found is not None:
        assert found.lower < found.upper / 2.0 <= 0.5
        assert found.drops >= 4
        assert 2.0 <= found.period_s <= len(values)
        assert math.isfinite(found.period_s)


def test_the_process_whose_stacks_tell_is_named_by_its_pid() -> None:
    on = (process(pid=812, engine="vllm:8000"),)
    served = said(Stage().play(150, serving(square, processes=on), **CORE), Family.LIMIT, Kind.ENGINE)
    assert "py-spy dump --pid 812 (and of its parent) shows what it does" in actions_text(served)
    unknown = said(Stage().play(150, serving(square), **CORE), Family.LIMIT, Kind.ENGINE)
    assert "py-spy dump --pid PID shows" in actions_text(unknown)
