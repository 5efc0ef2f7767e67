"""Settings, clocks, links, programs and the load of the host that changed when a figure did, the most telling first,
and the actions that take them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.readings.snapshot import Gpu
from gpumon.readings.verdict import Action, Evidence, Parameters
from gpumon.triage.change import Change, find_change
from gpumon.triage.finding import Quantity, Remedy, params
from gpumon.triage.samples import Recent
from gpumon.triage.sentences import (
    CHECK_COOLING,
    CHECK_COOLING_AND_POWER,
    CHECK_POWER_SUPPLY,
    INSPECT_GPU,
    OWN_GPUS,
    RESET_APPLICATION_CLOCKS,
    RESET_LOCKED_CLOCKS,
    RESTORE_POWER_LIMIT,
    SHOW_NVLINKS,
)
from gpumon.triage.signals import MINUTE_S, Case
from gpumon.triage.turns import PROCESS, REPLICAS, Turn

SAMPLE_S: Final = 1.0
"""Seconds over which figures of GPUs and the host are means at the most."""
_BEFORE_ONSET_S: Final = 45.0
"""Seconds before a change in which its cause may lie: some settings are read every 30 s alone."""
_AFTER_ONSET_S: Final = 60.0
"""Seconds after the beginning of a change in which its cause may be seen first."""
_SAMPLED_LATE_S: Final = 2.0
"""Seconds after the beginning of a change from which on all samples are of after it."""
_SLOWER_CLOCK: Final = 0.9
"""Clock of after, of that before, from which on it is another."""
RARE: Final = 0.2
"""Share of time up to which a clock event reason was hardly there before."""
_FREQUENT: Final = 0.5
"""Share of time from which on it is there."""
_HOST_ROSE: Final = 0.25
"""Share of the CPU, or of the time, by which a host's figure has to rise to be named."""
_HOST_FIGURES: Final = {"cpu_ratio": "host_cpu", "cpu_pressure_ratio": "cpu_pressure"}
"""Sampled figure of the host -> code of its turn."""
HOST_TURNS: Final = frozenset(_HOST_FIGURES.values())
"""Codes of turns of the host."""
_LENGTHS: Final = {"prompt_tokens_mean": "prompt_tokens", "answer_tokens_mean": "answer_tokens"}
"""Sampled length of an engine's requests -> code of its turn."""
_LENGTH_TIMES: Final = 1.5
"""Times the length of before from which on prompts or answers are others."""
_HITS_LOST: Final = 0.2
"""Share of cached prompt tokens that has to be lost to be named."""
CLOCK_REASON_WORDS: Final = {
    "applications_clocks_setting": "application clocks",
    "sw_power_cap": "power limit",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "hardware slowdown",
}
"""Clock event reason -> its words. The last one is there with either of the two before it, which say more."""
_MOST_ACTIONS: Final = 3
"""Settings that are advised to be taken back: of a new version many options may differ."""
_RANKS: Final = {"clock_reason": 1, "clock": 2, PROCESS: 3}
"""Setting -> place among the causes; a setting that somebody chose has the first."""
_NOT_CAUSES: Final = HOST_TURNS | {REPLICAS, *_LENGTHS.values(), "cached"}
"""Settings and figures that are named beside a change, and that nobody takes back."""
NOT_SET: Final = _NOT_CAUSES | {PROCESS}
"""Causes before which that of another rule comes first."""


TURNED: Final = Quantity(
    "turned",
    (
        "{at:clock}: [{program} began on gpu {gpu:count}|{setting:setting} of gpu {gpu:count} {was} "
        "-> {to}|{setting:setting} {was} -> {to}|{setting:setting} {to} set|{setting:setting} {was} "
        "removed]"
    ),
)
TAKE_BACK: Final = Remedy(
    "take_back",
    (
        "take the change of {setting:setting} back ([{to} -> {was}|without {to}|{was} again]), and "
        "see whether that was it"
    ),
)


def turns_around(case: Case, gpus: Sequence[Gpu], began_s: float) -> tuple[Turn, ...]:
    """Turns of a thing and of these GPUs at the time of a change (monotonic), the most telling first."""
    turns = []
    recents = {id(case.recent): case.recent}
    for gpu in gpus:
        own = case.recents.get(gpu.reading.uuid)
        if own is not None:
            recents[id(own)] = own
            turns += _clock_turns(own, gpu, began_s)
    for recent in recents.values():
        for turn in recent.turns.noted:
            if -_BEFORE_ONSET_S <= turn.at_s - began_s <= _AFTER_ONSET_S:
                turns.append(turn)
    turns += _load_turns(case, began_s)
    return tuple(sorted(turns, key=lambda turn: (rank_of(turn), abs(turn.at_s - began_s))))


def rise_in_hour(recent: Recent, field: str, now: float, least_factor: float) -> Change | None:
    """The rise of a sampled field to `now` within the last hour, its beginning by the samples where they go back so
    far; None without one."""
    slots = recent.hour.timed_values(field)
    return find_change(slots, lambda: recent.values(field, recent.seconds), now, least_factor, SAMPLE_S)


def remembered_slowdown(case: Case, now: float) -> tuple[Change, tuple[Turn, ...]] | None:
    """The change since which an engine is slower, with what changed then, as long as it is; else it is forgotten."""
    recent = case.recent
    if recent.slowdown is not None and not recent.slowdown[0].stands(now, case.now_s):
        recent.slowdown = None
    return recent.slowdown


def rank_of(turn: Turn) -> int:
    """Place of a turn among the causes: settings, then what holds a clock, then programs, then other figures."""
    if turn.setting in _NOT_CAUSES:
        return len(_RANKS) + 1
    return _RANKS.get(turn.setting, 0)


def means_around(recent: Recent, field: str, began_s: float) -> tuple[float, float] | None:
    """Means of a figure in the minute before a change and since it has come; None where one of them has no sample."""
    before = []
    after = []
    for sampled_s, value in recent.values(field, recent.seconds):
        if began_s - MINUTE_S <= sampled_s <= began_s:
            before.append(value)
        elif sampled_s > began_s + _SAMPLED_LATE_S:
            after.append(value)
    if not before or not after:
        return None
    return sum(before) / len(before), sum(after) / len(after)


def _clock_turns(recent: Recent, gpu: Gpu, began_s: float) -> list[Turn]:
    """Turns of a GPU's clock: a reason that holds it since a change, and the clock that is lower."""
    turns: list[Turn] = []
    for reason, words in CLOCK_REASON_WORDS.items():
        shares = means_around(recent, reason, began_s)
        if shares is not None and shares[0] <= RARE and shares[1] >= _FREQUENT:
            turns.append(Turn(began_s, "clock_reason", before="nothing", after=words, gpu=gpu.reading.index))
    clocks = means_around(recent, "sm_clock_hz", began_s)
    if clocks is not None and clocks[1] < _SLOWER_CLOCK * clocks[0]:
        turns.append(
            Turn(began_s, "clock", f"{clocks[0] / 1e6:.0f} MHz", f"{clocks[1] / 1e6:.0f} MHz", gpu.reading.index)
        )
    return turns


def _load_turns(case: Case, began_s: float) -> Iterator[Turn]:
    """Figures of the host and of an engine's requests that are others since a change."""
    for field, code in _HOST_FIGURES.items():
        shares = means_around(case.host_recent, field, began_s)
        if shares is not None and shares[1] - shares[0] >= _HOST_ROSE:
            yield Turn(began_s, code, f"{shares[0]:.0%}", f"{shares[1]:.0%}")
    if case.engine is None:
        return
    for field, code in _LENGTHS.items():
        lengths = means_around(case.recent, field, began_s)
        if lengths is not None and lengths[1] >= _LENGTH_TIMES * lengths[0]:
            yield Turn(began_s, code, f"{lengths[0]:.0f}", f"{lengths[1]:.0f}")
    hits = means_around(case.recent, "cached_ratio", began_s)
    if hits is not None and hits[0] - hits[1] >= _HITS_LOST:
        yield Turn(began_s, "cached", f"{hits[0]:.0%}", f"{hits[1]:.0%}")


def wall_s(case: Case, monotonic_s: float) -> float:
    """Unix time of a moment, in whole seconds."""
    return float(round(monotonic_s + case.frame.wall_s - case.now_s))


def turn_parameters(turns: Sequence[Turn]) -> Parameters:
    """The most telling turn as parameters of a sentence; empty where there is none."""
    if not turns:
        return {}
    turn = turns[0]
    gpu = float(turn.gpu) if turn.gpu is not None else None
    if turn.setting == PROCESS:
        return params(program=turn.after, gpu=gpu)
    return params(setting=turn.setting, was=turn.before or None, to=turn.after or None, gpu=gpu)


def turns_evidence(case: Case, turns: Sequence[Turn]) -> Iterator[Evidence]:
    """Turns as evidence, each with the time at which it was seen."""
    for turn in turns:
        yield TURNED.evidence(parameters=turn_parameters((turn,)) | params(at=wall_s(case, turn.at_s)))


def actions_against(turns: Sequence[Turn]) -> tuple[Action, ...]:
    """Actions that take turns back: that of the most telling one, and of a few settings beside it; empty: none does."""
    held_gpus = {turn.gpu for turn in turns if turn.setting == "clock_reason"}
    actions: list[Action] = []
    for turn in turns:
        action = _action_against(turn, is_held=turn.gpu in held_gpus)
        if action is not None and (not actions or rank_of(turn) == 0):
            actions.append(action)
    return tuple(actions[:_MOST_ACTIONS])


_REMEDIES: Final[Mapping[str, Remedy]] = {
    "clock": RESET_LOCKED_CLOCKS,
    "clock_limit": RESET_LOCKED_CLOCKS,
    "nvlinks": SHOW_NVLINKS,
}
"""Setting of a GPU -> action that takes its turn back, or shows where to."""
_REMEDIES_BY_REASON: Final[Mapping[str, Remedy]] = {
    "application clocks": RESET_APPLICATION_CLOCKS,
    "power limit": RESTORE_POWER_LIMIT,
    "hardware slowdown": CHECK_COOLING_AND_POWER,
    "heat": CHECK_COOLING,
    "power brake": CHECK_POWER_SUPPLY,
}
"""Reason that holds a clock, in its words (`CLOCK_REASON_WORDS`) -> action against it."""


def _action_against(turn: Turn, *, is_held: bool) -> Action | None:
    """The action that takes a turn back; None where none does. `is_held`: there is a reason for a low clock, so that
    nobody locked it."""
    index = float(turn.gpu) if turn.gpu is not None else None
    if turn.setting == PROCESS:
        return OWN_GPUS.action(process=turn.after)
    if turn.setting == "power_limit":
        return RESTORE_POWER_LIMIT.action(index=index, watts=_first_number(turn.before))
    if turn.setting == "clock_reason":
        return _REMEDIES_BY_REASON[turn.after].action(index=index)
    if turn.setting in _NOT_CAUSES:
        return None
    if turn.setting == "clock" and is_held:
        return INSPECT_GPU.action(index=index)
    if turn.gpu is not None:
        return _REMEDIES.get(turn.setting, INSPECT_GPU).action(index=index)
    return TAKE_BACK.action(setting=turn.setting, was=turn.before or None, to=turn.after or None)


def _first_number(words: str) -> float | None:
    """The number with which words begin; None where they do not."""
    first = words.partition(" ")[0]
    return float(first) if first.isascii() and first.isdigit() else None
