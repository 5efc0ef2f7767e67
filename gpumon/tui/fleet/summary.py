"""The whole fleet in one or two lines, what is wrong with it, and all of that where the terminal is too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.fleet.parts import Known
from gpumon.fleet.rows import Row, by_name
from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.readings.format import DASH, cells, count, counted, cut, figure, memory, ratio, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.tui import line
from gpumon.tui.fleet.columns import bandwidth_unsure, in_part, priced, unsure, vram_ratio
from gpumon.tui.fleet.shown import Shown
from gpumon.tui.fleet.title import utc
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.title_bar import ago

_HINT: Final = f"{LEAST_WIDTH}x{LEAST_HEIGHT} or more shows tables, {{quit}} quits"
_PRICES: Final = ("", "idle in money: set [sizing.prices]", "muted")
_GAP: Final = 2
_MOST_NAMED: Final = 2
"""Hosts that are not `ok` that are named, of each state."""
_MOST_FAULTS: Final = 5
"""Lines of what is wrong, where rows leave them."""


class FleetSummary(Board):
    """The sums over all hosts, or over those rows that the table's filter lets through."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette)
        self._view = view
        self._shown: Shown | None = None
        self._chosen: Row | None = None

    def show(self, shown: Shown) -> None:
        """Paint a moment of the fleet."""
        self._shown = shown
        self.update()

    def narrow(self, chosen: Row | None) -> None:
        """The sum of the rows that a filter lets through; None: there is no filter."""
        if chosen is not self._chosen:
            self._chosen = chosen
            self.update()

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """As many whole figures as fit, the most important first: on two lines GPUs stand over engines."""
        if self._shown is None or not self._shown.fleet.wall_s:
            return ()
        total = self._chosen or self._shown.total
        of_gpus, of_work = list(_gpus(total, self._view)), list(_work(total, self._view))
        hint = () if priced(self._view) else (_PRICES,)
        if self._chosen is not None:
            of = f"{len(total.hosts)} of {counted(len(self._shown.total.hosts), 'host')}"
            if not total.hosts:
                return (_fitting([("", of, "accent")], width),)
            of_gpus.insert(0, ("", f"{of}:", "accent"))
        if height < 2:
            ratios = len(of_gpus) - len(_coverage(total))
            return (_fitting([*of_gpus[:ratios], *of_work, *of_gpus[ratios:], *hint], width),)
        return (_fitting(of_gpus, width), _fitting([*of_work, *hint], width))


def _fitting(parts: Sequence[tuple[str, str, str]], width: int) -> line.Row:
    row: list[line.Piece] = []
    room = width - 1
    for name, text, tone in parts:
        size = cells(name) + cells(text) + (1 if name and text else 0) + _GAP
        if size > room + _GAP:
            break
        row += [(" " if not row else " " * _GAP, "text"), (name, "muted"), (" " if name and text else "", "text")]
        row.append((text, tone))
        room -= size
    return tuple(row)


def _gpus(total: Row, view: View) -> Iterator[tuple[str, str, str]]:
    """Name, figure and its tone."""
    yield "busy", ratio(total.busy_ratio.value), "strong"
    yield "vram", f"{ratio(vram_ratio(total))} of {_memory(total.vram_total_bytes.value, view)}", "text"
    yield "mem", _share(total.bandwidth_ratio.value, bandwidth_unsure(total)), "text"
    yield "mfu", _share(total.mfu_ratio.value, unsure(total)), "strong"
    yield "mbu", _share(total.mbu_ratio.value, bandwidth_unsure(total)), "strong"
    yield from _coverage(total)


def _coverage(total: Row) -> list[tuple[str, str, str]]:
    """Of how many GPUs it is known what they do, where that is not of all."""
    busy, mfu, mbu = total.busy_ratio, total.mfu_ratio, total.mbu_ratio
    both = in_part(mfu) and in_part(mbu) and mfu.gpus == mbu.gpus
    shares = (("mfu mbu", mfu),) if both else (("mfu", mfu), ("mbu", mbu))
    parts = [(f"{name} of", f"{one.gpus}/{one.of}", "muted") for name, one in shares if in_part(one)]
    parts += [("busy of", f"{busy.gpus}/{busy.of}", "warn")] if busy.gpus < busy.of else []
    return parts or [("", f"{busy.gpus}/{counted(busy.of, 'GPU')}", "muted")]


def _memory(value: Reading, view: View) -> str:
    """In the unit of the settings, or in the one above it: `614 GiB`, `18.7 TiB`."""
    unit, step = view.memory_unit, 1024.0 if view.memory_unit == "GiB" else 1000.0
    if not isinstance(value, Missing) and value >= 10.0 * step * view.memory_bytes:
        return f"{memory(value, step * view.memory_bytes)} T{unit[1:]}"
    return f"{memory(value, view.memory_bytes)} {unit}"


def _share(value: Reading, doubt: bool) -> str:
    text = ratio(value)
    return f"{text}?" if doubt and text.endswith("%") else text


def _work(total: Row, view: View) -> Iterator[tuple[str, str, str]]:
    yield "tok/s", count(total.decode_tokens_per_s), "strong"
    waiting = total.waiting
    some = not isinstance(waiting, Missing) and waiting > 0.0
    yield "waiting", whole(waiting), "warn" if some else "text"
    yield "", watts(total.power_w.value), "text"
    yield "tok/J", figure(total.tokens_per_j), "text"
    if priced(view) and not isinstance(total.idle_cost_per_h.value, Missing):
        yield "idle", f"{figure(total.idle_cost_per_h.value)} $/h", "strong"
        yield "=", _worth(total.idle_gpus), "text"
    else:
        yield "idle", _worth(total.idle_gpus), "strong"
    yield "prefill/s", count(total.prefill_tokens_per_s), "text"
    yield "req/s", figure(total.requests_per_s), "text"


def _worth(idle: Known) -> str:
    return f"{figure(idle.value)} GPUs"


class FaultLine(Board):
    """Why what is shown is not of now, or not all there is. It has no line where nothing is wrong."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._fleet: FleetSnapshot | None = None
        self._now_s = 0.0
        self._back = False

    def wanted(self, width: int) -> int:
        """Lines that it could use."""
        return len(_wrapped(self._told(), width, _MOST_FAULTS))

    def show(self, fleet: FleetSnapshot, now_s: float, *, back: bool) -> None:
        """Take a fleet in; `back`: it is a moment that was gone back to."""
        self._fleet, self._now_s, self._back = fleet, now_s, back
        self.update()

    def at(self, now_s: float) -> None:
        """Paint at a moment of wall time."""
        self._now_s = now_s
        self.update()

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """The Prometheus, and then the hosts: wrapped where there are lines for that."""
        return _wrapped(self._told(), width, max(1, height))

    def _told(self) -> list[line.Piece]:
        fleet = self._fleet
        if fleet is None or not fleet.wall_s:
            return []  # the empty table has room for the whole text
        parts: list[line.Piece] = []
        if fleet.faults:
            fault = fleet.faults[0]
            more = f" +{len(fleet.faults) - 1}" if len(fleet.faults) > 1 else ""
            text = f"! {clean(fault.source, 40)}: {clean(fault.text, 600)}{more}"
            shown = f"✗ NOT LIVE: {ago(self._now_s - fleet.wall_s)} old, of {utc(fleet.wall_s)}Z"
            silent = not fleet.answered and not self._back
            parts += [(shown, "critical")] if silent and fleet.wall_s and fleet.hosts else []
            parts.append((text, "warn"))
        hosts = [
            told for state in reversed(HostState) if state is not HostState.OK and (told := _in_state(fleet, state))
        ]
        return [*parts, (f"! hosts: {', '.join(hosts)}", "warn")] if hosts else parts


def _in_state(fleet: FleetSnapshot, state: HostState) -> str:
    """How many hosts are in a state, and the first of them: `3 stale (gpu-004, gpu-007 +1)`."""
    found = sorted((host.name for host in fleet.hosts if host.state is state), key=by_name)
    names = [clean(name, 40) for name in found]
    more = f" +{len(names) - _MOST_NAMED}" if len(names) > _MOST_NAMED else ""
    return f"{len(names)} {state.value} ({', '.join(names[:_MOST_NAMED])}{more})" if names else ""


def _wrapped(parts: Sequence[line.Piece], width: int, most: int) -> list[line.Row]:
    """The parts one behind the other, over at most `most` lines, broken at blanks; the last one is cut."""
    lines: list[list[line.Piece]] = []
    room = 0
    words = [(word, tone, at) for text, tone in parts for at, word in enumerate(text.split(" "))]
    for number, (word, tone, at) in enumerate(words):
        gap = 1 if at else 2
        if not lines or (cells(word) + gap > room and len(lines) < most):
            lines.append([(" " if not lines else "   ", "text")])
            room, gap = width - (2 if len(lines) == 1 else 4), 0
        if cells(word) + gap > room:
            rest = " ".join(text for text, other, _ in words[number:] if other == tone)
            lines[-1].append((" " * gap + cut(rest, max(0, room - gap)), tone))
            break
        lines[-1].append((" " * gap + word, tone))
        room -= cells(word) + gap
    return [tuple(each) for each in lines]


class TinyFleet(Board):
    """Takes the place of everything where the terminal is too small."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette)
        self._view = view
        self._shown: Shown | None = None
        self._paused = self._back = False

    def show(self, shown: Shown | None, *, paused: bool, back: bool) -> None:
        """Paint a moment of the fleet; `back`: it is one that was gone back to."""
        self._shown, self._paused, self._back = shown, paused, back
        self.update()

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """The most important first, as many whole parts as fit; and how to see more."""
        lines: list[list[line.Piece]] = [[]]
        room = width
        for text, tone in self._parts():
            size = cells(text) + (1 if lines[-1] else 0)
            if size > room and lines[-1] and len(lines) < height:
                lines.append([])
                room, size = width, cells(text)
            if size > room:
                break
            lines[-1] += [(" ", "text"), (text, tone)] if lines[-1] else [(text, tone)]
            room -= size
        hint = _HINT.format(quit=self._view.keymap.first("quit"))
        rows = [tuple(each) for each in lines]
        return [*rows, ((cut(hint, width), "muted"),)][:height]

    def _parts(self) -> Iterator[line.Piece]:
        if self._shown is None:
            yield "gpumon fleet: starting …", "muted"
            return
        fleet, total = self._shown.fleet, self._shown.total
        if self._back:
            yield f"AT {fleet.time}", "badge_paused"
        elif self._paused:
            yield "PAUSED", "badge_paused"
        if not fleet.answered and not self._back:
            yield f"✗ NOT LIVE {clean(fleet.faults[0].text, 30) if fleet.faults else ''}".rstrip(), "critical"
        elif fleet.faults:
            yield f"! {clean(fleet.faults[0].text, 30)}", "warn"
        yield counted(len(fleet.hosts), "host"), "text"
        if total.troubled:
            yield f"{total.troubled} not ok", "warn"
        yield f"{DASH} GPUs" if isinstance(total.gpus, Missing) else counted(total.gpus, "GPU"), "text"
        yield f"busy {ratio(total.busy_ratio.value)}", "strong"
        yield f"mfu {ratio(total.mfu_ratio.value)}", "text"
        yield f"mbu {ratio(total.mbu_ratio.value)}", "text"
        yield f"{count(total.decode_tokens_per_s)} tok/s", "text"
        yield watts(total.power_w.value), "text"
