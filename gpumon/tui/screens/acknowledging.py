"""The question after the key that acknowledges verdicts: why, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level, Verdict
from gpumon.specs.units import HOUR_S
from gpumon.triage.acknowledgement import USUAL_HOURS
from gpumon.triage.render import NARROW_NAMES
from gpumon.tui.control import Control
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.table import clock

_HOURS: Final = (USUAL_HOURS, 1.0, 2.0, 4.0, 12.0, 24.0, 72.0, 168.0)
"""Hours to choose from; the first one is taken where only a reason is typed."""
_DAY_H: Final = 24.0
_TAKE_BACK: Final = "take it back"
_MOST_SCOPE: Final = 40
"""Characters of the name of a thing in the title."""


def ask_to_acknowledge(screen: MonitorScreen[Snapshot], control: Control, verdicts: Sequence[Verdict]) -> None:
    """Ask why and for how long these verdicts, which say the same, are acknowledged; or take that back."""
    shown = screen.shown
    if shown is None or not verdicts or verdicts[0].level is Level.OK:
        triage = screen.view.keymap.first("pane.faults")
        screen.say(f"nothing to acknowledge: choose a verdict in triage ({triage})")
        return
    if screen.gone_back:
        screen.say(f"this is the past: {screen.view.keymap.first('time.live')} leads to what stands now")
        return
    why_not = control.why_no_acknowledging(verdicts[0])
    if why_not:
        screen.say(why_not)
        return
    screen.ask(_question(screen, control, shown, verdicts))


def _question(
    screen: MonitorScreen[Snapshot], control: Control, shown: Snapshot, verdicts: Sequence[Verdict]
) -> Question:
    """A field for the reason, and hours to choose from."""
    name = f"{clean(verdicts[0].scope, _MOST_SCOPE)} {NARROW_NAMES[verdicts[0].code]}"
    if len(verdicts) > 1:
        name += f" and {len(verdicts) - 1} alike"

    def choose(choice: Choice | None, text: str) -> None:
        if choice is None:
            return
        if not isinstance(choice.value, float):
            control.lift([verdict.id for verdict in verdicts])
            screen.say(f"not acknowledged any more: {name}")
            return
        control.acknowledge(verdicts, shown, text.strip(), choice.value * HOUR_S)
        until = clock(shown.wall_s + choice.value * HOUR_S)[:5]
        screen.say(f"acknowledged until {until}: {name}; worse, or another cause, and it counts again")

    choices = [Choice(_hours_text(hours), f"until {_until_text(shown.wall_s, hours)}", hours) for hours in _HOURS]
    reason = ""
    first_choice = 0
    if verdicts[0].acknowledged is not None:
        # The last one, and pointed at: once the reason is changed, Enter takes the first hours again.
        first_choice = len(choices)
        choices.append(Choice(_TAKE_BACK, "it counts again at once", None))
        reason = verdicts[0].acknowledged.reason
    return Question(
        f"acknowledge {name}, why:",
        lambda _: choices,
        choose,
        text=reason,
        first_choice=first_choice,
        hint="Enter: for the hours below · Esc: not",
    )


def _hours_text(hours: float) -> str:
    """`8 hours`, `3 days`."""
    if hours > _DAY_H:
        return f"{hours / _DAY_H:.0f} days"
    if hours == 1.0:
        return "1 hour"
    return f"{hours:.0f} hours"


def _until_text(now_s: float, hours: float) -> str:
    """Local time of the end; with the day, where that is another one."""
    from datetime import datetime, timezone

    end = datetime.fromtimestamp(now_s + hours * HOUR_S, timezone.utc).astimezone()
    today = datetime.fromtimestamp(now_s, timezone.utc).astimezone().date()
    return f"{end:%H:%M}" if end.date() == today else f"{end:%a %d %b %H:%M}"
