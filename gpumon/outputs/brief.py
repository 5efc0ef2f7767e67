"""A snapshot on one screen: what `gpumon snapshot` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from math import ceil
from typing import Any, Final

from gpumon.efficiency.gpu import over_window, with_clearer_reasons
from gpumon.efficiency.tracks import QUANTILE_S, RATE_S, window_for
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import BYTES
from gpumon.outputs.figure_column import column_title, figure_text
from gpumon.outputs.tables import NEVER_DROPPED, ColumnSpec, PrintedColumn, columns_of, cut_lines, table, wrapped
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word
from gpumon.readings import format as human
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu, Kind, Level, Snapshot, Verdict
from gpumon.triage.marks import MARKS, URGENT, peers_waited_for, untold_faults, urgent_by_gpu
from gpumon.triage.render import LIMIT_NAMES, NARROW_NAMES, WAITS, actions_text, verdict_text
from gpumon.triage.roots import Root, name_together, root_text, roots_of

MOST_FINDINGS: Final = 8
"""Verdicts and faults of a screen, the most urgent first."""
_FIRST_ANSWER_S: Final = 2.0
"""Seconds that an engine may take for its first answer."""
_LEAST_WIDTH: Final = 60
"""Cells in which the columns that are never left out fit."""


def brief(snapshot: Snapshot, width: int) -> str:
    """A line per GPU and engine, then what is wrong and what to do, in at most `width` cells."""
    width = max(_LEAST_WIDTH, width)
    lines = [_title_line(snapshot)]
    if snapshot.gpus:
        lines += ["", *table(gpu_columns(snapshot), width)]
    if snapshot.engines:
        lines += ["", *table(engine_columns(snapshot), width)]
    lines += ["", *_finding_lines(snapshot, width)]
    return cut_lines(lines, width)


def _title_line(snapshot: Snapshot) -> str:
    """Host, local time, CPU, memory and driver."""
    host = snapshot.host
    time = datetime.fromtimestamp(snapshot.wall_s, timezone.utc).astimezone()
    used = FORMAT_BY_UNIT["gib"](host.memory_used_bytes)
    total = FORMAT_BY_UNIT["gib"](host.memory_total_bytes)
    simulated = "SIMULATED" if snapshot.simulated else ""
    driver = f"driver {as_line(host.driver)}" if host.driver else ""
    parts = (
        as_line(host.name),
        simulated,
        f"{time:%Y-%m-%d %H:%M:%S}",
        f"CPU {FORMAT_BY_UNIT['ratio'](host.cpu_ratio)}",
        f"busiest core {FORMAT_BY_UNIT['ratio'](host.busiest_core_ratio)}",
        f"RAM {used}/{total} GiB",
        driver,
    )
    return "  ".join(filter(None, parts))


def gpu_columns(snapshot: Snapshot) -> list[PrintedColumn]:
    """The columns of the GPUs, with a row each."""
    gpus = [over_window(with_clearer_reasons(gpu, snapshot.engines)) for gpu in snapshot.gpus]
    return columns_of(gpus, _GPU_COLUMNS) + _state_column(snapshot, gpus)


def _gpu_name(gpu: Gpu) -> str:
    """The MIG profile of a slice, else the name of the GPU."""
    return as_line(gpu.reading.mig_profile or gpu.reading.name.removeprefix("NVIDIA "))


def _part_of_whole(unit: str, used: Reading, total: Reading) -> str:
    """`41/80`: a part and its whole; one dash where neither is known."""
    form = FORMAT_BY_UNIT[unit]
    text = f"{form(used)}/{form(total)}"
    if text == "-/-":
        return NONE
    return text


_DRAWN: Final[Mapping[str, Callable[[Gpu], str]]] = {
    "vram": lambda gpu: _part_of_whole("gib", gpu.reading.vram_used_bytes, gpu.reading.vram_total_bytes),
    "memory": lambda gpu: FORMAT_BY_UNIT["bytes_per_s"](gpu.bandwidth_bytes_per_s),
    "power": lambda gpu: _part_of_whole("w", gpu.power_w, gpu.reading.power_limit_w),
}
"""Columns of GPUs that are more than their figure."""
_KEEP: Final = {"memory": 3, "prefill": 4, "itl": 5, "sm": 5, "power": 6, "ttft": 6, "temperature": 7}
"""Columns of figures that leave where there is no room, the lower numbers first."""


def _figure_columns(figures: Figures) -> Iterator[ColumnSpec[Any]]:
    """The columns that every screen has, too, in their order there."""
    for name, row in figures.on_every_screen.items():
        title = f"{row.short} GiB" if row.unit is BYTES else column_title(row)
        yield ColumnSpec(title, _DRAWN.get(name, figure_text(row)), right=True, keep=_KEEP.get(name, NEVER_DROPPED))


_GPU_COLUMNS: Final[tuple[ColumnSpec[Gpu], ...]] = (
    ColumnSpec("GPU", lambda gpu: f"{gpu.reading.index}", right=True),
    ColumnSpec("name", _gpu_name, keep=1),
    *_figure_columns(GPU),
    ColumnSpec("engines", lambda gpu: ", ".join(map(as_word, gpu.engines)) or NONE, keep=4),
)
"""Columns of a GPU, before that of its state."""


def _state_column(snapshot: Snapshot, gpus: Sequence[Gpu]) -> list[PrintedColumn]:
    """The column of states, if a GPU is not well."""
    urgent = urgent_by_gpu(snapshot)
    states = [_gpu_state(gpu, urgent.get(gpu.reading.uuid)) for gpu in gpus]
    if not any(states):
        return []
    return [PrintedColumn("state", [state or "ok" for state in states])]


def _gpu_state(gpu: Gpu, verdict: Verdict | None) -> str:
    """Trouble of a GPU, with the mark of its worst urgent verdict; empty: none."""
    words = []
    if gpu.reading.state is not GpuState.OK:
        reason = human.beyond_loss(gpu.reading.state_text)
        state = gpu.reading.state.value.replace("_", " ")
        words.append(f"{state}: {as_line(reason)}" if reason else state)
    words += [f"Xid {code}" for code in gpu.xid]
    words += [as_word(reason).replace("_", " ") for reason in gpu.reading.throttle]
    if verdict is None:
        return ", ".join(words)
    if not words:
        words.append(_word_of_verdict(gpu, verdict))
    return f"{MARKS[verdict.level].glyph} {', '.join(words)}"


def _word_of_verdict(gpu: Gpu, verdict: Verdict) -> str:
    """The limit of an urgent verdict on a GPU or its engine, or that the GPU waits for those which that is about."""
    peers = peers_waited_for(gpu, verdict)
    if peers:
        return f"{WAITS} for {as_line(peers)}"
    return NARROW_NAMES[verdict.code]


_ENGINE_COLUMNS: Final[tuple[ColumnSpec[Engine], ...]] = (
    ColumnSpec("engine", lambda engine: as_word(engine.name)),
    ColumnSpec("model", lambda engine: human.model_name(engine.model, 26) or NONE, keep=2),
    ColumnSpec("GPUs", lambda engine: human.spans(engine.hardware.gpus) or NONE, right=True, keep=3),
    *_figure_columns(ENGINE),
)
"""Columns of an engine, before that of its state."""


def engine_columns(snapshot: Snapshot) -> list[PrintedColumn]:
    """The columns of the engines, with a row each."""
    worst = _worst_by_engine(snapshot.verdicts)
    states = [_engine_state(engine, worst.get(engine.name)) for engine in snapshot.engines]
    return [*columns_of(snapshot.engines, _ENGINE_COLUMNS), PrintedColumn("state", states)]


def _worst_by_engine(verdicts: Sequence[Verdict]) -> Mapping[str, Verdict]:
    """Name of an engine -> its most urgent verdict: the verdicts stand in that order."""
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.kind is Kind.ENGINE:
            worst.setdefault(verdict.scope, verdict)
    return worst


def _engine_state(engine: Engine, verdict: Verdict | None) -> str:
    """The state of an engine that does not answer well, else its worst verdict, with the mark of an urgent one."""
    if engine.state is not EndpointState.OK:
        words = str(engine.state.value).replace("_", " ")
    elif verdict is None:
        return "evaluating"
    else:
        words = NARROW_NAMES[verdict.code]
    if verdict is None or verdict.level not in URGENT:
        return words
    return f"{MARKS[verdict.level].glyph} {words}"


def _finding_lines(snapshot: Snapshot, width: int) -> Iterator[str]:
    """Verdicts that ask for something, with what to do and what comes of them, and faults; those that are alike are
    one."""
    roots = roots_of(snapshot.verdicts)
    faults: dict[str, list[str]] = {}
    for fault in untold_faults(snapshot.faults, snapshot.verdicts):
        faults.setdefault(fault.text, []).append(fault.source)
    if not roots and not faults:
        is_judged = any(verdict.level is Level.OK for verdict in snapshot.verdicts)
        if is_judged:
            yield "nothing to fix"
        else:
            yield "no verdicts yet: they need 30 s of data (--window 35)"
            return
    for root in roots[:MOST_FINDINGS]:
        yield from _root_lines(root, snapshot, width)
    most_faults = max(1, MOST_FINDINGS - len(roots))
    for text, sources in list(faults.items())[:most_faults]:
        yield from wrapped(as_line(f"{name_together(sources)}: {text}"), width, "!  fault  ", " " * 5)
    left = max(0, len(roots) - MOST_FINDINGS) + max(0, len(faults) - most_faults)
    if left:
        yield f"and {left} more: gpumon snapshot --verbose"
    unjudged = _unjudged_engines(snapshot)
    if unjudged:
        yield f"not judged yet: {as_line(name_together(unjudged))} (that needs 30 s of data: --window 35)"


def _unjudged_engines(snapshot: Snapshot) -> list[str]:
    """Names of the engines that answer and have no verdict yet."""
    judged = {verdict.key for verdict in snapshot.verdicts}
    return [engine.name for engine in snapshot.engines if engine.state is EndpointState.OK and engine.key not in judged]


def _root_lines(root: Root, snapshot: Snapshot, width: int) -> Iterator[str]:
    """A cause with its level, what to do, and what comes of it."""
    mark = MARKS[root.level]
    limit = LIMIT_NAMES[root.first.code]
    text = ": ".join(part for part in (root.scope, limit, root_text(root, snapshot)) if part)
    yield from wrapped(as_line(text), width, f"{mark.glyph}  {mark.word}  ", " " * 5)
    actions = actions_text(root.advised)
    if actions:
        yield from wrapped(as_line(actions), width, "     -> ", " " * 8)
    for verdict in root.consequences:
        words = f"{verdict.scope}: {LIMIT_NAMES[verdict.code]}"
        sentence = verdict_text(verdict)
        if sentence:
            words = f"{words}: {sentence}"
        yield from wrapped(as_line(words), width, f"     └ {MARKS[verdict.level].glyph} ", " " * 9)


def window_advice(snapshot: Snapshot, window_s: float, cadence_s: float) -> str:
    """The window that would give the figures of engines that `window_s` did not; empty where nothing is missing.

    `cadence_s`: seconds between two answers of an engine.
    """
    if not window_s:
        return ""
    warming_up: list[str] = []
    few_requests: list[str] = []
    for engine in snapshot.engines:
        if _is_warming_up(engine):
            warming_up.append(engine.name)
        elif _has_few_requests(engine):
            few_requests.append(engine.name)
    parts = []
    for figures, names, length_s in (("rates", warming_up, RATE_S), ("latencies", few_requests, QUANTILE_S)):
        if names:
            window = _longer_window(window_s, window_for(length_s, cadence_s))
            parts.append(f"{figures} of {as_line(name_together(names))} (--window {window})")
    if parts:
        return f"not known after {window_s:g} s: {'; '.join(parts)}"
    return ""


def _is_warming_up(engine: Engine) -> bool:
    """Whether a rate or a latency of an engine needs a longer window."""
    figures = (
        engine.rates.decode_tokens_per_s,
        engine.rates.prefill_tokens_per_s,
        engine.efficiency.mfu_ratio,
        engine.latency.ttft_s.p95,
        engine.latency.itl_s.p95,
    )
    for figure in figures:
        if isinstance(figure, Missing) and figure.reason is Reason.WARMING_UP:
            return True
    return False


def _has_few_requests(engine: Engine) -> bool:
    """Whether too few requests have ended for its latencies, while some run or nothing tells that none does."""
    if engine.load.running == 0.0:
        return False
    latencies = (engine.latency.ttft_s.p95, engine.latency.itl_s.p95)
    for p95 in latencies:
        if isinstance(p95, Missing) and p95.reason in (Reason.FEW, Reason.IDLE):
            return True
    return False


def _longer_window(window_s: float, needed_s: float) -> int:
    """Seconds of a window that gives figures which need `needed_s`.

    One that is as long and gave none is doubled: a prompt may take so long.
    """
    least_s = needed_s + _FIRST_ANSWER_S
    if window_s >= least_s:
        return ceil(2 * window_s)
    return ceil(least_s)
