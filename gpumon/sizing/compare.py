"""The same question on one type of GPU after the other, like for like, with marks of the best figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, number
from gpumon.sizing.answer import Answer, Compared, WorkloadPlan
from gpumon.sizing.plan import DetailedPlan, detailed_plan, plan, with_server
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload

USUAL: Final = ("L40S", "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB")
"""Types that most people ask about, by their names in the catalogue."""
_OPEN: Final[dict[str, Any]] = dict.fromkeys(
    ("capacity_per_instance", "memory_gb", "busy_ratio", "kv_pool_tokens", "prefill_tokens_per_s")
)
"""Fields of a workload that hold on the GPU that they were typed for alone."""
_SAME: Final = 0.005
"""Share by which two figures may differ and still count as the same."""


class ComparedFigure(NamedTuple):
    """A column of the comparison."""

    key: str
    """Field of the totals, or of the plan of a workload."""
    title: str
    keep: int
    """Columns with the lower number leave first where there is no room."""
    best: str = ""
    """Name of the best value; empty where no value is better than another."""
    rises: bool = False
    """Whether more of it is better."""
    of_workload: bool = False


COMPARISON_FIGURES: Final = (
    ComparedFigure("tp", "TP", 11, of_workload=True),
    ComparedFigure("instances", "inst", 9),
    ComparedFigure("gpus", "GPUs", 12, "fewest GPUs"),
    ComparedFigure("servers", "servers", 2),
    ComparedFigure("price_per_hour", "$/h", 10, "cheapest"),
    ComparedFigure("price_per_mtok", "$/1M tok", 7, "cheapest token"),
    ComparedFigure("itl_s", "ITL mean", 6, of_workload=True),
    ComparedFigure("limit", "limit", 8, of_workload=True),
    ComparedFigure("power_w", "max power", 5, "least power"),
    ComparedFigure("tokens_per_j", "tok/J", 4, "most tokens/J", rises=True),
    ComparedFigure("source", "from", 3, of_workload=True),
)
"""In the order of the table, on the screen and in text."""


class Comparison(NamedTuple):
    """The rows, and what all of them have in common."""

    rows: tuple[Compared, ...] = ()
    without: tuple[str, ...] = ()
    """Names of the workloads that have no answer on any type: the rows are of the others."""
    tp_typed: tuple[bool, ...] = ()
    """Whether the TP of each workload was typed."""
    plans: Mapping[str, DetailedPlan] = MappingProxyType({})
    """Type of GPU -> its plan, which the next comparison goes on with."""

    @classmethod
    def of(cls, answer: Answer, scenario: Scenario) -> Comparison:
        """The comparison that an answer has with it."""
        return cls(answer.compared, (), _tp_typed(scenario))

    @property
    def shown(self) -> tuple[ComparedFigure, ...]:
        """The columns that have a figure in some row."""
        sound = self._sound
        shown = []
        for figure in COMPARISON_FIGURES:
            if any(_has(figure, row) for row in sound):
                shown.append(figure)
        return tuple(shown)

    @property
    def _sound(self) -> list[Compared]:
        """The rows that have an answer."""
        return [row for row in self.rows if not row.problem]

    @property
    def like_for_like(self) -> str:
        """Terms that all rows have in common."""
        tp = "of the fewest GPUs"
        if any(self.tp_typed):
            tp = "as typed, else of the fewest GPUs"
            if all(self.tp_typed):
                tp = "as typed"
        return f"same servers; TP {tp} on each type; power: the boards' limits"

    @property
    def unpriced(self) -> bool:
        """Whether no row has a price, though some row has an answer."""
        sound = self._sound
        return bool(sound) and all(isinstance(row.totals.price_per_hour, Missing) for row in sound)

    @property
    def best(self) -> tuple[str, ...]:
        """Names of the best values that are marked."""
        marked = set[str]()
        for row in self.rows:
            marked.update(row.best)
        best = []
        for figure in COMPARISON_FIGURES:
            if figure.key in marked:
                best.append(figure.best)
        return tuple(best)


def compare(
    scenario: Scenario,
    catalogues: Catalogues,
    gpus: Sequence[str] | None = None,
    now: Answer | None = None,
    before: Comparison | None = None,
) -> Comparison:
    """The answers on servers of the same size with each type of GPU, as many as it takes; by default the scenario's own
    types first and then the usual ones.

    Like for like: a TP that was typed is held on every type; else each type has the TP that takes the fewest GPUs,
    the one that runs now as well. The power is the boards' limit on every type. Where the plan itself (`now`, where it
    is there already) differs from what its type comes to so, it is the first row. Typed capacities, memory and busy
    shares hold on the type that they were typed for; on others formulas decide. Workloads that did not change since
    the comparison `before` are not asked anew.
    """
    scenario = with_server(scenario, catalogues)
    if scenario.server:
        shape = scenario.server[0]
    else:
        shape = Server("")
    own = scenario.gpu_types
    earlier = before.plans if before is not None else {}
    plans = {}
    for name in _types(own, gpus, catalogues):
        plans[name] = _on(scenario, catalogues, shape, name, earlier.get(name))
    without = _without(plans.values())
    rows = _rows(plans, without)
    planned_row = _as_planned(now or plan(scenario, catalogues), own, without)
    if planned_row is not None and _is_other(planned_row, rows):
        rows.insert(0, planned_row)
    return Comparison(tuple(rows), without, _tp_typed(scenario), plans)


def _rows(plans: Mapping[str, DetailedPlan], without: tuple[str, ...]) -> list[Compared]:
    """A row for each type, with the best values marked."""
    rows = []
    for name, on_type in plans.items():
        rows.append(_row(name, _at_limits(on_type.answer), without))
    marked = []
    for row, best in zip(rows, _best(rows), strict=True):
        marked.append(msgspec.structs.replace(row, best=best))
    return marked


def _is_other(planned_row: Compared, rows: Sequence[Compared]) -> bool:
    """Whether the plan itself differs from each row of its type."""
    return all(_differs(planned_row, row) for row in rows if row.gpu == planned_row.gpu)


def _types(own: Sequence[str], gpus: Sequence[str] | None, catalogues: Catalogues) -> tuple[str, ...]:
    """Catalogue names of the types that are asked for; by default the scenario's own and the usual ones."""
    asked = (*own, *USUAL) if gpus is None else gpus
    return tuple(dict.fromkeys(catalogues.gpu_name(gpu) for gpu in asked))


def _tp_typed(scenario: Scenario) -> tuple[bool, ...]:
    return tuple(bool(workload.tp) for workload in scenario.workload)


def gpu_types(text: str, catalogues: Catalogues) -> tuple[str, ...]:
    """Catalogue names of types that are listed with commas. ValueError on an unknown name."""
    types = []
    for part in text.split(","):
        if part.strip():
            types.append(gpu_type(part.strip(), catalogues))
    return tuple(types)


def gpu_type(text: str, catalogues: Catalogues) -> str:
    """The catalogue name of a type; of a name that several have, such as H100, the usual one. ValueError on an unknown
    name."""
    try:
        return catalogues.gpus.find(text).name
    except ValueError:
        usual = []
        for name in USUAL:
            if name.split()[0].casefold() == text.casefold():
                usual.append(name)
        if len(usual) != 1:
            raise
        return catalogues.gpu_name(usual[0])


def on_gpu(scenario: Scenario, own: Server | None, gpu: str) -> Scenario:
    """The scenario on servers of the same size with one type of GPU; what was typed for another type is open."""
    if own is not None and own.gpu == gpu:
        return msgspec.structs.replace(scenario, server=(own,))
    if own is None:
        shape = Server(gpu)
    else:
        shape = Server(gpu, own.gpus, own.nvlink_gpus, price_per_hour=own.price_per_hour)
    return msgspec.structs.replace(scenario, server=(shape,), workload=tuple(map(_opened, scenario.workload)))


def _opened(workload: Workload) -> Workload:
    """Without what holds on one type alone; the very same one where nothing of that was typed."""
    if all(getattr(workload, name) is None for name in _OPEN):
        return workload
    return msgspec.structs.replace(workload, **_OPEN)


def _on(
    scenario: Scenario, catalogues: Catalogues, shape: Server, gpu: str, before: DetailedPlan | None
) -> DetailedPlan:
    """The plan on servers with one type of GPU, at the watts of its board."""
    like = shape
    for server in reversed(scenario.server):
        if server.gpu == gpu:
            like = server
    like = msgspec.structs.replace(like, gpus=shape.gpus, nvlink_gpus=shape.nvlink_gpus, count=0)
    alone = on_gpu(scenario, like, gpu)
    server = msgspec.structs.replace(alone.server[0], gpu_power_w=_limit_w(gpu, catalogues))
    alone = msgspec.structs.replace(alone, server=(server,))
    return detailed_plan(alone, catalogues, before=before, any_tp=True)


def _at_limits(answer: Answer) -> Answer:
    """The answer with watts that are called what they are: the boards' limit, which nobody typed."""
    return msgspec.structs.replace(answer, workloads=tuple(map(_at_limit, answer.workloads)))


def _limit_w(gpu: str, catalogues: Catalogues) -> float | None:
    """Power limit of a board; None where it is not known."""
    try:
        return catalogues.gpus.find(gpu).tdp_w or None
    except ValueError:
        return None


def _at_limit(row: WorkloadPlan) -> WorkloadPlan:
    if row.power_source == "typed":
        return msgspec.structs.replace(row, power_source="limit")
    return row


def _without(plans: Iterable[DetailedPlan]) -> tuple[str, ...]:
    """Workloads that have no answer on any type, where others have one."""
    without = {on_type.answer.without for on_type in plans}
    if len(without) == 1:
        return without.pop()
    return ()


def _row(gpu: str, answer: Answer, without: tuple[str, ...], *, as_planned: bool = False) -> Compared:
    """The answer on one type; where the same workloads have none on any type, that of the others."""
    if without:
        return Compared(gpu, answer.totals_without, answer.workloads, as_planned=as_planned)
    problem = answer.problem
    if not problem and isinstance(answer.totals.instances, Missing):
        problem = "no answer"
    return Compared(gpu, answer.totals, answer.workloads, problem=problem, as_planned=as_planned)


def _as_planned(answer: Answer, own: Sequence[str], without: tuple[str, ...]) -> Compared | None:
    """The row of the plan itself; None where no server is given or it has no answer."""
    if not own or answer.without != without:
        return None
    row = _row(" + ".join(own), answer, without, as_planned=True)
    return None if row.problem else row


def _differs(now: Compared, row: Compared) -> bool:
    """Whether the plan itself takes another TP, or another number of GPUs or servers, than its type comes to."""
    if (now.totals.gpus, now.totals.servers) != (row.totals.gpus, row.totals.servers):
        return True
    return _tensor_parallels(now) != _tensor_parallels(row)


def _tensor_parallels(row: Compared) -> list[int]:
    return [workload.tp for workload in row.workloads]


def _has(figure: ComparedFigure, row: Compared) -> bool:
    """Whether a row has a figure; of figures of workloads whether one of them has it. A TP of 0 is not known."""
    if not figure.of_workload:
        return not isinstance(getattr(row.totals, figure.key), Missing)
    for workload in row.workloads:
        value = getattr(workload, figure.key)
        if not isinstance(value, Missing) and bool(value):
            return True
    return False


def _best(rows: Sequence[Compared]) -> list[tuple[str, ...]]:
    """For each row the columns in which no other is better; none of a column in which all are the same."""
    marks: list[tuple[str, ...]] = [()] * len(rows)
    for figure in COMPARISON_FIGURES:
        if not figure.best:
            continue
        values = _known_values(rows, figure.key)
        if len(values) < 2 or _alike(min(values.values()), max(values.values())):
            continue
        if figure.rises:
            top = max(values.values())
        else:
            top = min(values.values())
        for index, value in values.items():
            if _alike(value, top):
                marks[index] += (figure.key,)
    return marks


def _known_values(rows: Sequence[Compared], key: str) -> dict[int, float]:
    """Index of a row -> its figure, of the rows without a problem that have it."""
    values = {}
    for index, row in enumerate(rows):
        if row.problem:
            value = None
        else:
            value = number(getattr(row.totals, key))
        if value is not None and math.isfinite(value):
            values[index] = value
    return values


def _alike(value: float, other: float) -> bool:
    return abs(value - other) <= _SAME * max(abs(value), abs(other))
