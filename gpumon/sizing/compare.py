"""The same question on one type of GPU after the other, like for like, with marks of the best figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, number
from gpumon.sizing.answer import Answer, Compared
from gpumon.sizing.goals import TOKEN_GOALS, first_judged
from gpumon.sizing.plan import DetailedPlan, detailed_plan, plan, with_server
from gpumon.sizing.pooled_plan import has_pools, pooled_plan
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload

USUAL: Final = ("L40S", "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB")
"""Types that most people ask about, by their names in the catalogue."""
_OF_ONE_TYPE: Final[dict[str, Any]] = dict.fromkeys(
    ("capacity_per_instance", "memory_gb", "busy_ratio", "kv_pool_tokens", "prefill_tokens_per_s")
)
"""Fields of a workload that hold on the GPU that they were typed for alone, each with None: not typed."""
_SAME_SHARE: Final = 0.005
"""Share by which two figures may differ and still count as the same."""


class ComparedFigure(NamedTuple):
    """A column of the comparison."""

    key: str
    """Field of the totals, or of the plan of a workload (`of_workload`)."""
    title: str
    keep: int
    """Columns with the lower number leave first where there is no room."""
    best: str = ""
    """Name of the best value; empty where no value is better than another."""
    rises: bool = False
    """Whether more of it is better."""
    of_workload: bool = False
    """Whether each workload has a value of its own."""


COMPARISON_FIGURES: Final = (
    ComparedFigure("layout", "TP", keep=11, of_workload=True),
    ComparedFigure("instances", "inst", keep=9),
    ComparedFigure("gpus", "GPUs", keep=12, best="fewest GPUs"),
    ComparedFigure("servers", "servers", keep=2),
    ComparedFigure("price_per_hour", "$/h", keep=10, best="cheapest"),
    ComparedFigure("price_per_mtok", "$/1M tok", keep=7, best="cheapest token"),
    ComparedFigure("itl_s", "ITL mean", keep=6, of_workload=True),
    ComparedFigure("limit", "limit", keep=8, of_workload=True),
    ComparedFigure("power_w", "max power", keep=5, best="least power"),
    ComparedFigure("tokens_per_j", "tok/J", keep=4, best="most tokens/J", rises=True),
    ComparedFigure("source", "from", keep=3, of_workload=True),
)
"""Columns of the comparison in the order of the table, on the screen and in text."""


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
        """The columns that have a figure in some row; that of the time per token with the figure that a goal judges."""
        rows = self._rows_with_answer
        figures = []
        for figure in COMPARISON_FIGURES:
            if any(_has_figure(figure, row) for row in rows):
                title = self.token_goal if figure.key == "itl_s" else ""
                figures.append(figure._replace(title=title or figure.title))
        return tuple(figures)

    @property
    def token_goal(self) -> str:
        """Name of the goal for the time per token whose figure is compared; empty: the mean ITL is."""
        return first_judged(TOKEN_GOALS, [plan for row in self._rows_with_answer for plan in row.workloads])

    @property
    def _rows_with_answer(self) -> list[Compared]:
        """The rows that have an answer."""
        return [row for row in self.rows if not row.problem]

    @property
    def like_for_like(self) -> str:
        """Terms that all rows have in common."""
        tp = "of the fewest GPUs"
        if any(self.tp_typed):
            tp = "as typed" if all(self.tp_typed) else "as typed, else of the fewest GPUs"
        return f"same servers; TP {tp} on each type; power: the boards' limits"

    @property
    def unpriced(self) -> bool:
        """Whether no row has a price, though some row has an answer."""
        rows = self._rows_with_answer
        return bool(rows) and all(isinstance(row.totals.price_per_hour, Missing) for row in rows)

    @property
    def best(self) -> tuple[str, ...]:
        """Names of the best values that are marked in some row."""
        marked_keys = {key for row in self.rows for key in row.best}
        return tuple(figure.best for figure in COMPARISON_FIGURES if figure.key in marked_keys)


def compare(
    scenario: Scenario,
    catalogues: Catalogues,
    gpus: Sequence[str] | None = None,
    planned: Answer | None = None,
    before: Comparison | None = None,
    *,
    with_pools: bool = False,
) -> Comparison:
    """The answers on servers of the same size with each type of GPU, as many as it takes; by default the scenario's own
    types first and then the usual ones.

    Like for like: a TP that was typed is held on every type; else each type has the TP that takes the fewest GPUs,
    also the type that runs now. The power is the boards' limit on every type. Where the plan itself differs from the
    row of its type for these reasons, it is the first row (`planned`: that plan, if it was made already). Typed
    capacities, memory and busy shares hold on the type that they were typed for; on others formulas decide. Workloads
    that did not change since the comparison `before` are not worked out anew. `with_pools`: each type has a second row,
    in which workloads that ask for it have prefill and decode on pools of their own.
    """
    scenario = with_server(scenario, catalogues)
    shape = scenario.server[0] if scenario.server else Server("")
    own_gpus = scenario.gpu_types
    earlier_plans: Mapping[str, DetailedPlan] = before.plans if before is not None else {}
    plans = {}
    types = (*own_gpus, *USUAL) if gpus is None else gpus
    for gpu in dict.fromkeys(map(catalogues.gpu_name, types)):
        on_type = _scenario_on_type(scenario, catalogues, shape, gpu)
        plans[gpu] = detailed_plan(on_type, catalogues, before=earlier_plans.get(gpu), any_tp=True)
    without = _unanswered(plans.values())
    pooled = {}
    if with_pools and has_pools(scenario) and not without:
        for gpu, plan_on_type in plans.items():
            pooled[gpu] = pooled_plan(plan_on_type.scenario, catalogues).answer
    rows = _rows(plans, pooled, without)
    planned_row = _planned_row(planned or plan(scenario, catalogues), own_gpus, without)
    if planned_row is not None and _is_row_of_its_own(planned_row, rows):
        rows.insert(0, planned_row)
    return Comparison(tuple(rows), without, _tp_typed(scenario), plans)


def _rows(plans: Mapping[str, DetailedPlan], pooled: Mapping[str, Answer], without: tuple[str, ...]) -> list[Compared]:
    """A row for each type, and one with pools where there is such a plan, with the best values marked."""
    rows = []
    for gpu, plan_on_type in plans.items():
        rows.append(_row(gpu, _with_limits_as_source(plan_on_type.answer), without))
        if gpu in pooled:
            row = _row(gpu, _with_limits_as_source(pooled[gpu]), ())
            rows.append(msgspec.structs.replace(row, pooled=True))
    return [msgspec.structs.replace(row, best=best) for row, best in zip(rows, _best_marks(rows), strict=True)]


def _is_row_of_its_own(planned_row: Compared, rows: Sequence[Compared]) -> bool:
    """Whether the plan itself is to have a row: its type has none, or one with another TP, or another number of GPUs or
    servers."""
    same_type = (row for row in rows if row.gpu == planned_row.gpu and not row.pooled)
    return all(_takes(row) != _takes(planned_row) for row in same_type)


def _tp_typed(scenario: Scenario) -> tuple[bool, ...]:
    """Whether the TP of each workload was typed."""
    return tuple(bool(workload.tp) for workload in scenario.workload)


def gpu_types(text: str, catalogues: Catalogues) -> tuple[str, ...]:
    """Catalogue names of types that are listed with commas. ValueError on an unknown name."""
    return tuple(gpu_type(part.strip(), catalogues) for part in text.split(",") if part.strip())


def type_names_taken(text: str, catalogues: Catalogues) -> tuple[str, ...]:
    """The part that each of the types that are listed with commas was taken for, where that is not its whole name."""
    parts = filter(None, map(str.strip, text.split(",")))
    return tuple(f"{part} is taken for {gpu_type(part, catalogues)}" for part in parts if not catalogues.gpus.has(part))


def gpu_type(text: str, catalogues: Catalogues) -> str:
    """The catalogue name of a type; of a name that several have, such as H100, the usual one. ValueError on an unknown
    name."""
    return catalogues.gpus.find_planned(text).name


def scenario_on_gpu(scenario: Scenario, server: Server | None, gpu: str) -> Scenario:
    """The scenario on servers with one type of GPU, of the size of `server` if there is one.

    On another type than that of `server`, what was typed for its GPUs is as if nobody had typed it.
    """
    if server is not None and server.gpu == gpu:
        return msgspec.structs.replace(scenario, server=(server,))
    if server is None:
        same_size = Server(gpu)
    else:
        same_size = Server(gpu, server.gpus, server.nvlink_gpus, server.network, price_per_hour=server.price_per_hour)
    workloads = tuple(map(_without_typed_figures, scenario.workload))
    return msgspec.structs.replace(scenario, server=(same_size,), workload=workloads)


def _without_typed_figures(workload: Workload) -> Workload:
    """The workload without typed figures of one type of GPU; the very same object where nothing of that was typed, as
    needs are kept by its identity."""
    if all(getattr(workload, name) is None for name in _OF_ONE_TYPE):
        return workload
    return msgspec.structs.replace(workload, **_OF_ONE_TYPE)


def _scenario_on_type(scenario: Scenario, catalogues: Catalogues, shape: Server, gpu: str) -> Scenario:
    """The scenario on servers of the size of `shape` with one type of GPU, at the watts of its board.

    Prices are those of the scenario's first server with this type, if it has one.
    """
    priced = shape
    for server in reversed(scenario.server):
        if server.gpu == gpu:
            priced = server
    resized = msgspec.structs.replace(priced, gpus=shape.gpus, nvlink_gpus=shape.nvlink_gpus, count=0)
    on_type = scenario_on_gpu(scenario, resized, gpu)
    at_limit = msgspec.structs.replace(on_type.server[0], gpu_power_w=_limit_w(gpu, catalogues))
    return msgspec.structs.replace(on_type, server=(at_limit,))


def _with_limits_as_source(answer: Answer) -> Answer:
    """The answer with watts that are called what they are: the boards' limit, which `_scenario_on_type` types."""
    workloads = []
    for workload in answer.workloads:
        if workload.power_source == "typed":
            workload = msgspec.structs.replace(workload, power_source="limit")
        workloads.append(workload)
    return msgspec.structs.replace(answer, workloads=tuple(workloads))


def _limit_w(gpu: str, catalogues: Catalogues) -> float | None:
    """Power limit of a board; None where it is not known."""
    spec = catalogues.gpus.row(gpu)
    return None if spec is None else spec.tdp_w or None


def _unanswered(plans: Iterable[DetailedPlan]) -> tuple[str, ...]:
    """Workloads that have no answer, where others have one, if they are the same on each type; else none."""
    unanswered_sets = {plan_on_type.answer.without for plan_on_type in plans}
    if len(unanswered_sets) == 1:
        return unanswered_sets.pop()
    return ()


def _row(gpu: str, answer: Answer, without: tuple[str, ...], *, as_planned: bool = False) -> Compared:
    """The row of one type. `without`: workloads that have no answer on any type, which its sums leave out."""
    if without:
        return Compared(gpu, answer.totals_without, answer.workloads, as_planned=as_planned)
    problem = answer.problem
    if not problem and isinstance(answer.totals.instances, Missing):
        problem = "no answer"
    return Compared(gpu, answer.totals, answer.workloads, problem=problem, as_planned=as_planned)


def _planned_row(answer: Answer, own_gpus: Sequence[str], without: tuple[str, ...]) -> Compared | None:
    """The row of the plan itself; None where no server is given, it has no answer, or leaves out other workloads."""
    if not own_gpus or answer.without != without:
        return None
    row = _row(" + ".join(own_gpus), answer, without, as_planned=True)
    if row.problem:
        return None
    return row


def _takes(row: Compared) -> tuple[object, ...]:
    """The GPUs and servers of a row, and how an instance of each workload is split over its GPUs."""
    return row.totals.gpus, row.totals.servers, [workload.layout for workload in row.workloads]


def _has_figure(figure: ComparedFigure, row: Compared) -> bool:
    """Whether a row has a figure; of figures of workloads whether one of them has it. A TP of 0 is not known."""
    if not figure.of_workload:
        return not isinstance(getattr(row.totals, figure.key), Missing)
    for workload in row.workloads:
        value = getattr(workload, figure.key)
        if not isinstance(value, Missing) and bool(value):
            return True
    return False


def _best_marks(rows: Sequence[Compared]) -> list[tuple[str, ...]]:
    """For each row the keys of the columns in which no other is better; none of a column in which all are the same."""
    marks: list[tuple[str, ...]] = [()] * len(rows)
    for figure in COMPARISON_FIGURES:
        if not figure.best:
            continue
        values = _known_values(rows, figure.key)
        if len(values) < 2 or _about_equal(min(values.values()), max(values.values())):
            continue
        best_value = max(values.values()) if figure.rises else min(values.values())
        for index, value in values.items():
            if _about_equal(value, best_value):
                marks[index] += (figure.key,)
    return marks


def _known_values(rows: Sequence[Compared], key: str) -> dict[int, float]:
    """Index of a row -> its figure, of the rows without a problem that have it."""
    values = {}
    for index, row in enumerate(rows):
        value = number(getattr(row.totals, key))
        if not row.problem and value is not None and math.isfinite(value):
            values[index] = value
    return values


def _about_equal(value: float, other: float) -> bool:
    """Whether two figures count as the same."""
    return abs(value - other) <= _SAME_SHARE * max(abs(value), abs(other))
