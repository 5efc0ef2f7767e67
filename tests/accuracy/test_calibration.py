"""The live fit predicts the ITL of a step of concurrency that it was not shown, within 15%."""

from __future__ import annotations

import functools

import pytest

from gpumon.sizing.fit import Fitted
from tests.accuracy.calibration import RECORDED, STAIRS, Outcome, replayed, simulated, table

MOST_ERROR = 0.15


@functools.cache
def walked_up(name: str) -> Outcome:
    return simulated(name, seconds=20.0)


@pytest.mark.parametrize("name", STAIRS)
def test_the_highest_step_of_a_simulated_engine_is_predicted(name: str):
    outcome = walked_up(name)
    assert isinstance(outcome.fitted, Fitted), outcome.fitted
    assert not outcome.fitted.anchored
    assert outcome.running > 1.2 * outcome.fitted.high
    assert outcome.error <= MOST_ERROR


@pytest.mark.parametrize("name", RECORDED)
def test_the_highest_step_of_a_recorded_engine_is_predicted(name: str):
    outcome = replayed(name)
    assert isinstance(outcome.fitted, Fitted), outcome.fitted
    assert not outcome.fitted.anchored
    assert outcome.running > 1.2 * outcome.fitted.high
    assert outcome.error <= MOST_ERROR


def test_the_table_shows_what_was_seen_held_back_predicted_and_measured():
    text = table([walked_up("llama-8b")])
    assert "| simulated llama-8b | 2 4 8 12 16 24 32 |" in text
    assert text.count("\n") == 2
