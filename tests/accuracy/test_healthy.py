"""Healthy traffic: nothing is urgent, and what is said stands still; for five minutes, `make properties` for ten."""

from __future__ import annotations

import pytest

from tests.accuracy.healthy import KINDS, MOST_CHANGES, WINDOW_S, play


@pytest.mark.parametrize("kind", KINDS)
def test_healthy_traffic_has_no_warning(kind: str) -> None:
    """So many changes in the time that is played as are bearable then."""
    length_s = 600.0 if kind == "night" else 300.0  # a single request at night is a change to and fro
    heard = play(kind, 1, length_s, every_s=4)
    assert heard.urgent == ()
    assert heard.changes <= MOST_CHANGES * length_s / WINDOW_S, heard.changed


@pytest.mark.wide
@pytest.mark.parametrize("kind", KINDS)
def test_healthy_traffic_has_no_warning_for_long(kind: str) -> None:
    """With frames as often as engines are polled."""
    heard = play(kind, 1, 600.0, every_s=2)
    assert heard.urgent == ()
    assert heard.changes <= MOST_CHANGES, heard.changed
