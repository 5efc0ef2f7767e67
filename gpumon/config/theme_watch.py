"""A theme that follows its files: read again when one of them changed on disk."""

from __future__ import annotations

from pathlib import Path

from gpumon.config.errors import ConfigError
from gpumon.config.themes import Shelf, Stamp, Theme, stamp_of
from gpumon.readings.text import clean


class ThemeFile:
    """The theme of a name, as its files stand: its own, those that it starts from, and those that would come first.

    The files are looked at when `changed` is called, and only then; that blocks as files do, so it is for a thread,
    one call at a time.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        """Read it; `folder` has the user's own themes. Raises ConfigError."""
        self._name = name
        self._folder = folder
        shelf = Shelf(folder)
        self.theme: Theme = shelf.theme(name)
        """The last good one."""
        self._shelf = shelf
        self._good = shelf
        self._reported: tuple[object, ...] = ()

    def changed(self) -> Theme | ConfigError | None:
        """The new theme; or what is wrong with it, once per content, while the last good one stays; None: nothing new.

        A file that is gone is reported once, and looked for from then on.
        """
        if all(_stamp(path) == stamp for path, stamp in self._shelf.stamps.items()):
            return None
        shelf = self._shelf = Shelf(self._folder)
        theme, error = self._read(shelf)
        if theme is None:
            return self._once(error, shelf)
        self._good, self._reported = shelf, ()
        if theme == self.theme:
            return None
        self.theme = theme
        return theme

    def _read(self, shelf: Shelf) -> tuple[Theme | None, str]:
        """The theme, or what is wrong."""
        error = ""
        try:
            theme = shelf.theme(self._name)
        except ConfigError as refused:
            error = str(refused)
        for path, text in self._good.texts.items():
            if text is not None and shelf.texts.get(path, "") is None:
                return None, f"{clean(str(path))} is gone: its colours stay until it is back"
        return (None, error) if error else (theme, "")

    def _once(self, error: str, shelf: Shelf) -> ConfigError | None:
        content = (error, *shelf.texts.items())
        if content == self._reported:
            return None
        self._reported = content
        return ConfigError(error)


def _stamp(path: Path) -> Stamp | None:
    """What tells whether a file changed; None: it is not there."""
    try:
        return stamp_of(path.stat())
    except OSError:
        return None
