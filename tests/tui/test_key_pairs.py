"""Two keys in one read, as a slow line brings them: every pair, and every key before and behind the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from gpumon.config.keymap import COMMANDS
from tests.tui.pty_process import screen
from tests.tui.running import running, text_of
from tests.tui.test_keys import LEAVES, disk_at, feed_with_past, signals_sent, type_fast
from tests.tui.test_process import PAINTED, assert_restored

KEYS: Final = list(
    dict.fromkeys(
        command.keys[0] for command in COMMANDS if command.keys and not command.scope and command.id not in LEAVES
    )
)
OPENERS: Final = ("?", "enter", "/", "o", "f2", ":", "s", "w", "a")
"""Keys that mount something: a page, a question, the palette, the sizing panel. Their pairs are tried at every run."""
BYTES: Final = {
    "enter": b"\r",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "escape": b"\x1b",
    "space": b" ",
    "comma": b",",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "f2": b"\x1bOQ",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
}
"""What a terminal sends for a key that is no character."""


def sent(key: str) -> bytes:
    """What a terminal sends for a key."""
    return BYTES.get(key) or key.encode("ascii")


WITH_OPENERS_ALWAYS: Final = [
    key if key in OPENERS else pytest.param(key, marks=pytest.mark.wide) for key in KEYS if key != "escape"
]


def pairs() -> list[Any]:
    """First keys, each with those that come second.

    At every run: each opener with each other one, and all other keys behind one opener each.
    """
    others = [key for key in KEYS if key not in OPENERS]
    cases = [
        pytest.param(first, (*OPENERS, *others[place :: len(OPENERS)]), id=first) for place, first in enumerate(OPENERS)
    ]
    for first in KEYS:
        if first != "escape":
            cases.append(pytest.param(first, KEYS, id=f"{first} and all", marks=pytest.mark.wide))
    return cases


@pytest.mark.parametrize(("first", "seconds"), pairs())
async def test_two_keys_in_one_read_do_no_harm(
    first: str, seconds: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    signalled = signals_sent(monkeypatch)
    feed = feed_with_past("one_lost")
    async with running(feed, 120, 40, files=disk_at(tmp_path)) as (app, _):
        for second in seconds:
            await type_fast(app, first, second)
            assert not app._exit, second
            assert "pane failed" not in "\n".join(text_of(app)), second
            await type_fast(app, *["escape"] * 4)
            assert app.monitor.question_bar is None, second
            assert app.screen is app.monitor, second
            assert app.monitor.pages.shown is None, second
            assert not app.monitor.travel.paused, second
    assert signalled == []


@pytest.mark.parametrize("end", [b"\x03", b"q"])
def test_every_key_behind_the_end_is_for_nothing(end: bytes) -> None:
    process = screen(120, 40, "live")
    try:
        process.read(60.0, lambda written: PAINTED in written and b"vllm:8002" in written)
        process.type(end + b"".join(map(sent, KEYS)))
        assert process.wait(60.0) == 0
        assert_restored(process)
        assert b"Traceback" not in process.written
    finally:
        process.close()


@pytest.mark.parametrize("first", WITH_OPENERS_ALWAYS)
def test_the_end_in_one_read_with_what_is_being_opened_restores_the_terminal(first: str) -> None:
    process = screen(120, 40, "live")
    try:
        process.read(60.0, lambda written: PAINTED in written and b"vllm:8002" in written)
        process.type(sent(first) + b"\x03" + sent(first))
        assert process.wait(60.0) == 0
        assert_restored(process)
        assert b"Traceback" not in process.written
    finally:
        process.close()
