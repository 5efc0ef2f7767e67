"""What `gpumon snapshot` says beside the figures: states in numbers, the worst verdicts, and what came too soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from typing import Final

from gpumon.efficiency.tracks import QUANTILE_S, RATE_S, grown
from gpumon.outputs.units import token
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Level, Snapshot, Verdict
from gpumon.triage.render import LIMITS, actions_text, verdict_text

MOST_VERDICTS: Final = 5
"""Of the worst, in the summary."""
MOST_NAMES: Final = 2
"""Engines that a hint names."""
SPARE_S: Final = 2.0
"""Added to a window that is to be filled: the first answer comes a little after its start."""

_OF_RATES: Final[dict[str, Callable[[Engine], Reading]]] = {
    "prefill rate": lambda engine: engine.rates.prefill_tokens_per_s,
    "decode rate": lambda engine: engine.rates.decode_tokens_per_s,
    "MFU": lambda engine: engine.efficiency.mfu_ratio,
    "MBU": lambda engine: engine.efficiency.mbu_ratio,
}
_OF_REQUESTS: Final[dict[str, Callable[[Engine], Reading]]] = {
    "TTFT": lambda engine: engine.latency.ttft_s.p95,
    "ITL": lambda engine: engine.latency.itl_s.p95,
}
_TOO_SOON: Final = frozenset({Reason.WARMING_UP})
_TOO_FEW: Final = frozenset({Reason.FEW, Reason.IDLE})


def summary(snapshot: Snapshot) -> Iterator[str]:
    """GPUs, engines and verdicts in numbers, and the worst verdicts, each with what to do."""
    yield "summary"
    yield _counted("gpus", (gpu.state.value for gpu in snapshot.gpus))
    yield _counted("engines", (engine.state.value for engine in snapshot.engines))
    if snapshot.verdicts:
        yield _counted("verdicts", (verdict.level.value for verdict in snapshot.verdicts), tuple(Level))
    else:
        yield "  verdicts   none yet: they need half a minute to some minutes of readings (--window S waits)"
    urgent = [v for level in (Level.CRITICAL, Level.WARN) for v in snapshot.verdicts if v.level is level]
    for verdict in urgent[:MOST_VERDICTS]:
        yield _line(verdict)
        if verdict.actions:
            yield f"  {'':<10}   -> {token(actions_text(verdict), spaces=True)}"
    if len(urgent) > MOST_VERDICTS:
        yield f"  and {len(urgent) - MOST_VERDICTS} more of these: see `verdict` below"


def _counted(label: str, words: Iterable[str], order: Sequence[str] = ()) -> str:
    """`engines   3: 2 ok, 1 refused`."""
    counts = Counter(words)
    ordered = sorted(counts, key=lambda word: order.index(word) if word in order else 0)
    parts = ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in ordered)
    return f"  {label:<10} {counts.total()}{': ' if parts else ''}{parts}"


def _line(verdict: Verdict) -> str:
    scope, said = token(verdict.scope, spaces=True), token(verdict_text(verdict), spaces=True)
    return f"  {verdict.level.value:<10} {scope}: {LIMITS[verdict.code]}{': ' if said else ''}{said}"


def too_soon(snapshot: Snapshot, window_s: float, cadence_s: float) -> str:
    """The figures of engines that a longer window would give, in one line; empty where there are none.

    `window_s` is the window that was waited for, `cadence_s` the seconds between two answers of an engine.
    """
    if not window_s:
        return ""
    quick = _longer(window_s, grown(RATE_S, cadence_s))
    slow = _longer(window_s, grown(QUANTILE_S, cadence_s))
    serving = [engine for engine in snapshot.engines if _serves(engine)]
    parts = (
        _missing(snapshot.engines, {**_OF_RATES, **_OF_REQUESTS}, _TOO_SOON, f"--window {quick} gives them"),
        _missing(serving, _OF_REQUESTS, _TOO_FEW, f"--window {slow} sees more requests"),
    )
    said = "; ".join(part for part in parts if part)
    return f"not there yet after {window_s:g} s: {said}" if said else ""


def _longer(window_s: float, needed_s: float) -> int:
    """Of a window that was filled and did not do, twice as much: a prompt may take as long."""
    return ceil(2 * window_s if window_s >= needed_s + SPARE_S else needed_s + SPARE_S)


def _serves(engine: Engine) -> bool:
    return not isinstance(engine.load.running, Missing) and engine.load.running > 0.0


def _missing(
    engines: Iterable[Engine], figures: dict[str, Callable[[Engine], Reading]], reasons: frozenset[Reason], fix: str
) -> str:
    words: dict[str, None] = {}
    names = []
    for engine in engines:
        absent = [word for word, read in figures.items() if _is_one_of(read(engine), reasons)]
        if absent:
            words |= dict.fromkeys(absent)
            names.append(token(engine.name))
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(words)} of {', '.join(names[:MOST_NAMES])}{more} ({fix})"


def _is_one_of(reading: Reading, reasons: frozenset[Reason]) -> bool:
    return isinstance(reading, Missing) and reading.reason in reasons
