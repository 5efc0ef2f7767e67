"""Error bands from measured rows, and whether they hold rows of a model or GPU that they have not seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.sizing.accuracy import CLAIM, Band, EngineEfficiency
from gpumon.sizing.first_token import ONE_LOAD_ENGINE
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.interpolated import Interpolated, ItlCurve
from gpumon.sizing.latency import Curve
from gpumon.sizing.profile import Point
from gpumon.sizing.reference_classes import itl_figure
from gpumon.sizing.roofline import rescale, roofline, weight_read_s
from tests.accuracy.silicon_fit import Costs, Fits, Judged, judge, ttft_of
from tests.accuracy.silicon_rows import Group, Row, sweeps_of

LEAST_LOADS: Final = 4
"""Of a sweep from which loads are held back."""


def quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Of pairs of value and weight; linear between the two nearest, each value in the middle of its weight."""
    ordered = sorted(weighted)
    wanted = share * sum(weight for _, weight in ordered)
    passed = 0.0
    before = None
    for value, weight in ordered:
        middle = passed + weight / 2.0
        if middle >= wanted:
            if before is None:
                return value
            below, at = before
            return below + (value - below) * (wanted - at) / (middle - at)
        before = (value, middle)
        passed += weight
    return ordered[-1][0]


def band(errors: Sequence[tuple[float, float]], held: float = CLAIM) -> Band:
    """From the quantiles of weighted errors between which a share `held` of them lies."""
    beyond = (1.0 - held) / 2.0
    return Band(round(quantile(errors, beyond), 3), round(quantile(errors, 1.0 - beyond), 3), len(errors))


Cells = dict[tuple[int, bool], Band]
FIGURES: Final = {"itl": ("itl", 0.85), "ttft": ("ttft", 0.88), "ttft any": ("ttft_any", 0.88)}
"""Figure of `measured_errors.BANDS` -> the error of `Judged`, and the share of the rows that its band holds; the ITL
has a figure for each class besides.

It is more than the share that is claimed: rows of a model or a GPU that none of them has lie farther off, and of those
the claimed share is inside.
"""
SIZES: Final = (1, 2, 4, 8)


def bands_of(judged: Sequence[Judged], fits: Fits) -> dict[str, Cells]:
    """The table of `measured_errors.BANDS`."""
    found = formula_bands(judged)
    for figure, errors in sweep_errors([one.row for one in judged], fits).items():
        by_moe = {moe: [(error, 1.0) for at_moe, error in errors if at_moe == moe] for moe in (False, True)}
        found[figure] = {(1, moe): band(each) for moe, each in by_moe.items() if each}
    return found


def formula_bands(judged: Sequence[Judged]) -> dict[str, Cells]:
    """The bands of what formulas alone predict, by TP and mixture of experts."""
    found: dict[str, Cells] = {}
    for figure, (error, held) in FIGURES.items():
        found[figure] = {}
        for tp in SIZES:
            for moe in (False, True):
                errors = weighted_errors([one for one in judged if one.row.moe == moe], tp, error)
                found[figure][tp, moe] = band(errors, held)
    for name, held in CLASSES.items():
        found[name] = {}
        for moe in (False, True):
            own = [one for one in judged if itl_figure(one.row.setting) == name and one.row.moe == moe]
            if len({one.row.family for one in own}) >= LEAST_FAMILIES:
                found[name][1, moe] = band(own_errors(own), held)
    return found


CLASSES: Final = {"itl dp": 0.85, "itl nvfp4": 0.84, "itl 4 bit": 0.95}
"""Classes of the ITL with bands of their own, of all TPs together -> the share of their rows that these hold: most of
the rows with other weights of 4 bits are of one model."""
LEAST_FAMILIES: Final = 2
"""Models behind the band of a class; with fewer, rows have the band of their TP."""


def own_errors(judged: Sequence[Judged]) -> list[tuple[float, float]]:
    """Errors of the ITL, with weights as `weighted_errors` has them."""
    counts = Counter(one.row.family for one in judged)
    return [(one.itl, 1.0 / math.sqrt(counts[one.row.family])) for one in judged]


def cell_of(bands: dict[str, Cells], figure: str, row: Row) -> Band:
    """The band of a figure for a row; its ITL by the class of the row, if that was seen."""
    if figure == "itl" and (1, row.moe) in bands.get(itl_figure(row.setting), {}):
        cells = bands[itl_figure(row.setting)]
        return cells.get((row.tp, row.moe), cells[1, row.moe])
    return bands[figure][row.tp, row.moe]


def weighted_errors(judged: Sequence[Judged], tp: int, error: str) -> list[tuple[float, float]]:
    """Errors of this TP and of half and twice as much, with weights.

    A TP alone is of three or four models, so that one of them makes the band. The rows of a model weigh as much as the
    root of their number: a hundred rows of one model say less of another than a hundred rows of many.
    """
    near = [one for one in judged if tp / 2 <= one.row.tp <= tp * 2]
    counts = Counter(one.row.family for one in near)
    return [(getattr(one, error), 1.0 / math.sqrt(counts[one.row.family])) for one in near]


def share_inside(judged: Sequence[Judged], bands: dict[str, Cells], figure: str) -> float:
    """Share of rows whose error lies in their band."""
    error = FIGURES[figure][0]
    inside = 0
    for one in judged:
        cell = cell_of(bands, figure, one.row)
        inside += cell.low <= getattr(one, error) <= cell.high
    return inside / len(judged)


class Unseen(NamedTuple):
    """Rows of a model or GPU that neither constants nor bands have seen."""

    judged: tuple[Judged, ...]
    """Predicted without it."""
    bands: dict[str, Cells]
    """From all other rows."""


def unseen_groups(judged: Sequence[Judged], fits: Fits, group: Group) -> list[Unseen]:
    """Each group with bands that are made without it; `judged` are predicted without their model, `fits` without it."""
    found = []
    for name, (at, costs) in fits.items():
        bands = formula_bands([one for one in judged if group(one.row) != name])
        own = tuple(judge(one.row, at, costs) for one in judged if group(one.row) == name)
        found.append(Unseen(own, bands))
    return found


def unseen_share(groups: Sequence[Unseen], figure: str, is_of: Callable[[Row], bool]) -> float:
    """Share of the rows of a kind, of all groups together, that lie in the bands."""
    inside = 0.0
    count = 0
    for group in groups:
        own = [one for one in group.judged if is_of(one.row)]
        if own:
            inside += len(own) * share_inside(own, group.bands, figure)
            count += len(own)
    return inside / count


def sweep_errors(rows: Sequence[Row], fits: Fits) -> dict[str, list[tuple[bool, float]]]:
    """Errors (MoE?, measured / predicted - 1) of fits on loads that they were not shown, and of re-scaled ones."""
    found = defaultdict(list)
    curves = []
    for sweep in sweeps_of(rows):
        loads = {row.running for row in sweep}
        at, costs = fits[sweep[0].family]
        if sweep[0].engine == ONE_LOAD_ENGINE:
            found["ttft one load"] += [(row.moe, error) for row, error in scaled_errors(sweep, at, costs)]
        if len(loads) < LEAST_LOADS - 1:
            continue
        whole = curve_of(sweep, at)
        if whole is not None:
            curves.append((sweep, whole))
        ends = line_of([sweep[0], sweep[-1]], at)
        for row in sweep:
            if ends is not None and sweep[0].running < row.running < sweep[-1].running:
                found["two loads"].append((row.moe, error_of(ends, row)))
            alone = curve_of([row], at, anchored=True)
            if alone is not None:
                found["one load"] += [(row.moe, error_of(alone, each)) for each in sweep if each is not row]
            left = [each for each in sweep if each.running != row.running]
            rest = line_of(left, at) if len(loads) >= LEAST_LOADS else None
            if rest is not None:
                inside = left[0].running < row.running < left[-1].running
                figure = "measured" if inside else "extrapolated" if row.running > left[-1].running else ""
                found[figure].append((row.moe, error_of(rest, row)))
    for sweep, curve in curves:
        for other, _ in curves:
            figure = differs(sweep[0], other[0])
            if figure:
                at = fits[sweep[0].family][0]
                moved = rescale(curve, sweep[0].setting, other[0].setting, sweep[-1].running, at)
                found[figure] += [(row.moe, error_of(moved, row)) for row in other]
    found.pop("", None)
    return found


def scaled_errors(sweep: Sequence[Row], at: EngineEfficiency, costs: Costs) -> list[tuple[Row, float]]:
    """Errors of TTFT at the other loads of a sweep, by the formula moved to each one of them."""
    formula = ttft_of(sweep[0], at, costs, sweep[0].engine)
    found = []
    for known in sweep:
        line = formula.moved_to([(known.running, known.ttft_s)])
        found += [(row, row.ttft_s / line.ttft_s(row.running) - 1.0) for row in sweep if row is not known]
    return found


def differs(one: Row, other: Row) -> str:
    """The one thing in which two sweeps of an engine differ; empty where it is none or several."""
    a, b = one.setting, other.setting
    if one.model != other.model or one.engine != other.engine or (a.gpus > a.tp) != (b.gpus > b.tp):
        return ""
    precision = (a.llm.precision, a.llm.weight_only) != (b.llm.precision, b.llm.weight_only)
    pairs = (("tp", a.tp != b.tp), ("gpu", one.gpu != other.gpu), ("precision", precision), ("mix", a.mix != b.mix))
    names = [name for name, different in pairs if different]
    return names[0] if len(names) == 1 else ""


def curve_of(rows: Sequence[Row], at: EngineEfficiency, anchored: bool = False) -> Curve | None:
    """As sizing makes it of a sweep's points."""
    found = fitted_of(rows, at, len(rows) + 2 if anchored else 3)
    return found.curve if isinstance(found, Fitted) and found.anchored == anchored else None


def line_of(rows: Sequence[Row], at: EngineEfficiency) -> Interpolated | None:
    """As sizing draws it through a sweep's points; None where the roofline has to help."""
    found = fitted_of(rows, at, 2)
    return found.line if isinstance(found, Fitted) and not found.anchored else None


def fitted_of(rows: Sequence[Row], at: EngineEfficiency, least: int) -> Fitted | str:
    """As sizing fits a sweep's points from so many loads on."""
    setting = rows[0].setting
    points = [Point(row.running, row.itl_s) for row in rows]
    floor_s = 0.5 * weight_read_s(setting)
    return fit(points, roof=roofline(setting, at), floor_s=floor_s, least_buckets=least, noisy=False)


def error_of(curve: ItlCurve, row: Row) -> float:
    return row.itl_s / curve.itl_s(row.running) - 1.0
