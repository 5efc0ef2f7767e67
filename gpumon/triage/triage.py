"""Snapshots in, verdicts and events out: the table of rules, and what stands. Same frames, same verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from gpumon.efficiency.faults import is_free
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import Engine, Gpu, Process, Snapshot
from gpumon.readings.verdict import EventKind, Family, Kind, Level, Limit, Verdict
from gpumon.triage import (
    bandwidth_bound,
    compute_bound,
    engine_down,
    engine_state,
    engine_use,
    failing,
    front_end,
    gpu,
    host,
    kv_cache,
    lora,
    lost_gains,
    neighbours,
    parallel,
    queueing,
    traffic,
)
from gpumon.triage.engine_state import busiest_cpu, processes_on_gpus
from gpumon.triage.engine_use import stands_still
from gpumon.triage.events import Events
from gpumon.triage.free_gpus import with_free_gpus
from gpumon.triage.gains import Gains
from gpumon.triage.harm import set_level_by_harm
from gpumon.triage.hold import Hold
from gpumon.triage.hung import hung
from gpumon.triage.kv_transfer import cache_expires, transfer_waits
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.other_vendors import fitting_actions
from gpumon.triage.samples import Recent
from gpumon.triage.signals import Case, Finding, cases, gpus_of
from gpumon.triage.stall import may_hang
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.unexplained import unexplained

RuleFunction = Callable[[Case], "Finding | None"]
RULES: Final[Mapping[tuple[Kind, Family], tuple[RuleFunction, ...]]] = {
    (Kind.GPU, Family.STATE): (gpu.broken, gpu.throttled, gpu.program_fault),
    (Kind.GPU, Family.LIMIT): (host.input_starved,),
    (Kind.GPU, Family.USE): (
        engine_down.gpu_left,
        gpu.memory_idle,
        gpu.vram_full,
        gpu.gpu_under_used,
        gpu.works_without_engine,
    ),
    (Kind.ENGINE, Family.STATE): (
        engine_state.ended_again,
        engine_down.down,
        hung,
        engine_state.unresponsive,
        engine_down.unreachable,
        engine_state.restarting,
        front_end.no_backend,
        front_end.requests_fail,
        front_end.turns_requests_away,
        failing.errors,
        failing.rejections,
        failing.aborts,
        engine_state.degraded,
        engine_down.never_served,
        engine_down.starting,
    ),
    (Kind.ENGINE, Family.LIMIT): (
        host.even_drops,
        parallel.uneven_ranks,
        lora.lora_slots,
        transfer_waits,
        cache_expires,
        lost_gains.prefix_hits,
        kv_cache.one_prompt,
        kv_cache.kv_cache,
        neighbours.neighbour,
        lost_gains.lost_speculation,
        queueing.bursts,
        queueing.queue,
        parallel.straggler,
        parallel.interconnect,
        compute_bound.long_prefill,
        compute_bound.compute,
        bandwidth_bound.bandwidth,
        host.input_starved,
        front_end.backend_fails,
        front_end.front_end_queue,
        front_end.backend_out,
        unexplained,
    ),
    (Kind.ENGINE, Family.USE): (
        traffic.fell,
        engine_use.under_used,
        engine_use.training_low,
        engine_use.healthy,
        engine_use.training_well,
    ),
    (Kind.HOST, Family.STATE): (),
    (Kind.HOST, Family.LIMIT): (host.cpu_saturated, host.disk_waits),
    (Kind.HOST, Family.USE): (host.host_memory_full,),
}
"""The table of rules: of each family of a thing the first that finds something gives the verdict."""
_FINE: Final = (Limit.HEALTHY, Limit.EVALUATING)
"""They do not stand beside a state that is a warning, not even while they fade."""
_FAMILIES: Final = {family: at for at, family in enumerate(Family)}
_LIMITS: Final = {limit: at for at, limit in enumerate(Limit)}


def _hold_s(case: Case, family: Family, found: Limit | None, stands: Limit | None) -> float:
    """How long a finding (None: nothing) must hold to take the place of what stands.

    0 for what is true at once, such as a lost GPU; for a hang, which counts time itself; for what says itself that it
    is over; and for a straggler whose cause, a slow clock, is known now.
    """
    over = found is None and (
        (family is Family.STATE and stands is Limit.THROTTLED)
        or (stands is Limit.STRAGGLER and Limit.THROTTLED in case.found_limits)
    )
    now = family is Family.STATE and (case.kind is Kind.ENGINE or found is Limit.HARDWARE_FAULT)
    if now or over:
        return 0.0
    return case.thresholds.hold_s


FIRST_HOLD_S: Final = 6.0
"""Three polls of an engine: so long a finding must hold in the first moments of a gpumon that a fleet's screen has just
started, so that trouble comes first there at once."""
REST_S: Final = 2.0
"""An engine is judged when it was polled anew, when a GPU of it comes, goes or gets another verdict, and after so long
or its interval, as its GPUs and the host go on: between two polls hardly anything changes, and rules are dear."""
USED_S: Final = 4.0
"""For so long what the use of an engine or a GPU was found to be counts: it is a mean of minutes."""
FADES_S: Final = 5.0
"""A verdict that was not found for so long tells that its figures are of then."""
DOUBT_S: Final = 10.0
"""A thing is not called healthy any more once a warning was found for so long, though it does not stand yet."""
MOST_RESTARTS: Final = 8

_since: Final = lru_cache(maxsize=1024)(rfc3339)
"""Cached, as the start of a verdict that stands is the same at every tick."""


class _Kept:
    """Memory of one thing, beside its samples."""

    def __init__(self) -> None:
        self.holds: dict[Family, Hold] = {}
        self.verdicts: tuple[Verdict, ...] = ()
        """Verdicts on an engine, given at `judged_s` (monotonic) on `reading` and what was `around` it."""
        self.judged_s = -math.inf
        self.reading: EngineReading | None = None
        self.around: object = None
        self.use: Finding | None = None
        """Finding on its use at `used_s` (monotonic), after `use_found` was."""
        self.used_s = -math.inf
        self.use_found: tuple[Limit, ...] = ()
        self.restarts_s: tuple[float, ...] = ()
        """When an engine's processes were seen to begin anew (monotonic), the last ones."""
        self.suspects: tuple[str, ...] = ()
        """GPUs (uuids) of an engine that may hang, when it was judged last."""
        self.stalls = False
        """An engine gave no token for some seconds, when it was judged last."""


def _near(holds: Iterable[Hold]) -> frozenset[Limit]:
    """Limits that stand, or were found last."""
    near = set()
    for hold in holds:
        if hold.limit is not None:
            near.add(hold.limit)
        if hold.coming is not None:
            near.add(hold.coming)
    return frozenset(near)


def _stands_alone(verdict: Verdict) -> bool:
    """Whether nothing else is worth saying of the thing: what makes its requests fail, though, mostly is."""
    if verdict.code is Limit.FAILING:
        return False
    return verdict.level is Level.CRITICAL or verdict.code in (Limit.HUNG, Limit.UNRESPONSIVE)


def _is_coming(answer: Finding, hold: Hold, now_s: float) -> bool:
    """Whether an urgent finding has held for so long that the thing is not called healthy beside it."""
    return answer.level in URGENT and hold.coming_s(now_s) >= DOUBT_S


class Triage:
    """Holds the last minutes of each thing and the verdicts that stand; knows no clock and does no I/O."""

    def __init__(
        self,
        thresholds: Thresholds = Thresholds(),  # noqa: B008 - frozen
        prices: Mapping[str, float] = MappingProxyType({}),
        goals: Goals = Goals(),  # noqa: B008 - immutable
        rules: Mapping[tuple[Kind, Family], Sequence[RuleFunction]] = RULES,
    ) -> None:
        self._rules = rules
        self._thresholds = thresholds
        self._prices = prices
        self._goals = goals
        self._recents: dict[str, Recent] = {}
        self._kept: dict[str, _Kept] = {}
        """By the keys of the things in the frame before."""
        self._events = Events()
        self._gains = Gains()
        self._last: dict[tuple[str, Family], Verdict] = {}
        self._begun_s = math.inf
        """When the first snapshot was judged (monotonic)."""
        self.first_hold_s = math.inf
        """How long a finding must hold to come in the first `hold_s` of this triage, where that is shorter."""

    def judge(self, frame: Frame, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its verdicts, the most urgent first, and what happened since the one before."""
        self._begun_s = min(self._begun_s, frame.monotonic_s)
        self._sample(frame, snapshot)
        ranked = [self._dated(verdict, frame) for verdict in self._found(frame, snapshot)]
        ranked.sort(key=rank)
        judged = msgspec.structs.replace(snapshot, verdicts=tuple(ranked))
        events = (*self._events.between(frame, judged), *self._gains.between(frame, judged, self._recents))
        for event in events:
            if event.kind is EventKind.RESTART:
                kept = self._kept[event.key]
                kept.restarts_s = (*kept.restarts_s[1 - MOST_RESTARTS :], frame.monotonic_s)
        return msgspec.structs.replace(judged, events=events)

    @property
    def suspects(self) -> frozenset[str]:
        """GPUs (uuids) whose PCIe traffic is worth measuring: their engine may hang."""
        suspects: set[str] = set()
        for kept in self._kept.values():
            suspects.update(kept.suspects)
        return frozenset(suspects)

    def _found(self, frame: Frame, snapshot: Snapshot) -> list[Verdict]:
        """All verdicts that stand: of engines in their order, of GPUs, of the host."""
        standing: dict[str, tuple[Verdict, ...]] = {}
        engines: list[Verdict] = []
        host: list[Verdict] = []
        for case in cases(frame, snapshot, self._recents, self._thresholds, self._prices, self._goals):
            if case.kind is Kind.GPU:
                standing[case.key] = tuple(self._verdicts(case))
            elif case.reading is not None:
                engines += self._of_engine(case._replace(standing=standing), case.reading)
            else:
                host += self._verdicts(case)
        verdicts = list(engines)
        for gpu_chart in standing.values():
            verdicts += gpu_chart
        verdicts += host
        self._last = {(verdict.key, verdict.family): verdict for verdict in verdicts}
        return verdicts

    def _of_engine(self, case: Case, reading: EngineReading) -> tuple[Verdict, ...]:
        """The verdicts on an engine: those of before while neither it nor its GPUs have anything new to tell."""
        around = []
        for device in case.gpus:
            causes = [verdict.cause for verdict in case.standing.get(device.uuid, ())]
            around.append((device.state, causes))
        kept = self._kept[case.key]
        rest_s = max(REST_S, reading.interval_s)
        if kept.reading is reading and kept.around == around and case.now_s - kept.judged_s < rest_s:
            return kept.verdicts
        lately = []
        for restarted_s in kept.restarts_s:
            if 0.0 <= case.now_s - restarted_s < self._thresholds.restart_s:
                lately.append(case.now_s - restarted_s)
        kept.verdicts = tuple(self._verdicts(case._replace(restarts_s=tuple(lately))))
        kept.reading = reading
        kept.around = around
        kept.judged_s = case.now_s
        kept.stalls = may_hang(case)
        kept.suspects = reading.gpus if kept.stalls else ()
        return kept.verdicts

    def _sample(self, frame: Frame, snapshot: Snapshot) -> None:
        now_s = frame.monotonic_s
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        engine_keys = [engine.key for engine in snapshot.engines]
        self._keep_only({"", *gpus, *engine_keys})
        self._recent(Kind.HOST, "").add(now_s, snapshot.host)
        for uuid, device in gpus.items():
            self._recent(Kind.GPU, uuid).add(now_s, device)
        self._note_use(frame)
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            self._sample_engine(now_s, reading, engine, gpus_of(reading, gpus))

    def _keep_only(self, keys: set[str]) -> None:
        """Forget things that are not there any more."""
        if keys == self._kept.keys():
            return
        for key in self._recents.keys() - keys:
            del self._recents[key]
        self._kept = {key: self._kept.get(key) or _Kept() for key in keys}

    def _sample_engine(self, now_s: float, reading: EngineReading, engine: Engine, gpus: Sequence[Gpu]) -> None:
        recent = self._recent(Kind.ENGINE, engine.key)
        answers = engine.state is EndpointState.OK
        processes: dict[int, Process] = {}
        if gpus and answers:
            processes = processes_on_gpus(engine, gpus)
        recent.add(now_s, engine, busiest_cpu(processes.values()), stalled=self._kept[engine.key].stalls)
        if answers:
            recent.arrivals.add(now_s, reading)
            recent.holders = frozenset(processes)
        elif engine.state in (EndpointState.REFUSED, EndpointState.DOWN):
            recent.refused_s = now_s

    def _note_use(self, frame: Frame) -> None:
        """Remember which GPUs are used, and which are free: one that is lost does not tell any more."""
        taken = gpu.gpus_in_use(frame)
        for reading in frame.gpus:
            recent = self._recents[reading.uuid]
            if reading.uuid in taken or recent.last("awake"):
                recent.used_s = frame.monotonic_s
            elif is_free(reading):
                recent.free_s = frame.monotonic_s

    def _recent(self, kind: Kind, key: str) -> Recent:
        recent = self._recents.get(key)
        if recent is None:
            recent = Recent(kind)
            self._recents[key] = recent
        return recent

    def _verdicts(self, case: Case) -> Iterator[Verdict]:
        """The verdicts that stand for a thing, none beside a critical one or a hang. Each family knows the findings of
        those before it."""
        is_alone = False
        is_degraded = False
        holds = self._kept[case.key].holds
        near = _near(holds.values())
        if near:
            case = case._replace(near=near)
        for family in Family:
            answer = self._answer(case, family)
            verdict = self._standing(case, family, answer)
            if verdict is not None and not is_alone and not (is_degraded and verdict.code in _FINE):
                is_degraded = is_degraded or (family is Family.STATE and verdict.level in URGENT)
                is_alone = _stands_alone(verdict)
                yield verdict
            if answer is not None:
                case = case._replace(found_limits=(*case.found_limits, answer.code))
                is_degraded = is_degraded or _is_coming(answer, holds[family], case.now_s)

    def _standing(self, case: Case, family: Family, answer: Finding | None) -> Verdict | None:
        """The verdict that stands for a thing in a family, with the newest evidence that it has."""
        hold = self._hold(case, family)
        limit = None if answer is None else answer.code
        hold_s = self._needed_s(case, family, limit, hold)
        stands = hold.take(limit, hold_s, case.now_s, case.frame.wall_s)
        last = self._last.get((case.key, family))
        if stands is None or (stands in _FINE and stands_still(case)):
            return None
        if answer is not None and stands is limit:
            return self._renewed(case, family, answer, hold, last)
        if family is Family.LIMIT and self._kept[case.key].stalls:
            # While no token comes, the limit of an engine's tokens does not matter.
            return None
        return last

    def _hold(self, case: Case, family: Family) -> Hold:
        holds = self._kept[case.key].holds
        hold = holds.get(family)
        if hold is None:
            hold = Hold(case.now_s, case.frame.wall_s)
            holds[family] = hold
        return hold

    def _needed_s(self, case: Case, family: Family, limit: Limit | None, hold: Hold) -> float:
        """For how long a finding must hold to become the verdict."""
        hold_s = _hold_s(case, family, limit, hold.limit)
        if hold.limit in (None, *_FINE) and case.now_s - self._begun_s < hold_s:
            return min(hold_s, self.first_hold_s)
        return hold_s

    def _renewed(self, case: Case, family: Family, answer: Finding, hold: Hold, last: Verdict | None) -> Verdict:
        """The verdict that stands and was found again."""
        if answer.began_s == math.inf:
            since_s = hold.since_wall_s
        else:
            since_s = hold.onset_s(answer.began_s, case.frame.wall_s - case.now_s)
        level = hold.level(answer.level, self._thresholds.hold_s, case.now_s)
        actions = answer.actions
        if not actions and last is not None and level is not answer.level:
            # Without actions of its own it has those of the level that still stands.
            actions = last.actions
        return Verdict(
            case.name,
            answer.code,
            answer.cause,
            _since(since_s),
            case.kind,
            case.key,
            family,
            level,
            answer.confidence,
            answer.parameters,
            answer.evidence,
            fitting_actions(actions, case.frame.gpus),
            answer.missing,
        )

    def _dated(self, verdict: Verdict, frame: Frame) -> Verdict:
        """One that is not found any more says when it was: its figures are of then."""
        gone_s = self._kept[verdict.key].holds[verdict.family].gone_s(frame.monotonic_s)
        if gone_s < FADES_S:
            return verdict
        return msgspec.structs.replace(verdict, until=rfc3339(frame.wall_s - gone_s))

    def _answer(self, case: Case, family: Family) -> Finding | None:
        """The finding of the rules."""
        if family is Family.LIMIT:
            return self._limit(case)
        if family is not Family.USE or case.kind is Kind.HOST:
            return self._first(case, family)
        kept = self._kept[case.key]
        case.recent.found_limits = case.found_limits
        if kept.use_found != case.found_limits or not 0.0 <= case.now_s - kept.used_s < USED_S:
            kept.use = self._first(case, family)
            kept.used_s = case.now_s
            kept.use_found = case.found_limits
        return kept.use

    def _limit(self, case: Case) -> Finding | None:
        """Finding about the limit of a thing; an engine's stands at the level of the harm that is done."""
        finding = self._first(case, Family.LIMIT)
        if finding is None or case.kind is not Kind.ENGINE:
            return finding
        return with_free_gpus(case, set_level_by_harm(case, finding))

    def _first(self, case: Case, family: Family) -> Finding | None:
        """The first that is sure, else the first that cannot tell."""
        unsure: Finding | None = None
        for rule in self._rules.get((case.kind, family), ()):
            answer = rule(case)
            if answer is not None and answer.code is not Limit.UNKNOWN:
                return answer
            unsure = unsure or answer
        return unsure


def rank(verdict: Verdict) -> tuple[int, int, int]:
    """The most urgent first; of equals what may be the cause of the other: broken hardware before a hang."""
    return URGENCY[verdict.level], _FAMILIES[verdict.family], _LIMITS[verdict.code]
