"""A terminal that is the same everywhere: UTC, true colour, UTF-8."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from tests.tui.idle import quick_pilot
from tests.tui.stylesheets import parsed_stylesheets

__all__ = ["parsed_stylesheets", "quick_pilot"]


@pytest.fixture(autouse=True)
def known_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Environment of every test of the screen."""
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def garbage_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A monitor stays and is kept out of the garbage collector's sight; here they are many, and each one goes."""
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.fixture
def lasting_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices stand until the next key: on a busy machine what is simulated beside takes longer than a notice lasts."""
    monkeypatch.setattr("gpumon.tui.screens.monitor.NOTICE_S", 600.0)
