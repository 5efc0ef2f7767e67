"""The pages over the panes of a screen: made when they are needed first, put over one another, and closed again."""

from __future__ import annotations

from gpumon.tui.screens.context import S
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.widgets.pane import Pane


def prepare_page(screen: MonitorScreen[S], name: str) -> Pane:
    """Have a page show what the panes show, and return it; it is made and mounted when it is needed first."""
    pages = screen.pages
    page = pages.by_name.get(name)
    if page is None:
        page = _make_page(screen, name)
        pages.by_name[name] = page
        page.display = False  # until it is put over the panes
        screen.mount_pane(page)
        screen.read_from(screen.travel.history, anew=True)  # its charts have not read their series yet
    if screen.in_panes is not None:
        page.show(screen.in_panes)
    return page


def _make_page(screen: MonitorScreen[S], name: str) -> Pane:
    """A page by its name; nothing of it is imported before it is needed."""
    palette = screen.palette
    view = screen.view
    if name == "help":
        from gpumon.tui.pages.help import HelpPage

        return HelpPage(palette, view, screen.dock, lambda: screen.holder_below_help, fleet=screen.body.fleet)
    if name == "detail":
        from gpumon.tui.pages.detail import DetailPage

        return DetailPage(palette, view)
    if name == "log":
        from gpumon.tui.pages.log import LogPage

        return LogPage(palette, view, screen.say)
    if name == "requests":
        from gpumon.tui.pages.requests import RequestsPage

        return RequestsPage(palette, view)
    if name == "compare":
        from gpumon.tui.pages.compare import ComparePage

        return ComparePage(palette, view)
    from gpumon.tui.pages.settings import SettingsPage

    return SettingsPage(screen.context, screen.screen_settings, screen.body.settings)


def toggle_page(name: str, screen: MonitorScreen[S]) -> None:
    """Open a page, or close it where it is open."""
    if screen.tiny:
        return
    page = prepare_page(screen, name)
    if name == "help" and page not in (screen.pages.shown, *screen.pages.covered):
        screen.holder_below_help = screen.key_holder()
    if name == "settings":
        screen.screen_settings.list_themes()
    if screen.pages.shown is page:
        close_page(screen)
    else:
        page.to_top()
        put_over(screen, page)


def put_over(screen: MonitorScreen[S], page: Pane) -> None:
    """Show a page over what is shown; one that lies below comes up again, without those over it."""
    if screen.tiny:
        return
    pages = screen.pages
    screen.remember_focus()
    if page in pages.covered:
        del pages.covered[pages.covered.index(page) :]
    elif pages.shown is not None and page is not pages.shown:
        pages.covered.append(pages.shown)
    _turn_to(screen, page)


def close_page(screen: MonitorScreen[S], *, all_of_them: bool = False) -> None:
    """Show again what the page covers: the page below it, else all panes; with `all_of_them` all panes."""
    pages = screen.pages
    if pages.shown is not None:
        screen.body.before_page_closes(screen, pages.shown)
    if all_of_them:
        pages.covered.clear()
    _turn_to(screen, pages.covered.pop() if pages.covered else None)


def _turn_to(screen: MonitorScreen[S], page: Pane | None) -> None:
    """Show a page, or with None the panes, and give it the keys; the search of the page before ends."""
    pages = screen.pages
    if pages.shown is not None and pages.shown is not page:
        pages.shown.find("")
    pages.shown = page
    screen.lay_out()
    if page is not None and screen.in_panes is not None:
        page.show(screen.in_panes)
    screen.give_keys()
    screen.show_keys()
