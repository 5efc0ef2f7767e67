"""What the environment says about the terminal, decided without textual."""

from __future__ import annotations

import subprocess
import sys

from gpumon.tui.terminal import Depth, colour_depth, refusal, wants_ascii
from tests.each_row import each_row


@each_row("terminal", ["dumb", "", "unknown", "DUMB"])
def test_a_terminal_that_cannot_move_its_cursor_is_refused(terminal: str) -> None:
    said = refusal({"TERM": terminal}, True)
    assert said is not None
    assert "gpumon watch --plain" in said
    assert "\n" not in said


def test_no_terminal_is_refused() -> None:
    said = refusal({"TERM": "xterm-256color"}, False)
    assert said is not None
    assert "gpumon watch --plain" in said


@each_row(("terminal", "isatty"), [("dumb", True), ("xterm-256color", False)])
def test_whoever_wants_the_simulated_server_is_shown_the_way_to_that_one(terminal: str, isatty: bool) -> None:
    said = refusal({"TERM": terminal}, isatty, demo=True) or ""
    assert "`gpumon watch --demo --plain`" in said
    assert "`gpumon watch --demo --json`" in said


def test_a_terminal_is_not_refused() -> None:
    assert refusal({"TERM": "xterm-256color"}, True) is None
    assert refusal({"TERM": "linux"}, True) is None


def test_a_hostile_name_is_printed_safely() -> None:
    said = refusal({"TERM": ""}, True) or ""
    assert "(not set)" in said


@each_row(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, True),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, True),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, False),
    ],
)
def test_ascii_where_the_terminal_has_no_unicode(environ: dict[str, str], expected: bool) -> None:
    assert wants_ascii(environ, coerced=False) is expected


@each_row(
    ("environ", "expected"),
    [
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.ISO-8859-1"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C", "PYTHONUTF8": "1"}, False),
    ],
)
def test_a_locale_that_python_chose_by_itself_is_not_the_users(environ: dict[str, str], expected: bool) -> None:
    assert wants_ascii(environ, coerced=True) is expected


@each_row(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, Depth.TRUE),
        ({"TERM": "xterm-256color", "COLORTERM": "24bit"}, Depth.TRUE),
        ({"TERM": "xterm-kitty"}, Depth.TRUE),
        ({"TERM": "tmux-256color"}, Depth.PALETTE),
        ({"TERM": "screen"}, Depth.ANSI),
        ({"TERM": "linux"}, Depth.ANSI),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, Depth.NONE),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, Depth.PALETTE),
        ({"TERM": "linux", "COLORTERM": "truecolor"}, Depth.ANSI),
        ({"TERM": "screen", "COLORTERM": "truecolor", "STY": "1.pts-0.gpu"}, Depth.ANSI),
        ({"TERM": "screen-256color", "COLORTERM": "truecolor", "STY": "1.pts-0.gpu"}, Depth.PALETTE),
        ({"TERM": "screen-256color", "COLORTERM": "truecolor", "TMUX": "/tmp/tmux-0/default,1,0"}, Depth.TRUE),
    ],
)
def test_colours_of_the_terminal(environ: dict[str, str], expected: Depth) -> None:
    assert colour_depth(environ) is expected


def test_a_refusal_does_not_import_textual() -> None:
    code = "import sys, gpumon.tui.terminal; print(any(m.split('.')[0] in ('textual', 'rich') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
