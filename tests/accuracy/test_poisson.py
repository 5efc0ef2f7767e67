"""First tokens of measured Poisson runs, simulated."""

from __future__ import annotations

from statistics import median

from tests.accuracy.poisson import runs


def test_first_tokens_of_poisson_runs_are_near_what_was_measured() -> None:
    played = runs()
    assert len(played) == 14
    means = [run.mean for run in played]
    assert abs(median(means)) < 0.1
    assert median(map(abs, means)) < 0.2
    tails = [run.p95 for run in played]
    assert abs(median(tails)) < 0.2
    assert median(map(abs, tails)) < 0.25
