"""An engine that gives no token is named after 10 s, before there is a verdict; one that works is not."""

from __future__ import annotations

from gpumon.demo.scenarios import scenario
from gpumon.triage.progress.tokens import engines_without_token
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row


def named_at(name: str, length_s: float) -> list[float]:
    """Seconds of a scenario at which an engine is said to give no token."""
    play = scenario(name)
    seconds = []
    for at_s, snapshot in judged(play, frames(play, length_s, every_s=2)):
        if list(engines_without_token(snapshot)):
            seconds.append(at_s)
    return seconds


@each_row("name", ["engine-hang", "engine-hang-idle"])
def test_a_stall_is_named_from_10_s_on_until_its_verdict_comes(name: str) -> None:
    """It begins after 5 s; the verdict comes after 36."""
    assert named_at(name, 50.0) == [float(at_s) for at_s in range(16, 36, 2)]


@each_row("name", ["healthy-chat", "long-prefill", "quiet-night", "prefill-bound", "client-stops-reading"])
def test_an_engine_at_work_or_without_requests_is_not_named(name: str) -> None:
    assert named_at(name, 60.0) == []
