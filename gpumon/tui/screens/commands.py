"""The commands of the table of keys as functions, for every screen; a body adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

from textual.worker import WorkType

from gpumon.config.keymap import COMMANDS
from gpumon.config.validate import with_setting
from gpumon.readings.text import clean
from gpumon.tui.control import BundleFacts, Files
from gpumon.tui.screens import travel
from gpumon.tui.screens.context import S
from gpumon.tui.screens.docking import close_sizing, run_in_sizing, toggle_sizing, warn_of_edits
from gpumon.tui.screens.focus import go_to_next_pane, zoom
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.paging import close_page, toggle_page
from gpumon.tui.screens.past import AskedMoment, AskKind
from gpumon.tui.widgets.list_pane import ListPane

_SAVING_GROUP: Final = "save"
"""Group of the worker that writes a bundle."""
_WHOLE_LIST: Final = 100_000
"""Lines by which the cursor moves to an end of a list: more than any list has."""
_MOST_REASON: Final = 200
"""Characters of an error in a notice."""


class RunCommand(Protocol):
    """A command of every screen."""

    def __call__(self, screen: MonitorScreen[S], /) -> object:
        """Do it on a screen."""


# Steps come before the screen, so that `partial` can set them in `COMMON`.


def _toggle_pause(screen: MonitorScreen[S]) -> None:
    """Freeze the display, or let it go on; there is nothing to freeze before the first snapshot."""
    if screen.shown is None:
        return
    if screen.travel.paused:
        travel.go_on(screen)
    else:
        travel.freeze(screen)


def move(lines: int, screen: MonitorScreen[S]) -> None:
    """Move the cursor of the pane with the keys, or the view of the page, by so many lines."""
    if screen.current is not None:
        screen.current.move(lines)


def _move_pages(pages: int, screen: MonitorScreen[S]) -> None:
    """Move the cursor of the pane with the keys, or the view of the page, by so many screens."""
    if screen.current is not None:
        screen.current.move_pages(pages)


def back(screen: MonitorScreen[S]) -> bool:
    """Go one step back, out of whatever is open; from the past or a frozen display to now, from a host to its
    fleet. Returns whether there was a step."""
    if not screen.tiny and (_back_in_pane(screen) or _close_innermost(screen)):
        return True
    return travel.leave_past(screen) or _thaw(screen) or _leave_host(screen)


def _back_in_pane(screen: MonitorScreen[S]) -> bool:
    """End the search of the current pane or page, or take its own step back; returns whether there was one."""
    current = screen.current
    if current is None:
        return False
    if current.search.text:
        current.find("")
    elif not current.back():
        return False
    screen.lay_out()  # a filter that is gone gives its rows back
    screen.show_keys()
    return True


def _close_innermost(screen: MonitorScreen[S]) -> bool:
    """Close the sizing panel, else the page, else the filter of all panes, else the zoom; returns whether one was
    open."""
    if screen.dock.focused:
        close_sizing(screen)
    elif screen.pages.shown is not None:
        close_page(screen)
    elif screen.view.everywhere:
        screen.filter_everywhere("")
    elif screen.body.zoomed:
        zoom(screen, "")
    else:
        return False
    return True


def _thaw(screen: MonitorScreen[S]) -> bool:
    """Let a frozen display go on; returns whether it was frozen. A recording that was paused is left as it is."""
    if screen.playback is not None or not screen.travel.paused:
        return False
    travel.go_on(screen)
    return True


def _leave_host(screen: MonitorScreen[S]) -> bool:
    """Go from a host of a fleet to the fleet; returns whether this is one."""
    if screen.leave_host is None:
        return False
    screen.leave_host("")
    return True


def _quit(screen: MonitorScreen[S]) -> None:
    """Go one step back; where there is none end the screen, after a warning if edits of the sizing panel would be
    lost."""
    if screen.commands["back"](screen) or warn_of_edits(screen):
        return
    screen.app.exit()


def _change_pace(step: int, screen: MonitorScreen[S]) -> None:
    """Make the interval longer (1) or shorter (-1), as in btop; play a recording faster or slower; or change the value
    under the cursor, where there is one."""
    if screen.current is not None and screen.current.change(step):
        return
    if travel.change_speed(screen, step):
        return
    interval_s = screen.control.interval_s
    pace = screen.body.settings[0]
    next_s = pace.value_beside(interval_s, step)
    if next_s != interval_s:
        screen.control.set_interval(next_s)
        screen.view.config = with_setting(screen.view.config, pace.section, pace.key, screen.control.interval_s)
    screen.show_keys()
    # The line of keys has no room for it everywhere: a key that nothing answers looks broken.
    screen.say(f"{pace.name} {pace.show(screen.control.interval_s)}")


def _step_sideways(step: int, screen: MonitorScreen[S]) -> None:
    """Go to the value or thing before (-1) or after (1), where there is one; else, in a frozen display, to the
    frame."""
    was_taken = screen.current is not None and screen.current.step_sideways(step)
    if was_taken:
        screen.show_keys()  # another thing has other keys
    elif screen.travel.paused and screen.keys_move_in_time:
        travel.step_frames(screen, step)


def _jump_in_time(jump: int, direction: int, screen: MonitorScreen[S]) -> None:
    """Go back (-1) or forth (1) by the short jump (0) or the long one (1) of the past."""
    travel.ask_for(screen, AskedMoment(AskKind.SECONDS, direction * screen.travel.past.jumps_s[jump]))


def _step_match_or_event(step: int, screen: MonitorScreen[S]) -> None:
    """Go to the next (1) or previous (-1) match while a search is open, else to the moment of what happened next."""
    if screen.current is not None and screen.current.search.text:
        screen.current.step_match(step)
    else:
        travel.go_to_change(screen, step)


def _ask_for_filter(screen: MonitorScreen[S]) -> None:
    """Ask what rows must contain, on charts those of all panes; on a page, for words to find there."""
    from gpumon.tui.screens import questions

    pane = screen.current
    if isinstance(pane, ListPane) and not pane.is_covered:
        screen.ask(questions.filter_question(pane, screen.lay_out))
    elif pane is not None and pane is screen.pages.shown and not isinstance(pane, ListPane):
        screen.ask(questions.search_question(pane))
    elif screen.pages.shown is None and not isinstance(pane, ListPane) and _FILTER_ALL in screen.commands:
        # What is typed behind it is never a row of keys: `q` of a model's name would end the screen.
        screen.commands[_FILTER_ALL](screen)


def _ask_for_order(screen: MonitorScreen[S]) -> None:
    """Ask for the order of the rows."""
    from gpumon.tui.screens import questions

    if isinstance(screen.current, ListPane) and screen.current.listing.orders:
        screen.ask(questions.order_question(screen.current))


def _open_palette(screen: MonitorScreen[S]) -> None:
    """Open the command palette: any command by its name."""
    from gpumon.tui.screens.palette import Commands, SearchPalette

    if not screen.tiny:
        palette = SearchPalette([Commands], placeholder="a command, key, order, theme; or 03:10, -20m, kv>80")
        screen.opening = screen.app.push_screen(palette)
        # Not in a provider's `startup`: that is cancelled, and all of its commands, by a character typed meanwhile.
        screen.screen_settings.list_themes()


def _redraw(screen: MonitorScreen[S]) -> None:
    """Ask for what is shown anew, and paint everything from scratch."""
    screen.control.refresh()
    screen.redraw()


def _save(screen: MonitorScreen[S]) -> None:
    """Write an incident bundle; in the settings and the sizing panel what they hold."""
    if screen.current is not None and screen.current.write():
        return
    if screen.files is None:
        return
    if any(worker.group == _SAVING_GROUP and not worker.is_finished for worker in screen.app.workers):
        screen.say("still writing the one before …")
        return
    from gpumon.tui.picture import painted_lines, svg_picture

    strips = painted_lines(screen)
    text = "\n".join(strip.text.rstrip() for strip in strips)
    facts = screen.body.bundle_facts(screen, text, partial(svg_picture, strips, screen.app.size.width, "gpumon"))
    if facts is not None:
        screen.say("writing an incident bundle …")
        work: WorkType[None] = partial(_write_bundle, screen, screen.files, facts)
        screen.app.run_worker(work, group=_SAVING_GROUP)


async def _write_bundle(screen: MonitorScreen[S], files: Files, facts: BundleFacts) -> None:
    """Write a bundle and say how that went, on whatever screen is in front by then: a host's may have been left."""
    failed = False
    try:
        outcome = await files.save_bundle(facts)
    except Exception as error:  # what cannot be written costs the bundle, not the screen
        failed = True
        reason = clean(f"{type(error).__name__}: {error}", _MOST_REASON)
        outcome = f"the bundle cannot be written: {reason}"
    screens = screen.app.screen_stack
    if not screens:
        return  # gpumon ends: there is nothing to say it on
    front = screens[-1]
    if isinstance(front, type(screen)):
        front.say(outcome, urgent=failed)
    else:
        screen.say(outcome, urgent=failed)


_FILTER_ALL: Final = "filter.all"
_SHORT_JUMP: Final = 0
_LONG_JUMP: Final = 1
"""Places in `Past.jumps_s`."""
COMMON: Final[Mapping[str, RunCommand]] = {
    "help": partial(toggle_page, "help"),
    "settings": partial(toggle_page, "settings"),
    "quit": _quit,
    "suspend": lambda screen: screen.app.action_suspend_process(),
    "pause": _toggle_pause,
    "up": partial(move, -1),
    "down": partial(move, 1),
    "top": partial(move, -_WHOLE_LIST),
    "end": partial(move, _WHOLE_LIST),
    "page.up": partial(_move_pages, -1),
    "page.down": partial(_move_pages, 1),
    "back": back,
    "filter": _ask_for_filter,
    "sort": _ask_for_order,
    "pane.next": partial(go_to_next_pane, 1),
    "pane.previous": partial(go_to_next_pane, -1),
    "faster": partial(_change_pace, -1),
    "slower": partial(_change_pace, 1),
    "left": partial(_step_sideways, -1),
    "right": partial(_step_sideways, 1),
    "time.frame.back": lambda screen: travel.step_frames(screen, -1),
    "time.frame.forth": lambda screen: travel.step_frames(screen, 1),
    "time.back": partial(_jump_in_time, _SHORT_JUMP, -1),
    "time.forth": partial(_jump_in_time, _SHORT_JUMP, 1),
    "time.minute.back": partial(_jump_in_time, _LONG_JUMP, -1),
    "time.minute.forth": partial(_jump_in_time, _LONG_JUMP, 1),
    "time.previous": partial(_step_match_or_event, -1),
    "time.next": partial(_step_match_or_event, 1),
    "time.oldest": lambda screen: travel.go_to_end(screen, -1),
    "time.live": lambda screen: travel.go_to_end(screen, 1),
    "redraw": _redraw,
    "sizing": toggle_sizing,
    "palette": _open_palette,
    "save": _save,
    **{
        command.id: partial(run_in_sizing, command.id.removeprefix("sizing."))
        for command in COMMANDS
        if command.scope == "sizing"
    },
}
"""Id of a command -> what it does on any screen."""
