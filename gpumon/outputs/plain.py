"""A snapshot as lines for `watch --plain`: one per GPU and engine, columns that stand still, no cursor moves, ASCII."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpumon.efficiency.gpu import over_window, with_clearer_reasons
from gpumon.figures.engine import ENGINE, RATES_OF_WORK
from gpumon.figures.figure import Figure, Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import BYTES, BYTES_PER_S_OF_PEAK, CELSIUS, REQUESTS, SECONDS, SHARE, TOKENS_PER_S, WATTS
from gpumon.outputs.figure_column import figure_text
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word, join_known, with_unit
from gpumon.readings.flat import value_of
from gpumon.readings.format import cells, phrase
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Level, Replicas, Snapshot, Verdict
from gpumon.readings.written import writer
from gpumon.triage.render import actions_text, event_text, evidence_text, shown_text

_LEAST_NAME_WIDTH = 14
"""Least cells of the names of engines."""
_MOST_NAME_WIDTH = 40
"""Most cells of them."""
_OK: Final = EndpointState.OK.value
"""State of a GPU and of an engine that is well: one word."""
_STATE_WIDTH = max(len(state.value) for kind in (GpuState, EndpointState) for state in kind)
"""Cells of a state."""
_UNTOLD_REASONS: Final = frozenset({Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED, Reason.IDLE})
"""Reasons that are not printed: they hold as long as the thing is there, or the other columns say so."""


class _Column(NamedTuple):
    """`word value`, the value flush right in `width` cells."""

    word: str
    width: int
    value: Callable[[Any], str]
    field: str = ""
    """The reading behind it, where it is one."""


def _vram_text(gpu: Gpu) -> str:
    """Used and whole memory of a GPU in GiB; one dash where neither is known."""
    used = FORMAT_BY_UNIT["gib"](gpu.reading.vram_used_bytes)
    total = FORMAT_BY_UNIT["gib"](gpu.reading.vram_total_bytes)
    if used == total == NONE:
        return NONE
    return f"{used}/{total}GiB"


def _bandwidth_text(gpu: Gpu) -> str:
    """Memory bandwidth of a GPU, with the sign of its source; `(m)`: measured."""
    text = FORMAT_BY_UNIT["bytes_per_s"](gpu.bandwidth_bytes_per_s)
    if text == NONE:
        return NONE
    source = gpu.bandwidth_source
    return source.sign + text + ("(m)" if source.is_measured else "")


_DRAWN: Final = {"vram": _vram_text, "memory": _bandwidth_text}
"""Columns of GPUs that are more than their figure."""
_WIDTHS: Final = {
    SHARE: 5,
    WATTS: 5,
    CELSIUS: 4,
    REQUESTS: 5,
    TOKENS_PER_S: 8,
    SECONDS: 7,
    BYTES: 14,
    BYTES_PER_S_OF_PEAK: 11,
}
"""Unit -> cells of a figure in it."""
_UNITS: Final = {CELSIUS: "C", TOKENS_PER_S: "/s"}
"""Unit -> its letters behind a figure, where the figure has none."""
_WORDS: Final = {"temperature": "temp"}
"""Words of columns whose header is not ASCII."""


def _columns(figures: Figures) -> Iterator[_Column]:
    """The columns that every screen has, too, with a word for each that has no blank: a program splits the line."""
    for name, row in figures.on_every_screen.items():
        word = _WORDS.get(name, row.short.replace(" ", "_"))
        width = _WIDTHS[row.unit]
        if name in _DRAWN:
            yield _Column(word, width, _DRAWN[name])
        elif row.unit is SECONDS:
            yield _Column(word, width, figure_text(row))
        else:
            yield _Column(word, width, _with_unit(row), row.field)


def _with_unit(row: Figure) -> Callable[[Any], str]:
    """The function that writes a thing's figure with its unit."""
    write = with_unit(_UNITS.get(row.unit, ""), writer(row))
    return lambda thing: write(value_of(thing, row.field))


_GPU_COLUMNS: Final = tuple(_columns(GPU))
_ENGINE_COLUMNS: Final = tuple(_columns(ENGINE))
"""Columns of an engine and of the sum over replicas."""


def snapshot_lines(snapshot: Snapshot) -> str:
    """One line per GPU, engine, verdict, event and fault, each with the time and, where it is so, SIMULATED.

    Verdicts that all is well are left out: they would be most of the lines.
    """
    stamp = snapshot.time[:19]  # without fractions of a second and the zone
    if snapshot.simulated:
        stamp = f"{stamp} SIMULATED"
    return "".join(f"{stamp} {line.rstrip()}\n" for line in _lines(snapshot))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    """A line per GPU, engine, model, verdict, event and fault."""
    width = _name_width(snapshot.engines)
    for gpu in snapshot.gpus:
        clear_gpu = over_window(with_clearer_reasons(gpu, snapshot.engines))
        head = _line_head("gpu", str(gpu.reading.index), width, gpu.reading.state.value)
        yield f"{head} {_columns_text(_GPU_COLUMNS, clear_gpu)}  {_gpu_end(clear_gpu)}"
    for engine in snapshot.engines:
        head = _line_head("engine", as_word(engine.name), width, engine.state.value)
        yield f"{head} {_columns_text(_ENGINE_COLUMNS, engine)}  {_engine_end(engine)}"
    for replicas in snapshot.replicas:
        head = _line_head("sum", replicas.title, width, _OK)
        yield f"{head} {_columns_text(_ENGINE_COLUMNS, replicas)}  {_replicas_end(replicas)}"
    scopes = {verdict.id: verdict.scope for verdict in snapshot.verdicts}
    for verdict in snapshot.verdicts:
        if verdict.level is not Level.OK:
            yield _verdict_line(verdict, scopes.get(verdict.caused_by, ""))
    for event in snapshot.events:
        yield f"event {as_word(event.scope)} {event.kind.value}; {as_line(event_text(event))}"
    for fault in snapshot.faults:
        yield f"fault {as_word(fault.source)} {as_line(fault.text)}"


def _name_width(engines: Iterable[Engine]) -> int:
    """Cells for the longest name, within bounds: the columns behind the names stand still."""
    width = _LEAST_NAME_WIDTH
    for engine in engines:
        width = max(width, cells(as_word(engine.name)))
    return min(width, _MOST_NAME_WIDTH)


def _engine_end(engine: Engine) -> str:
    """Behind an engine's columns: its model, its fault, and figures that contradict each other."""
    fault = as_line(engine.fault) if engine.fault else ""
    doubts = [f"! {as_line(evidence_text(evidence))}" for evidence in engine.contradicts]
    return _join_nonempty(
        as_word(engine.model), _rates_without_column(engine), fault, *doubts, _reasons_of_gaps(_ENGINE_COLUMNS, engine)
    )


def _replicas_end(replicas: Replicas) -> str:
    """Behind the columns of replicas: their model, how many are silent, and which lie apart."""
    down = len(replicas.engines) - replicas.answering
    silent = f"{down} without figures" if down else ""
    names = ", ".join(map(as_word, replicas.deviating))
    deviating = f"apart: {names}" if names else ""
    return _join_nonempty(as_word(replicas.model), silent, deviating, _reasons_of_gaps(_ENGINE_COLUMNS, replicas))


def _verdict_line(verdict: Verdict, cause: str) -> str:
    """A verdict with its sentence and actions in one line. `cause`: what it comes of; empty: nothing that is known."""
    texts = [f"{verdict.code.value} {verdict.level.value}"]
    if cause:
        texts.append(f"because of {as_line(cause)}")
    for text in (shown_text(verdict), actions_text(verdict)):
        if text:
            texts.append(as_line(text))
    return f"verdict {as_word(verdict.scope)} {'; '.join(texts)}"


def _line_head(kind: str, name: str, width: int, state: str) -> str:
    """Kind, name and state; a name longer than `width` stays whole: it is what a line is searched by."""
    return f"{kind:<6} {name}{' ' * (width - cells(name))} {state:<{_STATE_WIDTH}}"


def _columns_text(columns: tuple[_Column, ...], thing: Gpu | Engine | Replicas) -> str:
    """The columns of one thing: `run     4 wait     0`."""
    return " ".join(f"{column.word} {column.value(thing):>{column.width}}" for column in columns)


def _gpu_end(gpu: Gpu) -> str:
    """Type of the GPU and what is wrong with it."""
    texts = [as_word(gpu.reading.mig_profile or gpu.reading.name)]
    for reason in gpu.reading.throttle:
        texts.append(as_word(f"throttled:{reason}"))
    for code in gpu.xid:
        texts.append(f"xid:{code}")
    texts.append(as_line(gpu.reading.state_text))
    return _join_nonempty(join_known(texts, " "), _reasons_of_gaps(_GPU_COLUMNS, gpu))


def _rates_without_column(engine: Engine) -> str:
    """The rates of training runs and of models that are no LLMs, which have no column."""
    rates = []
    for row in RATES_OF_WORK:
        rate = value_of(engine, row.field)
        if not isinstance(rate, Missing):
            rates.append(f"{row.short} {FORMAT_BY_UNIT['per_s'](rate)}")
    return ", ".join(rates)


def _reasons_of_gaps(columns: tuple[_Column, ...], thing: Gpu | Engine | Replicas) -> str:
    """Why columns are empty, as `decode, mfu: warming up`; what the state says is left out."""
    if isinstance(thing, Gpu | Engine) and value_of(thing, "state").value != _OK:
        return ""
    reasons: dict[str, list[str]] = {}
    for column in columns:
        reading = value_of(thing, column.field) if column.field else None
        if isinstance(reading, Missing) and reading.reason not in _UNTOLD_REASONS:
            reasons.setdefault(phrase(reading), []).append(column.word)
    return "; ".join(f"{', '.join(words)}: {reason}" for reason, words in reasons.items())


def _join_nonempty(*parts: str) -> str:
    """The parts that are not empty, two blanks between them."""
    return "  ".join(filter(None, parts))
