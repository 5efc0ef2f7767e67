"""Every place that catches all exceptions or silences a check says why: on its line or on the one above."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.each_row import each_row

ROOT = Path(__file__).parents[2]
MODULES = [ROOT / "hatch_build.py", *sorted((ROOT / "gpumon").rglob("*.py"))]
CATCHES_ALL = re.compile(r"^\s*except( \(?[\w, ]*\b(Exception|BaseException)\b.*)?:(?P<behind>.*)$")
SILENCES = re.compile(
    r"#.*?(noqa|type: ignore|pragma)\b(: ?[A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*|\[[\w, -]+\])?(?P<behind>.*)$"
)


def unexplained(text: str) -> Iterator[int]:
    """Lines with such a place and without a reason."""
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        place = CATCHES_ALL.search(line) or SILENCES.search(line)
        explained = above.lstrip().startswith("#")
        if place is not None and not explained and not re.search(r"\w", place["behind"]):
            yield number
        above = line


def test_a_broad_except_and_a_silenced_check_have_a_reason() -> None:
    places = []
    for module in MODULES:
        for line in unexplained(module.read_text(encoding="utf-8")):
            places.append(f"{module.relative_to(ROOT)}:{line}")
    assert places == []


@each_row(
    ("text", "lines"),
    [
        ("except Exception:", [1]),
        ("except:", [1]),
        ("    except BaseException as error:", [1]),
        ("except (OSError, Exception) as error:", [1]),
        ("except Exception:  # whatever it is", []),
        ("# whatever it is\nexcept Exception:", []),
        ("except OSError:", []),
        ("x = 1  # noqa: A001", [1]),
        ("x = 1  # noqa: A001, B002", [1]),
        ("x = 1  # noqa: A001 - the name of the setting", []),
        ("x = 1  # noqa: A001 (the name of the setting)", []),
        ("x = 1  # type: ignore[misc, assignment]", [1]),
        ("x = 1  # type: ignore[misc]  # final in typeshed", []),
        ("x = 1\ny = 2  # type: ignore", [2]),
    ],
)
def test_the_check_sees_what_it_forbids(text: str, lines: list[int]) -> None:
    assert [*unexplained(text)] == lines
