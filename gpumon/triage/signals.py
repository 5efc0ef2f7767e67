"""The case that rules judge: one thing with its figures of now and of the last minutes, and the things around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import requests_that_fit
from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.ratio import mean_known
from gpumon.efficiency.service import BY_NATURE, FRONTENDS, ROUTER_KINDS
from gpumon.readings.engine_options import UNSEEN_COMMAND
from gpumon.readings.format import is_last_bucket
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuProcess, GpuReading, Phase
from gpumon.readings.goals import PROMISED, Goals
from gpumon.readings.missing import NOT_EXPOSED, SILENT_REASONS, Missing, Reading, Reason
from gpumon.readings.process_words import program_and_pid
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Snapshot, WithinGoal
from gpumon.readings.text import clean
from gpumon.readings.verdict import YES as YES
from gpumon.readings.verdict import (
    Action,
    Evidence,
    Family,
    Kind,
    Limit,
    Parameters,
    Signal,
    Verdict,
)
from gpumon.triage.finding import Quantity, Remedy, params, yes_if
from gpumon.triage.samples import KEPT_S, STALLED, Recent
from gpumon.triage.sentences import DRAM_ACTIVE, MBU, MFU, TENSOR_ACTIVE
from gpumon.triage.thresholds import Thresholds

NOW_S: Final = 10.0
"""Length of the window of the rates; the GPUs' own figures are means of it, too."""
MINUTE_S: Final = 60.0
"""Length of the minute over which rates of requests, and figures of GPUs and the host, are judged."""
PINNED_S: Final = 30.0
"""Seconds over which the requests that run, while others wait, are held against the number that may run."""
PINNED_SAMPLES: Final = 5
"""Samples in that time without which a limit that nobody tells cannot be seen."""
PINNED_LEAST: Final = 8.0
"""Running requests below which they stay at one number by chance, or as long prompts take turns; no engine's default
limit is lower."""
FULL_SLOTS: Final = 0.95
"""Share of the slots that are taken on average while requests wait for one, those included that are being handed on."""
FULL_SLOTS_BAND: Final = 0.05
"""How much less that may be while the queue is shown as one of the slots: a poll may hit a moment of change."""
HANDED_ON_STEPS: Final = 2.0
"""Steps for which the slot of a request that ended may be empty: it leaves a step before the next one enters, and where
an engine plans a step ahead, two."""
_LARGEST_FIGURE: Final = 1e21
"""FLOP/s, bytes or tokens beyond which a counter is broken."""
PASSING: Final = frozenset({Reason.WARMING_UP, Reason.RESET, Reason.IDLE, Reason.FEW, *SILENT_REASONS})
"""Reasons that go away, or that another row of the screen explains."""
_FIXES: Final = {
    Reason.UNKNOWN_MODEL: "add_model",
    Reason.NO_GPU: "add_gpus",
    Reason.NO_ENGINE: "add_gpus",
    Reason.UNMAPPED: "add_gpus",
    Reason.NO_CONTEXT: "add_context",
}
"""Why a signal is missing -> code of the fix that gives it (`sentences.FIXES`)."""
TOKEN_TOTALS: Final = ("tokens_total.decode", "tokens_total.prefill_computed", "tokens_total.prefill_cached")
"""Sampled fields that count tokens of a server: while one of them moves, it works."""
WORK_TOTALS: Final = (*TOKEN_TOTALS, "seen.requests")
"""Sampled fields that count tokens or requests of a server: while one of them moves, it is not idle, whatever its
gauges say at the moments of polls."""
TTFT_GROWN_TIMES: Final = 2.0
"""Times its own mean of the minutes before from which on a time to first token is named."""
_READ_ALONG_TOKENS: Final = 20.0
"""Tokens of an answer from which on somebody reads along as it comes: a class or a score has fewer."""
LEAST_TTFT_GROWTH_S: Final = 0.1
"""A TTFT is mostly queue and prompt: it varies with them; 100 ms more is nothing that a user notes."""
AFTER_STALL_S: Final = 90.0
"""For so long after a stall its engine's latencies are those of the requests that it held up: they are of 60 s, and the
queue has to be worked off first."""


_P95: Final = "[{above=yes}above ]{value:latency}"
"""A p95, which is a least value in the last bucket of a histogram."""
_KEPT_IN_MINUTES: Final = "[: [{most=yes}at most ]{kept:percent} kept it in 2 minutes]"
"""The share that kept a goal, which is the largest that it can be where the goal lies inside a bucket."""
QUEUE_TIME: Final = Quantity(
    "queue_time",
    "mean time in the queue {value:latency}, over {limit:latency}",
    field="queue_s",
    limit="late_queue_s",
)
TTFT_P95: Final = Quantity(
    "ttft_p95",
    (
        "TTFT p95 " + _P95 + " [{goal=yes}misses {limit:latency}|is over {limit:latency} "
        "(late_ttft_s: no goal is set)]" + _KEPT_IN_MINUTES
    ),
    field="ttft_s",
)
TTFT_KEPT: Final = Quantity(
    "ttft_kept",
    "[{most=yes}at most ]{value:percent} of the requests of 2 minutes keep the TTFT goal of {goal_s:latency}",
    field="ttft_goal",
)
ITL_P95: Final = Quantity(
    "itl_p95",
    (
        "ITL p95 " + _P95 + " [{goal=yes}misses {limit:latency}|is over {limit:latency} "
        "(late_itl_s: no goal is set)]" + _KEPT_IN_MINUTES
    ),
    field="itl_s",
)
TPOT_P95: Final = Quantity(
    "tpot_p95",
    "TPOT p95 " + _P95 + " misses {limit:latency}" + _KEPT_IN_MINUTES,
    field="tpot_s",
    chart="itl",
)
TPOT_BY_MEAN: Final = Quantity(
    "tpot_by_mean",
    ("ITL mean {value:latency} is beyond the TPOT goal of {limit:latency} (the engine exports no TPOT)"),
    field="itl_mean_s",
    chart="itl",
)
ITL_MEAN_LATE: Final = Quantity(
    "itl_mean_late", "ITL mean {value:latency} misses {limit:latency}", field="itl_mean_s", chart="itl"
)
TPOT_KEPT: Final = Quantity(
    "tpot_kept",
    "[{most=yes}at most ]{value:percent} of the requests of 2 minutes keep the TPOT goal of {goal_s:latency}",
    field="tpot_goal",
    chart="itl_ok",
)
ITL_KEPT: Final = Quantity(
    "itl_kept",
    (
        "[{most=yes}at most ]{value:percent} of the requests or tokens of 2 minutes keep the ITL goal of "
        "{goal_s:latency}"
    ),
    field="itl_goal",
)
E2E_P95: Final = Quantity("e2e_p95", "E2E p95 " + _P95 + " misses {limit:latency}", field="e2e_s")
_KEPT: Final = {TTFT_P95: TTFT_KEPT, TPOT_P95: TPOT_KEPT, ITL_P95: ITL_KEPT}
"""Latency -> the share of requests that keeps its goal."""
KEPT_GOALS: Final = frozenset(kept.code for kept in _KEPT.values())
"""Quantities of evidence that is a share of requests, not a latency."""
TOKENS_LATE: Final = frozenset(
    late.code for late in (TPOT_P95, TPOT_KEPT, TPOT_BY_MEAN, ITL_P95, ITL_KEPT, ITL_MEAN_LATE)
)
"""Quantities of evidence that tokens come late."""
READ_FIGURES_IN_LOG: Final = Remedy(
    "read_figures_in_log", "look in its log for what its page lacks: {signals:signals}; a newer release may export it"
)
ADD_MODEL: Final = Remedy("add_model", "add a [[model]] entry to the config: gpumon doctor names what is missing")
ADD_GPUS: Final = Remedy("add_gpus", "add gpus to its [[endpoint]] in the config")
ADD_CONTEXT: Final = Remedy("add_context", "add context_tokens to its [[endpoint]] in the config")
RUN_THERE: Final = Remedy("run_there", "run gpumon on the host of its GPUs")


class Slots(NamedTuple):
    """Requests that an engine may run at once."""

    number: float
    """On all ranks together."""
    source: str
    """The metric or the option that says it."""
    is_assumed: bool = False
    """Nobody tells it: it is the engine's default."""
    is_guess: bool = False
    """Its command line is not known, either: it may be another one."""


class Case(NamedTuple):
    """One thing under judgement: an engine, a GPU or the host, by `kind`.

    An engine has `engine`, `reading` and in `gpus` those it runs on; a GPU `gpu`, `gpu_reading`, itself in `gpus`, and
    in `engines` those on it; the host all `gpus` and `engines`. The rest is None or empty.
    """

    kind: Kind
    key: str
    name: str
    now_s: float
    """Monotonic."""
    frame: Frame
    snapshot: Snapshot
    recent: Recent
    thresholds: Thresholds
    prices: Mapping[str, float]
    """Catalogue name of a GPU -> price of one hour; "" is the price of all others."""
    goals: Goals = Goals()
    engine: Engine | None = None
    reading: EngineReading | None = None
    gpu: Gpu | None = None
    gpu_reading: GpuReading | None = None
    gpus: tuple[Gpu, ...] = ()
    engines: tuple[Engine, ...] = ()
    recents: Mapping[str, Recent] = MappingProxyType({})
    """`Recent` of every thing, by key ("" is the host): what its GPUs and the host did in the same minutes."""
    standing: Mapping[str, tuple[Verdict, ...]] = MappingProxyType({})
    """Verdicts that stand on its GPUs, by uuid."""
    restart_ages_s: tuple[float, ...] = ()
    """Seconds since each time that the engine's process was seen to begin anew, in `Thresholds.restart_s`."""
    found_limits: tuple[Limit, ...] = ()
    """Limits that the families before this one found, whether they hold yet or not."""
    limits_before: frozenset[Limit] = frozenset()
    """Limits that stand here as a verdict, or were found last: these go at a lower threshold, as hysteresis."""
    standing_limits: frozenset[Limit] = frozenset()
    """Limits that stand here as a verdict."""
    stood: Mapping[Family, Verdict] = MappingProxyType({})
    """Verdicts on it a moment ago, by family: what wavers between two causes or levels goes on as one of them."""
    is_cured: bool = False
    """Another trouble of it ended a moment ago: latencies are still those of then, and `recent` begins after it."""

    @property
    def restart_age_s(self) -> float | None:
        """Seconds since the engine's process was last seen to begin anew; None where that was not of late."""
        return min(self.restart_ages_s, default=None)

    @property
    def info(self) -> Mapping[str, str]:
        """Settings that the engine exports."""
        if self.reading is None:
            return {}
        return self.reading.info

    def serving_engine(self) -> Engine | None:
        """The engine, if it serves requests itself, answers, and does not hang."""
        engine = self.engine
        if engine is None or engine.phase is not Phase.INFERENCE or engine.kind in FRONTENDS:
            return None
        if engine.state is EndpointState.OK and Limit.HUNG not in self.found_limits:
            return engine
        return None

    def front_end(self) -> Engine | None:
        """The front end, if this is a router or proxy that answers."""
        engine = self.engine
        if engine is None or engine.kind not in ROUTER_KINDS or engine.state is not EndpointState.OK:
            return None
        return engine

    @property
    def host_recent(self) -> Recent:
        """`Recent` of the host, which always has samples; its `worked_out` is shared by the rules of all things."""
        return self.recents[""]

    def mean(self, field: str, seconds: float = NOW_S) -> float | None:
        """Mean of a sampled field; None where the newest sample lacks it: `recent.mean` takes the older ones."""
        if self.recent.last(field) is None:
            return None
        return finite(self.recent.mean(field, seconds))

    def newest(self, field: str) -> float | None:
        """Newest sample of a field, if it is a number that makes sense."""
        return finite(self.recent.last(field))

    def gpu_mean(self, gpu: Gpu, field: str, seconds: float = NOW_S) -> float | None:
        """Mean of a GPU's sampled field; None where the newest sample lacks it."""
        recent = self.recents.get(gpu.reading.uuid)
        if recent is None or recent.last(field) is None:
            return None
        return finite(recent.mean(field, seconds))

    def gpu_means(self, field: str, seconds: float = NOW_S) -> list[float]:
        """Means of a sampled field of the GPUs, of those that have it."""
        means = [self.gpu_mean(gpu, field, seconds) for gpu in self.gpus]
        return [mean for mean in means if mean is not None]

    def dram_of(self, gpu: Gpu, seconds: float = NOW_S) -> float | None:
        """Measured share of a GPU's peak bandwidth."""
        peak = finite(gpu.bandwidth_peak_bytes_per_s)
        if not gpu.bandwidth_source.is_measured or not peak:
            return None
        moved = self.gpu_mean(gpu, "bandwidth_bytes_per_s", seconds)
        if moved is None:
            return None
        return finite(moved / peak)

    def activity(self, seconds: float = NOW_S) -> GpuActivity:
        """Activity of the engine's GPUs."""
        if not self.gpus:
            return UNSEEN
        worked_out = self.recent.worked_out
        key = ("activity", seconds)
        if key not in worked_out:
            worked_out[key] = GpuActivity(
                busy=mean_known(self.gpu_means("busy_ratio", seconds)),
                sm=mean_known(self.gpu_means("sm_active_ratio", seconds)),
                tensor=mean_known(self.gpu_means("tensor_active_ratio", seconds)),
                dram=mean_known(self.dram_of(gpu, seconds) for gpu in self.gpus),
            )
        activity: GpuActivity = worked_out[key]
        return activity

    def unmoved_s(self, fields: tuple[str, ...]) -> float | None:
        """For how long none of these counters has moved; None where none is there."""
        recent = self.recent
        return min((recent.steady_s(field) for field in fields if recent.last(field) is not None), default=None)

    def counter_source(self, counter: str, seconds: float | None = None) -> str:
        """Source of a figure that a counter gives over so many seconds, or since its start; empty where its metric is
        not known."""
        if self.reading is None or not self.reading.live.get(counter):
            return ""
        metric = clean(self.reading.live[counter])
        if seconds is None:
            return metric
        return f"{metric} over {seconds:.0f} s"

    def slots(self) -> Slots | None:
        """Requests that may run at once; None where neither the engine's page nor its command line says it."""
        if self.engine is None or self.engine.options.told("slots") is None:
            return None
        return self.likely_slots()

    def likely_slots(self) -> Slots | None:
        """Requests that may run at once, by the engine's default where nothing says it; None where none is known."""
        if self.engine is None:
            return None
        slots_of_rank = finite(self.engine.options.slots)
        if not slots_of_rank:
            return None
        options = self.engine.options
        return Slots(
            number=slots_of_rank * max(1, self.engine.hardware.ranks),
            source=options.sources.get("slots", ""),
            is_assumed=options.is_assumed("slots"),
            is_guess=UNSEEN_COMMAND in options.sources.get("slots", ""),
        )

    def is_pinned(self) -> bool:
        """Whether the scheduler runs as many requests as it may: all slots are taken while requests wait.

        The number of slots is what the engine tells, else its default. Where neither is known, or its command line is
        not and its default is not reached, it is the most that ran: while others wait, for which all else has room.
        """
        taken = self.slots_taken()
        if taken is None:
            return False
        least_share = FULL_SLOTS
        if Limit.QUEUE_LIMIT in self.limits_before:
            least_share -= FULL_SLOTS_BAND
        slots = self.likely_slots()
        if slots is not None and taken >= least_share * slots.number:
            return True
        if slots is not None and not slots.is_guess:
            return False
        return self._is_at_its_most(taken)

    def _is_at_its_most(self, taken: float) -> bool:
        """Whether as many slots are taken as ever were in the last minutes, so that a limit shows itself.

        Beside much prefill the number stands still, too: the prompts are what is waited for.
        """
        running = [value for _, value in self.recent.values("running", PINNED_S)]
        most = max((value for _, value in self.recent.values("running", KEPT_S)), default=0.0)
        prefill = self.mean("mfu_prefill_ratio") or 0.0
        if len(running) < PINNED_SAMPLES or most < PINNED_LEAST:
            return False
        return prefill < self.thresholds.compute_queued_mfu_ratio and taken >= FULL_SLOTS * most

    def slots_taken(self) -> float | None:
        """Mean number of slots that were taken while requests waited: of requests that run, and of those that have just
        ended, whose slot is empty until the next step begins. None where nothing runs."""
        worked_out = self.recent.worked_out
        if "slots taken" not in worked_out:
            worked_out["slots taken"] = self._count_slots_taken()
        taken: float | None = worked_out["slots taken"]
        return taken

    def _count_slots_taken(self) -> float | None:
        """The number of `slots_taken`, which many rules ask for at each judgement."""
        running = self._running_while_waiting()
        if running is None or self.engine is None:
            return None
        handed_on = HANDED_ON_STEPS * self._ended_per_step(running)
        slots = self.likely_slots()
        if slots is not None:
            # Those that ended in a step had a slot each: a count over another time tells nothing beyond that.
            handed_on = min(handed_on, max(0.0, slots.number - running))
        taken = running + handed_on
        return taken if taken >= 1.0 else None

    def _running_while_waiting(self) -> float | None:
        """Mean requests that ran in the samples of the last seconds with a queue; without a queue, in the last ones."""
        waiting = dict(self.recent.values("waiting", PINNED_S))
        running = [
            count
            for sampled_s, count in self.recent.values("running", PINNED_S)
            if waiting.get(sampled_s, 0.0) >= self.thresholds.queue_waiting
        ]
        if running and self.recent.last("running") is not None:
            return sum(running) / len(running)
        return self.mean("running")

    def _ended_per_step(self, running: float) -> float:
        """Requests that end in a step: as counted, else by the length of the answers; 0 where neither is known."""
        engine = self.engine
        if engine is None:
            return 0.0
        ended_per_s = finite(engine.rates.requests_per_s)
        steps_per_s = finite(engine.rates.steps_per_s)
        if ended_per_s is not None and steps_per_s:
            return ended_per_s / steps_per_s
        answer_tokens = finite(engine.load.answer_tokens_mean)
        if not answer_tokens:
            return 0.0
        steps = answer_tokens / max(1.0, finite(engine.rates.tokens_per_step) or 1.0)
        return running / max(steps - 1.0, 1.0)

    def has_work(self) -> bool:
        """Whether it had something to do, so that what its GPUs do is its own work; also where it tells nothing of
        that."""
        is_silent = True
        for field in ("running", "decode_tokens_per_s", "prefill_tokens_per_s", "inferences_per_s"):
            figure = self.mean(field)
            if figure:
                return True
            if figure is not None:
                is_silent = False
        return is_silent

    def waiting_mean(self) -> float:
        """Mean requests that wait for room; less than half a request now and then is none."""
        waiting = self.mean("waiting") or 0.0
        if self.engine is not None:
            waiting -= finite(self.engine.load.waiting_deferred) or 0.0
        if waiting >= 0.5:
            return waiting
        return 0.0

    def shared_with(self) -> str:
        """Who else works on its GPUs, as far as it can be told: `emb:8001`, `python (pid 999)`; empty: nobody."""
        own = self.engine
        if own is None or not self.gpus:
            return ""
        return self._engine_beside(own) or self._process_beside(own)

    def _engine_beside(self, own: Engine) -> str:
        """Name of another engine that works on its GPUs; empty: none."""
        uuids = {gpu.reading.uuid for gpu in self.gpus}
        for other, reading in zip(self.snapshot.engines, self.frame.engines, strict=True):
            if other.key == own.key or other.state is EndpointState.DOWN or other.kind in FRONTENDS:
                continue
            if not uuids.isdisjoint(reading.gpus) and not self._rests(other):
                return other.name
        return ""

    def _process_beside(self, own: Engine) -> str:
        """Another process that may work on its GPUs, where its own is among those there; empty: none."""
        for gpu in self.gpus:
            if all(process.engine != own.name for process in gpu.reading.processes):
                continue
            for process in gpu.reading.processes:
                if not process.engine and self._may_work(gpu, process):
                    return program_and_pid(process)
        return ""

    def _may_work(self, gpu: Gpu, process: GpuProcess) -> bool:
        """Whether a process holds more than a bare context and is busy, or nobody knows how busy it is."""
        limits = self.thresholds
        vram_bytes = finite(process.vram_bytes)
        total_bytes = finite(gpu.reading.vram_total_bytes)
        if vram_bytes is not None and total_bytes is not None and vram_bytes <= limits.held_ratio * total_bytes:
            return False
        sm_ratio = finite(process.sm_ratio)
        return sm_ratio is None or sm_ratio > limits.stalled_busy_ratio

    def _rests(self, other: Engine) -> bool:
        """Whether another engine has had nothing to do."""
        recent = self.recents.get(other.key)
        return recent is not None and recent.last("running") is not None and not recent.mean("running", NOW_S)

    def own_activity(self, *, urgent: bool) -> tuple[GpuActivity, str]:
        """Activity of its GPUs that is its own, and the name of another that shares them (empty: nobody does).

        Beside others MFU and MBU are its own; the GPUs' activity stands in where one of them is not known, or where
        it is `urgent` to know what its GPUs are full of.
        """
        activity = self.activity()
        others = self.shared_with()
        if others and not urgent:
            if self.mean("mfu_ratio") is not None:
                activity = activity._replace(tensor=None)
            if self.mean("mbu_ratio") is not None:
                activity = activity._replace(dram=None)
        return activity, others

    def late_latencies(self) -> tuple[Evidence, ...]:
        """Latencies beyond their goal, or where none is set beyond the default of `Thresholds`, the worst first.

        Of a histogram only the bucket is sure: its lower end has to be beyond it, too.
        """
        engine = self.engine
        limits = self.thresholds
        goals = self.goals
        if engine is None or engine.phase is not Phase.INFERENCE or self.after_stall():
            return ()
        latency = engine.latency
        itl_default = limits.late_itl_s if is_read_along(engine) and goals.token_s is None else None
        late = [
            *self._late_evidence(TTFT_P95, latency.ttft_s, goal_s=goals.ttft_s, default_s=limits.late_ttft_s),
            *self._late_evidence(TPOT_P95, latency.tpot_s, goal_s=goals.tpot_s, default_s=None),
            *self._late_mean(engine),
            *self._late_evidence(ITL_P95, latency.itl_s, goal_s=goals.itl_s, default_s=itl_default),
            *self._late_evidence(E2E_P95, latency.e2e_s, goal_s=goals.e2e_s, default_s=None),
        ]
        queued_s = finite(latency.queue_s.mean)
        if not late and queued_s is not None and queued_s > limits.late_queue_s:
            late.append(self.evidence(QUEUE_TIME, queued_s))
        late.sort(key=_excess, reverse=True)
        return tuple(late)

    def _late_mean(self, engine: Engine) -> Iterator[Evidence]:
        """Evidence of a mean ITL beyond its goal; beyond that of the TPOT where the engine exports no TPOT: its p95 is
        not below the mean."""
        goals = self.goals
        mean_s = finite(engine.latency.itl_mean_s)
        if mean_s is None:
            return
        if goals.itl_mean_s is not None and mean_s > goals.itl_mean_s:
            yield self.evidence(ITL_MEAN_LATE, mean_s, limit=goals.itl_mean_s)
        has_tpot = not isinstance(engine.latency.tpot_s.mean, Missing)
        if goals.tpot_s is not None and not has_tpot and mean_s > goals.tpot_s:
            yield self.evidence(TPOT_BY_MEAN, mean_s, limit=goals.tpot_s)

    def _late_evidence(
        self, late: Quantity, latency: Quantiles, goal_s: float | None, default_s: float | None
    ) -> Iterator[Evidence]:
        """Evidence of a latency that is beyond its goal or default: its p95; nothing where it is not.

        Where the p95 does not tell (few requests in its minute, or a goal inside its bucket), it is the share of
        requests that keeps the goal.
        """
        limit_s = goal_s or default_s
        above_s = _surely_above(latency, limit_s)
        share = self._share_within(late.field, goal_s) if goal_s is not None else None
        within_ratio = finite(share.high_ratio) if share is not None else None
        is_most = yes_if(share is not None and share.low_ratio != share.high_ratio)
        if above_s is not None:
            is_goal = yes_if(goal_s)  # else the sentence calls the limit a default
            above = yes_if(is_last_bucket(latency.p95_high))
            yield self.evidence(
                late, above_s, limit=limit_s, goal=is_goal, kept=within_ratio, above=above, most=is_most
            )
        elif within_ratio is not None and within_ratio < PROMISED and _may_be_above(latency, goal_s):
            yield self.evidence(_KEPT[late], within_ratio, limit=PROMISED, goal_s=goal_s, most=is_most)

    def _share_within(self, field: str, goal_s: float) -> WithinGoal | None:
        """The share of requests, or tokens, of the last minutes that kept a goal; None of too few."""
        engine = self.engine
        if engine is None:
            return None
        shares = {
            "ttft_s": engine.goodput.ttft_goal,
            "tpot_s": engine.goodput.tpot_goal,
            "itl_s": _within_goal_of_gaps(engine),
        }
        share = shares.get(field)
        if share is None or share.goal_s != goal_s or (finite(share.count) or 0.0) < ENOUGH:
            return None
        return share

    def after_stall(self) -> bool:
        """Whether its latencies say nothing of its load: it gave no token a moment ago, for whatever reason, or its
        trouble of a moment ago is over."""
        return self.is_cured or bool(self.recent.mean(STALLED, AFTER_STALL_S))

    def suffers(self, engine: Engine) -> bool:
        """Whether users of an engine feel a limit: latencies beyond their goals or defaults, or requests that wait."""
        engine_case = self.case_of(engine)
        if engine_case is None or engine.state is not EndpointState.OK:
            return False
        if engine_case.late_latencies():
            return True
        return (engine_case.recent.mean("waiting", NOW_S) or 0.0) >= self.thresholds.queue_waiting

    def case_of(self, engine: Engine) -> Case | None:
        """The case of an engine on this GPU; None where nothing was sampled of it yet."""
        recent = self.recents.get(engine.key)
        if recent is None:
            return None
        return self._replace(kind=Kind.ENGINE, engine=engine, key=engine.key, recent=recent)

    def grown_ttft_s(self) -> tuple[float, float] | None:
        """Mean time to first token of now and of the minutes before, in s, where it has grown far; else None.

        Both are means of a minute: the older samples have no request in common with the newest.
        """
        newest = self.mean("ttft_s.mean")
        usual = self.recent.mean("ttft_s.mean", KEPT_S)
        if newest is None or not usual or newest < usual + LEAST_TTFT_GROWTH_S / 2:
            return None
        samples = self.recent.values("ttft_s.mean", KEPT_S)
        first_s, _ = samples[0]
        end_s = min(first_s + MINUTE_S, self.now_s - MINUTE_S)
        older = [value for sampled_s, value in samples if sampled_s < end_s]
        if older and end_s - first_s >= MINUTE_S / 2:
            before = sum(older) / len(older)
        else:
            before = newest
        if newest < TTFT_GROWN_TIMES * before or newest < before + LEAST_TTFT_GROWTH_S:
            return None
        return (newest, before)

    def unmeasured(self) -> Signal:
        """The signal of GPUs whose work is not known: why, and what would help."""
        if self.gpus:
            return Signal("gpu_activity", fix="needs_hopper")
        if self.engine is not None and self.engine.hardware.gpu_type:
            return Signal("gpu_activity", fix="run_there")  # its GPUs are known, and on another host
        return Signal("gpu_activity", fix="add_gpus")

    def evidence(
        self,
        quantity: Quantity,
        value: float,
        *,
        limit: float | None = None,
        field: str = "",
        **values: float | str | None,
    ) -> Evidence:
        """Evidence of a figure of the engine or GPU, with the source of its field and the series of its chart.

        `limit` and `field` take the place of the quantity's own; `values` are parameters of the sentence.
        """
        thing = self.engine or self.gpu
        source = thing.sources.get(field or quantity.field, "") if thing is not None else ""
        if self.gpu is not None:
            chart = gpu_chart(self.gpu, quantity.series)
        else:
            chart = f"{quantity.series}@{self.key}" if quantity.series else ""
        return quantity.evidence(value, self._limit_of(quantity, limit), source, chart, params(**values))

    def gpu_evidence(self, quantity: Quantity, value: float, *, limit: float | None = None) -> Evidence:
        """Evidence of a mean over the engine's GPUs, with the source and the chart of the first."""
        gpu = self.gpus[0]
        number_of_gpus: Parameters = params(gpus=float(len(self.gpus))) if len(self.gpus) > 1 else {}
        source = gpu.sources.get(quantity.field, "")
        chart = gpu_chart(gpu, quantity.series)
        return quantity.evidence(value, self._limit_of(quantity, limit), source, chart, number_of_gpus)

    def _limit_of(self, quantity: Quantity, limit: float | None) -> Reading:
        """The limit of a figure, as evidence has it: a given one, else the threshold of the quantity."""
        if limit is None and quantity.limit:
            limit = getattr(self.thresholds, quantity.limit)
        return NOT_EXPOSED if limit is None else limit

    def work_evidence(self, activity: GpuActivity) -> tuple[Evidence, ...]:
        """Evidence on arithmetic and memory, measured before modelled, beside the limits that they would have."""
        limits = self.thresholds
        evidence = []
        if activity.tensor is not None:
            tensor_limit = limits.compute_tensor_ratio
            evidence.append(self.gpu_evidence(TENSOR_ACTIVE, activity.tensor, limit=tensor_limit))
        if activity.dram is not None:
            dram_limit = limits.bandwidth_dram_ratio
            evidence.append(self.gpu_evidence(DRAM_ACTIVE, activity.dram, limit=dram_limit))
        for quantity, limit in ((MFU, limits.compute_mfu_ratio), (MBU, limits.bandwidth_mbu_ratio)):
            share = self.mean(quantity.field)
            if share is not None:
                evidence.append(self.evidence(quantity, share, limit=limit))
        return tuple(evidence)


def cases(
    frame: Frame,
    snapshot: Snapshot,
    recents: Mapping[str, Recent],
    thresholds: Thresholds,
    prices: Mapping[str, float],
    goals: Goals = Goals(),  # noqa: B008 - immutable
) -> Iterator[Case]:
    """A case of every thing of a snapshot: GPUs, engines, then the host."""

    def bare_case(kind: Kind, key: str, name: str) -> Case:
        """The case of a thing with what all cases have."""
        return Case(
            kind=kind,
            key=key,
            name=name,
            now_s=frame.monotonic_s,
            frame=frame,
            snapshot=snapshot,
            recent=recents[key],
            thresholds=thresholds,
            prices=prices,
            goals=goals,
            recents=recents,
        )

    by_uuid = {gpu.reading.uuid: gpu for gpu in snapshot.gpus}
    engines_on = _engines_by_gpu(frame, snapshot)
    names = _gpu_names(frame)
    for gpu_reading, gpu in zip(frame.gpus, snapshot.gpus, strict=True):
        case = bare_case(Kind.GPU, gpu.reading.uuid, names[gpu.reading.uuid])
        engines = tuple(engines_on.get(gpu.reading.uuid, ()))
        yield case._replace(gpu=gpu, gpu_reading=gpu_reading, gpus=(gpu,), engines=engines)
    for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
        case = bare_case(Kind.ENGINE, engine.key, engine.name)
        yield case._replace(engine=engine, reading=reading, gpus=gpus_of(reading, by_uuid))
    yield bare_case(Kind.HOST, "", "host")._replace(gpus=snapshot.gpus, engines=snapshot.engines)


def gpus_of(reading: EngineReading, by_uuid: Mapping[str, Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that an engine runs on, of those that are listed."""
    return tuple(by_uuid[uuid] for uuid in reading.gpus if uuid in by_uuid)


def _engines_by_gpu(frame: Frame, snapshot: Snapshot) -> dict[str, list[Engine]]:
    """UUID of a GPU -> the engines that run on it."""
    engines_on: dict[str, list[Engine]] = {}
    for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
        for uuid in reading.gpus:
            engines_on.setdefault(uuid, []).append(engine)
    return engines_on


def _gpu_names(frame: Frame) -> dict[str, str]:
    """UUID of a GPU -> its name in verdicts: `gpu 0`, or `gpu 0 1g.10gb #2` of a MIG slice."""
    names = {}
    slices: Counter[str] = Counter()
    for gpu in frame.gpus:
        name = f"gpu {gpu.index}"
        if gpu.parent_uuid:
            slices[gpu.parent_uuid] += 1
            name += f" {gpu.mig_profile or 'slice'} #{gpu.mig_instance or slices[gpu.parent_uuid]}"
        names[gpu.uuid] = name
    return names


def _may_be_above(latency: Quantiles, goal_s: float | None) -> bool:
    """Whether the p95 leaves it open that requests miss their goal: it is beyond the goal, or not known."""
    p95_s = finite(latency.p95)
    return p95_s is None or p95_s > (goal_s or 0.0)


class GpuActivity(NamedTuple):
    """Means over an engine's GPUs that report it, 0..1; None: none of them does."""

    busy: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    """Measured share of the peak bandwidth: neither modelled, nor an upper bound."""


UNSEEN: Final = GpuActivity(busy=None, sm=None, tensor=None, dram=None)
"""Activity of GPUs that nobody sees."""


def finite(reading: Reading | None) -> float | None:
    """The number of a figure, from 0 to below `_LARGEST_FIGURE`; None for any other, and where it is missing."""
    if reading is None or isinstance(reading, Missing):
        return None
    if 0.0 <= reading < _LARGEST_FIGURE:
        return reading
    return None


def first_known(*figures: float | None) -> float | None:
    """The first of the figures that is known: a better source before the others."""
    for figure in figures:
        if figure is not None:
            return figure
    return None


def sum_of_all(figures: Iterable[float | None]) -> float | None:
    """The sum of the figures; None where one of them is not known."""
    total = 0.0
    for figure in figures:
        if figure is None:
            return None
        total += figure
    return total


def is_read_along(engine: Engine) -> bool:
    """Whether answers are long enough that somebody reads them as they come; also where their length is not known."""
    return (finite(engine.load.answer_tokens_mean) or _READ_ALONG_TOKENS) >= _READ_ALONG_TOKENS


def _within_goal_of_gaps(engine: Engine) -> WithinGoal:
    """The share of the gaps between tokens within their goal; of requests by their mean where no gap is counted."""
    shares = engine.goodput
    return shares.tpot_goal if isinstance(shares.itl_goal.low_ratio, Missing) else shares.itl_goal


def _surely_above(latency: Quantiles, limit_s: float | None) -> float | None:
    """The p95 of a latency that is above a limit, of a histogram with all of its bucket; None: it is not."""
    p95_s = finite(latency.p95)
    low_s = finite(latency.p95_low)
    if not limit_s or p95_s is None or p95_s <= limit_s:
        return None
    if low_s is not None and low_s < limit_s:
        return None
    return p95_s


def _excess(late: Evidence) -> float:
    """How many times a latency is its limit; of a share of requests within a goal, how many times it falls short."""
    if late.quantity in KEPT_GOALS:
        return (finite(late.limit) or 1.0) / max(finite(late.value) or 0.0, 0.01)
    return (finite(late.value) or 0.0) / (finite(late.limit) or 1.0)


def running_request_tokens(engine: Engine) -> float | None:
    """KV tokens that a running request takes: its mean context, else prompt and half its answer."""
    context = finite(engine.load.context_tokens)
    if context:
        return context
    prompt = finite(engine.load.prompt_tokens_mean)
    answer = finite(engine.load.answer_tokens_mean)
    if prompt and answer is not None:
        return prompt + answer / 2.0
    return None


KV_REQUESTS_SOURCE: Final = "KV pool / tokens of a running request"
"""Formula of `kv_requests`."""


def kv_requests(engine: Engine) -> float | None:
    """Requests of the size seen that the KV pool holds, all ranks."""
    pool = finite(engine.load.kv_pool_tokens)
    tokens = running_request_tokens(engine)
    if pool and tokens:
        return finite(requests_that_fit(pool, tokens))
    return None


def missing_signal(signal: str, reading: Reading) -> Signal | None:
    """A signal that is not there; None where it is, or comes by itself."""
    if not isinstance(reading, Missing) or reading.reason in PASSING or reading in BY_NATURE:
        return None
    return Signal(signal, reading.reason.value, _FIXES.get(reading.reason, ""))


def actions_for_missing(missing: Iterable[Signal]) -> tuple[Action, ...]:
    """Actions for missing signals: give what they need, and look for the others in the engine's log."""
    fixes = []
    hidden = []
    for signal in missing:
        if signal.fix:
            fixes.append(signal.fix)
        if signal.reason == Reason.NOT_EXPOSED.value:
            hidden.append(signal.code)
    actions = []
    if hidden:
        actions.append(READ_FIGURES_IN_LOG.action(signals=" ".join(hidden)))
    actions += [Action(fix) for fix in dict.fromkeys(fixes)]
    return tuple(actions)


def missing_compute(engine: Engine, activity: GpuActivity) -> Signal | None:
    """The lack of any figure of the arithmetic; None where there is one, or it is only warming up."""
    if activity.tensor is not None:
        return None
    return missing_signal("mfu", engine.efficiency.mfu_ratio)


def missing_bandwidth(engine: Engine, activity: GpuActivity) -> Signal | None:
    """The lack of any figure of the memory's bandwidth; None where there is one, or it is only warming up."""
    if activity.dram is not None:
        return None
    return missing_signal("mbu", engine.efficiency.mbu_ratio)


def gpu_chart(gpu: Gpu, chart: str) -> str:
    """Series of a GPU's chart: `busy:3`; empty for a MIG slice, which has its parent's index and no chart of its
    own."""
    if gpu.reading.parent_uuid or not chart:
        return ""
    return f"{chart}:{gpu.reading.index}"


def missing_limit_signals(engine: Engine, activity: GpuActivity) -> tuple[Signal, ...]:
    """Signals of limits that an engine does not give, the most telling first."""
    load = engine.load
    signals = (
        missing_compute(engine, activity),
        missing_bandwidth(engine, activity),
        missing_signal("running", load.running),
        missing_signal("waiting", load.waiting),
        missing_signal("kv_usage", load.kv_usage_ratio),
        missing_signal("preemptions", engine.rates.preemptions_per_s),
        missing_signal("queue_time", engine.latency.queue_s.mean),
    )
    return present_signals(signals)


def present_signals(signals: Iterable[Signal | None]) -> tuple[Signal, ...]:
    """The signals that there are, in their order."""
    present = [signal for signal in signals if signal is not None]
    return tuple(present)
