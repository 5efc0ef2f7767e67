"""The pictures in docs/ are what the program draws today."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.segment import Segment
from textual.strip import Strip

from tests.tui.moving_picture import Scene, moving_picture
from tests.tui.screenshot import FIRST_PORT, drawn

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 400_000


@pytest.fixture
def pictures() -> dict[str, str]:
    return _drawn_once()


@cache
def _drawn_once() -> dict[str, str]:
    return drawn()


def test_the_committed_pictures_are_those_of_today(pictures: dict[str, str]) -> None:
    old = [name for name, picture in pictures.items() if _committed(name) != picture]
    assert not old, f"docs/ has old pictures ({', '.join(old)}): run `make pictures`, look at them, and commit them"


def _committed(name: str) -> str:
    path = DOCS / name
    return path.read_text("utf-8") if path.exists() else ""


def test_they_tell_nothing_of_the_machine_that_drew_them(pictures: dict[str, str]) -> None:
    ports = {int(port) for picture in pictures.values() for port in re.findall(r"127\.0\.0\.1:(\d+)", picture)}
    assert ports <= {FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2}


def test_the_moving_one_is_small_and_moves(pictures: dict[str, str]) -> None:
    moving = pictures["demo.svg"]
    assert len(moving.encode()) < MOST_BYTES
    ElementTree.fromstring(moving)
    assert "@keyframes" in moving
    for words in ("fallen off the bus", "llama-70b", "400"):
        assert words in moving


def test_a_line_that_two_scenes_share_is_drawn_once() -> None:
    same = Strip([Segment("same <here>")])
    first = Scene((same, Strip([Segment("first")])), "one", 1.0)
    second = Scene((same, Strip([Segment("second")])), "two", 3.0)
    moving = moving_picture((first, second))
    assert moving.count("same &lt;here&gt;") == 1
    assert "0.00%{visibility:visible}25.00%{visibility:hidden}" in moving
    assert "0.00%{visibility:hidden}25.00%{visibility:visible}" in moving
    assert "animation:s0 4s step-end infinite" in moving
