"""Lines of the triage pane: each row in so many lines of so many cells, and the line of what changed of late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpumon.readings.format import cells, cut, cut_middle, left
from gpumon.readings.snapshot import Event, Kind
from gpumon.readings.text import clean
from gpumon.triage.render import LEVEL_WORDS, LIMIT_NAMES, event_text
from gpumon.triage.roots import name_together
from gpumon.tui.fold import cut_to_lines, folded
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.table import clock, local_time_of
from gpumon.tui.triage_rows import MOST_TEXT, Item
from gpumon.tui.triage_words import event_mark

_LEAST_TEXT: Final = 20
"""Cells of a text per line, however narrow the pane."""
_MOST_SCOPE: Final = 24
_LEAST_SCOPE: Final = 12
"""Cells of the column of scopes: as many as the longest needs, but no more than a quarter of the pane, or these where
that is less, nor more than the others."""
_DATED_WIDTH: Final = 100
"""Cells of a pane from which all verdicts have the time since which they stand; below, urgent ones have its minute."""
_MINUTE_CELLS: Final = 5
"""Cells of a time of day without its seconds."""
_INDENT: Final = 3
"""Cells before the second line of a row."""
_INDENT_OF_MORE: Final = "  "
"""Blanks before further lines of one piece of evidence."""
_TIME_CELLS: Final = 9
"""Cells of a time of day and the blank behind it."""
CHANGED_S: Final = 600.0
"""Seconds that the line of changes goes back."""
_MOST_CHANGE_CELLS: Final = 44
"""Cells of one change in it."""
_LEAST_CHANGED: Final = 20
"""Cells that the scope has in it at least, where what happened is a whole sentence."""
_MORE_CELLS: Final = 8
"""Cells that stay free for how many more there were."""


class TriageColumns(msgspec.Struct, frozen=True):
    """Widths in cells of the columns before the texts, and of the pane."""

    label_cells: int
    scope_cells: int
    dated: bool
    """Whether all verdicts have a time."""
    width: int
    """Cells of the pane."""

    def lead_of(self, item: Item) -> list[Piece]:
        """The pieces before an item's text: mark, limit, scope, and when."""
        pieces: list[Piece] = [item.mark]
        if item.label:
            tone = _limit_tone(item)
            pieces += [
                (left(item.label, self.label_cells) + " ", tone),
                (left(item.scope, self.scope_cells) + " ", "text"),
            ]
        since = clock_of(item)
        if since and (self.dated or item.past or item.label == "fault"):
            pieces.append((f"{since} ", "muted"))
        elif since and item.trouble:
            pieces.append((f"{since[:_MINUTE_CELLS]} ", "muted"))
        elif self.dated and item.label:
            pieces.append((" " * _TIME_CELLS, "muted"))
        return pieces


def _limit_tone(item: Item) -> str:
    """The tone of the limit's name before an item's text."""
    if item.past or item.acknowledged:
        return "muted"
    if item.trouble:
        return item.mark[1]
    return "text"


def columns_for(items: Sequence[Item], width: int) -> TriageColumns:
    """The columns before the texts of these items: as wide as their words need, within bounds."""
    most_scope = min(_MOST_SCOPE, max(_LEAST_SCOPE, width // 4))
    named = [item for item in items if item.label]
    label_cells = max((cells(item.label) for item in named), default=0)
    scope_cells = max((cells(item.scope) for item in named), default=0)
    return TriageColumns(
        label_cells=label_cells, scope_cells=min(most_scope, scope_cells), dated=width >= _DATED_WIDTH, width=width
    )


@lru_cache(maxsize=512)
def item_lines(
    item: Item, item_columns: TriageColumns, most: int, *, with_evidence: bool = False
) -> tuple[Sequence[Row], bool]:
    """A row in at most `most` lines, one at least, and whether its text was cut for that; with its evidence below where
    that is asked for.

    Of what is urgent the action comes first, and as many whole actions as leave a line for the cause. A single line has
    the action: the limit's name is the cause in short.
    """
    lead = item_columns.lead_of(item)
    first_width = max(_LEAST_TEXT, item_columns.width - cells_of(lead))
    width = max(_LEAST_TEXT, item_columns.width - _INDENT)
    if most < 1 or not item.trouble or not item.actions:
        texts, is_cut = _text_before_actions(item, width, first_width, most)
    elif most == 1:
        texts = [(text, "accent") for text in _action_lines(item.actions, width, first_width, most)]
        is_cut = True
    else:
        texts, is_cut = _actions_before_text(item, width, first_width, most)
    if with_evidence:
        texts += _evidence_lines(item, width)
        is_cut = is_cut or len(texts) > most
        texts = texts[:most]
    rows: list[Row] = [(*lead, texts[0])]
    rows += [((" " * _INDENT + text, tone),) for text, tone in texts[1:]]
    return rows, is_cut


def _text_before_actions(item: Item, width: int, first_width: int, most: int) -> tuple[list[Piece], bool]:
    """The text, but for a line that the best action gets, then as many actions as fit; and whether the text was cut."""
    room = most
    if item.actions and most > 1:
        room -= 1
    texts = [(text, item.tone) for text in cut_to_lines(item.text, width, room, first_width)]
    texts += [(text, "accent") for text in _action_lines(item.actions, width, width, most - len(texts))]
    return texts, len(folded(item.text, width, first_width)) > room


def _actions_before_text(item: Item, width: int, first_width: int, most: int) -> tuple[list[Piece], bool]:
    """As many whole actions as leave a line for the text, then that; and whether it was cut."""
    actions = _action_lines(item.actions, width, first_width, most - 1)
    room = most - len(actions)
    texts = [(text, "accent") for text in actions]
    texts += [(text, item.tone) for text in cut_to_lines(item.text, width, room)]
    return texts, len(folded(item.text, width)) > room


def _evidence_lines(item: Item, width: int) -> list[Piece]:
    """The lines of the evidence, further ones of each indented."""
    texts: list[Piece] = []
    for evidence in item.evidence:
        begin, *more = folded(evidence, width - len(_INDENT_OF_MORE))
        texts.append((begin, "muted"))
        texts += [(_INDENT_OF_MORE + text, "muted") for text in more]
    return texts


def _action_lines(actions: Sequence[str], width: int, first_width: int, most: int) -> tuple[str, ...]:
    """As many whole actions as fit; of the first one, where even that does not, what fits."""
    for number in range(len(actions), 0, -1):
        texts = folded(f"→ {'; '.join(actions[:number])}", width, first_width)
        if len(texts) <= most:
            return texts
    if actions and most > 0:
        return cut_to_lines(f"→ {actions[0]}", width, most, first_width)
    return ()


def clock_of(item: Item) -> str:
    """Local time of day since which an item stands, or at which it happened; empty: it has no time."""
    if item.past:
        return clock(item.at_s)
    if not item.since:
        return ""
    local = local_time_of(item.since)
    if local is None:
        return left(item.since, 8)
    return local.strftime("%H:%M:%S")


def recent_changes(events: Sequence[Event], now_s: float, width: int, glyphs: Glyphs) -> Row:
    """Events of the last minutes in one line but for consequences, the newest first; how many more there were at its
    end."""
    newest: dict[tuple[str, str, str], Event] = {}
    for event in reversed(events):
        if event.verdict is not None and event.verdict.caused_by:
            continue  # what it comes of is told
        if now_s - CHANGED_S <= event.wall_s <= now_s:
            newest.setdefault((event.scope, event.code, _change_words(event)), event)
    newest = _of_gpus_together(newest)
    row: list[Piece] = [(f"   last {CHANGED_S / 60.0:.0f} min: ", "hint")]
    if not newest:
        return (*row, ("nothing changed", "hint"))
    room = width - cells(row[0][0])
    for place, ((scope, _, words), event) in enumerate(newest.items()):
        text = _change_text(event, scope, words)
        left_over = len(newest) - place
        hours_and_minutes = clock(event.wall_s)[:5]
        pieces = [(f"{hours_and_minutes} ", "muted"), event_mark(event, glyphs), (f" {text}  ", "text")]
        size = cells_of(pieces)
        needed = size
        if left_over > 1:
            needed += _MORE_CELLS
        if place > 0 and needed > room:  # the newest one is always shown, cut where it must be
            return (*row, (f"+{left_over} more", "muted"))
        room -= size
        row += pieces
    return tuple(row)


def _change_words(event: Event) -> str:
    """The change in words: of a verdict its name, and how it changed."""
    if event.verdict is None:
        return clean(event_text(event, clock), MOST_TEXT)
    return f"{LIMIT_NAMES[event.verdict.code]}{_change_of_verdict(event)}"


def _of_gpus_together(changes: Mapping[tuple[str, str, str], Event]) -> dict[tuple[str, str, str], Event]:
    """The changes, with those of several GPUs at the same moment as one: `GPUs 0-7 hung`."""
    scopes: dict[tuple[str, str, float], list[str]] = {}
    for (scope, code, words), event in changes.items():
        if event.verdict is not None and event.verdict.kind is Kind.GPU:
            scopes.setdefault((code, words, event.wall_s), []).append(scope)
    together: dict[tuple[str, str, str], Event] = {}
    for (scope, code, words), event in changes.items():
        alike = scopes.get((code, words, event.wall_s), [scope])
        name = name_together(alike) if scope in alike else scope
        together.setdefault((name, code, words), event)
    return together


def _change_text(event: Event, scope: str, words: str) -> str:
    """A change in a few words, before which a long scope is cut in its middle; how a verdict changed is never cut."""
    scope_cells = _MOST_CHANGE_CELLS - cells(words) - 1
    if event.verdict is None:
        scope_cells = max(_LEAST_CHANGED, scope_cells)
    return cut(f"{cut_middle(clean(scope, MOST_TEXT), scope_cells)} {words}", _MOST_CHANGE_CELLS)


def _change_of_verdict(event: Event) -> str:
    """How a verdict changed, as words behind its name; empty: it began."""
    if event.code == "verdict_level":
        return f": now {LEVEL_WORDS[event.level]}"
    if event.code == "verdict_cause":
        return ": new cause"
    if event.code == "verdict_over":
        return ": over"
    return ""
