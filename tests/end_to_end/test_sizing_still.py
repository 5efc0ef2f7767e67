"""The sizing panel of the installed command on simulated engines, read over HTTP: time alone changes nothing on it."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

from tests.terminal import Terminal

GPUMON = str(Path(sys.executable).with_name("gpumon"))
_SEEN = re.compile(r"(seen +)\S.*")
"""The line of the points, their age and the offer."""


def panel(terminal: Terminal) -> list[str]:
    """The lines of the panel, which has the whole screen, without that of its age and offer."""
    return [_SEEN.sub(r"\1", line) for line in terminal.screen()[2:-1]]


def seen(terminal: Terminal) -> str:
    """The line of the points, their age and the offer; empty where there is none."""
    return next((line for line in terminal.screen() if " seen  " in line), "")


def wait(terminal: Terminal, text: str, seconds: float = 90.0) -> None:
    """Run until the line of the offer, or else the screen, shows a text."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        terminal.run(0.5)
        if text in "\n".join(terminal.screen()):
            return
    raise AssertionError("never shown:\n" + "\n".join(terminal.screen()))


def test_engines_that_are_measured_on_and_on_change_an_offer_and_no_answer(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with Terminal([GPUMON, "demo"], env, 120, 40, loaded=True) as terminal:
        wait(terminal, "3/3 engines up")
        terminal.run(2.0)
        for keys in (b"s", b"400\r", b"i", b"40\r"):
            terminal.type(keys)
            terminal.run(0.5)
        wait(terminal, "of 40ms (simulated)")  # a p95 that is simulated arrives a moment after the key
        wait(terminal, "TPOT ≤ 40 ms")
        terminal.run(1.0)
        before = panel(terminal)
        assert any("400" in line for line in before)
        wait(terminal, "r takes")
        terminal.run(12.0)
        assert panel(terminal) == before
        assert re.search(r"r takes .* newer", seen(terminal))
        terminal.type(b"r")
        wait(terminal, "taken: what the engines showed up to now")
        assert re.search(r"points?, \d+s old", seen(terminal))
