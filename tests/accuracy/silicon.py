"""Sizing against measured servers: the error of ITL, TTFT and capacity by TP, MoE, GPU and engine.

    python -m tests.accuracy.silicon FILE.csv [--markdown docs/sizing.md] [--write]

FILE has the columns of tests/data/silicon.csv. What is fitted (efficiencies, cost of a layer, TTFT's constants) is
fitted to the rows of silicon.csv of all models but the one that is predicted. Of silicon.csv itself the bands are
quantiles of those errors, and `--write` puts both, fitted to all rows, into gpumon/sizing/measured_errors.py; other
files are held to the bands that gpumon prints. `--as-shipped` takes the constants that gpumon has.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from gpumon.sizing import memory
from gpumon.sizing.accuracy import CLAIM, REACHED, Band, Efficiency, FirstTokenCost, band_of, first_token_cost
from gpumon.sizing.first_token import ONE_LOAD_ENGINE
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.latency import Curve, Mix, TtftLine
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import Setting, layers_s, prompt_parts_s, rescale, roofline, step_cost, weight_read_s
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from tests.accuracy.tables import markdown, write

DATA: Final = Path(__file__).parents[1] / "data" / "silicon.csv"
TABLE: Final = Path(__file__).parents[2] / "gpumon" / "sizing" / "measured_errors.py"
BEGIN, END = "<!-- silicon: begin, written by `make silicon` -->", "<!-- silicon: end -->"
GPUS: Final = {
    "a100_sxm": "A100 SXM4 80GB",
    "h100_sxm": "H100 SXM 80GB",
    "h200_sxm": "H200 SXM 141GB",
    "b200_sxm": "B200 SXM 180GB",
    "b300_sxm": "B300 SXM 288GB",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
}
PRECISIONS: Final = {"fp8": "fp8", "fp4": "nvfp4", "bf16": "bf16", "int4": "int4", "": ""}
SAME: Final = {"moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2-Instruct"}
"""Language models with the dimensions of one in the catalogue, where the catalogue lacks them."""
MOST_GPUS: Final = 8
"""Of one instance: rows of more count the GPUs of several instances, prefill and decode apart."""
USABLE: Final = 0.9
LEAST_LOADS: Final = 4
"""Of a sweep from which loads are held back."""
SOFT: Final = 0.15
"""Relative error from which a row counts less."""


class Row(NamedTuple):
    """One measured row as the types of sizing."""

    model: str
    gpu: str
    engine: str
    setting: Setting
    running: float
    """What fits the KV cache of the requests that the client held open."""
    offered: float
    itl_s: float
    ttft_s: float
    sweep: tuple[str, ...]
    """Rows with the same differ in load alone."""

    @property
    def tp(self) -> int:
        return self.setting.tp

    @property
    def moe(self) -> bool:
        return bool(self.setting.llm.experts)

    @property
    def family(self) -> str:
        """Models of one name with the publisher's prefixes and formats cut off: they are left out together."""
        name = self.model.rsplit("/", 1)[-1].lower()
        for ending in ("-fp8", "-nvfp4", "-instruct"):
            name = name.replace(ending, "")
        return "deepseek-671b" if name.startswith(("deepseek-v3", "deepseek-r1")) else name


def ranks(tp: int, ep: int, dp: int) -> tuple[int, int]:
    """TP and data-parallel ranks, from the columns tp, ep, attention_dp.

    Files of one run write its parallelism in different ways: the same latencies stand as (4, 4, 1) in one and as
    (16, 4, 1) or (4, 16, 4) in another, the number of GPUs being 4 throughout; (1, 8, 8) is (1, 8, 64) elsewhere.
    """
    ep, dp = max(ep, 1), max(dp, 1)
    if ep > 1 and tp == ep * ep:
        tp = ep
    elif tp > 1 and ep == tp * tp:
        ep, dp = tp, 1
    elif tp == 1 and dp == ep * ep and ep > 1:
        dp = ep
    return tp, dp


def read(file: Path) -> tuple[list[Row], Counter[str]]:
    """The rows that can be predicted, and why others can not."""
    gpus, llms = gpu_catalogue(), llm_catalogue()
    rows, left = list[Row](), Counter[str]()
    with file.open(encoding="utf-8", newline="") as stream:
        for cells in csv.DictReader(stream):
            tp, dp = ranks(int(cells["tp"]), int(cells["ep"]), int(cells["attention_dp"]))
            name = cells["model"]
            llm = llms.find(name) or llms.find(SAME.get(name, ""))
            if tp * dp > MOST_GPUS:
                left[f"more than {MOST_GPUS} GPUs as one instance"] += 1
                continue
            if llm is None or cells["gpu"] not in GPUS:
                left[f"not in the catalogue: {name if llm is None else cells['gpu']}"] += 1
                continue
            wanted = "mxfp4" if "gpt-oss" in name else PRECISIONS[cells["precision"]]
            try:
                llm = memory.variant(llms, name, llm, wanted, "")
                mix = Mix(float(cells["isl"]), float(cells["osl"]))
                gpu = gpus.find(GPUS[cells["gpu"]])
                setting = Setting(llm, gpu, tp * dp, tp, mix, tp * dp if dp > 1 else 0)
                step_cost(setting)
                pool = memory.pool_tokens(llm, gpu.memory_bytes, tp * dp, tp, USABLE)
                request = memory.request_tokens(llm, mix.prompt_tokens + mix.answer_tokens, tp)
            except ValueError as wrong:
                left[str(wrong)] += 1
                continue
            offered = float(cells["concurrency"])
            row = Row(
                model=name,
                gpu=cells["gpu"],
                engine=cells["engine"],
                setting=setting,
                running=min(offered, max(1.0, pool / request)),
                offered=offered,
                itl_s=float(cells["itl_ms"]) / 1e3,
                ttft_s=float(cells["ttft_ms"]) / 1e3,
                sweep=tuple(text for key, text in cells.items() if key not in ("concurrency", "ttft_ms", "itl_ms")),
            )
            rows.append(row)
    return rows, left


def parts(row: Row) -> list[float]:
    """What a row's ITL is a sum of, each times a constant that is fitted (`Efficiency`)."""
    cost, load = step_cost(row.setting), row.running
    llm = row.setting.llm
    read_s = cost.weights_s * Curve(1.0, 0.0, cost.resident_ratio, llm.experts, llm.experts_per_token).weight_ratio(
        load
    )
    layers = float(cost.layers)
    return [
        read_s,
        load * cost.kv_s,
        load * cost.link_s,
        load * cost.prefill_s,
        layers,
        layers * cost.log2_tp,
        layers * cost.moe,
    ]


def fitted(rows: Sequence[Row]) -> Efficiency:
    """Efficiencies and layer costs by least squares of the relative error."""
    found = least_squares([(parts(row), row.itl_s) for row in rows])
    shares = [1.0 / one for one in found[:4]]
    return Efficiency(*shares, *found[4:])


def ttft_parts(row: Row, at: Efficiency) -> list[float]:
    """What a row's TTFT is a sum of, each times a constant that is fitted (`FirstTokenCost`)."""
    computed_s, exchanged_s = prompt_parts_s(row.setting)
    beside_s = layers_s(row.setting, at)
    prompt_s = computed_s / at.prefill + exchanged_s / at.link
    return [beside_s, row.running * beside_s, prompt_s, row.running * prompt_s]


def ttft_s(row: Row, at: Efficiency, cost: FirstTokenCost) -> float:
    """TTFT of a row by the constants of an engine."""
    return sum(part * one for part, one in zip(ttft_parts(row, at), cost, strict=True))


Costs = dict[str, FirstTokenCost]
"""Engine -> its constants of TTFT; those of all rows under the empty name."""


def first_token_costs(rows: Sequence[Row], at: Efficiency) -> Costs:
    """The constants of each engine, by least squares of the relative error over the rows that do not queue."""
    by_engine = defaultdict(list)
    for row in rows:
        if row.offered <= row.running:
            equation = ttft_parts(row, at), row.ttft_s
            by_engine[row.engine].append(equation)
            by_engine[""].append(equation)
    return {engine: FirstTokenCost(*least_squares(each)) for engine, each in sorted(by_engine.items())}


def least_squares(equations: Sequence[tuple[list[float], float]]) -> list[float]:
    """Constants for which sums of the parts come to the values, by relative error; far ones count little.

    Iterated least squares with weights 1/sqrt(1 + (error/SOFT)^2), the error over the geometric mean of both sides, so
    that half as much is as wrong as twice as much.
    """
    scale = [
        median(value / each[at] for each, value in equations if each[at] > 0.0) for at in range(len(equations[0][0]))
    ]
    found = [0.3 * one for one in scale]
    for _ in range(60):
        size = len(found)
        normal = [[1e-9 * (row == column) for column in range(size)] for row in range(size)]
        right = [0.0] * size
        for each, value in equations:
            told = max(sum(part * one for part, one in zip(each, found, strict=True)), 0.05 * value)
            over = math.sqrt(told * value)
            weight = 1.0 / math.sqrt(1.0 + ((told - value) / over / SOFT) ** 2)
            scaled = [part / over * unit for part, unit in zip(each, scale, strict=True)]
            for row in range(size):
                right[row] += weight * scaled[row] * value / over
                for column in range(size):
                    normal[row][column] += weight * scaled[row] * scaled[column]
        now = [one * unit for one, unit in zip(solved(normal, right), scale, strict=True)]
        moved = max(abs(new - old) / max(abs(old), 1e-12) for new, old in zip(now, found, strict=True))
        found = now
        if moved < 1e-5:
            break
    return found


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


def judge(row: Row, at: Efficiency, costs: Costs) -> Judged:
    """The errors of one row."""
    curve = roofline(row.setting, at)
    # Those that do not fit wait for as many answers as there are of them for each that runs.
    decode_s = row.setting.mix.answer_tokens * curve.itl_s(row.running)
    waited_s = max(0.0, row.offered / row.running - 1.0) * decode_s
    told = [ttft_s(row, at, costs.get(name, costs[""])) + waited_s for name in (row.engine, "")]
    held = curve.running_at(row.itl_s) if curve.itl_s(1.0) <= row.itl_s else 0.0
    return Judged(
        row,
        row.itl_s / curve.itl_s(row.running) - 1.0,
        row.ttft_s / told[0] - 1.0,
        row.ttft_s / told[1] - 1.0,
        held / row.running,
    )


Fits = dict[str, tuple[Efficiency, Costs]]
"""Family -> what is fitted to all others."""


def fits_without(rows: Sequence[Row], families: Iterable[str]) -> Fits:
    """Constants that have not seen the models that they are asked about."""
    found: Fits = {}
    for family in sorted(families):
        others = [row for row in rows if row.family != family]
        at = fitted(others)
        found[family] = at, first_token_costs(others, at)
    return found


def quantile(values: Iterable[float], share: float) -> float:
    """Linear between the two nearest."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def band(errors: Sequence[float]) -> Band:
    """From the quantiles that hold the share that bands claim."""
    beyond = (1.0 - CLAIM) / 2.0
    return Band(round(quantile(errors, beyond), 3), round(quantile(errors, 1.0 - beyond), 3), len(errors))


Cells = dict[tuple[int, bool], Band]


def bands_of(judged: Sequence[Judged], fits: Fits) -> dict[str, Cells]:
    """The table of `measured_errors.BANDS`."""
    found: dict[str, Cells] = {}
    for figure, error in (("itl", "itl"), ("ttft", "ttft"), ("ttft any", "ttft_any")):
        groups = defaultdict(list)
        for one in judged:
            groups[one.row.tp, one.row.moe].append(getattr(one, error))
        found[figure] = {cell: band(errors) for cell, errors in sorted(groups.items())}
    found["itl dp"] = {(1, True): band([one.itl for one in judged if one.row.setting.expert_gpus])}
    for figure, errors in sweep_errors([one.row for one in judged], fits).items():
        by_moe = {moe: [error for at_moe, error in errors if at_moe == moe] for moe in (False, True)}
        found[figure] = {(1, moe): band(each) for moe, each in by_moe.items() if each}
    return found


def sweep_errors(rows: Sequence[Row], fits: Fits) -> dict[str, list[tuple[bool, float]]]:
    """Errors (MoE?, measured / predicted - 1) of fits on loads that they were not shown, and of re-scaled ones."""
    sweeps = defaultdict(list)
    for row in rows:
        if row.offered <= row.running:
            sweeps[row.sweep].append(row)
    found = defaultdict(list)
    curves = []
    for sweep in sweeps.values():
        sweep.sort(key=lambda row: row.running)
        loads = {row.running for row in sweep}
        at, costs = fits[sweep[0].family]
        if sweep[0].engine == ONE_LOAD_ENGINE:
            found["ttft one load"] += [(row.moe, error) for row, error in scaled_errors(sweep, at, costs)]
        if len(loads) < LEAST_LOADS - 1:
            continue
        whole = curve_of(sweep, at)
        if whole is not None:
            curves.append((sweep, whole))
        for row in sweep:
            alone = curve_of([row], at, anchored=True)
            if alone is not None:
                found["one load"] += [(row.moe, error_of(alone, each)) for each in sweep if each is not row]
            left = [each for each in sweep if each.running != row.running]
            rest = curve_of(left, at) if len(loads) >= LEAST_LOADS else None
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


def scaled_errors(sweep: Sequence[Row], at: Efficiency, costs: Costs) -> list[tuple[Row, float]]:
    """Errors of TTFT at the other loads of a sweep, by the formula scaled to each one of them."""
    told = [(row, ttft_s(row, at, costs.get(row.engine, costs[""]))) for row in sweep]
    found = []
    for known, known_s in told:
        scale = known.ttft_s / known_s
        found += [(row, row.ttft_s / (scale * value_s) - 1.0) for row, value_s in told if row is not known]
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


def curve_of(rows: Sequence[Row], at: Efficiency, anchored: bool = False) -> Curve | None:
    """As sizing makes it of a sweep's points."""
    setting = rows[0].setting
    points = [Point(row.running, row.itl_s) for row in rows]
    least = len(points) + 2 if anchored else 3
    found = fit(points, roof=roofline(setting, at), floor_s=0.5 * weight_read_s(setting), least_buckets=least)
    return found.curve if isinstance(found, Fitted) and found.anchored == anchored else None


def error_of(curve: Curve, row: Row) -> float:
    return row.itl_s / curve.itl_s(row.running) - 1.0


HEAD: Final = (
    *("of", "rows", "ITL: median error", "median absolute", "band", "inside it", "capacity ratio"),
    *("TTFT: median error", "median absolute", "band", "inside it"),
)


def line(name: str, judged: Sequence[Judged], bands: dict[str, Cells]) -> tuple[str, ...]:
    """One line of the table. Errors are predicted / measured - 1 here, as readers expect; bands the other way round."""

    def told(error: str, figure: str) -> tuple[str, str, str, str]:
        errors = [getattr(one, error) for one in judged]
        cells = [bands[figure][one.row.tp, one.row.moe] for one in judged]
        inside = sum(cell.low <= error <= cell.high for cell, error in zip(cells, errors, strict=True)) / len(errors)
        off = [1.0 / (1.0 + error) - 1.0 for error in errors]
        text = f"{cells[0].low * 100:+.0f} to {cells[0].high * 100:+.0f} %" if len(set(cells)) == 1 else ""
        return f"{median(off) * 100:+.1f} %", f"{median(map(abs, off)) * 100:.1f} %", text, f"{inside * 100:.0f} %"

    itl = told("itl", "itl")
    capacity = f"{median(one.capacity for one in judged):.2f}"
    return (name, f"{len(judged):,}", *itl, capacity, *told("ttft", "ttft"))


def table(judged: Sequence[Judged], bands: dict[str, Cells]) -> str:
    """All groups as Markdown, and the bands of what is re-scaled."""
    groups: list[Callable[[Row], str]] = [
        (lambda row: "all"),
        (lambda row: f"TP {row.tp}, {'MoE' if row.moe else 'dense'}"),
        (lambda row: f"TP {row.tp}"),
        (lambda row: "MoE" if row.moe else "dense"),
        (lambda row: row.gpu),
        (lambda row: row.engine),
        (lambda row: row.family),
    ]
    lines = []
    for key in groups:
        for name in sorted({key(one.row) for one in judged}):
            of_group = [one for one in judged if key(one.row) == name]
            lines.append(line(name, of_group, bands))
    others = [
        (figure, "MoE" if moe else "dense", f"{cell.rows:,}", f"{cell.low * 100:+.0f} to {cell.high * 100:+.0f} %")
        for figure, cells in bands.items()
        if figure not in ("itl", "ttft")
        for (tp, moe), cell in cells.items()
        if tp == 1 or figure != "ttft any"
    ]
    return markdown(HEAD, lines) + "\n\n" + markdown(("figure", "models", "errors", "band"), others)


HEAD_TTFT: Final = ("engine", "sweeps", "unmeasured: within x2", "scaled to one load: sweeps", "within x2")
LEAST_APART: Final = 4.0
"""Highest over lowest load of a sweep that is scaled to its lowest load and judged at its highest."""
FACTOR: Final = 2.0


def ttft_capacity_table(rows: Sequence[Row], fits: Fits) -> str:
    """Requests in flight predicted at the measured TTFT of a sweep's highest load, over those that ran, by engine.

    Without a measurement, and with the formula scaled to the sweep's lowest load.
    """
    sweeps = defaultdict(list)
    for row in rows:
        if row.offered <= row.running:
            sweeps[row.sweep].append(row)
    lines = []
    for engine in sorted({row.engine for row in rows}):
        alone = list[float]()
        scaled = list[float]()
        for sweep in sweeps.values():
            if sweep[0].engine != engine:
                continue
            sweep.sort(key=lambda row: row.running)
            low = sweep[0]
            high = sweep[-1]
            at, costs = fits[high.family]
            cost = costs.get(engine, costs[""])
            alone.append(held_ratio(high, at, cost))
            if high.running >= LEAST_APART * low.running:
                scale = low.ttft_s / ttft_s(low, at, cost)
                scaled.append(held_ratio(high, at, FirstTokenCost(*(scale * one for one in cost))))
        lines.append((engine, f"{len(alone)}", within(alone), f"{len(scaled)}", within(scaled)))
    return markdown(HEAD_TTFT, lines)


def held_ratio(row: Row, at: Efficiency, cost: FirstTokenCost) -> float:
    """Requests in flight at which the formula comes to the measured TTFT of a row, over those that ran."""
    beside_s, beside_each_s, prompt_s, prompt_each_s = ttft_parts(row._replace(running=1.0), at)
    fixed_s = beside_s * cost.layers + prompt_s * cost.prompt
    growth_s = beside_each_s * cost.layers_each + prompt_each_s * cost.prompt_each
    return TtftLine(fixed_s, 0.0, growth_s).running_at(row.ttft_s) / row.running


def within(ratios: Sequence[float]) -> str:
    """Share of ratios within `FACTOR` of 1."""
    if not ratios:
        return "-"
    return f"{sum(1.0 / FACTOR <= ratio <= FACTOR for ratio in ratios) / len(ratios) * 100:.0f} %"


def module(at: Efficiency, costs: Costs, bands: dict[str, Cells], generations: set[str]) -> str:
    """The text of gpumon/sizing/measured_errors.py."""
    engines = [f'    "{name}": ({", ".join(f"{value:.4g}" for value in cost)}),' for name, cost in costs.items()]
    lines = [
        '"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.',
        "",
        "`bands` says what each number is, tests/data/README-silicon.md where the rows are from.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        f"EFFICIENCY: Final = ({', '.join(f'{value:.4g}' for value in at)})",
        f"ARCHITECTURES: Final = frozenset({{{', '.join(sorted(repr(name) for name in generations))}}})".replace(
            "'", '"'
        ),
        '"""Generations of GPUs that rows are of."""',
        "TTFT: Final[dict[str, tuple[float, float, float, float]]] = {",
        *engines,
        "}",
        "BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {",
    ]
    for figure, cells in bands.items():
        lines.append(f'    "{figure}": {{')
        lines += [
            f"        ({tp}, {moe}): ({each.low}, {each.high}, {each.rows})," for (tp, moe), each in cells.items()
        ]
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def shipped(judged: Sequence[Judged]) -> dict[str, Cells]:
    """The bands that gpumon prints for these rows."""
    cells = {(one.row.tp, one.row.moe) for one in judged}
    return {figure: {cell: band_of(figure, *cell) for cell in sorted(cells)} for figure in ("itl", "ttft", "ttft any")}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=DATA)
    parser.add_argument("--markdown", type=Path, help="a document with the markers of this command")
    parser.add_argument("--write", action="store_true", help="fit all rows and write measured_errors.py")
    parser.add_argument("--as-shipped", action="store_true", help="judge by the constants that gpumon has")
    given = parser.parse_args()
    rows, left = read(given.file)
    for why, number in left.most_common():
        print(f"{number:,} rows left out: {why}", file=sys.stderr)
    if given.as_shipped:
        engines = {row.engine for row in rows}
        costs = {engine: first_token_cost(engine) for engine in ("", *engines)}
        judged = [judge(row, REACHED, costs) for row in rows]
        text = table(judged, shipped(judged))
    else:
        own = given.file.resolve() == DATA.resolve()
        fits = fits_without(rows if own else read(DATA)[0], {row.family for row in rows})
        judged = [judge(row, *fits[row.family]) for row in rows]
        bands = bands_of(judged, fits) if own else shipped(judged)
        text = f"{table(judged, bands)}\n\n{ttft_capacity_table(rows, fits)}"
        if given.write and own:
            at = fitted(rows)
            generations = {row.setting.gpu.architecture for row in rows}
            TABLE.write_text(module(at, first_token_costs(rows, at), bands, generations), encoding="utf-8")
    print(text)
    if given.markdown:
        write(given.markdown, text, BEGIN, END)


if __name__ == "__main__":
    main()
