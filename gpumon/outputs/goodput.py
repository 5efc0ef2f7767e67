"""Requests within goals in words, as reports tell the sums of a stretch."""

from __future__ import annotations

from gpumon.efficiency.goodput import is_in_doubt
from gpumon.outputs.units import NONE
from gpumon.readings import format as human
from gpumon.readings.goals import PROMISED
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.period import GoalPeriod, GoodputPeriod


def goodput_text(goodput: GoodputPeriod) -> str:
    """`95.7% of 12.9k requests within TTFT 1s (assumed), 88.1 to 91.4% of 12.8k requests within ITL 50ms`.

    Empty where nothing is counted.
    """
    parts = []
    if not isinstance(goodput.ttft_goal.count, Missing):
        parts.append(_within(goodput.ttft_goal, "requests", "TTFT", assumed=goodput.ttft_goal_assumed))
    per_token = token_goal(goodput)
    if not isinstance(per_token.count, Missing):
        kind = "tokens" if per_token is goodput.itl_goal else "requests"
        parts.append(_within(per_token, kind, "ITL", assumed=goodput.itl_goal_assumed))
    return ", ".join(parts)


def token_goal(goodput: GoodputPeriod) -> GoalPeriod:
    """The goal per token: of requests by their mean where they are counted, else of tokens."""
    if isinstance(goodput.tpot_goal.count, Missing):
        return goodput.itl_goal
    return goodput.tpot_goal


def share_text(goal: GoalPeriod) -> str:
    """`95.7%`, or `88.1 to 91.4%` where the goal lies inside a bucket."""
    low = _percent(goal.low_ratio)
    high = _percent(goal.high_ratio)
    if low == NONE or high == NONE:
        return NONE
    if low == high:
        return f"{low}%"
    return f"{low} to {high}%"


def _within(goal: GoalPeriod, kind: str, name: str, *, assumed: bool) -> str:
    """`95.7% of 12.9k requests within TTFT 1s`, and the share as users see it where HTTP makes a difference."""
    bound = "the goals of their engines"
    if not isinstance(goal.goal_s, Missing):
        bound = f"{name} {human.seconds(goal.goal_s).strip()}"
    if assumed:
        bound += " (assumed)"
    text = f"{share_text(goal)} of {human.count(goal.count).strip()} {kind} within {bound}"
    least = goal.users_low_ratio
    if isinstance(least, Missing) or least == goal.low_ratio:
        return text
    text = f"{text} inside the engine ({_percent(least)} to {_percent(goal.high_ratio)}% with HTTP"
    if is_in_doubt(least, goal.high_ratio) and not assumed:
        return f"{text}: not known whether {PROMISED:.0%} keep it)"
    return f"{text})"


def _percent(ratio: Reading) -> str:
    """A share in percent without the sign; NONE where it is not known."""
    if isinstance(ratio, Missing):
        return NONE
    return f"{100.0 * ratio:.1f}"
