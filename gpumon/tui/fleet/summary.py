"""The whole fleet in one or two lines, what is wrong with it, and all of that where the terminal is too small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from gpumon.figures.gpu import GPU
from gpumon.fleet.order import natural_order
from gpumon.fleet.row import STATE_LEVELS, FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.format import DASH, cells, count, counted, cut, figure, memory, ratio, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY
from gpumon.tui import line
from gpumon.tui.fleet.columns import (
    gpus_have_prices,
    has_unverified_bandwidth,
    has_unverified_peak,
    is_partial,
    vram_ratio,
)
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.summary import whole_parts
from gpumon.tui.table import UNSURE, clock
from gpumon.tui.triage_words import LEVEL_MARKS
from gpumon.tui.view import View
from gpumon.tui.widgets.title_bar import ago

Headline: TypeAlias = Callable[[int, int], Sequence[line.Row]]
"""Paints the line above the sums in so many cells and lines."""
_LAST_SHARE: Final = "mem bw"
"""Name of the share that has its place last where there is one line: MBU says the like."""
_FIRST_WORK: Final = ("tok/s", "waiting")
"""Names of the figures of engines that come before free GPUs there."""
_MOST_TYPE: Final = 24
"""Characters of a type of GPU."""
_MOST_TYPES: Final = 3
"""Types of GPU of which some are free that the sums name."""
_TB_FROM: Final = 10.0
"""Terabytes, or TiB, from which memory is shown in these instead of GB or GiB."""
_GAP: Final = 2
"""Blanks between two figures."""
_INDENT: Final = "   "
"""Blanks before all lines but the first of what is wrong."""
_MOST_NAMED: Final = 2
"""Hosts that are named of each state, if that is not `ok`."""
_MOST_FAULT_LINES: Final = 5
"""Lines of what is wrong, where rows leave them."""
_NAME_CELLS: Final = 40
"""Most cells of the name of a host, or of a source of faults."""


class _Figure(NamedTuple):
    """One figure of the line of sums: its name, muted, and its text in its tone; either may be empty."""

    name: str
    text: str
    tone: str


_NOTHING_KNOWN: Final = _Figure("", "no GPU and no engine is known yet", "muted")
_HINT_AT_PRICES: Final = _Figure("", "idle cost: set [prices]", "muted")


def sum_lines(
    moment: FleetMoment | None, filtered: FleetRow | None, view: View, headline: Headline, width: int, height: int
) -> Sequence[line.Row]:
    """The sums over all hosts, as many whole figures as fit, the most important first; on two lines GPUs stand over
    engines. `filtered`: the sum of the rows that the table's filter lets through, which is shown instead. `headline`:
    paints the line above, whose figures are not told again."""
    if moment is None or not moment.fleet.wall_s:
        return ()
    if filtered is None:
        begin: list[_Figure] = []
        total = moment.total
        told = "".join(text for row in headline(width, 1) for text, _ in row)
    else:
        hosts = f"{len(filtered.hosts)} of {counted(len(moment.total.hosts), 'host')}"
        if not filtered.hosts:
            return (_fit_figures([_Figure("", hosts, "accent")], width),)
        begin = [_Figure("", f"{hosts}:", "accent")]
        total = filtered
        told = ""
    if not total.parts.gpus and not total.engines:
        return (_fit_figures([*begin, _NOTHING_KNOWN], width),)
    lines = _total_figures(total, view, told, most_lines=height)
    return [_fit_figures([*begin, *figures] if place == 0 else figures, width) for place, figures in enumerate(lines)]


def _total_figures(total: FleetRow, view: View, headline: str, most_lines: int) -> list[list[_Figure]]:
    """The figures of a sum on one line or two; those that the `headline` tells are left out."""
    hint = [] if gpus_have_prices(view) else [_HINT_AT_PRICES]
    shares = _untold(_gpu_figures(total, view), headline)
    work = _untold(_work_figures(total, view), headline)
    free = _free_figures(total, view)
    coverage = _coverage(total)
    if most_lines > 1:
        return [[*shares, *free, *coverage], [*work, *hint]]
    last_share = [shown for shown in shares if shown.name == _LAST_SHARE]
    first_shares = [shown for shown in shares if shown.name != _LAST_SHARE]
    first_work = [shown for shown in work if shown.name in _FIRST_WORK]
    last_work = [shown for shown in work if shown.name not in _FIRST_WORK]
    return [[*first_shares, *first_work, *free, *last_share, *last_work, *coverage, *hint]]


def _untold(figures: Iterable[_Figure], headline: str) -> list[_Figure]:
    """The figures that the line above does not tell."""
    told = {"tok/s": " tok/s", "mfu": "MFU ", "mbu": "MBU "}
    untold = []
    for shown in figures:
        words = told.get(shown.name, "" if shown.name else f"  {shown.text}")
        if not words or words not in f" {headline}  ":
            untold.append(shown)
    return untold


def _free_figures(total: FleetRow, view: View) -> list[_Figure]:
    """Free GPUs by type, those with the most first, and the key of the page of them; nothing where no GPU is known."""
    free = Counter[str]()
    largest_tp: dict[str, int] = {}
    for domain in total.parts.domains:
        free[domain.gpu_type] += len(domain.free)
        largest_tp[domain.gpu_type] = max(domain.largest_tp, largest_tp.get(domain.gpu_type, 0))
    if not free.total():
        return [_Figure("free", "0", "text")] if free else []
    figures = []
    for gpu_type, count_of_type in free.most_common(_MOST_TYPES):
        name = f" {clean(gpu_type, _MOST_TYPE).removeprefix('NVIDIA ')}" if len(free) > 1 else ""
        if count_of_type:
            figures.append(_Figure("free", f"{count_of_type}{name}, TP {largest_tp[gpu_type]}", "strong"))
    key = view.keymap.first("fleet.free")
    return [*figures, _Figure("", f"({key})", "muted")] if key else figures


def _fit_figures(figures: Sequence[_Figure], width: int) -> line.Row:
    """As many figures as fit into `width` cells, none of them cut."""
    row: list[line.Piece] = []
    gap = " "
    room = width - 1
    for name, text, tone in figures:
        between = " " if name and text else ""
        size = cells(name) + cells(text) + cells(between)
        if size > room:
            break
        row += [(gap, "text"), (name, "muted"), (between, "text"), (text, tone)]
        gap = " " * _GAP
        room -= size + _GAP
    return tuple(row)


def _gpu_figures(total: FleetRow, view: View) -> Iterator[_Figure]:
    """Shares of the GPUs that are in use."""
    vram = f"{ratio(vram_ratio(total))} of {_memory(total.vram_total_bytes.value, view)}"
    yield _Figure("busy", ratio(total.busy_ratio.value), "strong")
    yield _Figure("vram", vram, "text")
    bandwidth = _share(total.bandwidth_ratio.value, unsure=has_unverified_bandwidth(total))
    yield _Figure(GPU["bandwidth_bytes_per_s"].short, bandwidth, "text")
    if not total.engines:
        return
    yield _Figure("mfu", _share(total.mfu_ratio.value, unsure=has_unverified_peak(total)), "strong")
    yield _Figure("mbu", _share(total.mbu_ratio.value, unsure=has_unverified_bandwidth(total)), "strong")


def _coverage(total: FleetRow) -> list[_Figure]:
    """Number of GPUs of which each share is known, where it is not all: `mfu of 41/48`; else `48/48 GPUs`."""
    busy = total.busy_ratio
    mfu = total.mfu_ratio
    mbu = total.mbu_ratio
    if is_partial(mfu) and is_partial(mbu) and mfu.gpus == mbu.gpus:
        shares = [("mfu mbu", mfu)]
    else:
        shares = [("mfu", mfu), ("mbu", mbu)]
    figures = [
        _Figure(f"{name} of", f"{share.gpus}/{share.of}", "muted") for name, share in shares if is_partial(share)
    ]
    if busy.gpus < busy.of:
        figures.append(_Figure("busy of", f"{busy.gpus}/{busy.of}", "warn"))
    return figures or [_Figure("", f"{busy.gpus}/{counted(busy.of, 'GPU')}", "muted")]


def _memory(size: Reading, view: View) -> str:
    """An amount of memory in the unit of the settings, or in the one above it: `614 GiB`, `18.7 TiB`."""
    unit = view.memory_unit
    step = 1024.0 if unit == "GiB" else 1000.0
    terabyte = step * view.memory_bytes
    if not isinstance(size, Missing) and size >= _TB_FROM * terabyte:
        return f"{memory(size, terabyte)} T{unit[1:]}"
    return f"{memory(size, view.memory_bytes)} {unit}"


def _share(value: Reading, *, unsure: bool) -> str:
    """A share as percent; with a mark where it is of a peak that is not verified."""
    text = ratio(value)
    if unsure and text.endswith("%"):
        return f"{text}{UNSURE}"
    return text


def _work_figures(total: FleetRow, view: View) -> Iterator[_Figure]:
    """Rates of the engines, power, and what lies idle."""
    if total.engines:
        yield _Figure("tok/s", count(total.decode_tokens_per_s), "strong")
        waiting = total.waiting
        waiting_tone = "warn" if not isinstance(waiting, Missing) and waiting > 0.0 else "text"
        yield _Figure("waiting", whole(waiting), waiting_tone)
    yield _Figure("", watts(total.power_w.value), "text")
    if total.engines:
        yield _Figure("tok/J", figure(total.tokens_per_j), "text")
    idle_gpus = f"{figure(total.idle_gpus.value)} GPUs"
    if gpus_have_prices(view) and not isinstance(total.idle_cost_per_h.value, Missing):
        yield _Figure("idle", f"{figure(total.idle_cost_per_h.value)} $/h", "strong")
        yield _Figure("=", idle_gpus, "text")
    else:
        yield _Figure("idle", idle_gpus, "strong")
    if total.engines:
        yield _Figure("prefill/s", count(total.prefill_tokens_per_s), "text")
        yield _Figure("req/s", figure(total.requests_per_s), "text")
    yield from _cost_figures(total)


def _cost_figures(total: FleetRow) -> Iterator[_Figure]:
    """Price of the tokens of now, and of unused time and energy so far, as far as there are prices."""
    for name, cost in (
        ("per 1M output", total.cost_per_million_output_tokens),
        ("unused so far", total.unused_cost.value),
        ("energy so far", total.energy_cost.value),
    ):
        if not isinstance(cost, Missing):
            yield _Figure(name, f"{figure(cost)} $", "text")


def fault_lines(
    moment: FleetMoment | None, now_s: float, width: int, most: int = _MOST_FAULT_LINES, *, gone_back: bool
) -> Sequence[line.Row]:
    """Why what is shown is not of now, or not all there is, in at most `most` lines: faults of the Prometheus, then of
    the hosts. No line where nothing is wrong. `gone_back`: what is shown is a moment of the past."""
    if moment is None or not moment.fleet.wall_s:
        return ()  # the empty table has room for the whole text
    parts = [*_prometheus_faults(moment.fleet, now_s, gone_back=gone_back), *_host_faults(moment)]
    return _wrap_parts(parts, width, max(1, most))


def _prometheus_faults(fleet: FleetSnapshot, now_s: float, *, gone_back: bool) -> list[line.Piece]:
    """The first fault of the Prometheus and the number of others, after the age of a picture that is not live."""
    if not fleet.faults:
        return []
    parts: list[line.Piece] = []
    if not fleet.answered and not gone_back and fleet.hosts:
        parts.append((f"✗ NOT LIVE: {ago(now_s - fleet.wall_s)} old, of {clock(fleet.wall_s)}", "critical"))
    fault = fleet.faults[0]
    more = f" +{len(fleet.faults) - 1}" if len(fleet.faults) > 1 else ""
    parts.append((f"! {clean(fault.source, _NAME_CELLS)}: {clean(fault.text, 600)}{more}", "warn"))
    return parts


def _host_faults(moment: FleetMoment) -> list[line.Piece]:
    """Numbers of hosts in each state but OK, in the tone of the worst; nothing where all hosts are OK, or the headline
    tells of the only one that is not.

    Hosts in maintenance are in none of these numbers: their own follows.
    """
    hosts = moment.fleet.hosts
    silenced = [host for host in hosts if host.maintenance is not None]
    of_silenced = [(f"in maintenance: {_names_text(silenced)}", "muted")] if silenced else []
    not_ok = [host for host in hosts if host.maintenance is None and host.state is not HostState.OK]
    worst = moment.standing.worst
    is_told = worst is not None and len(not_ok) == 1 and worst.label == not_ok[0].state.value
    if not not_ok or is_told:
        return of_silenced
    return [_states_of(not_ok), *of_silenced]


def _states_of(hosts: Sequence[HostShown]) -> line.Piece:
    """Numbers and names of hosts in each of their states, in the tone of the worst; muted where all of them start."""
    by_state: dict[HostState, list[HostShown]] = {}
    for host in hosts:
        by_state.setdefault(host.state, []).append(host)
    worst_first = sorted(by_state, key=list(HostState).index, reverse=True)
    texts = [f"{len(by_state[state])} {state.value} ({_names_text(by_state[state])})" for state in worst_first]
    levels = [STATE_LEVELS.get(state, Level.WARN) for state in by_state if state is not HostState.STARTING]
    if not levels:
        return f"hosts: {', '.join(texts)}", "muted"
    glyph, tone, _ = LEVEL_MARKS[min(levels, key=URGENCY.__getitem__)]
    return f"{glyph} hosts: {', '.join(texts)}", tone


def _names_text(shown: Sequence[HostShown]) -> str:
    """The first few hosts, and how many more there are: `gpu-004, gpu-007 +1`."""
    hosts = sorted((host.name for host in shown), key=natural_order)
    names = ", ".join([clean(name, _NAME_CELLS) for name in hosts[:_MOST_NAMED]])
    return f"{names} +{len(hosts) - _MOST_NAMED}" if len(hosts) > _MOST_NAMED else names


def _wrap_parts(parts: Sequence[line.Piece], width: int, most: int) -> list[line.Row]:
    """The parts one behind the other, over at most `most` lines, broken at blanks; the last line is cut."""
    words = _words(parts)
    lines: list[list[line.Piece]] = []
    room = 0
    for number, (text, tone, gap) in enumerate(words):
        if not lines or (cells(text) + gap > room and len(lines) < most):
            begin = _INDENT if lines else " "
            lines.append([(begin, "text")])
            room = width - 1 - len(begin)
            gap = 0
        if cells(text) + gap > room:
            # The rest of a part that is cut; parts behind it, which have another tone, are left out.
            rest = " ".join([word for word, tone_of_word, _ in words[number:] if tone_of_word == tone])
            lines[-1].append((" " * gap + cut(rest, max(0, room - gap)), tone))
            break
        lines[-1].append((" " * gap + text, tone))
        room -= cells(text) + gap
    return [tuple(pieces) for pieces in lines]


def _words(parts: Sequence[line.Piece]) -> list[tuple[str, str, int]]:
    """The words of all parts with their tones, and the number of blanks before each, unless it begins a line: two
    before the first of a part, one before the others."""
    words = []
    for text, tone in parts:
        gap = 2
        for word in text.split(" "):
            words.append((word, tone, gap))
            gap = 1
    return words


def small_screen_lines(
    moment: FleetMoment | None, width: int, height: int, *, paused: bool, gone_back: bool
) -> list[line.Row]:
    """The fleet on a terminal that is too small for the table: as many whole parts as fit, the most important first."""
    return whole_parts(_small_screen_parts(moment, paused=paused, gone_back=gone_back), width, height)


def _small_screen_parts(moment: FleetMoment | None, *, paused: bool, gone_back: bool) -> Iterator[line.Piece]:
    """Texts and tones, the most important first."""
    if moment is None:
        yield "gpumon fleet: starting …", "muted"
        return
    fleet = moment.fleet
    total = moment.total
    if gone_back:
        yield f"AT {fleet.time}", "badge_paused"
    elif paused:
        yield "PAUSED", "badge_paused"
    fault = clean(fleet.faults[0].text, 30) if fleet.faults else ""
    if not fleet.answered and not gone_back:
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
