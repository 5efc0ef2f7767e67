"""A stretch of a recording as text, Markdown or JSON: what `gpumon report` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpumon.outputs import markdown as md
from gpumon.outputs.json import as_object
from gpumon.outputs.sizing import money
from gpumon.outputs.tables import Column, labelled, table
from gpumon.outputs.units import NONE, quantities
from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.period import NO_PRICE, SCHEMA, EnginePeriod, GpuPeriod, Incident, Period
from gpumon.readings.text import clean

_ROOM: Final = 11
_KWH_J: Final = 3.6e6
MOSTLY: Final = 0.98
"""Share of the recorded time from which on a mean is one over all of it."""


def encode(period: Period) -> bytes:
    """One line of JSON, without a newline; the keys and `missing` as in docs/json.md."""
    return msgspec.json.encode({"schema": SCHEMA, **as_object(period)})


def report(period: Period, width: int = 100) -> str:
    """The stretch, its means and totals, tables of GPUs and engines, incidents; in at most `width` cells."""
    width = max(60, width)
    lines = [_title(period), *_sums(period, width), ""]
    lines += table(_gpus(period.gpus), width) if period.gpus else ["no GPU"]
    lines += ["", *table(_engines(period.engines), width)] if period.engines else ["no engine"]
    lines += ["", *_told(period, width)]
    return "\n".join(human.cut(line.rstrip(), width) for line in lines) + "\n"


def markdown(period: Period) -> str:
    """The same as tables to paste into a ticket."""
    lines = [f"## {md.safe(_title(period))}", "", *md.header("total|")]
    lines += [md.row(label, md.safe(text)) for label, text in _facts(period)]
    for columns in (_gpus(period.gpus), _engines(period.engines), _incidents(period.incidents)):
        if columns[0].texts:
            lines += ["", *md.table(columns)]
    if not period.incidents:
        lines += ["", "No incidents."]
    if period.incidents_left_out:
        lines += ["", f"{period.incidents_left_out} more incidents are left out."]
    return "\n".join(lines) + "\n"


def incident_table(incidents: Sequence[Incident]) -> Iterator[str]:
    """The incidents alone, in Markdown."""
    return md.table(_incidents(incidents))


def _title(period: Period) -> str:
    begin = _local(period.begin)
    end = _local(period.end)
    until = end.strftime("%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M:%S")
    simulated = "  SIMULATED" if period.simulated else ""
    return f"{period.host or 'recording'}  {begin:%Y-%m-%d %H:%M:%S} to {until} {end.tzname() or ''}{simulated}".strip()


def _sums(period: Period, width: int) -> Iterator[str]:
    for label, text in _facts(period):
        yield from labelled(label, text, width, "", _ROOM)


def _facts(period: Period) -> Iterator[tuple[str, str]]:
    gaps = ""
    if period.gaps:
        gaps = f", {period.gaps} gap{'s' * (period.gaps > 1)}"
    yield "recorded", f"{_length(period.covered_s)} of {_length(period.seconds)}{gaps}"
    count = quantities["number"]
    used = (("busy", "busy_ratio"), ("MFU", "mfu_ratio"), ("MBU", "mbu_ratio"))
    yield "use", ", ".join(f"{name} {_use(period, field)}" for name, field in used)
    tokens = [
        (count(period.prefill_computed_tokens), "prefill"),
        (count(period.prefill_cached_tokens), "prefill cached"),
        (count(period.decode_tokens), "decode"),
        (count(period.trained_tokens), "trained on"),
    ]
    yield "tokens", ", ".join(f"{text} {what}" for text, what in tokens if text != NONE) or NONE
    yield "energy", _energy(period)
    if not isinstance(period.cost, Missing):
        each = money(period.cost_per_million_tokens)
        per = ""
        if each != NONE:
            per = f", {each} per million decode tokens"
        yield "cost", f"{money(period.cost)}, of which idle {money(period.idle_cost)}{per}"
    elif period.cost == NO_PRICE:
        priced = any(not isinstance(gpu.cost, Missing) for gpu in period.gpus)
        yield "cost", f"no price{' of every GPU' if priced else ''}: set [sizing] price_per_gpu_hour"


def _use(period: Period, field: str) -> str:
    """A mean over GPUs and time, with how many of them and how much of it were known, where that is not all."""
    said = quantities["ratio"](getattr(period, field))
    cards = []
    for gpu in period.gpus:
        if not _is_slice(gpu):
            cards.append(gpu)
    known = sum(not isinstance(getattr(gpu, field), Missing) for gpu in cards)
    known_s = getattr(period, field.replace("_ratio", "_known_s"))
    if 0 < known < len(cards):
        parts = [f"{known} of {len(cards)} GPUs"]
    else:
        parts = []
    parts += [f"known for {_length(known_s)}"] if 0.0 < known_s < MOSTLY * period.covered_s else []
    if parts and said != NONE:
        return f"{said} ({', '.join(parts)})"
    return said


def _is_slice(gpu: GpuPeriod) -> bool:
    """NVML names slices so (nvmlDeviceGetUUID)."""
    return gpu.uuid.startswith("MIG-")


def _energy(period: Period) -> str:
    joules = period.energy_j
    if isinstance(joules, Missing):
        return NONE
    return f"{quantities['j'](joules)} ({joules / _KWH_J:.3g} kWh), {_figure(period.tokens_per_j)} tok/J"


def _gpus(gpus: Sequence[GpuPeriod]) -> tuple[Column, ...]:
    def column(title: str, unit: str, field: str, keep: int) -> Column:
        return Column(title, [quantities[unit](getattr(gpu, field)) for gpu in gpus], right=True, keep=keep)

    priced = [
        Column(title, [money(getattr(gpu, field)) for gpu in gpus], right=True, keep=keep)
        for title, field, keep in (("cost", "cost", 2), ("idle cost", "idle_cost", 5))
        if any(not isinstance(getattr(gpu, field), Missing) for gpu in gpus)
    ]
    return (
        Column("gpu", [str(gpu.index) for gpu in gpus], right=True),
        Column("name", [clean(gpu.name.removeprefix("NVIDIA "), 32) for gpu in gpus], keep=1),
        column("busy", "ratio", "busy_ratio", 9),
        column("mfu", "ratio", "mfu_ratio", 9),
        column("mbu", "ratio", "mbu_ratio", 9),
        column("power", "w", "power_w", 3),
        column("energy", "j", "energy_j", 4),
        *priced,
    )


def _engines(engines: Sequence[EnginePeriod]) -> tuple[Column, ...]:
    def column(title: str, unit: str, field: str, keep: int) -> Column:
        return Column(title, [quantities[unit](getattr(engine, field)) for engine in engines], right=True, keep=keep)

    made = [
        max(engine.decode_tokens, engine.trained_tokens, key=lambda reading: not isinstance(reading, Missing))
        for engine in engines
    ]
    costs = [money(engine.cost_per_million_tokens) for engine in engines]
    return (
        Column("engine", [clean(engine.name, 28) for engine in engines]),
        Column("model", [human.model_name(engine.model, 24) for engine in engines], keep=2),
        column("run", "number", "running_mean", 6),
        column("wait", "number", "waiting_mean", 6),
        column("kv", "ratio", "kv_usage_ratio", 5),
        Column("decode tokens", [quantities["number"](each) for each in made], right=True),
        column("prefill", "number", "prefill_computed_tokens", 4),
        column("cached", "number", "prefill_cached_tokens", 1),
        column("decode tok/s", "number", "decode_tokens_per_s", 7),
        column("mfu", "ratio", "mfu_ratio", 9),
        column("mbu", "ratio", "mbu_ratio", 9),
        Column("tok/J", [_figure(engine.tokens_per_j) for engine in engines], right=True, keep=3),
        *([Column("cost/M", costs, right=True, keep=3)] if any(cost != NONE for cost in costs) else []),
    )


def _told(period: Period, width: int) -> Iterator[str]:
    if not period.incidents:
        yield "no incidents"
        return
    yield f"incidents ({len(period.incidents) + period.incidents_left_out})"
    yield from table(_incidents(period.incidents), width)
    if period.incidents_left_out:
        yield f"and {period.incidents_left_out} more"


def _incidents(incidents: Sequence[Incident]) -> tuple[Column, ...]:
    days = len({_local(one.begin).date() for one in incidents}) > 1
    form = "%m-%d %H:%M:%S" if days else "%H:%M:%S"
    return (
        Column("since", [_local(one.begin).strftime(form) for one in incidents]),
        Column("for", [_how_long(one) for one in incidents], right=True),
        Column("level", [one.level.value for one in incidents], keep=3),
        Column("where", [clean(one.scope, 28) for one in incidents]),
        Column("what", [clean(one.text, 200) for one in incidents]),
    )


def _figure(value: Reading) -> str:
    if isinstance(value, Missing):
        return NONE
    return human.figure(value)


def _how_long(incident: Incident) -> str:
    if not incident.end:
        return NONE
    return human.age(incident.seconds) + ("" if incident.ended else "+")


def _length(seconds: float) -> str:
    """`14 s`, `3 min 5 s`, `2 h 4 min`, `3 d 2 h`."""
    whole = round(seconds)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    said = []
    for number, unit in parts:
        if number:
            said.append(f"{number} {unit}")
    return " ".join(said[:2]) or "0 s"


def _local(rfc3339: str) -> datetime:
    return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).astimezone()
