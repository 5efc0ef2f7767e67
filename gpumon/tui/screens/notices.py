"""What a screen says for some seconds, where its keys are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.screen import Screen
from textual.timer import Timer

if TYPE_CHECKING:
    from gpumon.tui.widgets.drawer import Drawer
    from gpumon.tui.widgets.key_line import KeyLine

_NOTICE_S: Final = 4.0
"""How long a notice stands where the keys are named, unless a key is pressed before."""


class Notices(Screen[None]):
    """The part of a screen that says something."""

    _notice: Timer | None = None
    _unsaid = ""
    """A notice that waits until the drawer is closed."""
    if TYPE_CHECKING:
        drawer: Drawer
        key_line: KeyLine

    def say(self, text: str) -> None:
        """A notice where the keys are named, for some seconds or until the next key; while the drawer is open it waits,
        as the keys of what is asked stand there."""
        self.unsay()
        if self.drawer.open:
            self._unsaid = text
            return
        self.key_line.say(text)
        self._notice = self.set_timer(_NOTICE_S, self.unsay)

    def unsay(self) -> None:
        """No notice any more: neither the one that stands there nor the one that waits."""
        self._unsaid = ""
        if self._notice is not None:
            self._notice.stop()
            self._notice = None
            self.key_line.unsay()

    def say_what_waited(self) -> None:
        """The notice that the drawer kept back."""
        if self._unsaid:
            self.say(self._unsaid)
