"""Runs as operating points of a profile, and the checks whether a run can be one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from gpumon.sizing.imports.files import ImportProblem
from gpumon.sizing.imports.runs import BenchmarkRun
from gpumon.sizing.knee import knee
from gpumon.sizing.profile import MOST_POINTS, Observed, Origin, Point, merge_points

_SAME_LOAD: Final = 0.02
"""Share by which the loads of runs at one operating point may differ."""
_MOST_OVER: Final = 3.0
"""Times that the requests in flight by Little's law may be above the offered ones: a ramp misses by less."""
_MOST_UNDER: Final = 100.0
"""Times that they may be below: a client may not hold its load. A wrong unit misses by 1000."""
_MOST_PARTS_OFF: Final = 10.0
"""Factor between a latency and the sum of its parts up to which both may be of one run."""
_COPIED_FIGURES: Final = (
    "itl_s",
    "ttft_s",
    "tpot_p95_s",
    "itl_p95_s",
    "ttft_p95_s",
    "e2e_p95_s",
    "tokens_per_s",
    "requests_per_s",
    "power_w",
    "busy_ratio",
)
"""Fields of a point that are those of its run, by the same names."""
_LEAST_SHORTFALL: Final = 0.05
"""Share by which the served rate is below the sent one of an overload, at least."""
_SHORTFALL_DEVIATIONS: Final = 2.0
"""Standard deviations of the number of random arrivals by which it is below, at least: 20% of 100 requests."""
_LONGEST_SINGLE_TOKEN: Final = 1.5
"""Mean tokens of an answer up to which answers count as single tokens, which have no time between tokens."""


def problems_of_run(run: BenchmarkRun) -> Iterator[ImportProblem]:
    """Problems of a run: figures that are missing, and figures that cannot be of one run."""
    if not run.model:
        yield ImportProblem(run.place, "model", "is not in the file: add it with --model NAME")
    yield from _throughput_problems(run)
    has_single_tokens = run.answer_tokens is not None and 0.0 < run.answer_tokens <= _LONGEST_SINGLE_TOKEN
    if run.itl_s == 0.0 and not has_single_tokens:
        yield ImportProblem(run.place, "inter-token latency", "is 0", "a time above 0")
    in_flight = in_flight_of(run)
    if run.offered is None and in_flight is None:
        yield _missing_load(run)
    elif run.offered is not None and in_flight is not None:
        yield from _contradictions(run, run.offered, in_flight)


def _throughput_problems(run: BenchmarkRun) -> Iterator[ImportProblem]:
    """The problem of a run whose throughput is missing, or 0."""
    if run.tokens_per_s is None and run.requests_per_s is None:
        yield ImportProblem(run.place, "throughput", "is missing", "output tokens/s or requests/s")
    if run.tokens_per_s == 0.0 or run.requests_per_s == 0.0:
        yield ImportProblem(run.place, "throughput", "is 0: nothing was served")


def _missing_load(run: BenchmarkRun) -> ImportProblem:
    """The problem of a run whose requests in flight are neither in the file nor can be worked out."""
    if run.open_loop:
        reason = "is missing: the load is a rate, so requests in flight = rate x latency"
        return ImportProblem(run.place, "mean latency", reason)
    return ImportProblem(run.place, "concurrency", "is not in the file: add it with --concurrency N")


def _contradictions(run: BenchmarkRun, offered: float, in_flight: float) -> Iterator[ImportProblem]:
    """Problems of figures that contradict each other: they are not of one run, or in another unit than the format's."""
    allowed = "figures of one run, in the units that the format has"
    if not offered / _MOST_UNDER <= in_flight <= _MOST_OVER * offered + 1.0:
        text = f"x requests/s is {in_flight:.4g} in flight, of {offered:.4g} that were offered"
        yield ImportProblem(run.place, "request latency", text, allowed)
    parts_s = _sum_of_parts_s(run)
    if run.e2e_s and parts_s and not run.e2e_s / _MOST_PARTS_OFF <= parts_s <= run.e2e_s * _MOST_PARTS_OFF:
        text = f"{run.e2e_s:.4g} s, but TTFT + ITL x (answer - 1) is {parts_s:.4g} s"
        yield ImportProblem(run.place, "request latency", text, allowed)


def _sum_of_parts_s(run: BenchmarkRun) -> float | None:
    """Seconds of a request by its parts: TTFT + ITL x (OSL - 1); None where one of them is not known."""
    if run.itl_s is None or run.ttft_s is None or not run.answer_tokens:
        return None
    return run.ttft_s + run.itl_s * max(0.0, run.answer_tokens - 1.0)


def _latency_s(run: BenchmarkRun) -> float | None:
    """Mean seconds of a request, measured or by its parts; None where neither is known."""
    if run.e2e_s is None:
        return _sum_of_parts_s(run)
    return run.e2e_s


def in_flight_of(run: BenchmarkRun) -> float | None:
    """Requests in flight by Little's law: requests/s x seconds in the system; None where either is not known."""
    rate = run.requests_per_s
    if rate is None and run.tokens_per_s is not None and run.answer_tokens:
        rate = run.tokens_per_s / run.answer_tokens
    latency_s = _latency_s(run)
    if rate is None or latency_s is None:
        return None
    return rate * latency_s


def _point(run: BenchmarkRun) -> Point:
    """The operating point of a run without problems (`problems_of_run`)."""
    in_flight = in_flight_of(run)
    offered = in_flight if run.offered is None else run.offered
    assert offered is not None, "a run without a load is a problem"
    if in_flight is None:
        in_flight = offered
    latency_s = _latency_s(run)
    if latency_s is None and run.requests_per_s:
        latency_s = offered / run.requests_per_s
    running = min(offered, _running(run, in_flight))
    figures = {name: getattr(run, name) for name in _COPIED_FIGURES}
    return Point(running=running, offered=offered, e2e_s=latency_s, overload=is_overload(run), **figures)


def is_overload(run: BenchmarkRun) -> bool:
    """Whether fewer requests per second were served than were sent: what is beyond that waits, longer and longer.

    The rate of a test counts the time until its last answer, too. So N requests that are sent in N / rate seconds are
    expected to take the decoding of an answer longer, but no queue.
    """
    sent_per_s = run.sent_per_s
    if not sent_per_s or not run.requests_per_s:
        return False
    expected_per_s = sent_per_s
    shortfall = _LEAST_SHORTFALL
    if run.completed:
        send_s = run.completed / sent_per_s
        decode_s = (run.itl_s or 0.0) * (run.answer_tokens or 0.0)
        expected_per_s = run.completed / (send_s + decode_s)
        shortfall = max(shortfall, _SHORTFALL_DEVIATIONS / math.sqrt(run.completed))
    return run.requests_per_s < (1.0 - shortfall) * expected_per_s


def _running(run: BenchmarkRun, in_flight: float) -> float:
    """Mean sequences that decode: output tokens/s x ITL, or else the requests in flight without those in the queue."""
    if run.tokens_per_s is not None and run.itl_s is not None:
        return run.tokens_per_s * run.itl_s
    if run.queue_s is not None and run.e2e_s:
        return in_flight * max(0.0, 1.0 - run.queue_s / run.e2e_s)
    return in_flight


def _points(runs: Sequence[BenchmarkRun]) -> tuple[Point, ...]:
    """Points by rising running. Runs of one load are one point: the median of each figure.

    Of more than `MOST_POINTS`, evenly spaced ones are kept, the first and the last among them.
    """
    points_by_load: list[list[Point]] = []
    for point in sorted(map(_point, runs), key=_offered):
        if points_by_load and _offered(point) <= _offered(points_by_load[-1][0]) * (1.0 + _SAME_LOAD):
            points_by_load[-1].append(point)
        else:
            points_by_load.append([point])
    rising = sorted(map(merge_points, points_by_load), key=lambda point: (point.running, _offered(point)))
    step = max(1.0, (len(rising) - 1) / (MOST_POINTS - 1))
    points = [rising[round(step * number)] for number in range(min(len(rising), MOST_POINTS))]
    return tuple(points)


def _offered(point: Point) -> float:
    """The offered requests in flight of a point of a run, which always has them."""
    return point.offered or 0.0


def profile_of_runs(runs: Sequence[BenchmarkRun], memory_bytes: float | None, busy_ratio: float | None) -> Observed:
    """The profile of runs of one server with requests of like length, without a name.

    `memory_bytes` and `busy_ratio` are those that the user gave, if any.
    """
    first = runs[0]
    points = _points(runs)
    best = knee(points).point
    prompt = _median(runs, "prompt_tokens")
    most_memory_bytes = max(run.memory_bytes or 0.0 for run in runs)
    if busy_ratio is None:
        busy_ratio = best.busy_ratio
    return Observed(
        origin=Origin.SWEEP,
        name="",
        model=first.model,
        points=points,
        time=max(run.time for run in runs),
        tool=", ".join(dict.fromkeys(run.tool for run in runs)),
        gpu=first.gpu,
        gpus=first.gpus or first.tp * (first.pp or 1),
        tp=first.tp,
        pp=first.pp or 1,
        weight_precision=first.weight_precision,
        kv_precision=first.kv_precision,
        prompt_tokens=prompt,
        answer_tokens=_median(runs, "answer_tokens"),
        prefix_hit_ratio=_median(runs, "prefix_hit_ratio"),
        of_medians=any(run.of_medians for run in runs),
        tpot_tail_ratio=_tail_ratio(best.tpot_p95_s, best.itl_s),
        itl_tail_ratio=_tail_ratio(best.itl_p95_s, best.itl_s),
        ttft_tail_ratio=_tail_ratio(best.ttft_p95_s, best.ttft_s),
        kv_pool_tokens=_median(runs, "kv_pool_tokens"),
        max_num_seqs=first.max_num_seqs or None,
        memory_bytes=memory_bytes or most_memory_bytes or None,
        busy_ratio=busy_ratio,
        power_w=best.power_w,
        tokens_per_step=_tokens_per_step(runs),
        prefill_tokens_per_s=_prefill_rate(points, prompt),
        concurrency=best.offered,
    )


def _median(runs: Sequence[BenchmarkRun], figure: str) -> float | None:
    """The median of a figure over the runs that have it; None if none has."""
    values = [getattr(run, figure) for run in runs]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _tokens_per_step(runs: Sequence[BenchmarkRun]) -> float | None:
    """Tokens per step and sequence; None without speculation."""
    tokens = _median(runs, "tokens_per_step")
    if tokens is None or tokens <= 1.0:
        return None
    return tokens


def _tail_ratio(p95: float | None, mean: float | None) -> float | None:
    """p95 / mean of a latency; None where either is not known, or the p95 is below the mean."""
    if p95 and mean and p95 >= mean:
        return p95 / mean
    return None


def _prefill_rate(points: Sequence[Point], prompt: float | None) -> float | None:
    """Prompt tokens per second at the highest rate of requests: a lower bound of what the instance can compute."""
    rates = [point.requests_per_s for point in points if point.requests_per_s is not None]
    if rates and prompt:
        return max(rates) * prompt
    return None
