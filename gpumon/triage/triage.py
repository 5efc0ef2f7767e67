"""Snapshots in, verdicts and events out: what rules find, and what stands of it. Same frames, same verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.faults import is_unoccupied
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuProcess
from gpumon.readings.goals import Goals
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.readings.verdict import EventKind, Family, Kind, Level, Limit, Verdict
from gpumon.triage.causes import with_causes
from gpumon.triage.engine_state import BROKEN, busiest_cpu, processes_on_gpus
from gpumon.triage.events import Events
from gpumon.triage.finding import Finding
from gpumon.triage.free_gpus import with_free_gpus
from gpumon.triage.gpu_hardware import gpus_in_use
from gpumon.triage.harm import set_level_by_harm
from gpumon.triage.hold import Hold
from gpumon.triage.improvements import Improvements
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.other_vendors import fitting_actions
from gpumon.triage.progress.tokens import may_hang, stands_still
from gpumon.triage.rules import RULES, RuleFunction
from gpumon.triage.samples import Recent, holder_of
from gpumon.triage.signals import Case, cases, gpus_of
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.turns import replicas_by_name

_FINE: Final = (Limit.HEALTHY, Limit.EVALUATING)
"""Limits that do not stand beside a state that is a warning, not even while they fade."""
_FAMILY_ORDER: Final = {family: index for index, family in enumerate(Family)}
_LIMIT_ORDER: Final = {limit: index for index, limit in enumerate(Limit)}
"""Order of verdicts that are equally urgent: as the enumerations have them."""
_OF_MINUTES: Final = frozenset({Family.USE, Family.FORECAST})
"""Families whose findings are of minutes: what a trouble was part of says nothing of the time after it."""
FIRST_HOLD_S: Final = 6.0
"""Seconds (three polls of an engine) for which a finding must hold in the first moments of a gpumon that a fleet's
screen has just started, so that trouble comes first there at once."""
REST_S: Final = 2.0
"""Seconds, or the interval of an engine if that is longer, after which it is judged anew without a new poll, as its
GPUs and the host go on. Before that only if a GPU of it comes, goes or gets another verdict: rules are dear."""
USED_S: Final = 4.0
"""Seconds for which a finding on the use of an engine or a GPU counts: it is a mean of minutes."""
FADES_S: Final = 5.0
"""Seconds without being found after which a verdict says that its figures are of then."""
DOUBT_S: Final = 10.0
"""Seconds for which a warning must be found, though it does not stand yet, to call a thing healthy no more."""
CURED_S: Final = 90.0
"""Seconds after a trouble was found last in which what is left of it in windows is no new one: quantiles and shares
are of 60 s, and the requests that it held up have to end first."""
ENDS_S: Final = 5.0
"""Seconds without being found after which a trouble counts as over: two polls of an engine, and one that was missed."""
MOST_RESTARTS: Final = 8
"""Restarts of an engine that are remembered."""

_cached_rfc3339: Final = lru_cache(maxsize=1024)(rfc3339)
"""Cached, as the start of a verdict that stands is the same at every tick."""


class _Trouble(NamedTuple):
    """An urgent verdict of a thing that stood, when it was found last."""

    code: Limit
    cause: str
    found_s: float
    """Monotonic."""


class _Memory:
    """Memory of one thing from snapshot to snapshot, beside its samples."""

    def __init__(self) -> None:
        self.holds: dict[Family, Hold] = {}
        """Hysteresis of each family: its verdict that stands, and the finding that is pending."""
        self.troubles: dict[Family, _Trouble] = {}
        """The last urgent verdict of each family."""
        self.verdicts: tuple[Verdict, ...] = ()
        """Verdicts on an engine, given at `judged_s` (monotonic) by `reading` and the state of its GPUs
        (`gpu_states`)."""
        self.judged_s = -math.inf
        self.reading: EngineReading | None = None
        self.gpu_states: object = None
        self.use: Finding | None = None
        """Finding on its use, made at `use_s` (monotonic) after the limits in `limits_before_use`."""
        self.use_s = -math.inf
        self.limits_before_use: tuple[Limit, ...] = ()
        self.forecast_cause = ""
        """Cause of the last forecast: the figure that it was about."""
        self.restarted_s: tuple[float, ...] = ()
        """When an engine's processes were seen to begin anew (monotonic), the last ones."""
        self.suspects: tuple[str, ...] = ()
        """GPUs (uuids) of an engine that may hang, when it was judged last."""
        self.stalls = False
        """An engine gave no token for some seconds, when it was judged last."""


def _needs_no_hold(case: Case, family: Family, limit: Limit | None) -> bool:
    """Whether a finding on a state needs no time to be sure: a GPU is lost or not, and rules on engines and on
    programs that hang count time."""
    return family is Family.STATE and (case.kind is not Kind.GPU or limit in (Limit.HARDWARE_FAULT, Limit.HUNG))


def _ends_at_once(case: Case, family: Family, standing: Limit | None) -> bool:
    """Whether a verdict that is not found any more is over for sure.

    Clocks held down have their own time after which they are over; what hung works or does not; a straggler is over
    once its cause, a slow clock, is known.
    """
    if family is Family.STATE and standing in (Limit.THROTTLED, Limit.HUNG):
        return True
    return standing is Limit.STRAGGLER and Limit.THROTTLED in case.found_limits


def _with_limits_before(case: Case, holds: Iterable[Hold]) -> Case:
    """The case with the limits that stand, and those that stand or were found last."""
    standing = set()
    pending = set()
    for hold in holds:
        if hold.limit is not None:
            standing.add(hold.limit)
        if hold.pending is not None:
            pending.add(hold.pending)
    if not standing and not pending:
        return case
    return case._replace(limits_before=frozenset(standing | pending), standing_limits=frozenset(standing))


def _is_urgent(verdict: Verdict | None) -> bool:
    """Whether a family has a warning or a critical verdict."""
    return verdict is not None and verdict.level in URGENT


def _degrades(verdict: Verdict) -> bool:
    """Whether a verdict says that the thing is broken, slow or on its way out, so that it is not called healthy."""
    is_known = verdict.level in URGENT or verdict.code in (Limit.FAILING, Limit.DRAINING)
    return verdict.family is Family.STATE and is_known


def _stands_alone(verdict: Verdict) -> bool:
    """Whether nothing else is worth saying of the thing: what makes its requests fail, though, mostly is."""
    if verdict.code is Limit.FAILING:
        return False
    return verdict.level is Level.CRITICAL or verdict.code in (Limit.HUNG, Limit.UNRESPONSIVE)


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
        self._memories: dict[str, _Memory] = {}
        """Key of a thing in the newest frame -> what is remembered of it."""
        self._events = Events()
        self._improvements = Improvements()
        self._last_verdicts: dict[tuple[str, Family], Verdict] = {}
        """(Key of a thing, family) -> the verdict that stood there at the last snapshot."""
        self._causes: dict[str, str] = {}
        """Id of a verdict -> `caused_by` of it at the last snapshot."""
        self._begun_s = math.inf
        """When the first snapshot was judged (monotonic)."""
        self.first_hold_s = math.inf
        """How long a finding must hold to come in the first `hold_s` of this triage, where that is shorter."""

    def judge(self, frame: Frame, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its verdicts, the most urgent first, and what happened since the one before."""
        self._begun_s = min(self._begun_s, frame.monotonic_s)
        self._sample(frame, snapshot)
        standing = [self._with_until(verdict, frame) for verdict in self._standing_verdicts(frame, snapshot)]
        ranked = with_causes(frame, snapshot, standing, self._causes)
        self._causes = {verdict.id: verdict.caused_by for verdict in ranked if verdict.caused_by}
        ranked.sort(key=rank)
        judged = msgspec.structs.replace(snapshot, verdicts=tuple(ranked))
        events = (*self._events.between(frame, judged), *self._improvements.between(frame, judged, self._recents))
        for event in events:
            if event.kind is EventKind.RESTART:
                memory = self._memories[event.key]
                self._recents[event.key].begin_shares_anew(frame.monotonic_s)
                memory.restarted_s = (*memory.restarted_s[1 - MOST_RESTARTS :], frame.monotonic_s)
        for key in self._events.in_turn:
            self._memories[key].restarted_s = ()
        return msgspec.structs.replace(judged, events=events)

    @property
    def suspects(self) -> frozenset[str]:
        """GPUs (uuids) whose PCIe traffic is worth measuring: their engine may hang."""
        return frozenset(uuid for memory in self._memories.values() for uuid in memory.suspects)

    def _standing_verdicts(self, frame: Frame, snapshot: Snapshot) -> list[Verdict]:
        """All verdicts that stand: of engines in their order, of GPUs, of the host."""
        standing: dict[str, tuple[Verdict, ...]] = {}
        engines: list[Verdict] = []
        host: list[Verdict] = []
        for case in cases(frame, snapshot, self._recents, self._thresholds, self._prices, self._goals):
            if case.kind is Kind.GPU:
                standing[case.key] = tuple(self._verdicts(case))
            elif case.reading is not None:
                engines += self._engine_verdicts(case._replace(standing=standing), case.reading)
            else:
                host += self._verdicts(case._replace(standing=standing))
        verdicts = list(engines)
        for gpu_verdicts in standing.values():
            verdicts += gpu_verdicts
        verdicts += host
        self._last_verdicts = {(verdict.key, verdict.family): verdict for verdict in verdicts}
        return verdicts

    def _engine_verdicts(self, case: Case, reading: EngineReading) -> tuple[Verdict, ...]:
        """The verdicts on an engine: those of before while neither it nor its GPUs have anything new to tell."""
        gpu_states = []
        for device in case.gpus:
            causes = [verdict.cause for verdict in case.standing.get(device.reading.uuid, ())]
            gpu_states.append((device.reading.state, causes))
        memory = self._memories[case.key]
        rest_s = max(REST_S, reading.interval_s)
        if memory.reading is reading and memory.gpu_states == gpu_states and case.now_s - memory.judged_s < rest_s:
            return memory.verdicts
        restart_ages_s = [
            case.now_s - restart_s
            for restart_s in memory.restarted_s
            if 0.0 <= case.now_s - restart_s < self._thresholds.restart_s
        ]
        memory.verdicts = tuple(self._verdicts(case._replace(restart_ages_s=tuple(restart_ages_s))))
        memory.reading = reading
        memory.gpu_states = gpu_states
        memory.judged_s = case.now_s
        memory.stalls = may_hang(case)
        memory.suspects = ()
        if memory.stalls:
            memory.suspects = reading.gpus
        return memory.verdicts

    def _sample(self, frame: Frame, snapshot: Snapshot) -> None:
        """Take samples of the host, the GPUs and the engines, and forget those of things that are gone."""
        now_s = frame.monotonic_s
        gpus = {gpu.reading.uuid: gpu for gpu in snapshot.gpus}
        engine_keys = [engine.key for engine in snapshot.engines]
        self._keep_only({"", *gpus, *engine_keys})
        host = self._recent(Kind.HOST, "")
        host.add(now_s, snapshot.host)
        host.worked_out.clear()  # that is of the GPUs and engines of one snapshot, and samples may be rarer
        for uuid, device in gpus.items():
            recent = self._recent(Kind.GPU, uuid)
            recent.add(now_s, device)
            recent.turns.note_gpu(now_s, device, is_awake=bool(recent.last("awake")))
        self._note_use(frame)
        replicas = replicas_by_name(snapshot)
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            engine_gpus = gpus_of(reading, gpus)
            self._sample_engine(frame, reading, engine, engine_gpus)
            self._recents[engine.key].turns.note_engine(now_s, engine, reading, engine_gpus, replicas)

    def _keep_only(self, keys: set[str]) -> None:
        """Forget things that are not there any more."""
        if keys == self._memories.keys():
            return
        for key in self._recents.keys() - keys:
            del self._recents[key]
        self._memories = {key: self._memories.get(key) or _Memory() for key in keys}

    def _sample_engine(self, frame: Frame, reading: EngineReading, engine: Engine, gpus: Sequence[Gpu]) -> None:
        """Take a sample of an engine on these GPUs: of its figures, its processes, and its requests if it answers."""
        now_s = frame.monotonic_s
        recent = self._recent(Kind.ENGINE, engine.key)
        is_answering = engine.state is EndpointState.OK
        processes: dict[int, GpuProcess] = processes_on_gpus(engine, gpus) if gpus and is_answering else {}
        recent.add(now_s, engine, busiest_cpu(processes.values()), stalled=self._memories[engine.key].stalls)
        if is_answering:
            recent.arrivals.add(now_s, reading)
            recent.pauses.add(reading)
            _remember_holders(recent, frame, processes, gpus)
        elif engine.state in (EndpointState.REFUSED, EndpointState.DOWN, EndpointState.DRAINING):
            recent.refused_s = now_s

    def _note_use(self, frame: Frame) -> None:
        """Remember which GPUs can work, are used, and are free: one that is lost does not tell any more."""
        taken = gpus_in_use(frame)
        for reading in frame.gpus:
            recent = self._recents[reading.uuid]
            if reading.state not in BROKEN:
                recent.whole_s = frame.monotonic_s
            if reading.uuid in taken or recent.last("awake"):
                recent.used_s = frame.monotonic_s
            elif is_unoccupied(reading):
                recent.free_s = frame.monotonic_s

    def _recent(self, kind: Kind, key: str) -> Recent:
        """The samples of a thing; none yet for a new one."""
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
        holds = self._memories[case.key].holds
        case = _with_limits_before(case, holds.values())
        case = case._replace(stood=self._verdicts_before(case.key))
        for family in Family:
            finding = self._finding(case, family)
            verdict = self._standing_verdict(case, family, finding)
            if _is_urgent(verdict) != _is_urgent(case.stood.get(family)):
                for hold in holds.values():
                    hold.begin_anew()
            if verdict is not None and not is_alone and not (is_degraded and verdict.code in _FINE):
                is_degraded = is_degraded or _degrades(verdict)
                is_alone = _stands_alone(verdict)
                yield verdict
            if finding is not None:
                case = case._replace(found_limits=(*case.found_limits, finding.code))
                is_pending = finding.level in URGENT and holds[family].pending_s(case.now_s) >= DOUBT_S
                is_degraded = is_degraded or is_pending

    def _verdicts_before(self, key: str) -> dict[Family, Verdict]:
        """The verdicts on a thing at the last snapshot, by family."""
        last = self._last_verdicts
        return {family: last[key, family] for family in Family if (key, family) in last}

    def _standing_verdict(self, case: Case, family: Family, finding: Finding | None) -> Verdict | None:
        """The verdict that stands for a thing in a family, with the newest evidence that it has."""
        hold = self._hold(case, family)
        limit = finding.code if finding is not None else None
        hold_s = self._needed_s(case, family, limit, hold)
        if finding is not None and finding.is_sure:
            hold_s = 0.0
        stands = hold.take(limit, hold_s, case.now_s, case.frame.wall_s)
        last = self._last_verdicts.get((case.key, family))
        if stands is None or (stands in _FINE and stands_still(case)):
            return None
        if finding is not None and stands is limit:
            return self._renewed_verdict(case, family, finding, hold, last)
        if family is Family.LIMIT and may_hang(case):
            # While no token comes, the limit of an engine's tokens does not matter.
            return None
        return last

    def _hold(self, case: Case, family: Family) -> Hold:
        """The hold of a thing's family, which begins with nothing."""
        holds = self._memories[case.key].holds
        hold = holds.get(family)
        if hold is None:
            hold = Hold(case.now_s, case.frame.wall_s)
            holds[family] = hold
        return hold

    def _needed_s(self, case: Case, family: Family, limit: Limit | None, hold: Hold) -> float:
        """How long a finding (`limit`; None: nothing) must hold to take the place of the verdict that stands, in s."""
        if _needs_no_hold(case, family, limit) or (limit is None and _ends_at_once(case, family, hold.limit)):
            return 0.0
        hold_s = case.thresholds.hold_s
        if hold.limit in (None, *_FINE) and case.now_s - self._begun_s < hold_s:
            return min(hold_s, self.first_hold_s)
        return hold_s

    def _renewed_verdict(
        self, case: Case, family: Family, finding: Finding, hold: Hold, last: Verdict | None
    ) -> Verdict:
        """The verdict that stands and was found again."""
        if finding.began_s == math.inf:
            since_s = hold.since_wall_s
        else:
            since_s = hold.began_wall_s(finding.began_s, case.frame.wall_s - case.now_s)
        if finding.level in URGENT:
            trouble = _Trouble(finding.code, finding.cause, case.now_s)
            memory = self._memories[case.key]
            memory.troubles[family] = trouble
        if family is Family.FORECAST:
            self._memories[case.key].forecast_cause = finding.cause
        level = hold.level(finding.level, self._thresholds.hold_s, case.now_s)
        actions = finding.actions
        if not actions and last is not None and level is not finding.level:
            # Without actions of its own it has those of the level that still stands.
            actions = last.actions
        return Verdict(
            scope=case.name,
            code=finding.code,
            cause=finding.cause,
            since=_cached_rfc3339(since_s),
            kind=case.kind,
            key=case.key,
            family=family,
            level=level,
            confidence=finding.confidence,
            parameters=finding.parameters,
            evidence=finding.evidence,
            actions=fitting_actions(actions, case.frame.gpus),
            unknown=finding.missing,
        )

    def _with_until(self, verdict: Verdict, frame: Frame) -> Verdict:
        """The verdict; with the time at which it was found last, where that was not now: its figures are of then."""
        absent_s = self._memories[verdict.key].holds[verdict.family].absent_s(frame.monotonic_s)
        if absent_s < FADES_S:
            return verdict
        return msgspec.structs.replace(verdict, until=rfc3339(frame.wall_s - absent_s))

    def _finding(self, case: Case, family: Family) -> Finding | None:
        """The finding of a family's rules; that on use is kept for some seconds."""
        if family is not Family.USE or case.kind is Kind.HOST:
            return self._first_finding(case, family)
        memory = self._memories[case.key]
        case.recent.found_limits = case.found_limits
        if memory.limits_before_use != case.found_limits or not 0.0 <= case.now_s - memory.use_s < USED_S:
            memory.use = self._first_finding(case, family)
            memory.use_s = case.now_s
            memory.limits_before_use = case.found_limits
        return memory.use

    def _first_finding(self, case: Case, family: Family) -> Finding | None:
        """The first finding of a family's rules. What is new after a cure has to be found without what windows still
        have of the trouble before it."""
        finding = self._levelled_finding(case, family)
        if finding is None or finding.level is Level.OK:
            return finding
        cured_s = self._cured_s(case, family, finding)
        if cured_s is None:
            return finding
        since_cure = case._replace(recent=case.recent.since(cured_s), is_cured=True)
        again = self._levelled_finding(since_cure, family)
        if again is None:
            return None
        if _meaning(again) == _meaning(finding):
            return finding
        own = self._memories[case.key].troubles.get(family)
        goes_on = own is not None and (own.code, own.cause) == (again.code, again.cause)
        if family is Family.STATE and goes_on:
            return finding  # shares of requests: this one has come beside the one that goes on
        return again

    def _cured_s(self, case: Case, family: Family, finding: Finding) -> float | None:
        """When the trouble ended (monotonic) whose rest in the windows may be all that a finding is made of; None: none
        ended of late, or the finding is the trouble that goes on."""
        own = self._memories[case.key].troubles.get(family)
        is_own_limit = own is not None and own.code is finding.code
        if own is not None and is_own_limit and self._goes_on(case, family, finding, own):
            return None
        if family not in _OF_MINUTES and finding.level not in URGENT and not is_own_limit:
            return None
        ended_s = self._last_ended_s(case, own)
        # USE is a mean of minutes: a stall is no lack of traffic.
        rest_s = max(CURED_S, case.thresholds.under_used_s) if family is Family.USE else CURED_S
        if case.now_s - ended_s > rest_s:
            return None
        return ended_s

    def _goes_on(self, case: Case, family: Family, finding: Finding, own: _Trouble) -> bool:
        """Whether a finding of the same limit is the trouble of before: it stands, or was found just now."""
        if own.cause != finding.cause and finding.began_s > own.found_s:
            return False
        return self._hold(case, family).limit is own.code or case.now_s - own.found_s <= ENDS_S

    def _last_ended_s(self, case: Case, own: _Trouble | None) -> float:
        """When the last trouble of a thing ended, or of an engine's GPUs or host (monotonic); `own` ends where another
        one takes its place."""
        keys = [case.key]
        if case.kind is Kind.ENGINE:
            keys += [gpu.reading.uuid for gpu in case.gpus]
            keys.append("")
        ended_s = -math.inf
        for key in keys:
            for trouble in self._memories[key].troubles.values():
                if case.now_s - trouble.found_s > ENDS_S or trouble is own:
                    ended_s = max(ended_s, trouble.found_s)
        return ended_s

    def _returns_too_soon(self, case: Case, family: Family, finding: Finding) -> bool:
        """Whether a note was here a few minutes ago: nobody suffers, so that it can wait."""
        if finding.level is not Level.NOTE or family is Family.STATE or finding.code in _FINE:
            return False
        if not self._hold(case, family).went_lately(finding.code, case.now_s):
            return False
        if family is Family.FORECAST and finding.cause != self._memories[case.key].forecast_cause:
            return False  # it is one of another figure
        return family is not Family.LIMIT or set_level_by_harm(case, finding).level is Level.NOTE

    def _levelled_finding(self, case: Case, family: Family) -> Finding | None:
        """The first finding of a family's rules; an engine's limit stands at the level of the harm that is done."""
        finding = self._finding_of_rules(case, family)
        if finding is None or family is not Family.LIMIT or case.kind is not Kind.ENGINE:
            return finding
        return with_free_gpus(case, set_level_by_harm(case, finding))

    def _finding_of_rules(self, case: Case, family: Family) -> Finding | None:
        """The finding of the first rule that is sure, else that of the first that cannot tell."""
        unsure: Finding | None = None
        for rule in self._rules.get((case.kind, family), ()):
            finding = rule(case)
            if finding is not None and self._returns_too_soon(case, family, finding):
                continue
            if finding is not None and finding.code is not Limit.UNKNOWN:
                return finding
            unsure = unsure or finding
        return unsure


def _meaning(finding: Finding) -> tuple[object, ...]:
    """Code, cause and level of a finding, whatever its figures are."""
    return finding.code, finding.cause, finding.level


def rank(verdict: Verdict) -> tuple[int, bool, int, int]:
    """Order of verdicts: the most urgent first; of equals a cause before consequences, and what may be one before the
    other, such as broken hardware before a hang."""
    return URGENCY[verdict.level], bool(verdict.caused_by), _FAMILY_ORDER[verdict.family], _LIMIT_ORDER[verdict.code]


def _remember_holders(recent: Recent, frame: Frame, processes: Mapping[int, GpuProcess], gpus: Sequence[Gpu]) -> None:
    """Remember the processes of an engine that answers, and the memory in use on the GPUs that they are on."""
    holders = {pid: holder_of(process, frame.wall_s - frame.monotonic_s) for pid, process in processes.items()}
    held_bytes = {
        gpu.reading.uuid: number(gpu.reading.vram_used_bytes)
        for gpu in gpus
        if any(process.pid in holders for process in gpu.reading.processes)
    }
    recent.holders = holders
    recent.held_bytes = held_bytes
