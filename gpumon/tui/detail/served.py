"""What the users of an engine got, for its page: shares of requests within the goals."""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.efficiency.goodput import both
from gpumon.readings import glossary
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, WithinGoal
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import ESTIMATED, MEASURED, Entry, Figure, Figures, Section, Sentence
from gpumon.tui.detail.values import bounds, said

_OF_REQUESTS: Final = "requests"
_OF_TOKENS: Final = "tokens"
_ASSUMED: Final = "assumed goals are no promise: they mark nothing and no verdict uses them; set yours in [goals]"


def goals(engine: Engine, figures: Figures) -> list[Section]:
    """Shares of requests and of tokens within the goals; no section of an engine that observes neither."""
    shares = engine.goodput
    rows = (
        (glossary.TTFT_GOAL.name, "ttft_goal", shares.ttft_goal, _OF_REQUESTS, shares.ttft_goal_assumed),
        ("TPOT in goal", "tpot_goal", shares.tpot_goal, _OF_REQUESTS, shares.itl_goal_assumed),
        (glossary.ITL_GOAL.name, "itl_goal", shares.itl_goal, _OF_TOKENS, shares.itl_goal_assumed),
    )
    entries: list[Entry] = []
    assumes = False
    for name, field, share, counted, assumed in rows:
        if share == WithinGoal() or (field == "tpot_goal" and isinstance(share.count, Missing)):
            continue
        entries.append(_within(name, field, share, counted, figures, assumed=assumed))
        assumes = assumes or assumed
    if not entries:
        return []
    together = both(shares)
    if together is not None:
        least, most = together
        text = f"{bounds(least, most)} % of the requests were within both goals; no engine counts that"
        entries.append(Sentence(f"from these shares, {text}"))
    if assumes:
        entries.append(Sentence(_ASSUMED))
    return [Section(f"within the goals, {glossary.TTFT_GOAL.window}", entries)]


def _within(name: str, field: str, share: WithinGoal, counted: str, figures: Figures, *, assumed: bool) -> Figure:
    """The share of what is counted that was within a goal; its bounds where the goal lies inside a bucket."""
    if isinstance(share.low_ratio, Missing) or isinstance(share.high_ratio, Missing):
        return figures.of(share.low_ratio, name, field, values.percent)
    exact = share.low_ratio == share.high_ratio
    goal = ""
    if not isinstance(share.goal_s, Missing):
        goal = f"{said(values.seconds(share.goal_s))} ({'assumed' if assumed else 'goal'})"
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
    return figures.of(share.low_ratio, name, field, write, basis, f"{within} of {count:,.0f} {counted} within {goal}")


def _share(least: float, most: float) -> values.Written:
    """A share, or its bounds."""
    if least == most:
        return values.percent(least)
    return bounds(least, most), "%"
