"""The bar of commands that take long: on a terminal alone, after two seconds, and gone at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pyte
import pytest

from gpumon.commands import progress
from gpumon.commands.progress import ProgressBar

AT_ONCE = (
    *(sys.executable, "-c"),
    "from gpumon.commands import progress; progress._SHOWN_AFTER_S = 0.1; from gpumon.__main__ import main; main()",
)
"""gpumon with a bar after a tenth of a second: what takes two seconds on every machine takes ten on a slow one."""

ROOT = Path(__file__).parents[2]


class Screen:
    """The far end of a terminal: what its screen showed, one text for each piece that was read."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(80, 5)
        self.stream = pyte.ByteStream(self.screen)
        self.shown: list[str] = []

    def feed(self, data: bytes) -> None:
        self.stream.feed(data)
        self.shown.append("\n".join(self.screen.display).strip())


def read_all(descriptor: int, screen: Screen) -> None:
    while True:
        try:
            data = os.read(descriptor, 256)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        screen.feed(data)


def test_a_long_simulation_shows_what_it_does_and_leaves_nothing(tmp_path: Path) -> None:
    near, far = pty.openpty()
    words = ("simulate", "--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--rate", "20", "--duration", "20m")
    lengths = ("--prompt", "1000", "--answer", "200", "--answer-variation", "1", "--json")
    env = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        [*AT_ONCE, *words, *lengths], stdout=subprocess.PIPE, stderr=far, env=env, cwd=ROOT
    ) as program:
        os.close(far)
        screen = Screen()
        read_all(near, screen)
        assert program.stdout is not None
        assert b'"simulations"' in program.stdout.read()
    os.close(near)
    assert any("Qwen/Qwen3-32B: " in text and " of TP " in text for text in screen.shown)
    assert screen.shown[-1] == ""


def drawn(monkeypatch: pytest.MonkeyPatch, after_s: float, seconds: float) -> Screen:
    """The screen of a bar that is there for so many seconds."""
    near, far = pty.openpty()
    monkeypatch.setattr(progress, "_SHOWN_AFTER_S", after_s)
    monkeypatch.setenv("TERM", "xterm-256color")
    with os.fdopen(far, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ProgressBar("planning") as bar:
            time.sleep(seconds / 2.0)
            bar.tell("chat [red]: 3 replicas", 0.5)
            time.sleep(seconds / 2.0)
    screen = Screen()
    read_all(near, screen)
    os.close(near)
    return screen


def test_what_is_told_is_what_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = drawn(monkeypatch, after_s=0.0, seconds=1.0)
    assert any("planning" in text for text in screen.shown)
    assert any("chat [red]: 3 replicas" in text for text in screen.shown)
    assert screen.shown[-1] == ""


def test_what_is_over_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, after_s=30.0, seconds=0.1).shown == []
