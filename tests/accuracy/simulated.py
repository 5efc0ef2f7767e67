"""The simulation against real engines: captures of clients that noted every token, and published rows of servers.

    python -m tests.accuracy.simulated [--markdown docs/sizing-accuracy.md]

A phase of a capture is fitted to what came before its middle and judged on what came after it. Steps are read off the
client's own record: the gap between two tokens of a request is one step, with as many sequences as then had a first
token and no last one, and the prompts whose first token came with it. What a TTFT has beyond its steps is the delay.
Closed loops are played as such: each client sends its own next request when the simulated one has ended.

A row of silicon.csv is played as a closed loop of its concurrency, which begins all at once, as the tools that measured
them do: prompts and answers are even within 11% around their mean (a range of 0.8 to 1), ten of them for each client.
Constants are those of the roofline and of the TTFT, fitted without the model that is judged.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple

from gpumon.sizing.accuracy import REACHED, EngineEfficiency, first_token_cost
from gpumon.sizing.roofline import roofline
from gpumon.sizing.simulate.batch import BLOCK
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.figures import RequestGoals, figures_of
from gpumon.sizing.simulate.requests import Clients, Draw, PlayedRequest, RequestShape, RequestSource
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits, ServedRequest
from gpumon.sizing.simulate.setup import delay_of, step_terms
from gpumon.specs.engine_defaults import default_bounds
from tests.accuracy import silicon_rows
from tests.accuracy.silicon_fit import Costs, fits_without, solved, ttft_of
from tests.accuracy.silicon_rows import Row
from tests.accuracy.tables import write

BEGIN, END = "<!-- simulated: begin, written by `make silicon` -->", "<!-- simulated: end -->"
SPREAD: Final = 1.0 / 9.0
"""Of lengths around their mean, where the shortest is 0.8 of the longest."""
WAVES: Final = 10.0
"""Mean times of a request that a row is played for."""
CAPTURES: Final = Path(__file__).parents[1] / "data" / "captures"
LATE_S: Final = 0.002
"""Seconds by which the first token of a request reaches its client after the next tokens of others, of one step."""
SOFT: Final = 0.3
"""Relative error from which an equation counts less."""
ROOMY: Final = 10**6
"""KV blocks where a capture's cache never fills."""


class Phase(NamedTuple):
    """A phase of load of a capture, and the bounds of its engine."""

    capture: str
    phase: str
    max_num_seqs: int
    max_num_batched_tokens: int = 2048
    cached: int = 0
    """Tokens of each prompt that the prefix cache has."""


PHASES: Final = (
    Phase("vllm-poisson", "1-p4", 32),
    Phase("vllm-basic", "2-c8", 32),
    Phase("vllm-mfu-queue-prefix-abort", "3-c12", 4, cached=640),
    Phase("prometheus-api", "2-c8", 32),
    Phase("vllm-0.9", "2-c8", 256, cached=64),
    Phase("vllm-lifecycle", "1-c4", 32),
    Phase("vllm-staircase", "4-c4", 32),
    Phase("vllm-staircase", "6-c8", 32),
    Phase("vllm-staircase", "7-c12", 32),
    Phase("llamacpp-slots", "1-c3", 4, cached=384),
    Phase("llamacpp-slots", "3-c6", 4, cached=384),
)
"""Phases with at least 30 whole requests of an engine whose settings are known and of whose tokens each came alone."""


class Sent(NamedTuple):
    """One request as its client saw it."""

    worker: int
    start_s: float
    tokens_s: tuple[float, ...]
    """When each token came."""
    prompt: int

    @property
    def first_s(self) -> float:
        return self.tokens_s[0]

    @property
    def end_s(self) -> float:
        return self.tokens_s[-1]

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.start_s


def read(phase: Phase) -> tuple[list[Sent], list[Sent]]:
    """All requests of a capture that got a token, and those of the phase, by their start."""
    every = []
    own = []
    with gzip.open(CAPTURES / phase.capture / "truth.jsonl.gz", "rt", encoding="utf-8") as stream:
        for line in stream:
            one: dict[str, Any] = json.loads(line)
            if not one.get("events"):
                continue
            times = tuple(at_s for at_s, tokens in one["events"] for _ in range(tokens))
            sent = Sent(one.get("worker", -1), one["t_start"], times, one["prompt_tokens"])
            every.append(sent)
            if one["phase"] == phase.phase:
                own.append(sent)
    return sorted(every, key=lambda one: one.start_s), sorted(own, key=lambda one: one.start_s)


class Equation(NamedTuple):
    """Parts of a time, each times a term that is fitted (step, sequence, prompt token, delay); and that time."""

    parts: tuple[float, float, float, float]
    seconds: float
    weight: float


def equations(sent: Sequence[Sent], phase: Phase, until_s: float) -> list[Equation]:
    """What a client saw until a time: gaps between tokens, and first tokens of requests that found a place."""
    firsts = sorted((one.first_s, one.prompt - phase.cached) for one in sent)
    first_s = [at_s for at_s, _ in firsts]
    starts = sorted(one.start_s for one in sent)
    ends = sorted(one.end_s for one in sent)

    def prompts(from_s: float, to_s: float) -> int:
        """Prompt tokens whose first answer token came in between; it is sent a little after the tokens of others."""
        return sum(
            tokens
            for _, tokens in firsts[bisect_right(first_s, from_s + LATE_S) : bisect_right(first_s, to_s + LATE_S)]
        )

    cells: dict[tuple[float, float], list[float]] = defaultdict(list)
    found = []
    for one in sent:
        for before_s, after_s in zip(one.tokens_s, one.tokens_s[1:], strict=False):
            if after_s <= until_s and after_s > before_s:
                decoding = max(1, bisect_right(first_s, before_s) - bisect_left(ends, after_s))
                cells[float(decoding), float(prompts(before_s, after_s))].append(after_s - before_s)
        in_flight = bisect_right(starts, one.start_s) - bisect_right(ends, one.start_s)
        if one.first_s <= until_s and in_flight <= phase.max_num_seqs:
            decoding = bisect_left(first_s, one.start_s) - bisect_left(ends, one.first_s)
            together = float(prompts(one.first_s - 3.0 * LATE_S, one.first_s))
            wait = 1.5 if decoding > 0 else 1.0  # half of the step under way when it came
            parts = (wait, wait * max(0, decoding), max(together, float(one.prompt - phase.cached)), 1.0)
            found.append(Equation(parts, one.ttft_s, 1.0))
    for (decoding, tokens), gaps in cells.items():
        found.append(Equation((1.0, decoding, tokens, 0.0), mean(gaps), len(gaps) ** 0.5))
    return found


def solved_positive(rows: Sequence[Equation]) -> list[float]:
    """Terms that are not negative, by least squares of the relative error; errors far out count less."""
    used = list(range(4))
    terms = [0.0] * 4
    weights = [row.weight for row in rows]
    for _ in range(20):
        normal = [[0.0] * len(used) for _ in used]
        right = [0.0] * len(used)
        for row, weight in zip(rows, weights, strict=True):
            scaled = [row.parts[at] / row.seconds for at in used]
            for line, one in enumerate(scaled):
                right[line] += weight * one
                for column, other in enumerate(scaled):
                    normal[line][column] += weight * one * other
        for line in range(len(used)):
            normal[line][line] *= 1.0 + 1e-6
            normal[line][line] += 1e-12
        found = solved(normal, right)
        terms = [0.0] * 4
        for at, value in zip(used, found, strict=True):
            terms[at] = value
        worst = min(found)
        if worst < 0.0:
            used.remove(used[found.index(worst)])
            continue
        told = [sum(part * term for part, term in zip(row.parts, terms, strict=True)) for row in rows]
        weights = [
            row.weight / (1.0 + ((value - row.seconds) / row.seconds / SOFT) ** 2) ** 0.5
            for row, value in zip(rows, told, strict=True)
        ]
    return [max(0.0, term) for term in terms]


class Trace(RequestSource):
    """The requests of a phase: at their own times, or one after the other by each client."""

    def __init__(self, sent: Sequence[Sent], phase: Phase, *, closed: bool) -> None:
        self._waiting: dict[int, list[PlayedRequest]] = defaultdict(list)
        first = []
        for one in sent:
            request = PlayedRequest(one.start_s, one.prompt, len(one.tokens_s), phase.cached, (one.worker,))
            if closed and one.worker in self._waiting:
                self._waiting[one.worker].append(request)
            else:
                self._waiting[one.worker] = []
                first.append(request)
        super().__init__(first)

    def after(self, request: PlayedRequest, ended_s: float) -> PlayedRequest | None:
        [worker] = request.prefix
        left = self._waiting[worker]
        return left.pop(0)._replace(arrival_s=ended_s) if left else None


class Judged(NamedTuple):
    """Simulated / measured - 1 in the second half of a phase."""

    phase: Phase
    requests: int
    measured_s: float
    """Mean TTFT."""
    drift: float
    """By how much the measured mean TTFT of the second half differs from that of the first."""
    ttft: float
    ttft_p95: float
    itl: float
    e2e: float


def judge(phase: Phase) -> Judged:
    """Fit a phase and judge it."""
    every, sent = read(phase)
    closed = min(one.worker for one in sent) >= 0
    half_s = (sent[0].start_s + sent[-1].end_s) / 2.0
    base_s, sequence_s, token_s, delay_s = solved_positive(equations(every, phase, half_s))
    cost = StepTime(max(1e-5, base_s), sequence_s, token_s)
    limits = EngineLimits(phase.max_num_seqs, phase.max_num_batched_tokens, ROOMY)
    log = play(Trace(sent, phase, closed=closed), cost, limits, 1, ROUTERS["round-robin"](), delay_s)
    late = [one for one in sent if one.start_s > half_s]
    simulated = [one for one in log.served if one.request.arrival_s > half_s]
    if not simulated:
        simulated = log.served[len(log.served) // 2 :]
    return Judged(
        phase=phase,
        requests=len(late),
        measured_s=mean(one.ttft_s for one in late),
        drift=mean(one.ttft_s for one in late) / mean(one.ttft_s for one in sent if one.start_s <= half_s) - 1.0,
        ttft=mean(map(ttft_s, simulated)) / mean(one.ttft_s for one in late) - 1.0,
        ttft_p95=p95(map(ttft_s, simulated)) / p95(one.ttft_s for one in late) - 1.0,
        itl=mean(map(gap_s, simulated)) / mean((one.end_s - one.first_s) / (len(one.tokens_s) - 1) for one in late)
        - 1.0,
        e2e=mean(map(e2e_s, simulated)) / mean(one.end_s - one.start_s for one in late) - 1.0,
    )


def ttft_s(one: ServedRequest) -> float:
    return one.first_s - one.request.arrival_s


def e2e_s(one: ServedRequest) -> float:
    return one.end_s - one.request.arrival_s


def gap_s(one: ServedRequest) -> float:
    return (one.end_s - one.first_s) / max(1, one.request.answer - 1)


def p95(values: Any) -> float:
    ordered = sorted(values)
    return ordered[int(0.95 * (len(ordered) - 1) + 0.5)]


class RowJudged(NamedTuple):
    """Simulated / measured - 1 of one row of silicon.csv."""

    engine: str
    moe: bool
    itl: float
    ttft: float


def even(mean_tokens: float) -> Draw:
    """Lengths as the benchmark draws them: from 0.8 of the largest to the largest."""
    return lambda random: mean_tokens * random.uniform(1.0 - SPREAD, 1.0 + SPREAD)


def judge_row(row: Row, at: EngineEfficiency, costs: Costs) -> RowJudged:
    """Play a row."""
    setting = row.setting
    curve = roofline(setting, at)
    tokens, seqs = default_bounds(setting.gpu.memory_bytes, setting.gpu.name)
    blocks = int(row.running * (setting.mix.prompt_tokens + setting.mix.answer_tokens) / BLOCK)
    limits = EngineLimits(seqs, tokens, max(blocks, 1) if row.running < row.offered else ROOMY)
    cost = step_terms(curve, setting, at)
    line = ttft_of(row, at, costs, row.engine)
    first = line.ttft_s(1.0)
    life_s = first + curve.itl_s(row.running) * setting.mix.answer_tokens * max(1.0, row.offered / row.running)
    shape = RequestShape(even(setting.mix.prompt_tokens), even(setting.mix.answer_tokens), longest=blocks * BLOCK)
    clients = Clients(round(row.offered), WAVES * life_s, shape, 1)
    log = play(clients, cost, limits, 1, ROUTERS["round-robin"](), delay_of(line, cost, limits, setting.mix))
    figures = figures_of(log, RequestGoals(), 1)
    assert isinstance(figures.itl_s.mean, float)
    assert isinstance(figures.ttft_s.mean, float)
    return RowJudged(row.engine, row.moe, figures.itl_s.mean / row.itl_s - 1.0, figures.ttft_s.mean / row.ttft_s - 1.0)


def rows_as_shipped(engine: str, every: int) -> list[RowJudged]:
    """The rows of an engine among every so many of silicon.csv, by the constants that gpumon has."""
    rows, _ = silicon_rows.read(silicon_rows.DATA)
    costs = {name: first_token_cost(name) for name in ("", engine)}
    return [judge_row(row, REACHED, costs) for row in rows[::every] if row.engine == engine]


def rows_judged() -> list[RowJudged]:
    """All rows of silicon.csv, each by constants that have not seen its model."""
    rows, _ = silicon_rows.read(silicon_rows.DATA)
    fits = fits_without(rows, {row.family for row in rows})
    return [judge_row(row, *fits[row.family]) for row in rows]


def tables(phases: Sequence[Judged], rows: Sequence[RowJudged]) -> str:
    """Both as Markdown."""
    lines = [
        "| capture | requests | measured TTFT | of the first half | TTFT mean | p95 | ITL | E2E |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in phases:
        errors = " | ".join(f"{value:+.0%}" for value in (one.ttft, one.ttft_p95, one.itl, one.e2e))
        name = f"{one.phase.capture} {one.phase.phase}"
        lines.append(f"| {name} | {one.requests} | {one.measured_s * 1e3:,.0f} ms | {one.drift:+.0%} | {errors} |")
    lines += ["", "| rows of | rows | ITL: median error | median absolute | TTFT: median error | median absolute |"]
    lines.append("|---|---|---|---|---|---|")
    for engine in ("vllm", "trtllm", "sglang"):
        for moe in (False, True):
            own = [row for row in rows if (row.engine, row.moe) == (engine, moe)]
            itl = [row.itl for row in own]
            ttft = [row.ttft for row in own]
            figures = " | ".join(f"{value:.0%}" for value in (*both(itl), *both(ttft)))
            lines.append(f"| {engine}, {'MoE' if moe else 'dense'} | {len(own)} | {figures} |")
    return "\n".join(lines)


def both(errors: Sequence[float]) -> tuple[float, float]:
    """Median, and median of the absolute errors."""
    return median(errors), median(map(abs, errors))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables, or write them into the docs."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.simulated")
    parser.add_argument("--markdown", metavar="FILE", type=Path)
    chosen = parser.parse_args(arguments)
    text = tables([judge(phase) for phase in PHASES], rows_judged())
    if chosen.markdown is None:
        print(text)
    else:
        write(chosen.markdown, text, BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
