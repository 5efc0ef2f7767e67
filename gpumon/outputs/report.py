"""A snapshot as readable text, everything in it: what `gpumon snapshot --verbose` prints below the screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpumon.efficiency.service import BY_NATURE
from gpumon.outputs.json import ABSENT
from gpumon.outputs.units import NONE, quantities, token
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import (
    BandwidthSource,
    Engine,
    Gpu,
    OwnEstimate,
    Quantiles,
    SinceStart,
    Snapshot,
    TokensTotal,
    Verdict,
)
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import actions_text, event_text, evidence_text, verdict_text

_UNITS: Final = (
    *("tokens_per_s", "flops_per_s", "bytes_per_s", "per_s", "tokens_per_j", "flops_per_j"),
    *("ratio", "bytes", "hz", "s", "w", "j", "c"),
)
"""Ends of field names that say the unit, the longer before the shorter."""
_LABELS: Final = {
    "flops_peak_per_s": ("flops peak", "flops_per_s"),
    "weight_bytes": ("weights of a step", "bytes_of_model"),
    "weight_bytes_per_s": ("weights read", "bytes_per_s"),
    "kv_bytes_per_s": ("kv cache read", "bytes_per_s"),
    "kv_bytes_per_token": ("kv cache of a token", "bytes_of_model"),
    "cached_ratio": ("cached share", "ratio"),
    "itl_mean_s": ("time per token mean", "s"),
    "own_flops_ratio": ("own flops over gpumon's", "ratio"),
    "own_read_bytes_ratio": ("own read over gpumon's", "ratio"),
}
"""Label and unit of fields whose names without their unit would be those of others, or say too little."""
_LABEL_WIDTH = 30
_WORD_WIDTH = 10
_VALUE_WIDTH = 14
_BOUNDS: Final = frozenset({"first_bound_s", *(f"p{share}_{end}" for share in (50, 95, 99) for end in ("low", "high"))})
"""Parts of a latency that are left out where they are missing: they only refine another."""
_HEADS: Final = frozenset({"index", "uuid", "name", "state", "processes", "sources", "window", "llm", "rank_loads"})


def report(snapshot: Snapshot) -> str:
    """Every value with its unit and its source, or the reason why it is not there."""
    return "\n".join(line.rstrip() for line in _lines(snapshot)) + "\n"


def _lines(snapshot: Snapshot) -> Iterator[str]:
    simulated = "  SIMULATED" if snapshot.simulated else ""
    yield f"gpumon  {token(snapshot.host.name)}  {snapshot.time}{simulated}"
    yield from ("", "host", *_fields(snapshot.host))
    yield from ("", "gpumon's own cost", *_fields(snapshot.self_cost))
    for gpu in snapshot.gpus:
        yield from ("", f"gpu {gpu.index}  {token(gpu.name, spaces=True)}  {gpu.state.value}{simulated}")
        yield from (_line("uuid", token(gpu.uuid)), *_fields(gpu), *_processes(gpu))
    for engine in snapshot.engines:
        yield from ("", f"engine {token(engine.name)}  {engine.state.value}{simulated}", *_fields(engine))
        for load in engine.rank_loads:
            yield from (f"  rank {token(load.rank)}", *_fields(load))
    for replicas in snapshot.replicas:
        yield from ("", f"replicas of {token(replicas.model)}{simulated}", *_fields(replicas))
    yield from _findings(snapshot)


def _findings(snapshot: Snapshot) -> Iterator[str]:
    for verdict in snapshot.verdicts:
        yield from ("", *_verdict(verdict))
    for event in snapshot.events:
        scope, said = (token(text, spaces=True) for text in (event.scope, event_text(event)))
        yield from ("", f"event {scope}  {event.kind.value}", f"  {said}")
    for fault in snapshot.faults:
        yield from ("", f"fault {token(fault.source)}  since {fault.since}", f"  {token(fault.text, spaces=True)}")


def _verdict(verdict: Verdict) -> Iterator[str]:
    """The verdict, the figures that say so with their sources, and its actions."""
    scope = token(verdict.scope, spaces=True)
    yield f"verdict {scope}  {verdict.code.value}  {verdict.level.value}  since {verdict.since}"
    if said := verdict_text(verdict):
        yield f"  {token(said, spaces=True)}"
    for one in verdict.evidence:
        source = ""
        if one.source:
            source = f"  [{token(one.source, spaces=True)}]"
        yield f"  {'evidence':<{_WORD_WIDTH}} {token(evidence_text(one), spaces=True)}{source}"
    if verdict.actions:
        yield f"  {'action':<{_WORD_WIDTH}} {token(actions_text(verdict), spaces=True)}"
    yield f"  {'confidence':<{_WORD_WIDTH}} {verdict.confidence.value}"


def _fields(of: msgspec.Struct) -> Iterator[str]:
    if isinstance(of, Engine | Gpu):
        sources = of.sources
    else:
        sources = {}
    for name in flat_fields(type(of)):
        value = _value(of, name)
        if value not in ("", (), {}) and (name not in _HEADS or not isinstance(of, Gpu | Engine)):
            yield from _field(name, value, sources.get(name, ""))


def _value(of: msgspec.Struct, name: str) -> Any:
    """A field; empty where it cannot apply, and the reason where its value says that it is not known."""
    value = value_of(of, name)
    if isinstance(value, Missing):
        return "" if value in BY_NATURE else value
    if isinstance(of, Engine) and name in ABSENT and value == ABSENT[name][0]:
        if isinstance(of.load.running, Missing):
            return of.load.running
        return Missing(ABSENT[name][2])
    return value


def _field(name: str, value: Any, source: str) -> Iterator[str]:
    label, unit = _named(name)
    if isinstance(value, Quantiles | TokensTotal):
        for part, text in _parts(value, unit).items():
            yield _line(f"{label} {part}".rstrip(), text, source)
            source = ""
    elif isinstance(value, dict):
        for part, amount in value.items():
            if isinstance(amount, str):
                text = _text(amount)
            else:
                text = _reading(amount, unit)
            yield _line(f"{label} {token(part)}", text, source)
            source = ""
    elif isinstance(value, OwnEstimate):
        if value != OwnEstimate():
            yield from _fields_of(value, "own_")
    elif isinstance(value, SinceStart):
        if not isinstance(value.seconds, Missing):
            yield from _fields_of(value, "mean_since_start_")
    elif isinstance(value, float | int | Missing) and not isinstance(value, bool):
        yield _line(label, _reading(value, unit), source)
    else:
        yield _line(label, _text(value), source)


def _fields_of(value: OwnEstimate | SinceStart, prefix: str) -> Iterator[str]:
    for part in value.__struct_fields__:
        yield from _field(f"{prefix}{part}", getattr(value, part), "")


def _named(name: str) -> tuple[str, str]:
    """A field's label and unit."""
    if name in _LABELS:
        return _LABELS[name]
    if name in _UNITS:
        return name.removesuffix("_per_s").replace("_per_j", " per joule"), name
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), "")
    if unit == "flops_per_s":
        return name.removesuffix("_per_s").replace("_", " "), unit
    return name.removesuffix(f"_{unit}").replace("_", " "), unit or "number"


def _parts(of: Quantiles | TokensTotal, unit: str) -> dict[str, str]:
    """Part -> its text; one nameless part where all are missing for the same reason."""
    every = {part: getattr(of, part) for part in of.__struct_fields__}
    readings = {part: reading for part, reading in every.items() if reading not in BY_NATURE}
    texts = {}
    for part, reading in readings.items():
        if part not in _BOUNDS or not isinstance(reading, Missing):
            texts[part.removesuffix("_s").replace("_", " ")] = _reading(reading, unit)
    all_missing = all(isinstance(reading, Missing) for reading in readings.values())
    if all_missing and len(set(texts.values())) == 1:
        return {"": next(iter(texts.values()))}
    return texts


def _reading(value: Reading, unit: str) -> str:
    if isinstance(value, Missing):
        detail = ""
        if value.detail:
            detail = f" ({token(value.detail, spaces=True)})"
        return f"{NONE}  {value.reason.value.replace('_', ' ')}{detail}"
    return quantities[unit](float(value))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        texts = (evidence_text(item) if isinstance(item, Evidence) else str(item) for item in value)
        return ", ".join(token(text, spaces=True) for text in texts) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is BandwidthSource.NONE:
        return NONE
    return token(getattr(value, "value", value), spaces=True)


def _line(label: str, value: str, source: str = "") -> str:
    behind = ""
    if source:
        behind = f"  [{token(source, spaces=True)}]"
    return f"  {label:<{_LABEL_WIDTH}} {value:<{_VALUE_WIDTH}}{behind}"


def _processes(gpu: Gpu) -> Iterator[str]:
    for process in gpu.processes:
        amounts = (quantities["bytes"](process.vram_bytes), quantities["ratio"](process.sm_ratio))
        names = (process.name, process.user, process.container, process.pod, process.engine)
        words = "  ".join((*amounts, *map(token, names), token(process.command, spaces=True)))
        yield _line("process", f"{process.pid}  {words}")
