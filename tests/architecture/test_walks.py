"""The walks in docs/architecture.md are those that a trace of the running program shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


MOST_TRACES: Final = 3
"""Traces of which one has to show the walks: a trace takes longer on a busy machine, and the longer it is, the more
figures have by chance the value of the one that is followed."""


def differences(ways: Mapping[str, Way], shown: Mapping[str, Way]) -> Iterator[str]:
    """Where a trace shows something else than the document."""
    for walk in WALKS:
        way = ways[walk.name]
        doc = shown[walk.name]
        others = (changers(way) - every(doc)) | (changers(doc) - every(way))
        if others:
            yield f"{walk.name}: one of both alone has {sorted(others)}"
        by_moment = every(way) ^ every(doc)
        if len(by_moment) > MOST_BY_MOMENT:
            yield f"{walk.name}: more than {MOST_BY_MOMENT} by the moment: {sorted(by_moment)}"
    if len(ways["counter"].changed_by) > MOST_FILES:
        yield f"counter: more than {MOST_FILES} files change it: {ways['counter'].changed_by}"


def test_the_walks_are_those_that_a_trace_shows() -> None:
    """`python -m tests.architecture.walk --write` writes them anew."""
    shown = documented(DOC.read_text(encoding="utf-8"))
    for _ in range(MOST_TRACES):
        found = list(differences(traced(), shown))
        if not found:
            break
    assert found == []


def test_each_file_of_a_walk_has_the_purpose_that_its_docstring_says() -> None:
    text = DOC.read_text(encoding="utf-8")
    for way in documented(text).values():
        for file in way.changed_by:
            assert (PROGRAM / file).is_file(), file
            assert f"| `{file}` | {purpose(file)} |" in text
