"""TTFT between two measured loads: a line through both beside the formula moved to them, on published sweeps.

`python -m tests.accuracy.ttft_two_loads` prints the errors at the loads between the lowest and the highest of a sweep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from gpumon.sizing.fit import TWO_LOADS_SPREAD, calibrated_ttft
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import ttft_line
from tests.accuracy.silicon import DATA, within
from tests.accuracy.silicon_rows import Row, read, sweeps_of
from tests.accuracy.tables import markdown

HEAD = ("engine", "rows", "line through both: median absolute", "within 2x", "formula moved", "within 2x")


def ratios(sweep: Sequence[Row]) -> Iterator[tuple[float, float]]:
    """Predicted over measured TTFT at each load between the ends of a sweep: through both ends, and moved to them."""
    ends = (sweep[0], sweep[-1])
    formula = ttft_line(sweep[0].setting, sweep[0].engine)
    through = calibrated_ttft(formula, tuple(Point(row.running, ttft_s=row.ttft_s) for row in ends))
    assert through is not None
    moved = formula.moved_to([(row.running, row.ttft_s) for row in ends])
    for row in sweep[1:-1]:
        yield through.ttft_s(row.running) / row.ttft_s, moved.ttft_s(row.running) / row.ttft_s


def absolute(found: Sequence[float]) -> str:
    """Median absolute error."""
    return f"{median(abs(ratio - 1.0) for ratio in found) * 100:.0f}%"


def table() -> str:
    """The errors by engine."""
    by_engine: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sweep in sweeps_of(read(DATA)[0]):
        if sweep[0].running >= 1.0 and sweep[-1].running >= TWO_LOADS_SPREAD * sweep[0].running:
            by_engine[sweep[0].engine] += ratios(sweep)
    lines = []
    for engine, pairs in sorted(by_engine.items()):
        through = [pair[0] for pair in pairs]
        moved = [pair[1] for pair in pairs]
        figures = (absolute(through), within(through), absolute(moved), within(moved))
        lines.append((engine, f"{len(pairs)}", *figures))
    return markdown(HEAD, lines)


if __name__ == "__main__":
    print(table())
