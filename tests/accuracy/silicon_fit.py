"""Constants of the formulas from measured rows, without the model or GPU that they are asked about."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import mul
from statistics import median
from typing import Final, NamedTuple

from gpumon.sizing.accuracy import EngineEfficiency, FirstTokenCost, steps_each
from gpumon.sizing.latency import Curve, TtftLine, largest_load
from gpumon.sizing.roofline import prompt_of, roofline, step_cost, ttft_line_of
from tests.accuracy.silicon_rows import Group, Row, family_of, sweeps_of

SOFT: Final = 0.15
"""Relative error from which a row counts less."""


def parts(row: Row) -> list[float]:
    """What a row's ITL is a sum of, each times a constant that is fitted (`EngineEfficiency`)."""
    cost, load = step_cost(row.setting), row.running
    llm = row.setting.llm
    shape = Curve(1.0, 0.0, cost.resident_ratio, llm.experts, llm.experts_per_token)
    return [
        cost.weights_s * shape.weight_ratio(load),
        load * cost.kv_s,
        load * cost.link_s,
        load * cost.prefill_s,
        float(cost.blocks),
        cost.blocks * cost.log2_tp,
        cost.routed,
        cost.widened,
        load * cost.sequences,
    ]


def fitted(rows: Sequence[Row]) -> EngineEfficiency:
    """Efficiencies and layer costs by least squares of the relative error."""
    found = least_squares([(parts(row), row.itl_s) for row in rows])
    shares = [1.0 / one for one in found[:4]]
    return EngineEfficiency(*shares, *found[4:])


def ttft_parts(row: Row, at: EngineEfficiency, engine: str) -> list[float]:
    """What a row's TTFT is a sum of, each times a constant of `engine` that is fitted (`FirstTokenCost`)."""
    prompt = prompt_of(row.setting, at)
    waited_s = row.running * prompt.layers_s * steps_each(engine, prompt.new_tokens)
    return [prompt.layers_s, waited_s, prompt.alone_s, row.running * prompt.alone_s]


Costs = dict[str, FirstTokenCost]
"""Engine -> its constants of TTFT; those of all rows under the empty name."""


def ttft_of(row: Row, at: EngineEfficiency, costs: Costs, engine: str) -> TtftLine:
    """TTFT over the load on the server of a row, by the constants of an engine; of all where it has none."""
    name = engine if engine in costs else ""
    return ttft_line_of(prompt_of(row.setting, at), name, costs[name])


def first_token_costs(rows: Sequence[Row], at: EngineEfficiency) -> Costs:
    """The constants of each engine, by least squares of the relative error over the rows that do not queue."""
    by_engine = defaultdict(list)
    for row in rows:
        if row.offered <= row.running:
            by_engine[row.engine].append(row)
            by_engine[""].append(row)
    return {engine: _first_token_cost(engine, each, at) for engine, each in sorted(by_engine.items())}


STEADY: Final = "vllm"
"""Engine whose TTFT rises in every sweep: how fast is fitted to differences inside sweeps.

The first loads of TensorRT-LLM's sweeps hold its warm-up, and SGLang's scripts change a setting between loads.
"""


def _first_token_cost(engine: str, rows: Sequence[Row], at: EngineEfficiency) -> FirstTokenCost:
    """The constants of one engine."""
    if engine != STEADY:
        return FirstTokenCost(*least_squares([(ttft_parts(row, at, engine), row.ttft_s) for row in rows]))
    layers_each, prompt_each = least_squares(_rises(rows, at, engine), FAR)
    fixed = []
    for row in rows:
        parts = ttft_parts(row, at, engine)
        rest_s = row.ttft_s - layers_each * parts[1] - prompt_each * parts[3]
        if rest_s > LEAST_FIXED * row.ttft_s:
            fixed.append(([parts[0], parts[2]], rest_s))
    layers, prompt = least_squares(fixed, FAR)
    return FirstTokenCost(layers, layers_each, prompt, prompt_each)


FAR: Final = 0.5
"""Relative error from which a difference of two TTFTs counts less: it is noisier than they are."""
LEAST_FIXED: Final = 0.1
"""Share of a TTFT that does not rise with the load at least, else the row says nothing of it."""


def _rises(rows: Sequence[Row], at: EngineEfficiency, engine: str) -> list[tuple[list[float], float]]:
    """How much longer TTFT is than at the lowest load of the same sweep, and the parts that rise with the load."""
    found = []
    for sweep in sweeps_of(rows):
        low = sweep[0]
        first = ttft_parts(low, at, engine)
        for row in sweep[1:]:
            if row.running >= 2.0 * low.running and row.ttft_s > low.ttft_s:
                parts = ttft_parts(row, at, engine)
                found.append(([parts[1] - first[1], parts[3] - first[3]], row.ttft_s - low.ttft_s))
    return found


def least_squares(equations: Sequence[tuple[list[float], float]], soft: float = SOFT) -> list[float]:
    """Constants for which sums of the parts come to the values, by relative error; far ones count little.

    Iterated least squares with weights 1/sqrt(1 + (error/soft)^2), the error over the geometric mean of both sides, so
    that half as much is as wrong as twice as much.
    """
    scale = [
        median(value / each[at] for each, value in equations if each[at] > 0.0) for at in range(len(equations[0][0]))
    ]
    size = len(scale)
    columns = [[each[at] * scale[at] for each, _ in equations] for at in range(size)]
    values = [value for _, value in equations]
    # In units of `scale`.
    found = [0.3] * size
    for _ in range(60):
        weights, weighed_values = _weights(columns, values, found, soft)
        normal = [[1e-9 * (row == column) for column in range(size)] for row in range(size)]
        right = []
        for row in range(size):
            weighed = list(map(mul, weights, columns[row]))
            right.append(sum(map(mul, weighed_values, columns[row])))
            for column in range(row, size):
                normal[row][column] += sum(map(mul, weighed, columns[column]))
                normal[column][row] = normal[row][column]
        now = solved(normal, right)
        moved = max(abs(new - old) / max(abs(old), 1e-12) for new, old in zip(now, found, strict=True))
        found = now
        if moved < 1e-4:
            break
    return [one * unit for one, unit in zip(found, scale, strict=True)]


def _weights(
    columns: Sequence[Sequence[float]], values: Sequence[float], found: Sequence[float], soft: float
) -> tuple[list[float], list[float]]:
    """What each equation weighs by what is found so far, and the same times its value."""
    weights = []
    weighed_values = []
    for value, *parts in zip(values, *columns, strict=True):
        told = max(sum(map(mul, parts, found)), 0.05 * value)
        squared = told * value
        weight = 1.0 / math.sqrt(1.0 + ((told - value) / soft) ** 2 / squared) / squared
        weights.append(weight)
        weighed_values.append(weight * value)
    return weights, weighed_values


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for at in range(size):
        best = max(range(at, size), key=lambda line: abs(rows[line][at]))
        rows[at], rows[best] = rows[best], rows[at]
        for line in range(size):
            if line != at:
                factor = rows[line][at] / rows[at][at]
                rows[line] = [a - factor * b for a, b in zip(rows[line], rows[at], strict=True)]
    return [rows[at][size] / rows[at][at] for at in range(size)]


class Judged(NamedTuple):
    """One row, predicted without its model (or as shipped)."""

    row: Row
    itl: float
    """Measured over predicted, minus 1."""
    ttft: float
    ttft_any: float
    """The same where the engine is not known."""
    capacity: float
    """Requests in flight that are predicted at the measured ITL, over those that ran."""


def judge(row: Row, at: EngineEfficiency, costs: Costs) -> Judged:
    """The errors of one row."""
    curve = roofline(row.setting, at)
    # Those that do not fit wait for as many answers as there are of them for each that runs.
    decode_s = row.setting.mix.answer_tokens * curve.itl_s(row.running)
    waited_s = max(0.0, row.offered / row.running - 1.0) * decode_s
    told = [ttft_of(row, at, costs, name).ttft_s(row.running) + waited_s for name in (row.engine, "")]
    held = largest_load(lambda load: curve.itl_s(load) <= row.itl_s) if curve.itl_s(1.0) <= row.itl_s else 0.0
    return Judged(
        row,
        row.itl_s / curve.itl_s(row.running) - 1.0,
        row.ttft_s / told[0] - 1.0,
        row.ttft_s / told[1] - 1.0,
        held / row.running,
    )


Fits = dict[str, tuple[EngineEfficiency, Costs]]
"""Name of a group -> what is fitted to all rows but its own."""


def fits_without(rows: Sequence[Row], names: Iterable[str], group: Group = family_of) -> Fits:
    """Constants that have not seen the models that they are asked about, or the GPUs."""
    found: Fits = {}
    for name in sorted(names):
        others = [row for row in rows if group(row) != name]
        at = fitted(others)
        found[name] = at, first_token_costs(others, at)
    return found
