"""The chain of an incident in a line, on its card and on its page: its cause, and what came of it with the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.format import wall_of
from gpumon.readings.incident_card import ChainLink
from gpumon.readings.text import clean
from gpumon.readings.verdict import Parameters, Verdict
from gpumon.triage.render import NARROW_NAMES
from gpumon.triage.roots import MOST_NAMES

ARROW: Final = " → "
_MOST_SCOPE: Final = 40
"""Characters of the name of a thing."""
_STATES: Final = {"lost": "lost"}
"""Causes that have a word of their own beside that of their limit."""


def chain_of(cause: Verdict, consequences: Iterable[Verdict]) -> tuple[ChainLink, ...]:
    """The links of an incident: its cause, its consequences, which come with the most urgent first, in the order in
    which they began, and who waits by now."""
    begin_s = wall_of(cause.since)
    suffering = list(consequences)
    things: set[str] = set()
    links = []
    for verdict in suffering:
        since_s = wall_of(verdict.since)
        links.append(ChainLink(_words(verdict), verdict.id, since_s, since_s - begin_s, again=verdict.key in things))
        things.add(verdict.key)
    links.sort(key=lambda link: link.after_s or 0.0)
    links.insert(0, ChainLink(_words(cause), cause.id, begin_s, 0.0))
    waiting = max((_waiting(verdict.parameters) for verdict in (cause, *suffering)), default=0.0)
    if waiting >= 1.0:
        links.append(ChainLink(f"{waiting:,.0f} queued"))
    return tuple(links)


def chain_text(links: Iterable[ChainLink], clock: Callable[[float], str]) -> str:
    """`gpu 2 lost 13:53:04 → llama-70b hung +33s → 85 queued`; of many consequences the first ones."""
    first, *others = links
    texts = [f"{first.what} {clock(first.begin_s)}" if first.begin_s is not None else first.what]
    timed = [link for link in others if link.after_s is not None and not link.again]
    texts += [f"{link.what} {after_text(link)}" for link in timed[:MOST_NAMES]]
    if len(timed) > MOST_NAMES:
        texts.append(f"{len(timed) - MOST_NAMES} more")
    texts += [link.what for link in others if link.after_s is None]
    return ARROW.join(texts)


def after_text(link: ChainLink) -> str:
    """The time after the cause: `+33s`; `-5s` of what was seen before it."""
    after_s = link.after_s or 0.0
    return f"{'-' if after_s < 0.0 else '+'}{human.age(abs(after_s))}"


def _words(verdict: Verdict) -> str:
    """A thing and what is wrong with it, in a word or two."""
    return f"{clean(verdict.scope, _MOST_SCOPE)} {_STATES.get(verdict.cause, NARROW_NAMES[verdict.code])}"


def _waiting(parameters: Parameters) -> float:
    """Requests that wait, as the sentence of a verdict has them."""
    waiting = parameters.get("waiting", 0.0)
    return waiting if isinstance(waiting, float | int) else 0.0
