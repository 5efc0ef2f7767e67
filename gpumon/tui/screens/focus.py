"""The way of the keys from pane to pane, and one pane alone on the screen."""

from __future__ import annotations

from typing import Final

from gpumon.tui.screens.context import S
from gpumon.tui.screens.docking import release_keys
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.paging import close_page
from gpumon.tui.widgets.list_pane import ListPane

_SIZING: Final = "sizing"
"""Name of the sizing panel among the panes."""


def zoom(screen: MonitorScreen[S], name: str) -> None:
    """Show one pane alone; all of them with an empty name."""
    if name != screen.body.zoomed:
        screen.body.zoomed = name
        screen.lay_out()
        screen.show_keys()


def go_to_pane(screen: MonitorScreen[S], name: str) -> None:
    """Give the keys to a pane, out of what covers it; zoomed where another was, or where it has no place."""
    if screen.tiny:
        return
    if screen.pages.shown is not None:
        close_page(screen, all_of_them=True)
    release_keys(screen)
    if screen.body.zoomed or not screen.panes[name].display:
        zoom(screen, name)
    screen.set_focus(screen.panes[name])


def go_to_next_pane(step: int, screen: MonitorScreen[S]) -> None:
    """Give the keys to the pane, or the sizing panel beside, that comes next (1) or before (-1); on a page go to the
    section that does."""
    if screen.tiny:
        return
    page = screen.pages.shown
    if page is None and screen.dock.covers:
        screen.say(f"sizing has the whole screen: {screen.view.keymap.first('sizing')} closes it")
        return
    if page is not None:
        if _jump_section(step, screen):
            return
        close_page(screen, all_of_them=True)
    if screen.dock.covers:
        release_keys(screen)
    name = _name_beside(step, screen)
    if name == _SIZING:
        screen.set_focus(screen.dock.panel)
    else:
        go_to_pane(screen, name)


def _jump_section(step: int, screen: MonitorScreen[S]) -> bool:
    """Go to the next (1) or previous (-1) section of the page with the keys; returns whether there is one."""
    page = screen.pages.shown
    if page is None or page is not screen.current or isinstance(page, ListPane):
        return False
    return page.jump_section(step)


def _name_beside(step: int, screen: MonitorScreen[S]) -> str:
    """The name of the pane after (1) or before (-1) the one with the focus, round in a circle: of those in sight, or of
    all while one is zoomed."""
    names = [name for name, pane in screen.panes.items() if screen.body.zoomed or pane.display]
    if screen.dock.columns:
        names.append(_SIZING)
    focused = _focused_name(screen)
    if focused in names:
        place = names.index(focused) + step
    else:
        place = 0 if step > 0 else -1
    return names[place % len(names)]


def _focused_name(screen: MonitorScreen[S]) -> str:
    """The name of the pane with the focus; empty where no pane has it."""
    if screen.dock.focused:
        return _SIZING
    for name, pane in screen.panes.items():
        if pane is screen.focused:
            return name
    return ""
