"""The commands of the table of keys as functions, for every screen; a body adds its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.worker import WorkType

from gpumon.config.keymap import Command
from gpumon.config.validate import changed
from gpumon.readings.text import clean
from gpumon.tui.picture import painted, picture
from gpumon.tui.screens.travel import Ask, Way
from gpumon.tui.widgets.list_pane import ListPane

if TYPE_CHECKING:
    from gpumon.tui.control import Files, Incident
    from gpumon.tui.screens.monitor import MonitorScreen

Run = Callable[["MonitorScreen"], object]
_SAVING: Final = "save"
"""Group of the worker that writes a bundle."""
_FAR: Final = 100_000
"""Lines: further than any end."""
_SIZING: Final = "sizing"
"""Name of the sizing panel among the panes."""


def _pause(screen: MonitorScreen) -> None:
    if screen.shown is not None:
        screen.travel.freeze(not screen.travel.paused)


def _move(lines: int, screen: MonitorScreen) -> None:
    if screen.current is not None:
        screen.current.move(lines)


def _leaf(pages: int, screen: MonitorScreen) -> None:
    if screen.current is not None:
        screen.current.leaf(pages)


def _back(screen: MonitorScreen) -> bool:
    """Out of whatever is open, one step; from a host of a fleet to the fleet. Returns whether there was a step."""
    if not screen.tiny and (_back_in_pane(screen) or _close(screen)):
        return True
    return screen.travel.leave_past() or _leave(screen)


def _back_in_pane(screen: MonitorScreen) -> bool:
    """End the search of the current pane or page, or take its own step back; returns whether there was one."""
    current = screen.current
    if current is None:
        return False
    if current.search.sought:
        current.find("")
    elif not current.back():
        return False
    screen.show_keys()
    return True


def _close(screen: MonitorScreen) -> bool:
    """Close the sizing panel, else the page, else the filter of all panes, else the zoom; returns whether one was
    open."""
    if screen.dock.focused:
        screen.dock.close()
    elif screen.pages.shown is not None:
        screen.pages.close()
    elif screen.view.everywhere:
        screen.filter_everywhere("")
    elif screen.body.zoomed:
        zoom(screen, "")
    else:
        return False
    return True


def _leave(screen: MonitorScreen) -> bool:
    """From a host of a fleet to the fleet; returns whether this is one."""
    if screen.leave is None:
        return False
    screen.leave("")
    return True


def _quit(screen: MonitorScreen) -> None:
    """A step back; on the first screen the end, asked for twice where edits of the sizing panel would be lost."""
    if _back(screen) or screen.dock.keeps_edits():
        return
    screen.app.exit()


def zoom(screen: MonitorScreen, name: str) -> None:
    """One pane alone; all of them with an empty name."""
    if name != screen.body.zoomed:
        screen.body.zoomed = name
        screen.lay_out()
        screen.show_keys()


def go_to_pane(screen: MonitorScreen, name: str) -> None:
    """Give the keys to a pane, out of what covers it; zoomed where another was, or where it has no place."""
    if screen.tiny:
        return
    if screen.pages.shown is not None:
        screen.pages.close(all_of_them=True)
    screen.dock.leave()
    if screen.body.zoomed or not screen.panes[name].display:
        zoom(screen, name)
    screen.set_focus(screen.panes[name])


def _next_pane(step: int, screen: MonitorScreen) -> None:
    """The pane, or the sizing panel beside, that comes next."""
    if screen.tiny:
        return
    page = screen.pages.shown
    if page is None and screen.dock.covers:
        screen.say(f"sizing has the whole screen: {screen.view.keymap.first('sizing')} closes it")
        return
    if page is not None:
        if _jump_section(step, screen):
            return
        screen.pages.close(all_of_them=True)
    if screen.dock.covers:
        screen.dock.leave()
    name = _name_beside(step, screen)
    if name == _SIZING:
        screen.set_focus(screen.dock.panel)
    else:
        go_to_pane(screen, name)


def _jump_section(step: int, screen: MonitorScreen) -> bool:
    """Go to the next (1) or previous (-1) section of the page with the keys; returns whether there is one."""
    page = screen.pages.shown
    if page is None or page is not screen.current or isinstance(page, ListPane):
        return False
    return page.jump_section(step)


def _name_beside(step: int, screen: MonitorScreen) -> str:
    """The name of the pane after (1) or before (-1) the one with the focus, round in a circle; all panes can be gone
    to while one is zoomed."""
    names = []
    for name, pane in screen.panes.items():
        if screen.body.zoomed or pane.display:
            names.append(name)
    if screen.dock.columns:
        names.append(_SIZING)
    focused = _focused_name(screen)
    if focused in names:
        place = names.index(focused) + step
    else:
        place = 0 if step > 0 else -1
    return names[place % len(names)]


def _focused_name(screen: MonitorScreen) -> str:
    """The name of the pane with the focus; empty where no pane has it."""
    if screen.dock.focused:
        return _SIZING
    for name, pane in screen.panes.items():
        if pane is screen.focused:
            return name
    return ""


def _interval(step: int, screen: MonitorScreen) -> None:
    """A longer (1) or shorter interval, as in btop; of a recording more or less speed, of a line under the
    cursor more or less of its value."""
    if screen.current is not None and screen.current.change(step):
        return
    if screen.travel.change_speed(step):
        return
    now = screen.control.interval_s
    pace = screen.body.settings[0]
    if pace.stepped(now, step) != now:
        screen.control.set_interval(pace.stepped(now, step))
        screen.view.config = changed(screen.view.config, pace.section, pace.key, screen.control.interval_s)
    screen.show_keys()


def _side(step: int, screen: MonitorScreen) -> None:
    """The value or thing before or after, where there is one; else, frozen, the frame."""
    taken = screen.current is not None and screen.current.side(step)
    if not taken and screen.travel.paused and screen.travel.timely:
        screen.travel.frame(step)


def _jump(which: int, sign: int, screen: MonitorScreen) -> None:
    screen.travel.travel(Ask(Way.SECONDS, sign * screen.body.past.jumps_s[which]))


def _next_event(step: int, screen: MonitorScreen) -> None:
    """The next (1) or previous (-1) match while a search is open, else the moment of what happened next."""
    if screen.current is not None and screen.current.search.sought:
        screen.current.step_match(step)
    else:
        screen.travel.change(step)


def _filter(screen: MonitorScreen) -> None:
    """Type what rows must contain; on a page, words to find there."""
    from gpumon.tui.screens import questions

    pane = screen.current
    if isinstance(pane, ListPane) and not pane.covered:
        screen.ask(questions.filter_of(pane))
    elif pane is not None and pane is screen.pages.shown and not isinstance(pane, ListPane):
        screen.ask(questions.search_of(pane))


def _choose_order(screen: MonitorScreen) -> None:
    """Choose the order of the rows."""
    from gpumon.tui.screens import questions

    if isinstance(screen.current, ListPane) and screen.current.listing.orders:
        screen.ask(questions.order_of(screen.current))


def _palette(screen: MonitorScreen) -> None:
    """Any command by its name."""
    from textual.command import CommandPalette

    from gpumon.tui.screens.questions import Commands

    if not screen.tiny:
        palette = CommandPalette([Commands], placeholder="a command's name or key, an order, a theme")
        screen.opening = screen.app.push_screen(palette)
        # Not in a provider's `startup`: that is cancelled, and all of its commands, by a character typed meanwhile.
        screen.looks.ask_themes()


def _redraw(screen: MonitorScreen) -> None:
    """Ask for what is shown anew, and paint everything from scratch."""
    screen.control.refresh()
    screen.redraw()


def _save(screen: MonitorScreen) -> None:
    """Write an incident bundle; in the settings and the sizing panel what they hold."""
    if (screen.current is not None and screen.current.write()) or screen.files is None:
        return
    if any(worker.group == _SAVING and not worker.is_finished for worker in screen.app.workers):
        screen.say("still writing the one before …")
        return
    strips = painted(screen)
    text = "\n".join(strip.text.rstrip() for strip in strips)
    incident = screen.body.incident(screen, text, partial(picture, strips, screen.app.size.width, "gpumon"))
    if incident is not None:
        screen.say("writing an incident bundle …")
        work: WorkType[None] = partial(_write, screen, screen.files, incident)
        screen.app.run_worker(work, group=_SAVING)


async def _write(screen: MonitorScreen, files: Files, incident: Incident) -> None:
    """Write a bundle and say how that went, on whatever screen is in front by then: a host's may have been left."""
    failed = False
    try:
        outcome = await files.save_bundle(incident)
    except Exception as error:  # what cannot be written costs the bundle, not the screen
        failed = True
        outcome = f"the bundle cannot be written: {clean(f'{type(error).__name__}: {error}', 200)}"
    front = screen.app.screen
    if isinstance(front, type(screen)):
        front.say(outcome, urgent=failed)
    else:
        screen.say(outcome, urgent=failed)


COMMON: Final[Mapping[str, Run]] = {
    "help": lambda screen: screen.pages.toggle("help"),
    "settings": lambda screen: screen.pages.toggle("settings"),
    "quit": _quit,
    "suspend": lambda screen: screen.app.action_suspend_process(),
    "pause": _pause,
    "up": partial(_move, -1),
    "down": partial(_move, 1),
    "top": partial(_move, -_FAR),
    "end": partial(_move, _FAR),
    "page.up": partial(_leaf, -1),
    "page.down": partial(_leaf, 1),
    "back": _back,
    "filter": _filter,
    "sort": _choose_order,
    "pane.next": partial(_next_pane, 1),
    "pane.previous": partial(_next_pane, -1),
    "faster": partial(_interval, -1),
    "slower": partial(_interval, 1),
    "left": partial(_side, -1),
    "right": partial(_side, 1),
    "time.frame.back": lambda screen: screen.travel.frame(-1),
    "time.frame.forth": lambda screen: screen.travel.frame(1),
    "time.back": partial(_jump, 0, -1),
    "time.forth": partial(_jump, 0, 1),
    "time.minute.back": partial(_jump, 1, -1),
    "time.minute.forth": partial(_jump, 1, 1),
    "time.previous": partial(_next_event, -1),
    "time.next": partial(_next_event, 1),
    "time.oldest": lambda screen: screen.travel.to_end(-1),
    "time.live": lambda screen: screen.travel.to_end(1),
    "redraw": _redraw,
    "sizing": lambda screen: screen.dock.toggle(),
    "palette": _palette,
    "save": _save,
}


def does_here(screen: MonitorScreen, command: Command) -> bool:
    """Whether a command does anything on this screen."""
    if command.scope == "sizing":
        return screen.dock.open
    if command.scope == "log":
        return screen.pages.name == "log"
    here = command.fleet is not None if screen.body.fleet else not command.scope
    return here and (command.id in screen.body.commands or command.id in COMMON)
