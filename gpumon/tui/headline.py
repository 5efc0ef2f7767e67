"""The line under the title: what the machine delivers, and the worst that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.efficiency.service import adding_up
from gpumon.readings.format import cells, count, counted, cut, left, ratio, watts
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Level, Snapshot
from gpumon.triage.render import money
from gpumon.tui.line import Piece, Row
from gpumon.tui.totals import Totals, totals
from gpumon.tui.triage_rows import HEALTHY, Item
from gpumon.tui.triage_words import LEVELS, URGENT

_GAP: Final = "  "
_FIGURES_SHARE: Final = 0.4
"""Share of the line that the figures get beside a problem."""
_LEAST_PROBLEM: Final = 20
"""Cells of a problem below which its line has no figures."""
_FILL: Final = {Level.CRITICAL: "alarm", Level.WARN: "warn"}
"""Tone of the whole line, by the worst level."""


def headline(snapshot: Snapshot, items: Sequence[Item], prices: Mapping[str, float], width: int) -> Row:
    """One line of `width` cells.

    `items`: the rows of the triage pane, the worst first. `prices`: as `running_prices` gives them.
    """
    figures = _figures(snapshot, prices)
    troubles = [item for item in items if item.trouble]
    if troubles:
        return _in_trouble(troubles, [text for text, _ in figures], width)
    return _at_peace(items, figures, width)


def price_per_hour(snapshot: Snapshot, prices: Mapping[str, float]) -> float | None:
    """Price of one hour of all GPUs of the machine; None where the price of one of them is not known."""
    total = 0.0
    for gpu in snapshot.gpus:
        if gpu.parent_uuid:
            continue
        price = prices.get(gpu.gpu_type, prices.get(""))
        if price is None:
            return None
        total += price
    return total or None


def _figures(snapshot: Snapshot, prices: Mapping[str, float]) -> list[Piece]:
    """Texts and tones of the figures, the most important first."""
    total = totals(snapshot)
    figures: list[Piece] = []
    if snapshot.engines:
        figures.append((f"{count(total.decode_tokens_per_s)} tok/s", "strong"))
        figures.append((f"MFU {ratio(total.mfu_ratio)}", "strong"))
        figures.append((f"MBU {ratio(total.mbu_ratio)}", "strong"))
    elif snapshot.gpus:
        figures.append((f"busy {ratio(total.busy_ratio)}", "strong"))
    if not isinstance(total.power_w, Missing):
        figures.append((watts(total.power_w), "text"))
    price = price_per_hour(snapshot, prices)
    if price is not None:
        figures.append((money(price), "text"))
    figures.append(_engines_up(snapshot, total))
    return figures


def _engines_up(snapshot: Snapshot, total: Totals) -> Piece:
    if not total.engines:
        return "no engine found", "muted"
    text = f"{total.engines_up}/{total.engines} engines up"
    ready = len(list(adding_up(snapshot.engines))) > 0 and total.engines_up == total.engines
    return text, "text" if ready else "warn"


def _at_peace(items: Sequence[Item], figures: Sequence[Piece], width: int) -> Row:
    """The figures, and what triage says of a machine without problems."""
    row: list[Piece] = [(" ", "text")]
    room = width - 1
    for text, tone in figures:
        size = cells(text) + len(_GAP)
        if size > room:
            return tuple(row)
        row += [(text, tone), (_GAP, "text")]
        room -= size
    row.append(_without_trouble(items, room))
    return tuple(row)


def _without_trouble(items: Sequence[Item], room: int) -> Piece:
    """`● no problem found; + 2 notes`, or what triage waits for, in at most `room` cells."""
    glyph, tone, _ = LEVELS[Level.OK]
    notes = sum(item.level is Level.NOTE for item in items)
    if notes:
        return cut(f"{glyph} no problem found; {LEVELS[Level.NOTE][0]} {counted(notes, 'note')}", room), tone
    healthy = next((item for item in items if item.key == HEALTHY), None)
    if healthy is None:
        return "", "text"
    if healthy.text.startswith("no problem"):
        return cut(f"{glyph} {healthy.text}", room), tone
    return cut(healthy.text, room), "muted"


def _in_trouble(troubles: Sequence[Item], figures: Sequence[str], width: int) -> Row:
    """Number of problems by level, the worst one and its first action; then as many figures as have room.

    The whole line has the colour of the worst level.
    """
    tone = _FILL[troubles[0].level]
    right = _joined(figures, int(width * _FIGURES_SHARE))
    problem = f" {_numbers(troubles)}  {_problem(troubles[0])}"
    room = width - cells(right) - 1
    if room < _LEAST_PROBLEM:
        return ((left(problem, width), tone),)
    return ((left(cut(problem, room - 1), room), tone), (f"{right} ", tone))


def _numbers(troubles: Sequence[Item]) -> str:
    """`✗ 1 ! 2`: number of rows of each urgent level."""
    parts = []
    for level in URGENT:
        number = sum(item.level is level for item in troubles)
        if number:
            parts.append(f"{LEVELS[level][0]} {number}")
    return " ".join(parts)


def _problem(item: Item) -> str:
    """`llama-70b hung → py-spy dump --pid 4242`; what is wrong, where nothing can be done."""
    name = f"{item.scope} {item.what}".strip()
    if item.actions:
        return f"{name} → {item.actions[0]}"
    return f"{name}: {item.text}"


def _joined(figures: Sequence[str], room: int) -> str:
    """As many whole figures as fit, in their order."""
    text = ""
    for figure in figures:
        longer = f"{text}{_GAP}{figure}" if text else figure
        if cells(longer) > room:
            break
        text = longer
    return text
