"""What requests got by gpumon's figures, beside the client's own times and lengths of each request.

Shares within the goals, lengths, outcomes and phases are those of the last good poll of a replay, over the minutes
before it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpumon.efficiency.quantiles import observations_between
from gpumon.efficiency.tracks import MINUTES_S
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, HistogramReading
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Lengths, Phases, WithinGoal
from tests.accuracy.judged import Replay, Tick, served_at
from tests.accuracy.tables import markdown

NONE = "–"
HEAD_LENGTHS = (
    *("capture", "requests ended", "client", "prompt mean", "client", "p95 bucket", "client"),
    *("answer mean", "client", "p95 bucket", "client", "sum of phases", "client's E2E"),
)
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


class Length(NamedTuple):
    """Lengths by gpumon and by the client: the client's mean and quantiles."""

    shown: Lengths
    client: Sequence[float]

    @property
    def mean_error(self) -> float:
        """Relative error of the mean."""
        assert not isinstance(self.shown.mean, Missing)
        mean = statistics.fmean(self.client)
        return abs(self.shown.mean - mean) / mean

    @property
    def in_buckets(self) -> bool:
        """Whether the client's p50, p95 and longest lie in the buckets that gpumon names."""
        shown = self.shown
        buckets = (
            (quantile(self.client, 0.5), shown.p50_low, shown.p50_high),
            (quantile(self.client, 0.95), shown.p95_low, shown.p95_high),
            # The longest since the engine's start: some were served before the recording began.
            (max(self.client), 0.0, shown.longest_high),
        )
        for value, low, high in buckets:
            if isinstance(low, Missing) or isinstance(high, Missing) or not low < value <= high:
                return False
        return True

    def cells(self) -> tuple[str, str, str, str]:
        """Mean and p95, each by gpumon and by the client."""
        shown = self.shown
        if isinstance(shown.mean, Missing):
            return NONE, NONE, NONE, NONE
        bucket = NONE
        if not isinstance(shown.p95_low, Missing) and not isinstance(shown.p95_high, Missing):
            bucket = f"{shown.p95_low:.0f} to {shown.p95_high:.0f}"
        mean = statistics.fmean(self.client)
        return f"{shown.mean:.1f}", f"{mean:.1f}", bucket, f"{quantile(self.client, 0.95):.0f}"


class Got(NamedTuple):
    """What the requests of one capture got."""

    name: str
    ttft: Share
    tpot: Share
    itl: Share
    prompt: Length
    answer: Length
    e2e_s: tuple[float, float]
    """Mean end to end by gpumon (the sum of its phases), and by the client."""
    ended: tuple[float, float]
    """Requests that ended."""


def first_tokens(done: Replay) -> tuple[HistogramReading, list[float]]:
    """Times to the first token from the first good poll to the last: as the engine observed them, and as the client."""
    good = [tick for tick in done.ticks if tick.reading.state is EndpointState.OK]
    observed = []
    for first, last in zip(good[0].reading.ranks, good[-1].reading.ranks, strict=True):
        observed.append(observations_between(first.histograms[q.TTFT], last.histograms[q.TTFT]))
    since_s = served_at(done, good[0].reading.monotonic_s)
    until_s = served_at(done, good[-1].reading.monotonic_s)
    waits = []
    for request in done.capture.truth:
        if request.get("t_first") is not None and since_s < request["t_first"] <= until_s:
            waits.append(request["t_first"] - request["t_start"])
    return merged(observed), waits


def merged(observed: Sequence[HistogramReading | None]) -> HistogramReading:
    """The observations of all ranks in one histogram."""
    known = [histogram for histogram in observed if histogram is not None]
    counts = tuple(map(sum, zip(*(histogram.counts for histogram in known), strict=True)))
    return HistogramReading(known[0].bounds, counts, sum(histogram.sum for histogram in known), counts[-1])


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
    ended = [
        request
        for request in requests
        if since_s < request["t_end"] <= until_s and not request.get("aborted_by_client")
    ]
    gaps = [gap_s for request in requests for gap_s in _gaps(request, since_s, until_s)]
    return Got(
        done.name,
        Share(shares.ttft_goal, _share(waits, first)),
        Share(shares.tpot_goal, _share(means, rest)),
        Share(shares.itl_goal, _share(gaps, rest)),
        Length(last.engine.served.prompt_tokens, [request["prompt_tokens"] for request in ended]),
        Length(last.engine.served.answer_tokens, [_answer(request) for request in ended]),
        (
            _e2e_s(last.engine.served.phases),
            statistics.fmean(_whole_s(request) for request in ended),
        ),
        (_known(last.engine.served.outcomes.ended), sum(since_s < request["t_end"] <= until_s for request in requests)),
    )


def _answer(request: Any) -> float:
    """Tokens of an answer: by the usage that the server sent, as a piece of a stream may have two of them."""
    return float(request.get("server_output_tokens") or request["output_tokens"])


def _whole_s(request: Any) -> float:
    return float(request["t_end"] - request["t_start"])


def _e2e_s(phases: Phases) -> float:
    """Sum of the phases: it is what the engine says of whole requests."""
    parts = (phases.queue_s, phases.transfer_s, phases.prefill_s, phases.decode_s, phases.rest_s)
    return sum(part for part in parts if not isinstance(part, Missing))


def _known(reading: Reading) -> float:
    assert not isinstance(reading, Missing)
    return reading


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile as a histogram has it: the first value that so many are not above."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def row_lengths(of: Got) -> tuple[str, ...]:
    """Lengths and outcomes of one capture."""
    shown_s, client_s = of.e2e_s
    ended, client = of.ended
    return (
        *(of.name, f"{ended:.0f}", f"{client:.0f}", *of.prompt.cells(), *of.answer.cells()),
        *(f"{shown_s:.3f} s", f"{client_s:.3f} s"),
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
    compared = [got(done) for done in every if done.name in COMPARED]
    goals = markdown(HEAD, [row(of) for of in compared])
    lengths = markdown(HEAD_LENGTHS, [row_lengths(of) for of in compared])
    return f"{goals}\n\n{lengths}"


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
