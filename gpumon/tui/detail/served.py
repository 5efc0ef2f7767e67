"""Requests of the users of an engine, for its page: goals, outcomes, lengths, phases, speculation and cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gpumon.efficiency.goodput import field_of_itl_goal, within_both_goals
from gpumon.efficiency.ratio import divide, plus
from gpumon.readings import glossary
from gpumon.readings.format import DASH, left, right
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Lengths, Outcomes, Snapshot, WithinGoal
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import ESTIMATED, MEASURED, Entry, Figure, FigureMaker, ReadyLine, Section, Sentence
from gpumon.tui.detail.values import bounds_text, figure_text
from gpumon.tui.line import Piece
from gpumon.tui.marked import Marked

_TPOT_GOAL: Final = "TPOT in goal"
"""Share of requests by their mean time per token, which the glossary has with `glossary.ITL_GOAL`."""
_OF_REQUESTS: Final = "requests"
_OF_TOKENS: Final = "tokens"
_NAME: Final = 12
_COLUMN: Final = 16
_WIDE: Final = 15
_BAR: Final = "█▓▒░▚"
"""Glyphs of the parts of a bar, which tell them apart without colours."""
_BAR_CELLS: Final = 50
_OUTCOMES: Final = (
    ("ended", "ended"),
    ("stop", "stopped"),
    ("length", "cut"),
    ("abort", "aborted"),
    ("error", "failed"),
    ("turned away", "rejected"),
)
"""Name as engines call a finish reason, and field."""
_BAD: Final = frozenset({"failed", "rejected"})
_PHASES: Final = (
    ("queue", "warn", "queue_s"),
    ("KV transfer", "mbu", "transfer_s"),
    ("prefill", "accent", "prefill_s"),
    ("decode", "tokens", "decode_s"),
    ("left over", "muted", "rest_s"),
)
_NO_PREFILL: Final = "the time to the first token is left over: without a queue time nobody can tell the prefill in it"
_TIERS: Final = (
    ("GPU memory", "device_ratio"),
    ("host memory", "host_ratio"),
    ("disk or store", "disk_ratio"),
    ("another engine", "peer_ratio"),
    ("not told", "external_ratio"),
)
_ASSUMED: Final = "assumed goals are no promise: they mark nothing and no verdict uses them; set yours in [goals]"


def goal_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Shares of requests and of tokens within the goals; no section of an engine that observes neither."""
    shares = engine.goodput
    rows = (
        (glossary.TTFT_GOAL.name, "ttft_goal", shares.ttft_goal, _OF_REQUESTS, shares.ttft_goal_assumed),
        (_TPOT_GOAL, "tpot_goal", shares.tpot_goal, _OF_REQUESTS, shares.itl_goal_assumed),
        (glossary.ITL_GOAL.name, "itl_goal", shares.itl_goal, _OF_TOKENS, shares.itl_goal_assumed),
    )
    columns = {"ttft_goal": glossary.TTFT_GOAL.short, field_of_itl_goal(shares): glossary.ITL_GOAL.short}
    entries: list[Entry] = []
    assumes = False
    for name, field, share, counted, assumed in rows:
        if share == WithinGoal() or (field == "tpot_goal" and isinstance(share.count, Missing)):
            continue
        figure = _within(name, field, share, counted, figures, assumed=assumed)
        if field in columns:
            figure = _in_column(figure, columns[field])
        entries.append(figure)
        assumes = assumes or assumed
    if not entries:
        return []
    together = within_both_goals(shares)
    if together is not None:
        least, most = together
        text = f"{bounds_text(least, most)} % of the requests were within both the TTFT and the TPOT goal"
        entries.append(Sentence(f"from these shares, {text}; no engine counts that"))
    if assumes:
        entries.append(Sentence(_ASSUMED))
    return [Section(f"within the goals, {glossary.TTFT_GOAL.window}", entries)]


def column_note(title: str) -> str:
    """End of a formula: the title of the column that shows the figure."""
    return f"; column `{title}`"


def _in_column(figure: Figure, title: str) -> Figure:
    """The figure with the title of the column that shows it."""
    if not figure.formula:
        return figure
    return figure._replace(formula=figure.formula + column_note(title))


def _within(name: str, field: str, share: WithinGoal, counted: str, figures: FigureMaker, *, assumed: bool) -> Figure:
    """The share of what is counted that was within a goal; its bounds where the goal lies inside a bucket."""
    if isinstance(share.low_ratio, Missing) or isinstance(share.high_ratio, Missing):
        return figures.of_reading(share.low_ratio, name, field, values.percent)
    exact = share.low_ratio == share.high_ratio
    goal = ""
    if not isinstance(share.goal_s, Missing):
        goal = f"{figure_text(values.seconds(share.goal_s))} ({'assumed' if assumed else 'goal'})"
    count = 0.0
    if not isinstance(share.count, Missing):
        count = share.count
    if exact:
        within = f"{share.low_ratio * count:,.0f}"
    else:
        within = f"between {share.low_ratio * count:,.0f} and {share.high_ratio * count:,.0f}"
        goal += ", which lies inside a bucket"
    write = partial(_share, most=share.high_ratio)
    basis = MEASURED if exact else ESTIMATED
    return figures.of_reading(
        share.low_ratio, name, field, write, basis, f"{within} of {count:,.0f} {counted} within {goal}"
    )


def _share(least: float, most: float) -> values.WrittenFigure:
    """A share, or its bounds."""
    if least == most:
        return values.percent(least)
    return bounds_text(least, most), "%"


def outcome_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """How requests ended; no section of an engine that counts none."""
    recent = engine.served.outcomes
    ever = engine.served.outcomes_since_start
    if recent == Outcomes():
        return []
    sent = _requests_sent(recent)
    entries: list[Entry] = [_titles(("last 2 min", "share", "since its start"), _COLUMN)]
    for name, field in _OUTCOMES:
        now: Reading = getattr(recent, field)
        since_start: Reading = getattr(ever, field)
        if isinstance(now, Missing) and isinstance(since_start, Missing) and now.reason is Reason.NOT_EXPOSED:
            continue
        share = divide(now, sent, Missing(Reason.IDLE))
        tone = "text"
        if field in _BAD and number(now):
            tone = "warn"
        entries.append(_numbers(name, (_count(now), _percent(share), _count(since_start)), _COLUMN, tone))
    if number(recent.rejected) and not isinstance(sent, Missing):
        entries.append(Sentence(f"shares of the {sent:,.0f} requests that ended or were turned away"))
    missing = []
    for name, why in _not_yet(recent):
        missing.append((name, figures.explain(why, "requests_per_s")))
    return [Section("how requests ended", entries, missing=missing)]


def _titles(titles: Iterable[str], width: int) -> ReadyLine:
    """The line over columns of numbers that stand behind a name."""
    texts = "".join(right(title, width) for title in titles)
    return ReadyLine(((" " * (2 + _NAME) + texts, "muted"),))


def _numbers(name: str, texts: Iterable[str], width: int, tone: str = "text") -> ReadyLine:
    """A name, and its numbers in columns of `width` cells."""
    numbers = "".join(right(text, width) for text in texts)
    return ReadyLine((("  " + left(name, _NAME), "muted"), (numbers, tone)))


def _requests_sent(outcomes: Outcomes) -> Reading:
    """Requests that ended, and those turned away where the engine counts them: all that its clients sent."""
    rejected = outcomes.rejected
    if isinstance(rejected, Missing) and rejected.reason is Reason.NOT_EXPOSED:
        return outcomes.ended
    return plus(outcomes.ended, rejected)


def _not_yet(recent: Outcomes) -> list[tuple[str, Missing]]:
    """Outcomes that are missing for another reason than that the engine does not count them."""
    rows = []
    for name, field in _OUTCOMES:
        reading = getattr(recent, field)
        if isinstance(reading, Missing) and reading.reason is not Reason.NOT_EXPOSED:
            rows.append((name, reading))
    return rows


def _count(reading: Reading) -> str:
    if isinstance(reading, Missing):
        return DASH
    return f"{reading:,.0f}"


def _percent(reading: Reading) -> str:
    if isinstance(reading, Missing):
        return DASH
    return f"{reading * 100.0:.1f} %"


def length_sections(engine: Engine) -> list[Section]:
    """Lengths of prompts and answers, with the bucket of each; no section of an engine that observes neither."""
    observed = []
    for name, tokens in (("prompt", engine.served.prompt_tokens), ("answer", engine.served.answer_tokens)):
        if tokens != Lengths():
            observed.append((name, tokens))
    if not observed:
        return []
    entries: list[Entry] = [_titles(("mean", "p50", "p95", "longest ever"), _WIDE)]
    for name, tokens in observed:
        texts = (
            _count(tokens.mean),
            _bucket(tokens.p50_low, tokens.p50_high),
            _bucket(tokens.p95_low, tokens.p95_high),
            _bucket(tokens.longest_low, tokens.longest_high),
        )
        entries.append(_numbers(name, texts, _WIDE))
    entries.append(Sentence("tokens of the requests that ended in the last 2 min, by bucket; longest: since its start"))
    longest = plus(engine.served.prompt_tokens.longest_high, engine.served.answer_tokens.longest_high)
    if not isinstance(longest, Missing):
        text = f"a --max-model-len of {longest:,.0f} would have held every request since its start"
        entries.append(Sentence(text))
    return [Section("lengths", entries)]


def _bucket(low: Reading, high: Reading) -> str:
    """The bounds of a bucket in tokens."""
    if isinstance(low, Missing):
        return DASH
    if isinstance(high, Missing):
        return f"above {low:,.0f}"
    return f"{low:,.0f}–{high:,.0f}"


def phase_sections(engine: Engine) -> list[Section]:
    """The mean phases of a request as one bar, and their figures; no section where they are not known."""
    of = engine.served.phases
    if isinstance(of.e2e_s, Missing) or of.e2e_s <= 0.0:
        return []
    parts: list[tuple[str, str, float]] = []
    for name, tone, field in _PHASES:
        reading: Reading = getattr(of, field)
        if not isinstance(reading, Missing) and reading > 0.0:
            parts.append((name, tone, reading))
    entries: list[Entry] = [ReadyLine((("  ", "muted"), *_bar([(tone, part / of.e2e_s) for _, tone, part in parts])))]
    for place, (name, tone, part) in enumerate(parts):
        share = f"{part / of.e2e_s * 100.0:5.1f} %"
        mark = (f"  {_BAR[place % len(_BAR)]} ", tone)
        number_and_unit = " ".join(values.seconds(part))
        entries.append(
            ReadyLine((mark, (left(name, _NAME), "muted"), (right(number_and_unit, 11) + right(share, 9), "text")))
        )
    if isinstance(of.prefill_s, Missing) and not isinstance(of.decode_s, Missing):
        entries.append(Sentence(_NO_PREFILL))
    whole = " ".join(values.seconds(of.e2e_s))
    entries.append(Sentence(f"mean of a request that ended in the last 2 min: {whole} from end to end"))
    return [Section("where a request's time goes", entries)]


def _bar(parts: Sequence[tuple[str, float]]) -> list[Piece]:
    """Shares of a whole side by side: each in its glyph and tone, with at least one cell."""
    pieces: list[Piece] = []
    used = 0
    reached = 0.0
    for place, (tone, share) in enumerate(parts):
        reached += share
        size = max(1, round(reached * _BAR_CELLS) - used)
        used += size
        pieces.append((_BAR[place % len(_BAR)] * size, tone))
    return pieces


def speculation_sections(engine: Engine) -> list[Section]:
    """Accepted tokens by position, and what a step gives with them; no section without speculation."""
    shares = engine.served.accepted_by_position
    if not shares:
        return []
    entries: list[Entry] = []
    for position, share in enumerate(shares):
        bar = "█" * round(share * _BAR_CELLS)
        entries.append(
            ReadyLine(((f"  position {position + 1} ", "muted"), (f"{share * 100.0:5.1f} % ", "text"), (bar, "tokens")))
        )
    gain = 1.0 + sum(shares)
    entries.append(
        Sentence(f"{gain:.2f} tokens per step and sequence instead of 1, last 2 min: 1 + the sum of these shares")
    )
    return [Section("speculation: accepted by position", entries)]


def cache_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Sources of cached prompt tokens; no section where the engine does not tell that, or nothing was cached."""
    of = engine.served.cached_by
    entries: list[Entry] = []
    for name, field in _TIERS:
        reading: Reading = getattr(of, field)
        if number(reading):
            entries.append(figures.of_reading(reading, name, "cached_by", values.percent))
    if not entries:
        return []
    whole = Sentence("% of the cached tokens of the last 2 min; section rates has their share of all prompt tokens")
    return [Section("cached tokens by source", [whole, *entries])]


def sections_since_mark(
    engine: Engine, marked: Marked | None, snapshot: Snapshot, figures: FigureMaker
) -> list[Section]:
    """An engine's figures since the user's mark; no section without a mark.

    There is none either in a recording or a past before the mark: its totals count from another start.
    """
    if marked is None or snapshot.counted_since or snapshot.wall_s < marked.wall_s:
        return []
    moment = values.shown_time(marked.wall_s, snapshot.wall_s)
    title = f"since the mark at {moment.clock}, {values.duration_text(moment.ago_s)} ago"
    since = marked.since(engine)
    if since is None:
        return [Section(title, [Sentence("it was not listed all the time since the mark")], side=1)]
    rows = (
        ("decode", since.decode, values.tokens),
        (glossary.PREFILL.name, since.prefill, values.tokens),
        (glossary.CACHED.name, since.cached, values.tokens),
        ("requests", since.requests, values.whole),
        ("errors", since.failed, values.whole),
        ("aborted", since.aborted, values.whole),
        ("turned away", since.rejected, values.whole),
        ("TTFT, mean", since.ttft_s, values.seconds),
        ("ITL, mean", since.itl_s, values.seconds),
        ("most running", since.peak_running, values.whole),
        ("most waiting", since.peak_waiting, values.whole),
        ("busy", since.busy_ratio, values.percent),
    )
    return [Section(title, _known_figures(rows, figures), side=1)]


def _known_figures(rows: Iterable[tuple[str, Reading, values.Write]], figures: FigureMaker) -> list[Entry]:
    """The figures that are there."""
    entries: list[Entry] = []
    for name, reading, write in rows:
        if not isinstance(reading, Missing):
            entries.append(figures.of_reading(reading, name, "seen", write))
    return entries


def sections_since_start(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Peaks and busy share since gpumon started."""
    of = engine.served.seen
    if isinstance(of.seconds, Missing):
        return []
    rows = (
        ("requests", of.requests, values.whole),
        ("most running", of.peak_running, values.whole),
        ("most waiting", of.peak_waiting, values.whole),
        ("busy", of.busy_ratio, values.percent),
    )
    entries = _known_figures(rows, figures)
    entries.append(Sentence("peaks as polls saw them; busy: share of the time with a request running"))
    return [Section(f"seen in {values.duration_text(of.seconds)}", entries, side=1)]
