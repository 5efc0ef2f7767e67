"""The question whether a line of the config is taken that brings engines and the GPUs of their machines together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gpumon.config.effective import toml
from gpumon.readings.fleet import LabelsLine
from gpumon.readings.text import clean
from gpumon.tui.control import FleetQueries
from gpumon.tui.screens.context import ScreenContext, WorkWanted
from gpumon.tui.screens.questions import Choice, Question

_MOST_LINE: Final = 200
"""Characters of the line."""
_MEANINGS: Final = {
    "host_labels": "labels that name a machine, the best first",
    "cluster_labels": "labels that tell clusters apart, the best first",
}


def joining_question(lines: Sequence[LabelsLine], fleet: FleetQueries, context: ScreenContext) -> Question:
    """The question whether one of these lines is put into the config file; it then holds from the next refresh on."""
    choices = [Choice(line_text(line), _MEANINGS[line.key], line) for line in lines]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        if choice is not None and isinstance(choice.value, LabelsLine):
            context.post_message(WorkWanted("join", partial(_take, choice.value, fleet, context)))

    return Question(
        "add to [prometheus] in the config file:",
        lambda _: choices,
        choose,
        has_field=False,
        hint="Enter: add it · Esc: not",
    )


def line_text(line: LabelsLine) -> str:
    """A line as it stands in the config."""
    return clean(f"{line.key} = {toml(line.labels)}", _MOST_LINE)


async def _take(line: LabelsLine, fleet: FleetQueries, context: ScreenContext) -> None:
    """Use the line from now on, and write it into the config file; where that cannot be written say why."""
    fleet.use_labels(line)
    files = context.files
    if files is None:
        context.say(f"used until gpumon ends, as there is no file to save to: {line_text(line)}")
        return
    is_written, text = await files.save_settings({("prometheus", line.key): line.labels})
    if is_written:
        context.say(f"{text}: {line_text(line)}")
    else:
        context.say(f"used until gpumon ends; {clean(text, 400)}")
