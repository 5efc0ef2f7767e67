"""Answer of the sizing: capacity of an instance, instances, GPUs, servers, cost; each with its source."""

from __future__ import annotations

from enum import Enum

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.accuracy import NO_BAND, NOT_MEASURED, Band

NOT_KNOWN = Missing(Reason.NOT_EXPOSED)
"""A figure that nothing tells."""
NOT_GIVEN = Missing(Reason.NOT_GIVEN)
"""A figure that follows from something that nobody gave."""


class Source(str, Enum):
    """Source of the capacity of an instance."""

    MEASURED = "measured"
    """A fit of what an engine here was seen to do."""
    SWEEP = "sweep"
    """An imported load test."""
    RESCALED = "rescaled"
    """Measured on another GPU, mix or precision; its physical part scaled."""
    ROOFLINE = "roofline"
    """From dimensions and peaks alone."""
    TYPED = "typed"
    NONE = "none"


class Basis(str, Enum):
    """Source of the figure that a latency goal is held against."""

    MEASURED = "measured"
    """p95 over mean as measured."""
    TYPED = "typed"
    """p95 over mean as typed."""
    SIMULATED = "simulated"
    """p95 of simulated requests."""
    PENDING = "simulating"
    """The simulation is under way: until it ends, the mean stands for the p95."""
    MEAN = "mean"
    """The goal is one of a mean."""
    MEAN_ONLY = "mean only"
    """The mean stands for the p95: nobody measured that, and it cannot be simulated."""
    UNKNOWN = "unknown"
    """Nothing tells that latency, or only an estimate that does not decide."""


class LimitKind(str, Enum):
    """Limit of the requests in flight of one instance."""

    KV = "KV"
    """Tokens that the KV cache holds."""
    TPOT = "TPOT"
    """The mean time between the tokens of a request, its p95."""
    ITL = "ITL"
    """The gaps between two tokens, their p95."""
    ITL_MEAN = "ITL mean"
    TTFT = "TTFT"
    E2E = "E2E"
    PREFILL = "prefill"
    """The prompts of more requests cannot be computed."""
    MAX_NUM_SEQS = "max_num_seqs"
    """The engine's own limit."""
    TYPED = "typed"
    KNEE = "knee"
    """Load at which a sweep's throughput stopped following."""
    RANGE = "range"
    """The end of what a sweep measured."""


class Limit(msgspec.Struct, frozen=True):
    """One bound of one instance."""

    kind: LimitKind
    concurrency: float
    """Requests in flight of one instance; fractions are cut off when planning."""
    text: str
    """With figures, e.g. `KV holds 419,430 tokens, 5,500 a request`."""


class JudgedGoal(msgspec.Struct, frozen=True):
    """A latency goal, and the figure at the target that it judges."""

    name: str
    """TPOT p95, ITL p95, ITL mean, TTFT p95 or E2E p95."""
    goal_s: float
    value_s: Reading
    """Latency of one instance at its share of the target; where `basis` says so, the mean."""
    basis: Basis
    is_least: bool = False
    """Whether it is longer than `value_s`: an E2E of which the TTFT is not known."""


class Degraded(msgspec.Struct, frozen=True):
    """One instance, or one server, is gone and the rest carries its load."""

    lost: str
    """The thing that is gone: `instance` or `server`."""
    instances: int
    """Instances that are left."""
    running: Reading = NOT_KNOWN
    """Requests in flight of each that is left."""
    itl_s: Reading = NOT_KNOWN
    ttft_s: Reading = NOT_KNOWN
    text: str = ""
    """Its meaning: within the goals, the goal that is missed, or that requests queue."""
    itl_p95_s: Reading = NOT_GIVEN
    """Missing unless p95 / mean is known; that of the TTFT only while no request queues."""
    ttft_p95_s: Reading = NOT_GIVEN


class OnGpu(msgspec.Struct, frozen=True):
    """The instances of a workload that stand on one type of GPU."""

    gpu: str
    instances: int
    """Spares included."""
    gpus: int
    """GPUs that hold one of them."""
    gpus_per_instance: int
    tp: int
    capacity_per_instance: float
    """Requests in flight that one of them is planned with."""
    limit: str
    """The bound that holds first there."""
    pp: int = 1
    dp: int = 1


class Alternative(msgspec.Struct, frozen=True):
    """The best layout of another kind than the planned one: beyond one domain, with stages, or with ranks."""

    layout: str
    """In words, as `TP 8 x PP 2`."""
    gpus: int
    """GPUs of all instances, spares included."""
    instances: int
    gpus_per_instance: int
    capacity_per_instance: float
    """Requests in flight that one instance is planned with."""
    limit: str
    """The bound that holds first."""
    is_bound: bool = False
    """Whether it takes at least so many GPUs: its p95 were not worked out, as others take fewer anyway."""


class PoolPlan(msgspec.Struct, frozen=True):
    """The instances of a prefill or a decode pool."""

    instances: int
    """Spares included."""
    gpus: int
    tp: int
    dp: int
    requests_per_s: Reading = NOT_GIVEN
    """Requests per second that one instance is planned with."""
    running: Reading = NOT_GIVEN
    """Requests in flight that a decode instance is planned with."""
    pp: int = 1


class DisaggregatedPlan(msgspec.Struct, frozen=True):
    """Prefill and decode on pools of their own for the same target; the totals do not have it."""

    prefill: PoolPlan | None = None
    decode: PoolPlan | None = None
    gpus: Reading = NOT_GIVEN
    """GPUs of both pools, spares included."""
    aggregated_gpus: Reading = NOT_GIVEN
    """The plan beside it, on GPUs of the same type."""
    saving_ratio: Reading = NOT_GIVEN
    """Share of these GPUs that the pools need less; negative: more."""
    requests_per_s: Reading = NOT_GIVEN
    """Requests per second at the target."""
    tokens_per_s_per_gpu: Reading = NOT_GIVEN
    """Output tokens per second that the pools carry as planned, for each of their GPUs without spares."""
    aggregated_tokens_per_s_per_gpu: Reading = NOT_GIVEN
    """Tokens per second and GPU of an aggregated instance."""
    ttft_s: Reading = NOT_GIVEN
    """Mean at the target: queue, prompt and transfer."""
    itl_s: Reading = NOT_GIVEN
    """Mean at the load that decode instances are planned with."""
    transfer_bytes: Reading = NOT_GIVEN
    """KV cache of one prompt."""
    transfer_s: Reading = NOT_GIVEN
    """Time that it takes from one pool to the other."""
    text: str = ""
    """Both pools and what they save, or why there is no such plan."""
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why there is no such plan."""


class RunsP95(msgspec.Struct, frozen=True):
    """The p95 of a latency of engines that run, beside that of the plan at their load."""

    name: str
    """TPOT p95, ITL p95, TTFT p95 or E2E p95."""
    value_s: Reading = NOT_KNOWN
    """As measured: of several engines the longest."""
    predicted_s: Reading = NOT_GIVEN
    """By the plan; not given where nobody measured or simulated the p95 of its instance."""
    low_s: Reading = NOT_KNOWN
    """Lower bound of the histogram's bucket that the measured p95 fell in; of a mean over minutes the mean of those."""
    high_s: Reading = NOT_KNOWN
    """Upper bound of that bucket. The last bucket has none (`invalid`): `value_s` is a least value."""


class Runs(msgspec.Struct, frozen=True):
    """Engines that serve the model of a workload: of a moment, or means over some minutes."""

    instances: int
    """0: none that answers."""
    gpus: Reading
    concurrency: Reading = NOT_KNOWN
    """Requests in flight, all of them that are told."""
    waiting: Reading = NOT_KNOWN
    """Requests in flight that wait in the queues of the engines; not known where one of these does not tell."""
    itl_s: Reading = NOT_KNOWN
    """Mean, as measured."""
    ttft_s: Reading = NOT_KNOWN
    itl_predicted_s: Reading = NOT_KNOWN
    """Mean by the plan at the load of each that runs, not at the planned one."""
    ttft_predicted_s: Reading = NOT_KNOWN
    as_planned: bool = True
    """Whether they have the planned GPU, layout and precision, as far as that is known: else nothing is predicted."""
    p95: tuple[RunsP95, ...] = ()
    """The p95 that goals judge; without such goals those that are measured."""
    is_least: bool = False
    """Whether more than `concurrency` may be in flight: an engine does not tell what it runs, or its queue."""


class GpuRange(msgspec.Struct, frozen=True):
    """Plans at both ends of an error band: too few loads were measured for one number."""

    low: Reading
    """GPUs if all latencies are at the fast end of their bands."""
    high: Reading
    """GPUs if they are at the slow end; missing where no number is enough there."""
    servers_low: Reading
    """Servers at the fast end."""
    servers_high: Reading
    """Servers at the slow end; missing where no number is enough there."""
    reason: str
    """Why: `measured at one load only`."""


class WorkloadPlan(msgspec.Struct, frozen=True):
    """The answer for one workload. Counts are 0 only where `problem` says why."""

    name: str
    model: str
    target: float
    target_kind: str
    concurrency: Reading
    """Requests in flight that the target comes to."""
    capacity_per_instance: Reading
    """Requests in flight that one instance is planned with; the planning factor is in it where it applies."""
    instances: Reading
    """Spares included."""
    gpus: Reading
    """GPUs that hold an instance of it, in the plan that is needed."""
    limit: str
    """The bound that holds first (`LimitKind`), empty where there is none."""
    next_limit: str
    limits: tuple[Limit, ...]
    """All limits, the one that holds first in front."""
    source: Source
    band: Band
    """Errors of the ITL that the capacity stands on; null where it was typed, or no reference row is like it."""
    extrapolated: bool
    """The planned point lies beyond the largest load that was measured."""
    gpus_per_instance: int
    tp: int
    pp: int
    spares: int
    memory_bytes: Reading
    """Memory of one instance."""
    memory_source: str
    """seen, typed, table, model (weights, KV cache and overhead), or rule (2.1 GB per 1e9 parameters)."""
    busy_ratio: Reading
    running: Reading
    """Requests in flight of each instance at the target."""
    itl_s: Reading
    """Mean at that load."""
    ttft_s: Reading
    e2e_s: Reading
    tokens_per_s: Reading
    """Output tokens of all its instances at the target."""
    requests_per_s: Reading
    power_w: Reading
    """Watts of the GPUs of all its instances."""
    power_source: str = ""
    """typed, seen, or limit (the board's limit: at most that much)."""
    degraded: tuple[Degraded, ...] = ()
    notes: tuple[str, ...] = ()
    """Conditions that the figures hold under."""
    problem: str = ""
    """Why there is no answer: what, and what would help."""
    itl_p95_s: Reading = NOT_GIVEN
    """At the target, where p95 / mean is known."""
    ttft_p95_s: Reading = NOT_GIVEN
    seen_name: str = ""
    """Engine or profile that it was calibrated by."""
    seen_time: str = ""
    ttft_band: Band = NO_BAND
    """Errors of the TTFT; null where it was typed, or no reference row is like it."""
    dp: int = 1
    """Data-parallel ranks of an instance: each has the attention for itself, the experts are spread over all."""
    disaggregated: DisaggregatedPlan | None = None
    """Present if it was asked for."""
    tokens_per_step: float = 1.0
    """Tokens per step and sequence: above 1 with speculative decoding."""
    ttft_basis: str = ""
    """Basis of the TTFT: a fit, a formula scaled to a load, an estimate, or a typed value."""
    servers: Reading = NOT_KNOWN
    """Servers that hold an instance of it, in the plan that is needed. One that several workloads share counts for each
    of them, so that the sum may be more than the total; spare servers count for none."""
    servers_shared: Reading = NOT_KNOWN
    """Servers among them that hold instances of other workloads, too."""
    runs: Runs | None = None
    """Instances of it that run; present if that was asked for."""
    on: tuple[OnGpu, ...] = ()
    """Places of its instances, by type of GPU; the capacity, TP, limits and source of the plan are those of the type
    that most of them stand on. Empty where there is no answer."""
    goals: tuple[JudgedGoal, ...] = ()
    """Its latency goals, each with the figure that it judges. Empty where there is no answer."""
    layout: str = ""
    """How an instance is split over its GPUs, as `TP 8 x PP 2`; empty where that is not known."""
    alternatives: tuple[Alternative, ...] = ()
    """The best layouts of other kinds, the fewest GPUs first."""
    searched: str = ""
    """Layouts among which this one takes the fewest GPUs, as `TP 1 to 16, PP 2 to 8: 8 layouts`; empty where none were
    tried: it was typed or measured. Others may take fewer."""
    network: str = ""
    """Network between the servers of an instance; empty where it stands in one."""
    gpus_range: GpuRange | None = None
    """Present where too few loads were measured for one number of GPUs, and the ends of the band differ."""
    pool: str = ""
    """The pool that it is, prefill or decode; empty where instances do both. Target, rate and TTFT are those of the
    whole workload; output tokens are counted at the decode pool."""

    @property
    def errors_text(self) -> str:
        """The errors of the ITL in words; empty where it was typed, or nothing predicts it."""
        if self.band or self.source not in (Source.ROOFLINE, Source.RESCALED):
            return self.band.text
        return NOT_MEASURED

    @property
    def errors_short(self) -> str:
        """The same in a few cells."""
        if self.band or self.source not in (Source.ROOFLINE, Source.RESCALED):
            return self.band.short
        return "2x either way"


class GpuSlot(msgspec.Struct, frozen=True):
    """One GPU of a placed server: indices of the workloads whose instances are on it, one entry per instance."""

    workloads: tuple[int, ...] = ()
    memory_bytes: float = 0.0
    """Memory that the instances take."""
    busy_ratio: float = 0.0
    group: int = -1
    """Instance over several GPUs: GPUs of one server with the same number belong together."""


class PlacedServer(msgspec.Struct, frozen=True):
    """One server with what stands on its GPUs."""

    shape: int
    """Index in `Scenario.server`."""
    gpus: tuple[GpuSlot, ...]


class GpuCount(msgspec.Struct, frozen=True):
    """How much of one type of GPU a packing takes."""

    gpu: str
    gpus: int
    """GPUs with at least one instance."""
    servers: int
    """Spare servers included."""


class Packed(msgspec.Struct, frozen=True):
    """Instances on servers, by one packing rule."""

    instances: Reading
    gpus: Reading
    """GPUs with at least one instance."""
    servers: Reading
    """Spare servers included."""
    memory_bytes: Reading
    """Memory of the instances."""
    price_per_hour: Reading
    servers_least: Reading
    """Lower bound of `servers`: the same number means that the placement is optimal. Not given for servers with several
    types of GPU."""
    layout: tuple[PlacedServer, ...] = ()
    problem: str = ""
    spare_servers: int = 0
    """Servers among `servers` on which nothing stands."""
    spare_shape: int = 0
    """Index in `Scenario.server` of what they are."""
    by_gpu: tuple[GpuCount, ...] = ()
    """GPUs and servers by type of GPU, in the order of the servers; empty where there is no answer."""
    saving_per_hour: Reading = 0.0
    """Money that filling the servers in their order would cost more; 0 where they are filled so."""


class Totals(msgspec.Struct, frozen=True):
    """Sums over the workloads, of the plan that is needed; missing where one of them is missing."""

    instances: Reading
    gpus: Reading
    servers: Reading
    memory_bytes: Reading
    price_per_hour: Reading
    power_w: Reading
    tokens_per_s: Reading
    price_per_mtok: Reading
    """Per 1e6 output tokens at the planned load."""
    tokens_per_j: Reading


NONE_LEFT_OUT = Totals(*[NOT_GIVEN] * 9)
"""Sums without some workloads, where there is no need for them."""


class Plans(msgspec.Struct, frozen=True):
    """Both packings: by memory alone, and by memory and busy share."""

    memory_only: Packed
    busy_aware: Packed


class Have(msgspec.Struct, frozen=True):
    """GPUs that are here now, against those that are needed."""

    gpus: int
    gpu: str
    """Type of these GPUs; empty where there are several or none."""
    short_gpus: Reading
    """GPUs that are needed but not here; negative: GPUs to spare."""
    saving_per_hour: Reading
    """Money that the same traffic would not need."""
    text: str


class Compared(msgspec.Struct, frozen=True):
    """The same question on servers of the same size with one type of GPU, as many as it takes."""

    gpu: str
    """Its name in the catalogue; of a plan over several types all names, with plus signs."""
    totals: Totals
    workloads: tuple[WorkloadPlan, ...]
    best: tuple[str, ...] = ()
    """Fields of the totals in which no other type is better. Empty where all are the same."""
    problem: str = ""
    """Why there is no answer on this type."""
    as_planned: bool = False
    """Whether it is the plan itself, with its servers, its TP and its watts, which no other row is compared with."""
    pooled: bool = False
    """Whether workloads that ask for it have prefill and decode on pools of their own."""


class Answer(msgspec.Struct, frozen=True):
    """The whole answer."""

    name: str
    packing: str
    workloads: tuple[WorkloadPlan, ...]
    totals: Totals
    plans: Plans
    warnings: tuple[str, ...] = ()
    problem: str = ""
    """The first workload's or placement's problem: there is no whole answer then."""
    have: Have | None = None
    without: tuple[str, ...] = ()
    """Names of the workloads that have no answer, where others have one."""
    totals_without: Totals = NONE_LEFT_OUT
    """Sums over those others, packed without them; `totals` are missing then. Not given where `without` is empty."""
    compared: tuple[Compared, ...] = ()
    """The same question on other types of GPU, where it was asked for; TP is searched on each unless it was typed."""
    gpus_range: GpuRange | None = None
    """Range of the totals' GPUs and servers: present where a workload has one, and its ends differ."""

    @property
    def power_sources(self) -> frozenset[str]:
        """Sources of the watts of the totals: some of typed, seen and limit."""
        known = (plan for plan in self.workloads if not plan.problem and not isinstance(plan.power_w, Missing))
        return frozenset(plan.power_source for plan in known)
