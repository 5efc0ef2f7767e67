"""The settings page: every setting with its value and origin; changes hold at once, and are written when asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from gpumon.config.columns import HIDEABLE_COLUMNS
from gpumon.config.errors import Refused, dotted
from gpumon.config.schema import Config
from gpumon.config.validate import with_setting
from gpumon.readings.format import cut, left
from gpumon.tui.line import Row, first_that_fits, wrap_line
from gpumon.tui.rows import Listing, ListScene
from gpumon.tui.screens.context import KeysChanged, ScreenContext, WorkWanted
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.screens.settings_in_effect import ScreenSettings
from gpumon.tui.settings_table import Setting
from gpumon.tui.widgets.list_pane import ListPane

_GROUP_CELLS: Final = 10
_NAME_CELLS: Final = 23
_VALUE_CELLS: Final = 13
_LEAST_HEIGHT_WITH_FOOT: Final = 9
"""Lines of the page from which it has a foot."""
_MEANING_LINES: Final = 2
_MOST_PASTE_LINES: Final = 6
"""Lines of the screen that one line to paste may take."""
_DEFAULTS: Final = Config()
_UNSAVED_NOTES: Final = ("changed, not saved", "not saved", "changed")
"""Remarks on a change, the longest first: the first that fits is shown. The foot of the page has it all, too."""
_UNSAVED_FROM_START_NOTES: Final = (
    "changed, not saved: from the next start once saved",
    "not saved: from next start",
    *_UNSAVED_NOTES,
)
"""Remarks on a change that takes effect when gpumon starts next."""
_EXAMPLE_MS: Final = 500.0
"""Example of a number to type for a goal that has no default."""


_LISTING: Final = Listing[Setting](
    thing="setting",
    title="settings",
    key=lambda setting: setting.id,
    words=lambda setting, _: f"{setting.group} {setting.name} {setting.section}.{setting.key} {setting.means}",
)
"""The settings."""


class SettingsPage(ListPane[Setting]):
    """One line per setting; below them the meaning of the one under the cursor, and the keys."""

    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def __init__(self, context: ScreenContext, in_effect: ScreenSettings, settings: Sequence[Setting]) -> None:
        """`in_effect`: takes changes over. `settings`: those that the screen has, as a fleet's has others than a
        host's."""
        super().__init__(context.palette, context.view, _LISTING)
        self.context = context
        self._in_effect = in_effect
        self._settings = settings
        self._paste: list[str] = []
        """Lines to read and to paste where the file could not be written; empty while the list is shown."""

    def _saved_config(self) -> Config:
        """The config as it was loaded or saved last."""
        files = self.context.files
        if files is None:
            return self.view.loaded
        return files.settings

    def _origins(self) -> Mapping[str, str]:
        """Dotted name of a setting -> who set it: a file, an option, the environment; defaults have none."""
        files = self.context.files
        if files is None:
            return {}
        return files.origins

    def unsaved_values(self) -> dict[tuple[str, str], object]:
        """Values of the settings that were changed since the config was loaded or saved, by section and key."""
        saved_config = self._saved_config()
        values = {}
        for setting in self._settings:
            value = getattr(getattr(self.view.config, setting.section), setting.key)
            if value != getattr(getattr(saved_config, setting.section), setting.key):
                values[setting.section, setting.key] = value
        return values

    def listed_items(self) -> list[Setting]:
        """The settings that pass the filter; none while lines to paste stand in their place."""
        return [] if self.is_covered else super().listed_items()

    def all_items(self) -> Sequence[Setting]:
        """All settings that the screen has."""
        return self._settings

    @property
    def is_covered(self) -> bool:
        """Whether lines to paste stand in place of the list."""
        return bool(self._paste)

    @property
    def shows_cursor(self) -> bool:
        """Whether the cursor is shown: always, as the foot and the questions are about its row."""
        return True

    def note(self, room: int) -> str:
        """The filter, and how many changes are not in the file."""
        parts = [super().note(room)]
        count = len(self.unsaved_values())
        if count:
            parts.append(f"{count} not saved")
        return " · ".join(filter(None, parts))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The list, and at the foot the setting under the cursor; or the lines to paste."""
        if self._paste:
            lines = [row for line in self._paste for row in wrap_line(line, width, "text", most=_MOST_PASTE_LINES)]
            self.scrolling.last = 0
            return (self.rule(width, len(lines), height - 1), *lines[: height - 1])
        foot: list[Row] = self._foot(width) if height >= _LEAST_HEIGHT_WITH_FOOT else []
        rows = super().rows(width, height - len(foot))
        blank_rows = [()] * (height - len(rows) - len(foot))
        return (*rows, *blank_rows, *foot)

    def row(self, item: Setting, width: int, scene: ListScene) -> Row:  # noqa: ARG002 - a setting is none of a moment
        """Group on its first line, name, value, and who set it."""
        items = self.listed_items()
        place = items.index(item)
        group = item.group if place == 0 or items[place - 1].group != item.group else ""
        value = item.value(self.view.config)
        origins, origin_tone = self._origin_texts(item, value)
        room = max(0, width - _GROUP_CELLS - _NAME_CELLS - _VALUE_CELLS - 4)
        value_tone = "strong" if value != item.value(_DEFAULTS) else "text"
        return (
            (f"  {left(group, _GROUP_CELLS)}", "muted"),
            (left(item.name, _NAME_CELLS), "text"),
            (left(cut(item.show(value), _VALUE_CELLS), _VALUE_CELLS), value_tone),
            (f" {first_that_fits(origins, room)}", origin_tone),
        )

    def _origin_texts(self, item: Setting, value: object) -> tuple[Sequence[str], str]:
        """Who set a setting, as texts from the longest to the shortest, and their tone."""
        if value != item.value(self._saved_config()):
            if item.later:
                return _UNSAVED_FROM_START_NOTES, "warn"
            return _UNSAVED_NOTES, "warn"
        origin = self._origins().get(dotted((item.section, item.key)), "")
        if origin:
            return (origin,), "accent"
        return ("default",), "muted"

    def _foot(self, width: int) -> list[Row]:
        """The meaning of the setting under the cursor, and the keys that change it; empty without a cursor."""
        setting = self.selected
        if setting is None:
            return []
        meaning = setting.means
        if setting.later:
            meaning += " From the next start."
        lines = wrap_line(meaning, width, "text", most=_MEANING_LINES)
        blank_lines = [()] * (_MEANING_LINES - len(lines))
        keys = cut(f"   {self._keys_text(setting)}", width)
        return [(("─" * width, "border"),), *lines, *blank_lines, ((keys, "muted"),)]

    def _keys_text(self, setting: Setting) -> str:
        """The keys for a setting and what they do: `← → change · Enter: list · Del: default · Esc: back`."""
        key = self.view.keymap.first
        parts = []
        if not setting.pane:
            parts.append(f"{key('left')} {key('right')} change")
        parts.append(f"{key('open')}: {'type' if setting.read else 'list'}")
        parts.append("Del: default")
        if self.context.files is not None:
            count = len(self.unsaved_values())
            parts.append(f"{key('save')}: save {count or ''}".rstrip())
        parts.append(f"{key('back')}: back")
        return " · ".join(parts)

    def change(self, step: int) -> bool:
        """Set the setting under the cursor to its next (1) or previous (-1) value; of columns show the list."""
        setting = self.selected
        if setting is None:
            return True
        if setting.pane:
            self.open()
        else:
            setting = self.with_themes(setting)
            if setting.key == "theme":  # a theme becomes the setting only when it has been read
                value = self._in_effect.chosen_theme
            else:
                value = setting.value(self.view.config)
            self.set_value(setting, setting.value_beside(value, step))
        return True

    def set_value(self, setting: Setting, value: object) -> None:
        """Let a setting have a value from now on; one that is not allowed changes nothing, and a notice says why."""
        if setting.pane:
            assert isinstance(value, tuple)
            value = self._with_other_panes(setting, value)
        try:
            config = with_setting(self.view.config, setting.section, setting.key, value)
        except Refused as refused:
            self.context.say(f"{setting.name}: {refused.text}")
            return
        if setting.key == "theme":
            assert isinstance(value, str)
            self._in_effect.switch_theme(value, as_setting=True)
        elif config != self.view.config:
            self._in_effect.apply(config)

    def _with_other_panes(self, setting: Setting, hidden: Sequence[str]) -> tuple[str, ...]:
        """The columns that a pane is to hide, and those that other panes hide.

        They are in the order of the file, new ones behind: a column hidden and shown again is no change then.
        """
        hidden_now = self.view.config.screen.hidden_columns
        hidden_later = {*hidden, *(name for name in hidden_now if not name.startswith(f"{setting.pane}."))}
        names_in_order = dict.fromkeys((*self._saved_config().screen.hidden_columns, *hidden_now, *hidden))
        return tuple(name for name in names_in_order if name in hidden_later)

    def open(self) -> tuple[str, str] | None:
        """Ask for a value of the setting under the cursor: a number to type, or one of a list."""
        setting = self.selected
        if setting is not None:
            setting = self.with_themes(setting)
            if setting.key == "theme":
                self._in_effect.list_themes()
            self.context.ask(self._question(setting))
        return None

    def _question(self, setting: Setting) -> Question:
        """The question by which a setting is changed."""
        if setting.read:
            return _typed_question(self, setting)
        if setting.pane:
            return self._columns_question(setting)
        return _listed_question(self, setting)

    def with_themes(self, setting: Setting) -> Setting:
        """The setting with its choices: those of the theme are known only when the disk has answered."""
        if setting.key != "theme":
            return setting
        return setting._replace(choices=self._in_effect.themes or (self.view.config.general.theme,))

    def _columns_question(self, setting: Setting) -> Question:
        """A list of the columns of a pane, to be switched on and off."""

        def list_choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
            hidden = setting.value(self.view.config)
            choices = []
            for column in HIDEABLE_COLUMNS[setting.pane]:
                name = f"{setting.pane}.{column}"
                note = "hidden" if name in hidden else "shown"
                choices.append(Choice(column, note, name))
            return choices

        def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is None:
                return
            hidden = setting.value(self.view.config)
            if choice.value in hidden:
                self.set_value(setting, tuple(name for name in hidden if name != choice.value))
            else:
                self.set_value(setting, (*hidden, choice.value))

        return Question(
            setting.name,
            choices=list_choices,
            on_choose=choose,
            has_field=False,
            keeps_open=True,
            hint="Enter: show or hide · Esc: done",
        )

    def back(self) -> bool:
        """Go back from the lines to paste to the list; leave the list with a notice on what is not saved.

        Returns whether the page stays.
        """
        if self._paste:
            self._paste = []
            self.update()
            return True
        if super().back():
            return True
        count = len(self.unsaved_values())
        if count == 1:
            self.context.say("1 change holds until gpumon ends: not saved")
        elif count:
            self.context.say(f"{count} changes hold until gpumon ends: not saved")
        return False

    def write(self) -> bool:
        """Save what was changed into the config file, or say why there is nothing to do; the key is always taken."""
        files = self.context.files
        changes = self.unsaved_values()
        if files is None:
            self.context.say("there is no file to save to")
        elif not changes:
            self.context.say("nothing is changed")
        else:
            self.context.post_message(WorkWanted("write", partial(self._write, changes)))
        return True

    async def _write(self, changes: dict[tuple[str, str], object]) -> None:
        """Save the changes; where the file cannot be written, show the lines to paste into it."""
        files = self.context.files
        assert files is not None
        is_written, text = await files.save_settings(changes)
        if is_written:
            self.context.say(text)
        else:
            self._paste = [*text.splitlines(), "", f"{self.view.keymap.first('back')}: back"]
        self.update()
        self.post_message(KeysChanged())

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Let Delete set the setting under the cursor to its default, unless a command has that key."""
        if key in ("delete", "backspace") and not self.view.keymap.holds(key):
            setting = self.selected
            if setting is not None:
                self.set_value(setting, setting.value(_DEFAULTS))
            return True
        return False


def _typed_question(page: SettingsPage, setting: Setting) -> Question:
    """A number to type, for a setting that has a `read`."""
    assert setting.read is not None
    read = setting.read

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        try:
            value = read(text)
        except ValueError as error:
            example = setting.show(setting.value(_DEFAULTS) or _EXAMPLE_MS)
            page.context.say(f"{setting.name}: {error}, such as {example}")
            return
        page.set_value(setting, value)

    return Question(
        f"{setting.name}:",
        on_choose=choose,
        text=setting.text_to_type(setting.value(page.view.config)),
        replaces_text=True,
        hint="Enter: use it · Esc: as before",
    )


def _listed_question(page: SettingsPage, setting: Setting) -> Question:
    """A list to choose from; the choice under the cursor is in effect at once, and Esc takes it back."""
    before = setting.value(page.view.config)
    first = setting.choices.index(before) if before in setting.choices else 0

    def list_choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
        choices = []
        for value in page.with_themes(setting).choices:
            note = "default" if value == setting.value(_DEFAULTS) else ""
            choices.append(Choice(setting.show(value), note, value))
        return choices

    def use(choice: Choice | None) -> None:
        page.set_value(setting, before if choice is None else choice.value)

    return Question(
        setting.name,
        choices=list_choices,
        on_choose=lambda choice, _: use(choice),
        on_drop=lambda: use(None),
        on_point=use,
        first_choice=first,
        has_field=False,
        hint="Enter: use it · Esc: as before",
    )
