"""Events that say what an advised action brought: a verdict is over, a setting that it advised to change was changed,
and latencies of before and after are known at comparable loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.facts import (
    CLOCK_FACT,
    OPTION,
    STARTED,
    Facts,
    clock_text,
    clock_under_load,
    differing_facts,
    engine_facts,
    gpu_settings,
)
from gpumon.readings.before_after import SAME_LOAD_FACTOR
from gpumon.readings.format import is_last_bucket
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Snapshot
from gpumon.readings.verdict import Action, Event, EventKind, Family, Kind, Level, Parameters, Verdict
from gpumon.triage.samples import Recent

_LOOK_S: Final = 10.0
"""Seconds between two looks at an engine: settings change seldom, and reading them at each poll is dear."""
_SETTLE_S: Final = 90.0
"""Seconds after a change in which latencies are not believed: their window is 60 s, and a queue needs some time to
go."""
_LOAD_S: Final = 60.0
"""Window of the loads that are compared."""
ENDS_S: Final = 180.0
"""Seconds after a change within which a verdict must end to have been ended by it."""
_KEPT_S: Final = 1800.0
"""Seconds for which the figures of a verdict that is over are kept, for the change that may have ended it."""
DIFFERS: Final = 0.2
"""Share by which a p95 has to differ to be reported: it is of one minute on each side."""

RAISED: Final = 1
_LOWERED: Final = -1
EITHER: Final = 0
"""Ways in which a number is advised to change: they are multiplied with its rise."""


class _AdvisedSetting(NamedTuple):
    """Settings that an action advises to change, and which way."""

    codes: tuple[str, ...] = ()
    """Codes of facts, beside the options that the action names."""
    way: int = EITHER


_REMEDIES: Final[Mapping[str, _AdvisedSetting]] = {
    "raise_slots": _AdvisedSetting(("slots",), way=RAISED),
    "bigger_steps": _AdvisedSetting(way=RAISED),
    "raise_lora_slots": _AdvisedSetting(way=RAISED),
    "lower_context": _AdvisedSetting(way=_LOWERED),
    "limit_prompt": _AdvisedSetting(way=_LOWERED),
    "smaller_chunks": _AdvisedSetting(way=EITHER),
    "more_kv_memory": _AdvisedSetting(("memory_share",), way=RAISED),
    "fp8_kv": _AdvisedSetting(("kv_cache",)),
    "quantise_weights": _AdvisedSetting(("weights",)),
    "prefix_caching": _AdvisedSetting(("prefix_caching",)),
    "narrow_dtype": _AdvisedSetting(("weights",)),
    "cuda_graphs": _AdvisedSetting(),
    "chunk_prompts": _AdvisedSetting(),
    "expert_parallel": _AdvisedSetting(),
    "more_gpus": _AdvisedSetting(("tp", "gpus"), way=RAISED),
    "halve_tp": _AdvisedSetting(("tp",), way=_LOWERED),
    "smaller_tp": _AdvisedSetting(("tp",), way=_LOWERED),
    "pipeline_instead": _AdvisedSetting(("pp",), way=RAISED),
    "data_parallel": _AdvisedSetting(("ranks",), way=RAISED),
    "more_front_ends": _AdvisedSetting(way=RAISED),
    "reset_locked_clocks": _AdvisedSetting((CLOCK_FACT,), way=RAISED),
    "reset_application_clocks": _AdvisedSetting((CLOCK_FACT,), way=RAISED),
    "inspect_gpu": _AdvisedSetting((CLOCK_FACT,), way=RAISED),
    "restore_power_limit": _AdvisedSetting(("power_limit",), way=RAISED),
    "lower_power_limit": _AdvisedSetting(("power_limit",), way=_LOWERED),
}
"""Code of an action that changes a setting which is seen -> that setting. Traffic that is moved elsewhere is another
load, so that nothing is compared."""
_FLAG_PARAMETERS: Final = ("flag", "tp_flag", "pp_flag", "chunked")
"""Parameters of actions that name an option."""
_GPU_PREFIX: Final = "gpu "
"""Before the index of a GPU and the code of a fact of it."""


class _Measured(NamedTuple):
    """Latencies of the last minute, and the load at which they were."""

    itl_s: Quantiles
    ttft_s: Quantiles
    requests_per_s: float | None


class _Trial(NamedTuple):
    """A verdict with something to try, as it was while it stood."""

    actions: Sequence[Action]
    facts: Facts
    measured: _Measured
    stood_s: float
    """Unix time at which it stood last, with these settings."""
    changed_s: float = 0.0
    """Unix time at which a setting was changed as it advises; 0: none was."""


class _Look(NamedTuple):
    """An engine as it is now."""

    wall_s: float
    engine: Engine
    reading: EngineReading
    facts: Facts
    measured: _Measured


class _Applied(NamedTuple):
    """A setting that was changed as advised."""

    setting: str
    gpu: float | None
    """Index of its GPU; None: it is one of the engine."""
    before: str
    after: str


_VerdictPlace = tuple[str, Family]
"""Key of the thing and family of a verdict."""


class Improvements:
    """Remembers verdicts with their advice, and reports what came of it. Knows no clock."""

    def __init__(self) -> None:
        self._trials: dict[str, dict[_VerdictPlace, _Trial]] = {}
        """`Engine.key` -> the verdicts on it and its GPUs that advise to change a setting."""
        self._looked_s: dict[str, float] = {}
        """When each engine was looked at last (Unix time)."""

    def between(self, frame: Frame, snapshot: Snapshot, recents: Mapping[str, Recent]) -> list[Event]:
        """Events on actions whose effect is known since this snapshot."""
        advised = _verdicts_with_remedy(snapshot)
        if not advised and not self._trials:
            return []
        events: list[Event] = []
        gpus = {gpu.reading.uuid: gpu for gpu in snapshot.gpus}
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            standing = [*advised.get(engine.key, ())]
            for uuid in reading.gpus:
                standing += advised.get(uuid, ())
            if standing or engine.key in self._trials:
                own_gpus = [gpus[uuid] for uuid in reading.gpus if uuid in gpus]
                recent = recents.get(engine.key)
                events += self._engine_improvements(frame.wall_s, reading, engine, own_gpus, standing, recent)
        self._forget_others(snapshot)
        return events

    def _forget_others(self, snapshot: Snapshot) -> None:
        """Forget the engines that are not in this snapshot."""
        listed = {engine.key for engine in snapshot.engines}
        for key in self._trials.keys() - listed:
            del self._trials[key]
            self._looked_s.pop(key, None)

    def _engine_improvements(
        self,
        wall_s: float,
        reading: EngineReading,
        engine: Engine,
        gpus: Sequence[Gpu],
        standing: Sequence[Verdict],
        recent: Recent | None,
    ) -> Iterator[Event]:
        """Note the verdicts on one engine and its GPUs. Returns events on those that a change has ended."""
        was_looked_at = 0.0 <= wall_s - self._looked_s.get(engine.key, -_LOOK_S) < _LOOK_S
        if engine.state is not EndpointState.OK or was_looked_at or recent is None:
            return
        self._looked_s[engine.key] = wall_s
        look = _Look(
            wall_s=wall_s,
            engine=engine,
            reading=reading,
            facts=_settings_of(engine, reading, gpus),
            measured=_latencies_now(engine, recent),
        )
        trials = self._trials.setdefault(engine.key, {})
        standing_places: set[_VerdictPlace] = set()
        for verdict in standing:
            place = (verdict.key, verdict.family)
            standing_places.add(place)
            trials[place] = _updated_trial(trials.get(place), verdict, look)
        for place in [place for place in trials if place not in standing_places]:
            yield from _follow_up(trials, place, look)
        if not trials:
            del self._trials[engine.key]
            del self._looked_s[engine.key]


def _verdicts_with_remedy(snapshot: Snapshot) -> dict[str, list[Verdict]]:
    """Key of an engine or a GPU -> the verdicts on it that advise to change a setting which is seen."""
    advised: dict[str, list[Verdict]] = {}
    for verdict in snapshot.verdicts:
        if verdict.kind is not Kind.HOST and any(action.code in _REMEDIES for action in verdict.actions):
            advised.setdefault(verdict.key, []).append(verdict)
    return advised


def _follow_up(trials: dict[_VerdictPlace, _Trial], place: _VerdictPlace, look: _Look) -> Iterator[Event]:
    """Events on a verdict that does not stand any more: what a change brought, once the load has settled."""
    trial = trials[place]
    applied = _applied_setting(trial, look.facts)
    if applied is not None and trial.changed_s == 0.0:
        trials[place] = trial._replace(changed_s=_changed_at_s(trial, look.reading, look.wall_s))
    elif applied is not None and look.wall_s - max(trial.changed_s, trial.stood_s) >= _SETTLE_S:
        del trials[place]
        yield from _improvement_event(trial, applied, look)
    elif look.wall_s - trial.stood_s > _KEPT_S:
        del trials[place]


def _updated_trial(trial: _Trial | None, verdict: Verdict, look: _Look) -> _Trial:
    """The trial of a verdict that stands: with what it is measured now, unless what it advises was changed by now."""
    fresh = _Trial(verdict.actions, look.facts, look.measured, stood_s=look.wall_s)
    if trial is None:
        return fresh
    if _applied_setting(trial, look.facts) is None:
        if verdict.until:
            return trial
        return fresh
    if trial.changed_s == 0.0:
        return trial._replace(changed_s=look.wall_s)
    if look.wall_s - trial.changed_s > ENDS_S:
        return fresh
    return trial


def _settings_of(engine: Engine, reading: EngineReading, gpus: Sequence[Gpu]) -> Facts:
    """Settings of an engine and of its GPUs, those with the index of the GPU before their code."""
    processes = [process for gpu in gpus for process in gpu.reading.processes]
    facts = engine_facts(engine, reading, processes)
    for gpu in gpus:
        settings = gpu_settings(gpu)
        clock_hz = clock_under_load(gpu)
        if clock_hz is not None:
            settings[CLOCK_FACT] = clock_text(clock_hz)
        for code, value in settings.items():
            facts[f"{_GPU_PREFIX}{gpu.reading.index} {code}"] = value
    return facts


def _latencies_now(engine: Engine, recent: Recent) -> _Measured:
    """Latencies of an engine, and its load: requests that end and those that are turned away."""
    requests_per_s = recent.mean("requests_per_s", _LOAD_S)
    rejections_per_s = recent.mean("rejections_per_s", _LOAD_S)
    if requests_per_s is not None and rejections_per_s is not None:
        requests_per_s += rejections_per_s
    return _Measured(itl_s=engine.latency.itl_s, ttft_s=engine.latency.ttft_s, requests_per_s=requests_per_s)


def _changed_at_s(trial: _Trial, reading: EngineReading, wall_s: float) -> float:
    """When a change was made: with the start of the process, where that is newer than the verdict and in the past."""
    if trial.stood_s < reading.started_wall_s <= wall_s:
        return reading.started_wall_s
    return wall_s


def _applied_setting(trial: _Trial, facts: Facts) -> _Applied | None:
    """The first setting that was changed as one of the actions advises."""
    for code, before, after in differing_facts(trial.facts, facts):
        if code == STARTED:
            continue
        for action in trial.actions:
            applied = _setting_as_advised(action, code, before, after)
            if applied is not None:
                return applied
    return None


def _setting_as_advised(action: Action, code: str, before: str, after: str) -> _Applied | None:
    """A changed setting, where an action advises to change it, and this way."""
    remedy = _REMEDIES.get(action.code)
    if remedy is None:
        return None
    gpu: float | None = None
    if code.startswith(_GPU_PREFIX):
        index, _, code = code.removeprefix(_GPU_PREFIX).partition(" ")
        gpu = float(index)
    setting = code.removeprefix(f"{OPTION} ")
    is_advised = setting in _named_options(action) if code.startswith(f"{OPTION} ") else code in remedy.codes
    if not is_advised or not _changed_that_way(remedy.way, before, after):
        return None
    if gpu is not None and action.parameters.get("index", gpu) != gpu:
        return None
    return _Applied(setting, gpu=gpu, before=before, after=after)


def _named_options(action: Action) -> set[str]:
    """Options that an action names: `--kv-cache-dtype` of `--kv-cache-dtype fp8`."""
    options = set()
    for parameter in _FLAG_PARAMETERS:
        option = action.parameters.get(parameter, "")
        if isinstance(option, str) and option:
            options.add(option.split()[0])
    return options


def _changed_that_way(way: int, before: str, after: str) -> bool:
    """Whether a number rose or fell as it was to; what is no number, or was not given, may be anything."""
    try:
        rise = float(after.split()[0]) - float(before.split()[0])
    except (ValueError, IndexError):
        return True
    return way == EITHER or rise * way > 0.0


def _improvement_event(trial: _Trial, applied: _Applied, look: _Look) -> Iterator[Event]:
    """The event, where both sides were measured and the loads allow to compare them."""
    ways, latencies = _compared_latencies(trial.measured, look.measured)
    now_per_s = look.measured.requests_per_s
    before_per_s = trial.measured.requests_per_s
    load = now_per_s / before_per_s if before_per_s and now_per_s is not None else None
    if not ways or load is None or not _is_comparable(load, sum(ways)):
        return
    parameters = {"changed": trial.changed_s} | _setting_parameters(applied) | latencies
    if not 1.0 / SAME_LOAD_FACTOR <= load <= SAME_LOAD_FACTOR:
        parameters["load"] = load
    level = Level.OK if sum(ways) > 0 else Level.NOTE
    yield Event(
        wall_s=look.wall_s,
        kind=EventKind.GAIN,
        scope=look.engine.name,
        code="applied",
        level=level,
        key=look.engine.key,
        parameters=parameters,
    )


def _compared_latencies(before: _Measured, now: _Measured) -> tuple[list[int], Parameters]:
    """The way of each latency that is known on both sides (1: far lower now), and those that differ as parameters."""
    ways = []
    latencies: Parameters = {}
    for name, old, new in (("itl", before.itl_s, now.itl_s), ("ttft", before.ttft_s, now.ttft_s)):
        way = _way_of_latency(old, new)
        if way is None:
            continue
        ways.append(way)
        if way:
            latencies[f"{name}_before"] = number(old.p95) or 0.0
            latencies[f"{name}_after"] = number(new.p95) or 0.0
            if is_last_bucket(old.p95_high):
                latencies[f"{name}_before_above"] = "yes"
            if is_last_bucket(new.p95_high):
                latencies[f"{name}_after_above"] = "yes"
    return ways, latencies


def _setting_parameters(applied: _Applied) -> Parameters:
    """A changed setting as parameters of its event."""
    parameters: Parameters = {"setting": applied.setting}
    if applied.gpu is not None:
        parameters["gpu"] = applied.gpu
    if applied.before and applied.after:
        parameters["before"] = applied.before
    if applied.after:
        parameters["after"] = applied.after
    return parameters


def _way_of_latency(old: Quantiles, new: Quantiles) -> int | None:
    """1: the p95 is far lower now; -1: far higher; 0: about the same; None: one of them is not known."""
    before = number(old.p95)
    after = number(new.p95)
    if before is None or after is None:
        return None
    is_same_bucket = (old.p95_low, old.p95_high) == (new.p95_low, new.p95_high) and not isinstance(old.p95_low, Missing)
    if is_same_bucket or abs(after - before) < DIFFERS * max(before, after):
        return 0
    if after < before:
        return 1
    return -1


def _is_comparable(load: float, way: int) -> bool:
    """Whether the loads are about the same; or the difference is in spite of them: lower latencies (`way` above 0) at a
    higher load."""
    if load > SAME_LOAD_FACTOR:
        return way > 0
    if load < 1.0 / SAME_LOAD_FACTOR:
        return way < 0
    return True
