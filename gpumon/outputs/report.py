"""A snapshot as readable text, everything in it: what `gpumon snapshot --verbose` prints below the screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from gpumon.efficiency.service import BY_NATURE
from gpumon.outputs.json import ABSENT_FIELDS
from gpumon.outputs.tables import join_stripped
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word
from gpumon.readings.engine_options import EngineOptions
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.option_words import option_words
from gpumon.readings.snapshot import (
    BandwidthSource,
    Engine,
    Gpu,
    Group,
    OwnEstimate,
    OwnMemory,
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
    "prefill_s": ("prefill time", "s"),
    "decode_s": ("decode time", "s"),
    "kv_bytes_per_token": ("kv cache of a token", "bytes_of_model"),
    "cached_ratio": ("cached share", "ratio"),
    "itl_mean_s": ("time per token mean", "s"),
    "own_flops_ratio": ("own flops over gpumon's", "ratio"),
    "own_read_bytes_ratio": ("own read over gpumon's", "ratio"),
    "own_memory_weight_ratio": ("own weights over gpumon's", "ratio"),
    "own_memory_kv_ratio": ("own kv cache over gpumon's", "ratio"),
}
"""Label and unit of fields whose names without their unit would be those of others, or say too little."""
_LABEL_WIDTH = 30
"""Cells of the label of a value."""
_WORD_WIDTH = 10
"""Cells of the word in front of a line of a verdict."""
_VALUE_WIDTH = 14
"""Cells of a value in front of its source."""
_BOUND_PARTS: Final = frozenset(
    {"first_bound_s", *(f"p{share}_{end}" for share in (50, 95, 99) for end in ("low", "high"))}
)
"""Parts of a latency that are left out where they are missing: they only refine another."""
_NOT_LISTED: Final = frozenset(
    {"index", "uuid", "name", "state", "processes", "sources", "window", "llm", "rank_loads", "backends"}
)
"""Fields of GPUs and engines that are in their heading or have lines of their own, or are not printed."""


def report(snapshot: Snapshot) -> str:
    """Every value with its unit and its source, or the reason why it is not there."""
    return join_stripped(_lines(snapshot))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    """The lines of all things of a snapshot, then of what was found."""
    simulated = "  SIMULATED" if snapshot.simulated else ""
    yield f"gpumon  {as_word(snapshot.host.name)}  {snapshot.time}{simulated}"
    yield from ("", "host", *_field_lines(snapshot.host))
    yield from ("", "gpumon's own cost", *_field_lines(snapshot.self_cost))
    for gpu in snapshot.gpus:
        yield from ("", f"gpu {gpu.reading.index}  {as_line(gpu.reading.name)}  {gpu.reading.state.value}{simulated}")
        yield from (_value_line("uuid", as_word(gpu.reading.uuid)), *_field_lines(gpu), *_process_lines(gpu))
    for engine in snapshot.engines:
        yield from ("", f"engine {as_word(engine.name)}  {engine.state.value}{simulated}", *_field_lines(engine))
        for load in engine.rank_loads:
            yield from (f"  rank {as_word(load.rank)}", *_field_lines(load))
        for backend in engine.backends:
            yield from (f"  backend {as_word(backend.address)}", *_field_lines(backend))
    for replicas in snapshot.replicas:
        yield from ("", f"replicas of {as_word(replicas.model)}{simulated}", *_field_lines(replicas))
    yield from _finding_lines(snapshot)


def _finding_lines(snapshot: Snapshot) -> Iterator[str]:
    """Verdicts, events and faults."""
    for verdict in snapshot.verdicts:
        yield from ("", *_verdict_lines(verdict))
    for event in snapshot.events:
        yield from ("", f"event {as_line(event.scope)}  {event.kind.value}")
        yield f"  {as_line(event_text(event))}"
    for fault in snapshot.faults:
        yield from ("", f"fault {as_word(fault.source)}  since {fault.since}", f"  {as_line(fault.text)}")


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    """The verdict, the figures that say so with their sources, and its actions."""
    scope = as_line(verdict.scope)
    yield f"verdict {scope}  {verdict.code.value}  {verdict.level.value}  since {verdict.since}"
    sentence = verdict_text(verdict)
    if sentence:
        yield f"  {as_line(sentence)}"
    for evidence in verdict.evidence:
        source = f"  [{as_line(evidence.source)}]" if evidence.source else ""
        yield f"  {'evidence':<{_WORD_WIDTH}} {as_line(evidence_text(evidence))}{source}"
    if verdict.actions:
        yield f"  {'action':<{_WORD_WIDTH}} {as_line(actions_text(verdict))}"
    yield f"  {'confidence':<{_WORD_WIDTH}} {verdict.confidence.value}"


def _field_lines(struct: msgspec.Struct) -> Iterator[str]:
    """The lines of all fields of a thing, but for those in its heading."""
    sources = struct.sources if isinstance(struct, Engine | Gpu) else {}
    for name in flat_fields(type(struct)):
        value = _shown_value(struct, name)
        if value not in ("", (), {}) and (name not in _NOT_LISTED or not isinstance(struct, Gpu | Engine)):
            yield from _lines_of_field(name, value, sources.get(name, ""))


def _shown_value(struct: msgspec.Struct, name: str) -> Any:
    """A field; empty where it cannot apply, and the reason where its value says that it is not known."""
    value = value_of(struct, name)
    if isinstance(value, Missing):
        if value in BY_NATURE:
            return ""
        return value
    if isinstance(struct, Engine) and name in ABSENT_FIELDS and value == ABSENT_FIELDS[name].value:
        if isinstance(struct.load.running, Missing):
            return struct.load.running
        return Missing(ABSENT_FIELDS[name].reason)
    return value


def _lines_of_field(name: str, value: Any, source: str) -> Iterator[str]:
    """The lines of a field: several of a group of figures, none of one that is empty as a whole."""
    label, unit = _label_and_unit(name)
    if isinstance(value, Quantiles | TokensTotal):
        yield from _part_lines(label, _part_texts(value, unit).items(), source)
    elif isinstance(value, dict):
        amounts = [(as_word(part), _amount_text(amount, unit)) for part, amount in value.items()]
        yield from _part_lines(label, amounts, source)
    elif isinstance(value, EngineOptions):
        for option, text, option_source in option_words(value):
            yield _value_line(option, text, option_source)
    elif isinstance(value, Group | OwnEstimate | OwnMemory):
        if value != type(value)():
            yield from _group_lines(value, f"{name}_")
    elif isinstance(value, SinceStart):
        if not isinstance(value.seconds, Missing):
            yield from _group_lines(value, "mean_since_start_")
    else:
        yield _value_line(label, _amount_text(value, unit), source)


def _part_lines(label: str, texts: Iterable[tuple[str, str]], source: str) -> Iterator[str]:
    """A line per part; the source stands in the first."""
    for part, text in texts:
        yield _value_line(f"{label} {part}".rstrip(), text, source)
        source = ""


def _amount_text(value: Any, unit: str) -> str:
    """A reading with its unit; anything else as a text."""
    if isinstance(value, float | int | Missing) and not isinstance(value, bool):
        return _reading_text(value, unit)
    return _value_text(value)


def _group_lines(value: OwnEstimate | OwnMemory | SinceStart | Group, prefix: str) -> Iterator[str]:
    """The lines of the fields of a group; `prefix`: what their names begin with."""
    for part in value.__struct_fields__:
        yield from _lines_of_field(f"{prefix}{part}", getattr(value, part), "")


def _label_and_unit(name: str) -> tuple[str, str]:
    """A field's label and unit."""
    if name in _LABELS:
        return _LABELS[name]
    if name in _UNITS:
        return name.removesuffix("_per_s").replace("_per_j", " per joule"), name
    for unit in _UNITS:
        if name.endswith(f"_{unit}"):
            suffix = "_per_s" if unit == "flops_per_s" else f"_{unit}"
            return name.removesuffix(suffix).replace("_", " "), unit
    return name.removesuffix("_").replace("_", " "), "number"


def _part_texts(group: Quantiles | TokensTotal, unit: str) -> dict[str, str]:
    """Part -> its text; one nameless part where all are missing for the same reason."""
    texts = {}
    all_missing = True
    for part in group.__struct_fields__:
        reading = getattr(group, part)
        if reading in BY_NATURE:
            continue
        is_missing = isinstance(reading, Missing)
        all_missing = all_missing and is_missing
        if part not in _BOUND_PARTS or not is_missing:
            texts[part.removesuffix("_s").replace("_", " ")] = _reading_text(reading, unit)
    if all_missing and len(set(texts.values())) == 1:
        return {"": next(iter(texts.values()))}
    return texts


def _reading_text(value: Reading, unit: str) -> str:
    """A reading with its unit; of a missing one the reason."""
    if isinstance(value, Missing):
        detail = f" ({as_line(value.detail)})" if value.detail else ""
        return f"{NONE}  {value.reason.value.replace('_', ' ')}{detail}"
    return FORMAT_BY_UNIT[unit](float(value))


def _value_text(value: Any) -> str:
    """A value that is no reading."""
    if isinstance(value, tuple):
        texts = [as_line(_item_text(item)) for item in value]
        return ", ".join(texts) or NONE
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if value is BandwidthSource.NONE:
        return NONE
    return as_line(getattr(value, "value", value))


def _item_text(item: Any) -> str:
    """One of several values of a field."""
    if isinstance(item, Evidence):
        return evidence_text(item)
    return str(item)


def _value_line(label: str, value: str, source: str = "") -> str:
    """A label, a value, and its source in brackets."""
    source_text = f"  [{as_line(source)}]" if source else ""
    return f"  {label:<{_LABEL_WIDTH}} {value:<{_VALUE_WIDTH}}{source_text}"


def _process_lines(gpu: Gpu) -> Iterator[str]:
    """A line per process on a GPU."""
    for process in gpu.reading.processes:
        amounts = (FORMAT_BY_UNIT["bytes"](process.vram_bytes), FORMAT_BY_UNIT["ratio"](process.sm_ratio))
        names = (process.name, process.user, process.container, process.pod, process.engine)
        words = "  ".join((*amounts, *map(as_word, names), as_line(process.command)))
        yield _value_line("process", f"{process.pid}  {words}")
