"""Which tests a worker takes at a time: whole modules, but for long ones, which go out in parts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

PARTS: Final = {"tests/accuracy/test_triage.py": 3, "tests/tui/test_keys.py": 2}
"""Number of parts of a module that works for long, so that it is not the last one to run. The tests of one parameter
stay together: what is set up for it is set up once.
"""

TOGETHER: Final = {
    "tests/architecture/test_import_cycles.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_layers.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_typed_screen.py": "tests/architecture/test_walking_pace.py",
}
"""Modules that one worker takes together, because what they look at is parsed once in a process."""


def units(tests: Sequence[str]) -> list[list[int]]:
    """Places of the tests that one worker takes together, in the order of their first ones."""
    by_name: dict[str, list[int]] = {}
    for place, test in enumerate(tests):
        by_name.setdefault(_unit(test), []).append(place)
    return list(by_name.values())


def _unit(test: str) -> str:
    """Name of the unit that a test belongs to."""
    path = test.partition("::")[0]
    module = TOGETHER.get(path, path)
    parameter = test.partition("[")[2]
    if module in PARTS and parameter:
        return f"{module} {zlib.crc32(parameter.encode()) % PARTS[module]}"
    return module
