"""Before and after on a real vLLM under a staircase of closed loops: both sides against the client's own account."""

from __future__ import annotations

from bisect import bisect_left
from statistics import fmean, quantiles
from typing import Any, NamedTuple

import pytest

from gpumon.efficiency.before_after import before_after
from gpumon.efficiency.deriver import snapshot_without_things
from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.span import TakenSpan
from gpumon.readings.before_after import FigureChange, Judgement, ThingChange
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import Missing
from gpumon.readings.verdict import Kind
from tests.accuracy.judged import Replay
from tests.accuracy.replay import BEGAN_UNIX_S, replay
from tests.records import replace
from tests.virtual_time import Clock, played

THREE = (88.0, 123.0)
"""Seconds of the capture with three requests in flight."""
TWELVE = (252.0, 288.0)
"""The same with twelve."""


BOUNDS_S = (0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Bounds of vLLM's histogram of TTFT, as far as it matters here."""


class Truth(NamedTuple):
    """Times that the client saw, of requests whose first token came in a span."""

    ttft_s: list[float]
    itl_s: float
    requests_per_s: float


@pytest.fixture(scope="module")
def watched() -> Replay:
    return played(replay("vllm-staircase", 290.0), Clock())


def taken(watched: Replay, span: tuple[float, float]) -> TakenSpan:
    """Everything that was seen in a span of the capture."""
    begin_s, end_s = span
    found = TakenSpan(BEGAN_UNIX_S + begin_s, BEGAN_UNIX_S + end_s)
    for tick in watched.ticks:
        if begin_s <= tick.t <= end_s:
            wall_s = BEGAN_UNIX_S + tick.t
            snapshot = snapshot_without_things(Frame(0, wall_s, tick.t, 1.0, HostReading(name="box")))
            found.take(replace(snapshot, engines=tick.engines), wall_s, tick.readings)
            found.moments += 1
    return found


def truth(watched: Replay, span: tuple[float, float]) -> Truth:
    begin_s, end_s = span
    ttft_s = []
    gaps_s = []
    ended = 0
    for request in watched.capture.truth:
        if begin_s <= request["t_first"] <= end_s:
            ttft_s.append(request["t_first"] - request["t_start"])
            gaps_s.append((request["t_end"] - request["t_first"]) / (request["output_tokens"] - 1))
        ended += begin_s <= request["t_end"] <= end_s
    return Truth(ttft_s, fmean(gaps_s), ended / (end_s - begin_s))


def engine_of(watched: Replay) -> ThingChange:
    answer = before_after(taken(watched, THREE), taken(watched, TWELVE))
    return next(thing for thing in answer.things if thing.kind is Kind.ENGINE)


def test_both_sides_are_what_the_client_saw(watched: Replay) -> None:
    """The clients' requests are of one length and end in waves, of which one may lie at the edge of a span."""
    engine = engine_of(watched)
    figures = {figure.code: figure for figure in engine.figures}
    for side, span, clients in (("before", THREE, 3), ("after", TWELVE, 12)):
        client = truth(watched, span)
        assert len(client.ttft_s) >= ENOUGH, side
        assert value(figures["itl_mean_s"], side) == pytest.approx(client.itl_s, rel=0.05)
        wave = clients / (span[1] - span[0])
        assert value(figures["requests_per_s"], side) == pytest.approx(client.requests_per_s, abs=1.01 * wave)
        ttft_s = fmean(client.ttft_s)
        assert value(figures["ttft_mean_s"], side) == pytest.approx(ttft_s, rel=0.05, abs=0.01), "HTTP comes on top"
        p95_s = quantiles(client.ttft_s, n=20)[-1]
        place = bisect_left(BOUNDS_S, p95_s)
        shown_s = value(figures["ttft_p95_s"], side)
        assert 0.95 * BOUNDS_S[place - 1] < shown_s <= BOUNDS_S[place], "vLLM's bucket; HTTP comes on top"


def test_four_times_the_clients_are_more_load_and_longer_gaps(watched: Replay) -> None:
    engine = engine_of(watched)
    assert engine.load == "requests_per_s"
    assert not isinstance(engine.load_ratio, Missing)
    assert engine.load_ratio > 1.5
    assert not engine.is_comparable
    assert engine.changes == ()
    judged = {figure.code: figure.judgement for figure in engine.figures}
    for code in ("requests_per_s", "running", "decode_tokens_per_s", "itl_mean_s"):
        assert judged[code] is Judgement.CHANGED, code


def value(figure: FigureChange, side: str) -> Any:
    return getattr(figure, side)
