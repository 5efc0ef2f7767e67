"""Holds what gpumon printed of an engine against what the load client counted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

MOST_ERROR: Final = 0.05
WINDOW_S: Final = 10.0
POLL_S: Final = 2.0
RATE_AND_TOTAL: Final = ("decode_tokens_per_s", "decode")
"""Fields of an engine in gpumon's JSON: the rate, and in `tokens_total` the count."""
COUNTERS: Final = {"triton": ("inferences_per_s", "")}
"""The same of kinds that count something else."""

Events = Sequence[tuple[float, float]]
"""When what arrived at the client: Unix time, and tokens or items of a batch."""


class Sight(NamedTuple):
    """What one line of gpumon's output said of one engine; `at` is when gpumon asked it, in Unix time."""

    at: float
    engine: dict[str, Any]


class Expected(NamedTuple):
    """What gpumon has to find out."""

    kind: str
    model: str
    gpus: tuple[int, ...]
    tp: int | None
    """None where there is no such thing."""
    found_by: str = "discovery"
    state: str = "ok"

    def wrongs(self, engine: dict[str, Any]) -> Iterator[str]:
        """What is shown otherwise."""
        for field, right in self._asdict().items():
            shown = engine.get(field)
            shown = tuple(shown) if isinstance(shown, list) else shown
            if right is not None and shown != right:
                yield f"{field} {shown!r} instead of {right!r}"


class Outcome(NamedTuple):
    """How one model of one engine came out. `total` is None where gpumon counts none."""

    engine: str
    shown: dict[str, Any]
    found_s: float | None
    rate_truth: float
    errors: tuple[float, ...]
    total: float | None
    total_truth: float
    problems: tuple[str, ...]


def judge(
    name: str,
    expected: Expected,
    sights: Sequence[Sight],
    found_s: float | None,
    events: Events,
    span: tuple[float, float],
) -> Outcome:
    """Compares one model's figures with the client's; `span` is that of the steady load, in Unix time."""
    rate_of, total_of = COUNTERS.get(expected.kind, RATE_AND_TOTAL)
    shown: dict[str, Any] = sights[-1].engine if sights else {}
    errors = tuple(rate_errors(sights, rate_of, events, span))
    total, truth = totals(sights, total_of, events) if total_of else (None, 0.0)
    problems = list(expected.wrongs(shown)) if sights else ["not found"]
    if sights and not errors:
        problems.append(f"no {rate_of}: {shown['missing'].get(rate_of, 'no window inside the load')}")
    if errors and max(errors) > MOST_ERROR:
        problems.append(f"{rate_of} {max(errors):.1%} off")
    if total is not None and abs(total - truth) > MOST_ERROR * truth:
        problems.append(f"{total:,.0f} tokens instead of {truth:,.0f}")
    rate = within(events, *span) / (span[1] - span[0])
    return Outcome(name, shown, found_s, rate, errors, total, truth, tuple(problems))


def within(events: Events, since: float, until: float) -> float:
    """How much arrived in (since, until]."""
    return sum(amount for at, amount in events if since < at <= until)


def rate_errors(sights: Sequence[Sight], field: str, events: Events, span: tuple[float, float]) -> Iterator[float]:
    """Errors of the rate at each new poll whose window lies in the span, against the truth of that very window."""
    polls = [sights[at] for at in range(len(sights)) if not at or sights[at].at > sights[at - 1].at + POLL_S / 4]
    for at, poll in enumerate(polls):
        inside = [one.at for one in polls[: at + 1] if one.at >= poll.at - WINDOW_S - POLL_S / 2]
        rate = poll.engine.get(field)
        if rate is None or inside[0] < span[0] or poll.at > span[1] or poll.at - inside[0] < WINDOW_S - POLL_S:
            continue
        truth = within(events, inside[0], poll.at) / (poll.at - inside[0])
        yield abs(rate - truth) / truth if truth else float("inf")


def totals(sights: Sequence[Sight], field: str, events: Events) -> tuple[float | None, float]:
    """Tokens that gpumon counted from its first to its last poll, and the client's."""
    known = [(sight.at, count) for sight in sights if (count := sight.engine["tokens_total"].get(field)) is not None]
    if len(known) < 2:
        return None, 0.0
    (since, first), (until, last) = known[0], known[-1]
    return last - first, within(events, since, until)


HEAD: Final = (
    "engine",
    "shown as",
    "model",
    "GPUs",
    "found after",
    "client's rate",
    "10 s rate: mean error",
    "worst",
    "polls",
    "total",
    "client's",
)


def row(outcome: Outcome) -> tuple[str, ...]:
    """One line of the table."""
    errors, shown = outcome.errors, outcome.shown
    counted = outcome.total is not None
    return (
        outcome.engine,
        shown.get("kind", "–"),
        shown.get("model", "–"),
        " ".join(map(str, shown.get("gpus", "–"))),
        "never" if outcome.found_s is None else f"{outcome.found_s:.0f} s",
        f"{outcome.rate_truth:.1f}/s",
        f"{statistics.mean(errors):.2%}" if errors else "–",
        f"{max(errors):.2%}" if errors else "–",
        str(len(errors)),
        f"{outcome.total:,.0f}" if counted else "–",
        f"{outcome.total_truth:,.0f}" if counted else "–",
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """As Markdown, with what went wrong under it."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row(outcome)) + " |" for outcome in outcomes]
    wrong = [f"- {one.engine} {one.shown.get('model', '')}: {problem}" for one in outcomes for problem in one.problems]
    return "\n".join([*lines, *(["", *wrong] if wrong else [])])
