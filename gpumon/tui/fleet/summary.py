"""The whole fleet in one or two lines, what is wrong with it, and all of that where the terminal is too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.fleet.order import natural_order
from gpumon.fleet.parts import Known
from gpumon.fleet.row import STATE_LEVELS, FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.readings.format import DASH, cells, count, counted, cut, figure, memory, ratio, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY
from gpumon.tui import line
from gpumon.tui.fleet.columns import bandwidth_unsure, has_unverified_peak, in_part, priced, vram_ratio
from gpumon.tui.fleet.shown import FleetMoment
from gpumon.tui.summary import whole_parts
from gpumon.tui.table import clock
from gpumon.tui.triage_words import LEVEL_MARKS
from gpumon.tui.view import View
from gpumon.tui.widgets.title_bar import ago

_PRICES: Final = ("", "idle in money: set [prices]", "muted")
_GAP: Final = 2
_INDENT: Final = "   "
"""Blanks before all lines but the first of what is wrong."""
_MOST_NAMED: Final = 2
"""Hosts that are not `ok` that are named, of each state."""
_MOST_FAULTS: Final = 5
"""Lines of what is wrong, where rows leave them."""


def sums(
    moment: FleetMoment | None, chosen: FleetRow | None, view: View, width: int, height: int
) -> Sequence[line.Row]:
    """The sums over all hosts, or of `chosen`, those rows that the table's filter lets through: as many whole figures
    as fit, the most important first; on two lines GPUs stand over engines."""
    if moment is None or not moment.fleet.wall_s:
        return ()
    total = chosen or moment.total
    of_gpus = list(_gpus(total, view))
    of_work = list(_work(total, view))
    if chosen is None:
        of_work = of_work[1:]  # the headline has the decode rate of all
    hint = () if priced(view) else (_PRICES,)
    if chosen is not None:
        of = f"{len(total.hosts)} of {counted(len(moment.total.hosts), 'host')}"
        if not total.hosts:
            return (_fitting([("", of, "accent")], width),)
        of_gpus.insert(0, ("", f"{of}:", "accent"))
    if height < 2:
        ratios = len(of_gpus) - len(_coverage(total))
        return (_fitting([*of_gpus[:ratios], *of_work, *of_gpus[ratios:], *hint], width),)
    return (_fitting(of_gpus, width), _fitting([*of_work, *hint], width))


def _fitting(parts: Sequence[tuple[str, str, str]], width: int) -> line.Row:
    """As many names with their figures as fit into `width` cells."""
    row: list[line.Piece] = []
    gap = " "
    room = width - 1
    for name, text, tone in parts:
        between = ""
        if name and text:
            between = " "
        size = cells(name) + cells(text) + cells(between)
        if size > room:
            break
        row += [(gap, "text"), (name, "muted"), (between, "text"), (text, tone)]
        gap = " " * _GAP
        room -= size + _GAP
    return tuple(row)


def _gpus(total: FleetRow, view: View) -> Iterator[tuple[str, str, str]]:
    """Name, figure and its tone."""
    yield "busy", ratio(total.busy_ratio.value), "strong"
    yield "vram", f"{ratio(vram_ratio(total))} of {_memory(total.vram_total_bytes.value, view)}", "text"
    yield "mem", _share(total.bandwidth_ratio.value, bandwidth_unsure(total)), "text"
    yield "mfu", _share(total.mfu_ratio.value, has_unverified_peak(total)), "strong"
    yield "mbu", _share(total.mbu_ratio.value, bandwidth_unsure(total)), "strong"
    yield from _coverage(total)


def _coverage(total: FleetRow) -> list[tuple[str, str, str]]:
    """`41 of 48 GPUs report`, if some do not."""
    busy = total.busy_ratio
    mfu = total.mfu_ratio
    mbu = total.mbu_ratio
    both = in_part(mfu) and in_part(mbu) and mfu.gpus == mbu.gpus
    shares = (("mfu mbu", mfu),) if both else (("mfu", mfu), ("mbu", mbu))
    parts = []
    for name, share in shares:
        if in_part(share):
            parts.append((f"{name} of", f"{share.gpus}/{share.of}", "muted"))
    if busy.gpus < busy.of:
        parts.append(("busy of", f"{busy.gpus}/{busy.of}", "warn"))
    return parts or [("", f"{busy.gpus}/{counted(busy.of, 'GPU')}", "muted")]


def _memory(value: Reading, view: View) -> str:
    """In the unit of the settings, or in the one above it: `614 GiB`, `18.7 TiB`."""
    unit = view.memory_unit
    step = 1024.0 if view.memory_unit == "GiB" else 1000.0
    if not isinstance(value, Missing) and value >= 10.0 * step * view.memory_bytes:
        return f"{memory(value, step * view.memory_bytes)} T{unit[1:]}"
    return f"{memory(value, view.memory_bytes)} {unit}"


def _share(value: Reading, doubt: bool) -> str:
    text = ratio(value)
    if doubt and text.endswith("%"):
        return f"{text}?"
    return text


def _work(total: FleetRow, view: View) -> Iterator[tuple[str, str, str]]:
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
    yield from _costs(total)


def _costs(total: FleetRow) -> Iterator[tuple[str, str, str]]:
    """Price of the tokens of now, and of unused time and energy so far, as far as there are prices."""
    for name, cost in (
        ("per 1M output", total.cost_per_million_output_tokens),
        ("unused so far", total.unused_cost.value),
        ("energy so far", total.energy_cost.value),
    ):
        if not isinstance(cost, Missing):
            yield name, f"{figure(cost)} $", "text"


def _worth(idle: Known) -> str:
    return f"{figure(idle.value)} GPUs"


def faults(
    moment: FleetMoment | None, now_s: float, width: int, most: int = _MOST_FAULTS, *, back: bool
) -> Sequence[line.Row]:
    """Why what is shown is not of now, or not all there is: of the Prometheus, then of the hosts. No line where nothing
    is wrong. `back`: it is a moment that was gone back to."""
    if moment is None or not moment.fleet.wall_s:
        return ()  # the empty table has room for the whole text
    parts = [*_prometheus_faults(moment.fleet, now_s, back=back), *_host_faults(moment.fleet)]
    return _wrapped(parts, width, max(1, most))


def _prometheus_faults(fleet: FleetSnapshot, now_s: float, *, back: bool) -> list[line.Piece]:
    """The first fault of the Prometheus and the number of others, after the age of a picture that is not live."""
    if not fleet.faults:
        return []
    parts: list[line.Piece] = []
    if not fleet.answered and not back and fleet.hosts:
        parts.append((f"✗ NOT LIVE: {ago(now_s - fleet.wall_s)} old, of {clock(fleet.wall_s)}", "critical"))
    fault = fleet.faults[0]
    more = ""
    if len(fleet.faults) > 1:
        more = f" +{len(fleet.faults) - 1}"
    parts.append((f"! {clean(fault.source, 40)}: {clean(fault.text, 600)}{more}", "warn"))
    return parts


def _host_faults(fleet: FleetSnapshot) -> list[line.Piece]:
    """Numbers of hosts in each state but OK, in the tone of the worst."""
    blank = []
    for host in fleet.hosts:
        if host.state is not HostState.OK:
            blank.append(host)
    if not blank:
        return []
    states = []
    for state in reversed(HostState):
        if state is not HostState.OK:
            states.append(_in_state(fleet, state))
    levels = [STATE_LEVELS.get(host.state, Level.WARN) for host in blank]
    glyph, tone, _ = LEVEL_MARKS[min(levels, key=URGENCY.__getitem__)]
    return [(f"{glyph} hosts: {', '.join([text for text in states if text])}", tone)]


def _in_state(fleet: FleetSnapshot, state: HostState) -> str:
    """How many hosts are in a state, and the first of them: `3 stale (gpu-004, gpu-007 +1)`."""
    hosts = sorted((host.name for host in fleet.hosts if host.state is state), key=natural_order)
    names = [clean(name, 40) for name in hosts]
    more = ""
    if len(names) > _MOST_NAMED:
        more = f" +{len(names) - _MOST_NAMED}"
    if names:
        return f"{len(names)} {state.value} ({', '.join(names[:_MOST_NAMED])}{more})"
    return ""


def _wrapped(parts: Sequence[line.Piece], width: int, most: int) -> list[line.Row]:
    """The parts one behind the other, over at most `most` lines, broken at blanks; the last one is cut."""
    words = _words(parts)
    lines: list[list[line.Piece]] = []
    room = 0
    for number, (word, tone, gap) in enumerate(words):
        if not lines:
            lines.append([(" ", "text")])
            room = width - 2
            gap = 0
        elif cells(word) + gap > room and len(lines) < most:
            lines.append([(_INDENT, "text")])
            room = width - 1 - len(_INDENT)
            gap = 0
        if cells(word) + gap > room:
            rest = " ".join([text for text, other, _ in words[number:] if other == tone])
            lines[-1].append((" " * gap + cut(rest, max(0, room - gap)), tone))
            break
        lines[-1].append((" " * gap + word, tone))
        room -= cells(word) + gap
    return [tuple(pieces) for pieces in lines]


def _words(parts: Sequence[line.Piece]) -> list[tuple[str, str, int]]:
    """Each word with its tone, and the blanks before it: two at the begin of a part."""
    words = []
    for text, tone in parts:
        gap = 2
        for word in text.split(" "):
            words.append((word, tone, gap))
            gap = 1
    return words


def small(moment: FleetMoment | None, width: int, height: int, *, paused: bool, back: bool) -> list[line.Row]:
    """All of it where the terminal is too small: the most important first, as many whole parts as fit."""
    return whole_parts(_parts(moment, paused=paused, back=back), width, height)


def _parts(moment: FleetMoment | None, *, paused: bool, back: bool) -> Iterator[line.Piece]:
    """Texts and tones, the most important first."""
    if moment is None:
        yield "gpumon fleet: starting …", "muted"
        return
    fleet = moment.fleet
    total = moment.total
    if back:
        yield f"AT {fleet.time}", "badge_paused"
    elif paused:
        yield "PAUSED", "badge_paused"
    fault = ""
    if fleet.faults:
        fault = clean(fleet.faults[0].text, 30)
    if not fleet.answered and not back:
        yield f"✗ NOT LIVE {fault}".rstrip(), "critical"
    elif fleet.faults:
        yield f"! {fault}", "warn"
    yield counted(len(fleet.hosts), "host"), "text"
    if total.troubled:
        yield f"{total.troubled} not ok", "warn"
    if isinstance(total.gpus, Missing):
        yield f"{DASH} GPUs", "text"
    else:
        yield counted(total.gpus, "GPU"), "text"
    yield f"busy {ratio(total.busy_ratio.value)}", "strong"
    yield f"mfu {ratio(total.mfu_ratio.value)}", "text"
    yield f"mbu {ratio(total.mbu_ratio.value)}", "text"
    yield f"{count(total.decode_tokens_per_s)} tok/s", "text"
    yield watts(total.power_w.value), "text"
