"""The pictures of the sizing panel: which there are, one of them, or as many as a tall place takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.scenario import Packing, Scenario
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing import packing_picture, plot_instances, plot_latency
from gpumon.tui.sizing.plot_frame import Title, filled, said
from gpumon.tui.sizing.plot_latency import CurvePicture

Kind = Literal["itl", "packing", "instances", "throughput"]
KINDS: Final[tuple[tuple[Kind, str], ...]] = (
    ("itl", "ITL over requests in flight"),
    ("packing", "servers and GPUs"),
    ("instances", "instances over the target"),
    ("throughput", "tokens/s over requests in flight"),
)
"""Ids and titles, the most telling first."""
_LEAST: Final = 7
"""Lines that a picture gets where there are several."""
_SHARES: Final[dict[Kind, int]] = {"itl": 3, "packing": 3, "instances": 2, "throughput": 2}
"""How lines that are left are shared out."""


class Shown(NamedTuple):
    """All that pictures are drawn from."""

    scenario: Scenario
    answer: Answer
    workload: int = 0
    """The chosen one: index in `answer.workloads`."""
    curve: CurvePicture | None = None
    """Of the chosen one; None where nothing of it could be resolved."""
    here: int | None = None
    """Instances of the chosen one that run now."""
    packing: Packing = "busy"
    """Which plan's packing is drawn."""
    held: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """GPUs here that something else holds, by type and server (`live.Held`)."""

    @property
    def plan(self) -> WorkloadPlan | None:
        """The answer for the chosen workload."""
        return self.answer.workloads[self.workload] if 0 <= self.workload < len(self.answer.workloads) else None


def lines(width: int, height: int, what: Kind, shown: Shown, glyphs: Glyphs) -> list[Row]:
    """One picture in exactly `height` rows of `width` cells."""
    return filled(_drawn(width, height, what, shown, glyphs), width, height)


def stack(width: int, height: int, shown: Shown, glyphs: Glyphs, first: Kind = "itl") -> list[Row]:
    """As many pictures as fit, `first` and then the most telling ones; exactly `height` rows of `width` cells."""
    kinds = [first, *(kind for kind, _ in KINDS if kind != first)]
    kinds = kinds[: max(1, min(len(kinds), (height + 1) // (_LEAST + 1)))]
    free = max(0, height - (len(kinds) - 1))
    sizes = _shared(free, kinds)
    if len(kinds) > 1 and "packing" in kinds:
        needed = len(_drawn(width, sizes["packing"], "packing", shown, glyphs))
        others = [kind for kind in kinds if kind != "packing"]
        sizes = {**_shared(free - needed, others), "packing": needed}
    blank: Sequence[Row] = filled([], width, 1)
    rows: list[Row] = []
    for kind in kinds:
        rows += [*(blank if rows else ()), *lines(width, sizes[kind], kind, shown, glyphs)]
    return filled(rows, width, height)


def _shared(free: int, kinds: Sequence[Kind]) -> dict[Kind, int]:
    """So many lines each; what does not divide goes to the first."""
    parts = sum(_SHARES[kind] for kind in kinds)
    rest = max(0, free - _LEAST * len(kinds)) if len(kinds) > 1 else 0
    sizes = {kind: _LEAST + rest * _SHARES[kind] // parts for kind in kinds}
    sizes[kinds[0]] = free - sum(sizes[kind] for kind in kinds[1:])
    return sizes


def _drawn(width: int, height: int, what: Kind, shown: Shown, glyphs: Glyphs) -> list[Row]:
    if width <= 0 or height <= 0:
        return []
    if what == "packing":
        return packing_picture.packing(width, height, shown.answer, shown.scenario, shown.packing, glyphs, shown.held)
    plan, title = shown.plan, Title(dict(KINDS)[what])
    if plan is None:
        return said(title, "no workload yet", width, height)
    if what == "instances":
        return plot_instances.instances(width, height, plan, shown.here, glyphs)
    picture = shown.curve or CurvePicture(plan.name, reason=plan.problem)
    draw = plot_latency.itl if what == "itl" else plot_latency.throughput
    return draw(width, height, picture, glyphs)
