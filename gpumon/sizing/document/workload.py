"""A workload of a plan in words: capacity and its source, limits, load at the target, goals, and what a loss leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.accuracy import NOT_MEASURED
from gpumon.sizing.answer import NOT_KNOWN, Degraded, DisaggregatedPlan, Limit, Source, WorkloadPlan
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.document.forms import (
    count_text,
    figure_text,
    gigabytes,
    join_known,
    printable_name,
    printable_text,
    seconds_text,
    watts,
    with_words,
)
from gpumon.sizing.document.plan import POWER_SOURCES, range_reason
from gpumon.sizing.document.row import Row
from gpumon.sizing.goals import goal_text
from gpumon.sizing.ranges import range_text
from gpumon.sizing.running import runs_text

SOURCE_WORDS: Final = {
    Source.MEASURED: "measured",
    Source.SWEEP: "sweep",
    Source.RESCALED: "re-scaled",
    Source.ROOFLINE: "roofline",
    Source.TYPED: "typed",
    Source.NONE: "",
}
"""Source of a capacity -> its words."""


class WorkloadDocument(NamedTuple):
    """The words for one workload. Rows without a text have nothing to say."""

    name: str
    problem: Row
    """Why it has no answer."""
    model: Row
    """The model, if it has another name than the workload."""
    capacity: Row
    """Requests in flight that an instance is planned with, and where that comes from."""
    capacity_source: str
    """The second half of it."""
    gpus_range: Row
    """Why the need is a range."""
    limits: tuple[Row, ...]
    """All limits of an instance, the one that holds first in front."""
    instance: Row
    """GPUs, layout and memory of one instance."""
    memory: str
    """Memory of one instance, and where that is from."""
    searched: Row
    """The layouts among which this one takes the fewest GPUs."""
    load: Row
    """Load and latencies of each instance at the target."""
    together: Row
    """Tokens, requests and watts of all instances at the target."""
    in_flight: str
    """Requests in flight that the target comes to, if it is another figure."""
    goals: Row
    ttft: Row
    """Basis and errors of the TTFT."""
    runs: Row
    """Instances that run beside the plan."""
    disaggregated: tuple[Row, ...]
    """Prefill and decode on pools of their own."""
    degraded: tuple[Row, ...]
    """Instances that are left when one, or a server, is lost."""
    notes: tuple[Row, ...]
    """Conditions that the figures hold under."""

    def rows(self) -> Iterator[Row]:
        """All rows from top to bottom, as a report prints them."""
        together = with_words(self.together.text, f"{self.together.label} ")
        at_the_target = join_known((self.in_flight, self.load.text, together), "; ")
        yield from (self.problem, self.model, self.capacity, self.gpus_range, *self.limits, self.instance)
        yield from (self.searched, Row("at the target", (at_the_target,)), self.goals, self.ttft, self.runs)
        yield from (*self.disaggregated, *self.degraded, *self.notes)


def workload_document(
    plan: WorkloadPlan, planning_factor: float, largest_measured: float | None = None
) -> WorkloadDocument:
    """The words for one workload. `planning_factor`: of the scenario; `largest_measured`: requests in flight of the
    largest load that was measured, where the caller knows."""
    source = _capacity_source(plan, largest_measured)
    seen_at = with_words(clean(plan.seen_time, 40), "seen at ") if _is_of_engine(plan) else ""
    capacity = join_known((_capacity_text(plan, planning_factor), join_known((source, seen_at))), "; ")
    memory = with_words(gigabytes(plan.memory_bytes), behind=with_words(plan.memory_source, " (", ")"))
    return WorkloadDocument(
        name=printable_name(plan.name),
        problem=Row("no answer", (printable_text(plan.problem),)),
        model=Row("model", (printable_text(plan.model),) if plan.model != plan.name else ()),
        capacity=Row("capacity", (capacity,) if plan.source is not Source.NONE else ()),
        capacity_source=source,
        gpus_range=Row("range", _range_basis(plan)),
        limits=tuple(
            Row("" if number else "limits", (_limit_text(limit),)) for number, limit in enumerate(plan.limits)
        ),
        instance=Row("each instance", _instance_parts(plan, memory)),
        memory=memory,
        searched=Row("searched", () if plan.problem else (with_words(plan.searched, behind="; no others were tried"),)),
        load=Row("each", (_running_text(plan), *_latency_texts(plan))),
        together=Row("all together", _together(plan)),
        in_flight=_in_flight(plan),
        goals=Row("goals", tuple(map(goal_text, plan.goals))),
        ttft=Row("", (_ttft_text(plan),)),
        runs=Row("runs", (runs_text(plan, plan.runs),) if plan.runs is not None else ()),
        disaggregated=() if plan.disaggregated is None else tuple(_disaggregated_rows(plan.disaggregated)),
        degraded=tuple(map(_degraded_row, plan.degraded)),
        notes=tuple(Row("note", (printable_text(note),)) for note in plan.notes),
    )


def _capacity_text(plan: WorkloadPlan, factor: float) -> str:
    """Capacity of an instance: `117 in flight each, 80% of the first limit (planning_factor)`; empty if not known."""
    per_instance = with_words(figure_text(plan.capacity_per_instance), behind=" in flight each")
    without_factor = (
        plan.source is Source.TYPED or not plan.limits or plan.limits[0].kind in OPERATING_POINTS or factor == 1.0
    )
    if without_factor or not per_instance:
        return per_instance
    return f"{per_instance}, {factor * 100:.3g}% of the first limit (planning_factor)"


def _is_of_engine(plan: WorkloadPlan) -> bool:
    """Whether the capacity is that of an engine or a profile with a name."""
    return bool(plan.seen_name) and plan.source is not Source.ROOFLINE


def _capacity_source(plan: WorkloadPlan, largest_measured: float | None) -> str:
    """Source of the capacity with its errors: `measured up to 50 on vllm:8000, 128 is extrapolated, -9% to +4% on 141
    reference rows`."""
    source = SOURCE_WORDS[plan.source]
    extrapolated = ""
    if plan.extrapolated:
        source += with_words(figure_text(NOT_KNOWN if largest_measured is None else largest_measured), " up to ")
        extrapolated = with_words(figure_text(plan.capacity_per_instance), behind=" is extrapolated")
    if _is_of_engine(plan):
        source += f" on {printable_name(plan.seen_name)}"
    return join_known((source, extrapolated, plan.errors_text))


def _range_basis(plan: WorkloadPlan) -> tuple[str, ...]:
    """The range of GPUs of a workload, and why it is one; nothing for one number."""
    gpus_range = plan.gpus_range
    if gpus_range is None:
        return ()
    ends = f"{range_text(gpus_range.low, gpus_range.high)} GPUs"
    return (f"{ends}, {range_reason(gpus_range, [count_text(plan.gpus, 'GPU')])}",)


def _limit_text(limit: Limit) -> str:
    """A limit in words: `61.1 in flight, KV: the KV cache holds 441,347 tokens, 6,500 a request`."""
    kind = limit.kind.value
    in_flight = f"{figure_text(limit.concurrency)} in flight"
    text = printable_text(limit.text).removeprefix(f"{kind}: ")
    if text.startswith(f"{kind} "):
        return f"{in_flight}: {text}"
    return f"{in_flight}, {kind}: {text}"


def _instance_parts(plan: WorkloadPlan, memory: str) -> tuple[str, ...]:
    """GPUs, layout, memory, busy share and spares of the instances."""
    gpus = count_text(float(plan.gpus_per_instance), "GPU") if plan.gpus_per_instance else ""
    layout = ""
    if plan.gpus_per_instance > 1:
        layout = f"{plan.layout}{with_words(printable_text(plan.network), ' over ')}"
    busy = "" if isinstance(plan.busy_ratio, Missing) else f"busy {plan.busy_ratio * 100:.3g}%"
    return (gpus, layout, memory, busy, f"{plan.spares} spare" if plan.spares else "")


def _running_text(plan: WorkloadPlan | Degraded) -> str:
    """Requests in flight of each instance. Instances on different types of GPU run different loads."""
    is_average = isinstance(plan, WorkloadPlan) and len(plan.on) > 1
    return with_words(figure_text(plan.running), behind=" running each on average" if is_average else " running each")


def _latency_texts(plan: WorkloadPlan | Degraded) -> Iterator[str]:
    """Latencies at the load of each instance: `ITL mean 31ms p95 45ms`; those that are known."""
    for name, key in (("ITL", "itl"), ("TTFT", "ttft"), ("E2E", "e2e")):
        mean: Reading = getattr(plan, f"{key}_s", NOT_KNOWN)  # an instance less has no E2E, and E2E no p95
        p95: Reading = getattr(plan, f"{key}_p95_s", NOT_KNOWN)
        is_least = name == "E2E" and isinstance(plan.ttft_s, Missing) and not isinstance(plan.itl_s, Missing)
        least = "at least " if is_least else ""  # the time of its tokens alone
        yield with_words(seconds_text(mean), f"{name} mean {least}", with_words(seconds_text(p95), " p95 "))


def _together(plan: WorkloadPlan) -> tuple[str, ...]:
    """Figures of a workload that are sums over its instances."""
    source = with_words(POWER_SOURCES.get(plan.power_source, ""), " (", ")")
    return (
        with_words(figure_text(plan.tokens_per_s), behind=" tok/s"),
        with_words(figure_text(plan.requests_per_s), behind=" req/s"),
        with_words(watts(plan.power_w), behind=source),
    )


def _in_flight(plan: WorkloadPlan) -> str:
    """Requests in flight of a target of another kind; else they are the target."""
    if plan.target_kind == "concurrency":
        return ""
    return with_words(figure_text(plan.concurrency), behind=" in flight")


def _ttft_text(plan: WorkloadPlan) -> str:
    """Basis of the TTFT and its error band; of an estimate without one, that it was not measured."""
    if not plan.ttft_basis:
        return ""
    is_estimate = plan.ttft_basis.startswith("estimate")
    errors = NOT_MEASURED if is_estimate and not plan.ttft_band else plan.ttft_band.text
    return f"TTFT: {join_known((plan.ttft_basis, errors))}"


def _disaggregated_rows(split: DisaggregatedPlan) -> Iterator[Row]:
    """Prefill and decode on pools of their own, beside the plan above."""
    if split.problem:
        yield Row("disaggregated", (printable_text(split.text),))
        return
    yield Row("disaggregated", (f"{printable_text(split.text)}; not measured",))
    aggregated = with_words(figure_text(split.aggregated_tokens_per_s_per_gpu), " (aggregated ", ")")
    figures = (
        with_words(figure_text(split.tokens_per_s_per_gpu), behind=f" tok/s per GPU{aggregated}"),
        with_words(seconds_text(split.ttft_s), "TTFT mean "),
        with_words(seconds_text(split.itl_s), "ITL mean "),
    )
    transfer = with_words(gigabytes(split.transfer_bytes), "KV ", " per request")
    in_time = with_words(seconds_text(split.transfer_s), " in ")
    yield Row("", (join_known((join_known(figures), f"{transfer}{in_time}"), "; "),))
    yield Row("", (printable_text("; ".join(split.notes)),))


def _degraded_row(case: Degraded) -> Row:
    """Instances that are left when an instance or a server is gone, with their figures."""
    running = "" if case.text else _running_text(case)  # the text has the load of each instance in it
    left = f"{case.instances:,} left" if case.instances else ""
    figures = join_known((left, running, *_latency_texts(case)))
    return Row(f"one {clean(case.lost, 20)} lost", (join_known((figures, printable_text(case.text)), ": "),))
