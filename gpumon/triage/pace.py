"""A program without a feed, or a training run, that takes longer for the same work than it did: since when, and what
changed at that time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.snapshot import Gpu
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit
from gpumon.triage.change import LEAST_BEFORE, Change, TimedValue, exact_change, find_change, find_rise, level_until
from gpumon.triage.finding import Cause, Finding, Quantity, params, yes_if
from gpumon.triage.gpu_figures import gpu_of
from gpumon.triage.host import Rhythm, rhythm_in, times_of_drops
from gpumon.triage.hour import SLOT_S
from gpumon.triage.onset import (
    SAMPLE_S,
    actions_against,
    means_around,
    rank_of,
    remembered_slowdown,
    turn_parameters,
    turns_around,
    turns_evidence,
    wall_s,
)
from gpumon.triage.programs import ProgramGpus, program_of, waits_for_rank
from gpumon.triage.samples import TENSOR_CYCLES, PaceChange, Recent
from gpumon.triage.sentences import LOOK_AT_TIME, PROFILE_STEPS, TURNED
from gpumon.triage.signals import Case
from gpumon.triage.turns import Turn

_TRAFFIC: Final = "bandwidth_bytes_per_s"
"""Sampled field of a GPU: memory traffic."""
_SLOWER_TIMES: Final = 1.5
"""Factor by which the same work takes longer than before from which on a program is slower. A choice: steps of one run
differ by a tenth, and by a third where their inputs differ in length."""
_LEAST_TIMES: Final = 1.25
"""Factor by which each of its GPUs has to take longer: they wait for each other, and one that alone has less to do is
out of balance."""
_SAME_MIX: Final = 0.25
"""Most by which memory traffic, NVLink traffic and arithmetic may fall by different factors while the work is the same:
an evaluation has no gradients to send, a longer sequence more arithmetic for each byte."""
_LASTS_S: Final = 60.0
"""Seconds for which it is slower from which on it is told: an evaluation or a save is over by then, or seen as
such."""
_SET_LASTS_S: Final = 15.0
"""The same where a setting changed at that time."""
_PAUSED: Final = 0.05
"""Share of the highest rate of work within the hour up to which a program pauses: a pause is no slower step."""
_LEAST_WORK: Final = {_TRAFFIC: 1e10, "nvlink_bytes_per_s": 1e8, TENSOR_CYCLES: 2e7}
"""Sampled field that tells a program's pace -> what its highest mean of a slot within the hour has to exceed for that:
a hundredth of what the slowest memory, link and tensor cores of a data centre do."""
_ALWAYS_BUSY: Final = 0.9
"""Least busy share, before and after, of a program that does not train: one that answers requests rests where fewer
come."""
_RHYTHM_S: Final = 75.0
"""Seconds over which the rhythm of now is looked for, and that of before."""
_RHYTHM_GAP_S: Final = 15.0
"""Seconds between both: the longest round before which the change may have begun."""


TRAINED_TOKENS_PER_S: Final = Quantity(
    "trained_tokens_per_s", "{value:amount} tok/s, {limit:amount} before", field="trained_tokens_per_s"
)
SAMPLES_PER_S: Final = Quantity(
    "samples_per_s", "{value:amount} samples/s, {limit:amount} before", field="samples_per_s"
)
PACE_BANDWIDTH_BYTES_PER_S: Final = Quantity(
    "pace_bandwidth_bytes_per_s",
    "memory traffic {value:bytes}/s, {limit:bytes}/s before",
    field="bandwidth_bytes_per_s",
)
PACE_NVLINK_BYTES_PER_S: Final = Quantity(
    "pace_nvlink_bytes_per_s", "NVLink {value:bytes}/s, {limit:bytes}/s before", field="nvlink_bytes_per_s"
)
PACE_TENSOR_CYCLES_PER_S: Final = Quantity(
    "pace_tensor_cycles_per_s",
    "tensor cores active in {value:amount} cycles/s, {limit:amount} before",
    field="tensor_cycles_per_s",
)
PACE_SM_CLOCK_HZ: Final = Quantity(
    "pace_sm_clock_hz", "SM clock {value:ghz} GHz, {limit:ghz} GHz before", field="sm_clock_hz"
)
_RATES: Final = {row.field: row for row in (TRAINED_TOKENS_PER_S, SAMPLES_PER_S)}
"""Sampled field of a training run -> its figure."""
_WORK: Final = {
    row.field: row
    for row in (
        PACE_BANDWIDTH_BYTES_PER_S,
        PACE_NVLINK_BYTES_PER_S,
        PACE_TENSOR_CYCLES_PER_S,
        PACE_SM_CLOCK_HZ,
    )
}
"""Sampled field of a GPU -> its figure as a measure of work."""

PROGRAM_SLOWER: Final = Cause(
    "program_slower",
    Limit.SLOWED_DOWN,
    (
        "{job} on gpu {on} takes {times:factor} as long for the same work since {began:clock}[ (a "
        "round every {step_s:seconds}, {step_before_s:seconds} before)]" + TURNED
    ),
    level=Level.NOTE,
)


def program_slower(case: Case) -> Finding | None:
    """Rule: the GPUs of a program do the same work in far more time than before; the first of them speaks for all."""
    program = program_of(case)
    if program is None or not _is_judged(case, program):
        return None
    slower = _slower_by_work(case, program) or _slower_by_rhythm(case, program)
    if slower is None:
        return None
    change = slower.change
    is_set = bool(slower.turns) and rank_of(slower.turns[0]) == 0
    if case.now_s - change.began_s < (_SET_LASTS_S if is_set else _LASTS_S):
        return None
    began = wall_s(case, change.began_s)
    step_before_s, step_s = slower.step_s or (None, None)
    parameters = params(
        job=program.name,
        on=program.indices,
        times=slower.now / change.before,
        began=began,
        step_s=step_s,
        step_before_s=step_before_s,
    )
    return PROGRAM_SLOWER.finding(
        parameters=parameters | turn_parameters(slower.turns),
        evidence=(*turns_evidence(case, slower.turns), *_work_evidence(case, change.began_s)),
        actions=actions_against(slower.turns) or (LOOK_AT_TIME.action(began=began), PROFILE_STEPS.action()),
        confidence=Confidence.HIGH if is_set else Confidence.MEDIUM,
        began_s=change.began_s,
    )


def _is_judged(case: Case, program: ProgramGpus) -> bool:
    """Whether the pace of a program is asked for here: on its first GPU, where no feed tells it, and of one that goes
    on by itself; its ranks may wait in a collective that hangs."""
    is_first = program.gpus[0].reading.uuid == case.key
    goes_on = bool(program.command) and not program.serves
    return is_first and goes_on and not case.engines and not waits_for_rank(case)


class _Slower(NamedTuple):
    """How much longer a program takes for the same work."""

    change: Change
    """Change of the seconds for a unit of work, or for a round."""
    now: float
    """The same figure now."""
    turns: tuple[Turn, ...]
    step_s: tuple[float, float] | None
    """Seconds of a round before and after, where there is a rhythm."""


def _slower_by_work(case: Case, program: ProgramGpus) -> _Slower | None:
    """A program's change of pace by the work that its GPUs do; None without one, and where nothing measures it."""
    fields = _fields_of_work(case)
    rate = case.recent.mean(fields[0], SLOT_S) if fields else None
    if not rate:
        return None
    now = 1.0 / rate
    kept = _kept(case, program, now)
    if kept is not None:
        return kept
    slots = _slots(case.recent, fields[0])
    change = find_rise(_seconds_per_unit(slots), now, _SLOWER_TIMES)
    if change is None or not _is_same_work(case, program, fields, change.began_s):
        return None
    samples = case.recent.values(fields[0], case.recent.seconds)
    change = exact_change(_seconds_per_unit(samples), change, now, SAMPLE_S)
    return _noted(case, program, change, now, _rounds_around(case, change.began_s))


def _fields_of_work(case: Case) -> list[str]:
    """Sampled fields that tell how much of its work a GPU does, the best first. Those of which it does next to nothing
    are left out, and so is memory traffic that is not measured."""
    gpu = gpu_of(case)
    fields = []
    for field, least in _LEAST_WORK.items():
        is_measured = field != _TRAFFIC or gpu.bandwidth_source.is_measured
        before = case.recent.hour.values(field)
        if is_measured and case.recent.last(field) is not None and max(before, default=0.0) > least:
            fields.append(field)
    return fields


def _slots(recent: Recent, field: str) -> list[TimedValue]:
    """Means of a field in the slots of the last hour in which the program of now was on the GPU from the beginning."""
    return [slot for slot in recent.hour.timed_values(field) if slot[0] - SLOT_S >= recent.program_since_s]


def _seconds_per_unit(work: Sequence[TimedValue]) -> list[TimedValue]:
    """Time for a unit of work in each slot or sample in which the program was at it."""
    least = _PAUSED * max((value for _, value in work), default=0.0)
    return [(at_s, 1.0 / value) for at_s, value in work if value > least]


def _kept(case: Case, program: ProgramGpus, now: float) -> _Slower | None:
    """The change of pace that is remembered, while the program is slower than before it; else it is forgotten."""
    kept = case.recent.pace
    if kept is None:
        return None
    if kept.program != program.key or not kept.change.stands(now, case.now_s):
        case.recent.pace = None
        return None
    return _Slower(kept.change, now, kept.turns, kept.step_s)


def _noted(case: Case, program: ProgramGpus, change: Change, now: float, step_s: tuple[float, float] | None) -> _Slower:
    """A change of pace with what changed then; remembered once that is known for sure: samples are forgotten."""
    turns = turns_around(case, _gpus_around(case, program), change.began_s)
    if case.now_s - change.began_s >= _LASTS_S:
        case.recent.pace = PaceChange(program.key, change, turns, step_s)
    return _Slower(change, now, turns, step_s)


def _gpus_around(case: Case, program: ProgramGpus) -> list[Gpu]:
    """The GPUs of a program, and those that it had for itself until another program came."""
    gpus = list(program.gpus)
    for gpu in case.snapshot.gpus:
        key, _ = case.recents[gpu.reading.uuid].program
        if key == program.key and gpu not in gpus:
            gpus.append(gpu)
    return gpus


def _is_same_work(case: Case, program: ProgramGpus, fields: Sequence[str], began_s: float) -> bool:
    """Whether all kinds of work became less by the same factor, on all GPUs of the program; of a program that does not
    train its GPUs must have been busy all the time, too."""
    factors = []
    for field in fields:
        before = _level_before(case, field, began_s)
        now = case.recent.mean(field, SLOT_S)
        if not before or not now:
            return False
        factors.append(before / now)
    if max(factors) > (1.0 + _SAME_MIX) * min(factors):
        return False
    for gpu in program.gpus:
        recent = case.recents[gpu.reading.uuid]
        work = means_around(recent, fields[0], began_s)
        if work is None or work[0] < _LEAST_TIMES * work[1]:
            return False
        busy = means_around(recent, "busy_ratio", began_s)
        if not program.trains and (busy is None or min(busy) < _ALWAYS_BUSY):
            return False
    return True


def _level_before(case: Case, field: str, began_s: float) -> float | None:
    """Median of a kind of work in the slots before a change; None where there are too few."""
    return level_until(_slots(case.recent, field), began_s, LEAST_BEFORE)


def _slower_by_rhythm(case: Case, program: ProgramGpus) -> _Slower | None:
    """A program's change of pace by the rhythm in which its GPU is busy, where nothing measures its work."""
    if _fields_of_work(case):
        return None
    late = _rhythm_between(case, case.now_s - _RHYTHM_S, case.now_s)
    if late is None or not (program.trains or len(program.gpus) > 1):
        return None
    kept = _kept(case, program, late.period_s)
    if kept is not None:
        return kept._replace(step_s=(kept.change.before, late.period_s))
    end_s = case.now_s - _RHYTHM_S - _RHYTHM_GAP_S
    early = _rhythm_between(case, end_s - _RHYTHM_S, end_s)
    if early is None or late.period_s < _SLOWER_TIMES * early.period_s:
        return None
    began_s = _begin_of_longer_rounds(case, early, late)
    change = Change(early.period_s, began_s, is_sudden=True)
    return _noted(case, program, change, late.period_s, (early.period_s, late.period_s))


def _begin_of_longer_rounds(case: Case, early: Rhythm, late: Rhythm) -> float:
    """When the first of the rounds began from which on all were longer (monotonic)."""
    drops = times_of_drops(case.recent.values("busy_ratio", case.recent.seconds), early.upper / 2.0)
    middle_s = (early.period_s + late.period_s) / 2.0
    began_s = drops[-1]
    for before_s, after_s in reversed(list(pairwise(drops))):
        if after_s - before_s < middle_s:
            break
        began_s = before_s
    return began_s


def _rhythm_between(case: Case, from_s: float, to_s: float) -> Rhythm | None:
    """The rhythm in which the GPU was busy between two moments (monotonic)."""
    samples = case.recent.values("busy_ratio", case.recent.seconds)
    from_s = max(from_s, case.recent.program_since_s)
    return rhythm_in([(at_s, busy) for at_s, busy in samples if from_s <= at_s <= to_s], case.thresholds)


def _rounds_around(case: Case, began_s: float) -> tuple[float, float] | None:
    """Seconds of a round before a change and after it; None where its GPU shows no rhythm."""
    before = _rhythm_between(case, began_s - _RHYTHM_S, began_s)
    after = _rhythm_between(case, began_s, case.now_s)
    if before is None or after is None:
        return None
    return before.period_s, after.period_s


def _work_evidence(case: Case, began_s: float) -> Iterator[Evidence]:
    """Work of the GPU now and before the change, by kinds."""
    for field in _fields_of_work(case):
        before = _level_before(case, field, began_s)
        now = case.recent.mean(field, SLOT_S)
        if before is not None and now is not None:
            yield _WORK[field].evidence(now, limit=before, source=f"{field}, mean of {SLOT_S:.0f} s")


TRAINING_SLOWER: Final = Cause(
    "training_slower",
    Limit.SLOWED_DOWN,
    (
        "[{samples=yes}{now:amount} samples/s, {before:amount}|{now:amount} tok/s, {before:amount}] "
        "before {began:clock}: {times:factor} the time for as many" + TURNED
    ),
    level=Level.NOTE,
)


def training_slower(case: Case) -> Finding | None:
    """Rule: a training run with a feed makes steps far more seldom than before, and goes on."""
    engine = case.engine
    if engine is None or engine.phase is not Phase.TRAINING or engine.state is not EndpointState.OK:
        return None
    field = "trained_tokens_per_s" if case.newest("trained_tokens_per_s") is not None else "samples_per_s"
    rate = case.mean(field)
    if not rate:
        return None
    slower = _slower_run(case, field, rate)
    if slower is None or case.now_s - slower.change.began_s < _LASTS_S:
        return None
    before = 1.0 / slower.change.before
    began = wall_s(case, slower.change.began_s)
    parameters = params(
        now=rate,
        before=before,
        times=before / rate,
        began=began,
        samples=yes_if(field == "samples_per_s"),
    )
    return TRAINING_SLOWER.finding(
        parameters=parameters | turn_parameters(slower.turns),
        evidence=(*turns_evidence(case, slower.turns), case.evidence(_RATES[field], rate, limit=before)),
        actions=actions_against(slower.turns) or (LOOK_AT_TIME.action(began=began), PROFILE_STEPS.action()),
        confidence=Confidence.HIGH if slower.turns else Confidence.MEDIUM,
        began_s=slower.change.began_s,
    )


def _slower_run(case: Case, field: str, rate: float) -> _Slower | None:
    """A run's change of pace by its rate of tokens or samples; None without one."""
    recent = case.recent
    now = 1.0 / rate
    remembered = remembered_slowdown(case, now)
    if remembered is not None:
        change, turns = remembered
        return _Slower(change, now, turns, None)
    slots = _seconds_per_unit(recent.hour.timed_values(field))

    def samples() -> list[TimedValue]:
        return _seconds_per_unit(recent.values(field, recent.seconds))

    rise = find_change(slots, samples, now, _SLOWER_TIMES, SLOT_S)
    if rise is None:
        return None
    turns = turns_around(case, case.gpus, rise.began_s)
    if case.now_s - rise.began_s >= _LASTS_S:
        recent.slowdown = (rise, turns)
    return _Slower(rise, now, turns, None)
