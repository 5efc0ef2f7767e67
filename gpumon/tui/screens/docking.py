"""The sizing panel of a screen: opened, closed, and given the keys."""

from __future__ import annotations

from gpumon.readings.format import counted
from gpumon.tui.screens.context import S
from gpumon.tui.screens.monitor import MonitorScreen


def toggle_sizing(screen: MonitorScreen[S]) -> None:
    """Open the panel, or go to it; where it has the keys, close it."""
    if screen.tiny:
        return
    dock = screen.dock
    if dock.panel is None:
        from gpumon.tui.sizing.panel import SizingPanel  # nothing of it is imported before it is needed

        dock.panel = SizingPanel(screen.context)
        dock.panel.display = False
        screen.mount_pane(dock.panel)
    if dock.open and dock.focused:
        close_sizing(screen)
        return
    screen.remember_focus()
    if not dock.open:
        dock.panel.begin()
    dock.open = True
    dock.has_keys = True
    if dock.covers:  # pages would lie over it
        screen.pages.shown = None
        screen.pages.covered.clear()
    screen.lay_out()
    screen.show_newest_in_sizing()
    screen.set_focus(dock.panel)
    screen.show_keys()


def close_sizing(screen: MonitorScreen[S]) -> None:
    """Give the panel's place back to the panes; what was asked there stays."""
    screen.dock.open = False
    screen.dock.has_keys = False
    screen.lay_out()
    screen.give_keys()
    screen.show_keys()


def release_keys(screen: MonitorScreen[S]) -> None:
    """Give the keys to the panes: a panel beside them stays in sight, one over them is closed."""
    screen.dock.has_keys = False
    if screen.dock.covers:
        screen.dock.open = False
        screen.lay_out()


def run_in_sizing(name: str, screen: MonitorScreen[S]) -> None:
    """Run one of the panel's commands, and give it the keys."""
    panel = screen.dock.panel
    if panel is not None and screen.dock.open and not screen.tiny:
        screen.set_focus(panel)
        panel.run(name)


def warn_of_edits(screen: MonitorScreen[S]) -> bool:
    """Name changes that nobody saved and that the end would lose, once. Returns whether they were named now."""
    dock = screen.dock
    changes = dock.panel.changes if dock.panel is not None else 0
    if changes == dock.changes_named:
        return False
    dock.changes_named = changes
    if not changes:
        return False
    key = screen.view.keymap.first
    unsaved = f"{counted(changes, 'change')} in sizing not saved"
    how_to_save = f"{key('sizing')} {key('sizing.save')} saves"
    screen.say(f"{unsaved}: {key('quit')} again quits, {how_to_save}", urgent=True)
    return True
