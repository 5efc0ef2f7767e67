"""The walks in docs/architecture.md are those that a trace of the running program shows."""

from __future__ import annotations

from typing import Final

from tests.architecture.walk import DOC, PROGRAM, WALKS, Way, documented, purpose, traced

MOST_FILES: Final = 25
"""Files that change a counter on its way to the screen."""


PAINTING: Final = {"tui/line.py", "tui/output.py", "tui/widgets/board.py", "tui/widgets/pane.py"}
"""Last files of a way: which of them hand a line over anew depends on what was painted a moment before."""


MOST_BY_MOMENT: Final = 3
"""Files that pass a thing on in one trace and not in another: those of a tick that comes before the trace ends, and of
figures that have the same value for a moment."""


def changers(way: Way) -> set[str]:
    """Files that change a thing on its way up to the painting."""
    return {*way.changed_by} - PAINTING


def every(way: Way) -> set[str]:
    """All files of a way up to the painting."""
    return {*way.changed_by, *way.passed_on_by} - PAINTING


def test_the_walks_are_those_that_a_trace_shows() -> None:
    """`python -m tests.architecture.walk --write` writes them anew."""
    ways = traced()
    shown = documented(DOC.read_text(encoding="utf-8"))
    for walk in WALKS:
        way = ways[walk.name]
        doc = shown[walk.name]
        assert changers(way) <= every(doc), walk.name
        assert changers(doc) <= every(way), walk.name
        by_moment = every(way) ^ every(doc)
        assert len(by_moment) <= MOST_BY_MOMENT, f"{walk.name}: {sorted(by_moment)}"
    assert len(ways["counter"].changed_by) <= MOST_FILES


def test_each_file_of_a_walk_has_the_purpose_that_its_docstring_says() -> None:
    text = DOC.read_text(encoding="utf-8")
    for way in documented(text).values():
        for file in way.changed_by:
            assert (PROGRAM / file).is_file(), file
            assert f"| `{file}` | {purpose(file)} |" in text
