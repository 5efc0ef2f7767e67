"""Profiles as text: the list, and one profile with its points; and all of it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpumon.outputs.tables import INDENT, Column, labelled, table, wrapped
from gpumon.outputs.units import NONE, milliseconds, quantities, token
from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.knee import Knee, knee, load
from gpumon.sizing.profile import Observed, Origin, Point

SCHEMA: Final = 1
_ABSENT: Final = Missing(Reason.NOT_EXPOSED)
_LABEL: Final = 14


def listed(profiles: Mapping[str, Observed], builtin: frozenset[str], broken: Sequence[str], width: int = 160) -> str:
    """A line per profile, the user's own first; then a line per file that can not be read."""
    own = sorted(profiles.items(), key=lambda each: (each[0] in builtin, each[0]))

    def at_knee(profile: Observed, figure: str) -> Reading:
        point = next((point for point in profile.points if load(point) == profile.concurrency), None)
        return _known(getattr(point, figure) if point is not None else None)

    def length(tokens: float | None) -> str:
        return "?" if tokens is None else f"{tokens:.0f}"

    def lengths(profile: Observed) -> str:
        if not profile.prompt_tokens and not profile.answer_tokens:
            return NONE
        return f"{length(profile.prompt_tokens)}/{length(profile.answer_tokens)}"

    def source(name: str, profile: Observed) -> str:
        return "gpumon" if name in builtin else token(profile.tool or profile.origin.value, spaces=True)[:28]

    columns = (
        Column("NAME", [token(name) for name, _ in own]),
        Column("MODEL", [token(each.model)[:40] for _, each in own], keep=2),
        Column("GPU", [_gpus(each)[:28] or NONE for _, each in own], keep=4),
        Column("LENGTHS", [lengths(each) for _, each in own], keep=3),
        Column("CONC", [quantities["count"](_known(each.concurrency)) for _, each in own], right=True),
        Column("TOK/S", [quantities["number"](at_knee(each, "tokens_per_s")) for _, each in own], right=True, keep=6),
        Column("ITL", [milliseconds(at_knee(each, "itl_s")) for _, each in own], right=True, keep=5),
        Column("HOLDS", [_content(each) for _, each in own], keep=7),
        Column("FROM", [source(name, each) for name, each in own], keep=1),
    )
    lines = list(table(_with_data(columns), width))
    for line in broken:
        lines.extend(wrapped(f"not read: {line}", width, "", INDENT))
    if len(profiles) == len(builtin.intersection(profiles)):
        lines.append("none is imported yet: gpumon profiles add FILE...")
    return "\n".join(lines) + "\n"


def _content(profile: Observed) -> str:
    """What a profile is for: `memory 15.7 GB`, `7 points`."""
    parts = []
    if profile.points:
        parts.append(counted(len(profile.points), "point"))
    if profile.memory_bytes is not None:
        parts.append(f"memory {profile.memory_bytes / 1e9:.1f} GB")
    return ", ".join(parts) or "model and GPU only"


def _with_data(columns: Sequence[Column]) -> list[Column]:
    """The columns in which some profile has something."""
    return [column for column in columns if any(cell != NONE for cell in column.texts)]


def shown(profile: Observed, notes: Sequence[str], *, built: bool = False, width: int = 160) -> str:
    """All that one profile says: facts, knee and points."""
    found = knee(profile.points) if profile.points else None
    lines = [f"{token(profile.name)}{' (comes with gpumon)' if built else ''}"]
    for name, value in (*_facts(profile, found), *(("note", token(note, spaces=True)) for note in notes)):
        lines.extend(labelled(name, value, width, room=_LABEL))
    if found is not None:
        lines.extend(("", *table(_points(profile.points, found), width)))
    return "\n".join(lines) + "\n"


def added(profiles: Sequence[Observed], notes: Sequence[str], place: str, width: int = 160) -> str:
    """What an import made: per profile its points and operating point, then what to know."""
    lines = []
    for each in profiles:
        found = knee(each.points)
        at = f"operating point {load(found.point):.4g} in flight ({found.rule})"
        model = token(each.model, spaces=True)
        lines.append(f"added {token(each.name)}: {counted(len(each.points), 'point')} of {model}; {at}")
    lines.extend(f"note: {token(note, spaces=True)}" for note in notes)
    lines.append(f"in {token(place, spaces=True)}")
    name = token(profiles[0].name)
    lines.append(f'`gpumon profiles show {name}` lists its points; `profile = "{name}"` in a scenario plans with it')
    return "\n".join(part for line in lines for part in wrapped(line, width, "", INDENT)) + "\n"


def as_json(profile: Observed, notes: Sequence[str] = (), *, built: bool = False) -> dict[str, Any]:
    """A profile as JSON has it: fields of `Observed` that were seen, its knee, and whether it comes with gpumon."""
    found = knee(profile.points) if profile.points else None
    fields: dict[str, Any] = {**msgspec.to_builtins(profile), "builtin": built, "notes": list(notes), "knee": None}
    if found is not None:
        fields["knee"] = {
            "concurrency": load(found.point),
            "beyond": None if found.beyond is None else load(found.beyond),
            "plateau_running": found.plateau,
            "rule": found.rule,
        }
    return fields


def encoded(value: Mapping[str, Any]) -> bytes:
    """One JSON object on one line, with the schema of this output."""
    return msgspec.json.encode({"schema": SCHEMA, **value}) + b"\n"


def _gpus(profile: Observed) -> str:
    """`2 x H100 SXM5 80GB`, `2 GPUs` of a type that is not known; empty where nothing is."""
    if not profile.gpu:
        return counted(profile.gpus, "GPU") if profile.gpus else ""
    name = token(profile.gpu, spaces=True)
    return f"{profile.gpus} x {name}" if profile.gpus > 1 else name


def _facts(profile: Observed, found: Knee | None) -> list[tuple[str, str]]:
    """Name and value; an empty value is left out."""

    def said(form: Callable[[Reading], str], value: float | None, unit: str = "") -> str:
        return "" if value is None else f"{form(value)}{unit}"

    number = quantities["number"]
    parallel = [f"{name} {size}" for name, size in (("TP", profile.tp), ("PP", profile.pp)) if size > (name == "PP")]
    precisions = [profile.weight_precision, profile.kv_precision and f"KV {profile.kv_precision}"]
    lengths = (("in", profile.prompt_tokens), ("out", profile.answer_tokens))
    facts = [
        ("model", token(profile.model, spaces=True)),
        ("measured by", " ".join(token(each, spaces=True) for each in (profile.tool, profile.time) if each)),
        ("GPU", ", ".join(filter(None, (_gpus(profile), *parallel)))),
        ("precision", ", ".join(filter(None, precisions))),
        ("tokens", ", ".join(f"{value:.0f} {name}" for name, value in lengths if value is not None)),
        ("memory", "" if profile.memory_bytes is None else f"{profile.memory_bytes / 1e9:.2f} GB"),
        ("GPU busy", said(quantities["ratio"], profile.busy_ratio)),
        ("power", said(quantities["w"], profile.power_w)),
        ("KV pool", said(number, profile.kv_pool_tokens, " tokens")),
        ("sequences", "" if profile.max_num_seqs is None else f"at most {profile.max_num_seqs}"),
        ("prefill", said(number, profile.prefill_tokens_per_s, " tok/s at least")),
    ]
    if profile.concurrency is not None:
        why = f": {found.rule}" if found is not None and profile.origin is Origin.SWEEP else ""
        until = f", knee before {load(found.beyond):.4g}" if why and found and found.beyond is not None else ""
        facts.append(("operates at", f"{profile.concurrency:.4g} in flight{until}{why}"))
    if found is not None and found.advice:
        facts.append(("throughput", found.advice))
    if found is not None and found.plateau is not None:
        facts.append(("plateau", f"{found.plateau:.1f} decode together, whatever more is offered"))
    return facts


def _points(points: Sequence[Point], found: Knee) -> list[Column]:
    number = quantities["number"]
    rising = sorted(points, key=load)
    columns: tuple[tuple[str, Callable[[Point], str]], ...] = (
        ("OFFERED", lambda point: number(_known(point.offered))),
        ("RUNNING", lambda point: f"{point.running:.1f}"),
        ("TOK/S", lambda point: number(_known(point.tokens_per_s))),
        ("REQ/S", lambda point: number(_known(point.requests_per_s))),
        ("ITL", lambda point: NONE if point.itl_s is None else f"{point.itl_s * 1e3:.4g}ms"),
        ("TTFT", lambda point: milliseconds(_known(point.ttft_s))),
        ("E2E", lambda point: milliseconds(_known(point.e2e_s))),
        ("RUNS", lambda point: str(point.weight)),
    )
    marks = Column("", ["K" if point == found.point else "" for point in rising])
    return [marks, *(Column(title, [text(point) for point in rising], right=True) for title, text in columns)]


def _known(value: float | None) -> Reading:
    return _ABSENT if value is None else value
