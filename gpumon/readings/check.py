"""One line of the doctor's report: what was looked at, how it is, and the fix."""

from __future__ import annotations

from enum import Enum

import msgspec


class CheckState(str, Enum):
    """How one checked thing is."""

    OK = "ok"
    WARN = "warn"
    """Works, with figures missing or less exact."""
    FAIL = "fail"
    """Does not work."""
    OFF = "off"
    """Not there, or switched off by the user: nothing to fix."""


class Check(msgspec.Struct, frozen=True):
    """One checked thing. `name`, `text` and `fix` may hold text from outside: clean it before showing."""

    area: str
    """driver, dcgm, gpu, endpoint, model, terminal, config, or gpumon."""
    name: str
    state: CheckState
    text: str
    fix: str = ""
    """Action, or the lines to add to the config; empty if there is nothing to do."""
