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
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from gpumon.sizing.accuracy import REACHED, Band, EngineEfficiency, band_of, first_token_cost
from gpumon.sizing.latency import TtftLine, largest_load
from gpumon.sizing.measured_errors import BANDS
from gpumon.sizing.reference_classes import itl_figure
from gpumon.sizing.roofline import INDEX_LAYER_S, roofline
from gpumon.specs.precision import Precision
from tests.accuracy.silicon_bands import (
    CLASSES,
    FIGURES,
    Cells,
    bands_of,
    cell_of,
    share_inside,
    unseen_groups,
    unseen_share,
)
from tests.accuracy.silicon_fit import Costs, Fits, Judged, first_token_costs, fits_without, fitted, judge, ttft_of
from tests.accuracy.silicon_rows import DATA, RECENT, Group, Row, family_of, gpu_of, read, sweeps_of
from tests.accuracy.tables import markdown, write

TABLE: Final = Path(__file__).parents[2] / "gpumon" / "sizing" / "measured_errors.py"
BEGIN, END = "<!-- silicon: begin, written by `make silicon` -->", "<!-- silicon: end -->"


KINDS: Final[dict[str, Callable[[Row], bool]]] = {
    "TP 1": lambda row: row.tp == 1,
    "TP 2": lambda row: row.tp == 2,
    "TP 4": lambda row: row.tp == 4,
    "TP 8": lambda row: row.tp == 8,
    "dense": lambda row: not row.moe,
    "MoE": lambda row: row.moe,
    "below 15 B": lambda row: row.setting.llm.params < 15e9,
    "15 to 250 B": lambda row: 15e9 <= row.setting.llm.params < 250e9,
    "above 250 B": lambda row: row.setting.llm.params >= 250e9,
    "Hopper": lambda row: row.setting.gpu.architecture == "Hopper",
    "Blackwell": lambda row: row.setting.gpu.architecture == "Blackwell",
    "Blackwell Ultra": lambda row: row.setting.gpu.architecture == "Blackwell Ultra",
    "16 bit": lambda row: row.setting.llm.precision is Precision.BF16,
    "FP8": lambda row: row.setting.llm.precision is Precision.FP8,
    "NVFP4": lambda row: itl_figure(row.setting) == "itl nvfp4",
    "other 4 bit": lambda row: itl_figure(row.setting) == "itl 4 bit",
    "DP": lambda row: bool(row.setting.expert_gpus),
}
"""Class of rows -> whether a row is of it."""
HEAD_UNSEEN: Final = ("class", "rows", "ITL: model left out", "GPU left out", "TTFT: model left out", "GPU left out")


def unseen_table(judged: Sequence[Judged], families: Fits, gpus: Fits) -> str:
    """How many rows of a class lie in bands that have not seen their model, or their GPU."""
    by_model = unseen_groups(judged, families, family_of)
    by_gpu = unseen_groups(judged, gpus, gpu_of)
    lines = []
    for name, is_of in KINDS.items():
        count = sum(is_of(one.row) for one in judged)
        shares = []
        for figure in ("itl", "ttft"):
            for groups in (by_model, by_gpu):
                shares.append(f"{unseen_share(groups, figure, is_of) * 100:.0f}%")
        lines.append((name, f"{count:,}", *shares))
    return "Rows inside the band:\n\n" + markdown(HEAD_UNSEEN, lines)


HEAD: Final = (
    *("of", "rows", "ITL: median error", "median absolute", "band", "inside it", "capacity ratio"),
    *("TTFT: median error", "median absolute", "band", "inside it"),
)


def line(name: str, judged: Sequence[Judged], bands: dict[str, Cells]) -> tuple[str, ...]:
    """One line of the table. Errors are predicted / measured - 1 here, as readers expect; bands the other way round."""

    def told(figure: str) -> tuple[str, str, str, str]:
        cells = {cell_of(bands, figure, one.row) for one in judged}
        off = [1.0 / (1.0 + getattr(one, figure)) - 1.0 for one in judged]
        text = ""
        if len(cells) == 1:
            [cell] = cells
            text = f"{cell.low * 100:+.0f} to {cell.high * 100:+.0f}%"
        inside = f"{share_inside(judged, bands, figure) * 100:.0f}%"
        return f"{median(off) * 100:+.1f}%", f"{median(map(abs, off)) * 100:.1f}%", text, inside

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
        (figure, "MoE" if moe else "dense", f"{cell.rows:,}", f"{cell.low * 100:+.0f} to {cell.high * 100:+.0f}%")
        for figure, cells in bands.items()
        if figure not in ("itl", "ttft")
        for (tp, moe), cell in cells.items()
        if tp == 1 or figure != "ttft any"
    ]
    return markdown(HEAD, lines) + "\n\n" + markdown(("figure", "models", "errors", "band"), others)


HEAD_LEFT_OUT: Final = ("GPU left out", "rows", "ITL: median error", "absolute", "capacity ratio", "TTFT: median error")
HEAD_RECENT: Final = ("model", "GPU", "TP", "rows", "ITL: median error", "median absolute", "a constant was fitted on")
FITTED_ON: Final = {
    "Nemotron-3-Nano": "the least step (first row)",
    "1.5B": "the least step",
    "Qwen3.8-27B": "delta nets, NVFP4",
    "MI300X": "ROCm's kernels",
}
"""Part of a model's name, or its GPU -> the constant of `kernels` that some of these rows were used for."""


def left_out_table(rows: Sequence[Row], gpus: Fits) -> str:
    """Errors on each type of GPU by constants that have not seen it."""
    lines = []
    for name, fits in gpus.items():
        judged = [judge(row, *fits) for row in rows if row.gpu == name]
        itl = [1.0 / (1.0 + one.itl) - 1.0 for one in judged]
        ttft = [1.0 / (1.0 + one.ttft) - 1.0 for one in judged]
        errors = (f"{median(itl):+.1%}", f"{median(map(abs, itl)):.1%}")
        capacity = f"{median(one.capacity for one in judged):.2f}"
        lines.append((name, f"{len(judged):,}", *errors, capacity, f"{median(ttft):+.1%}"))
    return markdown(HEAD_LEFT_OUT, lines)


def recent_table() -> str:
    """Errors on the rows of 2025 and 2026, by the constants that gpumon ships."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in read(RECENT)[0]:
        groups[row.model.rpartition("/")[2], row.gpu, row.tp].append(row)
    lines = []
    for (model, gpu, tp), rows in sorted(groups.items()):
        errors = [roofline(row.setting).itl_s(row.running) / row.itl_s - 1.0 for row in rows]
        told = [text for word, text in FITTED_ON.items() if word in model or word == gpu]
        if gpu == "RTX 4090" and tp > 1:
            told.append("PCIe through host memory")
        shares = (f"{median(errors):+.0%}", f"{median(map(abs, errors)):.0%}")
        lines.append((model, gpu, str(tp), str(len(rows)), *shares, ", ".join(told)))
    return "Rows of 2025 and 2026 (`tests/data/measured-2026.csv`):\n\n" + markdown(HEAD_RECENT, lines)


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


def load_within(line: TtftLine, ttft_s: float) -> float:
    """Most requests in flight whose mean TTFT is at most that."""
    return largest_load(lambda load: line.ttft_s(load) <= ttft_s)


def ttft_capacities(rows: Sequence[Row], fits: Fits, group: Group) -> tuple[list[float], list[float]]:
    """Capacity at the TTFT of the highest load over that load: unmeasured, and with the lowest load known."""
    alone = []
    moved = []
    for sweep in sweeps_of(rows):
        low = sweep[0]
        high = sweep[-1]
        at, costs = fits[group(high)]
        line = ttft_of(high, at, costs, high.engine)
        alone.append(load_within(line, high.ttft_s) / high.running)
        if high.running >= LEAST_APART * low.running:
            known = line.moved_to([(low.running, low.ttft_s)])
            moved.append(load_within(known, high.ttft_s) / high.running)
    return alone, moved


def within(ratios: Sequence[float]) -> str:
    """Share of ratios within `FACTOR` of 1."""
    if not ratios:
        return "-"
    return f"{sum(1.0 / FACTOR <= ratio <= FACTOR for ratio in ratios) / len(ratios) * 100:.0f}%"


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
    bands = {figure: {cell: band_of(figure, *cell) for cell in sorted(cells)} for figure in FIGURES}
    for figure in CLASSES:
        bands[figure] = {cell: Band(*fields) for cell, fields in BANDS[figure].items()}
    return bands


CONSTANTS_BEGIN, CONSTANTS_END = "<!-- constants: begin, written by `make silicon` -->", "<!-- constants: end -->"
ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "": "not known"}
HEAD_CONSTANTS: Final = ("engine", "k0", "k1", "k2", "k3")


def constants() -> str:
    """The formulas with the constants that gpumon ships, as Markdown."""
    at = REACHED
    lines = [
        f"    L = blocks × ({at.block_s * 1e6:.0f} + {at.block_tp_s * 1e6:.1f} log2 TP) µs"
        f" + MoE layers × experts of a token × ({at.expert_s * 1e6:.1f} + {at.marlin_s * 1e6:.1f} if widened) µs"
        f" + layers with an indexer × {INDEX_LAYER_S * 1e6:.0f} µs",
        f"    ITL(b) = weights(b) / ({at.weights:.2f} bandwidth) + L",
        f"             + b × (KV / ({at.kv:.2f} bandwidth) + all-reduces / ({at.link:.2f} link)"
        f" + prompt FLOPs / answer / ({at.prefill:.2f} peak) + {at.sequence_s * 1e6:.0f} µs)",
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
        tables += [unseen_table(judged, families, gpus), left_out_table(rows, gpus), recent_table()]
    if own and write_module:
        at = fitted(rows)
        generations = {row.setting.gpu.architecture for row in rows}
        TABLE.write_text(module(at, first_token_costs(rows, at), bands, generations), encoding="utf-8")
    return "\n\n".join(tables)


if __name__ == "__main__":
    main()
