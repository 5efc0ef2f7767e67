"""Traffic that stops or falls to a third, told apart from chance, batches and an engine that does not answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from gpumon.readings.snapshot import Kind, Level, Limit, Quantiles, Snapshot
from gpumon.readings.verdict import EventKind
from gpumon.triage.render import verdict_text
from tests.each_row import each_row
from tests.triage.engines import IDLE, limits, only, scene
from tests.triage.stage import Of, Stage

Scene = Callable[[int], tuple[Of, ...]]
QUIET: Mapping[str, Any] = {
    **dict.fromkeys(
        ("running", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s"), 0.0
    ),
    **dict.fromkeys(("mfu_ratio", "mfu_prefill_ratio", "mbu_ratio"), 0.0),
}


def flows(per_s: float, **more: Any) -> Scene:
    return scene({"requests_per_s": per_s, **more})


def quiet() -> Scene:
    return scene(QUIET, IDLE, moves=False)


def engine_limits(snapshot: Snapshot) -> tuple[Limit, ...]:
    return tuple(one.code for one in snapshot.verdicts if one.kind is Kind.ENGINE)


def test_traffic_that_stops_is_a_warning_for_minutes_and_then_idle() -> None:
    stage = Stage()
    stage.play(180, flows(3.0))
    found = only(stage.play(60, quiet()))
    assert (found.code, found.cause, found.level) == (Limit.TRAFFIC_FELL, "traffic_stopped", Level.WARN)
    assert verdict_text(found) == "no request for over 30 s, 3.00/s before: nothing reaches it any more"
    assert [one.code for one in found.actions] == ["check_clients"]
    assert only(stage.play(180, quiet())).code is Limit.TRAFFIC_FELL
    assert only(stage.play(180, quiet())).code is Limit.IDLE_VRAM_HELD
    told = [event.verdict.code for event in stage.events if event.kind is EventKind.VERDICT and event.verdict]
    assert Limit.TRAFFIC_FELL in told


def test_traffic_that_falls_to_a_third_is_a_note() -> None:
    stage = Stage()
    stage.play(180, flows(3.0))
    found = only(stage.play(110, flows(0.6, running=5.0)))
    assert (found.code, found.cause, found.level) == (Limit.TRAFFIC_FELL, "traffic_fell", Level.NOTE)
    assert verdict_text(found) == "0.60 requests/s in the last minute, 3.00/s before"


def test_clients_that_wait_for_their_answers_have_not_gone() -> None:
    """With as many requests in flight as before, each of them takes longer: the engine is slower, or answers longer."""
    stage = Stage()
    stage.play(180, flows(3.0))
    for _ in range(30):
        assert Limit.TRAFFIC_FELL not in limits(stage.play(10, flows(0.6)))


def test_traffic_that_ebbs_away_has_no_client_that_stopped() -> None:
    stage = Stage()
    stage.play(180, flows(30.0))
    for per_s in (20.0, 14.0, 10.0, 6.0, 3.0):
        stage.play(20, flows(per_s))
    for _ in range(6):
        for verdict in stage.play(10, quiet()).verdicts:
            assert verdict.cause != "traffic_stopped"


def test_traffic_that_has_paused_before_and_come_back_is_no_warning() -> None:
    stage = Stage()
    stage.play(180, flows(3.0))
    stage.play(100, flows(0.3, running=1.0))
    stage.play(260, flows(3.0))
    for _ in range(12):
        assert only(stage.play(10, quiet())).level in (Level.NOTE, Level.OK)


@each_row("per_s", [0.1, 1.0, 2.9])
def test_chance_is_no_fall(per_s: float) -> None:
    """Poisson arrivals of each rate over 20 min: none of its lulls is told; a rate of 0.1/s pauses for a minute."""
    draw, stage = random.Random(7), Stage()

    def noisy(tick: int) -> tuple[Of, ...]:
        window = sum(draw.random() < per_s / 3.0 for _ in range(30)) / 10.0
        changes = {"requests_per_s": window, "running": 0.0 if window == 0.0 else 10.0}
        return scene(changes, moves=window > 0.0)(tick)

    for _ in range(40):
        assert Limit.TRAFFIC_FELL not in limits(stage.play(30, noisy, every_s=2))


def test_a_first_pause_of_batches_is_told_and_the_next_ones_are_usual() -> None:
    stage = Stage()
    stage.play(200, flows(3.0))
    stage.play(60, quiet())
    stage.play(200, flows(3.0))
    for _ in range(4):
        assert Limit.TRAFFIC_FELL not in limits(stage.play(15, quiet()))


def test_long_answers_that_run_on_after_the_last_request_are_no_arrivals() -> None:
    """24 run and end one a second after the last came: ended requests alone would say that traffic goes on."""
    stage = Stage()
    stage.play(180, flows(3.0))
    drains = lambda tick: flows(0.4, running=max(1.0, 24.0 - (tick - 180) * 0.4))(tick)  # noqa: E731
    assert only(stage.play(100, drains)).cause == "traffic_fell"


@each_row(
    "then",
    [
        scene({**QUIET, "asleep": "weights in the host's memory"}, IDLE, moves=False),
        scene({"requests_per_s": 0.0, "running": 24.0, "waiting": 9.0}, IDLE, moves=False),  # it hangs
        scene(QUIET, IDLE, moves=False, started_s=2e9, read_s=7.0),  # it was restarted
    ],
)
def test_a_stop_that_is_the_engines_own_is_not_its_clients(then: Scene) -> None:
    stage = Stage()
    stage.play(180, scene({"requests_per_s": 3.0}, started_s=1e9))
    for _ in range(6):
        assert Limit.TRAFFIC_FELL not in limits(stage.play(15, then))


def test_an_engine_that_is_slow_is_told_why_and_not_that_its_traffic_fell() -> None:
    stage = Stage()
    stage.play(180, flows(3.0))
    full = {"waiting": 12.0, "queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0), "kv_usage_ratio": 0.97}
    assert limits(stage.play(120, flows(0.5, **full))) == (Limit.KV_CACHE_FULL,)
