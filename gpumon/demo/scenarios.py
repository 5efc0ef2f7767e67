"""Every scenario of the demo, read from `scenarios.toml` and the files of `plays`, one for each subject."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import starmap
from typing import Any, Final

import msgspec
import tomli

from gpumon.demo import physics
from gpumon.demo.engine_model import HostHold
from gpumon.demo.gpus import AverageWork
from gpumon.demo.scenario import (
    Actor,
    EngineCondition,
    EngineEffect,
    GpuEffect,
    HostEffect,
    Leftover,
    Program,
    Scenario,
    Stage,
    Truth,
)
from gpumon.demo.speculation import DraftSettings
from gpumon.demo.traffic import LogNormalLengths, Patience, Surge, TrafficDemand
from gpumon.demo.training import Loader, TrainingRun
from gpumon.readings.frame import HostProcess, HostReading
from gpumon.readings.goals import Goals
from gpumon.readings.verdict import Level
from gpumon.specs.units import GIB

TomlRow = dict[str, Any]
_FOLDER: Final = files(__package__)
_FILE: Final[TomlRow] = tomli.loads(_FOLDER.joinpath("scenarios.toml").read_text(encoding="utf-8"))
_MOST_NAMES: Final = 3
"""Names that are proposed for one that is not known."""
_LEVELS: Final = {"C": Level.CRITICAL, "W": Level.WARN, "N": Level.NOTE, "O": Level.OK}
"""Letter in `levels` of the file -> level of the verdict."""
_WITHIN_S: Final = 60.0
"""Longest time until a verdict that must be raised is named, where the file does not say."""


def _truth(row: TomlRow) -> Truth:
    """A verdict that a scenario must or may raise."""
    key = "may"
    within_s = math.inf
    if "must" in row:
        key = "must"
        within_s = row.get("within_s", _WITHIN_S)
    levels = tuple(_LEVELS[letter] for letter in row["levels"])
    actions = _actions(row.get("actions", ""))
    first_actions = _actions(row.get("first", ""))
    from_s = row.get("from_s", 0.0)
    to_s = row.get("to_s", math.inf)
    return Truth(
        thing=row[key],
        code=row["code"],
        levels=levels,
        actions=actions,
        first=first_actions,
        from_s=from_s,
        to_s=to_s,
        within_s=within_s,
        root=row.get("root", ""),
    )


def _actions(words: str) -> tuple[str, ...]:
    """The codes of actions in words separated by blanks; `@NAME` stands for the actions of that name."""
    codes: list[str] = []
    for word in words.split():
        if word.startswith("@"):
            codes += _FILE["actions"][word[1:]].split()
        else:
            codes.append(word)
    return tuple(codes)


def _lengths(tokens: float | list[float]) -> LogNormalLengths:
    """Lengths near one number, or those of `[median, sigma, least, most]`."""
    if isinstance(tokens, list):
        median, sigma, least, most = tokens
        return LogNormalLengths(median, sigma, int(least), int(most))
    return LogNormalLengths(
        median=float(tokens),
        sigma=0.1,
        least=max(1, int(tokens) // 2),
        most=int(tokens) * 2,
    )


def demand(requests_per_s: float, prompt: Any, output: Any, **more: Any) -> TrafficDemand:
    """Traffic of a row of `scenarios.toml`, without waves unless they are asked for."""
    surges = tuple(starmap(Surge, more.pop("surges", ())))
    singles = tuple((float(at_s), prompt, output) for at_s, prompt, output in more.pop("singles", ()))
    more["hit_surges"] = tuple(starmap(Surge, more.pop("hit_surges", ())))
    more["patience"] = tuple(starmap(Patience, more.pop("patience", ())))
    more["batches"] = tuple((float(at_s), count) for at_s, count in more.pop("batches", ()))
    more = {"swing": 0.0, **more, "surges": surges, "singles": singles}
    return TrafficDemand(requests_per_s, _lengths(prompt), _lengths(output), **more)


def _actor(row: TomlRow) -> Actor:
    """An engine of a row; `like` names one that it differs from in these fields."""
    converters: dict[str, Callable[[Any], Any]] = {
        "shape": lambda name: getattr(physics, name),
        "chip": lambda name: getattr(physics, name),
        "speed": lambda figures: physics.Speed(*figures),
        "held": lambda figures: HostHold(*figures),
        "demand": lambda figures: demand(**figures),
        "ranks": lambda ranks: tuple(map(tuple, ranks)),
        "hidden": tuple,
        "speculation": lambda figures: DraftSettings(*figures),
    }
    fields = {}
    for key, value in row.items():
        if key in converters:
            fields[key] = converters[key](value)
        elif key != "like":
            fields[key] = value
    if "like" in row:
        return msgspec.structs.replace(ENGINES[row["like"]], **fields)
    return Actor(**fields)


def _run(row: TomlRow) -> TrainingRun:
    """A training run of a row, by default the one of `run`."""
    row = {**_FILE["run"], **row}
    parts = {"shape": getattr(physics, row["shape"]), "chip": getattr(physics, row["chip"])}
    return TrainingRun(**{**row, **parts, "gpus": tuple(row["gpus"]), "loader": Loader(*row["loader"])})


def _leftover(row: TomlRow) -> Leftover:
    """The process of a row that is no engine."""
    row = {**row, "work": AverageWork(*row.get("work", ()))}
    return Leftover(vram_bytes=row.pop("vram_gib") * GIB, **row)


def _program(row: TomlRow) -> Program:
    """The program of a row."""
    stages = tuple(map(_stage, row.pop("stages", ())))
    ended: dict[int, float] = {int(gpu): at_s for gpu, at_s in row.pop("ended", {}).items()}
    gpus = tuple(row.pop("gpus"))
    return Program(gpus=gpus, vram_bytes=row.pop("vram_gib") * GIB, stages=stages, ended=ended, **row)


def _stage(row: TomlRow) -> Stage:
    """The stage of a program's work in a row."""
    fields = {**row, "gpus": tuple(row.get("gpus", ()))}
    for key in ("work", "rest"):
        fields[key] = AverageWork(**row.get(key, {}))
    return Stage(**fields)


def host(
    from_s: float = -math.inf,
    to_s: float = math.inf,
    consumers: Sequence[Sequence[Any]] = (),
    leak_bytes_per_s: float = 0.0,
    **figures: float,
) -> HostEffect:
    """Figures of the host for a while. `consumers`: pid, name, user and cores of each process.

    `leak_bytes_per_s`: bytes by which its memory in use grows.
    """
    processes = tuple(starmap(HostProcess, consumers))
    reading = msgspec.structs.replace(HostReading(consumers=processes), **figures)
    return HostEffect(reading=reading, leak_bytes_per_s=leak_bytes_per_s, from_s=from_s, to_s=to_s)


def _scenario(row: TomlRow) -> Scenario:
    """A scenario of a row, with the records of its lists."""
    parts = {
        "truth": _truth,
        "cast": _actor,
        "runs": _run,
        "leftovers": _leftover,
        "programs": lambda fields: _program(dict(fields)),
        "gpu_effects": lambda fields: msgspec.convert(fields, GpuEffect),
        "engine_effects": lambda fields: msgspec.convert(fields, EngineEffect),
        "engine_conditions": lambda fields: msgspec.convert(fields, EngineCondition),
        "host_effects": lambda fields: host(**fields),
    }
    lists = {key: tuple(map(make, row.get(key, ()))) for key, make in parts.items()}
    chip = getattr(physics, row.get("chip", "H100"))
    goals = Goals(**{name: float(seconds) for name, seconds in row.get("goals", {}).items()})
    return Scenario(**{**row, **lists, "chip": chip, "goals": goals, "unmeasured": tuple(row.get("unmeasured", ()))})


def _plays() -> list[Scenario]:
    """The scenarios of the files in `plays`, by the files' names."""
    scenarios = []
    for file in sorted(_FOLDER.joinpath("plays").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            rows = tomli.loads(file.read_text(encoding="utf-8"))
            scenarios += [_scenario(row) for row in rows["scenario"]]
    return scenarios


ENGINES: Final[dict[str, Actor]] = {name: _actor(row) for name, row in _FILE["engine"].items()}
"""The engines by name that rows of scenarios may begin with: `like`."""
PRETRAIN: Final = _run({})
"""The training run that others differ from. A step takes 0.9 s; its loader brings eight batches in 4 s: it keeps up."""
QUIET_HOST: Final = host(**_FILE["host"])
"""A host of 64 cores that have little to do."""
# The first one is the demo without a name, and not in the list.
DEMO, *_OTHERS = map(_scenario, _FILE["scenario"])
SCENARIOS: Final = (*_OTHERS, *_plays())


def scenario(name: str) -> Scenario:
    """The scenario of a name. Raises LookupError where there is none."""
    for candidate in SCENARIOS:
        if candidate.name == name:
            return candidate
    raise LookupError(name)


def near(name: str) -> list[str]:
    """At most three names like this one, the most alike first; where none is, those that have it in them."""
    names = [candidate.name for candidate in SCENARIOS]
    name = name.lower()
    alike = difflib.get_close_matches(name, names, n=_MOST_NAMES)
    if alike:
        return alike
    return [longer for longer in names if name in longer][:_MOST_NAMES]
