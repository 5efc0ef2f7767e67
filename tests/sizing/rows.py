"""Published latencies of sizing_rows.csv, as the types that the formulas take.

Tags: m measured by its source, a predicted by aiconfigurator, t theory. `running` is what decoded together: the
offered load below the knee, the source's own count past it.
"""

from __future__ import annotations

import csv
from pathlib import Path

from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.latency import Curve, Mix
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import InstanceSetting, roofline, weight_read_s
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.precision import Precision
from tests.records import replace

_TEXT = (Path(__file__).parents[1] / "data" / "sizing_rows.csv").read_text()
ROWS: dict[str, dict[str, str]] = {row["id"]: row for row in csv.DictReader(_TEXT.splitlines())}


def named(names: str) -> list[dict[str, str]]:
    """Rows by their names, e.g. `N1 N2`."""
    return [ROWS[name] for name in names.split()]


def setting(row: dict[str, str]) -> InstanceSetting:
    """Model, GPUs and traffic of a row; all its GPUs are one tensor-parallel group."""
    llm = llm_catalogue().find(row["model"])
    assert llm is not None, row["model"]
    if row["kv"]:
        llm = replace(llm, kv_precision=Precision(row["kv"]))
    gpus = int(row["gpus"])
    mix = Mix(float(row["prompt"]), float(row["answer"] or 1))
    return InstanceSetting(llm, gpu_catalogue().find(row["gpu"]), gpus, gpus, mix)


def point(row: dict[str, str]) -> Point:
    return Point(
        running=float(row["running"]),
        itl_s=float(row["itl_ms"]) / 1e3,
        offered=float(row["offered"]),
        ttft_s=float(row["ttft_ms"]) / 1e3 if row["ttft_ms"] else None,
        tokens_per_s=float(row["tokens_per_s"]) if row["tokens_per_s"] else None,
    )


def fitted(names: str, least_buckets: int = 3) -> Fitted:
    """The fit of a sweep, with the floor and anchor of its own setting."""
    rows = named(names)
    at = setting(rows[0])
    reads_s = weight_read_s(at)
    found = fit(
        [point(row) for row in rows],
        roof=roofline(at),
        floor_s=0.5 * reads_s,
        least_buckets=least_buckets,
    )
    assert isinstance(found, Fitted), found
    return found


def error(curve: Curve, row: dict[str, str]) -> float:
    """Computed / published - 1 of a row's ITL."""
    return curve.itl_s(float(row["running"])) / (float(row["itl_ms"]) / 1e3) - 1.0
