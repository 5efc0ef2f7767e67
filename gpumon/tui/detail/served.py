"""Requests of the users of an engine, for its page: goals, outcomes, lengths, phases, speculation and cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.efficiency.goodput import field_of_itl_goal, is_in_doubt, within_both_goals
from gpumon.efficiency.ratio import divide, plus
from gpumon.figures.engine import ENGINE
from gpumon.readings.format import DASH, left, right
from gpumon.readings.goals import HTTP_S, PROMISED
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Goodput, Lengths, Outcomes, Snapshot, WithinGoal
from gpumon.triage.advice import advice
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import (
    ESTIMATED,
    MEASURED,
    REMARK_INDENT,
    Entry,
    Figure,
    FigureMaker,
    ReadingRow,
    ReadyLine,
    Section,
    Sentence,
)
from gpumon.tui.detail.values import bounds_text, figure_text
from gpumon.tui.line import Piece
from gpumon.tui.marked import Marked

_TPOT_GOAL: Final = "TPOT in goal"
"""Share of requests by their mean time per token, which the glossary has with `ENGINE["itl_goal.low_ratio"]`."""
_NAME_CELLS: Final = 12
_OUTCOME_CELLS: Final = 16
"""Cells of a column of the table of outcomes."""
_LENGTH_CELLS: Final = 15
"""Cells of a column of the table of lengths."""
_BAR_GLYPHS: Final = "█▓▒░▚"
"""Glyphs of the parts of a bar, which tell them apart without colours."""
_BAR_CELLS: Final = 50
_TIME_CELLS: Final = 11
_SHARE_CELLS: Final = 9
"""Cells of the time of a phase, and of its share of the whole."""
_OUTCOMES: Final = (
    ("ended", "ended"),
    ("stop", "stopped"),
    ("length", "cut"),
    ("abort", "aborted"),
    ("midway", "aborted_midway"),
    ("error", "failed"),
    ("NaN", "corrupted"),
    ("turned away", "rejected"),
    ("HTTP 4xx", "refused"),
)
"""Name as engines call a finish reason, and field of `Outcomes`."""
_BAD_OUTCOMES: Final = frozenset({"failed", "corrupted", "rejected", "refused"})
"""Fields of outcomes that are marked where they are not 0."""
_SEEN: Final = "seen"
"""The field of what gpumon has counted itself: it has no source."""


class _Phase(NamedTuple):
    """A phase of a request."""

    name: str
    tone: str
    field: str
    """Field of its seconds."""


_PHASES: Final = (
    _Phase("queue", "warn", "queue_s"),
    _Phase("KV transfer", "mbu", "transfer_s"),
    _Phase("prefill", "accent", "prefill_s"),
    _Phase("decode", "tokens", "decode_s"),
    _Phase("left over", "muted", "rest_s"),
)
"""In their order."""
_NO_PREFILL_NOTE: Final = (
    "the time to the first token is left over: without a queue time nobody can tell the prefill in it"
)
_TIERS: Final = (
    ("GPU memory", "device_ratio"),
    ("host memory", "host_ratio"),
    ("disk or store", "disk_ratio"),
    ("another engine", "peer_ratio"),
    ("not told", "external_ratio"),
)
"""Name and field of each source of cached tokens."""
_ASSUMED_NOTE: Final = "assumed goals are no promise: they mark nothing and no verdict uses them; set yours in [goals]"


class _Goal(NamedTuple):
    """A goal with the share that was within it."""

    name: str
    field: str
    share: WithinGoal
    unit: str
    """Counted by the share: requests or tokens."""
    is_assumed: bool
    """Whether the goal is gpumon's own, as the config has none."""


def goal_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Shares of requests and of tokens within the goals; no section of an engine that observes neither."""
    shares = engine.goodput
    goals = observed_goals(shares)
    if not goals:
        return []
    columns = {
        "ttft_goal": ENGINE["ttft_goal.low_ratio"].short,
        field_of_itl_goal(shares): ENGINE["itl_goal.low_ratio"].short,
    }
    entries: list[Entry] = []
    for goal in goals:
        figure = _share_within(goal, figures)
        if goal.field in columns and figure.formula:
            figure = figure._replace(formula=figure.formula + column_note(columns[goal.field]))
        entries.append(figure)
        users_text = _as_users_see(goal)
        if users_text:
            entries.append(Sentence(users_text, indent=REMARK_INDENT))
    bounds = within_both_goals(shares)
    if bounds is not None:
        least, most = bounds
        text = f"{bounds_text(least, most)}% of the requests were within both the TTFT and the TPOT goal"
        entries.append(Sentence(f"from these shares, {text}; no engine counts that"))
    if any(goal.is_assumed for goal in goals):
        entries.append(Sentence(_ASSUMED_NOTE))
    return [Section(f"within the goals, {ENGINE['ttft_goal.low_ratio'].window}", entries)]


def observed_goals(shares: Goodput) -> list[_Goal]:
    """The goals whose latency the engine observes."""
    goals = [
        _Goal(ENGINE["ttft_goal.low_ratio"].name, "ttft_goal", shares.ttft_goal, "requests", shares.ttft_goal_assumed),
        _Goal(_TPOT_GOAL, "tpot_goal", shares.tpot_goal, "requests", shares.itl_goal_assumed),
        _Goal(ENGINE["itl_goal.low_ratio"].name, "itl_goal", shares.itl_goal, "tokens", shares.itl_goal_assumed),
    ]
    observed = []
    for goal in goals:
        # The share of tokens tells the same: no row that only says that no request has ended.
        is_needless = goal.field == "tpot_goal" and isinstance(goal.share.count, Missing)
        if goal.share != WithinGoal() and not is_needless:
            observed.append(goal)
    return observed


def column_note(title: str) -> str:
    """End of a formula: the title of the column that shows the figure."""
    return f"; column `{title}`"


def _share_within(goal: _Goal, figures: FigureMaker) -> Figure:
    """The share that was within a goal; its bounds where the goal lies inside a bucket of the histogram."""
    share = goal.share
    if isinstance(share.low_ratio, Missing) or isinstance(share.high_ratio, Missing):
        return figures.of_reading(share.low_ratio, goal.name, goal.field, values.percent)
    is_exact = share.low_ratio == share.high_ratio
    goal_text = ""
    if not isinstance(share.goal_s, Missing):
        origin = "assumed" if goal.is_assumed else "goal"
        goal_text = f"{figure_text(values.seconds(share.goal_s))} ({origin})"
    count = share.count if not isinstance(share.count, Missing) else 0.0
    if is_exact:
        count_within = f"{share.low_ratio * count:,.0f}"
        basis = MEASURED
    else:
        count_within = f"between {share.low_ratio * count:,.0f} and {share.high_ratio * count:,.0f}"
        goal_text += ", which lies inside a bucket"
        basis = ESTIMATED
    write = partial(_share_or_bounds, most=share.high_ratio)
    formula = f"{count_within} of {count:,.0f} {goal.unit} within {goal_text}"
    return figures.of_reading(share.low_ratio, goal.name, goal.field, write, basis, formula=formula)


def _as_users_see(goal: _Goal) -> str:
    """The share as users see it, where HTTP can have taken some of them beyond the goal; else empty."""
    share = goal.share
    least = share.users_low_ratio
    most = share.high_ratio
    if isinstance(least, Missing) or isinstance(most, Missing) or least == share.low_ratio:
        return ""
    text = f"inside the engine; as users see it {bounds_text(least, most)}%: HTTP adds up to {HTTP_S * 1e3:.0f} ms"
    if is_in_doubt(least, most) and not goal.is_assumed:
        return f"{text}, so it is not known whether {PROMISED:.0%} keep the goal"
    return text


def _share_or_bounds(least: float, most: float) -> values.WrittenFigure:
    """A share in percent: `91.20`, `%`; its bounds where they differ: `83–91`, `%`."""
    if least == most:
        return values.percent(least)
    return bounds_text(least, most), "%"


def outcome_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """How requests ended; no section of an engine that counts none."""
    recent = engine.served.outcomes
    if recent == Outcomes():
        return []
    sent = _requests_sent(recent)
    entries: list[Entry] = [_title_line(("last 2 min", "share", "since its start"), _OUTCOME_CELLS)]
    entries += _outcome_lines(recent, engine.served.outcomes_since_start, sent)
    if (number(recent.rejected) or number(recent.refused)) and not isinstance(sent, Missing):
        entries.append(Sentence(f"shares of the {sent:,.0f} requests that ended, were turned away or refused"))
    missing = [(name, figures.explain(reading, "requests_per_s")) for name, reading in _missing_outcomes(recent)]
    return [Section("how requests ended", entries, missing=missing)]


def _outcome_lines(recent: Outcomes, since_start: Outcomes, sent: Reading) -> list[Entry]:
    """A line for each outcome that the engine counts: its number, its share of the requests `sent`, and its total."""
    lines: list[Entry] = []
    for name, field in _OUTCOMES:
        count: Reading = getattr(recent, field)
        total: Reading = getattr(since_start, field)
        if isinstance(count, Missing) and isinstance(total, Missing) and count.reason is Reason.NOT_EXPOSED:
            continue
        share = divide(count, sent, Missing(Reason.IDLE))
        tone = "warn" if field in _BAD_OUTCOMES and number(count) else "text"
        share_text = DASH if isinstance(share, Missing) else f"{share * 100.0:.1f}%"
        texts = (_count_text(count), share_text, _count_text(total))
        lines.append(_number_line(name, texts, _OUTCOME_CELLS, tone))
    return lines


def _title_line(titles: Iterable[str], width: int) -> ReadyLine:
    """The titles over columns of `width` cells that stand behind a name."""
    texts = "".join(right(title, width) for title in titles)
    return ReadyLine(((" " * (2 + _NAME_CELLS) + texts, "muted"),))


def _number_line(name: str, texts: Iterable[str], width: int, tone: str = "text") -> ReadyLine:
    """A name, and numbers behind it in columns of `width` cells."""
    numbers = "".join(right(text, width) for text in texts)
    return ReadyLine((("  " + left(name, _NAME_CELLS), "muted"), (numbers, tone)))


def _requests_sent(outcomes: Outcomes) -> Reading:
    """Requests that ended, and those turned away or refused where these are counted: all that its clients sent."""
    sent = outcomes.ended
    for apart in (outcomes.rejected, outcomes.refused):
        if not isinstance(apart, Missing) or apart.reason is not Reason.NOT_EXPOSED:
            sent = plus(sent, apart)
    return sent


def _missing_outcomes(recent: Outcomes) -> list[tuple[str, Missing]]:
    """Outcomes that are missing for another reason than that the engine does not count them."""
    rows = []
    for name, field in _OUTCOMES:
        reading = getattr(recent, field)
        if isinstance(reading, Missing) and reading.reason is not Reason.NOT_EXPOSED:
            rows.append((name, reading))
    return rows


def _count_text(reading: Reading) -> str:
    """A whole number: `1,204`; a dash where it is missing."""
    if isinstance(reading, Missing):
        return DASH
    return f"{reading:,.0f}"


def length_sections(engine: Engine) -> list[Section]:
    """Lengths of prompts and answers, with the bucket of each; no section of an engine that observes neither."""
    observed = [
        (name, tokens)
        for name, tokens in (("prompt", engine.served.prompt_tokens), ("answer", engine.served.answer_tokens))
        if tokens != Lengths()
    ]
    if not observed:
        return []
    entries: list[Entry] = [_title_line(("mean", "p50", "p95", "longest ever"), _LENGTH_CELLS)]
    for name, tokens in observed:
        texts = (
            _count_text(tokens.mean),
            _bucket_text(tokens.p50_low, tokens.p50_high),
            _bucket_text(tokens.p95_low, tokens.p95_high),
            _bucket_text(tokens.longest_low, tokens.longest_high),
        )
        entries.append(_number_line(name, texts, _LENGTH_CELLS))
    entries.append(Sentence("tokens of the requests that ended in the last 2 min, by bucket; longest: since its start"))
    # The longest prompt need not have had the longest answer: their sum holds whatever came.
    longest = plus(engine.served.prompt_tokens.longest_high, engine.served.answer_tokens.longest_high)
    if not isinstance(longest, Missing):
        context = f"{advice(engine.kind).longest_context} of {longest:,.0f} tokens"
        entries.append(Sentence(f"{context} would have held every request that ended since its start"))
    return [Section("lengths", entries)]


def _bucket_text(low: Reading, high: Reading) -> str:
    """The bounds of a bucket in tokens: `128–256`, `above 4,096`."""
    if isinstance(low, Missing):
        return DASH
    if isinstance(high, Missing):
        return f"above {low:,.0f}"
    return f"{low:,.0f}–{high:,.0f}"


def phase_sections(engine: Engine) -> list[Section]:
    """The mean phases of a request as one bar, and their figures; no section where they are not known."""
    phases = engine.served.phases
    e2e_s = phases.e2e_s
    if isinstance(e2e_s, Missing) or e2e_s <= 0.0:
        return []
    seconds_by_phase: dict[_Phase, float] = {}
    for phase in _PHASES:
        seconds: Reading = getattr(phases, phase.field)
        if not isinstance(seconds, Missing) and seconds > 0.0:
            seconds_by_phase[phase] = seconds
    bar = _bar_pieces([(phase.tone, phase_s / e2e_s) for phase, phase_s in seconds_by_phase.items()])
    entries: list[Entry] = [ReadyLine((("  ", "muted"), *bar))]
    for place, (phase, phase_s) in enumerate(seconds_by_phase.items()):
        mark = (f"  {_BAR_GLYPHS[place % len(_BAR_GLYPHS)]} ", phase.tone)
        share = f"{phase_s / e2e_s * 100.0:5.1f}%"
        figures = right(figure_text(values.seconds(phase_s)), _TIME_CELLS) + right(share, _SHARE_CELLS)
        entries.append(ReadyLine((mark, (left(phase.name, _NAME_CELLS), "muted"), (figures, "text"))))
    if isinstance(phases.prefill_s, Missing) and not isinstance(phases.decode_s, Missing):
        entries.append(Sentence(_NO_PREFILL_NOTE))
    entries.append(
        Sentence(
            f"mean of a request that ended in the last 2 min: {figure_text(values.seconds(e2e_s))} from end to end"
        )
    )
    return [Section("where a request's time goes", entries)]


def _bar_pieces(parts: Sequence[tuple[str, float]]) -> list[Piece]:
    """Parts of a whole (tone and share) side by side in a bar: each in a glyph of its own, with at least one cell."""
    pieces: list[Piece] = []
    used_cells = 0
    share_so_far = 0.0
    for place, (tone, share) in enumerate(parts):
        share_so_far += share
        size = max(1, round(share_so_far * _BAR_CELLS) - used_cells)
        used_cells += size
        pieces.append((_BAR_GLYPHS[place % len(_BAR_GLYPHS)] * size, tone))
    return pieces


def speculation_sections(engine: Engine) -> list[Section]:
    """Accepted tokens by position, and what a step gives with them; no section without speculation."""
    shares = engine.served.accepted_by_position
    if not shares:
        return []
    entries: list[Entry] = []
    for position, share in enumerate(shares):
        bar = "█" * round(share * _BAR_CELLS)
        name = f"  position {position + 1} "
        entries.append(ReadyLine(((name, "muted"), (f"{share * 100.0:5.1f}% ", "text"), (bar, "tokens"))))
    tokens = 1.0 + sum(shares)
    text = f"{tokens:.2f} tokens per step and sequence instead of 1, last 2 min: 1 + the sum of these shares"
    entries.append(Sentence(text))
    return [Section("speculation: accepted by position", entries)]


def cache_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Sources of cached prompt tokens; no section where the engine does not tell that, or nothing was cached."""
    shares = engine.served.cached_by
    entries: list[Entry] = []
    for name, field in _TIERS:
        reading: Reading = getattr(shares, field)
        if number(reading):
            entries.append(figures.of_reading(reading, name, "cached_by", values.percent))
    if not entries:
        return []
    remark = Sentence("% of the cached tokens of the last 2 min; section rates has their share of all prompt tokens")
    return [Section("cached tokens by source", [remark, *entries])]


def sections_since_mark(
    engine: Engine, marked: Marked | None, snapshot: Snapshot, figures: FigureMaker
) -> list[Section]:
    """An engine's figures since the user's mark; no section without a mark.

    There is none either at a moment before the mark, nor at one of the past whose counts have another start.
    """
    if marked is None or snapshot.counted_since or snapshot.wall_s < marked.wall_s:
        return []
    moment = values.shown_time(marked.wall_s, snapshot.wall_s)
    title = f"since the mark at {moment.clock}, {values.duration_text(moment.ago_s)} ago"
    since = marked.since(engine)
    if since is None:
        return [Section(title, [Sentence("it was not listed all the time since the mark")], side=1)]
    rows = (
        ReadingRow(since.decode, "decode", _SEEN, values.tokens),
        ReadingRow(since.prefill, ENGINE["prefill_tokens_per_s"].name, _SEEN, values.tokens),
        ReadingRow(since.cached, ENGINE["cached_tokens_per_s"].name, _SEEN, values.tokens),
        ReadingRow(since.requests, "requests", _SEEN, values.whole),
        ReadingRow(since.failed, "errors", _SEEN, values.whole),
        ReadingRow(since.aborted, "aborted", _SEEN, values.whole),
        ReadingRow(since.rejected, "turned away", _SEEN, values.whole),
        ReadingRow(since.ttft_s, "TTFT, mean", _SEEN, values.seconds),
        ReadingRow(since.itl_s, "ITL, mean", _SEEN, values.seconds),
        ReadingRow(since.peak_running, "most running", _SEEN, values.whole),
        ReadingRow(since.peak_waiting, "most waiting", _SEEN, values.whole),
        ReadingRow(since.busy_ratio, "busy", _SEEN, values.percent),
    )
    entries: list[Entry] = [
        figures.of_reading(row.reading, row.name, row.field, row.write)
        for row in rows
        if not isinstance(row.reading, Missing)
    ]
    return [Section(title, entries, side=1)]


def sections_since_start(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Requests, peaks and busy share since gpumon started; no section before it knows for how long."""
    seen = engine.served.seen
    if isinstance(seen.seconds, Missing):
        return []
    entries = figures.known(f"seen.{field}" for field in ("requests", "peak_running", "peak_waiting", "busy_ratio"))
    entries.append(Sentence("peaks as polls saw them; busy: share of the time with a request running"))
    return [Section(f"seen in {values.duration_text(seen.seconds)}", entries, side=1)]
