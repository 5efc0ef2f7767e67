"""Profiles as text: the list, and one profile with its points; and all of it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpumon.outputs.tables import INDENT, ColumnSpec, PrintedColumn, columns_of, labelled, table, with_figures, wrapped
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word, join_known, seconds_text
from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.knee import Knee, knee, load_of_point
from gpumon.sizing.profile import Observed, Origin, Point

_SCHEMA: Final = 1
"""Version of `gpumon profiles --json`."""
_NOT_MEASURED: Final = Missing(Reason.NOT_EXPOSED)
"""A figure that a profile does not have."""
_LABEL_CELLS: Final = 14
"""Cells of the labels in front of facts."""


def list_profiles(
    profiles: Mapping[str, Observed], builtin: frozenset[str], broken: Sequence[str], width: int = 160
) -> str:
    """A line per profile, the user's own first; then a line per file that cannot be read."""
    names = sorted(profiles, key=lambda name: (name in builtin, name))
    columns = columns_of(names, _list_columns(profiles, builtin))
    lines = list(table(with_figures(columns), width))
    for line in broken:
        lines.extend(wrapped(f"not read: {line}", width, "", INDENT))
    if len(profiles) == len(builtin.intersection(profiles)):
        lines.append("none is imported yet: gpumon profiles add FILE...")
    return "\n".join(lines) + "\n"


def _list_columns(profiles: Mapping[str, Observed], builtin: frozenset[str]) -> tuple[ColumnSpec[str], ...]:
    """The columns of the list, by the name of a profile."""

    def of_profile(text: Callable[[Observed], str]) -> Callable[[str], str]:
        return lambda name: text(profiles[name])

    return (
        ColumnSpec("NAME", as_word),
        ColumnSpec("MODEL", of_profile(lambda profile: as_word(profile.model)[:40]), keep=2),
        ColumnSpec("GPU", of_profile(lambda profile: _gpus_text(profile)[:28] or NONE), keep=4),
        ColumnSpec("LENGTHS", of_profile(_short_lengths_text), keep=3),
        ColumnSpec(
            "CONC", of_profile(lambda profile: FORMAT_BY_UNIT["count"](_reading_of(profile.concurrency))), right=True
        ),
        ColumnSpec(
            "TOK/S",
            of_profile(lambda profile: FORMAT_BY_UNIT["rate"](_at_knee(profile, "tokens_per_s"))),
            right=True,
            keep=6,
        ),
        ColumnSpec("ITL", of_profile(lambda profile: seconds_text(_at_knee(profile, "itl_s"))), right=True, keep=5),
        ColumnSpec("HOLDS", of_profile(_content_text), keep=7),
        ColumnSpec("FROM", lambda name: _source_text(profiles[name], is_builtin=name in builtin), keep=1),
    )


def _at_knee(profile: Observed, figure: str) -> Reading:
    """A figure of the point at which the profile operates."""
    for point in profile.points:
        if load_of_point(point) == profile.concurrency:
            return _reading_of(getattr(point, figure))
    return _NOT_MEASURED


def _short_lengths_text(profile: Observed) -> str:
    """Prompt and answer: `1024/256`."""
    if not profile.prompt_tokens and not profile.answer_tokens:
        return NONE
    return f"{_tokens_text(profile.prompt_tokens)}/{_tokens_text(profile.answer_tokens)}"


def _tokens_text(tokens: float | None) -> str:
    """A number of tokens; `?` where it is not known."""
    if tokens is None:
        return "?"
    return f"{tokens:.0f}"


def _source_text(profile: Observed, *, is_builtin: bool) -> str:
    """The tool that measured it; `gpumon` for a profile that comes with it."""
    if is_builtin:
        return "gpumon"
    return as_line(profile.tool or profile.origin.value)[:28]


def _content_text(profile: Observed) -> str:
    """Content of a profile: `memory 15.7 GB`, `7 points`."""
    parts = []
    if profile.points:
        parts.append(counted(len(profile.points), "point"))
    if profile.memory_bytes is not None:
        parts.append(f"memory {profile.memory_bytes / 1e9:.1f} GB")
    return ", ".join(parts) or "model and GPU only"


def show_profile(profile: Observed, notes: Sequence[str], *, is_builtin: bool = False, width: int = 160) -> str:
    """All that one profile says: facts, knee and points."""
    operating = _knee_of(profile)
    title = as_word(profile.name)
    if is_builtin:
        title = f"{title} (comes with gpumon)"
    facts = _facts(profile, operating)
    for note in notes:
        facts.append(("note", as_line(note)))
    lines = [title]
    for name, value in facts:
        lines.extend(labelled(name, value, width, room=_LABEL_CELLS))
    if operating is not None:
        lines.extend(("", *table(_point_columns(profile.points, operating), width)))
    return "\n".join(lines) + "\n"


def _knee_of(profile: Observed) -> Knee | None:
    """The knee of the points of a profile, if it has any."""
    if profile.points:
        return knee(profile.points)
    return None


def import_result(profiles: Sequence[Observed], notes: Sequence[str], place: str, width: int = 160) -> str:
    """The text after an import: of each profile its points and operating point, then notes."""
    lines = []
    for profile in profiles:
        operating = knee(profile.points)
        point = f"operating point {load_of_point(operating.point):.4g} in flight ({operating.rule})"
        content = f"{counted(len(profile.points), 'point')} of {as_line(profile.model)}"
        lines.append(f"added {as_word(profile.name)}: {content}; {point}")
    for note in notes:
        lines.append(f"note: {as_line(note)}")
    lines.append(f"in {as_line(place)}")
    name = as_word(profiles[0].name)
    lines.append(f'`gpumon profiles show {name}` lists its points; `profile = "{name}"` in a scenario plans with it')
    fitted_lines = [fitted for line in lines for fitted in wrapped(line, width, "", INDENT)]
    return "\n".join(fitted_lines) + "\n"


def profile_as_json(profile: Observed, notes: Sequence[str] = (), *, is_builtin: bool = False) -> dict[str, Any]:
    """A profile as JSON has it: fields of `Observed` that were seen, its knee, and whether it comes with gpumon."""
    operating = _knee_of(profile)
    fields: dict[str, Any] = {**msgspec.to_builtins(profile), "builtin": is_builtin, "notes": list(notes), "knee": None}
    if operating is not None:
        beyond = load_of_point(operating.beyond) if operating.beyond is not None else None
        fields["knee"] = {
            "concurrency": load_of_point(operating.point),
            "beyond": beyond,
            "plateau_running": operating.plateau,
            "rule": operating.rule,
        }
    return fields


def encode(value: Mapping[str, Any]) -> bytes:
    """One JSON object on one line, with the schema of this output."""
    return msgspec.json.encode({"schema": _SCHEMA, **value}) + b"\n"


def _gpus_text(profile: Observed) -> str:
    """`2 x H100 SXM5 80GB`, `2 GPUs` of a type that is not known; empty where nothing is."""
    if not profile.gpu:
        if profile.gpus:
            return counted(profile.gpus, "GPU")
        return ""
    name = as_line(profile.gpu)
    if profile.gpus > 1:
        return f"{profile.gpus} x {name}"
    return name


def _facts(profile: Observed, operating: Knee | None) -> list[tuple[str, str]]:
    """Name and value; an empty value is left out."""
    number = FORMAT_BY_UNIT["number"]
    kv_precision = f"KV {profile.kv_precision}" if profile.kv_precision else ""
    memory = f"{profile.memory_bytes / 1e9:.2f} GB" if profile.memory_bytes is not None else ""
    sequences = f"at most {profile.max_num_seqs}" if profile.max_num_seqs is not None else ""
    facts = [
        ("model", as_line(profile.model)),
        ("measured by", join_known((as_line(profile.tool), as_line(profile.time)), " ")),
        ("GPU", join_known((_gpus_text(profile), *_parallel_texts(profile)))),
        ("precision", join_known((profile.weight_precision, kv_precision))),
        ("tokens", _lengths_text(profile)),
        ("memory", memory),
        ("GPU busy", _figure_text(FORMAT_BY_UNIT["ratio"], profile.busy_ratio)),
        ("power", _figure_text(FORMAT_BY_UNIT["w"], profile.power_w)),
        ("KV pool", _figure_text(number, profile.kv_pool_tokens, " tokens")),
        ("sequences", sequences),
        ("prefill", _figure_text(number, profile.prefill_tokens_per_s, " tok/s at least")),
    ]
    if profile.concurrency is not None:
        facts.append(("operates at", _operating_point_text(profile, profile.concurrency, operating)))
    if operating is not None and operating.advice:
        facts.append(("throughput", operating.advice))
    if operating is not None and operating.plateau is not None:
        facts.append(("plateau", f"{operating.plateau:.1f} decode together, whatever more is offered"))
    return facts


def _figure_text(form: Callable[[Reading], str], value: float | None, unit: str = "") -> str:
    """A figure as `form` writes it, and its unit; empty where it is not known."""
    if value is None:
        return ""
    return f"{form(value)}{unit}"


def _parallel_texts(profile: Observed) -> list[str]:
    """`TP 4`, and `PP 2` where there are several stages."""
    sizes = []
    if profile.tp > 0:
        sizes.append(f"TP {profile.tp}")
    if profile.pp > 1:
        sizes.append(f"PP {profile.pp}")
    return sizes


def _lengths_text(profile: Observed) -> str:
    """`1024 in, 256 out`, as far as they are known."""
    lengths = []
    if profile.prompt_tokens is not None:
        lengths.append(f"{profile.prompt_tokens:.0f} in")
    if profile.answer_tokens is not None:
        lengths.append(f"{profile.answer_tokens:.0f} out")
    return ", ".join(lengths)


def _operating_point_text(profile: Observed, concurrency: float, operating: Knee | None) -> str:
    """`32 in flight, knee before 64: rule`; of a single measurement without the rule."""
    in_flight = f"{concurrency:.4g} in flight"
    if operating is None or profile.origin is not Origin.SWEEP:
        return in_flight
    if operating.beyond is None:
        return f"{in_flight}: {operating.rule}"
    return f"{in_flight}, knee before {load_of_point(operating.beyond):.4g}: {operating.rule}"


_POINT_COLUMNS: Final[tuple[ColumnSpec[Point], ...]] = (
    ColumnSpec("OFFERED", lambda point: FORMAT_BY_UNIT["number"](_reading_of(point.offered)), right=True),
    ColumnSpec("RUNNING", lambda point: f"{point.running:.1f}", right=True),
    ColumnSpec("TOK/S", lambda point: FORMAT_BY_UNIT["rate"](_reading_of(point.tokens_per_s)), right=True),
    ColumnSpec("REQ/S", lambda point: FORMAT_BY_UNIT["rate"](_reading_of(point.requests_per_s)), right=True),
    ColumnSpec("ITL", lambda point: _itl_text(point.itl_s), right=True),
    ColumnSpec("TTFT", lambda point: seconds_text(_reading_of(point.ttft_s)), right=True),
    ColumnSpec("E2E", lambda point: seconds_text(_reading_of(point.e2e_s)), right=True),
    ColumnSpec("RUNS", lambda point: str(point.weight), right=True),
)
"""Columns of a point behind the mark of the knee."""


def _point_columns(points: Sequence[Point], operating: Knee) -> list[PrintedColumn]:
    """The points by their load, the knee marked."""

    def mark(point: Point) -> str:
        if point == operating.point:
            return "K"
        return "overload" if point.overload else ""

    return columns_of(sorted(points, key=load_of_point), (ColumnSpec("", mark), *_POINT_COLUMNS))


def _itl_text(itl_s: float | None) -> str:
    """ITL in milliseconds with four digits: neighbouring points differ little."""
    if itl_s is None:
        return NONE
    return f"{itl_s * 1e3:.4g}ms"


def _reading_of(value: float | None) -> Reading:
    """A figure of a profile, which has None for what was not measured, as a reading."""
    if value is None:
        return _NOT_MEASURED
    return value
