"""Profiles as text: the list, one profile with its points and two small plots, and all of it as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpumon.outputs.tables import INDENT, Column, labelled, table, wrapped
from gpumon.outputs.units import NONE, milliseconds, quantities, token
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.sweeps.knee import Knee, knee, load, throughput

SCHEMA: Final = 1
_PLOT_ROWS: Final = 7
_PLOT_WIDTH: Final = 56
_MARGIN: Final = 8
"""Cells of the numbers left of a plot."""
_LOGARITHMIC: Final = 12.0
"""From this ratio of the loads the x axis is logarithmic: sweeps double."""
_ABSENT: Final = Missing(Reason.NOT_EXPOSED)
_LABEL: Final = 14
_LIST: Final = (
    ("NAME", False, 9),
    ("MODEL", False, 2),
    ("GPU", False, 4),
    ("IN/OUT", False, 3),
    ("CONC", True, 9),
    ("TOK/S", True, 6),
    ("ITL", True, 5),
    ("FROM", False, 1),
)
"""Columns of the list: title, flush right, and which leave first where there is no room (the lowest)."""


def listed(profiles: Mapping[str, Observed], builtin: frozenset[str], broken: Sequence[str], width: int = 160) -> str:
    """A line per profile, the user's own first; then a line per file that can not be read."""
    names = sorted(profiles, key=lambda name: (name in builtin, name))
    rows = [_row(name, profiles[name], built=name in builtin) for name in names]
    columns = (Column(title, [row[at] for row in rows], right, keep) for at, (title, right, keep) in enumerate(_LIST))
    lines = list(table(tuple(columns), width))
    for line in broken:
        lines.extend(wrapped(f"not read: {line}", width, "", INDENT))
    if len(names) == len(builtin.intersection(names)):
        lines.append("none is imported yet: gpumon profiles add FILE...")
    return "\n".join(lines) + "\n"


def shown(profile: Observed, notes: Sequence[str], *, built: bool = False, width: int = 160) -> str:
    """All that one profile says: facts, knee, points, and throughput and ITL over the load with the knee marked."""
    found = knee(profile.points) if profile.points else None
    lines = [f"{token(profile.name)}{' (comes with gpumon)' if built else ''}"]
    for name, value in (*_facts(profile, found), *(("note", token(note, spaces=True)) for note in notes)):
        lines.extend(labelled(name, value, width, room=_LABEL))
    if found is not None:
        lines.extend(("", *_points(profile.points, found, width)))
        for title, value_of in _PLOTS:
            lines.extend(_plot(title, profile.points, found, value_of))
    return "\n".join(lines) + "\n"


def added(profiles: Sequence[Observed], notes: Sequence[str], place: str, width: int = 160) -> str:
    """What an import made: per profile its points and operating point, then what to know."""
    lines = []
    for each in profiles:
        found = knee(each.points)
        at = f"operating point {load(found.point):.4g} in flight ({found.rule})"
        count = f"{len(each.points)} point{'s' if len(each.points) != 1 else ''}"
        lines.append(f"added {token(each.name)}: {count} of {token(each.model, spaces=True)}; {at}")
    lines.extend(f"note: {token(note, spaces=True)}" for note in notes)
    lines.append(f"in {token(place, spaces=True)}")
    name = token(profiles[0].name)
    lines.append(f'`gpumon profiles show {name}` draws it; `profile = "{name}"` in a scenario plans with it')
    return "\n".join(part for line in lines for part in wrapped(line, width, "", INDENT)) + "\n"


def as_json(profile: Observed, notes: Sequence[str] = (), *, built: bool = False) -> dict[str, Any]:
    """A profile as JSON has it: fields of `Observed` that were seen, its knee, and whether it comes with gpumon."""
    found = knee(profile.points) if profile.points else None
    fields: dict[str, Any] = msgspec.to_builtins(profile)
    fields["builtin"] = built
    fields["notes"] = list(notes)
    fields["knee"] = None if found is None else _knee(found)
    return fields


def encoded(value: Mapping[str, Any]) -> bytes:
    """One JSON object on one line, with the schema of this output."""
    return msgspec.json.encode({"schema": SCHEMA, **value}) + b"\n"


def _knee(found: Knee) -> dict[str, Any]:
    return {
        "concurrency": load(found.point),
        "beyond": None if found.beyond is None else load(found.beyond),
        "plateau_running": found.plateau,
        "rule": found.rule,
    }


def _row(name: str, profile: Observed, *, built: bool) -> tuple[str, ...]:
    at = _at_knee(profile)
    lengths = (profile.prompt_tokens, profile.answer_tokens)
    return (
        token(name),
        token(profile.model)[:40],
        _gpus(profile)[:28] or NONE,
        "/".join("?" if each is None else f"{each:.0f}" for each in lengths) if any(lengths) else NONE,
        quantities["count"](_or_absent(profile.concurrency)),
        quantities["number"](_or_absent(at.tokens_per_s if at else None)),
        milliseconds(_or_absent(at.itl_s if at else None)),
        "gpumon" if built else token(profile.tool or profile.origin.value, spaces=True)[:28],
    )


def _gpus(profile: Observed) -> str:
    """`2 x H100 SXM5 80GB`, `2 GPUs` of a type that is not known; empty where nothing is."""
    if not profile.gpu:
        return f"{profile.gpus} GPU{'s' if profile.gpus > 1 else ''}" if profile.gpus else ""
    return (
        f"{profile.gpus} x {token(profile.gpu, spaces=True)}" if profile.gpus > 1 else token(profile.gpu, spaces=True)
    )


def _at_knee(profile: Observed) -> Point | None:
    return next((point for point in profile.points if load(point) == profile.concurrency), None)


def _facts(profile: Observed, found: Knee | None) -> list[tuple[str, str]]:
    """Name and value; an empty value is left out."""
    number, share = quantities["number"], quantities["ratio"]
    parallel = [f"{name} {size}" for name, size in (("TP", profile.tp), ("PP", profile.pp)) if size > (name == "PP")]
    precisions = [profile.weight_precision, profile.kv_precision and f"KV {profile.kv_precision}"]
    lengths = (("in", profile.prompt_tokens), ("out", profile.answer_tokens))
    facts = [
        ("model", token(profile.model, spaces=True)),
        (
            "measured by",
            " ".join(token(each, spaces=True) for each in (profile.tool, profile.time) if each),
        ),
        ("GPU", ", ".join(filter(None, (_gpus(profile), *parallel)))),
        ("precision", ", ".join(filter(None, precisions))),
        ("tokens", ", ".join(f"{value:.0f} {name}" for name, value in lengths if value is not None)),
        ("memory", "" if profile.memory_bytes is None else f"{profile.memory_bytes / 1e9:.2f} GB"),
        ("GPU busy", _said(share, profile.busy_ratio)),
        ("power", _said(quantities["w"], profile.power_w)),
        ("KV pool", _said(number, profile.kv_pool_tokens, " tokens")),
        ("sequences", "" if profile.max_num_seqs is None else f"at most {profile.max_num_seqs}"),
        ("prefill", _said(number, profile.prefill_tokens_per_s, " tok/s at least")),
    ]
    if profile.concurrency is not None:
        why = f": {found.rule}" if found is not None and profile.origin is Origin.SWEEP else ""
        until = f", knee before {load(found.beyond):.4g}" if why and found and found.beyond is not None else ""
        facts.append(("operates at", f"{profile.concurrency:.4g} in flight{until}{why}"))
    if found is not None and found.plateau is not None:
        facts.append(("plateau", f"{found.plateau:.1f} decode together, whatever more is offered"))
    return facts


def _said(form: Callable[[Reading], str], value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{form(value)}{unit}"


def _or_absent(value: float | None) -> Reading:
    return _ABSENT if value is None else value


def _points(points: Sequence[Point], found: Knee, width: int) -> list[str]:
    number = quantities["number"]
    titles = ("", "OFFERED", "RUNNING", "TOK/S", "REQ/S", "ITL", "TTFT", "E2E", "RUNS")
    rows = [
        (
            "K" if point == found.point else "",
            number(_or_absent(point.offered)),
            f"{point.running:.1f}",
            number(_or_absent(point.tokens_per_s)),
            number(_or_absent(point.requests_per_s)),
            NONE if point.itl_s is None else f"{point.itl_s * 1e3:.4g}ms",
            milliseconds(_or_absent(point.ttft_s)),
            milliseconds(_or_absent(point.e2e_s)),
            str(point.weight),
        )
        for point in sorted(points, key=load)
    ]
    columns = [Column(title, [row[at] for row in rows], right=at > 0) for at, title in enumerate(titles)]
    return list(table(columns, width))


_PLOTS: Final[tuple[tuple[str, Callable[[Point], float | None]], ...]] = (
    ("tok/s (or requests/s) over requests in flight", throughput),
    ("ITL (ms) over requests in flight", lambda point: None if point.itl_s is None else point.itl_s * 1e3),
)


def _plot(title: str, points: Sequence[Point], found: Knee, value: Callable[[Point], float | None]) -> list[str]:
    """`*` per point and `K` at the knee, from 0 to the highest value; nothing for fewer than two points."""
    drawn = [(load(point), height, point == found.point) for point in points if (height := value(point)) is not None]
    if len({at for at, _, _ in drawn}) < 2 or not max(height for _, height, _ in drawn) > 0.0:
        return []
    left, right = min(at for at, _, _ in drawn), max(at for at, _, _ in drawn)
    top = max(height for _, height, _ in drawn)
    logarithmic = left > 0.0 and right / left >= _LOGARITHMIC
    grid = [[" "] * _PLOT_WIDTH for _ in range(_PLOT_ROWS)]
    for at, height, best in sorted(drawn, key=lambda each: each[2]):
        share = math.log(at / left) / math.log(right / left) if logarithmic else (at - left) / (right - left)
        row = _PLOT_ROWS - 1 - round(height / top * (_PLOT_ROWS - 1))
        grid[row][round(share * (_PLOT_WIDTH - 1))] = "K" if best else "*"
    labels = {0: _figure(top), _PLOT_ROWS - 1: "0"}
    lines = ["", f"{'':{_MARGIN}} {title}{' (logarithmic)' if logarithmic else ''}, K: knee"]
    lines.extend(f"{labels.get(row, ''):>{_MARGIN}} |{''.join(cells).rstrip()}" for row, cells in enumerate(grid))
    ends = f"{_figure(left)}{_figure(right):>{_PLOT_WIDTH - len(_figure(left))}}"
    return [*lines, f"{'':{_MARGIN}} +{'-' * _PLOT_WIDTH}", f"{'':{_MARGIN}}  {ends}"]


def _figure(value: float) -> str:
    return f"{value:.4g}" if value < 1e4 else f"{value / 1e3:.3g}k"
