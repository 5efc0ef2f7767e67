"""What requests got by gpumon's figures, beside the client's own times and lengths of each request: shares within the
goals. The figures are those of the last good poll of a replay, over the minutes before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpumon.efficiency.tracks import MINUTES_S
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import WithinGoal
from tests.accuracy.judged import Replay, Tick, served_at
from tests.accuracy.tables import markdown

NONE = "–"
COMPARED = (
    *("vllm-basic", "vllm-poisson", "vllm-mfu-queue-prefix-abort", "vllm-apikey", "vllm-dp2", "prometheus-api"),
    *("vllm-tp2", "vllm-ngram", "sglang-basic"),
)
"""Captures without a restart, of engines that observe latencies and of clients that did not wait for the CPU."""
HEAD = (
    *("capture", "TTFT goal", "requests in goal", "client", "ITL goal", "requests in goal", "client"),
    *("tokens in goal", "client"),
)


class Share(NamedTuple):
    """A share by gpumon and by the client."""

    shown: WithinGoal
    client: float | None
    """None: the client saw nothing to take a share of."""

    @property
    def is_shown(self) -> bool:
        """Whether gpumon shows a share."""
        return not isinstance(self.shown.low_ratio, Missing)

    @property
    def error(self) -> float:
        """How far the client's share is outside of what gpumon shows."""
        low = self.shown.low_ratio
        high = self.shown.high_ratio
        if isinstance(low, Missing) or isinstance(high, Missing) or self.client is None:
            raise ValueError("nothing to compare")
        return max(0.0, low - self.client, self.client - high)

    def cells(self) -> tuple[str, str]:
        """Both shares as text."""
        low = self.shown.low_ratio
        high = self.shown.high_ratio
        client = NONE
        if self.client is not None:
            client = f"{self.client:.1%}"
        if isinstance(low, Missing) or isinstance(high, Missing):
            return NONE, client
        if low == high:
            return f"{low:.1%}", client
        return f"{low:.1%} to {high:.1%}", client


class Got(NamedTuple):
    """What the requests of one capture got."""

    name: str
    ttft: Share
    tpot: Share
    itl: Share


def got(done: Replay) -> Got:
    """Compare the last good poll of a replay with the client's account of the minutes before it."""
    last = _last_good(done)
    until_s = served_at(done, last.reading.monotonic_s)
    since_s = _since_s(done, last)
    shares = last.engine.goodput
    first, rest = _goal_s(shares.ttft_goal), _goal_s(shares.tpot_goal)
    requests = done.capture.truth
    waits = [
        request["t_first"] - request["t_start"]
        for request in requests
        if request.get("t_first") is not None and since_s < request["t_first"] <= until_s
    ]
    means = [mean_s for request in requests if since_s < request["t_end"] <= until_s for mean_s in _mean_gap(request)]
    gaps = [gap_s for request in requests for gap_s in _gaps(request, since_s, until_s)]
    return Got(
        done.name,
        Share(shares.ttft_goal, _share(waits, first)),
        Share(shares.tpot_goal, _share(means, rest)),
        Share(shares.itl_goal, _share(gaps, rest)),
    )


def row(of: Got) -> tuple[str, ...]:
    """One capture's row."""
    return (
        of.name,
        f"{_goal_s(of.ttft.shown) * 1e3:.0f} ms",
        *of.ttft.cells(),
        f"{_goal_s(of.itl.shown) * 1e3:.0f} ms",
        *of.tpot.cells(),
        *of.itl.cells(),
    )


def table(every: Iterable[Replay]) -> str:
    """The rows of those that are compared, as Markdown."""
    return markdown(HEAD, [row(got(done)) for done in every if done.name in COMPARED])


def _last_good(done: Replay) -> Tick:
    return next(tick for tick in reversed(done.ticks) if tick.reading.state is EndpointState.OK)


def _since_s(done: Replay, last: Tick) -> float:
    """Begin of the window of minutes: the first good poll of this life, or `MINUTES_S` before the last."""
    begin = last
    for tick in reversed(done.ticks):
        is_there = tick.reading.state is EndpointState.OK
        if not is_there or last.reading.monotonic_s - tick.reading.monotonic_s > MINUTES_S:
            break
        begin = tick
    return served_at(done, begin.reading.monotonic_s)


def _goal_s(shown: WithinGoal) -> float:
    assert not isinstance(shown.goal_s, Missing)
    return shown.goal_s


def _share(times_s: Sequence[float], goal_s: float) -> float | None:
    if not times_s:
        return None
    return sum(time_s <= goal_s for time_s in times_s) / len(times_s)


def _mean_gap(request: Any) -> Iterable[float]:
    """Mean time per token after the first; none of an answer of one token, or that was cut."""
    events = request.get("events") or []
    tokens = sum(count for _, count in events)
    if tokens > 1 and not request.get("aborted_by_client"):
        yield (events[-1][0] - events[0][0]) / (tokens - 1)


def _gaps(request: Any, since_s: float, until_s: float) -> Iterable[float]:
    """Times between two pieces of an answer."""
    arrived = [at for at, _ in request.get("events") or () if since_s < at <= until_s]
    for place in range(1, len(arrived)):
        yield arrived[place] - arrived[place - 1]
