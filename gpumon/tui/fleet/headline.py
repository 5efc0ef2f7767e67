"""The line under the title of a fleet's screen: what all hosts deliver, and the worst that is wrong on one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.common_faults import CommonFault, common_faults
from gpumon.fleet.order import natural_order
from gpumon.fleet.row import STATE_LEVELS, FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.format import counted
from gpumon.readings.missing import NOT_EXPOSED, number
from gpumon.readings.snapshot import Level, Limit, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.progress.tokens import engines_without_token, no_token_text
from gpumon.triage.roots import Root, roots_of
from gpumon.tui import line
from gpumon.tui.headline import (
    Sentence,
    cost_figures,
    engines_up,
    rate_figures,
    row_of_trouble,
    row_without_trouble,
    sentence_of_notes,
)
from gpumon.tui.triage_rows import Item, root_item
from gpumon.tui.triage_words import LEVEL_MARKS

_STATE_WORDS: Final = {
    HostState.STALE: "its figures are old",
    HostState.UNREACHABLE: "none of its targets answers",
    HostState.GONE: "there are no series of it any more",
}
_FAULT_CELLS: Final = 200
"""Most cells of the fault of a host."""
_NAME_CELLS: Final = 40
"""Most cells of the name of a host or an engine."""


class HostProblem(NamedTuple):
    """A problem on a host: a verdict with what comes of it, or, without one, words."""

    level: Level
    host: HostShown
    root: Root | None = None
    label: str = ""
    """The problem in a few words: `stale`."""
    text: str = ""
    """An explanation of it; empty: there is none."""
    thing: str = ""
    """The thing on the host that has it, where there is no verdict; empty: the host itself."""
    where: str = ""
    """Hosts that have the same: `5 hosts of rack=B`; empty: this one alone."""


class FleetStanding(NamedTuple):
    """Problems and healthy things of a whole fleet."""

    numbers: dict[Level, int]
    """Number of problems and notes of each level."""
    worst: Item | None = None
    """The worst problem; None where nothing is urgent."""
    healthy: int = 0
    """Number of things that a verdict calls healthy."""
    unknown: int = 0
    """Number of things of which a verdict says that their limit is not known."""
    without_token: tuple[str, ...] = ()
    """Engines that have given no token for a moment, each with its host."""
    problems: tuple[HostProblem, ...] = ()
    """All that is wrong, the most urgent first."""


def fleet_standing(fleet: FleetSnapshot, rows: Sequence[FleetRow]) -> FleetStanding:
    """Count what is wrong over all hosts, and word the worst of it; `rows`: one per host."""
    problems = _folded([problem for row in rows for problem in _problems(row)], common_faults(fleet))
    problems.sort(key=_urgency_key)
    numbers = Counter(problem.level for problem in problems)
    verdicts = [verdict for host in fleet.hosts if host.maintenance is None for verdict in host.snapshot.verdicts]
    urgent = [problem for problem in problems if problem.level in URGENT]
    worst = problem_item(urgent[0]) if urgent else None
    return FleetStanding(
        numbers=dict(numbers),
        worst=worst,
        healthy=sum(map(_is_healthy, verdicts)),
        unknown=sum(map(_is_unknown, verdicts)),
        without_token=tuple(_names_without_token(fleet)),
        problems=tuple(problems),
    )


def _folded(problems: Sequence[HostProblem], faults: Sequence[CommonFault]) -> list[HostProblem]:
    """The problems, of each fault of many hosts the first one alone, which says on how many hosts it is."""
    fault_of = {(host.name, root.first.id): fault for fault in faults for host, root in fault.roots}
    told: set[str] = set()
    folded = []
    for problem in problems:
        fault = fault_of.get((problem.host.name, problem.root.first.id)) if problem.root is not None else None
        if fault is None:
            folded.append(problem)
        elif fault.words not in told:
            told.add(fault.words)
            folded.append(problem._replace(level=fault.level, where=fault.where))
    return folded


def _names_without_token(fleet: FleetSnapshot) -> Iterator[str]:
    """Host and name of each engine of hosts that answer which has given no token for a moment."""
    for host in fleet.hosts:
        if host.state not in STATE_LEVELS and host.state is not HostState.GONE and host.maintenance is None:
            for engine in engines_without_token(host.snapshot):
                yield f"{clean(host.name, _NAME_CELLS)} {clean(engine.name, _NAME_CELLS)}"


def _is_healthy(verdict: Verdict) -> bool:
    """Whether a verdict calls its thing healthy."""
    return verdict.level is Level.OK and verdict.code is not Limit.UNKNOWN


def _is_unknown(verdict: Verdict) -> bool:
    """Whether a verdict says that nobody knows what limits its thing."""
    return verdict.code is Limit.UNKNOWN


def _urgency_key(problem: HostProblem) -> tuple[object, ...]:
    """Sort key: the most urgent first, of these what has a verdict, broken hardware first; then by the host's name."""
    root = problem.root
    is_hardware = root is not None and root.first.code is Limit.HARDWARE_FAULT
    return URGENCY[problem.level], root is None, not is_hardware, natural_order(problem.host.name)


def _problems(row: FleetRow) -> Iterator[HostProblem]:
    """All that is wrong with one host and that nobody has acknowledged; of one that is gone only that it is."""
    (host,) = row.parts.hosts  # a host's row is made of this one host
    if host.maintenance is not None:
        return
    if host.state in STATE_LEVELS:
        faults = host.snapshot.faults
        text = clean(faults[-1].text, _FAULT_CELLS) if faults else _STATE_WORDS[host.state]
        yield HostProblem(STATE_LEVELS[host.state], host, label=host.state.value, text=text)
    if host.state is HostState.GONE:
        return
    verdicts = [verdict for verdict in host.snapshot.verdicts if _is_problem(verdict)]
    for root in roots_of(verdicts):
        if root.acknowledged is None:
            yield HostProblem(root.level, host, root)
    # Where the whole host does not answer, it is no news that its engines do not.
    if host.state not in STATE_LEVELS:
        yield from _silent_engines(row, host, {verdict.key for verdict in verdicts})
    if row.exporters_down:
        down = f"{counted(row.exporters_down, 'exporter')} down"
        yield HostProblem(Level.WARN, host, label=HostState.PARTIAL.value, text=down)


def _is_problem(verdict: Verdict) -> bool:
    """Whether a verdict says that something is limited."""
    return verdict.level is not Level.OK and verdict.code is not Limit.UNKNOWN


def _silent_engines(row: FleetRow, host: HostShown, keys_with_verdict: Collection[str]) -> Iterator[HostProblem]:
    """A problem for each engine of a host that does not answer and has no verdict."""
    for row_engine in row.parts.engines:
        if not row_engine.answers and row_engine.engine.key not in keys_with_verdict:
            name = clean(row_engine.engine.name, _NAME_CELLS)
            yield HostProblem(Level.WARN, host, label="silent", text=clean(row_engine.engine.fault, 200), thing=name)


def problem_item(problem: HostProblem) -> Item:
    """The item that words a problem, with the name of its host."""
    host = clean(problem.host.name, _NAME_CELLS)
    if problem.root is not None:
        item = root_item(problem.root, problem.host.snapshot)
        if problem.where:
            return item._replace(scope=clean(problem.where, _NAME_CELLS))
        return item._replace(scope=f"{host} {item.scope}".rstrip())
    glyph, tone, _ = LEVEL_MARKS[problem.level]
    scope = f"{host} {problem.thing}".rstrip()
    return Item(
        key="", mark=(glyph, tone), label=problem.label, scope=scope, since="", text=problem.text, level=problem.level
    )


def fleet_headline(total: FleetRow, state: FleetStanding, width: int, *, live: bool) -> line.Row:
    """The line of `width` cells: the worst problem or that there is none, and the most important figures of all hosts.

    `live`: what is shown is of now, so that it may be said that there is no problem.
    """
    figures: list[line.Piece] = []
    if total.engines:
        figures += rate_figures(total.decode_tokens_per_s, NOT_EXPOSED, total.mfu_ratio.value, total.mbu_ratio.value)
    figures += cost_figures(total.power_w.value, _price_per_hour(total))
    figures.append(engines_up(total.engines - total.silent, total.engines))
    if state.worst is not None:
        return row_of_trouble(state.worst, state.numbers, figures, width)
    sentence = _sentence_without_trouble(state) if live else Sentence("", "text")
    return row_without_trouble(sentence, figures, width)


def _sentence_without_trouble(state: FleetStanding) -> Sentence:
    """The words for a fleet without an urgent problem: engines without a token, else how many limits nobody knows, as
    there may be a problem, else the number of notes."""
    if state.without_token:
        return Sentence(no_token_text(state.without_token), "text")
    notes = state.numbers.get(Level.NOTE, 0)
    if state.unknown:
        unknown = f"? {counted(state.unknown, 'limit')} unknown"
        glyph = LEVEL_MARKS[Level.NOTE].glyph
        return Sentence(f"{unknown}, {glyph} {counted(notes, 'note')}" if notes else unknown, "text")
    if notes:
        return sentence_of_notes(notes)
    if state.healthy:
        ok = LEVEL_MARKS[Level.OK]
        return Sentence(f"{ok.glyph} no problem found", ok.tone)
    return Sentence("no verdict yet", "muted", gives_way=True)


def _price_per_hour(total: FleetRow) -> float | None:
    """Price of one hour of all GPUs; None where the price of one of them is not known."""
    cost = total.cost_per_h
    if cost.gpus < cost.of:  # it is known of some of the GPUs only
        return None
    return number(cost.value)
