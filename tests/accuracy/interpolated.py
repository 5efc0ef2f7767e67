"""Loads inside published sweeps, predicted from the other loads of the same sweep: by the line through them, and by one
curve.

    python -m tests.accuracy.interpolated
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from gpumon.sizing.accuracy import REACHED
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import roofline, weight_read_s
from tests.accuracy.silicon import DATA
from tests.accuracy.silicon_rows import Row, read, sweeps_of


class Outcome(NamedTuple):
    """Measured / predicted - 1 of one load that was held back."""

    known: str
    """Loads that the prediction had: all others, or the first and the last alone."""
    moe: bool
    by_line: float
    by_curve: float


def fitted_to(rows: Sequence[Row]) -> Fitted | None:
    """As sizing takes a load test with these loads; None where the roofline has to help."""
    setting = rows[0].setting
    points = [Point(row.running, row.itl_s) for row in rows]
    floor_s = 0.5 * weight_read_s(setting)
    found = fit(points, roof=roofline(setting, REACHED), floor_s=floor_s, least_buckets=2, noisy=False)
    return found if isinstance(found, Fitted) and not found.anchored else None


def outcomes() -> Iterator[Outcome]:
    """Each load between the first and the last one of every sweep of at least four."""
    for sweep in sweeps_of(read(DATA)[0]):
        if len({row.running for row in sweep}) < 4:
            continue
        ends = fitted_to([sweep[0], sweep[-1]])
        for row in sweep:
            if not sweep[0].running < row.running < sweep[-1].running:
                continue
            others = fitted_to([other for other in sweep if other.running != row.running])
            for known, found in (("all other loads", others), ("first and last", ends)):
                if found is not None:
                    by_line = row.itl_s / found.line.itl_s(row.running) - 1.0
                    by_curve = row.itl_s / found.curve.itl_s(row.running) - 1.0
                    yield Outcome(known, row.moe, by_line, by_curve)


def by_kind() -> Mapping[tuple[str, bool], list[Outcome]]:
    """The outcomes by the loads that were known, and whether the model is a mixture of experts."""
    found: dict[tuple[str, bool], list[Outcome]] = defaultdict(list)
    for one in outcomes():
        found[one.known, one.moe].append(one)
    return found


def main() -> None:
    """Print the table."""
    print("| known | model | rows | line: median | absolute | curve: median | absolute |")
    print("|---|---|---|---|---|---|---|")
    for (known, moe), found in sorted(by_kind().items()):
        figures = []
        for errors in ([one.by_line for one in found], [one.by_curve for one in found]):
            figures += [f"{median(errors):+.1%}", f"{median(map(abs, errors)):.1%}"]
        print(f"| {known} | {'MoE' if moe else 'dense'} | {len(found)} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
