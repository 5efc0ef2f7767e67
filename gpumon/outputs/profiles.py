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
    names = sorted(profiles, key=lambda name: (name in builtin, name))
    rows = [profiles[name] for name in names]
    count = quantities["count"]
    number = quantities["number"]
    columns = (
        Column("NAME", [token(name) for name in names]),
        Column("MODEL", [token(profile.model)[:40] for profile in rows], keep=2),
        Column("GPU", [_gpus(profile)[:28] or NONE for profile in rows], keep=4),
        Column("LENGTHS", [_listed_lengths(profile) for profile in rows], keep=3),
        Column("CONC", [count(_known(profile.concurrency)) for profile in rows], right=True),
        Column("TOK/S", [number(_at_knee(profile, "tokens_per_s")) for profile in rows], right=True, keep=6),
        Column("ITL", [milliseconds(_at_knee(profile, "itl_s")) for profile in rows], right=True, keep=5),
        Column("HOLDS", [_content(profile) for profile in rows], keep=7),
        Column("FROM", [_source(profiles[name], is_builtin=name in builtin) for name in names], keep=1),
    )
    lines = list(table(_with_data(columns), width))
    for line in broken:
        lines.extend(wrapped(f"not read: {line}", width, "", INDENT))
    if len(profiles) == len(builtin.intersection(profiles)):
        lines.append("none is imported yet: gpumon profiles add FILE...")
    return "\n".join(lines) + "\n"


def _at_knee(profile: Observed, figure: str) -> Reading:
    """A figure of the point at which the profile operates."""
    for point in profile.points:
        if load(point) == profile.concurrency:
            return _known(getattr(point, figure))
    return _ABSENT


def _listed_lengths(profile: Observed) -> str:
    """Prompt and answer: `1024/256`."""
    if not profile.prompt_tokens and not profile.answer_tokens:
        return NONE
    return f"{_tokens(profile.prompt_tokens)}/{_tokens(profile.answer_tokens)}"


def _tokens(tokens: float | None) -> str:
    if tokens is None:
        return "?"
    return f"{tokens:.0f}"


def _source(profile: Observed, *, is_builtin: bool) -> str:
    """The tool that measured it; `gpumon` for a profile that comes with it."""
    if is_builtin:
        return "gpumon"
    return token(profile.tool or profile.origin.value, spaces=True)[:28]


def _content(profile: Observed) -> str:
    """Content of a profile: `memory 15.7 GB`, `7 points`."""
    parts = []
    if profile.points:
        parts.append(counted(len(profile.points), "point"))
    if profile.memory_bytes is not None:
        parts.append(f"memory {profile.memory_bytes / 1e9:.1f} GB")
    return ", ".join(parts) or "model and GPU only"


def _with_data(columns: Sequence[Column]) -> list[Column]:
    """The columns in which some profile has something."""
    data = []
    for column in columns:
        if any(cell != NONE for cell in column.texts):
            data.append(column)
    return data


def shown(profile: Observed, notes: Sequence[str], *, built: bool = False, width: int = 160) -> str:
    """All that one profile says: facts, knee and points."""
    found = None
    if profile.points:
        found = knee(profile.points)
    lines = [f"{token(profile.name)}{' (comes with gpumon)' if built else ''}"]
    for name, value in (*_facts(profile, found), *(("note", token(note, spaces=True)) for note in notes)):
        lines.extend(labelled(name, value, width, room=_LABEL))
    if found is not None:
        lines.extend(("", *table(_points(profile.points, found), width)))
    return "\n".join(lines) + "\n"


def added(profiles: Sequence[Observed], notes: Sequence[str], place: str, width: int = 160) -> str:
    """Result of an import: per profile its points and operating point, then notes."""
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
    found = None
    if profile.points:
        found = knee(profile.points)
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
        if profile.gpus:
            return counted(profile.gpus, "GPU")
        return ""
    name = token(profile.gpu, spaces=True)
    if profile.gpus > 1:
        return f"{profile.gpus} x {name}"
    return name


def _facts(profile: Observed, found: Knee | None) -> list[tuple[str, str]]:
    """Name and value; an empty value is left out."""
    number = quantities["number"]
    sequences = profile.max_num_seqs
    memory_bytes = profile.memory_bytes
    facts = [
        ("model", token(profile.model, spaces=True)),
        ("measured by", " ".join(token(word, spaces=True) for word in (profile.tool, profile.time) if word)),
        ("GPU", ", ".join(filter(None, (_gpus(profile), *_parallel(profile))))),
        ("precision", _precisions(profile)),
        ("tokens", _lengths(profile)),
        ("memory", "" if memory_bytes is None else f"{memory_bytes / 1e9:.2f} GB"),
        ("GPU busy", _figure(quantities["ratio"], profile.busy_ratio)),
        ("power", _figure(quantities["w"], profile.power_w)),
        ("KV pool", _figure(number, profile.kv_pool_tokens, " tokens")),
        ("sequences", "" if sequences is None else f"at most {sequences}"),
        ("prefill", _figure(number, profile.prefill_tokens_per_s, " tok/s at least")),
    ]
    if profile.concurrency is not None:
        facts.append(("operates at", _operating_point(profile, profile.concurrency, found)))
    if found is not None and found.advice:
        facts.append(("throughput", found.advice))
    if found is not None and found.plateau is not None:
        facts.append(("plateau", f"{found.plateau:.1f} decode together, whatever more is offered"))
    return facts


def _figure(form: Callable[[Reading], str], value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    return f"{form(value)}{unit}"


def _parallel(profile: Observed) -> list[str]:
    """`TP 4`, and `PP 2` where there are several stages."""
    sizes = []
    if profile.tp > 0:
        sizes.append(f"TP {profile.tp}")
    if profile.pp > 1:
        sizes.append(f"PP {profile.pp}")
    return sizes


def _precisions(profile: Observed) -> str:
    words = [profile.weight_precision]
    if profile.kv_precision:
        words.append(f"KV {profile.kv_precision}")
    return ", ".join(word for word in words if word)


def _lengths(profile: Observed) -> str:
    """`1024 in, 256 out`, as far as they are known."""
    lengths = []
    if profile.prompt_tokens is not None:
        lengths.append(f"{profile.prompt_tokens:.0f} in")
    if profile.answer_tokens is not None:
        lengths.append(f"{profile.answer_tokens:.0f} out")
    return ", ".join(lengths)


def _operating_point(profile: Observed, concurrency: float, found: Knee | None) -> str:
    """`32 in flight, knee before 64: rule`; of a single measurement without the rule."""
    in_flight = f"{concurrency:.4g} in flight"
    if found is None or profile.origin is not Origin.SWEEP:
        return in_flight
    if found.beyond is None:
        return f"{in_flight}: {found.rule}"
    return f"{in_flight}, knee before {load(found.beyond):.4g}: {found.rule}"


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
