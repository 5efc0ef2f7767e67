"""Commands and settings of advice, for the terminal's clipboard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpumon.readings.verdict import Action
from gpumon.triage.sentences import PEER_WORDS
from gpumon.tui.screens.context import S
from gpumon.tui.screens.monitor import MonitorScreen

if TYPE_CHECKING:
    from gpumon.triage.copyable import Copyable


def copy_advice(screen: MonitorScreen[S], actions: Sequence[Action], otherwise: str) -> None:
    """Copy a command of these actions, of several the one that is chosen; `otherwise` is said where there is none."""
    from gpumon.triage.copyable import to_copy

    copyables = to_copy(actions)
    if len(copyables) > 1:
        from gpumon.tui.screens.questions import copy_question

        screen.ask(copy_question(copyables, partial(_put_on_clipboard, screen)))
    elif copyables:
        _put_on_clipboard(screen, copyables[0])
    elif any(action.code == PEER_WORDS.code for action in actions):
        screen.say("not copied: these are the host's own words, not gpumon's")
    elif actions:
        screen.say("nothing copied: this advice has no command, and no setting with a value")
    else:
        screen.say(otherwise)


def _put_on_clipboard(screen: MonitorScreen[S], copyable: Copyable) -> None:
    """Copy with OSC 52, and say what was copied."""
    screen.app.copy_to_clipboard(copyable.text)
    what = "copied" if copyable.runs else "no command, but the setting is copied"
    if copyable.blank:
        what = f"copied, put in {copyable.blank}"
    screen.say(f"{what} (if the terminal allows it): {copyable.text}")
