"""The screen that the sizing panel is part of, as the panel sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from gpumon.tui.control import Control, Files

if TYPE_CHECKING:
    from gpumon.tui.widgets.drawer import Drawer, Question


class HostScreen(Protocol):
    """What the panel asks of it."""

    control: Control
    files: Files | None
    ask: Callable[[Question], None]
    say: Callable[[str], None]
    drawer: Drawer
    show_keys: Callable[[], None]
    run_alone: Callable[[str, Callable[[], Coroutine[None, None, None]]], None]

    @property
    def gone_back(self) -> bool: ...
