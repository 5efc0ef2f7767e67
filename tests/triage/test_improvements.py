"""What an advised action brought, in plays of the simulator: said where it was applied, and only there."""

from __future__ import annotations

import pytest

from gpumon.demo.scenario import GpuEffect, Scenario
from gpumon.demo.scenarios import demand
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Quantiles
from gpumon.readings.verdict import Event, EventKind, Level
from gpumon.triage.improvements import _compared_latencies, _Measured
from gpumon.triage.render import event_text
from tests.accuracy.triage import WALL_S, frames
from tests.each_row import each_row
from tests.history.changed import CHAT, EVERY_S, MORE_SLOTS, RATE, RESTARTED, play, restarted
from tests.history.pasts import lived
from tests.records import replace

SECONDS = 250.0
UNLOCKED = play("unlocked", gpu_effects=(GpuEffect(gpus=(0,), clock_share=0.5, to_s=150.0),))
FEW_SLOTS = replace(CHAT, max_num_seqs=12)
FEWER_SLOTS = restarted(FEW_SLOTS, replace(CHAT, max_num_seqs=11, demand=demand(RATE, 1800, 60)), "fewer slots")
"""Answers are shorter from then on: the queue ends all the same."""
OTHER_OPTION = restarted(FEW_SLOTS, replace(FEW_SLOTS, max_model_len=16384), "another option")
LESS_LOAD = restarted(FEW_SLOTS, replace(CHAT, max_num_seqs=64, demand=demand(RATE / 3, 1800, 240)), "less load")


BOUNDED = Quantiles(p95=2.0, p95_low=1.0, p95_high=2.5)
BEYOND = Quantiles(p95=60.0, p95_low=60.0, p95_high=Missing(Reason.INVALID))


@each_row(
    ("before", "after", "way", "text"),
    [
        (BEYOND, BOUNDED, 1, "TTFT p95 above 60 s -> 2 s since "),
        (BOUNDED, BEYOND, -1, "TTFT p95 2 s -> above 60 s since "),
        (BEYOND, BEYOND, 0, "latencies as before since "),
    ],
)
def test_a_p95_beyond_the_end_of_its_histogram_is_told_as_a_least_value(
    before: Quantiles, after: Quantiles, way: int, text: str
) -> None:
    ways, latencies = _compared_latencies(
        _Measured(Quantiles(), before, requests_per_s=1.0), _Measured(Quantiles(), after, requests_per_s=1.0)
    )
    event = Event(
        WALL_S, EventKind.GAIN, "vllm:8000", "applied", Level.OK, "",
        parameters={"changed": WALL_S, "setting": "--max-num-seqs", **latencies},
    )  # fmt: skip
    assert ways == [way]
    assert event_text(event).startswith(text)


def improvements(scenario: Scenario, seconds: float = SECONDS) -> list[Event]:
    """The events of the play that say what an action brought."""
    snapshots = lived(frame for _, frame in frames(scenario, seconds, every_s=EVERY_S))
    return [event for snapshot in snapshots for event in snapshot.events if event.kind is EventKind.GAIN]


def test_more_slots_shorten_the_wait_and_slow_the_tokens() -> None:
    (event,) = improvements(MORE_SLOTS)
    said = event.parameters
    assert (said["setting"], said["before"], said["after"]) == ("--max-num-seqs", "12", "64")
    assert float(said["ttft_before"]) > 1.0 > 0.5 > float(said["ttft_after"])
    assert float(said["itl_before"]) < float(said["itl_after"])
    assert event.level is Level.NOTE, "some of it is worse"
    assert "load" not in said, "the load was the same"
    text = event_text(event)
    assert text.startswith("ITL p95 ")
    assert text.endswith(" UTC (--max-num-seqs 12 -> 64)")


def test_an_unlocked_clock_speeds_both_up() -> None:
    (event,) = improvements(UNLOCKED)
    assert event.level is Level.OK
    assert float(event.parameters["changed"]) == pytest.approx(WALL_S + 150.0, abs=3.0)
    assert event_text(event).endswith("(gpu 0 SM clock under load 990 MHz -> 1980 MHz)")
    assert event.wall_s - float(event.parameters["changed"]) >= 60.0, "latencies are of a minute"


@each_row("scenario", [RESTARTED, FEWER_SLOTS, OTHER_OPTION, LESS_LOAD], named=lambda play: play.name)
def test_nothing_is_said_of_what_was_not_advised_or_cannot_be_compared(scenario: Scenario) -> None:
    assert improvements(scenario) == []
