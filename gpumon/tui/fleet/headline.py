"""The line under the title of a fleet's screen: what all hosts deliver, and the worst that is wrong on one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.rows import STATE_LEVELS, FleetRow, natural_order
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.format import counted
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Level, Limit, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY, URGENT
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
from gpumon.tui.triage_rows import Item, item_of
from gpumon.tui.triage_words import LEVEL_MARKS

_STATE_WORDS: Final = {
    HostState.STALE: "its figures are old",
    HostState.UNREACHABLE: "none of its targets answers",
    HostState.GONE: "there are no series of it any more",
}


class HostProblem(NamedTuple):
    """A problem on a host: a verdict, or in words."""

    level: Level
    host: HostShown
    verdict: Verdict | None = None
    what: str = ""
    text: str = ""


class FleetStanding(NamedTuple):
    """How a fleet does."""

    numbers: dict[Level, int]
    """Urgent problems, and notes."""
    worst: Item | None = None
    """The worst problem; None where nothing is urgent."""
    healthy: int = 0
    """Things that a verdict calls healthy."""


def fleet_standing(fleet: FleetSnapshot, rows: Sequence[FleetRow]) -> FleetStanding:
    """Count what is wrong over all hosts, and word the worst of it; `rows`: one per host."""
    problems = [problem for row in rows for problem in _problems(row)]
    numbers = Counter(problem.level for problem in problems)
    healthy = sum(_healthy(host) for host in fleet.hosts)
    urgent = [problem for problem in problems if problem.level in URGENT]
    if not urgent:
        return FleetStanding(dict(numbers), None, healthy)
    return FleetStanding(dict(numbers), _item(min(urgent, key=_place)), healthy)


def _healthy(host: HostShown) -> int:
    """Things of a host that a verdict calls healthy."""
    verdicts = host.snapshot.verdicts
    return sum(verdict.level is Level.OK and verdict.code is not Limit.UNKNOWN for verdict in verdicts)


def _place(problem: HostProblem) -> tuple[object, ...]:
    """The most urgent first, of these what has a verdict."""
    return URGENCY[problem.level], problem.verdict is None, natural_order(problem.host.name)


def _problems(row: FleetRow) -> Iterator[HostProblem]:
    """All that is wrong with one host; of one that is gone only that it is."""
    (host,) = row.parts.hosts
    if host.state in STATE_LEVELS:
        yield HostProblem(STATE_LEVELS[host.state], host, None, host.state.value, _STATE_WORDS[host.state])
    if host.state is HostState.GONE:
        return
    verdicts = [verdict for verdict in host.snapshot.verdicts if _is_problem(verdict)]
    for verdict in verdicts:
        yield HostProblem(verdict.level, host, verdict)
    if host.state not in STATE_LEVELS:
        yield from _silent(row, host, {verdict.key for verdict in verdicts})
    if row.exporters_down:
        yield HostProblem(Level.WARN, host, None, f"{counted(row.exporters_down, 'exporter')} down")


def _is_problem(verdict: Verdict) -> bool:
    """Whether a verdict says that something is limited."""
    return verdict.level is not Level.OK and verdict.code is not Limit.UNKNOWN


def _silent(row: FleetRow, host: HostShown, judged: Collection[str]) -> Iterator[HostProblem]:
    """Engines of a host that do not answer, but those with a verdict."""
    for served in row.parts.engines:
        if not served.answers and served.engine.key not in judged:
            name = clean(served.engine.name, 40)
            yield HostProblem(Level.WARN, host, None, f"{name} silent", clean(served.engine.fault, 200))


def _item(problem: HostProblem) -> Item:
    """The row that words a problem."""
    host = clean(problem.host.name, 40)
    if problem.verdict is not None:
        item = item_of(problem.verdict, problem.host.snapshot)
        return item._replace(scope=f"{host} {item.scope}".rstrip())
    glyph, tone, _ = LEVEL_MARKS[problem.level]
    return Item("", (glyph, tone), problem.what, host, "", problem.text, level=problem.level)


def fleet_headline(total: FleetRow, state: FleetStanding, width: int, *, live: bool) -> line.Row:
    """One line of `width` cells. `live`: what is shown is of now, so that it may be said that there is no problem."""
    figures: list[line.Piece] = []
    if total.engines:
        figures += rate_figures(total.decode_tokens_per_s, total.mfu_ratio.value, total.mbu_ratio.value)
    figures += cost_figures(total.power_w.value, _price_per_hour(total))
    figures.append(engines_up(total.engines - total.silent, total.engines))
    if state.worst is not None:
        return row_of_trouble(state.worst, state.numbers, figures, width)
    sentence = Sentence("", "text")
    if live:
        sentence = _sentence_without_trouble(state)
    return row_without_trouble(sentence, figures, width)


def _sentence_without_trouble(state: FleetStanding) -> Sentence:
    """The words for a fleet without an urgent problem, with the number of notes."""
    notes = state.numbers.get(Level.NOTE, 0)
    if notes:
        return sentence_of_notes(notes)
    if state.healthy:
        ok = LEVEL_MARKS[Level.OK]
        return Sentence(f"{ok.glyph} no problem found", ok.tone)
    return Sentence("no verdict yet", "muted", gives_way=True)


def _price_per_hour(total: FleetRow) -> float | None:
    """Price of one hour of all GPUs; None where the price of one of them is not known."""
    cost = total.cost_per_h
    if cost.gpus < cost.of:
        return None
    return number(cost.value)
