"""Healthy traffic for ten minutes: nothing is urgent, and what is said stands still."""

from __future__ import annotations

import pytest

from tests.accuracy.healthy import KINDS, MOST_CHANGES, play

LENGTH_S = 600.0
EVERY_S = 2
"""Seconds between two frames: as often as engines are polled."""


@pytest.mark.parametrize("kind", KINDS)
def test_healthy_traffic_has_no_warning(kind: str) -> None:
    heard = play(kind, 1, LENGTH_S, EVERY_S)
    assert heard.urgent == ()
    assert heard.changes <= MOST_CHANGES, heard.changed
