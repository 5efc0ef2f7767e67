"""The settings page: every setting with its value and origin; changes hold at once, and are written when asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, Protocol

from textual.worker import WorkType

from gpumon.config.columns import HIDEABLE_COLUMNS
from gpumon.config.errors import Refused, dotted
from gpumon.config.schema import Config
from gpumon.config.validate import with_setting
from gpumon.readings.format import cells, cut, left
from gpumon.tui.control import Files
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing, ListView
from gpumon.tui.screens.parts import ScreenSettings
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.settings_table import Setting
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane

_GROUP: Final = 10
_NAME: Final = 23
_VALUE: Final = 13
_DEFAULTS: Final = Config()
_UNSAVED: Final = ("changed, not saved", "not saved", "changed")
_LATER: Final = ("changed, not saved: from the next start once saved", "not saved: from next start")
"""Remarks on a change, the longest first: the first that fits is shown. The foot of the page has it all, too."""


class SettingsScreen(Protocol):
    """The screen as its settings page knows it."""

    files: Files | None
    screen_settings: ScreenSettings

    @property
    def settings(self) -> Sequence[Setting]:
        """The settings that it has."""

    def ask(self, question: Question) -> None:
        """Ask at the foot of the screen."""

    def say(self, text: str) -> None:
        """Show a notice."""

    def show_keys(self) -> None:
        """Name the keys that do something here."""

    def run_alone(self, group: str, work: WorkType[None]) -> None:
        """Work beside the screen, in place of what is left of the same group."""


class SettingsPage(ListPane[Setting]):
    """One line per setting; below them what the one under the cursor means, and the keys."""

    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View, monitor: SettingsScreen) -> None:
        """`monitor`: the screen that the settings are of."""
        listing = Listing[Setting](
            thing="setting",
            title="settings",
            items=lambda _snapshot, _pane: monitor.settings,
            key=lambda setting: setting.id,
            words=lambda item, _: f"{item.group} {item.name} {item.section}.{item.key} {item.means}",
            gpus=lambda _item, _pane: (),
            row=self._row,
            nothing=lambda _width, _pane: (),
        )
        super().__init__(palette, view, listing)
        self.monitor = monitor
        self._paste: list[str] = []
        """Text to read and to paste, where nothing could be written."""

    def _written(self) -> tuple[Config, Mapping[str, str]]:
        """The settings as they were loaded or saved last, and who set them."""
        files = self.monitor.files
        return (files.settings, files.origins) if files is not None else (self.view.loaded, {})

    def unsaved(self) -> dict[tuple[str, str], object]:
        """Settings that were changed since the config was loaded or saved."""
        before, _ = self._written()
        pairs = dict.fromkeys((setting.section, setting.key) for setting in self.monitor.settings)
        now = {pair: getattr(getattr(self.view.config, pair[0]), pair[1]) for pair in pairs}
        unsaved = {}
        for pair, value in now.items():
            if value != getattr(getattr(before, pair[0]), pair[1]):
                unsaved[pair] = value
        return unsaved

    def listed_items(self) -> list[Setting]:
        """The settings that pass the filter; none while lines to paste stand in their place."""
        if self.is_covered:
            return []
        if self._listed_state != (self.filter_text,):
            self._listed_state = (self.filter_text,)
            there = self.monitor.settings
            self._total = len(there)
            self._items = [setting for setting in there if self.passes(setting)]
            self._follow_thing()
        return self._items

    @property
    def is_covered(self) -> bool:
        """Whether lines to paste stand in place of the list."""
        return bool(self._paste)

    @property
    def shows_cursor(self) -> bool:
        """Always: what is asked is about the row under the cursor."""
        return True

    def note(self) -> str:
        """The filter, and what is not in the file."""
        parts = [super().note()]
        number = len(self.unsaved())
        if number:
            parts.append(f"{number} not saved")
        return " · ".join(filter(None, parts))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The list, and at the foot what it is about; or what to paste."""
        if self._paste:
            text = []
            for line in self._paste:
                text.extend(wrap_line(line, width, "text", most=6))
            self._overflow = 0
            return (self._rule(width, len(text), height - 1), *text[: height - 1])
        if height > 8:
            foot = self._foot(width)
        else:
            foot = []
        above = super().rows(width, height - len(foot))
        return (*above, *([()] * (height - len(above) - len(foot))), *foot)

    def _row(self, item: Setting, width: int, _: ListView) -> Row:
        """Group where it begins, name, value, and who set it."""
        place = self._items.index(item)
        group = ""
        if place == 0 or self._items[place - 1].group != item.group:
            group = item.group
        value = item.value(self.view.config)
        origins, tone = self._origin(item, value)
        room = max(0, width - _GROUP - _NAME - _VALUE - 4)
        origin = next((text for text in origins if cells(text) <= room), cut(origins[-1], room))
        shown = left(cut(item.show(value), _VALUE), _VALUE)
        return (
            (f"  {left(group, _GROUP)}", "muted"),
            (left(item.name, _NAME), "text"),
            (shown, "strong" if value != item.value(_DEFAULTS) else "text"),
            (f" {origin}", tone),
        )

    def _origin(self, item: Setting, value: object) -> tuple[Sequence[str], str]:
        """Who set it, in as many words as there may be room for, the most first; and their tone."""
        before, origins = self._written()
        if value != item.value(before):
            return (*(_LATER if item.later else ()), *_UNSAVED), "warn"
        origin = origins.get(dotted((item.section, item.key)), "")
        return ((origin,), "accent") if origin else (("default",), "muted")

    def _foot(self, width: int) -> list[Row]:
        setting = self.selected
        if setting is None:
            return []
        if setting.later:
            later = " From the next start."
        else:
            later = ""
        means = wrap_line(setting.means + later, width, "text", most=2)
        key = self.view.keymap.first
        if setting.pane:
            change = ""
        else:
            change = f"{key('left')} {key('right')} change · "
        enter = f"{key('open')}: {'type' if setting.read else 'list'} · "
        number = len(self.unsaved())
        amount = ""
        if number:
            amount = f" {number}"
        save = ""
        if self.monitor.files is not None:
            save = f"{key('save')}: save{amount} · "
        keys = f"   {change}{enter}Del: default · {save}{key('back')}: back"
        return [(("─" * width, "border"),), *means, *([()] * (2 - len(means))), ((cut(keys, width), "muted"),)]

    def change(self, step: int) -> bool:
        """The next step or choice of the setting under the cursor."""
        setting = self.selected
        if setting is None:
            return True
        if setting.pane:
            self.open()
        else:
            setting = self.with_themes(setting)
            if setting.key == "theme":
                now = self.monitor.screen_settings.chosen_theme
            else:
                now = setting.value(self.view.config)
            self.put(setting, setting.value_beside(now, step))
        return True

    def put(self, setting: Setting, value: object) -> None:
        """Let a setting have a value from now on, or say what is allowed."""
        if setting.pane:
            assert isinstance(value, tuple)
            value = self._with_others(setting, value)
        try:
            config = with_setting(self.view.config, setting.section, setting.key, value)
        except Refused as refused:
            self.monitor.say(f"{setting.name}: {refused.text}")
            return
        if setting.key == "theme":
            assert isinstance(value, str)
            self.monitor.screen_settings.switch_theme(value, as_setting=True)
        elif config != self.view.config:
            self.monitor.screen_settings.apply(config)

    def _with_others(self, setting: Setting, hidden: Sequence[str]) -> tuple[str, ...]:
        """The hidden columns of a pane, and those of the others; in the order of the file, new ones behind."""
        now = self.view.config.screen.hidden_columns
        wanted = {*hidden, *(name for name in now if not name.startswith(f"{setting.pane}."))}
        ranked = dict.fromkeys((*self._written()[0].screen.hidden_columns, *now, *hidden))
        others = []
        for name in ranked:
            if name in wanted:
                others.append(name)
        return tuple(others)

    def open(self) -> tuple[str, str] | None:
        """Type a number, or choose from a list."""
        setting = self.selected
        if setting is not None:
            setting = self.with_themes(setting)
            if setting.key == "theme":
                self.monitor.screen_settings.list_themes()
            self.monitor.ask(self._question(setting))
        return None

    def _question(self, setting: Setting) -> Question:
        """The question by which a setting is changed."""
        if setting.read:
            return _typed(self, setting)
        return self._columns(setting) or _listed(self, setting)

    def with_themes(self, setting: Setting) -> Setting:
        """A setting with its choices: those of the theme are known only when the disk has answered."""
        if setting.key != "theme":
            return setting
        return setting._replace(choices=self.monitor.screen_settings.themes or (self.view.config.general.theme,))

    def _columns(self, setting: Setting) -> Question | None:
        """A list of the columns of a pane, to be switched on and off."""
        if not setting.pane:
            return None

        def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
            hidden = setting.value(self.view.config)
            names = [f"{setting.pane}.{column}" for column in HIDEABLE_COLUMNS[setting.pane]]
            choices = []
            for name in names:
                choices.append(Choice(name.partition(".")[2], "hidden" if name in hidden else "shown", name))
            return choices

        def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is None:
                return
            hidden = setting.value(self.view.config)
            if choice.value in hidden:
                self.put(setting, tuple(name for name in hidden if name != choice.value))
            else:
                self.put(setting, (*hidden, choice.value))

        return Question(
            setting.name, choices, choose, has_field=False, keeps_open=True, hint="Enter: show or hide · Esc: done"
        )

    def back(self) -> bool:
        """From the lines to paste to the list; from the list with a word on what is not saved."""
        if self._paste:
            self._paste = []
            self.update()
            return True
        if super().back():
            return True
        number = len(self.unsaved())
        if number == 1:
            self.monitor.say("1 change holds until gpumon ends: not saved")
        elif number:
            self.monitor.say(f"{number} changes hold until gpumon ends: not saved")
        return False

    def write(self) -> bool:
        """Save what was changed into the config file."""
        files = self.monitor.files
        changes = self.unsaved()
        if files is None:
            self.monitor.say("there is no file to save to")
        elif not changes:
            self.monitor.say("nothing is changed")
        else:
            self.monitor.run_alone("write", partial(self._write, changes))
        return True

    async def _write(self, changes: dict[tuple[str, str], object]) -> None:
        files = self.monitor.files
        assert files is not None
        written, text = await files.save_settings(changes)
        if written:
            self.monitor.say(text)
        else:
            self._paste = [*text.splitlines(), "", f"{self.view.keymap.first('back')}: back"]
        self.update()
        self.monitor.show_keys()

    def take(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Delete goes back to the default."""
        if key in ("delete", "backspace") and not self.view.keymap.holds(key):
            self._reset()
            return True
        return False

    def _reset(self) -> None:
        setting = self.selected
        if setting is not None:
            self.put(setting, setting.value(_DEFAULTS))


def _typed(page: SettingsPage, setting: Setting) -> Question:
    """A number to type."""
    assert setting.read is not None
    read = setting.read

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        try:
            value = read(text)
        except ValueError as wrong:
            page.monitor.say(f"{setting.name}: {wrong}, such as {setting.show(setting.value(_DEFAULTS) or 500.0)}")
            return
        page.put(setting, value)

    now = setting.text_to_type(setting.value(page.view.config))
    return Question(
        f"{setting.name}:", on_choose=choose, text=now, replaces_text=True, hint="Enter: use it · Esc: as before"
    )


def _listed(page: SettingsPage, setting: Setting) -> Question:
    """A list to choose from; what the cursor is on is shown at once."""
    before = setting.value(page.view.config)
    first = 0
    if before in setting.choices:
        first = setting.choices.index(before)

    def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
        choices = []
        for value in page.with_themes(setting).choices:
            note = "default" if value == setting.value(_DEFAULTS) else ""
            choices.append(Choice(setting.show(value), note, value))
        return choices

    def show(choice: Choice | None) -> None:
        page.put(setting, before if choice is None else choice.value)

    return Question(
        setting.name,
        choices,
        lambda choice, _: show(choice),
        on_drop=lambda: show(None),
        on_point=show,
        first_choice=first,
        has_field=False,
        hint="Enter: use it · Esc: as before",
    )
