"""Sizing against measured servers: the error of ITL, TTFT and capacity by TP, MoE, GPU and engine.

    python -m tests.accuracy.silicon FILE.csv [--markdown docs/sizing-accuracy.md] [--constants FILE] [--write]

FILE has the columns of tests/data/silicon.csv. What is fitted (efficiencies, cost of a layer, TTFT's constants) is
fitted to the rows of silicon.csv of all models but the one that is predicted. Of silicon.csv itself the bands are
quantiles of those errors, and `--write` puts both, fitted to all rows, into gpumon/sizing/measured_errors.py; other
files are held to the bands that gpumon prints. `--as-shipped` takes the constants that gpumon has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from gpumon.sizing.accuracy import REACHED, EngineEfficiency, band_of, first_token_cost
from gpumon.sizing.roofline import INDEX_LAYER_S
from tests.accuracy.silicon_bands import SIZES, Cells, bands_of, share_inside, unseen_groups, unseen_share
from tests.accuracy.silicon_fit import Costs, Fits, Judged, first_token_costs, fits_without, fitted, judge, ttft_of
from tests.accuracy.silicon_rows import DATA, Group, Row, family_of, gpu_of, read, sweeps_of
from tests.accuracy.tables import markdown, write

TABLE: Final = Path(__file__).parents[2] / "gpumon" / "sizing" / "measured_errors.py"
BEGIN, END = "<!-- silicon: begin, written by `make silicon` -->", "<!-- silicon: end -->"


HEAD_UNSEEN: Final = ("inside the band", *(f"TP {tp}" for tp in SIZES))


def unseen_table(judged: Sequence[Judged], families: Fits, gpus: Fits) -> str:
    """How many rows of a model, or of a GPU, lie in bands that have not seen it."""
    lines = []
    for left_out, fits, group in (("model", families, family_of), ("GPU", gpus, gpu_of)):
        groups = unseen_groups(judged, fits, group)
        for figure, name in (("itl", "ITL"), ("ttft", "TTFT")):
            shares = [f"{unseen_share(groups, figure, tp) * 100:.0f} %" for tp in SIZES]
            lines.append((f"{name}, {left_out} left out", *shares))
    return markdown(HEAD_UNSEEN, lines)


HEAD: Final = (
    *("of", "rows", "ITL: median error", "median absolute", "band", "inside it", "capacity ratio"),
    *("TTFT: median error", "median absolute", "band", "inside it"),
)


def line(name: str, judged: Sequence[Judged], bands: dict[str, Cells]) -> tuple[str, ...]:
    """One line of the table. Errors are predicted / measured - 1 here, as readers expect; bands the other way round."""

    def told(figure: str) -> tuple[str, str, str, str]:
        cells = {bands[figure][one.row.tp, one.row.moe] for one in judged}
        off = [1.0 / (1.0 + getattr(one, figure)) - 1.0 for one in judged]
        text = ""
        if len(cells) == 1:
            [cell] = cells
            text = f"{cell.low * 100:+.0f} to {cell.high * 100:+.0f} %"
        inside = f"{share_inside(judged, bands, figure) * 100:.0f} %"
        return f"{median(off) * 100:+.1f} %", f"{median(map(abs, off)) * 100:.1f} %", text, inside

    capacity = f"{median(one.capacity for one in judged):.2f}"
    return (name, f"{len(judged):,}", *told("itl"), capacity, *told("ttft"))


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


HEAD_TTFT: Final = (
    *("engine", "unmeasured: sweeps", "within x2, model left out", "GPU left out"),
    *("one load known: sweeps", "within x2, model left out", "GPU left out"),
)
LEAST_APART: Final = 4.0
"""Highest over lowest load of a sweep whose lowest load is known and that is judged at its highest."""
FACTOR: Final = 2.0


def ttft_capacity_table(rows: Sequence[Row], families: Fits, gpus: Fits) -> str:
    """Requests in flight predicted at the measured TTFT of a sweep's highest load, over those that ran, by engine.

    Without a measurement, and with the formula moved to the sweep's lowest load.
    """
    lines = []
    for engine in sorted({row.engine for row in rows}):
        own = [row for row in rows if row.engine == engine]
        alone, moved = ttft_capacities(own, families, family_of)
        other_alone, other_moved = ttft_capacities(own, gpus, gpu_of)
        unmeasured = (f"{len(alone)}", within(alone), within(other_alone))
        lines.append((engine, *unmeasured, f"{len(moved)}", within(moved), within(other_moved)))
    return markdown(HEAD_TTFT, lines)


def ttft_capacities(rows: Sequence[Row], fits: Fits, group: Group) -> tuple[list[float], list[float]]:
    """Capacity at the TTFT of the highest load over that load: unmeasured, and with the lowest load known."""
    alone = []
    moved = []
    for sweep in sweeps_of(rows):
        low = sweep[0]
        high = sweep[-1]
        at, costs = fits[group(high)]
        line = ttft_of(high, at, costs, high.engine)
        alone.append(line.running_at(high.ttft_s) / high.running)
        if high.running >= LEAST_APART * low.running:
            known = line.moved_to([(low.running, low.ttft_s)])
            moved.append(known.running_at(high.ttft_s) / high.running)
    return alone, moved


def within(ratios: Sequence[float]) -> str:
    """Share of ratios within `FACTOR` of 1."""
    if not ratios:
        return "-"
    return f"{sum(1.0 / FACTOR <= ratio <= FACTOR for ratio in ratios) / len(ratios) * 100:.0f} %"


def module(at: EngineEfficiency, costs: Costs, bands: dict[str, Cells], generations: set[str]) -> str:
    """The text of gpumon/sizing/measured_errors.py."""
    engines = [f'    "{name}": ({", ".join(f"{value:.4g}" for value in cost)}),' for name, cost in costs.items()]
    measured = ", ".join(sorted(f'"{name}"' for name in generations))
    lines = [
        '"""Efficiencies and error bands of measured servers; written by `python -m tests.accuracy.silicon --write`.',
        "",
        "`accuracy` says what each number is, tests/data/README-silicon.md where the rows are from.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        f"EFFICIENCY: Final = ({', '.join(f'{value:.4g}' for value in at)})",
        '"""Fields of `accuracy.EngineEfficiency`, in their order."""',
        f"MEASURED_ARCHITECTURES: Final = frozenset({{{measured}}})",
        '"""Generations of GPUs that rows are of."""',
        "TTFT_FITS: Final[dict[str, tuple[float, float, float, float]]] = {",
        *engines,
        "}",
        '"""Engine -> fields of `accuracy.FirstTokenCost`, in their order; an empty name: those of all engines."""',
        "BANDS: Final[dict[str, dict[tuple[int, bool], tuple[float, float, int]]]] = {",
    ]
    for figure, cells in bands.items():
        lines.append(f'    "{figure}": {{')
        lines += [
            f"        ({tp}, {moe}): ({each.low}, {each.high}, {each.rows})," for (tp, moe), each in cells.items()
        ]
        lines.append("    },")
    lines += [
        "}",
        '"""Kind of figure -> (tensor-parallel size, whether a MoE) -> fields of `accuracy.Band`, in their order."""',
        "",
    ]
    return "\n".join(lines)


def shipped(judged: Sequence[Judged]) -> dict[str, Cells]:
    """The bands that gpumon prints for these rows."""
    cells = {(one.row.tp, one.row.moe) for one in judged}
    return {figure: {cell: band_of(figure, *cell) for cell in sorted(cells)} for figure in ("itl", "ttft", "ttft any")}


CONSTANTS_BEGIN, CONSTANTS_END = "<!-- constants: begin, written by `make silicon` -->", "<!-- constants: end -->"
ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "": "not known"}
HEAD_CONSTANTS: Final = ("engine", "k0", "k1", "k2", "k3")


def constants() -> str:
    """The formulas with the constants that gpumon ships, as Markdown."""
    at = REACHED
    layer_us, tp_us, moe_us = at.layer_s * 1e6, at.layer_tp_s * 1e6, at.layer_moe_s * 1e6
    lines = [
        f"    L = layers × ({layer_us:.0f} + {tp_us:.0f} log2 TP + {moe_us:.0f} if MoE) µs"
        f" + layers with an indexer × {INDEX_LAYER_S * 1e6:.0f} µs",
        f"    ITL(b) = weights(b) / ({at.weights:.2f} bandwidth) + L",
        f"             + b × (KV / ({at.kv:.2f} bandwidth) + all-reduces / ({at.link:.2f} link)"
        f" + prompt FLOPs / answer / ({at.prefill:.2f} peak))",
        "    TTFT(b) = L × (k0 + k1 b s) + prompt × (k2 + k3 b)",
    ]
    table_lines = []
    for engine, name in ENGINES.items():
        table_lines.append((name, *(f"{constant:.2g}" for constant in first_token_cost(engine))))
    return "\n".join(lines) + "\n\n" + markdown(HEAD_CONSTANTS, table_lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=DATA)
    parser.add_argument("--markdown", type=Path, help="a document with the markers of the tables")
    parser.add_argument("--constants", type=Path, help="a document with the markers of the constants")
    parser.add_argument("--write", action="store_true", help="fit all rows and write measured_errors.py")
    parser.add_argument("--as-shipped", action="store_true", help="judge by the constants that gpumon has")
    given = parser.parse_args()
    rows, left = read(given.file)
    for why, number in left.most_common():
        print(f"{number:,} rows left out: {why}", file=sys.stderr)
    own = given.file.resolve() == DATA.resolve()
    text = as_shipped(rows) if given.as_shipped else held_out(rows, own, write_module=given.write)
    print(text)
    if given.markdown:
        write(given.markdown, text, BEGIN, END)
    if given.constants:
        write(given.constants, constants(), CONSTANTS_BEGIN, CONSTANTS_END)


def as_shipped(rows: Sequence[Row]) -> str:
    """The table of the constants that gpumon has."""
    engines = {row.engine for row in rows}
    costs = {engine: first_token_cost(engine) for engine in ("", *engines)}
    judged = [judge(row, REACHED, costs) for row in rows]
    return table(judged, shipped(judged))


def held_out(rows: Sequence[Row], own: bool, write_module: bool) -> str:
    """The tables of constants without the model, or the GPU, that is predicted; `own`: the rows are those of DATA."""
    reference = rows if own else read(DATA)[0]
    families = fits_without(reference, {row.family for row in rows})
    gpus = fits_without(reference, {row.gpu for row in rows}, gpu_of)
    judged = [judge(row, *families[row.family]) for row in rows]
    bands = bands_of(judged, families) if own else shipped(judged)
    tables = [table(judged, bands), ttft_capacity_table(rows, families, gpus)]
    if own:
        tables.append(unseen_table(judged, families, gpus))
    if own and write_module:
        at = fitted(rows)
        generations = {row.setting.gpu.architecture for row in rows}
        TABLE.write_text(module(at, first_token_costs(rows, at), bands, generations), encoding="utf-8")
    return "\n\n".join(tables)


if __name__ == "__main__":
    main()
